//! Reads a Messages request and refuses what Anthropic refuses, as far as that is cheap to know.
//!
//! Fields and blocks that no script depends on are ignored, whatever they hold. The order of the conversation is
//! the business of [`history`], marks for the cache that of [`caching`].

use serde::Deserialize;

use super::message::{Content, Message, Role};
use super::{caching, history, invalid};
use crate::script::chat::{Chat, Rejection};
use crate::script::output_format;

#[derive(Deserialize)]
struct Document {
    model: Option<String>,
    max_tokens: Option<u64>,
    system: Option<Content>,
    messages: Option<Vec<Message>>,
    stream: Option<bool>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
}

#[derive(Deserialize)]
struct OutputConfig {
    format: Option<serde_json::Value>,
}

/// Whether the model is to think.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Disabled,
    /// `enabled`, `adaptive` and what may follow.
    #[serde(other)]
    Enabled,
}

/// Reads the request, or says why Anthropic would not have it.
pub(in crate::script) fn read(body: &[u8]) -> Result<Chat, Rejection> {
    let document: Document = serde_json::from_slice(body).map_err(|error| {
        invalid(format!("The body is not JSON that a Messages request could be: {error}."))
    })?;
    if document.max_tokens.is_none() {
        return Err(invalid("max_tokens: Field required"));
    }
    let messages = document.messages.unwrap_or_default();
    match messages.first() {
        None => return Err(invalid("messages: at least one message is required")),
        Some(Message { role: Role::Assistant | Role::System, .. }) => {
            return Err(invalid("messages: first message must use the \"user\" role"));
        }
        Some(Message { role: Role::User, .. }) => {}
    }
    history::check(document.system.as_ref(), &messages)?;
    caching::check(body)?;
    if let Some(format) = document.output_config.and_then(|config| config.format) {
        output_format::check_anthropic(&format)?;
    }
    let mut chat = Chat {
        model: document.model.unwrap_or_else(|| "faultlab".to_owned()),
        stream: document.stream.unwrap_or(false),
        chars: document.system.as_ref().map(Content::chars).unwrap_or_default(),
        ..Chat::default()
    };
    for message in &messages {
        take(&mut chat, message);
    }
    if matches!(document.thinking, Some(Thinking::Enabled)) {
        chat.unthought = history::unthought(&messages);
    }
    Ok(chat)
}

fn take(chat: &mut Chat, message: &Message) {
    let content = &message.content;
    chat.chars += content.chars();
    chat.call_ids.extend(content.calls().map(str::to_owned));
    if message.role == Role::User {
        if content.says_something() {
            chat.last_user = Some(content.text());
            chat.tool_result = None;
        }
        chat.tool_result = content.last_result().or_else(|| chat.tool_result.take());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::turns::*;
    use super::*;

    #[test]
    fn the_last_user_text_is_found_in_strings_and_in_blocks() {
        let blocks = json!([text("a"), { "type": "image", "source": {} }, text("b")]);
        assert_eq!(chat(&[user("first"), user(blocks)]).unwrap().last_user.as_deref(), Some("ab"));
    }

    #[test]
    fn a_tool_result_is_no_user_text_and_counts_until_the_user_speaks_again() {
        let mut messages = vec![
            user("go"),
            assistant(json!([call("c1"), call("c2")])),
            user(json!([result("c1", "old"), result("c2", json!([text("4"), text("2")]))])),
        ];
        let read = chat(&messages).unwrap();
        assert_eq!(read.last_user.as_deref(), Some("go"));
        assert_eq!(read.tool_result.as_deref(), Some("42"));
        assert_eq!(read.call_ids, ["c1", "c2"]);
        assert_eq!(read.chars, 7); // go, old, 42
        messages.push(user("and now?"));
        let read = chat(&messages).unwrap();
        assert_eq!((read.last_user.as_deref(), read.tool_result), (Some("and now?"), None));
    }

    #[test]
    fn text_after_results_is_the_users_and_leaves_the_results() {
        let turn = user(json!([result("c1", "42"), text("quick!")]));
        let read = chat(&[user("go"), assistant(json!([call("c1")])), turn]).unwrap();
        assert_eq!(read.last_user.as_deref(), Some("quick!"));
        assert_eq!(read.tool_result.as_deref(), Some("42"));
    }

    #[test]
    fn the_user_speaks_first() {
        let system = json!({ "role": "system", "content": "x" });
        for first in [assistant("hi"), system] {
            assert!(refusal(&[first, user("go")]).contains("first message must use the \"user\" role"));
        }
    }

    #[test]
    fn what_is_no_messages_request_is_refused() {
        let refused = |body: &str| read(body.as_bytes()).unwrap_err().message;
        assert!(refused("{").starts_with("The body is not JSON"));
        assert_eq!(
            refused(r#"{ "messages": [ { "role": "user", "content": "x" } ] }"#),
            "max_tokens: Field required"
        );
        assert!(refused(r#"{ "max_tokens": 1, "messages": [] }"#).starts_with("messages: at least one"));
        let tool = r#"{ "max_tokens": 1, "messages": [ { "role": "tool", "content": "x" } ] }"#;
        assert!(refused(tool).contains("unknown variant `tool`"));
    }
}
