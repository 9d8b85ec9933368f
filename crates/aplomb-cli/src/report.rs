//! What a command has to tell: data for standard output, talk for standard error, and the exit code.

use aplomb::Error;
use serde_json::{Value, json};

use crate::args::ReportFormat;
use crate::output::{Output, talk};
use crate::{exit, render};

/// What a command tells.
pub(crate) struct Report {
    data: String,
    talk: Vec<String>,
    code: u8,
}

impl Report {
    pub(crate) fn data(data: String) -> Report {
        Report { data, talk: Vec::new(), code: exit::SUCCESS }
    }

    pub(crate) fn json(value: &Value) -> Report {
        Report::data(format!("{value:#}\n"))
    }

    /// Adds a line of talk.
    pub(crate) fn talk(mut self, line: String) -> Report {
        self.talk.push(line);
        self
    }

    /// Ends with this exit code.
    pub(crate) fn code(self, code: u8) -> Report {
        Report { code, ..self }
    }
}

/// Puts a report out; an error as talk, and as data, too, where that is to be JSON.
pub(crate) fn give_as(format: ReportFormat, report: Result<Report, Error>) -> u8 {
    let report = report.unwrap_or_else(|error| {
        let failed = match format {
            ReportFormat::Text => Report::data(String::new()),
            ReportFormat::Json => Report::json(&json!({"error_details": error.details()})),
        };
        failed.talk(render::failure(&error)).code(exit::of(&error))
    });
    let output = Output::start(|| {});
    if !report.data.is_empty() {
        output.data(report.data);
    }
    for line in report.talk {
        output.talk(line);
    }
    match output.finish(None) {
        Ok(()) => report.code,
        Err(error) => {
            talk(format_args!("error: cannot write to standard output: {error}"));
            exit::FAILED
        }
    }
}
