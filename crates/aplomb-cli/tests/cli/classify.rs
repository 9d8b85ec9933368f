//! `aplomb classify`: verdicts as people and programs read them. The golden files are in `snapshots`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Finished, aplomb, file, output};

const QUOTA: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 20\r\n\r\n\
    {\"error\":{\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\",\"message\":\"x\"}}";

/// What it makes of this on standard input.
fn classify(input: &str, arguments: &[&str]) -> Finished {
    let input = file(input).reopen().unwrap();
    output(aplomb().arg("classify").args(arguments).stdin(input))
}

fn text(input: &str, arguments: &[&str]) -> String {
    let finished = classify(input, arguments);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    finished.stdout
}

fn response(status: &str, headers: &str, body: &Value) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}\r\n{body}")
}

#[test]
fn a_throttle_that_says_how_long() {
    let body =
        json!({"error": {"message": "Rate limit reached for requests", "code": "rate_limit_exceeded"}});
    insta::assert_snapshot!(text(&response("429 Too Many Requests", "Retry-After: 20\r\n", &body), &[]));
}

#[test]
fn a_wait_that_is_longer_than_a_run_waits() {
    insta::assert_snapshot!(text("HTTP/2 429\nretry-after: 120\n\n", &[]));
}

#[test]
fn a_quota_that_wears_the_status_of_a_throttle() {
    insta::assert_snapshot!(text(QUOTA, &["--provider", "openai"]));
}

#[test]
fn a_conversation_that_is_too_long() {
    let body = json!({"error": {"message": "This model's maximum context length is 8192 tokens", "code": "context_length_exceeded"}});
    insta::assert_snapshot!(text(&response("400 Bad Request", "", &body), &[]));
}

#[test]
fn what_an_http_client_said() {
    insta::assert_snapshot!(text("", &["--exception", "connection reset by peer", "--phase", "mid-stream"]));
}

#[test]
fn what_nobody_knows() {
    insta::assert_snapshot!(text("", &["--exception", "the frobnicator is out of cheese"]));
}

#[test]
fn a_spent_quota_is_not_retryable_however_it_is_given() {
    let body = QUOTA.split("\r\n\r\n").nth(1).unwrap();
    let (lf, in_file) = (QUOTA.replace("\r\n", "\n"), file(body));
    let line = json!({"id": "7", "status": 429, "headers": {"retry-after": "20"}, "body": body}).to_string();
    let whole = file(QUOTA);
    let [body_file, whole] = [&in_file, &whole].map(|file| file.path().to_str().unwrap());
    let parts = ["--status", "429", "--header", "Retry-After: 20", "--body-file"];
    for (input, arguments) in [
        (QUOTA, &[][..]),
        (lf.as_str(), &[]),
        (line.as_str(), &[]),
        (body, &[&parts[..], &["-"]].concat()),
        ("", &[&parts[..], &[body_file]].concat()),
        ("", &[whole]),
    ] {
        let told = classify(input, &[arguments, &["--format", "json"]].concat()).json();
        let verdict =
            ["reason", "retryable", "code", "retry_after_ms", "wait_source"].map(|field| &told[field]);
        let expected = [
            json!("quota_exhausted"),
            json!(false),
            json!("llm.response"),
            json!(20_000),
            json!("retry-after"),
        ];
        assert_eq!(verdict, expected.each_ref(), "{arguments:?}");
        // docs/spec/retry.md §5: what cannot pass is tried once.
        assert_eq!([&told["run"]["requests"], &told["exec"]["requests"]], [1, 1]);
    }
}

#[test]
fn what_would_be_done_is_what_the_ledger_rule_says() {
    let told = classify("HTTP/1.1 503\n\n", &["--format", "json"]).json();
    // 1 + T 2 + S 3, after 0.5 + 1 + 2 + 4 + 8 s.
    assert_eq!([&told["run"]["requests"], &told["run"]["wait_ms"]], [6, 15_500]);
    let unknown = classify("", &["--exception", "cheese", "--format", "json"]).json();
    // What nobody knows is exec's alone: X is its max_retries − 1, 2.
    assert_eq!([&unknown["run"]["requests"], &unknown["exec"]["requests"]], [1, 3]);
}

