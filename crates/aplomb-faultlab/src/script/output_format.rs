//! What a request says of its output, and why a provider refuses that, as far as that is cheap to know.
//!
//! Sources: OpenAI's guide "Structured model outputs"
//! (<https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>); Claude Platform Docs, "Structured
//! outputs" (<https://platform.claude.com/docs/en/build-with-claude/structured-outputs>); Gemini API reference,
//! "GenerationConfig" (<https://ai.google.dev/api/generate-content>).

use serde_json::{Map, Value};

use super::chat::Rejection;

/// What OpenAI does not take where it is to be strict.
const OPENAI_REFUSES: [&str; 7] = ["allOf", "oneOf", "not", "if", "default", "minLength", "maxLength"];

/// What Anthropic does not take.
const ANTHROPIC_REFUSES: [&str; 9] =
    ["oneOf", "not", "if", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minLength", "maxLength"];

/// How many properties Anthropic takes that may be missing, and how many schemas of several types (page above, "Schema
/// complexity limits").
const ANTHROPIC_OPTIONAL: usize = 24;
const ANTHROPIC_UNIONS: usize = 16;

/// Why OpenAI refuses a format at `param`, of which the schema and what belongs to it are `below`, if not in itself.
pub(super) fn check_openai(format: &Value, param: &str, below: Option<&str>) -> Result<(), Rejection> {
    let refuse = |place: String, message: String| Err(Rejection::invalid(Some(place), message));
    match format.get("type").and_then(Value::as_str) {
        Some("text" | "json_object") => return Ok(()),
        Some("json_schema") => {}
        other => {
            let message = format!(
                "Invalid value: '{}'. Supported values are: 'text', 'json_object', and 'json_schema'.",
                other.unwrap_or_default()
            );
            return refuse(format!("{param}.type"), message);
        }
    }
    let place = below.map_or(param.to_owned(), |below| format!("{param}.{below}"));
    let format = below.map_or(Some(format), |below| format.get(below)).unwrap_or(&Value::Null);
    let missing = |field: &str| {
        let place = format!("{place}.{field}");
        let message = format!("Missing required parameter: '{place}'.");
        Err(Rejection {
            code: Some("missing_required_parameter"),
            ..Rejection::invalid(Some(place), message)
        })
    };
    let Some(name) = format.get("name").and_then(Value::as_str) else { return missing("name") };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(is_plain) {
        let message = format!("Invalid '{place}.name': it must be 1 to 64 letters, digits, '_' or '-'.");
        return refuse(format!("{place}.name"), message);
    }
    let Some(schema) = format.get("schema") else { return missing("schema") };
    let invalid = |why: String| {
        let message = format!("Invalid schema for response_format '{name}': {why}");
        Err(Rejection {
            code: Some("invalid_json_schema"),
            ..Rejection::invalid(Some(param.to_owned()), message)
        })
    };
    if schema.get("type").and_then(Value::as_str) != Some("object") || schema.get("anyOf").is_some() {
        return invalid("the schema must be of 'type: \"object\"', without 'anyOf'.".to_owned());
    }
    if format.get("strict") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    let problem = first_problem(schema, &|part| {
        let required = part.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
        let mut names = part.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        refused_keyword(part, &OPENAI_REFUSES).or_else(|| open_object(part)).or_else(|| {
            let optional = names.find(|name| !is_required(name))?;
            Some(format!("'required' must name every property, and '{optional}' is missing."))
        })
    });
    problem.map_or(Ok(()), invalid)
}

/// Why Anthropic refuses a format.
pub(super) fn check_anthropic(format: &Value) -> Result<(), Rejection> {
    let refuse = |message: String| Err(Rejection::invalid(None, message));
    if format.get("type").and_then(Value::as_str) != Some("json_schema") {
        return refuse("output_config.format.type: Input should be 'json_schema'".to_owned());
    }
    let Some(schema) = format.get("schema").filter(|schema| schema.is_object()) else {
        return refuse("output_config.format.schema: Field required".to_owned());
    };
    let problem = first_problem(schema, &|part| {
        refused_keyword(part, &ANTHROPIC_REFUSES).or_else(|| open_object(part))
    });
    let problem = problem.or_else(|| too_many(schema));
    problem.map_or(Ok(()), |problem| refuse(format!("output_config.format.schema: {problem}")))
}

/// Why Google refuses a configuration.
pub(super) fn check_gemini(schema: Option<&Value>, mime_type: Option<&str>) -> Result<(), Rejection> {
    let refuse = |message: &str| Err(Rejection::invalid(None, message));
    match schema {
        Some(schema) if !schema.is_object() => {
            refuse("* GenerateContentRequest.generation_config.response_json_schema: it must be an object\n")
        }
        Some(_) if mime_type != Some("application/json") => refuse(
            "* GenerateContentRequest.generation_config.response_mime_type: it must be application/json where there is a \
             schema\n",
        ),
        _ => Ok(()),
    }
}

fn refused_keyword(part: &Map<String, Value>, refused: &[&str]) -> Option<String> {
    let keyword = refused.iter().find(|keyword| part.contains_key(**keyword))?;
    Some(format!("'{keyword}' is not permitted."))
}

fn open_object(part: &Map<String, Value>) -> Option<String> {
    let is_object = match part.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        _ => part.contains_key("properties"),
    };
    let is_closed = part.get("additionalProperties") == Some(&Value::Bool(false));
    (is_object && !is_closed)
        .then(|| "'additionalProperties' of an object must be given, and be false.".to_owned())
}

