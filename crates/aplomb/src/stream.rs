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
    /// The run ended; the chunk holds its result. Always the last one.
    #[serde(rename = "run.finished")]
    RunFinished,
}

impl ChunkKind {
    fn of(event: EventName) -> Option<ChunkKind> {
        const KINDS: [(EventName, ChunkKind); 8] = [
            (names::SESSION_RUN_STARTED, ChunkKind::RunStarted),
            (names::LLM_DELTA, ChunkKind::LlmDelta),
            (names::LLM_RESTARTED, ChunkKind::LlmRestarted),
            (names::LLM_SUCCEEDED, ChunkKind::LlmFinished),
            (names::TOOL_CALLED, ChunkKind::ToolStarted),
            (names::TOOL_SUCCEEDED, ChunkKind::ToolFinished),
            (names::TOOL_FAILED, ChunkKind::ToolFinished),
            (names::TOOL_CANCELLED, ChunkKind::ToolFinished),
        ];
        KINDS.iter().find(|(name, _)| *name == event).map(|(_, kind)| *kind)
    }
}

/// A piece of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunStreamChunk {
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
    pub result: Option<RunResult>,
}

/// Turns events into chunks, with a sequence of their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkQueue(Arc<Mutex<Chunks>>);

#[derive(Debug, Default)]
struct Chunks {
    waiting: VecDeque<RunStreamChunk>,
    sequence: u64,
    /// The first delta of the call under way: what a restart voids.
    first_delta: Option<u64>,
    last_event: Option<Event>,
}

impl ChunkQueue {
    pub(crate) fn push_event(&self, event: &Event) {
        let mut chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.last_event = Some(event.clone());
        let Some(kind) = ChunkKind::of(event.name) else { return };
        let mut payload = event.payload.clone();
        let sequence = chunks.sequence;
        match kind {
            ChunkKind::LlmDelta => {
                chunks.first_delta.get_or_insert(sequence);
            }
            ChunkKind::LlmRestarted => {
                // The event counts events; here chunks count.
                let discard_from = chunks.first_delta.take().unwrap_or(sequence);
                payload.insert("discard_from".to_owned(), discard_from.into());
            }
            _ => chunks.first_delta = None,
        }
        chunks.push(kind, event, payload, None);
    }

    fn push_result(&self, result: RunResult) {
        let mut chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = chunks.last_event.take() {
            chunks.push(ChunkKind::RunFinished, &event, event.payload.clone(), Some(result));
        }
    }

    fn pop(&self) -> Option<RunStreamChunk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

impl Chunks {
    fn push(
        &mut self,
        kind: ChunkKind,
        event: &Event,
        payload: Map<String, Value>,
        result: Option<RunResult>,
    ) {
        self.waiting.push_back(RunStreamChunk {
            kind,
            run_id: event.run_id.clone(),
            session_id: event.session_id.clone(),
            agent_id: event.agent_id.clone(),
            sequence: self.sequence,
            timestamp_ms: event.timestamp_ms,
            payload,
            result,
        });
        self.sequence += 1;
    }
}

/// A run, watched. It makes progress while it is polled, and dropping it ends it.
///
/// The last chunk is [`ChunkKind::RunFinished`] with the result, also where the run failed.
pub struct RunStream {
    run: Option<BoxFuture<'static, RunResult>>,
    chunks: ChunkQueue,
}

impl RunStream {
    pub(crate) fn new(run: BoxFuture<'static, RunResult>, chunks: ChunkQueue) -> RunStream {
        RunStream { run: Some(run), chunks }
    }
}

impl Stream for RunStream {
    type Item = RunStreamChunk;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunStreamChunk>> {
        if let Some(chunk) = self.chunks.pop() {
            return Poll::Ready(Some(chunk));
        }
        if let Some(run) = &mut self.run
            && let Poll::Ready(result) = run.as_mut().poll(context)
        {
            self.run = None;
            self.chunks.push_result(result);
        }
        match self.chunks.pop() {
            Some(chunk) => Poll::Ready(Some(chunk)),
            None if self.run.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
