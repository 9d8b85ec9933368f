//! The Responses codec against OpenAI's documentation: API reference, "Create a model response" and "Streaming events"
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>); guides "Function calling", "Reasoning models".

use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, Reason, classify};
use aplomb_core::message::{Block, FinishReason, ImageSource, Message, Reply, Role, ToolCall, ToolResult};
use aplomb_core::tool::ToolSpec;
use aplomb_llm::wire::openai_responses::{decode_body, request_body};
use aplomb_llm::wire::{Parameters, Quirks, Wire};
use serde_json::{Value, json};

use crate::splits::streamed;

fn body(parameters: Parameters<'_>, messages: Vec<Message>, tools: &[ToolSpec]) -> Value {
    let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
    serde_json::from_slice(&request_body(parameters, &messages, tools).unwrap()).unwrap()
}

fn reasoning_model() -> Parameters<'static> {
    let (temperature, max_tokens) = (Some(0.5), Some(100));
    Parameters {
        model: "gpt-5",
        stream: true,
        temperature,
        max_tokens,
        reasons: true,
        ..Parameters::default()
    }
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.to_owned(), name: "calc".to_owned(), arguments: arguments.to_owned() })
}

fn result(id: &str, text: &str) -> Block {
    let (call_id, text) = (id.to_owned(), text.to_owned());
    Block::ToolResult(ToolResult { call_id, name: "calc".to_owned(), text, is_error: false })
}

fn text_block(text: &str) -> Block {
    Block::Text { text: text.to_owned() }
}

fn calc() -> ToolSpec {
    ToolSpec {
        id: "calc".to_owned(),
        description: "adds".to_owned(),
        parameters: json!({"type": "object"}),
        idempotent: true,
    }
}

#[test]
fn a_conversation_is_written_as_the_reference_has_it() {
    let messages = vec![
        Message::text(Role::System, "be brief"),
        Message::text(Role::User, "hi"),
        Message {
            role: Role::Assistant,
            content: vec![
                // Another provider's thoughts, shown and not.
                Block::Thinking { text: "hm".to_owned(), signature: Some("proof".to_owned()) },
                Block::RedactedThinking { data: "opaque".to_owned() },
                Block::Opaque { wire: "gemini".to_owned(), data: "{}".to_owned() },
                text_block("let me see"),
                call("call_1", "{\"a\":1}"),
                call("call_2", "{\"a\":"),
            ],
        },
        Message { role: Role::Tool, content: vec![result("call_1", "one"), result("call_2", "broken")] },
    ];
    assert_eq!(
        body(reasoning_model(), messages, &[calc()]),
        json!({
            "model": "gpt-5",
            "instructions": "be brief",
            "input": [
                {"type": "message", "role": "user", "content": "hi"},
                {"type": "message", "role": "assistant", "content": "let me see"},
                {"type": "function_call", "call_id": "call_1", "name": "calc", "arguments": "{\"a\":1}"},
                {"type": "function_call", "call_id": "call_2", "name": "calc", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "one"},
                {"type": "function_call_output", "call_id": "call_2", "output": "broken"},
            ],
            "tools": [{"type": "function", "name": "calc", "description": "adds",
                       "parameters": {"type": "object"}, "strict": false}],
            "max_output_tokens": 100,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "stream": true,
        })
    );
}

#[test]
fn a_model_that_does_not_reason_takes_a_temperature_and_is_not_asked_for_its_reasoning() {
    let parameters = Parameters { model: "gpt-4o", temperature: Some(0.5), ..Parameters::default() };
    let picture = |source| Block::Image { source };
    let content = vec![
        text_block("what is this?"),
        picture(ImageSource::Url { url: "https://host/a.png".to_owned() }),
        picture(ImageSource::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() }),
    ];
    assert_eq!(
        body(parameters, vec![Message { role: Role::User, content }], &[]),
        json!({
            "model": "gpt-4o",
            "input": [{"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "what is this?"},
                {"type": "input_image", "image_url": "https://host/a.png", "detail": "auto"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ]}],
            "temperature": 0.5,
            "store": false,
        })
    );
}

fn usage() -> Value {
    json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2}, "output_tokens": 7,
           "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 17})
}

