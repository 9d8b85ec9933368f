//! What gateways say of the provider behind them: its status, quoted in a field or a sentence.

use super::generic::status_opinion;
use super::rule::{Opinion, Rule, Seen, Test};
use crate::failure::{Anomaly, Reason};

pub(super) const UPSTREAM: &[Rule] =
    &[NUMERIC_CODE, QUOTED_STATUS, WRAPPED_CODE, LITELLM, CLOUDFLARE, OPENROUTER_DOWN];

/// Gateways put their upstream's status into the error's code: `{"error": {"code": 502, …}}`.
///
/// Source: OpenRouter, "Errors and debugging" (<https://openrouter.ai/docs/api/reference/errors-and-debugging>): an error
/// after the stream has begun has the status in `error.code`.
const NUMERIC_CODE: Rule = Rule {
    id: "gateway.numeric_code",
    why: "The status was good, and the error inside states one that is not.",
    test: Test::Look(|seen| {
        (seen.failure.anomaly == Some(Anomaly::Error)).then_some(())?;
        status_opinion(seen.said.layers.iter().rev().find_map(|layer| layer.http)?)
    }),
};

/// A gateway's 500 for whatever its SDK raised: `Error code: 404 - {…}`, `Request failed with status code 401`.
///
/// Sources: openai-python and anthropic-sdk-python (`APIStatusError`), axios, google-genai (`got status: 503`), the
/// Google AI SDK for JavaScript (`[429 Too Many Requests]`), LiteLLM's proxy, which passes those sentences on.
const QUOTED_STATUS: Rule = Rule {
    id: "gateway.quoted_status",
    why: "A gateway's message quotes the status that the provider gave it.",
    test: Test::Look(|seen| {
        seen.is_wrapped().then_some(seen.quoted_status).flatten().and_then(status_opinion)
    }),
};

/// An error inside a gateway's 5xx that is not the gateway's own.
const WRAPPED_CODE: Rule = Rule {
    id: "gateway.wrapped_code",
    why: "A gateway's status is its own, and the error that it wraps states the provider's.",
    test: Test::Look(|seen| {
        let status = seen.status().filter(|status| *status >= 500)?;
        let inner = seen.said.layers.iter().skip(1).rev().find_map(|layer| layer.http)?;
        (inner != status).then(|| status_opinion(inner)).flatten()
    }),
};

/// Source: LiteLLM, "Exception mapping" (<https://docs.litellm.ai/docs/exception_mapping>).
const LITELLM: Rule = Rule {
    id: "gateway.litellm",
    why: "LiteLLM names the kind of the provider's error.",
    test: Test::Look(|seen| {
        seen.is_wrapped().then_some(())?;
        let class = seen.said.prose.split("litellm.").nth(1)?.split([':', ' ', '\n', '(']).next()?;
        Some(match class {
            "ratelimiterror" => Opinion::retry(Reason::RateLimit),
            "badrequesterror"
            | "unprocessableentityerror"
            | "unsupportedparamserror"
            | "jsonschemavalidationerror" => Opinion::forbid(Reason::InvalidRequest),
            "contextwindowexceedederror" => Opinion::forbid(Reason::ContextOverflow),
            "contentpolicyviolationerror" => Opinion::forbid(Reason::ContentFilter),
            "authenticationerror" => Opinion::forbid(Reason::Auth),
            "permissiondeniederror" => Opinion::forbid(Reason::Permission),
            "notfounderror" => Opinion::forbid(Reason::ModelNotFound),
            "budgetexceedederror" => Opinion::forbid(Reason::QuotaExhausted),
            "timeout" => Opinion::retry(Reason::Timeout),
            _ => return None,
        })
    }),
};

/// Cloudflare's own errors in front of an API, where they are more than a status.
///
/// Source: Cloudflare, "Cloudflare 1xxx errors"
/// (<https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-1xxx-errors/>).
const CLOUDFLARE: Rule = Rule {
    id: "gateway.cloudflare",
    why: "Cloudflare, in front of the provider, gives its own code.",
    test: Test::Look(|seen| {
        let rest = seen.said.prose.split("error code: ").nth(1)?;
        Some(match rest.get(..4)? {
            "1015" => Opinion::retry(Reason::RateLimit),
            "1006" | "1007" | "1008" | "1009" | "1010" | "1012" | "1020" => {
                Opinion::forbid(Reason::Permission)
            }
            _ => return None,
        })
    }),
};

/// Source: OpenRouter, "Errors and debugging", `metadata.error_type`.
const OPENROUTER_DOWN: Rule = Rule {
    id: "gateway.provider_unavailable",
    why: "The gateway says that the provider behind it is down.",
    test: Test::Names {
        at: |seen: &Seen<'_>| seen.is_wrapped() && !seen.said.is_named(&["server_error"]),
        names: &["provider_unavailable"],
        then: Opinion::retry(Reason::ServerError),
    },
};
