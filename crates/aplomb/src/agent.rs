//! An agent, made ready from its config: the machine that decides, the models that it asks, the tools that it has.

use std::sync::Arc;

use aplomb_core::decide::schedule::{self, Overview, Setting};
use aplomb_core::decide::{Mode, Policy, ResumeRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::failure::Reason;
use aplomb_core::run::{AgentSpec, Capability, Machine, Pattern, Target};
use aplomb_llm::Model;
use serde_json::Value;

use crate::boundary;
use crate::config::{AgentConfig, FallbackReason, MemoryConfig, OnError, PluginRef, RetryMode};
use crate::credential::{Keyring, SharedSource};
use crate::driver::Benches;
use crate::memory::Remembering;
use crate::model::Asked;
use crate::plugins::{Named, Part, Registry};
use crate::tools::{ToolExecutor, ToolPolicy, Toolbox};

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
    pub(crate) memory: Option<Arc<Remembering>>,
    /// The first of its models' providers that takes no images.
    pub(crate) without_images: Option<String>,
}

impl Agent {
    /// `credential` is the program's source of credentials, which goes before the config's.
    pub(crate) fn new(
        config: &AgentConfig,
        registry: &Registry,
        credential: Option<&SharedSource>,
    ) -> Result<Agent, Error> {
        let (executor, tool_policy) = executor(config, registry)?;
        let mut tools = Toolbox::new(executor, tool_policy.time_limit);
        for (index, tool) in config.tools.iter().enumerate().filter(|(_, tool)| tool.enabled) {
            let made = registry.make(named(&tool.r#type, &tool.r#impl), &tool.config);
            tools.add(&tool.id, made.map_err(|error| below(error, &format!("tools[{index}]")))?)?;
        }
        let pattern: Arc<dyn Pattern> = made(&config.pattern, registry, "pattern")?;
        let first = Asked::new(&config.llm, registry, credential)?;
        let mut asked = vec![first];
        for (index, llm) in config.llm.fallbacks.iter().enumerate() {
            let fallback = Asked::new(llm, registry, credential);
            asked.push(fallback.map_err(|error| below(error, &format!("llm.fallbacks[{index}]")))?);
        }
        let needs = boundary::ask("the pattern", "what it needs", || pattern.needs().to_vec())
            .map_err(|error| below(error, "pattern"))?;
        let (_, pattern_name) = named(&config.pattern.r#type, &config.pattern.r#impl);
        for Asked { offers, target, .. } in &asked {
            check_capabilities(target, offers, pattern_name, &needs, tools.specs().len())?;
        }
        let blind = asked.iter().find(|asked| !asked.offers.contains(&Capability::Images));
        let without_images = blind.map(|asked| asked.target.provider.clone());
        let mut targets = asked.iter().map(|asked| asked.target.clone());
        let mut spec = AgentSpec::new(targets.next().unwrap_or_default());
        spec.fallbacks = targets.collect();
        spec.tools = tools.specs();
        spec.max_steps = config.runtime.max_steps;
        spec.max_tool_calls = config.runtime.max_tool_calls;
        spec.step_timeout_ms = config.runtime.step_timeout_ms;
        spec.policy = policy(config, tool_policy);
        if let Some(assembler) = &config.context_assembler {
            spec.assembler = made(assembler, registry, "context_assembler")?;
        }
        let memory = config.memory.as_ref().map(|memory| remembering(memory, registry)).transpose()?;
        let system_prompt = config.pattern.config.0.get("system_prompt").and_then(Value::as_str);
        let machine = boundary::ask("the pattern", "what it is", || Machine::new(Arc::new(spec), pattern))
            .map_err(|error| below(error, "pattern"))?;
        let (models, keyrings): (Vec<_>, Vec<_>) =
            asked.into_iter().map(|asked| (asked.model, asked.keyring)).unzip();
        Ok(Agent {
            machine,
            models: models.into(),
            keyrings: keyrings.into(),
            benches: Benches::default(),
            tools: Arc::new(tools),
            system_prompt: system_prompt.filter(|prompt| !prompt.trim().is_empty()).map(str::to_owned),
            memory,
            without_images,
        })
    }
}

/// What an agent's config refers to at a key of its.
fn made<P: Part>(part: &PluginRef, registry: &Registry, key: &str) -> Result<P, Error> {
    let PluginRef { r#type, r#impl, config } = part;
    registry.make(named(r#type, r#impl), config).map_err(|error| below(error, key))
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
    error.with_context("path", path)
}

fn remembering(memory: &MemoryConfig, registry: &Registry) -> Result<Arc<Remembering>, Error> {
    let MemoryConfig { r#type, r#impl, config, on_error } = memory;
    let made = registry.make(named(r#type, r#impl), config);
    let must_recall = *on_error == OnError::Fail;
    Ok(Arc::new(Remembering { memory: made.map_err(|error| below(error, "memory"))?, must_recall }))
}

/// How an agent's tools are called, and what is to be gone by there.
fn executor(config: &AgentConfig, registry: &Registry) -> Result<(Arc<dyn ToolExecutor>, ToolPolicy), Error> {
    let executor: Arc<dyn ToolExecutor> = made(&config.tool_executor, registry, "tool_executor")?;
    let policy = boundary::ask("the tool executor", "for its policy", || executor.policy())
        .map_err(|error| below(error, "tool_executor"))?;
    Ok((executor, policy))
}

/// Refuses an agent one part of which needs what another does not offer.
fn check_capabilities(
    target: &Target,
    offers: &[Capability],
    pattern: &str,
    needs: &[Capability],
    tools: usize,
) -> Result<(), Error> {
    let refuse = |who: String, need: Capability| {
        let message = format!("{who} needs {need}, which provider {:?} does not offer", target.provider);
        Err(Error::new(codes::PLUGIN_CAPABILITY, message))
    };
    if let Some(need) = needs.iter().find(|need| !offers.contains(need)) {
        return refuse(format!("pattern {pattern:?}"), *need);
    }
    if tools > 0 && !offers.contains(&Capability::Tools) {
        return refuse("an agent with tools".to_owned(), Capability::Tools);
    }
    Ok(())
}

/// What an agent's config says about failures.
fn policy(config: &AgentConfig, tools: ToolPolicy) -> Policy {
    let (llm, retry) = (&config.llm, &config.retry);
    let mut policy = Policy::default();
    policy.mode = match llm.retry.mode {
        RetryMode::Additive => Mode::Additive,
        RetryMode::Layered => Mode::Layered,
    };
    policy.transport = llm.retry.policy();
    policy.session = retry.session.policy();
    policy.exec = retry.exec.policy();
    policy.tools = tools.retry;
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
    policy
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
    let (_, tool_policy) = executor(config, registry)?;
    Ok(schedule::overview(&policy(config, tool_policy), setting))
}
