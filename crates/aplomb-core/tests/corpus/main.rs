//! Every failure of the corpus gets the verdict that a careful engineer would give.
//!
//! The contract is `tests/corpus/README.md`. This test grades as `grade.py` does, through the public API alone.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod mutations;

use std::collections::{BTreeMap, BTreeSet};

use aplomb_core::failure::classify::{explain, rules};
use aplomb_core::failure::{Observation, Verdict, classify};
use serde_json::{Value, json};

const DEV: &str = include_str!("dev.jsonl");
const MORE: &str = include_str!("more.jsonl");

fn lines() -> Vec<Value> {
    let lines = DEV.lines().chain(MORE.lines()).filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn judge(line: &Value) -> Verdict {
    let observation: Observation = serde_json::from_value(line.clone()).expect("an observation");
    classify(&observation.into_failure())
}

fn agrees(verdict: &Verdict, label: &Value) -> bool {
    let reason = label["reason"].as_str().expect("a reason");
    // The code of these two is not graded.
    let code_counts = !["empty_response", "malformed_response"].contains(&reason);
    verdict.reason.as_str() == reason
        && Some(verdict.retryable) == label["retryable"].as_bool()
        && (!code_counts || label["code"] == verdict.code().as_str())
        && (!verdict.retryable || label["retry_after_ms"] == json!(verdict.wait.map(|wait| wait.delay_ms)))
}

/// The expected verdict, and those that are accepted too.
fn labels(line: &Value) -> Vec<Value> {
    let expected = line["expected"].as_object().expect("a label").clone();
    let alternatives = match &line["alt"] {
        Value::Array(list) => list.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    let merged = alternatives.into_iter().map(|alternative| {
        let mut label = expected.clone();
        label.extend(alternative.as_object().expect("a label").clone());
        Value::Object(label)
    });
    [Value::Object(expected.clone())].into_iter().chain(merged).collect()
}

#[test]
fn every_line_gets_its_verdict() {
    let mut misses = Vec::new();
    let lines = lines();
    for line in &lines {
        let verdict = judge(line);
        if !labels(line).iter().any(|label| agrees(&verdict, label)) {
            misses.push(format!(
                "{}: expected {}, got {} {} {:?} by {}",
                line["id"],
                line["expected"],
                verdict.reason,
                verdict.retryable,
                verdict.wait.map(|wait| wait.delay_ms),
                verdict.rule
            ));
        }
    }
    assert!(misses.is_empty(), "{} of {} missed:\n{}", misses.len(), lines.len(), misses.join("\n"));
}

#[test]
fn ids_are_unique_and_every_line_names_its_source() {
    let lines = lines();
    let ids: BTreeSet<_> = lines.iter().map(|line| line["id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), lines.len());
    assert!(lines.iter().all(|line| line["source"].is_string()));
}

/// For review: a rule that decides one line alone may be about that line.
#[test]
fn rules_that_decide_one_line_or_none_are_listed() {
    let mut decided: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines() {
        decided.entry(judge(&line).rule).or_default().push(line["id"].to_string());
    }
    let known: BTreeSet<_> = rules().map(|(id, _)| id).collect();
    for rule in &known {
        match decided.get(*rule).map(Vec::as_slice) {
            None => println!("{rule}: no line"),
            Some([line]) => println!("{rule}: only {line}"),
            Some(_) => {}
        }
    }
    assert!(decided.keys().all(|rule| explain(rule).is_some()), "every verdict's rule can be explained");
}
