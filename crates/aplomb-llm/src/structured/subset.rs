//! Which schemas vendors take, and how a schema is made one of those.
//!
//! The answer is checked against the schema that is meant, so the one that is sent may be wider: what only bounds a value
//! is left out where the vendor does not take it. It is narrower in two ways, for vendors want that: objects are closed,
//! and what is optional is never, or always, said to be null. A valid answer fits all the same, as long as all that is
//! said of an object is said in one place. So there is nothing beside its properties that applies other schemas to it, and
//! no keyword that is not known here; a schema that has such things is none of a subset.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::measure::{Count, References};

/// Which schemas a vendor takes.
pub(super) struct Subset {
    /// The bounds of values that it takes, of [`BOUNDS`]. Others are left out.
    bounds: &'static [&'static str],
    /// The values of `format`. Others are left out.
    formats: &'static [&'static str],
    /// Whether items may have a schema each.
    tuples: bool,
    /// Whether every object must say that it has no other properties than those named.
    closed: bool,
    /// What it wants of properties that may be missing.
    optional: Optional,
    /// Whether a schema may refer to itself.
    recursive: bool,
    /// The most values of all `enum`s.
    most_values: usize,
    /// The most properties that may be missing.
    most_optional: usize,
    /// The most schemas that name several types, or have options.
    most_unions: usize,
}

/// What a vendor wants of properties that may be missing.
#[derive(PartialEq)]
enum Optional {
    /// Nothing.
    AsTheyAre,
    /// That they are required, and null instead, where null will do.
    Null,
    /// That they are missing rather than null, for a union is dear.
    Missing,
}

