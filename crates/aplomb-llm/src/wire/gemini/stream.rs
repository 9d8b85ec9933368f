//! An answer that comes in events, each of which is a response with some of the parts.

use aplomb_core::failure::Anomaly;
use aplomb_core::message::{Delta, StreamEvent, TokenUsage};
use serde::Deserialize;
use serde_json::Value;

use super::{Kept, WIRE, finish_reason};
use crate::wire::{self, Protocol};

/// Decodes one streamed answer.
pub type Decoder = wire::Decoder<Generation>;

/// The protocol's events. The terminal one is that which has a finish reason.
#[derive(Debug, Default)]
pub struct Generation {
    calls: u64,
    /// What the last part was, which decides whether the next one goes on with it.
    last: Last,
    /// Whether there was an answer, however little of it.
    began: bool,
    /// A finish reason came, and nothing of the answer since.
    ended: bool,
    /// Something of the answer followed a finish reason. Versions of the API, and gateways, have sent one with every
    /// event: none of them proves that it is the last.
    went_on: bool,
    done: bool,
}

/// The last part.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Last {
    /// None, or a call: nothing goes on with it.
    #[default]
    Closed,
    /// Text without a signature.
    Text,
    /// Thoughts without a signature.
    Thought,
    /// Text or thoughts with a signature, or a signature alone. It must stay apart from what follows ("Thought
    /// signatures": a part with a signature is not merged with one without).
    Signed,
}

impl Protocol for Generation {
    type Event = WireEvent;

    /// Not Google's; gateways send it all the same.
    const END_MARK: Option<&'static str> = Some("[DONE]");

    fn take(&mut self, event: WireEvent, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        match event {
            WireEvent::Chunks(chunks) => chunks.into_iter().try_for_each(|chunk| self.add(chunk, progress)),
            WireEvent::Chunk(chunk) => self.add(*chunk, progress),
        }
    }

    fn take_end_mark(&mut self) {
        self.done = true;
    }

    fn is_terminal(&self) -> bool {
        self.ended && !self.went_on
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn wrong_end(&self) -> Option<Anomaly> {
        (!self.ended).then_some(Anomaly::NoTerminalEvent)
    }
}

impl Generation {
    /// Whether there was an answer, however little of it.
    pub(super) fn began(&self) -> bool {
        self.began
    }

    fn add(&mut self, chunk: Chunk, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        if chunk.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(Anomaly::Error);
        }
        progress.extend(chunk.usage_metadata.as_ref().and_then(token_usage).map(StreamEvent::Usage));
        // The prompt was refused, and there is no answer.
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            return Err(Anomaly::Filtered);
        }
        // One answer was asked for.
        let candidates = chunk.candidates.unwrap_or_default();
        for candidate in candidates.into_iter().filter(|candidate| candidate.index == 0) {
            self.began = true;
            let before = progress.len();
            for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
                self.add_part(part, progress);
            }
            if progress.iter().skip(before).any(|event| matches!(event, StreamEvent::Delta(_))) {
                self.went_on |= std::mem::take(&mut self.ended);
            }
            if let Some(word) = candidate.finish_reason.filter(|word| !word.is_empty()) {
                self.ended = true;
                progress.push(StreamEvent::Finish(finish_reason(&word, self.calls > 0)));
            }
        }
        Ok(())
    }

    fn add_part(&mut self, part: Part, progress: &mut Vec<StreamEvent>) {
        let thought_signature = part.thought_signature.filter(|signature| !signature.is_empty());
        let is_signed = thought_signature.is_some();
        if let Some(call) = part.function_call {
            let id = call.id.filter(|id| !id.is_empty());
            if is_signed || id.is_some() || self.last == Last::Signed {
                keep(&Kept { thought_signature, id: id.clone(), thought: false }, progress);
            }
            let text = call
                .args
                .filter(|args| !args.is_null())
                .map_or_else(|| "{}".to_owned(), |args| args.to_string());
            let index = self.calls;
            self.calls += 1;
            self.last = Last::Closed;
            let name = Some(call.name.unwrap_or_default());
            progress.push(StreamEvent::Delta(Delta::ToolCall { index, id, name, text }));
            return;
        }
        let text = part.text.unwrap_or_default();
        // Parts of kinds that we did not ask for, such as those of the provider's own tools, are passed over.
        if text.is_empty() && !is_signed {
            return;
        }
        let kind = if part.thought { Last::Thought } else { Last::Text };
        // Thoughts are marked as this provider's own; text need not be, unless it would be taken for what was signed.
        let goes_on = self.last == kind || (kind == Last::Text && self.last != Last::Signed);
        if is_signed || !goes_on {
            keep(&Kept { thought_signature, thought: part.thought, id: None }, progress);
        }
        self.last = if is_signed { Last::Signed } else { kind };
        let delta = if part.thought { Delta::Thinking { text } } else { Delta::Text { text } };
        progress.extend((!delta.is_empty()).then_some(StreamEvent::Delta(delta)));
    }
}

fn keep(kept: &Kept, progress: &mut Vec<StreamEvent>) {
    let data = serde_json::to_string(kept).ok();
    progress.extend(data.map(|data| StreamEvent::Opaque { wire: WIRE, data }));
}

/// What was used. Counts are read as leniently as they are written: an odd one spoils no answer.
///
/// Source: API reference, "Generating content", `UsageMetadata`: the prompt's count holds what was read from the cache;
/// thoughts are counted apart from the candidates.
fn token_usage(usage: &Value) -> Option<TokenUsage> {
    let usage = usage.as_object()?;
    let count = |field: &str| usage.get(field).and_then(Value::as_u64).unwrap_or_default();
    let mut tokens = TokenUsage::default();
    tokens.input = count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount"));
    tokens.input_cached = count("cachedContentTokenCount");
    tokens.reasoning = count("thoughtsTokenCount");
    tokens.output = count("candidatesTokenCount").saturating_add(tokens.reasoning);
    Some(tokens)
}

/// One event, or several in an array, as where no stream of events was given.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum WireEvent {
    Chunks(Vec<Chunk>),
    Chunk(Box<Chunk>),
}

/// A response, or some of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<Value>,
    error: Option<Value>,
}

impl Chunk {
    /// Whether it has anything of a response.
    pub(super) fn is_response(&self) -> bool {
        self.candidates.is_some()
            || self.prompt_feedback.is_some()
            || self.usage_metadata.is_some()
            || self.error.is_some()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default)]
    index: u64,
    content: Option<Content>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    parts: Option<Vec<Part>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: Option<String>,
    args: Option<Value>,
}
