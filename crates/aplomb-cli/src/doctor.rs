//! `aplomb doctor`: whether everything is in place. Shows no key, and sends one token's worth to each endpoint.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use aplomb::config::Config;
use aplomb::host::SystemHost;
use aplomb::plugins::Registry;
use aplomb::{Cancellation, Error, Runtime, codes, for_people};
use serde_json::json;

use crate::args::{DoctorArguments, ReportFormat};
use crate::exit;
use crate::inspect::load;
use crate::output::for_terminal;
use crate::report::{self, Report};
use crate::signals::Signals;

/// A clock that is farther off than this breaks signatures and waits.
const CLOCK_OFF_MS: u64 = 30_000;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Good,
    Doubtful,
    Bad,
}

struct Check {
    name: String,
    state: State,
    told: String,
    hint: Option<String>,
    code: u8,
}

impl Check {
    fn good(name: impl Into<String>, told: impl Into<String>) -> Check {
        Check { name: name.into(), state: State::Good, told: told.into(), hint: None, code: exit::SUCCESS }
    }

    fn doubtful(name: impl Into<String>, told: impl Into<String>, hint: Option<String>) -> Check {
        Check { name: name.into(), state: State::Doubtful, told: told.into(), hint, code: exit::SUCCESS }
    }

    fn bad(name: impl Into<String>, error: &Error) -> Check {
        Check {
            name: name.into(),
            state: State::Bad,
            told: format!("{}: {}", error.code(), error.message()),
            hint: error.hint().map(str::to_owned),
            code: exit::of(error),
        }
    }
}

pub(crate) async fn doctor(arguments: DoctorArguments, registry: Registry) -> u8 {
    let cancellation = Cancellation::new();
    let signals = match Signals::listen(cancellation.clone()) {
        Ok(signals) => signals,
        Err(error) => {
            let error = Error::new(codes::EXECUTION_ERROR, format!("cannot listen for signals: {error}"));
            return report::give_as(arguments.format, Err(error));
        }
    };
    let mut checks = Vec::new();
    if let Some(file) = &arguments.config {
        match load(file, &arguments.set) {
            // A command that gives a key has a process group of its own, which no terminal's signal reaches: it goes with
            // the future.
            Ok(config) => tokio::select! {
                () = look(config, registry, arguments.offline, &mut checks) => {}
                () = cancellation.cancelled() => {
                    let message = "cancelled before everything was looked at";
                    let error = Error::new(codes::EXECUTION_CANCELLED, message);
                    let code = report::give_as(arguments.format, Err(error));
                    return signals.exit_code().unwrap_or(code);
                }
            },
            Err(error) => checks.push(Check::bad("config", &error)),
        }
    }
    signals.nothing_to_cancel();
    checks.push(data_folder(arguments.data_dir));
    let code = checks.iter().map(|check| check.code).max().unwrap_or(exit::SUCCESS);
    let report = match arguments.format {
        ReportFormat::Json => in_json(&checks),
        ReportFormat::Text => Report::data(in_words(&checks)),
    };
    report::give_as(arguments.format, Ok(report.code(code)))
}

async fn look(config: Config, registry: Registry, offline: bool, checks: &mut Vec<Check>) {
    let agents = config.agents.clone();
    match Runtime::builder(config).plugins(registry.clone()).validate(false) {
        Ok(warnings) => {
            checks.push(Check::good("config", format!("valid; {} agents", agents.len())));
            for warning in warnings {
                let told = format!("{}: {} ({})", warning.path, warning.message, warning.place);
                checks.push(Check::doubtful("config", told, warning.hint));
            }
        }
        Err(error) => return checks.push(Check::bad("config", &error)),
    }
    let mut asked = BTreeSet::new();
    for agent in &agents {
        let llm = &agent.llm;
        if let Some(variable) = &llm.api_key_env {
            // A key that is missing has been told as a warning; here it is what stops the agent.
            let set = env::var(variable).is_ok_and(|key| !key.trim().is_empty());
            if set {
                checks.push(Check::good(format!("key of {}", agent.id), "it is set; not shown"));
            }
        }
        // One request for each model, however many agents have it.
        let same = serde_json::to_string(llm).unwrap_or_else(|_| agent.id.clone());
        if offline || !asked.insert(same) {
            continue;
        }
        let name = format!("model of {}", agent.id);
        match aplomb::probe(agent, &registry, &SystemHost).await {
            Ok(probe) => match (&probe.endpoint, &probe.outcome) {
                (None, _) => checks.push(Check::good(name, "in this process; nothing is sent")),
                (Some(endpoint), Ok(())) => {
                    checks.push(Check::good(name, format!("{} answers at {endpoint}", probe.model)));
                    checks.extend(probe.clock_ahead_ms.map(|ahead| clock(&agent.id, ahead)));
                }
                (Some(_), Err(error)) => {
                    checks.push(Check::bad(name, error));
                    checks.extend(probe.clock_ahead_ms.map(|ahead| clock(&agent.id, ahead)));
                }
            },
            Err(error) => checks.push(Check::bad(name, &error)),
        }
    }
}

