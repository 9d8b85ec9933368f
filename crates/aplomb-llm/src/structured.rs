//! How a model is told what its output must fit: in its protocol's own words where it has them and the schema is one that
//! the vendor takes, in the instructions otherwise. Decides; the codecs only write.
//!
//! Whatever the vendor promises, the answer is checked against the whole schema where it arrives. So a schema that is sent
//! may be wider than the one that is meant, and one that is narrower does no harm.

use std::collections::BTreeSet;
use std::sync::Arc;

use aplomb_core::message::{Block, Message, Role};
use aplomb_core::run::OutputSchema;
use serde_json::{Map, Value, json};

use crate::wire::{OutputFormat, Schemas, Wire, gemini};

/// How the schema is told.
pub(crate) enum Told {
    /// In a field of the request.
    Natively(OutputFormat),
    /// In the standing instructions.
    InInstructions,
}

/// How a model is told what its output must fit, which may also ask for tools.
pub(crate) fn told(
    output: &OutputSchema,
    model: &str,
    wire: Wire,
    schemas: Schemas,
    with_tools: bool,
) -> Told {
    let takes_it = match schemas {
        Schemas::Never => false,
        Schemas::WithoutTools => !with_tools,
        Schemas::AsProtocol => wire != Wire::Gemini || !with_tools || gemini::generation(model) >= 3,
    };
    let format = if takes_it { format(output, wire) } else { None };
    format.map_or(Told::InInstructions, Told::Natively)
}

/// The schema for a field of the request, if the vendor takes such a one.
fn format(output: &OutputSchema, wire: Wire) -> Option<OutputFormat> {
    let name = name(&output.name);
    let is_object = output.schema.get("type") == Some(&json!("object"));
    match wire {
        // Without `strict` the schema is guidance, and may be any object's.
        Wire::OpenaiChat | Wire::OpenaiResponses => is_object.then(|| match OPENAI.fit(&output.schema) {
            Some(schema) => OutputFormat { name, schema, strict: true },
            None => OutputFormat { name, schema: output.schema.clone(), strict: false },
        }),
        Wire::Anthropic => {
            let schema = if is_object { ANTHROPIC.fit(&output.schema) } else { None };
            schema.map(|schema| OutputFormat { name, schema, strict: true })
        }
        Wire::Gemini => GEMINI.fit(&output.schema).map(|schema| OutputFormat { name, schema, strict: true }),
    }
}

/// The conversation with the schema in its standing instructions.
pub(crate) fn instructed(messages: &[Arc<Message>], output: &OutputSchema) -> Vec<Arc<Message>> {
    let text = format!(
        "Your final answer must be JSON that fits the following JSON Schema ({}). Give the JSON alone: no other text, no \
         code fence.\n{}",
        output.name, output.schema
    );
    let mut told = messages.to_vec();
    match told.first_mut().filter(|first| first.role == Role::System) {
        // Some vendors take one message of instructions and no more.
        Some(first) => Arc::make_mut(first).content.push(Block::Text { text: format!("\n\n{text}") }),
        None => told.insert(0, Arc::new(Message::text(Role::System, text))),
    }
    told
}

/// A name that OpenAI's protocols take: up to 64 letters, digits, underscores and dashes (API reference, "Create chat
/// completion", `response_format`).
fn name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().map(plain).take(64).collect();
    if name.is_empty() { "output".to_owned() } else { name }
}

/// Which schemas a vendor takes.
struct Subset {
    /// The keywords that it takes besides those that every one of them does.
    keywords: &'static [&'static str],
    /// The values of `format`. It only describes: another one is left out.
    formats: &'static [&'static str],
    /// Whether a constraint that it does not take is left out, which makes the schema wider. Otherwise the schema is
    /// not one of the subset.
    leaves_out: bool,
    /// Whether every object must say that it has no other properties than those named.
    closed: bool,
    /// Whether every property must be required.
    all_required: bool,
    /// Whether a schema may refer to itself.
    recursive: bool,
}

/// Source: OpenAI's guide "Structured model outputs", "Supported schemas":
/// <https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>.
const OPENAI: Subset = Subset {
    keywords: &[
        "pattern",
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minItems",
        "maxItems",
    ],
    formats: &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"],
    leaves_out: false,
    closed: true,
    all_required: true,
    recursive: true,
};

/// Numbers and texts cannot be bounded; Anthropic's own SDKs leave such bounds out and check them where the answer arrives.
///
/// Source: Claude Platform Docs, "Structured outputs", "JSON Schema limitations":
/// <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>.
const ANTHROPIC: Subset = Subset {
    keywords: &[],
    formats: &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
    leaves_out: true,
    closed: true,
    all_required: false,
    recursive: false,
};

/// Source: Gemini API reference, "GenerationConfig", `responseJsonSchema`, which names the properties that are looked at,
/// and says of references in a circle that they are followed a little way at best:
/// <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.
const GEMINI: Subset = Subset {
    keywords: &["minItems", "maxItems", "minimum", "maximum", "prefixItems"],
    formats: &["date-time", "date", "time"],
    leaves_out: true,
    closed: false,
    all_required: false,
    recursive: false,
};

