//! The Chat Completions codec against OpenAI's API reference.

use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, classify};
use aplomb_core::message::{
    Block, FinishReason, ImageSource, Message, Reply, Role, TokenUsage, ToolCall, ToolResult,
};
use aplomb_core::tool::ToolSpec;
use aplomb_llm::wire::openai_chat::{decode_body, request_body};
use aplomb_llm::wire::{AnswerLimit, Parameters, Wire};
use serde_json::{Value, json};

use crate::splits::streamed;

fn body(stream: bool, messages: Vec<Message>, tools: &[ToolSpec]) -> Value {
    let parameters = Parameters {
        model: "gpt-4o",
        stream,
        temperature: Some(0.5),
        max_tokens: Some(100),
        ..Parameters::default()
    };
    let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
    serde_json::from_slice(&request_body(parameters, &messages, tools).unwrap()).unwrap()
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.to_owned(), name: "calc".to_owned(), arguments: arguments.to_owned() })
}

fn result(id: &str, text: &str) -> Block {
    let (call_id, text) = (id.to_owned(), text.to_owned());
    Block::ToolResult(ToolResult { call_id, name: "calc".to_owned(), text, is_error: false })
}

#[test]
fn a_conversation_is_written_as_the_reference_has_it() {
    let messages = vec![
        Message::text(Role::System, "be brief"),
        Message::text(Role::User, "hi"),
        Message {
            role: Role::Assistant,
            content: vec![
                Block::Thinking { text: "hm".to_owned(), signature: None },
                call("call_1", "{\"a\":1}"),
                call("call_2", "{}"),
            ],
        },
        Message { role: Role::Tool, content: vec![result("call_1", "one"), result("call_2", "two")] },
    ];
    let parameters = json!({"type": "object"});
    let tool = ToolSpec {
        id: "calc".to_owned(),
        description: "adds".to_owned(),
        parameters: parameters.clone(),
        idempotent: true,
    };
    let wire_call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "calc", "arguments": arguments}});
    assert_eq!(
        body(true, messages, &[tool]),
        json!({
            "model": "gpt-4o",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null,
                 "tool_calls": [wire_call("call_1", "{\"a\":1}"), wire_call("call_2", "{}")]},
                {"role": "tool", "tool_call_id": "call_1", "content": "one"},
                {"role": "tool", "tool_call_id": "call_2", "content": "two"},
            ],
            "tools": [{"type": "function",
                       "function": {"name": "calc", "description": "adds", "parameters": parameters}}],
            "temperature": 0.5,
            "max_tokens": 100,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[test]
fn a_model_that_reasons_is_sent_its_limit_by_the_name_that_the_vendor_knows_and_no_temperature() {
    for (reasons, answer_limit, named) in [
        (false, AnswerLimit::ByModel, "max_tokens"),
        (true, AnswerLimit::ByModel, "max_completion_tokens"),
        (true, AnswerLimit::MaxTokens, "max_tokens"),
        (false, AnswerLimit::MaxCompletionTokens, "max_completion_tokens"),
    ] {
        let mut parameters =
            Parameters { temperature: Some(0.5), max_tokens: Some(100), reasons, ..Parameters::default() };
        parameters.quirks.answer_limit = answer_limit;
        let body: Value = serde_json::from_slice(&request_body(parameters, &[], &[]).unwrap()).unwrap();
        assert_eq!(
            (&body[named], body.get("temperature").is_none()),
            (&json!(100), reasons),
            "{answer_limit:?}"
        );
        assert_eq!(body.to_string().matches("_tokens").count(), 1);
    }
}

#[test]
fn a_vendor_is_sent_what_it_wants_back_and_not_what_it_refuses() {
    let mut parameters = Parameters { stream: true, ..Parameters::default() };
    parameters.quirks.reasoning_goes_back = true;
    parameters.quirks.usage_comes_unasked = true;
    let thought = Block::Thinking { text: "hm".to_owned(), signature: None };
    let messages = [
        Message { role: Role::Assistant, content: vec![thought, call("call_1", "{}")] },
        Message { role: Role::Assistant, content: vec![call("call_2", "{}")] },
    ]
    .map(Arc::new);
    let body: Value = serde_json::from_slice(&request_body(parameters, &messages, &[]).unwrap()).unwrap();
    assert_eq!(body["messages"][0]["reasoning_content"], "hm");
    // Where there were no thoughts the field is there all the same: a call without it is refused.
    assert_eq!(body["messages"][1]["reasoning_content"], "");
    assert_eq!(body.get("stream_options"), None);
}

#[test]
fn images_go_as_parts_and_what_is_not_asked_for_is_not_there() {
    let picture = |source| Block::Image { source };
    let content = vec![
        Block::Text { text: "what is this?".to_owned() },
        picture(ImageSource::Url { url: "https://host/a.png".to_owned() }),
        picture(ImageSource::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() }),
    ];
    let body = body(false, vec![Message { role: Role::User, content }], &[]);
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "https://host/a.png"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ])
    );
    for absent in ["tools", "stream", "stream_options"] {
        assert!(body.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn arguments_that_are_no_json_do_not_spoil_the_history() {
    let assistant = Message { role: Role::Assistant, content: vec![call("call_1", "{\"a\":")] };
    let body = body(false, vec![assistant], &[]);
    assert_eq!(body["messages"][0]["tool_calls"][0]["function"]["arguments"], "{}");
}

fn completion(message: &Value, finish: Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                  "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                  "completion_tokens_details": {"reasoning_tokens": 3}},
    })
}

