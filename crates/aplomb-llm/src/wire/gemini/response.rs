//! An answer that came whole.

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Collector, Reply, TokenUsage};

use super::stream::{Generation, WireEvent};
use crate::wire::{Protocol, usable};

/// Reads the body of a response whose status was good: the answer, and what was used, which a failed answer may have
/// used all the same. A body is one event, or all of them in an array.
///
/// # Errors
///
/// If the body is an error, is not a response, or holds nothing usable.
pub fn decode_body(body: &[u8]) -> (Result<Reply, Box<Failure>>, Option<TokenUsage>) {
    let fail = |anomaly| Box::new(Failure::anomaly(Phase::Body, anomaly, body));
    let Ok(event) = serde_json::from_slice::<WireEvent>(body) else {
        return (Err(fail(Anomaly::MalformedBody)), None);
    };
    let is_response = match &event {
        WireEvent::Chunks(chunks) => chunks.iter().any(|chunk| chunk.is_response()),
        WireEvent::Chunk(chunk) => chunk.is_response(),
    };
    let (mut generation, mut events, mut collector) =
        (Generation::default(), Vec::new(), Collector::default());
    let taken = generation.take(event, &mut events);
    events.iter().for_each(|event| collector.push(event));
    let usage = collector.usage();
    let wrong = taken.err().or_else(|| match generation.wrong_end() {
        _ if !is_response => Some(Anomaly::MalformedBody),
        // No candidate at all.
        Some(_) if !generation.began() => Some(Anomaly::Empty),
        wrong => wrong,
    });
    let reply = match wrong {
        Some(anomaly) => Err(fail(anomaly)),
        None => collector.finish().ok_or_else(|| fail(Anomaly::NoTerminalEvent)),
    };
    (reply.and_then(|reply| usable(reply, Phase::Body)), usage)
}
