//! What a client of Anthropic's Messages reads, byte for byte, for every fault, streamed and plain.
//!
//! The expected bytes are written from <https://platform.claude.com/docs/en/build-with-claude/streaming>
//! ("Full HTTP stream response") and <https://platform.claude.com/docs/en/api/errors>, and for HTTP from the
//! sources of the module `golden`.

use crate::lab::{self, LAST_CHUNK, chunks, hello_script, start};
use crate::raw::{Client, Ending};
use aplomb_faultlab::server::FaultServer;

pub(crate) const STREAMED: &str =
    r#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
pub(crate) const PLAIN: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;

const STREAM_HEAD: &str = "HTTP/1.1 200 \r\n\
    content-type: text/event-stream\r\n\
    request-id: req_faultlab_1\r\n\
    transfer-encoding: chunked\r\n\r\n";

/// An event of this type with these fields after the type.
macro_rules! event {
    ($kind:expr, $($fields:expr),*) => {
        concat!("event: ", $kind, "\ndata: {\"type\":\"", $kind, "\"", $($fields,)* "}\n\n")
    };
}

macro_rules! block_start {
    ($index:expr, $block:expr) => {
        event!("content_block_start", r#","index":"#, $index, r#","content_block":"#, $block)
    };
}

macro_rules! block_delta {
    ($index:expr, $delta:expr) => {
        event!("content_block_delta", r#","index":"#, $index, r#","delta":"#, $delta)
    };
}

macro_rules! block_stop {
    ($index:expr) => {
        event!("content_block_stop", r#","index":"#, $index)
    };
}

/// The delta that continues a call's arguments (escaped for JSON).
macro_rules! arguments {
    ($index:expr, $fragment:expr) => {
        block_delta!($index, concat!(r#"{"type":"input_json_delta","partial_json":""#, $fragment, r#""}"#))
    };
}

macro_rules! message_delta {
    ($reason:expr, $tokens:expr) => {
        event!(
            "message_delta",
            r#","delta":{"stop_reason":""#,
            $reason,
            r#"","stop_sequence":null},"usage":{"output_tokens":"#,
            $tokens,
            "}"
        )
    };
}

// The events of "Hello you". "hi" is one token at four characters each, "Hello you" three.
pub(crate) const START: &str = event!(
    "message_start",
    r#","message":{"id":"msg_faultlab_1","type":"message","role":"assistant","model":"m","content":[],"#,
    r#""stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#
);
pub(crate) const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
pub(crate) const TEXT: &str = block_start!(0, r#"{"type":"text","text":""}"#);
pub(crate) const HELLO: &str = block_delta!(0, r#"{"type":"text_delta","text":"Hello"}"#);
pub(crate) const YOU: &str = block_delta!(0, r#"{"type":"text_delta","text":" you"}"#);
pub(crate) const TEXT_END: &str = block_stop!(0);
pub(crate) const END_TURN: &str = message_delta!("end_turn", 3);
pub(crate) const STOP: &str = event!("message_stop",);

pub(crate) const DOCUMENT: &str = concat!(
    r#"{"id":"msg_faultlab_1","type":"message","role":"assistant","model":"m","#,
    r#""content":[{"type":"text","text":"Hello you"}],"stop_reason":"end_turn","stop_sequence":null,"#,
    r#""usage":{"input_tokens":1,"output_tokens":3}}"#
);

async fn hello_with(fault: &str) -> FaultServer {
    start(&hello_script(fault)).await
}

fn ask(server: &FaultServer, body: &str) -> Client {
    lab::ask(server, "/v1/messages", body)
}

fn streamed(events: &[&str]) -> String {
    STREAM_HEAD.to_owned() + &chunks(events)
}

fn head(status: u16, length: usize) -> String {
    format!(
        "HTTP/1.1 {status} \r\ncontent-type: application/json\r\nrequest-id: req_faultlab_1\r\n\
         content-length: {length}\r\n\r\n"
    )
}

fn plain_half() -> String {
    head(200, DOCUMENT.len()) + &DOCUMENT[..DOCUMENT.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_a_stream_has_a_start_a_ping_blocks_a_reason_and_a_stop() {
    let server = hello_with("null").await;
    let mut client = ask(&server, STREAMED);
    client.expect(&(streamed(&[START, PING, TEXT, HELLO, YOU, TEXT_END, END_TURN, STOP]) + LAST_CHUNK));
    client.expect_silence(); // kept alive
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_a_plain_answer_is_one_document() {
    let server = hello_with("null").await;
    let mut client = ask(&server, PLAIN);
    client.expect(&(head(200, DOCUMENT.len()) + DOCUMENT));
    client.expect_silence();
}

const BLOCKS: &str = r#"{ "steps": [ { "reply": { "message": { "thinking": "Hm", "text": "So", "tool_calls": [
     { "name": "calc", "arguments": { "a": "{{input}}" } },
     { "id": "x", "name": "f", "arguments": "{" } ],
     "usage": { "prompt_tokens": 7, "completion_tokens": 5 } } } } ] }"#;

#[tokio::test(flavor = "multi_thread")]
async fn thinking_text_and_calls_are_blocks_in_this_order() {
    let server = start(BLOCKS).await;
    let opening = START.replace(r#""input_tokens":1"#, r#""input_tokens":7"#);
    let events = [
        &opening,
        PING,
        block_start!(0, r#"{"type":"thinking","thinking":"","signature":""}"#),
        block_delta!(0, r#"{"type":"thinking_delta","thinking":"Hm"}"#),
        block_delta!(0, r#"{"type":"signature_delta","signature":"ZmF1bHRsYWI="}"#),
        block_stop!(0),
        block_start!(1, r#"{"type":"text","text":""}"#),
        block_delta!(1, r#"{"type":"text_delta","text":"So"}"#),
        block_stop!(1),
        block_start!(2, r#"{"type":"tool_use","id":"toolu_1","name":"calc","input":{}}"#),
        arguments!(2, ""),
        // The arguments are {"a":"hi"}: ten characters, eight and two.
        arguments!(2, r#"{\"a\":\"hi"#),
        arguments!(2, r#"\"}"#),
        block_stop!(2),
        block_start!(3, r#"{"type":"tool_use","id":"x","name":"f","input":{}}"#),
        arguments!(3, ""),
        arguments!(3, "{"),
        block_stop!(3),
        message_delta!("tool_use", 5),
        STOP,
    ];
    ask(&server, STREAMED).expect(&(streamed(&events) + LAST_CHUNK));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_answer_has_the_same_blocks() {
    let server = start(BLOCKS).await;
    let document = concat!(
        r#"{"id":"msg_faultlab_1","type":"message","role":"assistant","model":"m","content":["#,
        r#"{"type":"thinking","thinking":"Hm","signature":"ZmF1bHRsYWI="},{"type":"text","text":"So"},"#,
        r#"{"type":"tool_use","id":"toolu_1","name":"calc","input":{"a":"hi"}},"#,
        // No JSON, so it has to be a string.
        r#"{"type":"tool_use","id":"x","name":"f","input":"{"}],"#,
        r#""stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":5}}"#
    );
    ask(&server, PLAIN).expect(&(head(200, document.len()) + document));
}

#[tokio::test(flavor = "multi_thread")]
async fn finish_reasons_are_said_in_anthropics_words() {
    for (finish, stop) in
        [("stop", "end_turn"), ("tool_calls", "tool_use"), ("length", "max_tokens"), ("refusal", "refusal")]
    {
        let message = format!(r#"{{ "text": "Hello you", "finish_reason": "{finish}" }}"#);
        let server = start(&lab::script(&message, "null")).await;
        let document = DOCUMENT.replace("end_turn", stop);
        ask(&server, PLAIN).expect(&(head(200, document.len()) + &document));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_has_anthropics_shape() {
    let server = hello_with("null").await;
    let body = concat!(
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Field required"},"#,
        r#""request_id":"req_faultlab_1"}"#
    );
    ask(&server, r#"{"messages":[]}"#).expect(&(head(400, body.len()) + body));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_script_has_anthropics_shape() {
    let server = hello_with("null").await;
    let mut client = ask(&server, PLAIN);
    client.expect(&(head(200, DOCUMENT.len()) + DOCUMENT));
    client.post_to("/v1/messages", PLAIN);
    client.expect("HTTP/1.1 400 \r\ncontent-type: application/json\r\nrequest-id: req_faultlab_2\r\n");
    client.read_through(
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"The script has 1 steps"#,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_before_headers() {
    for request in [STREAMED, PLAIN] {
        let server = hello_with(r#""reset_before_headers""#).await;
        assert_eq!(ask(&server, request).read_to_end(), (String::new(), Ending::Reset));
        let server = hello_with(r#""close_before_headers""#).await;
        assert_eq!(ask(&server, request).read_to_end(), (String::new(), Ending::Fin));
        let server = hello_with(r#""silence""#).await;
        ask(&server, request).expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_answer_ends_after_its_events_or_half_its_bytes() {
    for (by, ending) in [("fin", Ending::Fin), ("reset", Ending::Reset)] {
        for (after, events) in
            [(0, &[][..]), (4, &[START, PING, TEXT, HELLO]), (99, &[START, PING, TEXT, HELLO, YOU, TEXT_END])]
        {
            let server =
                hello_with(&format!(r#"{{ "cut": {{ "after_events": {after}, "by": "{by}" }} }}"#)).await;
            assert_eq!(ask(&server, STREAMED).read_to_end(), (streamed(events), ending));
        }
        let server = hello_with(&format!(r#"{{ "cut": {{ "after_events": 0, "by": "{by}" }} }}"#)).await;
        assert_eq!(ask(&server, PLAIN).read_to_end(), (plain_half(), ending));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_terminal_there_is_no_stop_reason_whatever_done_says() {
    for done in ["true", "false"] {
        let fault = format!(r#"{{ "end_without_terminal": {{ "done": {done} }} }}"#);
        let server = hello_with(&fault).await;
        let mut client = ask(&server, STREAMED);
        client.expect(&(streamed(&[START, PING, TEXT, HELLO, YOU, TEXT_END]) + LAST_CHUNK));
        client.expect_silence();
        let document = DOCUMENT.replace(r#""end_turn""#, "null");
        let server = hello_with(&fault).await;
        ask(&server, PLAIN).expect(&(head(200, document.len()) + &document));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_an_event_of_type_error() {
    let cases = [
        (
            r#"{"error":{"type":"overloaded_error"},"type":"error"}"#,
            "event: error\ndata: {\"error\":{\"type\":\"overloaded_error\"},\"type\":\"error\"}\n\n",
        ),
        (r#""two\nlines""#, "event: error\ndata: two\ndata: lines\n\n"),
        (r#""""#, "event: error\ndata:\n\n"),
    ];
    for (body, event) in cases {
        let server =
            hello_with(&format!(r#"{{ "error_event": {{ "after_events": 3, "body": {body} }} }}"#)).await;
        let mut client = ask(&server, STREAMED);
        client.expect(&(streamed(&[START, PING, TEXT, event]) + LAST_CHUNK));
        client.expect_silence();
    }
    let server = hello_with(r#"{ "error_event": { "after_events": 3, "body": {"error":1} } }"#).await;
    ask(&server, PLAIN).expect(&(head(200, 11) + r#"{"error":1}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_events_here() {
    let server = hello_with(r#"{ "pings": { "after_events": 1, "every_ms": 1 } }"#).await;
    ask(&server, STREAMED).expect(&(streamed(&[START]) + &chunks(&[PING; 20])));
    let server = hello_with(r#"{ "pings_after_end": { "every_ms": 1 } }"#).await;
    let whole = streamed(&[START, PING, TEXT, HELLO, YOU, TEXT_END, END_TURN, STOP]);
    ask(&server, STREAMED).expect(&(whole + &chunks(&[PING; 20])));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_pings_are_spaces() {
    let head = "HTTP/1.1 200 \r\ncontent-type: application/json\r\nrequest-id: req_faultlab_1\r\n\
        transfer-encoding: chunked\r\n\r\n";
    let spaces = "1\r\n \r\n".repeat(20);
    let server = hello_with(r#"{ "pings": { "after_events": 1, "every_ms": 1 } }"#).await;
    ask(&server, PLAIN).expect(&(head.to_owned() + &spaces));
    let server = hello_with(r#"{ "pings_after_end": { "every_ms": 1 } }"#).await;
    ask(&server, PLAIN).expect(&(head.to_owned() + &chunks(&[DOCUMENT]) + &spaces));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_answer_stops_and_stays_open() {
    for (request, expected) in [(STREAMED, streamed(&[START, PING])), (PLAIN, plain_half())] {
        let server = hello_with(r#"{ "stall": { "after_events": 2 } }"#).await;
        let mut client = ask(&server, request);
        client.expect(&expected);
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_http_answer_has_anthropics_request_id() {
    let server = start(
        r#"{ "steps": [ { "reply": { "http": { "status": 529, "headers": { "Retry-After": "1" },
             "body": { "type": "error" } } } } ] }"#,
    )
    .await;
    ask(&server, STREAMED).expect(
        "HTTP/1.1 529 \r\nretry-after: 1\r\ncontent-type: application/json\r\n\
         request-id: req_faultlab_1\r\ncontent-length: 16\r\n\r\n{\"type\":\"error\"}",
    );
}
