//! What a simulated run did.

use std::collections::BTreeMap;

use aplomb_core::Error;
use aplomb_core::decide::{Action, Policy};
use aplomb_core::event::EventName;
use aplomb_core::record::{Fact, Record};
use aplomb_core::run::{Effect, EffectId, Finished};
use serde_json::{Map, Value};

/// Everything that a simulated run did.
#[derive(Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) policy: Policy,
    /// How many targets there are besides the first.
    pub(crate) fallbacks: usize,
    /// By target, USD per million tokens of input and output.
    pub(crate) prices: BTreeMap<usize, (u32, u32)>,
    pub(crate) max_tool_calls: Option<u32>,
    pub(crate) records: Vec<Record>,
    pub(crate) effects: Vec<(u64, Effect)>,
    pub(crate) performed: Performed,
    pub(crate) divergences: Vec<String>,
}

/// What the simulated world counted by itself.
#[derive(Debug, Default)]
pub(crate) struct Performed {
    pub(crate) requests: usize,
    /// Requests that were asked for and not sent: there was no credential.
    pub(crate) unsent: usize,
    pub(crate) tool_effects: Vec<EffectId>,
}

impl Report {
    /// The requests on the simulated wire.
    pub fn requests(&self) -> usize {
        self.performed.requests
    }

    /// The tool calls that were run.
    pub fn tool_runs(&self) -> usize {
        self.performed.tool_effects.len()
    }

    /// The waits that were decided on, in order.
    pub fn waits_ms(&self) -> Vec<u64> {
        self.decisions()
            .filter_map(|action| match action {
                Action::Send { delay_ms, .. } => Some(*delay_ms),
                _ => None,
            })
            .collect()
    }

    /// Everything that was decided, in order.
    pub fn decisions(&self) -> impl Iterator<Item = &Action> {
        self.records.iter().filter_map(|record| match &record.fact {
            Fact::Decided { decision, .. } => Some(&decision.action),
            _ => None,
        })
    }

    /// How the run ended.
    pub fn finished(&self) -> Option<&Finished> {
        self.effects.iter().find_map(|(_, effect)| match effect {
            Effect::Finish(finished) => Some(&**finished),
            _ => None,
        })
    }

    /// What the run gave.
    pub fn output(&self) -> Option<&str> {
        self.finished()?.output.as_deref()
    }

    /// Why the run failed.
    pub fn error(&self) -> Option<Error> {
        self.finished()?.to_error()
    }

    /// When the run ended, on its own clock.
    pub fn ended_at(&self) -> Option<u64> {
        self.effects.iter().find(|(_, effect)| matches!(effect, Effect::Finish(_))).map(|(at, _)| *at)
    }

    /// The events, in order.
    pub fn events(&self) -> impl Iterator<Item = (EventName, &Map<String, Value>)> {
        self.effects.iter().filter_map(|(_, effect)| match effect {
            Effect::Emit { name, payload } => Some((*name, payload)),
            _ => None,
        })
    }

    /// The records, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The effects with the time that they were asked for at, in order.
    pub fn effects(&self) -> &[(u64, Effect)] {
        &self.effects
    }
}
