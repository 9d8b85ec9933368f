//! One pure codec per protocol: a conversation to a request's body, an answer's bytes to a reply or a failure.
//!
//! A wire knows its protocol and nothing of HTTP clients, time or retries.

pub mod anthropic;
mod decoder;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;

use std::borrow::Cow;
use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Block, CallIds, FinishReason, Message, Reply, Role, StreamEvent, TokenUsage};
use aplomb_core::tool::ToolSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use decoder::{Decoder, Protocol};

/// The most bytes of an answer, streamed or not. Far more than any model says; what exceeds it is no answer.
pub const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// What a request's body says besides the conversation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Parameters<'a> {
    /// The model.
    pub model: &'a str,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// The most tokens of the answer.
    pub max_tokens: Option<u32>,
    /// Whether the model reasons before it answers. Such a model takes no temperature, but for Google's.
    pub reasons: bool,
    /// What the provider is to keep in its cache. Only Anthropic's wire asks for it; the others cache unasked.
    pub cache: &'a [CachePoint],
    /// What the output must fit, where the protocol's own field says so.
    pub output: Option<&'a OutputFormat>,
    /// How the vendor differs from its protocol.
    pub quirks: Quirks,
}

/// What an output must fit, as the protocol's own field for it has it.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputFormat {
    /// A name of up to 64 letters, digits, underscores and dashes.
    pub name: String,
    /// A JSON Schema that the vendor takes.
    pub schema: Value,
    /// Whether the vendor is to let nothing else pass, where its protocol leaves the choice.
    pub strict: bool,
}

/// A part of a request up to whose end the provider keeps what it has read.
// The next request with the same beginning costs less. Source: Claude Platform Docs, "Prompt caching":
// <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum CachePoint {
    /// The tools, which come first.
    Tools,
    /// The standing instructions.
    System,
    /// The last message: the whole conversation so far.
    LastMessage,
}

/// How a vendor differs from the protocol that it speaks, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirks {
    /// On Anthropic's wire: the stop reason ends the answer, and `message_stop` may not follow. Off, a stream without
    /// `message_stop` is one that broke off.
    pub message_stop_is_optional: bool,
    /// The header that carries the key, and what stands before the key in it, where it is not the protocol's.
    pub key_header: Option<(&'static str, &'static str)>,
    /// On the Chat Completions wire: what the limit of the answer is called.
    pub answer_limit: AnswerLimit,
    /// On the Chat Completions wire: a stream brings its usage unasked, and asking is refused.
    pub usage_comes_unasked: bool,
    /// On the Chat Completions wire: the model's thoughts are sent back with what it said.
    ///
    /// Source: DeepSeek API Docs, "Thinking Mode", "Tool Calls" (<https://api-docs.deepseek.com/guides/thinking_mode>):
    /// a conversation in which tools were called is refused without them, and in others they are ignored.
    pub reasoning_goes_back: bool,
    /// Whether a request may say which schema the output must fit.
    pub schemas: Schemas,
    /// On OpenAI's wires: such a schema bounds no value.
    pub schemas_are_plain: bool,
}

impl Quirks {
    /// The protocol as it is written.
    pub const NONE: Quirks = Quirks {
        message_stop_is_optional: false,
        key_header: None,
        answer_limit: AnswerLimit::ByModel,
        usage_comes_unasked: false,
        reasoning_goes_back: false,
        schemas: Schemas::AsProtocol,
        schemas_are_plain: false,
    };
}

impl Default for Quirks {
    fn default() -> Quirks {
        Quirks::NONE
    }
}

/// Whether a vendor takes the schema of an output in the field that its protocol has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schemas {
    /// Yes.
    AsProtocol,
    /// Where the model has no tools. With them the request is refused, or the model is kept from calling any.
    ///
    /// Source: vllm#39929 and llama.cpp#25454 on GitHub; Gemini's models before the third generation answer "Function
    /// calling with a response mime type: 'application/json' is unsupported".
    WithoutTools,
    /// No, or not all of its models do.
    Never,
    /// Yes, whatever is known of it, of the model and of the schema: somebody knows better.
    Always,
}