/// Keywords that say nothing about which values fit.
const ANNOTATIONS: &[&str] =
    &["$schema", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"];

/// The deepest nesting and the most properties that OpenAI has taken all along; it has since raised both.
const DEEPEST: usize = 5;
const MOST_PROPERTIES: usize = 100;

impl Subset {
    /// The schema as the vendor takes it, if there is such a one.
    fn fit(&self, schema: &Value) -> Option<Value> {
        if !self.recursive && refers_to_itself(schema) {
            return None;
        }
        let mut properties = 0;
        let fitted = self.part(schema, 0, &mut properties)?;
        (properties <= MOST_PROPERTIES).then_some(fitted)
    }

    fn part(&self, schema: &Value, depth: usize, properties: &mut usize) -> Option<Value> {
        let fields = schema.as_object()?;
        if let Some(place) = fields.get("$ref") {
            // What stands beside a reference is not looked at, and must be nothing that matters.
            let describes =
                |key: &str| ANNOTATIONS.contains(&key) || ["$ref", "title", "description"].contains(&key);
            let is_plain = place.as_str()?.starts_with("#/") && fields.keys().all(|key| describes(key));
            return is_plain.then(|| json!({ "$ref": place }));
        }
        let mut fitted = Map::new();
        for (key, value) in fields {
            match key.as_str() {
                "title" | "description" | "type" | "enum" | "required" => {
                    fitted.insert(key.clone(), value.clone());
                }
                "const" => {
                    fitted.insert("enum".to_owned(), json!([value]));
                }
                "properties" => {
                    *properties += value.as_object()?.len();
                    fitted.insert(key.clone(), self.parts_of(value, depth + 1, properties)?);
                }
                "$defs" | "definitions" => {
                    fitted.insert(key.clone(), self.parts_of(value, depth, properties)?);
                }
                "items" => {
                    fitted.insert(key.clone(), self.part(value, depth, properties)?);
                }
                // Exactly one of them is one of them.
                "anyOf" | "oneOf" if !fitted.contains_key("anyOf") => {
                    let options = value.as_array()?.iter().map(|option| self.part(option, depth, properties));
                    fitted.insert("anyOf".to_owned(), Value::Array(options.collect::<Option<_>>()?));
                }
                "prefixItems" if self.keywords.contains(&"prefixItems") => {
                    let items = value.as_array()?.iter().map(|item| self.part(item, depth, properties));
                    fitted.insert(key.clone(), Value::Array(items.collect::<Option<_>>()?));
                }
                "additionalProperties" => match value {
                    Value::Bool(false) => drop(fitted.insert(key.clone(), value.clone())),
                    _ if self.closed => return None,
                    Value::Bool(_) => drop(fitted.insert(key.clone(), value.clone())),
                    _ => drop(fitted.insert(key.clone(), self.part(value, depth, properties)?)),
                },
                "format" if value.as_str().is_some_and(|format| self.formats.contains(&format)) => {
                    fitted.insert(key.clone(), value.clone());
                }
                "format" => {}
                _ if self.keywords.contains(&key.as_str()) => {
                    fitted.insert(key.clone(), value.clone());
                }
                _ if ANNOTATIONS.contains(&key.as_str()) || self.leaves_out => {}
                _ => return None,
            }
        }
        if !["type", "anyOf", "enum"].iter().any(|key| fitted.contains_key(*key)) || depth > DEEPEST {
            return None;
        }
        if self.closed && has_type(&fitted, "object") {
            let named = fitted.get("properties").and_then(Value::as_object)?;
            if self.all_required {
                let mut required =
                    fitted.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
                for (name, part) in named {
                    if required.contains(&json!(name)) {
                        continue;
                    }
                    // What may be left out can be null as well, where null will do, as OpenAI's guide advises.
                    if !may_be_null(part) {
                        return None;
                    }
                    required.push(json!(name));
                }
                fitted.insert("required".to_owned(), Value::Array(required));
            }
            fitted.insert("additionalProperties".to_owned(), json!(false));
        }
        Some(Value::Object(fitted))
    }

    fn parts_of(&self, named: &Value, depth: usize, properties: &mut usize) -> Option<Value> {
        let parts = named.as_object()?.iter();
        let parts = parts.map(|(name, part)| Some((name.clone(), self.part(part, depth, properties)?)));
        Some(Value::Object(parts.collect::<Option<_>>()?))
    }
}

fn has_type(schema: &Map<String, Value>, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.contains(&json!(wanted)),
        _ => false,
    }
}

fn may_be_null(part: &Value) -> bool {
    let Value::Object(fields) = part else { return false };
    let options = fields.get("anyOf").and_then(Value::as_array);
    has_type(fields, "null") || options.is_some_and(|options| options.iter().any(may_be_null))
}

