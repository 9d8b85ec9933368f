//! A config from its layers.

use std::path::{Path, PathBuf};

use aplomb_core::error::Error;

use super::document::{Document, Format};
use super::layers::Override;
use super::{Config, env};

/// Puts a config together from its layers: a text, over it what the environment sets, and over both what a flag or the
/// program sets.
///
/// What a later layer says takes the place of what stands there, also of a whole table or list. Everything is held against
/// the schema together, and each value keeps the place that it is from: [`Config::provenance`] tells it.
///
/// ```
/// use aplomb::config::{Format, Loader};
///
/// # fn main() -> Result<(), aplomb::Error> {
/// let text = r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "openai", "model": "gpt-5"}}]}"#;
/// let config = Loader::text(text, "agent.json", Format::Json)
///     .set("agents.a.llm.model=gpt-4o")
///     .set("agents.a.llm.temperature=0.2")
///     .load()?;
/// assert_eq!(config.agents[0].llm.model.as_deref(), Some("gpt-4o"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it reads nothing before it is loaded"]
pub struct Loader {
    base: Base,
    environment: bool,
    assignments: Vec<String>,
}

#[derive(Clone)]
enum Base {
    File(PathBuf),
    Text { text: String, name: String, format: Format },
}

impl Loader {
    /// Begins with a file: JSON, or YAML or TOML where its name ends so.
    pub fn file(file: impl AsRef<Path>) -> Loader {
        Loader::new(Base::File(file.as_ref().to_owned()))
    }

    /// Begins with a text; `name` is what messages call it.
    pub fn text(text: impl Into<String>, name: impl Into<String>, format: Format) -> Loader {
        Loader::new(Base::Text { text: text.into(), name: name.into(), format })
    }

    fn new(base: Base) -> Loader {
        Loader { base, environment: false, assignments: Vec::new() }
    }

    /// Lays the variables of this process over it that begin with `APLOMB_CONFIG__`: two underscores go before each key,
    /// place in a list, or id of an item, in upper case; `APLOMB_CONFIG__AGENTS__0__LLM__MODEL=gpt-4o`. What is neither a
    /// letter nor a digit in an id is an underscore. An empty variable counts as one that is not set.
    pub fn environment(mut self) -> Loader {
        self.environment = true;
        self
    }

    /// Sets a value over all that, as the command line's `--set` does, by which messages call it: `PATH=VALUE`, such as
    /// `agents.assistant.llm.model=gpt-4o`. An item of a list goes by its place (`agents.0`, `agents[0]`) or its id. The
    /// value is JSON where it reads as JSON and the schema takes it, else a text; null stands for the default. Of two that
    /// set the same the later one holds. What is wrong with it, [`load`](Loader::load) says.
    pub fn set(mut self, assignment: impl Into<String>) -> Loader {
        self.assignments.push(assignment.into());
        self
    }

    /// Reads the layers and checks what they come to.
    ///
    /// # Errors
    ///
    /// `config.load` if the file cannot be read, is not valid, or a variable is needed that is not set;
    /// `config.validation`, `plugin.load` and `plugin.config` if something does not fit. The message lists everything that
    /// is wrong in all layers, each with its place.
    pub fn load(self) -> Result<Config, Error> {
        let document = match &self.base {
            Base::File(file) => Document::from_file(file)?,
            Base::Text { text, name, format } => Document::parse(text, name, *format)?,
        };
        let variables = if self.environment { env::variables() } else { Vec::new() };
        let mut over: Vec<_> =
            variables.iter().map(|(name, value)| Override::variable(name, value.as_deref())).collect();
        // The environment has no order: what is farther out comes first.
        over.sort_by(|one, other| (one.depth(), one.name()).cmp(&(other.depth(), other.name())));
        over.extend(self.assignments.iter().map(|assignment| Override::flag(assignment)));
        Config::of_layers(document, over)
    }
}
