//! The items of an answer, which an event brings one by one and a body all at once.

use aplomb_core::message::{Block, FinishReason, TokenUsage, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WIRE;

/// An item of an answer. Kinds that we did not ask for, such as those of the provider's own tools, are passed over.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    Message {
        content: Option<Vec<Part>>,
        phase: Option<String>,
    },
    FunctionCall {
        #[serde(default)]
        call_id: String,
        #[serde(default)]
        name: String,
        arguments: Option<String>,
    },
    Reasoning(Reasoning),
    #[serde(other)]
    Other,
}

/// A part of a message.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    OutputText {
        #[serde(default)]
        text: String,
    },
    Refusal {
        #[serde(default)]
        refusal: String,
    },
    #[serde(other)]
    Other,
}

/// What the model thought: a summary or the thoughts themselves for people, and the whole for the provider, encrypted.
#[derive(Deserialize)]
pub struct Reasoning {
    id: Option<String>,
    summary: Option<Vec<Thought>>,
    content: Option<Vec<Thought>>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct Thought {
    r#type: String,
    #[serde(default)]
    text: String,
}

/// What is kept of an answer, in its place, to be sent back as it came.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Kept {
    /// The encrypted content belongs to the id: the provider refuses the one without the other.
    Reasoning {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        summary: Vec<Value>,
        encrypted_content: String,
    },
    /// Whether the message that stands before this is a comment or the final answer. A model that is not told it back
    /// answers worse (API reference, "Create a model response", `phase`).
    Message { phase: String },
}

impl Kept {
    pub(super) fn written(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// What a block keeps for this wire.
    pub(super) fn of(block: &Block) -> Option<Kept> {
        match block {
            Block::Opaque { wire, data } if wire == WIRE => serde_json::from_str(data).ok(),
            _ => None,
        }
    }
}

impl Reasoning {
    /// The thoughts that people may read.
    pub(super) fn text(&self) -> String {
        let shown = self.summary.iter().chain(&self.content).find(|thoughts| !thoughts.is_empty());
        let texts = shown.into_iter().flatten().map(|thought| thought.text.as_str());
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// What the provider wants back. Without its encrypted content it would look the item up, and has not stored it.
    pub(super) fn kept(self) -> Option<Kept> {
        let encrypted_content = self.encrypted_content.filter(|content| !content.is_empty())?;
        let summary = self.summary.unwrap_or_default();
        let summary = summary.into_iter().filter_map(|thought| serde_json::to_value(thought).ok());
        Some(Kept::Reasoning { id: self.id, summary: summary.collect(), encrypted_content })
    }
}

impl Item {
    /// The item as blocks, and whether it refuses.
    pub(super) fn into_blocks(self) -> (Vec<Block>, bool) {
        let mut blocks = Vec::new();
        let mut refused = false;
        match self {
            Item::Message { content, phase } => {
                for part in content.unwrap_or_default() {
                    match part {
                        Part::OutputText { text } if !text.is_empty() => blocks.push(Block::Text { text }),
                        Part::Refusal { refusal } => refused |= !refusal.is_empty(),
                        _ => {}
                    }
                }
                blocks.extend(phase.and_then(|phase| opaque(&Kept::Message { phase })));
            }
            Item::FunctionCall { call_id, name, arguments } => {
                let arguments = arguments.unwrap_or_default();
                blocks.push(Block::ToolCall(ToolCall { id: call_id, name, arguments }));
            }
            Item::Reasoning(reasoning) => {
                let text = reasoning.text();
                if !text.is_empty() {
                    blocks.push(Block::Thinking { text, signature: None });
                }
                blocks.extend(reasoning.kept().and_then(|kept| opaque(&kept)));
            }
            Item::Other => {}
        }
        (blocks, refused)
    }
}

fn opaque(kept: &Kept) -> Option<Block> {
    Some(Block::Opaque { wire: WIRE.to_owned(), data: kept.written()? })
}

/// The answer as a whole: how it ended, and what it used.
#[derive(Deserialize)]
pub struct Response {
    /// Only an error has one; a response's is its `object`.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) error: Option<Value>,
    incomplete_details: Option<Incomplete>,
    pub(super) output: Option<Vec<Item>>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

impl Response {
    /// Why the model stopped, if it did. An answer with calls waits for their results.
    pub(super) fn finish(&self, has_calls: bool) -> Option<FinishReason> {
        Some(match self.status.as_deref()? {
            "completed" if has_calls => FinishReason::ToolCalls,
            "completed" => FinishReason::Stop,
            "incomplete" => {
                let details = self.incomplete_details.as_ref();
                match details.and_then(|details| details.reason.as_deref()).unwrap_or("incomplete") {
                    "max_output_tokens" => FinishReason::Length,
                    "content_filter" => FinishReason::ContentFilter,
                    other => FinishReason::Other(other.to_owned()),
                }
            }
            "cancelled" => FinishReason::Other("cancelled".to_owned()),
            // Queued, in progress, or failed, which is an error.
            _ => return None,
        })
    }

    /// What was used. Counts are read as leniently as they are written: an odd one spoils no answer.
    pub(super) fn usage(&self) -> Option<TokenUsage> {
        let usage = self.usage.as_ref()?;
        usage.as_object()?;
        let count = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        let mut tokens = TokenUsage::default();
        tokens.input = count("/input_tokens");
        tokens.output = count("/output_tokens");
        tokens.input_cached = count("/input_tokens_details/cached_tokens");
        tokens.input_cache_creation = count("/input_tokens_details/cache_write_tokens");
        tokens.reasoning = count("/output_tokens_details/reasoning_tokens");
        Some(tokens)
    }
}
