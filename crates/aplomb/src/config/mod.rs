//! `agent.json`: what an agent is, as a document.
//!
//! The keys are those of `docs/spec/runtime.md` §5. A document is read to values that know their places, variables are
//! replaced, and everything that does not fit is reported at once; only then does it become a [`Config`]. Keys whose
//! behaviour comes later ([`PENDING_KEYS`]) are refused: a key that silently does nothing is worse than none.

mod check;
mod document;
mod env;
mod fit;
mod lacking;
mod problem;
mod providers;
mod publish;
mod report;
mod schema;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use aplomb_core::error::{Error, codes};
pub use aplomb_faultlab::script::Script;
use serde_json::Value;

pub use document::Format;
pub use lacking::PENDING_KEYS;
pub use publish::{reference, schema};
pub use report::Warning;
pub use schema::*;

pub(crate) use check::is_python;
pub(crate) use fit::Schema;
pub(crate) use providers::{OF_WIRES, Provider, vendor_summary};

use crate::plugins::Registry;
use document::{Document, Node, Source};
use problem::Problem;

/// The schema of a whole document. It is our own, so that it is one is proved by every test.
static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::of::<Config>().ok());

/// The built-in plugins.
static BUILT_IN: LazyLock<Registry> = LazyLock::new(Registry::new);

/// What a config was read from, and what it was then. Equal to every other: two configs that say the same are the same.
#[derive(Clone, Default)]
pub(crate) struct Loaded(Option<Arc<Document>>, Option<Arc<Config>>);

/// Without the text, which may hold credentials.
impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loaded").field(&self.0.as_ref().map(|document| &*document.source.name)).finish()
    }
}

impl PartialEq for Loaded {
    fn eq(&self, _: &Loaded) -> bool {
        true
    }
}

