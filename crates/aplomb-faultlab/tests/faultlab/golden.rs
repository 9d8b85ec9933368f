//! What a client reads, byte for byte, for every fault, streamed and plain.
//!
//! The expected bytes are written from the specifications: RFC 9112 for heads, chunks (7.1: the size in
//! hexadecimal, CRLF, the data, CRLF; the last chunk has size 0) and incomplete bodies (8), WHATWG HTML 9.2
//! for events, and OpenAI's API reference for their content.
use crate::lab::{self, LAST_CHUNK, chunks, hello_script, start};
use crate::raw::{Client, Ending};
use aplomb_faultlab::server::FaultServer;

pub(crate) const STREAMED: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
pub(crate) const PLAIN: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

const STREAM_HEAD: &str = "HTTP/1.1 200 \r\n\
    content-type: text/event-stream\r\n\
    x-request-id: req_faultlab_1\r\n\
    transfer-encoding: chunked\r\n\r\n";

/// An event with these fields after those that all have in common.
macro_rules! event {
    ($($fields:expr),*) => {
        concat!(
            r#"data: {"id":"chatcmpl-faultlab-1","object":"chat.completion.chunk","#,
            r#""created":1700000000,"model":"m","#,
            $($fields,)*
            "}\n\n"
        )
    };
}

