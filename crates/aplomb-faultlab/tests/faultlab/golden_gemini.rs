//! What a client of Google's Gemini reads, byte for byte.
//!
//! The expected bytes are written from <https://ai.google.dev/api/generate-content>
//! ("GenerateContentResponse") and <https://ai.google.dev/gemini-api/docs/thought-signatures>, and for HTTP from
//! the sources of the module `golden`.

use crate::lab::{self, LAST_CHUNK, chunks, start};
use crate::wires::GEMINI;

pub(crate) const PLAIN: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#;
/// It is the path that asks for a stream: the body has to differ only for these tests.
pub(crate) const STREAMED: &str =
    r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{}}"#;

/// A response with these parts, what follows the content, and this usage.
macro_rules! response {
    ($parts:expr, $reason:expr, $usage:expr) => {
        concat!(
            r#"{"candidates":[{"content":{"parts":["#,
            $parts,
            r#"],"role":"model"},"#,
            $reason,
            r#""index":0}],"usageMetadata":{"#,
            $usage,
            r#"},"modelVersion":"m","responseId":"faultlab_1"}"#
        )
    };
}

/// An event with this part, before the end.
macro_rules! piece {
    ($part:expr, $tokens:expr) => {
        concat!(
            "data: ",
            response!(
                $part,
                "",
                concat!(r#""promptTokenCount":"#, $tokens, r#","totalTokenCount":"#, $tokens)
            ),
            "\n\n"
        )
    };
}

// The events of "Hello you". "hi" is one token at four characters each, "Hello you" three.
pub(crate) const HELLO: &str = piece!(r#"{"text":"Hello"}"#, 1);
pub(crate) const YOU: &str = piece!(r#"{"text":" you"}"#, 1);
pub(crate) const STOP: &str = concat!(
    "data: ",
    response!(
        r#"{"text":""}"#,
        r#""finishReason":"STOP","#,
        r#""promptTokenCount":1,"candidatesTokenCount":3,"totalTokenCount":4"#
    ),
    "\n\n"
);
pub(crate) const DOCUMENT: &str = response!(
    r#"{"text":"Hello you"}"#,
    r#""finishReason":"STOP","#,
    r#""promptTokenCount":1,"candidatesTokenCount":3,"totalTokenCount":4"#
);

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_an_answer_is_pieces_or_a_document() {
    let (mut client, _server) = GEMINI.hello_with("null", STREAMED).await;
    client.expect(&GEMINI.whole_stream());
    client.expect_silence(); // kept alive
    let (mut client, _server) = GEMINI.hello_with("null", PLAIN).await;
    client.expect(&GEMINI.whole_document());
}

/// Every kind of part. "Hm" is one token of the five.
const PARTS: &str = r#"{ "thinking": "Hm", "text": "So", "tool_calls": [
     { "name": "calc", "arguments": { "a": "{{input}}" } },
     { "id": "x", "name": "f", "arguments": "{" } ],
     "usage": { "prompt_tokens": 7, "completion_tokens": 5, "cached_tokens": 6 } }"#;

const THOUGHT: &str = r#"{"text":"Hm","thought":true}"#;
const CALC: &str = r#"{"functionCall":{"name":"calc","args":{"a":"hi"}},"thoughtSignature":"ZmF1bHRsYWI="}"#;
/// No JSON, so it has to be a string; and not the first call, so that it is not signed.
const F: &str = r#"{"functionCall":{"name":"f","args":"{"}}"#;
const USAGE: &str = concat!(
    r#""promptTokenCount":7,"candidatesTokenCount":4,"totalTokenCount":12,"cachedContentTokenCount":6,"#,
    r#""thoughtsTokenCount":1"#
);

fn data(parts: &str, reason: &str, usage: &str) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(r#""finishReason":"{reason}","#) };
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},{reason}"index":0}}],"usageMetadata":{{{usage}}},"modelVersion":"m","responseId":"faultlab_1"}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_texts_and_calls_are_parts_and_the_first_call_is_signed() {
    let script = lab::script(PARTS, "null");
    let (mut client, _server) = GEMINI.ask(&script, PLAIN).await;
    let document = data(&[THOUGHT, r#"{"text":"So"}"#, CALC, F].join(","), "STOP", USAGE);
    client.expect(&(GEMINI.plain_head(document.len()) + &document));

    let event = |parts: &str, reason, usage| format!("data: {}\n\n", data(parts, reason, usage));
    let prompt = r#""promptTokenCount":7,"totalTokenCount":7,"cachedContentTokenCount":6"#;
    let pieces = [THOUGHT, r#"{"text":"So"}"#, CALC, F].map(|part| event(part, "", prompt));
    let end = event(r#"{"text":""}"#, "STOP", USAGE);
    let events: Vec<&str> = pieces.iter().chain([&end]).map(String::as_str).collect();
    let (mut client, _server) = GEMINI.ask(&script, STREAMED).await;
    client.expect(&(GEMINI.stream_head() + &chunks(&events) + LAST_CHUNK));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thought_without_a_call_signs_the_last_part() {
    let signed = r#","thoughtSignature":"ZmF1bHRsYWI="}],"role":"model"},"finishReason":"STOP""#;
    for message in [r#"{ "thinking": "Hm", "text": "So" }"#, r#"{ "redacted_thinking": true, "text": "So" }"#]
    {
        let script = lab::script(message, "null");
        let (mut client, _server) = GEMINI.ask(&script, PLAIN).await;
        client.read_through(&format!(r#"{{"text":"So"{signed}"#));
        let (mut client, _server) = GEMINI.ask(&script, STREAMED).await;
        let stream = client.read_through(&format!(r#"{{"text":""{signed}"#));
        assert_eq!(stream.matches("thoughtSignature").count(), 1, "{stream}");
    }
}

/// "Gemini 3 returns thought signatures for all model responses … with a function call."
#[tokio::test(flavor = "multi_thread")]
async fn from_the_third_generation_on_calls_are_signed_without_a_thought() {
    let script = lab::script(r#"{ "tool_calls": [ { "name": "f" } ] }"#, "null");
    for (model, signed) in [("gemini-3-pro", true), ("gemini-2.5-pro", false)] {
        let server = start(&script).await;
        let mut client = lab::ask(&server, &format!("/v1beta/models/{model}:generateContent"), PLAIN);
        let answer = client.read_through(r#""responseId":"faultlab_1"}"#);
        assert_eq!(answer.contains("thoughtSignature"), signed, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finish_reasons_are_said_in_googles_words() {
    for (finish, reason) in [
        ("stop", "STOP"),
        ("tool_calls", "STOP"),
        ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"),
    ] {
        let message = format!(r#"{{ "text": "Hello you", "finish_reason": "{finish}" }}"#);
        let (mut client, _server) = GEMINI.ask(&lab::script(&message, "null"), PLAIN).await;
        let document = DOCUMENT.replace("STOP", reason);
        client.expect(&(GEMINI.plain_head(document.len()) + &document));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_terminal_there_is_no_finish_reason() {
    let fault = r#"{ "end_without_terminal": { "done": true } }"#;
    let (mut client, _server) = GEMINI.hello_with(fault, STREAMED).await;
    client.expect(&(GEMINI.stream_head() + &chunks(&[HELLO, YOU]) + LAST_CHUNK));
    let document = DOCUMENT.replace(r#""finishReason":"STOP","#, "");
    let (mut client, _server) = GEMINI.hello_with(fault, PLAIN).await;
    client.expect(&(GEMINI.plain_head(document.len()) + &document));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_an_event_without_a_type() {
    let body = r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#;
    let fault = format!(r#"{{ "error_event": {{ "after_events": 1, "body": {body} }} }}"#);
    let (mut client, _server) = GEMINI.hello_with(&fault, STREAMED).await;
    let event = format!("data: {body}\n\n");
    client.expect(&(GEMINI.stream_head() + &chunks(&[HELLO, &event]) + LAST_CHUNK));
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_comments_here() {
    let (mut client, _server) =
        GEMINI.hello_with(r#"{ "pings": { "after_events": 1, "every_ms": 1 } }"#, STREAMED).await;
    client.expect(&(GEMINI.stream_head() + &chunks(&[HELLO]) + &chunks(&[": ping\n\n"; 20])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_has_googles_shape() {
    let body = concat!(
        r#"{"error":{"code":400,"message":"* GenerateContentRequest.contents: contents is not specified\n","#,
        r#""status":"INVALID_ARGUMENT"}}"#
    );
    let (mut client, _server) = GEMINI.hello_with("null", "{}").await;
    client.expect(&(GEMINI.plain_head(body.len()).replace("200", "400") + body));
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_arguments_are_a_string_and_the_answer_ends_in_order() {
    let script = lab::script(
        r#"{ "tool_calls": [ { "name": "g", "arguments": { "b": "a longer text" } } ] }"#,
        r#"{ "cut_arguments": {} }"#,
    );
    for request in [STREAMED, PLAIN] {
        let (mut client, _server) = GEMINI.ask(&script, request).await;
        // Ten of 21 characters.
        client.read_through(r#"{"functionCall":{"name":"g","args":"{\"b\":\"a lo"}}"#);
        client.read_through(r#""finishReason":"MAX_TOKENS""#);
    }
}
