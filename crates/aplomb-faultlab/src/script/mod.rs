//! The scenario language: what the provider answers, request by request, and what goes wrong on the way.
//!
//! Plain data and pure functions. Knows no socket, no clock and no runtime, and no other crate of ours: the
//! server and any in-process mock play what [`Engine::plan`] returns.
//!
//! Four protocols are spoken, and the path of a request tells which: OpenAI's Chat Completions
//! (`…/chat/completions`) and Responses (`…/responses`), Anthropic's Messages (`…/messages`) and Google's Gemini
//! (`…/models/MODEL:generateContent` and `…:streamGenerateContent?alt=sse`). A script is written once for all,
//! in the words of Chat Completions where they have different ones; *OpenAI* alone means Chat Completions.
//!
//! The types of this file, and [`Fault`], *are* the JSON or YAML that people write; a field's name and meaning
//! here are its name and meaning there. Unknown fields are refused everywhere. [`Script::read`] is the usual
//! way in; see the crate's documentation for a whole script.

mod anthropic;
mod chat;
mod damage;
mod engine;
mod fault;
mod faults;
mod fits;
mod gemini;
mod http2;
mod openai_chat;
mod openai_responses;
mod output_format;
mod plan;
mod random;
mod reach;
mod read;
mod render;
mod retry_after;
mod said;
mod schema;
mod split;
mod template;
mod validate;
mod wire;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use engine::{Engine, Request};
pub use faults::{CutBy, Fault, PingKind};
pub use http2::{Http2Code, Http2Fault};
pub use plan::{Answer, End, Framing, Head, Part, Plan, Raw, Response};
pub use random::{Mishap, Random};
pub use reach::{Connect, Http, Reach, Tls};
pub use read::{Format, ScriptError};
pub use retry_after::{DateForm, RetryAfter};
pub use schema::json_schema;

/// A scenario: the answers in the order in which they are given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Script {
    /// Where the JSON Schema of this language is, for editors. Not read.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Names for what a request said: each is a regular expression, searched for in the text of the last user
    /// message. The value is group 1 where the expression has one that took part in the match, else the whole
    /// match, without surrounding white space. Texts use it as `{{name}}`.
    ///
    /// Names consist of ASCII letters, digits and `_`; `input` and `tool_result` are taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, String>,
    /// The request header whose value is the run of a request: `x-client-request-id`, say. Each value goes
    /// through the script on its own, from its first step, and is what [`When::run_contains`] looks at.
    ///
    /// Without it, and for requests that lack the header, the run is the key that the engine is asked with:
    /// in Aplomb's own mock the run's id, in the server one for all. Upper and lower case of the name are the
    /// same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_header: Option<String>,
    /// The answers; at least one. They are given in order, each to the requests that it is for (see
    /// [`When`]).
    pub steps: Vec<Step>,
    /// What a request gets after the last step.
    #[serde(default)]
    pub at_end: AtEnd,
    /// Mishaps by lot, on top of the steps or in their place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<Random>,
    /// How the server is reached: TLS, HTTP's versions, and connections that fail before a request.
    #[serde(default, skip_serializing_if = "Reach::is_default")]
    pub server: Reach,
}

/// What a request gets when every step that is for it has been served (every step at all, where none has a
/// [`When`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Step {
    /// Which requests this step is for; all, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
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

/// Which requests a step is for: those that meet every condition given, of which there must be one at least.
/// Texts are compared as they are, upper and lower case apart.
///
/// A request gets the first step of the script, in order, that matches it and has not yet served as many
/// requests as [`Step::repeat`] says. A step without `when` matches every request, so an earlier one of them
/// is served first even where a later one names the request. Each step counts for itself: a request that
/// matches a later step uses up that one and leaves the earlier ones to the requests that they are for.
///
/// When every step that matches a request has been served, [`Script::at_end`] decides among these alone:
/// `repeat_last` gives the last of them, `restart` begins again with them and leaves the others where they
/// are, `stop` refuses the request. A request that no step matches is refused in any case, with HTTP 400.
/// With OpenAI's protocols the error's code is `no_step_matches` then, and else `script_ended`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct When {
    /// The text of the last user message, `{{input}}` in a template, contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_contains: Option<String>,
    /// The run of the request contains this: see [`Script::run_header`]. Without that header the server has
    /// the one run `server` for all, as it cannot know a run from its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_contains: Option<String>,
}

