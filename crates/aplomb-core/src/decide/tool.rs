//! Decides whether a failed tool call is made again. Touches no model call's ledger.

use serde::{Deserialize, Serialize};

use super::{Backoff, Jitter, Moment, Policy, backoff};
use crate::error::{Error, codes};

/// The `retry` tool executor's settings: `docs/spec/retry.md` §2, "Tools".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolRetry {
    /// Attempts including the first; 1 disables. 1 to 100.
    pub max_attempts: u32,
    /// The first delay, in ms.
    pub initial_backoff_ms: u64,
    /// The longest delay, in ms.
    pub max_backoff_ms: u64,
    /// What each delay is multiplied by to give the next.
    pub backoff_multiplier: f64,
    /// How delays are spread.
    pub jitter: Jitter,
}

impl Default for ToolRetry {
    fn default() -> ToolRetry {
        ToolRetry {
            max_attempts: 3,
            initial_backoff_ms: 200,
            max_backoff_ms: 5_000,
            backoff_multiplier: 2.0,
            jitter: Jitter::Equal,
        }
    }
}

impl ToolRetry {
    /// One attempt, whatever happens: the `safe` executor.
    pub fn never() -> ToolRetry {
        ToolRetry { max_attempts: 1, ..ToolRetry::default() }
    }
}

/// How long to wait before the call is made again; `None` where it is not. `attempts` counts the one that failed.
///
/// Exactly the errors whose `retryable` is true are worth another attempt, but for the time-out of a tool that is not
/// idempotent: it may have run. The error's `retry_after_ms` is a floor that jitter never undercuts. A wait longer than
/// `max_inline_wait_ms`, or that would end after the deadline, is not begun.
pub fn decide_tool(
    error: &Error,
    idempotent: bool,
    attempts: u32,
    policy: &Policy,
    moment: Moment,
) -> Option<u64> {
    let retry = &policy.tools;
    let may_have_run = error.is_a(codes::TOOL_TIMEOUT) && !idempotent;
    if !error.retryable() || may_have_run || attempts >= retry.max_attempts {
        return None;
    }
    let backoff = Backoff {
        initial_ms: retry.initial_backoff_ms,
        multiplier: retry.backoff_multiplier,
        max_ms: retry.max_backoff_ms,
    };
    let (for_backoff, for_hint) = backoff::two_draws(moment.entropy);
    let layer_ms = retry.jitter.apply(backoff.delay_ms(attempts.saturating_sub(1)), for_backoff);
    let hint_ms = error.context("retry_after_ms").and_then(serde_json::Value::as_u64).unwrap_or_default();
    let left_ms = moment.deadline.map_or(u64::MAX, |deadline| deadline.saturating_sub(moment.at));
    if layer_ms.max(hint_ms) > left_ms.min(policy.max_inline_wait_ms) {
        return None;
    }
    let spread_ms = backoff::hint_spread(retry.jitter, hint_ms, left_ms);
    Some(layer_ms.max(hint_ms.saturating_add(backoff::uniform(for_hint, spread_ms))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment =
        Moment { at: 0, deadline: None, is_spent: false, entropy: 0, next_target: None, can_refresh: false };

    fn spread() -> Policy {
        Policy { tools: ToolRetry::default(), ..Policy::default() }
    }

    fn exact() -> Policy {
        Policy { tools: ToolRetry { jitter: Jitter::None, ..ToolRetry::default() }, ..Policy::default() }
    }

    #[test]
    fn what_is_retryable_gets_two_more_attempts_after_200_and_400_ms() {
        let error = Error::new(codes::TOOL_UNAVAILABLE, "down");
        let waits = [1, 2, 3].map(|attempts| decide_tool(&error, false, attempts, &exact(), NOW));
        assert_eq!(waits, [Some(200), Some(400), None]);
    }

    #[test]
    fn what_is_not_retryable_gets_none() {
        for code in [codes::TOOL_ERROR, codes::TOOL_PERMANENT, codes::TOOL_VALIDATION, codes::TOOL_CANCELLED]
        {
            assert_eq!(decide_tool(&Error::new(code, ""), true, 1, &exact(), NOW), None, "{code}");
        }
    }

    #[test]
    fn a_tool_that_timed_out_may_have_run_and_is_repeated_only_if_that_does_no_harm() {
        let error = Error::new(codes::TOOL_TIMEOUT, "slow");
        assert_eq!(decide_tool(&error, false, 1, &exact(), NOW), None);
        assert_eq!(decide_tool(&error, true, 1, &exact(), NOW), Some(200));
    }

    #[test]
    fn the_services_hint_is_a_floor_and_the_deadline_a_ceiling() {
        let error = Error::new(codes::TOOL_RATE_LIMIT, "slow down").with_context("retry_after_ms", 3_000);
        assert_eq!(decide_tool(&error, false, 1, &exact(), NOW), Some(3_000));
        let spread = decide_tool(&error, false, 1, &spread(), Moment { entropy: u64::MAX, ..NOW });
        assert!(spread.is_some_and(|wait| (3_000..=3_300).contains(&wait)), "{spread:?}");
        assert_eq!(decide_tool(&error, false, 1, &exact(), Moment { deadline: Some(2_999), ..NOW }), None);
        let hour = Error::new(codes::TOOL_RATE_LIMIT, "slow down").with_context("retry_after_ms", 3_600_000);
        assert_eq!(decide_tool(&hour, false, 1, &exact(), NOW), None);
    }
}
