//! Who serves models: a vendor, a script, or the program itself.

use aplomb_llm::vendors::{Place, Vendor};
use aplomb_llm::wire::Wire;

use crate::plugins::Plugin;

/// Who serves a model.
#[derive(Clone, Copy)]
pub(crate) enum Provider<'a> {
    /// A script, in this process.
    Mock,
    /// Somebody behind HTTP.
    Vendor(&'a Vendor),
    /// Something of the program's own, in this process.
    Service(&'a Plugin),
}

impl Provider<'_> {
    pub(crate) fn name(&self) -> &str {
        match self {
            Provider::Mock => "mock",
            Provider::Vendor(vendor) => vendor.name,
            Provider::Service(plugin) => plugin.name(),
        }
    }

    /// The highest temperature that it takes.
    pub(crate) fn hottest(self) -> f64 {
        match self {
            Provider::Mock | Provider::Service(_) => 2.0,
            Provider::Vendor(vendor) => vendor.hottest,
        }
    }

    /// Whether the config has to say where it is.
    pub(crate) fn needs_address(self) -> bool {
        matches!(self, Provider::Vendor(vendor) if !matches!(vendor.place, Place::At(_)))
    }
}

/// What a vendor is, in a sentence.
pub(crate) fn vendor_summary(vendor: &Vendor) -> String {
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
