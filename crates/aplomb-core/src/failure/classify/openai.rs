//! OpenAI's error codes and types, which most compatible vendors and gateways share.

use super::generic::status_opinion;
use super::{Opinion, Rule};
use crate::failure::{Anomaly, Reason};

pub(super) const RULES: &[Rule] = &[NUMERIC_CODE, TYPE, CODE];

/// Gateways put their upstream's status into the error's code: `{"error": {"code": 502, …}}`.
///
/// Source: OpenRouter, "Errors and debugging": an error after the stream has begun has the status in `error.code`.
const NUMERIC_CODE: Rule = Rule {
    id: "openai.numeric_code",
    look: |failure| {
        (failure.anomaly == Some(Anomaly::Error)).then_some(())?;
        status_opinion(failure.provider_error.code.as_deref()?.parse().ok()?)
    },
};

/// Source: OpenAI's error guide, and the `type` field of the errors in its API reference.
const TYPE: Rule = Rule {
    id: "openai.type",
    look: |failure| {
        let known_by_status = failure.anomaly != Some(Anomaly::Error);
        Some(match failure.provider_error.kind.as_deref()? {
            "insufficient_quota" => Opinion::forbid(Reason::QuotaExhausted),
            "overloaded_error" | "engine_overloaded" => Opinion::retry(Reason::Overloaded),
            // Said of anything from a bad key to a bad parameter: the status knows better.
            _ if known_by_status => return None,
            "server_error" | "api_error" => Opinion::retry(Reason::ServerError),
            "rate_limit_error" | "requests" | "tokens" => Opinion::retry(Reason::RateLimit),
            "authentication_error" => Opinion::forbid(Reason::Auth),
            "permission_error" => Opinion::forbid(Reason::Permission),
            "invalid_request_error" => Opinion::forbid(Reason::InvalidRequest),
            _ => return None,
        })
    },
};

/// A spent quota wears the status of a throttle. Waiting does not refill it.
///
/// Source: OpenAI's error guide ("429 - You exceeded your current quota"), API reference (`error.code`).
const CODE: Rule = Rule {
    id: "openai.code",
    look: |failure| {
        Some(match failure.provider_error.code.as_deref()? {
            "insufficient_quota" | "billing_hard_limit_reached" | "billing_not_active" => {
                Opinion::forbid(Reason::QuotaExhausted)
            }
            "context_length_exceeded" => Opinion::forbid(Reason::ContextOverflow),
            "invalid_api_key" | "account_deactivated" => Opinion::forbid(Reason::Auth),
            "model_not_found" => Opinion::forbid(Reason::ModelNotFound),
            "content_filter" | "content_policy_violation" => Opinion::forbid(Reason::ContentFilter),
            "rate_limit_exceeded" => Opinion::retry(Reason::RateLimit),
            "server_error" => Opinion::retry(Reason::ServerError),
            "invalid_image" | "invalid_base64_image" | "image_parse_error" => {
                Opinion::forbid(Reason::InvalidImage)
            }
            _ => return None,
        })
    },
};