fn decoded(body: &Value) -> Result<Reply, Box<Failure>> {
    decode_body(body.to_string().as_bytes()).0
}

#[test]
fn a_whole_answer_is_read_with_its_usage() {
    let call =
        json!({"id": "call_1", "type": "function", "function": {"name": "calc", "arguments": "{\"a\":1}"}});
    let message =
        json!({"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [call]});
    let reply = decoded(&completion(&message, json!("tool_calls"))).unwrap();
    assert_eq!(
        reply.message.content,
        [
            Block::Thinking { text: "hm".to_owned(), signature: None },
            Block::Text { text: "ok".to_owned() },
            self::call("call_1", "{\"a\":1}"),
        ]
    );
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.input_cached, usage.reasoning), (10, 5, 4, 3));
    assert_eq!(usage.input_cache_creation, 3);
}

#[test]
fn what_vendors_do_to_the_shape_is_read_all_the_same() {
    let parts = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    assert_eq!(decoded(&completion(&parts, json!("stop"))).unwrap().message.to_text(), "ab");
    // OpenRouter sends both names for the thoughts.
    let both = json!({"content": "a", "reasoning": "hm", "reasoning_content": "hm"});
    assert_eq!(decoded(&completion(&both, json!("stop"))).unwrap().message.to_text(), "a");
    let object = json!({"tool_calls": [{"id": "c", "function": {"name": "calc", "arguments": {"a": 1}}}]});
    let reply = decoded(&completion(&object, json!("tool_calls"))).unwrap();
    assert_eq!(reply.message.tool_calls().next().unwrap().arguments, "{\"a\":1}");
    let null_error =
        json!({"error": null, "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]});
    assert!(decoded(&null_error).is_ok());
}

#[test]
fn a_200_that_is_no_answer_is_a_failure_of_its_kind() {
    let message = |content: Value| json!({"role": "assistant", "content": content});
    for (body, expected) in [
        (json!({"error": {"message": "no"}}), Anomaly::Error),
        (json!({"error": "no"}), Anomaly::Error),
        (json!({}), Anomaly::MalformedBody),
        (json!([]), Anomaly::MalformedBody),
        (json!({"choices": null}), Anomaly::MalformedBody),
        (json!({"choices": [{}]}), Anomaly::MalformedBody),
        (json!({"choices": []}), Anomaly::Empty),
        (completion(&message(json!("")), json!("stop")), Anomaly::Empty),
        (completion(&message(json!(" \n")), json!("stop")), Anomaly::Empty),
        (completion(&message(Value::Null), json!("length")), Anomaly::EmptyAtTokenLimit),
        (completion(&message(json!("a")), json!("content_filter")), Anomaly::Filtered),
        (completion(&message(json!("a")), Value::Null), Anomaly::NoTerminalEvent),
        (completion(&json!({"refusal": "I cannot"}), json!("stop")), Anomaly::Refused),
    ] {
        assert_eq!(decoded(&body).unwrap_err().anomaly, Some(expected), "{body}");
    }
    assert_eq!(decode_body(b"<html>").0.unwrap_err().anomaly, Some(Anomaly::MalformedBody));
    assert_eq!(decode_body(b"").0.unwrap_err().anomaly, Some(Anomaly::MalformedBody));
}

#[test]
fn only_a_finish_reason_that_is_known_to_be_a_good_one_makes_a_success() {
    let whole = |word: &str| decoded(&completion(&json!({"content": "half an ans"}), json!(word)));
    let text = delta(&json!({"content": "half an ans"}));
    let in_pieces = |word: &str| stream(&[&text, &finish(word), DONE]);
    for word in ["stop", "eos", "end_turn", "length"] {
        assert!(whole(word).is_ok() && in_pieces(word).is_ok(), "{word}");
    }
    for (word, anomaly, retryable) in [
        ("insufficient_system_resource", Anomaly::BrokenOff, true),
        ("error", Anomaly::BrokenOff, true),
        ("surprise", Anomaly::UnknownEnd, false),
        // The model waits for the results of calls that are not there.
        ("tool_calls", Anomaly::Empty, true),
        // These say that it has not ended.
        ("", Anomaly::NoTerminalEvent, true),
        ("null", Anomaly::NoTerminalEvent, true),
    ] {
        for failure in [whole(word).unwrap_err(), in_pieces(word).unwrap_err()] {
            assert_eq!(
                (failure.anomaly, classify(&failure).retryable),
                (Some(anomaly), retryable),
                "{word:?}"
            );
        }
    }
}

#[test]
fn what_a_failed_answer_used_is_known() {
    let (reply, usage) =
        decode_body(completion(&json!({"content": ""}), json!("stop")).to_string().as_bytes());
    assert!(reply.is_err());
    assert_eq!(usage.unwrap().input, 10);
}

fn event(choice: &Value) -> String {
    format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}))
}

