//! Plugins: the parts of an agent that a config can exchange by name. Built-in ones and a program's own are registered
//! in the same way.

mod built_in;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aplomb_core::decide::ToolRetry;
use aplomb_core::error::{AgentError, Code, Error, codes};
use aplomb_core::near::did_you_mean;
use aplomb_core::run::{Pattern, panic_message};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{PluginConfig, Provider, Schema, is_python};
use crate::memory::Memory;
use crate::runtime::Subscriber;
use crate::tools::Tool;

/// A place that plugins go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Seam {
    /// What an agent remembers: `agents[].memory`.
    Memory,
    /// How it goes about its work: `agents[].pattern`.
    Pattern,
    /// What it can do: `agents[].tools[]`.
    Tool,
    /// How its tools are called: `agents[].tool_executor`.
    ToolExecutor,
    /// How the conversation is made to fit: `agents[].context_assembler`.
    ContextAssembler,
    /// How runs are carried out: `runtime`.
    Runtime,
    /// Where sessions are kept: `session`.
    Session,
    /// Where events go: `events`.
    Events,
    /// Who serves models: `agents[].llm.provider`.
    Provider,
}

impl Seam {
    /// Every seam.
    pub const ALL: [Seam; 9] = [
        Seam::Memory,
        Seam::Pattern,
        Seam::Tool,
        Seam::ToolExecutor,
        Seam::ContextAssembler,
        Seam::Runtime,
        Seam::Session,
        Seam::Events,
        Seam::Provider,
    ];

    /// The name in configs, listings and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Seam::Memory => "memory",
            Seam::Pattern => "pattern",
            Seam::Tool => "tool",
            Seam::ToolExecutor => "tool_executor",
            Seam::ContextAssembler => "context_assembler",
            Seam::Runtime => "runtime",
            Seam::Session => "session",
            Seam::Events => "events",
            Seam::Provider => "provider",
        }
    }

    fn noun(self) -> String {
        self.as_str().replace('_', " ")
    }
}

impl fmt::Display for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The config of a plugin that takes none.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// Whether a plugin can be used, and by whom it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// Comes with Aplomb; named by `type`.
    BuiltIn,
    /// Registered by the program; named by `impl`.
    Program,
    /// Has a name, and comes later. A config that uses it is refused.
    Pending,
}

/// What there is to know about a plugin.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PluginInfo {
    /// Where it goes.
    pub seam: Seam,
    /// How configs name it.
    pub name: String,
    /// Who made it.
    pub origin: Origin,
    /// What it is, in a sentence.
    pub summary: String,
    /// JSON Schema of its `config`; none while it is pending, and for providers, which have `llm`.
    pub config: Option<Value>,
}

/// A plugin that can be used.
pub(crate) struct Plugin {
    name: String,
    origin: Origin,
    summary: String,
    pub(crate) schema: Schema,
    make: Make,
}

type Factory<T> = Box<dyn Fn(Value) -> Result<T, Error> + Send + Sync>;

enum Make {
    Tool(Factory<Arc<dyn Tool>>),
    Pattern(Factory<Arc<dyn Pattern>>),
    Memory(Factory<Arc<dyn Memory>>),
    ToolExecutor(Factory<ToolRetry>),
    Events(Factory<Option<Arc<dyn Subscriber>>>),
    /// What is there anyhow.
    Nothing,
}

/// The plugins that configs can name: the built-in ones, and those that a program registers.
///
/// ```
/// use aplomb::plugins::{NoConfig, Registry};
/// use aplomb::tools::Calc;
///
/// let registry = Registry::new().tool("my_calc", |_: NoConfig| Ok(Calc));
/// # let _ = registry;
/// ```
///
/// A config then says `{"id": "calc", "impl": "my_calc"}`.
#[derive(Clone)]
pub struct Registry {
    plugins: BTreeMap<(Seam, String), Arc<Plugin>>,
    errors: Vec<Code>,
    /// What could not be registered; said when a runtime is built.
    refused: Vec<Error>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// The built-in plugins.
    pub fn new() -> Registry {
        let mut registry = Registry { plugins: BTreeMap::new(), errors: Vec::new(), refused: Vec::new() };
        built_in::register(&mut registry);
        registry
    }

