//! What has been registered: built-in parts and a program's own, by seam and name.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aplomb_core::error::{AgentError, Code, Error, codes};
use aplomb_core::run::{Assembler, Pattern, panic_message};
use aplomb_llm::service::ModelService;
use aplomb_llm::vendors::{Place, Vendor};
use aplomb_llm::wire::Wire;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Origin, PluginInfo, Seam, is_python, lacking};
use crate::json_schema::Schema;
use crate::memory::Memory;
use crate::session::SessionStore;
use crate::subscriber::Subscriber;
use crate::tools::{Tool, ToolExecutor};

/// A plugin that can be used.
pub(crate) struct Plugin {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) summary: String,
    /// None where it takes no config.
    pub(crate) schema: Option<Schema>,
    pub(super) make: Make,
}

/// What a plugin is made of.
pub(super) enum Make {
    /// Its config: by the [`Factory`] of the part that goes to its seam.
    Config(Box<dyn Any + Send + Sync>),
    /// A row of data, and the keys of `llm`.
    Vendor(Box<Vendor>),
    /// What it plays: `llm.script`.
    Script,
}

/// Makes a plugin of its config.
pub(super) struct Factory<P>(pub(super) Box<dyn Fn(Value) -> Result<P, Error> + Send + Sync>);

/// What goes to a seam.
pub(crate) trait Part: Sized + 'static {
    const SEAM: Seam;
}

impl Part for Arc<dyn Memory> {
    const SEAM: Seam = Seam::Memory;
}

impl Part for Arc<dyn Pattern> {
    const SEAM: Seam = Seam::Pattern;
}

impl Part for Arc<dyn Tool> {
    const SEAM: Seam = Seam::Tool;
}

impl Part for Arc<dyn ToolExecutor> {
    const SEAM: Seam = Seam::ToolExecutor;
}

impl Part for Arc<dyn Assembler> {
    const SEAM: Seam = Seam::ContextAssembler;
}

/// There is one runtime so far, and nothing to be said of it.
impl Part for () {
    const SEAM: Seam = Seam::Runtime;
}

impl Part for Arc<dyn SessionStore> {
    const SEAM: Seam = Seam::Session;
}

/// None for the sink that is there anyhow.
impl Part for Option<Arc<dyn Subscriber>> {
    const SEAM: Seam = Seam::Events;
}

impl Part for Arc<dyn ModelService> {
    const SEAM: Seam = Seam::Provider;
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
    pub(super) plugins: BTreeMap<(Seam, String), Arc<Plugin>>,
    errors: Vec<Code>,
    /// What could not be registered; said when a runtime is built.
    refused: Vec<Error>,
}

