//! The state of a run, and the fold of records that it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cost::{PricedModel, Usd};
use super::output::Validation;
use super::{EffectId, Entry, Identity, OutputSchema, Purpose, RunBudget, RunUsage, StopReason, TimeLimit};
use crate::decide::{Action, Decision, Layer, Ledger, Outcome};
use crate::error::{Attempt, Error, ErrorDetails};
use crate::failure::{Failure, Verdict};
use crate::message::{Block, FinishReason, Message, Role, TokenUsage, ToolCall, ToolResult};
use crate::record::{Fact, Record};

/// Everything that a run is at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub(super) opening: Option<Opening>,
    /// The effect that acquires the session, while it is waited for.
    pub(super) acquiring: Option<EffectId>,
    pub(super) transcript: Vec<Arc<Message>>,
    /// Where in the transcript this run's own turn begins.
    pub(super) turn: usize,
    /// How many of the messages before it the session gave.
    history: usize,
    /// What is left out of the conversation, by its place in the transcript.
    left_out: BTreeSet<usize>,
    /// The targets that said what another than the first one said, by its place in the transcript.
    authors: BTreeMap<usize, usize>,
    /// Until when each target is passed over, on the run's clock.
    benches: BTreeMap<usize, u64>,
    pub(super) finish: Option<FinishReason>,
    pub(super) steps: u32,
    pub(super) call: Option<Call>,
    pub(super) batch: Vec<PendingTool>,
    pub(super) validation: Validation,
    /// The answers that were rejected and what was said about them, by their place in the transcript.
    pub(super) set_aside: BTreeSet<usize>,
    pub(super) usage: RunUsage,
    /// What it cost, without what nobody knows the price of: what a limit of cost goes by. What is told may be unknown where
    /// this is not, as where two targets have one name.
    pub(super) known_cost: Usd,
    pub(super) finished: Option<Box<Finished>>,
    latencies_ms: Vec<u64>,
    effects: u64,
}

/// What was settled when the run began.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Opening {
    pub(super) identity: Arc<Identity>,
    pub(super) wall_ms: u64,
    pub(super) entry: Entry,
    pub(super) time_limit: Option<TimeLimit>,
    pub(super) timer: Option<EffectId>,
    pub(super) remembers: bool,
    pub(super) watched: bool,
    pub(super) own_credential: bool,
    pub(super) output: Option<Arc<OutputSchema>>,
    pub(super) budget: RunBudget,
    /// When the run began, and its draw: no other run has both, not even one of the same id.
    pub(super) stamp: u128,
    models: Arc<[PricedModel]>,
}

/// The logical model call in flight.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) purpose: Purpose,
    pub(super) ledger: Ledger,
    pub(super) attempts: Vec<Attempt>,
    pub(super) last: Option<(Arc<Failure>, Verdict)>,
    pub(super) layer: Layer,
    pub(super) target: usize,
    pub(super) waiting: Waiting,
    /// The timer of the step's limit, while an attempt is under way.
    pub(super) step_timer: Option<EffectId>,
    /// When the first of the targets that were left can be asked again, as far as their providers said so.
    pub(super) returns_at: Option<u64>,
}

/// What the call waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Waiting {
    /// Nothing: the machine is about to act.
    Nothing,
    Reply {
        effect: EffectId,
        since: u64,
    },
    Backoff {
        timer: EffectId,
    },
    Credential {
        effect: EffectId,
    },
}

/// A tool call of the batch in flight.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PendingTool {
    /// The effect of the first attempt, by which the call is told from every other one of the run: providers use the ids of
    /// calls again.
    pub(super) first: EffectId,
    /// What is waited for: the call's effect, or the timer before the next one.
    pub(super) waiting: ToolWaiting,
    pub(super) call: ToolCall,
    /// How long was waited before each further attempt, and for what.
    pub(super) retries: Vec<(u64, String)>,
    pub(super) result: Option<ToolResult>,
}

