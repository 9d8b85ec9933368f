//! Wording of requests that the provider does not take, where the status does not say so.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Test, anywhere};

pub(in super::super) const RULES: &[Rule] = &[REQUEST, PAYLOAD, NO_MODEL];

/// Sources: llama.cpp's server, which gives 500 for what the request lacks; Bedrock's "The model returned the following
/// errors"; Anthropic's rules for blocks in a history.
const REQUEST: Rule = Rule {
    id: "wording.request",
    why: "The message says that the request itself is wrong.",
    test: Test::Wording {
        at: |seen| seen.is_wrapped() && !seen.is_client_text(),
        any: &[
            &["requires --jinja"],
            &["\nthe model returned the following errors"],
            &["\nmalformed input request"],
            &["\ninvalid request"],
            &["\ninvalid params"],
            &["extra inputs are not permitted"],
            &["does not support tools"],
            &["unsupported parameter"],
            &["unknown parameter"],
            &["unrecognized request argument"],
            &["must be followed by tool messages"],
            &["blocks immediately after"],
            &["roles must alternate"],
            &["chat template"],
            &["jinja exception"],
        ],
        then: Opinion::forbid(Reason::InvalidRequest),
    },
};

/// Sources: nginx and Node's body parser, Anthropic ("Request exceeds the maximum allowed number of bytes"), Gemini
/// ("Request payload size exceeds the limit"), Vercel (`FUNCTION_PAYLOAD_TOO_LARGE`).
const PAYLOAD: Rule = Rule {
    id: "wording.payload",
    why: "The message says that the request has too many bytes.",
    test: Test::Wording {
        at: |seen| seen.status() != Some(429),
        any: &[
            &["request entity too large"],
            &["payload too large"],
            &["request body too large"],
            &["request body is too large"],
            &["maximum allowed number of bytes"],
            &["payload size exceeds"],
            &["request size exceeds", "bytes"],
            &["exceeded the maximum request size"],
            &["content length exceeds"],
            &["content size limit"],
            &["function_payload_too_large"],
            &["body exceeded"],
        ],
        then: Opinion::forbid(Reason::PayloadTooLarge),
    },
};

/// Sources: OpenAI ("The model `x` does not exist or you do not have access to it"), Anthropic ("model: x"), Gemini ("is
/// not found for API version"), Vertex ("Publisher Model … was not found"), Bedrock ("The provided model identifier is
/// invalid", "reached the end of its life", "on-demand throughput isn't supported"), Azure ("The API deployment for this
/// resource does not exist"), Ollama ("not found, try pulling it first"), OpenRouter ("is not a valid model ID", "No
/// endpoints found for"), Groq ("has been decommissioned"), DeepSeek ("The supported API model names are", "Model Not
/// Exist"), new-api (无可用渠道).
const NO_MODEL: Rule = Rule {
    id: "wording.model",
    why: "The message says that there is no such model, or not any more.",
    test: Test::Wording {
        at: anywhere,
        any: &[
            &["model not found"],
            &["model was not found"],
            &["model does not exist"],
            &["model not exist"],
            &["model", "does not exist or you do not have access"],
            &["\nthe model `", "does not exist"],
            &["\nthe model '", "does not exist"],
            &["requested model", "does not exist"],
            &["requested model", "not found"],
            &["requested model is not supported"],
            &["publisher model", "was not found"],
            &["model", "is not found for api version"],
            &["model", "not found, try pulling it"],
            &["model", "has been decommissioned"],
            &["model", "has been deprecated"],
            &["model", "has been retired"],
            &["model", "is no longer available"],
            &["model", "is not available in your region"],
            &["\nmodel: "],
            &["\nmodel '", "not found"],
            &["\nmodel \"", "not found"],
            &["not a valid model"],
            &["\ninvalid model"],
            &["invalid model name"],
            &["invalid model id"],
            &["model identifier is invalid"],
            &["model version has reached the end of its life"],
            &["\nunknown model"],
            &["no such model"],
            &["not found the model"],
            &["unsupported model"],
            &["model name is invalid"],
            &["supported api model names are"],
            &["with on-demand throughput isn"],
            &["deployment for this resource does not exist"],
            &["no endpoints found for "],
            &["no allowed providers are available for the selected model"],
            &["model is not supported when using"],
            &["模型不存在"],
            &["无可用渠道"],
        ],
        then: Opinion::forbid(Reason::ModelNotFound),
    },
};
