//! `aplomb errors`: the codes as a tree, or the page of one.

use std::fmt::Write;

use aplomb::error::{self, Code};
use aplomb::{Error, codes};
use serde_json::{Value, json};

use crate::args::{ErrorsArguments, ReportFormat};
use crate::report::{self, Report};

pub(crate) fn errors(arguments: &ErrorsArguments) -> u8 {
    report::give_as(arguments.format, explain(arguments))
}

fn explain(arguments: &ErrorsArguments) -> Result<Report, Error> {
    let code = arguments.code.as_deref().map(find).transpose()?;
    Ok(match (code, arguments.format) {
        (None, ReportFormat::Text) => Report::data(tree()),
        (None, ReportFormat::Json) => Report::json(&error::all().map(row).collect()),
        (Some(code), ReportFormat::Text) => Report::data(page(code)),
        (Some(code), ReportFormat::Json) => {
            let mut row = row(code);
            if let Value::Object(fields) = &mut row {
                fields.insert("page".to_owned(), json!(code.page()));
            }
            Report::json(&row)
        }
    })
}

fn find(name: &str) -> Result<Code, Error> {
    Code::find(name).ok_or_else(|| {
        let meant = aplomb::near::did_you_mean(name, error::all().map(Code::as_str));
        Error::new(codes::USER_INVALID_INPUT, format!("no error code is called {name:?}"))
            .with_hint(meant.unwrap_or_else(|| "`aplomb errors` lists them".to_owned()))
    })
}

/// Every code below its parent, children in the order of the table.
fn tree() -> String {
    let mut text = String::new();
    let roots = error::all().filter(|code| code.parent().is_none());
    roots.for_each(|root| branch(root, 0, &mut text));
    text
}

fn branch(code: Code, depth: usize, text: &mut String) {
    let name = format!("{}{code}", "  ".repeat(depth));
    let retryable = if code.retryable() { "retryable" } else { "" };
    let line = format!("{name:34} {retryable:10} {}", code.summary().unwrap_or_default());
    let _never_fails = writeln!(text, "{}", line.trim_end());
    error::all()
        .filter(|child| child.parent() == Some(code))
        .for_each(|child| branch(child, depth + 1, text));
}

/// The page of a built-in code; what its declaration says of another.
fn page(code: Code) -> String {
    if let Some(page) = code.page() {
        return page.to_owned();
    }
    let (file, line) = code.place();
    let parent = code.parent().map(|parent| format!(" of {parent}")).unwrap_or_default();
    let retryable = if code.retryable() { "retryable" } else { "not retryable" };
    let mut text = format!("{code}: {}, a kind{parent}, {retryable}\n", code.type_name());
    let _never_fails = writeln!(text, "declared at {file}:{line}");
    for (label, value) in [("hint", code.hint().map(str::to_owned)), ("docs", code.docs_url())] {
        if let Some(value) = value {
            let _never_fails = writeln!(text, "{label}: {value}");
        }
    }
    text
}

fn row(code: Code) -> Value {
    json!({
        "code": code.as_str(),
        "type": code.type_name(),
        "parent": code.parent().map(Code::as_str),
        "retryable": code.retryable(),
        "stop_reason": code.stop_reason(),
        "summary": code.summary(),
        "hint": code.hint(),
        "docs_url": code.docs_url(),
        "fields": code.fields(),
    })
}