fn reasoning(encrypted: &Value) -> Value {
    json!({"type": "reasoning", "id": "rs_1", "encrypted_content": encrypted,
           "summary": [{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "ah"}]})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "commentary",
           "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn function_call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "status": "completed", "call_id": format!("call_{id}"),
           "name": "calc", "arguments": arguments})
}

fn output() -> Vec<Value> {
    vec![
        reasoning(&json!("gAAAA")),
        message("größe"),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
        function_call("1", "{\"a\": 1}"),
        function_call("2", "{}"),
    ]
}

fn response(status: &str, output: &[Value]) -> Value {
    json!({"id": "resp_1", "object": "response", "status": status, "error": null, "incomplete_details": null,
           "model": "gpt-5", "output": output, "usage": usage()})
}

fn incomplete(reason: &str, output: &[Value]) -> Value {
    with(response("incomplete", output), "incomplete_details", json!({ "reason": reason }))
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body.as_object_mut().unwrap().insert(field.to_owned(), value);
    body
}

fn decoded(body: &Value) -> Result<Reply, Box<Failure>> {
    decode_body(body.to_string().as_bytes()).0
}

fn shown(reply: &Reply) -> Vec<Block> {
    reply.message.content.iter().filter(|block| !matches!(block, Block::Opaque { .. })).cloned().collect()
}

fn everything_shown() -> Vec<Block> {
    vec![
        Block::Thinking { text: "hm\n\nah".to_owned(), signature: None },
        text_block("größe"),
        call("call_1", "{\"a\": 1}"),
        call("call_2", "{}"),
    ]
}

#[test]
fn a_whole_answer_is_read_with_its_usage() {
    let reply = decoded(&response("completed", &output())).unwrap();
    assert_eq!(shown(&reply), everything_shown());
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.input_cached, usage.input_cache_creation), (10, 4, 2));
    assert_eq!((usage.output, usage.reasoning), (7, 5));
    let text = decoded(&response("completed", &[message("ok")])).unwrap();
    assert_eq!((text.message.to_text().as_str(), text.finish), ("ok", FinishReason::Stop));
}

#[test]
fn reasoning_goes_back_in_its_place_and_as_it_came() {
    // "Reasoning models", "Encrypted reasoning items": with `store: false` the items are passed back with each request.
    let replies = [decoded(&response("completed", &output())).unwrap(), stream(&everything()).unwrap()];
    for reply in replies {
        let messages = vec![
            Message::text(Role::User, "hi"),
            reply.message,
            Message { role: Role::Tool, content: vec![result("call_1", "one"), result("call_2", "two")] },
        ];
        assert_eq!(
            body(reasoning_model(), messages, &[])["input"],
            json!([
                {"type": "message", "role": "user", "content": "hi"},
                reasoning(&json!("gAAAA")),
                {"type": "message", "role": "assistant", "content": "größe", "phase": "commentary"},
                {"type": "function_call", "call_id": "call_1", "name": "calc", "arguments": "{\"a\": 1}"},
                {"type": "function_call", "call_id": "call_2", "name": "calc", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "one"},
                {"type": "function_call_output", "call_id": "call_2", "output": "two"},
            ])
        );
    }
}

#[test]
fn reasoning_that_is_not_encrypted_is_not_sent_since_the_provider_has_not_stored_it() {
    for encrypted in [Value::Null, json!("")] {
        let reply = decoded(&response("completed", &[reasoning(&encrypted), message("ok")])).unwrap();
        let input = &body(reasoning_model(), vec![reply.message], &[])["input"];
        assert_eq!(input.as_array().unwrap().len(), 1, "{input}");
    }
}

