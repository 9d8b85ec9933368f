//! A run: the machine that carries it, what goes in, what comes out.
//!
//! ```text
//! handle(&State, at, entropy, Input) -> (State, Vec<Record>, Vec<Effect>)      apply(&mut State, &Record)
//! ```
//!
//! A driver feeds [`Input`]s and performs [`Effect`]s. The [`State`] is the fold of the records: live,
//! [`Machine::handle`] has folded those that it returns; later, it is the fold of those in a journal. Folding decides
//! nothing.

mod agent;
mod announce;
mod assemble;
mod batch;
mod budget;
mod call;
mod correction;
mod cost;
mod effect;
mod limits;
mod machine;
mod outcome;
mod output;
mod pattern;
mod state;

pub use agent::{AgentSpec, Target};
pub use assemble::{Assembler, Assembly, Truncating};
pub use budget::{RunBudget, Unpriced};
pub use cost::{ModelCost, PricedModel, Pricing, Usd};
pub use effect::{Effect, EffectId, Entry, Identity, Input, RunStart, TimeLimit, TimerKind};
pub use machine::Machine;
pub use outcome::{RunUsage, StopReason};
pub use output::{Misfit, OutputSchema, Purpose};
pub use pattern::{Ask, Capability, Pattern, React, View};
pub use state::{Finished, State};

/// What a panic said.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
