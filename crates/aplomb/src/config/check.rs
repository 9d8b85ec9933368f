//! What a document's shape cannot say: ranges, and keys that go together.

use std::collections::BTreeSet;

use aplomb_core::error::{Code, Error, codes};
use aplomb_core::near::did_you_mean;

use super::{AgentConfig, Config, LlmConfig, Provider, ToolExecutorConfig};
use crate::tools::BUILT_IN;

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
        }
        in_range(
            "retry.exec.max_retries",
            self.retry.exec.max_retries,
            1..=100,
            "; use 1 to disable retries",
        )?;
        let mut ids = BTreeSet::new();
        for (index, tool) in self.tools.iter().enumerate() {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if !(1..=64).contains(&tool.id.len()) || !tool.id.bytes().all(is_name) {
                // Source: OpenAI API reference, `tools[].function.name`.
                let what = "must be 1 to 64 letters, digits, underscores or dashes";
                return problem(&format!("tools[{index}].id"), what);
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
        if self.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            return problem("llm.temperature", "must be from 0 to 2");
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
        if !self.retry.backoff_multiplier.is_finite() || self.retry.backoff_multiplier < 1.0 {
            return problem("llm.retry.backoff_multiplier", "must be a number of at least 1");
        }
        if self.retry.initial_backoff_ms > self.retry.max_backoff_ms {
            return problem("llm.retry.initial_backoff_ms", "must not be more than max_backoff_ms");
        }
        Ok(())
    }
}