/// Registers what goes to a seam.
macro_rules! registers {
    ($(#[$doc:meta])* $method:ident: $of:ident => $part:ty, |$made:ident| $shared:expr) => {
        $(#[$doc])*
        #[must_use]
        pub fn $method<C, T>(
            self,
            name: &str,
            make: impl Fn(C) -> Result<T, Error> + Send + Sync + 'static,
        ) -> Registry
        where
            C: DeserializeOwned + JsonSchema,
            T: $of,
        {
            self.with::<C, $part>(name, Origin::Program, move |config| {
                let $made = Arc::new(make(config)?);
                Ok($shared)
            })
        }
    };
}

impl Registry {
    /// Without any plugin.
    pub(super) fn empty() -> Registry {
        Registry { plugins: BTreeMap::new(), errors: Vec::new(), refused: Vec::new() }
    }

    registers! {
        /// Registers a tool, which is made of its config, of type `C`.
        tool: Tool => Arc<dyn Tool>, |made| made
    }

    registers! {
        /// Registers a pattern, which is made of its config. A text `system_prompt` in the config of any pattern is sent
        /// before the conversation.
        pattern: Pattern => Arc<dyn Pattern>, |made| made
    }

    registers! {
        /// Registers a memory, which is made of its config.
        memory: Memory => Arc<dyn Memory>, |made| made
    }

    registers! {
        /// Registers a way of calling tools, which is made of its config.
        tool_executor: ToolExecutor => Arc<dyn ToolExecutor>, |made| made
    }

    registers! {
        /// Registers a way of making conversations fit their model, which is made of its config.
        context_assembler: Assembler => Arc<dyn Assembler>, |made| made
    }

    registers! {
        /// Registers a model that is served in this process, which is made of its config: `llm.provider_config` where
        /// `llm.provider` is its name.
        provider: ModelService => Arc<dyn ModelService>, |made| made
    }

    registers! {
        /// Registers a place that sessions are kept in, which is made of its config.
        session: SessionStore => Arc<dyn SessionStore>, |made| made
    }

    registers! {
        /// Registers a place that events go to, which is made of its config.
        events: Subscriber => Option<Arc<dyn Subscriber>>, |made| Some(made)
    }

    /// Registers a vendor of models: somebody behind HTTP who speaks one of the protocols that Aplomb speaks. It is
    /// configured by the keys of `llm`, as the built-in ones are.
    #[must_use]
    pub fn vendor(self, vendor: Vendor) -> Registry {
        self.with_vendor(vendor, Origin::Program)
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
            config: plugin.schema.as_ref().map(|schema| schema.value.clone()),
        });
        let pending = lacking::PENDING.iter().map(|(seam, name, with)| PluginInfo {
            seam: *seam,
            name: (*name).to_owned(),
            origin: Origin::Pending,
            summary: format!("Comes with {with}."),
            config: None,
        });
        let mut all: Vec<_> = usable.chain(pending).collect();
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

    /// Registers what is made of a config.
    pub(super) fn with<C, P>(
        mut self,
        name: &str,
        origin: Origin,
        make: impl Fn(C) -> Result<P, Error> + Send + Sync + 'static,
    ) -> Registry
    where
        C: DeserializeOwned + JsonSchema,
        P: Part,
    {
        let schema =
            catch_unwind(Schema::of::<C>).unwrap_or_else(|panic| Err(panic_message(&*panic).to_owned()));
        match schema {
            Ok(schema) => {
                let described = schema.value.get("description").and_then(Value::as_str).unwrap_or_default();
                let summary = described.split("\n\n").next().unwrap_or_default().replace('\n', " ");
                let make = Make::Config(Box::new(factory(make)));
                self.add(
                    P::SEAM,
                    Plugin { name: name.to_owned(), origin, summary, schema: Some(schema), make },
                );
            }
            Err(error) => {
                let what = format!("its config has no JSON Schema: {error}");
                self.refuse(P::SEAM, name, codes::PLUGIN_CONFIG, what);
            }
        }
        self
    }

    /// Registers a vendor of models.
    pub(super) fn with_vendor(mut self, vendor: Vendor, origin: Origin) -> Registry {
        let (name, summary) = (vendor.name.to_owned(), vendor_summary(&vendor));
        let make = Make::Vendor(Box::new(vendor));
        self.add(Seam::Provider, Plugin { name, origin, summary, schema: None, make });
        self
    }

    pub(super) fn add(&mut self, seam: Seam, plugin: Plugin) {
        let name = plugin.name.clone();
        if name.trim().is_empty() || is_python(&name) {
            let what = "a name is a word, without dots and colons".to_owned();
            return self.refuse(seam, &name, codes::PLUGIN_ERROR, what);
        }
        if self.plugins.insert((seam, name.clone()), Arc::new(plugin)).is_some() {
            let what = "two plugins of one seam have this name".to_owned();
            self.refuse(seam, &name, codes::PLUGIN_ERROR, what);
        }
    }

    fn refuse(&mut self, seam: Seam, name: &str, code: Code, what: String) {
        let error = Error::new(code, format!("{} {name:?}: {what}", seam.noun()));
        self.refused.push(if code == codes::PLUGIN_ERROR {
            error.with_hint("give yours another name")
        } else {
            error
        });
    }
}

/// Makes a plugin of its config, behind the boundary that a panic does not pass.
fn factory<C: DeserializeOwned, P>(
    make: impl Fn(C) -> Result<P, Error> + Send + Sync + 'static,
) -> Factory<P> {
    let make = move |config: Value| {
        let config = serde_path_to_error::deserialize(config).map_err(|error| {
            let (path, what) =
                (error.path().to_string(), aplomb_core::redact::text(&error.inner().to_string()));
            Error::new(codes::PLUGIN_CONFIG, format!("config.{path}: {what}"))
        })?;
        make(config)
    };
    Factory(Box::new(move |config| {
        catch_unwind(AssertUnwindSafe(|| make(config))).unwrap_or_else(|panic| {
            let message = format!("it panicked when it was made: {}", panic_message(&*panic));
            Err(Error::new(codes::PLUGIN_ERROR, message))
        })
    }))
}

/// What a vendor is, in a sentence.
fn vendor_summary(vendor: &Vendor) -> String {
    let speaks = match vendor.wire {
        Wire::Anthropic => "Anthropic's Messages",
        Wire::Gemini => "Google's generateContent",
        Wire::OpenaiResponses => "OpenAI's Responses",
        _ if vendor.speaks_both => "OpenAI's Chat Completions or Responses",
        _ => "OpenAI's Chat Completions",
    };
    match vendor.place {
        Place::At(base) => format!("{speaks}, at {base}."),
        Place::AzureResource => format!("{speaks}, at an Azure resource: `llm.api_base`."),
        _ => format!("{speaks}, at `llm.api_base`."),
    }
}
