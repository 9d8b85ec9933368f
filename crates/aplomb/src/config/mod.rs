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
use document::{Content, Document, Node, Span};
use problem::Problem;

/// The schema of a whole document. It is our own, so that it is one is proved by every test.
static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| Schema::of::<Config>().ok());

/// The built-in plugins.
static BUILT_IN: LazyLock<Registry> = LazyLock::new(Registry::new);

/// What a config was read from, what it was then, and which variables set nothing although they look so. Equal to every
/// other: two configs that say the same are the same.
#[derive(Clone, Default)]
pub(crate) struct Loaded(Option<Arc<Document>>, Option<Arc<Config>>, Arc<[Span]>);

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
    /// Reads JSON alone; `name` is what messages call it. A [`Loader`] reads files and other forms, and lays the environment
    /// and flags over them.
    ///
    /// # Errors
    ///
    /// As [`Loader::load`].
    pub fn from_json(text: &str, name: &str) -> Result<Config, Error> {
        Loader::text(text, name, Format::Json).load()
    }

    fn of_layers(
        mut document: Document,
        over: Vec<layers::Override>,
        ignored: &[String],
    ) -> Result<Config, Error> {
        let (mut problems, mut unset) = (Vec::new(), Vec::new());
        let ignored = ignored.iter().map(|name| layers::ignored(&mut document, name)).collect();
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
        let known = Known { registry: &BUILT_IN, impls: false, only: None };
        let mut config = read(&document, problems, known)?;
        let read = Arc::new(config.clone());
        config.loaded = Loaded(Some(document), Some(read), ignored);
        Ok(config)
    }

    /// Checks a config again that may have been made or changed in code, by what the program has registered. Where one agent
    /// alone is to be made ready, the others' plugins need not be there.
    pub(crate) fn check(&self, registry: &Registry, only: Option<usize>) -> Result<(), Error> {
        let known = Known { registry, impls: true, only };
        if let Loaded(Some(document), Some(read_then), _) = &self.loaded
            && **read_then == *self
        {
            return match self.names_own_parts() {
                true => read(document, Vec::new(), known).map(|_| ()),
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
        read(&document, Vec::new(), Known { registry, impls: true, only }).map(|_| ())
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

    /// What keeps agents from being made ready, each by its place. An error's `path` leads on from its agent.
    pub(crate) fn problems_of(&self, refused: &[(usize, Error)]) -> Vec<Problem> {
        let loaded = self.loaded.0.as_deref();
        let problem = |(index, error): &(usize, Error)| {
            let path = match error.context("path").and_then(Value::as_str) {
                Some(path) => format!("agents[{index}].{path}"),
                None => format!("agents[{index}]"),
            };
            let node = loaded.and_then(|loaded| node_at(&loaded.root, &path));
            let said = |text: &str| node.map_or(text.to_owned(), |node| node.without_value(text));
            let problem =
                Problem::new(error.code(), &path, said(error.message())).meant(error.hint().map(said));
            match node {
                Some(node) => problem.at(&node.begin_span()),
                None => problem,
            }
        };
        refused.iter().map(problem).collect()
    }

    /// One error of all agents that cannot be made ready.
    pub(crate) fn all_of(&self, refused: &[(usize, Error)]) -> Result<(), Error> {
        self.refuse(self.problems_of(refused)).map_err(|error| match refused {
            // The only one keeps what led to it.
            [(_, only)] => {
                let context = |field| error.context(field).cloned().unwrap_or_default();
                let told = only.clone().with_message(error.message());
                let told = error.hint().map_or(told.clone(), |hint| told.with_hint(hint));
                told.with_context("path", context("path")).with_context("problems", context("problems"))
            }
            _ => error,
        })
    }
}

/// By what a document is read: the plugins, whether they are the program's so that every `impl` is known, and the one
/// agent whose plugins alone need be there.
#[derive(Clone, Copy)]
struct Known<'a> {
    registry: &'a Registry,
    impls: bool,
    only: Option<usize>,
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
    Known { registry, impls, only }: Known<'_>,
) -> Result<Config, Error> {
    let Some(schema) = SCHEMA.as_ref() else {
        return Err(Error::new(codes::CONFIG_ERROR, "the schema of configs is none"));
    };
    let mut mended = document.root.clone();
    schema.check(&mut mended, "", fit::DOCUMENT, &mut problems);
    lacking::check(schema, &mended, &mut problems);
    let slips = Vec::new();
    let check = check::Check { registry, knows_impls: impls, only, problems: &mut problems, slips };
    check.document(&mut mended);
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
    let what = problem::without_text(&error.inner().to_string());
    let problem = match node_at(&document.root, &path) {
        Some(node) => {
            let what = match &node.value {
                Content::Number(_) => format!("{} is too large a number", node.as_number()),
                _ if node.holds_replaced() => "it does not fit".to_owned(),
                _ => what,
            };
            Problem::invalid(&path, what).at(&node.span)
        }
        None => Problem::invalid(&path, what),
    };
    problem::error(vec![problem], document)
        .err()
        .unwrap_or_else(|| Error::new(codes::CONFIG_VALIDATION, path))
}

/// The value at a path that is a text, as errors have it: `agents[0].llm.model`. Keys may have dots: the document says
/// where one ends.
fn node_at<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return Some(node);
    }
    if let Some((index, after)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        return node_at(node.items().get(index.parse::<usize>().ok()?)?, after);
    }
    node.entries().iter().find_map(|entry| {
        let after = path.strip_prefix(entry.key.as_str())?;
        let is_whole = after.is_empty() || after.starts_with(['.', '[']);
        if is_whole { node_at(&entry.node, after) } else { None }
    })
}
