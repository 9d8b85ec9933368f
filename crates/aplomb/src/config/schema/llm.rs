use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use aplomb_core::run::Pricing;
use aplomb_faultlab::script::Script;
pub use aplomb_llm::StreamMode;
pub use aplomb_llm::vendors::ApiStyle;
pub use aplomb_llm::wire::CachePoint;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{PluginConfig, TransportRetry};

/// A model, and how it is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LlmConfig {
    /// Who serves it.
    #[schemars(example = &"anthropic")]
    pub provider: String,
    /// What a provider of the program's own is told; `aplomb schema --plugin NAME` says what it takes. Refused elsewhere.
    #[serde(default, skip_serializing_if = "PluginConfig::is_empty")]
    pub provider_config: PluginConfig,
    /// Its name, as the provider has it. Required but for `mock` and providers of the program's own.
    #[serde(default)]
    #[schemars(length(min = 1), example = &"claude-sonnet-4-5")]
    pub model: Option<String>,
    /// Where it is. Required for `openai_compatible`, `anthropic_compatible` and `azure`; others have an address of their own.
    #[serde(default)]
    #[schemars(example = &"http://localhost:11434/v1")]
    pub api_base: Option<String>,
    /// Azure's `api-version`; its versionless API where this is missing. Refused elsewhere.
    #[serde(default)]
    #[schemars(length(min = 1), example = &"2025-04-01-preview")]
    pub api_version: Option<String>,
    /// The environment variable that holds the key: its name, never the key. Where this is missing, the variable that the
    /// provider's documentation names, such as `ANTHROPIC_API_KEY`; but no key that is not named here goes to an `api_base`.
    #[serde(default)]
    #[schemars(length(min = 1), example = &"ANTHROPIC_API_KEY")]
    pub api_key_env: Option<String>,
    /// A command that prints the key: a program and its arguments, without a shell.
    #[serde(default)]
    #[schemars(example = &"pass show anthropic")]
    pub api_key_command: Option<String>,
    /// How freely it answers; the provider's own default where this is missing.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 2.0), example = 0.2)]
    pub temperature: Option<f64>,
    /// The most tokens of an answer; the provider's own limit where this is missing.
    #[serde(default)]
    #[schemars(range(min = 1), example = 4_096)]
    #[schemars(extend("x-way-out" = "leave it out for the default"))]
    pub max_tokens: Option<u32>,
    /// To the answer's first byte; to its last where it is not streamed.
    #[serde(default = "LlmConfig::default_timeout_ms")]
    #[schemars(range(min = 1), example = 60_000)]
    #[schemars(extend("x-way-out" = "leave it out for the default"))]
    pub timeout_ms: u64,
    /// Whether answers are streamed.
    #[serde(default)]
    pub stream: StreamMode,
    /// Where streamed answers come from, if not from `api_base`.
    #[serde(default)]
    #[schemars(example = &"https://stream.example.com/v1")]
    pub stream_endpoint: Option<String>,
    /// What it costs, so that runs can tell and limit it. Without this, nobody knows.
    #[serde(default)]
    pub pricing: Option<PricingConfig>,
    /// Headers that are sent with every request; they win over Aplomb's own. Values are not shown.
    #[serde(default)]
    pub extra_headers: ExtraHeaders,
    /// Merged into the body of every request, as a JSON merge patch (RFC 7396): what the provider takes and Aplomb has no key
    /// for. It wins over Aplomb's own. Values are not shown.
    #[serde(default, skip_serializing_if = "PluginConfig::is_empty")]
    pub extra_body: PluginConfig,
    /// What the provider is to keep in its cache, up to the end of each. Anthropic's protocol alone asks for it; refused
    /// elsewhere, where caching is the provider's matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["system", "last_message"])]
    pub cache: Vec<CachePoint>,
    /// A file with certificates to trust besides the platform's, in PEM form.
    #[serde(default)]
    #[schemars(example = &"/etc/ssl/company.pem")]
    pub ca_file: Option<PathBuf>,
    /// Whether it thinks before it answers; told by its name where this is missing.
    #[serde(default)]
    #[schemars(example = true)]
    pub reasoning_model: Option<bool>,
    /// Which of OpenAI's two protocols is spoken; the provider's own where this is missing. Refused where it speaks one only.
    #[serde(default)]
    pub openai_api_style: Option<ApiStyle>,
    /// How it is told which schema its output must fit, where a run wants that.
    #[serde(default)]
    pub output_schema: OutputSchemaMode,
    /// How long things may take.
    #[serde(default)]
    pub timeouts: TimeoutsConfig,
    /// The transport's retries.
    #[serde(default)]
    pub retry: TransportRetry,
    /// Models to go on with where this one fails for good, in this order.
    #[serde(default)]
    pub fallbacks: Vec<LlmConfig>,
    /// The failures that no retry helps and another model may.
    #[serde(default = "FallbackReason::defaults")]
    #[schemars(example = ["quota_exhausted"])]
    pub fallback_on: Vec<FallbackReason>,
    /// What `mock` answers, in the vocabulary of `aplomb faultlab`. Required there, refused elsewhere.
    #[serde(default)]
    #[schemars(with = "Option<PluginConfig>")]
    pub script: Option<Script>,
}

