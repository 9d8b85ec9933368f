//! The machine's model calls: what is sent where, what follows a failure, and what a failed call says.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::assemble::{self, Assembly};
use super::machine::Turn;
use super::state::{Call, Waiting};
use super::{Effect, EffectId, Entry, Purpose, TimerKind};
use crate::decide::{
    Action, Allowances, Decision, Layer, Moment, Outcome, Restart, decide, pass_over, resend,
};
use crate::error::{Attempt, Code, Error};
use crate::failure::{Failure, Reason, Verdict};
use crate::message::{Message, normalise, paired};
use crate::record::Fact;
use crate::run::Target;

impl<'a> Turn<'a> {
    pub(super) fn open_call(&mut self, purpose: Purpose) {
        if let Some(error) = self.no_call_left() {
            return self.fail(error);
        }
        let by_exec = self.state.opening.as_ref().is_some_and(|opening| opening.entry == Entry::Exec);
        let allowances = Allowances::of(&self.agent.policy, by_exec);
        let (target, step_timeout_ms) = (self.first_target(), self.agent.step_timeout_ms);
        let step = self.state.steps + 1;
        self.record(Fact::CallOpened { step, purpose, allowances, target, step_timeout_ms });
        self.announce_call();
        self.start_attempt(Layer::First);
    }

    pub(super) fn start_attempt(&mut self, layer: Layer) {
        let Some(call) = &self.state.call else { return };
        let EffectId(next) = self.state.next_effect();
        let effect = EffectId(next);
        let step_left_ms = call.ledger.step_left_ms();
        let timer = step_left_ms.map(|_| EffectId(next + 1));
        self.record(Fact::AttemptStarted { effect, layer, timer });
        let Some(call) = &self.state.call else { return };
        let (target, attempt) = (call.target, call.ledger.attempts());
        let announce_restart = match self.agent.policy.restart {
            Restart::Marker => attempt > 1,
            Restart::Auto | Restart::Never => call.ledger.delivered(),
        };
        // The answer that was rejected is as void as one that broke off.
        let announce_restart = announce_restart || call.purpose == Purpose::Correction;
        let (messages, tools) = (self.conversation_for(target), self.agent.tools.clone());
        let output = self.wanted();
        self.effects.push(Effect::CallModel {
            effect,
            target,
            attempt,
            messages,
            tools,
            output,
            announce_restart,
        });
        if let (Some(effect), Some(left_ms)) = (timer, step_left_ms) {
            let at = self.at.saturating_add(left_ms);
            self.effects.push(Effect::SetTimer { effect, at, kind: TimerKind::StepLimit });
        }
    }

    /// The conversation without what was left out of it, as a target takes it. What the session gave is mended on the way:
    /// it stays as it is in the transcript, which counts what the memory is to forget.
    fn conversation_for(&self, target: usize) -> Vec<Arc<Message>> {
        let (before, since): (Vec<_>, Vec<_>) =
            self.state.conversation().partition(|(place, _)| *place < self.state.turn);
        let before = paired(before.into_iter().map(|(_, message)| message));
        let marked = before.iter().map(|message| (message, target > 0));
        let marked = marked
            .chain(since.iter().map(|(place, message)| (*message, self.state.author(*place) != target)));
        normalise(marked, self.agent.target_at(target).call_ids)
    }

    /// The target that a call begins with: the first that is not benched, or else the one whose bench ends first. A
    /// bench is a preference: where there is nobody else, the model is asked all the same.
    fn first_target(&self) -> usize {
        let bench = |place: &usize| self.state.benched_until(*place).filter(|until| *until > self.at);
        (0..self.agent.targets()).min_by_key(|place| bench(place).unwrap_or_default()).unwrap_or_default()
    }

    fn next_target(&self, after: usize) -> Option<usize> {
        let benched = |place: usize| self.state.benched_until(place).is_some_and(|until| until > self.at);
        (after + 1..self.agent.targets()).find(|place| !benched(*place))
    }

