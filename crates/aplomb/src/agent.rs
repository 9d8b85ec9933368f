//! An agent, made ready from its config: the machine that decides, the model that it asks, the tools that it has.

use std::sync::Arc;
use std::time::Duration;

use aplomb_core::decide::Policy;
use aplomb_core::error::{Error, codes};
use aplomb_core::redact;
use aplomb_core::run::{AgentSpec, Capability, Machine, Pattern};
use aplomb_llm::provider::Endpoint;
use aplomb_llm::{Model, ModelConfig, Timeouts};
use secrecy::SecretString;
use serde_json::Value;

use crate::config::{AgentConfig, LlmConfig, MemoryConfig, OnError, PluginRef, Provider, StreamMode};
use crate::memory::Sessions;
use crate::plugins::{Named, Registry};
use crate::tools::{Tool, Toolbox};

pub(crate) struct Agent {
    pub(crate) machine: Machine,
    pub(crate) model: Arc<Model>,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) sessions: Option<Arc<Sessions>>,
}

impl Agent {
    pub(crate) fn new<'a>(
        config: &'a AgentConfig,
        registry: &Registry,
        own_tools: impl Iterator<Item = (&'a str, Arc<dyn Tool>)>,
        own_pattern: Option<Arc<dyn Pattern>>,
    ) -> Result<Agent, Error> {
        let mut tools = Toolbox::default();
        for (index, tool) in config.tools.iter().enumerate().filter(|(_, tool)| tool.enabled) {
            let made = registry.make_tool(named(&tool.r#type, &tool.r#impl), &tool.config);
            tools.add(&tool.id, made.map_err(|error| below(error, &format!("tools[{index}]")))?)?;
        }
        for (id, tool) in own_tools {
            tools.add(id, tool)?;
        }
        let pattern = match own_pattern {
            Some(pattern) => pattern,
            None => {
                let PluginRef { r#type, r#impl, config } = &config.pattern;
                let made = registry.make_pattern(named(r#type, r#impl), config);
                made.map_err(|error| below(error, "pattern"))?
            }
        };
        let provider = provider(&config.llm)?;
        check_capabilities(provider, &*pattern, tools.specs().len())?;
        let spec = AgentSpec {
            provider: provider.name.to_owned(),
            model: model_name(&config.llm, provider),
            tools: tools.specs(),
            max_steps: config.runtime.max_steps,
            policy: policy(config, registry)?,
        };
        let sessions = config.memory.as_ref().map(|memory| sessions(memory, registry)).transpose()?;
        let system_prompt = config.pattern.config.0.get("system_prompt").and_then(Value::as_str);
        Ok(Agent {
            machine: Machine::new(Arc::new(spec), pattern),
            model: Arc::new(Model::new(model_config(&config.llm, provider)?)?),
            tools: Arc::new(tools),
            system_prompt: system_prompt.filter(|prompt| !prompt.trim().is_empty()).map(str::to_owned),
            sessions,
        })
    }
}

/// The selector of a plugin and its name.
pub(crate) fn named<'a>(r#type: &'a Option<String>, r#impl: &'a Option<String>) -> Named<'a> {
    match (r#type, r#impl) {
        (_, Some(name)) => ("impl", name),
        (Some(name), None) => ("type", name),
        (None, None) => ("type", ""),
    }
}

/// An error of a part of the agent.
fn below(error: Error, path: &str) -> Error {
    error.with_place(path).or_context("path", path)
}

fn sessions(memory: &MemoryConfig, registry: &Registry) -> Result<Arc<Sessions>, Error> {
    let MemoryConfig { r#type, r#impl, config, on_error } = memory;
    let made = registry.make_memory(named(r#type, r#impl), config);
    let must_recall = *on_error == OnError::Fail;
    Ok(Arc::new(Sessions::new(made.map_err(|error| below(error, "memory"))?, must_recall)))
}

pub(crate) fn provider(llm: &LlmConfig) -> Result<&'static Provider, Error> {
    Provider::find(&llm.provider).ok_or_else(|| {
        let message = format!("llm.provider: no provider is called {:?}", llm.provider);
        Error::new(codes::CONFIG_VALIDATION, message)
    })
}

/// Refuses an agent one part of which needs what another does not offer.
fn check_capabilities(provider: &Provider, pattern: &dyn Pattern, tools: usize) -> Result<(), Error> {
    let refuse = |who: String, need: Capability| {
        let name = provider.name;
        let message = format!("{who} needs {need}, which provider {name:?} does not offer");
        Err(Error::new(codes::PLUGIN_CAPABILITY, message))
    };
    if let Some(need) = pattern.needs().iter().find(|need| !provider.offers.contains(need)) {
        return refuse(format!("pattern {:?}", pattern.kind()), *need);
    }
    if tools > 0 && !provider.offers.contains(&Capability::Tools) {
        return refuse("an agent with tools".to_owned(), Capability::Tools);
    }
    Ok(())
}

fn policy(config: &AgentConfig, registry: &Registry) -> Result<Policy, Error> {
    let mut policy = Policy::default();
    policy.transport = config.llm.retry.policy();
    policy.session = config.retry.session.policy();
    policy.exec = config.retry.exec.policy();
    let PluginRef { r#type, r#impl, config: executor } = &config.tool_executor;
    let made = registry.make_tool_executor(named(r#type, r#impl), executor);
    policy.tools = made.map_err(|error| below(error, "tool_executor"))?;
    policy.max_inline_wait_ms = config.retry.max_inline_wait_ms;
    policy.restart = config.retry.restart.policy();
    Ok(policy)
}

/// The mock's model needs no name.
fn model_name(llm: &LlmConfig, provider: &Provider) -> String {
    llm.model.clone().unwrap_or_else(|| provider.name.to_owned())
}

pub(crate) fn model_config(llm: &LlmConfig, provider: &Provider) -> Result<ModelConfig, Error> {
    let Some(wire) = provider.wire else {
        let message = format!("llm.provider: {:?} is not there yet", provider.name);
        return Err(Error::new(codes::CONFIG_VALIDATION, message));
    };
    let endpoint = match &llm.script {
        Some(script) if provider.sends_nothing() => Endpoint::Mock(script.clone()),
        _ => Endpoint::Http {
            api_base: llm.api_base.as_deref().or(provider.api_base).unwrap_or_default().to_owned(),
            api_key: llm.api_key_env.as_deref().map(api_key).transpose()?,
            extra_headers: llm.extra_headers.secret(),
            ca_file: llm.ca_file.clone(),
        },
    };
    let mut model = ModelConfig::new(provider.name, model_name(llm, provider), wire, endpoint);
    model.temperature = llm.temperature;
    model.max_tokens = llm.max_tokens;
    model.stream = match llm.stream {
        StreamMode::Auto => aplomb_llm::StreamMode::Auto,
        StreamMode::Always => aplomb_llm::StreamMode::Always,
        StreamMode::Never => aplomb_llm::StreamMode::Never,
    };
    model.timeouts = timeouts(llm);
    Ok(model)
}

fn timeouts(llm: &LlmConfig) -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.connect = Duration::from_millis(llm.timeouts.connect_ms);
    timeouts.first_byte = Duration::from_millis(llm.timeouts.first_byte_ms.unwrap_or(llm.timeout_ms));
    timeouts.idle = Duration::from_millis(llm.timeouts.idle_ms);
    timeouts.attempt = llm.timeouts.attempt_ms.map(Duration::from_millis);
    timeouts
}

pub(crate) fn api_key(variable: &str) -> Result<SecretString, Error> {
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
    Err(error.with_context("path", "llm.api_key_env"))
}
