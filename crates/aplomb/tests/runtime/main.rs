//! The runtime from the outside: whole runs over real TCP, through the public API.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and ends by a clock of its own"
)]

mod anthropic;
mod budgets;
mod canary;
mod commands;
mod crossing;
mod faults;
mod outcomes;
mod outputs;
mod own_errors;
mod policy;
mod promises;
mod remedies;
mod seams;
mod secrets;
mod sessions;
mod streaming;
mod support;
mod triggers;