    /// The step's clock stands still: no attempt is under way.
    pub(super) fn stop_step_clock(&mut self) {
        if let Some(effect) = self.state.call.as_ref().and_then(|call| call.step_timer) {
            self.effects.push(Effect::Abort { effect });
        }
    }

    /// What follows a failure, or, where something that it came from has been `cured`, the sending that this is for.
    pub(super) fn decide_what_follows(&mut self, cured: Option<Layer>) {
        let Some(call) = &self.state.call else { return };
        let Some((failure, verdict)) = call.last.clone() else { return };
        let moment = self.moment(call);
        let (ledger, policy, from) = (&call.ledger, &self.agent.policy, call.target);
        let decision = match cured {
            None => decide(&failure, &verdict, ledger, policy, moment),
            Some(layer) => resend(layer, &failure, &verdict, ledger, policy, moment),
        };
        self.announce_decision(&*failure, &verdict, &decision);
        let effect = self.state.next_effect();
        match decision.action {
            Action::Send { delay_ms, .. } => {
                self.record(Fact::Decided { decision, timer: Some(effect) });
                let at = self.at.saturating_add(delay_ms);
                self.effects.push(Effect::SetTimer { effect, at, kind: TimerKind::Wait });
            }
            Action::Compact => {
                self.record(Fact::Decided { decision, timer: None });
                let cured = self.compact().then_some(Layer::Compaction);
                self.decide_what_follows(cured);
            }
            Action::ReadCredential => {
                self.record(Fact::Decided { decision, timer: Some(effect) });
                self.effects.push(Effect::ReadCredential { effect, target: from });
            }
            Action::FallBack { target, bench_ms } => {
                self.record(Fact::Decided { decision, timer: None });
                self.announce_fallback(from, target, verdict.reason, bench_ms);
                // What is permanent for this run may be another matter for the next one.
                if let Some(bench_ms) = bench_ms {
                    let until = self.at.saturating_add(bench_ms);
                    self.effects.push(Effect::BenchTarget { target: from, until });
                }
                self.start_attempt(Layer::Fallback);
            }
            Action::Stop { .. } => {
                self.record(Fact::Decided { decision: decision.clone(), timer: None });
                self.give_up(&failure, &verdict, &decision);
            }
        }
    }

    fn moment(&self, call: &Call) -> Moment {
        Moment {
            at: self.at,
            deadline: self.state.deadline(),
            is_spent: self.is_spent(),
            entropy: self.entropy,
            next_target: self.next_target(call.target),
            can_refresh: self.agent.target_at(call.target).rereads_credential
                || self.state.opening.as_ref().is_some_and(|opening| opening.own_credential),
        }
    }

    /// What follows where there was no credential to send: the next target, if the call has come this way by a failure;
    /// else the end, and the failure that led here is the cause.
    pub(super) fn pass_over(&mut self, error: Error) {
        let Some(call) = &self.state.call else { return };
        let Some((failure, verdict)) = call.last.clone() else { return self.fail(error) };
        let (from, made, moment) = (call.target, call.attempts.clone(), self.moment(call));
        let decision = pass_over(&failure, &verdict, &call.ledger, &self.agent.policy, moment);
        match decision.action {
            Action::FallBack { target, bench_ms } => {
                self.announce_decision(&error, &verdict, &decision);
                self.record(Fact::Decided { decision, timer: None });
                self.announce_fallback(from, target, Reason::Auth, bench_ms);
                self.start_attempt(Layer::Fallback);
            }
            Action::Stop { outcome: Outcome::OutOfTime, .. } => self.time_out(),
            Action::Stop { outcome: Outcome::OutOfBudget, .. } => self.spend_out(),
            _ => {
                let cause = failure.as_cause();
                self.fail(error.with_cause(cause).with_attempts(made));
            }
        }
    }

