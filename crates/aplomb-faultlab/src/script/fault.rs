//! Spoils a whole answer as a fault says. Knows events, bodies and how they break, and no protocol's content.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::damage;
use super::plan::{Answer, End, Framing, Part, Raw, Response};
use super::{CutBy, Fault, PingKind};

/// The spaces of a plain [`Fault::Flood`] that are sent at a time.
const FLOOD_PIECE: usize = 16 * 1024;

/// An answer before anything went wrong with it.
pub(super) struct Whole {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
}

/// The body of a whole answer, in the two shapes that faults tell apart.
pub(super) enum Body {
    /// Events. `content` is what the model says, `terminal` why it ended and at what cost, `done` the
    /// protocol's last word, if it has one after that.
    Stream {
        content: Vec<Bytes>,
        terminal: Vec<Bytes>,
        done: Option<Bytes>,
        /// What the protocol keeps a connection alive with.
        ping: PingKind,
        /// The type of the event that an error in mid-stream is.
        errors: ErrorType,
        /// The pause between one event and the next.
        gap: Duration,
    },
    /// One document; `unfinished` is the same document from a model that never said that it had ended.
    Plain { body: Bytes, unfinished: Bytes },
}

/// The type of an event that is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorType {
    /// It has none.
    None,
    /// `error`.
    Error,
    /// The `type` in its data, as every event's; `error`, if there is none.
    OfData,
}

/// The answer with its fault.
pub(super) fn answer(whole: Whole, fault: Option<&Fault>) -> Answer {
    match fault {
        Some(Fault::ResetBeforeHeaders) => return Answer::Reset,
        Some(Fault::CloseBeforeHeaders) => return Answer::Close,
        Some(Fault::Silence) => return Answer::Silence,
        _ => {}
    }
    let Whole { status, headers, body } = whole;
    let sent = match body {
        Body::Stream { content, terminal, done, ping, errors, gap } => {
            Stream { content, terminal, done, ping, errors, gap }.spoilt(fault)
        }
        Body::Plain { body, unfinished } => plain(body, unfinished, fault),
    };
    let Sent { framing, parts, end, tail } = sent;
    let raw = Raw { head: damage::head(fault), tail };
    Answer::Response(Response { status, headers, framing, parts, end, raw })
}

/// What of [`Plan::delay`](super::Plan::delay) is the fault's.
pub(super) fn delay(fault: Option<&Fault>) -> Duration {
    match fault {
        Some(Fault::SlowHeaders { delay_ms }) => Duration::from_millis(*delay_ms),
        _ => Duration::ZERO,
    }
}

/// A body as it is sent.
struct Sent {
    framing: Framing,
    parts: Vec<Part>,
    end: End,
    /// See [`Raw::tail`].
    tail: Bytes,
}

impl Sent {
    fn new(framing: Framing, parts: Vec<Part>, end: End) -> Self {
        Self { framing, parts, end, tail: Bytes::new() }
    }
}

struct Stream {
    content: Vec<Bytes>,
    terminal: Vec<Bytes>,
    done: Option<Bytes>,
    ping: PingKind,
    errors: ErrorType,
    gap: Duration,
}

impl PingKind {
    /// A ping as it is sent.
    pub(super) fn bytes(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Comments => b": ping\n\n",
            // With the space that Anthropic's documentation shows.
            Self::Events => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
        })
    }
}

