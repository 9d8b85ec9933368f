//! An agent, made ready from its config: the machine that decides, the model that it asks, the tools that it has.

use std::sync::Arc;
use std::time::Duration;

use aplomb_core::decide::{Policy, ToolRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::message::CallIds;
use aplomb_core::redact;
use aplomb_core::run::{AgentSpec, Capability, Machine, Pattern, React, Target};
use aplomb_llm::provider::Endpoint;
use aplomb_llm::wire::Wire;
use aplomb_llm::{Model, ModelConfig, Timeouts};
use secrecy::{ExposeSecret, SecretString};

use crate::config::{AgentConfig, LlmConfig, MemoryConfig, PatternConfig, Provider, ToolExecutorConfig};
use crate::credential::{Credential, EnvCredential, Keyring, SharedSource};
use crate::driver::Benches;
use crate::memory::Buffer;
use crate::tools::{BUILT_IN, Tool, Toolbox};

pub(crate) struct Agent {
    pub(crate) machine: Machine,
    /// One for each of the machine's targets.
    pub(crate) models: Arc<[Arc<Model>]>,
    /// Where each model's credential comes from, where it has one.
    pub(crate) keyrings: Arc<[Option<Keyring>]>,
    /// The models that are passed over.
    pub(crate) benches: Benches,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) memory: Option<Arc<Buffer>>,
}

/// What a program gives an agent besides its config.
#[derive(Default)]
pub(crate) struct Own<'a> {
    pub(crate) tools: Vec<(&'a str, Arc<dyn Tool>)>,
    pub(crate) pattern: Option<Arc<dyn Pattern>>,
    pub(crate) fallbacks: Vec<&'a LlmConfig>,
    pub(crate) credential: Option<SharedSource>,
}

