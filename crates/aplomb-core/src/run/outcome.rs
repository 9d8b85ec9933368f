//! How a run ended, and what it used.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::cost::{ModelCost, PricedModel, Usd};
use crate::message::TokenUsage;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// It gave its output.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// A time limit passed that is no budget.
    Timeout,
    /// A limit of the agent or session was reached.
    MaxSteps,
    /// A limit of the request's budget was reached.
    BudgetExhausted,
}

impl StopReason {
    /// The name in events and results.
    pub fn as_str(self) -> &'static str {
        match self {
            StopReason::Completed => "completed",
            StopReason::Failed => "failed",
            StopReason::Cancelled => "cancelled",
            StopReason::Timeout => "timeout",
            StopReason::MaxSteps => "max_steps",
            StopReason::BudgetExhausted => "budget_exhausted",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a run used, failed attempts included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunUsage {
    /// Logical model calls.
    pub llm_calls: u64,
    /// Tool calls that were run.
    pub tool_calls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Of the tokens sent, those read from the provider's cache.
    pub input_tokens_cached: u64,
    /// Of the tokens sent, those written to the provider's cache.
    pub input_tokens_cache_creation: u64,
    /// Of the tokens sent and received, those of attempts whose use is at least partly our estimate, since the provider
    /// never said.
    pub estimated_tokens: u64,
    /// What it cost, in US dollars; none while nothing has been asked, and where the price of a model that was asked is not
    /// known: see [`cost_breakdown`](RunUsage::cost_breakdown).
    pub cost_usd: Option<Usd>,
    /// What was used of each model that was asked, by `provider/model`, and what that cost.
    pub cost_breakdown: BTreeMap<String, ModelCost>,
    /// From the first successful attempt's start to the first piece of its answer, in ms. Known where answers are
    /// streamed.
    pub ttft_ms: Option<u64>,
    /// Median time of the successful attempts, in ms.
    pub llm_latency_p50_ms: Option<u64>,
    /// 95th percentile of the same, by nearest rank.
    pub llm_latency_p95_ms: Option<u64>,
    /// Attempts beyond each call's first.
    pub llm_retry_count: u64,
}

impl RunUsage {
    /// Counts what an attempt used.
    pub(super) fn add_attempt(&mut self, model: Option<&PricedModel>, tokens: TokenUsage) {
        self.add_tokens(tokens);
        let Some(PricedModel { model, pricing }) = model else { return };
        if !self.cost_breakdown.contains_key(model) {
            let free = ModelCost { cost_usd: Some(Usd::ZERO), ..ModelCost::default() };
            self.cost_breakdown.insert(model.clone(), free);
        }
        if let Some(used) = self.cost_breakdown.get_mut(model) {
            used.add(tokens, pricing.as_ref());
        }
        self.cost_usd = self.cost_breakdown.values().map(|used| used.cost_usd).sum();
    }

    fn add_tokens(&mut self, tokens: TokenUsage) {
        self.input_tokens = self.input_tokens.saturating_add(tokens.input);
        self.output_tokens = self.output_tokens.saturating_add(tokens.output);
        self.total_tokens = self.input_tokens.saturating_add(self.output_tokens);
        self.input_tokens_cached = self.input_tokens_cached.saturating_add(tokens.input_cached);
        self.input_tokens_cache_creation =
            self.input_tokens_cache_creation.saturating_add(tokens.input_cache_creation);
        if tokens.estimated {
            let both = tokens.input.saturating_add(tokens.output);
            self.estimated_tokens = self.estimated_tokens.saturating_add(both);
        }
    }

    pub(super) fn set_latencies(&mut self, latencies_ms: &[u64]) {
        let mut sorted = latencies_ms.to_vec();
        sorted.sort_unstable();
        self.llm_latency_p50_ms = nearest_rank(&sorted, 50);
        self.llm_latency_p95_ms = nearest_rank(&sorted, 95);
    }
}

/// The smallest value that at least `percent` of the values do not exceed.
fn nearest_rank(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::{RunUsage, nearest_rank};
    use crate::message::TokenUsage;

    #[test]
    fn what_is_estimated_is_counted_and_told_apart() {
        let mut usage = RunUsage::default();
        usage.add_tokens(TokenUsage { input: 10, output: 5, ..TokenUsage::default() });
        // 401 bytes sent and 7 that came: 101 and 2 tokens of four bytes, begun ones included.
        usage.add_tokens(TokenUsage::estimate(401, 7));
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.total_tokens), (111, 7, 118));
        assert_eq!(usage.estimated_tokens, 103);
    }

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((nearest_rank(&hundred, 50), nearest_rank(&hundred, 95)), (Some(50), Some(95)));
        assert_eq!((nearest_rank(&[7], 50), nearest_rank(&[7], 95)), (Some(7), Some(7)));
        assert_eq!(nearest_rank(&[], 50), None);
    }
}
