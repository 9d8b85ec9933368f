//! Anthropic's Messages.
//!
//! Source: Claude Platform Docs, "Messages" (API reference) and "Streaming messages".

mod request;
mod response;
mod stream;

use aplomb_core::message::{FinishReason, TokenUsage};
use serde_json::Value;

pub use request::request_body;
pub use response::decode_body;
pub use stream::{Decoder, Messages};

/// The path below the API's base.
pub const PATH: &str = "/messages";

/// The version of the API that this is written for.
pub const VERSION: &str = "2023-06-01";

/// What a stop reason says. An absent one says that the answer has not ended.
///
/// Source: "Handling stop reasons".
fn finish_reason(word: Option<&str>) -> Option<FinishReason> {
    Some(match word.filter(|word| !word.is_empty())? {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_owned()),
    })
}

/// What was used, added to what is known. Anthropic counts what was read from and written to the cache apart from the
/// input; here the input is all that was sent.
fn add_usage(known: &mut TokenUsage, usage: &Value) {
    let count = |field: &str| usage.get(field).and_then(Value::as_u64);
    if let Some(cached) = count("cache_read_input_tokens") {
        known.input_cached = cached;
    }
    if let Some(written) = count("cache_creation_input_tokens") {
        known.input_cache_creation = written;
    }
    if let Some(input) = count("input_tokens") {
        known.input = input.saturating_add(known.input_cached).saturating_add(known.input_cache_creation);
    }
    if let Some(output) = count("output_tokens") {
        known.output = output;
    }
}
