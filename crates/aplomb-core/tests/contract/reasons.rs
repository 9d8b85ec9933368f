//! design.md §4: the reasons.

use aplomb_core::error::codes;
use aplomb_core::failure::Reason;
use serde_json::json;

use crate::page::*;

/// The list of design.md §4, which is not in the repository.
const REASONS: [&str; 20] = [
    "rate_limit",
    "overloaded",
    "server_error",
    "connection",
    "timeout",
    "stream_interrupted",
    "empty_response",
    "malformed_response",
    "context_overflow",
    "quota_exhausted",
    "auth",
    "permission",
    "invalid_request",
    "model_not_found",
    "content_filter",
    "payload_too_large",
    "invalid_image",
    "tool_schema_invalid",
    "cancelled",
    "unknown",
];

#[test]
fn every_reason_of_the_design_is_in_the_enum_under_its_name() {
    for name in REASONS {
        let reason: Reason =
            serde_json::from_value(json!(name)).unwrap_or_else(|_| panic!("{name} is missing"));
        assert_eq!(reason.as_str(), name);
        assert!(Reason::ALL.contains(&reason), "{name}");
    }
    assert_eq!(set(Reason::ALL.iter().map(|reason| reason.as_str())), set(REASONS));
    assert_eq!(Reason::ALL.len(), REASONS.len(), "a reason stands twice");
}

#[test]
fn every_reason_that_the_contract_gives_as_an_example_is_in_the_enum() {
    let text = section(&read(ERRORS), 1).replace('\n', " ");
    let start = text.find("the fine cause is `context.reason` (").expect("the examples");
    let examples = quoted(text[start..].split('…').next().unwrap());
    assert!(examples.len() > 3);
    for example in examples.iter().skip(1) {
        assert!(REASONS.contains(&example.as_str()), "{example}");
    }
}

#[test]
fn a_model_failure_is_retryable_exactly_if_its_code_is() {
    // Cancellation is the run's, not the model's.
    for reason in Reason::ALL.iter().filter(|reason| **reason != Reason::Cancelled) {
        for retryable in [false, true] {
            let code = reason.code(retryable);
            assert!(code.is_a(codes::LLM_ERROR), "{reason}: {code}");
            assert_eq!(code.retryable(), retryable, "{reason}: {code}");
        }
    }
}

#[test]
fn throttles_are_rate_limits_and_the_connection_class_is_connection() {
    // errors.md §3: "429, 529, provider overload"; "connect failure, time-out, 5xx, an interrupted stream".
    for reason in [Reason::RateLimit, Reason::Overloaded] {
        assert_eq!(reason.code(true), codes::LLM_RATE_LIMIT, "{reason}");
    }
    for reason in [Reason::Connection, Reason::Timeout, Reason::ServerError, Reason::StreamInterrupted] {
        assert_eq!(reason.code(true), codes::LLM_CONNECTION, "{reason}");
    }
}
