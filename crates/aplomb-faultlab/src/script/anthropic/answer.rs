//! Renders a message as Messages sends it, streamed or whole.
//!
//! Source: <https://platform.claude.com/docs/en/build-with-claude/streaming>, "Event types" and "Full HTTP
//! stream response", for the events, their order and their fields; the API reference's page "Create a
//! Message" (<https://platform.claude.com/docs/en/api/messages>) for the document.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::{REDACTED, SIGNATURE};
use crate::script::chat::Chat;
use crate::script::fault::{Body, ErrorType, Whole};
use crate::script::render::{events, json, to_json, typed_event};
use crate::script::said::{Call, Said};
use crate::script::{self, PingKind};

/// What the model said as the answer to this request, which is the engine's `number`-th.
pub(in crate::script) fn render(said: &Said, chat: &Chat, number: u64) -> Whole {
    let message = Rendered { id: format!("msg_faultlab_{number}"), model: &chat.model, said };
    if chat.stream {
        events(Body::Stream {
            content: message.content_events(),
            terminal: message.terminal_events(),
            // Nothing follows `message_stop`.
            done: None,
            // "Event streams may also include any number of `ping` events."
            ping: PingKind::Events,
            errors: ErrorType::Error,
            gap: said.gap,
        })
    } else {
        json(200, message.document(true), message.document(false))
    }
}

/// The script's finish reasons are OpenAI's; these are the stop reasons that mean the same
/// (<https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>). Any other is sent as it
/// is.
fn stop_reason(finish_reason: &str) -> &str {
    match finish_reason {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        other => other,
    }
}

/// What the model said and what surrounds it on this wire.
struct Rendered<'a> {
    id: String,
    model: &'a str,
    said: &'a Said,
}

impl Rendered<'_> {
    /// The opening and a ping, then a block each for the thinking, the text and every call.
    fn content_events(&self) -> Vec<Bytes> {
        let said = self.said;
        // The page's examples begin with one token of output: the count is not known yet.
        let opening = self.message(Vec::new(), None, 1);
        let mut sent =
            vec![event("message_start", &MessageStart { message: opening }), PingKind::Events.bytes()];
        let mut index = 0;
        let mut block = |start: Block, deltas: Vec<Delta>| {
            sent.push(event("content_block_start", &BlockStart { index, content_block: start }));
            sent.extend(
                deltas.into_iter().map(|delta| event("content_block_delta", &BlockDelta { index, delta })),
            );
            sent.push(event("content_block_stop", &BlockStop { index }));
            index += 1;
        };
        if said.thinking.is_some() {
            let thoughts = said.thinking_pieces().into_iter().map(|thinking| Delta::Thinking { thinking });
            // "`signature_delta` event is sent just before the `content_block_stop` event"
            let signed = thoughts.chain([Delta::Signature { signature: SIGNATURE }]);
            block(Block::Thinking { thinking: "", signature: "" }, signed.collect());
        }
        if said.redacted_thinking {
            // There is no delta for it: the block is whole from its start (extended thinking, "Thinking
            // redaction", <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>).
            block(Block::RedactedThinking { data: REDACTED }, Vec::new());
        }
        if said.text.is_some() {
            let texts = said.text_pieces().into_iter().map(|text| Delta::Text { text });
            block(Block::Text { text: "" }, texts.collect());
        }
        for call in &said.calls {
            // The page's example begins with an empty fragment.
            let pieces = std::iter::once(String::new()).chain(said.argument_pieces(call));
            let fragments = pieces.map(|partial_json| Delta::InputJson { partial_json });
            let input = Value::Object(serde_json::Map::new());
            block(Block::ToolUse { id: &call.id, name: &call.name, input }, fragments.collect());
        }
        sent
    }

    /// The stop reason with the usage, and the end.
    fn terminal_events(&self) -> Vec<Bytes> {
        let delta = StopDelta { stop_reason: stop_reason(&self.said.finish_reason), stop_sequence: None };
        let usage = OutputUsage { output_tokens: self.said.usage.completion_tokens };
        vec![event("message_delta", &MessageDelta { delta, usage }), event("message_stop", &MessageStop {})]
    }

    fn document(&self, finished: bool) -> String {
        let said = self.said;
        let thinking = said.thinking.as_deref();
        let mut content: Vec<Block> =
            thinking.map(|thinking| Block::Thinking { thinking, signature: SIGNATURE }).into_iter().collect();
        content.extend(said.redacted_thinking.then_some(Block::RedactedThinking { data: REDACTED }));
        content.extend(said.text.as_deref().map(|text| Block::Text { text }));
        content.extend(said.calls.iter().map(|call| Block::ToolUse {
            id: &call.id,
            name: &call.name,
            input: input(call),
        }));
        let reason = finished.then(|| stop_reason(&said.finish_reason));
        to_json(&self.message(content, reason, said.usage.completion_tokens))
    }

    fn message<'b>(
        &'b self,
        content: Vec<Block<'b>>,
        stop_reason: Option<&'b str>,
        output_tokens: u64,
    ) -> Message<'b> {
        Message {
            id: &self.id,
            r#type: "message",
            role: "assistant",
            model: self.model,
            content,
            stop_reason,
            stop_sequence: None,
            usage: Usage::of(self.said.usage, output_tokens),
        }
    }
}

/// A document has room for JSON alone: arguments that are none go as the string that they are.
fn input(call: &Call) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::String(call.arguments.clone()))
}

/// "Each server-sent event includes a named event type and associated JSON data … [and] the matching event
/// `type` in its data."
fn event(name: &str, data: &impl Serialize) -> Bytes {
    typed_event(name, data)
}

#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Block<'a>>,
    stop_reason: Option<&'a str>,
    stop_sequence: Option<&'static str>,
    usage: Usage,
}

#[derive(Serialize)]
struct Usage {
    input_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_input_tokens: Option<u64>,
    output_tokens: u64,
}

impl Usage {
    /// What was read from the cache or written to it is counted apart: the prompt is the sum of the three
    /// (<https://platform.claude.com/docs/en/build-with-claude/prompt-caching>, "Tracking cache performance").
    fn of(usage: script::Usage, output_tokens: u64) -> Self {
        let script::Usage { prompt_tokens, cached_tokens, cache_write_tokens, .. } = usage;
        let apart = cached_tokens.unwrap_or(0).saturating_add(cache_write_tokens.unwrap_or(0));
        Self {
            input_tokens: prompt_tokens.saturating_sub(apart),
            cache_creation_input_tokens: cache_write_tokens,
            cache_read_input_tokens: cached_tokens,
            output_tokens,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Thinking { thinking: &'a str, signature: &'static str },
    RedactedThinking { data: &'static str },
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: Value },
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'static str },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "message_start")]
struct MessageStart<'a> {
    message: Message<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "content_block_start")]
struct BlockStart<'a> {
    index: usize,
    content_block: Block<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "content_block_delta")]
struct BlockDelta {
    index: usize,
    delta: Delta,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "content_block_stop")]
struct BlockStop {
    index: usize,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "message_delta")]
struct MessageDelta<'a> {
    delta: StopDelta<'a>,
    usage: OutputUsage,
}

#[derive(Serialize)]
struct StopDelta<'a> {
    stop_reason: &'a str,
    stop_sequence: Option<&'static str>,
}

#[derive(Serialize)]
struct OutputUsage {
    output_tokens: u64,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "message_stop")]
struct MessageStop {}