/// What the limit of an answer is called on the Chat Completions wire.
///
/// Source: OpenAI API reference, "Create chat completion", `max_completion_tokens` and `max_tokens` (deprecated, and not
/// taken by models that reason): <https://platform.openai.com/docs/api-reference/chat/create>. Most vendors know
/// `max_tokens` alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerLimit {
    /// `max_completion_tokens` where the model reasons, `max_tokens` otherwise.
    #[default]
    ByModel,
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// OpenAI's Chat Completions.
    OpenaiChat,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
}

impl Wire {
    /// The path below the API's base, with its query where it has one.
    pub fn path(self, model: &str, stream: bool) -> Cow<'static, str> {
        match self {
            Wire::OpenaiChat => openai_chat::PATH.into(),
            Wire::OpenaiResponses => openai_responses::PATH.into(),
            Wire::Anthropic => anthropic::PATH.into(),
            Wire::Gemini => gemini::path(model, stream).into(),
        }
    }

    /// The header that carries the key, and what stands before the key in it.
    pub fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Wire::OpenaiChat | Wire::OpenaiResponses => ("authorization", "Bearer "),
            Wire::Anthropic => ("x-api-key", ""),
            Wire::Gemini => ("x-goog-api-key", ""),
        }
    }

    /// Which ids of calls are taken back, unless the vendor says otherwise.
    ///
    /// Source: OpenAI's API reference (40 characters); Claude Platform Docs, "Messages" (`^[a-zA-Z0-9_-]+$`).
    pub const fn call_ids(self) -> CallIds {
        match self {
            Wire::OpenaiChat | Wire::OpenaiResponses | Wire::Gemini => CallIds::AtMost(40),
            Wire::Anthropic => CallIds::Words,
        }
    }

    /// The headers that every request has.
    pub fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Wire::OpenaiChat | Wire::OpenaiResponses | Wire::Gemini => &[],
            Wire::Anthropic => &[("anthropic-version", anthropic::VERSION)],
        }
    }

    /// The body of a request.
    ///
    /// # Errors
    ///
    /// If a value cannot be written as JSON, such as a temperature that is not a number.
    pub fn request_body(
        self,
        parameters: Parameters<'_>,
        messages: &[Arc<Message>],
        tools: &[ToolSpec],
    ) -> serde_json::Result<Vec<u8>> {
        match self {
            Wire::OpenaiChat => openai_chat::request_body(parameters, messages, tools),
            Wire::OpenaiResponses => openai_responses::request_body(parameters, messages, tools),
            Wire::Anthropic => anthropic::request_body(parameters, messages, tools),
            Wire::Gemini => gemini::request_body(parameters, messages, tools),
        }
    }

    /// Whether a request can say what is to be cached.
    pub fn takes_cache_points(self) -> bool {
        self == Wire::Anthropic
    }

    /// Reads the body of a response whose status was good: the answer, and what was used, which a failed answer may
    /// have used all the same.
    pub fn decode_body(self, body: &[u8]) -> (Result<Reply, Box<Failure>>, Option<TokenUsage>) {
        match self {
            Wire::OpenaiChat => openai_chat::decode_body(body),
            Wire::OpenaiResponses => openai_responses::decode_body(body),
            Wire::Anthropic => anthropic::decode_body(body),
            Wire::Gemini => gemini::decode_body(body),
        }
    }

    /// A decoder for one streamed answer of a vendor.
    pub fn decoder(self, quirks: Quirks) -> Box<dyn Decode> {
        match self {
            Wire::OpenaiChat => Box::new(openai_chat::Decoder::default()),
            Wire::OpenaiResponses => Box::new(openai_responses::Decoder::default()),
            Wire::Anthropic => Box::new(anthropic::Decoder::new(anthropic::Messages::of(quirks))),
            Wire::Gemini => Box::new(gemini::Decoder::default()),
        }
    }
}

/// Merges `patch` into a request's body, as a JSON merge patch: objects merge, `null` takes a field away, anything else
/// replaces what was there.
///
/// Source: RFC 7396, §2.
///
/// # Errors
///
/// If the body is no JSON.
pub fn merge(body: &[u8], patch: &Map<String, Value>) -> serde_json::Result<Vec<u8>> {
    let mut body = serde_json::from_slice(body)?;
    merge_into(&mut body, patch);
    serde_json::to_vec(&body)
}

