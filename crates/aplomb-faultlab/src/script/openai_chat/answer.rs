//! Renders a message as Chat Completions sends it, streamed or whole.
//!
//! Sources: the API reference's pages "The chat completion object" and "The chat completion chunk object"
//! (<https://platform.openai.com/docs/api-reference/chat/object>, `…/chat/streaming`), the streaming section
//! of its function-calling guide (<https://platform.openai.com/docs/guides/function-calling>), and for
//! `reasoning_content` DeepSeek's guide (<https://api-docs.deepseek.com/guides/reasoning_model>).

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::{Chat, json, to_json};
use crate::script::fault::{Body, Whole};
use crate::script::split;
use crate::script::template::Values;
use crate::script::{Message, ToolCall};

/// Faultlab has no clock, and a constant is the same every time.
const CREATED: u64 = 1_700_000_000;

/// Characters of tool arguments per event, where the script does not say: few enough that a client must
/// assemble.
const ARGUMENT_CHARS: usize = 8;

/// Characters per token, roughly, by OpenAI's rule of thumb for English.
const CHARS_PER_TOKEN: usize = 4;

/// The message as the answer to this request, which is the engine's `number`-th.
pub(in crate::script) fn render(message: &Message, chat: &Chat, values: &Values, number: u64) -> Whole {
    let completion = Completion::new(message, chat, values, number);
    if chat.stream {
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let body = Body::Stream {
            content: completion.content_events(message.chunk_chars),
            terminal: completion.terminal_events(),
            // "streaming will terminate with a data: [DONE] message"
            done: Bytes::from_static(b"data: [DONE]\n\n"),
            gap: Duration::from_millis(message.event_gap_ms),
        };
        Whole { status: 200, headers, body }
    } else {
        json(200, completion.document(true), completion.document(false))
    }
}

