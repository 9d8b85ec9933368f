//! What every streamed answer has in common: events out of bytes, one answer out of events, and a limit.

use std::fmt::Debug;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Collector, Reply, StreamEvent, TokenUsage};
use serde::de::DeserializeOwned;

use super::{ANSWER_LIMIT, Decode, usable};
use crate::sse;

/// What a protocol's events say.
pub trait Protocol: Debug + Send {
    /// One event, as the protocol writes it in JSON.
    type Event: DeserializeOwned;

    /// The data that is no JSON and says that nothing follows, where the protocol has such a mark.
    const END_MARK: Option<&'static str> = None;

    /// Takes an event and adds to `progress` what it adds to the answer.
    ///
    /// # Errors
    ///
    /// If it says that the answer failed.
    fn take(&mut self, event: Self::Event, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly>;

    /// The end mark came.
    fn take_end_mark(&mut self) {}

    /// Whether the answer is known to be whole: only counts and marks may follow. What is not known to be whole can still
    /// end well, if its stream does.
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

impl<P: Protocol> Decoder<P> {
    /// A decoder for an answer of which nothing has come.
    pub fn new(protocol: P) -> Decoder<P> {
        Decoder { sse: sse::Decoder::default(), collector: Collector::default(), protocol, size: 0 }
    }

    /// Takes what one server-sent event holds: by every protocol one JSON object or the end mark.
    ///
    /// Some proxies glue the data of several events together. Nothing is lost by that, since JSON says where it ends, so
    /// each is taken by itself. Data cut in two is refused: nobody can tell whether white space was lost at the cut.
    fn take(&mut self, event: &sse::Event, progress: &mut Vec<StreamEvent>) -> Result<(), Box<Failure>> {
        let fail =
            |anomaly, data: &str| Box::new(Failure::anomaly(Phase::MidStream, anomaly, data.as_bytes()));
        let mut rest = event.data.trim();
        if event.kind == "error" {
            return Err(fail(Anomaly::Error, rest));
        }
        while !rest.is_empty() {
            if P::END_MARK == Some(rest) {
                self.protocol.take_end_mark();
                break;
            }
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<P::Event>();
            let Some(Ok(value)) = values.next() else {
                // What follows the end of a whole answer can only take it back by saying so.
                let harmless = self.protocol.is_terminal();
                return if harmless { Ok(()) } else { Err(fail(Anomaly::MalformedEvent, rest)) };
            };
            let (taken, after) = rest.split_at_checked(values.byte_offset()).unwrap_or((rest, ""));
            self.protocol.take(value, progress).map_err(|anomaly| fail(anomaly, taken))?;
            rest = after.trim_start();
        }
        Ok(())
    }
}

impl<P: Protocol> Decode for Decoder<P> {
    fn push(&mut self, bytes: &[u8], progress: &mut Vec<StreamEvent>) -> Result<(), Box<Failure>> {
        let (events, too_large) = self.sse.push(bytes);
        self.size += events.iter().map(|event| event.data.len()).sum::<usize>();
        let before = progress.len();
        let taken = events.iter().try_for_each(|event| self.take(event, progress));
        for event in progress.iter().skip(before) {
            self.collector.push(event);
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
