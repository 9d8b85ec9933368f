//! OpenAI's Chat Completions. Source: OpenAI API reference, "The chat completion object" and "… chunk object".

use serde_json::Value;

use super::Reader;
use super::progress::{End, Progress};

pub(super) const READER: Reader = Reader { wire: "openai-chat", whole, event };

fn whole(body: &Value, progress: &mut Progress) -> bool {
    event("", body, progress)
}

fn event(_: &str, chunk: &Value, progress: &mut Progress) -> bool {
    let Some(choices) = chunk.get("choices").and_then(Value::as_array) else { return false };
    // One answer was asked for.
    let Some(choice) = choices.first() else { return true };
    progress.has_begun = true;
    if let Some(message) = choice.get("message").or_else(|| choice.get("delta")) {
        let text = |key: &str| message.get(key).and_then(Value::as_str);
        progress.text(text("content"));
        for part in message.get("content").and_then(Value::as_array).into_iter().flatten() {
            progress.text(part.get("text").and_then(Value::as_str));
        }
        progress.is_refusal |= text("refusal").is_some_and(|refusal| !refusal.is_empty());
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for (call, position) in calls.into_iter().flatten().zip(0u64..) {
            let index = call.get("index").and_then(Value::as_u64).unwrap_or(position);
            let written = progress.arguments.entry(index).or_default();
            let arguments = call.get("function").and_then(|function| function.get("arguments"));
            written.push_str(arguments.and_then(Value::as_str).unwrap_or_default());
        }
    }
    progress.text(choice.get("text").and_then(Value::as_str));
    if let Some(end) = choice.get("finish_reason").and_then(Value::as_str).and_then(end) {
        progress.end = Some(end);
    }
    true
}

fn end(word: &str) -> Option<End> {
    Some(match word {
        "" | "null" => return None,
        // The others are what vLLM, TGI and gateways to other protocols say.
        "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" | "complete" | "STOP" => End::Regular,
        "tool_calls" | "function_call" | "tool_use" => End::ToolCalls,
        "length" | "max_tokens" | "model_length" | "MAX_TOKENS" => End::TokenLimit,
        // Z.AI's word for its filter is `sensitive`.
        "content_filter" | "safety" | "SAFETY" | "sensitive" | "refusal" => End::Filtered,
        // DeepSeek (API reference, `finish_reason`), OpenRouter, vLLM, Z.AI.
        "insufficient_system_resource" | "error" | "abort" | "network_error" => End::BrokenOff,
        "malformed_function_call" | "MALFORMED_FUNCTION_CALL" => End::MalformedCall,
        _ => End::Unknown,
    })
}
