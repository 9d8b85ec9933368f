//! Errors that a program defines: what the derive makes of them, the plain way without it, and what is refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod by_hand;
mod derived;
mod hygiene;
mod refused;
