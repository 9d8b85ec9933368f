//! Who serves models: what each vendor speaks, where it is, and how it differs from its protocol. Data, one row each; adding
//! a vendor is adding a row.

use std::collections::BTreeMap;
use std::path::PathBuf;

use aplomb_core::error::{Error, codes};
use aplomb_core::message::CallIds;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::model::{Endpoint, ModelConfig};
use crate::wire::{AnswerLimit, Quirks, Schemas, Wire, encoded};

/// A vendor: begins as [`Vendor::new`], and says where it differs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Vendor {
    /// Its name in configs: `llm.provider`.
    pub name: &'static str,
    /// What it speaks, unless asked for OpenAI's other protocol.
    pub wire: Wire,
    /// Whether it speaks both of OpenAI's protocols.
    pub speaks_both: bool,
    /// Where it is.
    pub place: Place,
    /// The variable that holds the key by custom, where there is one.
    pub key_variable: Option<&'static str>,
    /// Whether nothing works without a key.
    pub needs_key: bool,
    /// The highest temperature that it takes.
    pub hottest: f64,
    /// How the names of its models begin that reason before they answer, as far as that can be told from names.
    pub reasoning_models: &'static [&'static str],
    /// How the names of its models begin that take no schema for their output.
    pub schemaless_models: &'static [&'static str],
    /// How it differs from the protocol.
    pub quirks: Quirks,
    /// Which ids of calls it takes back.
    pub call_ids: CallIds,
    /// Where its documentation says all this.
    pub docs: &'static str,
}

/// Where a vendor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// There, unless the user says otherwise.
    At(&'static str),
    /// Where the user says.
    Given,
    /// At the user's Azure resource.
    AzureResource,
}

/// Which of OpenAI's two protocols is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum ApiStyle {
    /// Chat Completions.
    ChatCompletions,
    /// Responses.
    Responses,
}

/// What a user says of one model of a vendor. What is missing is the vendor's.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The model's name; on Azure the deployment's.
    pub model: String,
    /// Which of OpenAI's protocols.
    pub style: Option<ApiStyle>,
    /// Where the API is.
    pub api_base: Option<String>,
    /// Azure's `api-version`. Without one its versionless API is used.
    pub api_version: Option<String>,
    /// The key.
    pub api_key: Option<SecretString>,
    /// Headers that are sent with every request; they win over ours.
    pub extra_headers: BTreeMap<String, SecretString>,
    /// Certificates to trust besides the platform's.
    pub ca_file: Option<PathBuf>,
    /// Whether the model reasons, where its name does not tell.
    pub reasons: Option<bool>,
}

/// A vendor of Chat Completions from which the rows differ. It stands for anybody who speaks the protocol.
const COMPATIBLE: Vendor = Vendor {
    name: "openai_compatible",
    wire: Wire::OpenaiChat,
    speaks_both: true,
    place: Place::Given,
    key_variable: None,
    needs_key: false,
    hottest: 2.0,
    reasoning_models: &[],
    schemaless_models: &[],
    quirks: Quirks { schemas: Schemas::WithoutTools, ..Quirks::NONE },
    call_ids: Wire::OpenaiChat.call_ids(),
    docs: "https://platform.openai.com/docs/api-reference/chat",
};

/// Vendors that take `max_tokens` and no other name.
const MAX_TOKENS: Quirks = Quirks { answer_limit: AnswerLimit::MaxTokens, ..COMPATIBLE.quirks };

/// How the names of OpenAI's models begin that reason, and of those at Azure that are named after them. Models with `-chat`
/// in their name are the same family and do not reason.
///
/// Source: OpenAI's guide "Reasoning models": <https://platform.openai.com/docs/guides/reasoning>.
const OPENAI_REASONING: &[&str] = &["o1", "o3", "o4", "gpt-5"];

