//! Decides what happens after a failure. Knows the failure, the call's ledger and the policy; knows no clock, no socket,
//! no other call.
//!
//! This is `docs/spec/retry.md` §5: allowances of layers add, they never multiply. In `layered` mode the same ledger runs
//! as an odometer, for comparison.

mod backoff;
mod layered;
mod ledger;
mod policy;
pub mod schedule;
mod tool;

use serde::{Deserialize, Serialize};

pub use backoff::Backoff;
pub use ledger::{Allowances, Layer, Ledger, Level};
pub use policy::{ExecRetry, Jitter, Mode, Policy, Restart, ResumeRetry, SessionRetry, TransportRetry};
pub use tool::{ToolRetry, decide_tool};

use crate::failure::{Failure, Reason, Verdict, Wait};

/// How long a target that was left is passed over, at least.
const BENCH_MS: u64 = 60_000;

/// What is to happen next, and the rule that says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// What is to happen.
    pub action: Action,
    /// The step of the ledger rule that decided.
    pub rule: String,
}

/// What is to happen after a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
#[non_exhaustive]
pub enum Action {
    /// Wait, then send again.
    Send {
        /// The layer whose allowance pays.
        layer: Layer,
        /// How long to wait.
        delay_ms: u64,
        /// Who asked for that long: `backoff`, or where the provider said so.
        delay_source: String,
    },
    /// Leave out what can be left out of the conversation, and [`resend`] if that made it smaller; else decide again.
    Compact,
    /// Read the credential again, and [`resend`] if it is another one now; else decide again.
    ReadCredential,
    /// Send to another target, at once.
    FallBack {
        /// Which of the agent's targets.
        target: usize,
        /// How long the one that is left is passed over; for the rest of the run where this is missing.
        bench_ms: Option<u64>,
    },
    /// Give up.
    Stop {
        /// How the error puts it.
        outcome: Outcome,
        /// The wait that the provider stated, if it did. Sending earlier is pointless.
        resume_after_ms: Option<u64>,
    },
}

/// How a call that is given up on ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The same request would fail the same way.
    Permanent,
    /// It failed after as many attempts as were to be had.
    AfterAttempts,
    /// The run is out of time, which is its own failure; this one is the cause.
    OutOfTime,
    /// The run has cost what it may, which is its own failure; this one is the cause.
    OutOfBudget,
}

/// When a decision is made, what there is to turn to, and what decides between equals.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moment {
    /// The run's clock, in ms.
    pub at: u64,
    /// The run's deadline on the same clock.
    pub deadline: Option<u64>,
    /// Whether the run has cost all that it may, so that nothing more is sent.
    pub is_spent: bool,
    /// One draw of entropy.
    pub entropy: u64,
    /// The next target that is not benched.
    pub next_target: Option<usize>,
    /// Whether the credential can be read again.
    pub can_refresh: bool,
}

impl Moment {
    /// Until when the call may wait: the run's deadline, and the end of its own budget, which can only be earlier.
    fn waits_end(&self, ledger: &Ledger, policy: &Policy) -> Option<u64> {
        self.deadline.into_iter().chain(budget_end(ledger, policy)).min()
    }
}

fn budget_end(ledger: &Ledger, policy: &Policy) -> Option<u64> {
    policy.transport.total_budget_ms.map(|budget| ledger.opened_at().saturating_add(budget))
}

/// The ledger rule. `ledger` already counts the attempt that failed. `verdict` is that of `failure`, which itself is
/// looked at in `layered` mode only.
///
/// ```
/// use aplomb_core::decide::{Action, Allowances, Ledger, Moment, Policy, decide};
/// use aplomb_core::failure::{Failure, classify};
///
/// let policy = Policy::default();
/// let mut ledger = Ledger::new(Allowances::of(&policy, false));
/// ledger.begin_attempt();
/// let failure = Failure::status(401, b"");
/// let decision = decide(&failure, &classify(&failure), &ledger, &policy, Moment::default());
/// assert!(matches!(decision.action, Action::Stop { .. }));
/// assert_eq!(decision.rule, "verdict.permanent");
/// ```
pub fn decide(
    failure: &Failure,
    verdict: &Verdict,
    ledger: &Ledger,
    policy: &Policy,
    moment: Moment,
) -> Decision {
    let call = Call { failure, verdict, ledger, policy, moment };
    // 1. Cancelled, out of time, or out of budget.
    if let Err(decision) = call.may_go_on() {
        return decision;
    }
    // 2. What another request may cure, where one can be had.
    if let Some(decision) = call.remedy() {
        return decision;
    }
    // 4. What cannot pass. Before step 3, which would call it "failed after N attempts" where it is the last one.
    if let Some(rule) = call.is_permanent() {
        return call.fall_back_or_stop(Outcome::Permanent, rule);
    }
    // 3. The cap, which no combination of layers exceeds.
    if ledger.attempts() >= ledger.cap() {
        return call.fall_back_or_stop(Outcome::AfterAttempts, "ledger.cap");
    }
    // 4 and 5. What nobody knows, and what may pass. 6. If its wait is one that may be slept.
    call.paying_layer()
        .and_then(|layer| call.send(layer))
        .unwrap_or_else(|rule| call.fall_back_or_stop(Outcome::AfterAttempts, rule))
}

