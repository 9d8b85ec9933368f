//! What people see.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use aplomb::Error;
use aplomb::error::Attempt;

pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();

/// An error with everything that it knows: code, message, each attempt, causes, hint.
pub(crate) fn failure(error: &Error) -> String {
    let mut text = format!("{BAD}error[{}]{BAD:#}: {}", error.code(), error.message());
    for attempt in error.attempts() {
        let _never_fails = write!(text, "\n  {}", one_attempt(attempt));
    }
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let line = next.to_string();
        let line = line.lines().next().unwrap_or_default();
        // What the message says already is not said again.
        if !line.is_empty() && !error.message().contains(line) {
            let _never_fails = write!(text, "\n  cause: {line}");
        }
        cause = next.source();
    }
    for (field, label) in [("request_id", "request"), ("run_id", "run")] {
        if let Some(value) = error.context(field).and_then(|value| value.as_str()) {
            let _never_fails = write!(text, "\n  {label}: {value}");
        }
    }
    if let Some(hint) = error.hint() {
        let _never_fails = write!(text, "\n  hint: {hint}");
    }
    text
}

fn one_attempt(attempt: &Attempt) -> String {
    let Attempt { number, layer, action, rule, .. } = attempt;
    let mut line = format!("attempt {number} ({layer}): {}", attempt.error());
    let _never_fails = match (attempt.delay_ms, &attempt.delay_source) {
        (Some(delay_ms), Some(source)) => {
            write!(line, "{DIM} → {action} after {:.1} s ({source}; {rule}){DIM:#}", delay_ms as f64 / 1000.0)
        }
        _ => write!(line, "{DIM} → {action} ({rule}){DIM:#}"),
    };
    line
}
