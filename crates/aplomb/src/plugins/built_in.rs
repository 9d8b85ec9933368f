//! The plugins that come with Aplomb.

use std::sync::Arc;

use aplomb_core::error::Error;
use aplomb_core::run::{Assembler, Pattern, React, Truncating};
use aplomb_llm::vendors;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::registry::{Make, Part, Plugin};
use super::{Origin, Registry, Seam};
use crate::config::{InMemoryConfig, ReactConfig, RetryExecutorConfig, TruncatingConfig};
use crate::memory::{Buffer, Memory};
use crate::session::{InMemory, SessionStore};
use crate::subscriber::Subscriber;
use crate::tools::{Calc, CurrentTime, Retrying, Safe, Tool, ToolExecutor};

/// The session's whole conversation, in this process.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BufferConfig {}

/// Calls a tool once: what failed is told to the model.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SafeConfig {}

/// Arithmetic, exactly where it can be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CalcConfig {}

/// The time, in a time zone if one is named.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CurrentTimeConfig {}

/// In this process, on the program's tokio.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DefaultRuntimeConfig {}

/// To the program's own subscribers alone.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AsyncConfig {}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// The built-in plugins.
    pub fn new() -> Registry {
        register(Registry::empty())
    }
}

fn register(registry: Registry) -> Registry {
    let registry =
        built_in(registry, "buffer", |_: BufferConfig| Ok(Arc::new(Buffer::default()) as Arc<dyn Memory>));
    let registry =
        built_in(registry, "react", |_: ReactConfig| Ok(Arc::new(React::default()) as Arc<dyn Pattern>));
    let registry = built_in(registry, "calc", |_: CalcConfig| Ok(Arc::new(Calc) as Arc<dyn Tool>));
    let registry =
        built_in(registry, "current_time", |_: CurrentTimeConfig| Ok(Arc::new(CurrentTime) as Arc<dyn Tool>));
    let registry = built_in(registry, "safe", |_: SafeConfig| Ok(Arc::new(Safe) as Arc<dyn ToolExecutor>));
    let registry = built_in(registry, "retry", |config: RetryExecutorConfig| {
        Ok(Arc::new(Retrying(config.policy())) as Arc<dyn ToolExecutor>)
    });
    let registry = built_in(registry, "truncating", |_: TruncatingConfig| {
        Ok(Arc::new(Truncating::default()) as Arc<dyn Assembler>)
    });
    let registry = built_in(registry, "default", |_: DefaultRuntimeConfig| Ok(()));
    let registry = built_in(registry, "in_memory", |config: InMemoryConfig| {
        Ok(Arc::new(InMemory::new(config.max_sessions)) as Arc<dyn SessionStore>)
    });
    let registry = built_in(registry, "async", |_: AsyncConfig| Ok(None::<Arc<dyn Subscriber>>));
    let mut registry = vendors::ALL
        .iter()
        .fold(registry, |registry, vendor| registry.with_vendor(vendor.clone(), Origin::BuiltIn));
    let (name, summary) = ("mock".to_owned(), "A script, in this process.".to_owned());
    let mock = Plugin { name, origin: Origin::BuiltIn, summary, schema: None, make: Make::Script };
    registry.add(Seam::Provider, mock);
    registry
}

fn built_in<C, P>(
    registry: Registry,
    name: &str,
    make: impl Fn(C) -> Result<P, Error> + Send + Sync + 'static,
) -> Registry
where
    C: DeserializeOwned + JsonSchema,
    P: Part,
{
    registry.with(name, Origin::BuiltIn, make)
}