fn delta(delta: &Value) -> String {
    event(&json!({"index": 0, "delta": delta, "finish_reason": null}))
}

fn finish(word: &str) -> String {
    event(&json!({"index": 0, "delta": {}, "finish_reason": word}))
}

fn fragment(index: u64, id: Option<&str>, arguments: &str) -> String {
    let name = id.map(|_| "calc");
    delta(
        &json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
    )
}

const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn stream(parts: &[&str]) -> Result<Reply, Box<Failure>> {
    streamed(Wire::OpenaiChat, parts.iter().map(|part| part.as_bytes())).map(|(_, reply)| reply)
}

#[test]
fn a_streamed_answer_is_put_together_with_its_usage() {
    let (hello, world) = (delta(&json!({"content": "hel"})), delta(&json!({"content": "lo"})));
    let role = delta(&json!({"role": "assistant", "content": ""}));
    let reply = stream(&[&role, &hello, ": keep-alive\n\n", &world, &finish("stop"), USAGE, DONE]).unwrap();
    assert_eq!((reply.message.to_text().as_str(), reply.finish), ("hello", FinishReason::Stop));
    assert_eq!(reply.usage.unwrap().input, 3);
}

#[test]
fn parallel_tool_calls_in_fragments_are_put_together_each_by_its_index() {
    let reply = stream(&[
        &fragment(0, Some("call_a"), ""),
        &fragment(1, Some("call_b"), "{\"b\""),
        &fragment(0, None, "{\"a\":"),
        &fragment(1, None, ":2}"),
        &fragment(0, None, "1}"),
        &finish("tool_calls"),
        DONE,
    ])
    .unwrap();
    assert_eq!(reply.message.content, [call("call_a", "{\"a\":1}"), call("call_b", "{\"b\":2}")]);
}

