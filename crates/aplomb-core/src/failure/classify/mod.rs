//! Tells what a failure is. Knows the failure and nothing else: no policy, no history, no clock.
//!
//! A chain of small rules, each with a stable id, from the general to the specific: a later opinion replaces an
//! earlier one. No opinion at all means unknown, and what is unknown is not retryable. The order:
//!
//! 1. the status, the network, the shape of the answer (`generic`, `transport`);
//! 2. a status that a gateway quotes (`gateway`);
//! 3. names that say little: `invalid_request_error`, `rate_limit_exceeded`;
//! 4. wording, which says more than those (`wording`);
//! 5. names that say exactly what it is: `insufficient_quota`, `context_length_exceeded`;
//! 6. the provider's veto.
//!
//! Names are kept by family, one file each. Wording is kept by what it means: the same sentence comes from its author,
//! from every compatible server, and from every gateway.

mod anthropic;
mod aws;
mod azure;
mod chain;
mod chinese;
mod gateway;
mod generic;
mod google;
mod groq;
mod local;
mod mistral;
mod openai;
mod rule;
mod transport;
mod wording;

use serde::{Deserialize, Serialize};

use super::{Failure, Reason, Wait};
use crate::error::{Code, codes};
use rule::{Opinion, Rule};

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
    /// The id of the rule that decided. [`explain`] tells what it knows.
    pub rule: String,
}

impl Verdict {
    /// The contract's coarse code.
    pub fn code(&self) -> Code {
        // What the client's own text says is nothing that a provider answered.
        if !self.retryable && self.rule.starts_with(transport::FAMILY) {
            return codes::LLM_ERROR;
        }
        self.reason.code(self.retryable)
    }
}

const CHAIN: [&[Rule]; 25] = [
    generic::RULES,
    transport::RULES,
    wording::throttle::VAGUE,
    wording::loose::VAGUE,
    gateway::UPSTREAM,
    // Names that say little.
    openai::COARSE,
    anthropic::COARSE,
    google::COARSE,
    aws::COARSE,
    chinese::COARSE,
    // Wording, the known sentences after the loose words.
    wording::loose::RULES,
    wording::throttle::RULES,
    wording::access::RULES,
    wording::request::RULES,
    wording::content::RULES,
    wording::quota::RULES,
    wording::overflow::RULES,
    // Names that say exactly what it is.
    google::RULES,
    aws::RULES,
    azure::RULES,
    groq::RULES,
    mistral::RULES,
    chinese::RULES,
    local::RULES,
    openai::RULES,
];

const UNKNOWN: (&str, &str) = ("generic.unknown", "No rule knows it, and what is unknown is not sent again.");
const VETO: (&str, &str) = ("generic.x_should_retry", "The provider says that it is not worth a retry.");
const INVITED: (&str, &str) = (
    "generic.x_should_retry_true",
    "The status says little, and the provider says that it is worth a retry.",
);

/// Judges a failure.
pub fn classify(failure: &Failure) -> Verdict {
    let seen = chain::look(failure);
    let (rule, opinion) = match chain::last_opinion(&seen) {
        Some((rule, opinion)) => (rule.id, opinion),
        None => (UNKNOWN.0, Opinion::forbid(Reason::Unknown)),
    };
    // The provider's own word about exactly this question. Source: openai-python and anthropic-sdk-python,
    // `_should_retry`. "true" must not make a spent quota worth a retry: it counts only where nothing but a bad request
    // is known.
    let should_retry = failure.headers.get("x-should-retry").map(|value| value.trim());
    let (rule, Opinion { reason, retryable }) = match should_retry {
        Some("false") if opinion.retryable => (VETO.0, Opinion::forbid(opinion.reason)),
        Some("true") if opinion == Opinion::forbid(Reason::InvalidRequest) && rule == "generic.status" => {
            (INVITED.0, Opinion::retry(Reason::ServerError))
        }
        _ => (rule, opinion),
    };
    Verdict {
        reason,
        retryable,
        wait: Wait::stated(failure, &seen.said.waits, &seen.said.prose),
        rule: rule.to_owned(),
    }
}

/// Every rule's id, with one sentence about what it knows; the most general first.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    let chain = CHAIN.into_iter().flatten().map(|rule| (rule.id, rule.why));
    [UNKNOWN].into_iter().chain(chain).chain([INVITED, VETO])
}

/// What a rule knows, in one sentence for people.
pub fn explain(rule: &str) -> Option<&'static str> {
    rules().find(|(id, _)| *id == rule).map(|(_, why)| why)
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
    fn a_fault_of_a_known_kind_is_judged_by_it_and_not_by_its_words() {
        let text = "Connection reset by peer (os error 104)";
        for (phase, reason) in [
            (Phase::Connect, Reason::Connection),
            (Phase::Body, Reason::StreamInterrupted),
            (Phase::MidStream, Reason::StreamInterrupted),
        ] {
            for kind in [TransportKind::Reset, TransportKind::Other] {
                let verdict = classify(&Failure::transport(phase, kind, text));
                assert_eq!((verdict.reason, verdict.retryable), (reason, true), "{phase:?} {kind:?}");
            }
        }
    }

    #[test]
    fn every_rule_is_explained() {
        assert!(rules().all(|(id, why)| explain(id) == Some(why) && why.ends_with('.')));
        assert_eq!(explain("no.such_rule"), None);
    }

    #[test]
    fn a_certificate_is_permanent_and_a_refused_connection_is_not() {
        let certificate = Failure::transport(Phase::Connect, TransportKind::Certificate, "expired");
        assert_eq!(verdict(&certificate), (Reason::Connection, false, "llm.error"));
        let refused = Failure::transport(Phase::Connect, TransportKind::Refused, "connection refused");
        assert_eq!(verdict(&refused), (Reason::Connection, true, "llm.connection"));
    }
}
