//! A config's text as values that know where they stand. Knows JSON, YAML and TOML; knows no key.

mod excerpt;
mod json;
mod toml;
mod yaml;

pub(super) use excerpt::is_secret;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use aplomb_core::error::{Error, codes};
use serde_json::{Map, Number, Value};

/// How deep values may stand in each other. More than any config has, and little enough for every stack.
const DEEPEST: usize = 64;

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

/// A place in a document, in bytes.
pub(super) type Span = Range<usize>;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Content,
    pub(super) span: Span,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(Text),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A text, and how it was written where variables were replaced in it.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) written: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The key, after misspellings were mended.
    pub(super) key: String,
    /// The key as it was written, where it was misspelt.
    pub(super) misspelt: Option<String>,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

impl Entry {
    pub(super) fn new(key: String, key_span: Span, node: Node) -> Entry {
        Entry { key, misspelt: None, key_span, node }
    }

    /// The key as it was written.
    pub(super) fn written(&self) -> &str {
        self.misspelt.as_deref().unwrap_or(&self.key)
    }
}

impl Node {
    fn new(value: Content, span: Span) -> Node {
        Node { value, span }
    }

    fn text(text: String, span: Span) -> Node {
        Node::new(Content::Text(Text { text, written: None }), span)
    }

    /// A node for each value of JSON, at no place.
    pub(super) fn of_value(value: &Value) -> Node {
        let content = match value {
            Value::Null => Content::Null,
            Value::Bool(value) => Content::Bool(*value),
            Value::Number(number) => Content::Number(number.clone()),
            Value::String(text) => Content::Text(Text { text: text.clone(), written: None }),
            Value::Array(items) => Content::List(items.iter().map(Node::of_value).collect()),
            Value::Object(fields) => {
                let entry =
                    |(key, value): (&String, &Value)| Entry::new(key.clone(), 0..0, Node::of_value(value));
                Content::Table(fields.iter().map(entry).collect())
            }
        };
        Node::new(content, 0..0)
    }

    /// The value without its places.
    pub(super) fn to_value(&self) -> Value {
        match &self.value {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.text.clone()),
            Content::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Content::Table(entries) => {
                let field = |entry: &Entry| (entry.key.clone(), entry.node.to_value());
                Value::Object(entries.iter().map(field).collect::<Map<_, _>>())
            }
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Content::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// A field of a table, or a field of a field.
    pub(super) fn at(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| Some(&node.entry(key)?.node))
    }

    pub(super) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        match &mut self.value {
            Content::Table(entries) => entries.iter_mut().find(|entry| entry.key == key),
            _ => None,
        }
    }

    pub(super) fn items_mut(&mut self) -> &mut [Node] {
        match &mut self.value {
            Content::List(items) => items,
            _ => &mut [],
        }
    }

    pub(super) fn retain_items(&mut self, mut keep: impl FnMut() -> bool) {
        if let Content::List(items) = &mut self.value {
            items.retain(|_| keep());
        }
    }

    /// Gives every value the place, and the spelling, of the one that stands at its path in another tree.
    pub(super) fn take_places(&mut self, of: &Node) {
        self.span = of.span.clone();
        match (&mut self.value, &of.value) {
            (Content::List(items), Content::List(others)) => {
                items.iter_mut().zip(others).for_each(|(item, other)| item.take_places(other));
            }
            (Content::Table(entries), Content::Table(_)) => {
                for entry in entries {
                    match of.entry(&entry.key) {
                        Some(other) => {
                            entry.key_span = other.key_span.clone();
                            entry.node.take_places(&other.node);
                        }
                        None => entry.key_span = of.span.start..of.span.start,
                    }
                }
            }
            (Content::Text(text), Content::Text(other)) if text.text == other.text => {
                text.written.clone_from(&other.written);
            }
            _ => {}
        }
    }

    pub(super) fn items(&self) -> &[Node] {
        match &self.value {
            Content::List(items) => items,
            _ => &[],
        }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Content::Table(entries) => entries,
            _ => &[],
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Content::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    pub(super) fn as_f64(&self) -> Option<f64> {
        match &self.value {
            Content::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// The text, if it is one that may be shown: a name, and neither a credential nor from the environment.
    pub(super) fn as_name(&self, field: &str) -> Option<&str> {
        match &self.value {
            Content::Text(Text { text, written: None }) if excerpt::is_name(field, text) => Some(text),
            _ => None,
        }
    }

    /// Whether variables were replaced in it.
    pub(super) fn is_replaced(&self) -> bool {
        matches!(&self.value, Content::Text(text) if text.written.is_some())
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, Content::Table(_))
    }

    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Content::Null => "null",
            Content::Bool(_) => "a boolean",
            Content::Number(_) => "a number",
            Content::Text(_) => "a string",
            Content::List(_) => "an array",
            Content::Table(_) => "an object",
        }
    }
}

