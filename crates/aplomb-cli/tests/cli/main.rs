//! The `aplomb` command from the outside: the real binary, its output and its exit codes.
#![expect(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod classify;
mod config;
mod errors;
mod faultlab;
mod layers;
mod policy;
mod rendered;
mod run;
#[cfg(unix)]
mod signals;
mod support;
#[cfg(unix)]
mod terminal;
