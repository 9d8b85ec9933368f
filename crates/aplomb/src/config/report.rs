//! What there is to say about a config that can be read: what may go wrong, and what it comes to.

use std::fmt;

use aplomb_core::error::{Code, Error, codes};
use aplomb_core::redact::{self, Redactor};
use serde::Serialize;
use serde_json::Value;

use super::document::{Content, Document, Node, Place, is_secret};
use super::problem::{Path, Problem};
use super::{BUILT_IN, Config, LlmConfig, env, problem};
use crate::plugins::{Provider, Registry};

/// Something in a config that lets nothing fail before it runs, and still is likely to be a mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Warning {
    /// The value's path, such as `agents[0].llm.api_key_env`; empty where there is no value.
    pub path: String,
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// What it is.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { path, place, message, hint } = self;
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        write!(f, "{path}{message} ({place})")?;
        hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl Config {
    /// What is likely to be a mistake.
    pub(crate) fn suspicions(&self, registry: &Registry) -> Vec<Problem> {
        let mut problems = Vec::new();
        for variable in self.loaded.2.iter() {
            let problem = Problem::new(codes::CONFIG_LOAD, "", "this variable sets nothing").at(variable);
            problems.push(problem.meant(Some(
                "the names of those that set values begin with APLOMB_CONFIG__, in upper case".to_owned(),
            )));
        }
        self.each_model(&mut |at, llm| {
            let mut suspect = |code: Code, path: &Path<'_>, what: &str, help: &str| {
                let node = self.node(path);
                let said = |text: &str| node.map_or(text.to_owned(), |node| node.without_value(text));
                let problem = Problem::new(code, path, said(what)).meant(Some(said(help)));
                problems.push(match node {
                    Some(node) => problem.at(&node.span),
                    None => problem,
                });
            };
            if let Err(error) = crate::model::check_key(llm, registry) {
                let key = if llm.api_key_env.is_some() { "api_key_env" } else { "provider" };
                let help = error.hint().unwrap_or_default();
                suspect(codes::CONFIG_LOAD, &at.field(key), error.message(), help);
            }
            let names_key = llm.api_key_env.is_some() || llm.api_key_command.is_some();
            let sends_credentials = names_key || !llm.extra_headers.0.is_empty();
            if llm.api_base.as_deref().is_some_and(is_open) && sends_credentials {
                let what = "credentials are sent there without encryption";
                suspect(codes::CONFIG_VALIDATION, &at.field("api_base"), what, "use https");
            }
            let headers = at.field("extra_headers");
            for name in llm.extra_headers.0.keys().filter(|name| carries_credentials(name)) {
                let path = headers.field(name);
                if self.node(&path).is_some_and(|node| !node.is_replaced()) {
                    let what = "a credential stands in the config";
                    suspect(codes::CONFIG_VALIDATION, &path, what, "write ${VARIABLE}, and set the variable");
                }
            }
        });
        problems
    }

    /// What is no mistake, and good to know: of which models the price is not known, or not all of it. A script has no price
    /// that anybody would miss.
    pub fn notes(&self) -> Vec<Warning> {
        let mut notes = Vec::new();
        self.each_model(&mut |at, llm| {
            let is_script = matches!(BUILT_IN.find_provider(&llm.provider), Some(Provider::Mock));
            let mut note = |path: &Path<'_>, what: &str, help: &str| {
                let note = Problem::invalid(path, what).help(help);
                notes.push(match self.node(path) {
                    Some(node) => note.at(&node.span),
                    None => note,
                });
            };
            match &llm.pricing {
                None if is_script => {}
                None => {
                    let what =
                        "its price is not known: no run tells its cost, and one with max_cost_usd is refused";
                    note(at, what, "set pricing");
                }
                Some(pricing) if !llm.cache.is_empty() && pricing.cached_write.is_none() => {
                    let what = "what is written to the cache is counted at the price of input";
                    note(&at.field("pricing"), what, "set cached_write");
                }
                Some(_) => {}
            }
        });
        self.warnings(&notes)
    }

    /// Visits all models of all agents, each with its path.
    fn each_model(&self, visit: &mut dyn FnMut(&Path<'_>, &LlmConfig)) {
        let root = Path::root();
        let agents = root.field("agents");
        for (index, agent) in self.agents.iter().enumerate() {
            let agent_at = agents.item(index);
            let llm_at = agent_at.field("llm");
            visit(&llm_at, &agent.llm);
            let fallbacks = llm_at.field("fallbacks");
            for (place, llm) in agent.llm.fallbacks.iter().enumerate() {
                visit(&fallbacks.item(place), llm);
            }
        }
    }

    /// What stands for a key of an agent's model where its value is from the environment; the first model's place is 0.
    pub(crate) fn in_place_of(&self, agent: usize, place: usize, key: &str) -> Option<&str> {
        let root = &self.loaded.0.as_ref()?.root;
        let llm = root.at(&["agents"])?.items().get(agent)?.at(&["llm"])?;
        let llm = match place.checked_sub(1) {
            None => llm,
            Some(place) => llm.at(&["fallbacks"])?.items().get(place)?,
        };
        llm.at(&[key])?.written.as_deref()
    }

    /// Suspicions as warnings.
    pub(crate) fn warnings(&self, suspicions: &[Problem]) -> Vec<Warning> {
        let document = self.document();
        let warning = |problem: &Problem| Warning {
            path: problem.path.clone(),
            place: document.place(problem.span),
            message: problem.what.clone(),
            hint: problem.meant.clone().or_else(|| problem.help.clone()),
        };
        suspicions.iter().map(warning).collect()
    }

    /// Suspicions as an error.
    pub(crate) fn refuse(&self, suspicions: Vec<Problem>) -> Result<(), Error> {
        problem::error(suspicions, &self.document())
    }

    /// What plugins and models are told in fields whose names say that it is a credential: no event or error shows it.
    pub(crate) fn credentials(&self) -> Vec<String> {
        let mut found = Vec::new();
        let of_agents = self.agents.iter().flat_map(|agent| {
            let tools = agent.tools.iter().map(|tool| &tool.config);
            let plugins = tools.chain(agent.memory.iter().map(|memory| &memory.config));
            let assembler = agent.context_assembler.iter().map(|assembler| &assembler.config);
            let models = [&agent.llm].into_iter().chain(&agent.llm.fallbacks);
            let models = models.flat_map(|llm| [&llm.extra_body, &llm.provider_config]);
            let plugins = plugins.chain([&agent.pattern.config, &agent.tool_executor.config]);
            plugins.chain(assembler).chain(models)
        });
        for config in of_agents.chain([&self.events.config, &self.session.config]) {
            config.0.iter().for_each(|(field, value)| credentials_in(field, value, &mut found));
        }
        found
    }

    fn document(&self) -> std::borrow::Cow<'_, Document> {
        match &self.loaded.0 {
            Some(loaded) => std::borrow::Cow::Borrowed(loaded),
            None => std::borrow::Cow::Owned(Document::of_value(&Value::Null)),
        }
    }

    fn node(&self, path: &Path<'_>) -> Option<&Node> {
        path.find(&self.loaded.0.as_ref()?.root)
    }

    /// The config with its defaults. What came from the environment is shown as `${VARIABLE}`, in a text or in place of
    /// one: values from there are never shown. With `redact`, credentials that stand in the document itself are not shown either.
    ///
    /// # Errors
    ///
    /// `config.error` if a value cannot be written as JSON, such as a temperature that is not a number.
    pub fn resolved(&self, redact: bool) -> Result<Value, Error> {
        let mut value =
            serde_json::to_value(self).map_err(|error| Error::foreign(codes::CONFIG_ERROR, error))?;
        if let Some(loaded) = &self.loaded.0 {
            as_written(&mut value, &loaded.root);
        }
        if redact {
            hide_what_is_sent(&mut value);
            let keys = redact::DEFAULT_KEYS.map(str::to_owned).into_iter();
            let keys = keys.chain(self.diagnostics.redact_keys.iter().cloned());
            let redactor = Redactor::new(keys, []);
            for key in ["agents", "session", "events"] {
                if let Some(part) = value.get_mut(key) {
                    redactor.value(part);
                }
            }
        }
        Ok(value)
    }
}

