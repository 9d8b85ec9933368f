//! What was seen when a model call failed: facts, without a judgement. [`classify()`] gives that.

pub mod classify;
mod observe;
mod reason;
mod said;
mod wait;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use classify::{Verdict, classify};
pub use observe::Observation;
pub use reason::Reason;
pub use wait::{Wait, WaitSource};

use crate::error::{Error, ErrorDetails};
use crate::redact::Redactor;

/// How much of a body a failure keeps, in bytes. The beginning says what is wrong; the rest is repetition.
pub const BODY_LIMIT: usize = 8 * 1024;

/// How far the request had got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No response head arrived.
    Connect,
    /// The response's status says that it failed.
    Response,
    /// The status was good, the body is not.
    Body,
    /// Head and beginning of a stream were good, what followed is not.
    MidStream,
}

/// What the network did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportFault {
    /// The kind of fault.
    pub kind: TransportKind,
    /// What the HTTP client said, causes included. Never holds a URL's query.
    pub text: String,
}

/// The kinds of network faults that matter for what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransportKind {
    /// The host's name could not be resolved.
    Dns,
    /// Nobody listens there.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer had closed the connection while we wrote to it.
    BrokenPipe,
    /// The connection ended before the response began.
    Closed,
    /// The connection ended before the body did.
    CutBody,
    /// The peer's certificate is not accepted.
    Certificate,
    /// The peers have no TLS in common, or what answers does not speak it.
    Tls,
    /// The connection ended in the middle of the TLS handshake.
    TlsInterrupted,
    /// The peer gave the whole HTTP/2 connection up (GOAWAY).
    GoAway,
    /// The peer gave this HTTP/2 stream up (RST_STREAM).
    StreamReset,
    /// The connection could not be made, for a reason not listed here.
    Connect,
    /// No connection within `llm.timeouts.connect_ms`.
    ConnectTimeout,
    /// No first byte within `llm.timeouts.first_byte_ms`.
    FirstByteTimeout,
    /// No model progress within `llm.timeouts.idle_ms`; comments and pings are none.
    IdleTimeout,
    /// The whole attempt took longer than `llm.timeouts.attempt_ms`.
    AttemptTimeout,
    /// What answers there does not speak HTTP.
    NotHttp,
    /// The request itself could not be built or written as HTTP.
    Request,
    /// Something else.
    Other,
}

impl TransportKind {
    /// The setting that governs this time limit, for the kinds that are one.
    pub fn setting(self) -> Option<&'static str> {
        match self {
            TransportKind::ConnectTimeout => Some("llm.timeouts.connect_ms"),
            TransportKind::FirstByteTimeout => Some("llm.timeouts.first_byte_ms"),
            TransportKind::IdleTimeout => Some("llm.timeouts.idle_ms"),
            TransportKind::AttemptTimeout => Some("llm.timeouts.attempt_ms"),
            _ => None,
        }
    }
}

/// What is wrong with an answer whose status was good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Anomaly {
    /// The body, or an event of the stream, is an error.
    Error,
    /// The stream ended without its protocol's terminal event.
    NoTerminalEvent,
    /// The answer ended regularly and holds nothing usable.
    Empty,
    /// The answer ended at the token limit before it held anything usable.
    EmptyAtTokenLimit,
    /// The whole body is not what the protocol promises.
    MalformedBody,
    /// One line or event inside a stream that was good is broken.
    MalformedEvent,
    /// A line, an event or the whole answer is larger than the limit.
    TooLarge,
    /// The provider says, in the place of a regular end, that it broke off.
    BrokenOff,
    /// The answer ended for a reason that nobody knows, so that it may be whole or not.
    UnknownEnd,
    /// The provider's filter stopped the answer.
    Filtered,
    /// The model refused.
    Refused,
}

/// The provider's own words for an error, wherever its protocol keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderError {
    /// Its code: `insufficient_quota`, `context_length_exceeded`, `502`, …
    pub code: Option<String>,
    /// Its type: `server_error`, `overloaded_error`, …
    pub kind: Option<String>,
    /// The parameter that it complains about.
    pub param: Option<String>,
    /// Its sentence for people.
    pub message: Option<String>,
}

