//! What the targets have in common: what holds whatever comes.

use aplomb_core::failure::classify::explain;
use aplomb_core::failure::{BODY_LIMIT, Failure, classify};
use aplomb_core::message::{Reply, StreamEvent, TokenUsage};
use aplomb_llm::wire::{Quirks, Wire};

/// Every failure gets a verdict by a rule that can be explained, and is short and legible once it is sealed.
pub fn judge(mut failure: Failure) {
    let verdict = classify(&failure);
    assert_eq!(verdict.retryable, verdict.code().retryable());
    assert!(explain(&verdict.rule).is_some(), "{}", verdict.rule);
    failure.seal(["a-secret-that-was-sent"]);
    assert!(failure.body.len() <= BODY_LIMIT);
    assert!(!failure.to_string().contains("a-secret-that-was-sent"));
    let written = serde_json::to_vec(&failure).expect("a failure can be written");
    let read: Failure = serde_json::from_slice(&written).expect("and read again");
    assert_eq!(read, failure);
}

/// Bytes as an answer of this wire, streamed and not: a reply or a failure, however the bytes are split.
pub fn decode(wire: Wire, bytes: &[u8]) {
    let (whole, _) = wire.decode_body(bytes);
    if let Err(failure) = whole {
        judge(*failure);
    }
    let at_once = stream(wire, [bytes].into_iter());
    let by_bytes = stream(wire, bytes.chunks(1));
    assert_eq!(at_once, by_bytes);
    if let Err(failure) = at_once.0 {
        judge(failure);
    }
}

type Streamed = (Result<Reply, Failure>, Vec<StreamEvent>, Option<TokenUsage>);

fn stream<'a>(wire: Wire, mut chunks: impl Iterator<Item = &'a [u8]>) -> Streamed {
    let mut decoder = wire.decoder(Quirks::NONE);
    let mut progress = Vec::new();
    let pushed = chunks.try_for_each(|chunk| decoder.push(chunk, &mut progress));
    let usage = decoder.usage();
    let outcome = pushed.and_then(|()| decoder.finish()).map_err(|failure| *failure);
    (outcome, progress, usage)
}
