//! YAML 1.2, with its core schema: `yes` and `no` are texts.

use std::collections::HashMap;

use aplomb_core::redact;
use granit_parser::{Event, Parser, ScalarStyle, options};
use serde_json::Number;

use super::{Broken, Content, DEEPEST, Entry, Node, Span};

pub(super) fn parse(text: &str) -> Result<Node, Broken> {
    let options =
        options! { flow_nesting_limit: DEEPEST, block_nesting_limit: DEEPEST, emit_comments: false };
    let mut builder = Builder { text, ..Builder::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or_default();
            Broken::new(at, redact::text(&error.info()))
        })?;
        let span = Span::here(span.byte_range().unwrap_or(0..0));
        builder.take(event, span)?;
    }
    match builder.root {
        Some(root) => Ok(root),
        None => Err(Broken::new(0, "the document is empty").hint("`aplomb init` writes one to begin with")),
    }
}

/// The most values that anchors and aliases may add to a document.
const MOST_COPIES: usize = 100_000;

/// Puts events together. Keeps the open collections itself, so that no document is too deep for the stack.
#[derive(Default)]
struct Builder<'a> {
    text: &'a str,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    copies: usize,
    root: Option<Node>,
}

enum Open {
    List { items: Vec<Node>, start: usize, anchor: usize },
    Table { entries: Vec<Entry>, key: Option<(String, Span)>, start: usize, anchor: usize },
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Broken> {
        let tag = event.tag().map(|tag| (tag.is_custom(), tag.is_yaml_core_schema_tag("str")));
        if tag.is_some_and(|(is_custom, _)| is_custom) {
            return Err(Broken::new(span.start, "a tag (!…) that means nothing here").hint("remove the tag"));
        }
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(Broken::new(span.start, "a second document")
                    .hint("a config is one document: remove the `---`"))
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(Open::List { items: Vec::new(), start: span.start, anchor }, span)
            }
            Event::MappingStart(_, anchor, _) => {
                self.begin(Open::Table { entries: Vec::new(), key: None, start: span.start, anchor }, span)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { items, start, anchor }) => {
                    self.add(Node::new(Content::List(items), Span::here(start..span.end.max(start))), anchor)
                }
                Some(Open::Table { entries, start, anchor, .. }) => self
                    .add(Node::new(Content::Table(entries), Span::here(start..span.end.max(start))), anchor),
                None => Err(Broken::new(span.start, "an end without a beginning")),
            },
            Event::Scalar(text, style, anchor, _) => {
                let is_text = style != ScalarStyle::Plain || tag.is_some_and(|(_, is_text)| is_text);
                // A block's span may end before its first line.
                let span = Span::here(span.start..span.end.max(span.start).min(self.text.len()));
                let node = if is_text { Node::text(text.into_owned(), span) } else { plain(&text, span)? };
                self.add(node, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => {
                    self.copied(&node, span.start)?;
                    self.add(node, 0)
                }
                None => Err(Broken::new(span.start, "an alias of what it stands in")),
            },
            _ => Ok(()),
        }
    }

    fn begin(&mut self, collection: Open, span: Span) -> Result<(), Broken> {
        if self.open.len() == DEEPEST {
            return Err(Broken::too_deep(span.start));
        }
        if let Some(Open::Table { key: None, .. }) = self.open.last() {
            return Err(Broken::new(span.start, "a key must be a text"));
        }
        self.open.push(collection);
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), Broken> {
        if anchor != 0 {
            self.copied(&node, node.span.start)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Table { entries, key, .. }) => match key.take() {
                Some((key, key_span)) => entries.push(Entry::new(key, key_span, node)),
                None => {
                    let written = self.text.get(node.span.range()).unwrap_or_default().to_owned();
                    let name = match node.value {
                        Content::Text(text) => text,
                        Content::Null | Content::Bool(_) | Content::Number(_) => written,
                        Content::List(_) | Content::Table(_) => {
                            return Err(Broken::new(node.span.start, "a key must be a text"));
                        }
                    };
                    *key = Some((name, node.span));
                }
            },
        }
        Ok(())
    }

    /// Counts values that are there more than once: a few aliases of aliases make millions.
    fn copied(&mut self, node: &Node, at: usize) -> Result<(), Broken> {
        let (values, depth) = size(node);
        self.copies += values;
        if self.copies > MOST_COPIES {
            return Err(Broken::new(
                at,
                format!("aliases (*…) that stand for more than {MOST_COPIES} values"),
            ));
        }
        if self.open.len() + depth > DEEPEST { Err(Broken::too_deep(at)) } else { Ok(()) }
    }
}

/// How many values a node is, and how deep they stand in each other.
fn size(node: &Node) -> (usize, usize) {
    let inner = node.entries().iter().map(|entry| &entry.node).chain(node.items()).map(size);
    inner.fold((1, 1), |(values, depth), (more, deeper)| (values + more, depth.max(deeper + 1)))
}

/// A text without quotes. Source: YAML 1.2.2, §10.3.2, the core schema's resolution.
fn plain(text: &str, span: Span) -> Result<Node, Broken> {
    let content = match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "true" | "True" | "TRUE" => Content::Bool(true),
        "false" | "False" | "FALSE" => Content::Bool(false),
        _ => match number(text) {
            Some(Some(number)) => Content::Number(number),
            Some(None) => return Err(Broken::new(span.start, "a number that is too large, or none at all")),
            None => return Ok(Node::text(text.to_owned(), span)),
        },
    };
    Ok(Node::new(content, span))
}

/// The number that a text is; `Some(None)` for one that JSON cannot hold.
fn number(text: &str) -> Option<Option<Number>> {
    let radix = |digits: &str, radix| {
        let all = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
        all.then(|| u64::from_str_radix(digits, radix).ok().map(Number::from))
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(None);
    }
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let whole = text.trim_start_matches('+');
        let whole =
            whole.parse::<i64>().map(Number::from).or_else(|_| whole.parse::<u64>().map(Number::from));
        if let Ok(number) = whole {
            return Some(Some(number));
        }
    }
    let number = unsigned.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number = number.then(|| text.parse::<f64>().ok()).flatten()?;
    Some(Number::from_f64(number))
}
