use aplomb_core::decide;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The transport's own retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TransportRetry {
    /// Whether allowances of layers add, or multiply as in other systems.
    pub mode: RetryMode,
    /// Attempts including the first.
    #[schemars(range(min = 1, max = 100), example = 5)]
    #[schemars(extend("x-way-out" = "use 1 to disable retries"))]
    pub max_attempts: u32,
    /// The first delay.
    #[schemars(example = 500)]
    pub initial_backoff_ms: u64,
    /// The longest delay; what a provider asks for may be longer.
    #[schemars(example = 5_000)]
    pub max_backoff_ms: u64,
    /// What each delay is multiplied by to give the next.
    #[schemars(range(min = 1.0, max = 100.0), example = 2.0)]
    pub backoff_multiplier: f64,
    /// Whether failed connections and time-outs are the transport's to retry.
    pub retry_on_connection_errors: bool,
    /// The most that the retries of one call may take in all; null is without a limit.
    #[schemars(range(min = 1), example = 20_000)]
    pub total_budget_ms: Option<u64>,
    /// How delays of model calls are spread. Governs the session's and exec's too.
    pub jitter: Jitter,
}

impl Default for TransportRetry {
    fn default() -> TransportRetry {
        let built = decide::TransportRetry::default();
        TransportRetry {
            mode: RetryMode::Additive,
            max_attempts: built.max_attempts,
            initial_backoff_ms: built.initial_backoff_ms,
            max_backoff_ms: built.max_backoff_ms,
            backoff_multiplier: built.backoff_multiplier,
            retry_on_connection_errors: built.retry_on_connection_errors,
            total_budget_ms: None,
            jitter: Jitter::Full,
        }
    }
}

impl TransportRetry {
    pub(crate) fn policy(&self) -> decide::TransportRetry {
        let mut policy = decide::TransportRetry::default();
        policy.max_attempts = self.max_attempts;
        policy.initial_backoff_ms = self.initial_backoff_ms;
        policy.max_backoff_ms = self.max_backoff_ms;
        policy.backoff_multiplier = self.backoff_multiplier;
        policy.retry_on_connection_errors = self.retry_on_connection_errors;
        policy.jitter = self.jitter.policy();
        policy.total_budget_ms = self.total_budget_ms;
        policy
    }
}

/// How the allowances of layers go together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum RetryMode {
    /// They add: 6 requests with the defaults.
    #[default]
    Additive,
    /// They multiply, as in the reference: for comparison and migration.
    Layered,
}

/// How a delay is spread, so that many callers do not come back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum Jitter {
    /// The delay as it is.
    None,
    /// Between half of it and all of it.
    Equal,
    /// Between nothing and all of it.
    Full,
}

impl Jitter {
    fn policy(self) -> decide::Jitter {
        match self {
            Jitter::None => decide::Jitter::None,
            Jitter::Equal => decide::Jitter::Equal,
            Jitter::Full => decide::Jitter::Full,
        }
    }
}

/// What to do about failures, beyond `llm.retry`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryConfig {
    /// The session's retries, after the transport's.
    pub session: SessionRetry,
    /// What `Runtime::exec` adds.
    pub exec: ExecRetry,
    /// How durable runs are resumed.
    pub resume: ResumeRetry,
    /// The longest wait that is slept; a longer one is reported with the time to come back.
    #[schemars(example = 60_000)]
    pub max_inline_wait_ms: u64,
    /// How often a call that is too long for the model is shortened and made again.
    #[schemars(range(max = 10), example = 1)]
    pub max_compactions: u32,
    /// What happens to a call that fails after some of its answer was handed over.
    pub restart: Restart,
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            session: SessionRetry::default(),
            exec: ExecRetry::default(),
            resume: ResumeRetry::default(),
            max_inline_wait_ms: 60_000,
            max_compactions: 1,
            restart: Restart::Auto,
        }
    }
}

