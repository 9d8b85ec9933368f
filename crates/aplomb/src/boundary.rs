//! The boundary that a panic of a program's own part does not pass.

use std::panic::{AssertUnwindSafe, catch_unwind};

use aplomb_core::error::{Error, codes};
use aplomb_core::run::panic_message;

/// Asks something of a plugin, which may panic.
///
/// # Errors
///
/// `plugin.error` where it panicked; `who` says which plugin, and `asked` what for.
pub(crate) fn ask<T>(who: &str, asked: &str, ask: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(ask)).map_err(|panic| {
        let message = format!("{who} panicked when it was asked {asked}: {}", panic_message(&*panic));
        Error::new(codes::PLUGIN_ERROR, message)
    })
}
