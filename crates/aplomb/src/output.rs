//! What a run's output must be: how a request says it, and how an answer is held to it.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use aplomb_core::error::{Error, codes};
use aplomb_core::run::{Misfit, OutputSchema};
use jsonschema::Validator;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The most errors of one answer that are told. Whoever mends ten of them will hear of the rest.
const MOST_ERRORS: usize = 10;
/// The most characters of one of them: some repeat a whole list of what is allowed.
const LONGEST_ERROR: usize = 300;

/// What a request says of its output, which a run gives as a `T`.
pub(crate) struct Output<T> {
    /// The schema, and whether a text that fits it is a `T`. None where any text will do.
    pub(crate) form: Option<Form>,
    read: fn(String) -> Result<T, serde_json::Error>,
}

/// A schema, and what there is to check besides it.
#[derive(Clone)]
pub(crate) struct Form {
    schema: Arc<OutputSchema>,
    fits_type: fn(&str) -> Result<(), Unlike>,
}

/// Where a text is not what its type wants, and why in the type's own words, which may quote it.
type Unlike = (String, String);

impl Output<String> {
    /// Any text.
    pub(crate) fn text() -> Output<String> {
        Output { form: None, read: Ok }
    }
}

impl Output<Value> {
    /// JSON that fits a schema.
    pub(crate) fn schema(name: String, schema: Value) -> Output<Value> {
        let schema = Arc::new(OutputSchema { name, schema });
        Output {
            form: Some(Form { schema, fits_type: |_| Ok(()) }),
            read: |text| serde_json::from_str(&text),
        }
    }
}

impl<T: DeserializeOwned + JsonSchema> Output<T> {
    /// JSON that is a `T`.
    pub(crate) fn of_type() -> Output<T> {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
        let schema = Arc::new(OutputSchema { name: T::schema_name().into_owned(), schema });
        Output { form: Some(Form { schema, fits_type: fits::<T> }), read: |text| serde_json::from_str(&text) }
    }
}

impl<T> Output<T> {
    /// The output that the text is.
    pub(crate) fn read(&self, text: String) -> Result<T, Error> {
        let name = self.form.as_ref().map_or("text", |form| &form.schema.name);
        // The type's own words may quote the output.
        (self.read)(text).map_err(|_| {
            Error::new(codes::EXECUTION_OUTPUT_VALIDATION, format!("the output is not a valid {name}"))
                .with_context("attempts", 1)
                .with_context("last_validation_error", format!("it is not a valid {name}"))
                .with_context("output_type", name)
        })
    }
}

impl<T> Clone for Output<T> {
    fn clone(&self) -> Output<T> {
        Output { form: self.form.clone(), read: self.read }
    }
}

impl<T> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form.as_ref().map_or("text", |form| &form.schema.name))
    }
}

/// Whether the text is a `T`. A type may be stricter than its schema, and knows best what is wrong.
fn fits<T: DeserializeOwned>(text: &str) -> Result<(), Unlike> {
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => Ok(()),
        Err(error) => Err((error.path().to_string(), error.to_string())),
    }
}

impl Form {
    /// What the machine is to know of it.
    pub(crate) fn schema(&self) -> Arc<OutputSchema> {
        self.schema.clone()
    }

    /// Makes ready to check answers.
    ///
    /// # Errors
    ///
    /// `user.invalid_input` where the schema is none.
    pub(crate) fn check(&self) -> Result<Check, Error> {
        let OutputSchema { name, schema } = &*self.schema;
        if name.trim().is_empty() {
            return Err(Error::new(codes::USER_INVALID_INPUT, "the output's schema has no name"));
        }
        let validator = jsonschema::validator_for(schema).map_err(|error| {
            let message = format!("the schema of output {name} is no JSON Schema: {error}");
            Error::new(codes::USER_INVALID_INPUT, message)
                .with_hint("it is read as draft 2020-12 unless its $schema says otherwise; nothing is fetched for a $ref")
        })?;
        Ok(Check { name: name.clone(), validator, fits_type: self.fits_type })
    }
}

/// Holds answers to a schema.
pub(crate) struct Check {
    name: String,
    validator: Validator,
    fits_type: fn(&str) -> Result<(), Unlike>,
}

