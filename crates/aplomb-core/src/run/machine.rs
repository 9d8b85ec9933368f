//! The machine: turns inputs into records and effects. Total, and pure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::panic_message;
use super::pattern::{Ask, Pattern, View};
use super::state::{Call, State, Waiting};
use super::{
    AgentSpec, Effect, EffectId, Input, Purpose, RunBudget, RunStart, StopReason, TimeLimit, TimerKind,
};
use crate::error::{Error, codes};
use crate::failure::{Reason, classify};
use crate::message::{Role, normalise};
use crate::record::{Fact, Record};

/// The rules of one agent's runs.
///
/// Holds no state: [`handle`](Machine::handle) takes it, and says what became of it in records.
#[derive(Clone)]
pub struct Machine {
    agent: Arc<AgentSpec>,
    pattern: Arc<dyn Pattern>,
    /// Of the pattern, which is asked once: in a run it may panic in one place alone.
    kind: Arc<str>,
    version: u32,
}

impl Machine {
    /// The machine of an agent.
    pub fn new(agent: Arc<AgentSpec>, pattern: Arc<dyn Pattern>) -> Machine {
        let (kind, version) = (pattern.kind().into(), pattern.version());
        Machine { agent, pattern, kind, version }
    }

    /// Whether a run of the agent can keep to a budget.
    ///
    /// # Errors
    ///
    /// As [`RunBudget::check`].
    pub fn check_budget(&self, budget: &RunBudget) -> Result<(), Error> {
        budget.check(self.agent.all_targets())
    }

    /// Answers an input.
    ///
    /// `at` is the run's own clock in ms and never runs backwards; `entropy` is one draw for this input. An input that
    /// nobody waits for gives a `stale` record and nothing else. The state that is returned is `state` with the records
    /// applied.
    pub fn handle(
        &self,
        state: &State,
        at: u64,
        entropy: u64,
        input: Input,
    ) -> (State, Vec<Record>, Vec<Effect>) {
        let mut turn = Turn {
            agent: &self.agent,
            pattern: &*self.pattern,
            kind: &self.kind,
            version: self.version,
            at,
            entropy,
            state: state.clone(),
            records: Vec::new(),
            effects: Vec::new(),
        };
        turn.take(input);
        (turn.state, turn.records, turn.effects)
    }
}

