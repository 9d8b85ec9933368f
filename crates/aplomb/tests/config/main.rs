//! Configs: what can be said in them, and what is said to whoever got one wrong.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod contract;
mod documents;
mod layer_messages;
mod layers;
mod messages;
mod plugins;
mod secrets;
mod support;
