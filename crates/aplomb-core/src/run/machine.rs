//! The machine: turns inputs into records and effects. Total, and pure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::panic_message;
use super::pattern::{Ask, Pattern, View};
use super::state::{Call, State, Waiting};
use super::{Effect, EffectId, Entry, Input, RunStart, StopReason};
use crate::decide::{Action, Allowances, Decision, Layer, Moment, Outcome, Policy, Restart, decide};
use crate::error::{Attempt, Code, Error, ErrorDetails, codes};
use crate::failure::{Failure, Reason, Verdict, classify};
use crate::message::Role;
use crate::record::{Fact, Record};
use crate::tool::ToolSpec;

/// What an agent is, as far as the machine must know.
#[derive(Debug, Clone)]
pub struct AgentSpec {
    /// The configured provider, for messages.
    pub provider: String,
    /// The model, for messages and events.
    pub model: String,
    /// The tools that the model may ask for.
    pub tools: Arc<[ToolSpec]>,
    /// `agent.runtime.max_steps`: the most model calls of one run.
    pub max_steps: u32,
    /// What to do about failures.
    pub policy: Policy,
}

/// The rules of one agent's runs.
///
/// Holds no state: [`handle`](Machine::handle) takes it, and says what became of it in records.
#[derive(Clone)]
pub struct Machine {
    agent: Arc<AgentSpec>,
    pattern: Arc<dyn Pattern>,
}

impl Machine {
    /// The machine of an agent.
    pub fn new(agent: Arc<AgentSpec>, pattern: Arc<dyn Pattern>) -> Machine {
        Machine { agent, pattern }
    }

    /// Answers an input.
    ///
    /// `at` is the run's own clock in ms and never runs backwards; `entropy` is one draw for this input. An input that
    /// nobody waits for gives a `stale` record and nothing else.
    pub fn handle(&self, state: &State, at: u64, entropy: u64, input: Input) -> (Vec<Record>, Vec<Effect>) {
        let mut turn = Turn {
            agent: &self.agent,
            pattern: &*self.pattern,
            at,
            entropy,
            state: state.clone(),
            records: Vec::new(),
            effects: Vec::new(),
        };
        turn.take(input);
        (turn.records, turn.effects)
    }
}

/// One input being answered: a scratch state that each record is applied to at once, so that what follows sees it.
pub(super) struct Turn<'a> {
    pub(super) agent: &'a AgentSpec,
    pattern: &'a dyn Pattern,
    pub(super) at: u64,
    pub(super) entropy: u64,
    pub(super) state: State,
    records: Vec<Record>,
    pub(super) effects: Vec<Effect>,
}

