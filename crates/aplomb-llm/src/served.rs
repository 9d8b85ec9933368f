//! One attempt at a model that is served in this process.

use std::borrow::Cow;
use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Collector, Delta, Message, Reply, StreamEvent, TokenUsage};
use futures_util::stream::StreamExt;
use secrecy::{ExposeSecret, SecretString};
use tokio::task::coop::consume_budget;

use crate::clocks::{Clocks, timed_out};
use crate::model::{Answer, AttemptFailed, DeltaSink, ModelConfig, ModelRequest, StreamMode, image_bytes};
use crate::service::{AnswerStream, Service, ServiceRequest};
use crate::structured;
use crate::usage;
use crate::wire::{self, ANSWER_LIMIT, Schemas};

/// Makes one attempt. The failure does not say yet whose it is.
pub(crate) async fn attempt(
    Service(service): &Service,
    config: &ModelConfig,
    request: ModelRequest<'_>,
    credential: Option<&SecretString>,
    sink: Option<DeltaSink<'_>>,
) -> Result<Answer, AttemptFailed> {
    let mut coming = Coming {
        clocks: Clocks::start(&config.timeouts),
        sink,
        live: config.stream != StreamMode::Never,
        usage: None,
        taken: 0,
        arrived: 0,
        delivered: false,
        first_delta_ms: None,
    };
    let (messages, output) = match request.output {
        Some(output) if config.quirks.schemas == Schemas::Never => {
            (Cow::Owned(structured::instructed(request.messages, output)), None)
        }
        output => (Cow::Borrowed(request.messages), output),
    };
    let answer = service.ask(ServiceRequest {
        run_id: request.run_id,
        model: &config.model,
        messages: &messages,
        tools: request.tools,
        output,
        temperature: config.temperature,
        max_tokens: config.max_tokens,
        credential: credential.map(|credential| credential.expose_secret()),
    });
    let taken = coming.take(answer).await;
    let (sent, arrived) = (size_of(request), coming.arrived);
    match taken {
        Ok(mut reply) => {
            // A service need not say what was used. It was not nothing.
            reply.usage.get_or_insert_with(|| TokenUsage::estimate(sent, arrived));
            Ok(Answer { reply, first_delta_ms: coming.first_delta_ms })
        }
        Err(failure) => {
            // What came was an answer, whatever the failure says of when it happened.
            let begun = || (arrived > 0).then(|| TokenUsage::estimate(sent, arrived));
            let usage = usage::of_failed(&failure, coming.usage, sent, arrived, true).or_else(begun);
            Err(AttemptFailed { usage, failure, delivered: coming.delivered })
        }
    }
}

/// An answer under way.
struct Coming<'a> {
    clocks: Clocks,
    sink: Option<DeltaSink<'a>>,
    /// Whether those who watch get the pieces as they come.
    live: bool,
    usage: Option<TokenUsage>,
    /// What the events that came count for against the limit.
    taken: u64,
    /// The bytes of the deltas that came.
    arrived: u64,
    delivered: bool,
    first_delta_ms: Option<u64>,
}

impl Coming<'_> {
    async fn take(&mut self, mut answer: AnswerStream<'_>) -> Result<Reply, Box<Failure>> {
        let mut collector = Collector::default();
        let (mut phase, mut ended) = (Phase::Connect, false);
        loop {
            let event = match self.clocks.wait(answer.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(failure))) => return Err(placed(failure, phase)),
                Ok(None) => break,
                // The answer is whole; what may follow did not come.
                Err(_) if ended => break,
                Err(limit) => return Err(timed_out(phase, limit)),
            };
            phase = Phase::MidStream;
            self.taken += EVENT_SIZE + size_of_event(&event);
            if self.taken > ANSWER_LIMIT as u64 {
                return Err(Box::new(Failure::anomaly(phase, Anomaly::TooLarge, b"")));
            }
            if let StreamEvent::Delta(delta) = &event {
                self.arrived += delta.size();
                self.first_delta_ms.get_or_insert_with(|| self.clocks.elapsed_ms());
                if self.live {
                    self.deliver(delta);
                }
            }
            let ends = matches!(event, StreamEvent::Finish(_));
            collector.push(&event);
            self.usage = collector.usage();
            // Once: what follows the whole answer does not prolong the wait for more.
            match (ends, ended) {
                (true, false) => self.clocks.answer_is_whole(),
                (_, true) => {}
                (false, false) => self.clocks.progress(),
            }
            ended |= ends;
            // A stream that always has more would leave the clocks and everybody else without a turn.
            consume_budget().await;
        }
        let nothing_said = || Box::new(Failure::anomaly(Phase::MidStream, Anomaly::NoTerminalEvent, b""));
        let reply = wire::usable(collector.finish().ok_or_else(nothing_said)?, Phase::MidStream)?;
        if !self.live {
            Delta::of_whole(&reply.message).for_each(|delta| self.deliver(&delta));
        }
        Ok(reply)
    }

    fn deliver(&mut self, delta: &Delta) {
        if let Some(sink) = &mut self.sink {
            sink(delta);
            self.delivered = true;
        }
    }
}

/// What an event counts for besides what it brings: about as much as it takes to keep it, and less than on any wire.
const EVENT_SIZE: u64 = 64;

/// The bytes of what an event brings.
fn size_of_event(event: &StreamEvent) -> u64 {
    match event {
        StreamEvent::Delta(delta) => delta.size(),
        StreamEvent::Signature(data)
        | StreamEvent::RedactedThinking(data)
        | StreamEvent::Opaque { data, .. } => data.len() as u64,
        _ => 0,
    }
}

/// The failure, of an answer that had come so far: a connection that is lost in the middle of one was no failure to connect.
fn placed(mut failure: Box<Failure>, phase: Phase) -> Box<Failure> {
    if failure.phase == Phase::Connect {
        failure.phase = phase;
    }
    failure
}

/// The bytes of what is asked, pictures apart.
fn size_of(request: ModelRequest<'_>) -> u64 {
    let written = |message: &Arc<Message>| serde_json::to_vec(&message.content).unwrap_or_default().len();
    let said: usize = request.messages.iter().map(written).sum();
    let tools = serde_json::to_vec(request.tools).unwrap_or_default().len();
    ((said + tools) as u64).saturating_sub(image_bytes(request.messages))
}
