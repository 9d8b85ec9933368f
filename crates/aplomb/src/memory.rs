//! What an agent remembers of a session's earlier runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aplomb_core::message::Message;

/// The conversation of one session. Locked for as long as a run of it is under way: one run at a time.
pub(crate) type Conversation = Arc<tokio::sync::Mutex<Vec<Arc<Message>>>>;

/// `memory: buffer`: every session's whole conversation, in this process.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Mutex<HashMap<String, Conversation>>);

impl Buffer {
    pub(crate) fn conversation(&self, session_id: &str) -> Conversation {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.entry(session_id.to_owned()).or_default().clone()
    }

    /// Whether no run of the session is under way.
    pub(crate) fn is_free(&self, session_id: &str) -> bool {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(session_id).is_none_or(|conversation| conversation.try_lock().is_ok())
    }

    pub(crate) fn forget(&self, session_id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(session_id);
    }
}
