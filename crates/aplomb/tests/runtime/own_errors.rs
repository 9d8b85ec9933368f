//! Errors of a program's own are raised by the same parts as the contract's, and are treated alike.
use std::future::IntoFuture;
use std::sync::Arc;

use crate::support::*;
use crate::triggers::{Does, named, tool_details};
use aplomb::error::{AgentError, Code, Declaration};
use aplomb::event::names;
use aplomb::{Ask, Error, Event, StopReason, codes};
use serde_json::{Value, json};

/// An error without fields, declared by hand.
macro_rules! by_hand {
    ($name:ident, $code:literal, $parent:expr) => {
        #[derive(Debug)]
        pub(crate) struct $name;

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!("raised by ", $code))
            }
        }

        impl std::error::Error for $name {}

        impl AgentError for $name {
            const CODE: Code = {
                static DECLARATION: Declaration =
                    Declaration::new($code, $parent, stringify!($name), file!(), line!()).hint("mend it");
                Code::declared(&DECLARATION)
            };
        }
    };
}

by_hand!(Jammed, "printer.jammed", codes::TOOL_UNAVAILABLE);
by_hand!(Scrapped, "printer.scrapped", codes::TOOL_PERMANENT);
by_hand!(Slow, "printer.slow", codes::TOOL_TIMEOUT);
by_hand!(Strike, "printer.strike", codes::EXECUTION_TIMEOUT);
by_hand!(Taken, "tool.timeout", codes::TOOL_ERROR);

/// A tool that fails so often, and then works. Gives the calls and the outcome.
async fn failing(
    times: usize,
    executor: Value,
    error: impl Fn() -> Error + Send + Sync + 'static,
) -> (usize, Outcome) {
    let failures = std::sync::atomic::AtomicUsize::new(0);
    let probe = Probe::new(move |_| {
        let failed = failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::future::ready(if failed < times { Err(error()) } else { Ok(json!("printed")) })
    });
    let script = once([calls(&[("probe", json!({}))]), text("done")]);
    let setup = Setup::new(script)
        .tool("probe", probe.clone())
        .plugins(|registry| registry.error::<Jammed>().error::<Scrapped>().error::<Slow>().error::<Strike>())
        .agent(move |agent| {
            if !executor.is_null() {
                agent["tool_executor"] = executor;
            }
        });
    let outcome = setup.start().await.run(named()).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    (probe.calls().len(), outcome)
}

fn retry() -> Value {
    json!({ "type": "retry" })
}

fn retry_without_jitter() -> Value {
    json!({ "type": "retry", "config": { "jitter": "none" } })
}

