//! A config's text as values that know where they stand. Knows JSON, YAML and TOML; knows no key.

mod excerpt;
mod json;
mod node;
mod source;
mod toml;
mod yaml;

pub(super) use excerpt::is_secret;
pub(super) use node::{Content, Entry, Node, Span};
pub use source::Place;
pub(super) use source::{Giver, Source};

use std::collections::HashSet;
use std::path::Path;

use aplomb_core::error::{Error, codes};
use serde::de::IgnoredAny;
use serde_json::Value;

/// How deep values may stand in each other. More than any config has, and little enough for every stack.
pub(super) const DEEPEST: usize = 64;

/// The most bytes of a document.
const LONGEST: usize = 32 * 1024 * 1024;

/// What a document is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JSON. Comments and commas after the last item are allowed.
    Json,
    /// YAML 1.2.
    Yaml,
    /// TOML.
    Toml,
}

impl Format {
    /// By the end of a file's name; JSON where that says nothing.
    pub fn of_file(file: &Path) -> Format {
        let end = file.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
        match end.as_str() {
            "yaml" | "yml" => Format::Yaml,
            "toml" => Format::Toml,
            _ => Format::Json,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Json => "JSON",
            Format::Yaml => "YAML",
            Format::Toml => "TOML",
        }
    }
}

/// A document: what stands in it, and the texts that it is from.
#[derive(Debug, Clone)]
pub(super) struct Document {
    pub(super) root: Node,
    /// The file's text, and those of what was set over it, in order.
    sources: Vec<Source>,
    /// What is in the texts and no longer in the document. It is hidden like the rest.
    covered: Vec<Entry>,
}

/// Why a text is no document.
pub(super) struct Broken {
    pub(super) at: usize,
    pub(super) what: String,
    pub(super) hint: Option<&'static str>,
}

impl Broken {
    fn new(at: usize, what: impl Into<String>) -> Broken {
        Broken { at, what: what.into(), hint: None }
    }

    fn hint(mut self, hint: &'static str) -> Broken {
        self.hint = Some(hint);
        self
    }

    pub(super) fn too_deep(at: usize) -> Broken {
        Broken::new(at, format!("values stand in each other more than {DEEPEST} deep"))
    }
}

impl Document {
    /// Reads a file.
    pub(super) fn from_file(file: &Path) -> Result<Document, Error> {
        let bytes = std::fs::read(file).map_err(|error| {
            Error::new(codes::CONFIG_LOAD, format!("cannot read {}: {error}", file.display()))
                .with_hint("run from the project's root, or give an absolute path to the config file")
                .with_foreign_cause(error)
        })?;
        Document::from_bytes(&bytes, &file.display().to_string(), Format::of_file(file))
    }

    fn from_bytes(bytes: &[u8], name: &str, format: Format) -> Result<Document, Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Document::parse(text, name, format),
            Err(error) => {
                let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let source = Source::new(Giver::File(name.into()), &String::from_utf8_lossy(good));
                let what = "the text is not UTF-8".to_owned();
                Err(source.broken(format, Broken::new(good.len(), what).hint("save the file as UTF-8")))
            }
        }
    }

    /// Reads a text.
    pub(super) fn parse(text: &str, name: &str, format: Format) -> Result<Document, Error> {
        // A mark that some editors put before a text is none of it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let source = Source::new(Giver::File(name.into()), text);
        if text.len() > LONGEST {
            let what = format!("the document is longer than {} MiB", LONGEST / 1024 / 1024);
            return Err(source.broken(format, Broken::new(0, what).hint("split it into several configs")));
        }
        let parsed = match format {
            Format::Json => json::parse(text),
            Format::Yaml => yaml::parse(text),
            Format::Toml => toml::parse(text),
        };
        match parsed.and_then(|root| duplicates(&root).map(|()| root)) {
            Ok(root) => Ok(Document { root, sources: vec![source], covered: Vec::new() }),
            Err(broken) => Err(source.broken(format, broken)),
        }
    }

    /// A config that was made in code.
    pub(super) fn of_value(value: &Value) -> Document {
        Document { root: Node::of_value(value), sources: vec![Source::none()], covered: Vec::new() }
    }

    /// What a document was changed to in code. What says the same as before has its place of before.
    pub(super) fn changed_to(&self, value: &Value) -> Document {
        let mut root = Node::of_value(value);
        root.take_places(&self.root);
        let mut changed = Document { root, sources: self.sources.clone(), covered: self.covered.clone() };
        changed.cover("", self.root.clone());
        changed
    }

    /// Adds a text that sets something; gives the number by which spans name it.
    pub(super) fn add(&mut self, source: Source) -> usize {
        self.sources.push(source);
        self.sources.len() - 1
    }

    /// Remembers a value of a field that is in a text and not in the document, so that no excerpt shows it.
    pub(super) fn cover(&mut self, field: &str, node: Node) {
        self.covered.push(Entry::new(field.to_owned(), node.span, node));
    }

    /// Leaves some items of a list alone.
    pub(super) fn keep_items(&mut self, list: &str, kept: &[bool]) {
        let Some(Entry { node: Node { value: Content::List(items), .. }, .. }) = self.root.entry_mut(list)
        else {
            return;
        };
        for (item, kept) in std::mem::take(items).into_iter().zip(kept) {
            match kept {
                true => items.push(item),
                false => self.covered.push(Entry::new(list.to_owned(), item.span, item)),
            }
        }
    }

    /// What messages call it.
    pub(super) fn name(&self) -> &str {
        self.sources.first().map_or("config", Source::name)
    }

    /// The text that a span is in.
    pub(super) fn source(&self, span: Option<Span>) -> Option<&Source> {
        self.sources.get(span.map_or(0, |span| span.source))
    }

    /// Where a span stands; the file where there is none.
    pub(super) fn place(&self, span: Option<Span>) -> Place {
        let place = |source: &Source| source.place(span.map(|span| span.start));
        self.source(span).map(place).unwrap_or_default()
    }
}

/// What an override says: JSON where it reads as JSON, else a text.
pub(super) fn value(raw: &str) -> Result<Node, Broken> {
    if serde_json::from_str::<IgnoredAny>(raw).is_err() {
        return Ok(Node::text(raw.to_owned(), Span::here(0..raw.len())));
    }
    let mut node = json::parse(raw)?;
    duplicates(&node)?;
    // A variable in it is one of the JSON's texts.
    if node.as_text().is_none() && !raw.contains("${") {
        node.or_text = Some(raw.into());
    }
    Ok(node)
}

/// Refuses a key that an object has twice: which of the two holds would be a guess.
fn duplicates(node: &Node) -> Result<(), Broken> {
    let mut seen = HashSet::new();
    for entry in node.entries() {
        if !seen.insert(entry.key.as_str()) {
            let what = format!("the key {:?} stands here twice", aplomb_core::redact::text(&entry.key));
            return Err(Broken::new(entry.key_span.start, what).hint("remove one of the two"));
        }
        duplicates(&entry.node)?;
    }
    node.items().iter().try_for_each(duplicates)
}
