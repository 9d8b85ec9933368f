//! Google: gRPC statuses, and the details that say what they are about.
//!
//! Sources: <https://ai.google.dev/gemini-api/docs/troubleshooting>, google/rpc/code.proto, google/rpc/error_details.proto,
//! google/api/error_reason.proto, Vertex AI "API errors".

use super::rule::{Opinion, Rule, Seen, Test, anywhere};
use crate::failure::Reason;

pub(super) const COARSE: &[Rule] = &[STATUS];

pub(super) const RULES: &[Rule] = &[MODEL, EXHAUSTED, PERMISSION, AUTH, SCHEMA, CAPACITY, FILTER];

/// gRPC's names: they say more than a gateway's status, and are all there is inside a stream.
const STATUS: Rule = Rule {
    id: "google.status",
    why: "The gRPC status says so.",
    test: Test::Look(|seen| {
        let word = seen.said.layers.iter().rev().find_map(|layer| layer.status.as_deref())?;
        let is_quiet = seen.is_wrapped() || seen.status() == Some(400);
        Some(match word {
            "RESOURCE_EXHAUSTED" => Opinion::retry(Reason::RateLimit),
            "UNAVAILABLE" => Opinion::retry(Reason::Overloaded),
            "DEADLINE_EXCEEDED" => Opinion::retry(Reason::Timeout),
            "CANCELLED" => Opinion::retry(Reason::Connection),
            "UNAUTHENTICATED" => Opinion::forbid(Reason::Auth),
            "PERMISSION_DENIED" => Opinion::forbid(Reason::Permission),
            "INTERNAL" | "UNKNOWN" | "ABORTED" | "DATA_LOSS" if is_quiet && seen.status() != Some(400) => {
                Opinion::retry(Reason::ServerError)
            }
            "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" | "NOT_FOUND" if is_quiet => {
                Opinion::forbid(Reason::InvalidRequest)
            }
            "UNIMPLEMENTED" => Opinion::forbid(Reason::InvalidRequest),
            _ => return None,
        })
    }),
};

/// On this API a resource that is not found is the model, unless it says what else.
const MODEL: Rule = Rule {
    id: "google.model",
    why: "The resource that is not found is the model.",
    test: Test::Look(|seen| {
        seen.said.is_named(&["NOT_FOUND"]).then_some(())?;
        let prose = &seen.said.prose;
        let other = ["cached content", "cachedcontent", "file ", "tuned", "operation"]
            .iter()
            .any(|word| prose.contains(word));
        (prose.contains("model") && !other).then_some(Opinion::forbid(Reason::ModelNotFound))
    }),
};

/// One status and one sentence for a throttle and for a spent quota: the quota's name tells which.
const EXHAUSTED: Rule = Rule {
    id: "google.exhausted",
    why: "The quota's name or the detail's reason tells a throttle from a spent quota.",
    test: Test::Look(|seen| {
        let words = || seen.said.words.iter().map(String::as_str);
        let is_google = seen.said.is_named(&["RESOURCE_EXHAUSTED"]);
        if words().any(|word| matches!(word, "QUOTA_EXHAUSTED") || word.starts_with("INSUFFICIENT_")) {
            return Some(Opinion::forbid(Reason::QuotaExhausted));
        }
        is_google.then_some(())?;
        let prose = &seen.said.prose;
        // A day's quota, and one that is not granted at all, are allowances of the plan.
        if words().any(|word| word.contains("PerDay"))
            || prose.contains("limit: 0,")
            || prose.contains("limit: 0\n")
        {
            return Some(Opinion::forbid(Reason::QuotaExhausted));
        }
        let is_spent = ["spending cap", "prepayment credits", "credits are depleted", "billing account"];
        if is_spent.iter().any(|words| prose.contains(words)) {
            return Some(Opinion::forbid(Reason::QuotaExhausted));
        }
        // Whatever else the sentence says of quotas and billing.
        let is_about_quota = ["quota", "exhausted"].iter().any(|word| prose.contains(word));
        let is_throttle = words().any(|word| word == "RATE_LIMIT_EXCEEDED" || word.contains("PerMinute"));
        (is_throttle || is_about_quota).then_some(Opinion::retry(Reason::RateLimit))
    }),
};

const PERMISSION: Rule = Rule {
    id: "google.permission",
    why: "The detail's reason says that the project or the account does not allow this.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "SERVICE_DISABLED",
            "BILLING_DISABLED",
            "CONSUMER_SUSPENDED",
            "CONSUMER_INVALID",
            "USER_PROJECT_DENIED",
            "IAM_PERMISSION_DENIED",
            "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
            "API_KEY_SERVICE_BLOCKED",
            "API_KEY_HTTP_REFERRER_BLOCKED",
            "API_KEY_IP_ADDRESS_BLOCKED",
            "API_KEY_ANDROID_APP_BLOCKED",
            "API_KEY_IOS_APP_BLOCKED",
            "SECURITY_POLICY_VIOLATED",
            "VALIDATION_REQUIRED",
            "LOCATION_POLICY_VIOLATED",
        ],
        then: Opinion::forbid(Reason::Permission),
    },
};

const AUTH: Rule = Rule {
    id: "google.auth",
    why: "The detail's reason says that the credential is missing, wrong or lapsed.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "API_KEY_INVALID",
            "API_KEY_EXPIRED",
            "ACCESS_TOKEN_EXPIRED",
            "ACCESS_TOKEN_TYPE_UNSUPPORTED",
            "CREDENTIALS_MISSING",
            "ACCOUNT_STATE_INVALID",
            "SESSION_COOKIE_INVALID",
        ],
        then: Opinion::forbid(Reason::Auth),
    },
};

/// Source: google.rpc.BadRequest's `fieldViolations`.
const SCHEMA: Rule = Rule {
    id: "google.tool_schema",
    why: "The field that is refused is a tool's declaration.",
    test: Test::Look(|seen: &Seen<'_>| {
        let in_tool = |word: &String| word.starts_with("tools[") || word.contains("function_declarations");
        seen.said.words.iter().any(in_tool).then_some(Opinion::forbid(Reason::ToolSchemaInvalid))
    }),
};

const CAPACITY: Rule = Rule {
    id: "google.capacity",
    why: "The model has no capacity at the moment, whatever the quota.",
    test: Test::Names {
        at: anywhere,
        names: &["MODEL_CAPACITY_EXHAUSTED"],
        then: Opinion::retry(Reason::Overloaded),
    },
};

/// The words by which an answer ends that a filter stopped, where an error has one of them for its code: gateways make
/// such an error of an answer.
///
/// Source: <https://ai.google.dev/api/generate-content>, `BlockReason` and `FinishReason`.
const FILTER: Rule = Rule {
    id: "google.filter",
    why: "The error is named like an answer that a filter stopped.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "MODEL_ARMOR",
        ],
        then: Opinion::forbid(Reason::ContentFilter),
    },
};
