//! Reads a Responses request and refuses what OpenAI refuses, as far as that is cheap to know.
//!
//! Fields and items that no script depends on are ignored, whatever they hold. The order of the conversation is
//! the business of [`history`].

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::item::{Content, Item, Kind};
use super::{history, invalid, missing, unsupported};
use crate::script::chat::{Chat, Rejection};
use crate::script::output_format;

/// What can be asked for beside the answer (`ResponseIncludable` of OpenAI's SDKs). Encrypted reasoning comes
/// without being asked for, too.
const INCLUDABLE: [&str; 8] = [
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

#[derive(Deserialize)]
struct Document {
    model: Option<String>,
    instructions: Option<String>,
    input: Option<Input>,
    stream: Option<bool>,
    stream_options: Option<IgnoredAny>,
    store: Option<bool>,
    include: Option<Vec<String>>,
    previous_response_id: Option<String>,
    text: Option<TextConfig>,
}

#[derive(Deserialize)]
struct TextConfig {
    format: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// Reads the request, or says why OpenAI would not have it.
pub(in crate::script) fn read(body: &[u8]) -> Result<Chat, Rejection> {
    let document: Document = serde_json::from_slice(body).map_err(|error| {
        Rejection::invalid(None, format!("The body is not JSON that a Responses request could be: {error}."))
    })?;
    let stream = document.stream.unwrap_or(false);
    if document.stream_options.is_some() && !stream {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(invalid("stream_options", message));
    }
    for (index, asked) in document.include.iter().flatten().enumerate() {
        if !INCLUDABLE.contains(&asked.as_str()) {
            return Err(unsupported(format!("include[{index}]"), asked, &INCLUDABLE));
        }
    }
    if let Some(format) = document.text.and_then(|text| text.format) {
        output_format::check_openai(&format, "text.format", None)?;
    }
    if let Some(id) = document.previous_response_id {
        // Quoted in https://github.com/Soju06/codex-lb/issues/853.
        let message = format!("Previous response with id '{id}' not found.");
        let rejection = invalid("previous_response_id", message);
        return Err(Rejection { code: Some("previous_response_not_found"), ..rejection });
    }
    let mut chat = Chat {
        model: document.model.unwrap_or_else(|| "faultlab".to_owned()),
        stream,
        chars: document.instructions.map(|text| text.chars().count()).unwrap_or_default(),
        ..Chat::default()
    };
    match document.input {
        None => return Err(missing("input")),
        Some(Input::Text(text)) => say(&mut chat, text),
        Some(Input::Items(items)) if items.is_empty() => return Err(missing("input")),
        Some(Input::Items(items)) => {
            history::check(&items, document.store.unwrap_or(true))?;
            chat.unthought = history::unthought(&items);
            items.into_iter().for_each(|item| take(&mut chat, &item));
        }
    }
    Ok(chat)
}

/// The user speaks.
fn say(chat: &mut Chat, text: String) {
    chat.chars += text.chars().count();
    chat.last_user = Some(text);
    chat.tool_result = None;
}

fn take(chat: &mut Chat, item: &Item) {
    let text = item.content.as_ref().or(item.output.as_ref()).map(Content::text).unwrap_or_default();
    match item.kind() {
        Kind::Message if item.role.as_deref() == Some("user") => return say(chat, text),
        Kind::Call => chat.call_ids.extend(item.call_id.clone()),
        Kind::Output => chat.tool_result = Some(text.clone()),
        // What was thought is encrypted, and counts nowhere.
        Kind::Reasoning => return,
        Kind::Message | Kind::Reference | Kind::Other => {}
    }
    chat.chars += text.chars().count();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chat(body: &Value) -> Result<Chat, Rejection> {
        read(body.to_string().as_bytes())
    }

    #[test]
    fn a_text_is_a_user_who_speaks() {
        let read = chat(&json!({ "model": "m", "instructions": "Be brief", "input": "hi", "stream": true }));
        let read = read.unwrap();
        assert_eq!((read.model.as_str(), read.stream), ("m", true));
        assert_eq!(read.last_user.as_deref(), Some("hi"));
        assert_eq!(read.chars, 10); // Be brief, hi
    }

    #[test]
    fn a_message_may_leave_its_type_out_and_its_text_is_in_parts() {
        let parts = json!([{ "type": "input_text", "text": "a" },
                           { "type": "input_image", "image_url": "x" },
                           { "type": "input_text", "text": "b" }]);
        let input = json!([{ "role": "developer", "content": "x" },
                           { "role": "user", "content": "first" },
                           { "type": "message", "role": "user", "content": parts }]);
        assert_eq!(chat(&json!({ "input": input })).unwrap().last_user.as_deref(), Some("ab"));
    }

    #[test]
    fn a_tools_result_counts_until_the_user_speaks_again() {
        let mut input = vec![
            json!({ "role": "user", "content": "go" }),
            json!({ "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}" }),
            json!({ "type": "function_call_output", "call_id": "c1", "output": [
                      { "type": "input_text", "text": "42" } ] }),
        ];
        let read = chat(&json!({ "input": input })).unwrap();
        assert_eq!(read.tool_result.as_deref(), Some("42"));
        assert_eq!(read.call_ids, ["c1"]);
        input.push(json!({ "role": "user", "content": "and now?" }));
        assert_eq!(chat(&json!({ "input": input })).unwrap().tool_result, None);
    }

    #[test]
    fn what_is_no_responses_request_is_refused() {
        let refused = |body: &Value| chat(body).unwrap_err();
        let place = |body: &Value| refused(body).param.unwrap();
        assert_eq!(read(b"{").unwrap_err().status, 400);
        assert_eq!(refused(&json!({})).message, "Missing required parameter: 'input'.");
        assert_eq!(place(&json!({ "input": [] })), "input");
        assert_eq!(place(&json!({ "input": "hi", "stream_options": {} })), "stream_options");
        let include = refused(&json!({ "input": "hi", "include": ["reasoning.encrypted_content", "all"] }));
        assert_eq!((include.param.as_deref(), include.code), (Some("include[1]"), Some("invalid_value")));
        let previous = refused(&json!({ "input": "hi", "previous_response_id": "resp_1" }));
        assert_eq!(previous.message, "Previous response with id 'resp_1' not found.");
        assert_eq!(previous.code, Some("previous_response_not_found"));
    }
}