fn clock(agent: &str, ahead_ms: i64) -> Check {
    let off = for_people(ahead_ms.unsigned_abs());
    let name = format!("clock, by the provider of {agent}");
    if ahead_ms.unsigned_abs() <= CLOCK_OFF_MS {
        return Check::good(name, "right");
    }
    let where_to = if ahead_ms > 0 { "ahead" } else { "behind" };
    let hint = "set the clock, best by NTP: dates of Retry-After and signatures are wrong otherwise";
    Check::doubtful(name, format!("this machine's clock is {off} {where_to}"), Some(hint.to_owned()))
}

fn data_folder(given: Option<PathBuf>) -> Check {
    let name = "data folder";
    let Some(folder) = given.or_else(platforms_data_folder) else {
        let error = Error::new(codes::USER_INVALID_INPUT, "there is no data folder: HOME is not set")
            .with_hint("give one with --data-dir or APLOMB_DATA_DIR");
        return Check::bad(name, &error);
    };
    let shown = folder.display().to_string();
    match writable(&folder) {
        Ok(()) => Check::good(name, format!("{shown} can be written to")),
        Err(error) => {
            let error = Error::new(codes::USER_INVALID_INPUT, format!("cannot write to {shown}: {error}"))
                .with_hint("give another one with --data-dir or APLOMB_DATA_DIR");
            Check::bad(name, &error)
        }
    }
}

/// Source: XDG Base Directory Specification 0.8; Apple, "File System Programming Guide"; Microsoft, "KNOWNFOLDERID".
fn platforms_data_folder() -> Option<PathBuf> {
    let folder = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || folder("HOME");
    let data = if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Application Support"))
    } else if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else {
        folder("XDG_DATA_HOME").or_else(|| home().map(|home| home.join(".local/share")))
    };
    data.map(|data| data.join("aplomb"))
}

/// Writes and removes a file there, or in the folder that it would be made in.
fn writable(folder: &Path) -> std::io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let file = there.join(format!(".aplomb-doctor-{}", std::process::id()));
    fs::File::create_new(&file)?;
    fs::remove_file(file)
}

fn in_words(checks: &[Check]) -> String {
    let mut text = String::new();
    for Check { name, state, told, hint, .. } in checks {
        let mark = match state {
            State::Good => "ok",
            State::Doubtful => "warning",
            State::Bad => "wrong",
        };
        let told = for_terminal(told).replace('\n', "\n  ");
        let _never_fails = writeln!(text, "{mark:7} {name}: {told}");
        if let Some(hint) = hint {
            let _never_fails = writeln!(text, "          hint: {}", for_terminal(hint));
        }
    }
    text
}

fn in_json(checks: &[Check]) -> Report {
    let told = |check: &Check| {
        let state = match check.state {
            State::Good => "ok",
            State::Doubtful => "warning",
            State::Bad => "wrong",
        };
        json!({"check": check.name, "state": state, "message": check.told, "hint": check.hint})
    };
    let healthy = checks.iter().all(|check| check.state != State::Bad);
    Report::json(&json!({"healthy": healthy, "checks": checks.iter().map(told).collect::<Vec<_>>()}))
}
