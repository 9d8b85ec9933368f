//! `aplomb validate` and `aplomb config show`: what a config says, and what is wrong with it. Nothing is sent.

use std::fmt::Write;
use std::path::Path;

use aplomb::config::{Config, Layer, Loader, Setting};
use aplomb::plugins::Registry;
use aplomb::{Error, Runtime, codes};
use serde_json::{Value, json};

use crate::args::{DocumentFormat, ReportFormat, SetArguments, ShowArguments, ValidateArguments};
use crate::output::for_terminal;
use crate::render::{DIM, WARN};
use crate::report::{self, Report};

/// A command's config: its file, over it what the environment sets, and over both its flags.
pub(crate) fn load(file: &Path, set: &SetArguments) -> Result<Config, Error> {
    let layers = Loader::file(file).environment();
    set.assignments.iter().fold(layers, |layers, assignment| layers.set(assignment)).load()
}

pub(crate) fn validate(arguments: &ValidateArguments, registry: Registry) -> u8 {
    report::give_as(arguments.format, look(arguments, registry))
}

fn look(arguments: &ValidateArguments, registry: Registry) -> Result<Report, Error> {
    let config = load(&arguments.config, &arguments.set)?;
    let resolved = arguments.show_resolved.then(|| config.resolved(true)).transpose()?;
    let agents: Vec<_> = config.agents.iter().map(|agent| agent.id.clone()).collect();
    let notes = config.notes();
    let builder = Runtime::builder(config).plugins(registry);
    builder.check_budget(&arguments.cost.budget())?;
    let warnings = builder.validate(arguments.strict)?;
    let file = arguments.config.display().to_string();
    let report = match (arguments.format, resolved) {
        (ReportFormat::Json, resolved) => {
            let mut told = json!({
                "valid": true, "file": file, "agents": agents, "warnings": warnings, "notes": notes,
            });
            if let (Some(resolved), Value::Object(fields)) = (resolved, &mut told) {
                fields.insert("resolved".to_owned(), resolved);
            }
            Report::json(&told)
        }
        (ReportFormat::Text, Some(resolved)) => Report::json(&resolved),
        (ReportFormat::Text, None) => {
            let agents = agents.join(", ");
            Report::data(format!("{file} is valid; agents: {}\n", for_terminal(&agents)))
        }
    };
    let report = warnings.iter().fold(report, |report, warning| {
        report.talk(format!("{WARN}warning{WARN:#}: {}", for_terminal(&warning.to_string())))
    });
    Ok(notes.iter().fold(report, |report, note| {
        report.talk(format!("{DIM}note{DIM:#}: {}", for_terminal(&note.to_string())))
    }))
}

pub(crate) fn show(arguments: &ShowArguments) -> u8 {
    let format = match arguments.format {
        Some(DocumentFormat::Json) => ReportFormat::Json,
        None if !arguments.provenance => ReportFormat::Json,
        _ => ReportFormat::Text,
    };
    report::give_as(format, shown(arguments))
}

fn shown(arguments: &ShowArguments) -> Result<Report, Error> {
    let config = load(&arguments.config, &arguments.set)?;
    if !arguments.provenance {
        return written(config.resolved(arguments.redact)?, arguments.format.unwrap_or(DocumentFormat::Json));
    }
    let mut settings = config.provenance(arguments.redact)?;
    settings.retain(|setting| arguments.defaults || setting.source.kind != Layer::Default);
    match arguments.format {
        Some(format) => written(json!({"settings": settings}), format),
        None => Ok(Report::data(for_terminal(&lines(&settings)))),
    }
}

/// `agents[0].llm.model = "gpt-4o"  # agent.json:7:18`.
fn lines(settings: &[Setting]) -> String {
    let mut text = String::new();
    for Setting { path, value, source, .. } in settings {
        let _never_fails = writeln!(text, "{path} = {value}  # {source}");
    }
    text
}

fn written(mut value: Value, format: DocumentFormat) -> Result<Report, Error> {
    match format {
        DocumentFormat::Json => Ok(Report::json(&value)),
        DocumentFormat::Yaml => serde_saphyr::to_string(&value)
            .map(Report::data)
            .map_err(|error| Error::foreign(codes::CONFIG_ERROR, error)),
        DocumentFormat::Toml => {
            without_null(&mut value);
            toml::to_string(&value)
                .map(Report::data)
                .map_err(|error| Error::foreign(codes::CONFIG_ERROR, error))
        }
    }
}

/// TOML has no null; what is missing has its default just the same.
fn without_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}
