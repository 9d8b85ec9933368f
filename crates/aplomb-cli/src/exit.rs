//! Exit codes, a contract: `docs/spec/runtime.md` §7.

use aplomb::{Error, codes};

pub(crate) const SUCCESS: u8 = 0;
pub(crate) const USAGE: u8 = 1;
pub(crate) const CONFIG: u8 = 2;
pub(crate) const FAILED: u8 = 3;

/// The exit code of an error.
pub(crate) fn of(error: &Error) -> u8 {
    if error.is_a(codes::USER_ERROR) {
        USAGE
    } else if error.is_a(codes::CONFIG_ERROR) || error.is_a(codes::PLUGIN_ERROR) {
        CONFIG
    } else {
        FAILED
    }
}
