//! The request's budget: what one run may use.

use serde::{Deserialize, Serialize};

use super::agent::Target;
use super::cost::Usd;
use super::effect::TimeLimit;
use crate::error::{Error, codes};

/// What one run may use. Nothing but the corrections of its output is limited that is not named.
///
/// A run that would pass a limit ends with `execution.budget_exhausted`. A limit of the agent's is another matter
/// (`execution.max_steps`); of two limits the tighter one counts, and where they are equal the budget's.
///
/// Time ends whatever is in flight: a connect, a stream, a wait, a tool. The others are looked at in between, and end nothing
/// that has begun: steps before each model call, tool calls before each of them, cost after each attempt and before the next.
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
    /// How long the run may take, in ms. A back-off that would end later is not begun: where no other model is left to ask,
    /// the run ends before its time, with what the attempt failed with and that failure's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// The most tool calls that are run, further attempts included. Of a batch, as many are run as there is room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// The most that the run may cost. What an attempt costs is known when it has ended, so the last one may go past it;
    /// none is begun, and no tool is run, after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    /// The most corrections of an output that is not accepted; without it, 3. When they are used up, the run ends with
    /// `execution.output_validation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_validation_retries: Option<u32>,
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
    /// Nothing but what is limited anyway.
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

    /// Limits how often the model may correct its output; with 0, the first one must be accepted. Each time is a model call, which
    /// counts as a step.
    #[must_use]
    pub fn max_validation_retries(self, max_validation_retries: u32) -> RunBudget {
        RunBudget { max_validation_retries: Some(max_validation_retries), ..self }
    }

    /// How often the model may correct its output. Source: `docs/spec/runtime.md` §1.
    pub fn validation_retries(&self) -> u32 {
        self.max_validation_retries.unwrap_or(3)
    }

    /// Says what becomes of a run whose cost cannot be known.
    #[must_use]
    pub fn unpriced(self, unpriced: Unpriced) -> RunBudget {
        RunBudget { unpriced, ..self }
    }

    /// When a run that keeps to both must have ended, in ms of its clock.
    pub fn deadline(&self, time_limit: Option<&TimeLimit>) -> Option<u64> {
        time_limit.map(|limit| limit.limit_ms).into_iter().chain(self.max_duration_ms).min()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Pricing;

    fn target(pricing: Option<Pricing>) -> Target {
        Target { pricing, ..Target::new("openai", "gpt") }
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
