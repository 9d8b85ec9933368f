//! OpenAI's error codes and types, which most compatible vendors and gateways share.
//!
//! Sources: OpenAI, "Error codes" (<https://platform.openai.com/docs/guides/error-codes>), the `error.code` of its API
//! reference (Responses: `ResponseErrorCode`), and the tables of those who copy its envelope: OpenRouter's `APIErrorType`
//! (<https://openrouter.ai/docs/client-sdks/python/components/apierrortype>), LiteLLM, one-api, GitHub Models, Copilot.

use super::rule::{Opinion, Rule, Seen, Test, anywhere};
use crate::failure::Reason;

pub(super) const COARSE: &[Rule] = &[TYPE_INSIDE, THROTTLE, TIMEOUT];

pub(super) const RULES: &[Rule] = &[
    MODEL,
    PERMISSION,
    AUTH,
    FILTER,
    PROMPT,
    IMAGE,
    TOOL_SCHEMA,
    LENGTH,
    OVERFLOW,
    PAYLOAD,
    OVERLOADED,
    QUOTA,
];

/// Where the status was good, the type is all there is. Elsewhere it is said of anything from a bad key to a bad
/// parameter, and the status knows better.
const TYPE_INSIDE: Rule = Rule {
    id: "openai.type",
    why: "The status was good, and the error inside has a type that says what kind it is.",
    test: Test::Look(|seen| {
        seen.is_error_inside().then_some(())?;
        seen.said.names().find_map(|name| {
            Some(match name.to_ascii_lowercase().as_str() {
                "server_error"
                | "api_error"
                | "internal_error"
                | "internal_server_error"
                | "internalservererror"
                | "server"
                | "provider_error"
                | "upstream_error" => Opinion::retry(Reason::ServerError),
                "service_unavailable_error" | "service_unavailable" => Opinion::retry(Reason::Overloaded),
                "authentication_error" | "authentication" => Opinion::forbid(Reason::Auth),
                "permission_error" => Opinion::forbid(Reason::Permission),
                "invalid_request_error" | "invalid_request" | "not_found_error" | "badrequesterror" => {
                    Opinion::forbid(Reason::InvalidRequest)
                }
                _ => return None,
            })
        })
    }),
};

const THROTTLE: Rule = Rule {
    id: "openai.throttle",
    why: "The provider's code is that of a throttle.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "rate_limit_exceeded",
            "rate_limit_error",
            "rate_limit_reached_error",
            "rate_limited",
            "rate_limit",
            "ratelimitexceeded",
            "too_many_requests",
            "too_many_requests_error",
            "requests",
            "tokens",
            "slow_down",
            "token_quota_exceeded",
            "request_quota_exceeded",
            "rpm_rate_limit_exceeded",
            "tpm_rate_limit_exceeded",
            "concurrency_limit_exceeded",
            "websocket_connection_limit_reached",
        ],
        then: Opinion::retry(Reason::RateLimit),
    },
};

const TIMEOUT: Rule = Rule {
    id: "openai.timeout",
    why: "The provider's code is that of a time limit.",
    test: Test::Names {
        at: |seen| !seen.is_client_error(),
        names: &[
            "timeout_error",
            "timeout",
            "request_timeout",
            "user_request_timeout",
            "gateway_timeout",
            "vector_store_timeout",
        ],
        then: Opinion::retry(Reason::Timeout),
    },
};

const MODEL: Rule = Rule {
    id: "openai.model",
    why: "The provider's code says that it has no such model.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "model_not_found",
            "model_not_supported",
            "model_decommissioned",
            "model_deprecated",
            "model_not_available",
            "model_not_exist",
            "model_does_not_exist",
            "invalid_model",
            "invalid_model_id",
            "unknown_model",
            "unsupported_model",
        ],
        then: Opinion::forbid(Reason::ModelNotFound),
    },
};

const PERMISSION: Rule = Rule {
    id: "openai.permission",
    why: "The provider's code says that the credential does not allow this.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "missing_scope",
            "insufficient_permissions",
            "permission_denied",
            "permissiondenied",
            "permission_error",
            "unsupported_country_region_territory",
            "organization_restricted",
            "access_denied",
            "ip_not_authorized",
        ],
        then: Opinion::forbid(Reason::Permission),
    },
};

const AUTH: Rule = Rule {
    id: "openai.auth",
    why: "The provider's code says that the credential is missing, wrong or lapsed.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "invalid_api_key",
            "invalid_api_key_error",
            "incorrect_api_key",
            "expired_api_key",
            "api_key_expired",
            "invalid_authentication",
            "invalid_authentication_error",
            "incorrect_api_key_error",
            "account_deactivated",
            "token_expired",
            "token_invalidated",
            "token_revoked",
            "token_not_found_in_db",
            "invalid_token",
            "expired_key",
            "invalid_jwt",
        ],
        then: Opinion::forbid(Reason::Auth),
    },
};

const FILTER: Rule = Rule {
    id: "openai.filter",
    why: "The provider's code says that a filter stopped it.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "content_filter",
            "content_filter_error",
            "content_policy_violation",
            "content_policy_violation_error",
            "image_content_policy_violation",
            "moderation_blocked",
            "moderation_error",
            "content_moderation",
            "cyber_policy",
            "bio_policy",
            "refusal",
            "sensitive_words_detected",
            "prompt_blocked",
            "content_blocked",
            "safety_violation",
        ],
        then: Opinion::forbid(Reason::ContentFilter),
    },
};

