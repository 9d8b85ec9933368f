//! Which faults can happen to which replies. Knows what a fault needs, and nothing of its place in a script.

use serde_json::Value;

use super::{Fault, Http2Fault, HttpReply, Message, Reply};

/// The longest body that a fault makes: enough for any client's limit, and no surprise for anyone's memory.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// What is wrong with a fault: the field below it, and what was expected there.
pub(super) struct Misfit {
    pub(super) field: String,
    pub(super) expected: String,
}

/// Whether the fault's numbers are in range, whatever it happens to.
pub(super) fn numbers(fault: &Fault) -> Result<(), Misfit> {
    match fault {
        Fault::Pings { every_ms: 0, .. } => misfit("pings.every_ms", "1 or more"),
        Fault::PingsAfterEnd { every_ms: 0, .. } => misfit("pings_after_end.every_ms", "1 or more"),
        Fault::Drip { bytes: 0, .. } => misfit("drip.bytes", "1 or more"),
        Fault::HugeEvent { bytes, .. } if *bytes > MAX_BYTES => misfit("huge_event.bytes", at_most_max()),
        Fault::Flood { bytes, .. } if *bytes > MAX_BYTES => misfit("flood.bytes", at_most_max()),
        _ => Ok(()),
    }
}

/// Whether the fault can happen to this reply.
pub(super) fn reply(fault: &Fault, reply: &Reply) -> Result<(), Misfit> {
    if matches!(fault, Fault::SplitUtf8) && !may_go_beyond_ascii(reply) {
        return misfit("split_utf8", "a reply with a character beyond ASCII to split");
    }
    match reply {
        Reply::Http(http) => to_http(fault, http),
        Reply::Message(message) => to_message(fault, message),
    }
}

fn to_message(fault: &Fault, message: &Message) -> Result<(), Misfit> {
    match fault {
        Fault::CutArguments { .. } if message.tool_calls.is_empty() => {
            misfit("cut_arguments", "a reply with a tool call to cut")
        }
        _ => Ok(()),
    }
}

fn to_http(fault: &Fault, http: &HttpReply) -> Result<(), Misfit> {
    let no_content = is_empty(http.body.as_ref());
    let no_body = has_no_body(http.status);
    let (name, needs) = match fault {
        Fault::EndWithoutTerminal { .. } => ("end_without_terminal", "a message that could have an end"),
        Fault::ErrorEvent { .. } => ("error_event", "a message; with http, say the body you want"),
        Fault::Cut { .. } if no_content => ("cut", "a body to cut"),
        Fault::Stall { .. } if no_content => ("stall", "a body to stall in"),
        Fault::Pings { .. } if no_body => ("pings", "a status that can have a body"),
        Fault::PingsAfterEnd { .. } => ("pings_after_end", "a message that could have an end"),
        Fault::MalformedEvent { .. } => ("malformed_event", "a message; with http, say the body you want"),
        Fault::GluedEvents { .. } => ("glued_events", "a message; with http, say the body you want"),
        Fault::SplitEvent { .. } => ("split_event", "a message that could be streamed"),
        Fault::EndAfterReason => ("end_after_reason", "a message that could have an end"),
        Fault::EmptyAnswer => ("empty_answer", "a message; with http, say the body you want"),
        Fault::HugeEvent { .. } if no_body => ("huge_event", "a status that can have a body"),
        Fault::Flood { .. } if no_body => ("flood", "a status that can have a body"),
        Fault::CutArguments { .. } => ("cut_arguments", "a message with a tool call to cut"),
        Fault::Crlf => ("crlf", "a message that could be streamed"),
        Fault::LoneCr => ("lone_cr", "a message that could be streamed"),
        Fault::WrongChunkSize { .. } if no_content => ("wrong_chunk_size", "a body"),
        Fault::ShortBody if no_body => ("short_body", "a status that can have a body"),
        Fault::Drip { .. } if no_content => ("drip", "a body to drip"),
        Fault::Http2(Http2Fault::ResetStream { after_events: Some(_), .. }) if no_content => {
            ("http2.reset_stream", "a body to cut")
        }
        _ => return Ok(()),
    };
    misfit(name, format!("a reply with {needs}"))
}

fn misfit(field: &str, expected: impl std::fmt::Display) -> Result<(), Misfit> {
    Err(Misfit { field: field.to_owned(), expected: format!("expected {expected}") })
}

fn at_most_max() -> String {
    format!("at most {MAX_BYTES}")
}

/// Whether the body has a character beyond ASCII, or a template that may bring one.
fn may_go_beyond_ascii(reply: &Reply) -> bool {
    let goes = |text: &str, is_template: bool| !text.is_ascii() || (is_template && text.contains("{{"));
    match reply {
        Reply::Http(http) => http.body.as_ref().is_some_and(|body| goes(&body.to_string(), false)),
        Reply::Message(message) => {
            let calls = message.tool_calls.iter().map(|call| {
                goes(&call.name, false) || goes(&call.arguments.to_string(), call.arguments.is_object())
            });
            let texts = message.text.iter().chain(&message.thinking).map(|text| goes(text, true));
            texts.chain(calls).any(|goes| goes)
        }
    }
}

pub(super) fn is_empty(body: Option<&Value>) -> bool {
    body.is_none_or(|body| body.is_null() || body.as_str() == Some(""))
}

/// 204 and 304 end with their head (RFC 9110, sections 15.3.5 and 15.4.5). The 1xx are no final answers and
/// refused.
pub(super) fn has_no_body(status: u16) -> bool {
    matches!(status, 204 | 304)
}