    /// Leaves out of the conversation what has been corrected since, or else what the assembler says, too; false if that
    /// did not make the request a tenth smaller, so that nothing is left out.
    fn compact(&mut self) -> bool {
        const BYTES_PER_TOKEN: u64 = 4;
        let said: Vec<_> = self.state.conversation().map(|(place, message)| (place, &**message)).collect();
        let sizes = said.iter().map(|(place, message)| (*place, assemble::size(message)));
        let sizes: Vec<_> = sizes.collect();
        let tools = assemble::size_of_tools(&self.agent.tools);
        let size_without = |out: &BTreeSet<usize>| {
            let kept = sizes.iter().filter(|(place, _)| !out.contains(place));
            kept.fold(tools, |sum, (_, size)| sum.saturating_add(*size))
        };
        let before = size_without(&BTreeSet::new());
        let mut dropped = self.corrected_since();
        // Without those the request is what an earlier correction was, which was not too large.
        if !assemble::is_smaller(before, size_without(&dropped)) {
            dropped.extend(self.assembled(&said));
        }
        let after = size_without(&dropped);
        let smaller = assemble::is_smaller(before, after);
        let (dropped, after) = if smaller { (dropped, after) } else { (BTreeSet::new(), before) };
        let (tokens_before, tokens_after) = (before / BYTES_PER_TOKEN, after / BYTES_PER_TOKEN);
        if smaller {
            self.announce_compaction(dropped.len(), tokens_before, tokens_after);
        }
        self.record(Fact::Compacted { dropped: dropped.into_iter().collect(), tokens_before, tokens_after });
        smaller
    }

    /// The answers that were rejected before the last one, and what was said about them: of no use any more.
    fn corrected_since(&self) -> BTreeSet<usize> {
        let last = self.state.being_corrected();
        let said = self.state.conversation().map(|(place, _)| place);
        said.filter(|place| self.state.set_aside.contains(place) && !last.contains(place)).collect()
    }

    /// What the assembler leaves out, by its place in the transcript. It is not shown what is being corrected, which
    /// stays: to it, the run's turn begins with what the run was asked.
    fn assembled(&self, said: &[(usize, &Message)]) -> BTreeSet<usize> {
        let shown: Vec<_> =
            said.iter().filter(|(place, _)| !self.state.set_aside.contains(place)).copied().collect();
        let messages: Vec<_> = shown.iter().map(|(_, message)| *message).collect();
        // An assembler that panics has nothing to say, and nothing else is disturbed.
        let assembly = catch_unwind(AssertUnwindSafe(|| self.agent.assembler.shrink(&messages)));
        let dropped = match assembly {
            Ok(Assembly::Drop(places)) => assemble::permitted(&messages, places),
            Ok(Assembly::Fits) | Err(_) => BTreeSet::new(),
        };
        let dropped = shown.iter().enumerate().filter(|(index, _)| dropped.contains(index));
        dropped.map(|(_, (place, _))| *place).collect()
    }