impl ProviderError {
    /// True if the provider said nothing at all.
    pub fn is_empty(&self) -> bool {
        let says_nothing = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
        says_nothing(&self.code) && says_nothing(&self.kind) && says_nothing(&self.message)
    }

    /// Reads an error out of the envelope that its sender wrapped around it: `{"error": {"code", "type", "param",
    /// "message"}}` and its many variants, gateways' wraps included. The outermost word of each kind is taken.
    pub fn from_json(body: &Value) -> ProviderError {
        let layers = said::Said::of_json(body).layers;
        let first =
            |field: fn(&said::Layer) -> &Option<String>| layers.iter().find_map(|layer| field(layer).clone());
        ProviderError {
            code: first(|layer| &layer.code),
            // Google's errors say it in `status`.
            kind: first(|layer| &layer.kind).or_else(|| first(|layer| &layer.status)),
            param: first(|layer| &layer.param),
            message: first(|layer| &layer.message),
        }
    }
}

/// One failed attempt, as it was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The configured provider.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
    /// Where the request went: the API's base.
    #[serde(default)]
    pub endpoint: String,
    /// How far the request had got.
    pub phase: Phase,
    /// The HTTP status, once there was one.
    pub status: Option<u16>,
    /// The response headers that say something about failure, names in lower case. See [`keep_header`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The provider's name for the request.
    pub request_id: Option<String>,
    /// The provider's own error fields.
    pub provider_error: ProviderError,
    /// The body, or the event that broke the stream, redacted. At most [`BODY_LIMIT`] bytes once it is
    /// [sealed](Failure::seal).
    pub body: String,
    /// What the network did.
    pub transport: Option<TransportFault>,
    /// What is wrong with an answer whose status was good.
    pub anomaly: Option<Anomaly>,
    /// When the response's head arrived, in ms of Unix time: what a `Retry-After` date is relative to.
    pub received_at_ms: Option<u64>,
}

impl Failure {
    /// A failure of which nothing but its phase is known yet.
    pub fn new(phase: Phase) -> Failure {
        Failure {
            provider: String::new(),
            model: String::new(),
            endpoint: String::new(),
            phase,
            status: None,
            headers: BTreeMap::new(),
            request_id: None,
            provider_error: ProviderError::default(),
            body: String::new(),
            transport: None,
            anomaly: None,
            received_at_ms: None,
        }
    }

    /// The network failed.
    pub fn transport(phase: Phase, kind: TransportKind, text: &str) -> Failure {
        let fault = TransportFault { kind, text: text.to_owned() };
        Failure { transport: Some(fault), ..Failure::new(phase) }
    }

    /// The provider answered with a status that says so.
    pub fn status(status: u16, body: &[u8]) -> Failure {
        Failure { status: Some(status), ..Failure::new(Phase::Response) }.with_body(body)
    }

    /// The status was good, but the answer is not.
    pub fn anomaly(phase: Phase, anomaly: Anomaly, body: &[u8]) -> Failure {
        Failure { status: Some(200), anomaly: Some(anomaly), ..Failure::new(phase) }.with_body(body)
    }

    fn with_body(mut self, body: &[u8]) -> Failure {
        if let Ok(json) = serde_json::from_slice::<Value>(body) {
            self.provider_error = ProviderError::from_json(&json);
        }
        // More than is kept in the end, so that no secret is cut in two before it is found.
        self.body = excerpt(body, 2 * BODY_LIMIT);
        self
    }