    /// Registers a tool, which is made of its config, of type `C`.
    #[must_use]
    pub fn tool<C, T>(
        mut self,
        name: &str,
        make: impl Fn(C) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Registry
    where
        C: DeserializeOwned + JsonSchema,
        T: Tool,
    {
        let make = factory(move |config| Ok(Arc::new(make(config)?) as Arc<dyn Tool>));
        self.add::<C>(Seam::Tool, name, Origin::Program, Make::Tool(make));
        self
    }

    /// Registers a pattern, which is made of its config. A text `system_prompt` in the config of any pattern is sent
    /// before the conversation.
    #[must_use]
    pub fn pattern<C, T>(
        mut self,
        name: &str,
        make: impl Fn(C) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Registry
    where
        C: DeserializeOwned + JsonSchema,
        T: Pattern,
    {
        let make = factory(move |config| Ok(Arc::new(make(config)?) as Arc<dyn Pattern>));
        self.add::<C>(Seam::Pattern, name, Origin::Program, Make::Pattern(make));
        self
    }

    /// Registers a memory, which is made of its config.
    #[must_use]
    pub fn memory<C, T>(
        mut self,
        name: &str,
        make: impl Fn(C) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Registry
    where
        C: DeserializeOwned + JsonSchema,
        T: Memory,
    {
        let make = factory(move |config| Ok(Arc::new(make(config)?) as Arc<dyn Memory>));
        self.add::<C>(Seam::Memory, name, Origin::Program, Make::Memory(make));
        self
    }

    /// Registers a place that events go to, which is made of its config.
    #[must_use]
    pub fn events<C, T>(
        mut self,
        name: &str,
        make: impl Fn(C) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Registry
    where
        C: DeserializeOwned + JsonSchema,
        T: Subscriber,
    {
        let make = factory(move |config| Ok(Some(Arc::new(make(config)?) as Arc<dyn Subscriber>)));
        self.add::<C>(Seam::Events, name, Origin::Program, Make::Events(make));
        self
    }

    /// Makes an error of the program's own known, where its declaration was not derived.
    #[must_use]
    pub fn error<E: AgentError>(mut self) -> Registry {
        self.errors.push(E::CODE);
        self
    }

    /// Everything that has a name, seam by seam.
    pub fn list(&self) -> Vec<PluginInfo> {
        let usable = self.plugins.iter().map(|((seam, _), plugin)| PluginInfo {
            seam: *seam,
            name: plugin.name.clone(),
            origin: plugin.origin,
            summary: plugin.summary.clone(),
            config: Some(plugin.schema.value.clone()),
        });
        let pending = built_in::PENDING.iter().map(|(seam, name, with)| PluginInfo {
            seam: *seam,
            name: (*name).to_owned(),
            origin: Origin::Pending,
            summary: format!("Comes with {with}."),
            config: None,
        });
        let providers = Provider::all().map(|provider| PluginInfo {
            seam: Seam::Provider,
            name: provider.name().to_owned(),
            origin: Origin::BuiltIn,
            summary: provider.summary(),
            config: None,
        });
        let mut all: Vec<_> = usable.chain(pending).chain(providers).collect();
        all.sort_by(|one, other| {
            (one.seam, one.origin as u8, &one.name).cmp(&(other.seam, other.origin as u8, &other.name))
        });
        all
    }

    pub(crate) fn errors(&self) -> &[Code] {
        &self.errors
    }

    /// Refuses what could not be registered.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.refused.first().cloned().map_or(Ok(()), Err)
    }

    fn add<C: JsonSchema>(&mut self, seam: Seam, name: &str, origin: Origin, make: Make) {
        let refuse = |code, what: String| Error::new(code, format!("{} {name:?}: {what}", seam.noun()));
        let schema = match Schema::of::<C>() {
            Ok(schema) => schema,
            Err(error) => {
                self.refused
                    .push(refuse(codes::PLUGIN_CONFIG, format!("its config has no JSON Schema: {error}")));
                return;
            }
        };
        if name.trim().is_empty() || is_python(name) {
            self.refused
                .push(refuse(codes::PLUGIN_ERROR, "a name is a word, without dots and colons".to_owned()));
            return;
        }
        let described = schema.value.get("description").and_then(Value::as_str);
        let summary =
            described.unwrap_or_default().split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let plugin = Plugin { name: name.to_owned(), origin, summary, schema, make };
        if self.plugins.insert((seam, name.to_owned()), Arc::new(plugin)).is_some() {
            let error = refuse(codes::PLUGIN_ERROR, "two plugins of one seam have this name".to_owned());
            self.refused.push(error.with_hint("give yours another name"));
        }
    }

    /// The names that `type` can have.
    pub(crate) fn built_in_names(&self, seam: Seam) -> Vec<&str> {
        self.names(seam, Origin::BuiltIn)
    }

    fn names(&self, seam: Seam, origin: Origin) -> Vec<&str> {
        let of_seam = self.plugins.iter().filter(|((of, _), plugin)| *of == seam && plugin.origin == origin);
        of_seam.map(|((_, name), _)| name.as_str()).collect()
    }

    /// The plugin that a `type` or an `impl` names.
    pub(crate) fn find(&self, seam: Seam, selector: &str, name: &str) -> Result<&Plugin, Unknown> {
        let (wanted, other) = match selector {
            "type" => (Origin::BuiltIn, Origin::Program),
            _ => (Origin::Program, Origin::BuiltIn),
        };
        let found = self.plugins.get(&(seam, name.to_owned()));
        if let Some(plugin) = found.filter(|plugin| plugin.origin == wanted) {
            return Ok(plugin);
        }
        Err(self.unknown(seam, selector, name, found.is_some_and(|plugin| plugin.origin == other)))
    }

    fn unknown(&self, seam: Seam, selector: &str, name: &str, by_the_other: bool) -> Unknown {
        let noun = seam.noun();
        let names = self.names(seam, if selector == "type" { Origin::BuiltIn } else { Origin::Program });
        let known = match (names.as_slice(), selector) {
            ([], "type") => format!("there is no built-in {noun} yet"),
            ([], _) => format!("this program has registered no {noun}"),
            (names, "type") => format!("the built-in ones are {}", names.join(", ")),
            (names, _) => format!("this program has registered {}", names.join(", ")),
        };
        let unknown = |before: String, after: &str, help: String| Unknown {
            before,
            after: after.to_owned(),
            meant: None,
            help,
        };
        if by_the_other {
            return match selector {
                "type" => unknown(format!("the {noun}"), " is this program's own", "write `impl`".to_owned()),
                _ => unknown(format!("the {noun}"), " is built in", "write `type`".to_owned()),
            };
        }
        if let Some((_, _, with)) =
            built_in::PENDING.iter().find(|(of, pending, _)| *of == seam && *pending == name)
        {
            return unknown(
                format!("the {noun}"),
                &format!(" is not there yet; it comes with {with}"),
                known,
            );
        }
        if let Some((_, _, instead)) =
            built_in::LACKING.iter().find(|(of, lacking, _)| *of == seam && *lacking == name)
        {
            return unknown(format!("Aplomb has no {noun}"), "", (*instead).to_owned());
        }
        if selector == "impl" && is_python(name) {
            let help = "put a tool of Python's behind an MCP server; write other parts in Rust, and give them to \
                        aplomb_cli::main_with or Runtime::builder(…).plugins";
            return unknown("this is a path of Python's:".to_owned(), "", help.to_owned());
        }
        let meant = did_you_mean(name, names.iter().copied());
        Unknown { before: format!("no {noun} is called"), after: String::new(), meant, help: known }
    }

    pub(crate) fn make_tool(&self, name: Named<'_>, config: &PluginConfig) -> Result<Arc<dyn Tool>, Error> {
        self.make(Seam::Tool, name, config, |make| match make {
            Make::Tool(make) => Some(make),
            _ => None,
        })
    }

    pub(crate) fn make_pattern(
        &self,
        name: Named<'_>,
        config: &PluginConfig,
    ) -> Result<Arc<dyn Pattern>, Error> {
        self.make(Seam::Pattern, name, config, |make| match make {
            Make::Pattern(make) => Some(make),
            _ => None,
        })
    }

    pub(crate) fn make_memory(
        &self,
        name: Named<'_>,
        config: &PluginConfig,
    ) -> Result<Arc<dyn Memory>, Error> {
        self.make(Seam::Memory, name, config, |make| match make {
            Make::Memory(make) => Some(make),
            _ => None,
        })
    }

    pub(crate) fn make_tool_executor(
        &self,
        name: Named<'_>,
        config: &PluginConfig,
    ) -> Result<ToolRetry, Error> {
        self.make(Seam::ToolExecutor, name, config, |make| match make {
            Make::ToolExecutor(make) => Some(make),
            _ => None,
        })
    }

    /// None for the sink that is there anyhow.
    pub(crate) fn make_events(
        &self,
        name: Named<'_>,
        config: &PluginConfig,
    ) -> Result<Option<Arc<dyn Subscriber>>, Error> {
        self.make(Seam::Events, name, config, |make| match make {
            Make::Events(make) => Some(make),
            _ => None,
        })
    }

    fn make<T>(
        &self,
        seam: Seam,
        (selector, name): Named<'_>,
        config: &PluginConfig,
        of_seam: impl Fn(&Make) -> Option<&Factory<T>>,
    ) -> Result<T, Error> {
        let plugin = self.find(seam, selector, name).map_err(|unknown| {
            let error = Error::new(codes::PLUGIN_LOAD, unknown.what(&format!("{name:?}")));
            error.with_hint(unknown.meant.unwrap_or(unknown.help))
        })?;
        match of_seam(&plugin.make) {
            Some(make) => make(config.0.clone().into()),
            None => Err(Error::new(codes::PLUGIN_ERROR, format!("the plugin {name:?} is of another seam"))),
        }
    }
}

/// A selector, `type` or `impl`, and what it names.
pub(crate) type Named<'a> = (&'a str, &'a str);

/// A name that is no plugin's.
pub(crate) struct Unknown {
    before: String,
    after: String,
    pub(crate) meant: Option<String>,
    pub(crate) help: String,
}

impl Unknown {
    pub(crate) fn what(&self, name: &str) -> String {
        format!("{} {name}{}", self.before, self.after)
    }
}

/// Makes a plugin of its config, behind the boundary that a panic does not pass.
fn factory<C: DeserializeOwned, T>(
    make: impl Fn(C) -> Result<T, Error> + Send + Sync + 'static,
) -> Factory<T> {
    Box::new(move |config| {
        let config = serde_path_to_error::deserialize(config).map_err(|error| {
            let (path, what) =
                (error.path().to_string(), aplomb_core::redact::text(&error.inner().to_string()));
            Error::new(codes::PLUGIN_CONFIG, format!("config.{path}: {what}"))
        })?;
        catch_unwind(AssertUnwindSafe(|| make(config))).unwrap_or_else(|panic| {
            let message = format!("it panicked when it was made: {}", panic_message(&*panic));
            Err(Error::new(codes::PLUGIN_ERROR, message))
        })
    })
}
