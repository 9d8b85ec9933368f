//! No credential gets out, and every mistake in a config or a request is named with its place.
use std::path::Path;

use crate::support::*;
use aplomb::config::{Config, Loader};
use aplomb::{Error, Runtime, codes};
use serde_json::{Value, json};

// ---- Secrets.

/// A credential of no form that anybody could know, in a header of the user's own.
const CANARY: &str = "canary-7f3c9e1d5b";

/// A variable that every test run has, as the key: what is in it does not matter.
const KEY_VARIABLE: &str = "CARGO_MANIFEST_DIR";

fn key() -> String {
    std::env::var(KEY_VARIABLE).unwrap()
}

fn with_credentials(agent: &mut Value) {
    agent["llm"]["api_key_env"] = json!(KEY_VARIABLE);
    agent["llm"]["extra_headers"] = json!({ "x-team-key": CANARY });
}

/// Everything that a run says, in every form.
fn everything(outcome: &Outcome) -> String {
    let mut told = vec![serde_json::to_string(&outcome.events).unwrap(), format!("{:?}", outcome.events)];
    told.extend(
        outcome.chunks.iter().map(|chunk| format!("{chunk:?}{}", serde_json::to_string(chunk).unwrap())),
    );
    if let Err(error) = &outcome.output {
        told.push(format!("{error}\n{error:?}\n{error:#?}"));
        told.push(serde_json::to_string(&error.details()).unwrap());
        told.push(serde_json::to_string(error).unwrap());
        told.push(format!("{:?}", error.attempts()));
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            told.push(format!("{error}\n{error:?}"));
            cause = error.source();
        }
    }
    if let Some(result) = &outcome.result {
        told.push(format!("{result:?}{}", serde_json::to_string(result).unwrap()));
    }
    told.join("\n")
}

