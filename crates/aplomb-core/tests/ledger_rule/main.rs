//! The ledger rule, `docs/spec/retry.md` §5, as properties and as a second implementation written from its
//! text.
//!
//! Steps 1, 3, 4, 5 and 6 only: compaction and the refreshed credential (2), the gate (in 6), fallbacks (7) and the
//! layered mode have their own tests. Nothing here knows how `decide` does it: the numbers come from the page and
//! from arithmetic.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may")]

mod arithmetic;
mod call;
mod drawn;
mod examples;
mod model;
mod properties;
