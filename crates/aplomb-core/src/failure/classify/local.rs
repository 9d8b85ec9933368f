//! Servers that people run themselves: llama.cpp, vLLM, Ollama, LM Studio, TGI. Most of what they say is wording.

use super::rule::{Opinion, Rule, Test};
use crate::failure::Reason;

pub(super) const RULES: &[Rule] = &[LOADING];

/// Source: llama.cpp, tools/server/README.md: 503 `unavailable_error` while the model is loaded.
const LOADING: Rule = Rule {
    id: "local.loading",
    why: "The model is still being loaded.",
    test: Test::Names {
        at: |seen| !seen.is_client_error(),
        names: &["unavailable_error"],
        then: Opinion::retry(Reason::Overloaded),
    },
};
