//! `aplomb run` as its users see it: what it prints where, and how it exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::support::{Finished, QUICKSTART, aplomb, config, file, output, says, status};
use serde_json::{Value, json};

fn run(config: &str, arguments: &[&str]) -> Finished {
    output(aplomb().args(["run", config]).args(arguments))
}

#[test]
fn the_quickstart_survives_a_rate_limit_and_a_cut_stream_uses_its_tool_and_says_81() {
    let run = run(QUICKSTART, &["--input", "What is 9 * 9?", "--format", "text"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "The answer is 81.\n"));
    for talk in ["rate_limit", "(retry-after)", "stream_interrupted", "calc → 81"] {
        assert!(run.stderr.contains(talk), "{talk}: {}", run.stderr);
    }
}

#[test]
fn the_quickstarts_answer_follows_the_question() {
    let run = run(QUICKSTART, &["--input", "What is (2 + 3) * 4?", "--format", "text"]);
    assert_eq!(run.stdout, "The answer is 20.\n");
}

#[test]
fn without_its_tool_the_quickstart_knows_no_number() {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(QUICKSTART).unwrap()).unwrap();
    config["agents"][0]["tools"] = json!([]);
    let config = file(&config.to_string());
    let run = run(config.path().to_str().unwrap(), &["--input", "What is 9 * 9?", "--format", "text"]);
    assert_eq!(run.code, Some(0));
    assert!(!run.stdout.contains(|character: char| character.is_ascii_digit()), "{}", run.stdout);
}

#[test]
fn into_a_pipe_go_events_from_the_runs_start_to_its_end_and_nothing_that_became_void() {
    let run = run(QUICKSTART, &["--input", "What is 9 * 9?"]);
    let events = run.events();
    let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"session.run.started"), Some(&"session.run.completed")));
    assert!(events.iter().enumerate().all(|(index, event)| event["sequence"] == index));
    assert!(!names.contains(&"llm.restarted"));
    let texts =
        events.iter().filter(|event| event["name"] == "llm.delta" && event["payload"]["kind"] == "text");
    let texts: Vec<_> = texts.map(|event| event["payload"]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["The answer is 81."]);
}

#[test]
fn the_result_as_json_is_one_object() {
    let config = config(json!([says("hello")]));
    let run = run(config.path().to_str().unwrap(), &["--input", "hi", "--format", "json", "--run-id", "r1"]);
    let result = run.json();
    assert_eq!(run.code, Some(0));
    assert_eq!(
        (&result["final_output"], &result["stop_reason"], &result["run_id"], &result["error_details"]),
        (&json!("hello"), &json!("completed"), &json!("r1"), &Value::Null)
    );
    assert_eq!(result["usage"]["llm_calls"], 1);
}

#[test]
fn a_failed_run_says_code_cause_every_attempt_and_hint_in_every_format_and_exits_with_3() {
    for format in ["text", "json", "events"] {
        let config = config(json!([status(503, json!({"error": {"message": "no capacity"}}))]));
        let run = run(config.path().to_str().unwrap(), &["--input", "hi", "--format", format]);
        assert_eq!(run.code, Some(3), "{format}");
        for talk in [
            "error[llm.connection]",
            "failed after 6 attempts",
            "attempt 1 ",
            "attempt 6 ",
            "no capacity",
            "hint:",
        ] {
            assert!(run.stderr.contains(talk), "{format}: {talk}: {}", run.stderr);
        }
        if format == "text" {
            assert_eq!(run.stdout, "");
        }
    }
}

