//! Folds the events of a streamed answer into one message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Block, FinishReason, Message, Reply, Role, TokenUsage, ToolCall};

/// What a wire's decoder makes of its protocol's events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEvent {
    /// Some of the answer.
    Delta(Delta),
    /// What proves to the provider that the thoughts so far are its own. Comes whole.
    Signature(String),
    /// Thoughts that the provider keeps to itself.
    RedactedThinking(String),
    /// What only the protocol named can read. Comes whole.
    Opaque {
        /// The protocol.
        wire: &'static str,
        /// What it reads.
        data: String,
    },
    /// What was used so far; a later count replaces an earlier one.
    Usage(TokenUsage),
    /// Why the model stopped. The protocol's terminal event.
    Finish(FinishReason),
}

/// A piece of an answer, as it can be handed to somebody who watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Delta {
    /// Text.
    Text {
        /// The next characters.
        text: String,
    },
    /// Thoughts.
    Thinking {
        /// The next characters.
        text: String,
    },
    /// A tool call, in fragments.
    ToolCall {
        /// Which of the answer's calls.
        index: u64,
        /// The call's id, with its first fragment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The tool's id, with its first fragment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The next characters of the arguments.
        text: String,
    },
}

impl Delta {
    /// A whole answer as deltas, one for each of its blocks.
    pub fn of_whole(message: &Message) -> impl Iterator<Item = Delta> {
        (0..).zip(&message.content).filter_map(|(index, block)| match block {
            Block::Text { text } => Some(Delta::Text { text: text.clone() }),
            Block::Thinking { text, .. } => Some(Delta::Thinking { text: text.clone() }),
            Block::ToolCall(call) => Some(Delta::ToolCall {
                index,
                id: Some(call.id.clone()),
                name: Some(call.name.clone()),
                text: call.arguments.clone(),
            }),
            _ => None,
        })
    }

    /// The bytes of what it brings.
    pub fn size(&self) -> u64 {
        let size = match self {
            Delta::Text { text } | Delta::Thinking { text } => text.len(),
            Delta::ToolCall { name, text, .. } => name.as_ref().map_or(0, String::len) + text.len(),
        };
        size as u64
    }

    /// True if there is nothing in it that anybody could see.
    pub fn is_empty(&self) -> bool {
        match self {
            Delta::Text { text } | Delta::Thinking { text } => text.is_empty(),
            Delta::ToolCall { id, name, text, .. } => id.is_none() && name.is_none() && text.is_empty(),
        }
    }
}

/// Puts the pieces of one answer together, in the order that they came: a provider that wants its thoughts back wants
/// them in their place.
#[derive(Debug, Default)]
pub struct Collector {
    content: Vec<Block>,
    /// Where in the content each tool call is.
    calls: BTreeMap<u64, usize>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
}

impl Collector {
    /// Takes the next event.
    pub fn push(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::Delta(delta) => self.push_delta(delta),
            // Thoughts may be signed without being shown.
            StreamEvent::Signature(proof) => match self.content.last_mut() {
                Some(Block::Thinking { signature: signature @ None, .. }) => *signature = Some(proof.clone()),
                _ => {
                    let (text, signature) = (String::new(), Some(proof.clone()));
                    self.content.push(Block::Thinking { text, signature });
                }
            },
            StreamEvent::RedactedThinking(data) => {
                self.content.push(Block::RedactedThinking { data: data.clone() });
            }
            StreamEvent::Opaque { wire, data } => {
                self.content.push(Block::Opaque { wire: (*wire).to_owned(), data: data.clone() });
            }
            StreamEvent::Usage(usage) => self.usage = Some(*usage),
            StreamEvent::Finish(finish) => self.finish = Some(finish.clone()),
        }
    }

    fn push_delta(&mut self, delta: &Delta) {
        match (delta, self.content.last_mut()) {
            (Delta::Text { text: more }, Some(Block::Text { text })) => text.push_str(more),
            (Delta::Text { text }, _) => self.content.push(Block::Text { text: text.clone() }),
            // Thoughts that have been signed are complete.
            (Delta::Thinking { text: more }, Some(Block::Thinking { text, signature: None })) => {
                text.push_str(more);
            }
            (Delta::Thinking { text }, _) => {
                self.content.push(Block::Thinking { text: text.clone(), signature: None });
            }
            (Delta::ToolCall { index, id, name, text }, _) => {
                let at = *self.calls.entry(*index).or_insert(self.content.len());
                if at == self.content.len() {
                    let (id, name, arguments) = (String::new(), String::new(), String::new());
                    self.content.push(Block::ToolCall(ToolCall { id, name, arguments }));
                }
                let Some(Block::ToolCall(call)) = self.content.get_mut(at) else { return };
                // Some vendors repeat id and name with every fragment: they are set, never appended.
                if let Some(id) = id.as_ref().filter(|id| !id.is_empty()) {
                    call.id.clone_from(id);
                }
                if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
                    call.name.clone_from(name);
                }
                call.arguments.push_str(text);
            }
        }
    }

    /// What the provider said that was used so far.
    pub fn usage(&self) -> Option<TokenUsage> {
        self.usage
    }

    /// The whole answer. An answer whose terminal event never came is none.
    pub fn finish(self) -> Option<Reply> {
        let message = Message { role: Role::Assistant, content: self.content };
        Some(Reply { message, finish: self.finish?, usage: self.usage })
    }
}
