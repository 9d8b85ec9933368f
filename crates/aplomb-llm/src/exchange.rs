//! One attempt over a wire: a request out, deltas while they come, and in the end one reply or one failure.

use std::time::Duration;

use aplomb_core::failure::{Anomaly, Failure, Phase, TransportFault};
use aplomb_core::message::{Delta, Reply, StreamEvent, TokenUsage};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;

use crate::clocks::{Clocks, timed_out, wall_ms};
use crate::model::DeltaSink;
use crate::transport::{Body, Pool, Response, Sent};
use crate::wire::{ANSWER_LIMIT, Quirks, Wire};

/// The most bytes that are read of an error.
const ERROR_BODY_LIMIT: usize = 1024 * 1024;

/// An attempt under way.
pub(crate) struct Attempt<'a> {
    pub(crate) wire: Wire,
    pub(crate) quirks: Quirks,
    pub(crate) clocks: Clocks,
    /// How long it can take at most to get a connection.
    pub(crate) connects_within: Duration,
    /// The pool that the connection is from.
    pub(crate) pool: Option<Pool>,
    /// Whether there was a connection when a clock ran out. The client below does not say; the time says it.
    pub(crate) connected: bool,
    pub(crate) sink: Option<DeltaSink<'a>>,
    /// What the provider says that was used.
    pub(crate) usage: Option<TokenUsage>,
    /// The bytes of the answer that came: of its deltas, or of its body where it is one piece.
    pub(crate) arrived: u64,
    pub(crate) delivered: bool,
    pub(crate) first_delta_ms: Option<u64>,
}

impl Attempt<'_> {
    pub(crate) async fn make(&mut self, sent: Sent<'_>, streamed: bool) -> Result<Reply, Box<Failure>> {
        self.pool = Some(sent.pool);
        let Response { status, headers, body } = match self.clocks.wait(sent.response).await {
            Ok(response) => response.map_err(|fault| broken(Phase::Connect, &fault))?,
            Err(limit) => {
                self.connected = self.clocks.elapsed() > self.connects_within;
                return Err(timed_out(Phase::Connect, limit));
            }
        };
        let received_at_ms = wall_ms();
        let seen = |mut failure: Box<Failure>| {
            failure.status = Some(status);
            failure.received_at_ms = Some(received_at_ms);
            let readable =
                headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
            Box::new(failure.with_headers(readable))
        };
        if !(200..300).contains(&status) {
            // An error whose body breaks off, or is too long, is still the error that its status says.
            let (body, _) = read(&mut self.clocks, body, ERROR_BODY_LIMIT).await;
            return Err(seen(Box::new(Failure::status(status, &body))));
        }
        let outcome = match streamed_as(&headers) {
            Some(true) => self.read_stream(body).await,
            // Where a stream was asked for, some servers give it without saying so.
            None if streamed => match peek(&mut self.clocks, body).await {
                Ok((true, body)) => self.read_stream(body).await,
                Ok((false, body)) => self.read_whole(body).await,
                Err(failure) => Err(failure),
            },
            _ => self.read_whole(body).await,
        };
        outcome.map_err(seen)
    }

    /// An answer in one piece. Some servers give one although a stream was asked for.
    async fn read_whole(&mut self, body: Body) -> Result<Reply, Box<Failure>> {
        let (body, failure) = read(&mut self.clocks, body, ANSWER_LIMIT).await;
        if let Some(failure) = failure {
            self.arrived = body.len() as u64;
            return Err(failure);
        }
        let (reply, usage) = self.wire.decode_body(&body);
        self.usage = usage;
        // Of a whole body the provider's own count is the last word.
        if usage.is_none() {
            self.arrived = body.len() as u64;
        }
        let reply = reply?;
        self.arrived = 0;
        for delta in Delta::of_whole(&reply.message) {
            self.arrived += delta.size();
            self.deliver(&delta);
        }
        Ok(reply)
    }

    async fn read_stream(&mut self, mut body: Body) -> Result<Reply, Box<Failure>> {
        let mut decoder = self.wire.decoder(self.quirks);
        let (mut began, mut whole) = (false, false);
        let mut events = Vec::new();
        while !decoder.is_done() {
            let bytes = match self.clocks.wait(body.next()).await {
                Ok(Some(Ok(bytes))) => bytes,
                Ok(None) => break,
                // Nothing that comes after the terminal event can take the answer back but an error that says so.
                Ok(Some(Err(_))) | Err(_) if decoder.is_terminal() => break,
                Ok(Some(Err(fault))) => {
                    return Err(broken(Phase::MidStream, &fault));
                }
                Err(limit) => return Err(timed_out(Phase::MidStream, limit)),
            };
            events.clear();
            let pushed = decoder.push(&bytes, &mut events);
            self.usage = decoder.usage();
            for event in &events {
                if let StreamEvent::Delta(delta) = event {
                    self.arrived += delta.size();
                    self.first_delta_ms.get_or_insert_with(|| self.clocks.elapsed_ms());
                    self.deliver(delta);
                }
            }
            pushed?;
            if decoder.is_terminal() {
                // Once: what follows the whole answer, pings too, does not prolong the wait for more.
                if !std::mem::replace(&mut whole, true) {
                    self.clocks.answer_is_whole();
                }
            } else if !began || !events.is_empty() {
                self.clocks.progress();
            }
            began = true;
        }
        if decoder.is_done() {
            // The connection can serve the next request only if this body has been read to its end.
            self.clocks.wait_for_end(body.next()).await;
        }
        decoder.finish()
    }

    fn deliver(&mut self, delta: &Delta) {
        if let Some(sink) = &mut self.sink {
            sink(delta);
            self.delivered = true;
        }
    }
}