impl Config {
    /// Reads a file: JSON, or YAML or TOML where its name ends so.
    ///
    /// # Errors
    ///
    /// `config.load` if it cannot be read, is not valid, or needs a variable that is not set; `config.validation`,
    /// `plugin.load` and `plugin.config` if it does not fit. The message lists everything that is wrong, each with its
    /// place.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Config, Error> {
        Config::of_document(Document::from_file(file.as_ref())?)
    }

    /// Reads JSON; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// As [`from_file`](Config::from_file).
    pub fn from_json(text: &str, name: &str) -> Result<Config, Error> {
        Config::from_text(text, name, Format::Json)
    }

    /// Reads a text; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// As [`from_file`](Config::from_file).
    pub fn from_text(text: &str, name: &str, format: Format) -> Result<Config, Error> {
        Config::of_document(Document::parse(text, name, format)?)
    }

    fn of_document(mut document: Document) -> Result<Config, Error> {
        let mut problems = Vec::new();
        env::replace(&mut document.root, &mut problems);
        let document = Arc::new(document);
        let mut config = read(&document, problems, &BUILT_IN, false)?;
        let read = Arc::new(config.clone());
        config.loaded = Loaded(Some(document), Some(read));
        Ok(config)
    }

    /// Leaves one agent alone.
    pub fn keep_agent(&mut self, id: &str) {
        let mut kept = self.agents.iter().map(|agent| agent.id == id).collect::<Vec<_>>().into_iter();
        self.agents.retain(|agent| agent.id == id);
        if let Some(loaded) = &mut self.loaded.0
            && let Some(agents) = Arc::make_mut(loaded).root.entry_mut("agents")
        {
            agents.node.retain_items(|| kept.next().unwrap_or_default());
        }
    }

    /// Checks a config again that may have been made or changed in code, by what the program has registered.
    pub(crate) fn check(&self, registry: &Registry) -> Result<(), Error> {
        if let Loaded(Some(document), Some(read_then)) = &self.loaded
            && **read_then == *self
        {
            return match self.names_own_parts() {
                true => read(document, Vec::new(), registry, true).map(|_| ()),
                false => Ok(()),
            };
        }
        let mut value =
            serde_json::to_value(self).map_err(|error| Error::foreign(codes::CONFIG_VALIDATION, error))?;
        without_the_firsts(&mut value);
        let mut document =
            Document::of_value(&value, self.loaded.0.as_ref().map(|loaded| loaded.source.clone()));
        if let Some(loaded) = &self.loaded.0 {
            document.root.take_places(&loaded.root);
        }
        read(&document, Vec::new(), registry, true).map(|_| ())
    }

    /// Whether it names a plugin that only the program can know.
    fn names_own_parts(&self) -> bool {
        let of_agent = |agent: &AgentConfig| {
            agent.memory.as_ref().is_some_and(|memory| memory.r#impl.is_some())
                || agent.pattern.r#impl.is_some()
                || agent.tool_executor.r#impl.is_some()
                || agent.context_assembler.as_ref().is_some_and(|assembler| assembler.r#impl.is_some())
                || agent.tools.iter().any(|tool| tool.r#impl.is_some())
                || [&agent.llm]
                    .into_iter()
                    .chain(&agent.llm.fallbacks)
                    .any(|llm| BUILT_IN.find_provider(&llm.provider).is_none())
        };
        let of_all = [&self.runtime.r#impl, &self.session.r#impl, &self.events.r#impl];
        of_all.iter().any(|name| name.is_some()) || self.agents.iter().any(of_agent)
    }

    /// One error of all agents that cannot be made ready, each with its place.
    pub(crate) fn all_of(&self, refused: Vec<(usize, Error)>) -> Result<(), Error> {
        let path = |index: usize, error: &Error| match error.context("path").and_then(Value::as_str) {
            Some(path) => format!("agents[{index}].{path}"),
            // What the model says of its own settings begins with the setting.
            None => match error.message().split_once(' ') {
                Some((setting, _)) if setting.starts_with("llm.") => {
                    format!("agents[{index}].{}", setting.trim_end_matches(':'))
                }
                _ => format!("agents[{index}]"),
            },
        };
        let loaded = self.loaded.0.as_deref();
        if let [(index, error)] = refused.as_slice() {
            let path = path(*index, error);
            let node = loaded.and_then(|loaded| Some((loaded, node_at(&loaded.root, &path)?)));
            let error = error.clone().with_place(&format!("agents[{index}]"));
            return Err(match node {
                Some((loaded, node)) => error.with_place(&loaded.source.place(Some(&node.span))),
                None => error,
            }
            .with_context("path", path));
        }
        let document = match loaded {
            Some(loaded) => loaded,
            None => &Document::of_value(&Value::Null, None),
        };
        let problems = refused.iter().map(|(index, error)| {
            let path = path(*index, error);
            let problem = Problem::new(error.code(), &path, error.message());
            let problem = match error.hint() {
                Some(hint) => problem.help(hint),
                None => problem,
            };
            match node_at(&document.root, &path) {
                Some(node) if loaded.is_some() => problem.at(&node.span),
                _ => problem,
            }
        });
        problem::error(problems.collect(), &document.source, &document.root)
    }
}

/// Takes out of fallbacks what is the first model's to say: their defaults, which nobody wrote.
fn without_the_firsts(document: &mut Value) {
    let agents = document.get_mut("agents").and_then(Value::as_array_mut).into_iter().flatten();
    let fallbacks = agents.filter_map(|agent| agent.pointer_mut("/llm/fallbacks")?.as_array_mut()).flatten();
    let unsaid = TransportRetry::default();
    for fallback in fallbacks.filter_map(Value::as_object_mut) {
        fallback.retain(|key, value| match key.as_str() {
            "retry" => serde_json::to_value(&unsaid).is_ok_and(|unsaid| *value != unsaid),
            "fallbacks" => value.as_array().is_some_and(|fallbacks| !fallbacks.is_empty()),
            "fallback_on" => *value != serde_json::json!(["quota_exhausted", "model_not_found"]),
            _ => true,
        });
    }
}

/// Everything that is wrong with a document, or what it says.
fn read(
    document: &Document,
    mut problems: Vec<Problem>,
    registry: &Registry,
    knows_impls: bool,
) -> Result<Config, Error> {
    let Document { source, root } = document;
    // A variable that is not set leaves a text that says nothing of the rest.
    problem::error(problems.split_off(0), source, root)?;
    let Some(schema) = SCHEMA.as_ref() else {
        return Err(Error::new(codes::CONFIG_ERROR, "the schema of configs is none"));
    };
    let mut mended = root.clone();
    schema.check(&mut mended, "", fit::DOCUMENT, &mut problems);
    lacking::check(schema, &mended, &mut problems);
    let slips = Vec::new();
    check::Check { registry, knows_impls, problems: &mut problems, slips }.document(&mut mended);
    problem::error(problems, source, root)?;
    let mut config: Config =
        serde_path_to_error::deserialize(mended.to_value()).map_err(|error| unread(&error, source, root))?;
    // It has one of them, and a default.
    if config.session.r#impl.is_some() {
        config.session.r#type = None;
    }
    Ok(config)
}

/// What the schema lets pass and a type does not: a number that is too large for it.
fn unread(error: &serde_path_to_error::Error<serde_json::Error>, source: &Source, root: &Node) -> Error {
    let path = error.path().to_string();
    let what = aplomb_core::redact::text(&error.inner().to_string());
    let found = node_at(root, &path);
    let problem = Problem::invalid(&path, what);
    let problem = match found {
        Some(node) => problem.at(&node.span),
        None => problem,
    };
    problem::error(vec![problem], source, root)
        .err()
        .unwrap_or_else(|| Error::new(codes::CONFIG_VALIDATION, path))
}

/// The value at `agents[0].llm.model`.
fn node_at<'a>(root: &'a Node, path: &str) -> Option<&'a Node> {
    path.split(['.', '[']).filter(|step| !step.is_empty()).try_fold(root, |node, step| {
        match step.strip_suffix(']') {
            Some(index) => node.items().get(index.parse::<usize>().ok()?),
            None => Some(&node.entry(step)?.node),
        }
    })
}
