//! OpenAI's Chat Completions, which most vendors and gateways speak.
//!
//! Source: OpenAI API reference, "Create chat completion" and "The chat completion chunk object".

mod request;
mod response;
mod stream;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{FinishReason, Reply};

pub use request::{Parameters, request_body};
pub use response::decode_body;
pub use stream::Decoder;

/// The most bytes of an answer, streamed or not. Far more than any model says; what exceeds it is no answer.
pub const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

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

/// Finish reasons that say the answer broke off.
///
/// Source: DeepSeek's API reference ("interrupted due to insufficient resource of the inference system"); OpenRouter's
/// API reference, "Finish Reason" (`error`); vLLM (`abort`).
const BROKEN_OFF: [&str; 3] = ["insufficient_system_resource", "error", "abort"];

/// A reply that ended regularly, unless there is nothing in it that anybody could use.
fn usable(reply: Reply, phase: Phase) -> Result<Reply, Box<Failure>> {
    let calls = reply.message.tool_calls().count();
    let has_content = calls > 0 || !reply.message.to_text().trim().is_empty();
    let (anomaly, word) = match &reply.finish {
        FinishReason::Other(word) if BROKEN_OFF.contains(&word.as_str()) => (Anomaly::BrokenOff, Some(word)),
        FinishReason::Other(word) => (Anomaly::UnknownEnd, Some(word)),
        FinishReason::ContentFilter => (Anomaly::Filtered, None),
        FinishReason::ToolCalls if calls == 0 => (Anomaly::Empty, None),
        _ if has_content => return Ok(reply),
        FinishReason::Length => (Anomaly::EmptyAtTokenLimit, None),
        _ => (Anomaly::Empty, None),
    };
    let shown = word.map(|word| format!("finish_reason: {word}")).unwrap_or_default();
    Err(Box::new(Failure::anomaly(phase, anomaly, shown.as_bytes())))
}