fn merge_into(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => drop(fields.remove(name)),
            Value::Object(patch) => {
                let field = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if !field.is_object() {
                    *field = Value::Object(Map::new());
                }
                if let Value::Object(fields) = field {
                    merge_into(fields, patch);
                }
            }
            _ => drop(fields.insert(name.clone(), value.clone())),
        }
    }
}

/// Turns the bytes of a streamed answer into deltas, and in the end into a reply or a failure.
pub trait Decode: Send {
    /// Takes the next bytes and adds to `progress` what they add to the answer, also where an error follows it.
    ///
    /// # Errors
    ///
    /// If the stream brings an error or an event that is none of the protocol's.
    fn push(&mut self, bytes: &[u8], progress: &mut Vec<StreamEvent>) -> Result<(), Box<Failure>>;

    /// Whether the answer is known to be whole: only counts and marks may follow. What is not known to be whole can still
    /// end well, if its stream does.
    fn is_terminal(&self) -> bool;

    /// Whether the stream has said that nothing follows.
    fn is_done(&self) -> bool;

    /// What the provider says that was used so far.
    fn usage(&self) -> Option<TokenUsage>;

    /// The whole answer, after the last byte.
    ///
    /// # Errors
    ///
    /// If the stream ended without its terminal event, or the answer holds nothing usable.
    fn finish(self: Box<Self>) -> Result<Reply, Box<Failure>>;
}

/// The standing instructions of a conversation, for protocols that have a place of their own for them.
fn standing_instructions(messages: &[Arc<Message>]) -> Option<String> {
    let texts =
        messages.iter().filter(|message| message.role == Role::System).map(|message| message.to_text());
    let text = texts.collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then_some(text)
}

/// A name for a place in a path. Its slashes are the path's.
pub(crate) fn encoded(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                path.push(byte.into())
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// What the model wrote, unless it is not JSON: providers refuse a history that holds such.
fn json_arguments(arguments: &str) -> &str {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
    if is_json { arguments } else { "{}" }
}

/// Finish reasons that say the answer broke off.
///
/// Source: DeepSeek's API reference ("interrupted due to insufficient resource of the inference system"); OpenRouter's
/// API reference, "Finish Reason" (`error`); vLLM (`abort`); OpenAI's Responses (`cancelled`); and, of Gemini's
/// `FinishReason`, those by which the model made a call that is none, which it may do better the next time.
const BROKEN_OFF: [&str; 7] = [
    "insufficient_system_resource",
    "error",
    "abort",
    "cancelled",
    "MALFORMED_FUNCTION_CALL",
    "MALFORMED_RESPONSE",
    "UNEXPECTED_TOOL_CALL",
];

/// A reply that ended regularly, unless there is nothing in it that anybody could use.
pub(crate) fn usable(reply: Reply, phase: Phase) -> Result<Reply, Box<Failure>> {
    let calls = reply.message.tool_calls().count();
    let says_something = |block: &Block| matches!(block, Block::Text { text } if !text.trim().is_empty());
    let has_content = calls > 0 || reply.message.content.iter().any(says_something);
    let (anomaly, word) = match &reply.finish {
        FinishReason::Other(word) if BROKEN_OFF.contains(&word.as_str()) => (Anomaly::BrokenOff, Some(word)),
        FinishReason::Other(word) => (Anomaly::UnknownEnd, Some(word)),
        FinishReason::ContentFilter => (Anomaly::Filtered, None),
        FinishReason::ToolCalls if calls == 0 => (Anomaly::Empty, None),
        _ if has_content => return Ok(reply),
        FinishReason::Length => (Anomaly::EmptyAtTokenLimit, None),
        _ => (Anomaly::Empty, None),
    };
    let shown = word.map(|word| format!("finish reason: {word}")).unwrap_or_default();
    Err(Box::new(Failure::anomaly(phase, anomaly, shown.as_bytes())))
}
