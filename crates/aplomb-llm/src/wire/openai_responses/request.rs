//! A conversation as the body of a request.

use std::sync::Arc;

use aplomb_core::message::{Block, ImageSource, Message, Role};
use aplomb_core::tool::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use super::item::Kept;
use crate::wire::{OutputFormat, Parameters, json_arguments, standing_instructions};

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
    let mut input = Vec::new();
    for message in messages {
        add_items(&mut input, message);
    }
    serde_json::to_vec(&Body {
        model: parameters.model,
        instructions: standing_instructions(messages),
        input,
        tools: tools.iter().map(WireTool::of).collect(),
        temperature: parameters.temperature.filter(|_| !parameters.reasons),
        max_output_tokens: parameters.max_tokens,
        text: parameters.output.map(TextConfig::of),
        store: false,
        // A model that does not reason has none, and some of those refuse to be asked.
        include: if parameters.reasons { &["reasoning.encrypted_content"] } else { &[] },
        stream: parameters.stream,
    })
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextConfig<'a>>,
    store: bool,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

/// What the output must fit.
///
/// Source: OpenAI API reference, "Create a model response", `text`:
/// <https://platform.openai.com/docs/api-reference/responses/create>.
#[derive(Serialize)]
struct TextConfig<'a> {
    format: JsonSchema<'a>,
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    r#type: &'static str,
    name: &'a str,
    strict: bool,
    schema: &'a Value,
}

impl<'a> TextConfig<'a> {
    fn of(OutputFormat { name, schema, strict }: &'a OutputFormat) -> TextConfig<'a> {
        TextConfig { format: JsonSchema { r#type: "json_schema", name, strict: *strict, schema } }
    }
}

/// Messages and calls go without the ids that they came with: the provider has stored nothing under them.
#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Said(Said<'a>),
    Kept(Kept),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said<'a> {
    Message {
        role: &'static str,
        content: Content<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    InputImage { image_url: String, detail: &'static str },
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: &'a Value,
    /// On by default, and then most schemas are refused (API reference, "Create a model response", `tools`, `strict`).
    strict: bool,
}

impl<'a> WireTool<'a> {
    fn of(tool: &'a ToolSpec) -> WireTool<'a> {
        WireTool {
            r#type: "function",
            name: &tool.id,
            description: &tool.description,
            parameters: &tool.parameters,
            strict: false,
        }
    }
}

/// One message of ours as items of the wire, in the order of its blocks.
fn add_items<'a>(input: &mut Vec<InputItem<'a>>, message: &'a Message) {
    match message.role {
        Role::System => {}
        Role::User => {
            let content = user_content(message);
            input.push(InputItem::Said(Said::Message { role: "user", content, phase: None }));
        }
        Role::Assistant | Role::Tool => {
            for block in &message.content {
                add_block(input, block);
            }
        }
    }
}

fn add_block<'a>(input: &mut Vec<InputItem<'a>>, block: &'a Block) {
    let said = match block {
        Block::Text { text } if !text.is_empty() => {
            Said::Message { role: "assistant", content: Content::Text(text.clone()), phase: None }
        }
        Block::ToolCall(call) => Said::FunctionCall {
            call_id: &call.id,
            name: &call.name,
            arguments: json_arguments(&call.arguments),
        },
        Block::ToolResult(result) => {
            Said::FunctionCallOutput { call_id: &result.call_id, output: &result.text }
        }
        _ => {
            match (Kept::of(block), input.last_mut()) {
                (
                    Some(Kept::Message { phase: kept }),
                    Some(InputItem::Said(Said::Message { role: "assistant", phase, .. })),
                ) => {
                    *phase = Some(kept);
                }
                (Some(reasoning @ Kept::Reasoning { .. }), _) => input.push(InputItem::Kept(reasoning)),
                // Thoughts for people are not sent: those of this provider are in what was kept.
                _ => {}
            }
            return;
        }
    };
    input.push(InputItem::Said(said));
}

fn user_content(message: &Message) -> Content<'_> {
    if message.content.iter().all(|block| matches!(block, Block::Text { .. })) {
        return Content::Text(message.to_text());
    }
    let parts = message.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(Part::InputText { text }),
        Block::Image { source: ImageSource::Url { url } } => Some(image(url.clone())),
        Block::Image { source: ImageSource::Base64 { media_type, data } } => {
            Some(image(format!("data:{media_type};base64,{data}")))
        }
        _ => None,
    });
    Content::Parts(parts.collect())
}

/// A picture, as closely looked at as the provider thinks fit. The field is required, though OpenAI itself does without.
fn image(image_url: String) -> Part<'static> {
    Part::InputImage { image_url, detail: "auto" }
}
