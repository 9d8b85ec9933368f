//! A conversation as the body of a request.

use std::sync::Arc;

use aplomb_core::message::{Block, ImageSource, Message, Role, ToolCall};
use aplomb_core::tool::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use crate::wire::{AnswerLimit, OutputFormat, Parameters, Quirks, json_arguments};

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
    let counts_thoughts = match parameters.quirks.answer_limit {
        AnswerLimit::ByModel => parameters.reasons,
        AnswerLimit::MaxTokens => false,
        AnswerLimit::MaxCompletionTokens => true,
    };
    serde_json::to_vec(&Body {
        model: parameters.model,
        messages: messages.iter().flat_map(|message| wire_messages(message, parameters.quirks)).collect(),
        tools: tools.iter().map(WireTool::of).collect(),
        temperature: parameters.temperature.filter(|_| !parameters.reasons),
        max_tokens: parameters.max_tokens.filter(|_| !counts_thoughts),
        max_completion_tokens: parameters.max_tokens.filter(|_| counts_thoughts),
        response_format: parameters.output.map(ResponseFormat::of),
        stream: parameters.stream,
        stream_options: (parameters.stream && !parameters.quirks.usage_comes_unasked)
            .then_some(StreamOptions { include_usage: true }),
    })
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

/// What the output must fit.
///
/// Source: OpenAI API reference, "Create chat completion", `response_format`:
/// <https://platform.openai.com/docs/api-reference/chat/create>.
#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: JsonSchema<'a>,
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    name: &'a str,
    strict: bool,
    schema: &'a Value,
}

impl<'a> ResponseFormat<'a> {
    fn of(OutputFormat { name, schema, strict }: &'a OutputFormat) -> ResponseFormat<'a> {
        ResponseFormat { r#type: "json_schema", json_schema: JsonSchema { name, strict: *strict, schema } }
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
    System {
        content: String,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunctionCall<'a>,
}

#[derive(Serialize)]
struct WireFunctionCall<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> WireTool<'a> {
    fn of(tool: &'a ToolSpec) -> WireTool<'a> {
        let function =
            WireFunction { name: &tool.id, description: &tool.description, parameters: &tool.parameters };
        WireTool { r#type: "function", function }
    }
}

/// One message of ours as those of the wire: the results of parallel tool calls are a message each.
fn wire_messages(message: &Message, quirks: Quirks) -> Vec<WireMessage<'_>> {
    match message.role {
        Role::System => vec![WireMessage::System { content: message.to_text() }],
        Role::User => vec![WireMessage::User { content: user_content(message) }],
        Role::Assistant => {
            let text = message.to_text();
            let tool_calls = message.tool_calls().map(wire_call).collect();
            // The protocol has no place for thoughts, and vendors refuse fields that they do not know.
            let reasoning_content = quirks.reasoning_goes_back.then(|| thoughts(message));
            let content = (!text.is_empty()).then_some(text);
            vec![WireMessage::Assistant { content, reasoning_content, tool_calls }]
        }
        Role::Tool => message
            .content
            .iter()
            .filter_map(|block| match block {
                Block::ToolResult(result) => {
                    Some(WireMessage::Tool { tool_call_id: &result.call_id, content: &result.text })
                }
                _ => None,
            })
            .collect(),
    }
}

/// The thoughts that were shown. Those that came with a signature are another protocol's.
fn thoughts(message: &Message) -> String {
    let shown = message.content.iter().filter_map(|block| match block {
        Block::Thinking { text, signature: None } => Some(text.as_str()),
        _ => None,
    });
    shown.collect()
}

fn user_content(message: &Message) -> UserContent<'_> {
    if message.content.iter().all(|block| matches!(block, Block::Text { .. })) {
        return UserContent::Text(message.to_text());
    }
    let parts = message.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(Part::Text { text }),
        Block::Image { source: ImageSource::Url { url } } => {
            Some(Part::ImageUrl { image_url: ImageUrl { url: url.clone() } })
        }
        Block::Image { source: ImageSource::Base64 { media_type, data } } => {
            Some(Part::ImageUrl { image_url: ImageUrl { url: format!("data:{media_type};base64,{data}") } })
        }
        _ => None,
    });
    UserContent::Parts(parts.collect())
}

fn wire_call(call: &ToolCall) -> WireCall<'_> {
    let arguments = json_arguments(&call.arguments);
    WireCall { id: &call.id, r#type: "function", function: WireFunctionCall { name: &call.name, arguments } }
}
