//! What an agent remembers of a session's earlier runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aplomb_core::error::Error;
use aplomb_core::message::Message;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

/// What an agent remembers of a session's earlier runs.
///
/// Runs of a session come one after the other, so a memory is never asked twice at once for one.
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

/// An agent's memory, and who of its sessions is in use: one run at a time.
pub(crate) struct Sessions {
    pub(crate) memory: Arc<dyn Memory>,
    /// Whether a run fails whose memory does.
    pub(crate) must_recall: bool,
    /// Those that somebody has or waits for.
    queues: Mutex<HashMap<String, Queue>>,
}

/// Those who have a session or wait for it.
#[derive(Default)]
struct Queue {
    places: usize,
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// A place in a session's queue. The last one to leave takes the queue away.
struct Place {
    sessions: Arc<Sessions>,
    session_id: String,
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// A session, while it is nobody else's.
pub(crate) struct Held {
    // The session is let go of before the place is left.
    _guard: OwnedMutexGuard<()>,
    place: Place,
}

impl Sessions {
    pub(crate) fn new(memory: Arc<dyn Memory>, must_recall: bool) -> Sessions {
        Sessions { memory, must_recall, queues: Mutex::default() }
    }

    /// The session, once nobody else has it.
    pub(crate) async fn hold(self: &Arc<Sessions>, session_id: &str) -> Held {
        let place = self.queue_up(session_id);
        let guard = place.lock.clone().lock_owned().await;
        Held { _guard: guard, place }
    }

    /// The session, if nobody has it.
    pub(crate) fn try_hold(self: &Arc<Sessions>, session_id: &str) -> Option<Held> {
        let place = self.queue_up(session_id);
        let guard = place.lock.clone().try_lock_owned().ok()?;
        Some(Held { _guard: guard, place })
    }

    fn queue_up(self: &Arc<Sessions>, session_id: &str) -> Place {
        let mut queues = self.queues();
        let queue = queues.entry(session_id.to_owned()).or_default();
        queue.places += 1;
        Place { sessions: self.clone(), session_id: session_id.to_owned(), lock: queue.lock.clone() }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<String, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Forgets what was said in it.
    pub(crate) fn forget(&self) {
        self.place.sessions.memory.forget(&self.place.session_id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.sessions.queues();
        if let Some(queue) = queues.get_mut(&self.session_id) {
            queue.places -= 1;
            if queue.places == 0 {
                queues.remove(&self.session_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_pending(future: Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn sessions() -> Arc<Sessions> {
        Arc::new(Sessions::new(Arc::new(Buffer::default()), false))
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_session_that_nobody_has_or_waits_for() {
        let sessions = sessions();
        let held = sessions.hold("s").await;
        {
            let waits = sessions.hold("s");
            let mut waits = std::pin::pin!(waits);
            assert!(is_pending(waits.as_mut()));
            // Whoever has it lets go, and whoever waited for it gives up.
            drop(held);
            assert_eq!(sessions.queues().len(), 1);
        }
        assert!(sessions.queues().is_empty());
        assert!(sessions.try_hold("t").is_some());
        assert!(sessions.queues().is_empty());
    }

    #[tokio::test]
    async fn a_run_that_waits_while_its_session_is_closed_has_it_alone_after_that() {
        let sessions = sessions();
        let closing = sessions.try_hold("s").unwrap();
        let mut waits = std::pin::pin!(sessions.hold("s"));
        assert!(is_pending(waits.as_mut()));
        closing.forget();
        drop(closing);
        let _held = waits.await;
        assert!(sessions.try_hold("s").is_none());
    }
}
