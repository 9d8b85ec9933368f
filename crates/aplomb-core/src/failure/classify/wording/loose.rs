//! Wording by what it is about and what it says of it: `balance` and `insufficient`, in whatever sentence.
//!
//! Providers rephrase, and new ones phrase anew; the words for the thing and for what is wrong with it stay. Weaker than
//! every known sentence, and only where the status says that the request was at fault, or says nothing.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Seen, Test};

/// So vague that everything else knows better.
pub(in super::super) const VAGUE: &[Rule] = &[STREAM];

pub(in super::super) const RULES: &[Rule] =
    &[LOAD, ACCESS, CREDENTIAL, MODEL, FILTER, IMAGE, TOOLS, MONEY, CONTEXT];

/// A refusal of this very request: not a throttle, not a server's trouble, not the client's own text.
fn is_refusal(seen: &Seen<'_>) -> bool {
    (seen.is_client_error() || seen.is_error_inside()) && !seen.is_client_text()
}

/// The same, also where a gateway may have hidden it behind a status of its own.
fn may_be_refusal(seen: &Seen<'_>) -> bool {
    is_refusal(seen) || seen.status().is_some_and(|status| status >= 500)
}

const STREAM: Rule = Rule {
    id: "loose.stream",
    why: "The error inside the stream says that the stream broke.",
    test: Test::Look(|seen| {
        let broke = [
            "ended",
            "failed",
            "aborted",
            "interrupted",
            "truncated",
            "disconnected",
            "closed",
            "terminated",
        ];
        (seen.is_error_inside() && seen.says(&["stream", "connection"]) && seen.says(&broke))
            .then_some(Opinion::retry(Reason::StreamInterrupted))
    }),
};

const LOAD: Rule = Rule {
    id: "loose.load",
    why: "The message speaks of overload.",
    test: Test::Look(|seen| {
        (!seen.is_client_error() && !seen.is_client_text() && seen.says(&["overload"]))
            .then_some(Opinion::retry(Reason::Overloaded))
    }),
};

const ACCESS: Rule = Rule {
    id: "loose.access",
    why: "The message speaks of what the account or the key may not do.",
    test: Test::Look(|seen| {
        const DENIED: &[&str] = &[
            "not authorized",
            "no access to",
            "only authorized for",
            "not entitled",
            "access denied",
            "access is denied",
            "must be verified",
            "not enabled for your",
            "not available for your",
            "has been disabled",
            "has been suspended",
            "has been restricted",
            "has been blocked",
        ];
        (is_refusal(seen) && seen.status() != Some(401) && seen.says(DENIED))
            .then_some(Opinion::forbid(Reason::Permission))
    }),
};

const CREDENTIAL: Rule = Rule {
    id: "loose.credential",
    why: "The message speaks of a credential that is missing, wrong or lapsed.",
    test: Test::Look(|seen| {
        const THING: &[&str] = &[
            "api key",
            "apikey",
            "api-key",
            "api_key",
            "api token",
            "access token",
            "auth token",
            "bearer token",
            "authentication",
            "authenticate",
            "credential",
            "signature error",
        ];
        const WRONG: &[&str] = &[
            "invalid",
            "expired",
            "missing",
            "incorrect",
            "wrong",
            "not valid",
            "revoked",
            "failed",
            "not found",
            "not provided",
            "no longer valid",
            "could not be validated",
        ];
        // Where a key may not do something, it is the key that is named, too.
        (is_refusal(seen)
            && seen.says(THING)
            && seen.says(WRONG)
            && !seen.says(&["permission", "authorized for"]))
        .then_some(Opinion::forbid(Reason::Auth))
    }),
};

const MODEL: Rule = Rule {
    id: "loose.model",
    why: "The message speaks of a model or an endpoint that is not there.",
    test: Test::Look(|seen| {
        const THING: &[&str] = &["model", "deployment", "endpoint"];
        const GONE: &[&str] = &[
            "not found",
            "does not exist",
            "doesn't exist",
            "not exist",
            "no longer available",
            "no longer supported",
            "is not available",
            "deprecated",
            "decommissioned",
            "retired",
            "unable to access model",
            "not supported by any provider",
        ];
        // Other things that are not found.
        const OTHER: &[&str] =
            &["tool", "file", "response with id", "parameter", "image", "conversation", "cache", "thread"];
        (is_refusal(seen) && seen.says(THING) && seen.says(GONE) && !seen.says(OTHER))
            .then_some(Opinion::forbid(Reason::ModelNotFound))
    }),
};

