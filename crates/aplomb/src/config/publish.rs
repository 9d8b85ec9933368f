//! The schema as editors get it, and the reference that people read. Both come from the types.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{PENDING_KEYS, SCHEMA};
use crate::json_schema::{options, resolved};

/// The JSON Schema of a config, for editors and other programs. Every key that need not be there can be null, which
/// stands for its default.
pub fn schema() -> Value {
    let mut schema = SCHEMA.as_ref().map(|schema| schema.value.clone()).unwrap_or_default();
    with_null(&mut schema);
    schema
}

fn with_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(with_null);
            let required: Vec<_> = match fields.get("required") {
                Some(Value::Array(required)) => {
                    required.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect()
                }
                _ => Vec::new(),
            };
            // The `properties` of a schema, and not a key of a config that is called so.
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                let optional = properties.iter_mut().filter(|(key, _)| !required.contains(key));
                optional.for_each(|(_, property)| or_null(property));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(with_null),
        _ => {}
    }
}

/// Keywords that say something about a value and not what it must be.
const ABOUT: [&str; 6] = ["description", "default", "examples", "title", "x-unit", "x-way-out"];

fn or_null(property: &mut Value) {
    let Value::Object(fields) = property else { return };
    match fields.get("type").cloned() {
        Some(Value::String(kind)) if !fields.contains_key("enum") && !fields.contains_key("const") => {
            fields.insert("type".to_owned(), json!([kind, "null"]));
        }
        _ => {
            let (about, what): (Map<_, _>, Map<_, _>) =
                std::mem::take(fields).into_iter().partition(|(key, _)| ABOUT.contains(&key.as_str()));
            *fields = about;
            fields.insert("anyOf".to_owned(), json!([what, {"type": "null"}]));
        }
    }
}

/// The reference of all keys, in Markdown.
pub fn reference() -> String {
    let mut text = String::new();
    let Some(schema) = SCHEMA.as_ref() else { return text };
    let mut reference = Reference { whole: &schema.value, text: &mut text, told: Vec::new() };
    reference.object("", "", &schema.value);
    text.push_str(
        "## Keys that come later\n\nA config that sets one to anything but its default is refused.\n\n",
    );
    text.push_str("| key | comes with |\n|---|---|\n");
    for (key, with) in PENDING_KEYS {
        let _never_fails = writeln!(text, "| `{key}` | {with} |");
    }
    text
}

struct Reference<'a> {
    whole: &'a Value,
    text: &'a mut String,
    /// The objects that have a section, by their path.
    told: Vec<(String, String)>,
}

impl Reference<'_> {
    fn object(&mut self, path: &str, name: &str, schema: &Value) {
        if !name.is_empty() {
            self.told.push((name.to_owned(), path.to_owned()));
        }
        let title = if path.is_empty() { "The document".to_owned() } else { format!("`{path}`") };
        let _never_fails = writeln!(self.text, "## {title}\n\n{}\n", described(schema));
        self.text
            .push_str("| key | what it is | type | unit | default | example |\n|---|---|---|---|---|---|\n");
        let required: Vec<_> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut below = Vec::new();
        for (key, property) in properties.into_iter().flatten() {
            let target = resolved(self.whole, property);
            let item = property.get("items").map(|item| resolved(self.whole, item));
            let (kind, inner) = match item.filter(|item| item.get("properties").is_some()) {
                Some(item) => ("list of objects".to_owned(), Some((format!("{key}[]"), item))),
                None if target.get("properties").is_some() => {
                    ("object".to_owned(), Some((key.clone(), target)))
                }
                None => (kind(property), None),
            };
            let default = match property.get("default") {
                _ if required.contains(&key.as_str()) => "required".to_owned(),
                Some(Value::Null) | None => "–".to_owned(),
                Some(Value::Object(_)) => "see below".to_owned(),
                Some(default) => format!("`{default}`"),
            };
            let example = property.get("examples").and_then(|examples| examples.get(0));
            let example = example.map_or("–".to_owned(), |example| format!("`{example}`"));
            let _never_fails = writeln!(
                self.text,
                "| `{key}` | {} | {kind} | {} | {default} | {example} |",
                described(property),
                unit(key, property)
            );
            if let Some((step, inner)) = inner {
                let path = if path.is_empty() { step } else { format!("{path}.{step}") };
                let name = reference_name(property).unwrap_or_else(|| path.clone());
                below.push((path, name, inner));
            }
        }
        self.text.push('\n');
        for (path, name, inner) in below {
            match self.told.iter().find(|(told, _)| *told == name).map(|(_, at)| at.clone()) {
                Some(at) => {
                    let _never_fails = writeln!(self.text, "## `{path}`\n\nThe same as `{at}`.\n");
                }
                None => self.object(&path, &name, inner),
            }
        }
    }
}

fn reference_name(property: &Value) -> Option<String> {
    let target = property.get("$ref").or_else(|| property.get("items")?.get("$ref"))?;
    target.as_str().map(str::to_owned)
}

/// The description in one line.
fn described(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let options = options(schema);
    if options.len() < 2 {
        return text;
    }
    let branches = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let meanings = branches.filter_map(|branch| {
        let meaning = branch.get("description")?.as_str()?.trim_end_matches('.');
        Some(format!("`{}`: {meaning}", branch.get("const")?.as_str()?))
    });
    format!("{text} {}.", meanings.collect::<Vec<_>>().join("; "))
}

fn kind(schema: &Value) -> String {
    let options = options(schema);
    if !options.is_empty() {
        let options: Vec<_> = options.iter().map(|option| format!("`{option}`")).collect();
        return options.join(", ");
    }
    let name = schema.get("type").and_then(Value::as_str).unwrap_or("object");
    let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_f64).map(|limit| limit.to_string());
    let range = match (limit("minimum"), limit("maximum")) {
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        (Some(min), None) if min != "0" => format!(", at least {min}"),
        (None, Some(max)) => format!(", at most {max}"),
        _ => String::new(),
    };
    match (name, schema.get("items")) {
        ("array", Some(items)) => format!("list of {}", kind(items)),
        ("object", _)
            if schema.get("additionalProperties").is_some_and(|values| values.get("type").is_some()) =>
        {
            "object of strings".to_owned()
        }
        _ => format!("{name}{range}"),
    }
}

/// The unit, which the name says.
fn unit(key: &str, schema: &Value) -> String {
    if let Some(unit) = schema.get("x-unit").and_then(Value::as_str) {
        return unit.to_owned();
    }
    let last = key.rsplit('_').next().unwrap_or_default();
    match last {
        "ms" => "ms".to_owned(),
        "tokens" => "tokens".to_owned(),
        _ => "–".to_owned(),
    }
}