/// What a tool call waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ToolWaiting {
    Result(EffectId),
    Backoff(EffectId),
    /// For room under the limit of tool calls; the effect would run it.
    Room(EffectId),
}

impl PendingTool {
    /// The effect that brings it on.
    pub(super) fn effect(&self) -> EffectId {
        match self.waiting {
            ToolWaiting::Result(effect) | ToolWaiting::Backoff(effect) | ToolWaiting::Room(effect) => effect,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finished {
    /// How.
    pub stop_reason: StopReason,
    /// What it gave.
    pub output: Option<String>,
    /// Why it failed.
    pub error: Option<ErrorDetails>,
    /// What it used.
    pub usage: RunUsage,
}

impl State {
    /// Adds a fact. Decides nothing: it calls no rule, no pattern, and looks at no setting.
    pub fn apply(&mut self, record: &Record) {
        match &record.fact {
            Fact::Started {
                identity,
                wall_ms,
                entry,
                messages,
                time_limit,
                timer,
                session,
                watched,
                benches,
                own_credential,
                output,
                budget,
                nonce,
                models,
                pattern: _,
            } => {
                benches.iter().for_each(|(target, until)| self.bench(*target, *until));
                self.transcript.clone_from(messages);
                self.turn = messages.len().saturating_sub(1);
                self.acquiring = *session;
                self.opening = Some(Opening {
                    identity: identity.clone(),
                    wall_ms: *wall_ms,
                    entry: *entry,
                    time_limit: time_limit.clone(),
                    timer: *timer,
                    remembers: session.is_some(),
                    watched: *watched,
                    own_credential: *own_credential,
                    output: output.clone(),
                    budget: *budget,
                    stamp: u128::from(*wall_ms) << 64 | u128::from(*nonce),
                    models: models.clone(),
                });
                self.count_effect(*timer);
                self.count_effect(*session);
            }
            Fact::SessionAcquired { history } => {
                self.acquiring = None;
                self.transcript.splice(self.turn..self.turn, history.iter().cloned());
                self.turn += history.len();
                self.history = history.len();
            }
            Fact::TargetBenched { target, until } => self.bench(*target, *until),
            Fact::CallOpened { step, purpose, allowances, target, step_timeout_ms } => {
                self.steps = *step;
                self.usage.llm_calls += 1;
                self.call = Some(Call {
                    purpose: *purpose,
                    ledger: Ledger::new(*allowances).opened(record.at, *step_timeout_ms),
                    attempts: Vec::new(),
                    last: None,
                    layer: Layer::First,
                    target: *target,
                    waiting: Waiting::Nothing,
                    step_timer: None,
                    returns_at: None,
                });
            }
            Fact::AttemptStarted { effect, layer, timer } => {
                self.count_effect(Some(*effect));
                self.count_effect(*timer);
                if let Some(call) = &mut self.call {
                    if call.ledger.attempts() > 0 {
                        self.usage.llm_retry_count += 1;
                    }
                    call.ledger.begin_attempt();
                    call.layer = *layer;
                    call.waiting = Waiting::Reply { effect: *effect, since: record.at };
                    call.step_timer = *timer;
                }
            }
            Fact::AttemptFailed { effect: _, failure, verdict, usage, delivered } => {
                self.count_attempt(*usage);
                if let Some(call) = &mut self.call {
                    if *delivered {
                        call.ledger.note_delivered();
                    }
                    if let Waiting::Reply { since, .. } = call.waiting {
                        call.ledger.spend_time(record.at.saturating_sub(since));
                    }
                    call.step_timer = None;
                    call.attempts.push(attempt(call, failure, verdict));
                    call.last = Some((Arc::new((**failure).clone()), verdict.clone()));
                    call.waiting = Waiting::Nothing;
                }
            }
            Fact::AttemptRefused { effect: _, error: _ } => {
                if let Some(call) = &mut self.call {
                    if let Waiting::Reply { since, .. } = call.waiting {
                        call.ledger.spend_time(record.at.saturating_sub(since));
                    }
                    call.ledger.take_back(call.layer);
                    if call.ledger.attempts() > 0 {
                        self.usage.llm_retry_count = self.usage.llm_retry_count.saturating_sub(1);
                    }
                    call.step_timer = None;
                    call.waiting = Waiting::Nothing;
                }
            }
            Fact::Decided { decision, timer } => {
                self.count_effect(*timer);
                let left = self.call.as_ref().map(|call| call.target);
                if let Some(call) = &mut self.call {
                    note_decision(call, record.at, decision, *timer);
                }
                if let (Some(left), Action::FallBack { bench_ms, .. }) = (left, &decision.action) {
                    self.bench(left, bench_ms.map_or(u64::MAX, |ms| record.at.saturating_add(ms)));
                }
            }
            Fact::Compacted { dropped, tokens_before: _, tokens_after: _ } => {
                if let Some(call) = &mut self.call
                    && dropped.is_empty()
                {
                    call.ledger.forfeit_compactions();
                }
                self.left_out.extend(dropped);
            }
            Fact::CredentialRead { effect: _, changed: _ } => {
                if let Some(call) = &mut self.call {
                    call.waiting = Waiting::Nothing;
                }
            }
            Fact::ModelReplied { effect: _, reply, first_delta_ms } => {
                if let Some(Call { waiting: Waiting::Reply { since, .. }, .. }) = &self.call {
                    self.latencies_ms.push(record.at.saturating_sub(*since));
                    self.usage.set_latencies(&self.latencies_ms);
                }
                self.count_attempt(reply.usage);
                self.usage.ttft_ms = self.usage.ttft_ms.or(*first_delta_ms);
                if let Some(target) = self.call.take().map(|call| call.target).filter(|target| *target > 0) {
                    self.authors.insert(self.transcript.len(), target);
                }
                self.finish = Some(reply.finish.clone());
                self.transcript.push(Arc::new(reply.message.clone()));
            }
            Fact::BatchOpened { calls, withheld } => {
                // What the tools bring may make the same answer another one.
                self.validation.last_answer = None;
                for (effect, call) in calls {
                    self.count_effect(Some(*effect));
                    let waiting = match withheld.contains(effect) {
                        true => ToolWaiting::Room(*effect),
                        false => ToolWaiting::Result(*effect),
                    };
                    let (first, call) = (*effect, call.clone());
                    self.batch.push(PendingTool { first, waiting, call, retries: Vec::new(), result: None });
                }
            }
            Fact::ToolAdmitted { effect } => {
                if let Some(tool) = self.tool_mut(ToolWaiting::Room(*effect)) {
                    tool.waiting = ToolWaiting::Result(*effect);
                }
            }
            Fact::ToolReturned { effect, result } => {
                let text = match result {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                self.usage.tool_calls += 1;
                self.settle(*effect, text, false);
            }
            Fact::ToolRetryDecided { effect, error, delay_ms, timer } => {
                self.count_effect(Some(*timer));
                self.usage.tool_calls += 1;
                if let Some(tool) = self.tool_mut(ToolWaiting::Result(*effect)) {
                    tool.retries.push((*delay_ms, error.dict.code.clone()));
                    tool.waiting = ToolWaiting::Backoff(*timer);
                }
            }
            Fact::ToolRestarted { timer, effect } => {
                self.count_effect(Some(*effect));
                if let Some(tool) = self.tool_mut(ToolWaiting::Backoff(*timer)) {
                    tool.waiting = ToolWaiting::Result(*effect);
                }
            }
            Fact::ToolFailed { effect, told, error: _ } => {
                self.usage.tool_calls += 1;
                self.settle(*effect, told.clone(), true);
            }
            Fact::ToolRefused { effect, told, error: _ } => self.settle(*effect, told.clone(), true),
            Fact::ValidationBegun { effect, output } => {
                self.count_effect(Some(*effect));
                self.validation.waiting = Some((*effect, output.clone()));
            }
            Fact::OutputRejected { output, error } => {
                self.validation.waiting = None;
                self.validation.rejected += 1;
                self.validation.last_answer.clone_from(output);
                self.validation.last_error = Some(error.clone());
            }
            Fact::CorrectionAsked { answer, request } => {
                self.transcript.extend(answer.clone());
                if self.transcript.last().is_some_and(|last| last.role == Role::Assistant) {
                    self.set_aside.extend(self.transcript.len().checked_sub(1));
                }
                self.set_aside.insert(self.transcript.len());
                self.transcript.push(request.clone());
            }
            Fact::Finished { stop_reason, output, error } => {
                self.validation.waiting = None;
                self.call = None;
                self.acquiring = None;
                self.batch.clear();
                self.finished = Some(Box::new(Finished {
                    stop_reason: *stop_reason,
                    output: output.clone(),
                    error: error.clone(),
                    usage: self.usage.clone(),
                }));
            }
            Fact::Stale { .. } => {}
        }
    }

    /// The outcome, once there is one.
    pub fn finished(&self) -> Option<&Finished> {
        self.finished.as_deref()
    }

    /// The conversation so far.
    pub fn transcript(&self) -> &[Arc<Message>] {
        &self.transcript
    }

    /// The answer that was rejected last and what was said about it, by their place in the transcript.
    pub(super) fn being_corrected(&self) -> Range<usize> {
        let Some(request) = self.set_aside.last().copied() else { return 0..0 };
        let answer = request.checked_sub(1).filter(|place| {
            let message = self.transcript.get(*place);
            self.set_aside.contains(place) && message.is_some_and(|message| message.role == Role::Assistant)
        });
        answer.unwrap_or(request)..request + 1
    }

    /// The conversation without what is left out of it, each message with its place.
    pub(super) fn conversation(&self) -> impl Iterator<Item = (usize, &Arc<Message>)> {
        self.transcript.iter().enumerate().filter(|(place, _)| !self.left_out.contains(place))
    }

    /// How many of the oldest messages of the session's conversation are left out.
    pub(super) fn forgotten(&self) -> usize {
        let begins = self.turn.saturating_sub(self.history);
        (begins..self.turn).take_while(|place| self.left_out.contains(place)).count()
    }

    /// The target that said what is at a place. What was there before this run counts as the first one's.
    pub(super) fn author(&self, place: usize) -> usize {
        self.authors.get(&place).copied().unwrap_or_default()
    }

    /// Until when a target is passed over, on the run's clock.
    pub(super) fn benched_until(&self, target: usize) -> Option<u64> {
        self.benches.get(&target).copied()
    }

    /// How many attempts the call in flight has made.
    pub fn attempts(&self) -> u32 {
        self.call.as_ref().map_or(0, |call| call.ledger.attempts())
    }

    /// The id that the next effect gets.
    pub(super) fn next_effect(&self) -> EffectId {
        EffectId(self.effects)
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let opening = self.opening.as_ref()?;
        opening.budget.deadline(opening.time_limit.as_ref())
    }

    /// Counts what the attempt under way used. Nothing, where nobody says so: it was not taken up.
    fn count_attempt(&mut self, usage: Option<TokenUsage>) {
        let asked = self.call.as_ref().map(|call| call.target);
        let models = self.opening.as_ref().map(|opening| &opening.models);
        let model = models.zip(asked).and_then(|(models, asked)| models.get(asked));
        let tokens = usage.unwrap_or_default();
        if let Some(pricing) = model.and_then(|model| model.pricing) {
            self.known_cost = self.known_cost + pricing.cost(tokens);
        }
        self.usage.add_attempt(model, tokens);
    }

    /// Notes one tool's result; the last one of a batch moves them all into the conversation.
    fn settle(&mut self, effect: EffectId, text: String, is_error: bool) {
        if let Some(tool) = self.tool_mut(ToolWaiting::Result(effect)) {
            let (call_id, name) = (tool.call.id.clone(), tool.call.name.clone());
            tool.result = Some(ToolResult { call_id, name, text, is_error });
        }
        if self.batch.iter().all(|tool| tool.result.is_some()) {
            let results = std::mem::take(&mut self.batch).into_iter().filter_map(|tool| tool.result);
            let content = results.map(Block::ToolResult).collect();
            self.transcript.push(Arc::new(Message { role: Role::Tool, content }));
        }
    }

    /// A bench only ever ends later.
    fn bench(&mut self, target: usize, until: u64) {
        let bench = self.benches.entry(target).or_default();
        *bench = until.max(*bench);
    }

    fn tool_mut(&mut self, waiting: ToolWaiting) -> Option<&mut PendingTool> {
        self.batch.iter_mut().find(|tool| tool.waiting == waiting && tool.result.is_none())
    }

    fn count_effect(&mut self, effect: Option<EffectId>) {
        if let Some(EffectId(id)) = effect {
            self.effects = self.effects.max(id + 1);
        }
    }
}

impl Finished {
    /// Why the run failed, as an error.
    pub fn to_error(&self) -> Option<Error> {
        self.error.clone().map(Error::from)
    }
}

fn attempt(call: &Call, failure: &Failure, verdict: &Verdict) -> Attempt {
    Attempt {
        number: call.ledger.attempts(),
        layer: call.layer.as_str().to_owned(),
        target: (call.target > 0).then(|| format!("{}/{}", failure.provider, failure.model)),
        error_type: verdict.code().type_name().to_owned(),
        text: failure.to_string(),
        reason: verdict.reason.as_str().to_owned(),
        action: String::new(),
        rule: verdict.rule.clone(),
        delay_ms: None,
        delay_source: None,
    }
}

fn note_decision(call: &mut Call, at: u64, decision: &Decision, effect: Option<EffectId>) {
    if let Some(attempt) = call.attempts.last_mut() {
        attempt.rule.clone_from(&decision.rule);
        attempt.action = action_name(&decision.action).to_owned();
        if let Action::Send { delay_ms, delay_source, .. } = &decision.action {
            attempt.delay_ms = Some(*delay_ms);
            attempt.delay_source = Some(delay_source.clone());
        }
    }
    call.waiting = Waiting::Nothing;
    match &decision.action {
        Action::Send { layer, .. } => {
            call.ledger.charge(*layer);
            call.layer = *layer;
            call.waiting = effect.map_or(Waiting::Nothing, |timer| Waiting::Backoff { timer });
        }
        Action::Compact => call.ledger.note_compaction(),
        Action::ReadCredential => {
            call.ledger.note_refresh();
            call.waiting = effect.map_or(Waiting::Nothing, |effect| Waiting::Credential { effect });
        }
        Action::FallBack { target, .. } => {
            call.ledger.charge(Layer::Fallback);
            call.target = *target;
            let stated = call.last.as_ref().and_then(|(_, verdict)| verdict.wait);
            let returns_at = stated.map(|wait| at.saturating_add(wait.delay_ms));
            call.returns_at = call.returns_at.into_iter().chain(returns_at).min();
        }
        Action::Stop { .. } => {}
    }
}

/// The name of an action in events and attempts.
pub(super) fn action_name(action: &Action) -> &'static str {
    match action {
        Action::Send { .. } => "retry",
        Action::Compact => "compact",
        Action::ReadCredential => "read credential",
        Action::FallBack { .. } => "fall back",
        Action::Stop { outcome: Outcome::Permanent, .. } => "failed permanently",
        Action::Stop { .. } => "stop",
    }
}
