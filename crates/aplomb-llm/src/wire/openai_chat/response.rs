//! An answer that came whole.

use aplomb_core::failure::{Anomaly, Failure, Phase};
use aplomb_core::message::{Block, Message, Reply, Role, TokenUsage, ToolCall};
use serde::Deserialize;
use serde_json::Value;

use super::finish_reason;
use crate::wire::usable;

/// Reads the body of a response whose status was good: the answer, and what was used, which a failed answer may have
/// used all the same.
///
/// # Errors
///
/// If the body is an error, is not a completion, or holds nothing usable.
pub fn decode_body(body: &[u8]) -> (Result<Reply, Box<Failure>>, Option<TokenUsage>) {
    let fail = |anomaly| Box::new(Failure::anomaly(Phase::Body, anomaly, body));
    let Ok(mut completion) = serde_json::from_slice::<Completion>(body) else {
        return (Err(fail(Anomaly::MalformedBody)), None);
    };
    let usage = completion.usage.take().as_ref().and_then(token_usage);
    (completion.into_reply(usage, fail), usage)
}

impl Completion {
    fn into_reply(
        self,
        usage: Option<TokenUsage>,
        fail: impl Fn(Anomaly) -> Box<Failure>,
    ) -> Result<Reply, Box<Failure>> {
        if self.error.is_some_and(|error| !error.is_null()) {
            return Err(fail(Anomaly::Error));
        }
        let choices = self.choices.ok_or_else(|| fail(Anomaly::MalformedBody))?;
        let choice = choices.into_iter().next().ok_or_else(|| fail(Anomaly::Empty))?;
        let message = choice.message.ok_or_else(|| fail(Anomaly::MalformedBody))?;
        if message.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty()) {
            return Err(fail(Anomaly::Refused));
        }
        let finish = finish_reason(choice.finish_reason).ok_or_else(|| fail(Anomaly::NoTerminalEvent))?;
        usable(Reply { message: message.into_message(), finish, usage }, Phase::Body)
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Answer>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    content: Option<Content>,
    /// DeepSeek's and vLLM's name.
    reasoning_content: Option<String>,
    /// OpenRouter's and Groq's name; some gateways send both.
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

/// Text, or the parts that some vendors give (Mistral's API reference: `content` is a string or a list of chunks).
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
pub(super) struct ContentPart {
    text: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Arguments>,
}

/// A JSON text by the protocol; the object itself from vendors that forgot to write it as text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Arguments {
    Text(String),
    Object(Value),
}

/// What was used. Counts are read as leniently as they are written: an odd one spoils no answer.
///
/// Thoughts are a part of the output, by OpenAI's API reference. xAI counts them apart, and in the total alone: where that is
/// the sum of all three, they are added. Source: <https://github.com/vercel/ai/pull/12425>.
///
/// What DeepSeek has read from its cache has a name of its own, which stands beside the others. Source: DeepSeek's guide
/// "Context Caching", <https://api-docs.deepseek.com/guides/kv_cache>.
pub(super) fn token_usage(usage: &Value) -> Option<TokenUsage> {
    let count = |value: Option<&Value>| {
        let value = value?;
        value.as_u64().or_else(|| value.as_f64().map(|count| count as u64))
    };
    let usage = usage.as_object()?;
    let mut tokens = TokenUsage::default();
    tokens.input = count(usage.get("prompt_tokens")).unwrap_or_default();
    tokens.output = count(usage.get("completion_tokens")).unwrap_or_default();
    let details = usage.get("prompt_tokens_details");
    let of_prompt = |name| count(details.and_then(|details| details.get(name)));
    let of_deepseek = || count(usage.get("prompt_cache_hit_tokens"));
    tokens.input_cached = of_prompt("cached_tokens").or_else(of_deepseek).unwrap_or_default();
    tokens.input_cache_creation = of_prompt("cache_write_tokens").unwrap_or_default();
    let details = usage.get("completion_tokens_details");
    tokens.reasoning = count(details.and_then(|details| details.get("reasoning_tokens"))).unwrap_or_default();
    let with_thoughts = tokens.output.saturating_add(tokens.reasoning);
    if count(usage.get("total_tokens")) == Some(tokens.input.saturating_add(with_thoughts)) {
        tokens.output = with_thoughts;
    }
    Some(tokens)
}

impl Content {
    pub(super) fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

impl Arguments {
    pub(super) fn into_text(self) -> String {
        match self {
            Arguments::Text(text) => text,
            Arguments::Object(value) => value.to_string(),
        }
    }
}

impl Answer {
    fn into_message(self) -> Message {
        let mut content = Vec::new();
        if let Some(text) = self.reasoning_content.or(self.reasoning).filter(|text| !text.is_empty()) {
            content.push(Block::Thinking { text, signature: None });
        }
        if let Some(text) = self.content.map(Content::into_text).filter(|text| !text.is_empty()) {
            content.push(Block::Text { text });
        }
        for call in self.tool_calls.unwrap_or_default() {
            let function = call.function.unwrap_or(Function { name: None, arguments: None });
            content.push(Block::ToolCall(ToolCall {
                id: call.id.unwrap_or_default(),
                name: function.name.unwrap_or_default(),
                arguments: function.arguments.map(Arguments::into_text).unwrap_or_default(),
            }));
        }
        Message { role: Role::Assistant, content }
    }
}
