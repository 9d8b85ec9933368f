//! A conversation as the body of a request.

use std::sync::Arc;

use aplomb_core::message::{Block, ImageSource, Message, Role};
use aplomb_core::tool::ToolSpec;
use serde::Serialize;
use serde_json::{Value, json};

use crate::wire::{CachePoint, OutputFormat, Parameters, standing_instructions};

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
    let cached = |point| parameters.cache.contains(&point).then_some(CacheControl::Ephemeral);
    let mut turns = turns(messages);
    // Thoughts cannot be marked; what stands before them can (see "Prompt caching", "What cannot be cached").
    let is_thought = |block: &TurnBlock<'_>| {
        matches!(block.block, WireBlock::Thinking { .. } | WireBlock::RedactedThinking { .. })
    };
    let last = turns.last_mut().and_then(|turn| turn.content.iter_mut().rfind(|block| !is_thought(block)));
    if let Some(block) = last {
        block.cache_control = cached(CachePoint::LastMessage);
    }
    let mut tools: Vec<_> = tools.iter().map(WireTool::of).collect();
    if let Some(tool) = tools.last_mut() {
        tool.cache_control = cached(CachePoint::Tools);
    }
    serde_json::to_vec(&Body {
        model: parameters.model,
        max_tokens: parameters.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        system: system(messages, cached(CachePoint::System)),
        messages: turns,
        tools,
        temperature: parameters.temperature.filter(|_| !parameters.reasons),
        output_config: parameters.output.map(OutputConfig::of),
        stream: parameters.stream,
    })
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<System>,
    messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

/// What the output must fit.
///
/// Source: Claude Platform Docs, "Structured outputs": <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>.
#[derive(Serialize)]
struct OutputConfig<'a> {
    format: JsonFormat<'a>,
}

#[derive(Serialize)]
struct JsonFormat<'a> {
    r#type: &'static str,
    schema: &'a Value,
}

impl<'a> OutputConfig<'a> {
    fn of(output: &'a OutputFormat) -> OutputConfig<'a> {
        OutputConfig { format: JsonFormat { r#type: "json_schema", schema: &output.schema } }
    }
}

/// The standing instructions: a text, or a block where it is to be cached.
#[derive(Serialize)]
#[serde(untagged)]
enum System {
    Text(String),
    Blocks([SystemBlock; 1]),
}

#[derive(Serialize)]
struct SystemBlock {
    r#type: &'static str,
    text: String,
    cache_control: CacheControl,
}

/// The provider keeps what it has read up to here.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<TurnBlock<'a>>,
}

#[derive(Serialize)]
struct TurnBlock<'a> {
    #[serde(flatten)]
    block: WireBlock<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> WireTool<'a> {
    fn of(tool: &'a ToolSpec) -> WireTool<'a> {
        WireTool {
            name: &tool.id,
            description: &tool.description,
            input_schema: &tool.parameters,
            cache_control: None,
        }
    }
}

fn system(messages: &[Arc<Message>], cache_control: Option<CacheControl>) -> Option<System> {
    let text = standing_instructions(messages)?;
    Some(match cache_control {
        Some(cache_control) => System::Blocks([SystemBlock { r#type: "text", text, cache_control }]),
        None => System::Text(text),
    })
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
        let blocks = message.content.iter().filter_map(wire_block);
        let content = blocks.map(|block| TurnBlock { block, cache_control: None });
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
