//! What a config can say: every key of `docs/spec/runtime.md` §5, with its type, range, default and an example.
//!
//! The published schema, the reference and the checks come from here. Units are in the names: `_ms` is milliseconds.

mod agent;
mod llm;
mod retry;
mod whole;

pub use agent::{
    AgentConfig, LimitsConfig, MemoryConfig, OnError, PluginRef, ReactConfig, ToolConfig, TruncatingConfig,
};
pub use llm::{
    ApiStyle, CachePoint, ExtraHeaders, FallbackReason, LlmConfig, OutputSchemaMode, PricingConfig,
    StreamMode, TimeoutsConfig,
};
pub use retry::{
    ExecRetry, Jitter, Restart, ResumeRetry, RetryConfig, RetryExecutorConfig, RetryMode, SessionRetry,
    TransportRetry,
};
pub use whole::{
    Config, CooldownConfig, CooldownScope, DiagnosticsConfig, InMemoryConfig, QuotaConfig, SessionConfig,
    TrafficConfig, Version,
};

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The `config` of a plugin. Its values may be credentials, so they are not shown.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct PluginConfig(pub Map<String, Value>);

impl PluginConfig {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for PluginConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
