//! What may change in a failure without changing what it is.

use aplomb_core::failure::{Reason, Verdict};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{judge, lines};

/// A body, or a piece of a stream, rewritten; `None` where there is nothing to rewrite.
type Rewrite = fn(&str) -> Option<String>;

/// What must stay the same. Numbers that count are rewritten too, so that the wait is compared only where they are not.
fn essence(verdict: &Verdict) -> (Reason, bool, String) {
    (verdict.reason, verdict.retryable, verdict.rule.clone())
}

/// Every line with its texts rewritten has the verdict that it had.
fn survives(rewrite: Rewrite, least: usize) {
    let mut rewritten = 0;
    let mut changed = Vec::new();
    for line in lines() {
        let mut other = line.clone();
        for field in ["body", "sse_event", "exception"] {
            if let Some(text) = line[field].as_str().and_then(rewrite) {
                other[field] = json!(text);
            }
        }
        if other != line {
            rewritten += 1;
            let (before, after) = (essence(&judge(&line)), essence(&judge(&other)));
            if before != after {
                changed.push(format!("{}: {before:?} became {after:?}", line["id"]));
            }
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
    assert!(rewritten >= least, "only {rewritten} lines were rewritten");
}

#[test]
fn neither_notes_nor_ids_nor_the_providers_name_change_a_verdict() {
    for line in lines() {
        let mut bare = line.clone();
        let fields = bare.as_object_mut().expect("an object");
        for note in ["id", "why", "source", "evidence", "decoy", "expected", "alt", "wait_exceeds_budget"] {
            fields.remove(note);
        }
        fields.insert("provider".to_owned(), json!("acme"));
        assert_eq!(judge(&line), judge(&bare), "{}", line["id"]);
    }
}

#[test]
fn white_space_in_json_does_not_change_a_verdict() {
    survives(|text| serde_json::to_string_pretty(&json_of(text)?).ok(), 300);
    survives(|text| Some(json_of(text)?.to_string()), 100);
}

#[test]
fn the_order_of_keys_does_not_change_a_verdict() {
    survives(
        |text| {
            let mut out = String::new();
            write_backwards(&json_of(text)?, &mut out);
            Some(out)
        },
        300,
    );
}

/// Of an SSE event as well: its data, on one line.
#[test]
fn the_order_of_keys_in_an_event_does_not_change_a_verdict() {
    survives(
        |text| {
            let (before, data) = text.split_once("data: {")?;
            let (data, after) = data.split_once("\n\n")?;
            let mut out = String::new();
            write_backwards(&json_of(&format!("{{{data}"))?, &mut out);
            Some(format!("{before}data: {out}\n\n{after}"))
        },
        30,
    );
}

#[test]
fn numbers_that_count_something_do_not_change_a_verdict() {
    survives(|text| Some(other_long_numbers(text)), 100);
}

#[test]
fn the_names_of_models_and_the_ids_of_requests_do_not_change_a_verdict() {
    const MODELS: [&str; 12] = [
        "gpt-4o-mini",
        "gpt-4o",
        "gpt-5.1",
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemini-3.1-pro",
        "llama-3.3-70b-versatile",
        "claude-sonnet-4-5",
        "mixtral-8x7b-32768",
        "deepseek-v9-nonexistent",
        "grok-nonexistent-model-for-identity-edge",
        "qwen9:7b",
    ];
    survives(
        |text| {
            // What looks like a status inside an id is none.
            Some(
                MODELS.iter().fold(text.replace("FAKE", "x429y503z"), |text, model| {
                    text.replace(model, "acme-529-xl")
                }),
            )
        },
        130,
    );
}

/// As a transport does that keeps the beginning of a body.
#[test]
fn a_body_that_is_cut_off_behind_the_error_has_the_same_verdict() {
    const LIMIT: usize = 2_048;
    let mut cut = 0;
    for line in lines() {
        let body = line["body"].as_str().unwrap_or_default().trim_end();
        let (Some(end), "response") = (body.rfind('}'), line["phase"].as_str().unwrap_or_default()) else {
            continue;
        };
        if json_of(body).is_none() || body.len() > LIMIT - 20 {
            continue;
        }
        let (inside, after) = body.split_at(end);
        let long = format!("{inside},\"padding\":\"{}\"{after}", "x".repeat(LIMIT));
        let mut other = line.clone();
        other["body"] = json!(long.get(..LIMIT));
        assert_eq!(judge(&line), judge(&other), "{}", line["id"]);
        cut += 1;
    }
    assert!(cut >= 300, "only {cut} bodies were cut");
}

#[test]
fn a_verdict_is_retryable_exactly_if_its_code_is() {
    for line in lines() {
        let verdict = judge(&line);
        assert_eq!(verdict.retryable, verdict.code().retryable(), "{}", line["id"]);
    }
}

proptest! {
    #[test]
    fn any_failure_at_all_is_judged(
        phase in prop::sample::select(vec!["connect", "response", "body", "mid-stream"]),
        wire in prop::sample::select(vec!["openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "ollama", ""]),
        status in prop::option::of(100u16..700),
        text in "(data: |event: |:message-type: )?[\\[\\{\"'a-z:, 0-9\\}\\]\\n\\\\\\PC]{0,80}",
        in_body in any::<bool>(),
    ) {
        let line = json!({
            "phase": phase, "wire": wire, "status": status, "exception": text,
            "body": if in_body { Some(&text) } else { None }, "sse_event": &text,
        });
        let verdict = judge(&line);
        prop_assert_eq!(verdict.retryable, verdict.code().retryable());
    }

    /// A line of the corpus, cut anywhere.
    #[test]
    fn any_beginning_of_a_failure_is_judged(at in any::<prop::sample::Index>(), share in 0.0f64..1.0) {
        let lines = lines();
        let mut line = at.get(&lines).clone();
        for field in ["body", "sse_event", "exception"] {
            if let Some(text) = line[field].as_str() {
                let letters = (text.chars().count() as f64 * share) as usize;
                line[field] = json!(text.chars().take(letters).collect::<String>());
            }
        }
        let verdict = judge(&line);
        prop_assert_eq!(verdict.retryable, verdict.code().retryable());
    }
}

fn json_of(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())
}

/// The same JSON with the keys of every object the other way round.
fn write_backwards(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in fields.iter().rev().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                out.push_str(&json!(key).to_string());
                out.push_str(": ");
                write_backwards(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_backwards(item, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Another number of the same length in the place of each that has five digits or more. Shorter ones may be codes.
fn other_long_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut number = String::new();
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        if number.len() >= 5 {
            number = number
                .chars()
                .map(|digit| if digit == '9' { '1' } else { char::from(digit as u8 + 1) })
                .collect();
        }
        out.push_str(&number);
        number.clear();
        out.push(letter);
    }
    out.pop();
    out
}
