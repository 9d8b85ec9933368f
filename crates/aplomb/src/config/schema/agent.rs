use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LlmConfig, PluginConfig, RetryConfig};

/// An agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentConfig {
    /// How requests name it; unique.
    #[schemars(length(min = 1), example = &"assistant")]
    pub id: String,
    /// How people name it. For them alone: Aplomb does not look at it.
    #[serde(default)]
    #[schemars(example = &"A calculator that keeps its composure")]
    pub name: Option<String>,
    /// What it remembers of earlier runs of a session; nothing where this is missing.
    #[serde(default)]
    pub memory: Option<MemoryConfig>,
    /// How it goes about its work.
    #[serde(default = "PluginRef::default_pattern")]
    pub pattern: PluginRef,
    /// The model.
    pub llm: LlmConfig,
    /// How its tools are called.
    #[serde(default = "PluginRef::default_tool_executor")]
    pub tool_executor: PluginRef,
    /// How the conversation is made to fit the model.
    #[serde(default)]
    pub context_assembler: Option<PluginRef>,
    /// What it can do.
    #[serde(default)]
    pub tools: Vec<ToolConfig>,
    /// Its limits.
    #[serde(default)]
    pub runtime: LimitsConfig,
    /// What to do about failures, beyond `llm.retry`.
    #[serde(default)]
    pub retry: RetryConfig,
}

/// A part of an agent that can be exchanged: a built-in one by `type`, one of the program's own by `impl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PluginRef {
    /// The name of a built-in one. Exactly one of `type` and `impl`.
    #[schemars(example = &"react")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The name of one that the program registered.
    #[schemars(example = &"my_pattern")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#impl: Option<String>,
    /// What it is told; `aplomb schema --plugin NAME` says what it takes.
    #[serde(skip_serializing_if = "PluginConfig::is_empty")]
    pub config: PluginConfig,
}

impl PluginRef {
    /// A built-in one, with its defaults.
    pub fn built_in(name: &str) -> PluginRef {
        PluginRef { r#type: Some(name.to_owned()), ..PluginRef::default() }
    }

    pub(super) fn default_runtime() -> PluginRef {
        PluginRef::built_in("default")
    }

    pub(super) fn default_events() -> PluginRef {
        PluginRef::built_in("async")
    }

    pub(super) fn default_pattern() -> PluginRef {
        PluginRef::built_in("react")
    }

    pub(super) fn default_tool_executor() -> PluginRef {
        PluginRef::built_in("safe")
    }
}

/// What an agent remembers of earlier runs of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The name of a built-in one. Exactly one of `type` and `impl`.
    #[schemars(example = &"buffer")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The name of one that the program registered.
    #[schemars(example = &"my_memory")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#impl: Option<String>,
    /// What it is told.
    #[serde(skip_serializing_if = "PluginConfig::is_empty")]
    pub config: PluginConfig,
    /// What happens to a run whose memory fails.
    pub on_error: OnError,
}

/// What happens to a run whose memory fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum OnError {
    /// It goes on without.
    #[default]
    Continue,
    /// It fails.
    Fail,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolConfig {
    /// How the model names it; unique. 1 to 64 letters, digits, underscores or dashes.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"), example = &"calc")]
    #[schemars(extend("x-expected" = "must be 1 to 64 letters, digits, underscores or dashes"))]
    pub id: String,
    /// The name of a built-in one. Exactly one of `type` and `impl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"calc")]
    pub r#type: Option<String>,
    /// The name of one that the program registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"my_tool")]
    pub r#impl: Option<String>,
    /// What it is told.
    #[serde(default, skip_serializing_if = "PluginConfig::is_empty")]
    pub config: PluginConfig,
    /// Whether the model gets it.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// An agent's limits. Who passes one ends with `execution.max_steps`, or with `execution.timeout` where it is a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitsConfig {
    /// The most model calls of one run.
    #[schemars(range(min = 1, max = 1_000_000), example = 16)]
    pub max_steps: u32,
    /// The longest that a step may take, waits not counted; null is without a limit.
    #[schemars(range(min = 1), example = 120_000)]
    pub step_timeout_ms: Option<u64>,
    /// The most runs that wait for one session.
    #[schemars(range(min = 1), example = 1_000)]
    pub session_queue_size: u32,
    /// The most events that wait for one subscriber.
    #[schemars(range(min = 1), example = 2_000)]
    pub event_queue_size: u32,
    /// The most tool calls of one run, repeated attempts included; null is without a limit.
    #[schemars(range(min = 1), example = 50)]
    pub max_tool_calls: Option<u32>,
    /// How long a tool that is interrupted may take to end in order.
    #[schemars(example = 5_000)]
    pub interrupt_grace_ms: u64,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            max_steps: 16,
            step_timeout_ms: None,
            session_queue_size: 1_000,
            event_queue_size: 2_000,
            max_tool_calls: None,
            interrupt_grace_ms: 5_000,
        }
    }
}

/// Leaves out the oldest turns, where the model says that the conversation is too large for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TruncatingConfig {
    /// How many tokens of the model's window are kept free for its answer.
    #[schemars(example = 1_024)]
    pub head_room_tokens: u32,
    /// How full the window may be before something is left out.
    #[schemars(range(min = 0.0, max = 1.0), example = 0.8)]
    pub compact_at: f64,
}

impl Default for TruncatingConfig {
    fn default() -> TruncatingConfig {
        TruncatingConfig { head_room_tokens: 1_024, compact_at: 0.8 }
    }
}

/// Asks the model, runs the tools that it asks for, until it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ReactConfig {
    /// Standing instructions, sent before the conversation.
    #[schemars(example = &"You answer questions about numbers. Use calc; never guess.")]
    pub system_prompt: Option<String>,
}
