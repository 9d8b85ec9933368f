//! The Messages codec against Anthropic's documentation ("Messages", "Streaming messages", "Handling stop reasons",
//! "Extended thinking", "Tool use").

use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, Reason, classify};
use aplomb_core::message::{Block, FinishReason, ImageSource, Message, Reply, Role, ToolCall, ToolResult};
use aplomb_core::tool::ToolSpec;
use aplomb_llm::wire::anthropic::{decode_body, request_body};
use aplomb_llm::wire::{CachePoint, Parameters, Quirks, Wire};
use serde_json::{Value, json};

use crate::splits::streamed;

fn body(messages: Vec<Message>, tools: &[ToolSpec]) -> Value {
    cached_body(messages, tools, &[])
}

fn cached_body(messages: Vec<Message>, tools: &[ToolSpec], cache: &[CachePoint]) -> Value {
    let parameters = Parameters { model: "claude", stream: true, cache, ..Parameters::default() };
    let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
    serde_json::from_slice(&request_body(parameters, &messages, tools).unwrap()).unwrap()
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.to_owned(), name: "calc".to_owned(), arguments: arguments.to_owned() })
}

fn result(id: &str, text: &str, is_error: bool) -> Block {
    let (call_id, text) = (id.to_owned(), text.to_owned());
    Block::ToolResult(ToolResult { call_id, name: "calc".to_owned(), text, is_error })
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

#[test]
fn a_conversation_is_written_as_the_reference_has_it() {
    let messages = vec![
        Message::text(Role::System, "be brief"),
        Message::text(Role::User, "hi"),
        Message {
            role: Role::Assistant,
            content: vec![
                thinking("hm", Some("proof")),
                Block::RedactedThinking { data: "opaque".to_owned() },
                Block::Text { text: "let me see".to_owned() },
                call("toolu_1", "{\"a\":1}"),
                call("toolu_2", "{\"a\":"),
            ],
        },
        Message {
            role: Role::Tool,
            content: vec![result("toolu_1", "one", false), result("toolu_2", "broken", true)],
        },
    ];
    let parameters = json!({"type": "object"});
    let tool = ToolSpec {
        id: "calc".to_owned(),
        description: "adds".to_owned(),
        parameters: parameters.clone(),
        idempotent: true,
    };
    assert_eq!(
        body(messages, &[tool]),
        json!({
            "model": "claude",
            "max_tokens": 4096,
            "system": "be brief",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "proof"},
                    {"type": "redacted_thinking", "data": "opaque"},
                    {"type": "text", "text": "let me see"},
                    {"type": "tool_use", "id": "toolu_1", "name": "calc", "input": {"a": 1}},
                    {"type": "tool_use", "id": "toolu_2", "name": "calc", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "broken", "is_error": true},
                ]},
            ],
            "tools": [{"name": "calc", "description": "adds", "input_schema": parameters}],
            "stream": true,
        })
    );
}

#[test]
fn what_is_to_be_cached_is_marked_at_its_end() {
    // "Prompt caching": a mark caches all that stands before it, in the order tools, system, messages.
    let tool = |id: &str| ToolSpec {
        id: id.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        idempotent: true,
    };
    let messages = || {
        let called = Message { role: Role::Assistant, content: vec![call("toolu_1", "{}")] };
        let results = vec![result("toolu_1", "one", false), result("toolu_2", "two", false)];
        vec![
            Message::text(Role::System, "be brief"),
            Message::text(Role::User, "hi"),
            called,
            Message { role: Role::Tool, content: results },
        ]
    };
    let tools = [tool("calc"), tool("clock")];
    let mark = json!({"type": "ephemeral"});
    let all = [CachePoint::Tools, CachePoint::System, CachePoint::LastMessage];
    let body = cached_body(messages(), &tools, &all);
    assert_eq!((body["tools"][0].get("cache_control"), &body["tools"][1]["cache_control"]), (None, &mark));
    assert_eq!(body["system"], json!([{"type": "text", "text": "be brief", "cache_control": mark}]));
    assert_eq!(body["messages"][2]["content"][0].get("cache_control"), None);
    assert_eq!(body["messages"][2]["content"][1]["cache_control"], mark);
    assert_eq!(body.to_string().matches("cache_control").count(), 3);
    assert!(!cached_body(messages(), &tools, &[]).to_string().contains("cache_control"));
    // Thoughts cannot be marked: what stands before them is.
    let thought = Message {
        role: Role::Assistant,
        content: vec![call("toolu_1", "{}"), thinking("hm", Some("proof"))],
    };
    let body = cached_body(vec![thought], &[], &[CachePoint::LastMessage]);
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], mark);
}

