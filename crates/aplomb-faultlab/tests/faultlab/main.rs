//! The fault lab from the outside: what its engine plans, and what a client's socket shows.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod engine;
mod every_fault;
mod frames;
mod golden;
mod golden_anthropic;
mod golden_bytes;
mod golden_events;
mod golden_gemini;
mod golden_http;
mod golden_responses;
mod golden_usage;
mod http2;
mod http2_faults;
mod lab;
mod raw;
mod server;
mod tls;
mod wires;