/// How the names of OpenAI's models begin that are older than the schemas of outputs.
///
/// Source: OpenAI's guide "Structured model outputs": <https://platform.openai.com/docs/guides/structured-outputs>.
const OPENAI_SCHEMALESS: &[&str] =
    &["gpt-3.5", "gpt-4-", "gpt-4o-2024-05-13", "chatgpt-4o", "o1-mini", "o1-preview"];

/// Every vendor.
pub const ALL: &[Vendor] = &[
    Vendor {
        name: "openai",
        place: Place::At("https://api.openai.com/v1"),
        key_variable: Some("OPENAI_API_KEY"),
        needs_key: true,
        reasoning_models: OPENAI_REASONING,
        schemaless_models: OPENAI_SCHEMALESS,
        quirks: Quirks { answer_limit: AnswerLimit::MaxCompletionTokens, ..Quirks::NONE },
        docs: "https://platform.openai.com/docs/api-reference",
        ..COMPATIBLE
    },
    Vendor {
        name: "anthropic",
        wire: Wire::Anthropic,
        speaks_both: false,
        place: Place::At("https://api.anthropic.com/v1"),
        key_variable: Some("ANTHROPIC_API_KEY"),
        needs_key: true,
        hottest: 1.0,
        // Guide "Structured outputs": the models of generation 4.5 and later take one.
        schemaless_models: &[
            "claude-2",
            "claude-3",
            "claude-instant",
            "claude-opus-4-0",
            "claude-opus-4-1",
            "claude-opus-4-2025",
            "claude-sonnet-4-0",
            "claude-sonnet-4-2025",
        ],
        quirks: Quirks::NONE,
        call_ids: Wire::Anthropic.call_ids(),
        docs: "https://platform.claude.com/docs/en/api/messages",
        ..COMPATIBLE
    },
    Vendor {
        name: "gemini",
        wire: Wire::Gemini,
        speaks_both: false,
        place: Place::At("https://generativelanguage.googleapis.com/v1beta"),
        key_variable: Some("GEMINI_API_KEY"),
        needs_key: true,
        // Guide "Thinking": <https://ai.google.dev/gemini-api/docs/thinking>.
        reasoning_models: &["gemini-2.5", "gemini-3"],
        // Guide "Structured outputs": <https://ai.google.dev/gemini-api/docs/structured-output>.
        schemaless_models: &["gemini-1", "gemini-pro", "gemma"],
        quirks: Quirks::NONE,
        docs: "https://ai.google.dev/api",
        ..COMPATIBLE
    },
    Vendor {
        name: "azure",
        place: Place::AzureResource,
        key_variable: Some("AZURE_OPENAI_API_KEY"),
        needs_key: true,
        reasoning_models: OPENAI_REASONING,
        schemaless_models: OPENAI_SCHEMALESS,
        quirks: Quirks { key_header: Some(("api-key", "")), schemas_are_plain: true, ..Quirks::NONE },
        docs: "https://learn.microsoft.com/en-us/azure/ai-foundry/openai/api-version-lifecycle",
        ..COMPATIBLE
    },
    Vendor {
        name: "openrouter",
        place: Place::At("https://openrouter.ai/api/v1"),
        key_variable: Some("OPENROUTER_API_KEY"),
        needs_key: true,
        // Whether one is taken depends on who serves the model (<https://openrouter.ai/docs/features/structured-outputs>).
        quirks: Quirks { schemas: Schemas::Never, ..MAX_TOKENS },
        docs: "https://openrouter.ai/docs/api-reference/overview",
        ..COMPATIBLE
    },
    Vendor {
        name: "groq",
        place: Place::At("https://api.groq.com/openai/v1"),
        key_variable: Some("GROQ_API_KEY"),
        needs_key: true,
        // Few of its models take one (<https://console.groq.com/docs/structured-outputs>).
        quirks: Quirks {
            answer_limit: AnswerLimit::MaxCompletionTokens,
            schemas: Schemas::Never,
            ..Quirks::NONE
        },
        docs: "https://console.groq.com/docs/api-reference",
        ..COMPATIBLE
    },
    Vendor {
        name: "mistral",
        speaks_both: false,
        place: Place::At("https://api.mistral.ai/v1"),
        key_variable: Some("MISTRAL_API_KEY"),
        needs_key: true,
        // It refuses fields that it does not know, and gives its usage unasked (avante.nvim#2347, eca#231 on GitHub).
        quirks: Quirks { usage_comes_unasked: true, ..MAX_TOKENS },
        // Its refusal of others: "must be a-z, A-Z, 0-9, with a length of 9".
        call_ids: CallIds::NineAlphanumerics,
        docs: "https://docs.mistral.ai/api",
        ..COMPATIBLE
    },
    Vendor {
        name: "deepseek",
        speaks_both: false,
        place: Place::At("https://api.deepseek.com"),
        key_variable: Some("DEEPSEEK_API_KEY"),
        needs_key: true,
        reasoning_models: &["deepseek-reasoner"],
        // It refuses a schema: "This response_format type is unavailable now" (llm-exe#662 on GitHub).
        quirks: Quirks { reasoning_goes_back: true, schemas: Schemas::Never, ..MAX_TOKENS },
        docs: "https://api-docs.deepseek.com/guides/thinking_mode",
        ..COMPATIBLE
    },
    Vendor {
        name: "xai",
        place: Place::At("https://api.x.ai/v1"),
        key_variable: Some("XAI_API_KEY"),
        needs_key: true,
        quirks: MAX_TOKENS,
        docs: "https://docs.x.ai/docs/api-reference",
        ..COMPATIBLE
    },
    Vendor {
        name: "ollama",
        place: Place::At("http://localhost:11434/v1"),
        quirks: MAX_TOKENS,
        docs: "https://docs.ollama.com/api/openai-compatibility",
        ..COMPATIBLE
    },
    Vendor {
        name: "vllm",
        place: Place::At("http://localhost:8000/v1"),
        key_variable: Some("VLLM_API_KEY"),
        quirks: MAX_TOKENS,
        docs: "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        ..COMPATIBLE
    },
    Vendor {
        name: "llama_cpp",
        place: Place::At("http://localhost:8080/v1"),
        key_variable: Some("LLAMA_API_KEY"),
        quirks: MAX_TOKENS,
        docs: "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        ..COMPATIBLE
    },
    COMPATIBLE,
    // Gateways and vendors that took the protocol over. Some end a stream with the stop reason, and few know schemas.
    Vendor {
        name: "anthropic_compatible",
        wire: Wire::Anthropic,
        speaks_both: false,
        hottest: 1.0,
        quirks: Quirks { message_stop_is_optional: true, schemas: Schemas::Never, ..Quirks::NONE },
        call_ids: Wire::Anthropic.call_ids(),
        docs: "https://platform.claude.com/docs/en/api/messages",
        ..COMPATIBLE
    },
];

