//! What a client reads, byte for byte, for the faults that move, glue, split, swell or leave out events, on every
//! protocol.
//!
//! Whole answers are those of the module `wires`.

use crate::lab::{LAST_CHUNK, chunks, script, start};
use crate::wires::{ANTHROPIC, GEMINI, OPENAI, RESPONSES, WIRES, Wire};
use crate::{golden_anthropic, golden_responses};

/// WHATWG HTML, 9.2.6: a line that begins with a colon is a comment.
const COMMENT: &str = ": ping\n\n";

const KINDS: [(&str, &str); 2] = [("comments", COMMENT), ("events", golden_anthropic::PING)];

#[tokio::test(flavor = "multi_thread")]
async fn pings_may_be_comments_or_events_on_any_protocol() {
    for wire in WIRES {
        for (kind, ping) in KINDS {
            let fault = format!(r#"{{ "pings": {{ "after_events": 1, "every_ms": 1, "with": "{kind}" }} }}"#);
            let (mut client, _server) = wire.hello_with(&fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(&wire.events[..1]) + &chunks(&[ping; 20])));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_after_the_end_may_be_comments_or_events_too() {
    for wire in WIRES {
        // All but [DONE], where there is one.
        let events = if wire.path == OPENAI.path { &OPENAI.events[..4] } else { wire.events };
        for (kind, ping) in KINDS {
            let fault = format!(r#"{{ "pings_after_end": {{ "every_ms": 1, "with": "{kind}" }} }}"#);
            let (mut client, _server) = wire.hello_with(&fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(events) + &chunks(&[ping; 20])));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_pings_are_spaces_whatever_their_kind() {
    for wire in WIRES {
        let fault = r#"{ "pings": { "after_events": 1, "every_ms": 1, "with": "events" } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
        let head = wire.head("application/json", "transfer-encoding: chunked");
        client.expect(&(head + &"1\r\n \r\n".repeat(20)));
    }
}

/// The data of an event without its line break.
fn data(event: &str) -> &str {
    event.split_once("data: ").unwrap().1.trim_end_matches('\n')
}

#[tokio::test(flavor = "multi_thread")]
async fn glued_events_are_one_line_with_the_data_of_two() {
    for wire in WIRES {
        for (after_events, place) in [(0, 0), (2, 2), (99, wire.content)] {
            let fault = format!(r#"{{ "glued_events": {{ "after_events": {after_events} }} }}"#);
            // The last event has none after it.
            let place = place.min(wire.events.len() - 2);
            let (first, next) = (wire.events[place], wire.events[place + 1]);
            let glued = format!("{}{}\n\n", first.trim_end_matches('\n'), data(next));
            let mut events: Vec<&str> = wire.events.to_vec();
            events.splice(place..place + 2, [glued.as_str()]);
            let (mut client, _server) = wire.hello_with(&fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(&events) + LAST_CHUNK));
            client.expect_silence();
        }
    }
}

/// Spelt out, so that the helper above cannot be wrong in the same way as the server.
#[tokio::test(flavor = "multi_thread")]
async fn two_glued_events_spelt_out() {
    let fault = r#"{ "glued_events": { "after_events": 99 } }"#;
    let (mut client, _server) = ANTHROPIC.hello_with(fault, ANTHROPIC.streamed).await;
    client.read_through(concat!(
        "event: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"#,
        r#""usage":{"output_tokens":3}}{"type":"message_stop"}"#,
        "\n\n\r\n0\r\n\r\n"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn glued_documents_are_the_document_twice() {
    for wire in WIRES {
        let fault = r#"{ "glued_events": { "after_events": 2 } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
        client.expect(&(wire.plain_head(2 * wire.document.len()) + wire.document + wire.document));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_event_is_two_events_with_half_of_its_data_each() {
    for wire in WIRES {
        for (after_events, place) in [(0, 0), (2, 2), (99, wire.content)] {
            let fault = format!(r#"{{ "split_event": {{ "after_events": {after_events} }} }}"#);
            let (name, _) = wire.events[place].split_once("data: ").unwrap();
            let data = data(wire.events[place]);
            let (first, second) = data.split_at(data.len() / 2);
            let halves = [first, second].map(|half| format!("{name}data: {half}\n\n"));
            let mut events: Vec<&str> = wire.events.to_vec();
            events.splice(place..=place, halves.iter().map(String::as_str));
            let (mut client, _server) = wire.hello_with(&fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(&events) + LAST_CHUNK));
            client.expect_silence();
        }
    }
}

/// What a document has no place for.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_has_no_events_to_split_and_its_reason_in_it() {
    for wire in WIRES {
        for fault in [r#"{ "split_event": { "after_events": 2 } }"#, r#""end_after_reason""#] {
            let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
            client.expect(&wire.whole_document());
            client.expect_silence();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_end_after_the_reason_without_the_last_word() {
    for wire in WIRES {
        let (mut client, _server) = wire.hello_with(r#""end_after_reason""#, wire.streamed).await;
        // The first terminal event has the reason: neither [DONE] nor message_stop follows. Responses and
        // Gemini have it in their last event.
        client.expect(&(wire.stream_head() + &chunks(&wire.events[..=wire.content]) + LAST_CHUNK));
        client.expect_silence();
    }
}

/// OpenAI's usage comes after the reason, so it is left out though it was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_after_the_reason_is_one_before_the_usage() {
    let request = OPENAI
        .streamed
        .replace(r#""stream":true"#, r#""stream":true,"stream_options":{"include_usage":true}"#);
    let (mut client, _server) = OPENAI.hello_with(r#""end_after_reason""#, &request).await;
    let stream = client.read_through("\r\n0\r\n\r\n");
    assert!(stream.contains(r#""finish_reason":"stop"}],"usage":null"#), "{stream}");
    assert!(!stream.contains("prompt_tokens") && !stream.contains("[DONE]"), "{stream}");
}

/// The event in `size` bytes: with spaces before the brace that ends its JSON.
fn swollen(event: &str, size: usize) -> String {
    let spaces = " ".repeat(size.saturating_sub(event.len()));
    format!("{}{spaces}}}\n\n", event.strip_suffix("}\n\n").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_event_has_its_size_and_its_meaning() {
    for wire in WIRES {
        for (after_events, place) in [(2, 2), (99, wire.content)] {
            let fault =
                format!(r#"{{ "huge_event": {{ "after_events": {after_events}, "bytes": 100000 }} }}"#);
            let huge = swollen(wire.events[place], 100_000);
            assert_eq!(huge.len(), 100_000);
            serde_json::from_str::<serde_json::Value>(data(&huge)).unwrap();
            let mut events: Vec<&str> = wire.events.to_vec();
            events[place] = &huge;
            let (mut client, _server) = wire.hello_with(&fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(&events) + LAST_CHUNK));
            client.expect_silence();
        }
        // An event that is longer is not cut.
        let (mut client, _server) =
            wire.hello_with(r#"{ "huge_event": { "after_events": 2, "bytes": 9 } }"#, wire.streamed).await;
        client.expect(&wire.whole_stream());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_document_is_announced_in_full() {
    for wire in WIRES {
        let fault = r#"{ "huge_event": { "after_events": 2, "bytes": 100000 } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
        let spaces = " ".repeat(100_000 - wire.document.len());
        client.expect(&(wire.plain_head(100_000) + wire.document + &spaces));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_one_event_until_the_body_has_its_size() {
    for wire in WIRES {
        let fault = r#"{ "flood": { "after_events": 2, "bytes": 5000 } }"#;
        let whole: usize = wire.events.iter().map(|event| event.len()).sum();
        let repeated = wire.events[2];
        let times = (5000 - whole).div_ceil(repeated.len());
        let body = [&wire.events[..2], &vec![repeated; 1 + times], &wire.events[3..]].concat();
        let sent: usize = body.iter().map(|event| event.len()).sum();
        assert!((5000..5000 + repeated.len()).contains(&sent));
        let (mut client, _server) = wire.hello_with(fault, wire.streamed).await;
        client.expect(&(wire.stream_head() + &chunks(&body) + LAST_CHUNK));
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_flood_is_a_document_and_spaces_of_no_announced_length() {
    for wire in WIRES {
        let fault = r#"{ "flood": { "after_events": 2, "bytes": 40000 } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
        // 16 KiB are 16384 bytes: two such pieces and what is left.
        let piece = " ".repeat(16_384);
        let rest = " ".repeat(40_000 - wire.document.len() - 2 * 16_384);
        let body = chunks(&[wire.document, &piece, &piece, &rest]);
        client.expect(&(wire.head("application/json", "transfer-encoding: chunked") + &body + LAST_CHUNK));
        client.expect_silence();
    }
}

/// One step with a message of every kind of content, and nobody to say it.
fn empty() -> String {
    script(
        r#"{ "thinking": "Hm", "redacted_thinking": true, "text": "Hello you",
             "tool_calls": [ { "name": "f" } ] }"#,
        r#""empty_answer""#,
    )
}

async fn expect_empty(wire: &Wire, request: &str, expected: &str) {
    let server = start(&empty()).await;
    let mut client = crate::lab::ask(&server, wire.path_of(request), request);
    client.expect(expected);
    client.expect_silence();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_has_no_choice_on_openais_wire() {
    let chunk = concat!(
        r#"data: {"id":"chatcmpl-faultlab-1","object":"chat.completion.chunk","created":1700000000,"#,
        r#""model":"m","choices":[]}"#,
        "\n\n"
    );
    let stream = OPENAI.stream_head() + &chunks(&[chunk, "data: [DONE]\n\n"]) + LAST_CHUNK;
    expect_empty(&OPENAI, OPENAI.streamed, &stream).await;
    // "hi" is one token, and nothing none.
    let document = concat!(
        r#"{"id":"chatcmpl-faultlab-1","object":"chat.completion","created":1700000000,"model":"m","#,
        r#""choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}"#
    );
    expect_empty(&OPENAI, OPENAI.plain, &(OPENAI.plain_head(document.len()) + document)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_has_no_block_on_anthropics_wire() {
    use golden_anthropic::{END_TURN, PING, START, STOP};
    let end = END_TURN.replace(r#""output_tokens":3"#, r#""output_tokens":0"#);
    let stream = ANTHROPIC.stream_head() + &chunks(&[START, PING, &end, STOP]) + LAST_CHUNK;
    expect_empty(&ANTHROPIC, ANTHROPIC.streamed, &stream).await;
    let document = concat!(
        r#"{"id":"msg_faultlab_1","type":"message","role":"assistant","model":"m","content":[],"#,
        r#""stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":0}}"#
    );
    expect_empty(&ANTHROPIC, ANTHROPIC.plain, &(ANTHROPIC.plain_head(document.len()) + document)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_has_no_item_on_the_responses_wire() {
    use golden_responses::{COMPLETED, CREATED, IN_PROGRESS, MESSAGE};
    let emptied = |text: &str, sequence: &str| {
        text.replace(&format!(r#""output":[{MESSAGE}]"#), r#""output":[]"#)
            .replace(r#""output_tokens":3"#, r#""output_tokens":0"#)
            .replace(r#""total_tokens":4"#, r#""total_tokens":1"#)
            .replace(r#""sequence_number":9"#, sequence)
    };
    let end = emptied(COMPLETED, r#""sequence_number":2"#);
    let stream = RESPONSES.stream_head() + &chunks(&[CREATED, IN_PROGRESS, &end]) + LAST_CHUNK;
    expect_empty(&RESPONSES, RESPONSES.streamed, &stream).await;
    let document = emptied(RESPONSES.document, "");
    expect_empty(&RESPONSES, RESPONSES.plain, &(RESPONSES.plain_head(document.len()) + &document)).await;
}

/// The empty answers that Gemini is known for
/// (<https://github.com/google-gemini/deprecated-generative-ai-python/issues/744>).
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_has_no_parts_on_geminis_wire() {
    let document = concat!(
        r#"{"candidates":[{"content":{"role":"model"},"finishReason":"STOP","index":0}],"#,
        r#""usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":0,"totalTokenCount":1},"#,
        r#""modelVersion":"m","responseId":"faultlab_1"}"#
    );
    let event = format!("data: {document}\n\n");
    let stream = GEMINI.stream_head() + &chunks(&[&event]) + LAST_CHUNK;
    expect_empty(&GEMINI, GEMINI.streamed, &stream).await;
    expect_empty(&GEMINI, GEMINI.plain, &(GEMINI.plain_head(document.len()) + document)).await;
}
