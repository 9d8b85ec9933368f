//! A config in any of its three languages: what is wrong with it is said, and never by a panic.
#![no_main]

use aplomb::config::{Format, Loader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for format in [Format::Json, Format::Yaml, Format::Toml] {
        match Loader::text(text, "fuzz", format).load() {
            Ok(config) => drop(config.resolved(true)),
            Err(error) => assert!(!error.message().is_empty()),
        }
    }
});
