//! OpenAI's Chat Completions, from the provider's side: reads requests, renders answers and errors.
//!
//! Written from OpenAI's public API reference (<https://platform.openai.com/docs/api-reference/chat>) and
//! from what its errors look like in public issue trackers. Knows no script's progress and no fault.

mod answer;
mod request;

use serde::Serialize;

use super::chat::Rejection;
use super::fault::Whole;
use super::render::{json, to_json};

pub(super) use answer::render;
pub(super) use request::read;

/// The refusal as OpenAI puts it.
pub(super) fn refuse(rejection: &Rejection) -> Whole {
    let error = Error {
        message: &rejection.message,
        r#type: "invalid_request_error",
        param: rejection.param.as_deref(),
        code: rejection.code,
    };
    let body = to_json(&ErrorDocument { error });
    json(rejection.status, body.clone(), body)
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: Error<'a>,
}

/// OpenAI's error object: all four fields always, `null` where there is nothing to say.
#[derive(Serialize)]
struct Error<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}
