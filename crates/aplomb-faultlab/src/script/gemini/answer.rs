//! Renders an answer as Gemini sends it, streamed or whole.
//!
//! Sources: <https://ai.google.dev/api/generate-content> ("GenerateContentResponse") for the document, of which a
//! stream's events are pieces, and <https://ai.google.dev/gemini-api/docs/thought-signatures> for where signatures
//! are, which is for all models where Gemini 3 has them.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::{SIGNATURE, Target};
use crate::script::chat::Chat;
use crate::script::fault::{Body, ErrorType, Whole};
use crate::script::render::{events, json, to_json, untyped_event};
use crate::script::said::{Call, Said};
use crate::script::{self, PingKind};

/// What the model said as the answer to this request, which is the engine's `number`-th.
pub(in crate::script) fn render(said: &Said, chat: &Chat, number: u64) -> Whole {
    let answer = Answer { response_id: format!("faultlab_{number}"), model: &chat.model, said };
    if chat.stream {
        events(Body::Stream {
            content: answer.content_events(),
            terminal: vec![answer.terminal_event()],
            // The event with the finish reason is the last one; there is no `[DONE]`.
            done: None,
            ping: PingKind::Comments,
            errors: ErrorType::None,
            gap: said.gap,
        })
    } else {
        json(200, answer.document(true), answer.document(false))
    }
}

/// The script's finish reasons are OpenAI's; these are the `FinishReason`s that mean the same. Gemini's own are sent
/// as they are.
fn finish_reason(finish_reason: &str) -> &str {
    match finish_reason {
        // A call is a natural end.
        "stop" | "tool_calls" => "STOP",
        "length" => "MAX_TOKENS",
        "content_filter" => "SAFETY",
        other => other,
    }
}

/// What the model said and what surrounds it on this wire.
struct Answer<'a> {
    response_id: String,
    model: &'a str,
    said: &'a Said,
}

impl<'a> Answer<'a> {
    /// The thinking and the text piece by piece, then every call, whole.
    fn content_events(&self) -> Vec<Bytes> {
        let said = self.said;
        let thoughts = said.thinking_pieces().into_iter().map(|text| self.piece(&Part::thought(&text)));
        let texts = said.text_pieces().into_iter().map(|text| self.piece(&Part::text(&text)));
        let calls = self.calls();
        thoughts.chain(texts).chain(calls.iter().map(|call| self.piece(call))).collect()
    }

    /// The finish reason and the whole usage, with an empty text. Where the thinking led to no call, its
    /// signature is here: "the model may return the thought signature in a part with an empty text content
    /// part" (FAQs).
    fn terminal_event(&self) -> Bytes {
        let part = Part { thought_signature: self.signature_of_text(), ..Part::text("") };
        let parts = (!self.said.by_nobody).then(|| vec![part]);
        untyped_event(&self.response(parts, Some(self.finish_reason()), Usage::of(self.said)))
    }

    /// The whole answer. Without an end it has no finish reason.
    fn document(&self, finished: bool) -> String {
        let said = self.said;
        let thought = said.thinking.as_deref().map(Part::thought);
        let text = said.text.as_deref().map(Part::text);
        let mut parts: Vec<Part> = thought.into_iter().chain(text).chain(self.calls()).collect();
        if parts.is_empty() && !said.by_nobody {
            parts.push(Part::text(""));
        }
        // "Model responses without a function call will return a thought signature inside the last part"
        if let (Some(signature), Some(last)) = (self.signature_of_text(), parts.last_mut()) {
            last.thought_signature = Some(signature);
        }
        let parts = (!said.by_nobody).then_some(parts);
        let reason = finished.then(|| self.finish_reason());
        to_json(&self.response(parts, reason, Usage::of(said)))
    }

