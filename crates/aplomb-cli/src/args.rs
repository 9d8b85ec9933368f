//! The arguments, apart from what they do.

use std::path::PathBuf;

use aplomb::failure::Phase;
use aplomb::{RunBudget, Unpriced};
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
    /// Say what is wrong with a config, all at once; run nothing.
    Validate(ValidateArguments),
    /// Print what happens when model calls fail: for each class of failure the requests and waits, and the worst case.
    Policy(PolicyArguments),
    /// Print the JSON Schema of configs, or of one plugin's config.
    Schema(SchemaArguments),
    /// List what a config can name: tools, patterns, memories and so on.
    ListPlugins(ListArguments),
    /// Look into a config.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a config to begin with.
    Init(InitArguments),
    /// Look whether everything is in place: config, keys, endpoints, clock, data folder.
    Doctor(DoctorArguments),
    /// Explain error codes: all as a tree, or one.
    Errors(ErrorsArguments),
    /// Say what a failure is, by which rule, and what would be done about it.
    Classify(ClassifyArguments),
    /// Serve a model that fails by script, for tests of clients.
    Faultlab(FaultlabArguments),
}

/// What is set over a config file, for each command that takes one.
#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// Set a value over the file and the environment; for several, several times. PATH is keys with dots between, an item
    /// of a list by its place or id: agents.0.llm.model, agents.assistant.llm.model. VALUE is JSON, or else a text; null
    /// stands for the default. Variables set values, too: APLOMB_CONFIG__AGENTS__0__LLM__MODEL.
    #[arg(long = "set", value_name = "PATH=VALUE", requires = "config")]
    pub(crate) assignments: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The config file.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) set: SetArguments,
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
    /// How long you wait, in ms: a run that is not done by then ends as timed out (execution.timeout).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// A file with a JSON Schema that the answer must fit; its title, or else the file's name, is what the answer is called.
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// What to print: text on a terminal, else events, unless told.
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    // Last: what follows would stand under its heading.
    #[command(flatten)]
    pub(crate) budget: BudgetArguments,
}

/// What a run may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Budget")]
pub(crate) struct BudgetArguments {
    /// The most model calls.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// The most time, in ms: a run that is not done by then has used up its budget (execution.budget_exhausted).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_duration_ms: Option<u64>,
    /// The most tool calls.
    #[arg(long, value_name = "N")]
    max_tool_calls: Option<u32>,
    /// The most corrections of an answer that does not fit --output-schema; 3 unless told.
    #[arg(long, value_name = "N")]
    max_validation_retries: Option<u32>,
    #[command(flatten)]
    cost: CostArguments,
}

/// What a run may cost.
#[derive(Debug, Args)]
pub(crate) struct CostArguments {
    /// The most that a run may cost, in US dollars; needs the price of each of the agent's models (llm.pricing).
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost_usd: Option<f64>,
    /// What becomes of a run with a limit of cost whose agent has a model without a price.
    #[arg(long, value_enum, default_value = "refuse", requires = "max_cost_usd")]
    unpriced: UnpricedName,
}

/// What becomes of a run whose cost cannot be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnpricedName {
    /// It is refused before anything is sent.
    Refuse,
    /// It is run; what such a model costs is not counted.
    Allow,
}

impl BudgetArguments {
    pub(crate) fn budget(&self) -> RunBudget {
        let mut budget = self.cost.budget();
        budget.max_steps = self.max_steps;
        budget.max_duration_ms = self.max_duration_ms;
        budget.max_tool_calls = self.max_tool_calls;
        budget.max_validation_retries = self.max_validation_retries;
        budget
    }
}

impl CostArguments {
    pub(crate) fn budget(&self) -> RunBudget {
        let budget = RunBudget::new().unpriced(match self.unpriced {
            UnpricedName::Refuse => Unpriced::Refuse,
            UnpricedName::Allow => Unpriced::Allow,
        });
        match self.max_cost_usd {
            Some(dollars) => budget.max_cost_usd(dollars),
            None => budget,
        }
    }
}

fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(dollars) if dollars > 0.0 && dollars.is_finite() => Ok(dollars),
        _ => Err("it must be an amount of dollars that is more than 0, such as 0.05".to_owned()),
    }
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
#[command(mut_arg("max_cost_usd", |cost| cost.help(
    "Refuse agents that could not keep to this cost of a run, in US dollars: those with a model without a price"
)))]
#[command(mut_arg("unpriced", |unpriced| unpriced.help(
    "What to say of an agent with a limit of cost that has a model without a price"
)))]
pub(crate) struct ValidateArguments {
    /// The config file: JSON, or YAML or TOML by the end of its name.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) set: SetArguments,
    /// Refuse what is only likely to be a mistake, such as a key whose variable is not set here.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) cost: CostArguments,
    /// Print the config with its defaults. Values from the environment and credentials are not shown.
    #[arg(long)]
    pub(crate) show_resolved: bool,
    /// How to tell it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArguments {
    /// The config file. Its keys need not be there; nothing is sent.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) set: SetArguments,
    /// Which agent; needed where the config has several.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// How long the run may take, in ms, as `run --timeout-ms` would have it: waits that end later are not begun.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: Option<u64>,
    /// How to tell it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// The schema of this plugin's config.
    #[arg(long, value_name = "NAME")]
    pub(crate) plugin: Option<String>,
    /// Where the plugin goes, such as tool or memory; needed where a name is in several places.
    #[arg(long, value_name = "SEAM", requires = "plugin")]
    pub(crate) seam: Option<String>,
    /// How to tell what goes wrong; a schema is JSON.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only those that go there, such as tool or memory.
    #[arg(long, value_name = "SEAM")]
    pub(crate) seam: Option<String>,
    /// How to print it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a config with its defaults, or where its values come from. Values from the environment are shown as
    /// ${VARIABLE}.
    Show(ShowArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The config file.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) set: SetArguments,
    /// Show no credential: neither what looks like one, nor what headers and bodies are sent with, nor the fields of
    /// diagnostics.redact_keys.
    #[arg(long)]
    pub(crate) redact: bool,
    /// Say where each value comes from that is not a default: a flag, a variable, or a place in the file.
    #[arg(long)]
    pub(crate) provenance: bool,
    /// With --provenance, list the values that are defaults, too.
    #[arg(long, requires = "provenance")]
    pub(crate) defaults: bool,
    /// What to write it in: JSON unless told; with --provenance, lines for people unless told.
    #[arg(long, value_enum)]
    pub(crate) format: Option<DocumentFormat>,
}

/// What a config is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    /// The folder; made where it is not there.
    pub(crate) folder: PathBuf,
    /// What to begin with.
    #[arg(long, value_enum, default_value = "minimal")]
    pub(crate) template: Template,
    /// How to tell it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

/// A config to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// One agent that answers by a script.
    Minimal,
    /// An agent with tools and a memory.
    Tools,
    /// The same agent by a script, by Anthropic, and by a server of your own.
    MultiProvider,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The config file; without one, only what needs none is looked at.
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) set: SetArguments,
    /// Send nothing.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Where data goes; the platform's data folder where it is not given.
    #[arg(long, value_name = "FOLDER", env = "APLOMB_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// How to tell it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorsArguments {
    /// A code, such as llm.rate_limit; all codes where none is given.
    pub(crate) code: Option<String>,
    /// How to print it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ClassifyArguments {
    /// The failure: a response as `curl -i` prints it, or JSON as a line of the corpus; standard input where none is given.
    #[arg(conflicts_with_all = ["status", "header", "body_file", "exception"])]
    pub(crate) file: Option<PathBuf>,
    /// The response's status.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(100..1000))]
    pub(crate) status: Option<u16>,
    /// A header of the response, as `name: value`; for several, several times.
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// A file with the response's body; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,
    /// What an HTTP client said, where there was no response, or one that broke off.
    #[arg(long, value_name = "TEXT")]
    pub(crate) exception: Option<String>,
    /// Who answered.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The protocol, such as openai-chat or anthropic; without it, the shape of what came tells.
    #[arg(long, value_name = "NAME")]
    pub(crate) wire: Option<String>,
    /// How far the request had got; without it, the status tells.
    #[arg(long, value_enum)]
    pub(crate) phase: Option<PhaseName>,
    /// Read a failure from each line, and answer each with a line of JSON.
    #[arg(long, conflicts_with_all = ["status", "header", "body_file", "exception", "provider", "wire", "phase", "format"])]
    pub(crate) jsonl: bool,
    /// How to tell it.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: ReportFormat,
}

/// How far a request had got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PhaseName {
    /// No response head arrived.
    Connect,
    /// The status says that it failed.
    Response,
    /// The status was good, the body is not.
    Body,
    /// The beginning of a stream was good, what followed is not.
    MidStream,
}

impl From<PhaseName> for Phase {
    fn from(name: PhaseName) -> Phase {
        match name {
            PhaseName::Connect => Phase::Connect,
            PhaseName::Response => Phase::Response,
            PhaseName::Body => Phase::Body,
            PhaseName::MidStream => Phase::MidStream,
        }
    }
}

/// How something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
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
