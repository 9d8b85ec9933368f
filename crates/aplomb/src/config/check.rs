//! What a document's shape cannot say: names that must exist, and keys that go together.

use std::collections::HashSet;

use aplomb_core::error::codes;
use aplomb_core::near::did_you_mean;
use aplomb_faultlab::script::Script;

use super::document::{Content, Entry, Node, Span};
use super::node_at;
use super::problem::{Path, Problem, listed, without_text};
use super::{RetryExecutorConfig, TransportRetry};
use crate::credential::CommandCredential;
use crate::plugins::{Plugin, Provider, Registry, Seam, is_python};

/// Checks a document that has been held against its schema, and whose misspelt keys are mended.
pub(super) struct Check<'a> {
    pub(super) registry: &'a Registry,
    /// Whether the registry is the program's, so that it knows every `impl`.
    pub(super) knows_impls: bool,
    /// The one agent, by its place, that is to be made ready.
    pub(super) only: Option<usize>,
    pub(super) problems: &'a mut Vec<Problem>,
    /// What is a problem only where there are others: a document that is right but for these may be the program's.
    pub(super) slips: Vec<Problem>,
}

/// The keys of `llm` that say where its key is.
const OF_KEYS: [&str; 2] = ["api_key_env", "api_key_command"];

/// The keys of `llm` that say what is sent, and where to.
const OF_SENDING: [&str; 8] = [
    "api_base",
    "api_version",
    "extra_headers",
    "extra_body",
    "cache",
    "ca_file",
    "reasoning_model",
    "openai_api_style",
];

impl Plugin {
    /// Holds a plugin's config against its schema. Where there is none, what it lacks is missing where the plugin is named.
    fn check(&self, config: Option<&mut Node>, path: &str, named: Span, problems: &mut Vec<Problem>) {
        let mut empty = Node::new(Content::Table(Vec::new()), named);
        if let Some(schema) = &self.schema {
            schema.check(config.unwrap_or(&mut empty), path, codes::PLUGIN_CONFIG, problems);
        }
    }
}

