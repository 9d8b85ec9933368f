//! What a driver tells the machine, and what the machine asks of a driver.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Finished, OutputSchema, RunBudget, WantedOutput};
use crate::error::Error;
use crate::event::EventName;
use crate::failure::Failure;
use crate::message::{Message, Reply, TokenUsage, ToolCall};
use crate::tool::ToolSpec;

/// Names an effect within its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectId(pub u64);

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a run was entered, which decides whose allowances count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// `run`, in any of its forms.
    Run,
    /// `exec`.
    Exec,
}

/// Whose run it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run.
    pub run_id: String,
    /// Its session.
    pub session_id: String,
    /// Its agent.
    pub agent_id: String,
}

/// A limit on a run's time that is no budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimit {
    /// Milliseconds from the run's start.
    pub limit_ms: u64,
    /// The setting that says so, as the user knows it.
    pub setting: String,
}

/// What a run begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStart {
    /// Whose run it is.
    pub identity: Arc<Identity>,
    /// Wall time at the run clock's zero, in ms of Unix time.
    pub wall_ms: u64,
    /// How it was entered.
    pub entry: Entry,
    /// Instructions, then the user's input.
    pub messages: Vec<Arc<Message>>,
    /// When it must have ended.
    pub time_limit: Option<TimeLimit>,
    /// What it may use.
    pub budget: RunBudget,
    /// Whether the session's earlier turns belong to the conversation, and this one to it.
    pub remembers: bool,
    /// Who cancelled the run before it began, so that it ends where it begins.
    pub cancelled_by: Option<String>,
    /// The agent's targets that other runs have found to be passed over, by their place, each until a time of the run's
    /// clock.
    pub benches: Vec<(usize, u64)>,
    /// Whether the run brings a credential of its own, which can be read again.
    pub own_credential: bool,
    /// Whether anybody watches. Otherwise nothing is announced, which spares what it takes to put it into words.
    pub watched: bool,
    /// What its output must be like.
    pub output: WantedOutput,
}

/// What a driver tells the machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Input {
    /// The run begins.
    Started(Box<RunStart>),
    /// A [`Effect::AcquireSession`] brought the session.
    SessionAcquired {
        /// The effect.
        effect: EffectId,
        /// The session's conversation so far.
        history: Vec<Arc<Message>>,
    },
    /// A [`Effect::AcquireSession`] did not bring it.
    SessionRefused {
        /// The effect.
        effect: EffectId,
        /// Why.
        error: Error,
    },
    /// A [`Effect::CallModel`] brought an answer.
    ModelReplied {
        /// The effect.
        effect: EffectId,
        /// The whole answer.
        reply: Reply,
        /// From the attempt's start to the first piece of the answer, where that was seen.
        first_delta_ms: Option<u64>,
    },
    /// A [`Effect::CallModel`] failed.
    ModelFailed {
        /// The effect.
        effect: EffectId,
        /// What was seen.
        failure: Box<Failure>,
        /// What was used all the same: as the provider said, or estimated and flagged.
        usage: Option<TokenUsage>,
        /// Whether some of the answer was handed to somebody.
        delivered: bool,
    },
    /// A [`Effect::CallModel`] was not carried out: there is no credential to send.
    ModelRefused {
        /// The effect.
        effect: EffectId,
        /// Why.
        error: Error,
    },
    /// A [`Effect::ReadCredential`] is done.
    CredentialRead {
        /// The effect.
        effect: EffectId,
        /// Whether the credential is another one than the one that was sent.
        changed: bool,
    },
    /// Another run has found that one of the agent's targets is to be passed over.
    TargetBenched {
        /// Which.
        target: usize,
        /// Until when, on the run's clock.
        until: u64,
    },
    /// A [`Effect::CallTool`] brought a result.
    ToolReturned {
        /// The effect.
        effect: EffectId,
        /// The result.
        result: Value,
    },
    /// A [`Effect::CallTool`] was not carried out: the tool does not take these arguments.
    ToolRefused {
        /// The effect.
        effect: EffectId,
        /// Why.
        error: Error,
    },
    /// A [`Effect::CallTool`] failed.
    ToolFailed {
        /// The effect.
        effect: EffectId,
        /// Why.
        error: Error,
    },
    /// A [`Effect::Validate`] is done.
    Validated {
        /// The effect.
        effect: EffectId,
        /// The output as it is given, or what is wrong with it, in words for the model.
        checked: Result<String, String>,
    },
    /// The code that performed an effect panicked.
    EffectPanicked {
        /// The effect.
        effect: EffectId,
        /// The panic's message.
        message: String,
    },
    /// A [`Effect::SetTimer`] is due.
    TimerFired {
        /// The effect.
        effect: EffectId,
    },
    /// The user wants the run to end.
    Cancelled {
        /// Who, or what, asked for it.
        by: String,
    },
}

