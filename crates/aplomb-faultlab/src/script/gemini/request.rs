//! Reads a request for content and refuses what Google refuses, as far as that is cheap to know.
//!
//! Fields and parts that no script depends on are ignored, whatever they hold. Fields have two names each, as
//! Google's JSON allows (<https://protobuf.dev/programming-guides/json/>). The order of the conversation is the
//! business of [`history`].

use serde::Deserialize;
use serde_json::Value;

use super::content::{Content, FunctionResponse};
use super::{Target, history, invalid};
use crate::script::chat::{Chat, Rejection};
use crate::script::output_format;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    contents: Option<Vec<Content>>,
    #[serde(alias = "system_instruction")]
    system_instruction: Option<Content>,
    #[serde(alias = "generation_config", default)]
    generation_config: GenerationConfig,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(alias = "response_json_schema")]
    response_json_schema: Option<Value>,
    #[serde(alias = "response_mime_type")]
    response_mime_type: Option<String>,
}

/// Reads the request to this path, or says why Google would not have it.
pub(in crate::script) fn read(path: &str, body: &[u8]) -> Result<Chat, Rejection> {
    let target = Target::of(path).ok_or_else(|| invalid("The path names no model and method."))?;
    if target.stream && !target.events {
        return Err(invalid("faultlab streams as events alone: add alt=sse to the query."));
    }
    let document: Document = serde_json::from_slice(body)
        .map_err(|error| invalid(format!("Invalid JSON payload received. {error}.")))?;
    let contents = document.contents.unwrap_or_default();
    if contents.is_empty() {
        return Err(invalid("* GenerateContentRequest.contents: contents is not specified\n"));
    }
    history::check(&contents, target.model)?;
    let config = &document.generation_config;
    output_format::check_gemini(config.response_json_schema.as_ref(), config.response_mime_type.as_deref())?;
    let mut chat = Chat {
        model: target.model.to_owned(),
        stream: target.stream,
        chars: document.system_instruction.as_ref().map(chars).unwrap_or_default(),
        ..Chat::default()
    };
    for content in &contents {
        take(&mut chat, content);
    }
    Ok(chat)
}

fn take(chat: &mut Chat, content: &Content) {
    chat.chars += chars(content);
    if content.is_models() {
        return;
    }
    if let Some(text) = content.text() {
        chat.last_user = Some(text);
        chat.tool_result = None;
    }
    if let Some(response) = content.responses().last() {
        chat.tool_result = Some(response.text());
    }
}

/// Characters of texts and results.
fn chars(content: &Content) -> usize {
    let results = content.responses().map(FunctionResponse::text);
    content.text().into_iter().chain(results).map(|text| text.chars().count()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: &str = "/v1beta/models/m:generateContent";

    fn chat(body: &Value) -> Result<Chat, Rejection> {
        read(PLAIN, body.to_string().as_bytes())
    }

    fn message(body: &Value) -> String {
        chat(body).unwrap_err().message
    }

    #[test]
    fn the_path_names_the_model_and_whether_it_streams() {
        let body = br#"{ "contents": [ { "parts": [ { "text": "hi" } ] } ] }"#;
        let plain = read(PLAIN, body).unwrap();
        assert_eq!((plain.model.as_str(), plain.stream), ("m", false));
        assert_eq!(plain.last_user.as_deref(), Some("hi"));
        assert!(read("/v1beta/models/m:streamGenerateContent?alt=sse", body).unwrap().stream);
        let array = read("/v1beta/models/m:streamGenerateContent", body).unwrap_err();
        assert!(array.message.contains("alt=sse"));
    }

    #[test]
    fn thoughts_and_the_models_words_are_none_of_the_users() {
        let read =
            chat(&json!({ "system_instruction": { "parts": [ { "text": "Be brief" } ] }, "contents": [
            { "role": "user", "parts": [ { "text": "a" }, { "inlineData": {} }, { "text": "b" } ] },
            { "role": "model", "parts": [ { "text": "Hm", "thought": true }, { "text": "yes" } ] } ] }))
            .unwrap();
        assert_eq!(read.last_user.as_deref(), Some("ab"));
        assert_eq!(read.chars, 13); // Be brief, ab, yes
    }

    #[test]
    fn a_functions_response_counts_until_the_user_speaks_again() {
        let result = |response: Value| {
            let call = json!({ "functionCall": { "name": "f", "args": {} } });
            let response = json!({ "function_response": { "name": "f", "response": response } });
            vec![
                json!({ "role": "user", "parts": [ { "text": "go" } ] }),
                json!({ "role": "model", "parts": [call] }),
                json!({ "role": "user", "parts": [response] }),
            ]
        };
        let tool_result = |contents: &[Value]| chat(&json!({ "contents": contents })).unwrap().tool_result;
        assert_eq!(tool_result(&result(json!({ "output": "42" }))).as_deref(), Some("42"));
        assert_eq!(tool_result(&result(json!({ "result": 42 }))).as_deref(), Some("42"));
        assert_eq!(tool_result(&result(json!({ "a": 1, "b": 2 }))).as_deref(), Some(r#"{"a":1,"b":2}"#));
        let mut contents = result(json!({ "output": "42" }));
        contents.push(json!({ "role": "user", "parts": [ { "text": "and now?" } ] }));
        assert_eq!(tool_result(&contents), None);
    }

    #[test]
    fn what_is_no_request_for_content_is_refused() {
        assert!(read(PLAIN, b"{").unwrap_err().message.starts_with("Invalid JSON payload received."));
        for body in [json!({}), json!({ "contents": [] })] {
            assert_eq!(message(&body), "* GenerateContentRequest.contents: contents is not specified\n");
        }
        let call = json!({ "functionCall": { "name": "f", "args": "{}" } });
        let body = json!({ "contents": [ { "role": "model", "parts": [call] } ] });
        assert!(message(&body).starts_with("Invalid JSON payload received."));
    }
}
