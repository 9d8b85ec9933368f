//! Bedrock's Converse. Source: AWS, "Converse" and "ConverseStream" API reference (`stopReason`).

use serde_json::Value;

use super::progress::{End, Progress};
use super::{Reader, anthropic};

pub(super) const READER: Reader = Reader { wire: "bedrock", whole, event };

fn whole(body: &Value, progress: &mut Progress) -> bool {
    let Some(message) = body.get("output").and_then(|output| output.get("message")) else {
        // InvokeModel gives the model's own answer, which is most often Anthropic's.
        return (anthropic::READER.whole)(body, progress);
    };
    for (block, index) in message.get("content").and_then(Value::as_array).into_iter().flatten().zip(0u64..) {
        progress.text(block.get("text").and_then(Value::as_str));
        if block.get("toolUse").is_some() {
            progress.arguments.entry(index).or_default();
        }
    }
    progress.end = body.get("stopReason").and_then(Value::as_str).map(end);
    true
}

fn event(kind: &str, event: &Value, progress: &mut Progress) -> bool {
    let is_known = match kind {
        "messageStart" | "contentBlockStart" | "contentBlockDelta" | "contentBlockStop" | "messageStop"
        | "metadata" | "chunk" => true,
        _ => event.get("messageStop").or_else(|| event.get("contentBlockDelta")).is_some(),
    };
    let inner = |name: &str| event.get(name).unwrap_or(event);
    progress.has_begun |= is_known;
    let index = event.get("contentBlockIndex").and_then(Value::as_u64).unwrap_or_default();
    if let Some(delta) = inner("contentBlockDelta").get("delta") {
        progress.text(delta.get("text").and_then(Value::as_str));
        if let Some(fragment) =
            delta.get("toolUse").and_then(|call| call.get("input")).and_then(Value::as_str)
        {
            progress.arguments.entry(index).or_default().push_str(fragment);
        }
    }
    if let Some(word) = inner("messageStop").get("stopReason").and_then(Value::as_str) {
        progress.end = Some(end(word));
    }
    is_known
}

fn end(word: &str) -> End {
    match word {
        "end_turn" | "stop_sequence" => End::Regular,
        "tool_use" => End::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => End::TokenLimit,
        "guardrail_intervened" | "content_filtered" | "refusal" => End::Filtered,
        "malformed_tool_use" | "malformed_model_output" => End::MalformedCall,
        _ => End::Unknown,
    }
}