#[test]
fn a_permanent_failure_is_tried_once_and_shows_the_request_id() {
    let mut refused =
        status(401, json!({"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}));
    refused["reply"]["http"]["headers"] = json!({"x-request-id": "req_42"});
    let config = config(json!([refused]));
    let run = run(config.path().to_str().unwrap(), &["--input", "hi", "--format", "json"]);
    let details = &run.json()["error_details"];
    assert_eq!(run.code, Some(3));
    assert_eq!((&details["code"], &details["retryable"]), (&json!("llm.response"), &json!(false)));
    assert_eq!(details["attempts"].as_array().unwrap().len(), 1);
    assert_eq!((&details["context"]["status"], &details["context"]["reason"]), (&json!(401), &json!("auth")));
    assert!(run.stderr.contains("failed permanently") && run.stderr.contains("req_42"), "{}", run.stderr);
}

#[test]
fn a_run_that_is_out_of_time_says_which_limit_and_exits_with_3() {
    let config = config(json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]));
    let run =
        run(config.path().to_str().unwrap(), &["--input", "hi", "--timeout-ms", "300", "--format", "json"]);
    assert_eq!((run.code, &run.json()["stop_reason"]), (Some(3), &json!("timeout")));
    assert_eq!(run.json()["error_details"]["context"]["limit_ms"], 300);
    assert!(run.stderr.contains("error[execution.timeout]"), "{}", run.stderr);
}

/// An agent that calls its tool for ever. Each answer costs 1,000 × 3 + 100 × 15 millionths of a dollar: 0.0045 USD.
fn without_end() -> tempfile::NamedTempFile {
    let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 100});
    let call =
        json!({"tool_calls": [{"name": "calc", "arguments": {"expression": "9 * 9"}}], "usage": usage});
    let script = json!({"steps": [{"reply": {"message": call}}], "at_end": "repeat_last"});
    let llm = json!({"provider": "mock", "script": script, "pricing": {"input": 3, "output": 15}});
    let agent = json!({"id": "a", "llm": llm, "tools": [{"id": "calc", "type": "calc"}]});
    file(&json!({"version": "1.0", "agents": [agent]}).to_string())
}

#[test]
fn a_budget_that_is_used_up_says_so_with_code_and_hint_in_every_format_and_exits_with_3() {
    let endless = without_end();
    let silent = config(json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]));
    for (config, option, limit, kind) in [
        (&endless, "--max-steps", "2", "steps"),
        (&endless, "--max-tool-calls", "2", "tool_calls"),
        (&endless, "--max-cost-usd", "0.006", "cost"),
        (&silent, "--max-duration-ms", "300", "duration"),
    ] {
        for format in ["text", "json", "events"] {
            let path = config.path().to_str().unwrap();
            let run = run(path, &["--input", "hi", option, limit, "--format", format]);
            assert_eq!(run.code, Some(3), "{option} {format}: {}", run.stderr);
            let field = option.trim_start_matches("--").replace('-', "_");
            for talk in ["error[execution.budget_exhausted]", &*field, "hint: raise the budget's"] {
                assert!(run.stderr.contains(talk), "{option} {format} {talk}: {}", run.stderr);
            }
            if format == "json" {
                let result = run.json();
                assert_eq!(result["stop_reason"], "budget_exhausted");
                let context = &result["error_details"]["context"];
                assert_eq!((&context["kind"], context["limit"].as_f64()), (&json!(kind), limit.parse().ok()));
            }
        }
    }
}

