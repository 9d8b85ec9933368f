//! A failure out of raw text: what a corpus, a log or a bug report holds of an attempt.
//!
//! A run's codecs see an answer go wrong while they decode it. Where all that is left is text, the readers here find
//! the same anomalies: one small reader for each protocol, none of which judges anything.

mod anthropic;
mod bedrock;
mod events;
mod gemini;
mod http;
mod ollama;
mod openai_chat;
mod openai_responses;
mod progress;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::said::{is_page, json};
use super::wait::instant;
use super::{Anomaly, Failure, Phase, TransportFault, TransportKind};
use events::Event;
use progress::Progress;

/// What was seen of one failed attempt, as text.
///
/// Fields that it does not know are passed over, so that a line of a corpus can be read with its notes.
///
/// ```
/// use aplomb_core::failure::{Observation, Reason, classify};
///
/// let line = r#"{"phase": "response", "status": 429, "headers": {"retry-after": "2"}, "body": "slow down"}"#;
/// let observation: Observation = serde_json::from_str(line)?;
/// let verdict = classify(&observation.into_failure());
/// assert_eq!((verdict.reason, verdict.wait.map(|wait| wait.delay_ms)), (Reason::RateLimit, Some(2_000)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Observation {
    /// Who answered.
    pub provider: Option<String>,
    /// The protocol: `openai-chat`, `openai-responses`, `anthropic`, `gemini`, `bedrock`, `ollama`. Without one that is
    /// known, the shape of what came tells.
    pub wire: Option<String>,
    /// How far the request had got. Without it, the status and the stream tell.
    pub phase: Option<Phase>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The response headers.
    pub headers: Option<BTreeMap<String, String>>,
    /// The response body.
    pub body: Option<String>,
    /// What came last of a stream: SSE, lines of JSON, or a picture of AWS's event stream.
    pub sse_event: Option<String>,
    /// What the HTTP client said.
    pub exception: Option<String>,
    /// When the response came (RFC 3339): what dates are relative to.
    pub now: Option<String>,
}

impl Observation {
    /// Reads a response as people paste it: a status line, headers, an empty line, the body. Lines may end in LF alone.
    /// `None` where the text does not begin with a status line.
    ///
    /// ```
    /// use aplomb_core::failure::Observation;
    ///
    /// let seen = Observation::from_http("HTTP/1.1 429 Too Many Requests\nretry-after: 2\n\nslow down");
    /// assert_eq!(seen.and_then(|seen| seen.status), Some(429));
    /// ```
    pub fn from_http(text: &str) -> Option<Observation> {
        http::read(text)
    }

    /// True if it tells nothing that could be judged: at most who answered, and when.
    pub fn is_blank(&self) -> bool {
        let Observation { phase, status, body, sse_event, exception, .. } = self;
        phase.is_none() && status.is_none() && [body, sse_event, exception].into_iter().all(Option::is_none)
    }