#[test]
fn what_the_protocol_refuses_is_not_sent() {
    let messages = vec![
        Message::text(Role::User, "one"),
        // Another provider's thoughts have no signature.
        Message {
            role: Role::Assistant,
            content: vec![thinking("hm", None), Block::Text { text: "a".to_owned() }],
        },
        Message {
            role: Role::User,
            content: vec![
                Block::Text { text: " ".to_owned() },
                Block::Image { source: ImageSource::Url { url: "https://host/a.png".to_owned() } },
            ],
        },
        // Neighbours of one role are one turn.
        Message::text(Role::User, "two"),
    ];
    assert_eq!(
        body(messages, &[])["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            {"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}},
                {"type": "text", "text": "two"},
            ]},
        ])
    );
}

fn answer(content: &Value, stop_reason: &Value) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2, "output_tokens": 5},
    })
}

fn decoded(body: &Value) -> Result<Reply, Box<Failure>> {
    decode_body(body.to_string().as_bytes()).0
}

#[test]
fn a_whole_answer_is_read_with_its_usage_in_our_way_of_counting() {
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "proof"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "text": "ok"},
        {"type": "server_tool_use", "id": "x", "name": "y", "input": {}},
        {"type": "tool_use", "id": "toolu_1", "name": "calc", "input": {"a": 1}},
    ]);
    let reply = decoded(&answer(&content, &json!("tool_use"))).unwrap();
    assert_eq!(
        reply.message.content,
        [
            thinking("hm", Some("proof")),
            Block::RedactedThinking { data: "opaque".to_owned() },
            Block::Text { text: "ok".to_owned() },
            call("toolu_1", "{\"a\":1}"),
        ]
    );
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    let usage = reply.usage.unwrap();
    // Anthropic counts the 4 and the 2 apart from the 10.
    assert_eq!((usage.input, usage.input_cached, usage.input_cache_creation, usage.output), (16, 4, 2, 5));
}

#[test]
fn stop_reasons_say_whether_an_answer_is_one() {
    let text = json!([{"type": "text", "text": "half"}]);
    for (word, finish) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
    ] {
        assert_eq!(decoded(&answer(&text, &json!(word))).unwrap().finish, finish, "{word}");
    }
    for (content, word, anomaly) in [
        (&text, json!("refusal"), Anomaly::Filtered),
        (&text, json!("surprise"), Anomaly::UnknownEnd),
        (&text, Value::Null, Anomaly::NoTerminalEvent),
        (&text, json!("tool_use"), Anomaly::Empty),
        (&json!([]), json!("end_turn"), Anomaly::Empty),
        (&json!([]), json!("max_tokens"), Anomaly::EmptyAtTokenLimit),
        (&json!(null), json!("end_turn"), Anomaly::MalformedBody),
    ] {
        assert_eq!(decoded(&answer(content, &word)).unwrap_err().anomaly, Some(anomaly), "{word} {content}");
    }
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(decoded(&error).unwrap_err().anomaly, Some(Anomaly::Error));
    assert_eq!(decode_body(b"<html>").0.unwrap_err().anomaly, Some(Anomaly::MalformedBody));
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn start() -> String {
    event(&json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 1},
    }}))
}

fn begin(index: u64, block: &Value) -> String {
    event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: u64, delta: &Value) -> String {
    event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn text(index: u64, text: &str) -> String {
    delta(index, &json!({"type": "text_delta", "text": text}))
}

fn end(index: u64) -> String {
    event(&json!({"type": "content_block_stop", "index": index}))
}

fn stop(word: &str) -> String {
    event(&json!({"type": "message_delta", "delta": {"stop_reason": word, "stop_sequence": null},
                  "usage": {"output_tokens": 15}}))
}

const MESSAGE_STOP: &str = "event: message_stop\ndata: {\"type\": \"message_stop\"}\n\n";
const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

fn stream(parts: &[String]) -> Result<Reply, Box<Failure>> {
    streamed(Wire::Anthropic, parts.iter().map(|part| part.as_bytes())).map(|(_, reply)| reply)
}

pub(crate) fn everything() -> Vec<String> {
    vec![
        start(),
        PING.to_owned(),
        begin(0, &json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, &json!({"type": "thinking_delta", "thinking": "h"})),
        delta(0, &json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, &json!({"type": "signature_delta", "signature": "proof"})),
        end(0),
        begin(1, &json!({"type": "redacted_thinking", "data": "opaque"})),
        end(1),
        begin(2, &json!({"type": "text", "text": ""})),
        text(2, "größ"),
        text(2, "e"),
        end(2),
        begin(3, &json!({"type": "tool_use", "id": "toolu_1", "name": "calc", "input": {}})),
        delta(3, &json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, &json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
        delta(3, &json!({"type": "input_json_delta", "partial_json": " 1}"})),
        end(3),
        begin(4, &json!({"type": "tool_use", "id": "toolu_2", "name": "calc", "input": {}})),
        end(4),
        event(&json!({"type": "a_later_kind", "x": 1})),
        stop("tool_use"),
        MESSAGE_STOP.to_owned(),
    ]
}

#[test]
fn a_streamed_answer_is_put_together_in_the_order_of_its_blocks() {
    let reply = stream(&everything()).unwrap();
    assert_eq!(
        reply.message.content,
        [
            thinking("hm", Some("proof")),
            Block::RedactedThinking { data: "opaque".to_owned() },
            Block::Text { text: "größe".to_owned() },
            call("toolu_1", "{\"a\": 1}"),
            call("toolu_2", ""),
        ]
    );
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.input_cached, usage.output), (14, 4, 15));
    assert_eq!(reply.finish, FinishReason::ToolCalls);
}

