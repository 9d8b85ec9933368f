//! The fine causes of a model failure, one row each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Code, codes};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident, $name:literal, $hint:expr;)*) => {
        /// Why a model call failed, finer than the error's code. Travels as `context.reason`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Reason] = &[$(Reason::$variant),*];

            /// The stable name, as in `context.reason`.
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            /// What the user can do about it.
            pub fn hint(self) -> Option<&'static str> {
                match self { $(Reason::$variant => $hint,)* }
            }
        }
    };
}

reasons! {
    /// A throttle, however long.
    RateLimit, "rate_limit", Some("slow down, or ask the provider for a higher rate limit");
    /// The provider has no capacity at the moment.
    Overloaded, "overloaded", Some("the provider is short of capacity; try later, or another model");
    /// The provider failed by itself.
    ServerError, "server_error", Some("the provider failed by itself; its status page may say more");
    /// No connection, or one that broke before the answer began.
    Connection, "connection", Some("check the network, a proxy, and llm.api_base");
    /// A time limit passed.
    Timeout, "timeout", Some("raise the time limit, or ask for less");
    /// An answer that had begun broke off.
    StreamInterrupted, "stream_interrupted", Some("the connection broke while the model was answering");
    /// The provider answered, and nothing usable came.
    EmptyResponse, "empty_response", Some("if it stopped at the token limit, raise llm.max_tokens");
    /// The answer is not what the protocol promises.
    MalformedResponse, "malformed_response", Some("check that llm.api_base is an API and not a web page");
    /// The request is larger than the model takes.
    ContextOverflow, "context_overflow", Some("shorten the conversation, or use a model with a larger context");
    /// Money, a spend cap or a plan's allowance is used up. Waiting does not refill it.
    QuotaExhausted, "quota_exhausted", Some("check the provider's billing page");
    /// The credential is missing, wrong or lapsed.
    Auth, "auth", Some("check the API key: llm.api_key_env names the variable that holds it");
    /// The credential is good, but does not allow this.
    Permission, "permission", Some("the API key may not do this; check its project and rights");
    /// The provider does not accept the request.
    InvalidRequest, "invalid_request", Some("check llm.api_base, llm.model and the parameters");
    /// There is no such model, or not for this key.
    ModelNotFound, "model_not_found", Some("check llm.model");
    /// A filter, or the model itself, refused.
    ContentFilter, "content_filter", Some("the provider declined this content; rephrase the request");
    /// The request's bytes are more than the provider takes.
    PayloadTooLarge, "payload_too_large", Some("send less: fewer or smaller images, a shorter conversation");
    /// An image cannot be read.
    InvalidImage, "invalid_image", Some("check the image's format and size");
    /// A tool's schema is not accepted.
    ToolSchemaInvalid, "tool_schema_invalid", Some("the provider does not accept a tool's schema");
    /// Our own cancellation.
    Cancelled, "cancelled", None;
    /// No rule knows it.
    Unknown, "unknown", None;
}

impl Reason {
    /// The contract's coarse code for this reason.
    ///
    /// A failure is retryable exactly if its code is `llm.connection` or `llm.rate_limit`.
    pub fn code(self, retryable: bool) -> Code {
        match self {
            Reason::RateLimit | Reason::Overloaded if retryable => codes::LLM_RATE_LIMIT,
            _ if retryable => codes::LLM_CONNECTION,
            // Nothing that a provider said.
            Reason::Cancelled | Reason::Unknown | Reason::Connection | Reason::Timeout => codes::LLM_ERROR,
            _ => codes::LLM_RESPONSE,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_reason_is_the_one_it_is_written_with() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }

    #[test]
    fn a_retryable_code_means_a_retryable_failure() {
        for reason in Reason::ALL {
            for retryable in [true, false] {
                assert_eq!(reason.code(retryable).retryable(), retryable, "{reason}");
            }
        }
    }
}
