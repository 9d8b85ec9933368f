//! Reads a Chat Completions request and refuses what OpenAI refuses, as far as that is cheap to know.
//!
//! Fields that no script depends on are ignored, whatever they hold.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::script::chat::{Chat, Rejection};
use crate::script::output_format;

#[derive(Deserialize)]
struct Document {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message {
    role: Role,
    content: Option<Content>,
    tool_calls: Option<Vec<Call>>,
    /// What calls were before there were several. Read only to know that there is one.
    function_call: Option<serde::de::IgnoredAny>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    Function,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a content; parts that are no text (images, audio) have none.
#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

#[derive(Deserialize)]
struct Call {
    id: String,
    /// Read only so that a call without a name, or with arguments that are no string, is refused as OpenAI
    /// does.
    #[serde(rename = "function")]
    _function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "arguments")]
    _arguments: String,
}

/// Reads the request, or says why OpenAI would not have it.
pub(in crate::script) fn read(body: &[u8]) -> Result<Chat, Rejection> {
    let document: Document = serde_json::from_slice(body).map_err(|error| {
        Rejection::invalid(None, format!("The body is not JSON that a chat request could be: {error}."))
    })?;
    let stream = document.stream.unwrap_or(false);
    if document.stream_options.is_some() && !stream {
        // OpenAI's wording, e.g. https://github.com/BerriAI/litellm/issues/5803.
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(Rejection::invalid(Some("stream_options".to_owned()), message));
    }
    if let Some(format) = &document.response_format {
        output_format::check_openai(format, "response_format", Some("json_schema"))?;
    }
    let messages = document.messages.unwrap_or_default();
    if messages.is_empty() {
        let message = "The request has no messages; 'messages' must hold one at least.";
        return Err(Rejection::invalid(Some("messages".to_owned()), message));
    }
    let mut chat = Chat {
        model: document.model.unwrap_or_else(|| "faultlab".to_owned()),
        stream,
        include_usage: document.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        ..Chat::default()
    };
    check_contents(&messages)?;
    check_calls(&messages)?;
    for message in messages {
        take(&mut chat, message);
    }
    Ok(chat)
}

fn take(chat: &mut Chat, message: Message) {
    let text = message.content.map(Content::into_text).unwrap_or_default();
    chat.chars += text.chars().count();
    chat.call_ids.extend(message.tool_calls.into_iter().flatten().map(|call| call.id));
    match message.role {
        Role::User => {
            chat.last_user = Some(text);
            chat.tool_result = None;
        }
        Role::Tool => chat.tool_result = Some(text),
        Role::System | Role::Developer | Role::Assistant | Role::Function => {}
    }
}

/// Every message says something, but for an assistant's that calls tools, and a list of calls has one. The
/// errors are quoted in <https://github.com/docker/docker-agent/issues/63> and
/// <https://github.com/home-assistant/core/pull/118577>.
fn check_contents(messages: &[Message]) -> Result<(), Rejection> {
    for (index, message) in messages.iter().enumerate() {
        let calls = message.tool_calls.as_deref();
        if calls.is_some_and(<[Call]>::is_empty) {
            let param = format!("messages[{index}].tool_calls");
            let message =
                format!("Invalid '{param}': empty array. Expected one call at least, or no such field.");
            return Err(Rejection { code: Some("empty_array"), ..Rejection::invalid(Some(param), message) });
        }
        let may_be_silent =
            message.role == Role::Assistant && (calls.is_some() || message.function_call.is_some());
        if message.content.is_none() && !may_be_silent {
            let param = format!("messages.[{index}].content");
            return Err(Rejection::invalid(
                Some(param),
                "Invalid value for 'content': expected a string, got null.",
            ));
        }
    }
    Ok(())
}

/// Every tool message answers a call of the assistant message before it, once, and every call is answered
/// before anything else is said: the history errors that clients of OpenAI know best (quoted in
/// <https://github.com/sdcb/chats/pull/132> and <https://github.com/agno-agi/agno/issues/5116>, with the form
/// of `param`).
fn check_calls(messages: &[Message]) -> Result<(), Rejection> {
    let mut called = BTreeSet::new();
    let mut unanswered = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let Some(id) = message.tool_call_id.as_deref() else {
                let param = format!("messages.[{index}].tool_call_id");
                return Err(Rejection::invalid(
                    Some(param),
                    "A message with role 'tool' needs a 'tool_call_id'.",
                ));
            };
            if !called.contains(id) {
                let message = format!(
                    "A message with role 'tool' must respond to a call in the preceding message with \
                     'tool_calls'; there is no call '{id}'."
                );
                return Err(Rejection::invalid(Some(format!("messages.[{index}].role")), message));
            }
            if !unanswered.remove(id) {
                let message =
                    format!("Duplicate value for 'tool_call_id': the call '{id}' has a response already.");
                return Err(Rejection::invalid(Some(format!("messages.[{index}].tool_call_id")), message));
            }
        } else {
            all_answered(&unanswered, index)?;
            called = message.tool_calls.iter().flatten().map(|call| call.id.as_str()).collect();
            unanswered.clone_from(&called);
        }
    }
    all_answered(&unanswered, messages.len())
}

