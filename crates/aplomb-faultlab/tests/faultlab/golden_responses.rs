//! What a client of OpenAI's Responses reads, byte for byte.
//!
//! The expected bytes are written from the API reference's page "Streaming events"
//! (<https://developers.openai.com/api/reference/resources/responses/streaming-events>) and the types of OpenAI's
//! SDKs, and for HTTP from the sources of the module `golden`.

use crate::lab::{self, LAST_CHUNK, chunks};
use crate::wires::RESPONSES;

pub(crate) const STREAMED: &str = r#"{"model":"m","stream":true,"input":"hi"}"#;
pub(crate) const PLAIN: &str = r#"{"model":"m","input":[{"role":"user","content":"hi"}]}"#;

/// An event of this type and number with these fields after them.
macro_rules! event {
    ($kind:expr, $number:expr, $($fields:expr),*) => {
        concat!(
            "event: ", $kind, "\ndata: {\"type\":\"", $kind, "\",\"sequence_number\":", $number, ",", $($fields,)*
            "}\n\n"
        )
    };
}

/// A response with this status, these details, this output and this usage.
macro_rules! response {
    ($status:expr, $details:expr, $output:expr, $usage:expr) => {
        concat!(
            r#"{"id":"resp_faultlab_1","object":"response","created_at":1700000000,"status":""#,
            $status,
            r#"","error":null,"incomplete_details":"#,
            $details,
            r#","model":"m","output":["#,
            $output,
            r#"],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":"#,
            $usage,
            "}"
        )
    };
}

macro_rules! usage {
    ($input:expr, $output:expr, $reasoning:expr, $total:expr) => {
        concat!(
            r#"{"input_tokens":"#,
            $input,
            r#","input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":"#,
            $output,
            r#","output_tokens_details":{"reasoning_tokens":"#,
            $reasoning,
            r#"},"total_tokens":"#,
            $total,
            "}"
        )
    };
}

