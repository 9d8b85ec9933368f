//! OpenAI's Chat Completions, which most vendors and gateways speak.
//!
//! Source: OpenAI API reference, "Create chat completion" and "The chat completion chunk object".

mod request;
mod response;
mod stream;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Block, FinishReason, Reply};

pub use request::{Parameters, request_body};
pub use response::decode_body;
pub use stream::Decoder;

/// The path below the API's base.
pub const PATH: &str = "/chat/completions";

fn finish_reason(word: &str) -> FinishReason {
    match word {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_owned()),
    }
}

/// Finish reasons that say the answer broke off.
///
/// Source: DeepSeek's API reference ("interrupted due to insufficient resource of the inference system"); OpenRouter's
/// API reference, "Finish Reason" (`error`).
const BROKEN_OFF: [&str; 2] = ["insufficient_system_resource", "error"];

/// A reply that ended regularly, unless there is nothing in it that anybody could use.
fn usable(reply: Reply, phase: Phase) -> Result<Reply, Box<Failure>> {
    let has_content = reply.message.content.iter().any(|block| match block {
        Block::Text { text } => !text.trim().is_empty(),
        Block::ToolCall(_) => true,
        _ => false,
    });
    let anomaly = match &reply.finish {
        FinishReason::Other(word) if BROKEN_OFF.contains(&word.as_str()) => {
            let mut failure = Failure::anomaly(phase, Anomaly::Error, b"");
            failure.provider_error.code = Some(word.clone());
            return Err(Box::new(failure));
        }
        FinishReason::ContentFilter => Anomaly::Filtered,
        _ if has_content => return Ok(reply),
        FinishReason::Length => Anomaly::EmptyAtTokenLimit,
        _ => Anomaly::Empty,
    };
    Err(Box::new(Failure::anomaly(phase, anomaly, b"")))
}
