//! How the protocols write their answers, as far as they do it alike: documents, events, ids.

use bytes::Bytes;
use serde::Serialize;

use super::fault::{Body, Whole};

/// When OpenAI's answers were made: faultlab has no clock, and a constant is the same every time.
pub(super) const CREATED: u64 = 1_700_000_000;

/// The id of the engine's `number`-th answer.
pub(super) fn request_id(number: u64) -> String {
    format!("req_faultlab_{number}")
}

/// An event of a stream without a type.
pub(super) fn untyped_event(data: &impl Serialize) -> Bytes {
    Bytes::from(format!("data: {}\n\n", to_json(data)))
}

/// An event of a stream of this type.
pub(super) fn typed_event(kind: &str, data: &impl Serialize) -> Bytes {
    Bytes::from(format!("event: {kind}\ndata: {}\n\n", to_json(data)))
}

/// An answer of one JSON document.
pub(super) fn json(status: u16, document: String, unfinished: String) -> Whole {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Whole { status, headers, body: Body::Plain { body: document.into(), unfinished: unfinished.into() } }
}

/// An answer of events.
pub(super) fn events(body: Body) -> Whole {
    Whole { status: 200, headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())], body }
}

/// Writes one of a protocol's own types. They are strings, numbers and lists of them, which cannot fail to
/// be written; should one ever, a client that reads the reason in place of JSON is told loudly enough.
pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}
