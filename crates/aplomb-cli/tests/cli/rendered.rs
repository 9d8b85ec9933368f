//! Errors as people read them. The golden files are in `snapshots`; read them as text when they change.

use serde_json::{Value, json};

use crate::support::{aplomb, file, output};

/// What a run of one agent says on standard error, with this `llm` and these changes to the agent.
fn rendered(mut llm: Value, change: impl FnOnce(&mut Value), arguments: &[&str]) -> String {
    llm["model"] = json!("m");
    llm["retry"] = json!({"initial_backoff_ms": 1, "max_backoff_ms": 1, "jitter": "none"});
    let mut agent = json!({"id": "a", "llm": llm, "retry": {"session": {"base_delay_ms": 1}}});
    change(&mut agent);
    let config = file(&json!({"version": "1.0", "agents": [agent]}).to_string());
    let path = config.path().to_str().unwrap();
    let mut command = aplomb();
    command.args(["run", path, "--run-id", "r1", "--format", "json"]).args(arguments);
    let finished = output(&mut command);
    assert!(matches!(finished.code, Some(1..=3)), "{finished:?}");
    // The lines of talk before the error are another matter, and the file has a name of its own.
    let from = finished.stderr.find("error[").unwrap();
    finished.stderr[from..].replace(path, "agent.json")
}

fn mock(step: Value) -> Value {
    json!({"provider": "mock", "script": {"steps": [step], "at_end": "repeat_last"}})
}

fn status(status: u16, headers: Value, body: Value) -> Value {
    mock(json!({"reply": {"http": {"status": status, "headers": headers, "body": body}}}))
}

const HI: &[&str] = &["--input", "hi"];

fn nothing(_: &mut Value) {}

#[test]
fn a_provider_that_is_down() {
    insta::assert_snapshot!(rendered(status(503, json!({}), Value::Null), nothing, HI));
}

#[test]
fn a_key_that_is_refused() {
    let body = json!({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}});
    insta::assert_snapshot!(rendered(status(401, json!({"x-request-id": "req_42"}), body), nothing, HI));
}

#[test]
fn a_wait_that_is_too_long_to_sit_out() {
    let body = json!({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}});
    insta::assert_snapshot!(rendered(status(429, json!({"retry-after": "120"}), body), nothing, HI));
}

#[test]
fn a_quota_that_is_used_up() {
    let body = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
    insta::assert_snapshot!(rendered(status(429, json!({}), body), nothing, HI));
}

#[test]
fn nobody_listens() {
    let llm = json!({"provider": "openai_compatible", "api_base": "http://127.0.0.1:1/v1"});
    insta::assert_snapshot!(rendered(llm, nothing, HI));
}

#[test]
fn an_answer_that_is_cut_off_at_the_token_limit() {
    let step = json!({"reply": {"message": {"text": "It all began when", "finish_reason": "length"}}});
    insta::assert_snapshot!(rendered(mock(step), nothing, HI));
}

#[test]
fn an_agent_that_does_not_converge() {
    let step = json!({"reply": {"message": {"tool_calls": [{"name": "nosuch", "arguments": {}}]}}});
    insta::assert_snapshot!(rendered(mock(step), |agent| agent["runtime"] = json!({"max_steps": 2}), HI));
}

#[test]
fn a_misspelt_key() {
    let step = json!({"reply": {"message": {"text": "ok"}}});
    insta::assert_snapshot!(rendered(mock(step), |agent| agent["tols"] = json!([]), HI));
}

#[test]
fn a_misspelt_tool() {
    let step = json!({"reply": {"message": {"text": "ok"}}});
    let change = |agent: &mut Value| agent["tools"] = json!([{"id": "calc", "type": "clac"}]);
    insta::assert_snapshot!(rendered(mock(step), change, HI));
}

#[test]
fn a_misspelt_agent() {
    let step = json!({"reply": {"message": {"text": "ok"}}});
    insta::assert_snapshot!(rendered(
        mock(step),
        |agent| agent["id"] = json!("assistant"),
        &["--input", "hi", "--agent", "asistant"]
    ));
}
