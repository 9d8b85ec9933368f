//! The fault lab's schema, and the table of faults in its guide, which is made from the schema.

use aplomb_faultlab::script::json_schema;
use serde_json::Value;

/// Between these lines of the guide is what is generated.
const BEGIN: &str = "<!-- The table is generated from the code by `cargo run -p xtask`. -->\n\n";
const END: &str = "\n<!-- End of the table. -->";

/// The JSON Schema of scripts, as it is published.
pub(crate) fn schema() -> String {
    format!("{:#}\n", json_schema())
}

/// The guide with the table of today's faults.
pub(crate) fn guide(written: &str) -> Result<String, String> {
    let (before, rest) = written.split_once(BEGIN).ok_or("docs/faultlab.md has no place for the faults")?;
    let (_, after) = rest.split_once(END).ok_or("docs/faultlab.md has no end of the faults")?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", table(&json_schema())?))
}

/// A row for each fault.
fn table(schema: &Value) -> Result<String, String> {
    let mut text = "| fault | what goes wrong | streamed | plain |\n|---|---|---|---|\n".to_owned();
    let faults = schema.pointer("/$defs/Fault/oneOf").and_then(Value::as_array);
    for fault in faults.ok_or("the schema has no faults")? {
        let description = fault.get("description").and_then(Value::as_str).unwrap_or_default();
        let (what, streamed, plain) = columns(description);
        if what.is_empty() || streamed.is_empty() || plain.is_empty() {
            return Err(format!("a fault that is not described: {fault}"));
        }
        let forms = forms(fault, schema);
        text.push_str(&format!("| {} | {what}{forms} | {streamed} | {plain} |\n", name(fault)?));
    }
    Ok(text)
}

/// The fault as a script says it.
fn name(fault: &Value) -> Result<String, String> {
    if let Some(name) = fault.get("const").and_then(Value::as_str) {
        return Ok(format!("`{name}`"));
    }
    let named =
        fault.get("properties").and_then(Value::as_object).and_then(|properties| properties.iter().next());
    let (name, content) = named.ok_or_else(|| format!("a fault without a name: {fault}"))?;
    if content.get("$ref").is_some() {
        return Ok(format!("`{name}: …`"));
    }
    let fields = content.get("properties").and_then(Value::as_object).into_iter().flatten();
    let required = content.get("required").and_then(Value::as_array);
    let fields: Vec<String> = fields
        .map(|(field, _)| {
            let needed = required.is_some_and(|required| required.iter().any(|needed| needed == field));
            format!("{field}{}", if needed { "" } else { "?" })
        })
        .collect();
    Ok(format!("`{name}: {{ {} }}`", fields.join(", ")))
}

/// The forms of a fault that has several, each with what is said of it; nothing for any other.
fn forms(fault: &Value, schema: &Value) -> String {
    let contents = fault.get("properties").and_then(Value::as_object).into_iter().flatten();
    let references = contents.filter_map(|(_, content)| content.get("$ref")?.as_str()?.strip_prefix('#'));
    let forms = references.filter_map(|place| schema.pointer(place)?.get("oneOf")?.as_array()).flatten();
    forms
        .map(|form| {
            let description = form.get("description").and_then(Value::as_str).unwrap_or_default();
            let name = name(form).unwrap_or_default();
            format!("<br>{name}: {}", description.replace("\n\n", " "))
        })
        .collect()
}

/// What is said of both ways, of streams and of documents. Where a description makes no difference, there is
/// none.
fn columns(description: &str) -> (String, String, String) {
    let (ways, both): (Vec<&str>, Vec<&str>) =
        description.split("\n\n").partition(|paragraph| paragraph.starts_with("Streamed: "));
    let both = both.join("<br>");
    match ways
        .first()
        .and_then(|ways| ways.strip_prefix("Streamed: "))
        .and_then(|ways| ways.split_once(" Plain: "))
    {
        Some((streamed, plain)) => (both, streamed.to_owned(), plain.to_owned()),
        None => (both, "the same".to_owned(), "the same".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use aplomb_faultlab::script::{Format, Script};
    use serde_json::json;

    use super::*;

    const GUIDE: &str = include_str!("../../docs/faultlab.md");
    const STORM: &str = include_str!("../../examples/faultlab/storm.yaml");

    /// The guide's examples, each a whole script.
    fn examples() -> Vec<Script> {
        let blocks = GUIDE.split("```yaml\n").skip(1).filter_map(|block| block.split_once("```"));
        let texts = blocks.map(|(text, _)| text).chain([STORM]);
        texts
            .map(|text| Script::read(text, Format::Yaml).unwrap_or_else(|error| panic!("{error}\n{text}")))
            .collect()
    }

    #[test]
    fn the_guides_examples_are_scripts_and_the_schema_knows_them() {
        let schema = jsonschema::validator_for(&json_schema()).unwrap();
        let examples = examples();
        assert!(examples.len() > 5);
        for script in examples {
            let json = serde_json::to_value(&script).unwrap();
            assert!(schema.is_valid(&json), "{json}");
        }
    }

    #[test]
    fn the_schema_refuses_what_is_misspelt() {
        let schema = jsonschema::validator_for(&json_schema()).unwrap();
        let valid = |script: &str| schema.is_valid(&serde_json::from_str(script).unwrap());
        assert!(valid(
            r#"{ "$schema": "x", "steps": [ { "reply": { "message": {} }, "fault": "silence" } ] }"#
        ));
        assert!(!valid(r#"{ "steps": [ { "reply": { "message": { "txt": "hi" } } } ] }"#));
        assert!(!valid(r#"{ "steps": [ { "reply": { "message": {} }, "fault": "silense" } ] }"#));
        assert!(!valid(
            r#"{ "steps": [ { "reply": { "message": {} }, "fault": { "cut": { "by": "fin" } } } ] }"#
        ));
    }

    #[test]
    fn a_fault_of_several_forms_shows_each_of_them() {
        let schema = json!({ "$defs": {
            "Fault": { "oneOf": [ {
                "description": "It breaks.", "properties": { "http2": { "$ref": "#/$defs/Form" } } } ] },
            "Form": { "oneOf": [
                { "description": "At once.\n\nNearest: `cut`.", "const": "now" },
                { "description": "Then.", "properties": { "later": {
                    "properties": { "code": {}, "after_events": {} }, "required": ["code"] } } } ] } } });
        let row = table(&schema).unwrap().lines().last().unwrap().to_owned();
        assert_eq!(
            row,
            "| `http2: …` | It breaks.<br>`now`: At once. Nearest: `cut`.<br>`later: { after_events?, code }`: \
             Then. | the same | the same |"
        );
    }

    #[test]
    fn a_description_has_three_columns_or_one() {
        let (what, streamed, plain) = columns("It breaks.\n\nStreamed: so. Plain: thus.\n\nMore.");
        assert_eq!(
            (what.as_str(), streamed.as_str(), plain.as_str()),
            ("It breaks.<br>More.", "so.", "thus.")
        );
        assert_eq!(
            columns("It breaks."),
            ("It breaks.".to_owned(), "the same".to_owned(), "the same".to_owned())
        );
    }
}
