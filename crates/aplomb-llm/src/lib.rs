//! Model providers: what goes over the wire, and how it comes back as one reply or one failure.
//!
//! | module | its one job |
//! |---|---|
//! | [`sse`] | bytes to server-sent events |
//! | [`wire`] | one pure codec per protocol |
//! | [`transport`] | one HTTP exchange, and the kind of its fault |
//! | [`mock`] | the same exchange, scripted, without a network |
//! | [`model`] | what a model is, what is asked of it, what comes of that |
//! | [`Model`] | one attempt at a model, with its clocks |
//! | [`service`] | models that are served in this process |
//! | [`vendors`] | who serves models, as data |
//!
//! Knows nothing of runs, retries, tools or sessions: an attempt that failed is reported, never repeated.

mod clocks;
mod credentials;
mod exchange;
pub mod mock;
pub mod model;
mod provider;
mod served;
pub mod service;
pub mod sse;
mod structured;
pub mod transport;
mod usage;
pub mod vendors;
pub mod wire;

pub use clocks::Timeouts;
pub use model::{Answer, AttemptFailed, ModelConfig, ModelRequest, StreamMode};
pub use provider::Model;