impl Turn<'_> {
    fn take(&mut self, input: Input) {
        let (name, effect) = (input.name(), input.effect());
        if !self.try_take(input) {
            self.record(Fact::Stale { input: name.to_owned(), effect });
        }
    }

    /// False if nobody waits for the input.
    fn try_take(&mut self, input: Input) -> bool {
        if self.state.finished.is_some() {
            return false;
        }
        match input {
            Input::Started(start) => return self.start(*start),
            _ if self.state.opening.is_none() => return false,
            Input::Cancelled { by } => self.cancel(&by),
            Input::SessionAcquired { effect, history } => {
                if self.state.acquiring != Some(effect) {
                    return false;
                }
                self.record(Fact::SessionAcquired { history });
                self.advance();
            }
            Input::SessionRefused { effect, error } => {
                if self.state.acquiring != Some(effect) {
                    return false;
                }
                self.fail(error);
            }
            Input::ModelReplied { effect, mut reply, first_delta_ms } => {
                if !self.awaits_reply(effect) {
                    return false;
                }
                self.name_calls(&mut reply);
                let usage = reply.usage;
                self.record(Fact::ModelReplied { effect, reply, first_delta_ms });
                self.announce_reply(usage);
                self.announce_usage();
                self.advance();
            }
            Input::ModelFailed { effect, failure, usage, delivered } => {
                if !self.awaits_reply(effect) {
                    return false;
                }
                let verdict = classify(&failure);
                self.record(Fact::AttemptFailed { effect, failure, verdict, usage, delivered });
                if usage.is_some() {
                    self.announce_usage();
                }
                self.decide_what_follows();
            }
            Input::ToolReturned { effect, result } => {
                let Some(tool) = self.awaits_tool(effect) else {
                    return false;
                };
                self.announce_tool_result(&tool, &result);
                self.record(Fact::ToolReturned { effect, result });
                self.advance_after_batch();
            }
            Input::ToolRefused { effect, error } => {
                let Some(tool) = self.awaits_tool(effect) else {
                    return false;
                };
                self.refuse_tool(effect, &tool.call, error);
                self.advance_after_batch();
            }
            Input::ToolFailed { effect, error } => {
                let Some(tool) = self.awaits_tool(effect) else {
                    return false;
                };
                self.tool_failed(effect, &tool, error);
                self.advance_after_batch();
            }
            Input::EffectPanicked { effect, message } => {
                if let Some(tool) = self.awaits_tool(effect) {
                    let error =
                        Error::new(codes::TOOL_ERROR, format!("tool {} panicked: {message}", tool.call.name));
                    self.tool_failed(effect, &tool, error);
                    self.advance_after_batch();
                } else if self.awaits_reply(effect) {
                    let error = Error::new(codes::LLM_ERROR, format!("the model call panicked: {message}"))
                        .with_attempts(self.attempts_cut_short(codes::LLM_ERROR, Reason::Unknown));
                    self.fail(error);
                } else {
                    return false;
                }
            }
            Input::TimerFired { effect } => match &self.state.call {
                _ if self.state.opening.as_ref().is_some_and(|opening| opening.timer == Some(effect)) => {
                    self.time_out();
                }
                Some(Call { waiting: Waiting::Backoff { timer }, layer, .. }) if *timer == effect => {
                    self.start_attempt(*layer);
                }
                _ => return self.restart_tool(effect),
            },
        }
        true
    }

    fn start(&mut self, start: RunStart) -> bool {
        if self.state.opening.is_some() {
            return false;
        }
        let RunStart { identity, wall_ms, entry, messages, time_limit, remembers, cancelled_by, watched } =
            start;
        let EffectId(first) = self.state.next_effect();
        let timer = time_limit.as_ref().map(|limit| (EffectId(first), limit.limit_ms));
        let session = remembers.then_some(EffectId(first + 1));
        self.record(Fact::Started {
            identity,
            wall_ms,
            entry,
            pattern: (self.pattern.kind().to_owned(), self.pattern.version()),
            messages,
            time_limit,
            timer: timer.map(|(effect, _)| effect),
            session,
            watched,
        });
        self.announce_start();
        if let Some(by) = cancelled_by {
            self.cancel(&by);
            return true;
        }
        if let Some((effect, at)) = timer {
            self.effects.push(Effect::SetTimer { effect, at, ordered_wait: false });
        }
        match session {
            Some(effect) => self.effects.push(Effect::AcquireSession { effect }),
            None => self.advance(),
        }
        true
    }

    /// Does what the pattern wants, until something is in flight or the run is over.
    pub(super) fn advance(&mut self) {
        // Calls that are refused on the spot take no time: a pattern that asks for nothing else would never end.
        for _ in 0..=self.agent.max_steps {
            match self.ask_pattern() {
                Ask::Model => return self.open_call(),
                Ask::Tools(calls) if calls.is_empty() => break,
                Ask::Tools(calls) => {
                    self.open_batch(calls);
                    if !self.state.batch.is_empty() {
                        return;
                    }
                }
                Ask::Finish(output) => return self.finish(StopReason::Completed, Some(output), None),
                Ask::Fail(error) => return self.fail(error),
            }
        }
        let message = format!(
            "pattern {} asks for tools that there are not, and for nothing else",
            self.pattern.kind()
        );
        self.fail(Error::new(codes::PATTERN_ERROR, message));
    }

    /// What the pattern wants. One that panics fails the run, and nothing else.
    fn ask_pattern(&self) -> Ask {
        let view = View { transcript: &self.state.transcript, finish: self.state.finish.as_ref() };
        catch_unwind(AssertUnwindSafe(|| self.pattern.next(view))).unwrap_or_else(|panic| {
            let what = panic_message(&*panic);
            Ask::Fail(Error::new(
                codes::PATTERN_ERROR,
                format!("pattern {} panicked: {what}", self.pattern.kind()),
            ))
        })
    }

    fn open_call(&mut self) {
        let (steps, limit) = (self.state.steps, self.agent.max_steps);
        if steps >= limit {
            let error = Error::new(
                codes::EXECUTION_MAX_STEPS,
                format!("the agent made {steps} model calls and is not done; runtime.max_steps is {limit}"),
            )
            .with_hint("raise runtime.max_steps, or make the pattern converge")
            .with_context("current", steps)
            .with_context("limit", limit);
            return self.fail(error);
        }
        let by_exec = self.state.opening.as_ref().is_some_and(|opening| opening.entry == Entry::Exec);
        let allowances = Allowances::of(&self.agent.policy, by_exec);
        self.record(Fact::CallOpened { step: steps + 1, allowances });
        self.announce_call();
        self.start_attempt(Layer::First);
    }

    fn start_attempt(&mut self, layer: Layer) {
        let effect = self.state.next_effect();
        self.record(Fact::AttemptStarted { effect, layer });
        let Some(call) = &self.state.call else { return };
        let attempt = call.ledger.attempts();
        let announce_restart = match self.agent.policy.restart {
            Restart::Marker => attempt > 1,
            Restart::Auto | Restart::Never => call.ledger.delivered(),
        };
        self.effects.push(Effect::CallModel {
            effect,
            attempt,
            messages: self.state.transcript.clone(),
            tools: self.agent.tools.clone(),
            announce_restart,
        });
    }

    fn decide_what_follows(&mut self) {
        let Some(call) = &self.state.call else { return };
        let Some((failure, verdict)) = call.last.clone() else { return };
        let moment = Moment { at: self.at, deadline: self.state.deadline(), entropy: self.entropy };
        let decision = decide(&verdict, &call.ledger, &self.agent.policy, moment);
        let attempt = (call.ledger.attempts(), call.ledger.cap(), call.layer);
        self.announce_decision(&failure, &verdict, &decision, attempt);
        if let Action::Send { delay_ms, .. } = decision.action {
            let effect = self.state.next_effect();
            self.record(Fact::Decided { decision, timer: Some(effect) });
            let at = self.at.saturating_add(delay_ms);
            self.effects.push(Effect::SetTimer { effect, at, ordered_wait: true });
        } else {
            self.record(Fact::Decided { decision: decision.clone(), timer: None });
            self.give_up(&failure, &verdict, &decision);
        }
    }

    /// The call has failed for good, and the run with it.
    fn give_up(&mut self, failure: &Failure, verdict: &Verdict, decision: &Decision) {
        match decision.action {
            Action::Stop { outcome: Outcome::OutOfTime, .. } => self.time_out(),
            _ => self.fail(self.call_error(failure, verdict, decision)),
        }
    }

    fn call_error(&self, failure: &Failure, verdict: &Verdict, decision: &Decision) -> Error {
        let attempts = self.state.call.as_ref().map(|call| call.attempts.clone()).unwrap_or_default();
        let Action::Stop { outcome, resume_after_ms } = &decision.action else {
            return Error::new(verdict.code(), failure.to_string());
        };
        let how = match (outcome, attempts.len()) {
            (Outcome::Permanent, _) => "failed permanently".to_owned(),
            (_, 1) => "failed after 1 attempt".to_owned(),
            (_, count) => format!("failed after {count} attempts"),
        };
        let seen = attempts.last().map(|attempt| attempt.error()).unwrap_or_default();
        let mut error =
            Error::new(verdict.code(), format!("{}/{} {how}: {seen}", self.agent.provider, self.agent.model))
                .with_context("provider", self.agent.provider.as_str())
                .with_context("model", self.agent.model.as_str())
                .with_context(
                    "endpoint",
                    Some(failure.endpoint.as_str()).filter(|endpoint| !endpoint.is_empty()),
                )
                .with_context("reason", verdict.reason.as_str())
                .with_context("status", failure.status)
                .with_context("request_id", failure.request_id.as_deref())
                .with_context("excerpt", failure.excerpt())
                .with_cause(Error::from(ErrorDetails::seen(failure)))
                .with_attempts(attempts);
        let setting = failure.transport.as_ref().and_then(|fault| fault.kind.setting());
        if let Some(setting) = setting {
            error =
                error.with_context("setting", setting).with_hint(format!("raise {setting}, or ask for less"));
        } else if let Some(hint) = verdict.reason.hint() {
            error = error.with_hint(hint);
        }
        if let (Some(wait_ms), Some(opening)) = (resume_after_ms, &self.state.opening) {
            let resume_at_ms = opening.wall_ms.saturating_add(self.at).saturating_add(*wait_ms);
            error = error.with_context("retry_after_ms", *wait_ms).with_context("resume_at", resume_at_ms);
        }
        error
    }

    fn cancel(&mut self, by: &str) {
        let error = Error::new(codes::EXECUTION_CANCELLED, format!("the run was cancelled by {by}"))
            .with_context("by", by)
            .with_attempts(self.attempts_cut_short(codes::EXECUTION_CANCELLED, Reason::Cancelled));
        self.fail(error);
    }

    fn time_out(&mut self) {
        let Some(limit) = self.state.opening.as_ref().and_then(|opening| opening.time_limit.clone()) else {
            return;
        };
        let place = self.waiting_for();
        let mut error = Error::new(
            codes::EXECUTION_TIMEOUT,
            format!(
                "the run did not end within {} ms ({}); it was waiting for {place}",
                limit.limit_ms, limit.setting
            ),
        )
        .with_hint(format!("raise the run's {}, or ask for less", limit.setting))
        .with_context("limit_ms", limit.limit_ms)
        .with_context("where", place)
        .with_context("setting", limit.setting)
        .with_attempts(self.attempts_cut_short(codes::EXECUTION_TIMEOUT, Reason::Timeout));
        if let Some((failure, _)) = self.state.call.as_ref().and_then(|call| call.last.as_ref()) {
            error = error.with_cause(Error::from(ErrorDetails::seen(failure)));
        }
        self.fail(error);
    }

    /// The attempts of the call under way, the one in flight included: it was a request like any other.
    fn attempts_cut_short(&self, code: Code, reason: Reason) -> Vec<Attempt> {
        let Some(call) = &self.state.call else { return Vec::new() };
        let mut attempts = call.attempts.clone();
        if matches!(call.waiting, Waiting::Reply { .. }) {
            attempts.push(Attempt::cut_short(
                call.ledger.attempts(),
                call.layer.as_str(),
                code,
                reason.as_str(),
            ));
        }
        attempts
    }

    fn waiting_for(&self) -> String {
        match &self.state.call {
            Some(Call { waiting: Waiting::Backoff { .. }, ledger, .. }) => {
                format!(
                    "the back-off before attempt {} of model call {}",
                    ledger.attempts() + 1,
                    self.state.steps
                )
            }
            Some(call) => format!("attempt {} of model call {}", call.ledger.attempts(), self.state.steps),
            None if self.state.acquiring.is_some() => "its turn in the session".to_owned(),
            None => {
                let open = self.state.batch.iter().filter(|tool| tool.result.is_none());
                let names: Vec<_> = open.map(|tool| tool.call.name.as_str()).collect();
                format!("tool {}", names.join(", "))
            }
        }
    }

    fn fail(&mut self, error: Error) {
        let mut error = self.identified(error);
        let turn = self.state.transcript.get(self.state.turn..).unwrap_or_default();
        let mut said =
            turn.iter().filter(|message| message.role == Role::Assistant).map(|message| message.to_text());
        if let Some(text) = said.rfind(|text| !text.is_empty()) {
            error = error.with_context("partial_output", text);
        }
        self.finish(error.stop_reason(), None, Some(error));
    }

    fn finish(&mut self, stop_reason: StopReason, output: Option<String>, error: Option<Error>) {
        if let (Some(_), Some(error)) = (&self.state.call, &error) {
            self.announce_call_failed(error);
        }
        self.abort_all();
        let remembers = self.state.opening.as_ref().is_some_and(|opening| opening.remembers);
        // A turn that leaves calls unanswered would make every later request of the session invalid.
        let answered = self.state.transcript.last().is_none_or(|last| last.tool_calls().next().is_none());
        if stop_reason == StopReason::Completed && remembers && answered {
            let messages = self.state.transcript.get(self.state.turn..).unwrap_or_default().to_vec();
            self.effects.push(Effect::AppendTranscript { messages });
        }
        self.announce_end(stop_reason, error.as_ref());
        self.record(Fact::Finished { stop_reason, output, error: error.map(|error| error.details()) });
        if let Some(finished) = self.state.finished.clone() {
            self.effects.push(Effect::Finish(Box::new(finished)));
        }
    }

    /// Lets go of everything that is in flight.
    fn abort_all(&mut self) {
        let waiting = self.state.call.as_ref().and_then(|call| match call.waiting {
            Waiting::Nothing => None,
            Waiting::Reply { effect, .. } | Waiting::Backoff { timer: effect } => Some(effect),
        });
        let timer = self.state.opening.as_ref().and_then(|opening| opening.timer);
        let waiting = waiting.or(self.state.acquiring);
        let open: Vec<_> = self.state.batch.iter().filter(|tool| tool.result.is_none()).cloned().collect();
        let effects = waiting.into_iter().chain(open.iter().map(|tool| tool.effect())).chain(timer);
        self.effects.extend(effects.map(|effect| Effect::Abort { effect }));
        for tool in open {
            self.announce_tool_cancelled(&tool.call);
        }
    }

    fn awaits_reply(&self, id: EffectId) -> bool {
        let waiting = self.state.call.as_ref().map(|call| call.waiting);
        matches!(waiting, Some(Waiting::Reply { effect, .. }) if effect == id)
    }

    /// The error with the identifiers that are known here.
    pub(super) fn identified(&self, error: Error) -> Error {
        let Some(opening) = &self.state.opening else {
            return error;
        };
        error
            .or_context("agent_id", opening.identity.agent_id.as_str())
            .or_context("session_id", opening.identity.session_id.as_str())
            .or_context("run_id", opening.identity.run_id.as_str())
            .or_context("step_number", self.state.steps)
    }

    pub(super) fn record(&mut self, fact: Fact) {
        let record = Record { at: self.at, fact };
        self.state.apply(&record);
        self.records.push(record);
    }
}
