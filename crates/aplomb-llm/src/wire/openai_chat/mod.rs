//! OpenAI's Chat Completions, which most vendors and gateways speak.
//!
//! Source: OpenAI API reference, "Create chat completion" and "The chat completion chunk object".

mod request;
mod response;
mod stream;

use aplomb_core::message::FinishReason;

pub use request::request_body;
pub use response::decode_body;
pub use stream::Decoder;

/// The path below the API's base.
pub const PATH: &str = "/chat/completions";

/// What a finish reason says. An empty one, and the word `null`, say nothing: the answer has not ended.
fn finish_reason(word: Option<String>) -> Option<FinishReason> {
    let word = word.filter(|word| !word.is_empty() && word != "null")?;
    Some(match word.as_str() {
        // The others are what vLLM, TGI and gateways to other protocols say for a regular end.
        "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" | "complete" => FinishReason::Stop,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other(word),
    })
}