#[test]
fn a_200_that_is_no_answer_is_a_failure_of_its_kind() {
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "I cannot"}]});
    let failed = |code: &str| with(response("failed", &[]), "error", json!({"code": code, "message": "no"}));
    for (body, expected) in [
        (json!({}), Anomaly::MalformedBody),
        (json!([]), Anomaly::MalformedBody),
        (json!({"error": {"message": "no"}}), Anomaly::Error),
        (json!({"type": "error", "code": "server_error", "message": "no"}), Anomaly::Error),
        (failed("server_error"), Anomaly::Error),
        (response("failed", &[]), Anomaly::Error),
        (response("in_progress", &[message("half")]), Anomaly::NoTerminalEvent),
        (response("queued", &[]), Anomaly::NoTerminalEvent),
        (response("cancelled", &[message("half")]), Anomaly::BrokenOff),
        (response("completed", &[]), Anomaly::Empty),
        (response("completed", &[reasoning(&json!("gAAAA"))]), Anomaly::Empty),
        (response("completed", &[refusal]), Anomaly::Refused),
        (incomplete("content_filter", &[message("half")]), Anomaly::Filtered),
        (incomplete("max_output_tokens", &[reasoning(&json!("gAAAA"))]), Anomaly::EmptyAtTokenLimit),
        (incomplete("surprise", &[message("half")]), Anomaly::UnknownEnd),
    ] {
        assert_eq!(decoded(&body).unwrap_err().anomaly, Some(expected), "{body}");
    }
    assert_eq!(decode_body(b"<html>").0.unwrap_err().anomaly, Some(Anomaly::MalformedBody));
    let cut = decoded(&incomplete("max_output_tokens", &[message("half")])).unwrap();
    assert_eq!(cut.finish, FinishReason::Length);
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn added(index: u64, item: &Value) -> String {
    event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
}

fn done(index: u64, item: &Value) -> String {
    event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))
}

fn delta(kind: &str, index: u64, delta: &str) -> String {
    event(
        &json!({"type": format!("response.{kind}.delta"), "item_id": "x", "output_index": index, "delta": delta}),
    )
}

fn completed(output: &[Value]) -> String {
    event(&json!({"type": "response.completed", "response": response("completed", output)}))
}

fn stream(parts: &[String]) -> Result<Reply, Box<Failure>> {
    streamed(Wire::OpenaiResponses, parts.iter().map(|part| part.as_bytes())).map(|(_, reply)| reply)
}

