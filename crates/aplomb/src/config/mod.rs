//! `agent.json`: what an agent is, as a document.
//!
//! The keys are those of `docs/spec/runtime.md` §5. A document is read to values that know their places, [layers](Loader)
//! are laid over it, variables are replaced, and everything that does not fit is reported at once; only then does it
//! become a [`Config`]. Keys whose behaviour comes later ([`PENDING_KEYS`]) are refused: a key that silently does nothing is worse than none.

mod check;
mod document;
mod env;
mod fit;
mod lacking;
mod layers;
mod loader;
mod problem;
mod provenance;
mod publish;
mod report;
mod schema;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use aplomb_core::error::{Error, codes};
pub use aplomb_faultlab::script::Script;
use serde_json::Value;

pub use document::{Format, Place};
pub use lacking::PENDING_KEYS;
pub use loader::Loader;
pub use provenance::{Layer, Origin, Setting};
pub use publish::{reference, schema};
pub use report::Warning;
pub use schema::*;

use crate::json_schema::Schema;
use crate::plugins::Registry;
use document::{Content, Document, Node};
use problem::Problem;

/// The schema of a whole document. It is our own, so that it is one is proved by every test.
static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::of::<Config>().ok());

/// The built-in plugins.
static BUILT_IN: LazyLock<Registry> = LazyLock::new(Registry::new);

/// What a config was read from, and what it was then. Equal to every other: two configs that say the same are the same.
#[derive(Clone, Default)]
pub(crate) struct Loaded(Option<Arc<Document>>, Option<Arc<Config>>);

/// Without the text, which may hold credentials.
impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loaded").field(&self.0.as_ref().map(|document| document.name())).finish()
    }
}

impl PartialEq for Loaded {
    fn eq(&self, _: &Loaded) -> bool {
        true
    }
}

impl Config {
    /// Reads a file alone: JSON, or YAML or TOML where its name ends so. A [`Loader`] lays the environment and flags over
    /// it, too.
    ///
    /// # Errors
    ///
    /// As [`Loader::load`].
    pub fn from_file(file: impl AsRef<Path>) -> Result<Config, Error> {
        Loader::file(file).load()
    }

    /// Reads JSON; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// As [`Loader::load`].
    pub fn from_json(text: &str, name: &str) -> Result<Config, Error> {
        Config::from_text(text, name, Format::Json)
    }

    /// Reads a text alone; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// As [`Loader::load`].
    pub fn from_text(text: &str, name: &str, format: Format) -> Result<Config, Error> {
        Loader::text(text, name, format).load()
    }

    fn of_layers(mut document: Document, over: Vec<layers::Override>) -> Result<Config, Error> {
        let (mut problems, mut unset) = (Vec::new(), Vec::new());
        if let Some(schema) = SCHEMA.as_ref() {
            layers::lay(&mut document, over, schema, &mut problems);
        }
        env::replace(&mut document.root, &mut unset);
        if !unset.is_empty() {
            // A variable that is not set leaves a text that says nothing of the rest.
            problems.extend(unset);
            problem::error(std::mem::take(&mut problems), &document)?;
        }
        let document = Arc::new(document);
        let mut config = read(&document, problems, &BUILT_IN, false)?;
        let read = Arc::new(config.clone());
        config.loaded = Loaded(Some(document), Some(read));
        Ok(config)
    }

    /// Leaves one agent alone.
    pub fn keep_agent(&mut self, id: &str) {
        let kept: Vec<_> = self.agents.iter().map(|agent| agent.id == id).collect();
        self.agents.retain(|agent| agent.id == id);
        let Loaded(document, read) = &mut self.loaded;
        if let Some(document) = document {
            Arc::make_mut(document).keep_items("agents", &kept);
        }
        if let Some(read) = read {
            Arc::make_mut(read).agents.retain(|agent| agent.id == id);
        }
    }

    /// Checks a config again that may have been made or changed in code, by what the program has registered.
    pub(crate) fn check(&self, registry: &Registry) -> Result<(), Error> {
        if let Loaded(Some(document), Some(read_then)) = &self.loaded
            && **read_then == *self
        {
            return match self.names_own_parts() {
                true => read(document, Vec::new(), registry, true).map(|_| ()),
                false => Ok(()),
            };
        }
        let mut value =
            serde_json::to_value(self).map_err(|error| Error::foreign(codes::CONFIG_VALIDATION, error))?;
        without_the_firsts(&mut value);
        let document = match &self.loaded.0 {
            Some(loaded) => loaded.changed_to(&value),
            None => Document::of_value(&value),
        };
        read(&document, Vec::new(), registry, true).map(|_| ())
    }

