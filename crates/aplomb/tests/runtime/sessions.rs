//! What a session remembers, and how runs end that do not end by themselves: by a deadline, by a cancellation.
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::crossing::WIRES;
use crate::support::*;
use aplomb::event::names;
use aplomb::host::{Host, SystemHost};
use aplomb::plugins::NoConfig;
use aplomb::{Cancellation, Error, Memory, Message, RunRequest, StopReason, codes};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};

// ---- Memory.

fn remembering(agent: &mut Value) {
    agent["memory"] = json!({ "type": "buffer" });
}

fn turn(session: &str, input: &str) -> RunRequest {
    RunRequest::new("assistant", input).session_id(session)
}

fn pairs(said: &[(&str, &str)]) -> Vec<(String, String)> {
    said.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_run_of_a_session_sees_the_first_turn() {
    let lab = Setup::new(always(text("re: {{input}}"))).agent(remembering).start().await;
    lab.run(turn("s", "one")).await.gives("re: one", NO_RETRY);
    let second = lab.watch(turn("s", "two")).await;
    second.gives("re: two", NO_RETRY);
    let expected = [("user", "one"), ("assistant", "re: one"), ("user", "two")];
    assert_eq!(said(&second.log[0]), pairs(&expected));
    // Another session knows nothing of it.
    let other = lab.run(turn("t", "three")).await;
    assert_eq!(said(&other.log[0]), pairs(&[("user", "three")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_every_run_is_the_first() {
    let lab = Lab::new(always(text("ok"))).await;
    lab.run(turn("s", "one")).await;
    assert_eq!(said(&lab.run(turn("s", "two")).await.log[0]), pairs(&[("user", "two")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn standing_instructions_are_said_once_however_long_the_session() {
    let setup = Setup::new(always(text("ok"))).agent(remembering).agent(|agent| {
        agent["pattern"] = json!({ "type": "react", "config": { "system_prompt": "Be brief." } });
    });
    let lab = setup.start().await;
    lab.run(turn("s", "one")).await.gives("ok", NO_RETRY);
    let second = lab.run(turn("s", "two")).await;
    let expected = [("system", "Be brief."), ("user", "one"), ("assistant", "ok"), ("user", "two")];
    assert_eq!(said(&second.log[0]), pairs(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_failed_leaves_no_trace_in_the_session() {
    let cut = with_fault(text("half an"), json!({ "cut": { "after_events": 2, "by": "fin" } }));
    let long = message(json!({ "text": "too long", "finish_reason": "length" }));
    let call = calls(&[("probe", json!({}))]);
    let script = once([text("ok"), status(401), long, call, status(401), cut, text("ok")]);
    let lab = Setup::new(script).agent(remembering).tool("probe", Probe::saying("x")).start().await;
    lab.run(turn("s", "one")).await.gives("ok", NO_RETRY);
    lab.run(turn("s", "refused")).await.fails("llm.response", "auth", NO_RETRY);
    assert_eq!(lab.run(turn("s", "too long")).await.error().code(), codes::LLM_RESPONSE);
    // Failed after a tool had run.
    assert_eq!(lab.run(turn("s", "halfway")).await.error().code(), codes::LLM_RESPONSE);
    // And a call that was restarted leaves nothing of its first attempt: the requests are the same.
    let last = lab.watch(turn("s", "two")).await;
    last.gives("ok", &[2_000]);
    assert_eq!(said(&last.log[0]), pairs(&[("user", "one"), ("assistant", "ok"), ("user", "two")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ended_in_the_middle_of_a_tool_leaves_no_call_in_the_session() {
    let call = || calls(&[("probe", json!({}))]);
    let probe = Probe::hanging();
    let setup = Setup::new(once([call(), call(), text("ok")])).agent(remembering);
    let lab = setup.tool("probe", probe.clone()).start().await;
    timed_out(&lab.run(turn("s", "one").timeout(LIMIT)).await, 1);
    let cancellation = Cancellation::new();
    let cancel = async {
        until(|| probe.calls().len() == 2).await;
        cancellation.cancel("operator");
    };
    let request = turn("s", "one").cancellation(cancellation.clone());
    let (outcome, ()) = tokio::join!(lab.run(request), cancel);
    cancelled(&outcome, 1);
    let next = lab.run(turn("s", "two")).await;
    next.gives("ok", NO_RETRY);
    assert_eq!(said(&next.log[0]), pairs(&[("user", "two")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_tools_is_remembered_whole() {
    let script = once([calls(&[("probe", json!({}))]), text("done"), text("ok")]);
    let lab = Setup::new(script).agent(remembering).tool("probe", Probe::saying("x")).start().await;
    assert_eq!(lab.run(turn("s", "one")).await.output.unwrap(), "done");
    let second = lab.run(turn("s", "two")).await;
    second.gives("ok", NO_RETRY);
    let roles: Vec<_> = said(&second.log[0]).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(tool_results(&second.log[0]), pairs(&[("call_1", "x")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runs_of_one_session_go_one_after_the_other() {
    let mut slow = text("re: {{input}}");
    slow["delay_ms"] = json!(100);
    let lab = Setup::new(always(slow)).agent(remembering).start().await;
    let runs = ["one", "two"].map(|input| lab.runtime.run_detailed(turn("s", input)));
    for result in in_time(join_all(runs)).await {
        assert_eq!(result.unwrap().stop_reason, StopReason::Completed);
    }
    let log = lab.server.requests();
    // Whichever was first, the other one saw its whole turn.
    let first = said(&log[0])[0].1.clone();
    let second = if first == "one" { "two" } else { "one" };
    let answer = format!("re: {first}");
    assert_eq!(said(&log[1]), pairs(&[("user", &first), ("assistant", &answer), ("user", second)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_is_forgotten_and_others_are_not() {
    let lab = Setup::new(always(text("ok"))).agent(remembering).start().await;
    for session in ["s", "t"] {
        lab.run(turn(session, "one")).await.gives("ok", NO_RETRY);
    }
    lab.runtime.close_session("s").await.unwrap();
    assert_eq!(said(&lab.run(turn("s", "two")).await.log[0]), pairs(&[("user", "two")]));
    assert_eq!(said(&lab.run(turn("t", "two")).await.log[0]).len(), 3);
}

/// A host of a program's own, with a bug.
struct Sleepless;

impl Host for Sleepless {
    fn now(&self) -> Instant {
        SystemHost.now()
    }

    fn wall_ms(&self) -> u64 {
        SystemHost.wall_ms()
    }

    fn entropy(&self) -> u64 {
        SystemHost.entropy()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        panic!("no sleep")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_wait_for_its_session_panics_fails_and_does_not_hang() {
    let silent = with_fault(text("no"), json!("silence"));
    let setup = Setup::new(always(silent)).agent(remembering);
    let lab = setup.build(|builder| builder.host(Sleepless)).start().await;
    let holder = Cancellation::new();
    let held = lab.runtime.run_detailed(turn("s", "one").cancellation(holder.clone()));
    let other = async {
        until(|| lab.requests() == 1).await;
        let failed = in_time(lab.runtime.run_detailed(turn("s", "two"))).await.unwrap();
        holder.cancel("the test");
        failed.into_output().unwrap_err()
    };
    let (_held, error) = in_time(async { tokio::join!(held, other) }).await;
    assert_eq!((error.code(), lab.requests()), (codes::SESSION_ERROR, 1), "{error}");
    assert!(error.message().contains("no sleep"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_its_session_can_time_out_and_be_cancelled_and_sends_nothing() {
    let silent = with_fault(text("no"), json!("silence"));
    let lab = Setup::new(always(silent)).agent(remembering).start().await;
    let holder = Cancellation::new();
    let held = lab.runtime.run_detailed(turn("s", "one").cancellation(holder.clone()));
    let others = async {
        until(|| lab.requests() == 1).await;
        let waits = turn("s", "two").timeout(Duration::from_millis(500));
        let timed_out = lab.runtime.run_detailed(waits).await.unwrap();
        let cancellation = Cancellation::new();
        let waits = lab.runtime.run_detailed(turn("s", "three").cancellation(cancellation.clone()));
        let cancel = async {
            a_while().await;
            cancellation.cancel("operator");
        };
        let (cancelled, ()) = tokio::join!(waits, cancel);
        assert_eq!(lab.requests(), 1);
        holder.cancel("test");
        (timed_out.into_output(), cancelled.unwrap().into_output())
    };
    let (_, (timed_out, cancelled)) = in_time(async { tokio::join!(held, others) }).await;
    assert_eq!(timed_out.unwrap_err().code(), codes::EXECUTION_TIMEOUT);
    assert_eq!(cancelled.unwrap_err().code(), codes::EXECUTION_CANCELLED);
    // The session is free again, and none of them is in it.
    assert_eq!(lab.requests(), 1);
    lab.server
        .set_script(aplomb_faultlab::script::Script::from_json(&always(text("ok")).to_string()).unwrap())
        .unwrap();
    assert_eq!(
        lab.runtime.run_detailed(turn("s", "four")).await.unwrap().final_output.as_deref(),
        Some("ok")
    );
    assert_eq!(said(&lab.server.requests()[0]), pairs(&[("user", "four")]));
}

/// Panics at whatever it is asked: at once, or when the answer is awaited.
#[derive(Clone, Copy)]
struct Panicking {
    at_once: bool,
}

fn burnt<T>() -> T {
    panic!("the notes are burnt")
}

impl Memory for Panicking {
    fn recall<'a>(&'a self, _session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        if self.at_once { burnt() } else { Box::pin(async { burnt() }) }
    }

    fn keep(&self, _session_id: &str, _messages: &[Arc<Message>]) -> Result<(), Error> {
        burnt()
    }

    fn forget(&self, _session_id: &str) {
        burnt()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_panics_is_a_memory_that_fails() {
    for at_once in [true, false] {
        for on_error in ["continue", "fail"] {
            let lab = Setup::new(always(text("ok")))
                .agent(move |agent| agent["memory"] = json!({ "impl": "burnt", "on_error": on_error }))
                .plugins(|registry| registry.memory("burnt", move |_: NoConfig| Ok(Panicking { at_once })))
                .start()
                .await;
            let outcome = lab.run(turn("s", "one")).await;
            assert!(lab.events.has(names::MEMORY_INJECT_FAILED));
            let closed = in_time(lab.runtime.close_session("s")).await.unwrap_err();
            assert_eq!(closed.code(), codes::SESSION_ERROR);
            assert!(closed.message().contains("assistant") && closed.message().contains("\"s\""), "{closed}");
            assert!(closed.details().cause.unwrap().dict.message.contains("the notes are burnt"), "{closed}");
            if on_error == "continue" {
                outcome.gives("ok", NO_RETRY);
                assert!(lab.events.has(names::MEMORY_WRITEBACK_FAILED));
            } else {
                assert_eq!((lab.requests(), outcome.error().code()), (0, codes::EXECUTION_ERROR));
                assert!(outcome.error().message().contains("the notes are burnt"), "{}", outcome.error());
            }
        }
    }
}

/// A program's own memory, which gives these messages and keeps nothing.
#[derive(Clone)]
struct Given(Vec<Arc<Message>>);

impl Given {
    fn of(messages: Value) -> Given {
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        Given(messages.into_iter().map(Arc::new).collect())
    }
}

impl Memory for Given {
    fn recall<'a>(&'a self, _session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }

    fn keep(&self, _session_id: &str, _messages: &[Arc<Message>]) -> Result<(), Error> {
        Ok(())
    }

    fn forget(&self, _session_id: &str) {}
}

/// runtime.md §1: a history that no provider would take is mended. The fault lab refuses what a provider would refuse.
#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_gives_calls_without_results_or_results_without_calls_bricks_no_session() {
    let block = |kind: &str, fields: Value| {
        let mut block = fields;
        block["type"] = json!(kind);
        block
    };
    let says =
        |role: &str, text: &str| json!({"role": role, "content": [block("text", json!({"text": text}))]});
    let call = |id: &str| {
        block("tool_call", json!({"id": id, "name": "calc", "arguments": r#"{"expression":"6*7"}"#}))
    };
    let calls = |ids: &[&str]| json!({"role": "assistant", "content": ids.iter().map(|id| call(id)).collect::<Vec<_>>()});
    let result = |id: &str, text: &str| {
        let result = json!({"call_id": id, "name": "calc", "text": text, "is_error": false});
        json!({"role": "tool", "content": [block("tool_result", result)]})
    };
    let begins = || says("user", "Calculate.");
    // What is in the request, and what is not.
    let (interrupted, orphan) = ("was interrupted", "nobody asked for this");
    let cases = [
        ("a call at the end", json!([begins(), calls(&["a"])]), Some(interrupted)),
        ("one of two", json!([begins(), calls(&["a", "b"]), result("a", "42")]), Some(interrupted)),
        (
            "a call and then a word",
            json!([begins(), calls(&["a"]), says("user", "Well?")]),
            Some(interrupted),
        ),
        (
            "a result at the beginning",
            json!([result("a", orphan), begins(), says("assistant", "Yes?")]),
            None,
        ),
        ("a result after a word", json!([begins(), says("assistant", "Yes?"), result("a", orphan)]), None),
        (
            "a second result",
            json!([
                begins(),
                calls(&["a"]),
                result("a", "42"),
                result("a", orphan),
                says("assistant", "42.")
            ]),
            Some("42"),
        ),
    ];
    for wire in WIRES.iter().copied() {
        for mode in MODES {
            for (name, history, holds) in &cases {
                let given = Given::of(history.clone());
                let lab = Setup::new(once([text("ok")]))
                    .agent(move |agent| {
                        let own = agent["llm"]["api_base"].as_str().unwrap().to_owned();
                        agent["llm"] = wire.llm("m", &own, mode);
                        agent["memory"] = json!({ "impl": "given" });
                        agent["tools"] = json!([{ "id": "calc", "type": "calc" }]);
                    })
                    .plugins(|registry| registry.memory("given", move |_: NoConfig| Ok(given.clone())))
                    .start()
                    .await;
                let request = turn("s", "And now?");
                let outcome =
                    if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await };
                let name = format!("{wire:?}, {mode:?}, {name}");
                let output = outcome.output.as_deref().map_err(Error::to_string);
                assert_eq!((output, outcome.log.len()), (Ok("ok"), 1), "{name}");
                let body = outcome.log[0].body.to_string();
                assert!(holds.is_none_or(|holds| body.contains(holds)), "{name}: {body}");
                assert!(!body.contains(orphan), "{name}: {body}");
            }
        }
    }
}

// ---- Deadlines.

const LIMIT: Duration = Duration::from_millis(700);

#[track_caller]
fn timed_out(outcome: &Outcome, requests: usize) {
    assert_eq!(outcome.error().code(), codes::EXECUTION_TIMEOUT, "{}", outcome.error());
    assert!(!outcome.error().retryable());
    assert_eq!(outcome.log.len(), requests);
    let result = outcome.result();
    assert_eq!((result.stop_reason, &result.final_output), (StopReason::Timeout, &None));
    assert_eq!(outcome.context("limit_ms"), 700);
    assert!(
        outcome.context("where").is_string() && outcome.context("setting").is_string(),
        "{}",
        outcome.error()
    );
    let completed = outcome.events_of(names::SESSION_RUN_COMPLETED);
    assert_eq!(completed[0].payload["stop_reason"], "timeout");
    assert!(completed[0].payload["duration_ms"].as_u64() >= Some(700));
}

/// A 500 whose body stops halfway.
fn error_that_does_not_end() -> Value {
    let error = json!({ "error": { "message": "an error that is not told to its end" } });
    with_fault(http(500, json!({}), error), json!({ "stall": { "after_events": 0 } }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_by_its_deadline_whatever_the_provider_does_not_do() {
    let stall = json!({ "stall": { "after_events": 3 } });
    let pings = json!({ "pings": { "after_events": 3, "every_ms": 50 } });
    let answer = [json!("silence"), stall, pings].map(|fault| with_fault(text("one two three"), fault));
    let steps = answer.into_iter().chain([error_that_does_not_end()]);
    let runs = steps.flat_map(|step| MODES.map(|mode| (step.clone(), mode)));
    let checks = runs.map(|(step, mode)| async move {
        println!("{step} {mode:?}");
        let setup = Setup::new(always(step));
        let setup = match mode {
            Mode::Streamed => setup.agent(|agent| agent["llm"]["stream"] = json!("always")),
            _ => setup,
        };
        let lab = setup.start().await;
        let request = hi().timeout(LIMIT);
        let outcome = if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await };
        timed_out(&outcome, 1);
        a_while().await;
        assert_eq!(lab.requests(), 1);
    });
    join_all(checks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_gets_no_connection_ends_by_its_deadline_and_is_cancelled_at_once() {
    let (address, _deaf) = deaf().await;
    let lab = || {
        let address = address.clone();
        Setup::new(always(text("elsewhere")))
            .agent(move |agent| agent["llm"]["api_base"] = json!(address))
            .start()
    };
    timed_out(&lab().await.run(hi().timeout(LIMIT)).await, 0);
    let lab = lab().await;
    cancelled(&cancelled_when(&lab, Mode::Plain, || lab.events.has(names::LLM_CALLED)).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_a_tls_handshake_ends_by_its_deadline_and_is_cancelled_at_once() {
    let mut script = always(text("elsewhere"));
    script["server"] = json!({ "tls": "good", "connections": ["silent_handshake"] });
    let lab = Setup::new(script.clone()).start().await;
    timed_out(&lab.run(hi().timeout(LIMIT)).await, 0);
    let lab = Setup::new(script).start().await;
    let shakes_hands = || lab.server.connection_count() == 1;
    cancelled(&cancelled_when(&lab, Mode::Plain, shakes_hands).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_ends_by_its_deadline_too() {
    let lab = Lab::new(always(with_fault(text("no"), json!("silence")))).await;
    let outcome = lab.exec(|exec| exec.timeout(LIMIT)).await;
    assert_eq!((outcome.error().code(), outcome.log.len()), (codes::EXECUTION_TIMEOUT, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_by_its_deadline_in_a_tool_that_waits_and_in_one_that_blocks_its_thread() {
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let blocking = Probe::new(move |_| {
        let _released = blocked.lock().unwrap().recv();
        std::future::ready(Ok(Value::Null))
    });
    for probe in [Probe::hanging(), blocking] {
        let setup = Setup::new(always(calls(&[("probe", json!({}))]))).tool("probe", probe.clone());
        let outcome = setup.start().await.run(hi().timeout(LIMIT)).await;
        timed_out(&outcome, 1);
        assert!(outcome.context("where").as_str().unwrap().contains("probe"), "{}", outcome.error());
        assert_eq!((probe.calls().len(), outcome.events_of(names::TOOL_CANCELLED).len()), (1, 1));
    }
    drop(release);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_would_end_after_the_deadline_is_not_begun() {
    let throttle = http(429, json!({ "retry-after": "5" }), Value::Null);
    let setup = Setup::new(always(throttle)).build(|builder| builder.host(SystemHost));
    let outcome = setup.start().await.run(hi().timeout(LIMIT)).await;
    outcome.fails("llm.rate_limit", "rate_limit", NO_RETRY).permanently(false);
    assert_eq!(outcome.context("retry_after_ms"), 5_000);
    assert!(outcome.context("resume_at").is_u64());
    // 0.5 s and 1 s fit into 3.4 s; another 2 s do not.
    let lab = Lab::new(always(status(503))).await;
    let outcome = lab.run(hi().timeout(Duration::from_millis(3_400))).await;
    outcome.fails("llm.connection", "server_error", &[500, 1_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_after_a_retry_keeps_the_failure_as_its_cause() {
    let silent = with_fault(text("no"), json!("silence"));
    let lab = Lab::new(once([status(503), silent])).await;
    // Half a second of it is back-off, of which next to nothing is slept.
    let outcome = lab.run(hi().timeout(Duration::from_millis(2_000))).await;
    assert_eq!((outcome.error().code(), outcome.log.len()), (codes::EXECUTION_TIMEOUT, 2));
    let cause = std::error::Error::source(outcome.error()).expect("the last failure is the cause");
    assert!(cause.to_string().contains("503"), "{cause}");
    assert!(outcome.error().attempts()[0].text.contains("503"));
}

// ---- Cancellation.

#[track_caller]
fn cancelled(outcome: &Outcome, requests: usize) {
    assert_eq!(outcome.error().code(), codes::EXECUTION_CANCELLED, "{}", outcome.error());
    assert!(!outcome.error().retryable());
    assert_eq!((outcome.context("by"), outcome.log.len()), (json!("operator"), requests));
    if let Some(result) = &outcome.result {
        assert_eq!((result.stop_reason, &result.final_output), (StopReason::Cancelled, &None));
    }
    let completed = outcome.events_of(names::SESSION_RUN_COMPLETED);
    assert_eq!(completed[0].payload["stop_reason"], "cancelled");
}

/// A run that is cancelled as soon as it is so.
async fn cancelled_when(lab: &Lab, mode: Mode, so: impl Fn() -> bool) -> Outcome {
    let cancellation = Cancellation::new();
    let request = hi().cancellation(cancellation.clone());
    let cancel = async {
        until(so).await;
        cancellation.cancel("operator");
    };
    let run = async { if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await } };
    let (outcome, ()) = tokio::join!(run, cancel);
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_an_answer_or_for_the_rest_of_an_error_is_cancelled_at_once() {
    for step in [with_fault(text("no"), json!("silence")), error_that_does_not_end()] {
        for mode in MODES {
            let lab = Lab::new(always(step.clone())).await;
            cancelled(&cancelled_when(&lab, mode, || lab.requests() == 1).await, 1);
            a_while().await;
            assert_eq!(lab.requests(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_the_middle_of_an_answer_is_cancelled_at_once() {
    for fault in
        [json!({ "stall": { "after_events": 3 } }), json!({ "pings": { "after_events": 3, "every_ms": 20 } })]
    {
        let lab = Setup::new(always(with_fault(text("one two three"), fault))).deltas().start().await;
        let cancellation = Cancellation::new();
        let mut stream = lab.runtime.run_stream(hi().cancellation(cancellation.clone())).unwrap();
        let mut chunks = Vec::new();
        while let Some(chunk) = in_time(stream.next()).await {
            if chunk.kind == aplomb::ChunkKind::LlmDelta {
                cancellation.cancel("operator");
            }
            chunks.push(chunk);
        }
        let result = check_chunks(&chunks);
        assert_eq!(result.stop_reason, StopReason::Cancelled);
        assert_eq!(count(&chunks, aplomb::ChunkKind::LlmRestarted), 0);
        assert_eq!(Error::from(result.error_details.unwrap()).code(), codes::EXECUTION_CANCELLED);
        a_while().await;
        assert_eq!(lab.requests(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_a_back_off_of_thirty_real_seconds_is_cancelled_at_once() {
    let throttle = http(429, json!({ "retry-after": "30" }), Value::Null);
    for mode in MODES {
        let setup = Setup::new(always(throttle.clone())).build(|builder| builder.host(SystemHost));
        let lab = setup.start().await;
        let outcome = cancelled_when(&lab, mode, || lab.events.has(names::RETRY_DECIDED)).await;
        cancelled(&outcome, 1);
        // What had failed by then is in the error.
        assert_eq!(outcome.error().attempts()[0].reason, "rate_limit");
        assert!(outcome.waits()[0] >= 30_000);
        assert_eq!(lab.requests(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_a_tool_is_cancelled_at_once_and_the_tool_with_it() {
    let probe = Probe::hanging();
    let setup = Setup::new(always(calls(&[("probe", json!({}))]))).tool("probe", probe.clone());
    let lab = setup.start().await;
    let outcome = cancelled_when(&lab, Mode::Plain, || !probe.calls().is_empty()).await;
    cancelled(&outcome, 1);
    let told = outcome.events_of(names::TOOL_CANCELLED);
    assert_eq!((told.len(), &told[0].payload["tool_id"]), (1, &json!("probe")));
    a_while().await;
    assert_eq!((lab.requests(), probe.calls().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_is_cancelled_too_and_calls_its_hook_no_more() {
    let throttle = http(429, json!({ "retry-after": "30" }), Value::Null);
    let setup = Setup::new(always(throttle)).build(|builder| builder.host(SystemHost));
    let lab = setup.start().await;
    let cancellation = Cancellation::new();
    let from_hook = cancellation.clone();
    let outcome = lab
        .exec(|exec| exec.on_retry(move |_| from_hook.cancel("operator")).cancellation(cancellation))
        .await;
    cancelled(&outcome, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_cancelled_before_it_began_sends_nothing() {
    let lab = Lab::new(always(text("no"))).await;
    let cancellation = Cancellation::new();
    cancellation.cancel("operator");
    // The first one to say so is right.
    cancellation.cancel("somebody else");
    let outcome = lab.run(hi().cancellation(cancellation)).await;
    cancelled(&outcome, 0);
    assert!(outcome.error().attempts().is_empty());
    a_while().await;
    assert_eq!(lab.requests(), 0);
    // And no other run hears of it.
    lab.run(hi()).await.gives("no", NO_RETRY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_that_comes_after_the_end_of_its_run_is_nobody_elses() {
    let lab = Setup::new(always(text("ok"))).agent(remembering).start().await;
    let late = Cancellation::new();
    lab.run(turn("s", "one").cancellation(late.clone())).await.gives("ok", NO_RETRY);
    late.cancel("operator");
    let next = lab.run(turn("s", "two").cancellation(Cancellation::new())).await;
    next.gives("ok", NO_RETRY);
    assert_eq!(said(&next.log[0]), pairs(&[("user", "one"), ("assistant", "ok"), ("user", "two")]));
}

/// design.md §5, promise 1: "Requests on the wire = attempts in the ledger = attempts in the error"; retry.md §4: "The
/// error that reaches the caller lists every attempt".
#[tokio::test(flavor = "multi_thread")]
async fn the_attempt_that_a_deadline_or_a_cancellation_cut_short_is_in_the_error_like_any_other() {
    let script = || once([status(503), with_fault(text("no"), json!("silence"))]);
    let lab = Lab::new(script()).await;
    let outcome = lab.run(hi().timeout(Duration::from_millis(2_000))).await;
    assert_eq!((outcome.log.len(), outcome.error().attempts().len()), (2, 2), "{}", outcome.error());
    let lab = Lab::new(script()).await;
    let outcome = cancelled_when(&lab, Mode::Plain, || lab.requests() == 2).await;
    assert_eq!((outcome.log.len(), outcome.error().attempts().len()), (2, 2), "{}", outcome.error());
}
