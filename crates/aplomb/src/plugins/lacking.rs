//! The names of plugins that are not there: those that come later, and those that others have.

use super::Seam;

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
