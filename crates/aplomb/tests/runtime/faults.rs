//! Whole runs over real TCP against a provider that fails by script: for every fault, what the caller gets, how many
//! requests it costs and how long is waited between them. The numbers are those of `docs/spec/retry.md`.
use crate::support::*;
use aplomb::codes;
use aplomb::host::{Host, SystemHost};
use futures_util::future::join_all;
use serde_json::{Value, json};

/// The fault, in every mode, as often as it is asked for: the call fails for good.
async fn fails_everywhere(step: Value, code: &str, reason: &str, waits: &[u64]) {
    let script = always(step);
    for outcome in join_all(MODES.map(|mode| ask(mode, Setup::new(script.clone())))).await {
        outcome.fails(code, reason, waits);
    }
}

/// The fault once, in every mode, and then an answer: nobody notices but by the events.
async fn is_ridden_out_everywhere(step: Value, waits: &[u64]) {
    let script = once([step, text("The answer is 42.")]);
    for outcome in join_all(MODES.map(|mode| ask(mode, Setup::new(script.clone())))).await {
        outcome.gives("The answer is 42.", waits);
    }
}

// ---- Statuses.

#[tokio::test(flavor = "multi_thread")]
async fn a_persistent_503_costs_six_requests_and_waits_half_one_two_four_eight_seconds() {
    for mode in MODES {
        let outcome = ask(mode, Setup::new(always(status(503)))).await;
        // 1 + T 2 + S 3.
        outcome.fails("llm.connection", "server_error", T_THEN_S).permanently(false);
        assert!(outcome.error().message().contains("failed after 6 attempts"), "{}", outcome.error());
        let attempts = outcome.error().attempts();
        let layers: Vec<_> = attempts.iter().map(|attempt| attempt.layer.as_str()).collect();
        assert_eq!(layers, ["first", "transport", "transport", "session", "session", "session"]);
        assert!(attempts.iter().all(|attempt| attempt.error().starts_with("LLMConnectionError: ")));
        assert!(attempts.iter().all(|attempt| !attempt.rule.is_empty()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_adds_nothing_to_a_persistent_503() {
    let lab = Lab::new(always(status(503))).await;
    // Cap = 1 + max(T + S, X) = 1 + max(5, 2).
    lab.exec(|exec| exec).await.fails("llm.connection", "server_error", T_THEN_S);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_costs_one_request_however_the_call_is_made() {
    let quota = json!({ "error": {
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota", "param": null, "code": "insufficient_quota",
    } });
    let bad = json!({ "error": { "message": "bad request", "type": "invalid_request_error" } });
    let overflow = json!({ "error": { "message": "too long", "code": "context_length_exceeded" } });
    let cases = [
        (401, Value::Null, "auth"),
        (403, Value::Null, "permission"),
        (400, bad.clone(), "invalid_request"),
        (422, bad, "invalid_request"),
        (400, overflow, "context_overflow"),
        (413, Value::Null, "payload_too_large"),
        (404, json!("<html><h1>404 Not Found</h1></html>"), "invalid_request"),
        (404, json!({ "error": { "message": "no model", "code": "model_not_found" } }), "model_not_found"),
        (429, quota, "quota_exhausted"),
    ];
    for (code, body, reason) in cases {
        let script = always(http(code, json!({}), body));
        for mode in MODES {
            let outcome = ask(mode, Setup::new(script.clone())).await;
            outcome.fails("llm.response", reason, NO_RETRY).permanently(true);
            assert_eq!(outcome.context("status"), code);
        }
        let lab = Lab::new(script).await;
        lab.exec(|exec| exec).await.fails("llm.response", reason, NO_RETRY).permanently(true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_providers_own_words_and_the_way_out_are_in_the_error() {
    let body =
        json!({ "error": { "message": "You exceeded your current quota.", "code": "insufficient_quota" } });
    let outcome = ask(Mode::Plain, Setup::new(always(http(429, json!({}), body)))).await;
    let shown = outcome.error().to_string();
    assert!(shown.contains("You exceeded your current quota."), "{shown}");
    assert!(shown.contains("\n  hint: ") && shown.contains("billing"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_failure_costs_run_one_request_and_exec_three() {
    let script = always(status(418));
    for mode in MODES {
        let outcome = ask(mode, Setup::new(script.clone())).await;
        outcome.fails("llm.error", "unknown", NO_RETRY).permanently(false);
    }
    let lab = Lab::new(script).await;
    let outcome = lab.exec(|exec| exec).await;
    outcome.fails("llm.error", "unknown", X_ONLY).permanently(false);
    assert!(outcome.error().message().contains("failed after 3 attempts"), "{}", outcome.error());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let elsewhere = http(302, json!({ "location": "/v1/elsewhere" }), Value::Null);
    for mode in MODES {
        let outcome = ask(mode, Setup::new(once([elsewhere.clone(), text("no")]))).await;
        assert_eq!((outcome.log.len(), outcome.error().attempts().len()), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_statuses_are_ridden_out_and_say_what_they_are() {
    for (code, error_code, reason) in [
        (429, "llm.rate_limit", "rate_limit"),
        (529, "llm.rate_limit", "overloaded"),
        (500, "llm.connection", "server_error"),
        (502, "llm.connection", "server_error"),
        (504, "llm.connection", "timeout"),
    ] {
        is_ridden_out_everywhere(status(code), &[500]).await;
        fails_everywhere(status(code), error_code, reason, T_THEN_S).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_request_id_reach_the_caller() {
    let step = http(503, json!({ "x-request-id": "req_42" }), json!("down"));
    for mode in MODES {
        let outcome = ask(mode, Setup::new(always(step.clone()))).await;
        assert_eq!((outcome.context("status"), outcome.context("request_id")), (json!(503), json!("req_42")));
        for (name, value) in [("agent_id", "assistant"), ("run_id", outcome.result().run_id.as_str())] {
            assert_eq!(outcome.context(name), value);
        }
        assert_eq!(outcome.context("step_number"), 1);
        // The provider's log has the run's name too, at every attempt.
        let named = outcome
            .log
            .iter()
            .filter(|request| request.headers["x-client-request-id"] == outcome.result().run_id);
        assert_eq!(named.count(), 6);
    }
}

// ---- Waits that the provider asks for.

#[tokio::test(flavor = "multi_thread")]
async fn a_429_with_retry_after_is_waited_for_that_long_at_least() {
    let in_ten = json!({
        "date": "Wed, 21 Oct 2015 07:28:20 GMT", "retry-after": "Wed, 21 Oct 2015 07:28:30 GMT",
    });
    for (headers, asked) in [(json!({ "retry-after": "2" }), 2_000), (in_ten, 10_000)] {
        for mode in MODES {
            let throttle = http(429, headers.clone(), Value::Null);
            let outcome = ask(mode, Setup::new(once([throttle, text("ok")]))).await;
            assert_eq!((outcome.output.as_deref().ok(), outcome.log.len()), (Some("ok"), 2));
            let decided = outcome.events_of(aplomb::event::names::RETRY_DECIDED);
            assert_eq!(decided.len(), 1);
            assert_eq!(decided[0].payload["delay_source"], "retry-after");
            // The hint is a floor; at most a tenth of it is added.
            let wait = outcome.waits()[0];
            assert!((asked..=asked + asked / 10).contains(&wait), "{wait}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_is_a_floor_and_never_makes_a_wait_shorter() {
    let throttle = http(429, json!({ "retry-after": "1" }), Value::Null);
    let outcome = ask(Mode::Plain, Setup::new(always(throttle))).await;
    let waits = outcome.waits();
    let floors = [1_000, 1_000, 2_000, 4_000, 8_000];
    assert_eq!((waits.len(), outcome.log.len()), (floors.len(), 6));
    for (wait, floor) in waits.iter().zip(floors) {
        assert!((floor..=floor.max(1_100)).contains(wait), "{waits:?}");
    }
    assert_eq!(outcome.error().code(), codes::LLM_RATE_LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_of_nothing_or_of_nonsense_leaves_the_delay_as_it_is() {
    for garbage in ["-1", "NaN", "Infinity", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "0"] {
        let throttle = http(429, json!({ "retry-after": garbage }), Value::Null);
        let outcome = ask(Mode::Plain, Setup::new(once([throttle, text("ok")]))).await;
        outcome.gives("ok", &[500]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_too_long_is_reported_and_not_slept() {
    let before = SystemHost.wall_ms();
    for mode in MODES {
        let throttle = http(429, json!({ "retry-after": "120" }), Value::Null);
        let outcome = ask(mode, Setup::new(always(throttle))).await;
        outcome.fails("llm.rate_limit", "rate_limit", NO_RETRY).permanently(false);
        assert_eq!(outcome.context("retry_after_ms"), 120_000);
        let resume_at = outcome.context("resume_at").as_u64().expect("resume_at is known");
        assert!(resume_at >= before + 120_000, "{resume_at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_wait_that_is_slept_can_be_set() {
    let throttle = |seconds: &str| http(429, json!({ "retry-after": seconds }), Value::Null);
    let outcome = ask(Mode::Plain, Setup::new(once([throttle("60"), text("ok")]))).await;
    assert_eq!((outcome.output.as_deref().ok(), outcome.log.len()), (Some("ok"), 2));
    let setup =
        Setup::new(always(throttle("2"))).agent(|agent| agent["retry"]["max_inline_wait_ms"] = json!(1_999));
    ask(Mode::Plain, setup).await.fails("llm.rate_limit", "rate_limit", NO_RETRY);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_calls_retries_can_be_limited() {
    let setup = Setup::new(always(status(503)))
        .agent(|agent| agent["llm"]["retry"]["total_budget_ms"] = json!(3_400));
    // 500 + 1 000 fit, 2 000 more do not.
    ask(Mode::Plain, setup).await.fails("llm.connection", "server_error", &[500, 1_000]);
}

// ---- Connections.

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_before_the_headers_is_a_failed_connection() {
    for fault in ["reset_before_headers", "close_before_headers"] {
        let dies = with_fault(text("no"), json!(fault));
        fails_everywhere(dies.clone(), "llm.connection", "connection", T_THEN_S).await;
        is_ridden_out_everywhere(dies, &[500]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_while_it_is_used_again_is_one_attempt_like_any_other() {
    for fault in ["reset_before_headers", "close_before_headers"] {
        let lab = Lab::new(once([text("one"), with_fault(text("no"), json!(fault)), text("two")])).await;
        lab.run(hi()).await.gives("one", NO_RETRY);
        lab.run(hi()).await.gives("two", &[500]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_counts_as_an_attempt() {
    let (nobody, _bound) = nobody();
    for (transport_serves, attempts) in [(true, 6), (false, 4)] {
        let setup = Setup::new(always(text("elsewhere"))).agent(move |agent| {
            agent["llm"]["api_base"] = json!(format!("http://{nobody}/v1"));
            agent["llm"]["retry"]["retry_on_connection_errors"] = json!(transport_serves);
        });
        let outcome = setup.start().await.run(hi()).await;
        let error = outcome.error();
        assert_eq!((error.code(), error.reason()), (codes::LLM_CONNECTION, Some("connection")));
        assert_eq!(error.attempts().len(), attempts);
        let expected = if transport_serves { T_THEN_S } else { S_ONLY };
        assert_eq!(outcome.waits(), expected);
        assert!(error.message().contains(&format!("failed after {attempts} attempts")), "{error}");
    }
}

// ---- Answers that break off.

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_off_is_interrupted_and_never_a_short_success() {
    for by in ["fin", "reset"] {
        let cut = |events| {
            let answer = text("one two three four five");
            with_fault(answer, json!({ "cut": { "after_events": events, "by": by } }))
        };
        // The first event names the role: nothing was delivered. After that, words were, to whoever watches.
        fails_everywhere(cut(1), "llm.connection", "stream_interrupted", T_THEN_S).await;
        for mode in UNWATCHED {
            let outcome = ask(mode, Setup::new(always(cut(3)))).await;
            outcome.fails("llm.connection", "stream_interrupted", T_THEN_S);
        }
        let outcome = ask(Mode::Watched, Setup::new(always(cut(3)))).await;
        outcome.fails("llm.connection", "stream_interrupted", S_ONLY);
        // Cut after the last word, before the end was said.
        let outcome = ask(Mode::Streamed, Setup::new(always(cut(99)))).await;
        outcome.fails("llm.connection", "stream_interrupted", T_THEN_S);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_answer_and_then_a_whole_one_give_the_text_exactly_once() {
    let answer = "one two three four five";
    for fault in [
        json!({ "cut": { "after_events": 3, "by": "fin" } }),
        json!({ "cut": { "after_events": 3, "by": "reset" } }),
        json!({ "end_without_terminal": { "done": false } }),
        json!({ "end_without_terminal": { "done": true } }),
        json!({ "error_event": { "after_events": 3, "body": { "error": { "type": "server_error" } } } }),
    ] {
        let script = once([with_fault(text(answer), fault), text(answer)]);
        for mode in UNWATCHED {
            ask(mode, Setup::new(script.clone())).await.gives(answer, &[500]);
        }
        ask(Mode::Watched, Setup::new(script)).await.gives(answer, &[2_000]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_the_terminal_event_is_a_failure_with_and_without_done() {
    for done in [false, true] {
        let ends = with_fault(text("one two"), json!({ "end_without_terminal": { "done": done } }));
        for mode in UNWATCHED {
            let outcome = ask(mode, Setup::new(always(ends.clone()))).await;
            outcome.fails("llm.connection", "stream_interrupted", T_THEN_S);
        }
        let outcome = ask(Mode::Watched, Setup::new(always(ends))).await;
        outcome.fails("llm.connection", "stream_interrupted", S_ONLY);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_line_in_a_good_stream_is_an_interruption() {
    let first = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"one "}}]}"#;
    let broken = events(&[first, r#"{"choices":[{"index":0,"del"#, "[DONE]"]);
    let outcome = ask(Mode::Streamed, Setup::new(always(broken.clone()))).await;
    outcome.fails("llm.connection", "stream_interrupted", T_THEN_S);
    ask(Mode::Streamed, Setup::new(once([broken, text("one two")]))).await.gives("one two", &[500]);
}

/// design.md §6: "any split of the bytes gives the same events". So what was delivered, and with it who pays for the
/// next attempt, does not hang on how the network happened to cut the bytes.
#[tokio::test(flavor = "multi_thread")]
async fn words_that_come_in_one_packet_with_an_error_are_delivered_like_any_others() {
    let word = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"one "}}]}"#;
    let error = json!({ "error": { "message": "the server had an error", "type": "server_error" } });
    let apart = with_fault(text("one two"), json!({ "error_event": { "after_events": 2, "body": error } }));
    let together = events(&[word, &error.to_string()]);
    for step in [apart, together] {
        let outcome = ask(Mode::Watched, Setup::new(always(step))).await;
        outcome.fails("llm.connection", "server_error", S_ONLY);
        assert!(kept_text(&outcome.chunks).starts_with("one"));
    }
}

// ---- Errors inside a 200.

/// An answer of two words with this error in place of what follows so many events.
fn error_after(events: usize, body: Value) -> Value {
    with_fault(text("one two"), json!({ "error_event": { "after_events": events, "body": body } }))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_event_is_judged_by_what_it_says_and_by_what_was_delivered() {
    for (kind, code, reason) in [
        ("server_error", "llm.connection", "server_error"),
        ("overloaded_error", "llm.rate_limit", "overloaded"),
    ] {
        let body = json!({ "error": { "message": "the server had an error", "type": kind } });
        // First of all, and after the role: nothing was delivered.
        for events in [0, 1] {
            fails_everywhere(error_after(events, body.clone()), code, reason, T_THEN_S).await;
        }
        ask(Mode::Streamed, Setup::new(always(error_after(3, body.clone()))))
            .await
            .fails(code, reason, T_THEN_S);
        let outcome = ask(Mode::Watched, Setup::new(always(error_after(3, body)))).await;
        outcome.fails(code, reason, S_ONLY);
        // Where it was said, and in whose words; the status was good.
        let message = outcome.error().message();
        assert!(message.contains("inside the stream: the server had an error"), "{message}");
        assert_eq!(outcome.context("status"), 200);
        assert!(
            outcome.context("excerpt").as_str().unwrap().contains(kind),
            "{}",
            outcome.context("excerpt")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_error_event_costs_one_request_wherever_it_comes() {
    let body =
        json!({ "error": { "message": "no", "type": "invalid_request_error", "code": "invalid_api_key" } });
    for events in [0, 1, 3] {
        let step = error_after(events, body.clone());
        for mode in MODES {
            let outcome = ask(mode, Setup::new(always(step.clone()))).await;
            outcome.fails("llm.response", "auth", NO_RETRY).permanently(true);
            assert!(outcome.error().message().contains("no"), "{}", outcome.error());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_without_text_is_transient_and_shows_as_its_type_alone() {
    for body in [json!(""), json!({ "error": {} }), json!({ "error": { "message": "" } })] {
        let first = error_after(0, body.clone());
        let outcome = ask(Mode::Streamed, Setup::new(always(first.clone()))).await;
        outcome.fails("llm.connection", "stream_interrupted", T_THEN_S);
        for attempt in outcome.error().attempts() {
            assert_eq!(attempt.error(), "LLMConnectionError");
        }
        ask(Mode::Watched, Setup::new(always(first))).await.fails(
            "llm.connection",
            "stream_interrupted",
            T_THEN_S,
        );
        let later = ask(Mode::Watched, Setup::new(always(error_after(3, body)))).await;
        later.fails("llm.connection", "stream_interrupted", S_ONLY);
    }
    // In one piece: a 200 with an empty body, and one with an error that says nothing.
    for body in [json!(""), json!({ "error": {} })] {
        let outcome = ask(Mode::Plain, Setup::new(always(error_after(0, body)))).await;
        assert_eq!((outcome.error().code(), outcome.log.len()), (codes::LLM_CONNECTION, 6));
        assert_eq!(outcome.waits(), T_THEN_S);
    }
}

// ---- Clocks.

#[tokio::test(flavor = "multi_thread")]
async fn every_clock_ends_the_attempt_and_the_error_names_its_setting() {
    let silence = json!("silence");
    let stall = json!({ "stall": { "after_events": 3 } });
    let pings = |events: usize| json!({ "pings": { "after_events": events, "every_ms": 50 } });
    let cases = [
        (Mode::Plain, silence.clone(), "first_byte_ms"),
        (Mode::Streamed, silence.clone(), "first_byte_ms"),
        (Mode::Watched, silence.clone(), "first_byte_ms"),
        // The whole body when not streamed.
        (Mode::Plain, stall.clone(), "first_byte_ms"),
        (Mode::Plain, pings(0), "first_byte_ms"),
        (Mode::Streamed, stall.clone(), "idle_ms"),
        (Mode::Watched, stall.clone(), "idle_ms"),
        // No model progress; pings are none.
        (Mode::Streamed, pings(0), "idle_ms"),
        (Mode::Streamed, pings(3), "idle_ms"),
        (Mode::Watched, pings(3), "idle_ms"),
        (Mode::Plain, silence, "attempt_ms"),
        (Mode::Streamed, pings(3), "attempt_ms"),
        (Mode::Watched, stall, "attempt_ms"),
    ];
    let faulty = cases.map(|(mode, fault, clock)| (mode, with_fault(text("one two three"), fault), clock));
    // Words that trickle keep every clock but that of the whole attempt.
    let trickle = message(json!({ "text": "one two three four five six", "event_gap_ms": 300 }));
    let trickles = [Mode::Streamed, Mode::Watched].map(|mode| (mode, trickle.clone(), "attempt_ms"));
    let checks = faulty.into_iter().chain(trickles).map(|(mode, step, clock)| async move {
        // Only the clock that is to end it can: the others are too long for the test.
        let setup = Setup::new(always(step.clone())).agent(no_retries).agent(move |agent| {
            agent["llm"]["timeouts"] = json!({ clock: 500 });
        });
        let outcome = ask(mode, setup).await;
        println!("{mode:?} {step} {clock}");
        outcome.fails("llm.connection", "timeout", NO_RETRY).permanently(false);
        let setting = format!("llm.timeouts.{clock}");
        assert_eq!(outcome.context("setting"), setting.as_str());
        assert!(outcome.error().to_string().contains(&setting), "{}", outcome.error());
    });
    join_all(checks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_not_made_in_time_ends_the_attempt() {
    let (address, _deaf) = deaf().await;
    let setup = Setup::new(always(text("elsewhere"))).agent(no_retries).agent(move |agent| {
        agent["llm"]["api_base"] = json!(address);
        agent["llm"]["timeouts"] = json!({ "connect_ms": 500 });
    });
    let outcome = setup.start().await.run(hi()).await;
    let error = outcome.error();
    assert_eq!((error.code(), error.reason()), (codes::LLM_CONNECTION, Some("timeout")), "{error}");
    assert_eq!((error.attempts().len(), outcome.context("setting")), (1, json!("llm.timeouts.connect_ms")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_is_retried_like_any_failed_connection() {
    let silent = with_fault(text("no"), json!("silence"));
    let setup = Setup::new(once([silent, text("ok")]))
        .agent(|agent| agent["llm"]["timeouts"] = json!({ "first_byte_ms": 1_000 }));
    ask(Mode::Plain, setup).await.gives("ok", &[500]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_slow_but_moves_is_left_alone() {
    // 9 gaps of 300 ms: longer in all than either clock.
    let slow = message(json!({ "text": "a b c d e f g h", "event_gap_ms": 300 }));
    for mode in [Mode::Streamed, Mode::Watched] {
        let setup = Setup::new(always(slow.clone())).agent(no_retries).agent(|agent| {
            agent["llm"]["timeouts"] = json!({ "first_byte_ms": 1_500, "idle_ms": 1_500 });
        });
        ask(mode, setup).await.gives("a b c d e f g h", NO_RETRY);
    }
}