/// A document: its text and what stands in it.
#[derive(Debug, Clone)]
pub(super) struct Document {
    pub(super) source: Source,
    pub(super) root: Node,
}

/// A document's text, by which places are told. A config that was made in code has none.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// What messages call it.
    pub(super) name: Arc<str>,
    text: Option<Arc<str>>,
}

/// Why a text is no document.
pub(super) struct Broken {
    at: usize,
    what: String,
    hint: Option<&'static str>,
}

impl Broken {
    fn new(at: usize, what: impl Into<String>) -> Broken {
        Broken { at, what: what.into(), hint: None }
    }

    fn hint(mut self, hint: &'static str) -> Broken {
        self.hint = Some(hint);
        self
    }

    fn too_deep(at: usize) -> Broken {
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
                let source = Source::new(name, &String::from_utf8_lossy(good));
                let what = "the text is not UTF-8".to_owned();
                Err(source.broken(format, Broken::new(good.len(), what).hint("save the file as UTF-8")))
            }
        }
    }

    /// Reads a text.
    pub(super) fn parse(text: &str, name: &str, format: Format) -> Result<Document, Error> {
        // A mark that some editors put before a text is none of it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let source = Source::new(name, text);
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
            Ok(root) => Ok(Document { source, root }),
            Err(broken) => Err(source.broken(format, broken)),
        }
    }

    /// A config that was made in code, or changed there.
    pub(super) fn of_value(value: &Value, source: Option<Source>) -> Document {
        let source = source.unwrap_or_else(|| Source { name: "config".into(), text: None });
        Document { source, root: Node::of_value(value) }
    }
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

impl Source {
    fn new(name: &str, text: &str) -> Source {
        Source { name: name.into(), text: Some(text.into()) }
    }

    /// The line and the column, from 1, in characters.
    pub(super) fn position(&self, at: usize) -> Option<(usize, usize)> {
        let text = self.text.as_deref()?;
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
        let before = text.get(..at)?;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..)?.chars().count() + 1;
        Some((before.matches('\n').count() + 1, column))
    }

    /// `agent.json:14:23`, or the name alone where there is no text.
    pub(super) fn place(&self, span: Option<&Span>) -> String {
        match span.and_then(|span| self.position(span.start)) {
            Some((line, column)) => format!("{}:{line}:{column}", self.name),
            None => self.name.to_string(),
        }
    }

    fn broken(&self, format: Format, broken: Broken) -> Error {
        let Broken { at, what, hint } = broken;
        let place = self.place(Some(&(at..at)));
        let message = format!("{place}: not valid {}: {what}", format.name());
        let error = Error::new(codes::CONFIG_LOAD, message);
        let error = match self.position(at) {
            Some((line, column)) => error.with_context("line", line).with_context("column", column),
            None => error,
        };
        error.with_context("file", &*self.name).with_hint(hint.unwrap_or(match format {
            Format::Json => "look at this place and just before it: a comma, a quote or a bracket",
            Format::Yaml => {
                "look at the indentation here and just before, and put texts with : or # in quotes"
            }
            Format::Toml => "look at this place and just before it: texts need quotes, tables [brackets]",
        }))
    }
}