/// The vendor of that name.
pub fn find(name: &str) -> Option<&'static Vendor> {
    ALL.iter().find(|vendor| vendor.name == name)
}

impl Vendor {
    /// Somebody who speaks that protocol as its inventor does, at an address that the user gives, and needs no key. Anything
    /// else is said field by field.
    pub fn new(name: &'static str, wire: Wire) -> Vendor {
        let speaks_both = wire == Wire::OpenaiChat;
        let hottest = if wire == Wire::Anthropic { 1.0 } else { COMPATIBLE.hottest };
        Vendor { name, wire, speaks_both, hottest, call_ids: wire.call_ids(), docs: "", ..COMPATIBLE }
    }

    /// Whether the name says that the model reasons.
    pub fn reasons(&self, model: &str) -> bool {
        self.reasoning_models.iter().any(|prefix| model.starts_with(prefix)) && !model.contains("-chat")
    }

    fn is_schemaless(&self, model: &str) -> bool {
        let begins = |prefix: &&str| model.starts_with(prefix) || Some(model) == prefix.strip_suffix('-');
        self.schemaless_models.iter().any(begins)
    }

    /// A model of this vendor, with the defaults of what a vendor does not decide.
    ///
    /// # Errors
    ///
    /// `config.validation` if the vendor cannot do what is wanted, or something is missing; the context's `path` names
    /// the key.
    pub fn model(&self, wanted: Wanted) -> Result<ModelConfig, Error> {
        let wire = match wanted.style {
            None => self.wire,
            Some(ApiStyle::ChatCompletions) if self.wire == Wire::OpenaiChat => Wire::OpenaiChat,
            Some(ApiStyle::Responses) if self.speaks_both => Wire::OpenaiResponses,
            Some(_) => {
                let message = format!("{} speaks one protocol only", self.name);
                return Err(
                    invalid("llm.openai_api_style", message).with_hint("leave llm.openai_api_style out")
                );
            }
        };
        let reasons = wanted.reasons.unwrap_or_else(|| self.reasons(&wanted.model));
        let (api_base, query) = self.address(wire, &wanted)?;
        let endpoint = Endpoint::Http {
            api_base,
            api_key: wanted.api_key,
            extra_headers: wanted.extra_headers,
            ca_file: wanted.ca_file,
        };
        let mut config = ModelConfig::new(self.name, wanted.model, wire, endpoint);
        config.query = query;
        config.reasons = reasons;
        config.quirks = self.quirks;
        if self.is_schemaless(&config.model) {
            config.quirks.schemas = Schemas::Never;
        }
        config.call_ids = self.call_ids;
        Ok(config)
    }