/// An answer as the guide "Streaming API responses" shows it, with its lifecycle.
pub(crate) fn everything() -> Vec<String> {
    let lifecycle = |kind: &str| event(&json!({"type": kind, "response": response("in_progress", &[])}));
    let summary = |kind: &str, part: u64| {
        event(&json!({"type": format!("response.reasoning_summary_part.{kind}"), "output_index": 0,
                      "summary_index": part, "part": {"type": "summary_text", "text": ""}}))
    };
    let part = |kind: &str| {
        event(&json!({"type": format!("response.content_part.{kind}"), "output_index": 1, "content_index": 0,
                      "part": {"type": "output_text", "text": "", "annotations": []}}))
    };
    vec![
        lifecycle("response.created"),
        lifecycle("response.in_progress"),
        added(0, &json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        summary("added", 0),
        delta("reasoning_summary_text", 0, "h"),
        delta("reasoning_summary_text", 0, "m"),
        summary("done", 0),
        summary("added", 1),
        delta("reasoning_summary_text", 0, "ah"),
        summary("done", 1),
        done(0, &reasoning(&json!("gAAAA"))),
        added(1, &json!({"type": "message", "id": "msg_1", "status": "in_progress", "content": []})),
        part("added"),
        delta("output_text", 1, "größ"),
        delta("output_text", 1, "e"),
        part("done"),
        done(1, &message("größe")),
        event(&json!({"type": "response.web_search_call.searching", "output_index": 2, "item_id": "ws_1"})),
        added(3, &function_call("1", "")),
        delta("function_call_arguments", 3, "{\"a\":"),
        delta("function_call_arguments", 3, " 1}"),
        event(
            &json!({"type": "response.function_call_arguments.done", "output_index": 3, "arguments": "{\"a\": 1}"}),
        ),
        done(3, &function_call("1", "{\"a\": 1}")),
        added(4, &function_call("2", "")),
        delta("function_call_arguments", 4, "{}"),
        done(4, &function_call("2", "{}")),
        completed(&output()),
    ]
}

#[test]
fn a_streamed_answer_is_put_together_in_the_order_of_its_items() {
    let reply = stream(&everything()).unwrap();
    assert_eq!(reply, decoded(&response("completed", &output())).unwrap());
    assert_eq!(shown(&reply), everything_shown());
}

#[test]
fn what_did_not_come_in_pieces_comes_with_the_item_or_with_the_end() {
    let whole = stream(&everything()).unwrap();
    let items = (0..).zip(output()).map(|(index, item)| done(index, &item));
    let parts: Vec<_> = items.chain([completed(&output())]).collect();
    assert_eq!(stream(&parts).unwrap(), whole);
    assert_eq!(stream(&[completed(&output())]).unwrap(), whole);
    let late = [added(0, &function_call("1", "")), done(0, &function_call("1", "{}")), completed(&[])];
    assert_eq!(stream(&late).unwrap().message.content, [call("call_1", "{}")]);
}

#[test]
fn arguments_of_which_a_piece_was_lost_are_no_call() {
    let parts = [
        added(0, &function_call("1", "")),
        delta("function_call_arguments", 0, "{\"path\": \"/tmp"),
        // Lost: "/x".
        delta("function_call_arguments", 0, "\"}"),
        done(0, &function_call("1", "{\"path\": \"/tmp/x\"}")),
        completed(&[]),
    ];
    assert_eq!(stream(&parts).unwrap_err().anomaly, Some(Anomaly::MalformedEvent));
}

fn arguments_done(index: u64, arguments: &str) -> String {
    event(
        &json!({"type": "response.function_call_arguments.done", "output_index": index, "arguments": arguments}),
    )
}

#[test]
fn a_call_of_which_events_were_lost_is_whole_or_none() {
    let whole = "{\"path\": \"/tmp/x\"}";
    let item = function_call("1", whole);
    let named = || added(0, &function_call("1", ""));
    let first = delta("function_call_arguments", 0, "{\"path\": ");
    let second = delta("function_call_arguments", 0, "\"/tmp/x\"}");
    let full = std::slice::from_ref(&item);
    for (parts, is_call) in [
        // The item's end is missing.
        (vec![named(), arguments_done(0, whole), completed(full)], true),
        (vec![named(), arguments_done(0, whole), completed(&[])], true),
        (vec![named(), first.clone(), second.clone(), completed(full)], true),
        (vec![named(), completed(full)], true),
        (vec![named(), completed(&[])], false),
        (vec![named(), first.clone(), second.clone(), completed(&[])], false),
        // A piece is missing.
        (vec![named(), first.clone(), arguments_done(0, whole), done(0, &item), completed(full)], false),
        (vec![named(), first.clone(), completed(full)], false),
        // Its name is missing.
        (vec![first.clone(), second.clone(), done(0, &item), completed(full)], true),
        (vec![first.clone(), second.clone(), arguments_done(0, whole), completed(full)], true),
        (vec![first.clone(), second.clone(), completed(full)], true),
        (vec![first.clone(), second.clone(), arguments_done(0, whole), completed(&[])], false),
        // The item counts otherwise in the whole answer.
        (
            vec![
                named(),
                first.clone(),
                second.clone(),
                done(0, &item),
                completed(&[reasoning(&json!("gAAAA")), item.clone()]),
            ],
            true,
        ),
    ] {
        match stream(&parts) {
            Ok(reply) => {
                assert!(is_call, "{parts:?}");
                let calls: Vec<_> = reply.message.tool_calls().cloned().map(Block::ToolCall).collect();
                assert_eq!(calls, [call("call_1", whole)], "{parts:?}");
                assert_eq!(reply.finish, FinishReason::ToolCalls);
            }
            Err(failure) => {
                assert!(!is_call, "{parts:?}");
                assert_eq!(failure.anomaly, Some(Anomaly::MalformedEvent), "{parts:?}");
            }
        }
    }
}

#[test]
fn an_item_that_never_came_comes_with_the_end_and_text_that_came_is_not_shown_again() {
    let text =
        [added(0, &json!({"type": "message"})), delta("output_text", 0, "ok"), done(0, &message("ok"))];
    let lost =
        stream(&[&text[..], &[completed(&[message("ok"), function_call("1", "{}")])]].concat()).unwrap();
    assert_eq!(shown(&lost), [text_block("ok"), call("call_1", "{}")]);
    // The whole answer counts the reasoning, and the events did not.
    let output = [reasoning(&json!("gAAAA")), message("ok"), function_call("1", "{}")];
    let counted = stream(&[&text[..], &[completed(&output)]].concat()).unwrap();
    assert_eq!(shown(&counted), [text_block("ok"), call("call_1", "{}")]);
}

#[test]
fn every_beginning_of_a_stream_is_a_failure_unless_the_terminal_event_is_in_it() {
    let parts = everything();
    for length in 0..parts.len() {
        let failure = stream(&parts[..length]).unwrap_err();
        assert_eq!(failure.anomaly, Some(Anomaly::NoTerminalEvent), "{length}");
    }
    let done = [everything()[..parts.len() - 1].concat(), "data: [DONE]\n\n".to_owned()];
    assert_eq!(stream(&done).unwrap_err().anomaly, Some(Anomaly::NoTerminalEvent));
    assert!(stream(&[parts.concat(), "data: [DONE]\n\n".to_owned()]).is_ok());
}

#[test]
fn events_about_the_life_of_a_response_are_no_progress() {
    let mut decoder = Wire::OpenaiResponses.decoder(Quirks::default());
    let mut events = Vec::new();
    for part in &everything()[..4] {
        decoder.push(part.as_bytes(), &mut events).unwrap();
    }
    assert_eq!(events, []);
}

#[test]
fn an_answer_that_is_not_completed_says_why() {
    let half = || vec![added(0, &json!({"type": "message"})), delta("output_text", 0, "half")];
    let end = |response: Value| event(&json!({"type": "response.incomplete", "response": response}));
    for (reason, anomaly) in [("content_filter", Anomaly::Filtered), ("surprise", Anomaly::UnknownEnd)] {
        let parts = [half(), vec![end(incomplete(reason, &[]))]].concat();
        assert_eq!(stream(&parts).unwrap_err().anomaly, Some(anomaly), "{reason}");
    }
    let cut = stream(&[half(), vec![end(incomplete("max_output_tokens", &[]))]].concat()).unwrap();
    assert_eq!((cut.finish, cut.usage.unwrap().output), (FinishReason::Length, 7));
    let thoughts = [done(0, &reasoning(&json!("gAAAA"))), end(incomplete("max_output_tokens", &[]))];
    assert_eq!(stream(&thoughts).unwrap_err().anomaly, Some(Anomaly::EmptyAtTokenLimit));
    assert_eq!(stream(&[completed(&[])]).unwrap_err().anomaly, Some(Anomaly::Empty));
    let refusal = [added(0, &json!({"type": "message"})), delta("refusal", 0, "I cannot"), completed(&[])];
    assert_eq!(stream(&refusal).unwrap_err().anomaly, Some(Anomaly::Refused));
}

#[test]
fn an_error_in_the_stream_is_what_it_says_in_each_of_its_forms() {
    for (code, reason, retryable) in [
        ("server_error", Reason::ServerError, true),
        ("rate_limit_exceeded", Reason::RateLimit, true),
        ("context_length_exceeded", Reason::ContextOverflow, false),
        ("insufficient_quota", Reason::QuotaExhausted, false),
    ] {
        let failed = with(response("failed", &[]), "error", json!({"code": code, "message": "no"}));
        for error in [
            json!({"type": "response.failed", "response": failed}),
            json!({"type": "error", "code": code, "message": "no", "param": null, "sequence_number": 1}),
            json!({"type": "error", "error": {"type": "x", "code": code, "message": "no"}}),
        ] {
            for before in [vec![], everything()[..14].to_vec()] {
                let failure = stream(&[before, vec![event(&error)]].concat()).unwrap_err();
                assert_eq!(failure.provider_error.message.as_deref(), Some("no"), "{error}");
                let verdict = classify(&failure);
                assert_eq!((verdict.reason, verdict.retryable), (reason, retryable), "{error}");
            }
        }
    }
    let broken = [everything()[..14].concat(), "data: {\"type\": \"response.outp\n\n".to_owned()];
    assert_eq!(stream(&broken).unwrap_err().anomaly, Some(Anomaly::MalformedEvent));
}