#[test]
fn a_limit_that_is_none_is_a_usage_error() {
    let endless = without_end();
    for arguments in [
        ["--max-steps", "0"],
        ["--max-duration-ms", "0"],
        ["--max-tool-calls", "-1"],
        ["--max-cost-usd", "0"],
        ["--max-cost-usd", "nan"],
        ["--max-cost-usd", "inf"],
        ["--max-cost-usd", "1 USD"],
        ["--unpriced", "maybe"],
    ] {
        let run = run(endless.path().to_str().unwrap(), &[&["--input", "hi"][..], &arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn what_a_run_cost_is_told_where_it_is_known() {
    let endless = without_end();
    let path = endless.path().to_str().unwrap();
    let text = run(path, &["--input", "hi", "--format", "text", "--max-steps", "2"]);
    assert!(text.stderr.contains("cost: $0.009\n"), "{}", text.stderr);
    let usage = run(path, &["--input", "hi", "--format", "json", "--max-steps", "2"]).json()["usage"].clone();
    assert_eq!(
        (&usage["cost_usd"], &usage["cost_breakdown"]["mock/mock"]["cost_usd"]),
        (&json!(0.009), &json!(0.009))
    );
    let events = run(path, &["--input", "hi", "--max-steps", "2"]).events();
    let updated: Vec<_> = events.iter().filter(|event| event["name"] == "usage.updated").collect();
    assert_eq!(updated[0]["payload"]["usage"]["cost_usd"], 0.0045);
    let unpriced = config(json!([says("hello")]));
    let path = unpriced.path().to_str().unwrap();
    assert_eq!(run(path, &["--input", "hi", "--format", "text"]).stderr, "");
    let usage = run(path, &["--input", "hi", "--format", "json"]).json()["usage"].clone();
    assert_eq!(usage["cost_usd"], Value::Null);
}

#[test]
fn input_comes_from_the_option_a_file_or_standard_input() {
    let echo = json!([says("{{input}}")]);
    let config = config(echo);
    let config = config.path().to_str().unwrap();
    let from_stdin = |arguments: &[&str]| {
        let mut child = aplomb()
            .args(["run", config, "--format", "text"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"from stdin").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let text = file("from a file");
    assert_eq!(run(config, &["--format", "text", "--input", "-dashed"]).stdout, "-dashed\n");
    assert_eq!(
        run(config, &["--format", "text", "--input-file", text.path().to_str().unwrap()]).stdout,
        "from a file\n"
    );
    assert_eq!(from_stdin(&[]), "from stdin\n");
    assert_eq!(from_stdin(&["--input", "-"]), "from stdin\n");
    assert_eq!(from_stdin(&["--input-file", "-"]), "from stdin\n");
}

#[test]
fn what_the_user_got_wrong_exits_with_1() {
    let two = file(
        &json!({"version": "1.0", "agents": [
            {"id": "a", "llm": {"provider": "mock", "model": "m", "script": {"steps": [says("a")]}}},
            {"id": "b", "llm": {"provider": "mock", "model": "m", "script": {"steps": [says("b")]}}}
        ]})
        .to_string(),
    );
    let two = two.path().to_str().unwrap();
    for (arguments, code, hint) in [
        (&["--input", "hi"][..], "user.invalid_input", "a, b"),
        (&["--input", "hi", "--agent", "c"], "user.agent_not_found", "a, b"),
        (&["--input", "  ", "--agent", "a"], "user.invalid_input", "say something"),
        (&["--input-file", "/no/such/file", "--agent", "a"], "user.invalid_input", ""),
    ] {
        let run = run(two, arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(run.stderr.contains(code) && run.stderr.contains(hint), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(run(two, &["--input", "hi", "--agent", "b", "--format", "text"]).stdout, "b\n");
    for arguments in [&["--nonsense"][..], &["--timeout-ms", "0"], &["--format", "xml"]] {
        assert_eq!(run(two, arguments).code, Some(1), "{arguments:?}");
    }
    assert_eq!(output(aplomb().arg("--help")).code, Some(0));
}

#[test]
fn what_the_config_got_wrong_exits_with_2_and_names_the_place() {
    let missing = run("/no/such/agent.json", &["--input", "hi"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("config.load") && missing.stderr.contains("/no/such/agent.json"));
    for (text, code, place) in [
        ("{\n  \"version\": \"1.0\",\n  \"agents\": [}", "config.load", ":3:14"),
        ("{\n  \"version\": \"1.0\",\n  \"agnets\": []\n}", "config.validation", ":3:3"),
        (r#"{"version": "1.0", "agents": []}"#, "config.validation", "agents"),
        (
            r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "mock", "model": "m", "script": {"steps": [{"reply": {"message": {"text": "{{nope}}"}}}]}}}]}"#,
            "config.validation",
            "steps[0].reply.message.text",
        ),
        (
            r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "openai_compatible", "model": "m"}}]}"#,
            "config.validation",
            "agents[0].llm.api_base",
        ),
        (
            r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "openai_compatible", "model": "m", "api_base": "http://127.0.0.1:9/v1", "api_key_env": "APLOMB_TEST_UNSET_KEY"}}]}"#,
            "config.load",
            "APLOMB_TEST_UNSET_KEY",
        ),
        (
            r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "openai_compatible", "model": "m", "api_base": "http://127.0.0.1:9/v1", "retry": {"max_attempts": 0}}}]}"#,
            "config.validation",
            "use 1 to disable retries",
        ),
    ] {
        let config = file(text);
        let run = run(config.path().to_str().unwrap(), &["--input", "hi"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{text}");
        assert!(run.stderr.contains(code) && run.stderr.contains(place), "{text}: {}", run.stderr);
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    // More output than a pipe holds, so that the writer is sure to notice.
    let config = config(json!([says(&"long ".repeat(100_000))]));
    let mut child =
        spawn(aplomb().args(["run", config.path().to_str().unwrap(), "--input", "hi", "--format", "events"]));
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn a_signal_cancels_the_run_and_is_its_exit_code() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let config = config(json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]));
        let mut child = spawn(aplomb().args([
            "run",
            config.path().to_str().unwrap(),
            "--input",
            "hi",
            "--format",
            "events",
        ]));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The signals are listened for before the first event.
        assert!(lines.next().unwrap().unwrap().contains("session.run.started"));
        let sent =
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{stderr}");
        assert!(stderr.contains("error[execution.cancelled]") && stderr.contains(signal), "{stderr}");
        assert!(lines.last().unwrap().unwrap().contains(r#""stop_reason":"cancelled""#));
    }
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_paused_reader_holds_up_neither_the_deadline_nor_a_signal() {
    // More than a pipe holds, again and again, and nobody reads.
    let long = "long ".repeat(100_000);
    let call =
        json!({"reply": {"message": {"text": long, "tool_calls": [{"name": "nosuch", "arguments": {}}]}}});
    let config = config(json!([call]));
    let mut child =
        spawn(aplomb().args(["run", config.path().to_str().unwrap(), "--input", "hi", "--format", "events"]));
    // Held open and not read.
    let stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = child.wait().unwrap().code();
    drop(stdout);
    let mut talk = String::new();
    stderr.read_to_string(&mut talk).unwrap();
    // Whether it was still running or waited for its reader: the signal ended it.
    assert_eq!(ended, Some(130), "{talk}");
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error_and_not_a_success() {
    let config = config(json!([says("hello")]));
    for format in ["text", "json", "events"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = aplomb();
        command.args(["run", config.path().to_str().unwrap(), "--input", "hi", "--format", format]);
        let run = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(3), "{format}: {stderr}");
        assert!(stderr.contains("cannot write to standard output"), "{format}: {stderr}");
    }
}

#[test]
fn an_answer_goes_into_a_pipe_as_it_is() {
    let config = config(json!([says("a\u{1b}[31mred")]));
    let run = run(config.path().to_str().unwrap(), &["--input", "hi", "--format", "text"]);
    assert_eq!(run.stdout, "a\u{1b}[31mred\n");
}

#[test]
fn a_config_error_does_not_repeat_a_value_that_may_be_a_credential() {
    let secret = "Authorization: Bearer s3cret-token-123";
    let llm = json!({"provider": "openai_compatible", "model": "m", "api_base": "http://127.0.0.1:9/v1"});
    for (field, value) in [
        ("extra_headers", json!(secret)),
        ("api_base", json!("http://user:s3cret-token-123@127.0.0.1:9/v1")),
        ("api_key_env", json!("s3cret-token-123")),
        ("extra_headers", json!({"authorization": "${SECRET_TOKEN}"})),
    ] {
        let mut llm = llm.clone();
        llm[field] = value;
        let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
        let run = run(config.path().to_str().unwrap(), &["--input", "hi"]);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(!run.stderr.contains("s3cret") && run.stderr.contains(field), "{}", run.stderr);
    }
}