/// Source: OpenAI's guide "Structured model outputs", "Supported schemas":
/// <https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>.
pub(super) const OPENAI: Subset = Subset {
    bounds: &[
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
    tuples: false,
    closed: true,
    optional: Optional::Null,
    recursive: true,
    most_values: 1_000,
    most_optional: usize::MAX,
    most_unions: usize::MAX,
};

/// What OpenAI's fine-tuned models and Azure take: no bounds.
///
/// Source: the same guide, "Some type-specific keywords are not yet supported"; Microsoft Learn, "Structured outputs",
/// "Unsupported type-specific keywords"
/// (<https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/structured-outputs>); Azure's refusal, "Expected at
/// most 500 enum values in total" (<https://portkey.ai/error-library/schema-validation-error-10473>).
pub(super) const OPENAI_PLAIN: Subset = Subset { bounds: &[], formats: &[], most_values: 500, ..OPENAI };

/// Anthropic's own SDKs leave bounds out, too, and check them where the answer arrives.
///
/// Source: Claude Platform Docs, "Structured outputs", "JSON Schema limitations" and "Schema complexity limits"
/// (<https://platform.claude.com/docs/en/build-with-claude/structured-outputs>); the refusals are "Schemas contains too many
/// parameters with union types (… limit: 16 parameters with unions)", and the same of optional ones.
pub(super) const ANTHROPIC: Subset = Subset {
    bounds: &[],
    formats: &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
    tuples: false,
    closed: true,
    optional: Optional::Missing,
    recursive: false,
    most_values: usize::MAX,
    most_optional: 24,
    most_unions: 16,
};

/// Source: Gemini API reference, "GenerationConfig", `responseJsonSchema`, which names the properties that are looked at,
/// and says of references in a circle that they are followed a little way at best:
/// <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.
pub(super) const GEMINI: Subset = Subset {
    bounds: &["minItems", "maxItems", "minimum", "maximum"],
    formats: &["date-time", "date", "time"],
    tuples: true,
    closed: false,
    optional: Optional::AsTheyAre,
    recursive: false,
    most_values: usize::MAX,
    most_optional: usize::MAX,
    most_unions: usize::MAX,
};

/// Keywords that say nothing about which values fit.
const ANNOTATIONS: &[&str] =
    &["$schema", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"];

/// Keywords that bound a text, a number or a list, each by itself: without one, more values fit, and none fewer.
const BOUNDS: &[&str] = &[
    "pattern",
    "minLength",
    "maxLength",
    "contentEncoding",
    "contentMediaType",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
];

/// Keywords that say what an object is.
const OF_OBJECTS: &[&str] = &["properties", "required", "additionalProperties"];

/// The deepest nesting and the most properties that OpenAI has taken all along; it has since raised both.
const DEEPEST: usize = 5;
const MOST_PROPERTIES: usize = 100;

impl Subset {
    /// The schema as the vendor takes it, if there is such a one.
    pub(super) fn fit(&self, schema: &Value) -> Option<Value> {
        let fitted = self.part(schema, 0)?;
        let mut count = Count::default();
        count.add(&fitted);
        let is_small = count.properties <= MOST_PROPERTIES
            && count.values <= self.most_values
            && count.optional <= self.most_optional
            && count.unions <= self.most_unions;
        let in_circle = is_small && References::in_circle(&fitted)?;
        (is_small && (self.recursive || !in_circle)).then_some(fitted)
    }

    fn part(&self, schema: &Value, depth: usize) -> Option<Value> {
        let fields = schema.as_object()?;
        let has = |key: &&str| fields.contains_key(*key);
        if depth > DEEPEST || (has(&"anyOf") && has(&"oneOf")) {
            return None;
        }
        if let Some(place) = fields.get("$ref") {
            // What stands beside a reference is not looked at, and must be nothing that matters.
            let describes =
                |key: &str| ANNOTATIONS.contains(&key) || ["$ref", "title", "description"].contains(&key);
            return fields.keys().all(|key| describes(key)).then(|| json!({ "$ref": place }));
        }
        let mut fitted = Map::new();
        for (key, value) in fields {
            match key.as_str() {
                "title" | "description" | "type" | "required" => {
                    fitted.insert(key.clone(), value.clone());
                }
                // An object or a list in full would say a second time what it is.
                "enum" if value.as_array()?.iter().all(is_scalar) => {
                    fitted.insert(key.clone(), value.clone());
                }
                "const" if is_scalar(value) && !has(&"enum") => {
                    fitted.insert("enum".to_owned(), json!([value]));
                }
                "properties" => {
                    fitted.insert(key.clone(), self.named(value, depth + 1)?);
                }
                "$defs" | "definitions" => {
                    fitted.insert(key.clone(), self.named(value, depth)?);
                }
                "items" => {
                    fitted.insert(key.clone(), self.part(value, depth)?);
                }
                // Exactly one of them is one of them.
                "anyOf" | "oneOf" => {
                    fitted.insert("anyOf".to_owned(), self.listed(value, depth)?);
                }
                "prefixItems" if self.tuples => {
                    fitted.insert(key.clone(), self.listed(value, depth)?);
                }
                "additionalProperties" => match value {
                    Value::Bool(false) => drop(fitted.insert(key.clone(), value.clone())),
                    _ if self.closed => return None,
                    Value::Bool(_) => drop(fitted.insert(key.clone(), value.clone())),
                    _ => drop(fitted.insert(key.clone(), self.part(value, depth)?)),
                },
                "format" => {
                    if value.as_str().is_some_and(|format| self.formats.contains(&format)) {
                        fitted.insert(key.clone(), value.clone());
                    }
                }
                _ if BOUNDS.contains(&key.as_str()) => {
                    if self.bounds.contains(&key.as_str()) && !looks_around(value) {
                        fitted.insert(key.clone(), value.clone());
                    }
                }
                _ if ANNOTATIONS.contains(&key.as_str()) => {}
                _ => return None,
            }
        }
        let is_object = has_type(&fitted, "object");
        let says_what = ["type", "anyOf", "enum"].iter().any(|key| fitted.contains_key(*key));
        // What is said of objects is said of an object, and there alone.
        let is_whole = is_object || !OF_OBJECTS.iter().any(has);
        let is_alone = !is_object || !["anyOf", "enum"].iter().any(|key| fitted.contains_key(*key));
        if !says_what || !is_whole || !is_alone {
            return None;
        }
        if is_object {
            self.finish_object(&mut fitted)?;
        }
        Some(Value::Object(fitted))
    }

    /// Closes an object, and says of its properties what the vendor wants.
    fn finish_object(&self, fitted: &mut Map<String, Value>) -> Option<()> {
        let required: BTreeSet<String> = match fitted.get("required") {
            Some(names) => {
                let names = names.as_array()?.iter().map(|name| name.as_str().map(str::to_owned));
                names.collect::<Option<_>>()?
            }
            None => BTreeSet::new(),
        };
        let named = match fitted.get_mut("properties") {
            Some(named) => named.as_object_mut()?,
            None if self.closed => return None,
            None => return required.is_empty().then_some(()),
        };
        // In a closed object it could not be.
        if !required.iter().all(|name| named.contains_key(name)) {
            return None;
        }
        let optional = named.iter_mut().filter(|(name, _)| !required.contains(*name));
        match self.optional {
            Optional::AsTheyAre => {}
            Optional::Null => {
                // As OpenAI's guide advises.
                let names = optional.map(|(name, part)| may_be_null(part).then(|| json!(name)));
                let names = names.collect::<Option<Vec<_>>>()?;
                let required = fitted.entry("required").or_insert_with(|| json!([]));
                required.as_array_mut()?.extend(names);
            }
            Optional::Missing => optional.for_each(|(_, part)| take_null(part)),
        }
        if self.closed {
            fitted.insert("additionalProperties".to_owned(), json!(false));
        }
        Some(())
    }

    fn named(&self, parts: &Value, depth: usize) -> Option<Value> {
        let parts = parts.as_object()?.iter();
        let parts = parts.map(|(name, part)| Some((name.clone(), self.part(part, depth)?)));
        Some(Value::Object(parts.collect::<Option<_>>()?))
    }

    fn listed(&self, parts: &Value, depth: usize) -> Option<Value> {
        let parts = parts.as_array()?.iter().map(|part| self.part(part, depth));
        Some(Value::Array(parts.collect::<Option<_>>()?))
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

/// Whether a pattern looks ahead or behind, which OpenAI takes of nobody.
fn looks_around(pattern: &Value) -> bool {
    let looks = |pattern: &str| ["(?=", "(?!", "(?<"].iter().any(|group| pattern.contains(group));
    pattern.as_str().is_some_and(looks)
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
    if let Some(options) = fields.get("anyOf").and_then(Value::as_array) {
        return options.iter().any(may_be_null);
    }
    let is_value = |values: &Value| values.as_array().is_some_and(|values| values.contains(&Value::Null));
    let is_type = !fields.contains_key("type") || has_type(fields, "null");
    match fields.get("enum") {
        Some(values) => is_type && is_value(values),
        None => has_type(fields, "null"),
    }
}

/// Takes null from what a schema admits, if something else is left.
fn take_null(part: &mut Value) {
    let Value::Object(fields) = part else { return };
    if let Some(Value::Array(options)) = fields.get_mut("anyOf") {
        let is_null = |option: &Value| option.get("type") == Some(&json!("null"));
        if options.iter().all(is_null) {
            return;
        }
        options.retain(|option| !is_null(option));
        if let [Value::Object(option)] = options.as_slice() {
            let option = option.clone();
            fields.remove("anyOf");
            // A reference stands alone, and an option's own words are nearer.
            if option.contains_key("$ref") {
                fields.clear();
            }
            fields.extend(option);
        }
        return;
    }
    let is_never_else =
        |values: &Value| values.as_array().is_some_and(|values| values.iter().all(Value::is_null));
    if fields.get("enum").is_some_and(is_never_else) {
        return;
    }
    if let Some(Value::Array(types)) = fields.get_mut("type")
        && types.len() > 1
    {
        types.retain(|name| name != "null");
        if let [name] = types.as_slice() {
            let name = name.clone();
            fields.insert("type".to_owned(), name);
        }
        if let Some(Value::Array(values)) = fields.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
    }
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
        assert_eq!(fits(&OPENAI), [false, false, true, false, true]);
        assert_eq!(fits(&ANTHROPIC), [true, false, true, false, false]);
        assert_eq!(fits(&GEMINI), [true, true, true, false, false]);
    }

    /// The values `{"id": 1, "x": 1}` and its like fit each of these, and none would fit them closed.
    #[test]
    fn what_is_said_of_an_object_in_two_places_is_in_no_subset() {
        let x = json!({ "properties": { "x": { "type": "integer" } }, "required": ["x"] });
        for (keyword, other) in [
            ("allOf", json!([x])),
            ("anyOf", json!([x, { "type": "object", "properties": {} }])),
            ("oneOf", json!([x])),
            ("if", x.clone()),
            ("not", x.clone()),
            ("patternProperties", json!({ "^x": true })),
            ("propertyNames", json!({ "minLength": 1 })),
            ("dependentSchemas", json!({ "id": x })),
            ("minProperties", json!(2)),
            ("const", json!({ "id": 1, "x": 1 })),
            ("enum", json!([{ "id": 1, "x": 1 }])),
            ("required", json!(["id", "x"])),
            ("somethingNew", json!(true)),
        ] {
            let mut schema = json!({
                "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"],
            });
            schema[keyword] = other;
            for subset in [OPENAI, OPENAI_PLAIN, ANTHROPIC, GEMINI] {
                assert_eq!(subset.fit(&schema), None, "{keyword}");
            }
        }
    }

    fn of_properties(count: usize, part: &Value, are_required: bool) -> Value {
        let names: Vec<String> = (0..count).map(|number| format!("p{number}")).collect();
        let required = if are_required { names.clone() } else { Vec::new() };
        let properties: Map<String, Value> = names.into_iter().map(|name| (name, part.clone())).collect();
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// Source: the page that [`ANTHROPIC`] names: 24 optional parameters, 16 of several types.
    #[test]
    fn anthropic_takes_so_many_optional_properties_and_so_many_unions() {
        let (text, union) = (json!({ "type": "string" }), json!({ "type": ["string", "null"] }));
        let fits =
            |count, part: &Value, required| ANTHROPIC.fit(&of_properties(count, part, required)).is_some();
        assert_eq!([fits(24, &text, false), fits(25, &text, false)], [true, false]);
        assert_eq!([fits(16, &union, true), fits(17, &union, true)], [true, false]);
        // Missing rather than null.
        assert!(fits(24, &union, false));
        assert!(OPENAI.fit(&of_properties(25, &union, false)).is_some());
    }

    #[test]
    fn what_anthropic_may_leave_out_is_not_said_to_be_null() {
        let part =
            json!({ "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] });
        let schema = json!({
            "type": "object",
            "properties": {
                "text": { "type": ["string", "null"], "enum": ["a", null] },
                "either": { "type": ["string", "integer", "null"] },
                "part": { "anyOf": [{ "$ref": "#/$defs/Part" }, { "type": "null" }], "description": "a part" },
                "list": { "anyOf": [{ "type": "array", "items": part }, { "type": "null" }], "description": "some" },
                "nothing": { "type": "null" },
                "kept": { "type": ["string", "null"] },
            },
            "required": ["kept"],
            "$defs": { "Part": part },
        });
        let mut closed = part.clone();
        closed["additionalProperties"] = json!(false);
        let properties = json!({
            "text": { "type": "string", "enum": ["a"] },
            "either": { "type": ["string", "integer"] },
            "part": { "$ref": "#/$defs/Part" },
            "list": { "type": "array", "items": closed, "description": "some" },
            "nothing": { "type": "null" },
            "kept": { "type": ["string", "null"] },
        });
        assert_eq!(ANTHROPIC.fit(&schema).unwrap()["properties"], properties);
    }

    #[test]
    fn openai_is_told_the_bounds_that_it_takes_and_stays_strict() {
        let of = |subset: &Subset, part: Value| {
            let schema = json!({ "type": "object", "properties": { "a": part }, "required": ["a"] });
            subset.fit(&schema).unwrap()["properties"]["a"].clone()
        };
        let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
        for pattern in ["^(?=.*a)", "^(?!b)", "(?<=c)d", "(?<!c)d"] {
            assert_eq!(of(&OPENAI, json!({ "type": "string", "pattern": pattern })), text, "{pattern}");
        }
        let dated = json!({ "type": "string", "format": "date", "pattern": "^2" });
        let bounded = json!({ "type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2 });
        assert_eq!(
            [of(&OPENAI, dated.clone()), of(&OPENAI, bounded.clone())],
            [dated.clone(), bounded.clone()]
        );
        assert_eq!([of(&OPENAI_PLAIN, dated), of(&OPENAI_PLAIN, bounded)], [text, number]);
        let set =
            json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true, "minItems": 1 });
        let list = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        assert_eq!(of(&OPENAI, set), list);
    }

    /// Source: the pages that [`OPENAI`] and [`OPENAI_PLAIN`] name.
    #[test]
    fn openai_takes_a_thousand_values_and_azure_five_hundred() {
        let of = |count: usize| {
            let one = json!({ "type": "integer", "enum": (1..count).collect::<Vec<_>>() });
            let other = json!({ "const": "x" });
            json!({ "type": "object", "properties": { "a": one, "b": other }, "required": ["a", "b"] })
        };
        let fits = |subset: &Subset, count| subset.fit(&of(count)).is_some();
        assert_eq!([fits(&OPENAI, 1_000), fits(&OPENAI, 1_001)], [true, false]);
        assert_eq!([fits(&OPENAI_PLAIN, 500), fits(&OPENAI_PLAIN, 501)], [true, false]);
    }

    /// Following each reference anew would take 2^60 steps.
    #[test]
    fn references_are_followed_once() {
        let next = |number: usize| json!({ "$ref": format!("#/$defs/D{number}") });
        let mut defs: Map<String, Value> = (0..60)
            .map(|number| {
                let part = json!({ "anyOf": [next(number + 1), next(number + 1)] });
                (format!("D{number}"), part)
            })
            .collect();
        defs.insert("D60".to_owned(), json!({ "type": "string" }));
        let mut schema =
            json!({ "type": "object", "properties": { "a": next(0) }, "required": ["a"], "$defs": defs });
        assert!(GEMINI.fit(&schema).is_some());
        schema["$defs"]["D60"] = next(0);
        assert!(GEMINI.fit(&schema).is_none() && OPENAI.fit(&schema).is_some());
        schema["$defs"]["D60"] = next(61);
        assert!(OPENAI.fit(&schema).is_none(), "a reference to nothing");
    }

    #[test]
    fn a_property_may_be_called_definitions() {
        let schema = json!({
            "type": "object", "properties": { "definitions": { "$ref": "#/$defs/T" } }, "required": ["definitions"],
            "$defs": { "T": {
                "type": "object", "properties": { "definitions": { "$ref": "#/$defs/T" } }, "required": [],
            } },
        });
        assert!(ANTHROPIC.fit(&schema).is_none());
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
}