/// What a provider answers who repeats what it was sent, for each place in which it could.
fn echoes(secret: &str) -> Vec<(&'static str, Value)> {
    let no_headers = || json!({});
    let said = format!("Incorrect key provided: {secret}. You can find yours online.");
    let named = |error: Value| json!({ "error": error });
    let quoted = format!("{{\"choices\": [ {secret}");
    vec![
        ("message of a 401", http(401, no_headers(), named(json!({ "message": said })))),
        ("message of a 503", http(503, no_headers(), named(json!({ "message": said })))),
        ("message of an unknown", http(418, no_headers(), named(json!({ "message": said })))),
        ("text", http(401, no_headers(), json!(said))),
        ("page", http(502, json!({ "content-type": "text/html" }), json!(format!("<p>{said}</p>")))),
        ("other shape", http(400, no_headers(), json!({ "detail": [{ "msg": said }] }))),
        ("error as a string", http(400, no_headers(), json!({ "error": said }))),
        ("code", http(401, no_headers(), named(json!({ "code": secret })))),
        ("type", http(401, no_headers(), named(json!({ "type": secret })))),
        ("param", http(400, no_headers(), named(json!({ "message": "no", "param": secret })))),
        ("request id", http(401, json!({ "x-request-id": secret }), Value::Null)),
        ("retry-after", http(429, json!({ "retry-after": secret }), Value::Null)),
        ("limit header", http(429, json!({ "x-ratelimit-key": secret }), Value::Null)),
        ("location", http(302, json!({ "location": format!("/v1?key={secret}") }), Value::Null)),
        ("200 that is none", http(200, no_headers(), json!(quoted))),
        ("200 with an error", http(200, no_headers(), named(json!({ "message": said })))),
        (
            "error event",
            with_fault(
                text("one"),
                json!({ "error_event": { "after_events": 1, "body": named(json!({ "message": said, "type": "authentication_error" })) } }),
            ),
        ),
        ("broken event", events(&[&quoted])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_the_provider_repeats_gets_nowhere() {
    for secret in [CANARY.to_owned(), key()] {
        let mut leaks = Vec::new();
        for (place, step) in echoes(&secret) {
            for mode in MODES {
                let outcome = ask(mode, Setup::new(always(step.clone())).agent(with_credentials)).await;
                let sent = &outcome.log[0].headers;
                assert_eq!(
                    (&sent["x-team-key"], &sent["authorization"]),
                    (&CANARY.to_owned(), &format!("Bearer {}", key()))
                );
                assert!(outcome.output.is_err(), "{place} {mode:?}");
                if everything(&outcome).contains(&secret) {
                    leaks.push(format!("{place} {mode:?}"));
                }
            }
        }
        assert!(leaks.is_empty(), "the credential got out by: {leaks:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_said_around_a_credential_is_kept() {
    for (place, step) in echoes(CANARY).into_iter().filter(|(place, _)| place.starts_with("message")) {
        let outcome = ask(Mode::Plain, Setup::new(always(step)).agent(with_credentials)).await;
        let shown = outcome.error().to_string();
        assert!(
            shown.contains("Incorrect key provided: [redacted]. You can find yours online."),
            "{place}: {shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_of_a_known_form_is_removed_though_it_is_not_ours() {
    let theirs = "sk-proj-abcdefghijklmnopqrstuvwxyz";
    for step in [
        http(
            401,
            json!({}),
            json!({ "error": { "message": format!("Incorrect API key provided: {theirs}.") } }),
        ),
        http(500, json!({}), json!(format!("upstream said: Authorization: Bearer {theirs}"))),
        http(500, json!({}), json!(format!("POST https://upstream/v1?key={theirs} failed"))),
    ] {
        let outcome = ask(Mode::Plain, Setup::new(always(step))).await;
        assert!(!everything(&outcome).contains(theirs), "{}", outcome.error());
    }
}

#[test]
fn a_credential_in_the_address_is_refused_and_not_repeated() {
    let address = format!("http://user:{CANARY}@127.0.0.1:1/v1");
    let error = build(|agent| agent["llm"]["api_base"] = json!(address)).err().unwrap();
    assert_eq!(error.code(), codes::CONFIG_VALIDATION);
    let shown = format!("{error}\n{error:?}\n{}", serde_json::to_string(&error.details()).unwrap());
    assert!(shown.contains("llm.api_base") && !shown.contains(CANARY), "{shown}");
}

/// The mistake that people make: the key itself where the name of its variable belongs.
#[test]
fn a_key_in_place_of_its_variables_name_is_not_repeated() {
    let key = "sk-proj-abcdefghijklmnopqrstuvwxyz";
    let error = build(|agent| agent["llm"]["api_key_env"] = json!(key)).err().unwrap();
    assert_eq!(error.code(), codes::CONFIG_LOAD);
    let shown = format!("{error}\n{error:?}\n{}", serde_json::to_string(&error.details()).unwrap());
    assert!(!shown.contains(key), "{shown}");
}

// ---- Mistakes in a config.

fn build(change: impl FnOnce(&mut Value)) -> Result<Runtime, Error> {
    Runtime::builder(config("http://127.0.0.1:1/v1", change)).build()
}

/// A document that is right but for what is replaced.
fn document(from: &str, to: &str) -> String {
    const RIGHT: &str = r#"{
  "version": "1.0",
  "agents": [
    {
      "id": "assistant",
      "llm": {
        "provider": "openai_compatible",
        "model": "m",
        "api_base": "http://127.0.0.1:1/v1",
        "retry": { "max_attempts": 3 }
      }
    }
  ]
}"#;
    assert_eq!(RIGHT.matches(from).count(), 1, "{from}");
    RIGHT.replace(from, to)
}

/// The line and the column of the end of a text, as people count them.
fn place_of(document: &str, text: &str) -> (usize, usize) {
    let before = &document.get(..document.find(text).unwrap()).unwrap();
    (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap().len() + 1)
}

#[test]
fn a_mistake_in_the_shape_is_named_with_path_line_and_column() {
    for (from, to, mistake, path, expected) in [
        (r#""max_attempts": 3"#, r#""max_atempts": 3"#, "max_atempts", "agents[0].llm.retry", "max_attempts"),
        (
            r#""max_attempts": 3"#,
            r#""max_attempts": "three""#,
            "three",
            "agents[0].llm.retry.max_attempts",
            "an integer",
        ),
        (r#""model": "m""#, r#""model": ["m"]"#, "[\"m\"]", "agents[0].llm.model", "a string"),
        (
            r#""provider": "openai_compatible""#,
            r#""provider": "openia""#,
            "openia",
            "agents[0].llm.provider",
            "\"openai\"",
        ),
        (r#""version": "1.0""#, r#""version": "2.0""#, "2.0", "version", "1.0"),
        (r#""id": "assistant""#, r#""id": "assistant", "tols": []"#, "tols", "agents[0]", "tools"),
    ] {
        let wrong = document(from, to);
        let config = Config::from_json(&wrong, "my/agent.json");
        let error = config.and_then(|config| Runtime::builder(config).build()).err().unwrap();
        assert_eq!(error.code(), codes::CONFIG_VALIDATION, "{error}");
        let (line, _) = place_of(&wrong, mistake);
        let shown = error.to_string();
        assert!(shown.contains(&format!("my/agent.json:{line}:")), "line {line}: {shown}");
        assert!(shown.contains(path) && shown.contains(expected), "{shown}");
        // A column follows.
        let after = shown.split(&format!("my/agent.json:{line}:")).nth(1).unwrap();
        let column = after.split(|letter: char| !letter.is_ascii_digit()).next().unwrap();
        let column: usize = column.parse().unwrap();
        let length = wrong.lines().nth(line - 1).unwrap().len();
        assert!((1..=length + 1).contains(&column), "{shown}");
    }
}

#[test]
fn a_value_out_of_range_is_named_with_path_and_range() {
    for (from, to, path) in [
        (r#""max_attempts": 3"#, r#""max_attempts": 0"#, "llm.retry.max_attempts"),
        (r#""model": "m""#, r#""model": "m", "temperature": 2.5"#, "llm.temperature"),
        (r#""id": "assistant""#, r#""id": "assistant", "runtime": {"max_steps": 0}"#, "runtime.max_steps"),
        (
            r#""id": "assistant""#,
            r#""id": "assistant", "tools": [{"id": "a", "type": "clac"}]"#,
            "tools[0].type",
        ),
        (r#""api_base": "http://127.0.0.1:1/v1","#, "", "llm.api_base"),
    ] {
        let error = Config::from_json(&document(from, to), "my/agent.json").unwrap_err();
        assert!(error.is_a(codes::CONFIG_ERROR) || error.is_a(codes::PLUGIN_ERROR), "{error}");
        let shown = error.to_string();
        assert!(shown.contains("my/agent.json") && shown.contains(path), "{shown}");
    }
    let error =
        Config::from_json(&document(r#""max_attempts": 3"#, r#""max_attempts": 0"#), "a").unwrap_err();
    assert!(error.to_string().contains("1..=100"), "{error}");
}

#[test]
fn a_document_that_is_no_json_is_named_with_line_and_column() {
    let wrong = document(r#""model": "m","#, r#""model": "m""#);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.json");
    std::fs::write(&file, &wrong).unwrap();
    for error in [Loader::file(&file).load().unwrap_err(), Runtime::from_config(&file).err().unwrap()] {
        assert_eq!(error.code(), codes::CONFIG_LOAD);
        // Just behind the value that a comma has to follow.
        let (line, column) = place_of(&wrong, "\n        \"api_base\"");
        let place = format!("{}:{line}:{column}", file.display());
        assert!(error.to_string().contains(&place), "{place}: {error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named_with_a_way_out() {
    let file = Path::new("/nowhere/agent.json");
    let error = Runtime::from_config(file).err().unwrap();
    assert_eq!(error.code(), codes::CONFIG_LOAD);
    assert!(error.message().contains("/nowhere/agent.json"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("absolute path")), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_config_that_is_right_is_taken() {
    Config::from_json(&document("assistant", "assistant"), "agent.json").unwrap();
    assert_eq!(build(|_| ()).unwrap().list_agents(), ["assistant"]);
}

#[test]
fn a_key_whose_variable_is_not_set_is_named() {
    let error = build(|agent| agent["llm"]["api_key_env"] = json!("APLOMB_TEST_NOT_SET")).err().unwrap();
    assert_eq!(error.code(), codes::CONFIG_LOAD);
    assert!(error.message().contains("APLOMB_TEST_NOT_SET"), "{error}");
    assert!(error.hint().is_some(), "{error}");
}

// ---- Mistakes in a request.

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_none_is_refused_before_anything_is_sent() {
    let lab = Lab::new(always(text("no"))).await;
    for input in ["", "  \n\t"] {
        let error = lab.runtime.run("assistant", input).await.unwrap_err();
        assert_eq!(error.code(), codes::USER_INVALID_INPUT, "{error}");
        assert_eq!(lab.runtime.exec("assistant", input).await.unwrap_err().code(), codes::USER_INVALID_INPUT);
    }
    let error = lab.runtime.run("asistant", "hi").await.unwrap_err();
    assert_eq!(
        (error.code(), error.context("agent_id")),
        (codes::USER_AGENT_NOT_FOUND, Some(&json!("asistant")))
    );
    assert!(error.message().contains("\"asistant\""), "{error}");
    // A near match.
    assert!(error.hint().unwrap().contains("assistant"), "{error}");
    let request = aplomb::RunRequest::new("asistant", "hi");
    assert_eq!(
        lab.runtime.run_detailed(request.clone()).await.unwrap_err().code(),
        codes::USER_AGENT_NOT_FOUND
    );
    assert_eq!(lab.runtime.run_stream(request).err().unwrap().code(), codes::USER_AGENT_NOT_FOUND);
    assert_eq!((lab.requests(), lab.events.all().len()), (0, 0));
}
