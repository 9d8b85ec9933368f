//! An answer that came whole.

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Block, Message, Reply, Role, TokenUsage, ToolCall};
use serde::Deserialize;
use serde_json::Value;

use super::{add_usage, finish_reason};
use crate::wire::usable;

/// Reads the body of a response whose status was good: the answer, and what was used, which a failed answer may have
/// used all the same.
///
/// # Errors
///
/// If the body is an error, is not a message, or holds nothing usable.
pub fn decode_body(body: &[u8]) -> (Result<Reply, Box<Failure>>, Option<TokenUsage>) {
    let fail = |anomaly| Box::new(Failure::anomaly(Phase::Body, anomaly, body));
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        return (Err(fail(Anomaly::MalformedBody)), None);
    };
    if answer.kind.as_deref() == Some("error") || answer.error.as_ref().is_some_and(|error| !error.is_null())
    {
        return (Err(fail(Anomaly::Error)), None);
    }
    let usage = answer.usage.as_ref().map(|usage| {
        let mut known = TokenUsage::default();
        add_usage(&mut known, usage);
        known
    });
    (answer.into_reply(usage, fail), usage)
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "type")]
    kind: Option<String>,
    error: Option<Value>,
    content: Option<Vec<Content>>,
    stop_reason: Option<String>,
    usage: Option<Value>,
}

/// A block of an answer. Kinds that we did not ask for, such as those of the provider's own tools, are passed over.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Other,
}

impl Answer {
    fn into_reply(
        self,
        usage: Option<TokenUsage>,
        fail: impl Fn(Anomaly) -> Box<Failure>,
    ) -> Result<Reply, Box<Failure>> {
        let content = self.content.ok_or_else(|| fail(Anomaly::MalformedBody))?;
        let finish =
            finish_reason(self.stop_reason.as_deref()).ok_or_else(|| fail(Anomaly::NoTerminalEvent))?;
        let blocks = content.into_iter().filter_map(|block| {
            Some(match block {
                Content::Text { text } => Block::Text { text },
                Content::Thinking { thinking, signature } => {
                    let signature = signature.filter(|signature| !signature.is_empty());
                    Block::Thinking { text: thinking, signature }
                }
                Content::RedactedThinking { data } => Block::RedactedThinking { data },
                Content::ToolUse { id, name, input } => {
                    let arguments = if input.is_null() { String::new() } else { input.to_string() };
                    Block::ToolCall(ToolCall { id, name, arguments })
                }
                Content::Other => return None,
            })
        });
        let message = Message { role: Role::Assistant, content: blocks.collect() };
        usable(Reply { message, finish, usage }, Phase::Body)
    }
}
