//! What an agent is, as far as the machine must know.

use std::sync::Arc;

use super::assemble::{Assembler, Truncating};
use super::cost::{PricedModel, Pricing};
use crate::decide::Policy;
use crate::message::CallIds;
use crate::tool::ToolSpec;

/// A model that can be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// The configured provider, for messages.
    pub provider: String,
    /// The model, for messages and events.
    pub model: String,
    /// What it accepts as the id of a tool call.
    pub call_ids: CallIds,
    /// Whether its credential can be read again where it was refused.
    pub rereads_credential: bool,
    /// What it costs, where that is known.
    pub pricing: Option<Pricing>,
}

impl Target {
    /// A target that accepts any id, has one credential for good, and costs nobody knows what.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Target {
        Target { provider: provider.into(), model: model.into(), ..Target::default() }
    }

    /// `provider/model`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

/// What an agent is, as far as the machine must know.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentSpec {
    /// The model that is asked.
    pub target: Target,
    /// The models that are asked where it fails for good, in this order. A target's place counts from 1 here, 0 being
    /// the first target.
    pub fallbacks: Vec<Target>,
    /// The tools that the model may ask for.
    pub tools: Arc<[ToolSpec]>,
    /// `agent.runtime.max_steps`: the most model calls of one run.
    pub max_steps: u32,
    /// `agent.runtime.max_tool_calls`: the most tool calls of one run.
    pub max_tool_calls: Option<u32>,
    /// `agent.runtime.step_timeout_ms`: how long the attempts of one model call may take together. Waits between them do
    /// not count.
    pub step_timeout_ms: Option<u64>,
    /// What is left out of a conversation that is too large.
    pub assembler: Arc<dyn Assembler>,
    /// What to do about failures.
    pub policy: Policy,
}

impl AgentSpec {
    /// An agent with one model, no tools, and the defaults of everything else.
    pub fn new(target: Target) -> AgentSpec {
        AgentSpec {
            target,
            fallbacks: Vec::new(),
            tools: Arc::new([]),
            max_steps: 16,
            max_tool_calls: None,
            step_timeout_ms: None,
            assembler: Arc::new(Truncating),
            policy: Policy::default(),
        }
    }

    /// The target at a place; the first where there is none, as after a fallback was removed from the config.
    pub(super) fn target_at(&self, place: usize) -> &Target {
        place.checked_sub(1).and_then(|index| self.fallbacks.get(index)).unwrap_or(&self.target)
    }

    /// How many targets there are.
    pub(super) fn targets(&self) -> usize {
        self.fallbacks.len() + 1
    }

    /// All targets, by their places.
    pub(super) fn all_targets(&self) -> impl Iterator<Item = &Target> {
        [&self.target].into_iter().chain(&self.fallbacks)
    }

    /// What each target is called and costs, by its place.
    pub(super) fn priced_models(&self) -> Arc<[PricedModel]> {
        let priced = |target: &Target| PricedModel { model: target.name(), pricing: target.pricing };
        self.all_targets().map(priced).collect()
    }
}
