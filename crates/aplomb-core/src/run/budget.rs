//! The request's budget: what one run may use, and how it ends that has used it up.

use serde::{Deserialize, Serialize};

use super::cost::Usd;
use super::machine::Turn;
use super::state::ToolWaiting;
use super::{Target, TimeLimit};
use crate::error::{Error, ErrorDetails, codes};
use crate::failure::Reason;

/// What one run may use. Nothing is limited that is not named.
///
/// A run that would pass a limit ends with `execution.budget_exhausted`, also in the middle of a connect, a stream, a wait
/// or a tool. A limit of the agent's is another matter (`execution.max_steps`); of two limits the tighter one counts, and
/// where they are equal the budget's.
///
/// ```
/// use aplomb_core::run::RunBudget;
/// let budget = RunBudget::new().max_steps(8).max_cost_usd(0.05);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunBudget {
    /// The most model calls of the pattern. Further attempts of one call are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// How long the run may take, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// The most tool calls that are run, further attempts included. Of a batch, as many are run as there is room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// The most that the run may cost. What an attempt costs is known when it has ended, so the last one may go past it;
    /// none is begun, and no tool is run, after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// What becomes of a run with `max_cost_usd` whose agent has a model without a known price.
    pub unpriced: Unpriced,
}

/// What becomes of a run with a limit of cost whose agent has a model without a known price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unpriced {
    /// It is refused before anything is sent.
    #[default]
    Refuse,
    /// It is run, and what such a model costs is not counted.
    Allow,
}

impl RunBudget {
    /// No limit at all.
    pub fn new() -> RunBudget {
        RunBudget::default()
    }

    /// Limits the model calls.
    #[must_use]
    pub fn max_steps(self, max_steps: u32) -> RunBudget {
        RunBudget { max_steps: Some(max_steps), ..self }
    }

    /// Limits the time, in ms.
    #[must_use]
    pub fn max_duration_ms(self, max_duration_ms: u64) -> RunBudget {
        RunBudget { max_duration_ms: Some(max_duration_ms), ..self }
    }

    /// Limits the tool calls; with 0, none is run.
    #[must_use]
    pub fn max_tool_calls(self, max_tool_calls: u32) -> RunBudget {
        RunBudget { max_tool_calls: Some(max_tool_calls), ..self }
    }

    /// Limits the cost, in US dollars.
    #[must_use]
    pub fn max_cost_usd(self, dollars: f64) -> RunBudget {
        RunBudget { max_cost_usd: Some(Usd::new(dollars)), ..self }
    }

    /// Says what becomes of a run whose cost cannot be known.
    #[must_use]
    pub fn unpriced(self, unpriced: Unpriced) -> RunBudget {
        RunBudget { unpriced, ..self }
    }

    /// Whether a run that may ask these targets, the agent's in their order, can keep to it.
    ///
    /// # Errors
    ///
    /// `user.invalid_input` for a limit under which nothing could be done; `config.validation` for a limit of cost where
    /// a target has no known price, unless that is allowed.
    pub fn check<'a>(&self, targets: impl IntoIterator<Item = &'a Target>) -> Result<(), Error> {
        let nothing = [
            ("max_steps", self.max_steps == Some(0)),
            ("max_duration_ms", self.max_duration_ms == Some(0)),
            ("max_cost_usd", self.max_cost_usd == Some(Usd::ZERO)),
        ];
        if let Some((field, _)) = nothing.iter().find(|(_, is_nothing)| *is_nothing) {
            let message = format!("the budget's {field} must be more than 0");
            return Err(Error::new(codes::USER_INVALID_INPUT, message)
                .with_hint(format!("leave {field} out to have no limit")));
        }
        if self.max_cost_usd.is_none() || self.unpriced == Unpriced::Allow {
            return Ok(());
        }
        let unpriced = targets.into_iter().enumerate().find(|(_, target)| target.pricing.is_none());
        let Some((place, target)) = unpriced else { return Ok(()) };
        let path = match place.checked_sub(1) {
            None => "llm".to_owned(),
            Some(fallback) => format!("llm.fallbacks[{fallback}]"),
        };
        let message = format!(
            "a run cannot keep to max_cost_usd: {} has no known price ({path}.pricing)",
            target.name()
        );
        Err(Error::new(codes::CONFIG_VALIDATION, message)
            .with_hint(
                "set llm.pricing, or let it run without counting that (unpriced: allow; --unpriced allow)",
            )
            .with_context("path", path))
    }
}

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
        self.budget().max_cost_usd.is_some_and(|limit| self.state.usage.known_cost() >= limit)
    }

    /// The run's end: nothing is left of what it may cost.
    pub(super) fn spend_out(&mut self) {
        if let Some(error) = self.over_cost() {
            self.fail(error);
        }
    }

    /// Whether the run has cost more than it may.
    pub(super) fn is_overspent(&self) -> bool {
        self.budget().max_cost_usd.is_some_and(|limit| self.state.usage.known_cost() > limit)
    }

    /// What a run says that has used up what it may cost.
    fn over_cost(&self) -> Option<Error> {
        let (limit, cost) = (self.budget().max_cost_usd?, self.state.usage.known_cost());
        let message = format!("the run has cost {cost}; the budget's max_cost_usd is {limit}");
        let error = Error::new(codes::EXECUTION_BUDGET_EXHAUSTED, message)
            .with_hint("raise the budget's max_cost_usd, or ask for less")
            .with_context("kind", "cost")
            .with_context("current", cost.as_f64())
            .with_context("limit", limit.as_f64());
        Some(self.cut_short(error, Reason::Unknown))
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
        let cause = last.map(|(failure, _)| Error::from(ErrorDetails::seen(failure)));
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
    use crate::run::Pricing;

    fn target(pricing: Option<Pricing>) -> Target {
        Target { pricing, ..Target::new("openai", "gpt") }
    }

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

    #[test]
    fn a_limit_of_cost_needs_the_price_of_every_target() {
        let priced = target(Some(Pricing::per_million(1.0, 2.0)));
        let cost = RunBudget::new().max_cost_usd(1.0);
        assert!(cost.check([&priced, &priced]).is_ok());
        for (targets, path) in
            [([&target(None), &priced], "llm"), ([&priced, &target(None)], "llm.fallbacks[0]")]
        {
            let error = cost.check(targets).unwrap_err();
            assert_eq!(error.code(), codes::CONFIG_VALIDATION);
            assert_eq!(error.context("path"), Some(&path.into()));
            assert!(error.hint().unwrap().contains("llm.pricing"));
            assert!(cost.unpriced(Unpriced::Allow).check(targets).is_ok());
            assert!(RunBudget::new().max_steps(1).check(targets).is_ok());
        }
    }

    #[test]
    fn a_limit_under_which_nothing_can_be_done_is_none() {
        for budget in [
            RunBudget::new().max_steps(0),
            RunBudget::new().max_duration_ms(0),
            RunBudget::new().max_cost_usd(0.0),
            RunBudget::new().max_cost_usd(-1.0),
            RunBudget::new().max_cost_usd(f64::NAN),
        ] {
            assert_eq!(budget.check([]).unwrap_err().code(), codes::USER_INVALID_INPUT, "{budget:?}");
        }
        assert!(RunBudget::new().max_tool_calls(0).check([]).is_ok());
    }
}
