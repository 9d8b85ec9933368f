//! The output that a run is to give: what it must be like, and how far the run has come with it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EffectId;

/// What an output must be like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// Its name, for the model and for messages.
    pub name: String,
    /// A JSON Schema.
    pub schema: Value,
}

/// What is wrong with an output, in words for two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// For the model, which knows what it said.
    pub told: String,
    /// For errors and events: without the values of the output, any of which may be a secret.
    pub masked: String,
}

impl From<String> for Misfit {
    /// What both may know.
    fn from(masked: String) -> Misfit {
        Misfit { told: masked.clone(), masked }
    }
}

/// What a model call is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Purpose {
    /// An answer to the conversation.
    #[default]
    Answer,
    /// A better answer than the one that was rejected.
    Correction,
}

/// How far the run has come with its output.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Validation {
    /// The check that is waited for, and the output that is checked.
    pub(super) waiting: Option<(EffectId, String)>,
    /// How many outputs were rejected.
    pub(super) rejected: u32,
    /// The answer that was rejected last, while nothing has happened since that may have changed it.
    pub(super) last_answer: Option<String>,
    /// What was wrong the last time, without the values of the output.
    pub(super) last_error: Option<String>,
}
