//! A memory: the last few messages of each session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aplomb::{Error, Memory, Message, Role};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use schemars::JsonSchema;
use serde::Deserialize;

/// Remembers the last messages of a session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotesConfig {
    /// How many.
    #[schemars(range(min = 1, max = 1_000))]
    most: usize,
}

pub(crate) struct Notes {
    most: usize,
    notes: Mutex<HashMap<String, Vec<Arc<Message>>>>,
}

impl Notes {
    pub(crate) fn new(config: NotesConfig) -> Notes {
        Notes { most: config.most, notes: Mutex::default() }
    }
}

impl Memory for Notes {
    fn recall<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        ready(Ok(notes.get(session_id).cloned().unwrap_or_default())).boxed()
    }

    fn keep(&self, session_id: &str, messages: &[Arc<Message>]) -> Result<(), Error> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = notes.entry(session_id.to_owned()).or_default();
        notes.extend_from_slice(messages);
        // A conversation begins with what the user said: half a turn would make every later request invalid.
        while notes.len() > self.most {
            let turn = notes.iter().skip(1).position(|message| message.role == Role::User);
            notes.drain(..turn.map_or(notes.len(), |turn| turn + 1));
        }
        Ok(())
    }

    fn forget(&self, session_id: &str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).remove(session_id);
    }
}
