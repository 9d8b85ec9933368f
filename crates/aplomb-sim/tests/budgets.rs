//! The time limits of a call and of a step: `docs/spec/retry.md` §2 and §5, `docs/spec/runtime.md` §1.

use aplomb_core::error::codes;
use aplomb_core::failure::{Failure, Phase, TransportKind};
use aplomb_core::run::StopReason;
use aplomb_sim::{Sim, Turn, sim};
use serde_json::json;

fn unavailable() -> Turn {
    Turn::fails(Failure::status(503, b""))
}

fn with_budget(budget_ms: u64) -> Sim {
    sim()
        .jitter_none()
        .provider(|_| unavailable())
        .policy(move |policy| policy.transport.total_budget_ms = Some(budget_ms))
}

#[test]
fn a_wait_that_would_end_past_the_calls_budget_is_not_slept() {
    let run = with_budget(3_000).run("hi");
    // 500 + 1 000 fit, 2 000 more do not.
    assert_eq!((run.requests(), run.ended_at()), (3, Some(1_500)));
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::LLM_CONNECTION);
    assert!(error.message().contains("failed after 3 attempts"), "{error}");
    assert_eq!(error.attempts()[2].rule, "wait.past_budget");
    assert_eq!(with_budget(3_500).run("hi").requests(), 4);
}

#[test]
fn a_budget_longer_than_the_runs_time_changes_nothing() {
    let run = with_budget(60_000).time_limit_ms(3_000).run("hi");
    assert_eq!((run.requests(), run.ended_at()), (3, Some(1_500)));
    assert_eq!(run.error().unwrap().attempts()[2].rule, "wait.past_deadline");
}

#[test]
fn an_attempt_that_outlasts_the_budget_is_the_last_and_is_not_cut_short() {
    let run = with_budget(3_000).provider(|_| unavailable().after_ms(10_000)).run("hi");
    assert_eq!((run.requests(), run.ended_at()), (1, Some(10_000)));
    assert_eq!(run.error().unwrap().attempts()[0].rule, "budget.spent");
    let answered = with_budget(3_000).provider(|_| Turn::says("late").after_ms(10_000)).run("hi");
    assert_eq!(answered.output(), Some("late"));
}

#[test]
fn every_call_has_a_budget_of_its_own() {
    let run = with_budget(1_000)
        .provider(|attempt| match attempt.request {
            0 | 2 => unavailable(),
            1 => Turn::calls("calc", "{}").after_ms(5_000),
            _ => Turn::says("done"),
        })
        .run("hi");
    assert_eq!((run.requests(), run.output()), (4, Some("done")));
}

#[test]
fn a_step_that_takes_too_long_ends_the_run_and_names_the_setting_and_what_was_waited_for() {
    let run = sim().step_timeout_ms(3_000).provider(|_| Turn::says("late").after_ms(60_000)).run("hi");
    assert_eq!(run.ended_at(), Some(3_000));
    assert_eq!(run.finished().unwrap().stop_reason, StopReason::Timeout);
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::EXECUTION_TIMEOUT);
    assert_eq!(error.context("setting"), Some(&json!("runtime.step_timeout_ms")));
    assert_eq!(error.context("limit_ms"), Some(&json!(3_000)));
    assert_eq!(error.context("where"), Some(&json!("attempt 1 of model call 1")));
    assert_eq!(error.attempts().len(), 1);
}

#[test]
fn the_steps_clock_stands_still_while_a_wait_is_slept() {
    // Attempts of 400 ms: 1 600 of the step's 2 000 ms are gone after four, the fifth has 400 left; waits take 7.5 s.
    let run = sim()
        .step_timeout_ms(2_100)
        .jitter_none()
        .provider(|attempt| match attempt.request {
            4 => Turn::says("ok").after_ms(400),
            _ => unavailable().after_ms(400),
        })
        .run("hi");
    assert_eq!((run.output(), run.ended_at()), (Some("ok"), Some(5 * 400 + 7_500)));
    let run = sim().step_timeout_ms(1_900).jitter_none().provider(|_| unavailable().after_ms(400)).run("hi");
    // In the fifth attempt, 300 ms after it began.
    assert_eq!((run.requests(), run.ended_at()), (5, Some(4 * 400 + 300 + 7_500)));
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::EXECUTION_TIMEOUT);
    let cause = std::error::Error::source(&error).expect("the last failure is the cause");
    assert!(cause.to_string().contains("503"), "{cause}");
}

#[test]
fn where_the_attempts_clock_runs_out_together_with_the_steps_the_attempts_wins() {
    let slow = Failure::transport(Phase::Connect, TransportKind::FirstByteTimeout, "no first byte");
    let run =
        sim().step_timeout_ms(3_000).provider(move |_| Turn::fails(slow.clone()).after_ms(3_000)).run("hi");
    assert_eq!((run.requests(), run.ended_at()), (1, Some(3_000)));
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::LLM_CONNECTION);
    assert_eq!(error.attempts()[0].rule, "step.spent");
}

#[test]
fn each_step_has_the_whole_time_and_tools_take_none_of_it() {
    let run = sim()
        .step_timeout_ms(1_000)
        .provider(|attempt| match attempt.request {
            0 => Turn::calls("calc", "{}").after_ms(900),
            _ => Turn::says("done").after_ms(900),
        })
        .tool(|_, _| aplomb_sim::ToolTurn::Returns(5_000, json!(81)))
        .run("hi");
    assert_eq!((run.output(), run.ended_at()), (Some("done"), Some(6_800)));
}