/// What the provider means to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
///
/// With status 200 it is what gateways make of failures: an error in the body of a success, a page in HTML where
/// JSON was asked for, `{}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpReply {
    /// The status, 200 to 599.
    pub status: u16,
    /// Headers to send. They replace faultlab's own of the same name (`content-type`; OpenAI's `x-request-id`,
    /// Anthropic's `request-id`; Gemini has no such), but for `content-length` and `transfer-encoding`, which are refused: how a
    /// body ends is for [`Fault`] to say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long the client is asked to wait, in one of the forms that providers use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<RetryAfter>,
    /// The body: a string is sent as it is (as `text/plain`), any other JSON as JSON (as `application/json`),
    /// nothing or `null` as an empty body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// A message of the model. Everything is optional: `{}` is a model that finishes without a word.
///
/// `text`, `thinking` and the strings inside tool arguments are templates. `{{input}}` is the text of the
/// last user message (tool results are none of it), `{{tool_result}}` the content of the last tool result
/// after it (or beside it, where Anthropic and Gemini have both in a message; of a Gemini response with one
/// field, that field), and each of [`Script::captures`] has its name. A name that has no value in a
/// conversation shows as `[no name]`, so that a test which reads the text sees it. A `{{` that no `}}`
/// follows is plain text, and values are not expanded again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Message {
    /// What the model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What the model thinks before it says anything. OpenAI's protocol: `reasoning_content`, as DeepSeek
    /// sends it. Anthropic's: a `thinking` block, whose signature a client has to send back as it is, or its
    /// next request is refused; and one that asks for thinking has to send back the thoughts before a call
    /// together with its result. Responses: a `reasoning` item with this as its summary, whose
    /// `encrypted_content` has to come back as it is, and before the call that followed if that comes back
    /// by its item's id. Gemini: parts with `thought`; the first call, or else the last part, has a
    /// `thoughtSignature` that has to come back as it is. (Models from `gemini-3` on sign the first call of
    /// every answer, and refuse a request whose calls since the user last spoke come back without.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Whether the model also thinks what nobody may read, after its other thoughts. Anthropic's protocol: a
    /// `redacted_thinking` block, whose data a client has to send back as it is, or its next request is
    /// refused. Responses: a `reasoning` item without a summary. Gemini: a signature as of a thought, and no
    /// thought. OpenAI's has nothing of the kind and leaves it out.
    pub redacted_thinking: bool,
    /// The tools the model calls, after its text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Why the model ended; `tool_calls` if it called any, else `stop`, if not given. Sent as it is, but that
    /// the other protocols have their own words for some. Anthropic: `end_turn` for `stop`, `tool_use` for
    /// `tool_calls`, `max_tokens` for `length`. Gemini: `STOP` for `stop` and `tool_calls`, `MAX_TOKENS` for
    /// `length`, `SAFETY` for `content_filter`. Responses: the status `completed` for `stop` and `tool_calls`;
    /// for others `incomplete`, with `max_output_tokens` for `length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// The token counts to report. If not given: a quarter of the characters, rounded up, which is rough but
    /// the same every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Characters of text, thinking and tool arguments per event of a stream, at least 1. If not given, text
    /// and thinking go one word per event, and tool arguments eight characters per event. Gemini's calls are
    /// whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_chars: Option<usize>,
    /// Milliseconds between one event of a stream and the next.
    pub event_gap_ms: u64,
}

