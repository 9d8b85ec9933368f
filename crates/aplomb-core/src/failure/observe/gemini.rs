//! Gemini's generateContent. Source: Gemini API reference, "GenerateContentResponse" (`FinishReason`, `BlockReason`).

use serde_json::Value;

use super::Reader;
use super::progress::{End, Progress};

pub(super) const READER: Reader = Reader { wire: "gemini", whole, event };

fn whole(body: &Value, progress: &mut Progress) -> bool {
    event("", body, progress)
}

fn event(_: &str, chunk: &Value, progress: &mut Progress) -> bool {
    // Code Assist wraps the answer.
    let chunk = chunk.get("response").unwrap_or(chunk);
    if chunk.get("promptFeedback").is_some_and(|feedback| feedback.get("blockReason").is_some()) {
        progress.end = Some(End::Filtered);
        return true;
    }
    let Some(candidates) = chunk.get("candidates").and_then(Value::as_array) else {
        // An answer without candidates, and nothing that says why.
        return chunk.get("usageMetadata").is_some() || chunk.get("modelVersion").is_some();
    };
    let Some(candidate) = candidates.first() else { return true };
    progress.has_begun = true;
    let parts = candidate.get("content").and_then(|content| content.get("parts")).and_then(Value::as_array);
    for (part, index) in parts.into_iter().flatten().zip(0u64..) {
        let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        if !is_thought {
            progress.text(part.get("text").and_then(Value::as_str));
        }
        if part.get("functionCall").is_some() {
            progress.arguments.entry(index).or_default();
        }
        progress.has_content |= part.get("inlineData").is_some() || part.get("executableCode").is_some();
    }
    if let Some(word) = candidate.get("finishReason").and_then(Value::as_str) {
        progress.end = Some(end(word));
    }
    true
}

fn end(word: &str) -> End {
    match word {
        "STOP" => End::Regular,
        "MAX_TOKENS" => End::TokenLimit,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => End::Filtered,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE"
        | "NO_IMAGE"
        | "IMAGE_OTHER" => End::MalformedCall,
        // "Unknown reason", by the reference: with an answer it may be whole, without one it is empty.
        "OTHER" | "FINISH_REASON_UNSPECIFIED" => End::Regular,
        _ => End::Unknown,
    }
}
