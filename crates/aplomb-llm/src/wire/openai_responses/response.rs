//! An answer that came whole.

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Message, Reply, Role, TokenUsage};

use super::item::Response;
use crate::wire::usable;

/// Reads the body of a response whose status was good: the answer, and what was used, which a failed answer may have
/// used all the same.
///
/// # Errors
///
/// If the body is an error, is not a response, or holds nothing usable.
pub fn decode_body(body: &[u8]) -> (Result<Reply, Box<Failure>>, Option<TokenUsage>) {
    let fail = |anomaly| Box::new(Failure::anomaly(Phase::Body, anomaly, body));
    let Ok(response) = serde_json::from_slice::<Response>(body) else {
        return (Err(fail(Anomaly::MalformedBody)), None);
    };
    let usage = response.usage();
    (into_reply(response, usage, fail), usage)
}

fn into_reply(
    mut response: Response,
    usage: Option<TokenUsage>,
    fail: impl Fn(Anomaly) -> Box<Failure>,
) -> Result<Reply, Box<Failure>> {
    // The event that ends a stream with an error, in the place of a body, is one too.
    let is_error = response.error.as_ref().is_some_and(|error| !error.is_null())
        || response.kind.as_deref() == Some("error");
    if is_error || response.status.as_deref() == Some("failed") {
        return Err(fail(Anomaly::Error));
    }
    let items = response.output.take().ok_or_else(|| fail(Anomaly::MalformedBody))?;
    let mut message = Message { role: Role::Assistant, content: Vec::new() };
    let mut refused = false;
    for item in items {
        let (blocks, refuses) = item.into_blocks();
        message.content.extend(blocks);
        refused |= refuses;
    }
    if refused {
        return Err(fail(Anomaly::Refused));
    }
    let has_calls = message.tool_calls().next().is_some();
    let finish = response.finish(has_calls).ok_or_else(|| fail(Anomaly::NoTerminalEvent))?;
    usable(Reply { message, finish, usage }, Phase::Body)
}
