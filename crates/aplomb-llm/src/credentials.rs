//! What of that which is sent with requests is a credential.

use aplomb_core::redact;
use serde_json::{Map, Value};

/// The secrets in a header's value: the value as a whole, what follows its scheme where it is a scheme and one more word,
/// and the values in it ("session=…; csrf=…").
pub(crate) fn of_header(value: &str) -> impl Iterator<Item = &str> {
    let mut words = value.split_whitespace();
    let after_scheme = match (words.next(), words.next(), words.next()) {
        (Some(_scheme), Some(credential), None) => Some(credential),
        _ => None,
    };
    let pairs = value.split([';', ',', ' ']).filter_map(|pair| Some(pair.split_once('=')?.1));
    [value].into_iter().chain(after_scheme).chain(pairs)
}

/// The texts in a body's fields that stand, however deep, below names of secrets.
pub(crate) fn of_fields(fields: &Map<String, Value>) -> Vec<&str> {
    let mut found = Vec::new();
    in_fields(fields, false, &mut found);
    found
}

fn in_fields<'a>(fields: &'a Map<String, Value>, below_secret: bool, found: &mut Vec<&'a str>) {
    for (name, value) in fields {
        in_value(value, below_secret || redact::is_secret_name(name), found);
    }
}

fn in_value<'a>(value: &'a Value, is_secret: bool, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if is_secret => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| in_value(item, is_secret, found)),
        Value::Object(fields) => in_fields(fields, is_secret, found),
        _ => {}
    }
}

/// Headers that say who asks or what for, and are no secrets.
pub(crate) fn is_public(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "accept",
        "content-type",
        "user-agent",
        "referer",
        "http-referer",
        "x-title",
        "openai-organization",
        "openai-project",
    ];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || name.starts_with("anthropic-")
}
