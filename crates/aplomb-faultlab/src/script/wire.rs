//! What the protocols have in common: which one a request speaks, what a script needs to know of any request,
//! and why any provider refuses one. Renders nothing; knows no script's progress and no fault.

use bytes::Bytes;
use serde::Serialize;

use super::fault::{Body, Whole};
use super::said::Said;
use super::{anthropic, gemini, openai_chat, openai_responses};

/// A protocol, told by the path of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// OpenAI's Chat Completions.
    OpenAiChat,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's `generateContent` and `streamGenerateContent`.
    Gemini,
}

/// When OpenAI's answers were made: faultlab has no clock, and a constant is the same every time.
pub(super) const CREATED: u64 = 1_700_000_000;

/// What a script needs to know of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chat {
    /// The model asked for; answers name it.
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether a stream reports its usage. Only clients of Chat Completions have the choice.
    pub(super) include_usage: bool,
    /// The text of the last user message.
    pub(super) last_user: Option<String>,
    /// The content of the last tool result after the last user message.
    pub(super) tool_result: Option<String>,
    /// The ids of every call in the conversation.
    pub(super) call_ids: Vec<String>,
    /// Calls that came back without a thought before them, where the protocol cares.
    pub(super) unthought: Vec<Unthought>,
    /// Characters of all contents.
    pub(super) chars: usize,
}

/// A call that came back without a thought before it, and why that is refused if the model had one there.
#[derive(Debug, PartialEq)]
pub(super) struct Unthought {
    pub(super) call: String,
    pub(super) rejection: Rejection,
}

/// A request that the provider does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) status: u16,
    pub(super) message: String,
    /// The field at fault. OpenAI's errors have a place for it, the others name it in the message.
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
}

impl Wire {
    /// The protocol of this path, whatever comes before its last segments and in its query.
    pub(super) fn of(path: &str) -> Result<Self, Rejection> {
        let target = path;
        let path = path.split('?').next().unwrap_or_default();
        if path.ends_with("/chat/completions") {
            Ok(Self::OpenAiChat)
        } else if path.ends_with("/responses") {
            Ok(Self::OpenAiResponses)
        } else if path.ends_with("/messages") {
            Ok(Self::Anthropic)
        } else if gemini::Target::of(target).is_some() {
            Ok(Self::Gemini)
        } else {
            let message = format!(
                "Invalid URL ({path}): faultlab serves */chat/completions, */responses, */messages, \
                 */models/*:generateContent and */models/*:streamGenerateContent."
            );
            Err(Rejection { status: 404, message, param: None, code: None })
        }
    }

    /// Reads the request to this path, or says why the provider would not have it.
    pub(super) fn read(self, path: &str, body: &[u8]) -> Result<Chat, Rejection> {
        match self {
            Self::OpenAiChat => openai_chat::read(body),
            Self::OpenAiResponses => openai_responses::read(body),
            Self::Anthropic => anthropic::read(body),
            Self::Gemini => gemini::read(path, body),
        }
    }

    /// What the model said as the answer to this request, which is the engine's `number`-th.
    pub(super) fn render(self, said: &Said, chat: &Chat, number: u64) -> Whole {
        match self {
            Self::OpenAiChat => openai_chat::render(said, chat, number),
            Self::OpenAiResponses => openai_responses::render(said, chat, number),
            Self::Anthropic => anthropic::render(said, chat, number),
            Self::Gemini => gemini::render(said, chat, number),
        }
    }

    /// The refusal as the provider puts it.
    pub(super) fn refuse(self, rejection: &Rejection, number: u64) -> Whole {
        match self {
            // One provider's errors, whatever was asked of it.
            Self::OpenAiChat | Self::OpenAiResponses => openai_chat::refuse(rejection),
            Self::Anthropic => anthropic::refuse(rejection, number),
            Self::Gemini => gemini::refuse(rejection),
        }
    }

