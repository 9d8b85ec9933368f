//! Renders a message as Chat Completions sends it, streamed or whole.
//!
//! Sources: the API reference's pages "The chat completion object" and "The chat completion chunk object"
//! (<https://platform.openai.com/docs/api-reference/chat/object>, `…/chat/streaming`), the streaming section
//! of its function-calling guide (<https://platform.openai.com/docs/guides/function-calling>), and for
//! `reasoning_content` DeepSeek's guide (<https://api-docs.deepseek.com/guides/reasoning_model>).

use bytes::Bytes;
use serde::Serialize;

use crate::script::chat::Chat;
use crate::script::fault::{Body, ErrorType, Whole};
use crate::script::render::{CREATED, events, json, to_json, untyped_event};
use crate::script::said::{Call, Said};
use crate::script::{self, PingKind};

/// What the model said as the answer to this request, which is the engine's `number`-th.
pub(in crate::script) fn render(said: &Said, chat: &Chat, number: u64) -> Whole {
    let completion = Completion::new(said, chat, number);
    if chat.stream {
        events(Body::Stream {
            content: completion.content_events(),
            terminal: completion.terminal_events(),
            // "streaming will terminate with a data: [DONE] message"
            done: Some(Bytes::from_static(b"data: [DONE]\n\n")),
            ping: PingKind::Comments,
            errors: ErrorType::None,
            gap: said.gap,
        })
    } else {
        json(200, completion.document(true), completion.document(false))
    }
}

/// What the model said and what surrounds it on this wire.
struct Completion<'a> {
    id: String,
    model: &'a str,
    said: &'a Said,
    usage: Usage,
    include_usage: bool,
}

impl<'a> Completion<'a> {
    fn new(said: &'a Said, chat: &'a Chat, number: u64) -> Self {
        Self {
            id: format!("chatcmpl-faultlab-{number}"),
            model: &chat.model,
            said,
            usage: Usage::of(said.usage),
            include_usage: chat.include_usage,
        }
    }

    /// The role, the thinking, the text, then each call: its id and name first, its arguments in fragments
    /// after.
    fn content_events(&self) -> Vec<Bytes> {
        let said = self.said;
        if said.by_nobody {
            return vec![self.chunk([] as [ChunkChoice<NoDelta>; 0], None)];
        }
        // The first chunk's content is empty where text follows and null where only calls do.
        let opening = said.text.as_ref().map(|_| "");
        let mut deltas = vec![self.delta(&RoleDelta { role: "assistant", content: opening })];
        for piece in said.thinking_pieces() {
            deltas.push(self.delta(&ThinkingDelta { reasoning_content: &piece }));
        }
        for piece in said.text_pieces() {
            deltas.push(self.delta(&TextDelta { content: &piece }));
        }
        for (index, call) in said.calls.iter().enumerate() {
            let opening = CallDelta {
                index,
                id: Some(&call.id),
                r#type: Some("function"),
                function: FunctionDelta { name: Some(&call.name), arguments: "" },
            };
            deltas.push(self.delta(&CallsDelta { tool_calls: [opening] }));
            for piece in said.argument_pieces(call) {
                let function = FunctionDelta { name: None, arguments: &piece };
                let fragment = CallDelta { index, id: None, r#type: None, function };
                deltas.push(self.delta(&CallsDelta { tool_calls: [fragment] }));
            }
        }
        deltas
    }

    /// The finish reason, and the usage where it was asked for.
    fn terminal_events(&self) -> Vec<Bytes> {
        let mut events = Vec::new();
        if !self.said.by_nobody {
            events.push(self.chunk([ChunkChoice::new(NoDelta {}, Some(&self.said.finish_reason))], None));
        }
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
        untyped_event(&chunk)
    }

    fn document(&self, finished: bool) -> String {
        let message = PlainMessage {
            role: "assistant",
            content: self.said.text.as_deref(),
            reasoning_content: self.said.thinking.as_deref(),
            tool_calls: self.said.calls.iter().map(PlainCall::new).collect(),
            refusal: None,
        };
        let finish_reason = finished.then_some(self.said.finish_reason.as_str());
        let choice = PlainChoice { index: 0, message, logprobs: None, finish_reason };
        let document = Document {
            id: &self.id,
            object: "chat.completion",
            created: CREATED,
            model: self.model,
            choices: if self.said.by_nobody { Vec::new() } else { vec![choice] },
            usage: self.usage,
        };
        to_json(&document)
    }
}

#[derive(Serialize, Clone, Copy)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<PromptDetails>,
}

/// What is special about some of the prompt's tokens, which are counted there already
/// (<https://platform.openai.com/docs/guides/prompt-caching>, and `PromptTokensDetails` of OpenAI's SDKs, which
/// are generated from its API description).
#[derive(Serialize, Clone, Copy)]
struct PromptDetails {
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write_tokens: Option<u64>,
}

impl Usage {
    fn of(usage: script::Usage) -> Self {
        let script::Usage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens } = usage;
        let details = PromptDetails { cached_tokens, cache_write_tokens };
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            prompt_tokens_details: cached_tokens.or(cache_write_tokens).map(|_| details),
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
    choices: Vec<PlainChoice<'a>>,
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
