//! Runs Aplomb's real core under a virtual clock, against simulated providers and tools.
//!
//! Knows the core and nothing of HTTP or of real time: a run with a minute of back-off takes microseconds. After every
//! input the fold of the records, written to JSON and read back, is compared with the live state; after every run the
//! design's promises are checked.
//!
//! ```
//! use aplomb_core::error::codes;
//! use aplomb_core::failure::Failure;
//! use aplomb_sim::{Turn, sim};
//!
//! let run = sim().provider(|_| Turn::fails(Failure::status(503, b""))).jitter_none().run("hi");
//! assert_eq!(run.requests(), 6); // 1 + T 2 + S 3
//! assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000]);
//! assert_eq!(run.error().unwrap().code(), codes::LLM_CONNECTION);
//! ```

mod chaos;
mod driver;
mod promises;
mod report;

pub use chaos::chaotic;
pub use driver::{Attempt, Sim, ToolTurn, Turn, sim};
pub use report::Report;
