//! Who serves models: one row each.

use aplomb_core::run::Capability;
use aplomb_llm::wire::Wire;

/// Who serves a model.
#[derive(Debug)]
pub(crate) struct Provider {
    /// The name in configs and messages.
    pub(crate) name: &'static str,
    /// What it is, in a sentence.
    pub(crate) summary: &'static str,
    /// What it speaks; None where that comes later.
    pub(crate) wire: Option<Wire>,
    /// Where it is, if it is in one place.
    pub(crate) api_base: Option<&'static str>,
    /// The highest temperature that it takes. Source: the API references of OpenAI and Anthropic.
    pub(crate) hottest: f64,
    /// What its models can do.
    pub(crate) offers: &'static [Capability],
}

/// What the protocols that there are can carry, whoever serves the model.
const OFFERED: &[Capability] = &[Capability::Tools, Capability::Images];

/// Every provider.
pub(crate) const PROVIDERS: &[Provider] = &[
    Provider {
        name: MOCK,
        summary: "A script, in this process.",
        wire: Some(Wire::OpenaiChat),
        api_base: None,
        hottest: 2.0,
        offers: OFFERED,
    },
    Provider {
        name: "anthropic",
        summary: "Anthropic's Messages.",
        wire: Some(Wire::Anthropic),
        api_base: Some("https://api.anthropic.com/v1"),
        hottest: 1.0,
        offers: OFFERED,
    },
    Provider {
        name: "openai_compatible",
        summary: "Anybody who speaks OpenAI's Chat Completions, at `llm.api_base`.",
        wire: Some(Wire::OpenaiChat),
        api_base: None,
        hottest: 2.0,
        offers: OFFERED,
    },
    Provider {
        name: "gemini",
        summary: "Google's Gemini.",
        wire: None,
        api_base: None,
        hottest: 2.0,
        offers: OFFERED,
    },
];

/// The one that sends nothing.
pub(crate) const MOCK: &str = "mock";

impl Provider {
    pub(crate) fn find(name: &str) -> Option<&'static Provider> {
        PROVIDERS.iter().find(|provider| provider.name == name)
    }

    pub(crate) fn sends_nothing(&self) -> bool {
        self.name == MOCK
    }

    /// The names of those that can be used.
    pub(crate) fn names() -> Vec<&'static str> {
        PROVIDERS.iter().filter(|provider| provider.wire.is_some()).map(|provider| provider.name).collect()
    }
}
