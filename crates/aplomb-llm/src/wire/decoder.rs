//! What every streamed answer has in common: events out of bytes, one answer out of events, and a limit.

use std::fmt::Debug;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Collector, Reply, StreamEvent, TokenUsage};

use super::{ANSWER_LIMIT, Decode, usable};
use crate::sse;

/// What a protocol's events say.
pub trait Protocol: Debug + Default + Send {
    /// Takes an event and adds what it adds to the answer.
    ///
    /// # Errors
    ///
    /// If it is an error, or none of the protocol's.
    fn take(&mut self, event: &sse::Event, progress: &mut Vec<StreamEvent>) -> Result<(), Box<Failure>>;

    /// Whether the answer is whole: only counts and marks may follow.
    fn is_terminal(&self) -> bool;

    /// Whether the stream has said that nothing follows.
    fn is_done(&self) -> bool;

    /// What is wrong with an answer that ends here, if anything is.
    fn wrong_end(&self) -> Option<Anomaly>;
}

/// Decodes one streamed answer of a protocol.
#[derive(Debug, Default)]
pub struct Decoder<P> {
    sse: sse::Decoder,
    collector: Collector,
    protocol: P,
    /// The bytes of all events so far.
    size: usize,
}

impl<P: Protocol> Decode for Decoder<P> {
    fn push(&mut self, bytes: &[u8], progress: &mut Vec<StreamEvent>) -> Result<(), Box<Failure>> {
        let (events, too_large) = self.sse.push(bytes);
        self.size += events.iter().map(|event| event.data.len()).sum::<usize>();
        let before = progress.len();
        let taken = events.iter().try_for_each(|event| self.protocol.take(event, progress));
        for event in progress.iter().skip(before) {
            self.collector.push(event.clone());
        }
        taken?;
        if too_large.is_some() || self.size > ANSWER_LIMIT {
            return Err(Box::new(Failure::anomaly(Phase::MidStream, Anomaly::TooLarge, b"")));
        }
        Ok(())
    }

    fn is_terminal(&self) -> bool {
        self.protocol.is_terminal()
    }

    fn is_done(&self) -> bool {
        self.protocol.is_done()
    }

    fn usage(&self) -> Option<TokenUsage> {
        self.collector.usage()
    }

    fn finish(self: Box<Self>) -> Result<Reply, Box<Failure>> {
        let fail = |anomaly| Box::new(Failure::anomaly(Phase::MidStream, anomaly, b""));
        if let Some(anomaly) = self.protocol.wrong_end() {
            return Err(fail(anomaly));
        }
        let reply = self.collector.finish().ok_or_else(|| fail(Anomaly::NoTerminalEvent))?;
        usable(reply, Phase::MidStream)
    }
}