    /// Adds the response headers that are worth keeping.
    #[must_use]
    pub fn with_headers<'a>(mut self, headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Failure {
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            if keep_header(&name) {
                self.headers.insert(name, value.to_owned());
            }
        }
        self.request_id = REQUEST_ID_HEADERS.iter().find_map(|name| self.headers.get(*name)).cloned();
        self
    }

    /// Removes credentials (the secrets that were sent, and what has the form of one) and cuts everything to its length.
    ///
    /// Until then a failure is what came over the wire, and is shown to nobody. Values come before forms: a form may
    /// cut a value in two.
    pub fn seal<'a>(&mut self, secrets: impl IntoIterator<Item = &'a str>) {
        let redactor = Redactor::new([], secrets.into_iter().map(str::to_owned));
        let ProviderError { code, kind, param, message } = &mut self.provider_error;
        let texts = [&mut self.body]
            .into_iter()
            .chain([code, kind, param, message, &mut self.request_id].into_iter().flatten())
            .chain(self.transport.as_mut().map(|fault| &mut fault.text))
            .chain(self.headers.values_mut());
        for text in texts {
            *text = excerpt(redactor.string(text).as_bytes(), BODY_LIMIT);
        }
    }

    /// The beginning of the body as a line, where there is one.
    pub fn excerpt(&self) -> Option<String> {
        (!self.body.trim().is_empty()).then(|| one_line(&self.body))
    }

    /// True where nothing in the failure says what went wrong: no status that does, no provider's word, no text.
    /// Almost always a stream that broke before a structured body arrived.
    pub fn is_wordless(&self) -> bool {
        let status_is_silent = self.status.is_none_or(|status| (200..300).contains(&status));
        let network_is_silent = self
            .transport
            .as_ref()
            .is_none_or(|fault| fault.kind == TransportKind::Other && fault.text.is_empty());
        let anomaly_is_silent = self.anomaly.is_none_or(|anomaly| anomaly == Anomaly::Error);
        status_is_silent && network_is_silent && anomaly_is_silent && self.provider_error.is_empty()
    }
}

/// The best first: a proxy's own name for the request helps least.
const REQUEST_ID_HEADERS: [&str; 5] =
    ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"];

/// Whether a response header is kept in a failure: those about waiting, limits, identity and content, and no others,
/// since a header such as `set-cookie` is a credential.
pub fn keep_header(lower_case_name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "content-type",
        "date",
        "retry-after",
        "retry-after-ms",
        "server",
        "via",
        "x-amzn-errortype",
        "x-should-retry",
    ];
    NAMES.contains(&lower_case_name)
        || REQUEST_ID_HEADERS.contains(&lower_case_name)
        || lower_case_name.contains("ratelimit")
        // What is left of a plan's windows: `x-codex-primary-reset-after-seconds`.
        || lower_case_name.starts_with("x-codex-")
}

impl Failure {
    /// As the cause of the error that it led to: a type and a text, and no code of its own.
    pub(crate) fn as_cause(&self) -> Error {
        let type_name = if self.transport.is_some() { "TransportFault" } else { "ProviderResponse" };
        Error::from(ErrorDetails::untyped(type_name, &self.to_string()))
    }
}

/// In one line, for people: what was seen.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(fault) = &self.transport {
            f.write_str(&fault.text)?;
            // Who did not answer is half of what there is to say.
            return match self.phase {
                Phase::Connect if !self.endpoint.is_empty() => write!(f, " ({})", self.endpoint),
                _ => Ok(()),
            };
        }
        if let Some(anomaly) = self.anomaly {
            f.write_str(match anomaly {
                Anomaly::Error if self.is_wordless() => return Ok(()),
                Anomaly::Error if self.phase == Phase::Body => "an error inside a 200",
                Anomaly::Error => "an error event inside the stream",
                Anomaly::NoTerminalEvent => "the stream ended without its terminal event",
                Anomaly::Empty => "the answer holds nothing",
                Anomaly::EmptyAtTokenLimit => "the answer reached the token limit before it held anything",
                Anomaly::MalformedBody => "the body is not what the protocol promises",
                Anomaly::MalformedEvent => "an event of the stream is not what the protocol promises",
                Anomaly::TooLarge => "the answer is larger than the limit",
                Anomaly::BrokenOff => "the provider broke the answer off",
                Anomaly::UnknownEnd => "the answer ended for an unknown reason",
                Anomaly::Filtered => "the provider's content filter stopped the answer",
                Anomaly::Refused => "the model refused",
            })?;
        } else if let Some(status) = self.status {
            write!(f, "HTTP {status}")?;
        }
        match &self.provider_error {
            ProviderError { message: Some(message), .. } => write!(f, ": {}", one_line(message)),
            ProviderError { code: Some(word), .. } | ProviderError { kind: Some(word), .. } => {
                write!(f, ": {}", one_line(word))
            }
            _ if !self.body.trim().is_empty() => write!(f, ": {}", one_line(&self.body)),
            _ if self.anomaly.is_none() && self.status.is_some() => f.write_str(" with an empty body"),
            _ => Ok(()),
        }
    }
}

