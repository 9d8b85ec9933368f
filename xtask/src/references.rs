//! The references under `docs/`, from the tables in the code.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use aplomb_core::error::codes;
use aplomb_core::event::names;
use aplomb_core::failure::Reason;

const NOTE: &str = "<!-- Generated from the code by `cargo run -p xtask`. -->\n\n";

fn references() -> [(PathBuf, String); 2] {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    [(docs.join("errors.md"), errors()), (docs.join("events.md"), events())]
}

/// Writes the references.
pub(crate) fn write() -> Result<String, String> {
    for (file, text) in references() {
        let written = std::fs::create_dir_all(file.parent().unwrap_or(&file))
            .and_then(|()| std::fs::write(&file, text));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok("the references are written".to_owned())
}

/// Fails if a reference is not what would be written.
pub(crate) fn check() -> Result<String, String> {
    for (file, text) in references() {
        if std::fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            return Err(format!("{} is not up to date: run `cargo run -p xtask`", file.display()));
        }
    }
    Ok("the references are up to date".to_owned())
}

fn errors() -> String {
    let mut text = format!("# Error codes\n\n{NOTE}");
    text.push_str(
        "| code | type | kind of | retryable | stop reason | extra context |\n|---|---|---|---|---|---|\n",
    );
    for code in codes::ALL {
        let parent = code.parent().map(|parent| format!("`{parent}`")).unwrap_or_default();
        let fields: Vec<_> = code.fields().into_iter().map(|field| format!("`{field}`")).collect();
        let _never_fails = writeln!(
            text,
            "| `{code}` | {} | {parent} | {} | {} | {} |",
            code.type_name(),
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
    let mut text = format!("# Events\n\n{NOTE}");
    text.push_str("| event | always in the payload | sometimes |\n|---|---|---|\n");
    let list =
        |fields: &[&str]| fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
    for name in names::ALL {
        let _never_fails =
            writeln!(text, "| `{name}` | {} | {} |", list(name.required()), list(name.optional()));
    }
    text
}