/// Looks at the beginning of a body, however it is cut, and gives whether it is a stream, and the body whole.
async fn peek(clocks: &mut Clocks, body: Body) -> Result<(bool, Body), Box<Failure>> {
    let mut body = body.fuse();
    let mut beginning = Vec::new();
    let is_stream = loop {
        match begins_stream(&beginning) {
            Some(is_stream) => break is_stream,
            None if beginning.len() > ANSWER_LIMIT => break false,
            None => {}
        }
        match clocks.wait(body.next()).await {
            Ok(Some(Ok(bytes))) => beginning.extend_from_slice(&bytes),
            Ok(None) => break false,
            Ok(Some(Err(fault))) => return Err(broken(Phase::Body, &fault)),
            Err(limit) => return Err(timed_out(Phase::Body, limit)),
        }
    };
    Ok((is_stream, stream::iter([Ok(Bytes::from(beginning))]).chain(body).boxed()))
}

/// Whether what begins so is a stream of events; `None` while that is open. JSON and HTML are told by their first
/// character, and everything else may be an event's field or comment.
fn begins_stream(beginning: &[u8]) -> Option<bool> {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    if MARK.starts_with(beginning) {
        return None;
    }
    let text = beginning.strip_prefix(MARK).unwrap_or(beginning);
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(!matches!(first, b'{' | b'[' | b'<'))
}

/// As much of a body as comes, at most `limit` bytes, and what went wrong with the rest.
async fn read(clocks: &mut Clocks, mut body: Body, limit: usize) -> (Vec<u8>, Option<Box<Failure>>) {
    let mut whole = Vec::new();
    loop {
        let failure = match clocks.wait(body.next()).await {
            Ok(None) => return (whole, None),
            Ok(Some(Ok(bytes))) => {
                let room = limit - whole.len();
                whole.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
                if bytes.len() <= room {
                    continue;
                }
                Box::new(Failure::anomaly(Phase::Body, Anomaly::TooLarge, b""))
            }
            Ok(Some(Err(fault))) => broken(Phase::Body, &fault),
            Err(limit) => timed_out(Phase::Body, limit),
        };
        return (whole, Some(failure));
    }
}

fn broken(phase: Phase, fault: &TransportFault) -> Box<Failure> {
    Box::new(Failure::transport(phase, fault.kind, &fault.text))
}

/// Whether the head says that the body is a stream of events; `None` where it says neither that nor another thing of which
/// it is known that it is none.
fn streamed_as(headers: &HeaderMap) -> Option<bool> {
    let content_type = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().trim_start();
    let says =
        |kind: &str| content_type.get(..kind.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(kind));
    if says("text/event-stream") {
        return Some(true);
    }
    // AWS's frames are no events of any protocol that is spoken here, whatever is in them.
    // Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>.
    const NO_EVENTS: [&str; 3] = ["application/json", "text/html", "application/vnd.amazon.eventstream"];
    NO_EVENTS.iter().any(|kind| says(kind)).then_some(false)
}