/// An event with this delta and finish reason.
macro_rules! delta {
    ($delta:expr, $reason:expr) => {
        event!(r#""choices":[{"index":0,"delta":"#, $delta, r#","finish_reason":"#, $reason, "}]")
    };
}

/// The delta that begins a call.
macro_rules! call {
    ($index:expr, $id:expr, $name:expr) => {
        concat!(
            r#"{"tool_calls":[{"index":"#,
            $index,
            r#","id":""#,
            $id,
            r#"","type":"function","#,
            r#""function":{"name":""#,
            $name,
            r#"","arguments":""}}]}"#
        )
    };
}

/// The delta that continues a call's arguments (escaped for JSON).
macro_rules! arguments {
    ($index:expr, $fragment:expr) => {
        concat!(r#"{"tool_calls":[{"index":"#, $index, r#","function":{"arguments":""#, $fragment, r#""}}]}"#)
    };
}

// The events of "Hello you": a role, two words, a finish reason, the end.
pub(crate) const ROLE: &str = delta!(r#"{"role":"assistant","content":""}"#, "null");
pub(crate) const HELLO: &str = delta!(r#"{"content":"Hello"}"#, "null");
pub(crate) const YOU: &str = delta!(r#"{"content":" you"}"#, "null");
pub(crate) const STOP: &str = delta!("{}", r#""stop""#);
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// "hi" are 2 characters and "Hello you" 9: 1 and 3 tokens at four characters each, rounded up.
pub(crate) const DOCUMENT: &str = concat!(
    r#"{"id":"chatcmpl-faultlab-1","object":"chat.completion","created":1700000000,"model":"m","#,
    r#""choices":[{"index":0,"message":{"role":"assistant","content":"Hello you","refusal":null},"#,
    r#""logprobs":null,"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}}"#
);

async fn hello_with(fault: &str) -> FaultServer {
    start(&hello_script(fault)).await
}

fn ask(server: &FaultServer, body: &str) -> Client {
    lab::ask(server, "/v1/chat/completions", body)
}

fn streamed(events: &[&str]) -> String {
    STREAM_HEAD.to_owned() + &chunks(events)
}

fn plain_head(length: usize) -> String {
    format!(
        "HTTP/1.1 200 \r\ncontent-type: application/json\r\nx-request-id: req_faultlab_1\r\n\
         content-length: {length}\r\n\r\n"
    )
}

/// Half of the document's bytes, rounded down.
fn plain_half() -> String {
    plain_head(DOCUMENT.len()) + &DOCUMENT[..DOCUMENT.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_a_stream_has_a_role_words_a_reason_and_done() {
    let server = hello_with("null").await;
    let mut client = ask(&server, STREAMED);
    client.expect(&(streamed(&[ROLE, HELLO, YOU, STOP, DONE]) + LAST_CHUNK));
    client.expect_silence(); // kept alive
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_a_plain_answer_is_one_document() {
    let server = hello_with("null").await;
    let mut client = ask(&server, PLAIN);
    client.expect(&(plain_head(DOCUMENT.len()) + DOCUMENT));
    client.expect_silence();
}

/// One chunk spelt out to the last byte, so that the helper above cannot be wrong in the same way as the
/// server.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_is_its_size_in_hexadecimal_and_its_bytes() {
    let server =
        hello_with(r#"{ "error_event": { "after_events": 0, "body": {"error":{"message":"oh"}} } }"#).await;
    let mut client = ask(&server, STREAMED);
    // `data: ` are 6 bytes, the JSON 26, the line breaks 2: 34 in all, 22 in hexadecimal.
    client.expect(&format!("{STREAM_HEAD}22\r\ndata: {{\"error\":{{\"message\":\"oh\"}}}}\n\n\r\n0\r\n\r\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let server = start(
        r#"{ "steps": [ { "reply": { "message": { "text": "A", "finish_reason": "length",
             "usage": { "prompt_tokens": 7, "completion_tokens": 5 } } } } ] }"#,
    )
    .await;
    let request = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},
        "messages":[{"role":"user","content":"hi"}]}"#;
    let events = [
        event!(
            r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"#,
            r#""usage":null"#
        ),
        event!(r#""choices":[{"index":0,"delta":{"content":"A"},"finish_reason":null}],"usage":null"#),
        event!(r#""choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null"#),
        event!(r#""choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}"#),
        DONE,
    ];
    ask(&server, request).expect(&(streamed(&events) + LAST_CHUNK));
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_calls_come_in_fragments_after_thinking_and_before_the_reason() {
    let server = start(
        r#"{ "steps": [ { "reply": { "message": { "thinking": "Hm", "tool_calls": [
             { "name": "calc", "arguments": { "a": "{{input}}" } },
             { "id": "x", "name": "f", "arguments": "{" } ] } } } ] }"#,
    )
    .await;
    let events = [
        delta!(r#"{"role":"assistant","content":null}"#, "null"),
        delta!(r#"{"reasoning_content":"Hm"}"#, "null"),
        delta!(call!(0, "call_1", "calc"), "null"),
        // The arguments are {"a":"hi"}: ten characters, eight and two.
        delta!(arguments!(0, r#"{\"a\":\"hi"#), "null"),
        delta!(arguments!(0, r#"\"}"#), "null"),
        delta!(call!(1, "x", "f"), "null"),
        delta!(arguments!(1, "{"), "null"),
        delta!("{}", r#""tool_calls""#),
        DONE,
    ];
    ask(&server, STREAMED).expect(&(streamed(&events) + LAST_CHUNK));
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_before_headers_is_a_reset_without_a_byte() {
    for request in [STREAMED, PLAIN] {
        let server = hello_with(r#""reset_before_headers""#).await;
        assert_eq!(ask(&server, request).read_to_end(), (String::new(), Ending::Reset));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn close_before_headers_is_an_end_without_a_byte() {
    for request in [STREAMED, PLAIN] {
        let server = hello_with(r#""close_before_headers""#).await;
        assert_eq!(ask(&server, request).read_to_end(), (String::new(), Ending::Fin));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_an_open_connection_without_a_byte() {
    for request in [STREAMED, PLAIN] {
        let server = hello_with(r#""silence""#).await;
        ask(&server, request).expect_silence();
        assert_eq!(server.requests()[0].step, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stream_ends_after_its_events_and_without_a_last_chunk() {
    for (by, ending) in [("fin", Ending::Fin), ("reset", Ending::Reset)] {
        let server = hello_with(&format!(r#"{{ "cut": {{ "after_events": 2, "by": "{by}" }} }}"#)).await;
        assert_eq!(ask(&server, STREAMED).read_to_end(), (streamed(&[ROLE, HELLO]), ending));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_before_its_first_event_is_a_head_alone() {
    let server = hello_with(r#"{ "cut": { "after_events": 0, "by": "fin" } }"#).await;
    assert_eq!(ask(&server, STREAMED).read_to_end(), (STREAM_HEAD.to_owned(), Ending::Fin));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_past_its_content_never_gives_a_reason() {
    let server = hello_with(r#"{ "cut": { "after_events": 99, "by": "fin" } }"#).await;
    assert_eq!(ask(&server, STREAMED).read_to_end(), (streamed(&[ROLE, HELLO, YOU]), Ending::Fin));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_plain_answer_has_half_of_the_bytes_it_announced() {
    for (by, ending) in [("fin", Ending::Fin), ("reset", Ending::Reset)] {
        let server = hello_with(&format!(r#"{{ "cut": {{ "after_events": 2, "by": "{by}" }} }}"#)).await;
        assert_eq!(ask(&server, PLAIN).read_to_end(), (plain_half(), ending));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_terminal_ends_cleanly_with_or_without_done() {
    for (done, events) in [("true", &[ROLE, HELLO, YOU, DONE][..]), ("false", &[ROLE, HELLO, YOU])] {
        let server = hello_with(&format!(r#"{{ "end_without_terminal": {{ "done": {done} }} }}"#)).await;
        let mut client = ask(&server, STREAMED);
        client.expect(&(streamed(events) + LAST_CHUNK));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_answer_without_terminal_has_no_finish_reason() {
    let server = hello_with(r#"{ "end_without_terminal": { "done": true } }"#).await;
    let document = DOCUMENT.replace(r#""finish_reason":"stop""#, r#""finish_reason":null"#);
    ask(&server, PLAIN).expect(&(plain_head(document.len()) + &document));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_event_follows_the_events_and_ends_the_stream_cleanly() {
    let cases = [
        (r#"{"error":{"message":"overloaded"}}"#, "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"),
        (r#""two\nlines""#, "data: two\ndata: lines\n\n"),
        (r#""""#, "event: error\ndata:\n\n"),
    ];
    for (body, event) in cases {
        let server =
            hello_with(&format!(r#"{{ "error_event": {{ "after_events": 2, "body": {body} }} }}"#)).await;
        let mut client = ask(&server, STREAMED);
        client.expect(&(streamed(&[ROLE, HELLO, event]) + LAST_CHUNK));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_error_event_is_a_success_with_the_error_as_its_body() {
    for (body, sent) in [(r#"{"error":1}"#, r#"{"error":1}"#), (r#""""#, "")] {
        let server =
            hello_with(&format!(r#"{{ "error_event": {{ "after_events": 2, "body": {body} }} }}"#)).await;
        let mut client = ask(&server, PLAIN);
        client.expect(&(plain_head(sent.len()) + sent));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_follow_the_events_of_a_stream_for_ever() {
    let server = hello_with(r#"{ "pings": { "after_events": 1, "every_ms": 1 } }"#).await;
    let ping = ": ping\n\n";
    let mut expected = streamed(&[ROLE]);
    expected.push_str(&chunks(&[ping; 20]));
    ask(&server, STREAMED).expect(&expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_pings_are_spaces_before_a_document_that_never_comes() {
    let server = hello_with(r#"{ "pings": { "after_events": 1, "every_ms": 1 } }"#).await;
    let head = "HTTP/1.1 200 \r\ncontent-type: application/json\r\nx-request-id: req_faultlab_1\r\n\
        transfer-encoding: chunked\r\n\r\n";
    ask(&server, PLAIN).expect(&(head.to_owned() + &"1\r\n \r\n".repeat(20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_answer_stops_and_stays_open() {
    for (request, expected) in [(STREAMED, streamed(&[ROLE, HELLO])), (PLAIN, plain_half())] {
        let server = hello_with(r#"{ "stall": { "after_events": 2 } }"#).await;
        let mut client = ask(&server, request);
        client.expect(&expected);
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_http_answer_is_sent_as_it_stands_even_to_a_streaming_request() {
    let server = start(
        r#"{ "at_end": "restart", "steps": [
            { "reply": { "http": { "status": 429, "headers": { "Retry-After": "1" },
                                   "body": { "error": 1 } } } },
            { "reply": { "http": { "status": 502, "headers": { "content-type": "text/html" },
                                   "body": "<h1>" } } },
            { "reply": { "http": { "status": 503 } } },
            { "reply": { "http": { "status": 204, "headers": { "x-request-id": "mine" } } } } ] }"#,
    )
    .await;
    let mut client = ask(&server, STREAMED);
    client.expect(
        "HTTP/1.1 429 \r\nretry-after: 1\r\ncontent-type: application/json\r\n\
         x-request-id: req_faultlab_1\r\ncontent-length: 11\r\n\r\n{\"error\":1}",
    );
    client.post(STREAMED);
    client.expect(
        "HTTP/1.1 502 \r\ncontent-type: text/html\r\nx-request-id: req_faultlab_2\r\n\
         content-length: 4\r\n\r\n<h1>",
    );
    client.post(STREAMED);
    client.expect("HTTP/1.1 503 \r\nx-request-id: req_faultlab_3\r\ncontent-length: 0\r\n\r\n");
    client.post(STREAMED);
    client.expect("HTTP/1.1 204 \r\nx-request-id: mine\r\n\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_http_answer_can_be_cut_too() {
    let server = start(
        r#"{ "steps": [ { "reply": { "http": { "status": 500, "body": "abcde" } },
             "fault": { "cut": { "after_events": 0, "by": "reset" } } } ] }"#,
    )
    .await;
    let expected = "HTTP/1.1 500 \r\ncontent-type: text/plain; charset=utf-8\r\n\
        x-request-id: req_faultlab_1\r\ncontent-length: 5\r\n\r\nab";
    assert_eq!(ask(&server, STREAMED).read_to_end(), (expected.to_owned(), Ending::Reset));
}
