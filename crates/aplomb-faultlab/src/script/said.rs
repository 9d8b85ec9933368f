//! What the model says: a message of the script with its templates filled in and its blanks decided, before
//! any protocol puts it on the wire.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::chat::Chat;
use super::split;
use super::template::Values;
use super::{Fault, Message, ToolCall, Usage};

/// Characters of tool arguments per event, where the script does not say: few enough that a client must
/// assemble.
const ARGUMENT_CHARS: usize = 8;

/// Characters per token, roughly, by OpenAI's rule of thumb for English.
const CHARS_PER_TOKEN: usize = 4;

/// A message, ready to render.
pub(super) struct Said {
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    /// Whether there are thoughts that nobody may read.
    pub(super) redacted_thinking: bool,
    /// Whether there is not even somebody who says nothing.
    pub(super) by_nobody: bool,
    pub(super) calls: Vec<Call>,
    /// Why the model ended, in OpenAI's words.
    pub(super) finish_reason: String,
    pub(super) usage: Usage,
    pub(super) gap: Duration,
    chunk_chars: Option<usize>,
}

/// A call of a tool with all that it needs.
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, unless the script says otherwise.
    pub(super) arguments: String,
}

impl Said {
    /// The message in this conversation, cut off where the fault says so. A call without an id gets one that begins with
    /// the prefix.
    pub(super) fn new(
        message: &Message,
        fault: Option<&Fault>,
        call_id_prefix: &str,
        chat: &Chat,
        values: &Values,
    ) -> Self {
        let by_nobody = fault == Some(&Fault::EmptyAnswer);
        let message = if by_nobody { &message.without_content() } else { message };
        let text = message.text.as_deref().map(|text| values.fill(text));
        let thinking = message.thinking.as_deref().map(|thinking| values.fill(thinking));
        let mut calls = calls(&message.tool_calls, call_id_prefix, chat, values);
        let default_reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let mut finish_reason = message.finish_reason.as_deref().unwrap_or(default_reason);
        if let Some(Fault::CutArguments { finish_reason: pretended }) = fault {
            finish_reason = pretended;
            if let Some(call) = calls.last_mut() {
                let half = call.arguments.chars().count() / 2;
                call.arguments = call.arguments.chars().take(half).collect();
            }
        }
        let usage = message.usage.unwrap_or_else(|| {
            let said: usize = text.iter().chain(&thinking).map(|text| text.chars().count()).sum();
            let called: usize =
                calls.iter().map(|call| call.name.chars().count() + call.arguments.chars().count()).sum();
            Usage::new(tokens(chat.chars), tokens(said + called))
        });
        Self {
            text,
            thinking,
            redacted_thinking: message.redacted_thinking,
            by_nobody,
            calls,
            finish_reason: finish_reason.to_owned(),
            usage,
            gap: Duration::from_millis(message.event_gap_ms),
            chunk_chars: message.chunk_chars,
        }
    }

    /// The text as a stream sends it.
    pub(super) fn text_pieces(&self) -> Vec<String> {
        self.pieces(self.text.as_deref())
    }

    /// The thinking as a stream sends it.
    pub(super) fn thinking_pieces(&self) -> Vec<String> {
        self.pieces(self.thinking.as_deref())
    }

    /// A call's arguments as a stream sends them.
    pub(super) fn argument_pieces(&self, call: &Call) -> Vec<String> {
        split::every(self.chunk_chars.unwrap_or(ARGUMENT_CHARS), &call.arguments)
    }

    /// How many of the answer's tokens the thinking took, by the same rule of thumb.
    pub(super) fn thinking_tokens(&self) -> u64 {
        let chars = self.thinking.as_deref().map(|thinking| thinking.chars().count()).unwrap_or_default();
        tokens(chars).min(self.usage.completion_tokens)
    }

    fn pieces(&self, text: Option<&str>) -> Vec<String> {
        match (text, self.chunk_chars) {
            (None, _) => Vec::new(),
            (Some(text), None) => split::words(text),
            (Some(text), Some(size)) => split::every(size, text),
        }
    }
}

/// The calls with their ids. A call without one gets the next number, past every id that the conversation
/// has.
fn calls(scripted: &[ToolCall], prefix: &str, chat: &Chat, values: &Values) -> Vec<Call> {
    let given = scripted.iter().filter_map(|call| call.id.as_deref());
    let mut taken: BTreeSet<String> =
        chat.call_ids.iter().map(String::as_str).chain(given).map(str::to_owned).collect();
    let mut number = chat.call_ids.len();
    let mut next_id = || {
        loop {
            number += 1;
            let id = format!("{prefix}{number}");
            if taken.insert(id.clone()) {
                break id;
            }
        }
    };
    scripted
        .iter()
        .map(|call| Call {
            id: call.id.clone().unwrap_or_else(&mut next_id),
            name: call.name.clone(),
            arguments: match &call.arguments {
                Value::String(verbatim) => verbatim.clone(),
                json => values.fill_json(json).to_string(),
            },
        })
        .collect()
}

fn tokens(chars: usize) -> u64 {
    u64::try_from(chars.div_ceil(CHARS_PER_TOKEN)).unwrap_or(u64::MAX)
}
