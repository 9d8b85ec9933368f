//! A model that is served in this process: by the program itself, or by something that it knows how to ask.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Block, Collector, Delta, Message, Reply, StreamEvent, TokenUsage};
use aplomb_core::run::{Capability, OutputSchema};
use aplomb_core::tool::ToolSpec;
use futures_util::future::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use secrecy::{ExposeSecret, SecretString};
use tokio::task::coop::consume_budget;

use crate::clocks::Clocks;
use crate::provider::{
    Answer, AttemptFailed, DeltaSink, ModelConfig, ModelRequest, StreamMode, image_bytes, timed_out,
};
use crate::structured;
use crate::usage;
use crate::wire::{self, ANSWER_LIMIT, Schemas};

/// An answer as it comes: its pieces, and in the end [`StreamEvent::Finish`]; or the failure that ended it.
///
/// An answer that ends without `Finish` is a failure, never a short success. [`StreamEvent::Usage`] comes before it or just
/// after, and then the stream ends: one that stays open after `Finish` is waited for, at most 2 s, for the counts that may
/// follow. Where none came, what was used is estimated. One that is larger than 64 MiB is a failure, too; each event counts
/// as 64 bytes and what it brings.
pub type AnswerStream<'a> = BoxStream<'a, Result<StreamEvent, Box<Failure>>>;

/// A model that is served in this process.
///
/// It is asked once per attempt. What follows a failure is decided elsewhere, from what the failure says: a service that
/// stands in front of HTTP says [`Failure::status`] with the headers that came, one that cannot reach what it asks
/// [`Failure::transport`], one whose answer is wrong [`Failure::anomaly`]. Aplomb adds whose failure it is, takes known
/// credentials out of it, and limits the time: `llm.timeout_ms` to the first piece, `llm.timeouts.idle_ms` between two,
/// `llm.timeouts.attempt_ms` for all.
///
/// Each attempt is a task of its own, which the run drops when it no longer wants it. A service that computes for long must
/// await now and then, or hand that to a thread: it cannot be stopped in between, although the run goes on without it.
pub trait ModelService: Send + Sync + 'static {
    /// What can be asked of it besides text. An agent that needs more is refused when it is made ready. Asked once then.
    fn offers(&self) -> &[Capability] {
        &[]
    }

    /// One attempt. Dropping the stream ends it.
    fn ask<'a>(&'a self, request: ServiceRequest<'a>) -> AnswerStream<'a>;
}

/// What is asked of a model that is served in this process.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ServiceRequest<'a> {
    /// The run.
    pub run_id: &'a str,
    /// `llm.model`; the provider's name where that is missing.
    pub model: &'a str,
    /// The conversation.
    pub messages: &'a [Arc<Message>],
    /// The tools that it may ask for.
    pub tools: &'a [ToolSpec],
    /// What the answer must fit, where the service [offers](ModelService::offers) structured output. For others it stands in
    /// the conversation's instructions.
    pub output: Option<&'a OutputSchema>,
    /// `llm.temperature`.
    pub temperature: Option<f64>,
    /// `llm.max_tokens`: the most tokens of the answer.
    pub max_tokens: Option<u32>,
    /// The credential, where the config or the program gives one.
    pub credential: Option<&'a str>,
}

/// Without the credential, and without the conversation.
impl fmt::Debug for ServiceRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &mut f.debug_struct("ServiceRequest");
        request.field("run_id", &self.run_id).field("model", &self.model).finish_non_exhaustive()
    }
}

/// An answer that comes in one piece.
pub fn whole<'a>(answer: impl Future<Output = Result<Reply, Box<Failure>>> + Send + 'a) -> AnswerStream<'a> {
    let events = answer.map(|answer| match answer {
        Ok(reply) => events_of(reply).into_iter().map(Ok).collect(),
        Err(failure) => vec![Err(failure)],
    });
    stream::once(events).flat_map(stream::iter).boxed()
}

/// What makes up a reply. What only the wire of another provider can read has no use here.
fn events_of(reply: Reply) -> Vec<StreamEvent> {
    let Reply { message, finish, usage } = reply;
    let mut events = Vec::new();
    for (index, block) in (0..).zip(message.content) {
        match block {
            Block::Text { text } => events.push(StreamEvent::Delta(Delta::Text { text })),
            Block::Thinking { text, signature } => {
                events.push(StreamEvent::Delta(Delta::Thinking { text }));
                events.extend(signature.map(StreamEvent::Signature));
            }
            Block::RedactedThinking { data } => events.push(StreamEvent::RedactedThinking(data)),
            Block::ToolCall(call) => events.push(StreamEvent::Delta(Delta::ToolCall {
                index,
                id: Some(call.id),
                name: Some(call.name),
                text: call.arguments,
            })),
            _ => {}
        }
    }
    events.extend(usage.map(StreamEvent::Usage));
    events.push(StreamEvent::Finish(finish));
    events
}

/// A service that is part of a model's config.
#[derive(Clone)]
pub struct Service(pub Arc<dyn ModelService>);

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

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
