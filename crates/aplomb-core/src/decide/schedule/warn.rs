//! Settings that defeat each other.

use serde::{Deserialize, Serialize};

use super::Setting;
use crate::decide::{Allowances, Layer, Mode, Policy};

/// Settings that defeat each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Warning {
    /// The setting to look at, as the user knows it.
    pub setting: String,
    /// What is wrong with it, and the way out.
    pub message: String,
}

pub(super) fn warnings(policy: &Policy, setting: Setting) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn = |setting: &str, message: String| {
        found.push(Warning { setting: setting.to_owned(), message });
    };
    let longest_ms = policy.max_inline_wait_ms;
    let allowances = Allowances::of(policy, true);
    let layers = [
        (Layer::Transport, allowances.transport, "llm.retry.max_backoff_ms"),
        (Layer::Session, allowances.session, "agent.retry.session.max_retries"),
        (Layer::Exec, allowances.exec, "agent.retry.exec.max_retries"),
    ];
    for (layer, count, name) in layers {
        let backoff = policy.backoff(layer);
        if let Some(index) = (0..count).find(|index| backoff.delay_ms(*index) > longest_ms) {
            let (number, delay_ms) = (index + 1, backoff.delay_ms(index));
            warn(
                name,
                format!(
                    "the wait before retry {number} is up to {delay_ms} ms, and one of more than {longest_ms} ms is \
                     not slept: the call may end there; raise agent.retry.max_inline_wait_ms, or lower {name}"
                ),
            );
        }
    }
    if policy.transport.max_backoff_ms < policy.transport.initial_backoff_ms && allowances.transport > 0 {
        let (most, first) = (policy.transport.max_backoff_ms, policy.transport.initial_backoff_ms);
        warn(
            "llm.retry.max_backoff_ms",
            format!("the longest delay, {most} ms, is shorter than the first, {first} ms, which it replaces"),
        );
    }
    let first = layers.into_iter().find(|(_, count, _)| *count > 0);
    let first_delay_ms = first.map(|(layer, _, _)| policy.backoff(layer).delay_ms(0));
    let budget = policy.transport.total_budget_ms;
    let limits = [("llm.retry.total_budget_ms", budget), ("timeout", setting.deadline_ms)];
    for (name, limit_ms) in limits.into_iter().filter_map(|(name, limit)| Some((name, limit?))) {
        if let Some(delay_ms) = first_delay_ms.filter(|delay| *delay >= limit_ms) {
            warn(
                name,
                format!(
                    "{limit_ms} ms are over before the first wait, of up to {delay_ms} ms, is: there may be no \
                     retry at all; raise {name}, or lower the first delay"
                ),
            );
        }
        let clocks = [
            ("llm.timeouts.first_byte_ms", Some(setting.first_byte_ms)),
            ("llm.timeouts.attempt_ms", setting.attempt_ms),
        ];
        for (clock, clock_ms) in clocks.into_iter().filter_map(|(clock, ms)| Some((clock, ms?))) {
            if clock_ms >= limit_ms && first.is_some() {
                warn(
                    clock,
                    format!(
                        "an attempt that hears nothing takes {clock_ms} ms, and {name} is {limit_ms} ms: no time \
                         is left to retry it; lower {clock}, or raise {name}"
                    ),
                );
            }
        }
    }
    if let (Some(budget_ms), Some(deadline_ms)) = (budget, setting.deadline_ms)
        && budget_ms >= deadline_ms
    {
        warn(
            "llm.retry.total_budget_ms",
            format!(
                "{budget_ms} ms are no limit within a run of {deadline_ms} ms; lower it, or leave it out"
            ),
        );
    }
    if let (Some(step_ms), Some(attempt_ms)) = (setting.step_timeout_ms, setting.attempt_ms)
        && attempt_ms >= step_ms
    {
        warn(
            "runtime.step_timeout_ms",
            format!(
                "a step of {step_ms} ms ends before an attempt of {attempt_ms} ms does: no attempt that hangs is \
                 retried; raise it, or lower llm.timeouts.attempt_ms"
            ),
        );
    }
    if policy.mode == Mode::Layered && allowances.cap() > 100 {
        warn(
            "llm.retry.mode",
            format!(
                "layered: a failure that lasts costs {} requests; use additive, or lower the layers' retries",
                allowances.cap()
            ),
        );
    }
    found
}
