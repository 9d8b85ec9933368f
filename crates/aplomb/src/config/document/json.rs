//! JSON, as people write it: with comments and commas after the last item.

use aplomb_core::redact;
use jsonc_parser::ast::Value;
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Broken, Content, DEEPEST, Entry, Node, Span};

const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn parse(text: &str) -> Result<Node, Broken> {
    // The parser goes down by recursion, farther than every stack is deep.
    too_deep(text)?;
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| {
        let at = error.range().start;
        match error.kind() {
            ParseErrorKind::UnterminatedObject => Broken::new(at, "the object that begins here has no end"),
            ParseErrorKind::UnterminatedArray => Broken::new(at, "the array that begins here has no end"),
            ParseErrorKind::ExpectedComma => Broken::new(at, "a comma is missing here"),
            ParseErrorKind::SingleQuotedStringsNotAllowed => {
                Broken::new(at, "single quotes").hint("the quotes of JSON are \"double\"")
            }
            kind => {
                let what = redact::text(&kind.to_string());
                let mut letters = what.chars();
                let first = letters.next().map(|first| first.to_ascii_lowercase());
                Broken::new(at, first.into_iter().chain(letters).collect::<String>())
            }
        }
    })?;
    match parsed.value {
        Some(value) => node(value),
        None => Err(Broken::new(0, "the document is empty").hint("`aplomb init` writes one to begin with")),
    }
}

fn too_deep(text: &str) -> Result<(), Broken> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let (mut in_line, mut in_block, mut before) = (false, false, b' ');
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' if !in_line && !in_block => in_text = !in_text,
            _ if in_text => {}
            b'\n' | b'\r' => in_line = false,
            b'/' if in_block && before == b'*' => in_block = false,
            _ if in_line || in_block => {}
            b'/' if before == b'/' => in_line = true,
            b'*' if before == b'/' => in_block = true,
            b'[' | b'{' if depth == DEEPEST => return Err(Broken::too_deep(at)),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        // The star that begins a comment does not end it.
        before = if in_block && before == b'/' { b' ' } else { byte };
    }
    Ok(())
}

fn node(value: Value<'_>) -> Result<Node, Broken> {
    let span = span(value.range());
    let content = match value {
        Value::NullKeyword(_) => Content::Null,
        Value::BooleanLit(value) => Content::Bool(value.value),
        Value::StringLit(text) => return Ok(Node::text(text.value.into_owned(), span)),
        Value::NumberLit(number) => match serde_json::from_str(number.value) {
            Ok(number) => Content::Number(number),
            Err(_) => return Err(Broken::new(span.start, "a number too large, or none that JSON knows")),
        },
        Value::Array(list) => Content::List(list.elements.into_iter().map(node).collect::<Result<_, _>>()?),
        Value::Object(object) => {
            let entries = object.properties.into_iter().map(|property| {
                let key_span = self::span(property.name.range());
                Ok(Entry::new(property.name.into_string(), key_span, node(property.value)?))
            });
            Content::Table(entries.collect::<Result<_, Broken>>()?)
        }
    };
    Ok(Node::new(content, span))
}

fn span(range: Range) -> Span {
    Span::here(range.start..range.end)
}
