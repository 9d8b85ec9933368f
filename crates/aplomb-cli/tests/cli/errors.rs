//! What the command line says of errors: `aplomb errors`, and the exit code of each class.

use std::collections::BTreeMap;
use std::net::TcpListener;

use crate::support::{Finished, aplomb, config, file, output, says, status};
use aplomb::codes;
use aplomb::error::Code;
use serde_json::{Value, json};

fn errors(arguments: &[&str]) -> Finished {
    output(aplomb().arg("errors").args(arguments))
}

// ---- The contract's own table.

struct Row {
    parent: Option<String>,
    retryable: bool,
    stop_reason: String,
}

/// The rows of both tables of errors.md §1, by code.
fn contract() -> BTreeMap<String, Row> {
    const ERRORS: &str = include_str!("../../../../docs/spec/errors.md");
    let section = ERRORS.split("\n## 1. ").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().replace(['`', '*'], ""));
        let (code, _name, parent) = (cells.next().unwrap(), cells.next(), cells.next().unwrap());
        let (retryable, stop_reason) = (cells.next().unwrap() == "yes", cells.next().unwrap());
        (code, Row { parent: Some(parent).filter(|parent| parent != "-"), retryable, stop_reason })
    })
    .collect()
}

#[test]
fn the_contract_has_37_codes() {
    // "These 32 codes are the base", and the five that Aplomb adds.
    assert_eq!(contract().len(), 32 + 5);
}

// ---- aplomb errors.