    /// The failure that was seen.
    pub fn into_failure(self) -> Failure {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (body, stream, exception) = (text(&self.body), text(&self.sse_event), text(&self.exception));
        let is_good = self.status.is_some_and(|status| (200..300).contains(&status));
        let phase = self.phase.unwrap_or(match self.status {
            None if !stream.is_empty() => Phase::MidStream,
            None => Phase::Connect,
            Some(_) if !is_good => Phase::Response,
            Some(_) if !stream.is_empty() || (body.is_empty() && !exception.is_empty()) => Phase::MidStream,
            Some(_) => Phase::Body,
        });
        let mut failure = match (phase, self.status) {
            (Phase::MidStream, _) if !stream.trim().is_empty() => self.broken_stream(&stream),
            (Phase::MidStream, _) if exception.is_empty() => {
                Failure::anomaly(phase, Anomaly::NoTerminalEvent, body.as_bytes())
            }
            (Phase::Response, Some(status)) if !is_good => Failure::status(status, body.as_bytes()),
            (Phase::Body, _) | (Phase::Response, Some(_)) if exception.is_empty() || !body.is_empty() => {
                self.broken_body(&body)
            }
            _ => Failure::new(phase),
        };
        failure.phase = match (phase, self.status) {
            (Phase::Response, Some(_)) if is_good => Phase::Body,
            // No head arrived, however far the request went.
            (Phase::Response, None) => Phase::Connect,
            _ => phase,
        };
        failure.status = self.status;
        if !exception.trim().is_empty() {
            failure.transport = Some(TransportFault { kind: TransportKind::Other, text: exception });
        }
        failure.provider = self.provider.unwrap_or_default();
        failure.received_at_ms = self.now.as_deref().and_then(instant::rfc3339);
        let headers = self.headers.unwrap_or_default();
        failure.with_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    fn broken_body(&self, body: &str) -> Failure {
        let fail = |anomaly| Failure::anomaly(Phase::Body, anomaly, body.as_bytes());
        let trimmed = body.trim();
        if trimmed.is_empty() || is_page(trimmed) {
            return fail(Anomaly::MalformedBody);
        }
        if trimmed.starts_with("data:") || trimmed.starts_with("event:") {
            return self.broken_stream(body);
        }
        let Ok(value) = serde_json::from_str::<Value>(trimmed) else {
            let is_cut_off = json::read(trimmed).is_some() && !trimmed.ends_with(['}', ']']);
            return fail(if is_cut_off { Anomaly::NoTerminalEvent } else { Anomaly::MalformedBody });
        };
        let value = match &value {
            Value::Array(items) => items.first().unwrap_or(&value),
            _ => &value,
        };
        let mut progress = Progress::default();
        let is_answer = self.reader(value).is_some_and(|reader| (reader.whole)(value, &mut progress));
        if is_error(value) || (!is_answer && complains(value)) {
            return fail(Anomaly::Error);
        }
        fail(if is_answer { progress.anomaly() } else { Anomaly::MalformedBody })
    }

    fn broken_stream(&self, stream: &str) -> Failure {
        let fail = |anomaly, data: &str| Failure::anomaly(Phase::MidStream, anomaly, data.as_bytes());
        let mut progress = Progress::default();
        let mut last = "";
        let events = events::read(stream);
        for Event { kind, data, is_exception } in &events {
            if data.trim() == "[DONE]" {
                progress.is_done = true;
                continue;
            }
            if data.trim().is_empty() {
                continue;
            }
            let Ok(value) = serde_json::from_str::<Value>(data.trim()) else {
                let anomaly =
                    if kind == "error" || *is_exception { Anomaly::Error } else { Anomaly::MalformedEvent };
                return fail(anomaly, data);
            };
            let value = match &value {
                Value::Array(items) => items.first().unwrap_or(&value),
                _ => &value,
            };
            if *is_exception || kind == "error" || is_error(value) {
                let mut failure = fail(Anomaly::Error, data);
                if *is_exception {
                    failure.provider_error.kind = Some(kind.clone());
                }
                return failure;
            }
            let known = self.reader(value).is_some_and(|reader| (reader.event)(kind, value, &mut progress));
            // An error in a shape of its own is no event of the protocol.
            if !known
                && value.as_object().is_some_and(|fields| fields.keys().any(|key| key.starts_with("error")))
            {
                return fail(Anomaly::MalformedEvent, data);
            }
            last = data;
        }
        fail(progress.anomaly_of_stream(), last)
    }

    /// The protocol's reader; where nobody says which protocol, the one whose shape it is.
    fn reader(&self, value: &Value) -> Option<&'static Reader> {
        let wire = self.wire.as_deref().unwrap_or_default();
        READERS.iter().find(|reader| reader.wire == wire).or_else(|| {
            READERS.iter().find(|reader| {
                let mut progress = Progress::default();
                (reader.whole)(value, &mut progress) || (reader.event)("", value, &mut progress)
            })
        })
    }
}

/// What reads one protocol. Both say whether what they were shown is the protocol's at all.
struct Reader {
    wire: &'static str,
    whole: fn(&Value, &mut Progress) -> bool,
    event: fn(&str, &Value, &mut Progress) -> bool,
}

const READERS: [Reader; 6] = [
    openai_chat::READER,
    openai_responses::READER,
    anthropic::READER,
    gemini::READER,
    bedrock::READER,
    ollama::READER,
];

/// Whether an object says that it is an error, in one of the ways of the protocols.
fn is_error(value: &Value) -> bool {
    let is_something = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    let kind = value.get("type").and_then(Value::as_str);
    // MiniMax: `base_resp.status_code` is 0 where all is well.
    let base = value.get("base_resp").and_then(|base| base.get("status_code")).and_then(Value::as_i64);
    matches!(kind, Some("error" | "response.failed"))
        || value.get("error").is_some_and(is_something)
        || value.get("status").and_then(Value::as_str) == Some("failed")
        || base.is_some_and(|code| code != 0)
}

