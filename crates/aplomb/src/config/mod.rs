//! `agent.json`: what an agent is, as a document.
//!
//! The keys are those of `docs/spec/runtime.md` §5, as far as they do something by now. Others are refused: a key that
//! silently does nothing is worse than none.

mod check;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use aplomb_core::decide::{ExecRetry, Jitter, Restart, SessionRetry, ToolRetry, TransportRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::near::did_you_mean;
use aplomb_core::redact;
pub use aplomb_faultlab::script::Script;
pub use aplomb_llm::StreamMode;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A whole document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The version of the format.
    pub version: Version,
    /// At least one agent, each with an id of its own.
    pub agents: Vec<AgentConfig>,
    /// What is shown of what goes on.
    #[serde(default)]
    pub diagnostics: DiagnosticsConfig,
}

/// What is shown of what goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DiagnosticsConfig {
    /// The fields whose values are not shown in events and errors, wherever they stand; case and punctuation do not
    /// count.
    pub redact_keys: Vec<String>,
}

impl Default for DiagnosticsConfig {
    fn default() -> DiagnosticsConfig {
        DiagnosticsConfig { redact_keys: redact::DEFAULT_KEYS.map(str::to_owned).to_vec() }
    }
}

/// The version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Version {
    /// The only one so far.
    #[serde(rename = "1.0")]
    V1,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentConfig {
    /// How requests name it.
    pub id: String,
    /// How people name it.
    #[serde(default)]
    pub name: Option<String>,
    /// What it remembers of earlier runs of a session. Nothing where this is missing.
    #[serde(default)]
    pub memory: Option<MemoryConfig>,
    /// How it goes about its work.
    #[serde(default)]
    pub pattern: PatternConfig,
    /// The model.
    pub llm: LlmConfig,
    /// What it can do.
    #[serde(default)]
    pub tools: Vec<ToolConfig>,
    /// How its tools are called.
    #[serde(default)]
    pub tool_executor: ToolExecutorConfig,
    /// Its limits.
    #[serde(default)]
    pub runtime: LimitsConfig,
    /// What to do about failures, beyond `llm.retry`.
    #[serde(default)]
    pub retry: RetryConfig,
}

/// What an agent remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum MemoryConfig {
    /// The session's whole conversation, in this process.
    Buffer {},
}

/// How an agent goes about its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum PatternConfig {
    /// Ask the model, run the tools that it asks for, until it answers.
    React {
        /// What it is told.
        #[serde(default)]
        config: ReactConfig,
    },
}

impl Default for PatternConfig {
    fn default() -> PatternConfig {
        PatternConfig::React { config: ReactConfig::default() }
    }
}

/// What a `react` agent is told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ReactConfig {
    /// Standing instructions, before the conversation.
    pub system_prompt: Option<String>,
}

/// How tools are called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum ToolExecutorConfig {
    /// Once: what failed is told to the model.
    Safe {},
    /// Again, where the error says that it may help.
    Retry {
        /// How often and when.
        #[serde(default)]
        config: ToolRetry,
    },
}

impl Default for ToolExecutorConfig {
    fn default() -> ToolExecutorConfig {
        ToolExecutorConfig::Safe {}
    }
}

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LlmConfig {
    /// Who serves it.
    pub provider: Provider,
    /// Its name.
    pub model: String,
    /// Where it is. Required for `openai_compatible`; `https://api.anthropic.com/v1` where it is missing for
    /// `anthropic`.
    #[serde(default)]
    pub api_base: Option<String>,
    /// The environment variable that holds the key. No key is sent where this is missing.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// 0 to 2.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// The most tokens of an answer.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// To the first byte, to the last where the answer is not streamed; in ms.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether answers are streamed.
    #[serde(default)]
    pub stream: StreamMode,
    /// How long things may take.
    #[serde(default)]
    pub timeouts: TimeoutsConfig,
    /// The transport's retries.
    #[serde(default)]
    pub retry: TransportRetry,
    /// Sent with every request; they win over Aplomb's own.
    #[serde(default)]
    pub extra_headers: ExtraHeaders,
    /// Certificates to trust besides the platform's, in PEM form.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// What `mock` answers. Required there, refused elsewhere.
    #[serde(default)]
    pub script: Option<Script>,
}

/// Headers by name. Their values may be credentials, so they are not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExtraHeaders(pub BTreeMap<String, String>);

impl fmt::Debug for ExtraHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl ExtraHeaders {
    pub(crate) fn secret(&self) -> BTreeMap<String, SecretString> {
        self.0.iter().map(|(name, value)| (name.clone(), SecretString::from(value.clone()))).collect()
    }
}