fn attempts(events: &[&Event]) -> Vec<u64> {
    events.iter().map(|event| event.payload["attempt"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retryable_error_of_ones_own_is_raised_three_times_by_the_retry_executor() {
    let (called, outcome) = failing(usize::MAX, retry_without_jitter(), || Error::custom(Jammed)).await;
    assert_eq!(called, 3); // max_attempts, the first included
    let requested = outcome.events_of(names::TOOL_RETRY_REQUESTED);
    assert_eq!(attempts(&requested), [1, 2]);
    assert!(requested.iter().all(|event| event.payload["error"] == "raised by printer.jammed"));
    let details = tool_details(&outcome);
    assert_eq!((details.dict.code.as_str(), details.dict.retryable), ("printer.jammed", true));
    assert_eq!((details.type_name.as_str(), details.dict.hint.as_deref()), ("Jammed", Some("mend it")));
    let metadata = &outcome.events_of(names::TOOL_FAILED)[0].payload["executor_metadata"];
    // 200 ms, and twice that.
    let expected = json!({
        "retry_attempts": 2, "retry_delays_ms": [200, 400], "retry_reasons": ["printer.jammed", "printer.jammed"],
    });
    assert_eq!(metadata, &expected);
    assert_eq!((outcome.result().usage.tool_calls, outcome.log.len()), (3, 2));
    let (_, told) = tool_results(&outcome.log[1])[0].clone();
    assert!(told.starts_with("printer.jammed: raised by printer.jammed"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retry_executor_needs_no_settings_and_spreads_its_waits_over_their_upper_half() {
    let (called, outcome) = failing(usize::MAX, retry(), || Error::custom(Jammed)).await;
    assert_eq!(called, 3);
    let metadata = &outcome.events_of(names::TOOL_FAILED)[0].payload["executor_metadata"];
    let waits: Vec<_> =
        metadata["retry_delays_ms"].as_array().unwrap().iter().map(|ms| ms.as_u64().unwrap()).collect();
    assert!((100..=200).contains(&waits[0]) && (200..=400).contains(&waits[1]), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_works_in_the_end_says_what_it_took() {
    let (called, outcome) = failing(1, retry_without_jitter(), || Error::custom(Jammed)).await;
    assert_eq!((called, outcome.events_of(names::TOOL_FAILED).len()), (2, 0));
    let succeeded = &outcome.events_of(names::TOOL_SUCCEEDED)[0].payload;
    let expected =
        json!({ "retry_attempts": 1, "retry_delays_ms": [200], "retry_reasons": ["printer.jammed"] });
    assert_eq!((&succeeded["result"], &succeeded["executor_metadata"]), (&json!("printed"), &expected));
    assert_eq!(tool_results(&outcome.log[1])[0].1, "printed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_error_of_ones_own_is_raised_once_and_so_is_a_retryable_one_without_the_retry_executor() {
    let scrapped: fn() -> Error = || Error::custom(Scrapped);
    let jammed: fn() -> Error = || Error::custom(Jammed);
    for (executor, error, code) in [
        (retry(), scrapped, "printer.scrapped"),
        (json!({ "type": "safe" }), jammed, "printer.jammed"),
        (Value::Null, jammed, "printer.jammed"),
    ] {
        let (called, outcome) = failing(usize::MAX, executor, error).await;
        assert_eq!((called, outcome.events_of(names::TOOL_RETRY_REQUESTED).len()), (1, 0), "{code}");
        assert_eq!(tool_details(&outcome).dict.code, code);
        assert_eq!(outcome.events_of(names::TOOL_FAILED)[0].payload.get("executor_metadata"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_can_say_that_a_kind_of_retryable_error_is_not() {
    static HOPELESS: Declaration =
        Declaration::new("printer.hopeless", codes::TOOL_UNAVAILABLE, "Hopeless", file!(), line!())
            .retryable(false);
    let (called, outcome) =
        failing(usize::MAX, retry(), || Error::new(Code::declared(&HOPELESS), "no")).await;
    assert_eq!((called, tool_details(&outcome).dict.retryable), (1, false));
}

/// retry.md §2, Tools: "one exception: a time-out of a tool that is not idempotent, since it may have run".
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_ones_own_that_is_a_time_out_is_not_retried_where_the_tool_may_have_run() {
    let (called, outcome) = failing(usize::MAX, retry(), || Error::custom(Slow)).await;
    assert_eq!((called, tool_details(&outcome).dict.code.as_str()), (1, "printer.slow"));
}

/// errors.md §1: "a caller that handles a parent handles all below it".
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_ones_own_ends_a_run_as_its_parent_does_and_is_handled_like_it() {
    let strike = Does(Arc::new(|| Ask::Fail(Error::custom(Strike))));
    let setup =
        Setup::new(always(text("never"))).pattern(strike).plugins(|registry| registry.error::<Strike>());
    let outcome = setup.start().await.run(named()).await;
    assert_eq!(outcome.result().stop_reason, StopReason::Timeout);
    let details = outcome.result().error_details.clone().unwrap();
    assert_eq!((details.dict.code.as_str(), details.type_name.as_str()), ("printer.strike", "Strike"));
    assert_eq!(details.dict.hint.as_deref(), Some("mend it"));
    let error = outcome.error();
    assert!(error.is_a(codes::EXECUTION_TIMEOUT), "{:?} is no execution.timeout", error.code());
    assert_eq!((error.code(), error.stop_reason()), (Strike::CODE, StopReason::Timeout));
}

/// retry.md §2, Tools: "`llm.model_retry` raised by a tool passes every executor unchanged and goes back to the model."
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_asks_the_model_to_try_again_is_called_once_and_the_model_is_told() {
    for executor in [retry(), json!({ "type": "safe" })] {
        let (called, outcome) = failing(usize::MAX, executor, || {
            Error::new(codes::LLM_MODEL_RETRY, "a colour was wanted")
                .with_context("validation_error", "no colour")
        })
        .await;
        assert_eq!((called, tool_details(&outcome).dict.code.as_str()), (1, "llm.model_retry"));
        assert!(tool_results(&outcome.log[1])[0].1.contains("a colour was wanted"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_gives_the_same_codes_as_run() {
    for (step, code) in [
        (status(401), codes::LLM_RESPONSE),
        (status(418), codes::LLM_ERROR),
        (status(429), codes::LLM_RATE_LIMIT),
        (status(503), codes::LLM_CONNECTION),
    ] {
        let lab = Lab::new(always(step)).await;
        let error = in_time(lab.runtime.exec("assistant", "hi").into_future()).await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), (code, code.retryable()));
        assert_eq!(error.context("agent_id"), Some(&json!("assistant")));
    }
}

/// design.md §2: "`handle` is total".
#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_asks_for_nothing_but_tools_that_there_are_not_ends() {
    let missing = || {
        let call = json!({ "id": "c", "name": "nosuch", "arguments": "{}" });
        Ask::Tools(vec![serde_json::from_value(call).unwrap()])
    };
    let asks: [fn() -> Ask; 2] = [|| Ask::Tools(Vec::new()), missing];
    for ask in asks {
        let setup = Setup::new(always(text("never"))).pattern(Does(Arc::new(ask)));
        let outcome = in_time(setup.start().await.run(hi())).await;
        assert_eq!((outcome.error().code(), outcome.log.len()), (codes::PATTERN_ERROR, 0));
    }
}
