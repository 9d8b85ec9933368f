//! An agent, made ready from its config: the machine that decides, the models that it asks, the tools that it has.

use std::sync::Arc;

use aplomb_core::decide::schedule::{self, Overview, Setting};
use aplomb_core::decide::{Mode, Policy, ResumeRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::failure::Reason;
use aplomb_core::run::{AgentSpec, Capability, Machine, Pattern};
use aplomb_llm::Model;
use serde_json::Value;

use crate::config::{AgentConfig, FallbackReason, MemoryConfig, OnError, PluginRef, Provider, RetryMode};
use crate::credential::{Keyring, SharedSource};
use crate::driver::Benches;
use crate::memory::Sessions;
use crate::model::Asked;
use crate::plugins::{Named, Registry};
use crate::tools::{Tool, Toolbox};

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
    pub(crate) sessions: Option<Arc<Sessions>>,
}

/// What a program gives an agent besides its config.
#[derive(Default)]
pub(crate) struct Own<'a> {
    pub(crate) tools: Vec<(&'a str, Arc<dyn Tool>)>,
    pub(crate) pattern: Option<Arc<dyn Pattern>>,
    pub(crate) credential: Option<SharedSource>,
}

impl Agent {
    pub(crate) fn new(config: &AgentConfig, registry: &Registry, own: Own<'_>) -> Result<Agent, Error> {
        let mut tools = Toolbox::default();
        for (index, tool) in config.tools.iter().enumerate().filter(|(_, tool)| tool.enabled) {
            let made = registry.make_tool(named(&tool.r#type, &tool.r#impl), &tool.config);
            tools.add(&tool.id, made.map_err(|error| below(error, &format!("tools[{index}]")))?)?;
        }
        for (id, tool) in own.tools {
            tools.add(id, tool)?;
        }
        let pattern = match own.pattern {
            Some(pattern) => pattern,
            None => {
                let PluginRef { r#type, r#impl, config } = &config.pattern;
                let made = registry.make_pattern(named(r#type, r#impl), config);
                made.map_err(|error| below(error, "pattern"))?
            }
        };
        let first = Asked::new(&config.llm, own.credential.as_ref())?;
        let mut spec = AgentSpec::new(first.target);
        let mut asked = vec![(first.provider, first.model, first.keyring)];
        for (index, llm) in config.llm.fallbacks.iter().enumerate() {
            let fallback = Asked::new(llm, own.credential.as_ref())
                .map_err(|error| below(error, &format!("llm.fallbacks[{index}]")))?;
            spec.fallbacks.push(fallback.target);
            asked.push((fallback.provider, fallback.model, fallback.keyring));
        }
        for (provider, _, _) in &asked {
            check_capabilities(*provider, &*pattern, tools.specs().len())?;
        }
        spec.tools = tools.specs();
        spec.max_steps = config.runtime.max_steps;
        spec.max_tool_calls = config.runtime.max_tool_calls;
        spec.step_timeout_ms = config.runtime.step_timeout_ms;
        spec.policy = policy(config, registry)?;
        let sessions = config.memory.as_ref().map(|memory| sessions(memory, registry)).transpose()?;
        let system_prompt = config.pattern.config.0.get("system_prompt").and_then(Value::as_str);
        let (models, keyrings): (Vec<_>, Vec<_>) =
            asked.into_iter().map(|(_, model, keyring)| (model, keyring)).unzip();
        Ok(Agent {
            machine: Machine::new(Arc::new(spec), pattern),
            models: models.into(),
            keyrings: keyrings.into(),
            benches: Benches::default(),
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
    let path = match error.context("path").and_then(Value::as_str) {
        Some(inner) => format!("{path}.{}", inner.strip_prefix("llm.").unwrap_or(inner)),
        None => path.to_owned(),
    };
    error.with_place(&path).with_context("path", path)
}

fn sessions(memory: &MemoryConfig, registry: &Registry) -> Result<Arc<Sessions>, Error> {
    let MemoryConfig { r#type, r#impl, config, on_error } = memory;
    let made = registry.make_memory(named(r#type, r#impl), config);
    let must_recall = *on_error == OnError::Fail;
    Ok(Arc::new(Sessions::new(made.map_err(|error| below(error, "memory"))?, must_recall)))
}

/// Refuses an agent one part of which needs what another does not offer.
fn check_capabilities(provider: Provider, pattern: &dyn Pattern, tools: usize) -> Result<(), Error> {
    let refuse = |who: String, need: Capability| {
        let name = provider.name();
        let message = format!("{who} needs {need}, which provider {name:?} does not offer");
        Err(Error::new(codes::PLUGIN_CAPABILITY, message))
    };
    let offers = provider.offers();
    if let Some(need) = pattern.needs().iter().find(|need| !offers.contains(need)) {
        return refuse(format!("pattern {:?}", pattern.kind()), *need);
    }
    if tools > 0 && !offers.contains(&Capability::Tools) {
        return refuse("an agent with tools".to_owned(), Capability::Tools);
    }
    Ok(())
}

/// What an agent's config says about failures.
pub(crate) fn policy(config: &AgentConfig, registry: &Registry) -> Result<Policy, Error> {
    let (llm, retry) = (&config.llm, &config.retry);
    let mut policy = Policy::default();
    policy.mode = match llm.retry.mode {
        RetryMode::Additive => Mode::Additive,
        RetryMode::Layered => Mode::Layered,
    };
    policy.transport = llm.retry.policy();
    policy.session = retry.session.policy();
    policy.exec = retry.exec.policy();
    let PluginRef { r#type, r#impl, config: executor } = &config.tool_executor;
    let made = registry.make_tool_executor(named(r#type, r#impl), executor);
    policy.tools = made.map_err(|error| below(error, "tool_executor"))?;
    policy.max_inline_wait_ms = retry.max_inline_wait_ms;
    policy.restart = retry.restart.policy();
    policy.max_compactions = retry.max_compactions;
    let fallback_on = llm.fallback_on.iter().map(|reason| match reason {
        FallbackReason::QuotaExhausted => Reason::QuotaExhausted,
        FallbackReason::ModelNotFound => Reason::ModelNotFound,
        FallbackReason::Auth => Reason::Auth,
        FallbackReason::Permission => Reason::Permission,
        FallbackReason::InvalidRequest => Reason::InvalidRequest,
        FallbackReason::ContextOverflow => Reason::ContextOverflow,
        FallbackReason::ContentFilter => Reason::ContentFilter,
        FallbackReason::PayloadTooLarge => Reason::PayloadTooLarge,
        FallbackReason::InvalidImage => Reason::InvalidImage,
        FallbackReason::ToolSchemaInvalid => Reason::ToolSchemaInvalid,
        FallbackReason::MalformedResponse => Reason::MalformedResponse,
        FallbackReason::Unknown => Reason::Unknown,
    });
    policy.fallback_on = fallback_on.collect();
    policy.resume = ResumeRetry::default();
    policy.resume.base_delay_ms = retry.resume.base_delay_ms;
    policy.resume.max_delay_ms = retry.resume.max_delay_ms;
    Ok(policy)
}

/// What an agent's settings come to where model calls fail, in a run that ends by then.
pub(crate) fn overview(
    config: &AgentConfig,
    registry: &Registry,
    deadline_ms: Option<u64>,
) -> Result<Overview, Error> {
    let llm = &config.llm;
    let mut setting = Setting::default();
    setting.targets = llm.fallbacks.len().saturating_add(1);
    setting.deadline_ms = deadline_ms;
    setting.step_timeout_ms = config.runtime.step_timeout_ms;
    setting.first_byte_ms = llm.first_byte_ms();
    setting.attempt_ms = llm.timeouts.attempt_ms;
    Ok(schedule::overview(&policy(config, registry)?, setting))
}
