//! The output that a run is to give: what it must be like, and how far the run has come with it.

use std::sync::Arc;

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

/// What a run's output must be like, and how often the model may correct one that is not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WantedOutput {
    /// What it must fit. Without one, any text will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<OutputSchema>>,
    /// The most corrections of a run.
    pub max_validation_retries: u32,
}

impl Default for WantedOutput {
    fn default() -> WantedOutput {
        WantedOutput { schema: None, max_validation_retries: 3 }
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
    /// The output that was rejected last, and why.
    pub(super) last: Option<(String, String)>,
}