    fn finish_reason(&self) -> &'a str {
        finish_reason(&self.said.finish_reason)
    }

    /// An event with one part. The answer's tokens are not counted yet, as in Google's own streams.
    fn piece(&self, part: &Part<'_>) -> Bytes {
        untyped_event(&self.response(Some(vec![part]), None, Usage::of_prompt(self.said)))
    }

    /// "[T]he first function call part returned by the model response will have a thought signature."
    fn calls(&self) -> Vec<Part<'a>> {
        let signature = self.signs().then_some(SIGNATURE);
        let signatures = std::iter::once(signature).chain(std::iter::repeat(None));
        let calls = self.said.calls.iter().zip(signatures);
        calls.map(|(call, thought_signature)| Part { thought_signature, ..Part::call(call) }).collect()
    }

    /// The signature of an answer without calls.
    fn signature_of_text(&self) -> Option<&'static str> {
        (self.thinks() && self.said.calls.is_empty()).then_some(SIGNATURE)
    }

    fn thinks(&self) -> bool {
        self.said.thinking.is_some() || self.said.redacted_thinking
    }

    /// Whether the model signs its calls, be it that it said what it thought or not.
    fn signs(&self) -> bool {
        self.thinks() || Target::always_signs(self.model)
    }

    /// Without `parts`, the content of a model that said nothing at all.
    fn response<P>(
        &self,
        parts: Option<Vec<P>>,
        finish_reason: Option<&'a str>,
        usage_metadata: Usage,
    ) -> Response<'_, P> {
        let content = Content { parts, role: "model" };
        Response {
            candidates: [Candidate { content, finish_reason, index: 0 }],
            usage_metadata,
            model_version: self.model,
            response_id: &self.response_id,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a, P> {
    candidates: [Candidate<'a, P>; 1],
    usage_metadata: Usage,
    model_version: &'a str,
    response_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a, P> {
    content: Content<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a str>,
    index: u32,
}

#[derive(Serialize)]
struct Content<P> {
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<P>>,
    role: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(flatten)]
    data: Data<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Data<'a> {
    Text(&'a str),
    FunctionCall { name: &'a str, args: Value },
}

impl<'a> Part<'a> {
    fn text(text: &'a str) -> Self {
        Self { data: Data::Text(text), thought: None, thought_signature: None }
    }

    fn thought(text: &'a str) -> Self {
        Self { thought: Some(true), ..Self::text(text) }
    }

    /// Calls have no ids here, and no room for arguments that are no JSON: these go as the string that they are.
    fn call(call: &'a Call) -> Self {
        let args = serde_json::from_str(&call.arguments);
        let args = args.unwrap_or_else(|_| Value::String(call.arguments.clone()));
        let data = Data::FunctionCall { name: &call.name, args };
        Self { data, thought: None, thought_signature: None }
    }
}

/// Token counts (<https://ai.google.dev/api/generate-content>, "UsageMetadata"): the cached ones are inside of the
/// prompt's; thoughts are beside the candidates', and the total is of all three.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    prompt_token_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates_token_count: Option<u64>,
    total_token_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_content_token_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thoughts_token_count: Option<u64>,
}

impl Usage {
    /// What is known before the answer is.
    fn of_prompt(said: &Said) -> Self {
        let script::Usage { prompt_tokens, cached_tokens, .. } = said.usage;
        Self {
            prompt_token_count: prompt_tokens,
            candidates_token_count: None,
            total_token_count: prompt_tokens,
            cached_content_token_count: cached_tokens,
            thoughts_token_count: None,
        }
    }

    fn of(said: &Said) -> Self {
        let script::Usage { prompt_tokens, completion_tokens, .. } = said.usage;
        let thoughts = said.thinking_tokens();
        Self {
            candidates_token_count: Some(completion_tokens.saturating_sub(thoughts)),
            total_token_count: prompt_tokens.saturating_add(completion_tokens),
            thoughts_token_count: said.thinking.as_ref().map(|_| thoughts),
            ..Self::of_prompt(said)
        }
    }
}