    /// The API's base, and what is added to each query.
    fn address(&self, wire: Wire, wanted: &Wanted) -> Result<(String, Vec<(String, String)>), Error> {
        if wanted.api_version.is_some() && self.place != Place::AzureResource {
            let message = format!("a version has no use with {}", self.name);
            return Err(invalid("llm.api_version", message).with_hint("leave it out: azure alone has one"));
        }
        let base = wanted.api_base.as_deref().map(|base| base.trim_end_matches('/'));
        let (base, such_as) = match (base, self.place) {
            (Some(base), Place::AzureResource) => return Ok(azure_address(base, wire, wanted)),
            (Some(base), _) => (Some(base), ""),
            (None, Place::At(base)) => (Some(base), ""),
            (None, Place::AzureResource) => (None, "https://NAME.openai.azure.com"),
            (None, Place::Given) => (None, "https://host/v1"),
        };
        match base {
            Some(base) => Ok((base.to_owned(), Vec::new())),
            None => {
                let message = format!("{} needs the address of an API", self.name);
                Err(invalid("llm.api_base", message).with_hint(format!("such as {such_as}")))
            }
        }
    }
}

/// Azure's two ways to the same models: by `api-version`, the deployment in the path for Chat Completions alone; and without
/// one, as OpenAI has it. An address that goes further than the resource is taken as it is.
///
/// Source: "Azure OpenAI in Azure AI Foundry Models REST API reference"
/// (<https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference>); "Azure OpenAI API version lifecycle".
fn azure_address(base: &str, wire: Wire, wanted: &Wanted) -> (String, Vec<(String, String)>) {
    let below = match &wanted.api_version {
        _ if base.contains("/openai/") || base.ends_with("/openai") => String::new(),
        None => "/openai/v1".to_owned(),
        Some(_) if wire == Wire::OpenaiResponses => "/openai".to_owned(),
        Some(_) => format!("/openai/deployments/{}", encoded(&wanted.model)),
    };
    let query = wanted.api_version.iter().map(|version| ("api-version".to_owned(), version.clone()));
    (format!("{base}{below}"), query.collect())
}

/// What is wrong with a setting.
fn invalid(path: &str, message: impl Into<String>) -> Error {
    Error::new(codes::CONFIG_VALIDATION, message).with_context("path", path)
}
