//! The line of a document where something is wrong, with a caret below it. Shows no value that may be a secret.

use std::ops::Range;

use aplomb_core::redact;

use super::{Content, Document, Node, Span};

/// The most characters of a line that are shown.
const WIDTH: usize = 100;

/// The bytes before and after a place that are looked at for its excerpt.
const NEAR: usize = 600;

/// Where a value is left out.
const LEFT_OUT: char = '…';

/// Fields whose values are names, which are shown unless they have the form of a key.
const SHOWN: [&str; 19] = [
    "type",
    "impl",
    "id",
    "agent",
    "version",
    "provider",
    "stream",
    "mode",
    "jitter",
    "restart",
    "scope",
    "on_error",
    "openai_api_style",
    "output_schema",
    "fallback_on",
    "unpriced",
    "format",
    "level",
    "state",
];

/// Whether the text of this field may be shown.
pub(super) fn is_name(field: &str, text: &str) -> bool {
    SHOWN.contains(&field) && redact::text(text) == text && text.len() <= 64
}

impl Document {
    /// The line of a span, numbered where it is a file's, and a caret below the span.
    pub(in crate::config) fn excerpt(&self, span: Span) -> Option<String> {
        let source = self.source(Some(span))?;
        let text = source.text.as_deref()?;
        let number = source.position(span.start).map(|(line, _)| line);
        let start = text.get(..span.start)?.rfind('\n').map_or(0, |newline| newline + 1);
        let end = text.get(span.start..)?.find('\n').map_or(text.len(), |newline| span.start + newline);
        // Of a line without end, what is near: more than is shown, so that no credential is cut into two.
        let boundary =
            |from: usize, to: usize| (from..=to).find(|at| text.is_char_boundary(*at)).unwrap_or(to);
        let start = boundary(start.max(span.start.saturating_sub(NEAR)), span.start);
        let end = boundary(end.min(span.start.saturating_add(NEAR)), end);
        let mut line = Line { text, start, end, span: span.range(), shown: Vec::new() };
        let mut hidden = Vec::new();
        let line_span = Span { start, end, ..span };
        hide(&self.root, "", line_span, &mut hidden);
        self.covered.iter().for_each(|entry| hide(&entry.node, &entry.key, line_span, &mut hidden));
        hidden.sort_unstable_by_key(|span| span.start);
        let mut at = start;
        for secret in hidden {
            if secret.start >= at {
                line.show(at..secret.start);
                line.leave_out(secret.range());
                at = secret.end.min(end);
            }
        }
        line.show(at..end);
        Some(line.with_caret(number))
    }
}

/// The values in a line that are not shown.
fn hide(node: &Node, field: &str, line: Span, hidden: &mut Vec<Span>) {
    let elsewhere =
        node.span.source != line.source || node.span.end < line.start || node.span.start > line.end;
    match &node.value {
        // A table of TOML is its head; what is in it stands elsewhere.
        Content::Text(_) | Content::Number(_) if elsewhere => {}
        Content::Text(_) if node.as_name(field).is_some() => {}
        Content::Number(_) if !is_secret(field) => {}
        Content::Text(_) | Content::Number(_) => hidden.push(node.span),
        Content::List(items) => items.iter().for_each(|item| hide(item, field, line, hidden)),
        Content::Table(entries) => {
            entries.iter().for_each(|entry| hide(&entry.node, entry.written(), line, hidden));
        }
        Content::Null | Content::Bool(_) => {}
    }
}

/// Whether a field's name says that its value is a secret, whatever the value is.
pub(in crate::config) fn is_secret(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    ["key", "token", "secret", "password", "authorization", "pin"].iter().any(|word| field.contains(word))
        && !field.ends_with("tokens")
}

struct Line<'a> {
    text: &'a str,
    start: usize,
    end: usize,
    span: Range<usize>,
    /// The characters, and whether each is marked.
    shown: Vec<(char, bool)>,
}

impl Line<'_> {
    fn marked(&self, at: usize) -> bool {
        self.span.contains(&at) || (self.span.is_empty() && at == self.span.start)
    }

    fn show(&mut self, part: Range<usize>) {
        let Some(text) = self.text.get(part.clone()) else { return };
        // Comments may hold keys as well.
        let clean = redact::text(text);
        if clean == text {
            let characters = text.char_indices().filter(|(_, character)| *character != '\r');
            let marked: Vec<_> =
                characters.map(|(at, character)| (character, self.marked(part.start + at))).collect();
            self.shown.extend(marked);
        } else {
            self.shown.extend(clean.chars().map(|character| (character, false)));
        }
    }

    /// A text without what is in its quotes.
    fn leave_out(&mut self, value: Range<usize>) {
        let marked = self.span.start <= value.start && value.start < self.span.end.max(self.span.start + 1);
        let text = self.text.get(value.start.max(self.start)..value.end.min(self.end)).unwrap_or_default();
        let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''));
        let whole = quote.into_iter().chain([LEFT_OUT]).chain(quote);
        self.shown.extend(whole.map(|character| (character, marked)));
    }

    fn with_caret(mut self, number: Option<usize>) -> String {
        for (character, _) in &mut self.shown {
            if character.is_control() {
                *character = ' ';
            }
        }
        let caret = self.shown.iter().position(|(_, marked)| *marked).unwrap_or(self.shown.len());
        // A line that is too long is shown around the caret.
        let skipped = if self.shown.len() > WIDTH { caret.saturating_sub(WIDTH / 3) } else { 0 };
        let indent = self.shown.iter().take_while(|(character, _)| *character == ' ').count().min(caret);
        let skipped = skipped.max(if indent > 8 { indent - 4 } else { 0 });
        let part: Vec<_> = self.shown.iter().skip(skipped).take(WIDTH).collect();
        let mut line: String = part.iter().map(|(character, _)| character).collect();
        if skipped > indent {
            line.insert(0, LEFT_OUT);
        }
        if self.shown.len() > skipped + WIDTH {
            line.push(LEFT_OUT);
        }
        let before = caret.saturating_sub(skipped) + usize::from(skipped > indent);
        let carets = part.iter().filter(|(_, marked)| *marked).count().max(1);
        let number = number.map(|number| number.to_string()).unwrap_or_default();
        let margin = " ".repeat(number.len());
        format!(
            "{margin} |\n{number} | {line}\n{margin} | {}{}",
            " ".repeat(before),
            "^".repeat(carets),
            line = line.trim_end()
        )
    }
}