/// In OpenAI's own field this is a flagged prompt. OpenRouter's `error_type` of the same name is a message in a wrong
/// form, which the status says already.
const PROMPT: Rule = Rule {
    id: "openai.invalid_prompt",
    why: "OpenAI flags the prompt itself.",
    test: Test::Look(|seen| {
        let flagged = seen.said.layers.iter().any(|layer| layer.code.as_deref() == Some("invalid_prompt"));
        flagged.then_some(Opinion::forbid(Reason::ContentFilter))
    }),
};

const IMAGE: Rule = Rule {
    id: "openai.image",
    why: "The provider's code says that an image cannot be read.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "invalid_image",
            "invalid_image_format",
            "invalid_base64_image",
            "invalid_image_url",
            "invalid_image_mode",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "image_file_too_large",
            "image_file_not_found",
            "image_not_found",
            "image_download_failed",
            "empty_image_file",
            "failed_to_download_image",
            "unsupported_image_media_type",
            "unsupported_image_format",
        ],
        then: Opinion::forbid(Reason::InvalidImage),
    },
};

const TOOL_SCHEMA: Rule = Rule {
    id: "openai.tool_schema",
    why: "The provider's code says that it does not accept a tool's schema.",
    test: Test::Names {
        at: anywhere,
        names: &["invalid_function_parameters", "invalid_function_schema", "invalid_tool_schema"],
        then: Opinion::forbid(Reason::ToolSchemaInvalid),
    },
};

/// A string that is too long is a matter of size where it is the content, and a wrong parameter elsewhere.
const LENGTH: Rule = Rule {
    id: "openai.string_length",
    why: "The content is longer than the provider takes in one string.",
    test: Test::Look(|seen| {
        seen.said.is_named(&["string_above_max_length", "string_too_long"]).then_some(())?;
        let is_content = |param: &str| {
            ["content", "input", "instructions", "prompt", "text", "output"]
                .iter()
                .any(|name| param.contains(name))
        };
        let params = seen.said.layers.iter().filter_map(|layer| layer.param.as_deref());
        params.into_iter().any(is_content).then_some(Opinion::forbid(Reason::PayloadTooLarge))
    }),
};

const OVERFLOW: Rule = Rule {
    id: "openai.overflow",
    why: "The provider's code says that the request is larger than the model's context.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "context_length_exceeded",
            "context_length_error",
            "context_window_exceeded",
            "context_window_exceeded_error",
            "contextwindowexceedederror",
            "context_too_long",
            "context_too_large",
            "max_context_length_exceeded",
            "model_max_prompt_tokens_exceeded",
            "tokens_limit_reached",
            "prompt_too_long",
            "input_too_long",
            "exceed_context_size_error",
        ],
        then: Opinion::forbid(Reason::ContextOverflow),
    },
};

/// Source: Anthropic, "Errors" (`request_too_large`), OpenRouter (`payload_too_large`).
const PAYLOAD: Rule = Rule {
    id: "openai.payload",
    why: "The provider's code says that the request has too many bytes.",
    test: Test::Names {
        at: |seen: &Seen<'_>| seen.status() != Some(429) && !seen.said.is_named(&["tokens"]),
        names: &["payload_too_large", "request_entity_too_large", "content_size_limit_error"],
        then: Opinion::forbid(Reason::PayloadTooLarge),
    },
};

const OVERLOADED: Rule = Rule {
    id: "openai.overloaded",
    why: "The provider's code says that it has no capacity at the moment.",
    test: Test::Names {
        at: anywhere,
        names: &[
            "overloaded_error",
            "overloaded",
            "engine_overloaded",
            "engine_overloaded_error",
            "server_is_overloaded",
            "server_overloaded",
            "serveroverloaded",
            "model_overloaded",
            "provider_overloaded",
            "capacity_exceeded",
        ],
        then: Opinion::retry(Reason::Overloaded),
    },
};

/// A spent quota wears the status of a throttle. Waiting does not refill it.
///
/// Sources: OpenAI's error guide ("429 - You exceeded your current quota"), Codex (`usage_limit_reached`,
/// `usage_not_included`), Moonshot (`exceeded_current_quota_error`), LiteLLM (`budget_exceeded`), Together
/// (`credit_limit`), one-api (`insufficient_user_quota`), Anthropic (`billing_error`).
const QUOTA: Rule = Rule {
    id: "openai.quota",
    why: "The provider's code says that money, a cap or a plan's allowance is used up.",
    test: Test::Look(|seen| {
        const NAMES: &[&str] = &[
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "credit_balance_exhausted",
            "insufficient_credits",
            "insufficient_funds",
            "insufficient_balance",
            "insufficient_balance_error",
            "insufficient_user_quota",
            "pre_consume_token_quota_failed",
            "exceeded_current_quota_error",
            "usage_limit_reached",
            "usage_limit_exceeded",
            "usage_not_included",
            "budget_exceeded",
            "spend_limit_exceeded",
            "credit_limit",
            "free_quota_exceeded",
            "quota_exhausted",
            "payment_required",
            "token_limit_exceeded",
        ];
        // xAI's codes about its plans.
        let is_plan = || seen.said.names().any(|name| name.starts_with("subscription:"));
        // DashScope's compatible mode uses OpenAI's code for a throttle of its own, too.
        let is_throttle = seen.said.prose.contains("llocated quota exceeded")
            && !seen.said.prose.contains("Free allocated");
        ((seen.said.is_named(NAMES) || is_plan()) && !is_throttle)
            .then_some(Opinion::forbid(Reason::QuotaExhausted))
    }),
};
