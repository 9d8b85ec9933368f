//! What Aplomb promises, each in one test from outside, however the answer comes: whole, streamed, or watched. README
//! links here; the cases one by one are in the other files.
use std::time::Duration;

use aplomb::error::Code;
use aplomb::event::names;
use aplomb::host::SystemHost;
use aplomb::{Cancellation, Error, RunBudget, RunRequest, StopReason, codes};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::*;

/// The failures that pass as a rule, and those that cannot.
fn failures() -> [(Value, bool); 8] {
    let cut = |by: &str| with_fault(text("one two"), json!({"cut": {"after_events": 1, "by": by}}));
    let error =
        json!({"error": {"message": "no", "type": "invalid_request_error", "code": "invalid_api_key"}});
    [
        (status(503), false),
        (status(500), false),
        (http(429, json!({"retry-after": "1"}), Value::Null), false),
        (with_fault(text("no"), json!("reset_before_headers")), false),
        (cut("fin"), false),
        (status(401), true),
        (status(400), true),
        (with_fault(text("no"), json!({"error_event": {"after_events": 0, "body": error}})), true),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_on_the_wire_are_attempts_in_the_error_and_what_cannot_pass_costs_one() {
    for mode in MODES {
        for (step, permanent) in failures() {
            let outcome = ask(mode, Setup::new(always(step.clone()))).await;
            let attempts = outcome.error().attempts();
            assert_eq!(attempts.len(), outcome.log.len(), "{mode:?} {step}");
            assert_eq!(outcome.waits().len() + 1, outcome.log.len(), "{mode:?} {step}");
            assert_eq!(outcome.log.len() == 1, permanent, "{mode:?} {step}");
            outcome.permanently(permanent);
        }
        // No redirect is followed.
        let away = http(302, json!({"location": "/v1/elsewhere"}), Value::Null);
        let outcome = ask(mode, Setup::new(always(away))).await;
        assert_eq!((outcome.error().attempts().len(), outcome.log.len()), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_layers_add_and_the_same_request_is_sent_six_times_at_most() {
    for mode in MODES {
        for (step, _) in failures() {
            let outcome = ask(mode, Setup::new(always(step.clone()))).await;
            // 1 + transport 2 + session 3.
            assert!(outcome.log.len() <= 6, "{mode:?} {step}: {}", outcome.log.len());
        }
        ask(mode, Setup::new(always(status(503)))).await.fails("llm.connection", "server_error", T_THEN_S);
    }
    // Exec is a third layer, and adds nothing where the two have served.
    let outcome = Lab::new(always(status(503))).await.exec(|exec| exec).await;
    outcome.fails("llm.connection", "server_error", T_THEN_S);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_that_is_done_never_runs_again_whatever_fails_later() {
    for mode in MODES {
        for (step, permanent) in failures() {
            // The call is done; then the model fails, once or for good.
            let script = once([calls(&[("probe", json!({}))]), step.clone(), text("done")]);
            let probe = Probe::saying("told");
            let outcome = ask(mode, Setup::new(script).tool("probe", probe.clone())).await;
            let name = format!("{mode:?} {step}: {:?}", outcome.output);
            assert_eq!((probe.calls().len(), outcome.output.is_err()), (1, permanent), "{name}");
            // Every later request brings its result.
            let told: Vec<_> = outcome.log[1..].iter().map(tool_results).collect();
            assert!(told.iter().all(|told| told == &[("call_1".to_owned(), "told".to_owned())]), "{told:?}");
        }
        // One that may have been done does not run again either.
        let script = once([calls(&[("probe", json!({}))]), text("done")]);
        let probe = Probe::new(|_| async { Err(Error::new(codes::TOOL_TIMEOUT, "no word from it")) });
        let setup = Setup::new(script).tool("probe", probe.clone());
        let setup = setup.agent(|agent| agent["tool_executor"] = json!({"type": "retry"}));
        let outcome = ask(mode, setup).await;
        assert_eq!((probe.calls().len(), outcome.output.is_ok()), (1, true), "{mode:?}");
        assert!(tool_results(&outcome.log[1])[0].1.contains("no word from it"), "the model is told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_its_end_is_never_a_short_success_and_runs_no_tool() {
    let error = json!({"error": {"message": "the server had an error", "type": "server_error"}});
    let unfinished = [
        json!({"cut": {"after_events": 3, "by": "fin"}}),
        json!({"cut": {"after_events": 99, "by": "fin"}}),
        json!({"end_without_terminal": {"done": false}}),
        json!({"end_without_terminal": {"done": true}}),
        json!({"error_event": {"after_events": 3, "body": error}}),
        json!("empty_answer"),
    ];
    for mode in MODES {
        for fault in &unfinished {
            let name = format!("{mode:?} {fault}");
            let outcome =
                ask(mode, Setup::new(always(with_fault(text("one two three"), fault.clone())))).await;
            assert_eq!(outcome.result().stop_reason, StopReason::Failed, "{name}");
            assert_eq!(outcome.result().final_output, None, "{name}");
            let probe = Probe::saying("never");
            let asks = with_fault(calls(&[("probe", json!({"place": "here"}))]), fault.clone());
            let outcome = ask(mode, Setup::new(always(asks)).tool("probe", probe.clone())).await;
            assert_eq!((probe.calls().len(), outcome.output.is_err()), (0, true), "{name}");
        }
        // An end in order says nothing of arguments that were cut off.
        let asks = with_fault(calls(&[("probe", json!({"place": "here"}))]), json!({"cut_arguments": {}}));
        let probe = Probe::saying("never");
        let setup = Setup::new(once([asks, text("done")])).tool("probe", probe.clone());
        ask(mode, setup).await;
        assert_eq!(probe.calls().len(), 0, "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_piece_of_text_comes_once_or_is_taken_back() {
    let answer = "one two three four";
    for mode in MODES {
        for events in [1, 2, 3, 4, 5] {
            for fault in [
                json!({"cut": {"after_events": events, "by": "reset"}}),
                json!({"cut": {"after_events": events, "by": "fin"}}),
            ] {
                let broken = with_fault(text(answer), fault);
                let script = once([broken.clone(), broken, text(answer)]);
                let outcome = ask(mode, Setup::new(script)).await;
                // What is left to a subscriber, and to a stream's reader, after what it was told to discard.
                let waits = outcome.waits();
                outcome.gives(answer, &waits);
                assert_eq!(outcome.log.len(), 3);
            }
        }
    }
}

/// A place where a run may be for longer than it should, and how to tell that it is there.
struct Place {
    name: &'static str,
    script: Value,
    /// A tool that never ends.
    tool: bool,
    /// Real waits, so that there is one to be in.
    waits: bool,
    reached: fn(&Lab) -> bool,
}

fn places() -> Vec<Place> {
    let place = |name, script, reached| Place { name, script, tool: false, waits: false, reached };
    let mut handshake = always(text("elsewhere"));
    handshake["server"] = json!({"tls": "good", "connections": ["silent_handshake"]});
    let asked = |lab: &Lab| lab.requests() == 1;
    let silent = with_fault(text("no"), json!("silence"));
    let stalled = with_fault(text("one two three"), json!({"stall": {"after_events": 3}}));
    let pings = with_fault(text("one two three"), json!({"pings": {"after_events": 3, "every_ms": 20}}));
    let tool = always(calls(&[("probe", json!({}))]));
    let throttle = always(http(429, json!({"retry-after": "30"}), Value::Null));
    vec![
        place("connecting", handshake, |lab| lab.server.connection_count() == 1),
        place("waiting for the first byte", always(silent), asked),
        place("in an answer that stalls", always(stalled), asked),
        place("in a stream kept alive by pings", always(pings), asked),
        Place { tool: true, ..place("in a tool", tool, |lab| lab.events.has(names::TOOL_CALLED)) },
        Place { waits: true, ..place("in a back-off", throttle, |lab| lab.events.has(names::RETRY_DECIDED)) },
    ]
}

impl Place {
    async fn lab(&self, mode: Mode) -> Lab {
        let stream = if mode == Mode::Streamed { "always" } else { "auto" };
        let setup =
            Setup::new(self.script.clone()).agent(move |agent| agent["llm"]["stream"] = json!(stream));
        let setup = if self.tool { setup.tool("probe", Probe::hanging()) } else { setup };
        let setup = if self.waits { setup.build(|builder| builder.host(SystemHost)) } else { setup };
        setup.start().await
    }
}

async fn run(lab: &Lab, mode: Mode, request: RunRequest) -> Outcome {
    if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_by_its_deadline_wherever_it_is() {
    for place in &places() {
        let timeout = || hi().timeout(Duration::from_millis(600));
        let ends = (codes::EXECUTION_TIMEOUT, StopReason::Timeout);
        join_all(MODES.map(|mode| ends_by_its_deadline(place, mode, timeout(), ends))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_by_its_budgets_time_wherever_it_is() {
    for place in &places() {
        let budget = || hi().budget(RunBudget::new().max_duration_ms(600));
        let ends = (codes::EXECUTION_BUDGET_EXHAUSTED, StopReason::BudgetExhausted);
        join_all(MODES.map(|mode| ends_by_its_deadline(place, mode, budget(), ends))).await;
    }
}

async fn ends_by_its_deadline(place: &Place, mode: Mode, request: RunRequest, ends: (Code, StopReason)) {
    let lab = place.lab(mode).await;
    let outcome = run(&lab, mode, request).await;
    let name = format!("{} {mode:?}: {}", place.name, outcome.error());
    if place.waits {
        // A wait that would end after the deadline is not begun: the run ends earlier, with what it knows.
        assert_eq!((outcome.error().code(), outcome.waits().len()), (codes::LLM_RATE_LIMIT, 0), "{name}");
        assert!(outcome.context("resume_at").is_u64(), "{name}");
    } else {
        assert_eq!((outcome.error().code(), outcome.result().stop_reason), ends, "{name}");
        assert!(!outcome.error().retryable(), "{name}");
    }
    assert!(lab.requests() <= 1, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_ends_at_once_as_cancelled_wherever_it_is_and_is_never_retried() {
    for place in &places() {
        join_all(MODES.map(|mode| ends_as_cancelled(place, mode))).await;
    }
}

async fn ends_as_cancelled(place: &Place, mode: Mode) {
    let lab = place.lab(mode).await;
    let cancellation = Cancellation::new();
    let cancel = async {
        until(|| (place.reached)(&lab)).await;
        cancellation.cancel("operator");
    };
    let request = hi().cancellation(cancellation.clone());
    let (outcome, ()) = tokio::join!(run(&lab, mode, request), cancel);
    let name = format!("{} {mode:?}: {}", place.name, outcome.error());
    assert_eq!(outcome.error().code(), codes::EXECUTION_CANCELLED, "{name}");
    assert_eq!(outcome.result().stop_reason, StopReason::Cancelled, "{name}");
    assert!(!outcome.error().retryable(), "{name}");
    assert_eq!(outcome.context("by"), "operator", "{name}");
    let (requests, connections) = (lab.requests(), lab.server.connection_count());
    a_while().await;
    assert_eq!((lab.requests(), lab.server.connection_count()), (requests, connections), "{name}");
    assert!(requests <= 1, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_request_id_waiting_time_and_cause_reach_the_caller() {
    let body = json!({"error": {"message": "Slow down, please.", "code": "rate_limit_exceeded"}});
    let throttle = http(429, json!({"retry-after": "120", "x-request-id": "req_42"}), body);
    let told = |error: &Error, by: &str| {
        let field = |name: &str| error.context(name).cloned().unwrap_or_default();
        assert_eq!((error.code(), error.reason()), (codes::LLM_RATE_LIMIT, Some("rate_limit")), "{by}");
        assert_eq!((field("status"), field("request_id")), (json!(429), json!("req_42")), "{by}");
        assert_eq!(field("retry_after_ms"), 120_000, "{by}");
        assert!(field("resume_at").is_u64(), "{by}");
        // The provider's words, in the error and in its cause.
        assert!(error.to_string().contains("Slow down, please."), "{by}: {error}");
        let cause = std::error::Error::source(error).expect("a cause");
        assert!(cause.to_string().contains("Slow down, please."), "{by}: {cause}");
        assert_eq!(error.attempts().len(), 1, "{by}");
    };
    for mode in MODES {
        told(ask(mode, Setup::new(always(throttle.clone()))).await.error(), &format!("{mode:?}"));
    }
    let lab = Lab::new(always(throttle)).await;
    told(lab.exec(|exec| exec).await.error(), "exec");
    told(&lab.runtime.run("assistant", "hi").await.unwrap_err(), "run");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_is_an_event_that_names_its_rule_and_failed_attempts_are_counted() {
    for mode in MODES {
        for (step, _) in failures() {
            let outcome = ask(mode, Setup::new(always(step.clone()))).await;
            let decided = outcome.events_of(names::RETRY_DECIDED);
            let name = format!("{mode:?} {step}");
            // One for each attempt that failed, and the last one says that there is no other.
            assert_eq!(decided.len(), outcome.log.len(), "{name}");
            for (event, number) in decided.iter().zip(1..) {
                let field = |name: &str| event.payload[name].clone();
                assert_eq!(field("attempt"), number, "{name}");
                assert_eq!(field("will_retry"), number < decided.len(), "{name}");
                assert!(field("rule").as_str().is_some_and(|rule| !rule.is_empty()), "{name}");
            }
            let usage = &outcome.result().usage;
            let retries = outcome.log.len() as u64 - 1;
            assert_eq!((usage.llm_calls, usage.llm_retry_count), (1, retries), "{name}");
        }
    }
    // What an answer used that broke off after it had begun is known or estimated, and counted.
    let broken = with_fault(text("one two three"), json!({"cut": {"after_events": 3, "by": "reset"}}));
    let whole = ask(Mode::Watched, Setup::new(once([text("done")]))).await;
    let outcome = ask(Mode::Watched, Setup::new(once([broken, text("done")]))).await;
    let (once, twice) = (&whole.result().usage, &outcome.result().usage);
    assert!(twice.input_tokens > once.input_tokens && twice.estimated_tokens > 0, "{once:?} {twice:?}");
}
