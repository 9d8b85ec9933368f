//! Reads the contract: its tables, as rows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(crate) const ERRORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/errors.md");
pub(crate) const RUNTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/runtime.md");

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between a `## <number>.` heading and the next one.
pub(crate) fn section(text: &str, number: u32) -> String {
    let heading = format!("## {number}. ");
    let start = text.find(&heading).unwrap_or_else(|| panic!("no section {number}"));
    let body = &text[start + heading.len()..];
    body[..body.find("\n## ").unwrap_or(body.len())].to_owned()
}

/// The tables of a text, each as its rows of trimmed cells, heading row first and rule row left out.
pub(crate) fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = vec![];
    let mut rows: Vec<Vec<String>> = vec![];
    for line in text.lines().chain([""]) {
        match line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) {
            Some(line) if line.chars().all(|c| matches!(c, '-' | '|' | ':' | ' ')) => {}
            Some(line) => rows.push(line.split('|').map(|cell| cell.trim().to_owned()).collect()),
            None if rows.is_empty() => {}
            None => tables.push(std::mem::take(&mut rows)),
        }
    }
    tables
}

/// What stands between backticks.
pub(crate) fn quoted(text: &str) -> Vec<String> {
    assert!(text.matches('`').count().is_multiple_of(2), "unbalanced backticks: {text}");
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

pub(crate) fn set(names: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).collect()
}

