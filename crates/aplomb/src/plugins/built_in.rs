//! The plugins that come with Aplomb, those that will, and those that others have.

use std::sync::Arc;

use aplomb_core::decide::ToolRetry;
use aplomb_core::run::React;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Make, NoConfig, Origin, Registry, Seam, factory};
use crate::config::{ReactConfig, RetryExecutorConfig};
use crate::memory::Buffer;
use crate::tools::{Calc, CurrentTime};

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
    (Seam::ContextAssembler, "truncating", "the context assemblers"),
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

/// In this process, for as long as it lives.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InMemoryConfig {}

/// To the program's own subscribers alone.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AsyncConfig {}

/// Registers every one that can be used.
pub(super) fn register(registry: &mut Registry) {
    let mut add = Add(registry);
    add.one::<BufferConfig>(
        Seam::Memory,
        "buffer",
        Make::Memory(factory(|_: NoConfig| Ok(Arc::new(Buffer::default()) as _))),
    );
    add.one::<ReactConfig>(
        Seam::Pattern,
        "react",
        Make::Pattern(factory(|_: ReactConfig| Ok(Arc::new(React::default()) as _))),
    );
    add.one::<CalcConfig>(Seam::Tool, "calc", Make::Tool(factory(|_: NoConfig| Ok(Arc::new(Calc) as _))));
    add.one::<CurrentTimeConfig>(
        Seam::Tool,
        "current_time",
        Make::Tool(factory(|_: NoConfig| Ok(Arc::new(CurrentTime) as _))),
    );
    add.one::<SafeConfig>(
        Seam::ToolExecutor,
        "safe",
        Make::ToolExecutor(factory(|_: NoConfig| Ok(ToolRetry::never()))),
    );
    add.one::<RetryExecutorConfig>(
        Seam::ToolExecutor,
        "retry",
        Make::ToolExecutor(factory(|config: RetryExecutorConfig| Ok(config.policy()))),
    );
    add.one::<DefaultRuntimeConfig>(Seam::Runtime, "default", Make::Nothing);
    add.one::<InMemoryConfig>(Seam::Session, "in_memory", Make::Nothing);
    add.one::<AsyncConfig>(Seam::Events, "async", Make::Events(factory(|_: NoConfig| Ok(None))));
}

struct Add<'a>(&'a mut Registry);

impl Add<'_> {
    fn one<C: JsonSchema>(&mut self, seam: Seam, name: &str, make: Make) {
        self.0.add::<C>(seam, name, Origin::BuiltIn, make);
    }
}
