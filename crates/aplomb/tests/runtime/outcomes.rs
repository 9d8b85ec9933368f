//! What comes of answers: text, tool calls, answers that are none, limits, and `exec`.
use std::sync::{Arc, Mutex};

use crate::support::*;
use aplomb::event::names;
use aplomb::tools::{Tool, ToolContext};
use aplomb::{Error, StopReason, codes};
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};

// ---- Answers.

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_costs_one_request() {
    for mode in MODES {
        let outcome = ask(mode, Setup::new(once([text("{{input}} yourself")]))).await;
        outcome.gives("hi yourself", NO_RETRY);
        assert_eq!(outcome.log[0].path, "/v1/chat/completions");
        assert_eq!(outcome.log[0].body["model"], "m");
        assert_eq!(outcome.log[0].body["stream"] == true, mode != Mode::Plain);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_survives_the_ways_in_which_servers_write_event_streams() {
    let delta = |text: &str| json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }).to_string();
    let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let (one, two) = (delta("zwölf "), delta("日本"));
    for body in [
        format!("data: {one}\n\ndata: {two}\n\ndata: {end}\n\ndata: [DONE]\n\n"),
        format!(
            "\u{feff}data:{one}\r\n\r\n: ping\r\n\r\ndata:{two}\r\n\r\ndata:{end}\r\n\r\ndata:[DONE]\r\n\r\n"
        ),
        format!("id: 1\rretry: 9\rdata: {one}\r\rdata: {two}\r\rdata: {end}\r\rdata: [DONE]\r\r"),
        // The finish reason is the end; `[DONE]` may be missing.
        format!("data: {one}\n\ndata: {two}\n\ndata: {end}\n\n"),
    ] {
        let step = http(200, json!({ "content-type": "text/event-stream" }), json!(body));
        for mode in [Mode::Streamed, Mode::Watched] {
            ask(mode, Setup::new(once([step.clone()]))).await.gives("zwölf 日本", NO_RETRY);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_counted_over_all_calls_and_attempts() {
    let spent = |input: u64, output: u64| json!({ "prompt_tokens": input, "completion_tokens": output });
    // A failed attempt of which the provider says what it cost: 7 and 1.
    let plain = http(200, json!({}), json!({ "choices": [], "usage": spent(7, 1) }));
    let usage = json!({ "choices": [], "usage": spent(7, 1) }).to_string();
    let streamed = events(&[&usage, r#"{"error":{"message":"down","type":"server_error"}}"#]);
    for (mode, failed) in
        [(Mode::Plain, plain), (Mode::Streamed, streamed.clone()), (Mode::Watched, streamed)]
    {
        let script = once([
            failed,
            message(json!({ "tool_calls": [{ "name": "probe" }], "usage": spent(10, 5) })),
            message(json!({ "text": "done", "usage": spent(20, 3) })),
        ]);
        let outcome = ask(mode, Setup::new(script).tool("probe", Probe::saying("x"))).await;
        let used = &outcome.result().usage;
        assert_eq!(outcome.output.as_deref().ok(), Some("done"));
        assert_eq!((used.input_tokens, used.output_tokens, used.total_tokens), (37, 9, 46), "{mode:?}");
        assert_eq!((used.llm_calls, used.tool_calls, used.llm_retry_count), (2, 1, 1));
        let updates = outcome.events_of(names::USAGE_UPDATED);
        assert_eq!(updates.last().unwrap().payload["usage"]["total_tokens"], 46);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_200_that_holds_an_error_is_that_error() {
    let error = |kind: &str| json!({ "error": { "message": "that did not work", "type": kind } });
    for (kind, code, reason, waits) in [
        ("overloaded_error", "llm.rate_limit", "overloaded", T_THEN_S),
        ("server_error", "llm.connection", "server_error", T_THEN_S),
        ("invalid_request_error", "llm.response", "invalid_request", NO_RETRY),
        ("insufficient_quota", "llm.response", "quota_exhausted", NO_RETRY),
    ] {
        let script = always(http(200, json!({}), error(kind)));
        for outcome in join_all(MODES.map(|mode| ask(mode, Setup::new(script.clone())))).await {
            outcome.fails(code, reason, waits);
            assert!(outcome.error().message().contains("that did not work"), "{}", outcome.error());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_200_of_the_wrong_shape_fails_permanently_and_one_that_holds_nothing_is_asked_again() {
    let empty = json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": "" }, "finish_reason": "stop" }] });
    for (body, code, reason, waits) in [
        (json!("<html><body>Sign in</body></html>"), "llm.response", "malformed_response", NO_RETRY),
        (json!({}), "llm.response", "malformed_response", NO_RETRY),
        (json!({ "status": "queued" }), "llm.response", "malformed_response", NO_RETRY),
        (json!({ "choices": [] }), "llm.connection", "empty_response", T_THEN_S),
        (empty, "llm.connection", "empty_response", T_THEN_S),
        (Value::Null, "llm.connection", "malformed_response", T_THEN_S),
    ] {
        let script = always(http(200, json!({}), body));
        for outcome in join_all(MODES.map(|mode| ask(mode, Setup::new(script.clone())))).await {
            outcome.fails(code, reason, waits).permanently(waits.is_empty());
        }
    }
}

/// A frame of AWS's event stream, as Bedrock and what speaks like it end a 200 whose model refused the request. The two
/// checksums are not those of its bytes: nobody looks at them here.
///
/// Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>.
fn exception_frame(kind: &str, message: &str) -> String {
    // Below 128, so that it is one byte of a text.
    let byte = |length: usize| u8::try_from(length).ok().filter(u8::is_ascii).map(char::from).unwrap();
    let header =
        |name: &str, value: &str| format!("{}{name}\u{7}\0{}{value}", byte(name.len()), byte(value.len()));
    let headers = [header(":exception-type", kind), header(":message-type", "exception")].concat();
    let payload = json!({ "message": message }).to_string();
    let total = byte(4 + 4 + 4 + headers.len() + payload.len() + 4);
    format!("\0\0\0{total}\0\0\0{}sum1{headers}{payload}sum2", byte(headers.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_200_in_frames_that_hold_an_exception_fails_permanently() {
    let frame = exception_frame("validationException", "Could not process image");
    let content_type = json!({ "content-type": "application/vnd.amazon.eventstream" });
    let script = always(http(200, content_type, json!(frame)));
    for outcome in join_all(MODES.map(|mode| ask(mode, Setup::new(script.clone())))).await {
        outcome.fails("llm.response", "invalid_image", NO_RETRY).permanently(true);
        assert!(outcome.error().message().contains("Could not process image"), "{}", outcome.error());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_answer_without_a_word_is_no_answer() {
    let only_done = http(200, json!({ "content-type": "text/event-stream" }), json!("data: [DONE]\n\n"));
    for step in [message(json!({})), message(json!({ "text": "" })), only_done] {
        for mode in [Mode::Streamed, Mode::Watched] {
            let outcome = ask(mode, Setup::new(always(step.clone()))).await;
            outcome.fails("llm.connection", "empty_response", T_THEN_S);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_cut_off_at_the_token_limit_is_not_a_success() {
    let cut = message(json!({ "text": "one two", "finish_reason": "length" }));
    for mode in MODES {
        let outcome = ask(mode, Setup::new(always(cut.clone()))).await;
        assert_eq!((outcome.log.len(), outcome.error().code()), (1, codes::LLM_RESPONSE));
        assert_eq!(
            (outcome.result().stop_reason, &outcome.result().final_output),
            (StopReason::Failed, &None)
        );
        assert_eq!(outcome.context("partial_output"), "one two");
    }
    let nothing = message(json!({ "finish_reason": "length" }));
    for mode in MODES {
        let outcome = ask(mode, Setup::new(always(nothing.clone()))).await;
        outcome.fails("llm.response", "empty_response", NO_RETRY);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_filter_stopped_is_not_a_success() {
    let filtered = message(json!({ "text": "one two", "finish_reason": "content_filter" }));
    for mode in MODES {
        let outcome = ask(mode, Setup::new(always(filtered.clone()))).await;
        outcome.fails("llm.response", "content_filter", NO_RETRY);
    }
}

// ---- Tools.

/// One answer that calls tools and one that does not: the outcome, with the results that the model was told.
async fn told(mode: Mode, first: Value, setup: impl Fn(Setup) -> Setup) -> (Outcome, Vec<(String, String)>) {
    let outcome = ask(mode, setup(Setup::new(once([first, text("done")])))).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    assert_eq!((outcome.log.len(), outcome.waits()), (2, vec![]));
    let results = tool_results(&outcome.log[1]);
    (outcome, results)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_in_fragments_is_put_together_and_run_once() {
    let arguments = json!({ "text": "a \"quoted\" word, 日本, and more", "n": [1, 2.5, null] });
    let first = message(json!({
        "text": "Let me see.", "chunk_chars": 1,
        "tool_calls": [{ "id": "abc", "name": "probe", "arguments": arguments }],
    }));
    for mode in MODES {
        let probe = Probe::saying("forty-two");
        let (outcome, results) = told(mode, first.clone(), |setup| setup.tool("probe", probe.clone())).await;
        assert_eq!(probe.calls(), std::slice::from_ref(&arguments));
        assert_eq!(results, [("abc".to_owned(), "forty-two".to_owned())]);
        // What the model said is in the conversation as it was.
        let back = &messages(&outcome.log[1])[1];
        assert_eq!((&back["role"], &back["content"]), (&json!("assistant"), &json!("Let me see.")));
        let sent = back["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), arguments);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_are_answered_in_their_order_each_with_its_id() {
    let call = |id: &str, ms: u64| json!({ "id": id, "name": "sleep", "arguments": { "ms": ms } });
    // The first one is the last to end.
    let first = message(json!({ "tool_calls": [call("z", 60), call("a", 0), call("m", 20)] }));
    for mode in MODES {
        let sleep = Probe::new(|arguments| async move {
            let ms = arguments["ms"].as_u64().unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            Ok(json!(format!("slept {ms}")))
        });
        let (outcome, results) = told(mode, first.clone(), |setup| setup.tool("sleep", sleep.clone())).await;
        let expected = [("z", "slept 60"), ("a", "slept 0"), ("m", "slept 20")];
        assert_eq!(results, expected.map(|(id, said)| (id.to_owned(), said.to_owned())));
        assert_eq!((sleep.calls().len(), outcome.result().usage.tool_calls), (3, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_not_there_is_told_to_the_model_and_the_run_goes_on() {
    for mode in MODES {
        let probe = Probe::saying("x");
        let first = calls(&[("prob", json!({}))]);
        let (outcome, results) = told(mode, first, |setup| setup.tool("probe", probe.clone())).await;
        assert!(results[0].1.contains("tool.not_found"), "{results:?}");
        // A near match.
        assert!(results[0].1.contains("probe"), "{results:?}");
        assert_eq!(probe.calls(), [Value::Null; 0]);
        let failed = outcome.events_of(names::TOOL_FAILED);
        assert_eq!(failed[0].payload["error_details"]["code"], "tool.not_found");
        assert_eq!(failed[0].payload["error_details"]["context"]["tool_id"], "prob");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_no_json_object_are_told_to_the_model_and_the_tool_is_not_run() {
    for arguments in [r#"{"a": listt"#, r#"{"a": "#, "[1]", "null", "not json"] {
        for mode in MODES {
            let probe = Probe::saying("x");
            let first = message(json!({ "tool_calls": [{ "name": "probe", "arguments": arguments }] }));
            let (_, results) = told(mode, first, |setup| setup.tool("probe", probe.clone())).await;
            assert!(results[0].1.contains("tool.validation"), "{results:?}");
            // It was not cut off: asking for less would be no help.
            assert!(!results[0].1.contains("token limit"), "{results:?}");
            assert_eq!(probe.calls(), [Value::Null; 0]);
        }
    }
}

/// errors.md §3, `tool.validation`: "arguments do not fit the tool's schema, or the tool rejects them".
#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_do_not_fit_the_schema_are_told_to_the_model_and_the_tool_is_not_run() {
    let schema = json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        "additionalProperties": false,
    });
    for arguments in [json!({}), json!({ "n": "three" }), json!({ "n": 3, "m": 4 })] {
        let probe = Probe::saying("x").parameters(schema.clone());
        let first = calls(&[("probe", arguments)]);
        let (_, results) = told(Mode::Plain, first, |setup| setup.tool("probe", probe.clone())).await;
        assert!(results[0].1.contains("tool.validation"), "{results:?}");
        assert_eq!(probe.calls(), [Value::Null; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_cut_off_at_the_token_limit_is_told_to_the_model_and_not_run() {
    // Also where what there is of it happens to be whole.
    for arguments in [json!(r#"{"path": "/tmp/a", "te"#), json!({ "path": "/tmp/a" })] {
        for mode in MODES {
            let probe = Probe::saying("x");
            let call = json!({ "name": "probe", "arguments": arguments });
            let first = message(json!({ "tool_calls": [call], "finish_reason": "length" }));
            let (_, results) = told(mode, first, |setup| setup.tool("probe", probe.clone())).await;
            assert!(results[0].1.contains("tool.validation"), "{results:?}");
            assert!(results[0].1.contains("token limit"), "{results:?}");
            assert_eq!(probe.calls(), [Value::Null; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_calls_in_an_answer_that_was_cut_off_neither_is_run() {
    let call = |arguments: Value| json!({ "name": "probe", "arguments": arguments });
    let both = [call(json!({ "path": "/tmp/a" })), call(json!(r#"{"path": "/tmp/b", "te"#))];
    let first = message(json!({ "tool_calls": both, "finish_reason": "length" }));
    for mode in MODES {
        let probe = Probe::saying("x");
        let (_, results) = told(mode, first.clone(), |setup| setup.tool("probe", probe.clone())).await;
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|(_, said)| said.contains("token limit")), "{results:?}");
        assert_eq!(probe.calls(), [Value::Null; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_stream_breaks_is_run_once_the_whole_call_has_come() {
    let arguments = json!({ "text": "a rather long text, so that there are fragments" });
    let whole = calls(&[("probe", arguments.clone())]);
    for events in [2, 4, 99] {
        let cut = with_fault(whole.clone(), json!({ "cut": { "after_events": events, "by": "fin" } }));
        for mode in MODES {
            let probe = Probe::saying("x");
            let setup = Setup::new(once([cut.clone(), whole.clone(), text("done")]));
            let outcome = ask(mode, setup.tool("probe", probe.clone())).await;
            assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
            assert_eq!((probe.calls(), outcome.log.len()), (vec![arguments.clone()], 3));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_fails_or_panics_is_told_to_the_model_and_the_run_goes_on() {
    let fails = |error: Error| {
        Probe::new(move |_| {
            let error = error.clone();
            async move { Err(error) }
        })
    };
    let cases = [
        (
            fails(Error::new(codes::TOOL_PERMANENT, "the file is locked")),
            "tool.permanent",
            "the file is locked",
        ),
        (fails(Error::new(codes::TOOL_AUTH, "log in first")), "tool.auth", "log in first"),
        (Probe::new(|_| async { panic!("out of cheese") }), "tool.error", "out of cheese"),
        (Probe::new(|_| -> std::future::Ready<_> { panic!("out of cheese") }), "tool.error", "out of cheese"),
    ];
    for (probe, code, said) in cases {
        let first = calls(&[("probe", json!({}))]);
        let (outcome, results) = told(Mode::Plain, first, |setup| setup.tool("probe", probe.clone())).await;
        assert!(results[0].1.contains(code) && results[0].1.contains(said), "{results:?}");
        assert_eq!(probe.calls().len(), 1);
        let failed = outcome.events_of(names::TOOL_FAILED);
        assert_eq!((failed.len(), &failed[0].payload["error_details"]["code"]), (1, &json!(code)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_tool_call_is_not_run_again_whatever_fails_later() {
    let probe = Probe::saying("x");
    let call = calls(&[("probe", json!({}))]);
    let cut = with_fault(text("one two"), json!({ "cut": { "after_events": 2, "by": "fin" } }));
    let script = once([call, status(503), cut, status(502), text("done")]);
    let outcome = ask(Mode::Watched, Setup::new(script).tool("probe", probe.clone())).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    assert_eq!((probe.calls().len(), outcome.log.len()), (1, 5));
    // T 500; then two words were delivered, so S 2000 and 4000.
    assert_eq!(outcome.waits(), [500, 2_000, 4_000]);
}

/// retry.md §5, step 5: what has delivered is the session's, and it is that step alone which is asked again.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_the_middle_of_a_later_answer_costs_that_answer_alone() {
    let probe = Probe::saying("x");
    let error = json!({ "error": { "message": "Overloaded", "type": "overloaded_error" } });
    let breaks =
        with_fault(text("one two three"), json!({ "error_event": { "after_events": 3, "body": error } }));
    let script = once([calls(&[("probe", json!({}))]), breaks, text("done")]);
    let outcome = ask(Mode::Watched, Setup::new(script).tool("probe", probe.clone())).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    assert_eq!((probe.calls().len(), outcome.log.len(), outcome.waits()), (1, 3, vec![2_000]));
}

/// A tool that notes by which key it was called, and fails the first two times.
#[derive(Clone, Default)]
struct Keyed {
    keys: Arc<Mutex<Vec<(String, String)>>>,
}

impl Tool for Keyed {
    fn description(&self) -> &str {
        "pays"
    }

    fn parameters(&self) -> Value {
        json!({ "type": "object" })
    }

    fn call(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        let mut keys = self.keys.lock().unwrap();
        keys.push((context.run_id, context.idempotency_key));
        let paid =
            if keys.len() < 3 { Err(Error::new(codes::TOOL_UNAVAILABLE, "down")) } else { Ok(json!("paid")) };
        Box::pin(std::future::ready(paid))
    }
}

/// runtime.md §6: "an idempotency key that is stable over retries".
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_called_again_is_called_by_the_same_key_and_other_calls_by_others() {
    let keyed = Keyed::default();
    let two = calls(&[("pay", json!({})), ("pay", json!({}))]);
    let setup = Setup::new(once([
        calls(&[("pay", json!({}))]),
        two,
        text("done"),
        calls(&[("pay", json!({}))]),
        text("done"),
    ]))
    .tool("pay", keyed.clone())
    .agent(|agent| agent["tool_executor"] = json!({ "type": "retry" }));
    let lab = setup.start().await;
    for _ in 0..2 {
        let outcome = lab.run(hi().run_id("today: täglich")).await;
        assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    }
    let keys = keyed.keys.lock().unwrap().clone();
    // Three attempts of the first call; two calls in one answer; and one of another run, which has the same
    // id, and whose provider begins again with the same ids.
    assert_eq!(keys.len(), 6);
    assert!(keys[0] == keys[1] && keys[1] == keys[2], "{keys:?}");
    let different: std::collections::BTreeSet<_> = keys.iter().map(|(_, key)| key).collect();
    assert_eq!(different.len(), 4, "{keys:?}");
    assert!(keys.iter().all(|(run, _)| run == "today: täglich"), "{keys:?}");
    // RFC 9110, §5.5: what a field's value may be.
    let visible = |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(keys.iter().all(|(_, key)| visible(key)), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_a_run_has_a_ledger_of_its_own() {
    let fails_five_times = || json!({ "reply": { "http": { "status": 503 } }, "repeat": 5 });
    let call = calls(&[("probe", json!({}))]);
    let script = once([fails_five_times(), call, fails_five_times(), text("done")]);
    let outcome = ask(Mode::Plain, Setup::new(script).tool("probe", Probe::saying("x"))).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    assert_eq!((outcome.log.len(), outcome.waits()), (12, [T_THEN_S, T_THEN_S].concat()));
}

// ---- Limits.

fn two_steps(agent: &mut Value) {
    agent["runtime"] = json!({ "max_steps": 2 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_converge_ends_after_max_steps_model_calls() {
    let call = calls(&[("probe", json!({}))]);
    for mode in MODES {
        let setup = Setup::new(always(call.clone())).tool("probe", Probe::saying("x")).agent(two_steps);
        let outcome = ask(mode, setup).await;
        assert_eq!((outcome.error().code(), outcome.log.len()), (codes::EXECUTION_MAX_STEPS, 2));
        assert_eq!(outcome.result().stop_reason, StopReason::MaxSteps);
        assert_eq!((outcome.context("current"), outcome.context("limit")), (json!(2), json!(2)));
        assert!(outcome.error().hint().unwrap().contains("max_steps"));
        let completed = outcome.events_of(names::SESSION_RUN_COMPLETED);
        assert_eq!(completed[0].payload["stop_reason"], "max_steps");
    }
}

/// Whatever is told to the model and asked for by it again costs a step each time, and no wait: what is the same every time
/// ends at the limit, also where each round looks like progress.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_model_repeats_ends_at_max_steps() {
    let fails = |error: fn() -> Error| Probe::new(move |_| async move { Err(error()) });
    let again = || fails(|| Error::new(codes::LLM_MODEL_RETRY, "say it otherwise"));
    let call = |arguments: Value| json!({ "tool_calls": [{ "name": "probe", "arguments": arguments }] });
    let cut = || {
        let mut cut = call(json!({}));
        cut["finish_reason"] = json!("length");
        message(cut)
    };
    let whole = || message(call(json!({})));
    let (safe, retry) = ("safe", "retry");
    for (name, step, probe, executor, runs) in [
        ("a tool that is not there", calls(&[("nobody", json!({}))]), Probe::saying("x"), safe, 0),
        ("a call that is cut off", cut(), Probe::saying("x"), safe, 0),
        ("arguments that are no JSON", message(call(json!(r#"{"a": listt"#))), Probe::saying("x"), safe, 0),
        ("a tool that asks for another call", whole(), again(), safe, 3),
        ("a tool that asks for another call, by the retry executor", whole(), again(), retry, 3),
        ("a tool that fails", whole(), fails(|| Error::new(codes::TOOL_PERMANENT, "no")), safe, 3),
    ] {
        for mode in MODES {
            let before = probe.calls().len();
            let setup = Setup::new(always(step.clone())).tool("probe", probe.clone()).agent(move |agent| {
                agent["runtime"] = json!({ "max_steps": 3 });
                agent["tool_executor"] = json!({ "type": executor });
            });
            let outcome = ask(mode, setup).await;
            let error = outcome.error();
            assert_eq!(error.code(), codes::EXECUTION_MAX_STEPS, "{name}, {mode:?}: {error}");
            assert_eq!(outcome.result().stop_reason, StopReason::MaxSteps, "{name}, {mode:?}");
            assert_eq!(
                (outcome.context("current"), outcome.context("limit")),
                (json!(3), json!(3)),
                "{name}"
            );
            assert_eq!((outcome.log.len(), outcome.waits()), (3, vec![]), "{name}, {mode:?}");
            assert_eq!(probe.calls().len() - before, runs, "{name}, {mode:?}");
            assert_eq!(outcome.events_of(names::TOOL_RETRY_REQUESTED).len(), 0, "{name}, {mode:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_no_steps() {
    let setup = Setup::new(once([status(503), status(503), status(503), text("ok")])).agent(two_steps);
    ask(Mode::Plain, setup).await.gives("ok", &[500, 1_000, 2_000]);
}

/// runtime.md §1: "Partial results are attached to the error."
#[tokio::test(flavor = "multi_thread")]
async fn what_the_model_said_so_far_is_attached_to_the_error_of_a_limit() {
    let first = message(json!({ "text": "Half of it is 21.", "tool_calls": [{ "name": "probe" }] }));
    let setup = Setup::new(always(first)).tool("probe", Probe::saying("x")).agent(two_steps);
    let outcome = ask(Mode::Plain, setup).await;
    assert_eq!(outcome.error().code(), codes::EXECUTION_MAX_STEPS);
    let context = json!(outcome.error().to_dict().context).to_string();
    assert!(context.contains("Half of it is 21."), "{context}");
}

// ---- exec.

#[tokio::test(flavor = "multi_thread")]
async fn exec_calls_its_hook_once_per_retry_with_the_retrys_data() {
    let lab = Lab::new(once([status(503), status(502), status(500), text("ok")])).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let outcome = lab.exec(|exec| exec.on_retry(move |retry| kept.lock().unwrap().push(retry.clone()))).await;
    outcome.gives("ok", &[500, 1_000, 2_000]);
    let seen = seen.lock().unwrap();
    let summary: Vec<_> = seen
        .iter()
        .map(|retry| (retry.attempt, retry.max_attempts, retry.layer.as_str(), retry.delay_ms))
        .collect();
    assert_eq!(summary, [(1, 6, "transport", 500), (2, 6, "transport", 1_000), (3, 6, "session", 2_000)]);
    for (retry, status) in seen.iter().zip(["503", "502", "500"]) {
        assert_eq!((retry.reason.as_str(), retry.delay_source.as_str()), ("server_error", "backoff"));
        assert!(retry.error.contains(status) && !retry.rule.is_empty(), "{retry:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_calls_its_hook_neither_for_an_answer_nor_for_giving_up() {
    for script in [once([text("ok")]), always(status(401))] {
        let lab = Lab::new(script).await;
        let called = Arc::new(Mutex::new(0));
        let counter = called.clone();
        let outcome = lab.exec(|exec| exec.on_retry(move |_| *counter.lock().unwrap() += 1)).await;
        assert_eq!((outcome.log.len(), *called.lock().unwrap()), (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_as_the_only_owner_serves_what_is_retryable_too() {
    let lab = Setup::new(always(status(503))).agent(no_retries).start().await;
    lab.exec(|exec| exec).await.fails("llm.connection", "server_error", X_ONLY);
    // And run, without an owner, makes one request.
    lab.run(hi()).await.fails("llm.connection", "server_error", NO_RETRY);
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_with_one_attempt_makes_one_request() {
    let one = |agent: &mut Value| agent["retry"]["exec"] = json!({ "max_retries": 1 });
    let unknown = Setup::new(always(status(418))).agent(one).start().await;
    unknown.exec(|exec| exec).await.fails("llm.error", "unknown", NO_RETRY);
    let alone = Setup::new(always(status(503))).agent(no_retries).agent(move |agent| {
        agent["retry"]["exec"] = json!({ "max_retries": 1 });
    });
    alone.start().await.exec(|exec| exec).await.fails("llm.connection", "server_error", NO_RETRY);
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_with_four_attempts_waits_one_and_a_half_three_and_six_seconds() {
    let four = |agent: &mut Value| agent["retry"]["exec"] = json!({ "max_retries": 4 });
    let lab = Setup::new(always(status(418))).agent(four).start().await;
    lab.exec(|exec| exec).await.fails("llm.error", "unknown", &[1_500, 3_000, 6_000]);
}
