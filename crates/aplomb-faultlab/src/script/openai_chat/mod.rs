//! OpenAI's Chat Completions, from the provider's side: reads requests, renders answers and errors.
//!
//! Written from OpenAI's public API reference (<https://platform.openai.com/docs/api-reference/chat>) and
//! from what its errors look like in public issue trackers. Knows no script's progress and no fault.

mod answer;
mod request;

use bytes::Bytes;
use serde::Serialize;

use super::fault::{Body, Whole};

pub(super) use answer::render;
pub(super) use request::{Chat, read};

/// A request that the provider does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    status: u16,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

impl Rejection {
    fn invalid(param: Option<String>, message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), param, code: None }
    }

    fn unknown_path(path: &str) -> Self {
        let message = format!("Invalid URL ({path}): faultlab serves */chat/completions.");
        Self { status: 404, message, param: None, code: None }
    }

    /// The test is at fault, or the client: somebody asked once too often.
    pub(super) fn script_ended(steps: usize, served: u64, request: u64) -> Self {
        let message = format!(
            "The script has {steps} steps for {served} requests and this was request {request}. \
             Add a step, or say what comes after them with at_end."
        );
        Self { status: 400, message, param: None, code: Some("script_ended") }
    }

    pub(super) fn render(&self) -> Whole {
        let param = self.param.as_deref();
        let error = Error { message: &self.message, r#type: "invalid_request_error", param, code: self.code };
        let body = Bytes::from(to_json(&ErrorDocument { error }));
        json(self.status, body.clone(), body)
    }
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

fn json(status: u16, body: Bytes, unfinished: Bytes) -> Whole {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Whole { status, headers, body: Body::Plain { body, unfinished } }
}

/// Writes one of this module's own types. They are strings, numbers and lists of them, which cannot fail to
/// be written; should one ever, a client that reads the reason in place of JSON is told loudly enough.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}
