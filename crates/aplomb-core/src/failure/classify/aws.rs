//! AWS: the exceptions of Bedrock, and those of every AWS service.
//!
//! Sources: Bedrock, "Troubleshooting API error codes"
//! (<https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html>), the errors of
//! `ConverseStream` and `InvokeModel`, AWS "Common errors".

use super::rule::{Opinion, Rule, Seen, Test, anywhere};
use crate::failure::Reason;

pub(super) const COARSE: &[Rule] = &[VALIDATION, FAILED];

pub(super) const RULES: &[Rule] = &[EXCEPTION, RELAYED];

/// An exception's name: out of `x-amzn-errortype`, out of the frame, or out of the body.
fn exception<'a>(seen: &'a Seen<'_>) -> impl Iterator<Item = &'a str> {
    // `ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/`
    let of_header = seen.failure.headers.get("x-amzn-errortype").and_then(|value| value.split(':').next());
    of_header.into_iter().chain(seen.said.names())
}

const VALIDATION: Rule = Rule {
    id: "aws.validation",
    why: "AWS says that the request is not valid.",
    test: Test::Look(|seen| {
        exception(seen)
            .any(|name| name.eq_ignore_ascii_case("ValidationException"))
            .then_some(Opinion::forbid(Reason::InvalidRequest))
    }),
};

/// Weaker than wording: it says nothing of why.
const FAILED: Rule = Rule {
    id: "aws.failed",
    why: "AWS says that it failed by itself.",
    test: Test::Look(|seen| {
        let is = |name: &str| {
            ["InternalServerException", "InternalFailure", "ModelErrorException", "InternalServerError"]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
        };
        (!seen.is_client_error() && exception(seen).any(is)).then_some(Opinion::retry(Reason::ServerError))
    }),
};

const EXCEPTION: Rule = Rule {
    id: "aws.exception",
    why: "The name of AWS's exception says what it is.",
    test: Test::Look(|seen| {
        exception(seen).find_map(|name| {
            Some(match name.to_ascii_lowercase().as_str() {
                "throttlingexception"
                | "throttling"
                | "toomanyrequestsexception"
                | "requestlimitexceeded" => Opinion::retry(Reason::RateLimit),
                "serviceunavailableexception" | "modelnotreadyexception" => {
                    Opinion::retry(Reason::Overloaded)
                }
                "modeltimeoutexception" => Opinion::retry(Reason::Timeout),
                "modelstreamerrorexception" => Opinion::retry(Reason::StreamInterrupted),
                "servicequotaexceededexception" => Opinion::forbid(Reason::QuotaExhausted),
                "resourcenotfoundexception" => Opinion::forbid(Reason::ModelNotFound),
                "expiredtokenexception"
                | "expiredtoken"
                | "unrecognizedclientexception"
                | "invalidclienttokenid"
                | "incompletesignature"
                | "incompletesignatureexception"
                | "invalidsignatureexception"
                | "signaturedoesnotmatch"
                | "missingauthenticationtoken"
                | "missingauthenticationtokenexception"
                | "requestexpired" => Opinion::forbid(Reason::Auth),
                "accessdeniedexception"
                | "accessdenied"
                | "notauthorized"
                | "optinrequired"
                | "ftuformnotfilled" => {
                    // A lapsed token is often reported as a denial.
                    if seen.said.prose.contains("token included in the request is") {
                        Opinion::forbid(Reason::Auth)
                    } else {
                        Opinion::forbid(Reason::Permission)
                    }
                }
                _ => return None,
            })
        })
    }),
};

/// botocore's sentence, `An error occurred (ThrottlingException) when calling the Converse operation`, and the SDKs' of
/// other languages, which begin with the name.
const RELAYED: Rule = Rule {
    id: "aws.relayed_throttle",
    why: "A gateway passes on AWS's throttle.",
    test: Test::Wording {
        at: anywhere,
        any: &[&["(throttlingexception)"], &["throttlingexception:"], &["(toomanyrequestsexception)"]],
        then: Opinion::retry(Reason::RateLimit),
    },
};
