//! errors.md §2: what every error carries.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::fmt;

use aplomb_core::error::{Attempt, Error, ErrorDetails, IDENTIFIERS, codes};
use serde_json::{Value, json};

use crate::page::*;

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
