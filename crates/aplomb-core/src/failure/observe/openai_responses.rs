//! OpenAI's Responses. Source: OpenAI API reference, "The response object" and "Streaming events".

use serde_json::Value;

use super::Reader;
use super::progress::{End, Progress};

pub(super) const READER: Reader = Reader { wire: "openai-responses", whole, event };

fn whole(body: &Value, progress: &mut Progress) -> bool {
    let is_answer = body.get("object").and_then(Value::as_str) == Some("response")
        || body.get("output").is_some_and(Value::is_array);
    if is_answer {
        response(body, progress);
    }
    is_answer
}

fn event(_: &str, event: &Value, progress: &mut Progress) -> bool {
    let Some(kind) = event.get("type").and_then(Value::as_str).filter(|kind| kind.starts_with("response."))
    else {
        return false;
    };
    progress.has_begun = true;
    match kind {
        "response.output_text.delta" => progress.text(event.get("delta").and_then(Value::as_str)),
        "response.refusal.delta" | "response.refusal.done" => progress.is_refusal = true,
        "response.completed" | "response.incomplete" | "response.done" => {
            response(event.get("response").unwrap_or(&Value::Null), progress);
        }
        "response.cancelled" => progress.end = Some(End::BrokenOff),
        _ => {}
    }
    true
}

fn response(response: &Value, progress: &mut Progress) {
    let items = response.get("output").and_then(Value::as_array);
    for (item, index) in items.into_iter().flatten().zip(0u64..) {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    progress.text(part.get("text").and_then(Value::as_str));
                    progress.is_refusal |= part.get("type").and_then(Value::as_str) == Some("refusal");
                }
            }
            Some("function_call" | "custom_tool_call") => {
                let arguments = item.get("arguments").and_then(Value::as_str).unwrap_or_default();
                progress.arguments.insert(index, arguments.to_owned());
            }
            // Thoughts are no answer. The provider's own tools have done something.
            Some("reasoning") | None => {}
            Some(_) => progress.has_content = true,
        }
    }
    let why =
        response.get("incomplete_details").and_then(|details| details.get("reason")).and_then(Value::as_str);
    progress.end = match (response.get("status").and_then(Value::as_str), why) {
        (_, Some("max_output_tokens")) => Some(End::TokenLimit),
        (_, Some("content_filter")) => Some(End::Filtered),
        (Some("incomplete"), _) => Some(End::Unknown),
        (Some("completed"), _) => Some(End::Regular),
        (Some("cancelled"), _) => Some(End::BrokenOff),
        _ => None,
    };
}
