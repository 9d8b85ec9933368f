//! The machine's limits, the request's and the agent's: what may still be begun, and how a run ends that has used up what it
//! may.

use super::TimeLimit;
use super::budget::RunBudget;
use super::machine::Turn;
use super::state::ToolWaiting;
use crate::error::{Attempt, Error, codes};
use crate::failure::Reason;

/// A limit in a count, and who set it.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) limit: u32,
    by_request: bool,
}

impl Bound {
    /// The tighter of two limits; where they are equal, the request's.
    fn tighter(request: Option<u32>, agent: Option<u32>) -> Option<Bound> {
        let request = request.map(|limit| Bound { limit, by_request: true });
        let agent = agent.map(|limit| Bound { limit, by_request: false });
        // Of equals, the first is taken.
        request.into_iter().chain(agent).min_by_key(|bound| bound.limit)
    }

    /// The error of a run that has used up what `field` gives it of a `kind`, and wants more. `what` it was, in words.
    fn passed(self, kind: &str, field: &str, what: &str, current: u64) -> Error {
        let Bound { limit, by_request } = self;
        let (code, of) = if by_request {
            (codes::EXECUTION_BUDGET_EXHAUSTED, "the budget's ")
        } else {
            (codes::EXECUTION_MAX_STEPS, "runtime.")
        };
        let message = format!("the agent made {current} {what} and is not done; {of}{field} is {limit}");
        let error = Error::new(code, message)
            .with_hint(format!("raise {of}{field}, or make the pattern converge"))
            .with_context("current", current)
            .with_context("limit", limit);
        if by_request { error.with_context("kind", kind) } else { error }
    }
}

