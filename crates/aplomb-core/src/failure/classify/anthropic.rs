//! Anthropic's error types, where they are not OpenAI's too.
//!
//! Source: Anthropic, "Errors" (<https://docs.claude.com/en/api/errors>).

use super::rule::{Opinion, Rule, Test};
use crate::failure::Reason;

pub(super) const COARSE: &[Rule] = &[PLAN, TOO_LARGE];

/// The unified headers come with a plan's allowance, not with an organisation's rate.
const PLAN: Rule = Rule {
    id: "anthropic.plan",
    why: "The plan's allowance for this window is used up; the headers say until when.",
    test: Test::Look(|seen| {
        let status = seen.failure.headers.get("anthropic-ratelimit-unified-status")?;
        (seen.status() == Some(429) && status.trim() == "rejected")
            .then_some(Opinion::forbid(Reason::QuotaExhausted))
    }),
};

/// Weaker than the wording: proxies say it of prompts with too many tokens, too.
const TOO_LARGE: Rule = Rule {
    id: "anthropic.request_too_large",
    why: "The request has more bytes than the API takes.",
    test: Test::Names {
        at: |seen| seen.status() != Some(429),
        names: &["request_too_large"],
        then: Opinion::forbid(Reason::PayloadTooLarge),
    },
};
