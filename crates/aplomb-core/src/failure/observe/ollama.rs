//! Ollama's chat and generate. Source: Ollama, docs/api.md (`done`, `done_reason`).

use serde_json::Value;

use super::Reader;
use super::progress::{End, Progress};

pub(super) const READER: Reader = Reader { wire: "ollama", whole, event };

fn whole(body: &Value, progress: &mut Progress) -> bool {
    event("", body, progress)
}

fn event(_: &str, line: &Value, progress: &mut Progress) -> bool {
    let message = line.get("message").filter(|message| message.is_object());
    let is_known =
        message.is_some() || line.get("response").is_some_and(Value::is_string) || line.get("done").is_some();
    if !is_known {
        return false;
    }
    progress.has_begun = true;
    progress.text(line.get("response").and_then(Value::as_str));
    if let Some(message) = message {
        progress.text(message.get("content").and_then(Value::as_str));
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for (_, index) in calls.into_iter().flatten().zip(0u64..) {
            progress.arguments.entry(index).or_default();
        }
    }
    if line.get("done").and_then(Value::as_bool) == Some(true) {
        progress.end = Some(match line.get("done_reason").and_then(Value::as_str) {
            Some("length") => End::TokenLimit,
            // It loaded or unloaded the model, and answered nothing.
            Some("load" | "unload") => End::MalformedCall,
            _ => End::Regular,
        });
    }
    true
}