#[test]
fn lines_are_answered_in_order_and_a_bad_one_stops_no_other() {
    let lines = [
        r#"{"id": "a", "status": 503}"#,
        r#"{"id": "b", "status": "hunter2000"}"#,
        "",
        "no JSON with hunter2000",
        r#"{"id": "c"}"#,
        r#"[{"id": "d"}]"#,
        r#"{"id": 5, "phase": "response", "status": 401, "headers": null, "body": ""}"#,
    ];
    let finished = classify(&lines.join("\n"), &["--jsonl"]);
    assert_eq!(finished.code, Some(1));
    let expected = [
        json!({"id": "a", "reason": "server_error", "code": "llm.connection", "retryable": true, "retry_after_ms": null, "rule": "generic.status"}),
        json!({"id": 5, "reason": "auth", "code": "llm.response", "retryable": false, "retry_after_ms": null, "rule": "generic.status"}),
    ];
    assert_eq!(finished.events(), expected);
    let numbers: Vec<_> =
        finished.stderr.lines().map(|line| line.split(" is no failure: ").next().unwrap()).collect();
    assert_eq!(numbers, ["error: line 2", "error: line 4", "error: line 5", "error: line 6"]);
    assert!(!finished.stderr.contains("hunter2000"), "{}", finished.stderr);
}

#[test]
fn a_line_is_answered_before_the_next_one_is_asked() {
    let mut child =
        aplomb().args(["classify", "--jsonl"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut asks = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for id in 0..3 {
        writeln!(asks, "{}", json!({"id": id, "status": 500})).unwrap();
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], id);
    }
    drop(asks);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_line_that_is_far_too_long_is_passed_over() {
    let long = "x".repeat(17 * 1024 * 1024);
    let finished = classify(&format!("{long}\n{{\"id\": 1, \"status\": 500}}"), &["--jsonl"]);
    assert_eq!((finished.code, finished.events().len()), (Some(1), 1));
    assert_eq!(finished.stderr, "error: line 1 is no failure: it is longer than 16 MiB\n");
}

#[test]
fn no_credential_comes_out() {
    const KEYS: [&str; 3] = ["sk-proj-0123456789abcdefghij", "hunter2000", "AIzaSyA0123456789abcdefghij"];
    let [key, password, query] = KEYS;
    let message = format!("Incorrect API key provided: {key}, see https://host/v1?key={query}");
    let body =
        json!({"password": password, "error": {"message": message, "code": key, "type": key}}).to_string();
    let headers = json!({"x-request-id": key, "authorization": password});
    let line = json!({"id": key, "status": 401, "headers": headers, "body": body}).to_string();
    let no_json = format!("oops, \"password\": \"{password}\" and {key}");
    let page = json!({"id": key, "status": 500, "body": no_json, "exception": no_json}).to_string();
    for (input, arguments) in [
        (&line, &["--format", "text"][..]),
        (&line, &["--format", "json"]),
        (&line, &["--jsonl"]),
        (&page, &["--format", "json"]),
        (&page, &["--format", "text"]),
        (&no_json, &[]),
        (&no_json, &["--jsonl"]),
        (&no_json, &["--status", "500", "--body-file", "-"]),
        (&no_json, &["--status", "401", "--header", "authorization hunter2000"]),
    ] {
        let finished = classify(input, arguments);
        let said = finished.stdout + &finished.stderr;
        assert!(!said.is_empty() && KEYS.iter().all(|key| !said.contains(key)), "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_no_failure_is_refused_with_the_way_out() {
    for input in
        ["", "hello", "{}", r#"{"error": {"message": "x"}}"#, "[1]", r#"{"status": 429} {"status": 429}"#]
    {
        let finished = classify(input, &[]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""), "{input}");
        assert!(finished.stderr.contains("error[user.invalid_input]"), "{}", finished.stderr);
        assert!(finished.stderr.contains("hint: give a response (HTTP/1.1 429"), "{}", finished.stderr);
    }
    assert_eq!(classify("", &["nowhere.json"]).code, Some(1));
    assert_eq!(classify("", &["--status", "42"]).code, Some(1));
}
