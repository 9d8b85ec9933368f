//! What a client reads, byte for byte, for the faults below the events, on every protocol.
//!
//! Whole answers are those of the module `wires`. How they are cut, ended and counted is written
//! from RFC 9112 (7.1 for chunks, 8 for incomplete bodies) and WHATWG HTML 9.2.5 (the ends of lines).

use crate::golden_anthropic;
use crate::lab::{LAST_CHUNK, chunks, script};
use crate::raw::Ending;
use crate::wires::{ANTHROPIC, OPENAI, WIRES};

/// The event with half of its data.
fn half(event: &str) -> String {
    let (before, data) = event.split_once("data: ").unwrap();
    let data = data.strip_suffix("\n\n").unwrap();
    format!("{before}data: {}\n\n", &data[..data.len() / 2])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_event_is_half_an_event_among_whole_ones() {
    for wire in WIRES {
        for (after_events, broken) in [(0, 0), (2, 2), (99, wire.content)] {
            let fault = format!(r#"{{ "malformed_event": {{ "after_events": {after_events} }} }}"#);
            let mut events: Vec<&str> = wire.events.to_vec();
            let half = half(wire.events[broken]);
            events[broken] = &half;
            let (mut client, _server) = wire.hello_with(&fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(&events) + LAST_CHUNK));
            client.expect_silence();
        }
    }
}

#[test]
fn half_of_hello_spelt_out() {
    // The data has 85 characters: 40 to the end of the index, 45 from the delta on.
    assert_eq!(
        half(golden_anthropic::HELLO),
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"d\n\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_document_is_half_a_document_that_says_it_is_whole() {
    for wire in WIRES {
        let fault = r#"{ "malformed_event": { "after_events": 2 } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
        let half = &wire.document[..wire.document.len() / 2];
        client.expect(&(wire.plain_head(half.len()) + half));
        client.expect_silence();
    }
}

/// `é` is the two bytes C3 A9.
#[tokio::test(flavor = "multi_thread")]
async fn a_split_character_begins_in_one_chunk_and_ends_in_the_next() {
    let script = script(r#"{ "text": "Héllo you é" }"#, r#""split_utf8""#);
    for wire in WIRES {
        let (mut client, _server) = wire.ask(&script, wire.streamed).await;
        let place = wire.events.iter().position(|event| event.contains("Hello")).unwrap();
        client.expect(&(wire.stream_head() + &chunks(&wire.events[..place])));
        let (before, after) = wire.events[place].split_once("ello").unwrap();
        let mut expected = format!("{:x}\r\n{before}", before.len() + 1).into_bytes();
        expected.extend(b"\xC3\r\n");
        expected.extend(format!("{:x}\r\n", 1 + "llo".len() + after.len()).bytes());
        expected.extend(b"\xA9llo");
        expected.extend(after.bytes());
        expected.extend(b"\r\n");
        client.expect_bytes(&expected);
        // The next one is whole.
        let next = wire.events[place + 1];
        let last = next.replace(" you", " é").replace(r#""sequence_number":5"#, r#""sequence_number":6"#);
        client.expect(&chunks(&[next, &last]));

        let (mut client, _server) = wire.ask(&script, wire.plain).await;
        client.read_through("Héllo you é\"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_may_end_with_crlf_or_cr() {
    for (fault, end) in [(r#""crlf""#, "\r\n"), (r#""lone_cr""#, "\r")] {
        for wire in WIRES {
            let events: Vec<String> = wire.events.iter().map(|event| event.replace('\n', end)).collect();
            let events: Vec<&str> = events.iter().map(String::as_str).collect();
            let (mut client, _server) = wire.hello_with(fault, wire.streamed).await;
            client.expect(&(wire.stream_head() + &chunks(&events) + LAST_CHUNK));
            client.expect_silence();
            let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
            client.expect(&wire.whole_document());
        }
    }
}

/// `chunk` with a size that is one too small.
fn wrong_chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len() - 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_chunk_size_is_one_less_than_its_bytes() {
    for wire in WIRES {
        for (after_events, wrong) in [(0, 0), (2, 2), (99, wire.content)] {
            let fault = format!(r#"{{ "wrong_chunk_size": {{ "after_events": {after_events} }} }}"#);
            let (client, _server) = wire.hello_with(&fault, wire.streamed).await;
            let (before, rest) = wire.events.split_at(wrong);
            let body = chunks(before) + &wrong_chunk(rest[0]) + &chunks(&rest[1..]) + LAST_CHUNK;
            assert_eq!(client.read_to_end(), (wire.stream_head() + &body, Ending::Fin));
        }
        let fault = r#"{ "wrong_chunk_size": { "after_events": 2 } }"#;
        let (client, _server) = wire.hello_with(fault, wire.plain).await;
        let head = wire.head("application/json", "transfer-encoding: chunked");
        assert_eq!(client.read_to_end(), (head + &wrong_chunk(wire.document) + LAST_CHUNK, Ending::Fin));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_body_is_all_there_and_sixteen_bytes_too_short() {
    for wire in WIRES {
        for (request, content_type, body) in [
            (wire.streamed, "text/event-stream", wire.events.concat()),
            (wire.plain, "application/json", wire.document.to_owned()),
        ] {
            let (client, _server) = wire.hello_with(r#""short_body""#, request).await;
            let head = wire.head(content_type, &format!("content-length: {}", body.len() + 16));
            assert_eq!(client.read_to_end(), (head + &body, Ending::Fin));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_head_is_the_same_head_in_more_reads() {
    for wire in WIRES {
        for (request, whole) in [(wire.streamed, wire.whole_stream()), (wire.plain, wire.whole_document())] {
            let (mut client, _server) = wire.hello_with(r#""split_headers""#, request).await;
            let (head, body) = whole.split_once("\r\n\r\n").unwrap();
            // Seven or eight writes, 5 ms apart: they will not all have come when the first is read.
            assert!(client.expect(&format!("{head}\r\n\r\n")) > 1);
            client.expect(body);
            client.expect_silence();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_headers_are_a_status_line_and_a_wait() {
    for wire in WIRES {
        let fault = r#"{ "slow_headers": { "delay_ms": 900 } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.streamed).await;
        let status_line = "HTTP/1.1 200 \r\n";
        client.expect(status_line);
        client.expect_silence();
        client.expect(wire.whole_stream().strip_prefix(status_line).unwrap());
        client.expect_silence();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dripping_body_comes_in_pieces_that_know_no_events() {
    for wire in WIRES {
        let fault = r#"{ "drip": { "bytes": 100, "every_ms": 1 } }"#;
        let (mut client, _server) = wire.hello_with(fault, wire.streamed).await;
        let mut expected = wire.stream_head();
        let mut body = &*wire.events.concat();
        while !body.is_empty() {
            let (piece, rest) = body.split_at(body.len().min(100));
            expected.push_str(&chunks(&[piece]));
            body = rest;
        }
        client.expect(&(expected + LAST_CHUNK));
        client.expect_silence();
        let (mut client, _server) = wire.hello_with(fault, wire.plain).await;
        client.expect(&wire.whole_document());
        client.expect_silence();
    }
}

/// The arguments of the last call, as a plain answer has them, and its finish reason, by protocol.
async fn cut_off(fault: &str) -> [(String, String); 2] {
    let script = script(
        r#"{ "tool_calls": [ { "name": "f", "arguments": { "a": 1 } },
                             { "name": "g", "arguments": { "b": "xyz" } } ] }"#,
        fault,
    );
    let (mut client, _server) = OPENAI.ask(&script, OPENAI.plain).await;
    client.read_through(
        r#""function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"call_2","type":"function","#,
    );
    client.read_through(r#""function":{"name":"g","arguments":"#);
    let arguments = client.read_through("}}]").replace("}}]", "");
    client.read_through(r#""finish_reason":"#);
    let openai = (arguments, client.read_through("}]").replace("}]", ""));
    let (mut client, _server) = ANTHROPIC.ask(&script, ANTHROPIC.plain).await;
    client
        .read_through(r#""name":"f","input":{"a":1}},{"type":"tool_use","id":"toolu_2","name":"g","input":"#);
    let arguments = client.read_through("}]").replace("}]", "");
    client.read_through(r#""stop_reason":"#);
    [openai, (arguments, client.read_through(",").replace(',', ""))]
}

/// `{"b":"xyz"}` has eleven characters; five of them are `{"b":`.
#[tokio::test(flavor = "multi_thread")]
async fn cut_arguments_are_half_of_the_last_calls_and_end_for_length() {
    let half = r#""{\"b\":""#.to_owned();
    let [openai, anthropic] = cut_off(r#"{ "cut_arguments": {} }"#).await;
    assert_eq!(openai, (half.clone(), r#""length""#.to_owned()));
    assert_eq!(anthropic, (half, r#""max_tokens""#.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_arguments_may_lie_about_their_end() {
    let [openai, anthropic] = cut_off(r#"{ "cut_arguments": { "finish_reason": "tool_calls" } }"#).await;
    assert_eq!(openai.1, r#""tool_calls""#);
    assert_eq!(anthropic.1, r#""tool_use""#);
    let [_, anthropic] = cut_off(r#"{ "cut_arguments": { "finish_reason": "tool_use" } }"#).await;
    assert_eq!(anthropic.1, r#""tool_use""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_cut_arguments_end_in_the_middle_and_the_message_in_order() {
    let script = script(
        r#"{ "tool_calls": [ { "name": "g", "arguments": { "b": "a longer text" } } ] }"#,
        r#"{ "cut_arguments": {} }"#,
    );
    // {"b":"a longer text"} has 21 characters: ten are sent, eight and two.
    let (mut client, _server) = OPENAI.ask(&script, OPENAI.streamed).await;
    client.read_through(r#""function":{"arguments":"{\"b\":\"a "}}"#);
    client.read_through(r#""function":{"arguments":"lo"}}"#);
    let rest = client.read_through(LAST_CHUNK);
    assert!(!rest.contains("arguments"), "{rest}");
    assert!(rest.contains(r#""delta":{},"finish_reason":"length""#) && rest.contains("[DONE]"), "{rest}");

    let (mut client, _server) = ANTHROPIC.ask(&script, ANTHROPIC.streamed).await;
    client.read_through(r#""partial_json":"{\"b\":\"a "}"#);
    client.read_through(r#""partial_json":"lo"}"#);
    let rest = client.read_through(LAST_CHUNK);
    assert!(!rest.contains("partial_json") && rest.contains("content_block_stop"), "{rest}");
    assert!(rest.contains(r#""stop_reason":"max_tokens""#) && rest.contains("message_stop"), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_http_answer_can_have_a_wrong_length_too() {
    let script = r#"{ "steps": [ {
        "reply": { "http": { "status": 500, "body": "abc" } }, "fault": "short_body" } ] }"#;
    let (client, _server) = OPENAI.ask(script, OPENAI.plain).await;
    let (answer, ending) = client.read_to_end();
    assert!(answer.ends_with("content-length: 19\r\n\r\nabc"), "{answer}");
    assert_eq!(ending, Ending::Fin);
}