/// One input being answered: a scratch state that each record is applied to at once, so that what follows sees it.
pub(super) struct Turn<'a> {
    pub(super) agent: &'a AgentSpec,
    pattern: &'a dyn Pattern,
    kind: &'a str,
    version: u32,
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
                self.stop_step_clock();
                let (usage, model) = (reply.usage, self.asked().model.as_str());
                let attempts = self.attempts_if_overspent();
                self.record(Fact::ModelReplied { effect, reply, first_delta_ms });
                self.announce_reply(model, usage);
                self.announce_usage();
                // What went past the limit was the last call, whatever it asks for.
                match self.is_overspent() {
                    true => self.overspend(attempts),
                    false => self.advance(),
                }
            }
            Input::ModelFailed { effect, failure, usage, delivered } => {
                if !self.awaits_reply(effect) {
                    return false;
                }
                let verdict = classify(&failure);
                self.stop_step_clock();
                self.record(Fact::AttemptFailed { effect, failure, verdict, usage, delivered });
                if usage.is_some() {
                    self.announce_usage();
                }
                self.decide_what_follows(None);
            }
            Input::ModelRefused { effect, error } => {
                if !self.awaits_reply(effect) {
                    return false;
                }
                self.stop_step_clock();
                self.record(Fact::AttemptRefused { effect, error: error.details() });
                self.pass_over(error);
            }
            Input::CredentialRead { effect, changed } => {
                if !self.awaits_credential(effect) {
                    return false;
                }
                self.credential_read(effect, changed);
            }
            Input::TargetBenched { target, until } => self.record(Fact::TargetBenched { target, until }),
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
            Input::Validated { effect, checked } => return self.validated(effect, checked),
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
                } else if self.awaits_credential(effect) {
                    // Whatever was to read it did not get another one.
                    self.credential_read(effect, false);
                } else if self.state.acquiring == Some(effect) {
                    let message = format!("what was to get the session panicked: {message}");
                    self.fail(Error::new(codes::SESSION_ERROR, message));
                } else if self.state.validation.waiting.as_ref().is_some_and(|(id, _)| *id == effect) {
                    let message = format!("the check of the output panicked: {message}");
                    self.fail(Error::new(codes::EXECUTION_ERROR, message));
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
                Some(Call { step_timer: Some(timer), .. }) if *timer == effect => self.time_out_step(),
                _ => return self.restart_tool(effect),
            },
        }
        true
    }

    fn start(&mut self, start: RunStart) -> bool {
        if self.state.opening.is_some() {
            return false;
        }
        let RunStart {
            identity,
            wall_ms,
            entry,
            messages,
            time_limit,
            budget,
            remembers,
            cancelled_by,
            benches,
            own_credential,
            watched,
            output,
        } = start;
        let EffectId(first) = self.state.next_effect();
        let timer = budget.deadline(time_limit.as_ref()).map(|at| (EffectId(first), at));
        let session = remembers.then_some(EffectId(first + 1));
        self.record(Fact::Started {
            identity,
            wall_ms,
            entry,
            pattern: (self.kind.to_owned(), self.version),
            messages,
            time_limit,
            timer: timer.map(|(effect, _)| effect),
            session,
            watched,
            benches,
            own_credential,
            output,
            budget,
            nonce: self.entropy,
            models: self.agent.priced_models(),
        });
        self.announce_start();
        if let Some(by) = cancelled_by {
            self.cancel(&by);
            return true;
        }
        if let Some((effect, at)) = timer {
            self.effects.push(Effect::SetTimer { effect, at, kind: TimerKind::RunLimit });
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
                Ask::Model => return self.open_call(Purpose::Answer),
                Ask::Tools(calls) if calls.is_empty() => break,
                Ask::Tools(calls) => {
                    self.open_batch(calls);
                    if !self.state.batch.is_empty() || self.state.finished.is_some() {
                        return;
                    }
                }
                Ask::Finish(output) => return self.conclude(output),
                Ask::Fail(error) if error.is_a(codes::LLM_MODEL_RETRY) => {
                    return self.reject_last_answer(error);
                }
                Ask::Fail(error) => return self.fail(error),
            }
        }
        let message =
            format!("pattern {} asks for tools that there are not, and for nothing else", self.kind);
        self.fail(Error::new(codes::PATTERN_ERROR, message));
    }

    /// What the pattern wants. One that panics fails the run, and nothing else.
    fn ask_pattern(&self) -> Ask {
        let view = View { transcript: &self.state.transcript, finish: self.state.finish.as_ref() };
        catch_unwind(AssertUnwindSafe(|| self.pattern.next(view))).unwrap_or_else(|panic| {
            let what = panic_message(&*panic);
            Ask::Fail(Error::new(codes::PATTERN_ERROR, format!("pattern {} panicked: {what}", self.kind)))
        })
    }

    fn cancel(&mut self, by: &str) {
        let error = Error::new(codes::EXECUTION_CANCELLED, format!("the run was cancelled by {by}"))
            .with_context("by", by)
            .with_attempts(self.attempts_cut_short(codes::EXECUTION_CANCELLED, Reason::Cancelled));
        self.fail(error);
    }

    fn time_out_step(&mut self) {
        if let Some(limit_ms) = self.agent.step_timeout_ms {
            let setting = "runtime.step_timeout_ms".to_owned();
            self.time_is_up(&format!("step {}", self.state.steps), &TimeLimit { limit_ms, setting });
        }
    }

    pub(super) fn fail(&mut self, error: Error) {
        let mut error = self.identified(error);
        let turn = self.state.transcript.get(self.state.turn..).unwrap_or_default();
        let mut said =
            turn.iter().filter(|message| message.role == Role::Assistant).map(|message| message.to_text());
        if let Some(text) = said.rfind(|text| !text.is_empty()) {
            error = error.with_context("partial_output", text);
        }
        // Also where it is a deadline or a failure of the provider that ends a correction.
        if let Some(last) = &self.state.validation.last_error {
            error = error.or_context("last_validation_error", last.as_str());
        }
        self.finish(error.stop_reason(), None, Some(error));
    }

    pub(super) fn finish(&mut self, stop_reason: StopReason, output: Option<String>, error: Option<Error>) {
        if let (Some(_), Some(error)) = (&self.state.call, &error) {
            self.announce_call_failed(error);
        }
        self.abort_all();
        let remembers = self.state.opening.as_ref().is_some_and(|opening| opening.remembers);
        // A turn that leaves calls unanswered would make every later request of the session invalid.
        let answered = self.state.transcript.last().is_none_or(|last| last.tool_calls().next().is_none());
        if stop_reason == StopReason::Completed && remembers && answered {
            // The next run takes the session's conversation for what its own first target said. The names of calls are
            // looked at all together, so that none gets one that an earlier turn has.
            // What was rejected is no part of what it goes on from.
            let said = self.state.transcript.iter().enumerate();
            let said = said.filter(|(place, _)| !self.state.set_aside.contains(place));
            let marked = said.map(|(place, message)| (message, self.state.author(place) > 0));
            let whole = normalise(marked, self.agent.target_at(0).call_ids);
            let messages = whole.into_iter().skip(self.state.turn).collect();
            let forgotten = self.state.forgotten();
            self.effects.push(Effect::AppendTranscript { messages, forgotten });
        }
        self.announce_end(stop_reason, error.as_ref());
        self.record(Fact::Finished { stop_reason, output, error: error.map(|error| error.details()) });
        if let Some(finished) = self.state.finished.clone() {
            self.effects.push(Effect::Finish(finished));
        }
    }

    /// Lets go of everything that is in flight.
    fn abort_all(&mut self) {
        let waiting = self.state.call.as_ref().and_then(|call| match call.waiting {
            Waiting::Nothing => None,
            Waiting::Reply { effect, .. }
            | Waiting::Backoff { timer: effect }
            | Waiting::Credential { effect } => Some(effect),
        });
        let step_timer = self.state.call.as_ref().and_then(|call| call.step_timer);
        let timer = self.state.opening.as_ref().and_then(|opening| opening.timer);
        let checked = self.state.validation.waiting.as_ref().map(|(effect, _)| *effect);
        let waiting = waiting.or(self.state.acquiring).or(checked);
        let open: Vec<_> = self.state.batch.iter().filter(|tool| tool.result.is_none()).cloned().collect();
        let effects = waiting.into_iter().chain(open.iter().map(|tool| tool.effect()));
        let effects = effects.chain(step_timer).chain(timer);
        self.effects.extend(effects.map(|effect| Effect::Abort { effect }));
        for tool in open {
            self.announce_tool_cancelled(&tool);
        }
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
