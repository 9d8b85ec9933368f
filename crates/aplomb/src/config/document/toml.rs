//! TOML.

use aplomb_core::redact;
use serde_json::Number;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Broken, Content, Entry, Node, Span};

pub(super) fn parse(text: &str) -> Result<Node, Broken> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Broken::new(at, redact::text(error.message()))
    })?;
    let span = Span::here(table.span());
    node(DeValue::Table(table.into_inner()), span)
}

fn node(value: DeValue<'_>, span: Span) -> Result<Node, Broken> {
    let out_of_range = || Broken::new(span.start, "a number that is too large");
    let content = match value {
        DeValue::String(text) => return Ok(Node::text(text.into_owned(), span)),
        // There is no other value for a date than its text.
        DeValue::Datetime(time) => return Ok(Node::text(time.to_string(), span)),
        DeValue::Boolean(value) => Content::Bool(value),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| out_of_range())?;
            Content::Number(number.into())
        }
        DeValue::Float(number) => {
            let none = || Broken::new(span.start, "a number that is too large, or none at all");
            let number = number.as_str().parse().ok().and_then(Number::from_f64).ok_or_else(none)?;
            Content::Number(number)
        }
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| {
                let span = Span::here(item.span());
                node(item.into_inner(), span)
            });
            Content::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Content::Table(entries(table)?),
    };
    Ok(Node::new(content, span))
}

fn entries(table: DeTable<'_>) -> Result<Vec<Entry>, Broken> {
    let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
        let (key_span, span) = (Span::here(key.span()), Span::here(value.span()));
        let key: std::borrow::Cow<'_, str> = key.into_inner();
        Ok(Entry::new(key.into_owned(), key_span, node(value.into_inner(), span)?))
    };
    table.into_iter().map(entry).collect()
}