/// Whether an object that is no answer reads like an error.
fn complains(value: &Value) -> bool {
    let has_text =
        |key: &str| value.get(key).is_some_and(|text| text.as_str().is_some_and(|text| !text.is_empty()));
    let has_list = |key: &str| value.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    ["message", "Message", "errorMessage", "error_msg", "error_message", "msg", "detail", "__type"]
        .into_iter()
        .any(has_text)
        || has_list("errors")
        || has_list("detail")
        || value.get("fault").is_some()
        || value.get("Response").is_some_and(|response| response.get("Error").is_some())
        || value.get("Output").is_some_and(|output| output.get("__type").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(wire: &str, phase: Phase, text: &str) -> Option<Anomaly> {
        let text = Some(text.to_owned());
        let (body, sse_event) = if phase == Phase::Body { (text, None) } else { (None, text) };
        let wire = Some(wire.to_owned());
        let observation = Observation {
            wire,
            phase: Some(phase),
            status: Some(200),
            body,
            sse_event,
            ..Observation::default()
        };
        observation.into_failure().anomaly
    }

    #[test]
    fn each_protocols_empty_filtered_and_cut_off_bodies_are_told_apart() {
        for (wire, body, anomaly) in [
            ("openai-chat", r#"{"choices":[]}"#, Anomaly::Empty),
            (
                "openai-chat",
                r#"{"choices":[{"message":{"content":""},"finish_reason":"length"}]}"#,
                Anomaly::EmptyAtTokenLimit,
            ),
            (
                "openai-chat",
                r#"{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}"#,
                Anomaly::Refused,
            ),
            (
                "openai-chat",
                r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\": "}}]},"finish_reason":"length"}]}"#,
                Anomaly::EmptyAtTokenLimit,
            ),
            ("openai-responses", r#"{"object":"response","status":"completed","output":[]}"#, Anomaly::Empty),
            (
                "openai-responses",
                r#"{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}"#,
                Anomaly::Filtered,
            ),
            ("anthropic", r#"{"type":"message","content":[],"stop_reason":"refusal"}"#, Anomaly::Filtered),
            (
                "anthropic",
                r#"{"type":"message","content":[],"stop_reason":"max_tokens"}"#,
                Anomaly::EmptyAtTokenLimit,
            ),
            ("gemini", r#"{"promptFeedback":{"blockReason":"OTHER"}}"#, Anomaly::Filtered),
            ("gemini", r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#, Anomaly::Empty),
            (
                "bedrock",
                r#"{"output":{"message":{"content":[]}},"stopReason":"guardrail_intervened"}"#,
                Anomaly::Filtered,
            ),
            ("ollama", r#"{"message":{"content":""},"done":true,"done_reason":"load"}"#, Anomaly::Empty),
            ("openai-chat", r#"{"choices":[{"mess"#, Anomaly::NoTerminalEvent),
            ("openai-chat", r#"{"status":"queued"}"#, Anomaly::MalformedBody),
            ("openai-chat", "<html>", Anomaly::MalformedBody),
            ("openai-chat", r#"{"error":null,"choices":[]}"#, Anomaly::Empty),
            ("openai-chat", r#"{"base_resp":{"status_code":1002}}"#, Anomaly::Error),
            ("bedrock", r#"{"message":"The model returned the following errors: no"}"#, Anomaly::Error),
        ] {
            assert_eq!(observed(wire, Phase::Body, body), Some(anomaly), "{wire}: {body}");
            if !["bedrock", "ollama"].contains(&wire) {
                assert_eq!(observed("transport", Phase::Body, body), Some(anomaly), "by its shape: {body}");
            }
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_told_from_one_that_ends_with_nothing() {
        let chat = |delta: &str, finish: &str| {
            format!("data: {{\"choices\":[{{\"delta\":{{{delta}}},\"finish_reason\":{finish}}}]}}\n\n")
        };
        for (wire, stream, anomaly) in [
            ("openai-chat", "data: [DONE]\n\n".to_owned(), Anomaly::Empty),
            ("openai-chat", ": ping\n\n: ping\n\n".to_owned(), Anomaly::NoTerminalEvent),
            ("openai-chat", chat(r#""content":"a""#, "null"), Anomaly::NoTerminalEvent),
            ("openai-chat", chat("", r#""stop""#), Anomaly::Empty),
            ("openai-chat", chat("", r#""content_filter""#), Anomaly::Filtered),
            ("openai-chat", chat("", r#""error""#), Anomaly::BrokenOff),
            ("openai-chat", "data: {\"choices\":[{\"del\n\n".to_owned(), Anomaly::MalformedEvent),
            (
                "anthropic",
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n".to_owned(),
                Anomaly::NoTerminalEvent,
            ),
            (
                "anthropic",
                "event: error\r\ndata: {\"type\":\"error\",\"error\":{}}\r\n\r\n".to_owned(),
                Anomaly::Error,
            ),
            (
                "gemini",
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n".to_owned(),
                Anomaly::NoTerminalEvent,
            ),
            (
                "ollama",
                "{\"message\":{\"content\":\"a\"},\"done\":false}\n".to_owned(),
                Anomaly::NoTerminalEvent,
            ),
            ("ollama", "{\"error parsing tool call\":\"x\"}\n".to_owned(), Anomaly::MalformedEvent),
            (
                "bedrock",
                ":message-type: exception\n:exception-type: throttlingException\n\n{\"message\":\"slow\"}"
                    .to_owned(),
                Anomaly::Error,
            ),
        ] {
            assert_eq!(observed(wire, Phase::MidStream, &stream), Some(anomaly), "{wire}: {stream}");
        }
    }
}
