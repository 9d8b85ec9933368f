//! `aplomb run`: one run, shown as it was asked for.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aplomb::config::Config;
use aplomb::event::names;
use aplomb::plugins::Registry;
use aplomb::{
    Cancellation, Error, Event, Retry, RunRequest, RunResult, Runtime, StopReason, Subscriber, codes,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Format, RunArguments};
use crate::exit;
use crate::inspect::load;
use crate::output::{Output, for_terminal, talk};
use crate::render::{self, DIM, WARN};
use crate::signals::Signals;

/// How long an interrupted run waits for a reader of its output.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) async fn run(arguments: RunArguments, registry: Registry) -> u8 {
    let terminal = io::stdout().is_terminal();
    let format = arguments.format.unwrap_or(if terminal { Format::Text } else { Format::Events });
    let cancellation = Cancellation::new();
    let reader_left = cancellation.clone();
    let output = Arc::new(Output::start(move || reader_left.cancel("the reader of the output")));
    let signals = match Signals::listen(cancellation.clone()) {
        Ok(signals) => signals,
        Err(error) => {
            talk(format_args!("error: cannot listen for signals: {error}"));
            return exit::FAILED;
        }
    };
    let code = match carry_out(arguments, registry, format, terminal, &output, cancellation).await {
        Ok(stop_reason) => end_of(stop_reason, &signals),
        Err(error) => {
            if format == Format::Json {
                output.data(format!("{:#}\n", json!({"error_details": error.details()})));
            }
            output.talk(render::failure(&error));
            signals.exit_code().unwrap_or_else(|| exit::of(&error))
        }
    };
    signals.nothing_to_cancel();
    let patience = signals.exit_code().map(|_| PATIENCE);
    match output.finish(patience) {
        Ok(()) => code,
        Err(error) => {
            talk(format_args!("error: cannot write to standard output: {error}"));
            exit::FAILED
        }
    }
}

async fn carry_out(
    arguments: RunArguments,
    registry: Registry,
    format: Format,
    terminal: bool,
    output: &Arc<Output>,
    cancellation: Cancellation,
) -> Result<StopReason, Error> {
    let config = load(&arguments.config, &arguments.set)?;
    let schema = arguments.output_schema.as_deref().map(read_schema).transpose()?;
    let agent_id = match arguments.agent {
        Some(agent) => agent,
        None => only_agent(&config)?,
    };
    let budget = arguments.budget.budget();
    let builder = Runtime::builder(config).plugins(registry).only(agent_id.as_str()).keeping_to(budget);
    let runtime = match format {
        Format::Text => builder.subscriber(Progress::new(terminal, output.clone())),
        Format::Events => builder.subscriber(EventLines(output.clone())),
        Format::Json => builder,
    }
    .build()?;
    let (text, file) = (arguments.input, arguments.input_file);
    // Reading can take for ever, and a signal must end it.
    let reading = tokio::task::spawn_blocking(move || read_input(text, file.as_deref()));
    let input = tokio::select! {
        read = reading => read.map_err(|error| Error::foreign(codes::EXECUTION_ERROR, error))??,
        () = cancellation.cancelled() => {
            return Err(Error::new(codes::EXECUTION_CANCELLED, "cancelled before the input was read"));
        }
    };
    let mut request = RunRequest::new(agent_id, input).cancellation(cancellation);
    request.session_id = arguments.session_id;
    request.run_id = arguments.run_id;
    request.budget = budget;
    request.timeout = arguments.timeout_ms.map(Duration::from_millis);
    match schema {
        None => {
            let result = runtime.run_detailed(request).await?;
            show(&result, String::clone, format, terminal, output);
            Ok(result.stop_reason)
        }
        Some((name, schema)) => {
            let result = runtime.run_detailed(request.output_schema(name, schema)).await?;
            show(&result, Value::to_string, format, terminal, output);
            Ok(result.stop_reason)
        }
    }
}

/// The exit code of a run.
fn end_of(stop_reason: StopReason, signals: &Signals) -> u8 {
    match (stop_reason, signals.exit_code()) {
        (StopReason::Completed, _) => exit::SUCCESS,
        (StopReason::Cancelled, Some(code)) => code,
        // The reader of the output has left, which is quiet.
        (StopReason::Cancelled, None) => exit::SUCCESS,
        _ => exit::FAILED,
    }
}

pub(crate) fn only_agent(config: &Config) -> Result<String, Error> {
    match config.agents.as_slice() {
        [agent] => Ok(agent.id.clone()),
        agents => {
            let ids: Vec<_> = agents.iter().map(|agent| agent.id.as_str()).collect();
            Err(Error::new(codes::USER_INVALID_INPUT, "the config has several agents")
                .with_hint(format!("choose one with --agent: {}", ids.join(", "))))
        }
    }
}

fn unreadable(what: &str, error: io::Error) -> Error {
    Error::new(codes::USER_INVALID_INPUT, format!("cannot read {what}: {error}")).with_foreign_cause(error)
}

