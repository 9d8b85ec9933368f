//! What an agent remembers of a session's earlier runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aplomb_core::error::Error;
use aplomb_core::message::Message;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// What an agent remembers of a session's earlier runs.
///
/// Runs of a session come one after the other, so a memory is never asked twice at once for one.
pub trait Memory: Send + Sync + 'static {
    /// What goes before a run's own messages.
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

    /// Forgets a session.
    fn forget(&self, session_id: &str);
}

/// `memory: buffer`: every session's whole conversation, in this process.
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

    fn forget(&self, session_id: &str) {
        self.sessions().remove(session_id);
    }
}

/// An agent's memory, and who of its sessions is in use: one run at a time.
pub(crate) struct Sessions {
    pub(crate) memory: Arc<dyn Memory>,
    /// Whether a run fails whose memory does.
    pub(crate) must_recall: bool,
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Sessions {
    pub(crate) fn new(memory: Arc<dyn Memory>, must_recall: bool) -> Sessions {
        Sessions { memory, must_recall, locks: Mutex::default() }
    }

    /// The lock of a session, which is held for as long as a run of it is under way.
    pub(crate) fn lock(&self, session_id: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.locks().entry(session_id.to_owned()).or_default().clone()
    }

    /// Whether no run of the session is under way.
    pub(crate) fn is_free(&self, session_id: &str) -> bool {
        self.locks().get(session_id).is_none_or(|lock| lock.try_lock().is_ok())
    }

    pub(crate) fn forget(&self, session_id: &str) {
        self.locks().remove(session_id);
        self.memory.forget(session_id);
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
