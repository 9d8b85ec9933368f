//! Where each value of a config comes from.

use std::fmt;

use aplomb_core::error::{Error, codes};
use serde::Serialize;
use serde_json::Value;

use super::document::{Content, Document, Giver, Node, Place};
use super::{Config, env};

/// A value of a config that holds no other, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Setting {
    /// Its path, such as `agents[0].llm.model`.
    pub path: String,
    /// The value, as [`Config::resolved`] shows it.
    pub value: Value,
    /// Where it comes from.
    pub source: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Origin {
    /// Which layer says it.
    pub kind: Layer,
    /// The place there.
    #[serde(flatten)]
    pub place: Place,
    /// The variables that were replaced in it: `HOST` in `http://${HOST}/v1`.
    pub replaced: Vec<String>,
}

/// A layer of a config; a later one goes over those before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// Nobody says it, or somebody says null.
    #[default]
    Default,
    /// The document.
    File,
    /// An environment variable.
    Environment,
    /// `--set`, or [`Loader::set`](super::Loader::set).
    Flag,
    /// The program, after the config was read.
    Code,
}

/// `agent.json:7:18`, a variable, a flag, `default` or `code`; and the variables in it: `agent.json:7:18, ${HOST}`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Layer::Default => f.write_str("default")?,
            Layer::Code => f.write_str("code")?,
            Layer::File | Layer::Environment | Layer::Flag => self.place.fmt(f)?,
        }
        self.replaced.iter().try_for_each(|name| write!(f, ", ${{{name}}}"))
    }
}

impl Config {
    /// Every value with where it comes from, in the order of [`resolved`](Config::resolved), which also says what `redact`
    /// does.
    ///
    /// # Errors
    ///
    /// As [`resolved`](Config::resolved).
    pub fn provenance(&self, redact: bool) -> Result<Vec<Setting>, Error> {
        let json = |config: &Config| {
            serde_json::to_value(config).map_err(|error| Error::foreign(codes::CONFIG_ERROR, error))
        };
        let shown = self.resolved(redact)?;
        let now = json(self)?;
        let read = self.loaded.1.as_deref().map(json).transpose()?;
        let mut settings = Vec::new();
        let root = Values {
            shown: &shown,
            now: &now,
            read: read.as_ref(),
            node: self.loaded.0.as_ref().map(|document| &document.root),
        };
        settings_of(self.loaded.0.as_deref(), root, String::new(), &mut settings);
        Ok(settings)
    }
}

/// One value: as it is shown, as it is, as it was read, and where it was read.
#[derive(Clone, Copy)]
struct Values<'a> {
    shown: &'a Value,
    now: &'a Value,
    read: Option<&'a Value>,
    node: Option<&'a Node>,
}

fn settings_of(document: Option<&Document>, values: Values<'_>, path: String, settings: &mut Vec<Setting>) {
    let Values { shown, now, read, node } = values;
    match (shown, now) {
        (Value::Object(fields), Value::Object(_)) if !fields.is_empty() => {
            for (key, shown) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let values = Values {
                    shown,
                    now: now.get(key).unwrap_or(shown),
                    read: read.and_then(|read| read.get(key)),
                    node: node.and_then(|node| Some(&node.entry(key)?.node)),
                };
                settings_of(document, values, format!("{path}{dot}{key}"), settings);
            }
        }
        (Value::Array(items), Value::Array(_)) if !items.is_empty() => {
            for (index, shown) in items.iter().enumerate() {
                let values = Values {
                    shown,
                    now: now.get(index).unwrap_or(shown),
                    read: read.and_then(|read| read.get(index)),
                    node: node.and_then(|node| node.items().get(index)),
                };
                settings_of(document, values, format!("{path}[{index}]"), settings);
            }
        }
        _ => {
            let source = match (read, document, node) {
                (Some(read), _, _) if read != now => Origin { kind: Layer::Code, ..Origin::default() },
                (None, _, _) => Origin { kind: Layer::Code, ..Origin::default() },
                (_, Some(document), Some(node)) => origin(document, node),
                _ => Origin::default(),
            };
            settings.push(Setting { path, value: shown.clone(), source });
        }
    }
}

fn origin(document: &Document, node: &Node) -> Origin {
    if let Content::Null = node.value {
        return Origin::default();
    }
    let kind = match document.source(Some(node.span)).map(|source| &source.giver) {
        Some(Giver::Variable(_)) => Layer::Environment,
        Some(Giver::Flag(_)) => Layer::Flag,
        Some(Giver::File(_)) | None => Layer::File,
    };
    let written = node.written.as_deref().filter(|_| kind != Layer::Environment);
    let replaced = written.map(env::names_in).unwrap_or_default();
    Origin { kind, place: document.place(Some(node.span)), replaced }
}
