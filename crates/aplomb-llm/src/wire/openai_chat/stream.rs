//! An answer that comes in events.

use std::collections::BTreeMap;

use aplomb_core::failure::Anomaly;
use aplomb_core::message::{Delta, StreamEvent};
use serde::Deserialize;
use serde_json::Value;

use super::finish_reason;
use super::response::{Arguments, Content, token_usage};
use crate::wire::{self, Protocol};

/// Decodes one streamed answer.
pub type Decoder = wire::Decoder<Chat>;

/// The protocol's events.
///
/// The terminal one is the `finish_reason` of every choice. `[DONE]` alone is none: proxies send it after an answer that
/// broke off, too.
#[derive(Debug, Default)]
pub struct Chat {
    /// The choices that began, and whether each has ended.
    choices: BTreeMap<u64, bool>,
    /// Something of the answer followed its finish reason. Gateways have sent one with every event: none of them proves
    /// that it is the last.
    went_on: bool,
    /// The tool calls, in the order that they began.
    calls: Vec<Slot>,
    refusal: bool,
    done: bool,
}

/// A tool call, as its fragments name it.
#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    id: String,
}

impl Protocol for Chat {
    type Event = Chunk;

    const END_MARK: Option<&'static str> = Some("[DONE]");

    fn take(&mut self, chunk: Chunk, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        if chunk.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(Anomaly::Error);
        }
        for choice in chunk.choices.unwrap_or_default() {
            self.take_choice(choice, progress);
        }
        progress.extend(chunk.usage.as_ref().and_then(token_usage).map(StreamEvent::Usage));
        Ok(())
    }

    fn take_end_mark(&mut self) {
        self.done = true;
    }

    fn is_terminal(&self) -> bool {
        self.has_ended() && !self.went_on
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn wrong_end(&self) -> Option<Anomaly> {
        if !self.has_ended() {
            // `[DONE]` and not one choice: it ended regularly, with nothing.
            let empty = self.choices.is_empty() && self.done;
            return Some(if empty { Anomaly::Empty } else { Anomaly::NoTerminalEvent });
        }
        self.refusal.then_some(Anomaly::Refused)
    }
}

impl Chat {
    /// Whether every choice has its finish reason.
    fn has_ended(&self) -> bool {
        !self.choices.is_empty() && self.choices.values().all(|ended| *ended)
    }

    /// Which of the answer's calls a fragment belongs to. By the protocol its `index` says so, but some vendors leave it
    /// out, or give every call the same: a new id is a new call.
    fn slot_of(&mut self, index: Option<u64>, id: Option<&str>) -> u64 {
        let id = id.filter(|id| !id.is_empty());
        let found = self.calls.iter().rposition(|call| match id {
            Some(id) => (call.id == id || call.id.is_empty()) && (index.is_none() || call.index == index),
            None => index.is_none() || call.index == index,
        });
        let slot = found.unwrap_or_else(|| {
            self.calls.push(Slot { index, id: String::new() });
            self.calls.len() - 1
        });
        if let (Some(call), Some(id)) = (self.calls.get_mut(slot), id) {
            id.clone_into(&mut call.id);
        }
        slot as u64
    }

    fn take_choice(&mut self, choice: Choice, progress: &mut Vec<StreamEvent>) {
        let finish = finish_reason(choice.finish_reason);
        // One answer was asked for. A second choice counts for the end of the stream, and for nothing else.
        if choice.index != 0 {
            *self.choices.entry(choice.index).or_default() |= finish.is_some();
            return;
        }
        let delta = choice.delta.unwrap_or_default();
        self.refusal |= delta.refusal.is_some_and(|refusal| !refusal.is_empty());
        let before = progress.len();
        let mut tell = |delta: Delta| {
            if !delta.is_empty() {
                progress.push(StreamEvent::Delta(delta));
            }
        };
        if let Some(text) = delta.reasoning_content.or(delta.reasoning) {
            tell(Delta::Thinking { text });
        }
        if let Some(content) = delta.content {
            tell(Delta::Text { text: content.into_text() });
        }
        for call in delta.tool_calls.unwrap_or_default() {
            let index = self.slot_of(call.index, call.id.as_deref());
            let function = call.function.unwrap_or_default();
            let text = function.arguments.map(Arguments::into_text).unwrap_or_default();
            tell(Delta::ToolCall { index, id: call.id, name: function.name, text });
        }
        let ended = self.choices.entry(choice.index).or_default();
        if progress.len() > before {
            self.went_on |= std::mem::take(ended);
        }
        *ended |= finish.is_some();
        progress.extend(finish.map(StreamEvent::Finish));
    }
}

/// One event.
#[derive(Deserialize)]
pub struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<ChoiceDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct ChoiceDelta {
    content: Option<Content>,
    /// DeepSeek's and vLLM's name.
    reasoning_content: Option<String>,
    /// OpenRouter's and Groq's name; some gateways send both.
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize, Default)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Arguments>,
}