/// The session's retries, after the transport's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionRetry {
    /// Whether the session retries at all.
    pub enabled: bool,
    /// Attempts after the first.
    #[schemars(range(max = 100), example = 3)]
    #[schemars(extend("x-way-out" = "use 0 to disable them"))]
    pub max_retries: u32,
    /// The first delay; each further one is twice as long.
    #[schemars(example = 2_000)]
    pub base_delay_ms: u64,
}

impl Default for SessionRetry {
    fn default() -> SessionRetry {
        SessionRetry { enabled: true, max_retries: 3, base_delay_ms: 2_000 }
    }
}

impl SessionRetry {
    pub(crate) fn policy(&self) -> decide::SessionRetry {
        let mut policy = decide::SessionRetry::default();
        policy.enabled = self.enabled;
        policy.max_retries = self.max_retries;
        policy.base_delay_ms = self.base_delay_ms;
        policy
    }
}

/// What `Runtime::exec` adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ExecRetry {
    /// Attempts including the first.
    #[schemars(range(min = 1, max = 100), example = 3)]
    #[schemars(extend("x-way-out" = "use 1 to disable retries"))]
    pub max_retries: u32,
    /// The first delay; each further one is twice as long.
    #[schemars(example = 1_500)]
    pub base_delay_ms: u64,
}

impl Default for ExecRetry {
    fn default() -> ExecRetry {
        ExecRetry { max_retries: 3, base_delay_ms: 1_500 }
    }
}

impl ExecRetry {
    pub(crate) fn policy(&self) -> decide::ExecRetry {
        let mut policy = decide::ExecRetry::default();
        policy.max_retries = self.max_retries;
        policy.base_delay_ms = self.base_delay_ms;
        policy
    }
}

/// How durable runs are resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ResumeRetry {
    /// The first delay; each further one is twice as long.
    #[schemars(example = 5_000)]
    pub base_delay_ms: u64,
    /// The longest delay.
    #[schemars(example = 60_000)]
    pub max_delay_ms: u64,
}

impl Default for ResumeRetry {
    fn default() -> ResumeRetry {
        ResumeRetry { base_delay_ms: 5_000, max_delay_ms: 60_000 }
    }
}

/// What happens to a call that fails after some of its answer was handed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum Restart {
    /// It is restarted: in silence where nothing was handed over, else announced.
    #[default]
    Auto,
    /// It is restarted, always announced.
    Marker,
    /// It is not restarted.
    Never,
}

impl Restart {
    pub(crate) fn policy(self) -> decide::Restart {
        match self {
            Restart::Auto => decide::Restart::Auto,
            Restart::Marker => decide::Restart::Marker,
            Restart::Never => decide::Restart::Never,
        }
    }
}

/// Calls a tool again where its error says that it may help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryExecutorConfig {
    /// Attempts including the first.
    #[schemars(range(min = 1, max = 100), example = 3)]
    #[schemars(extend("x-way-out" = "use 1 to disable retries"))]
    pub max_attempts: u32,
    /// The first delay.
    #[schemars(example = 200)]
    pub initial_backoff_ms: u64,
    /// The longest delay; what a tool asks for may be longer.
    #[schemars(example = 5_000)]
    pub max_backoff_ms: u64,
    /// What each delay is multiplied by to give the next.
    #[schemars(range(min = 1.0, max = 100.0), example = 2.0)]
    pub backoff_multiplier: f64,
    /// How delays are spread.
    pub jitter: Jitter,
}

impl Default for RetryExecutorConfig {
    fn default() -> RetryExecutorConfig {
        RetryExecutorConfig {
            max_attempts: 3,
            initial_backoff_ms: 200,
            max_backoff_ms: 5_000,
            backoff_multiplier: 2.0,
            jitter: Jitter::Equal,
        }
    }
}

impl RetryExecutorConfig {
    pub(crate) fn policy(&self) -> decide::ToolRetry {
        let mut policy = decide::ToolRetry::default();
        policy.max_attempts = self.max_attempts;
        policy.initial_backoff_ms = self.initial_backoff_ms;
        policy.max_backoff_ms = self.max_backoff_ms;
        policy.backoff_multiplier = self.backoff_multiplier;
        policy.jitter = self.jitter.policy();
        policy
    }
}
