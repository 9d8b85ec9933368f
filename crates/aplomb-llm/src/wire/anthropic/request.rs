//! A conversation as the body of a request.

use std::sync::Arc;

use aplomb_core::message::{Block, ImageSource, Message, Role};
use aplomb_core::tool::ToolSpec;
use serde::Serialize;
use serde_json::{Value, json};

use crate::wire::Parameters;

/// The protocol wants a limit. This is one that every model takes.
const DEFAULT_MAX_TOKENS: u32 = 4_096;

/// The body of a request.
///
/// # Errors
///
/// If a value cannot be written as JSON, such as a temperature that is not a number.
pub fn request_body(
    parameters: Parameters<'_>,
    messages: &[Arc<Message>],
    tools: &[ToolSpec],
) -> serde_json::Result<Vec<u8>> {
    let system =
        messages.iter().filter(|message| message.role == Role::System).map(|message| message.to_text());
    serde_json::to_vec(&Body {
        model: parameters.model,
        max_tokens: parameters.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        system: system.collect::<Vec<_>>().join("\n\n"),
        messages: turns(messages),
        tools: tools.iter().map(WireTool::of).collect(),
        temperature: parameters.temperature,
        stream: parameters.stream,
    })
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    system: String,
    messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<WireBlock<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Value,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: &'a Value,
}

impl<'a> WireTool<'a> {
    fn of(tool: &'a ToolSpec) -> WireTool<'a> {
        WireTool { name: &tool.id, description: &tool.description, input_schema: &tool.parameters }
    }
}

/// The turns of user and model. Tool results are the user's, and neighbours of one role are one turn: the protocol wants
/// all results of a turn in the message that follows it.
fn turns(messages: &[Arc<Message>]) -> Vec<Turn<'_>> {
    let mut turns = Vec::<Turn<'_>>::new();
    for message in messages {
        let role = match message.role {
            Role::System => continue,
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        let content = message.content.iter().filter_map(wire_block);
        match turns.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ => turns.push(Turn { role, content: content.collect() }),
        }
    }
    turns
}

fn wire_block(block: &Block) -> Option<WireBlock<'_>> {
    Some(match block {
        // The protocol refuses a text without a letter.
        Block::Text { text } if text.trim().is_empty() => return None,
        Block::Text { text } => WireBlock::Text { text },
        Block::Image { source: ImageSource::Base64 { media_type, data } } => {
            WireBlock::Image { source: Source::Base64 { media_type, data } }
        }
        Block::Image { source: ImageSource::Url { url } } => WireBlock::Image { source: Source::Url { url } },
        // Thoughts without a signature are another provider's, and are refused.
        Block::Thinking { text, signature } => {
            WireBlock::Thinking { thinking: text, signature: signature.as_deref()? }
        }
        Block::RedactedThinking { data } => WireBlock::RedactedThinking { data },
        Block::ToolCall(call) => WireBlock::ToolUse {
            id: &call.id,
            name: &call.name,
            // What the model wrote is sent back as it was, unless it is no object: such a history is refused.
            input: serde_json::from_str(&call.arguments)
                .ok()
                .filter(Value::is_object)
                .unwrap_or_else(|| json!({})),
        },
        Block::ToolResult(result) => WireBlock::ToolResult {
            tool_use_id: &result.call_id,
            content: &result.text,
            is_error: result.is_error,
        },
        _ => return None,
    })
}
