//! The tables of the contract, `docs/spec/errors.md` and `docs/spec/runtime.md`, are exactly the tables of
//! the code.
//!
//! Every expectation is read from the contract's own text, so that neither side can gain or lose a row alone.
//! Where the text is prose for people (a few payload cells), the reading is written down here, next to the
//! words that it reads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test may"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::fmt;

use aplomb_core::error::{Attempt, Code, Error, ErrorDetails, IDENTIFIERS, codes};
use aplomb_core::event::{Event, EventName, names};
use aplomb_core::failure::Reason;
use aplomb_core::run::Identity;
use serde_json::{Map, Value, json};

const ERRORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/errors.md");
const RUNTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/runtime.md");

// ----------------------------------------------------------------------------------------------------
// Reading the contract
// ----------------------------------------------------------------------------------------------------

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between a `## <number>.` heading and the next one.
fn section(text: &str, number: u32) -> String {
    let heading = format!("## {number}. ");
    let start = text.find(&heading).unwrap_or_else(|| panic!("no section {number}"));
    let body = &text[start + heading.len()..];
    body[..body.find("\n## ").unwrap_or(body.len())].to_owned()
}

/// The tables of a text, each as its rows of trimmed cells, heading row first and rule row left out.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
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
fn quoted(text: &str) -> Vec<String> {
    assert!(text.matches('`').count().is_multiple_of(2), "unbalanced backticks: {text}");
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn set(names: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    names.into_iter().map(Into::into).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    set(value.as_object().expect("an object").keys().cloned())
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CodeRow {
    type_name: String,
    parent: Option<String>,
    retryable: bool,
    stop_reason: String,
    own_fields: Vec<String>,
}

/// Both tables of errors.md §1, in the order of the page.
fn code_tables() -> [Vec<(String, CodeRow)>; 2] {
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

fn code_row(cells: &[String]) -> (String, CodeRow) {
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
fn code_rows() -> BTreeMap<String, CodeRow> {
    code_tables().into_iter().flatten().collect()
}

/// A code and everything above it, by the contract's parents, nearest first.
fn lineage(rows: &BTreeMap<String, CodeRow>, code: &str) -> Vec<String> {
    let mut line = vec![code.to_owned()];
    while let Some(parent) = &rows[line.last().unwrap()].parent {
        assert!(!line.contains(parent), "{code} descends from itself");
        line.push(parent.clone());
    }
    line
}

/// "Extra fields are inherited from the parent's row."
fn all_fields(rows: &BTreeMap<String, CodeRow>, code: &str) -> Vec<String> {
    lineage(rows, code).iter().rev().flat_map(|code| rows[code].own_fields.clone()).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct EventRow {
    required: BTreeSet<String>,
    optional: BTreeSet<String>,
}

/// The event names of a cell. A name that begins with a dot replaces the last segment of the full name before
/// it.
fn event_names(cell: &str) -> Vec<String> {
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
fn event_by_event(cell: &str, count: usize) -> Option<Vec<BTreeSet<String>>> {
    let parts: Vec<_> = cell.split(" / ").flat_map(|part| part.split("; ")).collect();
    (parts.len() == count).then(|| parts.into_iter().map(|part| set(quoted(part))).collect())
}

/// The table of runtime.md §4.
fn event_rows() -> BTreeMap<String, EventRow> {
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

fn required_payloads(cell: &str, names: &[String]) -> Vec<BTreeSet<String>> {
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

fn optional_payloads(cell: &str, names: &[String]) -> Vec<BTreeSet<String>> {
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
fn own_events() -> BTreeMap<String, Option<BTreeSet<String>>> {
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

// ----------------------------------------------------------------------------------------------------
// errors.md §1: the code table
// ----------------------------------------------------------------------------------------------------

#[test]
fn the_contract_has_32_base_codes_and_five_of_aplombs_own() {
    let [base, own] = code_tables();
    assert_eq!((base.len(), own.len()), (32, 5));
    assert_eq!(code_rows().len(), 37, "a code stands twice");
}

#[test]
fn every_code_of_the_contract_is_in_the_code_and_nothing_more_on_either_side() {
    let contract = set(code_rows().into_keys());
    let ours: Vec<&str> = codes::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(set(ours.iter().copied()), contract);
    assert_eq!(ours.len(), contract.len(), "a code stands twice");
}

#[test]
fn every_row_of_the_code_table_is_the_contracts_row() {
    let rows = code_rows();
    let mut wrong = vec![];
    for (name, row) in &rows {
        let Some(code) = Code::find(name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let inherited = row.parent.as_deref().map_or(0, |parent| all_fields(&rows, parent).len());
        let ours = CodeRow {
            type_name: code.type_name().to_owned(),
            parent: code.parent().map(|parent| parent.as_str().to_owned()),
            retryable: code.retryable(),
            stop_reason: code.stop_reason().as_str().to_owned(),
            own_fields: code.fields().into_iter().skip(inherited).map(str::to_owned).collect(),
        };
        if &ours != row {
            wrong.push(format!("{name}\n  contract {row:?}\n  code     {ours:?}"));
        }
        if code.fields() != all_fields(&rows, name) {
            wrong.push(format!("{name}: fields {:?}, contract {:?}", code.fields(), all_fields(&rows, name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_code_is_found_by_its_name_and_shows_it() {
    for code in codes::ALL {
        assert_eq!(Code::find(code.as_str()), Some(*code));
        assert_eq!(code.to_string(), code.as_str());
    }
    assert_eq!(Code::find("tool.quantum"), None);
    assert_eq!(Code::find(""), None);
}

#[test]
fn every_code_is_lower_case_words_joined_by_at_least_one_dot() {
    // ^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$
    for code in codes::ALL {
        let words: Vec<&str> = code.as_str().split('.').collect();
        assert!(words.len() >= 2, "{code}");
        for word in words {
            assert!(word.starts_with(|c: char| c.is_ascii_lowercase()), "{code}");
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(word.chars().all(allowed), "{code}");
        }
    }
}

#[test]
fn parents_stand_before_their_children() {
    for (index, code) in codes::ALL.iter().enumerate() {
        if let Some(parent) = code.parent() {
            assert!(codes::ALL[..index].contains(&parent), "{code}");
        }
    }
}

#[test]
fn a_code_is_a_kind_of_exactly_the_codes_on_the_contracts_way_to_the_base() {
    let rows = code_rows();
    for code in codes::ALL {
        let line = lineage(&rows, code.as_str());
        for other in codes::ALL {
            assert_eq!(code.is_a(*other), line.contains(&other.as_str().to_owned()), "{code} is a {other}");
        }
    }
}

#[test]
fn is_a_is_reflexive_transitive_and_antisymmetric() {
    for a in codes::ALL {
        assert!(a.is_a(*a), "{a}");
        assert!(a.is_a(codes::OPENAGENTS_ERROR), "{a}");
        for b in codes::ALL {
            assert!(a == b || !(a.is_a(*b) && b.is_a(*a)), "{a} {b}");
            for c in codes::ALL {
                assert!(!(a.is_a(*b) && b.is_a(*c)) || a.is_a(*c), "{a} {b} {c}");
            }
        }
    }
}

#[test]
fn a_caller_that_handles_a_parent_handles_all_below_it() {
    let error = Error::new(codes::TOOL_TIMEOUT, "too slow");
    assert!(
        error.is_a(codes::TOOL_TIMEOUT) && error.is_a(codes::TOOL_RETRYABLE) && error.is_a(codes::TOOL_ERROR)
    );
    assert!(!error.is_a(codes::TOOL_PERMANENT) && !error.is_a(codes::LLM_ERROR));
}

#[test]
fn what_to_do_about_an_error_is_said_only_of_codes_that_exist() {
    let tables = tables(&section(&read(ERRORS), 3));
    for row in &tables[0][1..] {
        for code in quoted(&row[0]) {
            assert!(Code::find(&code).is_some(), "errors.md §3 knows {code}");
        }
    }
}

// ----------------------------------------------------------------------------------------------------
// errors.md §2: what every error carries
// ----------------------------------------------------------------------------------------------------

const SIX: [&str; 6] = ["code", "message", "hint", "docs_url", "retryable", "context"];

#[test]
fn the_six_keys_and_the_five_identifiers_are_those_of_the_contract() {
    let text = section(&read(ERRORS), 2).replace('\n', " ");
    let span = quoted(&text).into_iter().find(|span| span.starts_with('{')).expect("the shape of to_dict");
    let listed = set(span.trim_matches(['{', '}']).split(',').map(str::trim));
    assert_eq!(listed, set(SIX));
    let start = text.find("Context identifiers").expect("the identifiers");
    let sentence = text[start..].split(';').next().unwrap();
    assert_eq!(set(quoted(sentence)), set(IDENTIFIERS));
}

#[test]
fn to_dict_is_exactly_six_keys_for_every_code() {
    for code in codes::ALL {
        let error = Error::new(*code, "what happened");
        let dict = serde_json::to_value(error.to_dict()).unwrap();
        assert_eq!(keys(&dict), set(SIX), "{code}");
        assert_eq!(dict["code"], code.as_str());
        assert_eq!(dict["message"], "what happened");
        assert_eq!(dict["hint"], serde_json::json!(code.hint()), "the default hint of {code}");
        assert_eq!(dict["retryable"], code_rows()[code.as_str()].retryable, "{code}");
        assert_eq!(serde_json::to_value(&error).unwrap(), dict, "the Serialize shape of {code}");
    }
}

#[test]
fn to_dict_stays_six_keys_with_hint_cause_and_attempts() {
    let error = Error::new(codes::LLM_CONNECTION, "gave up")
        .with_hint("try later")
        .with_cause(Error::new(codes::LLM_RESPONSE, "inner"))
        .with_attempts(vec![attempt("refused")]);
    let dict = serde_json::to_value(&error).unwrap();
    assert_eq!(keys(&dict), set(SIX));
    assert_eq!(dict["hint"], "try later");
}

#[test]
fn the_context_holds_five_identifiers_and_the_fields_of_the_row_for_every_code() {
    let rows = code_rows();
    for code in codes::ALL {
        let context = Value::Object(Error::new(*code, "m").to_dict().context);
        let expected: BTreeSet<String> =
            set(IDENTIFIERS).into_iter().chain(all_fields(&rows, code.as_str())).collect();
        assert_eq!(keys(&context), expected, "{code}");
        for identifier in IDENTIFIERS {
            assert_eq!(context[identifier], Value::Null, "{identifier} of {code}: null when unknown");
        }
    }
}

#[test]
fn what_is_known_of_the_context_is_in_the_dict_for_every_code() {
    for code in codes::ALL {
        // `execution.in_doubt` lists `tool_id`, which is an identifier already.
        let fields: BTreeSet<&str> = IDENTIFIERS.into_iter().chain(code.fields()).collect();
        let error = fields
            .iter()
            .fold(Error::new(*code, "m"), |error, field| error.with_context(field, format!("{field}!")));
        let context = error.to_dict().context;
        assert_eq!(context.len(), fields.len(), "{code}");
        for field in fields {
            assert_eq!(context[field], format!("{field}!"), "{code}");
            assert_eq!(error.context(field), Some(&json!(format!("{field}!"))), "{code}");
        }
    }
}

#[test]
fn an_identifier_set_near_the_cause_is_not_replaced_on_the_way_up() {
    let error = Error::new(codes::TOOL_ERROR, "m").with_context("run_id", "inner");
    let error = error.or_context("run_id", "outer").or_context("agent_id", "a");
    assert_eq!(error.to_dict().context["run_id"], "inner");
    assert_eq!(error.to_dict().context["agent_id"], "a");
}

#[test]
fn the_message_of_the_dict_is_the_first_line() {
    let error = Error::new(codes::CONFIG_LOAD, "line one\nline two\nline three");
    assert_eq!(error.to_dict().message, "line one");
    assert_eq!(error.details().dict.message, "line one");
}

#[test]
fn the_docs_url_is_the_repository_and_the_codes_page_or_null_while_there_is_no_repository() {
    let repository = env!("CARGO_PKG_REPOSITORY");
    for code in codes::ALL {
        let expected =
            (!repository.is_empty()).then(|| format!("{repository}/blob/main/docs/errors/{code}.md"));
        assert_eq!(Error::new(*code, "m").to_dict().docs_url, expected, "{code}");
    }
}

#[test]
fn the_details_are_the_six_keys_unchanged_with_type_and_cause_for_every_code() {
    let eight: BTreeSet<String> = set(SIX.into_iter().chain(["type", "cause"]));
    for code in codes::ALL {
        let error = Error::new(*code, "m").with_hint("h").with_context("run_id", "r");
        let dict = serde_json::to_value(error.to_dict()).unwrap();
        let details = serde_json::to_value(error.details()).unwrap();
        assert_eq!(keys(&details), eight, "{code}");
        for key in SIX {
            assert_eq!(details[key], dict[key], "{key} of {code}");
        }
        assert_eq!(details["type"], code_rows()[code.as_str()].type_name);
        assert_eq!(details["cause"], Value::Null);
    }
}

#[test]
fn a_cause_is_the_same_shape_again_recursively() {
    let error = Error::new(codes::PATTERN_ERROR, "outer").with_cause(
        Error::new(codes::TOOL_TIMEOUT, "middle")
            .with_foreign_cause(std::io::Error::other("the disk is on fire")),
    );
    let details = serde_json::to_value(error.details()).unwrap();
    let eight: BTreeSet<String> = set(SIX.into_iter().chain(["type", "cause"]));
    let (middle, inner) = (&details["cause"], &details["cause"]["cause"]);
    for shape in [&details, middle, inner] {
        assert_eq!(keys(shape), eight);
    }
    assert_eq!((&middle["code"], &middle["type"]), (&json!("tool.timeout"), &json!("ToolTimeoutError")));
    assert_eq!(middle["retryable"], true);
    assert!(inner["message"].as_str().unwrap().contains("the disk is on fire"));
    assert_eq!(inner["cause"], Value::Null);
}

#[test]
fn a_cause_is_never_flattened_into_text_only() {
    let error = Error::new(codes::PATTERN_ERROR, "outer").with_cause(
        Error::new(codes::TOOL_ERROR, "middle").with_foreign_cause(std::io::Error::other("inner")),
    );
    let middle = error.source().expect("a source");
    assert!(middle.downcast_ref::<Error>().is_some_and(|middle| middle.code() == codes::TOOL_ERROR));
    assert!(middle.source().expect("a source").downcast_ref::<std::io::Error>().is_some());
}

/// An error that claims to be its own cause.
#[derive(Debug)]
struct Ouroboros;

impl fmt::Display for Ouroboros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snake bites its tail")
    }
}

impl StdError for Ouroboros {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

#[test]
fn a_chain_of_causes_without_an_end_is_cut() {
    let depth = |error: &Error| {
        let details = error.details();
        std::iter::successors(Some(&details), |details| details.cause.as_deref()).count()
    };
    assert!((2..1_000).contains(&depth(&Error::new(codes::TOOL_ERROR, "m").with_foreign_cause(Ouroboros))));
    let long = (0..1_000).fold(Error::new(codes::TOOL_ERROR, "m"), |cause, n| {
        Error::new(codes::TOOL_ERROR, format!("{n}")).with_cause(cause)
    });
    assert!((2..1_000).contains(&depth(&long)));
}

/// The details of an error as some other version wrote them.
fn written(code: &str, type_name: &str, cause: Value) -> Value {
    json!({
        "code": code, "message": "m", "hint": "h", "docs_url": "https://example.org/e", "retryable": true,
        "context": {
            "agent_id": null, "session_id": "s", "run_id": null, "tool_id": null, "step_number": 3,
            "tool_name": null, "qubits": [1, 2.5, {"spin": "up"}],
        },
        "type": type_name, "cause": cause,
    })
}

#[test]
fn codes_and_types_of_a_newer_writer_are_read_and_written_without_loss() {
    let known = || written("tool.timeout", "ToolTimeoutError", Value::Null);
    let unknown = || written("tool.quantum", "QuantumError", Value::Null);
    let cases = [
        unknown(),
        written("tool.quantum", "QuantumError", unknown()),
        written("tool.timeout", "ToolTimeoutError", unknown()),
        written("tool.quantum", "QuantumError", written("a.b", "std::io::Error", known())),
        // A known code whose type was renamed, and one whose `retryable` was stated otherwise.
        written("tool.timeout", "SomeBetterName", Value::Null),
        written("tool.auth", "ToolAuthError", Value::Null),
    ];
    for case in cases {
        let details: ErrorDetails = serde_json::from_value(case.clone()).unwrap();
        assert_eq!(serde_json::to_value(&details).unwrap(), case, "read and written");
        let error = Error::from(details);
        assert_eq!(serde_json::to_value(error.details()).unwrap(), case, "through an error");
    }
}

#[test]
fn every_error_of_ours_comes_back_from_its_details() {
    for code in codes::ALL {
        let error = Error::new(*code, "m")
            .with_hint("h")
            .with_context("run_id", "r")
            .with_cause(Error::new(codes::TOOL_RATE_LIMIT, "inner").with_context("retry_after_ms", 7))
            .with_attempts(vec![attempt("refused")]);
        let text = serde_json::to_string(&error.details()).unwrap();
        let back = Error::from(serde_json::from_str::<ErrorDetails>(&text).unwrap());
        assert_eq!(back.details(), error.details(), "{code}");
        assert_eq!((back.code(), back.retryable()), (*code, error.retryable()));
        assert_eq!(back.stop_reason(), error.stop_reason(), "{code}");
    }
}

#[test]
fn the_display_form_is_the_message_then_an_indented_hint_and_an_indented_docs_line_where_present() {
    let show = |hint: Option<&str>, docs: Option<&str>| {
        let details = json!({
            "code": "tool.error", "message": "what happened", "hint": hint, "docs_url": docs,
            "retryable": false, "context": {}, "type": "ToolError", "cause": null,
        });
        Error::from(serde_json::from_value::<ErrorDetails>(details).unwrap()).to_string()
    };
    let url = "https://example.org/e";
    let expected: [(Option<&str>, Option<&str>, &[&str]); 4] = [
        (None, None, &[]),
        (Some("do this"), None, &["hint: do this"]),
        (None, Some(url), &["docs: https://example.org/e"]),
        (Some("do this"), Some(url), &["hint: do this", "docs: https://example.org/e"]),
    ];
    for (hint, docs, expected) in expected {
        let text = show(hint, docs);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("what happened"));
        let rest: Vec<&str> = lines.collect();
        assert!(rest.iter().all(|line| line.starts_with([' ', '\t'])), "indented: {text:?}");
        assert_eq!(rest.iter().map(|line| line.trim_start()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_display_form_of_every_code_begins_with_the_whole_message() {
    for code in codes::ALL {
        let error = Error::new(*code, "line one\nline two").with_hint("do this");
        assert_eq!(
            error.to_string().lines().take(3).map(str::trim).collect::<Vec<_>>(),
            ["line one", "line two", "hint: do this"]
        );
    }
}

fn attempt(text: &str) -> Attempt {
    serde_json::from_value(json!({
        "number": 1, "layer": "first", "error_type": "LLMConnectionError", "text": text,
        "reason": "connection", "action": "stop", "rule": "r",
    }))
    .unwrap()
}

#[test]
fn the_text_of_an_attempt_is_type_and_text_or_the_type_alone_where_the_text_is_empty() {
    // retry.md §1.
    assert_eq!(attempt("refused").error(), "LLMConnectionError: refused");
    assert_eq!(attempt("").error(), "LLMConnectionError");
}

// ----------------------------------------------------------------------------------------------------
// design.md §4: the reasons
// ----------------------------------------------------------------------------------------------------

/// The list of design.md §4, which is not in the repository.
const REASONS: [&str; 20] = [
    "rate_limit",
    "overloaded",
    "server_error",
    "connection",
    "timeout",
    "stream_interrupted",
    "empty_response",
    "malformed_response",
    "context_overflow",
    "quota_exhausted",
    "auth",
    "permission",
    "invalid_request",
    "model_not_found",
    "content_filter",
    "payload_too_large",
    "invalid_image",
    "tool_schema_invalid",
    "cancelled",
    "unknown",
];

#[test]
fn every_reason_of_the_design_is_in_the_enum_under_its_name() {
    for name in REASONS {
        let reason: Reason =
            serde_json::from_value(json!(name)).unwrap_or_else(|_| panic!("{name} is missing"));
        assert_eq!(reason.as_str(), name);
        assert!(Reason::ALL.contains(&reason), "{name}");
    }
    assert_eq!(set(Reason::ALL.iter().map(|reason| reason.as_str())), set(REASONS));
    assert_eq!(Reason::ALL.len(), REASONS.len(), "a reason stands twice");
}

#[test]
fn every_reason_that_the_contract_gives_as_an_example_is_in_the_enum() {
    let text = section(&read(ERRORS), 1).replace('\n', " ");
    let start = text.find("the fine cause is `context.reason` (").expect("the examples");
    let examples = quoted(text[start..].split('…').next().unwrap());
    assert!(examples.len() > 3);
    for example in examples.iter().skip(1) {
        assert!(REASONS.contains(&example.as_str()), "{example}");
    }
}

#[test]
fn a_model_failure_is_retryable_exactly_if_its_code_is() {
    // Cancellation is the run's, not the model's.
    for reason in Reason::ALL.iter().filter(|reason| **reason != Reason::Cancelled) {
        for retryable in [false, true] {
            let code = reason.code(retryable);
            assert!(code.is_a(codes::LLM_ERROR), "{reason}: {code}");
            assert_eq!(code.retryable(), retryable, "{reason}: {code}");
        }
    }
}

#[test]
fn throttles_are_rate_limits_and_the_connection_class_is_connection() {
    // errors.md §3: "429, 529, provider overload"; "connect failure, time-out, 5xx, an interrupted stream".
    for reason in [Reason::RateLimit, Reason::Overloaded] {
        assert_eq!(reason.code(true), codes::LLM_RATE_LIMIT, "{reason}");
    }
    for reason in [Reason::Connection, Reason::Timeout, Reason::ServerError, Reason::StreamInterrupted] {
        assert_eq!(reason.code(true), codes::LLM_CONNECTION, "{reason}");
    }
}

// ----------------------------------------------------------------------------------------------------
// runtime.md §4: the events
// ----------------------------------------------------------------------------------------------------

#[test]
fn every_event_of_the_contract_is_in_the_code_and_nothing_more_on_either_side() {
    let contract: BTreeSet<String> = event_rows().into_keys().chain(own_events().into_keys()).collect();
    let ours: Vec<&str> = names::ALL.iter().map(|name| name.as_str()).collect();
    assert_eq!(set(ours.iter().copied()), contract);
    assert_eq!(ours.len(), contract.len(), "an event stands twice");
}

#[test]
fn every_row_of_the_event_table_is_the_contracts_row() {
    let mut wrong = vec![];
    for (name, row) in event_rows() {
        let Some(event) = EventName::find(&name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let ours = EventRow {
            required: set(event.required().iter().copied()),
            optional: set(event.optional().iter().copied()),
        };
        if ours != row {
            wrong.push(format!("{name}\n  contract {row:?}\n  code     {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn aplombs_own_events_carry_the_payload_that_the_contract_states() {
    let own = own_events();
    assert_eq!(own["retry.decided"].as_ref().unwrap().len(), 10);
    for (name, fields) in own {
        let event = EventName::find(&name).unwrap_or_else(|| panic!("{name} is missing"));
        // "At least": where the contract states no payload, there may be one.
        if let Some(fields) = fields {
            assert_eq!(set(event.required().iter().copied()), fields, "{name}");
        }
    }
}

#[test]
fn every_event_that_says_failed_carries_the_error_details() {
    // errors.md §2: "… and so does the `error_details` field of every `*.failed` event."
    let failed: Vec<_> = names::ALL.iter().filter(|name| name.as_str().ends_with("failed")).collect();
    assert!(failed.len() >= 6);
    for name in failed {
        assert!(name.required().contains(&"error_details"), "{name}");
    }
    // "`run.resume_attempted` and `run.resume_exhausted` carry `error_code`."
    for name in [names::RUN_RESUME_ATTEMPTED, names::RUN_RESUME_EXHAUSTED] {
        assert!(name.required().contains(&"error_code"), "{name}");
    }
}

#[test]
fn no_payload_field_is_both_required_and_optional_or_stands_twice() {
    for name in names::ALL {
        let all: Vec<&str> = name.required().iter().chain(name.optional()).copied().collect();
        assert_eq!(set(all.iter().copied()).len(), all.len(), "{name}");
    }
}

#[test]
fn a_payload_is_complete_with_its_required_fields_and_incomplete_without_any_one_of_them() {
    let payload = |fields: &[&str]| -> Map<String, Value> {
        fields.iter().map(|field| ((*field).to_owned(), json!("x"))).collect()
    };
    for name in names::ALL {
        assert_eq!(EventName::find(name.as_str()), Some(*name));
        assert_eq!(name.violations(&payload(name.required())), Vec::<String>::new(), "{name}");
        let all: Vec<&str> = name.required().iter().chain(name.optional()).copied().collect();
        assert_eq!(name.violations(&payload(&all)), Vec::<String>::new(), "{name}");
        for missing in name.required() {
            let mut payload = payload(&all);
            payload.remove(*missing);
            assert!(!name.violations(&payload).is_empty(), "{name} without {missing}");
        }
    }
}

#[test]
fn every_event_has_exactly_the_envelope_of_the_contract() {
    let text = section(&read(RUNTIME), 4);
    let start = text.find("Every event:").expect("the sentence");
    let envelope = set(quoted(text[start..].split('.').next().unwrap()));
    assert_eq!(envelope.len(), 7);
    let identity = Identity { run_id: "r".into(), session_id: "s".into(), agent_id: "a".into() };
    for name in names::ALL {
        let event = serde_json::to_value(Event::new(*name, &identity, 4, 5, Map::new())).unwrap();
        assert_eq!(keys(&event), envelope, "{name}");
        assert_eq!(event["name"], name.as_str());
        assert_eq!(
            (&event["run_id"], &event["session_id"], &event["agent_id"]),
            (&json!("r"), &json!("s"), &json!("a"))
        );
        assert_eq!((&event["sequence"], &event["timestamp_ms"]), (&json!(4), &json!(5)));
    }
}
