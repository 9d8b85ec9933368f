//! A JSON Schema, made of a type. Knows no document.

use jsonschema::Validator;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// A JSON Schema, ready to be held against values.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) value: Value,
    pub(crate) validator: Validator,
}

impl Schema {
    /// The schema of what deserialises to a `T`. Null is not in it: it stands for the default and is taken out before.
    pub(crate) fn of<T: JsonSchema>() -> Result<Schema, String> {
        let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let mut value = generator.into_root_schema_for::<T>().to_value();
        without_null(&mut value);
        Schema::new(value)
    }

    pub(crate) fn new(value: Value) -> Result<Schema, String> {
        let validator = jsonschema::validator_for(&value).map_err(|error| error.to_string())?;
        Ok(Schema { value, validator })
    }

    /// The schema of the value at a path of keys, `[]` being every item.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(resolved(&self.value, &self.value), |schema, step| {
            let next =
                if *step == "[]" { schema.get("items")? } else { schema.get("properties")?.get(step)? };
            Some(resolved(&self.value, next))
        })
    }
}

/// A schema, where another one refers to it.
pub(crate) fn resolved<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
    match target.and_then(|pointer| whole.pointer(pointer)) {
        Some(target) => target,
        None => schema,
    }
}

/// Takes null out of what a schema allows, and says how large a number may be.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(|format| format == "uint32")
                && !fields.contains_key("maximum")
            {
                fields.insert("maximum".to_owned(), u32::MAX.into());
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(options)) = fields.get_mut("anyOf") {
                options.retain(|option| option.get("type").is_none_or(|kind| kind != "null"));
                if let [only] = options.as_slice() {
                    let only = only.clone();
                    fields.remove("anyOf");
                    if let Value::Object(only) = only {
                        fields.extend(only);
                    }
                }
            }
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// The values that a schema lists.
pub(crate) fn options(schema: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.iter().map(text).collect();
    }
    if let Some(value) = schema.get("const") {
        return vec![text(value)];
    }
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array);
    let branches: Vec<_> = branches.into_iter().flatten().map(options).collect();
    if branches.iter().any(Vec::is_empty) { Vec::new() } else { branches.into_iter().flatten().collect() }
}
