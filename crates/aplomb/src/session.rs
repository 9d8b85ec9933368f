//! Sessions: where their transcripts are kept, and who has one: one run at a time.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aplomb_core::error::{Error, codes};
use aplomb_core::message::Message;
use aplomb_core::run::panic_message;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

/// Where the transcripts of sessions are kept: `session`.
///
/// A transcript is what was said in a session's runs that completed, run after run, whichever agents they were of. It is a
/// record, which [`Runtime::transcript`](crate::Runtime::transcript) reads: what an agent remembers of it is its
/// [`Memory`](crate::Memory)'s matter.
///
/// A session's name is its user's choice: a store must never make a path or a statement of it as it is. Runs of one session
/// come one after the other; different sessions are asked for at once.
///
/// What it is asked is done on the thread of the run: it must not block it, but awaits, or hands on what does. Each time it
/// may take 10 s, and is given up then.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex, PoisonError};
///
/// use aplomb::plugins::{NoConfig, Registry};
/// use aplomb::{Error, Message, SessionStore};
/// use futures_util::future::{BoxFuture, FutureExt, ready};
///
/// /// Keeps every session while the program lives.
/// #[derive(Default)]
/// struct Shelf(Mutex<HashMap<String, Vec<Arc<Message>>>>);
///
/// impl SessionStore for Shelf {
///     fn append<'a>(&'a self, session_id: &'a str, messages: &'a [Arc<Message>]) -> BoxFuture<'a, Result<(), Error>> {
///         let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         shelf.entry(session_id.to_owned()).or_default().extend_from_slice(messages);
///         ready(Ok(())).boxed()
///     }
///
///     fn load<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
///         let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         ready(Ok(shelf.get(session_id).cloned().unwrap_or_default())).boxed()
///     }
///
///     fn forget<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<(), Error>> {
///         self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(session_id);
///         ready(Ok(())).boxed()
///     }
/// }
///
/// let registry = Registry::new().session("shelf", |_: NoConfig| Ok(Shelf::default()));
/// # let _ = registry;
/// ```
pub trait SessionStore: Send + Sync + 'static {
    /// Adds what a run has added to the conversation: its input, its answers and what tools gave. All of it or nothing:
    /// the future may be dropped before it is done, such as by the run's deadline.
    ///
    /// # Errors
    ///
    /// Why it is not kept. The run has its answer by then and keeps it; `session.append_failed` says so.
    fn append<'a>(
        &'a self,
        session_id: &'a str,
        messages: &'a [Arc<Message>],
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// The transcript, from its beginning; nothing of a session that there is not. It may be asked for at any time, also while
    /// [`append`](SessionStore::append) or [`forget`](SessionStore::forget) is at work on that session: it gives what was
    /// before or what is after, and nothing in between.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn load<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>>;

    /// Forgets a session. One that there is not is forgotten already.
    ///
    /// # Errors
    ///
    /// Why it is still there.
    fn forget<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<(), Error>>;
}

/// `session: in_memory`: in this process, the sessions that were used last.
pub(crate) struct InMemory {
    max_sessions: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Each with when it was used last, counted in uses.
    sessions: HashMap<String, (u64, Vec<Arc<Message>>)>,
    /// The sessions by when they were used last.
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

impl Kept {
    /// Adds to a session, in the place of the one that was used the longest ago where there are as many as there may be.
    fn add(&mut self, session_id: &str, messages: &[Arc<Message>], max_sessions: usize) {
        let Kept { sessions, by_use, uses } = self;
        *uses += 1;
        if let Some((used, transcript)) = sessions.get_mut(session_id) {
            by_use.remove(used);
            *used = *uses;
            transcript.extend_from_slice(messages);
        } else {
            if sessions.len() >= max_sessions
                && let Some((_, oldest)) = by_use.pop_first()
            {
                sessions.remove(&oldest);
            }
            sessions.insert(session_id.to_owned(), (*uses, messages.to_vec()));
        }
        by_use.insert(*uses, session_id.to_owned());
    }
}

impl InMemory {
    pub(crate) fn new(max_sessions: usize) -> InMemory {
        InMemory { max_sessions, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for InMemory {
    fn append<'a>(
        &'a self,
        session_id: &'a str,
        messages: &'a [Arc<Message>],
    ) -> BoxFuture<'a, Result<(), Error>> {
        if self.max_sessions > 0 {
            self.kept().add(session_id, messages, self.max_sessions);
        }
        std::future::ready(Ok(())).boxed()
    }

    fn load<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        let kept = self.kept();
        let transcript = kept.sessions.get(session_id).map(|(_, transcript)| transcript.clone());
        std::future::ready(Ok(transcript.unwrap_or_default())).boxed()
    }