#[test]
fn calls_that_share_an_index_or_have_none_are_told_apart_by_their_ids() {
    let of = |index: Value, id: &str, arguments: &str| {
        delta(
            &json!({"tool_calls": [{"index": index, "id": id, "function": {"name": "calc", "arguments": arguments}}]}),
        )
    };
    for index in [json!(0), Value::Null] {
        let parts = [
            of(index.clone(), "call_a", "{\"a\":"),
            of(index.clone(), "", "1}"),
            of(index.clone(), "call_b", "{}"),
            finish("tool_calls"),
        ];
        let reply = stream(&parts.each_ref().map(String::as_str)).unwrap();
        assert_eq!(reply.message.content, [call("call_a", "{\"a\":1}"), call("call_b", "{}")], "{index}");
    }
}

#[test]
fn what_follows_a_whole_answer_takes_it_back_only_by_saying_so() {
    let text = delta(&json!({"content": "ok"}));
    assert!(stream(&[&text, &finish("stop"), "data: oops\n\n", DONE]).is_ok());
    let error = "data: {\"error\":{\"message\":\"no\"}}\n\n";
    assert!(stream(&[&text, &finish("stop"), error]).is_err());
}

/// The usage of an answer that comes whole, and of one that is streamed.
fn usages(usage: &Value) -> [TokenUsage; 2] {
    let mut body = completion(&json!({"content": "ok"}), json!("stop"));
    *body.get_mut("usage").unwrap() = usage.clone();
    let event = format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
    let reply = stream(&[&delta(&json!({"content": "ok"})), &finish("stop"), &event, DONE]).unwrap();
    [decoded(&body).unwrap().usage.unwrap(), reply.usage.unwrap()]
}

/// Source of the first: <https://github.com/vercel/ai/pull/12425>, which gives what grok-3-mini counts; the prompt is what is
/// left of its total. OpenAI's API reference has thoughts within `completion_tokens`.
#[test]
fn thoughts_are_output_whether_they_are_counted_with_it_or_apart() {
    for (prompt, completion, reasoning, total, output) in [
        (12, 1, json!(386), json!(399), 387),
        (12, 387, json!(386), json!(399), 387),
        (12, 1, json!(0), json!(13), 1),
        // Nobody says which it is.
        (12, 1, json!(386), Value::Null, 1),
        (12, 1, Value::Null, json!(399), 1),
    ] {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total,
            "completion_tokens_details": {"reasoning_tokens": reasoning}});
        for read in usages(&usage) {
            assert_eq!((read.input, read.output), (prompt, output), "{usage}");
            assert_eq!(read.reasoning, reasoning.as_u64().unwrap_or_default(), "{usage}");
        }
    }
}

