//! `aplomb run --output-schema`: `docs/spec/runtime.md` §7, and what it does by §2.

use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::support::{Finished, aplomb, config, file, output, says};

const GOOD: &str = r#"{ "number": "R7", "cents": 10 }"#;
const BAD: &str = r#"{ "number": "R7", "cents": "ten" }"#;

fn schema() -> Value {
    json!({
        "title": "Invoice",
        "type": "object",
        "properties": { "number": { "type": "string" }, "cents": { "type": "integer" } },
        "required": ["number", "cents"],
    })
}

/// A run whose model says these, one after the other, and then the last for ever.
fn run(answers: &[&str], schema: &str, more: &[&str]) -> Finished {
    let steps: Vec<_> = answers.iter().map(|answer| says(answer)).collect();
    let config = config(json!(steps));
    let arguments = ["--input", "hi", "--output-schema", schema];
    output(aplomb().arg("run").arg(config.path()).args(arguments).args(more))
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

#[test]
fn the_answer_is_json_in_the_result_and_its_text_in_text() {
    let schema = file(&schema().to_string());
    let run_as = |format| run(&[GOOD], path(&schema), &["--format", format]);
    let result = run_as("json").json();
    assert_eq!(result["final_output"], json!({ "number": "R7", "cents": 10 }));
    let text = run_as("text");
    assert_eq!((text.code, text.stdout.lines().count()), (Some(0), 1));
    assert_eq!(text.json(), json!({ "number": "R7", "cents": 10 }));
}

#[test]
fn an_answer_that_does_not_fit_is_corrected_and_said_to_be() {
    let schema = file(&schema().to_string());
    let text = run(&[BAD, GOOD], path(&schema), &["--format", "text"]);
    assert_eq!((text.code, &text.json()["cents"]), (Some(0), &json!(10)));
    assert!(text.stderr.contains("asked to correct its answer: /cents"), "{}", text.stderr);
    let events = run(&[BAD, GOOD], path(&schema), &[]).events();
    assert!(events.iter().any(|event| event["name"] == "validation.retry"));
}

#[test]
fn one_that_never_fits_exits_with_3_and_says_why_after_as_many_corrections_as_it_may() {
    let schema = file(&schema().to_string());
    let more = ["--format", "json", "--max-validation-retries", "0"];
    let run = run(&[BAD], path(&schema), &more);
    let result = run.json();
    assert_eq!((run.code, &result["final_output"]), (Some(3), &Value::Null));
    let context = &result["error_details"]["context"];
    assert_eq!((&context["attempts"], &context["output_type"]), (&json!(1), &json!("Invoice")));
    for talk in ["error[execution.output_validation]", "not a valid Invoice after 1 attempt: /cents", "hint:"]
    {
        assert!(run.stderr.contains(talk), "{talk}: {}", run.stderr);
    }
}

#[test]
fn a_schema_without_a_title_is_called_after_its_file() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("receipt.json");
    std::fs::write(&place, r#"{ "type": "array" }"#).unwrap();
    let run = run(&[GOOD], place.to_str().unwrap(), &["--format", "text", "--max-validation-retries", "0"]);
    assert!(run.stderr.contains("not a valid receipt"), "{}", run.stderr);
}

#[test]
fn a_schema_that_is_none_or_not_there_exits_with_1_and_names_it() {
    let (no_json, no_schema) =
        (file("{ type: object }"), file(r#"{ "title": "Invoice", "type": "objekt" }"#));
    for (schema, named) in [
        ("/no/such/schema.json", "/no/such/schema.json"),
        (path(&no_json), path(&no_json)),
        (path(&no_schema), "Invoice"),
    ] {
        let run = run(&[GOOD], schema, &["--format", "text"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{schema}: {}", run.stderr);
        assert!(
            run.stderr.contains("error[user.invalid_input]") && run.stderr.contains(named),
            "{}",
            run.stderr
        );
    }
}