macro_rules! text {
    ($text:expr) => {
        concat!(r#"{"type":"output_text","text":""#, $text, r#"","annotations":[],"logprobs":[]}"#)
    };
}

/// The fields of an event that is about a text.
macro_rules! at {
    ($item:expr, $index:expr, $($fields:expr),*) => {
        concat!(r#""item_id":""#, $item, r#"","output_index":"#, $index, ",", $($fields),*)
    };
}

macro_rules! message {
    ($id:expr, $status:expr, $content:expr) => {
        concat!(
            r#"{"type":"message","id":""#,
            $id,
            r#"","status":""#,
            $status,
            r#"","role":"assistant","content":["#,
            $content,
            "]}"
        )
    };
}

macro_rules! call {
    ($id:expr, $status:expr, $call:expr, $name:expr, $arguments:expr) => {
        concat!(
            r#"{"type":"function_call","id":""#,
            $id,
            r#"","status":""#,
            $status,
            r#"","call_id":""#,
            $call,
            r#"","name":""#,
            $name,
            r#"","arguments":""#,
            $arguments,
            r#""}"#
        )
    };
}

// The events of "Hello you". "hi" is one token at four characters each, "Hello you" three.
pub(crate) const CREATED: &str =
    event!("response.created", 0, r#""response":"#, response!("in_progress", "null", "", "null"));
pub(crate) const IN_PROGRESS: &str =
    event!("response.in_progress", 1, r#""response":"#, response!("in_progress", "null", "", "null"));
pub(crate) const ITEM: &str = event!(
    "response.output_item.added",
    2,
    r#""output_index":0,"item":"#,
    message!("msg_faultlab_1_0", "in_progress", "")
);
pub(crate) const PART: &str = event!(
    "response.content_part.added",
    3,
    at!("msg_faultlab_1_0", 0, r#""content_index":0,"part":"#, text!(""))
);
pub(crate) const HELLO: &str = event!(
    "response.output_text.delta",
    4,
    at!("msg_faultlab_1_0", 0, r#""content_index":0,"delta":"Hello","logprobs":[]"#)
);
pub(crate) const YOU: &str = event!(
    "response.output_text.delta",
    5,
    at!("msg_faultlab_1_0", 0, r#""content_index":0,"delta":" you","logprobs":[]"#)
);
pub(crate) const TEXT_DONE: &str = event!(
    "response.output_text.done",
    6,
    at!("msg_faultlab_1_0", 0, r#""content_index":0,"text":"Hello you","logprobs":[]"#)
);
pub(crate) const PART_DONE: &str = event!(
    "response.content_part.done",
    7,
    at!("msg_faultlab_1_0", 0, r#""content_index":0,"part":"#, text!("Hello you"))
);
pub(crate) const MESSAGE: &str = message!("msg_faultlab_1_0", "completed", text!("Hello you"));
pub(crate) const ITEM_DONE: &str = event!(
    "response.output_item.done",
    8,
    r#""output_index":0,"item":"#,
    message!("msg_faultlab_1_0", "completed", text!("Hello you"))
);
pub(crate) const COMPLETED: &str = event!(
    "response.completed",
    9,
    r#""response":"#,
    response!(
        "completed",
        "null",
        message!("msg_faultlab_1_0", "completed", text!("Hello you")),
        usage!(1, 3, 0, 4)
    )
);
pub(crate) const DOCUMENT: &str = response!(
    "completed",
    "null",
    message!("msg_faultlab_1_0", "completed", text!("Hello you")),
    usage!(1, 3, 0, 4)
);

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_an_answer_is_events_or_a_document() {
    let (mut client, _server) = RESPONSES.hello_with("null", STREAMED).await;
    client.expect(&RESPONSES.whole_stream());
    client.expect_silence(); // kept alive
    let (mut client, _server) = RESPONSES.hello_with("null", PLAIN).await;
    client.expect(&RESPONSES.whole_document());
}

/// Every kind of item. "Hm" is one token of the five.
const ITEMS: &str = r#"{ "thinking": "Hm", "redacted_thinking": true, "text": "So", "tool_calls": [
     { "name": "calc", "arguments": { "a": "{{input}}" } },
     { "id": "x", "name": "f", "arguments": "{" } ],
     "usage": { "prompt_tokens": 7, "completion_tokens": 5 } }"#;

macro_rules! reasoning {
    ($id:expr, $summary:expr) => {
        concat!(
            r#"{"type":"reasoning","id":""#,
            $id,
            r#"","summary":["#,
            $summary,
            r#"],"encrypted_content":"ZmF1bHRsYWI="}"#
        )
    };
}

/// The items in the order of an answer.
const OUTPUT: [&str; 5] = [
    reasoning!("rs_faultlab_1_0", r#"{"type":"summary_text","text":"Hm"}"#),
    reasoning!("rs_faultlab_1_1", ""),
    message!("msg_faultlab_1_2", "completed", text!("So")),
    call!("fc_faultlab_1_3", "completed", "call_1", "calc", r#"{\"a\":\"hi\"}"#),
    call!("fc_faultlab_1_4", "completed", "x", "f", "{"),
];

fn with_items() -> String {
    DOCUMENT.replace(MESSAGE, &OUTPUT.join(",")).replace(usage!(1, 3, 0, 4), usage!(7, 5, 1, 12))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_answer_has_an_item_for_each_thing_said() {
    let (mut client, _server) = RESPONSES.ask(&lab::script(ITEMS, "null"), PLAIN).await;
    let document = with_items();
    client.expect(&(RESPONSES.plain_head(document.len()) + &document));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_fills_and_ends_an_item_for_each_thing_said() {
    let done = |number: usize, index: usize| {
        format!(
            "event: response.output_item.done\ndata: {{\"type\":\"response.output_item.done\",\
             \"sequence_number\":{number},\"output_index\":{index},\"item\":{}}}\n\n",
            OUTPUT[index]
        )
    };
    let (first, second, third, fourth, fifth) =
        (done(7, 0), done(9, 1), done(15, 2), done(20, 3), done(24, 4));
    let completed = COMPLETED.replace(DOCUMENT, &with_items()).replace(":9,", ":25,");
    let events = [
        CREATED,
        IN_PROGRESS,
        event!(
            "response.output_item.added",
            2,
            r#""output_index":0,"item":{"type":"reasoning","id":"rs_faultlab_1_0","summary":[]}"#
        ),
        event!(
            "response.reasoning_summary_part.added",
            3,
            at!("rs_faultlab_1_0", 0, r#""summary_index":0,"part":{"type":"summary_text","text":""}"#)
        ),
        event!(
            "response.reasoning_summary_text.delta",
            4,
            at!("rs_faultlab_1_0", 0, r#""summary_index":0,"delta":"Hm""#)
        ),
        event!(
            "response.reasoning_summary_text.done",
            5,
            at!("rs_faultlab_1_0", 0, r#""summary_index":0,"text":"Hm""#)
        ),
        event!(
            "response.reasoning_summary_part.done",
            6,
            at!("rs_faultlab_1_0", 0, r#""summary_index":0,"part":{"type":"summary_text","text":"Hm"}"#)
        ),
        &first,
        event!(
            "response.output_item.added",
            8,
            r#""output_index":1,"item":{"type":"reasoning","id":"rs_faultlab_1_1","summary":[]}"#
        ),
        &second,
        event!(
            "response.output_item.added",
            10,
            r#""output_index":2,"item":"#,
            message!("msg_faultlab_1_2", "in_progress", "")
        ),
        event!(
            "response.content_part.added",
            11,
            at!("msg_faultlab_1_2", 2, r#""content_index":0,"part":"#, text!(""))
        ),
        event!(
            "response.output_text.delta",
            12,
            at!("msg_faultlab_1_2", 2, r#""content_index":0,"delta":"So","logprobs":[]"#)
        ),
        event!(
            "response.output_text.done",
            13,
            at!("msg_faultlab_1_2", 2, r#""content_index":0,"text":"So","logprobs":[]"#)
        ),
        event!(
            "response.content_part.done",
            14,
            at!("msg_faultlab_1_2", 2, r#""content_index":0,"part":"#, text!("So"))
        ),
        &third,
        event!(
            "response.output_item.added",
            16,
            r#""output_index":3,"item":"#,
            call!("fc_faultlab_1_3", "in_progress", "call_1", "calc", "")
        ),
        // The arguments are {"a":"hi"}: ten characters, eight and two.
        event!(
            "response.function_call_arguments.delta",
            17,
            at!("fc_faultlab_1_3", 3, r#""delta":"{\"a\":\"hi""#)
        ),
        event!("response.function_call_arguments.delta", 18, at!("fc_faultlab_1_3", 3, r#""delta":"\"}""#)),
        event!(
            "response.function_call_arguments.done",
            19,
            at!("fc_faultlab_1_3", 3, r#""arguments":"{\"a\":\"hi\"}""#)
        ),
        &fourth,
        event!(
            "response.output_item.added",
            21,
            r#""output_index":4,"item":"#,
            call!("fc_faultlab_1_4", "in_progress", "x", "f", "")
        ),
        event!("response.function_call_arguments.delta", 22, at!("fc_faultlab_1_4", 4, r#""delta":"{""#)),
        event!("response.function_call_arguments.done", 23, at!("fc_faultlab_1_4", 4, r#""arguments":"{""#)),
        &fifth,
        &completed,
    ];
    let (mut client, _server) = RESPONSES.ask(&lab::script(ITEMS, "null"), STREAMED).await;
    client.expect(&(RESPONSES.stream_head() + &chunks(&events) + LAST_CHUNK));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_complete_says_why_and_so_does_its_last_item() {
    for (finish, reason) in
        [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("steered", "steered")]
    {
        let message = format!(r#"{{ "text": "Hello you", "finish_reason": "{finish}" }}"#);
        let details = format!(r#""incomplete_details":{{"reason":"{reason}"}}"#);
        let incomplete = |text: &str| {
            text.replace("completed", "incomplete").replace(r#""incomplete_details":null"#, &details)
        };
        let script = lab::script(&message, "null");
        let (mut client, _server) = RESPONSES.ask(&script, PLAIN).await;
        let document = incomplete(DOCUMENT);
        client.expect(&(RESPONSES.plain_head(document.len()) + &document));
        let (mut client, _server) = RESPONSES.ask(&script, STREAMED).await;
        let (done, end) = (ITEM_DONE.replace("completed", "incomplete"), incomplete(COMPLETED));
        let events = [&RESPONSES.events[..8], &[&done, &end]].concat();
        client.expect(&(RESPONSES.stream_head() + &chunks(&events) + LAST_CHUNK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_terminal_an_answer_is_still_in_progress() {
    for done in ["true", "false"] {
        let fault = format!(r#"{{ "end_without_terminal": {{ "done": {done} }} }}"#);
        let (mut client, _server) = RESPONSES.hello_with(&fault, STREAMED).await;
        client.expect(&(RESPONSES.stream_head() + &chunks(&RESPONSES.events[..9]) + LAST_CHUNK));
        let document = DOCUMENT.replacen(r#""status":"completed""#, r#""status":"in_progress""#, 1);
        let (mut client, _server) = RESPONSES.hello_with(&fault, PLAIN).await;
        client.expect(&(RESPONSES.plain_head(document.len()) + &document));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_an_event_of_its_own_type() {
    let flat = r#"{"code":"rate_limit_exceeded","message":"oh","type":"error"}"#;
    let failed = r#"{"response":{"status":"failed"},"type":"response.failed"}"#;
    for (body, kind) in
        [(flat, "error"), (failed, "response.failed"), (r#"{"error":{"message":"oh"}}"#, "error")]
    {
        let fault = format!(r#"{{ "error_event": {{ "after_events": 1, "body": {body} }} }}"#);
        let (mut client, _server) = RESPONSES.hello_with(&fault, STREAMED).await;
        let event = format!("event: {kind}\ndata: {body}\n\n");
        client.expect(&(RESPONSES.stream_head() + &chunks(&[CREATED, &event]) + LAST_CHUNK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_comments_here() {
    let (mut client, _server) =
        RESPONSES.hello_with(r#"{ "pings": { "after_events": 1, "every_ms": 1 } }"#, STREAMED).await;
    client.expect(&(RESPONSES.stream_head() + &chunks(&[CREATED]) + &chunks(&[": ping\n\n"; 20])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_has_openais_shape() {
    let body = concat!(
        r#"{"error":{"message":"Missing required parameter: 'input'.","type":"invalid_request_error","#,
        r#""param":"input","code":"missing_required_parameter"}}"#
    );
    let (mut client, _server) = RESPONSES.hello_with("null", "{}").await;
    client.expect(&(RESPONSES.plain_head(body.len()).replace("200", "400") + body));
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_arguments_end_in_the_middle_and_the_answer_in_order() {
    let script = |finish: &str| {
        lab::script(
            r#"{ "tool_calls": [ { "name": "g", "arguments": { "b": "a longer text" } } ] }"#,
            &format!(r#"{{ "cut_arguments": {finish} }}"#),
        )
    };
    // {"b":"a longer text"} has 21 characters: ten are sent, eight and two.
    let half = r#""arguments":"{\"b\":\"a lo""#;
    let (mut client, _server) = RESPONSES.ask(&script("{}"), STREAMED).await;
    client.read_through(r#""delta":"{\"b\":\"a "}"#);
    client.read_through(r#""delta":"lo"}"#);
    let rest = client.read_through(LAST_CHUNK);
    assert!(!rest.contains("delta") && rest.contains("event: response.incomplete"), "{rest}");
    assert_eq!(rest.matches(half).count(), 3, "{rest}"); // of the arguments, the item, the answer
    let (mut client, _server) = RESPONSES.ask(&script(r#"{ "finish_reason": "tool_calls" }"#), PLAIN).await;
    let answer = client.read_through(half);
    assert!(answer.contains(r#""status":"completed","error":null"#), "{answer}");
}
