//! What tests of requests say: turns of a conversation, and what becomes of one.

use serde_json::{Value, json};

use super::request::read;
use crate::script::chat::{Chat, Rejection};

pub(super) fn chat(messages: &[Value]) -> Result<Chat, Rejection> {
    read(json!({ "model": "m", "max_tokens": 9, "messages": messages }).to_string().as_bytes())
}

pub(super) fn refusal(messages: &[Value]) -> String {
    let rejection = chat(messages).unwrap_err();
    assert_eq!(rejection.status, 400);
    rejection.message
}

pub(super) fn user(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into() })
}

pub(super) fn assistant(content: impl Into<Value>) -> Value {
    json!({ "role": "assistant", "content": content.into() })
}

pub(super) fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "f", "input": {} })
}

pub(super) fn result(id: &str, content: impl Into<Value>) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": content.into() })
}

pub(super) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}
