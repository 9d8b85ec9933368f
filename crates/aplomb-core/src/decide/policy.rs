//! The settings of `docs/spec/retry.md`, with its names and defaults.

use serde::{Deserialize, Serialize};

use super::{Backoff, Layer, ToolRetry, backoff};
use crate::failure::Reason;

/// Everything that [`decide`](super::decide) may be told to do differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Policy {
    /// `llm.retry.mode`: how the layers' allowances go together.
    #[serde(default)]
    pub mode: Mode,
    /// `llm.retry`.
    pub transport: TransportRetry,
    /// `agent.retry.session`.
    pub session: SessionRetry,
    /// `agent.retry.exec`.
    pub exec: ExecRetry,
    /// The tool executor's.
    pub tools: ToolRetry,
    /// `agent.retry.max_inline_wait_ms`: a longer wait is reported with the time to come back, not slept.
    pub max_inline_wait_ms: u64,
    /// `agent.retry.restart`.
    pub restart: Restart,
    /// `agent.retry.max_compactions`: how often a call that is too large for the model is made again, smaller.
    #[serde(default = "Policy::default_max_compactions")]
    pub max_compactions: u32,
    /// `llm.fallback_on`: what no retry helps and another model may. What may pass, and did not, always falls back.
    #[serde(default = "Policy::default_fallback_on")]
    pub fallback_on: Vec<Reason>,
    /// `agent.retry.resume`.
    #[serde(default)]
    pub resume: ResumeRetry,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            mode: Mode::Additive,
            transport: TransportRetry::default(),
            session: SessionRetry::default(),
            exec: ExecRetry::default(),
            tools: ToolRetry::never(),
            max_inline_wait_ms: 60_000,
            restart: Restart::Auto,
            max_compactions: Policy::default_max_compactions(),
            fallback_on: Policy::default_fallback_on(),
            resume: ResumeRetry::default(),
        }
    }
}

impl Policy {
    fn default_max_compactions() -> u32 {
        1
    }

    fn default_fallback_on() -> Vec<Reason> {
        vec![Reason::QuotaExhausted, Reason::ModelNotFound]
    }

    pub(super) fn backoff(&self, layer: Layer) -> Backoff {
        match layer {
            // Something has changed since the last attempt: there is nothing to wait for but what was asked for.
            Layer::First | Layer::Compaction | Layer::Refresh | Layer::Fallback => {
                Backoff { initial_ms: 0, multiplier: 1.0, max_ms: 0 }
            }
            Layer::Transport => Backoff {
                initial_ms: self.transport.initial_backoff_ms,
                multiplier: self.transport.backoff_multiplier,
                max_ms: self.transport.max_backoff_ms,
            },
            Layer::Session => {
                Backoff { initial_ms: self.session.base_delay_ms, multiplier: 2.0, max_ms: u64::MAX }
            }
            Layer::Exec => Backoff { initial_ms: self.exec.base_delay_ms, multiplier: 2.0, max_ms: u64::MAX },
        }
    }
}

/// `llm.retry`: the transport's own retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TransportRetry {
    /// Attempts including the first; 1 disables. 1 to 100.
    pub max_attempts: u32,
    /// The first delay, in ms.
    pub initial_backoff_ms: u64,
    /// The longest delay, in ms.
    pub max_backoff_ms: u64,
    /// What each delay is multiplied by to give the next.
    pub backoff_multiplier: f64,
    /// Whether failed connections and time-outs are the transport's to retry.
    pub retry_on_connection_errors: bool,
    /// How delays of model calls are spread. Governs the session's and exec's too.
    pub jitter: Jitter,
    /// From a model call's beginning, in ms: no attempt of it begins later, and no wait of it ends later. An attempt under
    /// way is not cut short, which is what `llm.timeouts` are for.
    pub total_budget_ms: Option<u64>,
}

impl Default for TransportRetry {
    fn default() -> TransportRetry {
        TransportRetry {
            max_attempts: 3,
            initial_backoff_ms: 500,
            max_backoff_ms: 5_000,
            backoff_multiplier: 2.0,
            retry_on_connection_errors: true,
            jitter: Jitter::Full,
            total_budget_ms: None,
        }
    }
}

/// How the layers' allowances go together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// They add: `docs/spec/retry.md` §5.
    #[default]
    Additive,
    /// They multiply, and the reference's texts and status lists apply: §2, for comparison and migration.
    Layered,
}

/// `agent.retry.session`: the session's retries, after the transport's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionRetry {
    /// Whether the session retries at all.
    pub enabled: bool,
    /// Attempts after the first. 0 to 100.
    pub max_retries: u32,
    /// The first delay, in ms; each further one is twice as long.
    pub base_delay_ms: u64,
}

impl Default for SessionRetry {
    fn default() -> SessionRetry {
        SessionRetry { enabled: true, max_retries: 3, base_delay_ms: 2_000 }
    }
}

/// `agent.retry.exec`: what `Runtime::exec` adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ExecRetry {
    /// Attempts including the first; 1 disables. 1 to 100.
    pub max_retries: u32,
    /// The first delay, in ms; each further one is twice as long.
    pub base_delay_ms: u64,
}

impl Default for ExecRetry {
    fn default() -> ExecRetry {
        ExecRetry { max_retries: 3, base_delay_ms: 1_500 }
    }
}

/// `agent.retry.resume`: the waits before a durable run is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ResumeRetry {
    /// The first delay, in ms; each further one is twice as long.
    pub base_delay_ms: u64,
    /// The longest delay, in ms.
    pub max_delay_ms: u64,
}

impl Default for ResumeRetry {
    fn default() -> ResumeRetry {
        ResumeRetry { base_delay_ms: 5_000, max_delay_ms: 60_000 }
    }
}

impl ResumeRetry {
    pub(super) fn backoff(&self) -> Backoff {
        Backoff { initial_ms: self.base_delay_ms, multiplier: 2.0, max_ms: self.max_delay_ms }
    }
}

/// How a delay is spread, so that many callers do not come back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// The delay as it is.
    None,
    /// Between nothing and the delay.
    Full,
    /// Between half of the delay and the delay.
    Equal,
}

impl Jitter {
    /// The shortest delay that entropy may pick; the longest is the delay itself.
    pub(super) fn least(self, delay_ms: u64) -> u64 {
        match self {
            Jitter::None => delay_ms,
            Jitter::Full => 0,
            Jitter::Equal => delay_ms - delay_ms / 2,
        }
    }

    /// The delay that `entropy` picks.
    ///
    /// Source of the forms: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    pub fn apply(self, delay_ms: u64, entropy: u64) -> u64 {
        match self {
            Jitter::None => delay_ms,
            Jitter::Full => backoff::uniform(entropy, delay_ms),
            Jitter::Equal => {
                let half = delay_ms / 2;
                (delay_ms - half) + backoff::uniform(entropy, half)
            }
        }
    }
}

/// What happens to a call that fails after some of its answer was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Started again; announced by `llm.restarted` where something was delivered.
    Auto,
    /// Started again; always announced.
    Marker,
    /// Not started again.
    Never,
}
