//! Spoils a whole answer as a fault says. Knows events, bodies and how they break, and no protocol's content.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::plan::{Answer, End, Framing, Part, Response};
use super::{CutBy, Fault};

/// An answer before anything went wrong with it.
pub(super) struct Whole {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
}

/// The body of a whole answer, in the two shapes that faults tell apart.
pub(super) enum Body {
    /// Events. `content` is what the model says, `terminal` why it ended and at what cost, `done` the
    /// protocol's last word.
    Stream { content: Vec<Bytes>, terminal: Vec<Bytes>, done: Bytes, gap: Duration },
    /// One document; `unfinished` is the same document from a model that never said that it had ended.
    Plain { body: Bytes, unfinished: Bytes },
}

/// A comment line of server-sent events, which a client ignores (WHATWG HTML, 9.2.6: lines that start with a
/// colon).
const PING: &[u8] = b": ping\n\n";

/// The answer with its fault.
pub(super) fn answer(whole: Whole, fault: Option<&Fault>) -> Answer {
    match fault {
        Some(Fault::ResetBeforeHeaders) => return Answer::Reset,
        Some(Fault::CloseBeforeHeaders) => return Answer::Close,
        Some(Fault::Silence) => return Answer::Silence,
        _ => {}
    }
    let Whole { status, headers, body } = whole;
    let (framing, parts, end) = match body {
        Body::Stream { content, terminal, done, gap } => {
            let (events, end) = stream(content, terminal, done, fault);
            (Framing::Chunked, spaced(events, gap), end)
        }
        Body::Plain { body, unfinished } => plain(body, unfinished, fault),
    };
    Answer::Response(Response { status, headers, framing, parts, end })
}

/// The events that are sent and what follows them.
fn stream(
    content: Vec<Bytes>,
    terminal: Vec<Bytes>,
    done: Bytes,
    fault: Option<&Fault>,
) -> (Vec<Bytes>, End) {
    let mut events = content;
    let end = match fault {
        Some(Fault::Cut { after_events, by }) => {
            events.truncate(*after_events);
            cut(*by)
        }
        Some(Fault::EndWithoutTerminal { done: with_done }) => {
            events.extend(with_done.then_some(done));
            End::Clean
        }
        Some(Fault::ErrorEvent { after_events, body }) => {
            events.truncate(*after_events);
            events.push(error_event(body));
            End::Clean
        }
        Some(Fault::Pings { after_events, every_ms }) => {
            events.truncate(*after_events);
            End::Repeat { bytes: Bytes::from_static(PING), every: Duration::from_millis(*every_ms) }
        }
        Some(Fault::PingsAfterEnd { every_ms }) => {
            events.extend(terminal);
            End::Repeat { bytes: Bytes::from_static(PING), every: Duration::from_millis(*every_ms) }
        }
        Some(Fault::Stall { after_events }) => {
            events.truncate(*after_events);
            End::Silence
        }
        None | Some(Fault::ResetBeforeHeaders | Fault::CloseBeforeHeaders | Fault::Silence) => {
            events.extend(terminal);
            events.push(done);
            End::Clean
        }
    };
    (events, end)
}

fn plain(body: Bytes, unfinished: Bytes, fault: Option<&Fault>) -> (Framing, Vec<Part>, End) {
    match fault {
        Some(Fault::Cut { by, .. }) => half(body, cut(*by)),
        Some(Fault::Stall { .. }) => half(body, End::Silence),
        Some(Fault::EndWithoutTerminal { .. }) => all(unfinished),
        Some(Fault::ErrorEvent { body, .. }) => all(Bytes::from(verbatim_or_json(body))),
        Some(Fault::Pings { every_ms, .. }) => spaces_after(Bytes::new(), *every_ms),
        Some(Fault::PingsAfterEnd { every_ms }) => spaces_after(body, *every_ms),
        None | Some(Fault::ResetBeforeHeaders | Fault::CloseBeforeHeaders | Fault::Silence) => all(body),
    }
}

fn all(body: Bytes) -> (Framing, Vec<Part>, End) {
    (Framing::Length(length(&body)), bytes_part(body), End::Clean)
}

/// White space around a JSON value is none of it: a client cannot tell that the value is whole.
fn spaces_after(body: Bytes, every_ms: u64) -> (Framing, Vec<Part>, End) {
    let every = Duration::from_millis(every_ms);
    (Framing::Chunked, bytes_part(body), End::Repeat { bytes: Bytes::from_static(b" "), every })
}

/// The whole length announced, half of it sent.
fn half(mut body: Bytes, end: End) -> (Framing, Vec<Part>, End) {
    let framing = Framing::Length(length(&body));
    body.truncate(body.len() / 2);
    (framing, bytes_part(body), end)
}

fn bytes_part(bytes: Bytes) -> Vec<Part> {
    if bytes.is_empty() { Vec::new() } else { vec![Part::Bytes(bytes)] }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn cut(by: CutBy) -> End {
    match by {
        CutBy::Fin => End::Fin,
        CutBy::Reset => End::Reset,
    }
}

/// One part per event, with a pause between one and the next.
fn spaced(events: Vec<Bytes>, gap: Duration) -> Vec<Part> {
    let mut parts = Vec::with_capacity(events.len());
    for event in events {
        if !gap.is_zero() && !parts.is_empty() {
            parts.push(Part::Pause(gap));
        }
        parts.push(Part::Bytes(event));
    }
    parts
}

/// An error as an event. A line break in its text begins another `data` line, as the format wants it.
fn error_event(body: &Value) -> Bytes {
    let text = verbatim_or_json(body);
    if text.is_empty() {
        return Bytes::from_static(b"event: error\ndata:\n\n");
    }
    let lines: Vec<String> = text.split('\n').map(|line| format!("data: {line}\n")).collect();
    Bytes::from(lines.concat() + "\n")
}

fn verbatim_or_json(body: &Value) -> String {
    match body {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}