impl LlmConfig {
    fn default_timeout_ms() -> u64 {
        30_000
    }

    /// How long an answer's first byte may take, wherever it is said.
    pub(crate) fn first_byte_ms(&self) -> u64 {
        self.timeouts.first_byte_ms.unwrap_or(self.timeout_ms)
    }
}

/// How a model is told which schema its output must fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum OutputSchemaMode {
    /// In its protocol's field for it where model and schema are known to go together; otherwise in the instructions.
    #[default]
    Auto,
    /// In that field, whatever is known.
    Native,
    /// In the instructions.
    Instructions,
}

/// A failure that another model may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum FallbackReason {
    /// The account's quota is used up.
    QuotaExhausted,
    /// The model is not there.
    ModelNotFound,
    /// The credential is missing, wrong or lapsed.
    Auth,
    /// The credential does not allow this.
    Permission,
    /// The provider does not accept the request.
    InvalidRequest,
    /// The conversation is longer than the model takes.
    ContextOverflow,
    /// A filter, or the model itself, refused.
    ContentFilter,
    /// The request's bytes are more than the provider takes.
    PayloadTooLarge,
    /// An image cannot be read.
    InvalidImage,
    /// A tool's schema is not accepted.
    ToolSchemaInvalid,
    /// The answer is not what the protocol promises.
    MalformedResponse,
    /// Nobody knows what it is.
    Unknown,
}

impl FallbackReason {
    fn defaults() -> Vec<FallbackReason> {
        vec![FallbackReason::QuotaExhausted, FallbackReason::ModelNotFound]
    }
}

/// What a model costs, in USD per million tokens; exact to six digits after the point. A model that costs nothing has prices
/// of 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PricingConfig {
    /// Tokens that are sent, but for those of the cache.
    #[schemars(range(min = 0.0, max = 1e6), example = 3.0, extend("x-unit" = "USD per million tokens", "x-way-out" = "prices are in USD per million tokens"))]
    pub input: f64,
    /// Tokens that are answered, thoughts included.
    #[schemars(range(min = 0.0, max = 1e6), example = 15.0, extend("x-unit" = "USD per million tokens", "x-way-out" = "prices are in USD per million tokens"))]
    pub output: f64,
    /// Tokens that are read from the provider's cache; as much as `input` where this is missing.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1e6), example = 0.3, extend("x-unit" = "USD per million tokens", "x-way-out" = "prices are in USD per million tokens"))]
    pub cached_read: Option<f64>,
    /// Tokens that are written to the provider's cache; as much as `input` where this is missing.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1e6), example = 3.75, extend("x-unit" = "USD per million tokens", "x-way-out" = "prices are in USD per million tokens"))]
    pub cached_write: Option<f64>,
}

impl PricingConfig {
    /// Prices without discounts for the provider's cache.
    pub fn new(input: f64, output: f64) -> PricingConfig {
        PricingConfig { input, output, cached_read: None, cached_write: None }
    }

    pub(crate) fn pricing(&self) -> Pricing {
        let PricingConfig { input, output, cached_read, cached_write } = *self;
        Pricing::per_million(input, output)
            .cached_read(cached_read.unwrap_or(input))
            .cached_write(cached_write.unwrap_or(input))
    }
}

/// How long parts of a call may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TimeoutsConfig {
    /// To the connection, TLS included.
    #[schemars(range(min = 1), example = 5_000)]
    #[schemars(extend("x-way-out" = "leave it out for the default"))]
    pub connect_ms: u64,
    /// To the answer's first byte; `llm.timeout_ms` where this is missing.
    #[schemars(range(min = 1), example = 30_000)]
    #[schemars(extend("x-way-out" = "leave it out for the default"))]
    pub first_byte_ms: Option<u64>,
    /// Between two pieces of a streamed answer. Pings are none.
    #[schemars(range(min = 1), example = 60_000)]
    #[schemars(extend("x-way-out" = "leave it out for the default"))]
    pub idle_ms: u64,
    /// For a whole attempt; null is without a limit.
    #[schemars(range(min = 1), example = 300_000)]
    #[schemars(extend("x-way-out" = "leave it out for the default"))]
    pub attempt_ms: Option<u64>,
}

impl Default for TimeoutsConfig {
    fn default() -> TimeoutsConfig {
        TimeoutsConfig { connect_ms: 10_000, first_byte_ms: None, idle_ms: 60_000, attempt_ms: None }
    }
}

/// Headers by name. Their values may be credentials, so they are not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
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