    /// The call has failed for good, and the run with it.
    fn give_up(&mut self, failure: &Failure, verdict: &Verdict, decision: &Decision) {
        match decision.action {
            Action::Stop { outcome: Outcome::OutOfTime, .. } => self.time_out(),
            Action::Stop { outcome: Outcome::OutOfBudget, .. } => self.spend_out(),
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
        let target = self.asked();
        let seen = attempts.last().map(|attempt| attempt.error()).unwrap_or_default();
        let mut error = Error::new(verdict.code(), format!("{} {how}: {seen}", target.name()))
            .with_context("provider", target.provider.as_str())
            .with_context("model", target.model.as_str())
            .with_context("endpoint", Some(failure.endpoint.as_str()).filter(|endpoint| !endpoint.is_empty()))
            .with_context("reason", verdict.reason.as_str())
            .with_context("status", failure.status)
            .with_context("request_id", failure.request_id.as_deref())
            .with_context("excerpt", failure.excerpt())
            .with_cause(failure.as_cause())
            .with_attempts(attempts);
        let setting = failure.transport.as_ref().and_then(|fault| fault.kind.setting());
        if let Some(setting) = setting {
            error =
                error.with_context("setting", setting).with_hint(format!("raise {setting}, or ask for less"));
        } else if let Some(hint) = self.too_late_for(&decision.rule) {
            error = error.with_hint(hint);
        } else if let Some(hint) = verdict.reason.hint() {
            let wants_schema = self.wanted().is_some();
            error = if verdict.reason == Reason::InvalidRequest && wants_schema {
                let way_out =
                    "if it does not take the output's schema, set llm.output_schema to instructions";
                error.with_hint(format!("{hint}; {way_out}"))
            } else {
                error.with_hint(hint)
            };
        }
        // The first of all the targets that can be asked again is enough.
        let returns_at = self.state.call.as_ref().and_then(|call| call.returns_at);
        let of_others = returns_at.map(|at| at.saturating_sub(self.at));
        let wait_ms = of_others.into_iter().chain(*resume_after_ms).min();
        if let (Some(wait_ms), Some(opening)) = (wait_ms, &self.state.opening) {
            let resume_at_ms = opening.wall_ms.saturating_add(self.at).saturating_add(wait_ms);
            error = error.with_context("retry_after_ms", wait_ms).with_context("resume_at", resume_at_ms);
        }
        error
    }

    /// The target of the call under way.
    pub(super) fn asked(&self) -> &'a Target {
        self.agent.target_at(self.state.call.as_ref().map_or(0, |call| call.target))
    }

    /// The attempts of the call under way, the one in flight included: it was a request like any other.
    pub(super) fn attempts_cut_short(&self, code: Code, reason: Reason) -> Vec<Attempt> {
        let Some(call) = &self.state.call else { return Vec::new() };
        let mut attempts = call.attempts.clone();
        if matches!(call.waiting, Waiting::Reply { .. }) {
            let (number, layer) = (call.ledger.attempts(), call.layer.as_str());
            let target = (call.target > 0).then(|| self.asked().name());
            attempts.push(Attempt { target, ..Attempt::cut_short(number, layer, code, reason.as_str()) });
        }
        attempts
    }

    pub(super) fn waiting_for(&self) -> String {
        match &self.state.call {
            Some(Call { waiting: Waiting::Backoff { .. }, ledger, .. }) => {
                format!(
                    "the back-off before attempt {} of model call {}",
                    ledger.attempts() + 1,
                    self.state.steps
                )
            }
            Some(Call { waiting: Waiting::Credential { .. }, .. }) => {
                format!("the credential of {}", self.asked().name())
            }
            Some(call) => format!("attempt {} of model call {}", call.ledger.attempts(), self.state.steps),
            None if self.state.acquiring.is_some() => "its turn in the session".to_owned(),
            None if self.state.validation.waiting.is_some() => "the check of its output".to_owned(),
            None => {
                let open = self.state.batch.iter().filter(|tool| tool.result.is_none());
                let names: Vec<_> = open.map(|tool| tool.call.name.as_str()).collect();
                format!("tool {}", names.join(", "))
            }
        }
    }

    pub(super) fn awaits_reply(&self, id: EffectId) -> bool {
        let waiting = self.state.call.as_ref().map(|call| call.waiting);
        matches!(waiting, Some(Waiting::Reply { effect, .. }) if effect == id)
    }

    pub(super) fn awaits_credential(&self, id: EffectId) -> bool {
        let waiting = self.state.call.as_ref().map(|call| call.waiting);
        matches!(waiting, Some(Waiting::Credential { effect }) if effect == id)
    }

    /// The credential was read again.
    pub(super) fn credential_read(&mut self, effect: EffectId, changed: bool) {
        self.record(Fact::CredentialRead { effect, changed });
        self.decide_what_follows(changed.then_some(Layer::Refresh));
    }
}