/// Whether following a schema's references may lead back to where one began.
fn refers_to_itself(schema: &Value) -> bool {
    fn leads_back<'a>(root: &'a Value, part: &'a Value, on_the_way: &mut BTreeSet<&'a str>) -> bool {
        match part {
            Value::Object(fields) => {
                if let Some(Value::String(place)) = fields.get("$ref") {
                    if !on_the_way.insert(place) {
                        return true;
                    }
                    let target = place.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                    let back = target.is_some_and(|target| leads_back(root, target, on_the_way));
                    on_the_way.remove(place.as_str());
                    return back;
                }
                // Definitions count where they are referred to.
                let used = fields.iter().filter(|(key, _)| !["$defs", "definitions"].contains(&key.as_str()));
                used.into_iter().any(|(_, part)| leads_back(root, part, on_the_way))
            }
            Value::Array(parts) => parts.iter().any(|part| leads_back(root, part, on_the_way)),
            _ => false,
        }
    }
    leads_back(schema, schema, &mut BTreeSet::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoice() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Invoice",
            "type": "object",
            "properties": {
                "number": { "type": "string", "pattern": "^R" },
                "cents": { "type": "integer", "format": "uint32", "minimum": 0 },
                "lines": { "type": "array", "items": { "$ref": "#/$defs/Line", "description": "one each" } },
            },
            "required": ["number", "cents", "lines"],
            "$defs": {
                "Line": { "type": "object", "properties": { "what": { "const": "x" } }, "required": ["what"] },
            },
        })
    }

    /// Objects are closed, what only describes goes, and OpenAI's own constraints stay.
    #[test]
    fn a_schema_of_openais_subset_is_sent_closed_and_strict() {
        let fitted = json!({
            "title": "Invoice",
            "type": "object",
            "properties": {
                "number": { "type": "string", "pattern": "^R" },
                "cents": { "type": "integer", "minimum": 0 },
                "lines": { "type": "array", "items": { "$ref": "#/$defs/Line" } },
            },
            "required": ["number", "cents", "lines"],
            "additionalProperties": false,
            "$defs": {
                "Line": {
                    "type": "object", "properties": { "what": { "enum": ["x"] } }, "required": ["what"],
                    "additionalProperties": false,
                },
            },
        });
        assert_eq!(OPENAI.fit(&invoice()), Some(fitted));
    }

    #[test]
    fn what_is_optional_and_may_be_null_is_required_where_all_is() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": { "type": ["string", "null"] },
                "b": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            },
        });
        assert_eq!(OPENAI.fit(&schema).unwrap()["required"], json!(["a", "b"]));
        assert_eq!(ANTHROPIC.fit(&schema).unwrap().get("required"), None);
    }

    #[test]
    fn what_anthropic_does_not_take_is_left_out() {
        let fitted = ANTHROPIC.fit(&invoice()).unwrap();
        assert_eq!(fitted["properties"]["number"], json!({ "type": "string" }));
        assert_eq!(fitted["properties"]["cents"], json!({ "type": "integer" }));
        assert_eq!(fitted["$defs"]["Line"]["additionalProperties"], json!(false));
    }

    #[test]
    fn what_cannot_be_said_in_a_subset_is_none_of_it() {
        let optional = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let map = json!({ "type": "object", "additionalProperties": { "type": "string" } });
        let bounded = json!({
            "type": "object", "properties": { "a": { "type": "string", "maxLength": 3 } }, "required": ["a"],
        });
        let anything = json!({ "type": "object", "properties": { "a": true }, "required": ["a"] });
        let tree = json!({
            "type": "object",
            "properties": { "below": { "anyOf": [{ "$ref": "#/$defs/Tree" }, { "type": "null" }] } },
            "required": ["below"],
            "$defs": { "Tree": {
                "type": "object", "properties": { "next": { "$ref": "#/$defs/Tree" } }, "required": ["next"],
            } },
        });
        let fits = |subset: &Subset| {
            [&optional, &map, &bounded, &anything, &tree].map(|schema| subset.fit(schema).is_some())
        };
        assert_eq!(fits(&OPENAI), [false, false, false, false, true]);
        assert_eq!(fits(&ANTHROPIC), [true, false, true, false, false]);
        assert_eq!(fits(&GEMINI), [true, true, true, false, false]);
    }

    #[test]
    fn a_type_that_is_used_twice_does_not_refer_to_itself() {
        let pair = json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/$defs/P" }, "b": { "$ref": "#/$defs/P" } },
            "$defs": { "P": { "type": "string" } },
        });
        assert!(ANTHROPIC.fit(&pair).is_some());
    }

    #[test]
    fn a_name_is_made_one_that_is_taken() {
        assert_eq!(name("Page<Invoice>"), "Page_Invoice_");
        assert_eq!((name(""), name(&"ü".repeat(70))), ("output".to_owned(), "_".repeat(64)));
    }
}