    fn forget<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let Kept { sessions, by_use, .. } = &mut *self.kept();
        if let Some((used, _)) = sessions.remove(session_id) {
            by_use.remove(&used);
        }
        std::future::ready(Ok(())).boxed()
    }
}

/// How long the session store may take for what it is asked once, in ms.
pub(crate) const STORE_LIMIT_MS: u64 = 10_000;

/// The session store was given up.
pub(crate) fn given_up(when: &str) -> Error {
    Error::new(codes::SESSION_ERROR, format!("the session store was not done when {when}"))
}

/// The sessions of a runtime.
pub(crate) struct Sessions {
    store: Arc<dyn SessionStore>,
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
    _place: Place,
}

impl Sessions {
    pub(crate) fn new(store: Arc<dyn SessionStore>) -> Sessions {
        Sessions { store, queues: Mutex::default() }
    }

    /// The session, once nobody else has it.
    pub(crate) async fn hold(self: &Arc<Sessions>, session_id: &str) -> Held {
        let place = self.queue_up(session_id);
        let guard = place.lock.clone().lock_owned().await;
        Held { _guard: guard, _place: place }
    }

    /// The session, if nobody has it.
    pub(crate) fn try_hold(self: &Arc<Sessions>, session_id: &str) -> Option<Held> {
        let place = self.queue_up(session_id);
        let guard = place.lock.clone().try_lock_owned().ok()?;
        Some(Held { _guard: guard, _place: place })
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

    /// Adds to a transcript.
    pub(crate) async fn append(&self, session_id: &str, messages: &[Arc<Message>]) -> Result<(), Error> {
        stored(async { self.store.append(session_id, messages).await }).await
    }

    /// Reads a transcript.
    pub(crate) async fn load(&self, session_id: &str) -> Result<Vec<Arc<Message>>, Error> {
        stored(async { self.store.load(session_id).await }).await
    }

    /// Forgets a transcript.
    pub(crate) async fn forget(&self, session_id: &str) -> Result<(), Error> {
        stored(async { self.store.forget(session_id).await }).await
    }
}

/// What a store did, whose failures are the session's, and whose panics are failures.
async fn stored<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let failed = |why: &str| Error::new(codes::SESSION_ERROR, format!("the session store {why}"));
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) if error.is_a(codes::SESSION_ERROR) => Err(error),
        Ok(Err(error)) => Err(failed(&format!("failed: {}", error.message())).with_cause(error)),
        Err(panic) => Err(failed(&format!("panicked: {}", panic_message(&*panic)))),
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

    use aplomb_core::message::Role;

    use super::*;

    fn is_pending(future: Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn in_memory(max_sessions: usize) -> InMemory {
        InMemory::new(max_sessions)
    }

    fn sessions() -> Arc<Sessions> {
        Arc::new(Sessions::new(Arc::new(in_memory(2))))
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
        drop(closing);
        let _held = waits.await;
        assert!(sessions.try_hold("s").is_none());
    }

    #[tokio::test]
    async fn in_memory_keeps_the_sessions_that_were_used_last() {
        let store = in_memory(2);
        for session in ["a", "b", "a", "c"] {
            store.append(session, &[Arc::new(Message::text(Role::User, session))]).await.unwrap();
        }
        let mut lengths = Vec::new();
        for session in ["a", "b", "c", "d"] {
            lengths.push(store.load(session).await.unwrap().len());
        }
        assert_eq!(lengths, [2, 0, 1, 0]);
        store.forget("a").await.unwrap();
        assert!(store.load("a").await.unwrap().is_empty());
        // What was forgotten is nothing that makes room: the next two are both kept, and "c" is the one that goes.
        for session in ["d", "e"] {
            store.append(session, &[Arc::new(Message::text(Role::User, session))]).await.unwrap();
        }
        let mut lengths = Vec::new();
        for session in ["c", "d", "e"] {
            lengths.push(store.load(session).await.unwrap().len());
        }
        assert_eq!(lengths, [0, 1, 1]);
    }

    #[tokio::test]
    async fn in_memory_keeps_nothing_where_it_may_keep_no_session() {
        let store = in_memory(0);
        store.append("a", &[Arc::new(Message::text(Role::User, "a"))]).await.unwrap();
        assert!(store.load("a").await.unwrap().is_empty());
    }
}