fn credentials_in(field: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if is_secret(field) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| credentials_in(field, item, found)),
        Value::Object(fields) => fields.iter().for_each(|(field, value)| credentials_in(field, value, found)),
        _ => {}
    }
}

/// Puts the variables back.
fn as_written(value: &mut Value, node: &Node) {
    if let Some(written) = &node.written {
        *value = Value::String(written.to_string());
        return;
    }
    match (value, &node.value) {
        (Value::Array(items), Content::List(nodes)) => {
            items.iter_mut().zip(nodes).for_each(|(item, node)| as_written(item, node));
        }
        (Value::Object(fields), Content::Table(entries)) => {
            for entry in entries {
                if let Some(field) = fields.get_mut(&entry.key) {
                    as_written(field, &entry.node);
                }
            }
        }
        _ => {}
    }
}

/// Hides the values of headers and of what is merged into bodies, wherever an `llm` has some. What a variable holds is not
/// there to be hidden.
fn hide_what_is_sent(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::Object(sent) if ["extra_headers", "extra_body"].contains(&&**key) => {
                        for value in sent.values_mut().filter(|value| !is_variable(value)) {
                            *value = Value::String(redact::MARK.to_owned());
                        }
                    }
                    field => hide_what_is_sent(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_what_is_sent),
        _ => {}
    }
}

fn is_variable(value: &Value) -> bool {
    value.as_str().is_some_and(env::is_variable)
}

/// Whether what is sent to an address can be read on the way.
fn is_open(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    !(host == "localhost" || host.starts_with("127.") || host == "[::1]" || host.ends_with(".localhost"))
}

fn carries_credentials(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    ["authorization", "cookie", "key", "token", "secret"].iter().any(|word| header.contains(word))
}