/// A message with its templates filled in and its blanks decided.
struct Completion<'a> {
    id: String,
    model: &'a str,
    text: Option<String>,
    thinking: Option<String>,
    calls: Vec<Call>,
    finish_reason: &'a str,
    usage: Usage,
    include_usage: bool,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl<'a> Completion<'a> {
    fn new(message: &'a Message, chat: &'a Chat, values: &Values, number: u64) -> Self {
        let text = message.text.as_deref().map(|text| values.fill(text));
        let thinking = message.thinking.as_deref().map(|thinking| values.fill(thinking));
        let calls = calls(&message.tool_calls, chat, values);
        let default_reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let usage = match message.usage {
            Some(usage) => Usage::new(usage.prompt_tokens, usage.completion_tokens),
            None => {
                let said = text.iter().chain(&thinking).map(|text| text.chars().count()).sum::<usize>();
                let called =
                    calls.iter().map(|call| call.name.chars().count() + call.arguments.chars().count());
                Usage::new(tokens(chat.chars), tokens(said + called.sum::<usize>()))
            }
        };
        Self {
            id: format!("chatcmpl-faultlab-{number}"),
            model: &chat.model,
            text,
            thinking,
            calls,
            finish_reason: message.finish_reason.as_deref().unwrap_or(default_reason),
            usage,
            include_usage: chat.include_usage,
        }
    }

    /// The role, the thinking, the text, then each call: its id and name first, its arguments in fragments
    /// after.
    fn content_events(&self, chunk_chars: Option<usize>) -> Vec<Bytes> {
        let pieces = |text: &Option<String>| match (text, chunk_chars) {
            (None, _) => Vec::new(),
            (Some(text), None) => split::words(text),
            (Some(text), Some(size)) => split::every(size, text),
        };
        // The first chunk's content is empty where text follows and null where only calls do.
        let opening = self.text.as_ref().map(|_| "");
        let mut deltas = vec![self.delta(&RoleDelta { role: "assistant", content: opening })];
        for piece in pieces(&self.thinking) {
            deltas.push(self.delta(&ThinkingDelta { reasoning_content: &piece }));
        }
        for piece in pieces(&self.text) {
            deltas.push(self.delta(&TextDelta { content: &piece }));
        }
        for (index, call) in self.calls.iter().enumerate() {
            let opening = CallDelta {
                index,
                id: Some(&call.id),
                r#type: Some("function"),
                function: FunctionDelta { name: Some(&call.name), arguments: "" },
            };
            deltas.push(self.delta(&CallsDelta { tool_calls: [opening] }));
            for piece in split::every(chunk_chars.unwrap_or(ARGUMENT_CHARS), &call.arguments) {
                let function = FunctionDelta { name: None, arguments: &piece };
                let fragment = CallDelta { index, id: None, r#type: None, function };
                deltas.push(self.delta(&CallsDelta { tool_calls: [fragment] }));
            }
        }
        deltas
    }

    /// The finish reason, and the usage where it was asked for.
    fn terminal_events(&self) -> Vec<Bytes> {
        let mut events = vec![self.chunk([ChunkChoice::new(NoDelta {}, Some(self.finish_reason))], None)];
        if self.include_usage {
            // "an additional chunk … before the data: [DONE] message … the choices field will always be an
            // empty array"
            events.push(self.chunk([] as [ChunkChoice<NoDelta>; 0], Some(self.usage)));
        }
        events
    }

    fn delta(&self, delta: &impl Serialize) -> Bytes {
        self.chunk([ChunkChoice::new(delta, None)], None)
    }

    fn chunk<D: Serialize, const N: usize>(
        &self,
        choices: [ChunkChoice<'_, D>; N],
        usage: Option<Usage>,
    ) -> Bytes {
        let chunk = Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: CREATED,
            model: self.model,
            choices: choices.as_slice(),
            // "All other chunks will also include a usage field, but with a null value."
            usage: self.include_usage.then_some(usage),
        };
        Bytes::from(format!("data: {}\n\n", to_json(&chunk)))
    }

    fn document(&self, finished: bool) -> Bytes {
        let message = PlainMessage {
            role: "assistant",
            content: self.text.as_deref(),
            reasoning_content: self.thinking.as_deref(),
            tool_calls: self.calls.iter().map(PlainCall::new).collect(),
            refusal: None,
        };
        let finish_reason = finished.then_some(self.finish_reason);
        let document = Document {
            id: &self.id,
            object: "chat.completion",
            created: CREATED,
            model: self.model,
            choices: [PlainChoice { index: 0, message, logprobs: None, finish_reason }],
            usage: self.usage,
        };
        Bytes::from(to_json(&document))
    }
}

/// The calls with their ids. A call without one gets the next number, past every id that the conversation
/// has.
fn calls(scripted: &[ToolCall], chat: &Chat, values: &Values) -> Vec<Call> {
    let given = scripted.iter().filter_map(|call| call.id.as_deref());
    let mut taken: BTreeSet<String> =
        chat.call_ids.iter().map(String::as_str).chain(given).map(str::to_owned).collect();
    let mut number = chat.call_ids.len();
    let mut next_id = || {
        loop {
            number += 1;
            let id = format!("call_{number}");
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

#[derive(Serialize, Clone, Copy)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl Usage {
    fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
        }
    }
}

#[derive(Serialize)]
struct Chunk<'a, D> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [ChunkChoice<'a, D>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a, D> {
    index: u32,
    delta: D,
    finish_reason: Option<&'a str>,
}

impl<'a, D> ChunkChoice<'a, D> {
    fn new(delta: D, finish_reason: Option<&'a str>) -> Self {
        Self { index: 0, delta, finish_reason }
    }
}

#[derive(Serialize)]
struct RoleDelta<'a> {
    role: &'static str,
    content: Option<&'a str>,
}

#[derive(Serialize)]
struct ThinkingDelta<'a> {
    reasoning_content: &'a str,
}

#[derive(Serialize)]
struct TextDelta<'a> {
    content: &'a str,
}

#[derive(Serialize)]
struct CallsDelta<'a> {
    tool_calls: [CallDelta<'a>; 1],
}

#[derive(Serialize)]
struct CallDelta<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: FunctionDelta<'a>,
}

#[derive(Serialize)]
struct FunctionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Serialize)]
struct NoDelta {}

#[derive(Serialize)]
struct Document<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [PlainChoice<'a>; 1],
    usage: Usage,
}

#[derive(Serialize)]
struct PlainChoice<'a> {
    index: u32,
    message: PlainMessage<'a>,
    logprobs: Option<&'static str>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct PlainMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<PlainCall<'a>>,
    refusal: Option<&'static str>,
}

#[derive(Serialize)]
struct PlainCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: FunctionDelta<'a>,
}

impl<'a> PlainCall<'a> {
    fn new(call: &'a Call) -> Self {
        let function = FunctionDelta { name: Some(&call.name), arguments: &call.arguments };
        Self { id: &call.id, r#type: "function", function }
    }
}
