//! The schema has every key of the contract, and no other.

use std::collections::BTreeSet;

use aplomb::config::{self, Config, PENDING_KEYS};
use serde_json::{Value, json};

const SPEC: &str = include_str!("../../../../docs/spec/runtime.md");

/// The keys of the contract's §5, by path.
///
/// A bullet begins with where its keys stand. A key is a word in back-quotes; keys of a key stand in braces after it, with
/// or without quotes.
fn contract() -> BTreeSet<String> {
    let section = SPEC.split("\n## 5. Config").nth(1).unwrap().split("\n## ").next().unwrap();
    let bullets =
        section.split("\n- ").skip(1).map(|bullet| bullet.split("\n\n").next().unwrap().replace('\n', " "));
    let mut keys = BTreeSet::new();
    for bullet in bullets {
        let Some((scope, rest)) = bullet.split_once(": ") else { continue };
        let scopes: &[&str] = match scope {
            "top" => &[""],
            "agent" => &["agents[]"],
            "`llm`" => &["agents[].llm"],
            "`llm.timeouts`" => &["agents[].llm.timeouts"],
            "`llm.retry`" => &["agents[].llm.retry"],
            "`agent.retry`" => &["agents[].retry"],
            "`traffic`" => &["traffic"],
            "`session`" => &["session"],
            "`pattern.config` of `react`" => &["agents[].pattern.config"],
            "`tool_executor.config` of `retry`" => &["agents[].tool_executor.config"],
            "`llm.script` (`mock` only, required there)" => {
                keys.insert("agents[].llm.script".to_owned());
                continue;
            }
            "`diagnostics.redact_keys`" => {
                keys.insert("diagnostics.redact_keys".to_owned());
                continue;
            }
            "`context_assembler.config` of `truncating`" => &["agents[].context_assembler.config"],
            "`session.config` of `in_memory`" => &["session.config"],
            other => panic!("a bullet of an unknown place: {other}"),
        };
        // A bullet of a place names the place itself, unless another one has.
        keys.extend(
            scopes
                .iter()
                .filter(|scope| !scope.is_empty())
                .map(|scope| scope.trim_end_matches("[]").to_owned()),
        );
        // A second place in the same bullet.
        let (first, second) = match rest.split_once("agent `runtime`: also ") {
            Some((first, second)) => (first, Some(second)),
            None => (rest, None),
        };
        let first = first.split(" where `").next().unwrap();
        take(first, scopes[0], &mut keys);
        if let Some(second) = second {
            take(second, "agents[].runtime", &mut keys);
        }
    }
    // "a plugin reference is `{type | impl, config}`"
    assert!(section.contains("a plugin reference is `{type | impl, config}`"));
    let logging = section.split("- `logging`, `diagnostics` {").nth(1).unwrap().split('}').next().unwrap();
    take(&format!("`diagnostics` {{{logging}}}"), "", &mut keys);
    keys.insert("logging".to_owned());
    keys
}

fn take(text: &str, scope: &str, keys: &mut BTreeSet<String>) {
    let path =
        |scope: &str, key: &str| if scope.is_empty() { key.to_owned() } else { format!("{scope}.{key}") };
    let (mut last, mut quoted, mut word) = (String::new(), false, String::new());
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '`' if quoted => {
                // What stands behind "=" is another key's name.
                if !text[..at - word.len() - 1].ends_with("= ") {
                    last.clone_from(&word);
                    keys.insert(path(scope, &word));
                }
                (quoted, word) = (false, String::new());
            }
            '`' => quoted = true,
            _ if quoted => word.push(character),
            '{' | '(' if !last.is_empty() => {
                let close = if character == '{' { '}' } else { ')' };
                let mut depth = 0;
                let inside: String = characters
                    .by_ref()
                    .map(|(_, inner)| inner)
                    .take_while(|inner| {
                        depth += i32::from(*inner == character) - i32::from(*inner == close);
                        depth >= 0
                    })
                    .collect();
                // Lists say "each with"; so do objects that are one of a list.
                let list = if inside.contains("each with") { "[]" } else { "" };
                let scope = format!("{}{list}", path(scope, &last));
                if inside.contains('`') {
                    take(&inside, &scope, keys);
                } else if character == '{' {
                    let names = inside
                        .split(';')
                        .next()
                        .unwrap()
                        .split(", ")
                        .filter_map(|item| item.split(' ').next());
                    let name =
                        |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                    keys.extend(names.filter(name).map(|name| path(&scope, name)));
                }
            }
            _ => {}
        }
    }
}

/// The keys of the schema, by path.
fn schema_keys() -> BTreeSet<String> {
    let schema = config::schema();
    let mut keys = BTreeSet::new();
    walk(&schema, &schema, "", &mut keys);
    for (path, plugin) in [
        ("agents[].pattern.config", "react"),
        ("agents[].tool_executor.config", "retry"),
        ("agents[].context_assembler.config", "truncating"),
        ("session.config", "in_memory"),
    ] {
        let registry = aplomb::plugins::Registry::new();
        let plugin = registry.list().into_iter().find(|found| found.name == plugin).unwrap();
        let schema = plugin.config.unwrap();
        walk(&schema, &schema, path, &mut keys);
    }
    keys
}

