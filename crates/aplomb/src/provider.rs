//! Providers of a program's own: what it takes to serve a model, or to name a vendor.
//!
//! A model that is served in this process is a [`ModelService`]; a vendor behind HTTP who speaks a protocol that Aplomb
//! speaks is a row of data, a [`Vendor`]. Both are registered in a [`Registry`](crate::plugins::Registry) and named by
//! `llm.provider`. For Aplomb they are providers like any other: each attempt is counted, each failure classified, and
//! what follows is decided by the same rules.
//!
//! A model that repeats what was said last, unless that is too long:
//!
//! ```
//! use aplomb::plugins::{NoConfig, Registry};
//! use aplomb::provider::{
//!     AnswerStream, Failure, FinishReason, ModelService, Reply, ServiceRequest, whole,
//! };
//! use aplomb::{Message, Role};
//!
//! struct Echo;
//!
//! impl ModelService for Echo {
//!     fn ask<'a>(&'a self, request: ServiceRequest<'a>) -> AnswerStream<'a> {
//!         whole(async move {
//!             let said = request.messages.last().map(|message| message.to_text()).unwrap_or_default();
//!             if said.len() > 1_000 {
//!                 return Err(Box::new(Failure::status(413, b"")));
//!             }
//!             let message = Message::text(Role::Assistant, said);
//!             Ok(Reply { message, finish: FinishReason::Stop, usage: None })
//!         })
//!     }
//! }
//!
//! let registry = Registry::new().provider("echo", |_: NoConfig| Ok(Echo));
//! # let _ = registry;
//! ```
//!
//! A vendor:
//!
//! ```
//! use aplomb::plugins::Registry;
//! use aplomb::provider::{Place, Vendor, Wire};
//!
//! let mut acme = Vendor::new("acme", Wire::OpenaiChat);
//! acme.place = Place::At("https://api.acme.example/v1");
//! acme.key_variable = Some("ACME_API_KEY");
//! acme.needs_key = true;
//! let registry = Registry::new().vendor(acme);
//! # let _ = registry;
//! ```

pub use aplomb_core::failure::{Anomaly, Failure, Phase, TransportKind};
pub use aplomb_core::message::{CallIds, Delta, FinishReason, Reply, StreamEvent, TokenUsage};
pub use aplomb_llm::service::{AnswerStream, ModelService, ServiceRequest, whole};
pub use aplomb_llm::vendors::{Place, Vendor};
pub use aplomb_llm::wire::{AnswerLimit, Quirks, Wire};
