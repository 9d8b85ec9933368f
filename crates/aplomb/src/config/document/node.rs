//! Values that know where they stand.

use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::excerpt;

/// A place in one of the texts that a config is put together from, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Which of the document's texts; 0 is the file's.
    pub(in crate::config) source: usize,
    pub(in crate::config) start: usize,
    pub(in crate::config) end: usize,
}

impl Span {
    /// A place in the text that is being read.
    pub(in crate::config) fn here(range: Range<usize>) -> Span {
        Span { source: 0, start: range.start, end: range.end }
    }

    /// Where it begins.
    pub(in crate::config) fn begin(self) -> Span {
        Span { end: self.start, ..self }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(in crate::config) struct Node {
    pub(in crate::config) value: Content,
    pub(in crate::config) span: Span,
    /// How it is shown where the environment is in it: the text before variables were replaced, or the variable that it is
    /// from.
    pub(in crate::config) written: Option<Box<str>>,
    /// The text that it was read from, where the text itself may be meant: `1.0` is a number, and a version.
    pub(in crate::config) or_text: Option<Box<str>>,
}

#[derive(Debug, Clone)]
pub(in crate::config) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(in crate::config) struct Entry {
    /// The key, after misspellings were mended.
    pub(in crate::config) key: String,
    /// The key as it was written, where it was misspelt.
    pub(in crate::config) misspelt: Option<String>,
    pub(in crate::config) key_span: Span,
    pub(in crate::config) node: Node,
}

impl Entry {
    pub(in crate::config) fn new(key: String, key_span: Span, node: Node) -> Entry {
        Entry { key, misspelt: None, key_span, node }
    }

    /// The key as it was written.
    pub(in crate::config) fn written(&self) -> &str {
        self.misspelt.as_deref().unwrap_or(&self.key)
    }
}

impl Node {
    pub(in crate::config) fn new(value: Content, span: Span) -> Node {
        Node { value, span, written: None, or_text: None }
    }

    pub(in crate::config) fn text(text: String, span: Span) -> Node {
        Node::new(Content::Text(text), span)
    }

    /// A node for each value of JSON, at no place.
    pub(in crate::config) fn of_value(value: &Value) -> Node {
        let nowhere = Span::here(0..0);
        let content = match value {
            Value::Null => Content::Null,
            Value::Bool(value) => Content::Bool(*value),
            Value::Number(number) => Content::Number(number.clone()),
            Value::String(text) => Content::Text(text.clone()),
            Value::Array(items) => Content::List(items.iter().map(Node::of_value).collect()),
            Value::Object(fields) => {
                let entry =
                    |(key, value): (&String, &Value)| Entry::new(key.clone(), nowhere, Node::of_value(value));
                Content::Table(fields.iter().map(entry).collect())
            }
        };
        Node::new(content, nowhere)
    }

    /// The value without its places.
    pub(in crate::config) fn to_value(&self) -> Value {
        match &self.value {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Content::Table(entries) => {
                let field = |entry: &Entry| (entry.key.clone(), entry.node.to_value());
                Value::Object(entries.iter().map(field).collect::<Map<_, _>>())
            }
        }
    }

    pub(in crate::config) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// A field of a table, or a field of a field.
    pub(in crate::config) fn at(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| Some(&node.entry(key)?.node))
    }

    pub(in crate::config) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        match &mut self.value {
            Content::Table(entries) => entries.iter_mut().find(|entry| entry.key == key),
            _ => None,
        }
    }

    pub(in crate::config) fn items_mut(&mut self) -> &mut [Node] {
        match &mut self.value {
            Content::List(items) => items,
            _ => &mut [],
        }
    }

    pub(in crate::config) fn items(&self) -> &[Node] {
        match &self.value {
            Content::List(items) => items,
            _ => &[],
        }
    }

    pub(in crate::config) fn entries(&self) -> &[Entry] {
        match &self.value {
            Content::Table(entries) => entries,
            _ => &[],
        }
    }

    /// What stands directly in it.
    fn inner(&self) -> impl Iterator<Item = &Node> {
        self.entries().iter().map(|entry| &entry.node).chain(self.items())
    }

    /// How deep values stand in it, itself counted.
    pub(in crate::config) fn depth(&self) -> usize {
        self.inner().map(Node::depth).max().unwrap_or_default() + 1
    }

    /// Whether there is a value whose text may be meant.
    pub(in crate::config) fn is_loose(&self) -> bool {
        self.or_text.is_some() || self.inner().any(Node::is_loose)
    }

    /// Does something to every place in it.
    pub(in crate::config) fn for_each_span(&mut self, change: &mut impl FnMut(&mut Span)) {
        change(&mut self.span);
        match &mut self.value {
            Content::List(items) => items.iter_mut().for_each(|item| item.for_each_span(change)),
            Content::Table(entries) => {
                for entry in entries {
                    change(&mut entry.key_span);
                    entry.node.for_each_span(change);
                }
            }
            _ => {}
        }
    }

    /// Shows everything in it as what stands for the environment.
    pub(in crate::config) fn show_as(&mut self, written: &str) {
        match &mut self.value {
            Content::List(items) => items.iter_mut().for_each(|item| item.show_as(written)),
            Content::Table(entries) => entries.iter_mut().for_each(|entry| entry.node.show_as(written)),
            Content::Null => {}
            Content::Bool(_) | Content::Number(_) | Content::Text(_) => self.written = Some(written.into()),
        }
    }

    /// Gives every value the place, and the spelling, of the one that stands at its path in another tree.
    pub(in crate::config) fn take_places(&mut self, of: &Node) {
        self.span = of.span;
        if self.says_the_same(of) {
            self.written.clone_from(&of.written);
        }
        match (&mut self.value, &of.value) {
            (Content::List(items), Content::List(others)) => {
                items.iter_mut().zip(others).for_each(|(item, other)| item.take_places(other));
            }
            (Content::Table(entries), Content::Table(_)) => {
                for entry in entries {
                    match of.entry(&entry.key) {
                        Some(other) => {
                            entry.key_span = other.key_span;
                            entry.node.take_places(&other.node);
                        }
                        None => entry.key_span = of.span.begin(),
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether both are the same text, number or boolean. A number may stand for its text.
    fn says_the_same(&self, other: &Node) -> bool {
        match (&self.value, &other.value) {
            (Content::Text(text), _) => {
                other.as_text() == Some(text) || other.or_text.as_deref() == Some(text)
            }
            (Content::Number(one), Content::Number(other)) => one.as_f64() == other.as_f64(),
            (Content::Bool(one), Content::Bool(other)) => one == other,
            _ => false,
        }
    }

    pub(in crate::config) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(in crate::config) fn as_f64(&self) -> Option<f64> {
        match &self.value {
            Content::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// The text, if it is one that may be shown: a name, and neither a credential nor from the environment.
    pub(in crate::config) fn as_name(&self, field: &str) -> Option<&str> {
        self.as_text().filter(|text| !self.is_replaced() && excerpt::is_name(field, text))
    }

    /// The number, as it may be shown.
    pub(in crate::config) fn as_number(&self) -> String {
        match &self.value {
            Content::Number(number) if !self.is_replaced() => number.to_string(),
            _ => "this".to_owned(),
        }
    }

    /// Whether its value is from the environment, in whole or in part.
    pub(in crate::config) fn is_replaced(&self) -> bool {
        self.written.is_some()
    }

    pub(in crate::config) fn is_table(&self) -> bool {
        matches!(self.value, Content::Table(_))
    }

    /// What it is, in words.
    pub(in crate::config) fn kind(&self) -> &'static str {
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