impl Check<'_> {
    pub(super) fn document(mut self, root: &mut Node) {
        self.whole(root);
        if !self.problems.is_empty() {
            self.problems.append(&mut self.slips);
        }
    }

    fn whole(&mut self, root: &mut Node) {
        let path = Path::root();
        for (seam, key) in [(Seam::Runtime, "runtime"), (Seam::Session, "session"), (Seam::Events, "events")]
        {
            self.plugin(seam, root, key, &path);
        }
        let mut ids = HashSet::new();
        let agents = path.field("agents");
        let Some(list) = field_mut(root, "agents") else { return };
        for (index, agent) in list.items_mut().iter_mut().enumerate() {
            let path = agents.item(index);
            self.unique(&mut ids, agent, &path, "an agent needs a name");
            if self.only.is_none_or(|only| only == index) {
                self.agent(agent, &path);
            }
        }
    }

    fn agent(&mut self, agent: &mut Node, path: &Path<'_>) {
        for (seam, key) in [
            (Seam::Memory, "memory"),
            (Seam::Pattern, "pattern"),
            (Seam::ToolExecutor, "tool_executor"),
            (Seam::ContextAssembler, "context_assembler"),
        ] {
            self.plugin(seam, agent, key, path);
        }
        if let Some(retry) = agent.at(&["llm", "retry"]) {
            self.backoff(
                retry,
                &path.field("llm").field("retry"),
                TransportRetry::default().initial_backoff_ms,
            );
        }
        if agent.at(&["tool_executor", "type"]).and_then(Node::as_text) == Some("retry")
            && let Some(retry) = agent.at(&["tool_executor", "config"])
        {
            let initial = RetryExecutorConfig::default().initial_backoff_ms;
            self.backoff(retry, &path.field("tool_executor").field("config"), initial);
        }
        if let Some(llm) = agent.entry_mut("llm") {
            let (start, written) = (llm.key_span, llm.written().to_owned());
            self.provider_config(&mut llm.node, &path.field(&written));
            self.llm(&llm.node, &start, &path.field(&written));
        }
        let mut ids = HashSet::new();
        let tools = path.field("tools");
        let Some(list) = field_mut(agent, "tools") else { return };
        for (index, tool) in list.items_mut().iter_mut().enumerate() {
            let path = tools.item(index);
            self.unique(&mut ids, tool, &path, "a tool needs a name");
            self.reference(Seam::Tool, tool, &path, None);
        }
    }

    /// An id that nobody else has.
    fn unique(&mut self, ids: &mut HashSet<String>, node: &Node, path: &Path<'_>, needed: &str) {
        let Some(entry) = node.entry("id") else { return };
        let Some(id) = entry.node.as_text() else { return };
        let path = path.field("id");
        if id.trim().is_empty() && !id.is_empty() {
            self.problems.push(Problem::invalid(path, needed).at(&entry.node.span));
        } else if !ids.insert(id.to_owned()) {
            let what = format!(
                "{} is taken",
                entry.node.as_name("id").map_or("this".to_owned(), |id| format!("{id:?}"))
            );
            self.problems
                .push(Problem::invalid(path, what).at(&entry.node.span).help("give each an id of its own"));
        }
    }

    fn plugin(&mut self, seam: Seam, owner: &mut Node, key: &str, path: &Path<'_>) {
        let Some(entry) = owner.entry_mut(key) else { return };
        let (written, span) = (entry.written().to_owned(), entry.key_span);
        if entry.node.is_table() {
            self.reference(seam, &mut entry.node, &path.field(&written), Some(span));
        }
    }

    /// Exactly one of `type` and `impl`, which names something, whose config fits.
    fn reference(&mut self, seam: Seam, node: &mut Node, path: &Path<'_>, key: Option<Span>) {
        let start = key.unwrap_or(node.span.begin());
        let name = |key: &str| node.entry(key).filter(|entry| entry.node.as_text().is_some());
        let (selector, entry) = match (name("type"), name("impl")) {
            (Some(entry), None) => ("type", entry),
            (None, Some(entry)) => ("impl", entry),
            (Some(_), Some(entry)) => {
                let problem = Problem::invalid(path, "it has both `type` and `impl`").at(&entry.key_span);
                self.problems
                    .push(problem.help("keep `type` for a built-in one, `impl` for one of your program"));
                return;
            }
            // A selector that is no text has been reported; a session has a default.
            (None, None) if node.entry("type").or(node.entry("impl")).is_some() || seam == Seam::Session => {
                return;
            }
            (None, None) => {
                let known = listed(&self.registry.built_in_names(seam));
                let problem = Problem::invalid(path, "it has neither `type` nor `impl`").at(&start);
                self.problems.push(problem.help(format!("the built-in types are {known}")));
                return;
            }
        };
        let text = entry.node.as_text().unwrap_or_default().to_owned();
        let span = entry.node.span;
        let shown = entry.node.as_name(selector).map_or("that".to_owned(), |name| format!("{name:?}"));
        let at = path.field(entry.written());
        if selector == "impl" && !self.knows_impls && !is_python(&text) {
            return;
        }
        match self.registry.find(seam, selector, &text) {
            Ok(plugin) => {
                let config = field_mut(node, "config");
                plugin.check(config, &path.field("config").to_string(), span, self.problems);
            }
            Err(unknown) => {
                let problem = Problem::new(codes::PLUGIN_LOAD, at, unknown.what(&shown)).at(&span);
                self.problems.push(match (unknown.meant, unknown.help) {
                    (Some(meant), _) => problem.meant(Some(meant)),
                    (None, help) => problem.help(help),
                });
            }
        }
    }

    /// What providers of the program's own are told.
    fn provider_config(&mut self, llm: &mut Node, path: &Path<'_>) {
        let named = llm.at(&["provider"]);
        let provider = named.and_then(|named| self.registry.find_provider(named.as_text()?));
        if let (Some(named), Some(Provider::Service(plugin))) = (named.map(|named| named.span), provider) {
            let config = field_mut(llm, "provider_config");
            plugin.check(config, &path.field("provider_config").to_string(), named, self.problems);
        }
        let fallbacks = path.field("fallbacks");
        for (index, llm) in field_mut(llm, "fallbacks").into_iter().flat_map(Node::items_mut).enumerate() {
            self.provider_config(llm, &fallbacks.item(index));
        }
    }

    fn llm(&mut self, llm: &Node, start: &Span, path: &Path<'_>) {
        let Some(entry) = llm.entry("provider") else { return };
        let Some(name) = entry.node.as_text() else { return };
        let Some(provider) = self.registry.find_provider(name) else {
            let unknown = self.unknown_provider(name, &entry.node, &path.field("provider"));
            if self.knows_impls {
                self.problems.push(unknown);
            } else if unknown.meant.is_some() {
                // It may be the program's own, but is likely to be a slip.
                self.slips.push(unknown);
            }
            return;
        };
        let mut problem = |key: &str, what: String, help: &str| {
            let span = llm.entry(key).map_or(*start, value_span);
            let problem = Problem::invalid(path.field(key), what).at(&span);
            self.problems.push(if help.is_empty() { problem } else { problem.help(help) });
        };
        let has = |key: &str| llm.entry(key).is_some();
        let is_set = |key: &&str| {
            llm.entry(key).is_some_and(|entry| !entry.node.is_table() || !entry.node.entries().is_empty())
        };
        if !matches!(provider, Provider::Service(_)) && is_set(&"provider_config") {
            let what = format!("{name} takes the other keys of `llm`");
            problem("provider_config", what, "remove it, or name a provider of your program");
        }
        if let Provider::Service(_) = provider {
            for key in OF_SENDING.iter().filter(|key| is_set(key)) {
                let what = format!("{name} is served in this process");
                problem(key, what, "remove the key; what the provider is told goes into provider_config");
            }
        } else if matches!(provider, Provider::Mock) {
            if !has("script") {
                problem(
                    "script",
                    "mock needs a script to play".to_owned(),
                    "such as {\"steps\": [{\"reply\": {\"message\": {\"text\": \"hi\"}}}]}",
                );
            }
            let mode = llm.at(&["output_schema"]).and_then(Node::as_text);
            let chosen = ["output_schema"].into_iter().filter(|_| mode.is_some_and(|mode| mode != "auto"));
            for key in OF_KEYS.into_iter().chain(OF_SENDING).filter(is_set).chain(chosen) {
                problem(key, "mock sends nothing".to_owned(), "remove the key, or choose another provider");
            }
        } else {
            if !has("model") {
                problem(
                    "model",
                    "a model needs a name".to_owned(),
                    "the provider's documentation lists its models",
                );
            }
            if provider.needs_address() && !has("api_base") {
                let what = format!("{name} needs the address of an API");
                problem("api_base", what, "such as http://localhost:11434/v1");
            }
        }
        if !matches!(provider, Provider::Mock) && has("script") {
            problem(
                "script",
                "only mock plays a script".to_owned(),
                "remove it, or write \"provider\": \"mock\"",
            );
        }
        if has("api_key_env") && has("api_key_command") {
            let what = "api_key_env says where the key is, too".to_owned();
            problem("api_key_command", what, "keep one of them");
        }
        if let Some(command) = llm.at(&["api_key_command"]).and_then(Node::as_text)
            && CommandCredential::from_line(command).is_err()
        {
            let what = "it is not a program and its arguments".to_owned();
            problem("api_key_command", what, "close every quote, or name a script");
        }
        if llm
            .at(&["model"])
            .and_then(Node::as_text)
            .is_some_and(|model| !model.is_empty() && model.trim().is_empty())
        {
            problem("model", "a model needs a name".to_owned(), "");
        }
        let hottest = provider.hottest();
        if let Some(node) = llm.at(&["temperature"])
            && let Some(temperature) = node.as_f64()
            && (hottest..=2.0).contains(&temperature)
            && temperature > hottest
        {
            let what = format!("{} is not in 0..={hottest} of {name}", node.as_number());
            problem("temperature", what, "");
        }
        if let Some(script) = llm.entry("script") {
            self.script(script, &path.field("script"));
        }
        let path = path.field("fallbacks");
        for (index, fallback) in
            llm.at(&["fallbacks"]).map(Node::items).unwrap_or_default().iter().enumerate()
        {
            let start = fallback.span.begin();
            for key in ["retry", "fallbacks", "fallback_on"] {
                if let Some(entry) = fallback.entry(key) {
                    let path = path.item(index);
                    let problem = Problem::invalid(path.field(key), "this is the first model's to say");
                    self.problems.push(problem.at(&entry.key_span).help("remove the key"));
                }
            }
            self.llm(fallback, &start, &path.item(index));
        }
    }

    fn unknown_provider(&self, name: &str, node: &Node, path: &Path<'_>) -> Problem {
        let names = self.registry.provider_names();
        let shown = node.as_name("provider").map_or("that".to_owned(), |name| format!("{name:?}"));
        let problem = Problem::invalid(path, format!("no provider is called {shown}")).at(&node.span);
        // A library of other systems that stands between them and providers.
        if name.eq_ignore_ascii_case("litellm") {
            let help = "run LiteLLM's proxy, and use openai_compatible with its address as api_base";
            return problem.help(help);
        }
        match did_you_mean(name, names.iter().copied()) {
            Some(meant) => problem.meant(Some(meant)),
            None => problem.help(format!("the providers are {}", listed(&names))),
        }
    }

    fn script(&mut self, script: &Entry, path: &Path<'_>) {
        let Err(error) = Script::from_json(&script.node.to_value().to_string()) else { return };
        let (place, said) = (error.place(), error.to_string());
        let said = said.strip_prefix(place).map_or(said.as_str(), |said| said.trim_start_matches(": "));
        // The line would be one of a text that nobody has written.
        let said = said.split(" at line ").next().unwrap_or_default();
        let inner = node_at(&script.node, place).filter(|_| place != ".");
        let node = inner.unwrap_or(&script.node);
        let unknown = said.strip_prefix("unknown field `").and_then(|said| said.split('`').next());
        let names_a_key = unknown.is_some() || said.starts_with("missing field `");
        let what = match node.holds_replaced() && !names_a_key {
            true => "it does not fit".to_owned(),
            false => without_text(said),
        };
        let problem = match inner {
            Some(_) => Problem::invalid(format!("{path}.{place}"), what),
            None => Problem::invalid(path, format!("it is no script: {what}")),
        };
        let owner =
            unknown.and_then(|key| node_at(&script.node, place.strip_suffix(key)?.trim_end_matches('.')));
        let entry = owner.and_then(|owner| owner.entry(unknown?));
        let span = match (entry, inner) {
            (Some(entry), _) => entry.key_span,
            (None, Some(node)) => node.span,
            (None, None) => script.key_span,
        };
        self.problems.push(problem.at(&span));
    }

    /// A first delay that is not longer than the longest.
    fn backoff(&mut self, retry: &Node, path: &Path<'_>, initial_ms: u64) {
        let (initial, max) = (retry.entry("initial_backoff_ms"), retry.entry("max_backoff_ms"));
        let Some(entry) = initial.or(max) else { return };
        // A delay that is no number has been reported.
        let ms = |entry: Option<&Entry>, default: u64| match entry {
            Some(entry) => entry.node.as_f64(),
            None => Some(default as f64),
        };
        let max_ms = TransportRetry::default().max_backoff_ms;
        if let (Some(initial), Some(max)) = (ms(initial, initial_ms), ms(max, max_ms))
            && initial > max
        {
            let what = "initial_backoff_ms must not be more than max_backoff_ms";
            self.problems.push(Problem::invalid(path.field(entry.written()), what).at(&entry.node.span));
        }
    }
}

fn value_span(entry: &Entry) -> Span {
    if entry.node.is_table() { entry.key_span } else { entry.node.span }
}

fn field_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    Some(&mut node.entry_mut(key)?.node)
}
