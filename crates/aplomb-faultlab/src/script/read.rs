//! Reads scripts, and says where a text is none. Knows the formats, and nothing of what a script means.

use std::path::Path;

use serde::de::DeserializeOwned;
use strsim::damerau_levenshtein;

/// A mistake in a script: where it is and what was expected there.
///
/// Displays as `steps[2].reply.message.text: {{nmae}} is not a name; expected one of input, tool_result`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    place: String,
    expected: String,
}

impl ScriptError {
    pub(crate) fn new(place: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: place.into(), expected: expected.into() }
    }

    /// The path from the script's root: `steps[2].reply.message.text`; `.` is the script itself.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.expected)
    }
}

impl std::error::Error for ScriptError {}

/// How a script is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JSON.
    Json,
    /// YAML 1.2. Has room for comments.
    Yaml,
}

impl Format {
    /// The format of a file, by its extension: YAML for `yaml` and `yml`, JSON for any other.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        match file.extension().and_then(std::ffi::OsStr::to_str) {
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Json,
        }
    }
}

/// Reads a text, with the place in the error where it does not fit.
pub(super) fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, ScriptError> {
    match format {
        Format::Json => json(text),
        Format::Yaml => yaml(text),
    }
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, ScriptError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| misread(known(error.path()), error.inner().to_string()))?;
    deserializer.end().map_err(|error| ScriptError::new(".", error.to_string()))?;
    Ok(value)
}

fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, ScriptError> {
    // `yes`, `no`, `on` and `off` are words, as in YAML 1.2; errors are one line.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let mut place = ".".to_owned();
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        T::deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track))
            .inspect_err(|_| place = known(&track.path()))
    })
    .map_err(|error| misread(place.clone(), error.render_with_formatter(&serde_saphyr::UserMessageFormatter)))
}

/// The path, or the script itself where it is not known.
fn known(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    if path == "?" { ".".to_owned() } else { path }
}

/// A mistake, with the key that was meant if one is near.
fn misread(place: String, mut expected: String) -> ScriptError {
    if let Some(meant) = near_match(&expected) {
        expected.push_str(&format!("; did you mean `{meant}`?"));
    }
    ScriptError::new(place, expected)
}

/// Serde names an unknown key between backticks, and then the known ones in a list.
fn near_match(message: &str) -> Option<String> {
    let (_, names) =
        message.split_once("unknown field `").or_else(|| message.split_once("unknown variant `"))?;
    let (given, known) = names.split_once('`')?;
    let known = known.split_once(" at line").map_or(known, |(known, _)| known);
    let names = known
        .split(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c)))
        .filter(|name| !name.is_empty());
    let distance = |name: &&str| damerau_levenshtein(given, name);
    let nearest = names.min_by_key(distance)?;
    (distance(&nearest) <= 1 + given.chars().count() / 4).then(|| nearest.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::script::{Format, Script};

    fn mistake(text: &str, format: Format) -> String {
        Script::read(text, format).unwrap_err().to_string()
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = r#"
            # A comment is fine here.
            captures: { n: "[0-9]+" }
            steps:
              - reply:
                  http:
                    status: 429
                    headers: { retry-after: "1" }
                    retry_after: null
                    body: { error: { message: no, code: 7 } }
              - reply: { message: { text: "Héllo {{n}}", tool_calls: [ { name: f, arguments: { a: [1, b] } } ] } }
                fault: { cut: { after_events: 2, by: reset } }
                repeat: 2
              - reply: { message: {} }
                fault: silence
        "#;
        let json = r#"{ "captures": { "n": "[0-9]+" }, "steps": [
            { "reply": { "http": { "status": 429, "headers": { "retry-after": "1" },
                         "body": { "error": { "message": "no", "code": 7 } } } } },
            { "reply": { "message": { "text": "Héllo {{n}}",
                         "tool_calls": [ { "name": "f", "arguments": { "a": [1, "b"] } } ] } },
              "fault": { "cut": { "after_events": 2, "by": "reset" } }, "repeat": 2 },
            { "reply": { "message": {} }, "fault": "silence" } ] }"#;
        assert_eq!(Script::from_yaml(yaml).unwrap(), Script::from_json(json).unwrap());
    }

    #[test]
    fn json_is_yaml_too() {
        let json = r#"{ "steps": [ { "reply": { "message": { "text": "a" } }, "fault": "crlf" } ] }"#;
        assert_eq!(Script::from_yaml(json).unwrap(), Script::from_json(json).unwrap());
    }

    #[test]
    fn a_misspelt_key_is_refused_by_place_line_and_column_with_what_was_meant() {
        let yaml = mistake("steps:\n- reply:\n    message:\n      txt: hi\n", Format::Yaml);
        let json = mistake(r#"{ "steps": [ { "reply": { "message": { "txt": "hi" } } } ] }"#, Format::Json);
        for (error, position) in [(yaml, "at line 4, column 7"), (json, "at line 1 column 44")] {
            assert!(error.starts_with("steps[0].reply.message"), "{error}");
            assert!(error.contains("unknown field `txt`"), "{error}");
            assert!(error.contains(position), "{error}");
            assert!(error.ends_with("; did you mean `text`?"), "{error}");
        }
        let far = mistake(r#"{ "steps": [ { "reply": { "message": { "volume": 1 } } } ] }"#, Format::Json);
        assert!(!far.contains("did you mean"), "{far}");
    }

    #[test]
    fn a_misspelt_fault_is_refused_with_what_was_meant() {
        let error = mistake("steps:\n- reply: { message: {} }\n  fault: silense\n", Format::Yaml);
        assert!(error.starts_with("steps[0].fault"), "{error}");
        assert!(error.ends_with("; did you mean `silence`?"), "{error}");
    }

    #[test]
    fn text_that_is_no_yaml_and_text_after_it_are_refused() {
        let broken = mistake("steps: [", Format::Yaml);
        assert!(broken.contains("line 1, column"), "{broken}");
        let two = mistake("steps:\n- reply: { message: {} }\n---\nsteps: []\n", Format::Yaml);
        assert!(two.starts_with(".: "), "{two}");
        let twice = mistake("at_end: stop\nat_end: stop\nsteps: []\n", Format::Yaml);
        assert!(
            twice.starts_with(".: ") && twice.contains("at_end") && twice.contains("line 2, column 1"),
            "{twice}"
        );
    }

    #[test]
    fn a_files_extension_says_its_format() {
        for (file, format) in [
            ("a/storm.yaml", Format::Yaml),
            ("b.yml", Format::Yaml),
            ("c.json", Format::Json),
            ("d", Format::Json),
        ] {
            assert_eq!(Format::of(file.as_ref()), format);
        }
    }

    #[test]
    fn a_script_may_name_its_schema() {
        let script =
            r#"{ "$schema": "../schema/faultlab.schema.json", "steps": [ { "reply": { "message": {} } } ] }"#;
        assert!(Script::from_json(script).is_ok());
    }
}
