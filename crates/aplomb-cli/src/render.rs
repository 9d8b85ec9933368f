//! What people see.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use aplomb::error::Attempt;
use aplomb::{Error, for_people};

use crate::output::for_terminal;

pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();

/// An error with everything that it knows: code, message, each attempt, causes, hint.
pub(crate) fn failure(error: &Error) -> String {
    let mut text = format!("{BAD}error[{}]{BAD:#}: {}", error.code(), for_terminal(error.message()));
    for attempt in error.attempts() {
        let _never_fails = write!(text, "\n  {}", one_attempt(attempt));
    }
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let line = next.to_string();
        let line = line.lines().next().unwrap_or_default();
        // What the message says already is not said again; a place is said there in another form.
        let words = line.split(" at line ").next().unwrap_or_default();
        if !words.is_empty() && !error.message().contains(words) {
            let _never_fails = write!(text, "\n  cause: {}", for_terminal(line));
        }
        cause = next.source();
    }
    if let Some(wait) = error.wait() {
        let _never_fails =
            write!(text, "\n  wait: the provider asked for {}", for_people(wait.retry_after_ms));
    }
    for (field, label) in [("request_id", "request"), ("run_id", "run")] {
        if let Some(value) = error.context(field).and_then(|value| value.as_str()) {
            let _never_fails = write!(text, "\n  {label}: {}", for_terminal(value));
        }
    }
    if let Some(hint) = error.hint() {
        let _never_fails = write!(text, "\n  hint: {}", for_terminal(hint));
    }
    if let Some(url) = error.to_dict().docs_url {
        let _never_fails = write!(text, "\n  docs: {url}");
    }
    text
}

fn one_attempt(attempt: &Attempt) -> String {
    let Attempt { number, layer, action, rule, .. } = attempt;
    let mut line = format!("attempt {number} ({layer}): {}", for_terminal(&attempt.error()));
    let _never_fails = match (attempt.delay_ms, &attempt.delay_source) {
        (Some(delay_ms), Some(source)) => {
            write!(line, "{DIM} → {action} after {} ({source}; {rule}){DIM:#}", for_people(delay_ms))
        }
        _ => write!(line, "{DIM} → {action} ({rule}){DIM:#}"),
    };
    line
}