impl Stream {
    /// The stream that is sent.
    fn spoilt(self, fault: Option<&Fault>) -> Sent {
        let gap = self.gap;
        let chunked = |events: Vec<Bytes>, end: End| Sent::new(Framing::Chunked, spaced(events, gap), end);
        match fault {
            Some(Fault::Cut { after_events, by }) => chunked(self.first(*after_events), cut(*by)),
            Some(Fault::Stall { after_events }) => chunked(self.first(*after_events), End::Silence),
            Some(Fault::Pings { after_events, every_ms, with }) => {
                let pings = self.pings(*every_ms, *with);
                chunked(self.first(*after_events), pings)
            }
            Some(Fault::PingsAfterEnd { every_ms, with }) => {
                let pings = self.pings(*every_ms, *with);
                chunked([self.content, self.terminal].concat(), pings)
            }
            Some(Fault::EndWithoutTerminal { done }) => {
                let mut events = self.content;
                events.extend(self.done.filter(|_| *done));
                chunked(events, End::Clean)
            }
            Some(Fault::ErrorEvent { after_events, body }) => {
                let error = error_event(body, self.errors);
                let mut events = self.first(*after_events);
                events.push(error);
                chunked(events, End::Clean)
            }
            Some(Fault::MalformedEvent { after_events }) => {
                let half = |event: &Bytes| {
                    let [first, _] = damage::halves(event);
                    vec![first]
                };
                chunked(self.with_event(*after_events, half), End::Clean)
            }
            Some(Fault::SplitEvent { after_events }) => {
                chunked(self.with_event(*after_events, |event| damage::halves(event).into()), End::Clean)
            }
            Some(Fault::HugeEvent { after_events, bytes }) => {
                let padded = |event: &Bytes| vec![damage::padded_event(event, *bytes)];
                chunked(self.with_event(*after_events, padded), End::Clean)
            }
            Some(Fault::Flood { after_events, bytes }) => {
                let missing = bytes.saturating_sub(self.bytes());
                let again = |event: &Bytes| vec![event.clone(); 1 + missing.div_ceil(event.len().max(1))];
                chunked(self.with_event(*after_events, again), End::Clean)
            }
            Some(Fault::GluedEvents { after_events }) => {
                let place = self.content.len().min(*after_events);
                let mut events = self.all();
                // The last has none after it.
                let place = place.min(events.len().saturating_sub(2));
                if place + 1 < events.len() {
                    let next = events.remove(place + 1);
                    if let Some(event) = events.get_mut(place) {
                        *event = damage::glued(event, &next);
                    }
                }
                chunked(events, End::Clean)
            }
            Some(Fault::EndAfterReason) => {
                let reason = self.terminal.into_iter().take(1);
                chunked(self.content.into_iter().chain(reason).collect(), End::Clean)
            }
            Some(Fault::WrongChunkSize { after_events }) => {
                let wrong = self.content.len().min(*after_events);
                let mut events = self.all();
                let rest = events.split_off(wrong.min(events.len()));
                Sent { tail: damage::chunks_with_wrong_size(&rest), ..chunked(events, End::Fin) }
            }
            Some(Fault::ShortBody) => {
                let events = self.all();
                let length = events.iter().map(length).fold(0, u64::saturating_add);
                let framing = Framing::Length(length.saturating_add(damage::MISSING));
                Sent::new(framing, spaced(events, gap), End::Fin)
            }
            Some(Fault::Crlf) => chunked(
                self.all().iter().map(|event| damage::lines_ending_with(b"\r\n", event)).collect(),
                End::Clean,
            ),
            Some(Fault::LoneCr) => chunked(
                self.all().iter().map(|event| damage::lines_ending_with(b"\r", event)).collect(),
                End::Clean,
            ),
            Some(Fault::SplitUtf8) => {
                Sent::new(Framing::Chunked, damage::split_character(spaced(self.all(), gap)), End::Clean)
            }
            Some(Fault::Drip { bytes, every_ms }) => {
                Sent::new(Framing::Chunked, damage::drip(&self.all().concat(), *bytes, *every_ms), End::Clean)
            }
            None
            | Some(
                Fault::ResetBeforeHeaders
                | Fault::CloseBeforeHeaders
                | Fault::Silence
                | Fault::SplitHeaders
                | Fault::SlowHeaders { .. }
                | Fault::EmptyAnswer
                | Fault::CutArguments { .. }
                | Fault::Http2(_),
            ) => chunked(self.all(), End::Clean),
        }
    }

    fn first(self, events: usize) -> Vec<Bytes> {
        let mut content = self.content;
        content.truncate(events);
        content
    }

    fn all(self) -> Vec<Bytes> {
        self.content.into_iter().chain(self.terminal).chain(self.done).collect()
    }

    /// The whole stream, with what `change` makes of the event after so many content events; past the
    /// content it is the first terminal one.
    fn with_event(self, after_events: usize, change: impl FnOnce(&Bytes) -> Vec<Bytes>) -> Vec<Bytes> {
        let place = self.content.len().min(after_events);
        let mut events = self.all();
        if let Some(event) = events.get(place) {
            let changed = change(event);
            events.splice(place..=place, changed);
        }
        events
    }

    /// The length of the whole stream.
    fn bytes(&self) -> usize {
        self.content.iter().chain(&self.terminal).chain(&self.done).map(Bytes::len).sum()
    }

    fn pings(&self, every_ms: u64, with: Option<PingKind>) -> End {
        End::Repeat { bytes: with.unwrap_or(self.ping).bytes(), every: Duration::from_millis(every_ms) }
    }
}

