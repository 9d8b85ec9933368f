//! A conversation as the body of a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use aplomb_core::message::{Block, ImageSource, Message, Role};
use aplomb_core::tool::ToolSpec;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Kept, WIRE};
use crate::wire::{Parameters, standing_instructions};

/// The body of a request. The model is in the [path](super::path), and so is whether the answer is streamed.
///
/// # Errors
///
/// If a value cannot be written as JSON, such as a temperature that is not a number.
pub fn request_body(
    parameters: Parameters<'_>,
    messages: &[Arc<Message>],
    tools: &[ToolSpec],
) -> serde_json::Result<Vec<u8>> {
    let function_declarations: Vec<_> = tools.iter().map(FunctionDeclaration::of).collect();
    let tools = (!function_declarations.is_empty()).then_some([Tools { function_declarations }]);
    serde_json::to_vec(&Body {
        system_instruction: standing_instructions(messages)
            .map(|text| Instruction { parts: [InstructionPart { text }] }),
        // A turn whose first call has no signature is refused from the third generation on (guide "Thought signatures",
        // "Function calling").
        contents: contents(messages, generation(parameters.model) >= 3),
        tools,
        generation_config: GenerationConfig {
            temperature: parameters.temperature,
            max_output_tokens: parameters.max_tokens,
            response_mime_type: parameters.output.map(|_| "application/json"),
            response_json_schema: parameters.output.map(|output| &output.schema),
        },
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[Tools<'a>; 1]>,
    #[serde(skip_serializing_if = "GenerationConfig::is_empty")]
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
struct Instruction {
    parts: [InstructionPart; 1],
}

#[derive(Serialize)]
struct InstructionPart {
    text: String,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(flatten)]
    data: Holds<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Holds<'a> {
    Text(&'a str),
    InlineData {
        mime_type: &'a str,
        data: &'a str,
    },
    FileData {
        file_uri: &'a str,
    },
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        name: &'a str,
        args: Map<String, Value>,
    },
    FunctionResponse {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        name: &'a str,
        response: Outcome<'a>,
    },
}

/// What a function gave, which must be an object.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<'a> {
    Result(&'a str),
    Error(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<FunctionDeclaration<'a>>,
}

/// A tool. Its schema goes as JSON Schema: `parameters` takes a subset of OpenAPI's alone, and refuses the rest.
///
/// Source: API reference, "Caching", `FunctionDeclaration`, `parametersJsonSchema`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters_json_schema: &'a Value,
}

impl<'a> FunctionDeclaration<'a> {
    fn of(tool: &'a ToolSpec) -> FunctionDeclaration<'a> {
        FunctionDeclaration {
            name: &tool.id,
            description: &tool.description,
            parameters_json_schema: &tool.parameters,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    /// Source: API reference, "Generating content", `GenerationConfig`: the other one, `responseSchema`, takes a subset of
    /// OpenAPI's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Value>,
}

impl GenerationConfig<'_> {
    fn is_empty(&self) -> bool {
        self.temperature.is_none() && self.max_output_tokens.is_none() && self.response_json_schema.is_none()
    }
}

/// The turns of user and model. All results of a turn's calls are one turn, since the provider counts them against the
/// calls.
fn contents(messages: &[Arc<Message>], must_be_signed: bool) -> Vec<Content<'_>> {
    let mut contents = Vec::<(Role, Content<'_>)>::new();
    // The provider's ids of the calls that it named, by ours.
    let mut ids = BTreeMap::new();
    for message in messages {
        let (role, parts) = match message.role {
            Role::System => continue,
            Role::Assistant => ("model", said(message, &mut ids)),
            Role::User | Role::Tool => ("user", told(message, &ids)),
        };
        match contents.last_mut() {
            Some((last, content)) if *last == message.role => content.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => contents.push((message.role, Content { role, parts })),
        }
    }
    let mut contents: Vec<_> = contents.into_iter().map(|(_, content)| content).collect();
    if must_be_signed {
        contents.iter_mut().for_each(Content::sign);
    }
    contents
}

/// Stands for the signature of a call that this model did not make.
///
/// Source: guide "Thought signatures", "FAQs" (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const UNSIGNED: &str = "skip_thought_signature_validator";

/// The generation of a model, as far as its name tells; 0 where it does not.
pub(crate) fn generation(model: &str) -> u32 {
    let name = model.rsplit('/').next().unwrap_or(model);
    let generation = name.strip_prefix("gemini-").and_then(|rest| rest.split(['.', '-']).next());
    generation.and_then(|number| number.parse().ok()).unwrap_or_default()
}

impl Content<'_> {
    /// The first call of a turn is signed; those beside it need not be.
    fn sign(&mut self) {
        let first = self.parts.iter_mut().find(|part| matches!(part.data, Holds::FunctionCall { .. }));
        if let Some(part) = first {
            part.thought_signature.get_or_insert_with(|| UNSIGNED.to_owned());
        }
    }
}

/// What the user and the tools told the model.
fn told<'a>(message: &'a Message, ids: &BTreeMap<&'a str, String>) -> Vec<Part<'a>> {
    let parts = message.content.iter().filter_map(|block| {
        Some(match block {
            Block::Text { text } if !text.is_empty() => Holds::Text(text),
            Block::Image { source: ImageSource::Base64 { media_type, data } } => {
                Holds::InlineData { mime_type: media_type, data }
            }
            Block::Image { source: ImageSource::Url { url } } => Holds::FileData { file_uri: url },
            Block::ToolResult(result) => Holds::FunctionResponse {
                id: ids.get(result.call_id.as_str()).cloned(),
                name: &result.name,
                response: if result.is_error {
                    Outcome::Error(&result.text)
                } else {
                    Outcome::Result(&result.text)
                },
            },
            _ => return None,
        })
    });
    parts.map(|data| Part { data, thought: false, thought_signature: None }).collect()
}

/// What the model said, with what was kept of each part.
fn said<'a>(message: &'a Message, ids: &mut BTreeMap<&'a str, String>) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut kept: Option<Kept> = None;
    for block in &message.content {
        let (data, thought) = match block {
            Block::Opaque { wire, data } if wire == WIRE => {
                parts.extend(kept.take().and_then(alone));
                kept = serde_json::from_str(data).ok();
                continue;
            }
            Block::Text { text } if !text.is_empty() => (Holds::Text(text), false),
            // Another provider's thoughts are not marked as this one's.
            Block::Thinking { text, .. } if kept.is_some() => (Holds::Text(text), true),
            Block::ToolCall(call) => {
                let id = kept.as_mut().and_then(|kept| kept.id.take());
                if let Some(id) = &id {
                    ids.insert(&call.id, id.clone());
                }
                // What the model wrote is sent back as it was, unless it is no object: such a history is refused.
                let args = serde_json::from_str(&call.arguments).unwrap_or_default();
                (Holds::FunctionCall { id, name: &call.name, args }, false)
            }
            _ => continue,
        };
        let thought_signature = kept.take().and_then(|kept| kept.thought_signature);
        parts.push(Part { data, thought, thought_signature });
    }
    parts.extend(kept.and_then(alone));
    parts
}

/// The part of which nothing but a signature came.
fn alone(kept: Kept) -> Option<Part<'static>> {
    let thought_signature = Some(kept.thought_signature?);
    Some(Part { data: Holds::Text(""), thought: kept.thought, thought_signature })
}