impl Agent {
    pub(crate) fn new(config: &AgentConfig, own: Own<'_>) -> Result<Agent, Error> {
        let mut tools = Toolbox::default();
        let built_in = config.tools.iter().filter(|tool| tool.enabled).filter_map(|tool| {
            let (_, make) = BUILT_IN.iter().find(|(name, _)| *name == tool.r#type)?;
            Some((tool.id.as_str(), make()))
        });
        for (id, tool) in built_in.chain(own.tools) {
            tools.add(id, tool)?;
        }
        let PatternConfig::React { config: react } = &config.pattern;
        let pattern = own.pattern.unwrap_or_else(|| Arc::new(React::default()));
        check_capabilities(config, &*pattern)?;
        let llms: Vec<&LlmConfig> = [&config.llm].into_iter().chain(own.fallbacks).collect();
        let models = llms.iter().map(|llm| Ok(Arc::new(Model::new(model_config(llm)?)?)));
        let models: Vec<_> = models.collect::<Result<_, Error>>()?;
        let keyrings = llms.iter().map(|llm| keyring(llm, own.credential.as_ref()));
        let keyrings: Vec<_> = keyrings.collect::<Result<_, Error>>()?;
        let mut targets = llms.iter().zip(&keyrings).map(|(llm, keyring)| target(llm, keyring.is_some()));
        let first = targets.next().unwrap_or_default();
        let mut spec = AgentSpec::new(first);
        spec.fallbacks = targets.collect();
        spec.tools = tools.specs();
        spec.max_steps = config.runtime.max_steps;
        spec.policy = policy(config);
        Ok(Agent {
            machine: Machine::new(Arc::new(spec), pattern),
            models: models.into(),
            keyrings: keyrings.into(),
            benches: Benches::default(),
            tools: Arc::new(tools),
            system_prompt: react.system_prompt.clone().filter(|prompt| !prompt.trim().is_empty()),
            memory: config.memory.map(|MemoryConfig::Buffer {}| Arc::new(Buffer::default())),
        })
    }
}

/// A model as the machine knows it. Which ids it accepts is its protocol's matter.
fn target(llm: &LlmConfig, rereads_credential: bool) -> Target {
    let mut target = Target::new(llm.provider.as_str(), llm.model.as_str());
    target.call_ids = match wire(llm.provider) {
        Wire::Anthropic => CallIds::Words,
        _ => CallIds::AtMost(40),
    };
    target.rereads_credential = rereads_credential;
    target
}

fn keyring(llm: &LlmConfig, own: Option<&SharedSource>) -> Result<Option<Keyring>, Error> {
    let of = |source| Keyring::new(source, llm.provider.as_str().to_owned(), llm.model.clone());
    Ok(match (own, llm.api_key_env.as_deref()) {
        (Some(own), _) => Some(of(own.clone())),
        (None, Some(variable)) => {
            let read = Credential::new(api_key(variable)?.expose_secret());
            Some(of(SharedSource(Arc::new(EnvCredential::new(variable)))).having_read(read))
        }
        (None, None) => None,
    })
}

/// What the wires that there are can carry, whoever serves the model.
const OFFERED: [Capability; 2] = [Capability::Tools, Capability::Images];

/// Refuses a pattern that needs what the model does not offer.
fn check_capabilities(config: &AgentConfig, pattern: &dyn Pattern) -> Result<(), Error> {
    let Some(need) = pattern.needs().iter().find(|need| !OFFERED.contains(need)) else {
        return Ok(());
    };
    let (kind, provider) = (pattern.kind(), config.llm.provider.as_str());
    let message = format!("pattern {kind:?} needs {need}, which provider {provider:?} does not offer");
    Err(Error::new(codes::PLUGIN_CAPABILITY, message))
}

fn policy(config: &AgentConfig) -> Policy {
    let mut policy = Policy::default();
    policy.transport = config.llm.retry.clone();
    policy.session = config.retry.session.clone();
    policy.exec = config.retry.exec.clone();
    policy.tools = match &config.tool_executor {
        ToolExecutorConfig::Safe {} => ToolRetry::never(),
        ToolExecutorConfig::Retry { config } => config.clone(),
    };
    policy.max_inline_wait_ms = config.retry.max_inline_wait_ms;
    policy.restart = config.retry.restart;
    policy
}

fn model_config(llm: &LlmConfig) -> Result<ModelConfig, Error> {
    let endpoint = match (llm.provider, &llm.script) {
        (Provider::Mock, Some(script)) => Endpoint::Mock(script.clone()),
        _ => Endpoint::Http {
            api_base: llm.api_base.clone().unwrap_or_else(|| default_base(llm.provider).to_owned()),
            api_key: llm.api_key_env.as_deref().map(api_key).transpose()?,
            extra_headers: llm.extra_headers.secret(),
            ca_file: llm.ca_file.clone(),
        },
    };
    let mut model = ModelConfig::new(llm.provider.as_str(), &*llm.model, wire(llm.provider), endpoint);
    model.temperature = llm.temperature;
    model.max_tokens = llm.max_tokens;
    model.stream = llm.stream;
    model.timeouts = timeouts(llm);
    Ok(model)
}

fn wire(provider: Provider) -> Wire {
    match provider {
        Provider::Anthropic => Wire::Anthropic,
        Provider::Mock | Provider::OpenaiCompatible => Wire::OpenaiChat,
    }
}

/// Where a provider is that has one place.
fn default_base(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "https://api.anthropic.com/v1",
        Provider::Mock | Provider::OpenaiCompatible => "",
    }
}

fn timeouts(llm: &LlmConfig) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let set = |limit: &mut Duration, ms: Option<u64>| {
        if let Some(ms) = ms {
            *limit = Duration::from_millis(ms);
        }
    };
    set(&mut timeouts.connect, llm.timeouts.connect_ms);
    set(&mut timeouts.first_byte, llm.timeouts.first_byte_ms.or(llm.timeout_ms));
    set(&mut timeouts.idle, llm.timeouts.idle_ms);
    timeouts.attempt = llm.timeouts.attempt_ms.map(Duration::from_millis);
    timeouts
}

fn api_key(variable: &str) -> Result<SecretString, Error> {
    if let Ok(key) = std::env::var(variable)
        && !key.trim().is_empty()
    {
        return Ok(SecretString::from(key.trim().to_owned()));
    }
    // Whoever puts the key itself here must not find it in a log: only what looks like a variable's name is repeated.
    let looks_like_a_name = variable.starts_with(|first: char| first.is_ascii_uppercase())
        && variable.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
        && variable.contains('_');
    let error = if looks_like_a_name && redact::text(variable) == variable {
        Error::new(codes::CONFIG_LOAD, format!("llm.api_key_env names {variable}, which is not set"))
            .with_hint(format!("export {variable}=…"))
    } else {
        Error::new(codes::CONFIG_LOAD, "llm.api_key_env names an environment variable that is not set")
            .with_hint("it takes the variable's name, such as OPENAI_API_KEY, and not the key itself")
    };
    Err(error)
}