    /// Whether it names a plugin that only the program can know.
    fn names_own_parts(&self) -> bool {
        let of_agent = |agent: &AgentConfig| {
            agent.memory.as_ref().is_some_and(|memory| memory.r#impl.is_some())
                || agent.pattern.r#impl.is_some()
                || agent.tool_executor.r#impl.is_some()
                || agent.context_assembler.as_ref().is_some_and(|assembler| assembler.r#impl.is_some())
                || agent.tools.iter().any(|tool| tool.r#impl.is_some())
                || [&agent.llm]
                    .into_iter()
                    .chain(&agent.llm.fallbacks)
                    .any(|llm| BUILT_IN.find_provider(&llm.provider).is_none())
        };
        let of_all = [&self.runtime.r#impl, &self.session.r#impl, &self.events.r#impl];
        of_all.iter().any(|name| name.is_some()) || self.agents.iter().any(of_agent)
    }

    /// One error of all agents that cannot be made ready, each with its place.
    pub(crate) fn all_of(&self, refused: Vec<(usize, Error)>) -> Result<(), Error> {
        let path = |index: usize, error: &Error| match error.context("path").and_then(Value::as_str) {
            Some(path) => format!("agents[{index}].{path}"),
            // What the model says of its own settings begins with the setting.
            None => match error.message().split_once(' ') {
                Some((setting, _)) if setting.starts_with("llm.") => {
                    format!("agents[{index}].{}", setting.trim_end_matches(':'))
                }
                _ => format!("agents[{index}]"),
            },
        };
        let loaded = self.loaded.0.as_deref();
        if let [(index, error)] = refused.as_slice() {
            let path = path(*index, error);
            let node = loaded.and_then(|loaded| Some((loaded, node_at(&loaded.root, &path)?)));
            let error = error.clone().with_place(&format!("agents[{index}]"));
            return Err(match node {
                Some((loaded, node)) => error.with_place(&loaded.place(Some(node.span)).to_string()),
                None => error,
            }
            .with_context("path", path));
        }
        let document = match loaded {
            Some(loaded) => loaded,
            None => &Document::of_value(&Value::Null),
        };
        let problems = refused.iter().map(|(index, error)| {
            let path = path(*index, error);
            let problem = Problem::new(error.code(), &path, error.message());
            let problem = match error.hint() {
                Some(hint) => problem.help(hint),
                None => problem,
            };
            match node_at(&document.root, &path) {
                Some(node) if loaded.is_some() => problem.at(&node.span),
                _ => problem,
            }
        });
        problem::error(problems.collect(), document)
    }
}

/// Takes out of fallbacks what is the first model's to say: their defaults, which nobody wrote.
fn without_the_firsts(document: &mut Value) {
    let agents = document.get_mut("agents").and_then(Value::as_array_mut).into_iter().flatten();
    let fallbacks = agents.filter_map(|agent| agent.pointer_mut("/llm/fallbacks")?.as_array_mut()).flatten();
    let unsaid = TransportRetry::default();
    for fallback in fallbacks.filter_map(Value::as_object_mut) {
        fallback.retain(|key, value| match key.as_str() {
            "retry" => serde_json::to_value(&unsaid).is_ok_and(|unsaid| *value != unsaid),
            "fallbacks" => value.as_array().is_some_and(|fallbacks| !fallbacks.is_empty()),
            "fallback_on" => *value != serde_json::json!(["quota_exhausted", "model_not_found"]),
            _ => true,
        });
    }
}

/// Everything that is wrong with a document, or what it says.
fn read(
    document: &Document,
    mut problems: Vec<Problem>,
    registry: &Registry,
    knows_impls: bool,
) -> Result<Config, Error> {
    let Some(schema) = SCHEMA.as_ref() else {
        return Err(Error::new(codes::CONFIG_ERROR, "the schema of configs is none"));
    };
    let mut mended = document.root.clone();
    schema.check(&mut mended, "", fit::DOCUMENT, &mut problems);
    lacking::check(schema, &mended, &mut problems);
    let slips = Vec::new();
    check::Check { registry, knows_impls, problems: &mut problems, slips }.document(&mut mended);
    // What is missing because somebody wrote null is missing there.
    for problem in &mut problems {
        let null = node_at(&document.root, &problem.path);
        if let Some(null) = null.filter(|node| matches!(node.value, Content::Null)) {
            problem.span = Some(null.span);
        }
    }
    problem::error(problems, document)?;
    let mut config: Config =
        serde_path_to_error::deserialize(mended.to_value()).map_err(|error| unread(&error, document))?;
    // It has one of them, and a default.
    if config.session.r#impl.is_some() {
        config.session.r#type = None;
    }
    Ok(config)
}

/// What the schema lets pass and a type does not: a number that is too large for it.
fn unread(error: &serde_path_to_error::Error<serde_json::Error>, document: &Document) -> Error {
    let path = error.path().to_string();
    let what = aplomb_core::redact::text(&error.inner().to_string());
    let problem = match node_at(&document.root, &path) {
        Some(node) if node.is_replaced() => Problem::invalid(&path, "it does not fit").at(&node.span),
        Some(node) => Problem::invalid(&path, what).at(&node.span),
        None => Problem::invalid(&path, what),
    };
    problem::error(vec![problem], document)
        .err()
        .unwrap_or_else(|| Error::new(codes::CONFIG_VALIDATION, path))
}

/// The value at `agents[0].llm.model`.
fn node_at<'a>(root: &'a Node, path: &str) -> Option<&'a Node> {
    path.split(['.', '[']).filter(|step| !step.is_empty()).try_fold(root, |node, step| {
        match step.strip_suffix(']') {
            Some(index) => node.items().get(index.parse::<usize>().ok()?),
            None => Some(&node.entry(step)?.node),
        }
    })
}