#[test]
fn errors_lists_every_code_once_below_its_parent_and_indented_from_it() {
    let listed = errors(&[]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    let contract = contract();
    let mut above: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    for line in listed.stdout.lines() {
        let indent = line.len() - line.trim_start().len();
        let mut words = line.split_whitespace();
        let code = words.next().unwrap().to_owned();
        let row = &contract[&code];
        assert_eq!(indent % 2, 0, "{line:?}");
        above.truncate(indent / 2);
        assert_eq!(above.len(), indent / 2, "{line:?} is too far in");
        assert_eq!(above.last(), row.parent.as_ref(), "{line:?}");
        let next = words.next().unwrap();
        assert_eq!(next == "retryable", row.retryable, "{line:?}");
        // And it says what happened.
        assert!(words.count() >= 2, "{line:?}");
        above.push(code.clone());
        seen.push(code);
    }
    let all: Vec<_> = contract.keys().cloned().collect();
    seen.sort_unstable();
    assert_eq!(seen, all);
}

#[test]
fn errors_with_a_code_prints_its_page() {
    for code in codes::ALL {
        let file = format!("{}/../../docs/errors/{code}.md", env!("CARGO_MANIFEST_DIR"));
        let shown = errors(&[code.as_str()]);
        assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{code}");
        assert_eq!(shown.stdout, std::fs::read_to_string(file).unwrap(), "{code}");
        assert!(shown.stdout.starts_with(&format!("# `{code}`\n")), "{code}");
    }
}

#[test]
fn errors_with_a_typing_error_names_the_near_ones_and_exits_with_1() {
    for (wrong, right) in [
        ("llm.rate_limt", "llm.rate_limit"),
        ("llm.ratelimit", "llm.rate_limit"),
        ("TOOL.TIMEOUT", "tool.timeout"),
        ("tool.tiemout", "tool.timeout"),
        ("config", "config.load"),
    ] {
        for format in ["text", "json"] {
            let refused = errors(&[wrong, "--format", format]);
            assert_eq!(refused.code, Some(1), "{wrong}");
            if format == "json" {
                assert_eq!(refused.json()["error_details"]["code"], "user.invalid_input", "{wrong}");
            } else {
                assert_eq!(refused.stdout, "", "{wrong}");
            }
            assert!(refused.stderr.contains("error[user.invalid_input]"), "{}", refused.stderr);
            assert!(refused.stderr.contains(wrong), "{}", refused.stderr);
            let hint = refused.stderr.lines().find(|line| line.trim_start().starts_with("hint:")).unwrap();
            assert!(hint.contains("did you mean") && hint.contains(right), "{wrong}: {hint}");
        }
    }
}

#[test]
fn errors_with_a_name_that_is_far_from_all_guesses_nothing_and_exits_with_1() {
    for wrong in ["banana", "x", "404", "", "--", "what is this"] {
        let arguments: &[&str] = if wrong == "--" { &["--", "--"] } else { &[wrong] };
        let refused = errors(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{wrong:?}");
        assert!(!refused.stderr.contains("did you mean"), "{wrong:?}: {}", refused.stderr);
        for code in codes::ALL.iter().filter(|code| **code != codes::USER_INVALID_INPUT) {
            assert!(!refused.stderr.contains(code.as_str()), "{wrong:?}: {}", refused.stderr);
        }
        // But the way to the right names.
        assert!(refused.stderr.contains("aplomb errors"), "{wrong:?}: {}", refused.stderr);
    }
}

#[test]
fn errors_as_json_has_every_code_with_what_the_contract_says_of_it() {
    let listed = errors(&["--format", "json"]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    let listed = listed.json();
    let listed = listed.as_array().unwrap();
    let mut contract = contract();
    let mut seen: Vec<&str> = Vec::new();
    for entry in listed {
        let code = entry["code"].as_str().unwrap();
        let row = contract.remove(code).unwrap();
        assert_eq!(entry["parent"], json!(row.parent), "{code}");
        assert_eq!(
            (&entry["retryable"], &entry["stop_reason"]),
            (&json!(row.retryable), &json!(row.stop_reason))
        );
        assert_eq!(entry["type"], json!(Code::find(code).unwrap().type_name()));
        assert!(entry["summary"].as_str().is_some_and(|summary| summary.ends_with('.')), "{code}");
        // Parents before children.
        assert!(row.parent.is_none_or(|parent| seen.contains(&parent.as_str())), "{code}");
        seen.push(code);
    }
    assert!(contract.is_empty(), "{:?} are missing", contract.keys());
}

#[test]
fn one_error_as_json_has_its_page_too() {
    let shown = errors(&["tool.rate_limit", "--format", "json"]).json();
    assert_eq!((&shown["code"], &shown["parent"]), (&json!("tool.rate_limit"), &json!("tool.retryable")));
    assert_eq!(shown["fields"], json!(["tool_name", "retry_after_ms"]));
    assert!(shown["page"].as_str().is_some_and(|page| page.starts_with("# `tool.rate_limit`\n")));
}

#[test]
fn errors_refuses_what_it_does_not_know_and_exits_with_1() {
    for arguments in [&["--format", "yaml"][..], &["tool.error", "llm.error"], &["--all"]] {
        let refused = errors(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(!refused.stderr.is_empty());
    }
}

// ---- Exit codes, by class.

fn run(config: &str, arguments: &[&str]) -> Finished {
    output(aplomb().args(["run", config, "--format", "json"]).args(arguments))
}

/// The exit code, and the code of the error on both outputs.
#[track_caller]
fn ends_with(finished: &Finished, exit: i32, code: Code) {
    assert_eq!(finished.code, Some(exit), "{finished:?}");
    // "a failed run always says why, with code and hint, in every format"
    assert!(finished.stderr.contains(&format!("error[{code}]: ")), "{}", finished.stderr);
    assert_eq!(finished.json()["error_details"]["code"], json!(code.as_str()));
    assert_eq!(finished.json()["error_details"]["retryable"], json!(code.retryable()));
}

#[test]
fn an_error_of_the_user_exits_with_1() {
    let config = config(json!([says("never")]));
    let config = config.path().to_str().unwrap();
    ends_with(&run(config, &["--input", " "]), 1, codes::USER_INVALID_INPUT);
    ends_with(&run(config, &["--input", "hi", "--run-id", ""]), 1, codes::USER_INVALID_INPUT);
    ends_with(&run(config, &["--input-file", "/nowhere/input.txt"]), 1, codes::USER_INVALID_INPUT);
    ends_with(&run(config, &["--input", "hi", "--agent", "b"]), 1, codes::USER_AGENT_NOT_FOUND);
}

#[test]
fn an_error_of_usage_exits_with_1() {
    for arguments in [&["run"][..], &["rum"], &["run", "a.json", "--timeout-ms", "0"], &[]] {
        let refused = output(aplomb().args(arguments));
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(!refused.stderr.is_empty());
    }
}

#[test]
fn an_error_of_the_config_exits_with_2() {
    let hi = ["--input", "hi"];
    ends_with(&run("/nowhere/agent.json", &hi), 2, codes::CONFIG_LOAD);
    ends_with(&run(file("{").path().to_str().unwrap(), &hi), 2, codes::CONFIG_LOAD);
    ends_with(&run(file("{}").path().to_str().unwrap(), &hi), 2, codes::CONFIG_VALIDATION);
    // Even where the input is wrong, too: nothing can be run with it.
    ends_with(&run("/nowhere/agent.json", &["--input", ""]), 2, codes::CONFIG_LOAD);
}

#[test]
fn an_error_of_a_plugin_exits_with_2() {
    let right = config(json!([says("never")]));
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(right.path()).unwrap()).unwrap();
    document["agents"][0]["tools"] = json!([{ "id": "a", "type": "clac" }]);
    let wrong = file(&document.to_string());
    let finished = run(wrong.path().to_str().unwrap(), &["--input", "hi"]);
    ends_with(&finished, 2, codes::PLUGIN_LOAD);
    assert!(finished.stderr.contains("did you mean \"calc\"?"), "{}", finished.stderr);
}

#[test]
fn a_run_that_fails_exits_with_3_whatever_the_code() {
    let hi = ["--input", "hi"];
    for (step, code) in [
        (status(401, Value::Null), codes::LLM_RESPONSE),
        (status(418, Value::Null), codes::LLM_ERROR),
        (status(429, Value::Null), codes::LLM_RATE_LIMIT),
        (status(503, Value::Null), codes::LLM_CONNECTION),
        (json!({"reply": {"message": {"tool_calls": [{"name": "none"}]}}}), codes::EXECUTION_MAX_STEPS),
    ] {
        let config = config(json!([step]));
        let finished = run(config.path().to_str().unwrap(), &hi);
        ends_with(&finished, 3, code);
        assert_eq!(finished.json()["stop_reason"], json!(code.stop_reason().as_str()));
    }
    let silent = config(json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]));
    let late = run(silent.path().to_str().unwrap(), &["--input", "hi", "--timeout-ms", "100"]);
    ends_with(&late, 3, codes::EXECUTION_TIMEOUT);
    assert_eq!(late.json()["stop_reason"], "timeout");
}

/// Where `execution.error` itself is raised: the ports of `aplomb faultlab` are taken.
#[test]
fn a_port_that_is_taken_exits_with_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let script = file(&json!({"steps": [says("hi")]}).to_string());
    let script = script.path().to_str().unwrap();
    let refused = output(aplomb().args(["faultlab", "--script", script, "--port", &port]));
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("error[execution.error]"), "{}", refused.stderr);
}