/// The decision after something has changed that a failure came from: the request is smaller ([`Layer::Compaction`]), or
/// the credential is another one ([`Layer::Refresh`]). It passes step 6 like every other.
pub fn resend(
    layer: Layer,
    failure: &Failure,
    verdict: &Verdict,
    ledger: &Ledger,
    policy: &Policy,
    moment: Moment,
) -> Decision {
    let call = Call { failure, verdict, ledger, policy, moment };
    if let Err(decision) = call.may_go_on() {
        return decision;
    }
    call.send(layer).unwrap_or_else(|rule| call.fall_back_or_stop(Outcome::AfterAttempts, rule))
}

/// The decision after the target that the failure led to could not be asked at all: there was no credential to send. The
/// next one is asked instead. What could not be asked is left for the rest of the run, and for no other run.
pub fn pass_over(
    failure: &Failure,
    verdict: &Verdict,
    ledger: &Ledger,
    policy: &Policy,
    moment: Moment,
) -> Decision {
    let call = Call { failure, verdict, ledger, policy, moment };
    if let Err(decision) = call.may_go_on() {
        return decision;
    }
    let mut decision = call.fall_back_or_stop(Outcome::AfterAttempts, "credential.unreadable");
    if let Action::FallBack { bench_ms, .. } = &mut decision.action {
        *bench_ms = None;
    }
    decision
}

/// A call whose last attempt has failed.
struct Call<'a> {
    failure: &'a Failure,
    verdict: &'a Verdict,
    ledger: &'a Ledger,
    policy: &'a Policy,
    moment: Moment,
}

