//! Tells what a failure is. Knows the failure and nothing else: no policy, no history, no clock.
//!
//! A chain of small rules, each with a stable id, from the general to the specific: a later opinion replaces an
//! earlier one. No opinion at all means unknown, and what is unknown is not retryable.

mod generic;
mod openai;

use serde::{Deserialize, Serialize};

use super::{Failure, Reason, Wait};
use crate::error::Code;

/// What a failure is, and the rule that says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The fine cause.
    pub reason: Reason,
    /// May the very same request succeed when sent again to the same place, perhaps after a wait?
    pub retryable: bool,
    /// How long the provider asked us to wait, whatever the failure is.
    pub wait: Option<Wait>,
    /// The id of the rule that decided.
    pub rule: String,
}

impl Verdict {
    /// The contract's coarse code.
    pub fn code(&self) -> Code {
        self.reason.code(self.retryable)
    }
}

/// One rule's view of a failure.
#[derive(Debug, Clone, Copy)]
struct Opinion {
    reason: Reason,
    retryable: bool,
}

impl Opinion {
    /// The same request may pass later.
    const fn retry(reason: Reason) -> Opinion {
        Opinion { reason, retryable: true }
    }

    /// The same request would fail the same way.
    const fn forbid(reason: Reason) -> Opinion {
        Opinion { reason, retryable: false }
    }
}

struct Rule {
    id: &'static str,
    look: fn(&Failure) -> Option<Opinion>,
}

const CHAIN: [&[Rule]; 2] = [generic::RULES, openai::RULES];

/// Judges a failure.
pub fn classify(failure: &Failure) -> Verdict {
    let mut found: Option<(&Rule, Opinion)> = None;
    for rule in CHAIN.into_iter().flatten() {
        if let Some(opinion) = (rule.look)(failure) {
            found = Some((rule, opinion));
        }
    }
    let (reason, mut retryable, mut rule) = match found {
        Some((rule, opinion)) => (opinion.reason, opinion.retryable, rule.id),
        None => (Reason::Unknown, false, "generic.unknown"),
    };
    // The provider's own word about exactly this question. Source: openai-python and anthropic-sdk-python,
    // `_should_retry`. Only the veto is taken: "true" must not make a spent quota worth a retry.
    if retryable && failure.headers.get("x-should-retry").is_some_and(|value| value.trim() == "false") {
        (retryable, rule) = (false, "generic.x_should_retry");
    }
    Verdict { reason, retryable, wait: Wait::of(failure), rule: rule.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Anomaly, Phase, TransportKind};

    fn verdict(failure: &Failure) -> (Reason, bool, &'static str) {
        let verdict = classify(failure);
        (verdict.reason, verdict.retryable, verdict.code().as_str())
    }

    #[test]
    fn statuses_say_what_they_are() {
        for (status, expected) in [
            (400, (Reason::InvalidRequest, false, "llm.response")),
            (401, (Reason::Auth, false, "llm.response")),
            (403, (Reason::Permission, false, "llm.response")),
            (408, (Reason::Timeout, true, "llm.connection")),
            (418, (Reason::Unknown, false, "llm.error")),
            (429, (Reason::RateLimit, true, "llm.rate_limit")),
            (500, (Reason::ServerError, true, "llm.connection")),
            (503, (Reason::ServerError, true, "llm.connection")),
            (504, (Reason::Timeout, true, "llm.connection")),
            (529, (Reason::Overloaded, true, "llm.rate_limit")),
        ] {
            assert_eq!(verdict(&Failure::status(status, b"")), expected, "{status}");
        }
    }

    #[test]
    fn the_providers_code_beats_the_status() {
        let quota = br#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
        assert_eq!(verdict(&Failure::status(429, quota)), (Reason::QuotaExhausted, false, "llm.response"));
        let overflow = br#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
        assert_eq!(
            verdict(&Failure::status(400, overflow)),
            (Reason::ContextOverflow, false, "llm.response")
        );
    }

    #[test]
    fn an_error_inside_a_stream_is_judged_by_what_it_says() {
        let event = br#"{"error":{"message":"slow down","code":429}}"#;
        let failure = Failure::anomaly(Phase::MidStream, Anomaly::Error, event);
        assert_eq!(verdict(&failure), (Reason::RateLimit, true, "llm.rate_limit"));
        let event = br#"{"error":{"message":"oops","type":"server_error"}}"#;
        let failure = Failure::anomaly(Phase::MidStream, Anomaly::Error, event);
        assert_eq!(verdict(&failure), (Reason::ServerError, true, "llm.connection"));
    }

    #[test]
    fn an_error_without_text_is_transient_by_both_routes() {
        let raised = Failure::transport(Phase::MidStream, TransportKind::Other, "");
        for body in [&b""[..], b"{}", br#"{"error":{}}"#, br#"{"error":{"message":""}}"#] {
            let event = Failure::anomaly(Phase::MidStream, Anomaly::Error, body);
            assert_eq!(classify(&event), classify(&raised));
        }
        assert_eq!(verdict(&raised), (Reason::StreamInterrupted, true, "llm.connection"));
    }

    #[test]
    fn the_providers_veto_is_honoured_and_its_encouragement_is_not() {
        let vetoed = Failure::status(503, b"").with_headers([("x-should-retry", "false")]);
        assert!(!classify(&vetoed).retryable);
        let encouraged = Failure::status(401, b"").with_headers([("x-should-retry", "true")]);
        assert!(!classify(&encouraged).retryable);
    }

    #[test]
    fn a_certificate_is_permanent_and_a_refused_connection_is_not() {
        let certificate = Failure::transport(Phase::Connect, TransportKind::Certificate, "expired");
        assert_eq!(verdict(&certificate), (Reason::Connection, false, "llm.error"));
        let refused = Failure::transport(Phase::Connect, TransportKind::Refused, "connection refused");
        assert_eq!(verdict(&refused), (Reason::Connection, true, "llm.connection"));
    }
}