    /// The header that gives an answer its number: `request-id` is Anthropic's name for it
    /// (<https://platform.claude.com/docs/en/api/errors>, "Request id"). Google documents none: its answers
    /// have the number in their `responseId`.
    pub(super) fn request_id_header(self) -> Option<&'static str> {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => Some("x-request-id"),
            Self::Anthropic => Some("request-id"),
            Self::Gemini => None,
        }
    }

    /// What the ids of calls begin with, where the script gives none. Gemini's calls are sent without.
    pub(super) fn call_id_prefix(self) -> &'static str {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::Gemini => "call_",
            Self::Anthropic => "toolu_",
        }
    }
}

impl Rejection {
    pub(super) fn invalid(param: Option<String>, message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), param, code: None }
    }

    /// The test is at fault, or the client: somebody asked once too often.
    pub(super) fn script_ended(steps: usize, served: u64, request: u64) -> Self {
        let message = format!(
            "The script has {steps} steps for {served} requests and this was request {request}. \
             Add a step, or say what comes after them with at_end."
        );
        Self { status: 400, message, param: None, code: Some("script_ended") }
    }

    /// The same for a script whose steps are not for every request.
    pub(super) fn matching_steps_ended(steps: usize, served: u64) -> Self {
        let message = format!(
            "The script has {steps} steps that match this request, for {served} requests, and they have all \
             been served. Add a step, or say what comes after them with at_end."
        );
        Self { status: 400, message, param: None, code: Some("script_ended") }
    }

    pub(super) fn no_step_matches(steps: usize) -> Self {
        let message = format!(
            "None of the script's {steps} steps matches this request. Add a step for its last user message, \
             or one without `when`."
        );
        Self { status: 400, message, param: None, code: Some("no_step_matches") }
    }
}

/// The id of the engine's `number`-th answer.
pub(super) fn request_id(number: u64) -> String {
    format!("req_faultlab_{number}")
}

/// An event of a stream without a type.
pub(super) fn untyped_event(data: &impl Serialize) -> Bytes {
    Bytes::from(format!("data: {}\n\n", to_json(data)))
}

/// An event of a stream of this type.
pub(super) fn typed_event(kind: &str, data: &impl Serialize) -> Bytes {
    Bytes::from(format!("event: {kind}\ndata: {}\n\n", to_json(data)))
}

/// An answer of one JSON document.
pub(super) fn json(status: u16, document: String, unfinished: String) -> Whole {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Whole { status, headers, body: Body::Plain { body: document.into(), unfinished: unfinished.into() } }
}

/// An answer of events.
pub(super) fn events(body: Body) -> Whole {
    Whole { status: 200, headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())], body }
}

/// Writes one of a protocol's own types. They are strings, numbers and lists of them, which cannot fail to
/// be written; should one ever, a client that reads the reason in place of JSON is told loudly enough.
pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_protocol_under_any_prefix_and_query() {
        let wire = |path: &str| Wire::of(path).map_err(|rejection| rejection.status);
        assert_eq!(wire("/v1/chat/completions"), Ok(Wire::OpenAiChat));
        assert_eq!(wire("/openai/deployments/x/chat/completions?api-version=1"), Ok(Wire::OpenAiChat));
        assert_eq!(wire("/v1/messages"), Ok(Wire::Anthropic));
        assert_eq!(wire("/anthropic/v1/messages?beta=true"), Ok(Wire::Anthropic));
        assert_eq!(wire("/v1/messages/count_tokens"), Err(404));
        assert_eq!(wire("/v1/responses"), Ok(Wire::OpenAiResponses));
        assert_eq!(wire("/openai/v1/responses?api-version=preview"), Ok(Wire::OpenAiResponses));
        assert_eq!(wire("/v1/responses/resp_1"), Err(404));
        assert_eq!(wire("/v1beta/models/gemini-3-pro:generateContent"), Ok(Wire::Gemini));
        assert_eq!(wire("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"), Ok(Wire::Gemini));
        assert_eq!(wire("/v1/publishers/google/models/gemini-3-pro:generateContent"), Ok(Wire::Gemini));
        assert_eq!(wire("/v1beta/models/gemini-3-pro:countTokens"), Err(404));
        assert_eq!(wire("/v1beta/models/:generateContent"), Err(404));
        assert_eq!(wire("/v1/models?x=/chat/completions"), Err(404));
    }
}