/// Source: DeepSeek's guide "Context Caching", <https://api-docs.deepseek.com/guides/kv_cache>.
#[test]
fn what_deepseek_has_read_from_its_cache_is_known_by_its_own_name() {
    let counts = json!({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
        "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36});
    let mut both = counts.clone();
    both["prompt_tokens_details"] = json!({"cached_tokens": 63});
    let mut without = counts.clone();
    without["prompt_tokens_details"] = json!({"cached_tokens": null});
    for (usage, cached) in [(counts, 64), (both, 63), (without, 64)] {
        for read in usages(&usage) {
            assert_eq!((read.input, read.input_cached), (100, cached), "{usage}");
        }
    }
}

#[test]
fn an_odd_count_spoils_no_answer() {
    for (usage, input) in [
        (json!({"prompt_tokens": 1.0, "completion_tokens": -1}), Some(1)),
        (json!({"prompt_tokens": "many"}), Some(0)),
        (json!("none"), None),
    ] {
        let mut body = completion(&json!({"content": "ok"}), json!("stop"));
        body["usage"] = usage.clone();
        assert_eq!(decoded(&body).unwrap().usage.map(|usage| usage.input), input, "{usage}");
        let event = format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
        let text = delta(&json!({"content": "ok"}));
        assert!(stream(&[&text, &finish("stop"), &event]).is_ok());
    }
}

#[test]
fn a_stream_without_its_terminal_event_is_a_failure_whatever_else_it_says() {
    let text = delta(&json!({"content": "half an ans"}));
    for (parts, expected) in [
        (vec![], Anomaly::NoTerminalEvent),
        (vec![": ping\n\n"], Anomaly::NoTerminalEvent),
        (vec![&*text], Anomaly::NoTerminalEvent),
        (vec![&*text, DONE], Anomaly::NoTerminalEvent),
        (vec![DONE], Anomaly::Empty),
    ] {
        assert_eq!(stream(&parts).unwrap_err().anomaly, Some(expected), "{parts:?}");
    }
    // Two choices, and only one of them has ended.
    let second = event(&json!({"index": 1, "delta": {"content": "b"}, "finish_reason": null}));
    assert_eq!(
        stream(&[&text, &second, &finish("stop"), DONE]).unwrap_err().anomaly,
        Some(Anomaly::NoTerminalEvent)
    );
}

#[test]
fn a_vendor_that_sends_no_done_has_ended_with_its_finish_reason() {
    let text = delta(&json!({"content": "ok"}));
    let reply = stream(&[&text, &finish("stop"), USAGE]).unwrap();
    assert_eq!((reply.message.to_text().as_str(), reply.usage.unwrap().input), ("ok", 3));
}

#[test]
fn a_finish_reason_that_is_not_the_last_ends_nothing() {
    let said = |text: &str, word: Value| {
        event(&json!({"index": 0, "delta": {"content": text}, "finish_reason": word}))
    };
    let (one, two) = (said("one", json!("stop")), said(" two", json!("stop")));
    let unfinished = said(" two", Value::Null);
    for (parts, text) in [
        (vec![&*one, &*two, DONE], Some("one two")),
        (vec![&*one, &*two], Some("one two")),
        (vec![&*one, &*unfinished, DONE], None),
        (vec![&*one, &*unfinished], None),
        // Nothing is in it.
        (vec![&*one, &*said("", Value::Null)], Some("one")),
    ] {
        let reply = stream(&parts);
        assert_eq!(reply.as_ref().ok().map(|reply| reply.message.to_text()).as_deref(), text, "{parts:?}");
        if let Err(failure) = reply {
            assert_eq!(failure.anomaly, Some(Anomaly::NoTerminalEvent));
        }
    }
    // After such an answer a broken event may be a part of it.
    assert!(stream(&[&one, "data: {\"choi\n\n", DONE]).is_ok());
    assert_eq!(
        stream(&[&one, &two, "data: {\"choi\n\n", DONE]).unwrap_err().anomaly,
        Some(Anomaly::MalformedEvent)
    );
}

#[test]
fn an_error_in_a_stream_is_a_failure_wherever_it_comes() {
    let text = delta(&json!({"content": "half"}));
    let error = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n";
    for parts in [vec![error], vec![&*text, error], vec![&*text, &finish("stop"), error]] {
        let failure = stream(&parts).unwrap_err();
        assert_eq!(failure.anomaly, Some(Anomaly::Error));
        assert_eq!(failure.provider_error.message.as_deref(), Some("overloaded"));
    }
    for empty in ["event: error\n\n", "event: error\ndata:\n\n", "data: {\"error\":{}}\n\n"] {
        let failure = stream(&[empty]).unwrap_err();
        assert!(failure.anomaly == Some(Anomaly::Error) && failure.is_wordless(), "{empty}");
    }
    assert_eq!(
        stream(&["data: {\"choices\":[{\"del\n\n"]).unwrap_err().anomaly,
        Some(Anomaly::MalformedEvent)
    );
}

#[test]
fn an_answer_that_ended_with_nothing_in_it_is_empty() {
    assert_eq!(stream(&[&finish("stop"), DONE]).unwrap_err().anomaly, Some(Anomaly::Empty));
    assert_eq!(stream(&[&finish("length"), DONE]).unwrap_err().anomaly, Some(Anomaly::EmptyAtTokenLimit));
    let refusal = delta(&json!({"refusal": "I cannot"}));
    assert_eq!(stream(&[&refusal, &finish("stop"), DONE]).unwrap_err().anomaly, Some(Anomaly::Refused));
}

/// An answer in every way that servers write event streams.
pub(crate) fn everything() -> Vec<String> {
    vec![
        delta(&json!({"content": "größer "})),
        delta(&json!({"content": "😀 ok"})).replace('\n', "\r\n"),
        fragment(0, Some("call_a"), "{\"a\":"),
        ": ping\r\r".to_owned(),
        fragment(0, None, "1}"),
        finish("tool_calls"),
        USAGE.to_owned(),
        DONE.to_owned(),
    ]
}
