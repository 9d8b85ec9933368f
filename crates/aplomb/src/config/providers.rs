//! Who serves models: a vendor, or a script.

use aplomb_core::run::Capability;
use aplomb_llm::vendors::{self, Place, Vendor};
use aplomb_llm::wire::{Schemas, Wire};

/// Who serves a model.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Provider {
    /// A script, in this process.
    Mock,
    /// Somebody behind HTTP.
    Vendor(&'static Vendor),
}

/// The name of the one that sends nothing.
const MOCK: &str = "mock";

impl Provider {
    pub(crate) fn all() -> impl Iterator<Item = Provider> {
        [Provider::Mock].into_iter().chain(vendors::ALL.iter().map(Provider::Vendor))
    }

    pub(crate) fn find(name: &str) -> Option<Provider> {
        Provider::all().find(|provider| provider.name() == name)
    }

    pub(crate) fn names() -> Vec<&'static str> {
        Provider::all().map(Provider::name).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Provider::Mock => MOCK,
            Provider::Vendor(vendor) => vendor.name,
        }
    }

    /// What it is, in a sentence.
    pub(crate) fn summary(self) -> String {
        let Provider::Vendor(vendor) = self else {
            return "A script, in this process.".to_owned();
        };
        let speaks = match vendor.wire {
            Wire::Anthropic => "Anthropic's Messages",
            Wire::Gemini => "Google's generateContent",
            Wire::OpenaiResponses => "OpenAI's Responses",
            _ if vendor.speaks_both => "OpenAI's Chat Completions or Responses",
            _ => "OpenAI's Chat Completions",
        };
        match vendor.place {
            Place::At(base) => format!("{speaks}, at {base}."),
            Place::AzureResource => format!("{speaks}, at an Azure resource: `llm.api_base`."),
            _ => format!("{speaks}, at `llm.api_base`."),
        }
    }

    /// The highest temperature that it takes.
    pub(crate) fn hottest(self) -> f64 {
        match self {
            Provider::Mock => 2.0,
            Provider::Vendor(vendor) => vendor.hottest,
        }
    }

    /// Whether the config has to say where it is.
    pub(crate) fn needs_address(self) -> bool {
        matches!(self, Provider::Vendor(vendor) if !matches!(vendor.place, Place::At(_)))
    }

    /// What a model's protocol can carry; of schemas, whether the vendor takes one.
    pub(crate) fn offers(self) -> &'static [Capability] {
        match self {
            Provider::Vendor(vendor) if vendor.quirks.schemas != Schemas::Never => {
                &[Capability::Tools, Capability::Images, Capability::StructuredOutput]
            }
            _ => &[Capability::Tools, Capability::Images],
        }
    }
}
