//! Wording of credentials and rights, where the status does not say so.

use crate::failure::Reason;
use crate::failure::classify::rule::{Opinion, Rule, Test};

pub(in super::super) const RULES: &[Rule] = &[AUTH, PERMISSION];

/// Sources: Gemini ("API key not valid", "API key expired", "was reported as leaked"), OpenAI ("Incorrect API key
/// provided", "You didn't provide an API key"), Anthropic ("invalid x-api-key"), AWS ("The security token included in
/// the request is expired"), Copilot ("token expired"), DeepSeek ("Authentication Fails"), new-api (无效的令牌).
const AUTH: Rule = Rule {
    id: "wording.auth",
    why: "The message says that the credential is missing, wrong or lapsed.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text(),
        any: &[
            &["api key not valid"],
            &["api key not found"],
            &["api key expired"],
            &["api key has expired"],
            &["api key is invalid"],
            &["invalid api key"],
            &["invalid api-key"],
            &["invalid apikey"],
            &["incorrect api key"],
            &["invalid x-api-key"],
            &["key was reported as leaked"],
            &["provide an api key"],
            &["no api key"],
            &["missing api key"],
            &["api key is missing"],
            &["missing authentication"],
            &["no auth credentials found"],
            &["no cookie auth credentials"],
            &["invalid authentication"],
            &["authentication fails"],
            &["authentication failed"],
            &["invalid subscription key"],
            &["security token included in the request is"],
            &["unauthorized: token"],
            &["token expired"],
            &["token has expired"],
            &["invalid bearer token"],
            &["invalid access token"],
            &["please try signing in again"],
            &["无效的令牌"],
            &["身份验证失败"],
            &["令牌已过期"],
        ],
        then: Opinion::forbid(Reason::Auth),
    },
};

/// Sources: Gemini ("User location is not supported for the API use"), OpenAI ("Country, region, or territory not
/// supported"), Vertex ("is not allowed to use Publisher Model"), Bedrock ("is not authorized to perform", "You don't have
/// access to the model"), Azure ("Access denied due to Virtual Network/Firewall rules"), OpenRouter ("No endpoints …
/// matching your … data policy"), Groq ("Organization has been restricted").
const PERMISSION: Rule = Rule {
    id: "wording.permission",
    why: "The message says that the account, the key or the place does not allow this.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text() && seen.status() != Some(429),
        any: &[
            &["location is not supported"],
            &["region, or territory not supported"],
            &["not available in your country"],
            &["not supported in your region"],
            &["is not allowed to use publisher model"],
            &["insufficient permissions for this"],
            &["does not have permission"],
            &["do not have permission"],
            &["permission denied"],
            &["is not authorized to perform"],
            &["not authorized to invoke"],
            &["you don't have access to the model"],
            &["you do not have access to the model"],
            &["does not have access to model"],
            &["virtual network/firewall"],
            &["organization has been restricted"],
            &["organization has been disabled"],
            &["organization must be verified"],
            &["no endpoints", "data policy"],
            &["use case details have not been submitted"],
            &["verify your account to continue"],
            &["ip address", "not allowed"],
            &["ip address", "not authorized"],
        ],
        then: Opinion::forbid(Reason::Permission),
    },
};
