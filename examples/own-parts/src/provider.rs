//! A provider: a model of few words, which is served in this process.

use aplomb::provider::{AnswerStream, FinishReason, ModelService, Reply, ServiceRequest, whole};
use aplomb::{Block, Capability, Message, Role, ToolCall};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Looks parcels up, and says where they are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeskConfig {
    /// How it begins.
    greeting: String,
}

pub(crate) struct Desk(pub(crate) DeskConfig);

impl ModelService for Desk {
    fn offers(&self) -> &[Capability] {
        &[Capability::Tools]
    }

    fn ask<'a>(&'a self, request: ServiceRequest<'a>) -> AnswerStream<'a> {
        whole(async move {
            let said = request.messages.iter().rfind(|message| message.role == Role::User);
            let said = said.map(|message| message.to_text()).unwrap_or_default();
            let results = request.messages.last().into_iter().flat_map(|message| &message.content);
            let found = results.rev().find_map(|block| match block {
                Block::ToolResult(result) => Some(result.text.as_str()),
                _ => None,
            });
            let (content, finish) = match found {
                Some(found) => {
                    let text = format!("{} {found}.", self.0.greeting);
                    (Block::Text { text }, FinishReason::Stop)
                }
                None => {
                    let mut words = said.split(|letter: char| !letter.is_alphanumeric());
                    let number = words.find(|word| word.contains(|letter: char| letter.is_ascii_digit()));
                    let arguments = json!({ "number": number.unwrap_or_default() }).to_string();
                    let (id, name) = (String::new(), "parcels".to_owned());
                    (Block::ToolCall(ToolCall { id, name, arguments }), FinishReason::ToolCalls)
                }
            };
            let message = Message { role: Role::Assistant, content: vec![content] };
            Ok(Reply { message, finish, usage: None })
        })
    }
}
