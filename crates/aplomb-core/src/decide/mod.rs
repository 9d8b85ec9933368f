//! Decides what happens after a failure. Knows the verdict, the call's ledger and the policy; knows no clock, no socket,
//! no other call.
//!
//! This is `docs/spec/retry.md` §5: allowances of layers add, they never multiply.

mod backoff;
mod ledger;
mod policy;
mod tool;

use serde::{Deserialize, Serialize};

pub use backoff::Backoff;
pub use ledger::{Allowances, Layer, Ledger, Level};
pub use policy::{ExecRetry, Jitter, Policy, Restart, SessionRetry, TransportRetry};
pub use tool::{ToolRetry, decide_tool};

use crate::failure::{Reason, Verdict, Wait};

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
}

/// When a decision is made, and what decides between equals.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The run's clock, in ms.
    pub at: u64,
    /// The run's deadline on the same clock.
    pub deadline: Option<u64>,
    /// One draw of entropy.
    pub entropy: u64,
}

/// The ledger rule. `ledger` already counts the attempt that failed.
///
/// ```
/// use aplomb_core::decide::{Action, Allowances, Ledger, Moment, Policy, decide};
/// use aplomb_core::failure::{Failure, classify};
///
/// let policy = Policy::default();
/// let mut ledger = Ledger::new(Allowances::of(&policy, false));
/// ledger.begin_attempt();
/// let verdict = classify(&Failure::status(401, b""));
/// let decision = decide(&verdict, &ledger, &policy, Moment { at: 0, deadline: None, entropy: 0 });
/// assert!(matches!(decision.action, Action::Stop { .. }));
/// assert_eq!(decision.rule, "verdict.permanent");
/// ```
pub fn decide(verdict: &Verdict, ledger: &Ledger, policy: &Policy, moment: Moment) -> Decision {
    let stop = |outcome, rule: &str| Decision {
        action: Action::Stop { outcome, resume_after_ms: verdict.wait.map(|wait| wait.delay_ms) },
        rule: rule.to_owned(),
    };
    // 1. Cancelled, or out of time.
    if verdict.reason == Reason::Cancelled {
        return stop(Outcome::Permanent, "cancelled");
    }
    if moment.deadline.is_some_and(|deadline| moment.at >= deadline) {
        return stop(Outcome::OutOfTime, "deadline.passed");
    }
    // 4. What cannot pass. Before step 3, which would call it "failed after N attempts" where it is the last one.
    if !verdict.retryable && verdict.reason != Reason::Unknown {
        return stop(Outcome::Permanent, "verdict.permanent");
    }
    // 3. The cap, which no combination of layers exceeds.
    if ledger.attempts() >= ledger.cap() {
        return stop(Outcome::AfterAttempts, "ledger.cap");
    }
    // 4. What nobody knows.
    let layer = if verdict.reason == Reason::Unknown {
        if ledger.left(Layer::Exec) > 0 && !ledger.delivered() {
            Layer::Exec
        } else {
            return stop(Outcome::AfterAttempts, "verdict.unknown");
        }
    } else {
        // 5. What may pass: transport first, then the session.
        match paying_layer(verdict, ledger, policy) {
            Ok(layer) => layer,
            Err(rule) => return stop(Outcome::AfterAttempts, rule),
        }
    };
    send(verdict.wait, layer, ledger, policy, moment)
        .unwrap_or_else(|rule| stop(Outcome::AfterAttempts, rule))
}

fn paying_layer(verdict: &Verdict, ledger: &Ledger, policy: &Policy) -> Result<Layer, &'static str> {
    let connection_class = matches!(verdict.reason, Reason::Connection | Reason::Timeout);
    let transport_serves = policy.transport.retry_on_connection_errors || !connection_class;
    let delivered = ledger.delivered();
    if ledger.level() == Level::Transport
        && transport_serves
        && ledger.left(Layer::Transport) > 0
        && !delivered
    {
        return Ok(Layer::Transport);
    }
    if ledger.left(Layer::Session) > 0 {
        return if delivered && policy.restart == Restart::Never {
            Err("restart.never")
        } else {
            Ok(Layer::Session)
        };
    }
    // With the other owners disabled, exec is the only one.
    if ledger.is_exec_only() && ledger.left(Layer::Exec) > 0 && !delivered {
        return Ok(Layer::Exec);
    }
    Err("ledger.spent")
}

/// 6. The wait, if it is one that may be slept.
fn send(
    hint: Option<Wait>,
    layer: Layer,
    ledger: &Ledger,
    policy: &Policy,
    moment: Moment,
) -> Result<Decision, &'static str> {
    let (for_backoff, for_hint) = backoff::two_draws(moment.entropy);
    let backoff = policy.backoff(layer);
    let layer_ms = policy.transport.jitter.apply(backoff.delay_ms(ledger.used(layer)), for_backoff);
    let hint_ms = hint.map_or(0, |hint| hint.delay_ms);
    let floor_ms = layer_ms.max(hint_ms);
    if floor_ms > policy.max_inline_wait_ms {
        return Err("wait.too_long");
    }
    let left_ms = moment.deadline.map_or(u64::MAX, |deadline| deadline.saturating_sub(moment.at));
    if floor_ms > left_ms {
        return Err("wait.past_deadline");
    }
    let spread_ms = backoff::hint_spread(policy.transport.jitter, hint_ms, left_ms);
    let delay_ms = layer_ms.max(hint_ms.saturating_add(backoff::uniform(for_hint, spread_ms)));
    let (rule, delay_source) = match hint {
        Some(hint) if hint_ms >= layer_ms => (layer.rule(), hint.source.as_str()),
        _ => (layer.rule(), "backoff"),
    };
    Ok(Decision {
        action: Action::Send { layer, delay_ms, delay_source: delay_source.to_owned() },
        rule: rule.to_owned(),
    })
}