#[test]
fn every_beginning_of_a_stream_is_a_failure_unless_the_terminal_event_is_in_it() {
    let parts = everything();
    for length in 0..parts.len() {
        let failure = stream(&parts[..length]).unwrap_err();
        assert_eq!(failure.anomaly, Some(Anomaly::NoTerminalEvent), "{length}");
    }
}

#[test]
fn a_stop_reason_ends_the_answer_only_of_a_vendor_that_is_known_to_send_no_message_stop() {
    let parts = everything();
    let whole = parts[..parts.len() - 1].concat();
    assert_eq!(stream(std::slice::from_ref(&whole)).unwrap_err().anomaly, Some(Anomaly::NoTerminalEvent));
    let mut quirks = Quirks::default();
    quirks.message_stop_is_optional = true;
    let mut decoder = Wire::Anthropic.decoder(quirks);
    decoder.push(whole.as_bytes(), &mut Vec::new()).unwrap();
    // Whole, but more may follow: the vendor that does send `message_stop` is read to its end.
    assert!(decoder.is_terminal() && !decoder.is_done());
    assert_eq!(decoder.finish().unwrap(), stream(&parts).unwrap());
    for length in 0..parts.len() - 2 {
        let mut decoder = Wire::Anthropic.decoder(quirks);
        decoder.push(parts[..length].concat().as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(decoder.finish().unwrap_err().anomaly, Some(Anomaly::NoTerminalEvent), "{length}");
    }
}

#[test]
fn an_error_event_is_what_it_says() {
    for (kind, reason, retryable) in [
        ("overloaded_error", Reason::Overloaded, true),
        ("api_error", Reason::ServerError, true),
        ("rate_limit_error", Reason::RateLimit, true),
        ("invalid_request_error", Reason::InvalidRequest, false),
        ("authentication_error", Reason::Auth, false),
    ] {
        let error = event(&json!({"type": "error", "error": {"type": kind, "message": "no"}}));
        for before in [vec![], vec![start(), text(0, "half")]] {
            let parts: Vec<_> = before.into_iter().chain([error.clone()]).collect();
            let verdict = classify(&stream(&parts).unwrap_err());
            assert_eq!((verdict.reason, verdict.retryable), (reason, retryable), "{kind}");
        }
    }
    let broken = [start(), "data: {\"type\": \"content_bl\n\n".to_owned()];
    assert_eq!(stream(&broken).unwrap_err().anomaly, Some(Anomaly::MalformedEvent));
}

#[test]
fn thoughts_that_are_signed_and_not_shown_keep_their_proof_each_its_own() {
    let hidden = |index: u64, proof: &str| {
        [
            begin(index, &json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(index, &json!({"type": "signature_delta", "signature": proof})),
            end(index),
        ]
        .concat()
    };
    let at_once = begin(2, &json!({"type": "thinking", "thinking": "", "signature": "three"}));
    let parts = [
        start(),
        hidden(0, "one"),
        hidden(1, "two"),
        at_once,
        begin(3, &json!({"type": "text", "text": ""})),
        text(3, "ok"),
        stop("end_turn"),
        MESSAGE_STOP.to_owned(),
    ];
    let expected = [
        thinking("", Some("one")),
        thinking("", Some("two")),
        thinking("", Some("three")),
        Block::Text { text: "ok".to_owned() },
    ];
    assert_eq!(stream(&parts).unwrap().message.content, expected);
}
