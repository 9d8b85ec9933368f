//! A pattern: asks and calls tools like `react`, and ends every answer politely.

use aplomb::{Ask, Pattern, Role, View};
use schemars::JsonSchema;
use serde::Deserialize;

/// Answers like `react`, and closes politely.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoliteConfig {
    /// What every answer ends with.
    closing: String,
    /// Standing instructions; Aplomb sends them before the conversation.
    #[serde(default, rename = "system_prompt")]
    _system_prompt: Option<String>,
}

pub(crate) struct Polite {
    closing: String,
}

impl Polite {
    pub(crate) fn new(config: PoliteConfig) -> Polite {
        Polite { closing: config.closing }
    }
}

impl Pattern for Polite {
    fn kind(&self) -> &str {
        "polite"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, view: View<'_>) -> Ask {
        let Some(last) = view.transcript.last().filter(|last| last.role == Role::Assistant) else {
            return Ask::Model;
        };
        let calls: Vec<_> = last.tool_calls().cloned().collect();
        if calls.is_empty() {
            Ask::Finish(format!("{} {}", last.to_text(), self.closing))
        } else {
            Ask::Tools(calls)
        }
    }
}