impl Turn<'_> {
    fn budget(&self) -> RunBudget {
        self.state.opening.as_ref().map(|opening| opening.budget).unwrap_or_default()
    }

    /// Why no further model call may be begun, if so.
    pub(super) fn no_call_left(&self) -> Option<Error> {
        let steps = self.state.steps;
        let bound = Bound::tighter(self.budget().max_steps, Some(self.agent.max_steps));
        match bound.filter(|bound| steps >= bound.limit) {
            Some(bound) => Some(bound.passed("steps", "max_steps", "model calls", steps.into())),
            None => self.is_spent().then(|| self.over_cost()).flatten(),
        }
    }

    fn tool_bound(&self) -> Option<Bound> {
        Bound::tighter(self.budget().max_tool_calls, self.agent.max_tool_calls)
    }

    /// How many more tool calls may be begun. Each that is under way has its place, and one that waits to be made again has
    /// one for that.
    pub(super) fn tool_room(&self) -> usize {
        let Some(bound) = self.tool_bound() else { return usize::MAX };
        let open = self.state.batch.iter().filter(|tool| tool.result.is_none());
        let taken = open.filter(|tool| !matches!(tool.waiting, ToolWaiting::Room(_))).count();
        let used = usize::try_from(self.state.usage.tool_calls).unwrap_or(usize::MAX);
        (bound.limit as usize).saturating_sub(used.saturating_add(taken))
    }

    /// The run's end: the model asks for more tool calls than there is room for.
    pub(super) fn no_tool_call_left(&mut self) {
        let Some(bound) = self.tool_bound() else { return };
        let made = self.state.usage.tool_calls;
        self.fail(bound.passed("tool_calls", "max_tool_calls", "tool calls", made));
    }

    /// Whether nothing is left of what the run may cost.
    pub(super) fn is_spent(&self) -> bool {
        self.budget().max_cost_usd.is_some_and(|limit| self.state.known_cost >= limit)
    }

    /// The run's end: nothing is left of what it may cost.
    pub(super) fn spend_out(&mut self) {
        if let Some(error) = self.over_cost() {
            let error = self.cut_short(error, Reason::Unknown);
            self.fail(error);
        }
    }

    /// The attempts of the call that is being answered, for the case that its answer goes past what the run may cost.
    pub(super) fn attempts_if_overspent(&self) -> Vec<Attempt> {
        if self.budget().max_cost_usd.is_none() {
            return Vec::new();
        }
        let mut attempts = self.attempts_cut_short(codes::EXECUTION_BUDGET_EXHAUSTED, Reason::Unknown);
        if let Some(answered) = attempts.last_mut() {
            "answered, and went past what the run may cost".clone_into(&mut answered.text);
        }
        attempts
    }

    /// The run's end: an answer went past what it may cost, after these attempts.
    pub(super) fn overspend(&mut self, attempts: Vec<Attempt>) {
        if let Some(error) = self.over_cost() {
            self.fail(error.with_attempts(attempts));
        }
    }

    /// Whether the run has cost more than it may.
    pub(super) fn is_overspent(&self) -> bool {
        self.budget().max_cost_usd.is_some_and(|limit| self.state.known_cost > limit)
    }

    /// What a run says that has used up what it may cost.
    fn over_cost(&self) -> Option<Error> {
        let (limit, cost) = (self.budget().max_cost_usd?, self.state.known_cost);
        let message = format!("the run has cost {cost}; the budget's max_cost_usd is {limit}");
        let error = Error::new(codes::EXECUTION_BUDGET_EXHAUSTED, message)
            .with_hint("raise the budget's max_cost_usd, or ask for less")
            .with_context("kind", "cost")
            .with_context("current", cost.as_f64())
            .with_context("limit", limit.as_f64());
        Some(error)
    }

    /// The run's end by the first of its time limits.
    pub(super) fn time_out(&mut self) {
        let Some(opening) = &self.state.opening else { return };
        let timeout = opening.time_limit.clone();
        match (opening.budget.max_duration_ms, timeout) {
            (Some(limit_ms), timeout) if timeout.as_ref().is_none_or(|other| limit_ms <= other.limit_ms) => {
                self.over_time(limit_ms);
            }
            (_, Some(timeout)) => self.time_is_up("the run", &timeout),
            (_, None) => {}
        }
    }

    fn over_time(&mut self, limit_ms: u64) {
        let place = self.waiting_for();
        let message = format!(
            "the run did not end within {limit_ms} ms (the budget's max_duration_ms); it was waiting for {place}"
        );
        let error = Error::new(codes::EXECUTION_BUDGET_EXHAUSTED, message)
            .with_hint("raise the budget's max_duration_ms, or ask for less")
            .with_context("kind", "duration")
            .with_context("current", self.at)
            .with_context("limit", limit_ms)
            .with_context("where", place);
        let error = self.cut_short(error, Reason::Timeout);
        self.fail(error);
    }

    pub(super) fn time_is_up(&mut self, what: &str, limit: &TimeLimit) {
        let TimeLimit { limit_ms, setting } = limit;
        let place = self.waiting_for();
        let error = Error::new(
            codes::EXECUTION_TIMEOUT,
            format!("{what} did not end within {limit_ms} ms ({setting}); it was waiting for {place}"),
        )
        .with_hint(match setting.split_once('.') {
            Some(_) => format!("raise {setting}, or ask for less"),
            None => format!("raise the run's {setting}, or ask for less"),
        })
        .with_context("limit_ms", *limit_ms)
        .with_context("where", place)
        .with_context("setting", setting.as_str());
        let error = self.cut_short(error, Reason::Timeout);
        self.fail(error);
    }

    /// The error with the attempts of the call that it ends, and with what the last of them failed with as its cause.
    fn cut_short(&self, error: Error, reason: Reason) -> Error {
        let attempts = self.attempts_cut_short(error.code(), reason);
        let last = self.state.call.as_ref().and_then(|call| call.last.as_ref());
        let cause = last.map(|(failure, _)| failure.as_cause());
        let error = error.with_attempts(attempts);
        match cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_limit_counts_and_of_equals_the_requests() {
        let tighter =
            |request, agent| Bound::tighter(request, agent).map(|bound| (bound.limit, bound.by_request));
        assert_eq!(tighter(Some(3), Some(4)), Some((3, true)));
        assert_eq!(tighter(Some(4), Some(3)), Some((3, false)));
        assert_eq!(tighter(Some(3), Some(3)), Some((3, true)));
        assert_eq!(tighter(None, Some(3)), Some((3, false)));
        assert_eq!(tighter(None, None), None);
    }
}
