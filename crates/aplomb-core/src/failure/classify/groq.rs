//! Groq's codes, where they are not OpenAI's.
//!
//! Source: <https://console.groq.com/docs/errors> (498, `capacity_exceeded`), <https://console.groq.com/docs/tool-use>
//! and <https://console.groq.com/docs/structured-outputs> (`failed_generation`).

use super::rule::{Opinion, Rule, Test, anywhere};
use crate::failure::Reason;

pub(super) const RULES: &[Rule] = &[FAILED_GENERATION];

/// The model wrote what Groq could not read. The next answer is another one.
const FAILED_GENERATION: Rule = Rule {
    id: "groq.failed_generation",
    why: "The model's answer was not readable; the next one is another.",
    test: Test::Names {
        at: anywhere,
        names: &["tool_use_failed", "json_validate_failed", "output_parse_failed"],
        then: Opinion::retry(Reason::EmptyResponse),
    },
};
