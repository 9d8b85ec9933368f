//! Anthropic's Messages, from the provider's side: reads requests, renders answers and errors.
//!
//! Written from Anthropic's public documentation, each fact where it is used, and from what its errors look
//! like in public issue trackers. Knows no script's progress and no fault.

mod answer;
mod caching;
mod history;
mod message;
mod request;
#[cfg(test)]
mod turns;

use serde::Serialize;

use super::chat::Rejection;
use super::fault::Whole;
use super::render::{json, request_id, to_json};

pub(super) use answer::render;
pub(super) use request::read;

/// What signs every thinking block of faultlab: "faultlab" in base64. A client has to send it back as it is.
const SIGNATURE: &str = "ZmF1bHRsYWI=";

/// The data of every redacted block: "faultlab, unseen" in base64. It has to come back as it is, too.
const REDACTED: &str = "ZmF1bHRsYWIsIHVuc2Vlbg==";

/// The refusal as Anthropic puts it: "a top-level `error` object that always includes a `type` and `message`
/// value. The response also includes a `request_id` field"
/// (<https://platform.claude.com/docs/en/api/errors>, "Error shapes").
pub(super) fn refuse(rejection: &Rejection, number: u64) -> Whole {
    let kind = if rejection.status == 404 { "not_found_error" } else { "invalid_request_error" };
    let body = to_json(&ErrorDocument {
        r#type: "error",
        error: Error { r#type: kind, message: &rejection.message },
        request_id: request_id(number),
    });
    json(rejection.status, body.clone(), body)
}

/// A refusal with this message, which names the field at fault.
fn invalid(message: impl Into<String>) -> Rejection {
    Rejection::invalid(None, message)
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    r#type: &'static str,
    error: Error<'a>,
    request_id: String,
}

#[derive(Serialize)]
struct Error<'a> {
    r#type: &'static str,
    message: &'a str,
}
