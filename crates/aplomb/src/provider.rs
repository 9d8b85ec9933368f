//! Providers of a program's own: what it takes to serve a model, or to name a vendor.
//!
//! A model that is served in this process is a [`ModelService`]; a vendor behind HTTP who speaks a protocol that Aplomb
//! speaks is a row of data, a [`Vendor`]. Both are registered in a [`Registry`](crate::plugins::Registry) and named by
//! `llm.provider`. For Aplomb they are providers like any other: each attempt is counted, each failure classified, and
//! what follows is decided by the same rules.

pub use aplomb_core::failure::{Anomaly, Failure, Phase, TransportKind};
pub use aplomb_core::message::{CallIds, Delta, FinishReason, Reply, StreamEvent, TokenUsage};
pub use aplomb_llm::service::{AnswerStream, ModelService, ServiceRequest, whole};
pub use aplomb_llm::vendors::{Place, Vendor};
pub use aplomb_llm::wire::{AnswerLimit, Quirks, Wire};
