//! OpenAI's Responses, from the provider's side: reads requests and renders answers. Its errors are those of
//! Chat Completions.
//!
//! Written from OpenAI's public API reference (<https://developers.openai.com/api/reference/resources/responses>),
//! from the types of its SDKs, which are generated from its API description, and from what its errors look like
//! in public issue trackers. Knows no script's progress and no fault, and keeps nothing: an answer cannot be
//! asked for again by its id.

mod answer;
mod history;
mod item;
mod request;

pub(super) use answer::render;
pub(super) use request::read;

use super::chat::Rejection;

/// What every reasoning item of faultlab has for its encrypted content: "faultlab" in base64. A client has to
/// send it back as it is.
const ENCRYPTED: &str = "ZmF1bHRsYWI=";

/// A refusal for what this parameter is.
fn invalid(param: impl Into<String>, message: impl Into<String>) -> Rejection {
    Rejection::invalid(Some(param.into()), message)
}

/// A refusal for a parameter that is not there. The wording is quoted in
/// <https://github.com/newo-ether/Agora/issues/141> and
/// <https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1576>, with the code.
fn missing(param: impl Into<String>) -> Rejection {
    let param = param.into();
    let message = format!("Missing required parameter: '{param}'.");
    Rejection { code: Some("missing_required_parameter"), ..invalid(param, message) }
}

/// A refusal for a value that is none of those that there are.
fn unsupported(param: impl Into<String>, value: &str, supported: &[&str]) -> Rejection {
    let (last, others) = supported.split_last().unwrap_or((&"", &[]));
    let others: Vec<String> = others.iter().map(|value| format!("'{value}'")).collect();
    let comma = if others.len() > 1 { "," } else { "" };
    let message =
        format!("Invalid value: '{value}'. Supported values are: {}{comma} and '{last}'.", others.join(", "));
    Rejection { code: Some("invalid_value"), ..invalid(param, message) }
}
