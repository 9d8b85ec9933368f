//! A content of a conversation, as far as faultlab knows it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

#[derive(Deserialize)]
pub(super) struct Content {
    /// `user`, if not given.
    pub(super) role: Option<String>,
    #[serde(default)]
    pub(super) parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    pub(super) text: Option<String>,
    #[serde(alias = "function_call")]
    pub(super) function_call: Option<FunctionCall>,
    #[serde(alias = "function_response")]
    pub(super) function_response: Option<FunctionResponse>,
    #[serde(alias = "inline_data")]
    inline_data: Option<IgnoredAny>,
    #[serde(alias = "file_data")]
    file_data: Option<IgnoredAny>,
    #[serde(alias = "executable_code")]
    executable_code: Option<IgnoredAny>,
    #[serde(alias = "code_execution_result")]
    code_execution_result: Option<IgnoredAny>,
    #[serde(alias = "tool_call")]
    tool_call: Option<IgnoredAny>,
    #[serde(alias = "tool_response")]
    tool_response: Option<IgnoredAny>,
    #[serde(default)]
    thought: bool,
    #[serde(alias = "thought_signature")]
    pub(super) thought_signature: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct FunctionCall {
    pub(super) name: String,
    /// Read only so that arguments that are no object are refused.
    #[serde(rename = "args")]
    _args: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
pub(super) struct FunctionResponse {
    /// Read only so that a response without a name is refused.
    #[serde(rename = "name")]
    _name: String,
    response: Map<String, Value>,
}

impl Content {
    pub(super) fn is_models(&self) -> bool {
        self.role.as_deref() == Some("model")
    }

    /// What was said, but not what was thought; `None` if nothing was.
    pub(super) fn text(&self) -> Option<String> {
        let said = self.parts.iter().filter(|part| !part.thought).filter_map(|part| part.text.as_deref());
        said.fold(None, |text, said| Some(text.unwrap_or_default() + said))
    }

    /// The calls that are made here, each with its signature.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&FunctionCall, Option<&str>)> {
        self.parts
            .iter()
            .filter_map(|part| Some((part.function_call.as_ref()?, part.thought_signature.as_deref())))
    }

    pub(super) fn responses(&self) -> impl Iterator<Item = &FunctionResponse> {
        self.parts.iter().filter_map(|part| part.function_response.as_ref())
    }
}

impl Part {
    /// Whether it is of any of the kinds that there are.
    pub(super) fn has_data(&self) -> bool {
        let others = [
            &self.inline_data,
            &self.file_data,
            &self.executable_code,
            &self.code_execution_result,
            &self.tool_call,
            &self.tool_response,
        ];
        self.text.is_some()
            || self.function_call.is_some()
            || self.function_response.is_some()
            || others.iter().any(|other| other.is_some())
    }
}

impl FunctionResponse {
    /// The result as a text. A response is an object, and most have one field, which is what the function
    /// returned (`output`, `result`, `error`, as the client likes); with more, the whole object is the result.
    pub(super) fn text(&self) -> String {
        match self.response.values().next() {
            Some(Value::String(text)) if self.response.len() == 1 => text.clone(),
            Some(other) if self.response.len() == 1 => other.to_string(),
            _ => Value::Object(self.response.clone()).to_string(),
        }
    }
}
