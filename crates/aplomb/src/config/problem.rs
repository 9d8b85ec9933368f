//! What is wrong with a config: all of it at once, each with its place and the way out.

use std::fmt::{self, Write};

use aplomb_core::error::{Code, Error, codes};
use serde_json::json;

use super::document::{Document, Giver, Span};

/// The most problems that are spelt out.
const MOST: usize = 40;

/// Where a value stands among the values: `agents[0].llm.model`.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    pub(crate) const fn root() -> Path<'static> {
        Path { parent: None, step: Step::Root }
    }

    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub(crate) fn item(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Item(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Item(index) => write!(f, "[{index}]"),
            Step::Field(name) => {
                let dot = if self.parent.is_some_and(|parent| matches!(parent.step, Step::Root)) {
                    ""
                } else {
                    "."
                };
                write!(f, "{dot}{}", shown(name))
            }
        }
    }
}

/// A key as it is shown: without what may be a credential in the place of a key, and not at any length.
pub(crate) fn shown(key: &str) -> String {
    let clean = aplomb_core::redact::text(key);
    match clean.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", clean.get(..end).unwrap_or_default()),
        None => clean,
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) path: String,
    pub(crate) span: Option<Span>,
    pub(crate) what: String,
    /// The way out, said after the problem.
    pub(crate) help: Option<String>,
    /// What may have been meant.
    pub(crate) meant: Option<String>,
}

impl Problem {
    pub(crate) fn new(code: Code, path: impl fmt::Display, what: impl Into<String>) -> Problem {
        Problem { code, path: path.to_string(), span: None, what: what.into(), help: None, meant: None }
    }

    /// One of the document.
    pub(crate) fn invalid(path: impl fmt::Display, what: impl Into<String>) -> Problem {
        Problem::new(codes::CONFIG_VALIDATION, path, what)
    }

    pub(crate) fn at(mut self, span: &Span) -> Problem {
        self.span = Some(*span);
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn meant(mut self, meant: Option<String>) -> Problem {
        self.meant = meant;
        self
    }

    fn line(&self, document: &Document) -> String {
        let Problem { path, what, help, .. } = self;
        let place = document.place(self.span);
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let help = help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{path}{what} ({place}){help}")
    }

    fn to_json(&self, document: &Document) -> serde_json::Value {
        let place = document.place(self.span);
        json!({
            "code": self.code.as_str(),
            "path": self.path,
            "file": place.file,
            "line": place.line,
            "column": place.column,
            "variable": place.variable,
            "flag": place.flag,
            "message": self.what,
            "hint": self.meant.as_ref().or(self.help.as_ref()),
        })
    }
}

/// One error of all the problems, in the order of the layers and of each one's text; none where there are none.
pub(crate) fn error(mut problems: Vec<Problem>, document: &Document) -> Result<(), Error> {
    problems.sort_by_key(|problem| problem.span.map_or((usize::MAX, 0), |span| (span.source, span.start)));
    let Some(first) = problems.first() else { return Ok(()) };
    let same_code = problems.iter().all(|problem| problem.code == first.code);
    let code = if same_code { first.code } else { codes::CONFIG_VALIDATION };
    let excerpt = |problem: &Problem| {
        let excerpt = problem.span.and_then(|span| document.excerpt(span));
        excerpt.map(|excerpt| format!("\n{excerpt}")).unwrap_or_default()
    };
    let listed =
        json!(problems.iter().take(MOST).map(|problem| problem.to_json(document)).collect::<Vec<_>>());
    let path = first.path.clone();
    let error = if let [only] = problems.as_mut_slice() {
        // The document's own problems say the way out in their line; others where a hint of the code would stand.
        if only.code != codes::CONFIG_VALIDATION && only.meant.is_none() {
            only.meant = only.help.take();
        }
        let error = Error::new(code, only.line(document) + &excerpt(only));
        match &only.meant {
            Some(meant) => error.with_hint(meant.as_str()),
            None => error,
        }
    } else {
        let mut message = format!("{} {} problems", who(&problems, document), problems.len());
        for problem in problems.iter().take(MOST) {
            let _never_fails = write!(message, "\n\n{}{}", problem.line(document), excerpt(problem));
            if let Some(meant) = &problem.meant {
                let _never_fails = write!(message, "\n  = {meant}");
            }
        }
        if let Some(more) = problems.len().checked_sub(MOST).filter(|more| *more > 0) {
            let _never_fails = write!(message, "\n\nand {more} more");
        }
        Error::new(code, message).with_hint("docs/config.md says of each key what it takes")
    };
    Err(error.with_context("path", path).with_context("problems", listed))
}

/// Whose the problems are: `agent.json has`, `agent.json and --set have`.
fn who(problems: &[Problem], document: &Document) -> String {
    let mut layers: Vec<&str> = Vec::new();
    for problem in problems {
        let layer = match document.source(problem.span).map(|source| &source.giver) {
            Some(Giver::Variable(_)) => "the environment",
            Some(Giver::Flag(_)) => "--set",
            Some(Giver::File(_)) | None => document.name(),
        };
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    let have = if layers.len() > 1 { "have" } else { "has" };
    format!("{} {have}", listed(&layers))
}

/// `a, b and c`.
pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
