//! What a model is told and what it says, apart from any provider's protocol.

mod collect;
mod normalise;
mod paired;

use serde::{Deserialize, Serialize};

pub use collect::{Collector, Delta, StreamEvent};
pub use normalise::{CallIds, normalise};
pub use paired::paired;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The results of tool calls.
    Tool,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub content: Vec<Block>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
#[non_exhaustive]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Where its bytes are.
        source: ImageSource,
    },
    /// What the model thought before it answered.
    Thinking {
        /// The thoughts.
        text: String,
        /// What proves to the provider that the thoughts are its own, where its protocol has such a thing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Thoughts that the provider keeps to itself. Sent back as they came.
    RedactedThinking {
        /// What only the provider can read.
        data: String,
    },
    /// What one protocol wants back in its place, and nobody else can read, such as encrypted thoughts. Other protocols leave
    /// it out.
    Opaque {
        /// The protocol.
        wire: String,
        /// What it reads.
        data: String,
    },
    /// The model asks for a tool.
    ToolCall(ToolCall),
    /// What a tool gave.
    ToolResult(ToolResult),
}

/// Where a picture's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
#[non_exhaustive]
pub enum ImageSource {
    /// Here.
    Base64 {
        /// Such as `image/png`.
        media_type: String,
        /// The bytes in base64.
        data: String,
    },
    /// Where the provider can fetch them.
    Url {
        /// The address.
        url: String,
    },
}

/// The model asks for a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id for the call, which the result must repeat.
    pub id: String,
    /// The tool's id.
    pub name: String,
    /// The arguments as the model wrote them: JSON text, if all went well.
    pub arguments: String,
}

/// What a tool gave for one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub call_id: String,
    /// The tool's id.
    pub name: String,
    /// What the model is told.
    pub text: String,
    /// Whether the text tells of an error.
    pub is_error: bool,
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It waits for the results of tool calls.
    ToolCalls,
    /// It reached the token limit: the answer is cut off.
    Length,
    /// The provider's filter stopped it.
    ContentFilter,
    /// A word that this version does not know.
    Other(String),
}

/// Tokens, as the provider counted them unless [`estimated`](TokenUsage::estimated).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TokenUsage {
    /// Tokens of the request, cached ones included.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Of the input, those read from the provider's cache.
    pub input_cached: u64,
    /// Of the input, those written to the provider's cache.
    pub input_cache_creation: u64,
    /// Of the output, those of thoughts, where the provider tells them apart.
    pub reasoning: u64,
    /// Whether some of it is our guess, because the provider never said: see [`TokenUsage::estimate`].
    pub estimated: bool,
}

impl TokenUsage {
    /// What so many bytes of text make in tokens, roughly: English has about four characters to a token.
    ///
    /// Source: OpenAI help centre, "What are tokens and how to count them?".
    pub fn estimate(input_bytes: u64, output_bytes: u64) -> TokenUsage {
        const BYTES_PER_TOKEN: u64 = 4;
        TokenUsage {
            input: input_bytes.div_ceil(BYTES_PER_TOKEN),
            output: output_bytes.div_ceil(BYTES_PER_TOKEN),
            estimated: true,
            ..TokenUsage::default()
        }
    }
}

/// A complete answer of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said.
    pub message: Message,
    /// Why it stopped.
    pub finish: FinishReason,
    /// What it used, if the provider said so.
    pub usage: Option<TokenUsage>,
}

impl Message {
    /// A message of one text block.
    pub fn text(role: Role, text: impl Into<String>) -> Message {
        Message { role, content: vec![Block::Text { text: text.into() }] }
    }

    /// The text blocks, joined.
    pub fn to_text(&self) -> String {
        self.content
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The tool calls, in order, to be changed.
    pub fn tool_calls_mut(&mut self) -> impl Iterator<Item = &mut ToolCall> {
        self.content.iter_mut().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}