fn plain(body: Bytes, unfinished: Bytes, fault: Option<&Fault>) -> Sent {
    let announced = Framing::Length(length(&body));
    match fault {
        Some(Fault::Cut { by, .. }) => Sent::new(announced, bytes_part(half(body)), cut(*by)),
        Some(Fault::Stall { .. }) => Sent::new(announced, bytes_part(half(body)), End::Silence),
        Some(Fault::EndWithoutTerminal { .. }) => all(unfinished),
        Some(Fault::ErrorEvent { body, .. }) => all(Bytes::from(verbatim_or_json(body))),
        Some(Fault::Pings { every_ms, .. }) => spaces_after(Bytes::new(), *every_ms),
        Some(Fault::PingsAfterEnd { every_ms, .. }) => spaces_after(body, *every_ms),
        Some(Fault::MalformedEvent { .. }) => all(half(body)),
        Some(Fault::GluedEvents { .. }) => all([&body[..], &body[..]].concat().into()),
        Some(Fault::HugeEvent { bytes, .. }) => {
            let missing = damage::spaces(bytes.saturating_sub(body.len()));
            all([body, missing].concat().into())
        }
        Some(Fault::Flood { bytes, .. }) => flood(body, *bytes),
        Some(Fault::WrongChunkSize { .. }) => Sent {
            tail: damage::chunks_with_wrong_size(&[body]),
            ..Sent::new(Framing::Chunked, Vec::new(), End::Fin)
        },
        Some(Fault::ShortBody) => {
            let framing = Framing::Length(length(&body).saturating_add(damage::MISSING));
            Sent::new(framing, bytes_part(body), End::Fin)
        }
        Some(Fault::SplitUtf8) => Sent::new(announced, damage::split_character(bytes_part(body)), End::Clean),
        Some(Fault::Drip { bytes, every_ms }) => {
            Sent::new(announced, damage::drip(&body, *bytes, *every_ms), End::Clean)
        }
        None
        | Some(
            Fault::ResetBeforeHeaders
            | Fault::CloseBeforeHeaders
            | Fault::Silence
            | Fault::SplitEvent { .. }
            | Fault::EndAfterReason
            | Fault::EmptyAnswer
            | Fault::Crlf
            | Fault::LoneCr
            | Fault::SplitHeaders
            | Fault::SlowHeaders { .. }
            | Fault::CutArguments { .. }
            | Fault::Http2(_),
        ) => all(body),
    }
}

fn all(body: Bytes) -> Sent {
    Sent::new(Framing::Length(length(&body)), bytes_part(body), End::Clean)
}

/// White space around a JSON value is none of it: a client cannot tell that the value is whole.
fn spaces_after(body: Bytes, every_ms: u64) -> Sent {
    let every = Duration::from_millis(every_ms);
    let end = End::Repeat { bytes: Bytes::from_static(b" "), every };
    Sent::new(Framing::Chunked, bytes_part(body), end)
}

/// The body and spaces after it, up to so many bytes: a piece of them that is sent again and again.
fn flood(body: Bytes, bytes: usize) -> Sent {
    let missing = bytes.saturating_sub(body.len());
    let piece = damage::spaces(missing.min(FLOOD_PIECE));
    let mut parts = bytes_part(body);
    parts.resize(parts.len() + missing / FLOOD_PIECE, Part::Bytes(piece.clone()));
    parts.extend(bytes_part(piece.slice(..missing % FLOOD_PIECE)));
    Sent::new(Framing::Chunked, parts, End::Clean)
}

fn half(mut body: Bytes) -> Bytes {
    body.truncate(body.len() / 2);
    body
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

/// An error as an event. A line break in its text begins another `data` line, as the format wants it. Without
/// data there is nothing but the type to tell that it is one.
fn error_event(body: &Value, errors: ErrorType) -> Bytes {
    let text = verbatim_or_json(body);
    if text.is_empty() {
        return Bytes::from_static(b"event: error\ndata:\n\n");
    }
    let kind = match errors {
        ErrorType::None => None,
        ErrorType::Error => Some("error"),
        ErrorType::OfData => Some(body.get("type").and_then(Value::as_str).unwrap_or("error")),
    };
    let name = kind.map(|kind| format!("event: {kind}\n")).unwrap_or_default();
    let lines: String = text.split('\n').map(|line| format!("data: {line}\n")).collect();
    Bytes::from(format!("{name}{lines}\n"))
}

fn verbatim_or_json(body: &Value) -> String {
    match body {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}
