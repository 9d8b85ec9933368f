//! A program with the whole command line of Aplomb, and parts of its own: a tool, a pattern, a memory and an error.
//!
//! ```text
//! cargo run -p own-parts -- run examples/own-parts/agent.json --input "How is parcel A17?"
//! cargo run -p own-parts -- list-plugins
//! cargo run -p own-parts -- schema --plugin parcels
//! ```

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use aplomb::plugins::Registry;
use aplomb::tools::{Tool, ToolContext};
use aplomb::{AgentError, Ask, Error, Memory, Message, Pattern, Role, View};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

fn main() -> ExitCode {
    aplomb_cli::main_with(
        Registry::new()
            .tool("parcels", |config: ParcelsConfig| Ok(Parcels(config.known)))
            .pattern("polite", |config: PoliteConfig| Ok(Polite { closing: config.closing }))
            .memory("notes", |config: NotesConfig| Ok(Notes { most: config.most, notes: Mutex::default() })),
    )
}

// ---- An error, with a code of its own. `own-parts errors parcels.unknown` explains it.

#[derive(Debug, AgentError)]
#[agent_error(
    code = "parcels.unknown",
    parent = "tool.permanent",
    hint = "ask for the number on the receipt"
)]
#[error("no parcel has the number {number}")]
struct UnknownParcel {
    number: String,
}

// ---- A tool.

/// Says where parcels are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ParcelsConfig {
    /// Where each parcel is, by its number.
    known: BTreeMap<String, String>,
}

struct Parcels(BTreeMap<String, String>);

impl Tool for Parcels {
    fn description(&self) -> &str {
        "Says where a parcel is, by its number."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"number": {"type": "string"}},
            "required": ["number"],
            "additionalProperties": false
        })
    }

    fn idempotent(&self) -> bool {
        true
    }

    fn call(&self, arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        let number = arguments.get("number").and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = self.0.get(&number).map(|place| json!(place));
        ready(found.ok_or_else(|| UnknownParcel { number }.into())).boxed()
    }
}

// ---- A pattern: asks and calls tools like `react`, and ends every answer politely.

/// Answers like `react`, and closes politely.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoliteConfig {
    /// What every answer ends with.
    closing: String,
    /// Standing instructions; Aplomb sends them before the conversation.
    #[serde(default, rename = "system_prompt")]
    _system_prompt: Option<String>,
}

struct Polite {
    closing: String,
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

// ---- A memory: the last few messages of each session.

/// Remembers the last messages of a session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NotesConfig {
    /// How many.
    #[schemars(range(min = 1, max = 1_000))]
    most: usize,
}

struct Notes {
    most: usize,
    notes: Mutex<HashMap<String, Vec<Arc<Message>>>>,
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