fn all_answered(unanswered: &BTreeSet<&str>, index: usize) -> Result<(), Rejection> {
    if unanswered.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = unanswered.iter().copied().collect();
    let message = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages that respond to each of \
         them. Calls without a response: {}.",
        ids.join(", ")
    );
    Err(Rejection::invalid(Some(format!("messages.[{index}].role")), message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chat(body: &Value) -> Result<Chat, Rejection> {
        read(body.to_string().as_bytes())
    }

    fn call(id: &str) -> Value {
        let function = json!({ "name": "f", "arguments": "{}" });
        json!({ "role": "assistant", "content": null,
                "tool_calls": [ { "id": id, "type": "function", "function": function } ] })
    }

    fn result(id: &str, content: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": content })
    }

    fn user(content: &str) -> Value {
        json!({ "role": "user", "content": content })
    }

    fn param_of(messages: &[Value]) -> Option<String> {
        chat(&json!({ "model": "m", "messages": messages })).unwrap_err().param
    }

    #[test]
    fn the_last_user_text_is_found_in_strings_and_in_parts() {
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "image_url", "image_url": {} },
                           { "type": "text", "text": "b" }]);
        let body = json!({ "model": "m", "messages": [user("first"), { "role": "user", "content": parts }] });
        assert_eq!(chat(&body).unwrap().last_user.as_deref(), Some("ab"));
    }

    #[test]
    fn a_tool_result_counts_until_the_user_speaks_again() {
        let mut messages = vec![user("go"), call("c1"), result("c1", "old"), call("c2"), result("c2", "42")];
        let read = chat(&json!({ "messages": messages })).unwrap();
        assert_eq!(read.tool_result.as_deref(), Some("42"));
        assert_eq!(read.call_ids, ["c1", "c2"]);
        messages.push(user("and now?"));
        assert_eq!(chat(&json!({ "messages": messages })).unwrap().tool_result, None);
    }

    #[test]
    fn a_tool_message_without_its_call_is_refused() {
        assert_eq!(param_of(&[user("go"), result("c1", "x")]).as_deref(), Some("messages.[1].role"));
        let other_call = [user("go"), call("c1"), result("c2", "x")];
        assert_eq!(param_of(&other_call).as_deref(), Some("messages.[2].role"));
        let too_late = [user("go"), call("c1"), result("c1", "x"), user("more"), result("c1", "x")];
        assert_eq!(param_of(&too_late).as_deref(), Some("messages.[4].role"));
        let no_id = json!({ "role": "tool", "content": "x" });
        assert_eq!(param_of(&[user("go"), call("c1"), no_id]).as_deref(), Some("messages.[2].tool_call_id"));
    }

    #[test]
    fn a_call_without_its_result_is_refused() {
        assert_eq!(param_of(&[user("go"), call("c1")]).as_deref(), Some("messages.[2].role"));
        let error = chat(&json!({ "messages": [user("go"), call("c1"), user("well?")] })).unwrap_err();
        assert!(error.message.contains("without a response: c1"), "{}", error.message);
    }

    #[test]
    fn a_second_result_of_a_call_is_refused() {
        let twice = [user("go"), call("c1"), result("c1", "x"), result("c1", "x")];
        assert_eq!(param_of(&twice).as_deref(), Some("messages.[3].tool_call_id"));
    }

    #[test]
    fn only_an_assistant_that_calls_may_say_nothing() {
        assert_eq!(param_of(&[json!({ "role": "user" })]).as_deref(), Some("messages.[0].content"));
        let silent = json!({ "role": "assistant", "content": null });
        assert_eq!(param_of(&[user("go"), silent]).as_deref(), Some("messages.[1].content"));
        let no_result = json!({ "role": "tool", "tool_call_id": "c1", "content": null });
        assert_eq!(param_of(&[user("go"), call("c1"), no_result]).as_deref(), Some("messages.[2].content"));
        let old = json!({ "role": "assistant", "content": null, "function_call": { "name": "f", "arguments": "" } });
        assert!(chat(&json!({ "messages": [user("go"), old, user("on"), user("")] })).is_ok());
    }

    #[test]
    fn a_list_of_calls_has_one() {
        let none = json!({ "role": "assistant", "content": "hi", "tool_calls": [] });
        let refused = chat(&json!({ "messages": [user("go"), none] })).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("messages[1].tool_calls"));
        assert_eq!(refused.code, Some("empty_array"));
    }

    #[test]
    fn what_is_no_chat_request_is_refused() {
        let refused = |body: &str| read(body.as_bytes()).unwrap_err();
        assert_eq!(refused("{").status, 400);
        assert_eq!(refused(r#"{ "model": "m" }"#).param.as_deref(), Some("messages"));
        assert_eq!(refused(r#"{ "messages": [] }"#).param.as_deref(), Some("messages"));
        assert_eq!(refused(r#"{ "messages": [ { "role": "robot" } ] }"#).status, 400);
        let options =
            r#"{ "messages": [ { "role": "user" } ], "stream_options": { "include_usage": true } }"#;
        assert_eq!(refused(options).param.as_deref(), Some("stream_options"));
    }
}
