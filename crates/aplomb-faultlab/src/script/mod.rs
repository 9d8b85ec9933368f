//! The scenario language: what the provider answers, request by request, and what goes wrong on the way.
//!
//! Plain data and pure functions. Knows no socket, no clock and no runtime, and no other crate of ours: the
//! server and any in-process mock play what [`Engine::plan`] returns.
//!
//! The types of this file *are* the JSON that people write; a field's name and meaning here are its name and
//! meaning there. Unknown fields are refused everywhere. [`Script::from_json`] is the usual way in; see the
//! crate's documentation for a whole script.

mod engine;
mod fault;
mod openai_chat;
mod plan;
mod split;
mod template;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use engine::{Engine, Request};
pub use plan::{Answer, End, Framing, Part, Plan, Response};
pub use validate::ScriptError;

/// A scenario: the answers in the order in which they are given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Script {
    /// Names for what a request said: each is a regular expression, searched for in the text of the last user
    /// message. The value is group 1 where the expression has one that took part in the match, else the whole
    /// match, without surrounding white space. Texts use it as `{{name}}`.
    ///
    /// Names consist of ASCII letters, digits and `_`; `input` and `tool_result` are taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, String>,
    /// The answers; at least one.
    pub steps: Vec<Step>,
    /// What a request gets after the last step.
    #[serde(default)]
    pub at_end: AtEnd,
}

/// What a request gets when every step has been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AtEnd {
    /// HTTP 400 with an error that says how many steps there were and which request this was. A client that
    /// asks more often than its test expects should hear of it.
    #[default]
    Stop,
    /// The last step, again and again.
    RepeatLast,
    /// The first step, and so on from there.
    Restart,
}

/// One answer, or the same answer several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Step {
    /// What the provider means to answer.
    pub reply: Reply,
    /// What happens to the answer on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// How many requests this step serves; 1 if not given, never 0.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Milliseconds between the end of the request and the first sign of an answer (or of a reset or close).
    #[serde(default)]
    pub delay_ms: u64,
}

fn once() -> u32 {
    1
}

/// What the provider means to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// A bare HTTP answer, sent as it stands: errors of the provider, pages of a gateway. Never streamed,
    /// whatever the request asked for.
    Http(HttpReply),
    /// A message of the model, rendered in the protocol of the request, streamed if the request asks for it.
    Message(Message),
}

/// A bare HTTP answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpReply {
    /// The status, 200 to 599.
    pub status: u16,
    /// Headers to send. They replace faultlab's own of the same name (`content-type`, `x-request-id`), but
    /// for `content-length` and `transfer-encoding`, which are refused: how a body ends is for [`Fault`] to
    /// say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body: a string is sent as it is (as `text/plain`), any other JSON as JSON (as `application/json`),
    /// nothing or `null` as an empty body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// A message of the model. Everything is optional: `{}` is a model that finishes without a word.
///
/// `text`, `thinking` and the strings inside tool arguments are templates. `{{input}}` is the text of the
/// last user message, `{{tool_result}}` the content of the last tool message after it, and each of
/// [`Script::captures`] has its name. A name that has no value in a conversation shows as `[no name]`, so
/// that a test which reads the text sees it. A `{{` that no `}}` follows is plain text, and values are not
/// expanded again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Message {
    /// What the model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What the model thinks before it says anything: `reasoning_content`, as DeepSeek sends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The tools the model calls, after its text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Why the model ended, verbatim; `tool_calls` if it called any, else `stop`, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// The token counts to report. If not given: a quarter of the characters, rounded up, which is rough but
    /// the same every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Characters of text, thinking and tool arguments per event of a stream, at least 1. If not given, text
    /// and thinking go one word per event, and tool arguments eight characters per event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_chars: Option<usize>,
    /// Milliseconds between one event of a stream and the next.
    pub event_gap_ms: u64,
}

/// A call of a tool by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's id. If not given: `call_1`, `call_2`, … counting on from the calls already in the
    /// conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments: an object, whose strings are templates; or a string, which is sent exactly as it is,
    /// for a model that writes broken JSON. `{}` if not given.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Token counts that a message reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
}

