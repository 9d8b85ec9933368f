//! The tables of the contract, `docs/spec/errors.md` and `docs/spec/runtime.md`, are exactly the tables of
//! the code.
//!
//! Every expectation is read from the contract's own text, so that neither side can gain or lose a row alone.
//! Where the text is prose for people (a few payload cells), the reading is written down here, next to the
//! words that it reads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test may"
)]

mod codes;
mod events;
mod page;
mod reasons;
mod shape;
