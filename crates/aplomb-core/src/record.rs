//! The facts of a run. The state is their fold; what happened is what they say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decide::{Allowances, Decision, Layer};
use crate::error::ErrorDetails;
use crate::failure::{Failure, Verdict};
use crate::message::{Message, Reply, TokenUsage, ToolCall};
use crate::run::{
    EffectId, Entry, Identity, PricedModel, Purpose, RunBudget, StopReason, TimeLimit, WantedOutput,
};

/// One fact, and when it became one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The run's clock, in ms.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What arrived, what was decided, what a pattern chose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fact")]
#[non_exhaustive]
pub enum Fact {
    /// The run began.
    Started {
        /// Whose run it is.
        identity: Arc<Identity>,
        /// Wall time at the run clock's zero, in ms of Unix time.
        wall_ms: u64,
        /// How it was entered.
        entry: Entry,
        /// The pattern's type and version.
        pattern: (String, u32),
        /// The conversation that it begins with.
        messages: Vec<Arc<Message>>,
        /// When it must have ended.
        time_limit: Option<TimeLimit>,
        /// The timer of that limit.
        timer: Option<EffectId>,
        /// The effect that acquires the session, where there is one to be had.
        session: Option<EffectId>,
        /// Whether anybody watches.
        watched: bool,
        /// The targets that are passed over, by their place, each until a time of the run's clock.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        benches: Vec<(usize, u64)>,
        /// Whether the run brings a credential of its own.
        #[serde(default)]
        own_credential: bool,
        /// What its output must be like.
        #[serde(default)]
        output: WantedOutput,
        /// What it may use.
        #[serde(default)]
        budget: RunBudget,
        /// A draw that tells the run from every other one, also from one that had its id before.
        #[serde(default)]
        nonce: u64,
        /// What the agent's targets are called and cost, by their place.
        #[serde(default)]
        models: Arc<[PricedModel]>,
    },
    /// Another run has found that a target is to be passed over.
    TargetBenched {
        /// Which.
        target: usize,
        /// Until when, on the run's clock.
        until: u64,
    },
    /// The session is this run's until it ends.
    SessionAcquired {
        /// Its conversation so far.
        history: Vec<Arc<Message>>,
    },
    /// The pattern asked the model: one logical call, which may take many attempts.
    CallOpened {
        /// Counts from 1; the run's step.
        step: u32,
        /// What it is for.
        #[serde(default)]
        purpose: Purpose,
        /// How many attempts may be added to the first.
        allowances: Allowances,
        /// Which of the agent's targets is asked first.
        #[serde(default)]
        target: usize,
        /// How much time its attempts have, in ms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step_timeout_ms: Option<u64>,
    },
    /// A request is about to be handed to the transport.
    AttemptStarted {
        /// The effect that sends it.
        effect: EffectId,
        /// Whose allowance pays.
        layer: Layer,
        /// The timer of the step's limit, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<EffectId>,
    },
    /// The attempt failed.
    AttemptFailed {
        /// The effect that sent it.
        effect: EffectId,
        /// What was seen.
        failure: Box<Failure>,
        /// What it is.
        verdict: Verdict,
        /// What it used all the same: as the provider said, or estimated and flagged.
        usage: Option<TokenUsage>,
        /// Whether some of its answer was handed to somebody.
        delivered: bool,
    },
    /// The attempt was not made after all: there was no credential to send. It counts for nothing.
    AttemptRefused {
        /// The effect that was to send it.
        effect: EffectId,
        /// Why.
        error: ErrorDetails,
    },
    /// It was decided what follows.
    Decided {
        /// What, and by which rule.
        decision: Decision,
        /// The effect that ends the wait, where there is one: a timer, or the reading of the credential.
        timer: Option<EffectId>,
    },
    /// The conversation was looked through for what can be left out.
    Compacted {
        /// What is left out from now on, by its place in the conversation. Nothing, where that would not have helped.
        dropped: Vec<usize>,
        /// The request before, in tokens, estimated.
        tokens_before: u64,
        /// The request after, in tokens, estimated.
        tokens_after: u64,
    },
    /// The credential was read again.
    CredentialRead {
        /// The effect that read it.
        effect: EffectId,
        /// Whether it is another one.
        changed: bool,
    },
    /// The model answered, which ends the call.
    ModelReplied {
        /// The effect that sent the request.
        effect: EffectId,
        /// The answer.
        reply: Reply,
        /// From the attempt's start to the first piece of the answer, where that was seen.
        first_delta_ms: Option<u64>,
    },
    /// The model's tool calls are taken up as one batch.
    BatchOpened {
        /// The calls, each with the effect that runs it.
        calls: Vec<(EffectId, ToolCall)>,
        /// Those that are not run, unless others leave them room under the limit of tool calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        withheld: Vec<EffectId>,
    },
    /// There is room for a call that was withheld.
    ToolAdmitted {
        /// The effect that runs it.
        effect: EffectId,
    },
    /// A tool gave its result.
    ToolReturned {
        /// The effect that ran it.
        effect: EffectId,
        /// The result.
        result: Value,
    },
    /// A tool failed, and is to be called again.
    ToolRetryDecided {
        /// The effect that ran it.
        effect: EffectId,
        /// Why it failed.
        error: ErrorDetails,
        /// How long is waited.
        delay_ms: u64,
        /// The timer that ends the wait.
        timer: EffectId,
    },
    /// A tool is called again.
    ToolRestarted {
        /// The timer that ended the wait.
        timer: EffectId,
        /// The effect that runs it now.
        effect: EffectId,
    },
    /// A tool failed for good.
    ToolFailed {
        /// The effect that ran it.
        effect: EffectId,
        /// Why.
        error: ErrorDetails,
        /// What the model is told.
        told: String,
    },
    /// A tool call was not run at all.
    ToolRefused {
        /// The effect that would have run it.
        effect: EffectId,
        /// Why.
        error: ErrorDetails,
        /// What the model is told.
        told: String,
    },
    /// The pattern is done, and its output is being checked.
    ValidationBegun {
        /// The effect that checks it.
        effect: EffectId,
        /// The output.
        output: String,
    },
    /// An output was not accepted.
    OutputRejected {
        /// The output.
        output: String,
        /// What is wrong with it.
        error: String,
    },
    /// The model is to correct what it said. Its call follows.
    CorrectionAsked {
        /// The output that was rejected, where it is not what the model said last.
        answer: Option<Arc<Message>>,
        /// What is wrong with it, as the model is told.
        request: Arc<Message>,
    },
    /// The run ended.
    Finished {
        /// How.
        stop_reason: StopReason,
        /// What it gave.
        output: Option<String>,
        /// Why it failed.
        error: Option<ErrorDetails>,
    },
    /// Something arrived that nobody waits for any more.
    Stale {
        /// What arrived.
        input: String,
        /// The effect that it came from.
        effect: Option<EffectId>,
    },
}
