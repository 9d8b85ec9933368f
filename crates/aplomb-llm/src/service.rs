//! A model that is served in this process: by the program itself, or by something that it knows how to ask.

use std::fmt;
use std::sync::Arc;

use aplomb_core::failure::Failure;
use aplomb_core::message::{Block, Delta, Message, Reply, StreamEvent};
use aplomb_core::run::{Capability, OutputSchema};
use aplomb_core::tool::ToolSpec;
use futures_util::future::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};

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