impl Input {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Input::Started(_) => "started",
            Input::SessionAcquired { .. } => "session_acquired",
            Input::SessionRefused { .. } => "session_refused",
            Input::ModelReplied { .. } => "model_replied",
            Input::ModelFailed { .. } => "model_failed",
            Input::ModelRefused { .. } => "model_refused",
            Input::CredentialRead { .. } => "credential_read",
            Input::TargetBenched { .. } => "target_benched",
            Input::ToolReturned { .. } => "tool_returned",
            Input::ToolRefused { .. } => "tool_refused",
            Input::ToolFailed { .. } => "tool_failed",
            Input::Validated { .. } => "validated",
            Input::EffectPanicked { .. } => "effect_panicked",
            Input::TimerFired { .. } => "timer_fired",
            Input::Cancelled { .. } => "cancelled",
        }
    }

    pub(super) fn effect(&self) -> Option<EffectId> {
        match self {
            Input::Started(_) | Input::Cancelled { .. } | Input::TargetBenched { .. } => None,
            Input::SessionAcquired { effect, .. }
            | Input::SessionRefused { effect, .. }
            | Input::ModelReplied { effect, .. }
            | Input::ModelFailed { effect, .. }
            | Input::ModelRefused { effect, .. }
            | Input::CredentialRead { effect, .. }
            | Input::ToolReturned { effect, .. }
            | Input::ToolRefused { effect, .. }
            | Input::ToolFailed { effect, .. }
            | Input::Validated { effect, .. }
            | Input::EffectPanicked { effect, .. }
            | Input::TimerFired { effect } => Some(*effect),
        }
    }
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerKind {
    /// A wait that was decided on.
    Wait,
    /// The run's time limit.
    RunLimit,
    /// The step's time limit. Where an attempt's own clock runs out together with it, the attempt's wins.
    StepLimit,
}

/// What the machine asks of a driver. The effects of one answer happen in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Get the session for this run alone. It is released when the run is over.
    AcquireSession {
        /// Comes back with its conversation.
        effect: EffectId,
    },
    /// Add this run's turn to the session's conversation.
    AppendTranscript {
        /// From the user's input to the output.
        messages: Vec<Arc<Message>>,
        /// How many of the oldest messages that the session gave are forgotten before that: compaction left them out.
        forgotten: usize,
    },
    /// Send one request to the model.
    CallModel {
        /// Comes back with the answer.
        effect: EffectId,
        /// Which of the agent's targets.
        target: usize,
        /// Which attempt of its call, from 1.
        attempt: u32,
        /// The conversation, as that target takes it.
        messages: Vec<Arc<Message>>,
        /// The tools that the model may ask for.
        tools: Arc<[ToolSpec]>,
        /// What the run's output must fit.
        output: Option<Arc<OutputSchema>>,
        /// Announce `llm.restarted` just before this attempt's first delta: what may have been seen before is void.
        announce_restart: bool,
    },
    /// Read the credential of a target again.
    ReadCredential {
        /// Comes back when it is read.
        effect: EffectId,
        /// Which of the agent's targets.
        target: usize,
    },
    /// Let the agent's other runs know that a target is to be passed over.
    BenchTarget {
        /// Which.
        target: usize,
        /// Until when, on the run's clock.
        until: u64,
    },
    /// Run a tool, once.
    CallTool {
        /// Comes back with the result.
        effect: EffectId,
        /// What the model asked for.
        call: ToolCall,
        /// Its arguments.
        arguments: Value,
        /// The same for every attempt of the call, and another one for every other call of whatever run: hexadecimal
        /// digits and a hyphen.
        idempotency_key: String,
    },
    /// Check whether an output fits the run's schema.
    Validate {
        /// Comes back when it is checked.
        effect: EffectId,
        /// The output.
        output: String,
    },
    /// Tell when it is that late on the run's clock.
    SetTimer {
        /// Comes back when it is.
        effect: EffectId,
        /// The run's clock, in ms.
        at: u64,
        /// What it is for.
        kind: TimerKind,
    },
    /// Nobody waits for that effect any more.
    Abort {
        /// The effect.
        effect: EffectId,
    },
    /// Tell those who watch.
    Emit {
        /// What happened.
        name: EventName,
        /// What there is to say about it.
        payload: Map<String, Value>,
    },
    /// The run is over. Always the last effect.
    Finish(Box<Finished>),
}