const FILTER: Rule = Rule {
    id: "loose.filter",
    why: "The message speaks of content that a policy stopped.",
    test: Test::Look(|seen| {
        const STOPPED: &[&str] =
            &["violat", "flagged", "blocked", "rejected", "refused", "disallowed", "not allowed"];
        const BY: &[&str] = &[
            "usage policy",
            "usage policies",
            "content policy",
            "guidelines",
            "safety",
            "moderation",
            "harmful",
            "inappropriate",
            "sensitive",
            "content filter",
            "responsible ai",
            "terms of use",
        ];
        (is_refusal(seen) && seen.says(STOPPED) && seen.says(BY))
            .then_some(Opinion::forbid(Reason::ContentFilter))
    }),
};

const IMAGE: Rule = Rule {
    id: "loose.image",
    why: "The message speaks of an image that cannot be read, or not by this model.",
    test: Test::Look(|seen| {
        const THING: &[&str] = &["image", "vision"];
        const WRONG: &[&str] = &[
            "invalid",
            "not valid",
            "unsupported",
            "not supported",
            "not support",
            "too large",
            "too small",
            "exceed",
            "could not",
            "cannot",
            "failed to",
            "unable to",
            "not loaded",
            "corrupt",
            "decode",
            "download",
        ];
        (is_refusal(seen)
            && seen.says(THING)
            && seen.says(WRONG)
            && !seen.says(&["tool_use", "role", "parameter"]))
        .then_some(Opinion::forbid(Reason::InvalidImage))
    }),
};

const TOOLS: Rule = Rule {
    id: "loose.tool_schema",
    why: "The message speaks of a tool's schema that is not accepted.",
    test: Test::Look(|seen| {
        const WRONG: &[&str] = &[
            "invalid",
            "not a valid",
            "not valid",
            "unsupported",
            "not supported",
            "too complex",
            "required",
            "failed",
            "must be",
        ];
        (is_refusal(seen)
            && seen.says(&["tool", "function"])
            && seen.says(&["schema", "tools.function.parameters"])
            && seen.says(WRONG)
            && !seen.says(&["response_format", "tool call", "tool_choice"]))
        .then_some(Opinion::forbid(Reason::ToolSchemaInvalid))
    }),
};

const MONEY: Rule = Rule {
    id: "loose.money",
    why: "The message speaks of money, credits, a plan or a quota that is used up.",
    test: Test::Look(|seen| {
        const THING: &[&str] = &[
            "balance",
            "credit",
            "funds",
            "spend",
            "budget",
            "quota",
            "free tier",
            "free plan",
            "key limit",
            "allowance",
        ];
        const SPENT: &[&str] = &[
            "insufficient",
            "not enough",
            "too low",
            "exhausted",
            "exceeded",
            "reached",
            "depleted",
            "expired",
            "used up",
            "out of",
            "ran out",
            "not available on",
            "upgrade",
            "overdue",
        ];
        // A quota by the minute is a throttle; a budget may be one for thoughts.
        const THROTTLE: &[&str] = &[
            "per minute",
            "per second",
            "rate limit",
            "requests per",
            "tokens per",
            "budget_tokens",
            "thinking",
        ];
        (is_refusal(seen) && seen.says(THING) && seen.says(SPENT) && !seen.says(THROTTLE))
            .then_some(Opinion::forbid(Reason::QuotaExhausted))
    }),
};

const CONTEXT: Rule = Rule {
    id: "loose.context",
    why: "The message speaks of more tokens than the model takes.",
    test: Test::Look(|seen| {
        const THING: &[&str] = &[
            "input tokens",
            "prompt tokens",
            "prompt_tokens",
            "prompt length",
            "prompt size",
            "input length",
            "context length",
            "context window",
            "context size",
            "context limit",
            "token limit",
            "tokens limit",
            "max_model_len",
            "max_seq_len",
            "n_ctx",
            "number of tokens",
            "inputs` must have",
            "too many tokens",
        ];
        const OVER: &[&str] = &[
            "exceed",
            "too long",
            "too large",
            "too many",
            "longer than",
            "larger than",
            "greater than",
            "less than",
            "more than",
            "over the",
            "at most",
            "but the",
            " > ",
        ];
        // The cap of an answer, the rate of a minute, and what money pays for are other things.
        const OTHER: &[&str] = &[
            "output tokens",
            "completion tokens",
            "per minute",
            "per day",
            "rate limit",
            "credits",
            "monthly",
            "image",
        ];
        (may_be_refusal(seen) && seen.says(THING) && seen.says(OVER) && !seen.says(OTHER))
            .then_some(Opinion::forbid(Reason::ContextOverflow))
    }),
};
