//! What those see who watch a run: chunks, restarts, events; and what happens when they turn away.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use aplomb::event::names;
use aplomb::host::{ScaledHost, SystemHost};
use aplomb::{ChunkKind, Error, Event, RunStreamChunk, Runtime, StopReason, Subscriber, codes};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An answer that is cut off after so many words.
fn cut_after(words: usize, answer: &str) -> Value {
    // The first event names the role.
    with_fault(text(answer), json!({ "cut": { "after_events": words + 1, "by": "fin" } }))
}

fn kinds(chunks: &[RunStreamChunk]) -> Vec<ChunkKind> {
    chunks.iter().map(|chunk| chunk.kind).collect()
}

/// The sequences of the chunks of that kind.
fn sequences(chunks: &[RunStreamChunk], kind: ChunkKind) -> Vec<u64> {
    chunks.iter().filter(|chunk| chunk.kind == kind).map(|chunk| chunk.sequence).collect()
}

/// What each restart voids, in order.
fn discarded_from(chunks: &[RunStreamChunk]) -> Vec<u64> {
    let restarts = chunks.iter().filter(|chunk| chunk.kind == ChunkKind::LlmRestarted);
    restarts.map(|chunk| chunk.payload["discard_from"].as_u64().unwrap()).collect()
}

// ---- Chunks.

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_the_run_ends_with_its_result_and_has_the_words_between() {
    let lab = Lab::new(once([text("one two three")])).await;
    let outcome = lab.watch(hi().run_id("r1").session_id("s1")).await;
    outcome.gives("one two three", NO_RETRY);
    use ChunkKind::{LlmDelta, LlmFinished, RunFinished, RunStarted};
    assert_eq!(kinds(&outcome.chunks), [RunStarted, LlmDelta, LlmDelta, LlmDelta, LlmFinished, RunFinished]);
    for chunk in &outcome.chunks {
        let ids = (chunk.run_id.as_str(), chunk.session_id.as_str(), chunk.agent_id.as_str());
        assert_eq!(ids, ("r1", "s1", "assistant"));
        assert!(chunk.timestamp_ms > 1_700_000_000_000);
    }
    let written = serde_json::to_value(outcome.chunks.last().unwrap()).unwrap();
    assert_eq!(
        (&written["kind"], &written["result"]["final_output"]),
        (&json!("run.finished"), &json!("one two three"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_delivered_as_the_last_chunk() {
    for (step, code) in [(status(401), "llm.response"), (status(418), "llm.error")] {
        let outcome = Lab::new(always(step)).await.watch(hi()).await;
        assert_eq!(kinds(&outcome.chunks), [ChunkKind::RunStarted, ChunkKind::RunFinished]);
        let result = outcome.chunks[1].result.as_ref().unwrap();
        assert_eq!((result.stop_reason, &result.final_output), (StopReason::Failed, &None));
        assert_eq!(result.error_details.as_ref().unwrap().dict.code, code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_seen_between_the_calls_that_they_belong_to() {
    let first =
        message(json!({ "text": "Let me see.", "tool_calls": [{ "name": "probe" }, { "name": "none" }] }));
    let lab = Setup::new(once([first, text("done")])).tool("probe", Probe::saying("x")).start().await;
    let outcome = lab.watch(hi()).await;
    let seen = kinds(&outcome.chunks).into_iter().filter(|kind| *kind != ChunkKind::LlmDelta);
    use ChunkKind::{LlmFinished, RunFinished, RunStarted, ToolFinished, ToolStarted};
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen.iter().filter(|kind| **kind == ToolStarted).count(), 2);
    assert_eq!(seen.iter().filter(|kind| **kind == ToolFinished).count(), 2);
    assert_eq!(seen[..3], [RunStarted, LlmFinished, ToolStarted]);
    assert_eq!(seen[seen.len() - 3..], [ToolFinished, LlmFinished, RunFinished]);
    let calls = outcome.chunks.iter().filter(|chunk| chunk.kind == ChunkKind::LlmDelta);
    assert!(calls.clone().any(|chunk| chunk.payload["kind"] == "tool_call"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_streamed_comes_in_one_piece_and_once() {
    let never = |agent: &mut Value| agent["llm"]["stream"] = json!("never");
    // Cut in the middle of its body: nothing of it was delivered, so it is the transport that pays.
    let script = once([cut_after(2, "one two three"), text("one two three")]);
    let outcome = Setup::new(script).agent(never).start().await.watch(hi()).await;
    outcome.gives("one two three", &[500]);
    assert_eq!(
        (count(&outcome.chunks, ChunkKind::LlmDelta), outcome.log[0].body["stream"] == true),
        (1, false)
    );
}

// ---- Restarts.

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_begins_anew_and_says_what_is_void() {
    let script = once([cut_after(3, "Not quite so, and so on"), text("The answer is 42.")]);
    let outcome = Lab::new(script).await.watch(hi()).await;
    // Delivered: the session pays, from 2 s.
    outcome.gives("The answer is 42.", &[2_000]);
    let deltas = sequences(&outcome.chunks, ChunkKind::LlmDelta);
    assert_eq!(discarded_from(&outcome.chunks), [deltas[0]]);
    let restart = sequences(&outcome.chunks, ChunkKind::LlmRestarted)[0];
    assert_eq!((deltas[2] + 1, deltas[3]), (restart, restart + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_broken_attempt_is_voided_for_itself() {
    let script = once([cut_after(2, "a b c"), cut_after(1, "d e f"), cut_after(3, "g h i j"), text("k l")]);
    let outcome = Lab::new(script).await.watch(hi()).await;
    outcome.gives("k l", S_ONLY);
    let deltas = sequences(&outcome.chunks, ChunkKind::LlmDelta);
    // Attempts of 2, 1, 3 and 2 words.
    assert_eq!(discarded_from(&outcome.chunks), [deltas[0], deltas[2], deltas[3]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_brings_nothing_announces_nothing() {
    let script = once([cut_after(2, "a b c"), status(503), text("d e")]);
    let outcome = Lab::new(script).await.watch(hi()).await;
    // The call has delivered, which holds for the rest of it.
    outcome.gives("d e", &[2_000, 4_000]);
    assert_eq!(count(&outcome.chunks, ChunkKind::LlmRestarted), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_for_good_discards_nothing() {
    let script = json!({ "steps": [cut_after(2, "one two three"), status(503)], "at_end": "repeat_last" });
    let outcome = Lab::new(script).await.watch(hi()).await;
    outcome.fails("llm.connection", "server_error", S_ONLY);
    assert_eq!(count(&outcome.chunks, ChunkKind::LlmRestarted), 0);
    assert_eq!(kept_text(&outcome.chunks), "one two");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_delivered_needs_no_restart() {
    for step in [status(503), cut_after(0, "one"), with_fault(text("one"), json!("reset_before_headers"))] {
        let outcome = Lab::new(once([step, text("one two")])).await.watch(hi()).await;
        outcome.gives("one two", &[500]);
        assert_eq!(count(&outcome.chunks, ChunkKind::LlmRestarted), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_and_arguments_are_delivered_too() {
    let thinks = message(json!({ "thinking": "hm hm", "text": "yes" }));
    let asks =
        message(json!({ "tool_calls": [{ "name": "probe", "arguments": { "text": "long enough" } }] }));
    for (step, events) in [(thinks, 2), (asks, 4)] {
        let cut = with_fault(step, json!({ "cut": { "after_events": events, "by": "fin" } }));
        let lab = Setup::new(once([cut, text("done")])).tool("probe", Probe::saying("x")).start().await;
        let outcome = lab.watch(hi()).await;
        outcome.gives("done", &[2_000]);
        assert_eq!(discarded_from(&outcome.chunks), [1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_voids_nothing_of_the_steps_before() {
    let first = message(json!({ "text": "Let me see.", "tool_calls": [{ "name": "probe" }] }));
    let script = once([first, cut_after(2, "It is not"), text("It is 42.")]);
    let lab = Setup::new(script).tool("probe", Probe::saying("x")).start().await;
    let outcome = lab.watch(hi()).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("It is 42."));
    assert_eq!(outcome.waits(), [2_000]);
    assert_eq!(kept_text(&outcome.chunks), "Let me see.It is 42.");
    assert!(discarded_from(&outcome.chunks)[0] > sequences(&outcome.chunks, ChunkKind::ToolFinished)[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_restart_never_a_call_that_has_delivered_is_not_sent_again() {
    let never = |agent: &mut Value| agent["retry"]["restart"] = json!("never");
    let script = once([cut_after(2, "one two three"), text("four")]);
    let outcome = Setup::new(script).agent(never).start().await.watch(hi()).await;
    outcome.fails("llm.connection", "stream_interrupted", NO_RETRY).permanently(false);
    assert_eq!(
        (count(&outcome.chunks, ChunkKind::LlmRestarted), kept_text(&outcome.chunks)),
        (0, "one two".to_owned())
    );
    // One that has not is.
    let outcome = Setup::new(always(status(503))).agent(never).start().await.watch(hi()).await;
    outcome.fails("llm.connection", "server_error", T_THEN_S);
    // And a stream that nobody watches has delivered nothing.
    let script = once([cut_after(2, "one two three"), text("four")]);
    ask(Mode::Streamed, Setup::new(script).agent(never)).await.gives("four", &[500]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_restart_marker_a_restart_is_always_announced() {
    let marker = |agent: &mut Value| agent["retry"]["restart"] = json!("marker");
    for (step, wait) in [(status(503), 500), (cut_after(2, "a b c"), 2_000)] {
        let outcome = Setup::new(once([step, text("d e")])).agent(marker).start().await.watch(hi()).await;
        outcome.gives("d e", &[wait]);
        assert_eq!(count(&outcome.chunks, ChunkKind::LlmRestarted), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_nobody_watches_is_silent() {
    let script = once([cut_after(2, "one two three"), text("four")]);
    let outcome = ask(Mode::Streamed, Setup::new(script)).await;
    outcome.gives("four", &[500]);
    // The subscriber takes no pieces: it is told the answer when there is one.
    assert_eq!(outcome.events_of(names::LLM_RESTARTED).len(), 0);
    assert_eq!(outcome.events_of(names::LLM_DELTA).len(), 1);
}

/// retry.md §5: "marker = always announced".
#[tokio::test(flavor = "multi_thread")]
async fn with_restart_marker_also_those_are_told_who_take_the_answer_whole() {
    let marker = |agent: &mut Value| agent["retry"]["restart"] = json!("marker");
    for mode in UNWATCHED {
        let script = once([cut_after(2, "one two three"), text("four")]);
        let outcome = ask(mode, Setup::new(script).agent(marker)).await;
        outcome.gives("four", &[500]);
        assert_eq!(outcome.events_of(names::LLM_RESTARTED).len(), 1);
    }
}

// ---- Events.

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_takes_deltas_is_told_what_is_void_in_its_own_numbers() {
    let script = once([cut_after(2, "one two three"), text("four five")]);
    let outcome = Setup::new(script).deltas().start().await.run(hi()).await;
    outcome.gives("four five", &[2_000]);
    let deltas = outcome.events_of(names::LLM_DELTA);
    let restarted = outcome.events_of(names::LLM_RESTARTED);
    assert_eq!((deltas.len(), restarted.len()), (4, 1));
    assert_eq!(restarted[0].payload["discard_from"], deltas[0].sequence);
    assert_eq!(deltas[2].sequence, restarted[0].sequence + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_run_tell_its_story_in_order_and_without_gaps() {
    let first =
        message(json!({ "text": "Let me see.", "tool_calls": [{ "name": "probe" }, { "name": "none" }] }));
    let script = once([status(503), first, cut_after(2, "It is not"), text("It is 42.")]);
    let lab = Setup::new(script).tool("probe", Probe::saying("x")).deltas().start().await;
    // Payloads and sequences are checked for every run; here with all kinds at once.
    let outcome = lab.run(hi()).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("It is 42."));
    let story: Vec<_> = outcome
        .events
        .iter()
        .map(|event| event.name)
        .filter(|name| ![names::LLM_DELTA, names::USAGE_UPDATED].contains(name))
        .map(aplomb::event::EventName::as_str)
        .collect();
    let expected = "session.run.started llm.called retry.decided llm.succeeded tool.called";
    assert_eq!(story[..5].join(" "), expected);
    let expected = "llm.called retry.decided llm.restarted llm.succeeded session.run.completed";
    assert_eq!(story[story.len() - 5..].join(" "), expected);
    for (name, times) in [(names::TOOL_CALLED, 2), (names::TOOL_SUCCEEDED, 1), (names::TOOL_FAILED, 1)] {
        assert_eq!(outcome.events_of(name).len(), times, "{name}");
    }
    let decided = &outcome.events_of(names::RETRY_DECIDED)[0].payload;
    let expected = json!({
        "layer": "transport", "attempt": 1, "max_attempts": 6, "reason": "server_error", "delay_ms": 500,
        "delay_source": "backoff", "deadline_left_ms": null, "will_retry": true,
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&decided[field], value, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_tells_its_error_in_full_in_every_place() {
    let lab = Lab::new(always(status(401))).await;
    let outcome = lab.watch(hi()).await;
    let details = serde_json::to_value(outcome.result().error_details.as_ref().unwrap()).unwrap();
    for name in [names::RUN_FAILED, names::LLM_FAILED] {
        let failed = outcome.events_of(name);
        assert_eq!((failed.len(), &failed[0].payload["error_details"]), (1, &details), "{name}");
        assert_eq!(failed[0].payload["error"], details["message"]);
    }
    for key in ["code", "message", "hint", "docs_url", "retryable", "context", "type", "cause", "attempts"] {
        assert!(details.get(key).is_some(), "{key}");
    }
    assert_eq!(
        (&details["type"], &details["context"]["tool_id"]),
        (&json!("LLMResponseError"), &Value::Null)
    );
    assert_eq!(outcome.events_of(names::SESSION_RUN_COMPLETED)[0].payload["stop_reason"], "failed");
    let decided = outcome.events_of(names::RETRY_DECIDED);
    assert_eq!((decided.len(), &decided[0].payload["will_retry"]), (1, &json!(false)));
}

struct Panicking {
    deltas: bool,
}

impl Subscriber for Panicking {
    fn on_event(&self, event: &Event) {
        panic!("cannot bear {}", event.name);
    }

    fn wants_deltas(&self) -> bool {
        self.deltas
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_panics_disturbs_nobody() {
    for deltas in [false, true] {
        let script = once([status(503), calls(&[("probe", json!({}))]), text("done")]);
        let setup = Setup::new(script).tool("probe", Probe::saying("x"));
        let lab = setup.build(move |builder| builder.subscriber(Panicking { deltas })).start().await;
        let outcome = lab.watch(hi()).await;
        assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
        assert_eq!((outcome.log.len(), outcome.waits()), (3, vec![500]));
    }
    let lab = Lab::new(once([status(503), text("ok")])).await;
    lab.exec(|exec| exec.on_retry(|_| panic!("cannot bear it"))).await.gives("ok", &[500]);
}

// ---- Turning away.

/// A provider whose connections the test holds in its own hands, and a runtime that asks it.
async fn bare() -> (TcpListener, Runtime) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config(&format!("http://{}/v1", listener.local_addr().unwrap()), |_| ());
    (listener, Runtime::builder(config).host(ScaledHost::new(0.01)).build().unwrap())
}

/// Takes a request, whole.
async fn request(listener: &TcpListener) -> TcpStream {
    let (mut socket, _) = in_time(listener.accept()).await.unwrap();
    let mut seen = Vec::new();
    while !(seen.windows(4).any(|end| end == b"\r\n\r\n") && seen.ends_with(b"}")) {
        let mut buffer = [0; 4096];
        let read = in_time(socket.read(&mut buffer)).await.unwrap();
        assert!(read > 0, "the request broke off");
        seen.extend_from_slice(&buffer[..read]);
    }
    socket
}

/// The client has closed the connection, and does not come back.
async fn is_left_for_good(mut socket: TcpStream, listener: &TcpListener) {
    let mut buffer = [0; 64];
    let read = in_time(socket.read(&mut buffer)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let again = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(again.is_err(), "another request came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_closes_its_connection_and_sends_nothing_more() {
    let (listener, runtime) = bare().await;
    let mut run = Box::pin(runtime.run("assistant", "hi"));
    let socket = tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        socket = request(&listener) => socket,
    };
    drop(run);
    is_left_for_good(socket, &listener).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_dropped_in_the_middle_closes_its_connection_and_sends_nothing_more() {
    let (listener, runtime) = bare().await;
    let mut stream = runtime.run_stream(hi()).unwrap();
    let provider = async {
        let mut socket = request(&listener).await;
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
        socket.write_all(format!("{head}{event}").as_bytes()).await.unwrap();
        socket
    };
    let first_word = async { while stream.next().await.unwrap().kind != ChunkKind::LlmDelta {} };
    let (socket, ()) = in_time(async { tokio::join!(provider, first_word) }).await;
    drop(stream);
    is_left_for_good(socket, &listener).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_in_its_back_off_sends_nothing_more() {
    // Half a second, for once in full.
    let lab = Setup::new(always(status(503))).build(|builder| builder.host(SystemHost)).start().await;
    let mut run = Box::pin(lab.runtime.run("assistant", "hi"));
    tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        () = until(|| lab.events.has(names::RETRY_DECIDED)) => {}
    }
    drop(run);
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(lab.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_drops_its_tool() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = dropped.clone();
    let probe = Probe::new(move |_| {
        let flag = Flag(flag.clone());
        async move {
            let _held = flag;
            std::future::pending().await
        }
    });
    let setup = Setup::new(always(calls(&[("probe", json!({}))]))).tool("probe", probe.clone());
    let lab = setup.start().await;
    let mut run = Box::pin(lab.runtime.run("assistant", "hi"));
    tokio::select! {
        ended = &mut run => panic!("{ended:?}"),
        () = until(|| !probe.calls().is_empty()) => {}
    }
    drop(run);
    until(|| dropped.load(Ordering::SeqCst)).await;
    assert_eq!(lab.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_never_awaited_sends_nothing() {
    let lab = Lab::new(always(text("no"))).await;
    drop(lab.runtime.run_stream(hi()).unwrap());
    drop(lab.runtime.run("assistant", "hi"));
    drop(lab.runtime.exec("assistant", "hi"));
    a_while().await;
    assert_eq!(lab.requests(), 0);
    assert_eq!(lab.runtime.run("assistant", " ").await.unwrap_err().code(), codes::USER_INVALID_INPUT);
}