/// What Anthropic counts of a whole schema.
fn too_many(schema: &Value) -> Option<String> {
    let (optional, unions) = count(schema);
    if unions > ANTHROPIC_UNIONS {
        return Some(format!(
            "Schemas contains too many parameters with union types ({unions}; limit: {ANTHROPIC_UNIONS})."
        ));
    }
    (optional > ANTHROPIC_OPTIONAL).then(|| {
        format!("Schemas contains too many optional parameters ({optional}; limit: {ANTHROPIC_OPTIONAL}).")
    })
}

/// How many properties of a schema may be missing, and how many schemas in it have several types.
fn count(schema: &Value) -> (usize, usize) {
    let Some(part) = schema.as_object() else { return (0, 0) };
    let length = |key: &str| part.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    let properties = part.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    let own = (
        properties.saturating_sub(length("required")),
        usize::from(length("type") > 1 || part.contains_key("anyOf")),
    );
    below(part).map(count).fold(own, |sum, below| (sum.0 + below.0, sum.1 + below.1))
}

/// The schemas in one.
fn below(part: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let named = ["properties", "$defs"].into_iter().filter_map(|key| part.get(key)?.as_object());
    let listed = part.get("anyOf").and_then(Value::as_array);
    named.flat_map(Map::values).chain(listed.into_iter().flatten()).chain(part.get("items"))
}

/// The first problem of a schema and of those in it.
fn first_problem(schema: &Value, problem: &dyn Fn(&Map<String, Value>) -> Option<String>) -> Option<String> {
    let part = schema.as_object()?;
    problem(part).or_else(|| below(part).find_map(|below| first_problem(below, problem)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn closed(properties: Value, required: Value) -> Value {
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    }

    fn openai(strict: bool, schema: &Value) -> Result<(), Rejection> {
        let json_schema = json!({ "name": "X", "strict": strict, "schema": schema });
        check_openai(
            &json!({ "type": "json_schema", "json_schema": json_schema }),
            "response_format",
            Some("json_schema"),
        )
    }

    #[test]
    fn openai_wants_a_name_a_schema_of_an_object_and_strict_ones_closed_and_complete() {
        let open = json!({ "type": "object", "properties": { "a": { "type": "string", "maxLength": 3 } } });
        let string = json!({ "type": "string" });
        assert_eq!((openai(false, &open), openai(true, &open).is_err()), (Ok(()), true));
        assert_eq!(openai(true, &closed(json!({ "a": string }), json!(["a"]))), Ok(()));
        assert!(openai(true, &closed(json!({ "a": string }), json!([]))).is_err());
        let inner = closed(json!({ "a": { "type": "array", "items": { "type": "object" } } }), json!(["a"]));
        assert!(openai(true, &inner).unwrap_err().message.contains("additionalProperties"));
        assert!(openai(false, &json!({ "type": "array" })).is_err());
        assert!(openai(false, &json!({ "type": "object", "anyOf": [] })).is_err());
        let param = |format: Value| check_openai(&format, "text.format", None).unwrap_err().param;
        assert_eq!(param(json!({ "type": "xml" })).as_deref(), Some("text.format.type"));
        assert_eq!(param(json!({ "type": "json_schema" })).as_deref(), Some("text.format.name"));
        let named = |name: &str| json!({ "type": "json_schema", "name": name, "schema": open });
        assert_eq!(param(named("a b")).as_deref(), Some("text.format.name"));
        assert_eq!(check_openai(&named("a-b"), "text.format", None), Ok(()));
    }

    #[test]
    fn anthropic_wants_objects_closed_and_numbers_without_bounds() {
        let format = |schema: Value| check_anthropic(&json!({ "type": "json_schema", "schema": schema }));
        assert_eq!(format(closed(json!({ "a": { "type": "integer" } }), json!([]))), Ok(()));
        assert!(format(closed(json!({ "a": { "type": "integer", "minimum": 0 } }), json!([]))).is_err());
        assert!(format(json!({ "type": "object" })).is_err());
        let many = |count: usize, part: Value| {
            let named: Map<String, Value> =
                (0..count).map(|number| (format!("p{number}"), part.clone())).collect();
            format(closed(Value::Object(named), json!([]))).is_ok()
        };
        let union = json!({ "type": ["string", "null"] });
        assert_eq!([many(16, union.clone()), many(17, union)], [true, false]);
        assert_eq!([24, 25].map(|count| many(count, json!({ "type": "string" }))), [true, false]);
        assert!(check_anthropic(&json!({ "type": "text" })).is_err());
    }

    #[test]
    fn google_wants_the_type_of_what_has_a_schema() {
        let schema = json!({ "type": "object" });
        assert_eq!(check_gemini(Some(&schema), Some("application/json")), Ok(()));
        assert!(check_gemini(Some(&schema), None).is_err());
        assert!(check_gemini(Some(&json!("x")), Some("application/json")).is_err());
        assert_eq!(check_gemini(None, None), Ok(()));
    }
}
