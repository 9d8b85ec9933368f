//! Who serves models: a vendor, a script, or the program itself.

use aplomb_llm::vendors::{Place, Vendor};

use super::registry::Plugin;

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
