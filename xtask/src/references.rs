//! The references under `docs/` and `schema/`, from the tables and types in the code.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use aplomb_core::error::{Code, codes};
use aplomb_core::event::{PENDING, names};
use aplomb_core::failure::Reason;

use crate::{config, faultlab};

const NOTE: &str = "<!-- Generated from the code by `cargo run -p xtask`. -->\n\n";

fn references() -> Result<[(PathBuf, String); 6], String> {
    let guide = docs().join("faultlab.md");
    let written = std::fs::read_to_string(&guide)
        .map_err(|error| format!("cannot read {}: {error}", guide.display()))?;
    Ok([
        (docs().join("errors.md"), errors()),
        (docs().join("events.md"), events()),
        (docs().join("config.md"), config::reference(NOTE)),
        (docs().join("../schema/agent.schema.json"), config::schema()),
        (docs().join("../schema/faultlab.schema.json"), faultlab::schema()),
        (guide, faultlab::guide(&written)?),
    ])
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Writes the references.
pub(crate) fn write() -> Result<String, String> {
    for (file, text) in references()? {
        let written = std::fs::create_dir_all(file.parent().unwrap_or(&file))
            .and_then(|()| std::fs::write(&file, text));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok("the references are written".to_owned())
}

/// Fails if a reference is not what would be written, or a page does not agree with its code.
pub(crate) fn check() -> Result<String, String> {
    check_pages()?;
    for (file, text) in references()? {
        if std::fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            return Err(format!("{} is not up to date: run `cargo run -p xtask`", file.display()));
        }
    }
    Ok("the references are up to date".to_owned())
}

/// Every code has a page that says of it what the table says, and there is no other page.
fn check_pages() -> Result<(), String> {
    let folder = docs().join("errors");
    let pages =
        std::fs::read_dir(&folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    for page in pages.flatten() {
        let name = page.file_name().to_string_lossy().into_owned();
        if !codes::ALL.iter().any(|code| name == format!("{code}.md")) {
            return Err(format!("docs/errors/{name} is the page of no code"));
        }
    }
    for code in codes::ALL {
        let page = code.page().unwrap_or_default();
        let expected = [format!("# `{code}`"), row(*code)];
        let sections = ["## Why", "## What to do", "## Example"].map(str::to_owned);
        for line in expected.iter().chain(&sections) {
            if !page.lines().any(|found| found == line) {
                return Err(format!("docs/errors/{code}.md lacks the line: {line}"));
            }
        }
        if !code.summary().is_some_and(|summary| summary.ends_with('.')) {
            return Err(format!("docs/errors/{code}.md does not begin with a sentence"));
        }
    }
    Ok(())
}

/// The row of a code's page.
fn row(code: Code) -> String {
    let parent = code.parent().map_or("—".to_owned(), |parent| format!("`{parent}`"));
    let retryable = if code.retryable() { "yes" } else { "no" };
    format!("| {} | {parent} | {retryable} | {} |", code.type_name(), code.stop_reason())
}

fn errors() -> String {
    let mut text = format!("# Error codes\n\n{NOTE}");
    text.push_str(
        "| code | what happened | retryable | stop reason | extra context |\n|---|---|---|---|---|\n",
    );
    for code in codes::ALL {
        let fields: Vec<_> = code.fields().into_iter().map(|field| format!("`{field}`")).collect();
        let _never_fails = writeln!(
            text,
            "| [`{code}`](errors/{code}.md) | {} | {} | {} | {} |",
            code.summary().unwrap_or_default(),
            if code.retryable() { "yes" } else { "no" },
            code.stop_reason(),
            fields.join(", ")
        );
    }
    text.push_str("\n## Reasons of model failures\n\nIn `context.reason`, finer than the code.\n\n");
    text.push_str("| reason | what to do |\n|---|---|\n");
    for reason in Reason::ALL {
        let _never_fails = writeln!(text, "| `{reason}` | {} |", reason.hint().unwrap_or_default());
    }
    text
}

fn events() -> String {
    let comes_with = |name| PENDING.iter().find(|(pending, _)| *pending == name).map(|(_, with)| *with);
    let list =
        |fields: &[&str]| fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
    let mut text = format!("# Events\n\n{NOTE}");
    text.push_str("| event | always in the payload | sometimes |\n|---|---|---|\n");
    for name in names::ALL.iter().filter(|name| comes_with(**name).is_none()) {
        let _never_fails =
            writeln!(text, "| `{name}` | {} | {} |", list(name.required()), list(name.optional()));
    }
    text.push_str("\n## Events that come later\n\n");
    text.push_str("| event | with | always in the payload | sometimes |\n|---|---|---|---|\n");
    for (name, with) in PENDING {
        let (required, optional) = (list(name.required()), list(name.optional()));
        let _never_fails = writeln!(text, "| `{name}` | {with} | {required} | {optional} |");
    }
    text
}
