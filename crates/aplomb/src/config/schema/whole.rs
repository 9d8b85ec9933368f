use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentConfig, PluginConfig, PluginRef};
use crate::config::Loaded;

/// A whole document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The address of this schema, for editors. Aplomb does not look at it.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"./agent.schema.json")]
    pub schema: Option<String>,
    /// The version of the format.
    #[schemars(example = &"1.0")]
    pub version: Version,
    /// The agents, each with an id of its own.
    #[schemars(length(min = 1))]
    pub agents: Vec<AgentConfig>,
    /// How runs are carried out.
    #[serde(default = "PluginRef::default_runtime")]
    pub runtime: PluginRef,
    /// Where sessions are kept.
    #[serde(default)]
    pub session: SessionConfig,
    /// Where events go, besides the program's own subscribers.
    #[serde(default = "PluginRef::default_events")]
    pub events: PluginRef,
    /// What all runs of a process share.
    #[serde(default)]
    pub traffic: TrafficConfig,
    /// Skills of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<PluginRef>,
    /// What is logged, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<PluginConfig>,
    /// What is shown of what goes on.
    #[serde(default)]
    pub diagnostics: DiagnosticsConfig,
    /// The text that it came from, so that what turns out to be wrong later has a place, too.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) loaded: Loaded,
}

/// The version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[non_exhaustive]
pub enum Version {
    /// The only one so far.
    #[serde(rename = "1.0")]
    V1,
}

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionConfig {
    /// The name of a built-in store. Exactly one of `type` and `impl`.
    #[schemars(example = &"in_memory")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The name of a store that the program registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#impl: Option<String>,
    /// What the store is told.
    #[serde(skip_serializing_if = "PluginConfig::is_empty")]
    pub config: PluginConfig,
    /// How long a run waits for another one of its session.
    #[schemars(range(min = 1), example = 5_000)]
    pub lock_timeout_ms: u64,
    /// The most model calls of a session, over all its runs.
    #[schemars(range(min = 1), example = 200)]
    pub max_steps: Option<u64>,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            r#type: Some("in_memory".to_owned()),
            r#impl: None,
            config: PluginConfig::default(),
            lock_timeout_ms: 30_000,
            max_steps: None,
        }
    }
}

/// In this process, for as long as it lives: the transcripts of the sessions that were used last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct InMemoryConfig {
    /// How many sessions. Of one more, that which was used the longest ago is forgotten; what agents remember of it is not. 0
    /// keeps none.
    #[schemars(range(max = 10_000_000), example = 10_000)]
    pub max_sessions: usize,
}

impl Default for InMemoryConfig {
    fn default() -> InMemoryConfig {
        InMemoryConfig { max_sessions: 1_000 }
    }
}

/// What all runs of a process share: how much they may send, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TrafficConfig {
    /// How many retries a provider that fails is sent in all.
    pub quota: QuotaConfig,
    /// Who waits where a provider asked for it.
    pub cooldown: CooldownConfig,
    /// The most model calls in flight at once; null lets the gate find out.
    #[schemars(range(min = 1), example = 32)]
    pub max_concurrency: Option<u32>,
}

/// A stock of retries, which successes fill up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct QuotaConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// The most that it holds. A retry costs 14, after a throttle 5.
    #[schemars(range(min = 1), example = 500)]
    pub capacity: u32,
}

impl Default for QuotaConfig {
    fn default() -> QuotaConfig {
        QuotaConfig { enabled: true, capacity: 500 }
    }
}

/// Who waits where a provider asked for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CooldownConfig {
    /// Which calls wait together.
    pub scope: CooldownScope,
}

/// Which calls wait together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum CooldownScope {
    /// Those of one endpoint, key and model.
    #[default]
    Model,
    /// Those of one endpoint and key.
    Key,
    /// Those of one endpoint.
    Account,
}

/// What is shown of what goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DiagnosticsConfig {
    /// How many of the last events an error's report holds.
    #[schemars(range(max = 1_000), example = 10)]
    pub error_snapshot_last_n: u32,
    /// The fields whose values are not shown in events and errors, wherever they stand; case and punctuation do not
    /// count.
    #[schemars(example = ["api_key", "pin"])]
    pub redact_keys: Vec<String>,
}

impl Default for DiagnosticsConfig {
    fn default() -> DiagnosticsConfig {
        let redact_keys = aplomb_core::redact::DEFAULT_KEYS.map(str::to_owned).to_vec();
        DiagnosticsConfig { error_snapshot_last_n: 10, redact_keys }
    }
}
