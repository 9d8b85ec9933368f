//! The reference's own view of a failure, layer by layer, for the `layered` mode: `docs/spec/retry.md` §2.
//!
//! What a rule has recognised is followed. The texts are for what no rule knows.

use crate::failure::{Failure, Phase, Reason, TransportKind, Verdict};

/// Which layers would try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) transport: bool,
    pub(super) session: bool,
    pub(super) exec: bool,
}

/// What the layers would do about a failure. The boundaries of §3 stand in this mode too: where a rule says that the
/// same request would fail the same way, nobody serves it, whatever its status.
pub(super) fn served(failure: &Failure, verdict: &Verdict) -> Served {
    let known = verdict.reason != Reason::Unknown;
    let text = failure.to_string();
    if known && !verdict.retryable {
        return Served { transport: false, session: false, exec: false };
    }
    let session = if known { verdict.retryable } else { text.trim().is_empty() || is_transient(&text) };
    Served { transport: by_transport(failure), session, exec: !has_permanent_marker(&text) }
}

/// 429, 502, 503, 504 and 529; connect and read time-outs; refused and reset connections; all of them before the answer
/// has begun.
fn by_transport(failure: &Failure) -> bool {
    let by_status =
        failure.phase == Phase::Response && matches!(failure.status, Some(429 | 502 | 503 | 504 | 529));
    let by_fault = failure.phase == Phase::Connect
        && failure.transport.as_ref().is_some_and(|fault| {
            matches!(
                fault.kind,
                TransportKind::Refused
                    | TransportKind::Reset
                    | TransportKind::ConnectTimeout
                    | TransportKind::FirstByteTimeout
                    | TransportKind::IdleTimeout
                    | TransportKind::AttemptTimeout
            )
        });
    by_status || by_fault
}

/// The session's patterns that are one text, in lower case.
const TRANSIENT: [&str; 9] = [
    "overloaded",
    "too many requests",
    "server error",
    "internal error",
    "other side closed",
    "fetch failed",
    "reset before headers",
    "terminated",
    "retry delay",
];

/// The session's patterns of the form `a.?b`.
const TRANSIENT_PAIRS: [(&str, &str); 5] = [
    ("rate", "limit"),
    ("service", "unavailable"),
    ("connection", "error"),
    ("connection", "refused"),
    ("upstream", "connect"),
];

/// Exec's markers of what is permanent, in lower case.
const PERMANENT: [&str; 9] = [
    "not a valid image",
    "invalid image",
    "image data is not",
    "login expired",
    "login failed",
    "re-auth",
    "unauthorized",
    "invalid api key",
    "invalid_api_key",
];

/// Whether the session takes a text for that of something that passes. Statuses count as whole words: a bare `500` is
/// in many a text that is about something else.
fn is_transient(text: &str) -> bool {
    let text = text.to_lowercase();
    TRANSIENT.iter().any(|pattern| text.contains(pattern))
        || TRANSIENT_PAIRS.iter().any(|(first, second)| has_pair(&text, first, second))
        || text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(is_status)
}

/// `429`, or `5\d\d`.
fn is_status(word: &str) -> bool {
    word == "429"
        || (word.len() == 3 && word.starts_with('5') && word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `first.?second`, anywhere.
fn has_pair(text: &str, first: &str, second: &str) -> bool {
    text.match_indices(first).any(|(at, found)| {
        let rest = text.get(at + found.len()..).unwrap_or_default();
        let mut after_one = rest.chars();
        // The one character between them may be anything but the end of a line.
        let skipped = after_one.next().is_some_and(|letter| letter != '\n');
        rest.starts_with(second) || (skipped && after_one.as_str().starts_with(second))
    })
}

/// Whether exec takes a text for that of something that would happen again. No type's name holds a marker.
fn has_permanent_marker(text: &str) -> bool {
    let text = text.to_lowercase();
    PERMANENT.iter().any(|marker| text.contains(marker))
}

/// Whether what no rule knows would happen again all the same.
pub(super) fn is_permanent(failure: &Failure) -> bool {
    has_permanent_marker(&failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_patterns_match_anywhere_and_in_any_case() {
        for text in [
            "The model is OVERLOADED",
            "rate limit",
            "ratelimit",
            "rate_limit_error",
            "Too Many Requests",
            "got 429 from upstream",
            "status=503",
            "HTTP 599",
            "Service-Unavailable",
            "serviceunavailable",
            "internal server error",
            "an Internal Error happened",
            "Connection error.",
            "connection refused",
            "connectionrefused",
            "other side closed",
            "TypeError: fetch failed",
            "upstream connect error",
            "reset before headers",
            "terminated",
            "retry delay: 3 s",
        ] {
            assert!(is_transient(text), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_pattern_matches_none() {
        for text in [
            "",
            "max_tokens 5000 is too large",
            "1500 tokens",
            "error 42900",
            "rate the limit",
            "connection was an error",
            "id 5ab",
            "id_503",
            "I am a teapot",
        ] {
            assert!(!is_transient(text), "{text}");
        }
    }
}
