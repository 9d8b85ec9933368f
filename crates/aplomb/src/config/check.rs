//! What a document's shape cannot say: ranges, and keys that go together.

use std::collections::BTreeSet;

use aplomb_core::error::{Code, Error, codes};
use aplomb_core::near::did_you_mean;

use super::{AgentConfig, Config, LlmConfig, Provider, ToolExecutorConfig};
use crate::tools::{BUILT_IN, TOOL_ID, is_tool_id};

impl Config {
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let at = |code: Code, path: String, what: String| {
            Error::new(code, format!("{name}: {path}: {what}")).with_context("path", path)
        };
        let invalid = |path: String, what: String| at(codes::CONFIG_VALIDATION, path, what);
        if self.agents.is_empty() {
            return Err(invalid("agents".to_owned(), "at least one agent is needed".to_owned()));
        }
        let mut ids = BTreeSet::new();
        for (index, agent) in self.agents.iter().enumerate() {
            if !ids.insert(&agent.id) {
                return Err(invalid(format!("agents[{index}].id"), format!("{:?} is taken", agent.id)));
            }
            agent.check().map_err(|Problem { code, path, what, hint }| {
                let error = at(code, format!("agents[{index}].{path}"), what);
                match hint {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                }
            })?;
        }
        Ok(())
    }
}

struct Problem {
    code: Code,
    path: String,
    what: String,
    hint: Option<String>,
}

fn problem(path: &str, what: impl Into<String>) -> Result<(), Problem> {
    Err(Problem { code: codes::CONFIG_VALIDATION, path: path.to_owned(), what: what.into(), hint: None })
}

fn in_range(path: &str, value: u32, range: std::ops::RangeInclusive<u32>, hint: &str) -> Result<(), Problem> {
    if range.contains(&value) {
        return Ok(());
    }
    problem(path, format!("{value} is not in {}..={}{hint}", range.start(), range.end()))
}

impl AgentConfig {
    fn check(&self) -> Result<(), Problem> {
        if self.id.trim().is_empty() {
            return problem("id", "an agent needs a name");
        }
        self.llm.check()?;
        in_range("runtime.max_steps", self.runtime.max_steps, 1..=u32::MAX, "")?;
        in_range("retry.session.max_retries", self.retry.session.max_retries, 0..=100, "")?;
        if let ToolExecutorConfig::Retry { config } = &self.tool_executor {
            let path = "tool_executor.config.max_attempts";
            in_range(path, config.max_attempts, 1..=100, "; use 1 to disable retries")?;
            let backoff = (config.initial_backoff_ms, config.max_backoff_ms, config.backoff_multiplier);
            check_backoff("tool_executor.config", backoff)?;
        }
        in_range(
            "retry.exec.max_retries",
            self.retry.exec.max_retries,
            1..=100,
            "; use 1 to disable retries",
        )?;
        let mut ids = BTreeSet::new();
        for (index, tool) in self.tools.iter().enumerate() {
            if !is_tool_id(&tool.id) {
                return problem(&format!("tools[{index}].id"), format!("must be {TOOL_ID}"));
            }
            if !ids.insert(&tool.id) {
                return problem(&format!("tools[{index}].id"), format!("{:?} is taken", tool.id));
            }
            if !BUILT_IN.iter().any(|(name, _)| *name == tool.r#type) {
                let known = || BUILT_IN.iter().map(|(name, _)| *name);
                let listed = || format!("the tools are: {}", known().collect::<Vec<_>>().join(", "));
                return Err(Problem {
                    code: codes::PLUGIN_LOAD,
                    path: format!("tools[{index}].type"),
                    what: format!("no tool is called {:?}", tool.r#type),
                    hint: Some(did_you_mean(&tool.r#type, known()).unwrap_or_else(listed)),
                });
            }
        }
        Ok(())
    }
}

impl LlmConfig {
    fn check(&self) -> Result<(), Problem> {
        match self.provider {
            Provider::Mock if self.script.is_none() => {
                return problem("llm.script", "mock needs a script to play");
            }
            Provider::OpenaiCompatible | Provider::Anthropic if self.script.is_some() => {
                return problem("llm.script", "only mock plays a script");
            }
            Provider::OpenaiCompatible if self.api_base.is_none() => {
                return problem("llm.api_base", "openai_compatible needs the address of an API");
            }
            _ => {}
        }
        // Source: the API references of both; Anthropic's ends at 1.
        let hottest = if self.provider == Provider::Anthropic { 1.0 } else { 2.0 };
        if self.temperature.is_some_and(|temperature| !(0.0..=hottest).contains(&temperature)) {
            return problem("llm.temperature", format!("must be from 0 to {hottest}"));
        }
        let sends = [
            ("llm.api_base", self.api_base.is_some()),
            ("llm.api_key_env", self.api_key_env.is_some()),
            ("llm.extra_headers", !self.extra_headers.0.is_empty()),
            ("llm.ca_file", self.ca_file.is_some()),
        ];
        if let Some((path, _)) = sends.into_iter().find(|(_, set)| *set && self.provider == Provider::Mock) {
            return problem(path, "mock sends nothing");
        }
        if self.model.trim().is_empty() {
            return problem("llm.model", "a model needs a name");
        }
        let times = &self.timeouts;
        for (path, limit) in [
            ("llm.timeout_ms", self.timeout_ms),
            ("llm.timeouts.connect_ms", times.connect_ms),
            ("llm.timeouts.first_byte_ms", times.first_byte_ms),
            ("llm.timeouts.idle_ms", times.idle_ms),
            ("llm.timeouts.attempt_ms", times.attempt_ms),
            ("llm.max_tokens", self.max_tokens.map(u64::from)),
        ] {
            if limit == Some(0) {
                return problem(path, "must be at least 1; leave it out for the default");
            }
        }
        in_range("llm.retry.max_attempts", self.retry.max_attempts, 1..=100, "; use 1 to disable retries")?;
        let retry = &self.retry;
        check_backoff(
            "llm.retry",
            (retry.initial_backoff_ms, retry.max_backoff_ms, retry.backoff_multiplier),
        )?;
        Ok(())
    }
}

fn check_backoff(path: &str, (initial_ms, max_ms, multiplier): (u64, u64, f64)) -> Result<(), Problem> {
    if !multiplier.is_finite() || multiplier < 1.0 {
        return problem(&format!("{path}.backoff_multiplier"), "must be a number of at least 1");
    }
    if initial_ms > max_ms {
        return problem(&format!("{path}.initial_backoff_ms"), "must not be more than max_backoff_ms");
    }
    Ok(())
}
