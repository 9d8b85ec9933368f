//! `aplomb policy`: counts and waits are those of `docs/spec/retry.md`. The golden files are in `snapshots`.

use serde_json::{Value, json};

use crate::support::{Finished, QUICKSTART, aplomb, file, output};

fn policy(document: &Value, arguments: &[&str]) -> Finished {
    let config = file(&document.to_string());
    output(aplomb().args(["policy", config.path().to_str().unwrap()]).args(arguments))
}

/// One agent whose key is not there.
fn keyless(change: impl FnOnce(&mut Value)) -> Value {
    let mut agent = json!({"id": "a", "llm": {"provider": "anthropic", "model": "m", "api_key_env": "APLOMB_TEST_UNSET_KEY"}});
    change(&mut agent);
    json!({"version": "1.0", "agents": [agent]})
}

fn text(document: &Value) -> String {
    let told = policy(document, &[]);
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    assert!(told.stdout.lines().all(|line| line.chars().count() <= 100), "{}", told.stdout);
    told.stdout
}

#[test]
fn the_defaults_of_the_quickstart() {
    let told = output(aplomb().args(["policy", QUICKSTART]));
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    insta::assert_snapshot!(told.stdout);
}

#[test]
fn other_models_and_settings_that_defeat_each_other() {
    insta::assert_snapshot!(text(&keyless(|agent| {
        agent["llm"]["retry"] = json!({"jitter": "equal", "total_budget_ms": 20_000});
        agent["llm"]["fallbacks"] =
            json!([{"provider": "openai", "model": "m"}, {"provider": "gemini", "model": "m"}]);
        agent["retry"] = json!({"session": {"base_delay_ms": 20_000, "max_retries": 3}});
    })));
}

#[test]
fn layers_that_multiply() {
    insta::assert_snapshot!(text(&keyless(|agent| {
        agent["llm"]["retry"] = json!({"mode": "layered", "jitter": "none"});
    })));
}

#[test]
fn what_is_out_of_all_measure_stays_in_its_columns() {
    let told = text(&keyless(|agent| {
        agent["llm"]["retry"] = json!({"mode": "layered", "max_attempts": 100, "initial_backoff_ms": 60_000, "max_backoff_ms": 60_000});
        agent["retry"] = json!({"session": {"max_retries": 100, "base_delay_ms": 0}, "exec": {"max_retries": 100, "base_delay_ms": 0}});
    }));
    assert!(told.contains("1000+") && told.contains("> 1 year"), "{told}");
}

#[test]
fn for_programs_it_is_one_object_by_class_mode_and_entry_point() {
    let told = policy(&keyless(|_| ()), &["--format", "json"]);
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    let told = told.json();
    assert_eq!((&told["agent"], &told["mode"]), (&json!("a"), &json!("additive")));
    let requests =
        |class: &str, mode: &str, entry: &str| told["classes"][class][mode][entry]["requests"].clone();
    // docs/spec/retry.md §5: 1 + T 2 + S 3; unknown is exec's alone. §2: 3 × 4 × 3.
    for (class, run, exec, layered) in
        [("503", 6, 6, 36), ("500", 6, 6, 12), ("unknown", 1, 3, 3), ("permanent", 1, 1, 1)]
    {
        let found = [("additive", "run"), ("additive", "exec"), ("layered", "exec")]
            .map(|(mode, entry)| requests(class, mode, entry));
        assert_eq!(found, [json!(run), json!(exec), json!(layered)], "{class}");
    }
    assert_eq!(told["classes"]["503"]["layered"]["exec"]["wait_ms"], 64_500);
    // (1 + 2) × 1 + 3 + 1 × (2 + 2) + 1.
    assert_eq!(told["worst_case"]["additive"]["run"]["requests"], 11);
    assert_eq!(told["warnings"], json!([]));
}

#[test]
fn time_limits_of_attempts_and_steps_are_part_of_it() {
    let told = policy(
        &keyless(|agent| {
            agent["runtime"] = json!({"step_timeout_ms": 5_000});
            agent["llm"]["timeouts"] = json!({"attempt_ms": 6_000});
        }),
        &["--format", "json"],
    );
    let told = told.json();
    // The step ends the first attempt that hangs.
    assert_eq!(told["warnings"][0]["setting"], "runtime.step_timeout_ms");
    let timeout = &told["classes"]["timeout"]["additive"]["run"];
    assert_eq!((&timeout["attempt_ms"], &timeout["requests"]), (&json!(6_000), &json!(1)));
    let told =
        policy(&keyless(|agent| agent["llm"]["timeout_ms"] = json!(9_000)), &["--format", "json"]).json();
    let timeout = &told["classes"]["timeout"]["additive"]["run"];
    assert_eq!((&timeout["attempt_ms"], &timeout["requests"]), (&json!(9_000), &json!(6)));
}

#[test]
fn a_run_that_may_not_take_long_makes_the_retries_that_end_in_its_time() {
    let told = policy(&keyless(|_| ()), &["--format", "json", "--timeout-ms", "3000"]).json();
    // Waits of 0.5, 1 and 2 s: the third would end after 3.5 s, so it is not begun.
    let of = |class: &str| told["classes"][class]["additive"]["run"].clone();
    assert_eq!((&of("503")["requests"], &of("503")["wait_ms"]), (&json!(3), &json!(1_500)));
    // What hears nothing for 30 s hears nothing until the run is over.
    assert_eq!((&of("timeout")["requests"], &of("timeout")["attempt_ms"]), (&json!(1), &json!(3_000)));
    let warning = &told["warnings"][0];
    assert_eq!(warning["setting"], "llm.timeouts.first_byte_ms");
    assert!(warning["message"].as_str().unwrap().contains("timeout is 3000 ms"), "{warning}");
    let told = policy(&keyless(|_| ()), &["--timeout-ms", "400"]).stdout;
    assert!(told.contains("1 model, a run of at most 0.4 s"), "{told}");
    assert!(told.contains("warning: timeout: 400 ms are over before the first wait"), "{told}");
}

#[test]
fn it_needs_to_know_which_agent_and_refuses_a_config_that_is_wrong() {
    let mut two = keyless(|_| ());
    let mut other = two["agents"][0].clone();
    other["id"] = json!("billing");
    other["llm"]["retry"] = json!({"max_attempts": 1});
    two["agents"].as_array_mut().unwrap().push(other);
    let refused = policy(&two, &[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("--agent: a, billing"), "{}", refused.stderr);
    let chosen = policy(&two, &["--agent", "billing", "--format", "json"]).json();
    // 1 + S 3.
    assert_eq!(chosen["classes"]["503"]["additive"]["run"]["requests"], 4);
    let misspelt = policy(&two, &["--agent", "biling", "--format", "json"]);
    assert_eq!(misspelt.json()["error_details"]["code"], "user.agent_not_found");
    assert!(misspelt.stderr.contains("did you mean \"billing\"?"), "{}", misspelt.stderr);
    let wrong = policy(&keyless(|agent| agent["llm"]["retry"] = json!({"max_attempts": 0})), &[]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""));
    assert!(wrong.stderr.contains("max_attempts"), "{}", wrong.stderr);
}
