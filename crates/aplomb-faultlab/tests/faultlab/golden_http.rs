//! Bare HTTP answers, byte for byte: successes that are none, and every way to say how long to wait.
//!
//! Sources: RFC 9110, 5.6.7 (dates) and 10.2.3 (`Retry-After`); OpenAI's SDKs for `retry-after-ms`.

use std::time::Duration;

use crate::golden::PLAIN;
use crate::lab::start;
use crate::wires::{ANTHROPIC, OPENAI, WIRES};
use aplomb_faultlab::script::{Answer, Engine, Request, Script};

fn http(reply: &str) -> String {
    format!(r#"{{ "steps": [ {{ "reply": {{ "http": {reply} }} }} ] }}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_may_be_an_error_a_page_or_nothing_streamed_or_not() {
    let bodies = [
        (r#"{ "error": { "message": "oh" } }"#, "application/json", r#"{"error":{"message":"oh"}}"#),
        ("{}", "application/json", "{}"),
        (r#""<html>""#, "text/plain; charset=utf-8", "<html>"),
    ];
    for wire in WIRES {
        for request in [wire.streamed, wire.plain] {
            for (body, kind, sent) in bodies {
                let reply = http(&format!(r#"{{ "status": 200, "body": {body} }}"#));
                let (mut client, _server) = wire.ask(&reply, request).await;
                let length = format!("content-length: {}", sent.len());
                client.expect(&(wire.head(kind, &length) + sent));
                client.expect_silence();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_answer_can_be_huge_or_a_flood_too() {
    for (fault, framing, body) in [
        ("huge_event", "content-length: 9", "{}       "),
        ("flood", "transfer-encoding: chunked", "2\r\n{}\r\n7\r\n       \r\n0\r\n\r\n"),
    ] {
        let script = format!(
            r#"{{ "steps": [ {{ "reply": {{ "http": {{ "status": 200, "body": {{}} }} }},
                 "fault": {{ "{fault}": {{ "after_events": 0, "bytes": 9 }} }} }} ] }}"#
        );
        let (mut client, _server) = OPENAI.ask(&script, OPENAI.streamed).await;
        client.expect(&(OPENAI.head("application/json", framing) + body));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_has_every_form_that_is_no_date() {
    for (retry_after, header) in [
        (r#"{ "seconds": 1 }"#, "retry-after: 1"),
        (r#"{ "seconds": 0 }"#, "retry-after: 0"),
        (r#"{ "seconds": 1.5 }"#, "retry-after: 1.5"),
        (r#"{ "seconds": -1 }"#, "retry-after: -1"),
        (r#"{ "milliseconds": 250 }"#, "retry-after-ms: 250"),
        (r#"{ "text": "soon" }"#, "retry-after: soon"),
    ] {
        let server = start(&http(&format!(r#"{{ "status": 429, "retry_after": {retry_after} }}"#))).await;
        let mut client = crate::lab::ask(&server, OPENAI.path, PLAIN);
        client.expect(&format!(
            "HTTP/1.1 429 \r\n{header}\r\nx-request-id: req_faultlab_1\r\ncontent-length: 0\r\n\r\n"
        ));
    }
}

/// The header at 1994-11-06 08:49:37 UTC, the moment of RFC 9110's examples (784111777 s after the epoch).
fn at_the_example(step: &str) -> String {
    let script = Script::from_json(&format!(r#"{{ "steps": [ {step} ] }}"#)).unwrap();
    let engine = Engine::new(script).unwrap();
    let request = Request::new("/v1/messages", ANTHROPIC.plain).at(Duration::from_secs(784_111_777));
    let Answer::Response(response) = engine.plan("k", &request).answer else { panic!("no response") };
    let (_, value) = response.headers.into_iter().find(|(name, _)| name == "retry-after").unwrap();
    value
}

#[test]
fn retry_after_may_be_a_date_in_each_form_of_http() {
    for (date, header) in [
        (r#"{ "in_seconds": 0 }"#, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (r#"{ "in_seconds": 60, "form": "imf_fixdate" }"#, "Sun, 06 Nov 1994 08:50:37 GMT"),
        (r#"{ "in_seconds": 0, "form": "rfc850" }"#, "Sunday, 06-Nov-94 08:49:37 GMT"),
        (r#"{ "in_seconds": 0, "form": "asctime" }"#, "Sun Nov  6 08:49:37 1994"),
        (r#"{ "in_seconds": -86400 }"#, "Sat, 05 Nov 1994 08:49:37 GMT"),
    ] {
        let reply = format!(r#"{{ "http": {{ "status": 503, "retry_after": {{ "date": {date} }} }} }}"#);
        assert_eq!(at_the_example(&format!(r#"{{ "reply": {reply} }}"#)), header);
    }
}

#[test]
fn a_date_counts_from_the_beginning_of_the_answer() {
    let reply =
        r#"{ "http": { "status": 503, "body": "x", "retry_after": { "date": { "in_seconds": 1 } } } }"#;
    let late = format!(
        r#"{{ "reply": {reply}, "delay_ms": 2000, "fault": {{ "slow_headers": {{ "delay_ms": 3000 }} }} }}"#
    );
    assert_eq!(at_the_example(&late), "Sun, 06 Nov 1994 08:49:43 GMT"); // 37 + 2 + 3 + 1
}

/// Over TCP the server's clock is the moment. A date of the past is certain without knowing it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_brings_the_time() {
    let reply = r#"{ "status": 503, "retry_after": { "date": { "in_seconds": 60 } } }"#;
    let (mut client, _server) = OPENAI.ask(&http(reply), OPENAI.plain).await;
    client.read_through("retry-after: ");
    let date = client.read_through(" GMT");
    let year: u32 = date.split(' ').nth(3).unwrap().parse().unwrap();
    assert!(year >= 2025, "{date}");
}
