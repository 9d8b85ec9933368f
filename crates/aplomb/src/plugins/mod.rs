//! Plugins: the parts of an agent that a config can exchange by name. Built-in ones and a program's own are registered
//! in the same way.
//!
//! | seam | what a program implements, and registers by | a config says |
//! |---|---|---|
//! | tool | [`Tool`](crate::tools::Tool), [`Registry::tool`] | `agents[].tools[]`: `{"id": "mine", "impl": "NAME", "config": {}}` |
//! | pattern | [`Pattern`](crate::Pattern), [`Registry::pattern`] | `agents[].pattern`: `{"impl": "NAME", "config": {}}` |
//! | memory | [`Memory`](crate::Memory), [`Registry::memory`] | `agents[].memory`: `{"impl": "NAME", "config": {}, "on_error": "fail"}` |
//! | tool executor | [`ToolExecutor`](crate::tools::ToolExecutor), [`Registry::tool_executor`] | `agents[].tool_executor`: `{"impl": "NAME", "config": {}}` |
//! | context assembler | [`Assembler`](crate::Assembler), [`Registry::context_assembler`] | `agents[].context_assembler`: `{"impl": "NAME", "config": {}}` |
//! | provider, in this process | [`ModelService`](crate::provider::ModelService), [`Registry::provider`] | `agents[].llm`: `{"provider": "NAME", "provider_config": {}}` |
//! | provider, behind HTTP | a row of data, [`Vendor`](crate::provider::Vendor), [`Registry::vendor`] | `agents[].llm`: `{"provider": "NAME", "model": "…"}` and the other keys of a built-in one; it takes no `provider_config` |
//! | session | [`SessionStore`](crate::SessionStore), [`Registry::session`] | `session`: `{"impl": "NAME", "config": {}}` |
//! | events | [`Subscriber`](crate::Subscriber), [`Registry::events`] | `events`: `{"impl": "NAME", "config": {}}` |
//! | runtime | nothing yet | `runtime`: `{"type": "default"}` |
//!
//! A plugin is made of its `config`, of a type of its author's that serde and schemars derive: what does not fit is
//! `plugin.config` with the field's path, a name that is not registered is `plugin.load` with a near match, and what two
//! parts cannot do together is `plugin.capability` with both their names. Whatever a plugin does, a panic of its is an
//! error of the part that it plays, and no more. Two parts have no error to give while a run is under way: a context
//! assembler that panics leaves nothing out, and what an event sink panics at, the others are told all the same.

mod built_in;
mod find;
mod lacking;
mod providers;
mod registry;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use find::Named;
pub(crate) use providers::Provider;
pub use registry::Registry;
pub(crate) use registry::{Part, Plugin};

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

    /// What goes to it, in messages.
    fn noun(self) -> &'static str {
        match self {
            Seam::Memory => "memory",
            Seam::Pattern => "pattern",
            Seam::Tool => "tool",
            Seam::ToolExecutor => "tool executor",
            Seam::ContextAssembler => "context assembler",
            Seam::Runtime => "runtime",
            Seam::Session => "session store",
            Seam::Events => "event sink",
            Seam::Provider => "provider",
        }
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
    /// JSON Schema of its `config`, of a provider's `llm.provider_config`; none while it is pending, and for providers that
    /// take none.
    pub config: Option<Value>,
}

/// Whether a name is a path of Python's: `package.module:Class` or `package.module.Class`.
pub(crate) fn is_python(name: &str) -> bool {
    name.contains(['.', ':'])
}
