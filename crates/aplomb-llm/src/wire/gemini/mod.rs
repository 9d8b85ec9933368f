//! Google's Gemini.
//!
//! Source: Gemini API reference, "Generating content" (<https://ai.google.dev/api/generate-content>) and "Caching", which
//! holds `Content`, `Part`, `FunctionCall` and `Tool` (<https://ai.google.dev/api/caching>); guide "Thought signatures"
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

mod request;
mod response;
mod stream;

use aplomb_core::message::FinishReason;
use serde::{Deserialize, Serialize};

use crate::wire::encoded;

pub(crate) use request::generation;
pub use request::request_body;
pub use response::decode_body;
pub use stream::{Decoder, Generation};

/// The name under which this wire keeps what only it can read.
const WIRE: &str = "gemini";

/// The path below the API's base, which names the model. A name without a collection is one of `models`.
pub fn path(model: &str, stream: bool) -> String {
    let collection = if model.contains('/') { "" } else { "models/" };
    let method = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    format!("/{collection}{}:{method}", encoded(model))
}

/// What is kept of a part, to go back with it: it stands before the part's text, thoughts or call, or alone where the
/// part held nothing else.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Kept {
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
    /// Whether the part is a thought.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    /// The provider's id of a call. Most versions of the API give none, and take none back.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// What a finish reason says.
///
/// Source: API reference, "Generating content", `FinishReason`.
fn finish_reason(word: &str, has_calls: bool) -> FinishReason {
    match word {
        "STOP" if has_calls => FinishReason::ToolCalls,
        // No word of the reference; what gateways say for a regular end with calls.
        "FUNCTION_CALL" => FinishReason::ToolCalls,
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::ContentFilter,
        // `MALFORMED_FUNCTION_CALL`, `UNEXPECTED_TOOL_CALL` and `MALFORMED_RESPONSE` are answers that broke off, since the
        // model may do better the next time. `OTHER`, `TOO_MANY_TOOL_CALLS`, `MISSING_THOUGHT_SIGNATURE` and what a later
        // version adds say nothing of the kind.
        other => FinishReason::Other(other.to_owned()),
    }
}