/// What goes wrong with an answer.
///
/// *Streamed* is what a [`Reply::Message`] is when the request asks for a stream; everything else is *plain*,
/// a [`Reply::Http`] always.
///
/// `after_events` counts the content events of a stream, each an SSE event: the one that names the role is
/// the first, then come thinking, text and tool calls. A number past the last of them means all of them:
/// an answer with such a fault never has the events with the finish reason and the usage, nor `[DONE]`. A
/// plain answer has no events and ignores the number: where a stream breaks after so many events, a plain
/// body breaks after half its bytes, rounded down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// The request is read, then the connection is reset (TCP RST) without a byte of an answer.
    ResetBeforeHeaders,
    /// The request is read, then the connection is closed (TCP FIN) without a byte of an answer.
    CloseBeforeHeaders,
    /// The request is read and nothing follows until the client leaves.
    Silence,
    /// The connection dies in the body.
    ///
    /// Streamed: `after_events` events, then the end of the connection where the next chunk would begin.
    /// Plain: the headers with the whole `content-length`, half the body, then the end.
    Cut {
        /// Content events before the cut.
        after_events: usize,
        /// How the connection ends.
        by: CutBy,
    },
    /// The stream ends cleanly, as HTTP sees it, but the message never does.
    ///
    /// Streamed: every content event, none with a finish reason, no usage. Plain: `finish_reason` is `null`.
    /// Needs a message.
    EndWithoutTerminal {
        /// Whether `data: [DONE]` is sent all the same. Plain answers have no such thing and ignore it.
        done: bool,
    },
    /// An error arrives in the body of an answer that began as a success; then the body ends cleanly.
    ///
    /// Streamed: `after_events` events, then the error as an event. Plain: status 200 and the error as its
    /// body. Needs a message.
    ErrorEvent {
        /// Content events before the error.
        after_events: usize,
        /// The error. A string is the event's data as it is; any other JSON is sent as JSON. The empty string
        /// is an event of type `error` with empty data, and an empty body if plain.
        body: Value,
    },
    /// The connection is kept alive and nothing more is said, for as long as the client stays.
    ///
    /// Streamed: `after_events` events, then the SSE comment `: ping` every `every_ms`. Plain: the headers,
    /// then a space (white space before a JSON value, as some gateways send it) every `every_ms`.
    Pings {
        /// Content events before the first ping.
        after_events: usize,
        /// Milliseconds between pings, and before the first; at least 1.
        every_ms: u64,
    },
    /// The whole answer, and then pings instead of the end of the body, for as long as the client stays.
    ///
    /// Streamed: every event but `[DONE]`, then the comments of [`Fault::Pings`]. Plain: the document, then
    /// spaces.
    PingsAfterEnd {
        /// Milliseconds between pings, and before the first; at least 1.
        every_ms: u64,
    },
    /// The answer stops and the connection stays open until the client leaves.
    ///
    /// Streamed: `after_events` events. Plain: the headers with the whole `content-length` and half the body.
    Stall {
        /// Content events before the silence.
        after_events: usize,
    },
}

/// How a connection ends in mid-answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CutBy {
    /// In order, as TCP sees it: the client reads the end of the file too early.
    Fin,
    /// By a reset: the client's read fails. Bytes that a slow client has not read by then may be lost to it,
    /// as with any reset.
    Reset,
}

impl Script {
    /// A script of these steps, without captures, that stops at its end.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Self { captures: BTreeMap::new(), steps, at_end: AtEnd::default() }
    }

    /// Reads a script and checks it as [`Script::validate`] does.
    ///
    /// # Errors
    ///
    /// Says the place (`steps[2].reply.message.text`) and what was expected there.
    pub fn from_json(json: &str) -> Result<Self, ScriptError> {
        let script: Self = validate::read(json)?;
        script.validate()?;
        Ok(script)
    }

    /// Checks what types cannot: at least one step, expressions that compile, templates that use known names,
    /// numbers in range, faults that fit their replies.
    ///
    /// [`Script::from_json`] and [`Engine::new`] do this themselves. It is here for a script that came inside
    /// another document and whose mistakes should be reported with that document.
    ///
    /// # Errors
    ///
    /// The first mistake, by its place and what was expected there.
    pub fn validate(&self) -> Result<(), ScriptError> {
        validate::script(self)
    }
}

impl Step {
    /// A step that serves one request with this reply, at once and without a fault.
    #[must_use]
    pub fn new(reply: Reply) -> Self {
        Self { reply, fault: None, repeat: once(), delay_ms: 0 }
    }
}

impl HttpReply {
    /// A status without headers or body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, headers: BTreeMap::new(), body: None }
    }
}

impl Message {
    /// A message that says this.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
}

impl ToolCall {
    /// A call of this tool with these arguments, with an id of faultlab's choice.
    #[must_use]
    pub fn new(name: impl Into<String>, arguments: Value) -> Self {
        Self { id: None, name: name.into(), arguments }
    }
}

impl Usage {
    /// These counts.
    #[must_use]
    pub fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self { prompt_tokens, completion_tokens }
    }
}
