//! `aplomb run`: one run, shown as it was asked for.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aplomb::config::Config;
use aplomb::event::names;
use aplomb::{
    Cancellation, Error, Event, Retry, RunRequest, RunResult, Runtime, StopReason, Subscriber, codes,
};
use serde_json::{Value, json};

use crate::args::{Format, RunArguments};
use crate::exit::{self, Signals};
use crate::output::{data, talk};
use crate::render::{self, DIM, WARN};

pub(crate) async fn run(arguments: RunArguments) -> u8 {
    let terminal = io::stdout().is_terminal();
    let format = arguments.format.unwrap_or(if terminal { Format::Text } else { Format::Events });
    match carry_out(arguments, format, terminal).await {
        Ok(code) => code,
        Err(error) => {
            if format == Format::Json {
                let _reader_left = data(format_args!("{:#}\n", json!({"error_details": error.details()})));
            }
            talk(format_args!("{}", render::failure(&error)));
            exit::of(&error)
        }
    }
}

async fn carry_out(arguments: RunArguments, format: Format, terminal: bool) -> Result<u8, Error> {
    let config = Config::from_file(&arguments.config)?;
    let agent_id = match arguments.agent {
        Some(agent) => agent,
        None => only_agent(&config)?,
    };
    let cancellation = Cancellation::new();
    let builder = Runtime::builder(config);
    let runtime = match format {
        Format::Text => builder.subscriber(Progress::new(terminal)),
        Format::Events => builder.subscriber(EventLines::new(cancellation.clone())),
        Format::Json => builder,
    }
    .build()?;
    let input = read_input(arguments.input, arguments.input_file.as_deref())?;
    let mut request = RunRequest::new(agent_id, input).cancellation(cancellation.clone());
    request.session_id = arguments.session_id;
    request.run_id = arguments.run_id;
    request.timeout = arguments.timeout_ms.map(Duration::from_millis);
    let mut signals = Signals::listen().map_err(|error| {
        Error::new(codes::EXECUTION_ERROR, format!("cannot listen for signals: {error}"))
            .with_foreign_cause(error)
    })?;
    let run = runtime.run_detailed(request);
    tokio::pin!(run);
    let mut signal = None;
    let result = loop {
        tokio::select! {
            result = &mut run => break result?,
            next = signals.next() => match signal.replace(next) {
                None => cancellation.cancel(next.name()),
                // The second one is for those who cannot wait.
                Some(_) => std::process::exit(next.exit_code().into()),
            },
        }
    };
    let code = match (&signal, result.stop_reason) {
        (_, StopReason::Completed) => exit::SUCCESS,
        (Some(signal), StopReason::Cancelled) => signal.exit_code(),
        (None, StopReason::Cancelled) => return Ok(exit::SUCCESS), // The reader of the output has left.
        _ => exit::FAILED,
    };
    show(&result, format, terminal);
    Ok(code)
}

fn only_agent(config: &Config) -> Result<String, Error> {
    match config.agents.as_slice() {
        [agent] => Ok(agent.id.clone()),
        agents => {
            let ids: Vec<_> = agents.iter().map(|agent| agent.id.as_str()).collect();
            Err(Error::new(codes::USER_INVALID_INPUT, "the config has several agents")
                .with_hint(format!("choose one with --agent: {}", ids.join(", "))))
        }
    }
}

fn read_input(text: Option<String>, file: Option<&Path>) -> Result<String, Error> {
    let unreadable = |what: &str, error: io::Error| {
        Error::new(codes::USER_INVALID_INPUT, format!("cannot read {what}: {error}"))
            .with_foreign_cause(error)
    };
    match (text, file) {
        (Some(text), _) if text != "-" => Ok(text),
        (_, Some(file)) if file != Path::new("-") => {
            std::fs::read_to_string(file).map_err(|error| unreadable(&file.display().to_string(), error))
        }
        _ => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(|error| unreadable("standard input", error))?;
            Ok(text)
        }
    }
}

fn show(result: &RunResult, format: Format, terminal: bool) {
    let _reader_left = match format {
        Format::Json => data(format_args!("{}\n", serde_json::to_string_pretty(result).unwrap_or_default())),
        // On a terminal the answer has been printed as it came.
        Format::Text if terminal => data(format_args!("\n")),
        Format::Text => match &result.final_output {
            Some(output) => data(format_args!("{output}\n")),
            None => Ok(()),
        },
        Format::Events => Ok(()),
    };
    if let Some(details) = &result.error_details {
        talk(format_args!("{}", render::failure(&Error::from(details.clone()))));
    }
}

/// Shows what happens in lines of talk, and on a terminal the answer as it comes.
struct Progress {
    terminal: bool,
    /// Whether the cursor is at the end of a piece of the answer.
    midway: Mutex<bool>,
}

impl Progress {
    fn new(terminal: bool) -> Progress {
        Progress { terminal, midway: Mutex::new(false) }
    }

    fn line(&self, line: std::fmt::Arguments<'_>) {
        let mut midway = self.midway.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if std::mem::take(&mut *midway) {
            let _reader_left = data(format_args!("\n"));
        }
        talk(line);
    }

    fn piece(&self, text: &str) {
        let mut midway = self.midway.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *midway = !text.ends_with('\n');
        let _reader_left = data(format_args!("{text}"));
    }
}

impl Subscriber for Progress {
    fn wants_deltas(&self) -> bool {
        self.terminal
    }

    fn on_event(&self, event: &Event) {
        let text = |field: &str| event.payload.get(field).and_then(Value::as_str).unwrap_or_default();
        let json = |field: &str| event.payload.get(field).map(Value::to_string).unwrap_or_default();
        if let Some(retry) = Retry::of(event) {
            self.line(format_args!("{WARN}{retry}{WARN:#}"));
        } else if event.name == names::LLM_DELTA && self.terminal && text("kind") == "text" {
            self.piece(text("text"));
        } else if event.name == names::LLM_RESTARTED {
            self.line(format_args!("{WARN}the answer begins anew; what stands above is void{WARN:#}"));
        } else if event.name == names::TOOL_CALLED {
            self.line(format_args!("{DIM}{} {}{DIM:#}", text("tool_id"), json("params")));
        } else if event.name == names::TOOL_SUCCEEDED {
            self.line(format_args!("{DIM}{} → {}{DIM:#}", text("tool_id"), json("result")));
        } else if event.name == names::TOOL_FAILED {
            self.line(format_args!("{WARN}{} failed: {}{WARN:#}", text("tool_id"), text("error")));
        }
    }
}

/// Prints every event as a line of JSON. Answers are printed when they are whole, so that nothing printed is void.
struct EventLines {
    cancellation: Cancellation,
    reader_left: AtomicBool,
}

impl EventLines {
    fn new(cancellation: Cancellation) -> EventLines {
        EventLines { cancellation, reader_left: AtomicBool::new(false) }
    }
}

impl Subscriber for EventLines {
    fn on_event(&self, event: &Event) {
        if self.reader_left.load(Ordering::Relaxed) {
            return;
        }
        if serde_json::to_string(event).is_ok_and(|line| data(format_args!("{line}\n")).is_err()) {
            self.reader_left.store(true, Ordering::Relaxed);
            self.cancellation.cancel("the reader of the output");
        }
    }
}
