//! Azure's codes, where they are not OpenAI's.
//!
//! Source: Azure OpenAI, "Content filtering" and "Troubleshooting"
//! (<https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter>).

use super::rule::{Opinion, Rule, Test, anywhere};
use crate::failure::Reason;

pub(super) const RULES: &[Rule] = &[DEPLOYMENT, FILTER];

const DEPLOYMENT: Rule = Rule {
    id: "azure.deployment",
    why: "There is no such deployment.",
    test: Test::Names {
        at: anywhere,
        names: &["DeploymentNotFound", "InvalidDeployment", "unknown_model", "ModelNotSupported"],
        then: Opinion::forbid(Reason::ModelNotFound),
    },
};

const FILTER: Rule = Rule {
    id: "azure.filter",
    why: "Azure's content filter stopped it.",
    test: Test::Names {
        at: anywhere,
        names: &["ResponsibleAIPolicyViolation", "content_filter_result"],
        then: Opinion::forbid(Reason::ContentFilter),
    },
};
