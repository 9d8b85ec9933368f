//! Google's Gemini, from the provider's side: reads requests of `generateContent` and `streamGenerateContent`,
//! renders answers and errors.
//!
//! Written from Google's public API reference (<https://ai.google.dev/api/generate-content>) and guides, each fact
//! where it is used, and from what its errors look like in public issue trackers. Knows no script's progress and
//! no fault.

mod answer;
mod content;
mod history;
mod request;
mod target;

use serde::Serialize;

use super::chat::Rejection;
use super::fault::Whole;
use super::render::{json, to_json};

pub(super) use answer::render;
pub(super) use request::read;
pub(super) use target::Target;

/// What signs the thoughts of faultlab: "faultlab" in base64. A client has to send it back as it is.
const SIGNATURE: &str = "ZmF1bHRsYWI=";

/// The refusal as Google puts it (<https://google.aip.dev/193>, "HTTP/1.1+JSON representation").
pub(super) fn refuse(rejection: &Rejection) -> Whole {
    let status = if rejection.status == 404 { "NOT_FOUND" } else { "INVALID_ARGUMENT" };
    let error = Error { code: rejection.status, message: &rejection.message, status };
    let body = to_json(&ErrorDocument { error });
    json(rejection.status, body.clone(), body)
}

/// A refusal with this message, which names the field at fault.
fn invalid(message: impl Into<String>) -> Rejection {
    Rejection::invalid(None, message)
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: u16,
    message: &'a str,
    status: &'static str,
}