pub(crate) fn keys(value: &Value) -> BTreeSet<String> {
    set(value.as_object().expect("an object").keys().cloned())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeRow {
    pub(crate) type_name: String,
    pub(crate) parent: Option<String>,
    pub(crate) retryable: bool,
    pub(crate) stop_reason: String,
    pub(crate) own_fields: Vec<String>,
}

/// Both tables of errors.md §1, in the order of the page.
pub(crate) fn code_tables() -> [Vec<(String, CodeRow)>; 2] {
    let tables = tables(&section(&read(ERRORS), 1));
    let heading = ["code", "name in the docs", "parent", "retryable", "stop reason", "extra context fields"];
    let tables: Vec<Vec<(String, CodeRow)>> = tables
        .into_iter()
        .map(|table| {
            assert_eq!(table[0], heading);
            table[1..].iter().map(|row| code_row(row)).collect()
        })
        .collect();
    tables.try_into().expect("two tables")
}

pub(crate) fn code_row(cells: &[String]) -> (String, CodeRow) {
    let [code, type_name, parent, retryable, stop_reason, fields] = cells else {
        panic!("not six cells: {cells:?}")
    };
    let [code] = &quoted(code)[..] else { panic!("not one code: {code}") };
    let row = CodeRow {
        // The base has no class of its own in the page; its name is the reference's.
        type_name: if type_name == "base of all" { "OpenAgentsError".to_owned() } else { type_name.clone() },
        parent: match &quoted(parent)[..] {
            [] if parent == "-" => None,
            [parent] => Some(parent.clone()),
            _ => panic!("not a parent: {parent}"),
        },
        // `no (the finalize loop consumes it)` is a no.
        retryable: match retryable.split_whitespace().next() {
            Some("yes") => true,
            Some("no") => false,
            _ => panic!("neither yes nor no: {retryable}"),
        },
        stop_reason: stop_reason.trim_matches('*').to_owned(),
        own_fields: quoted(fields),
    };
    (code.clone(), row)
}

/// All rows of errors.md §1 by code.
pub(crate) fn code_rows() -> BTreeMap<String, CodeRow> {
    code_tables().into_iter().flatten().collect()
}

/// A code and everything above it, by the contract's parents, nearest first.
pub(crate) fn lineage(rows: &BTreeMap<String, CodeRow>, code: &str) -> Vec<String> {
    let mut line = vec![code.to_owned()];
    while let Some(parent) = &rows[line.last().unwrap()].parent {
        assert!(!line.contains(parent), "{code} descends from itself");
        line.push(parent.clone());
    }
    line
}

/// "Extra fields are inherited from the parent's row."
pub(crate) fn all_fields(rows: &BTreeMap<String, CodeRow>, code: &str) -> Vec<String> {
    lineage(rows, code).iter().rev().flat_map(|code| rows[code].own_fields.clone()).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EventRow {
    pub(crate) required: BTreeSet<String>,
    pub(crate) optional: BTreeSet<String>,
}

/// The event names of a cell. A name that begins with a dot replaces the last segment of the full name before
/// it.
pub(crate) fn event_names(cell: &str) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for name in quoted(cell) {
        let name = match name.strip_prefix('.') {
            Some(_) => {
                let full = names.last().expect("a full name first");
                format!("{}{name}", &full[..full.rfind('.').unwrap()])
            }
            None => name,
        };
        names.push(name);
    }
    names
}

/// The payload of each of `count` events, where a cell says it event by event, with `/` or `;` between.
pub(crate) fn event_by_event(cell: &str, count: usize) -> Option<Vec<BTreeSet<String>>> {
    let parts: Vec<_> = cell.split(" / ").flat_map(|part| part.split("; ")).collect();
    (parts.len() == count).then(|| parts.into_iter().map(|part| set(quoted(part))).collect())
}

/// The table of runtime.md §4.
pub(crate) fn event_rows() -> BTreeMap<String, EventRow> {
    let tables = tables(&section(&read(RUNTIME), 4));
    let [table] = &tables[..] else { panic!("not one table") };
    assert_eq!(table[0], ["event", "required payload", "optional"]);
    let mut events = BTreeMap::new();
    let mut previous: [Vec<BTreeSet<String>>; 2] = [vec![], vec![]];
    for row in &table[1..] {
        let [name_cell, required_cell, optional_cell] = &row[..] else { panic!("not three cells: {row:?}") };
        let names = event_names(name_cell);
        let [required, optional] = if required_cell == "as above" {
            assert_eq!(names.len(), previous[0].len(), "{row:?}");
            previous.clone()
        } else {
            [required_payloads(required_cell, &names), optional_payloads(optional_cell, &names)]
        };
        for ((name, required), optional) in names.iter().zip(&required).zip(&optional) {
            let row = EventRow {
                required: required.clone(),
                optional: optional.difference(required).cloned().collect(),
            };
            assert_eq!(events.insert(name.clone(), row), None, "{name} stands twice in the contract");
        }
        previous = [required, optional];
    }
    events
}

pub(crate) fn required_payloads(cell: &str, names: &[String]) -> Vec<BTreeSet<String>> {
    let fields = |names: &[&str]| set(names.iter().copied());
    match cell {
        // "failed also": the third of called, succeeded, failed.
        "`model`; failed also `error`, `error_details`" => {
            vec![fields(&["model"]), fields(&["model"]), fields(&["model", "error", "error_details"])]
        }
        // What stands before the `+` belongs to each of the four alternatives behind it.
        "`tool_id` + `params` / `result` / `error` and `error_details` / `call_id`" => vec![
            fields(&["tool_id", "params"]),
            fields(&["tool_id", "result"]),
            fields(&["tool_id", "error", "error_details"]),
            fields(&["tool_id", "call_id"]),
        ],
        // A job that was just submitted has no status yet; what is polled or completed has one.
        "`tool_id`, `call_id`, `job_id` (+ `status`)" => vec![
            fields(&["tool_id", "call_id", "job_id"]),
            fields(&["tool_id", "call_id", "job_id", "status"]),
            fields(&["tool_id", "call_id", "job_id", "status"]),
        ],
        _ if names.len() == 1 => vec![set(quoted(cell))],
        _ => event_by_event(cell, names.len()).unwrap_or_else(|| panic!("{names:?}: no reading of {cell:?}")),
    }
}

pub(crate) fn optional_payloads(cell: &str, names: &[String]) -> Vec<BTreeSet<String>> {
    if let Some(payloads) = event_by_event(cell, names.len()) {
        return payloads;
    }
    // One list for several events. Which event each field is for, where it is not for all of them:
    let only_for: &[(&str, &[&str])] = match names[0].as_str() {
        // A step belongs to a step of the plan; a phase and the plan itself do not.
        "pattern.phase" => &[("plan_step", &["pattern.step_started", "pattern.step_finished"])],
        // An executor has something to say once it has run; a cancellation has a reason.
        "tool.called" => {
            &[("executor_metadata", &["tool.succeeded", "tool.failed"]), ("reason", &["tool.cancelled"])]
        }
        _ => &[],
    };
    let list = quoted(cell);
    for (field, events) in only_for {
        assert!(list.iter().any(|listed| listed == field), "{field} is gone from {cell}");
        assert!(events.iter().all(|event| names.iter().any(|name| name == event)), "{events:?} in {names:?}");
    }
    let is_for = |name: &str, field: &str| {
        only_for.iter().find(|(only, _)| *only == field).is_none_or(|(_, events)| events.contains(&name))
    };
    names.iter().map(|name| set(list.iter().filter(|field| is_for(name, field)).cloned())).collect()
}

/// The sentence "Aplomb adds, at least: …": names, and the payload where it states one.
pub(crate) fn own_events() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let text = section(&read(RUNTIME), 4);
    let start = text.find("Aplomb adds, at least:").expect("the sentence");
    let sentence = text[start..].split("\n\n").next().unwrap();
    quoted(sentence)
        .into_iter()
        .map(|span| match span.split_once('{') {
            None => (span, None),
            Some((name, fields)) => {
                let fields = fields.strip_suffix('}').expect("a closing brace");
                (name.trim().to_owned(), Some(set(fields.split(',').map(str::trim))))
            }
        })
        .collect()
}
