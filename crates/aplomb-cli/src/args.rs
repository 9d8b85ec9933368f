//! The arguments, apart from what they do.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run LLM agents that keep their composure.
#[derive(Debug, Parser)]
#[command(name = "aplomb", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an agent once.
    Run(RunArguments),
    /// Explain error codes: all as a tree, or one.
    Errors(ErrorsArguments),
    /// Serve a model that fails by script, for tests of clients.
    Faultlab(FaultlabArguments),
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The config file.
    pub(crate) config: PathBuf,
    /// What to say to the agent; `-` reads standard input, as does giving no input at all.
    #[arg(long, value_name = "TEXT", conflicts_with = "input_file", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// A file with what to say; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) input_file: Option<PathBuf>,
    /// Which agent; needed where the config has several.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Which session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,
    /// What to call the run.
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
    /// How long the run may take, in ms.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// What to print: text on a terminal, else events, unless told.
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
}

/// What goes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The answer.
    Text,
    /// The run's result, as one JSON object.
    Json,
    /// What happens, as one JSON object a line.
    Events,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorsArguments {
    /// A code, such as llm.rate_limit; all codes where none is given.
    pub(crate) code: Option<String>,
    /// How to print it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ErrorsFormat,
}

/// How error codes are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ErrorsFormat {
    /// For people.
    Text,
    /// As JSON.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct FaultlabArguments {
    /// What to answer, as YAML (.yaml, .yml) or JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: PathBuf,
    /// The port; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port: u16,
    /// The port that gives the request log and takes new scripts; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) control_port: u16,
    /// Where to write the certificate that a client has to trust, for a script with TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}
