//! Which protocol a request speaks, and who reads and answers it there.

use super::chat::{Chat, Rejection};
use super::fault::Whole;
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
