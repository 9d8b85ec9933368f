//! The `retry` tool executor of `docs/spec/retry.md` §2, on whole runs.
#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use aplomb_core::decide::{Jitter, ToolRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::event::names;
use aplomb_core::run::Effect;
use aplomb_sim::{Attempt, Sim, ToolTurn, Turn, sim};
use serde_json::json;

fn retrying() -> Sim {
    let once_then_answer = |attempt: &Attempt| match attempt.request {
        0 => Turn::calls("calc", "{}"),
        _ => Turn::says(&attempt.messages[2].content.len().to_string()),
    };
    sim().provider(once_then_answer).policy(|policy| {
        policy.tools = ToolRetry::default();
        policy.tools.jitter = Jitter::None;
    })
}

/// A tool that fails so often before it works.
fn failing(times: u32, error: Error) -> impl FnMut(&aplomb_core::message::ToolCall, u64) -> ToolTurn {
    let mut failed = 0;
    move |_, _| {
        failed += 1;
        if failed <= times { ToolTurn::Fails(0, error.clone()) } else { ToolTurn::Returns(0, json!(81)) }
    }
}

#[test]
fn a_retryable_failure_is_retried_after_200_and_400_ms_and_the_result_says_so() {
    let run = retrying().tool(failing(2, Error::new(codes::TOOL_UNAVAILABLE, "down"))).run("hi");
    assert_eq!((run.tool_runs(), run.ended_at(), run.output()), (3, Some(600), Some("1")));
    let requested: Vec<_> = run
        .events()
        .filter(|(name, _)| *name == names::TOOL_RETRY_REQUESTED)
        .map(|(_, p)| &p["attempt"])
        .collect();
    assert_eq!(requested, [&json!(1), &json!(2)]);
    let succeeded = run.events().find(|(name, _)| *name == names::TOOL_SUCCEEDED).unwrap().1;
    assert_eq!(
        succeeded["executor_metadata"],
        json!({"retry_attempts": 2, "retry_delays_ms": [200, 400],
               "retry_reasons": ["tool.unavailable", "tool.unavailable"]})
    );
    assert_eq!(run.finished().unwrap().usage.tool_calls, 3);
}

#[test]
fn a_failure_that_lasts_is_told_to_the_model_after_three_attempts() {
    let run = retrying().tool(failing(9, Error::new(codes::TOOL_UNAVAILABLE, "down"))).run("hi");
    assert_eq!((run.tool_runs(), run.ended_at()), (3, Some(600)));
    let failed: Vec<_> = run.events().filter(|(name, _)| *name == names::TOOL_FAILED).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].1["error_details"]["code"], "tool.unavailable");
    assert_eq!(failed[0].1["executor_metadata"]["retry_attempts"], 2);
}

/// runtime.md §6: "an idempotency key that is stable over retries and resumes".
#[test]
fn the_idempotency_key_is_that_of_the_call_whatever_id_the_provider_gives_it() {
    let run = retrying()
        .provider(|attempt| match attempt.request {
            // Twice the same id: each is a call of its own.
            0 | 1 => Turn::calls("calc", "{}"),
            _ => Turn::says("ok"),
        })
        .tool(failing(2, Error::new(codes::TOOL_UNAVAILABLE, "down")))
        .run("hi");
    let keys: Vec<_> = run
        .effects()
        .iter()
        .filter_map(|(_, effect)| match effect {
            Effect::CallTool { idempotency_key, .. } => Some(idempotency_key.as_str()),
            _ => None,
        })
        .collect();
    // Three attempts of the first call, one of the second.
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3], "{keys:?}");
}

/// runtime.md §6: "another one for every other call of any run", also where a run's id is used again.
#[test]
fn an_id_that_is_used_again_gives_other_keys_and_every_key_can_be_a_header() {
    let keys = |seed, run_id: &str| -> Vec<String> {
        let run = retrying()
            .seed(seed)
            .run_id(run_id)
            .tool(failing(2, Error::new(codes::TOOL_UNAVAILABLE, "down")))
            .run("hi");
        let keys = run.effects().iter().filter_map(|(_, effect)| match effect {
            Effect::CallTool { idempotency_key, .. } => Some(idempotency_key.clone()),
            _ => None,
        });
        keys.collect()
    };
    let (first, again) = (keys(1, "täglich\r\nx: y"), keys(2, "täglich\r\nx: y"));
    // The simulated runs begin at the same time: their draws alone tell them apart.
    for keys in [&first, &again] {
        assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert!(keys[0].bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{keys:?}");
    }
    assert_ne!(first[0], again[0]);
}

#[test]
fn what_is_permanent_or_may_have_run_is_called_once() {
    for code in [codes::TOOL_ERROR, codes::TOOL_PERMANENT, codes::TOOL_AUTH, codes::TOOL_TIMEOUT] {
        let run = retrying().tool(failing(9, Error::new(code, "no"))).run("hi");
        assert_eq!(run.tool_runs(), 1, "{code}");
    }
}

#[test]
fn the_safe_executor_calls_once_whatever_happens() {
    let run = retrying()
        .policy(|policy| policy.tools = ToolRetry::never())
        .tool(failing(9, Error::new(codes::TOOL_UNAVAILABLE, "down")))
        .run("hi");
    assert_eq!(run.tool_runs(), 1);
}

#[test]
fn cancellation_ends_the_wait_before_a_tools_next_attempt() {
    let run =
        retrying().cancel_at(100).tool(failing(9, Error::new(codes::TOOL_UNAVAILABLE, "down"))).run("hi");
    assert_eq!((run.tool_runs(), run.ended_at()), (1, Some(100)));
    assert_eq!(run.error().unwrap().code(), codes::EXECUTION_CANCELLED);
}

#[test]
fn a_tools_retries_touch_no_model_calls_ledger() {
    let run = retrying()
        .provider(|attempt| match attempt.request {
            0 => Turn::calls("calc", "{}"),
            _ => Turn::fails(aplomb_core::failure::Failure::status(503, b"")),
        })
        .jitter_none()
        .tool(failing(2, Error::new(codes::TOOL_UNAVAILABLE, "down")))
        .run("hi");
    assert_eq!(run.requests(), 1 + 6);
    assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000]);
}
