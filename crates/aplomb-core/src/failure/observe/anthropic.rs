//! Anthropic's Messages. Source: Anthropic API reference, "Messages" (`stop_reason`) and "Streaming messages".

use serde_json::Value;

use super::Reader;
use super::progress::{End, Progress};

pub(super) const READER: Reader = Reader { wire: "anthropic", whole, event };

fn whole(body: &Value, progress: &mut Progress) -> bool {
    let Some(blocks) = body.get("content").and_then(Value::as_array) else { return false };
    for (block, index) in blocks.iter().zip(0u64..) {
        take_block(block, index, progress);
    }
    progress.end = body.get("stop_reason").and_then(Value::as_str).map(end);
    true
}

fn event(_: &str, event: &Value, progress: &mut Progress) -> bool {
    let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
    match event.get("type").and_then(Value::as_str) {
        Some("message_start") => progress.has_begun = true,
        Some("content_block_start") => {
            progress.has_begun = true;
            take_block(event.get("content_block").unwrap_or(&Value::Null), index, progress);
        }
        Some("content_block_delta") => {
            let delta =
                |key: &str| event.get("delta").and_then(|delta| delta.get(key)).and_then(Value::as_str);
            progress.text(delta("text"));
            if let Some(fragment) = delta("partial_json") {
                progress.arguments.entry(index).or_default().push_str(fragment);
            }
        }
        Some("message_delta") => {
            let reason =
                event.get("delta").and_then(|delta| delta.get("stop_reason")).and_then(Value::as_str);
            progress.end = reason.map(end).or(progress.end);
        }
        Some("message_stop") => {
            progress.is_done = true;
            progress.end = progress.end.or(Some(End::Regular));
        }
        Some("ping" | "content_block_stop") => {}
        _ => return false,
    }
    true
}

fn take_block(block: &Value, index: u64, progress: &mut Progress) {
    match block.get("type").and_then(Value::as_str) {
        Some("text") => progress.text(block.get("text").and_then(Value::as_str)),
        Some("tool_use") => {
            progress.arguments.entry(index).or_default();
        }
        Some("thinking" | "redacted_thinking") | None => {}
        Some(_) => progress.has_content = true,
    }
}

fn end(word: &str) -> End {
    match word {
        "end_turn" | "stop_sequence" | "pause_turn" => End::Regular,
        "tool_use" => End::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => End::TokenLimit,
        "refusal" => End::Filtered,
        _ => End::Unknown,
    }
}
