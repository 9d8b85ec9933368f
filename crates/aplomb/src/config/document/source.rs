//! The texts that a config is put together from, by which places are told.

use std::fmt;
use std::sync::Arc;

use aplomb_core::error::{Error, codes};
use serde::Serialize;

use super::{Broken, Format};

/// A text and who gave it. A config that was made in code has none.
#[derive(Debug, Clone)]
pub(in crate::config) struct Source {
    pub(in crate::config) giver: Giver,
    pub(super) text: Option<Arc<str>>,
}

/// Who gives a text: a layer of the config.
#[derive(Debug, Clone)]
pub(in crate::config) enum Giver {
    /// A file, or what messages call a text that was no file.
    File(Arc<str>),
    /// An environment variable, by its name.
    Variable(Arc<str>),
    /// A flag and its path, without its value.
    Flag(Arc<str>),
}

/// Where a value of a config stands: in a file, an environment variable or a flag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Place {
    /// The file.
    pub file: Option<String>,
    /// The line of the file, from 1.
    pub line: Option<usize>,
    /// The column in the file, from 1, in characters.
    pub column: Option<usize>,
    /// The environment variable that sets it, such as `APLOMB_CONFIG__SESSION__LOCK_TIMEOUT_MS`.
    pub variable: Option<String>,
    /// The flag that sets it, without the value: `--set session.lock_timeout_ms`.
    pub flag: Option<String>,
}

/// `agent.json:14:23`, or the name alone where there is no line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.flag.as_deref().or(self.variable.as_deref()).or(self.file.as_deref());
        f.write_str(name.unwrap_or("config"))?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, ":{line}:{column}"),
            _ => Ok(()),
        }
    }
}

impl Source {
    pub(in crate::config) fn new(giver: Giver, text: &str) -> Source {
        Source { giver, text: Some(text.into()) }
    }

    /// That of a config that was made in code.
    pub(super) fn none() -> Source {
        Source { giver: Giver::File("config".into()), text: None }
    }

    pub(in crate::config) fn name(&self) -> &str {
        match &self.giver {
            Giver::File(name) | Giver::Variable(name) | Giver::Flag(name) => name,
        }
    }

    /// The line and the column, from 1, in characters. A flag and a variable are places themselves.
    pub(super) fn position(&self, at: usize) -> Option<(usize, usize)> {
        let Giver::File(_) = self.giver else { return None };
        let text = self.text.as_deref()?;
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
        let before = text.get(..at)?;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..)?.chars().count() + 1;
        Some((before.matches('\n').count() + 1, column))
    }

    pub(super) fn place(&self, at: Option<usize>) -> Place {
        let name = Some(self.name().to_owned());
        match self.giver {
            Giver::Variable(_) => Place { variable: name, ..Place::default() },
            Giver::Flag(_) => Place { flag: name, ..Place::default() },
            Giver::File(_) => {
                let position = at.and_then(|at| self.position(at));
                let (line, column) = (position.map(|(line, _)| line), position.map(|(_, column)| column));
                Place { file: name, line, column, ..Place::default() }
            }
        }
    }

    pub(super) fn broken(&self, format: Format, broken: Broken) -> Error {
        let Broken { at, what, hint } = broken;
        let place = self.place(Some(at));
        let error = Error::new(codes::CONFIG_LOAD, format!("{place}: not valid {}: {what}", format.name()));
        let error = match (place.line, place.column) {
            (Some(line), Some(column)) => error.with_context("line", line).with_context("column", column),
            _ => error,
        };
        error.with_context("file", self.name()).with_hint(hint.unwrap_or(match format {
            Format::Json => "look at this place and just before it: a comma, a quote or a bracket",
            Format::Yaml => {
                "look at the indentation here and just before, and put texts with : or # in quotes"
            }
            Format::Toml => "look at this place and just before it: texts need quotes, tables [brackets]",
        }))
    }
}