/// The schema in a file, and what it is called. Whether it is one is the runtime's to say.
fn read_schema(file: &Path) -> Result<(String, Value), Error> {
    let place = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(&place, error))?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| {
        Error::new(codes::USER_INVALID_INPUT, format!("{place} is not JSON: {error}"))
            .with_hint("--output-schema takes a file with a JSON Schema")
    })?;
    let title = schema.get("title").and_then(Value::as_str).map(str::to_owned);
    let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((title.filter(|title| !title.trim().is_empty()).unwrap_or_else(stem), schema))
}

fn read_input(text: Option<String>, file: Option<&Path>) -> Result<String, Error> {
    match (text, file) {
        (Some(text), _) if text != "-" => Ok(text),
        (_, Some(file)) if file != Path::new("-") => {
            std::fs::read_to_string(file).map_err(|error| unreadable(&file.display().to_string(), error))
        }
        _ => {
            if io::stdin().is_terminal() {
                talk(format_args!("{DIM}reading the input; end it with Ctrl-D{DIM:#}"));
            }
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| unreadable("standard input", error))?;
            Ok(text)
        }
    }
}

/// Shows a result, whose output is this text.
fn show<T: Serialize>(
    result: &RunResult<T>,
    text_of: impl Fn(&T) -> String,
    format: Format,
    terminal: bool,
    output: &Output,
) {
    match (format, &result.final_output) {
        (Format::Json, _) => {
            output.data(format!("{}\n", serde_json::to_string_pretty(result).unwrap_or_default()));
        }
        // On a terminal the answer has been printed as it came.
        (Format::Text, Some(given)) if !terminal => output.data(format!("{}\n", text_of(given))),
        _ => {}
    }
    if let (Format::Text, Some(cost)) = (format, result.usage.cost_usd) {
        output.talk(format!("{DIM}cost: {cost}{DIM:#}"));
    }
    if let Some(details) = &result.error_details {
        let error = Error::from(details.clone());
        // A reader that left knows.
        if error.context("by") != Some(&json!("the reader of the output")) {
            output.talk(render::failure(&error));
        }
    }
}

/// Shows what happens in lines of talk, and on a terminal the answer as it comes.
struct Progress {
    terminal: bool,
    output: Arc<Output>,
    /// Whether the cursor is at the end of a piece of the answer.
    midway: Mutex<bool>,
}

impl Progress {
    fn new(terminal: bool, output: Arc<Output>) -> Progress {
        Progress { terminal, output, midway: Mutex::new(false) }
    }

    fn piece(&self, text: &str) {
        *self.midway.lock().unwrap_or_else(PoisonError::into_inner) = !text.ends_with('\n');
        self.output.data(text.to_owned());
    }

    /// Brings the cursor to the beginning of a line.
    fn end_piece(&self) {
        if std::mem::take(&mut *self.midway.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.output.data("\n".to_owned());
        }
    }

    fn line(&self, line: String) {
        self.end_piece();
        self.output.talk(line);
    }
}

impl Subscriber for Progress {
    fn wants_deltas(&self) -> bool {
        self.terminal
    }

    fn on_event(&self, event: &Event) {
        let field = |field: &str| event.payload.get(field);
        let text = |name| for_terminal(field(name).and_then(Value::as_str).unwrap_or_default());
        let json = |name| for_terminal(&field(name).map(Value::to_string).unwrap_or_default());
        if let Some(retry) = Retry::of(event) {
            self.line(format!("{WARN}{}{WARN:#}", for_terminal(&retry.to_string())));
        } else if event.name == names::LLM_DELTA && self.terminal && text("kind") == "text" {
            self.piece(&text("text"));
        } else if event.name == names::VALIDATION_RETRY {
            let wrong = text("error").lines().collect::<Vec<_>>().join("; ");
            self.line(format!("{WARN}the model is asked to correct its answer: {wrong}{WARN:#}"));
        } else if event.name == names::LLM_RESTARTED {
            self.line(format!("{WARN}the answer begins anew; what stands above is void{WARN:#}"));
        } else if event.name == names::TOOL_CALLED {
            self.line(format!("{DIM}{} {}{DIM:#}", text("tool_id"), json("params")));
        } else if event.name == names::TOOL_SUCCEEDED {
            self.line(format!("{DIM}{} → {}{DIM:#}", text("tool_id"), json("result")));
        } else if event.name == names::TOOL_FAILED {
            self.line(format!("{WARN}{} failed: {}{WARN:#}", text("tool_id"), text("error")));
        } else if event.name == names::SESSION_RUN_COMPLETED {
            self.end_piece();
        }
    }
}

/// Prints every event as a line of JSON. Answers are printed when they are whole, so that nothing printed is void.
struct EventLines(Arc<Output>);

impl Subscriber for EventLines {
    fn on_event(&self, event: &Event) {
        if let Ok(line) = serde_json::to_string(event) {
            self.0.data(format!("{line}\n"));
        }
    }
}
