//! Aplomb: a runtime for LLM agents that keeps its composure when things go wrong.
//!
//! Whatever a provider, a network or a tool does becomes one [`Error`] with a stable code, one pure function decides
//! what happens next, and every attempt, wait and decision is in the error and in the events.
//!
//! ```no_run
//! # async fn example() -> Result<(), aplomb::Error> {
//! let runtime = aplomb::Runtime::from_config("agent.json")?;
//! let answer = runtime.run("assistant", "What is 9 * 9?").await?;
//! # Ok(())
//! # }
//! ```
//!
//! An output can be a type of yours ([`RunRequest::output`]): whatever does not fit it goes back to the model.
//!
//! [`Runtime::exec`] is the same with a few more retries and a hook to see them by, [`Runtime::run_stream`] for those who want
//! to watch, [`Runtime::run_detailed`] for those who want everything.

mod agent;
mod boundary;
pub mod config;
mod credential;
mod driver;
mod first_delta;
pub mod host;
mod json_schema;
mod memory;
mod model;
mod output;
pub mod plugins;
mod probe;
mod process;
pub mod provider;
mod request;
mod runtime;
mod session;
mod stream;
mod subscriber;
pub mod tools;

pub use aplomb_core::error::{self, AgentError, Error, ErrorDetails, codes};
pub use aplomb_core::event::{self, Event};
pub use aplomb_core::message::ToolCall;
pub use aplomb_core::message::{Block, ImageSource, Message, Role, ToolResult};
/// One of a program's own, for which the last word is enough:
///
/// ```
/// use aplomb::plugins::{NoConfig, Registry};
/// use aplomb::{Assembler, Assembly, Message};
///
/// struct LastWord;
///
/// impl Assembler for LastWord {
///     fn shrink(&self, conversation: &[&Message]) -> Assembly {
///         // What cannot be left out stays, whatever is said here.
///         Assembly::Drop((0..conversation.len()).collect())
///     }
/// }
///
/// let registry = Registry::new().context_assembler("last_word", |_: NoConfig| Ok(LastWord));
/// # let _ = registry;
/// ```
pub use aplomb_core::run::Assembler;
pub use aplomb_core::run::{
    Ask, Assembly, Capability, ModelCost, Pattern, RunBudget, RunUsage, StopReason, Unpriced, Usd, View,
};
pub use aplomb_core::{decide, failure, near, redact, tool::ToolSpec};
pub use aplomb_macros::AgentError;
pub use credential::{CommandCredential, Credential, CredentialRequest, CredentialSource, EnvCredential};
pub use memory::Memory;
pub use probe::{Probe, probe};
pub use request::{Cancellation, Retry, RunInput, RunRequest, RunResult, for_people};
pub use runtime::{Exec, Runtime, RuntimeBuilder};
pub use session::SessionStore;
pub use stream::{ChunkKind, RunStream, RunStreamChunk};
pub use subscriber::Subscriber;

/// What makes a JSON Schema of a type, in the version that [`RunRequest::output`] takes.
pub use schemars;

/// What the derive's code is written in. Not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use {inventory, serde_json};
}