impl Call<'_> {
    /// 1. Whether anything may still be sent at all.
    fn may_go_on(&self) -> Result<(), Decision> {
        let at = self.moment.at;
        if self.verdict.reason == Reason::Cancelled {
            return Err(self.stop(Outcome::Permanent, "cancelled"));
        }
        if self.moment.deadline.is_some_and(|deadline| at >= deadline) {
            return Err(self.stop(Outcome::OutOfTime, "deadline.passed"));
        }
        if self.moment.is_spent {
            return Err(self.stop(Outcome::OutOfBudget, "budget.cost"));
        }
        Ok(())
    }

    /// Whether the call and its step have time for another attempt, or else the rule by which none may begin. The page has no
    /// word for it: it is not the run's deadline, so the call fails with its own failure.
    fn has_time(&self) -> Result<(), &'static str> {
        if budget_end(self.ledger, self.policy).is_some_and(|end| self.moment.at >= end) {
            return Err("budget.spent");
        }
        // The attempt's clock and the step's have run out together: the attempt's wins, and no time is left for another.
        if self.ledger.step_left_ms() == Some(0) {
            return Err("step.spent");
        }
        Ok(())
    }

    /// 2. Compaction for an overflow, another credential for one that was refused.
    fn remedy(&self) -> Option<Decision> {
        (self.may_restart() && self.has_time().is_ok()).then_some(())?;
        let (action, rule) = match self.verdict.reason {
            Reason::ContextOverflow if self.ledger.left(Layer::Compaction) > 0 => {
                (Action::Compact, "overflow.compact")
            }
            Reason::Auth if self.moment.can_refresh && self.ledger.left(Layer::Refresh) > 0 => {
                (Action::ReadCredential, "auth.read_credential")
            }
            _ => return None,
        };
        Some(Decision { action, rule: rule.to_owned() })
    }

    /// The rule by which the same request would fail the same way.
    fn is_permanent(&self) -> Option<&'static str> {
        let Verdict { retryable, reason, .. } = self.verdict;
        // §3: an overflow is never sent again as it is, whoever calls it retryable.
        if *reason == Reason::ContextOverflow || (!retryable && *reason != Reason::Unknown) {
            return Some("verdict.permanent");
        }
        let marked = self.policy.mode == Mode::Layered
            && *reason == Reason::Unknown
            && layered::is_permanent(self.failure);
        marked.then_some("layered.permanent_text")
    }

    /// Whether another attempt may follow what has been handed over.
    fn may_restart(&self) -> bool {
        !self.ledger.delivered() || self.policy.restart != Restart::Never
    }

    fn paying_layer(&self) -> Result<Layer, &'static str> {
        match self.policy.mode {
            Mode::Additive if self.verdict.reason == Reason::Unknown => self.pays_for_unknown(),
            Mode::Additive => self.pays_in_turn(),
            Mode::Layered => self.pays_by_odometer(),
        }
    }

    /// 4. What nobody knows is exec's alone.
    fn pays_for_unknown(&self) -> Result<Layer, &'static str> {
        let may = self.ledger.left(Layer::Exec) > 0 && !self.ledger.delivered();
        may.then_some(Layer::Exec).ok_or("verdict.unknown")
    }

    /// 5. What may pass: transport first, then the session.
    fn pays_in_turn(&self) -> Result<Layer, &'static str> {
        let Call { ledger, .. } = self;
        let delivered = ledger.delivered();
        if ledger.level() == Level::Transport && ledger.left(Layer::Transport) > 0 && self.transport_serves()
        {
            return Ok(Layer::Transport);
        }
        if ledger.left(Layer::Session) > 0 {
            return self.may_restart().then_some(Layer::Session).ok_or("restart.never");
        }
        // With the other owners disabled, exec is the only one.
        if ledger.is_exec_only() && ledger.left(Layer::Exec) > 0 && !delivered {
            return Ok(Layer::Exec);
        }
        Err("ledger.spent")
    }

    /// The innermost layer that would try again and has something left.
    fn pays_by_odometer(&self) -> Result<Layer, &'static str> {
        let served = layered::served(self.failure, self.verdict);
        let left = |layer| self.ledger.left(layer) > 0;
        if served.transport && left(Layer::Transport) && self.transport_serves() {
            return Ok(Layer::Transport);
        }
        let outer = if served.session && left(Layer::Session) {
            Layer::Session
        } else if served.exec && left(Layer::Exec) {
            Layer::Exec
        } else if self.verdict.reason == Reason::Unknown {
            return Err("verdict.unknown");
        } else {
            return Err("ledger.spent");
        };
        self.may_restart().then_some(outer).ok_or("restart.never")
    }

    /// Whether the failure is one of those that transport may retry.
    fn transport_serves(&self) -> bool {
        let connection_class = matches!(self.verdict.reason, Reason::Connection | Reason::Timeout);
        let told_to = self.policy.transport.retry_on_connection_errors || !connection_class;
        told_to && !self.ledger.delivered()
    }

    /// 6. The wait, if it is one that may be slept.
    fn send(&self, layer: Layer) -> Result<Decision, &'static str> {
        self.has_time()?;
        let Call { verdict, ledger, policy, moment, .. } = self;
        let (for_backoff, for_hint) = backoff::two_draws(moment.entropy);
        let jitter = policy.transport.jitter;
        let layer_ms = jitter.apply(policy.backoff(layer).delay_ms(ledger.used(layer)), for_backoff);
        let hint_ms = verdict.wait.map_or(0, |hint| hint.delay_ms);
        let floor_ms = layer_ms.max(hint_ms);
        if floor_ms > policy.max_inline_wait_ms {
            return Err("wait.too_long");
        }
        let ends = moment.waits_end(ledger, policy);
        let left_ms = ends.map_or(u64::MAX, |end| end.saturating_sub(moment.at));
        if floor_ms > left_ms {
            let by_deadline = ends == moment.deadline;
            return Err(if by_deadline { "wait.past_deadline" } else { "wait.past_budget" });
        }
        let spread_ms = backoff::hint_spread(jitter, hint_ms, left_ms);
        let delay_ms = layer_ms.max(hint_ms.saturating_add(backoff::uniform(for_hint, spread_ms)));
        let delay_source = match verdict.wait {
            Some(Wait { source, .. }) if hint_ms >= layer_ms => source.as_str(),
            _ => "backoff",
        };
        Ok(Decision {
            action: Action::Send { layer, delay_ms, delay_source: delay_source.to_owned() },
            rule: layer.rule().to_owned(),
        })
    }

    /// 7. The next target, where there is one and the failure is one that it may help with; else the end.
    ///
    /// Step 3 sends an unknown failure here too, while step 4 has it fall back only if it is listed: it is, wherever it
    /// comes from, since another model gets the same request that nobody understood the failure of.
    fn fall_back_or_stop(&self, outcome: Outcome, rule: &str) -> Decision {
        let permanent = self.is_permanent().is_some();
        let must_be_listed = permanent || self.verdict.reason == Reason::Unknown;
        let may = !must_be_listed || self.policy.fallback_on.contains(&self.verdict.reason);
        match self.moment.next_target {
            Some(target) if may && self.may_restart() && self.has_time().is_ok() => {
                let hint_ms = self.verdict.wait.map_or(0, |hint| hint.delay_ms);
                let bench_ms = (!permanent).then_some(hint_ms.max(BENCH_MS));
                Decision {
                    action: Action::FallBack { target, bench_ms },
                    rule: format!("{rule} > {}", Layer::Fallback.rule()),
                }
            }
            _ => self.stop(outcome, rule),
        }
    }

    fn stop(&self, outcome: Outcome, rule: &str) -> Decision {
        let resume_after_ms = self.verdict.wait.map(|wait| wait.delay_ms);
        Decision { action: Action::Stop { outcome, resume_after_ms }, rule: rule.to_owned() }
    }
}