/// The beginning of a body as text, cut between characters.
fn excerpt(body: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(body.get(..limit).unwrap_or(body));
    if body.len() > limit { text.trim_end_matches('\u{fffd}').to_owned() } else { text.into_owned() }
}

/// White space folded, at most 300 characters.
fn one_line(text: &str) -> String {
    const LIMIT: usize = 300;
    let folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match folded.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", folded.get(..end).unwrap_or_default()),
        None => folded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_reads_as_a_line() {
        assert_eq!(Failure::status(503, b"").to_string(), "HTTP 503 with an empty body");
        assert_eq!(
            Failure::status(429, br#"{"error":{"message":"Rate limit\nreached","type":"requests"}}"#)
                .to_string(),
            "HTTP 429: Rate limit reached"
        );
        assert_eq!(Failure::anomaly(Phase::MidStream, Anomaly::Error, b"{}").to_string(), "");
    }

    #[test]
    fn the_providers_words_are_found_wherever_its_protocol_keeps_them() {
        for body in [
            r#"{"error":{"code":"c","type":"t","message":"m"}}"#,
            r#"{"type":"t","code":"c","message":"m","param":null}"#,
            r#"[{"error":{"code":"c","status":"t","message":"m"}}]"#,
            r#"{"type":"response.failed","response":{"error":{"code":"c","type":"t","message":"m"}}}"#,
        ] {
            let error = ProviderError::from_json(&serde_json::from_str(body).unwrap());
            let words = [error.code, error.kind, error.message].map(Option::unwrap_or_default);
            assert_eq!(words, ["c", "t", "m"], "{body}");
        }
    }

    #[test]
    fn only_headers_about_failure_are_kept() {
        let failure = Failure::status(429, b"").with_headers([
            ("Retry-After", "2"),
            ("X-RateLimit-Remaining-Requests", "0"),
            ("Set-Cookie", "session=secret"),
            ("x-request-id", "req_1"),
        ]);
        assert_eq!(failure.request_id.as_deref(), Some("req_1"));
        assert!(failure.headers.contains_key("retry-after"));
        assert!(failure.headers.contains_key("x-ratelimit-remaining-requests"));
        assert!(!failure.headers.contains_key("set-cookie"));
    }

    #[test]
    fn a_secret_that_was_sent_is_nowhere_in_a_sealed_failure() {
        let body = format!(
            r#"{{"error":{{"message":"wrong key my-own-key","code":"my-own-key"}}}}{}my-own-key"#,
            " ".repeat(8_130)
        );
        let mut failure = Failure::status(401, body.as_bytes())
            .with_headers([("x-request-id", "my-own-key"), ("cf-ray", "ray")]);
        failure.seal(["my-own-key"]);
        let written = serde_json::to_string(&failure).unwrap();
        assert!(!written.contains("my-own"), "{written}");
        assert!(failure.body.len() <= BODY_LIMIT);
    }

    #[test]
    fn the_providers_own_request_id_is_preferred_to_a_proxys() {
        let failure = Failure::status(500, b"").with_headers([("cf-ray", "ray"), ("x-request-id", "req_1")]);
        assert_eq!(failure.request_id.as_deref(), Some("req_1"));
    }

    #[test]
    fn an_excerpt_never_ends_inside_a_character() {
        assert_eq!(excerpt("aé".as_bytes(), 2), "a");
    }
}