/// Who serves a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provider {
    /// A script, in this process.
    Mock,
    /// Anthropic.
    Anthropic,
    /// Anybody who speaks OpenAI's Chat Completions.
    OpenaiCompatible,
}

impl Provider {
    /// The name in configs and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Mock => "mock",
            Provider::Anthropic => "anthropic",
            Provider::OpenaiCompatible => "openai_compatible",
        }
    }
}

/// `llm.timeouts`, in ms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TimeoutsConfig {
    /// To the connection; 10000 where this is missing.
    pub connect_ms: Option<u64>,
    /// To the first byte; `timeout_ms` where this is missing.
    pub first_byte_ms: Option<u64>,
    /// Without progress of the model; 60000 where this is missing.
    pub idle_ms: Option<u64>,
    /// For a whole attempt; unlimited where this is missing.
    pub attempt_ms: Option<u64>,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolConfig {
    /// How the model names it; unique.
    pub id: String,
    /// Which of the built-in tools it is.
    pub r#type: String,
    /// Whether the model gets it.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// An agent's limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitsConfig {
    /// The most model calls of one run.
    pub max_steps: u32,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig { max_steps: 16 }
    }
}

/// `agent.retry`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryConfig {
    /// The session's retries.
    pub session: SessionRetry,
    /// What `exec` adds.
    pub exec: ExecRetry,
    /// The longest wait that is slept, in ms; a longer one is reported with the time to come back.
    pub max_inline_wait_ms: u64,
    /// What happens to a call that fails after some of its answer was handed over.
    pub restart: Restart,
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            session: SessionRetry::default(),
            exec: ExecRetry::default(),
            max_inline_wait_ms: 60_000,
            restart: Restart::Auto,
        }
    }
}

impl Config {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// `config.load` if it cannot be read or is no JSON, `config.validation` if it does not fit; the message names the
    /// place.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Config, Error> {
        let file = file.as_ref();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Error::new(codes::CONFIG_LOAD, format!("cannot read {}: {error}", file.display()))
                .with_hint("run from the project's root, or give an absolute path to the config file")
                .with_foreign_cause(error)
        })?;
        Config::from_json(&text, &file.display().to_string())
    }

    /// Reads a document from text; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// As [`from_file`](Config::from_file).
    pub fn from_json(text: &str, name: &str) -> Result<Config, Error> {
        // First as any JSON, so that a broken document is told from one that does not fit.
        let document = serde_json::from_str::<Value>(text).map_err(|error| {
            let place = format!("{name}:{}:{}", error.line(), error.column());
            let message = format!("{place}: not valid JSON: {}", what_is_wrong(&error));
            Error::new(codes::CONFIG_LOAD, message).with_foreign_cause(error)
        })?;
        if let Some(path) = placeholder(&document, "") {
            let message = format!("{name}: {path}: ${{…}} is not replaced from the environment yet");
            return Err(Error::new(codes::CONFIG_VALIDATION, message)
                .with_hint("write the value; a key goes into api_key_env"));
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let config: Config = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let (path, inner) = (error.path().to_string(), error.into_inner());
            let place = format!("{name}:{}:{}", inner.line(), inner.column());
            Error::new(codes::CONFIG_VALIDATION, format!("{place}: {path}: {}", what_is_wrong(&inner)))
                .with_hint(meant(&inner).unwrap_or_else(|| "docs/spec/runtime.md lists the keys".to_owned()))
                .with_context("path", path)
        })?;
        config.check(name)?;
        Ok(config)
    }
}

/// The message of a JSON error without its place, which ours gives in another form, and without the value that does not
/// fit, which may be a credential in the wrong place.
fn what_is_wrong(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text);
    match (text.split_once("string \""), text.rsplit_once("\", expected")) {
        (Some((before, _)), Some((_, expected))) => format!("{before}string, expected{expected}"),
        _ => redact::text(text),
    }
}

/// The near match for an unknown key or value. Serde names what was found and what it knows in back-quotes.
fn meant(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let mut quoted = text.split('`').skip(1).step_by(2);
    let found = quoted.next()?;
    text.starts_with("unknown ").then(|| did_you_mean(found, quoted))?
}

/// Where a document holds the beginning of a `${VARIABLE}`.
fn placeholder(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::String(text) => text.contains("${").then(|| path.to_owned()),
        Value::Array(items) => {
            (0..).zip(items).find_map(|(index, item)| placeholder(item, &format!("{path}[{index}]")))
        }
        Value::Object(fields) => fields.iter().find_map(|(key, field)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            placeholder(field, &path)
        }),
        _ => None,
    }
}