impl Check {
    /// The JSON that the answer is, or what is wrong with it.
    pub(crate) fn judge(&self, answer: &str) -> Result<String, Misfit> {
        let json = inside_fence(answer).unwrap_or(answer).trim();
        let value: Value =
            serde_json::from_str(json).map_err(|error| Misfit::from(format!("it is not JSON: {error}")))?;
        let mut errors = self.validator.iter_errors(&value).map(|error| {
            // Masked: a value that does not fit may be a secret all the same.
            let text = match error.instance_path().as_str() {
                "" => error.masked().to_string(),
                path => format!("{path}: {}", error.masked()),
            };
            shortened(text)
        });
        let mut told = errors.by_ref().take(MOST_ERRORS).collect::<Vec<_>>().join("\n");
        let more = errors.count();
        if more > 0 {
            let _writing_to_a_string_succeeds = write!(told, "\nand {more} more");
        }
        if !told.is_empty() {
            return Err(told.into());
        }
        (self.fits_type)(json).map_err(|(path, words)| {
            let place = if path == "." { String::new() } else { format!("{path}: ") };
            Misfit {
                told: shortened(words),
                masked: shortened(format!("{place}it is not a valid {}", self.name)),
            }
        })?;
        Ok(json.to_owned())
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST_ERROR) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// What is inside the fence, where the whole answer is one fenced block that says it is JSON.
fn inside_fence(answer: &str) -> Option<&str> {
    let inside = answer.trim().strip_prefix("```json")?.strip_suffix("```")?;
    let is_one = inside.starts_with(['\n', '\r']) && inside.ends_with('\n');
    let has_another = inside.lines().any(|line| line.trim_start().starts_with("```"));
    (is_one && !has_another).then_some(inside)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(try_from = "String")]
    struct Even(u32);

    impl TryFrom<String> for Even {
        type Error = String;

        fn try_from(text: String) -> Result<Even, String> {
            match text.parse() {
                Ok(number) if number % 2 == 0 => Ok(Even(number)),
                _ => Err("an even number is wanted".to_owned()),
            }
        }
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Pair {
        left: Even,
        right: u32,
    }

    fn check() -> Check {
        Output::<Pair>::of_type().form.unwrap().check().unwrap()
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once_with_its_place_and_without_the_values() {
        let Misfit { told: wrong, masked } = check().judge(r#"{"left": 3, "right": "sesame"}"#).unwrap_err();
        assert_eq!(wrong, masked);
        let lines: Vec<_> = wrong.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(lines, ["/left", "/right"], "{wrong}");
        assert!(!wrong.contains("sesame"), "{wrong}");
    }

    #[test]
    fn what_is_not_json_is_told_with_its_place() {
        let wrong = check().judge("{\"left\": \"2\",\n oops}").unwrap_err().told;
        assert!(wrong.starts_with("it is not JSON: ") && wrong.contains("line 2 column 2"), "{wrong}");
    }

    #[test]
    fn a_type_that_is_stricter_than_its_schema_has_its_say() {
        let wrong = check().judge(r#"{"left": "3", "right": 1}"#).unwrap_err();
        assert!(wrong.told.contains("left") && wrong.told.contains("an even number is wanted"), "{wrong:?}");
        assert_eq!(wrong.masked, "left: it is not a valid Pair");
        assert!(check().judge(r#"{"left": "4", "right": 1}"#).is_ok());
    }

    #[test]
    fn one_fenced_block_of_json_counts_as_its_inside_and_nothing_else_is_guessed() {
        let json = r#"{"left": "4", "right": 1}"#;
        assert_eq!(check().judge(&format!("\n```json\n{json}\n```\n")).as_deref(), Ok(json));
        for guess in [
            format!("Here it is:\n```json\n{json}\n```"),
            format!("```\n{json}\n```"),
            format!("```json\n{json}\n```\n```json\n{json}\n```"),
            format!("```json5\n{json}\n```"),
            format!("{json}."),
            format!("`{json}`"),
        ] {
            assert!(check().judge(&guess).is_err(), "{guess}");
        }
    }

    #[test]
    fn what_is_told_is_bounded() {
        let schema = json!({ "type": "array", "items": { "enum": ["x".repeat(5_000)] } });
        let check = Output::schema("List".to_owned(), schema).form.unwrap().check().unwrap();
        let wrong = check.judge(&json!(vec![0; 25]).to_string()).unwrap_err().told;
        assert_eq!(wrong.lines().count(), 11, "{wrong}");
        assert!(wrong.ends_with("\nand 15 more"), "{wrong}");
        assert!(wrong.chars().count() < 10 * 302 + 20, "{}", wrong.len());
    }

    #[test]
    fn a_schema_that_is_none_is_told_before_anything_is_sent() {
        let none = Output::schema("List".to_owned(), json!({ "type": "lst" }));
        assert_eq!(none.form.unwrap().check().err().unwrap().code(), codes::USER_INVALID_INPUT);
        let elsewhere = Output::schema("List".to_owned(), json!({ "$ref": "https://example.com/list.json" }));
        assert_eq!(elsewhere.form.unwrap().check().err().unwrap().code(), codes::USER_INVALID_INPUT);
    }
}