/// A call of a tool by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's id. If not given: `call_1`, `call_2`, … (Anthropic: `toolu_1`, …) counting on from the
    /// calls already in the conversation. Gemini's calls have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments: an object, whose strings are templates; or a string, which is sent exactly as it is,
    /// for a model that writes broken JSON. `{}` if not given.
    ///
    /// Anthropic's plain answers, and all of Gemini's, have the arguments as JSON and not as text: a string
    /// that is JSON becomes that JSON there, any other stays a JSON string.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Token counts that a message reports, each protocol in its own way of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the request, all of them.
    pub prompt_tokens: u64,
    /// Tokens of the answer, the thinking's among them. How many those are, at four characters each, is
    /// `output_tokens_details.reasoning_tokens` (Responses) or `thoughtsTokenCount` (Gemini, which counts
    /// `candidatesTokenCount` without them).
    pub completion_tokens: u64,
    /// How many of the request's tokens were read from the provider's cache. OpenAI:
    /// `prompt_tokens_details.cached_tokens`, which `prompt_tokens` has in it. Anthropic:
    /// `cache_read_input_tokens`, which `input_tokens` has not. Responses: `input_tokens_details.cached_tokens`,
    /// inside; 0, if not given. Gemini: `cachedContentTokenCount`, inside. Not reported, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// How many were written to the cache. OpenAI: `prompt_tokens_details.cache_write_tokens`, which
    /// `prompt_tokens` has in it. Anthropic: `cache_creation_input_tokens`, which `input_tokens` has not.
    /// Responses: `input_tokens_details.cache_write_tokens`, inside; 0, if not given. Not reported, if not
    /// given; Gemini has no such count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
}

impl Script {
    /// A script of these steps, without captures, that stops at its end and is reached by clear text.
    #[must_use]
    pub fn new(steps: Vec<Step>) -> Self {
        Self {
            schema: None,
            captures: BTreeMap::new(),
            run_header: None,
            steps,
            at_end: AtEnd::default(),
            random: None,
            server: Reach::default(),
        }
    }

    /// Reads a script and checks it as [`Script::validate`] does.
    ///
    /// # Errors
    ///
    /// Says the place (`steps[2].reply.message.text`) and what was expected there; where the text is at fault
    /// and not its meaning, the line and the column, too, and the nearest name for one that there is not.
    pub fn read(text: &str, format: Format) -> Result<Self, ScriptError> {
        let script: Self = read::read(text, format)?;
        script.validate()?;
        Ok(script)
    }

    /// [`Script::read`] for JSON.
    ///
    /// # Errors
    ///
    /// As [`Script::read`].
    pub fn from_json(json: &str) -> Result<Self, ScriptError> {
        Self::read(json, Format::Json)
    }

    /// [`Script::read`] for YAML.
    ///
    /// # Errors
    ///
    /// As [`Script::read`].
    pub fn from_yaml(yaml: &str) -> Result<Self, ScriptError> {
        Self::read(yaml, Format::Yaml)
    }

    /// Checks what types cannot: at least one step, expressions that compile, templates that use known names,
    /// numbers in range, faults that fit their replies.
    ///
    /// [`Script::read`] and [`Engine::new`] do this themselves. It is here for a script that came inside
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
        Self { when: None, reply, fault: None, repeat: once(), delay_ms: 0 }
    }
}

impl When {
    /// Requests whose last user message contains this.
    #[must_use]
    pub fn input_contains(text: impl Into<String>) -> Self {
        Self { input_contains: Some(text.into()), run_contains: None }
    }
}

impl HttpReply {
    /// A status without headers or body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, headers: BTreeMap::new(), retry_after: None, body: None }
    }
}

impl Message {
    /// A message that says this.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// The same without anything that the model says, thinks or calls.
    fn without_content(&self) -> Self {
        Self { text: None, thinking: None, redacted_thinking: false, tool_calls: Vec::new(), ..self.clone() }
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
        Self { prompt_tokens, completion_tokens, cached_tokens: None, cache_write_tokens: None }
    }
}
