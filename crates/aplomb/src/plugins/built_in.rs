//! The plugins that come with Aplomb, those that will, and those that others have.

use std::sync::Arc;

use aplomb_core::error::Error;
use aplomb_core::run::{Assembler, Pattern, React, Truncating};
use aplomb_llm::vendors;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::registry::{Part, Plugin};
use super::{Origin, Registry, Seam};
use crate::config::{InMemoryConfig, ReactConfig, RetryExecutorConfig, TruncatingConfig};
use crate::memory::{Buffer, Memory};
use crate::runtime::Subscriber;
use crate::session::{InMemory, SessionStore};
use crate::tools::{Calc, CurrentTime, Retrying, Safe, Tool, ToolExecutor};

/// Names that the contract has and that cannot be used yet, and what they come with.
pub(super) const PENDING: &[(Seam, &str, &str)] = &[
    (Seam::Memory, "window_buffer", "memories that are bounded"),
    (Seam::Memory, "chain", "memories that are made of others"),
    (Seam::Memory, "markdown_memory", "memories on disk"),
    (Seam::Pattern, "plan_execute", "patterns that plan"),
    (Seam::Pattern, "reflexion", "patterns that plan"),
    (Seam::Tool, "read_file", "the tools for files"),
    (Seam::Tool, "write_file", "the tools for files"),
    (Seam::Tool, "list_files", "the tools for files"),
    (Seam::Tool, "delete_file", "the tools for files"),
    (Seam::Tool, "grep_files", "the tools for files"),
    (Seam::Tool, "http_request", "the tools for the network"),
    (Seam::Tool, "url_parse", "the tools for the network"),
    (Seam::Tool, "query_param", "the tools for the network"),
    (Seam::Tool, "host_lookup", "the tools for the network"),
    (Seam::Tool, "shell_exec", "the tools for commands"),
    (Seam::Tool, "min_max", "the tools for numbers and texts"),
    (Seam::Tool, "percentage", "the tools for numbers and texts"),
    (Seam::Tool, "random_int", "the tools for numbers and texts"),
    (Seam::Tool, "random_choice", "the tools for numbers and texts"),
    (Seam::Tool, "random_string", "the tools for numbers and texts"),
    (Seam::Tool, "uuid", "the tools for numbers and texts"),
    (Seam::Tool, "date_parse", "the tools for numbers and texts"),
    (Seam::Tool, "date_diff", "the tools for numbers and texts"),
    (Seam::Tool, "json_parse", "the tools for numbers and texts"),
    (Seam::Tool, "text_transform", "the tools for numbers and texts"),
    (Seam::Tool, "remember_preference", "memories on disk"),
    (Seam::Tool, "mcp", "MCP"),
    (Seam::ToolExecutor, "filesystem_aware", "the tools for files"),
    (Seam::ToolExecutor, "concurrent_batch", "batches of tool calls"),
    (Seam::ContextAssembler, "head_tail", "the context assemblers"),
    (Seam::ContextAssembler, "sliding_window", "the context assemblers"),
    (Seam::ContextAssembler, "importance_weighted", "the context assemblers"),
    (Seam::Session, "jsonl_file", "stored sessions"),
    (Seam::Session, "sqlite", "stored sessions"),
    (Seam::Events, "file_logging", "event sinks"),
    (Seam::Events, "otel_bridge", "telemetry"),
    (Seam::Events, "rich_console", "event sinks"),
];

/// Names of other systems, and what there is instead.
pub(super) const LACKING: &[(Seam, &str, &str)] = &[
    (Seam::Memory, "mem0", "use buffer, or write a memory of your own and register it"),
    (Seam::Memory, "zep", "use buffer, or write a memory of your own and register it"),
    (
        Seam::Tool,
        "builtin_search",
        "an MCP server will do it, once tools of MCP are there; or write one and register it",
    ),
    (
        Seam::Tool,
        "tavily_search",
        "an MCP server will do it, once tools of MCP are there; or write one and register it",
    ),
];

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

/// Registers every one that can be used.
pub(super) fn register(registry: Registry) -> Registry {
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
    // What it plays is in `llm.script`.
    let (name, summary) = ("mock".to_owned(), "A script, in this process.".to_owned());
    let mock = Plugin { name, origin: Origin::BuiltIn, summary, schema: None, make: Box::new(()) };
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
