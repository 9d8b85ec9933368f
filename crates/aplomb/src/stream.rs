//! A run as a stream of chunks.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use aplomb_core::event::{Event, EventName, names};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::first_delta::FirstDelta;
use crate::request::RunResult;

/// What a chunk is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ChunkKind {
    /// The run began.
    #[serde(rename = "run.started")]
    RunStarted,
    /// A piece of the model's answer.
    #[serde(rename = "llm.delta")]
    LlmDelta,
    /// The model begins its answer anew: the chunks from `discard_from` on are void.
    #[serde(rename = "llm.restarted")]
    LlmRestarted,
    /// The model's answer is whole.
    #[serde(rename = "llm.finished")]
    LlmFinished,
    /// A tool was called.
    #[serde(rename = "tool.started")]
    ToolStarted,
    /// A tool gave its result, or failed.
    #[serde(rename = "tool.finished")]
    ToolFinished,
    /// The output was rejected, and the model is asked to correct it.
    #[serde(rename = "validation.retry")]
    ValidationRetry,
    /// The run ended; the chunk holds its result. Always the last one.
    #[serde(rename = "run.finished")]
    RunFinished,
}

impl ChunkKind {
    fn of(event: EventName) -> Option<ChunkKind> {
        const KINDS: [(EventName, ChunkKind); 9] = [
            (names::SESSION_RUN_STARTED, ChunkKind::RunStarted),
            (names::LLM_DELTA, ChunkKind::LlmDelta),
            (names::LLM_RESTARTED, ChunkKind::LlmRestarted),
            (names::LLM_SUCCEEDED, ChunkKind::LlmFinished),
            (names::TOOL_CALLED, ChunkKind::ToolStarted),
            (names::TOOL_SUCCEEDED, ChunkKind::ToolFinished),
            (names::TOOL_FAILED, ChunkKind::ToolFinished),
            (names::TOOL_CANCELLED, ChunkKind::ToolFinished),
            (names::VALIDATION_RETRY, ChunkKind::ValidationRetry),
        ];
        KINDS.iter().find(|(name, _)| *name == event).map(|(_, kind)| *kind)
    }
}

/// A piece of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunStreamChunk<T = String> {
    /// What it is about.
    pub kind: ChunkKind,
    /// In which run.
    pub run_id: String,
    /// In which session.
    pub session_id: String,
    /// By which agent.
    pub agent_id: String,
    /// Counts from 0 within the run, without gaps.
    pub sequence: u64,
    /// When, in ms of Unix time.
    pub timestamp_ms: u64,
    /// What there is to say about it; that of the event it comes from.
    pub payload: Map<String, Value>,
    /// The run's result, in the last chunk.
    pub result: Option<RunResult<T>>,
}

impl RunStreamChunk {
    fn with_result<T>(self, result: Option<RunResult<T>>) -> RunStreamChunk<T> {
        RunStreamChunk {
            kind: self.kind,
            run_id: self.run_id,
            session_id: self.session_id,
            agent_id: self.agent_id,
            sequence: self.sequence,
            timestamp_ms: self.timestamp_ms,
            payload: self.payload,
            result,
        }
    }
}

/// Turns events into chunks, with a sequence of their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkQueue(Arc<Mutex<Chunks>>);

#[derive(Debug, Default)]
struct Chunks {
    waiting: VecDeque<RunStreamChunk>,
    sequence: u64,
    first_delta: FirstDelta,
    last_event: Option<Event>,
}

impl ChunkQueue {
    pub(crate) fn push_event(&self, event: &Event) {
        let mut chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.last_event = Some(event.clone());
        chunks.first_delta.note_event(event.name);
        let Some(kind) = ChunkKind::of(event.name) else { return };
        let mut payload = event.payload.clone();
        let sequence = chunks.sequence;
        match kind {
            ChunkKind::LlmDelta => chunks.first_delta.note_delta(sequence),
            ChunkKind::LlmRestarted => {
                // The event counts events; here chunks count.
                let discard_from = chunks.first_delta.take().unwrap_or(sequence);
                payload.insert("discard_from".to_owned(), discard_from.into());
            }
            _ => {}
        }
        let chunk = chunks.next(kind, event, payload);
        chunks.waiting.push_back(chunk);
    }

    /// The last chunk, which holds the result. It has the payload of the last event.
    fn last<T>(&self, result: RunResult<T>) -> Option<RunStreamChunk<T>> {
        let mut chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let event = chunks.last_event.take()?;
        let chunk = chunks.next(ChunkKind::RunFinished, &event, event.payload.clone());
        Some(chunk.with_result(Some(result)))
    }

    fn pop(&self) -> Option<RunStreamChunk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

impl Chunks {
    fn next(&mut self, kind: ChunkKind, event: &Event, payload: Map<String, Value>) -> RunStreamChunk {
        let sequence = self.sequence;
        self.sequence += 1;
        RunStreamChunk {
            kind,
            run_id: event.run_id.clone(),
            session_id: event.session_id.clone(),
            agent_id: event.agent_id.clone(),
            sequence,
            timestamp_ms: event.timestamp_ms,
            payload,
            result: None,
        }
    }
}

/// A run, watched. It makes progress while it is polled, and dropping it ends it.
///
/// The last chunk is [`ChunkKind::RunFinished`] with the result, also where the run failed.
pub struct RunStream<T = String> {
    run: Option<BoxFuture<'static, RunResult<T>>>,
    /// The last chunk, while others come before it.
    last: Option<RunStreamChunk<T>>,
    chunks: ChunkQueue,
}

impl<T> RunStream<T> {
    pub(crate) fn new(run: BoxFuture<'static, RunResult<T>>, chunks: ChunkQueue) -> RunStream<T> {
        RunStream { run: Some(run), last: None, chunks }
    }
}

/// Nothing in it is pinned in place: the run is in a box.
impl<T> Unpin for RunStream<T> {}

impl<T> Stream for RunStream<T> {
    type Item = RunStreamChunk<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunStreamChunk<T>>> {
        if let Some(chunk) = self.chunks.pop() {
            return Poll::Ready(Some(chunk.with_result(None)));
        }
        if let Some(run) = &mut self.run
            && let Poll::Ready(result) = run.as_mut().poll(context)
        {
            self.run = None;
            self.last = self.chunks.last(result);
        }
        match self.chunks.pop() {
            Some(chunk) => Poll::Ready(Some(chunk.with_result(None))),
            None if self.run.is_none() => Poll::Ready(self.last.take()),
            None => Poll::Pending,
        }
    }
}