fn walk(whole: &Value, schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(target) => whole.pointer(&target[1..]).unwrap(),
        None => schema,
    };
    for option in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
        walk(whole, option, path, keys);
    }
    if let Some(items) = schema.get("items") {
        walk(whole, items, &format!("{path}[]"), keys);
    }
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        // Fallbacks are models again.
        if keys.insert(path.clone()) && !path.ends_with("fallbacks") {
            walk(whole, property, &path, keys);
        }
    }
}

#[test]
fn every_key_of_the_contract_is_in_the_schema_and_the_reverse() {
    let (contract, schema) = (contract(), schema_keys());
    let missing: Vec<_> = contract.difference(&schema).collect();
    assert!(missing.is_empty(), "the schema lacks {missing:#?}");
    // What a plugin reference is, is said once for all of them; `$schema` is for editors.
    let of_references = |key: &&String| {
        let last = key.rsplit('.').next().unwrap();
        !["type", "impl", "config"].contains(&last) && *key != "$schema"
    };
    let additional: Vec<_> = schema.difference(&contract).filter(of_references).collect();
    assert!(additional.is_empty(), "the contract lacks {additional:#?}");
    // The reading of the contract found what there is: a few of each kind.
    for key in [
        "agents[].tools[].enabled",
        "agents[].llm.pricing.cached_write",
        "traffic.cooldown.scope",
        "agents[].memory.on_error",
    ] {
        assert!(contract.contains(key), "{key}: {contract:#?}");
    }
    assert!(contract.len() > 80, "{}", contract.len());
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let text =
        r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "anthropic", "model": "m"}}]}"#;
    let shown = Config::from_json(text, "agent.json").unwrap().resolved(false).unwrap();
    let agent = &shown["agents"][0];
    for (pointer, expected) in [
        ("/runtime/max_steps", json!(16)),
        ("/runtime/step_timeout_ms", Value::Null),
        ("/runtime/session_queue_size", json!(1_000)),
        ("/runtime/event_queue_size", json!(2_000)),
        ("/runtime/max_tool_calls", Value::Null),
        ("/runtime/interrupt_grace_ms", json!(5_000)),
        ("/llm/timeout_ms", json!(30_000)),
        ("/llm/stream", json!("auto")),
        ("/llm/timeouts/connect_ms", json!(10_000)),
        ("/llm/timeouts/idle_ms", json!(60_000)),
        ("/llm/timeouts/attempt_ms", Value::Null),
        ("/llm/retry/mode", json!("additive")),
        ("/llm/retry/max_attempts", json!(3)),
        ("/llm/retry/initial_backoff_ms", json!(500)),
        ("/llm/retry/max_backoff_ms", json!(5_000)),
        ("/llm/retry/backoff_multiplier", json!(2.0)),
        ("/llm/retry/retry_on_connection_errors", json!(true)),
        ("/llm/retry/total_budget_ms", Value::Null),
        ("/llm/retry/jitter", json!("full")),
        ("/llm/fallback_on", json!(["quota_exhausted", "model_not_found"])),
        ("/retry/session", json!({"enabled": true, "max_retries": 3, "base_delay_ms": 2_000})),
        ("/retry/exec", json!({"max_retries": 3, "base_delay_ms": 1_500})),
        ("/retry/resume", json!({"base_delay_ms": 5_000, "max_delay_ms": 60_000})),
        ("/retry/max_inline_wait_ms", json!(60_000)),
        ("/retry/max_compactions", json!(1)),
        ("/retry/restart", json!("auto")),
        ("/tool_executor/type", json!("safe")),
    ] {
        assert_eq!(agent.pointer(pointer), Some(&expected), "{pointer}");
    }
    assert_eq!(shown["traffic"]["quota"], json!({"enabled": true, "capacity": 500}));
    assert_eq!(shown["session"]["lock_timeout_ms"], 30_000);
    assert_eq!(shown["diagnostics"]["error_snapshot_last_n"], 10);
}

#[test]
fn every_key_that_comes_later_is_one_of_the_schema_and_is_refused_unless_it_says_what_happens_now() {
    let keys = schema_keys();
    for (key, with) in PENDING_KEYS {
        assert!(keys.contains(*key), "{key}");
        assert!(!with.is_empty());
    }
    // Written out with all its defaults, a config is taken.
    let text =
        r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "anthropic", "model": "m"}}]}"#;
    let config = Config::from_json(text, "agent.json").unwrap();
    let written = config.resolved(false).unwrap().to_string();
    assert_eq!(Config::from_json(&written, "agent.json").unwrap(), config);
}

#[test]
fn the_published_schema_takes_the_examples_and_what_aplomb_takes() {
    let schema = jsonschema::validator_for(&config::schema()).unwrap();
    let quickstart: Value =
        serde_json::from_str(include_str!("../../../../examples/quickstart/agent.json")).unwrap();
    let errors: Vec<_> = schema.iter_errors(&quickstart).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let null = json!({"version": "1.0", "agents": [{"id": "a", "name": null, "memory": null, "runtime": null,
        "llm": {"provider": "anthropic", "model": "m", "stream": null, "timeouts": null, "max_tokens": null}}]});
    let errors: Vec<_> = schema.iter_errors(&null).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    Config::from_json(&null.to_string(), "agent.json").unwrap();
    assert!(!schema.is_valid(&json!({"version": "1.0", "agents": [{"id": "a", "tols": []}]})));
}
