//! Anthropic's wire over real TCP: the same faults as on OpenAI's, the same verdicts, the same counts.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::*;

fn anthropic(script: Value) -> Setup {
    Setup::new(script).agent(|agent| {
        agent["llm"]["provider"] = json!("anthropic");
        // Cargo sets it for every test, so that a key is there to be sent.
        agent["llm"]["api_key_env"] = json!("CARGO_MANIFEST_DIR");
        agent["tools"] = json!([{"id": "calc", "type": "calc"}]);
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_used_and_the_thoughts_go_back_with_their_proof() {
    let think = message(json!({
        "thinking": "I should calculate.", "text": "Let me see.",
        "tool_calls": [{"name": "calc", "arguments": {"expression": "6 * 7"}}],
    }));
    for mode in MODES {
        // The fault lab refuses thoughts without their signature, and results without their calls.
        let outcome = ask(mode, anthropic(once([think.clone(), text("It is {{tool_result}}.")]))).await;
        assert_eq!(outcome.output.as_deref().unwrap(), "It is 42.");
        let (first, second) = (&outcome.log[0], &outcome.log[1].body);
        assert!(first.path.ends_with("/v1/messages"), "{}", first.path);
        assert_eq!(first.headers["x-api-key"], env!("CARGO_MANIFEST_DIR"));
        assert_eq!(first.headers["anthropic-version"], "2023-06-01");
        assert!(!first.headers.contains_key("authorization"));
        let kinds = |turn: usize| -> Vec<&str> {
            let content = second["messages"][turn]["content"].as_array().unwrap();
            content.iter().map(|block| block["type"].as_str().unwrap()).collect()
        };
        assert_eq!((kinds(1), kinds(2)), (vec!["thinking", "text", "tool_use"], vec!["tool_result"]));
        let usage = &outcome.result().usage;
        assert!(usage.llm_calls == 2 && usage.input_tokens > 0 && usage.output_tokens > 0, "{usage:?}");
    }
}

/// A fault that lasts: code, reason and waits, by retry.md §5. Nothing is delivered where nobody watches.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_lasts_has_the_verdict_and_the_count_that_it_has_on_the_other_wire() {
    let of = |fault: Value| with_fault(text("never whole"), fault);
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let invalid = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
    let connection = ("llm.connection", "connection");
    let cut = ("llm.connection", "stream_interrupted");
    for (step, (code, reason), waits) in [
        (status(503), ("llm.connection", "server_error"), T_THEN_S),
        (http(529, json!({}), overloaded.clone()), ("llm.rate_limit", "overloaded"), T_THEN_S),
        (http(401, json!({}), Value::Null), ("llm.response", "auth"), NO_RETRY),
        (http(400, json!({}), invalid.clone()), ("llm.response", "invalid_request"), NO_RETRY),
        (of(json!("reset_before_headers")), connection, T_THEN_S),
        (of(json!("close_before_headers")), connection, T_THEN_S),
        (of(json!({"cut": {"after_events": 1, "by": "fin"}})), cut, T_THEN_S),
        (of(json!({"cut": {"after_events": 1, "by": "reset"}})), cut, T_THEN_S),
        (of(json!("short_body")), cut, T_THEN_S),
        (of(json!({"end_without_terminal": {"done": false}})), cut, T_THEN_S),
        (
            of(json!({"error_event": {"after_events": 0, "body": overloaded}})),
            ("llm.rate_limit", "overloaded"),
            T_THEN_S,
        ),
        (
            of(json!({"error_event": {"after_events": 0, "body": invalid}})),
            ("llm.response", "invalid_request"),
            NO_RETRY,
        ),
        (of(json!({"error_event": {"after_events": 0, "body": ""}})), cut, T_THEN_S),
    ] {
        let modes = match &step["fault"] {
            // A streamed answer that is whole is one, whatever was announced after its end.
            fault if fault == "short_body" => &UNWATCHED[..1],
            // An empty body in place of an answer is malformed: nothing broke off.
            fault if fault["error_event"]["body"] == "" => &UNWATCHED[1..],
            _ => &UNWATCHED[..],
        };
        let runs = modes.iter().map(|mode| ask(*mode, anthropic(always(step.clone()))));
        for outcome in join_all(runs).await {
            outcome.fails(code, reason, waits);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_network_may_do_to_the_bytes_of_a_good_answer_does_not_show() {
    for fault in [
        json!("crlf"),
        json!("lone_cr"),
        json!("split_utf8"),
        json!("split_headers"),
        json!({"drip": {"bytes": 3, "every_ms": 1}}),
        json!({"slow_headers": {"delay_ms": 20}}),
    ] {
        let script = || once([with_fault(text("größer 😀"), fault.clone())]);
        let openai = MODES.map(|mode| ask(mode, Setup::new(script())));
        let ours = MODES.map(|mode| ask(mode, anthropic(script())));
        for outcome in join_all(openai.into_iter().chain(ours)).await {
            outcome.gives("größer 😀", NO_RETRY);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_broke_is_asked_for_again_and_its_text_comes_once() {
    let broken = [
        json!({"cut": {"after_events": 4, "by": "reset"}}),
        json!({"malformed_event": {"after_events": 4}}),
        json!({"wrong_chunk_size": {"after_events": 4}}),
    ];
    for fault in broken {
        let script = || once([with_fault(text("one two three"), fault.clone()), text("one two three")]);
        for setup in [Setup::new(script()), anthropic(script())] {
            let outcome = ask(Mode::Watched, setup).await;
            let waits = outcome.waits();
            assert_eq!(waits.len(), 1, "{fault}: {:?}", outcome.output);
            outcome.gives("one two three", &waits);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_that_says_nothing_after_the_stop_reason_has_said_everything_and_anthropic_has_not() {
    let script = || once([with_fault(text("one two"), json!("end_after_reason")), text("one two")]);
    let compatible = |agent: &mut Value| agent["llm"]["provider"] = json!("anthropic_compatible");
    ask(Mode::Watched, anthropic(script()).agent(compatible)).await.gives("one two", NO_RETRY);
    ask(Mode::Watched, anthropic(script())).await.gives("one two", &[2_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_arguments_were_cut_off_is_never_run_whatever_the_end_says() {
    let calls = calls(&[("calc", json!({"expression": "6 * 7"}))]);
    for (fault, lying) in [(json!({}), false), (json!({"finish_reason": "tool_calls"}), true)] {
        let script =
            || once([with_fault(calls.clone(), json!({ "cut_arguments": fault.clone() })), text("done")]);
        let agent = |agent: &mut Value| agent["tools"] = json!([{"id": "calc", "type": "calc"}]);
        let openai = UNWATCHED.map(|mode| ask(mode, Setup::new(script()).agent(agent)));
        let ours = UNWATCHED.map(|mode| ask(mode, anthropic(script())));
        for outcome in join_all(openai.into_iter().chain(ours)).await {
            assert_eq!(outcome.output.as_deref().unwrap(), "done", "lying: {lying}");
            assert_eq!(outcome.result().usage.tool_calls, 0, "lying: {lying}");
            let failed = &outcome.events_of(aplomb::event::names::TOOL_FAILED)[0].payload;
            assert_eq!(failed["error_details"]["code"], "tool.validation");
        }
    }
}
