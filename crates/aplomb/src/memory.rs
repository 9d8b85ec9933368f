//! What an agent remembers of a session's earlier runs.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aplomb_core::error::{Error, codes};
use aplomb_core::message::Message;
use aplomb_core::run::panic_message;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// What an agent remembers of a session's earlier runs.
///
/// Runs of a session come one after the other, so a memory is never asked twice at once for one.
///
/// What it is asked is done on the thread of the run: it must not block it, but awaits, or hands on what does.
pub trait Memory: Send + Sync + 'static {
    /// What goes before a run's own messages. The model is sent it in pairs, as every provider wants it: without results
    /// that follow no call, and with an error for the result of a call that has none.
    ///
    /// # Errors
    ///
    /// Why it cannot be told. The run goes on without, or fails, by `memory.on_error`.
    fn recall<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>>;

    /// Takes what a run that completed has added to the conversation: its input, its answers and what tools gave. Called
    /// on the run's own thread, so it should hand on what takes time.
    ///
    /// # Errors
    ///
    /// Why it is not kept. The run has its answer by then and keeps it; `memory.writeback_failed` says so.
    fn keep(&self, session_id: &str, messages: &[Arc<Message>]) -> Result<(), Error>;

    /// Forgets that many of the oldest messages that [`recall`](Memory::recall) gave the run, just before
    /// [`keep`](Memory::keep): they were left out for the model to take the rest. A memory that gives them again makes
    /// every later run leave them out anew, and where they become too many, fail. One that bounds what it gives by itself
    /// need do nothing.
    ///
    /// # Errors
    ///
    /// As for `keep`, which is not called then.
    fn forget_oldest(&self, _session_id: &str, _count: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Forgets a session.
    fn forget(&self, session_id: &str);
}

/// `memory: buffer`: every session's conversation, in this process, as far as the model could take it.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Mutex<HashMap<String, Vec<Arc<Message>>>>);

impl Buffer {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Message>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for Buffer {
    fn recall<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        let conversation = self.sessions().get(session_id).cloned().unwrap_or_default();
        std::future::ready(Ok(conversation)).boxed()
    }

    fn keep(&self, session_id: &str, messages: &[Arc<Message>]) -> Result<(), Error> {
        self.sessions().entry(session_id.to_owned()).or_default().extend_from_slice(messages);
        Ok(())
    }

    fn forget_oldest(&self, session_id: &str, count: usize) -> Result<(), Error> {
        if let Some(conversation) = self.sessions().get_mut(session_id) {
            conversation.drain(..count.min(conversation.len()));
        }
        Ok(())
    }

    fn forget(&self, session_id: &str) {
        self.sessions().remove(session_id);
    }
}

/// An agent's memory.
pub(crate) struct Remembering {
    pub(crate) memory: Arc<dyn Memory>,
    /// Whether a run fails whose memory does.
    pub(crate) must_recall: bool,
}

impl Remembering {
    /// What goes before a run's own messages.
    pub(crate) async fn recall(&self, session_id: &str) -> Result<Vec<Arc<Message>>, Error> {
        // The call itself may panic, before there is a future.
        let recall = async { self.memory.recall(session_id).await };
        let recalled = AssertUnwindSafe(recall).catch_unwind().await;
        recalled.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Takes what a run has added, and how much of the oldest the model could not take.
    pub(crate) fn keep(
        &self,
        session_id: &str,
        messages: &[Arc<Message>],
        forgotten: usize,
    ) -> Result<(), Error> {
        caught(|| {
            if forgotten > 0 {
                self.memory.forget_oldest(session_id, forgotten)?;
            }
            self.memory.keep(session_id, messages)
        })
    }

    /// Forgets a session.
    pub(crate) fn forget(&self, session_id: &str) -> Result<(), Error> {
        caught(|| {
            self.memory.forget(session_id);
            Ok(())
        })
    }
}

fn caught(work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::new(codes::EXECUTION_ERROR, format!("the memory panicked: {}", panic_message(panic)))
}
