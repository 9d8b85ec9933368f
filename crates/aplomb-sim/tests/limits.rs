//! Deadline and cancellation, to the millisecond, in whatever a run is doing at the time.

use aplomb_core::decide::{Jitter, ToolRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::failure::Failure;
use aplomb_core::run::StopReason;
use aplomb_sim::{Report, Sim, ToolTurn, Turn, sim};
use serde_json::json;

/// A run that spends its time in one way, and when it would end if nothing ended it before.
struct Scenario {
    name: &'static str,
    sim: fn() -> Sim,
    ends_at: u64,
}

const NEVER: u64 = 1_000_000;

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "a provider that says nothing",
        sim: || sim().provider(|_| Turn::says("late").after_ms(NEVER)),
        ends_at: NEVER,
    },
    Scenario {
        name: "an answer that has begun and does not go on",
        sim: || sim().provider(|_| Turn::says("late").delivering().after_ms(NEVER)),
        ends_at: NEVER,
    },
    Scenario {
        name: "back-offs between attempts that fail at once",
        sim: || sim().jitter_none().provider(|_| Turn::fails(Failure::status(503, b""))),
        // 0.5 + 1 + 2 + 4 + 8 s.
        ends_at: 15_500,
    },
    Scenario {
        name: "attempts that fail after a second each, and their back-offs",
        sim: || sim().jitter_none().provider(|_| Turn::fails(Failure::status(503, b"")).after_ms(1_000)),
        ends_at: 15_500 + 6 * 1_000,
    },
    Scenario {
        name: "a tool that does not end",
        sim: || {
            sim()
                .provider(|_| Turn::calls("calc", "{}").after_ms(10))
                .tool(|_, _| ToolTurn::Returns(NEVER, json!(81)))
        },
        ends_at: NEVER,
    },
    Scenario {
        name: "a tool that fails, and its back-offs, again and again",
        sim: || {
            sim()
                .policy(|policy| {
                    policy.tools = ToolRetry::default();
                    policy.tools.jitter = Jitter::None;
                })
                .provider(|_| Turn::calls("calc", "{}"))
                .tool(|_, _| ToolTurn::Fails(100, Error::new(codes::TOOL_UNAVAILABLE, "down")))
        },
        // 16 steps, each with three attempts of 100 ms and the waits of 200 and 400 ms between them.
        ends_at: 16 * (3 * 100 + 200 + 400),
    },
];

/// Times that fall into every phase of every scenario.
fn times() -> impl Iterator<Item = u64> {
    (1..24_000).step_by(61)
}

fn check(scenario: &Scenario, at: u64, run: &Report, stop_reason: StopReason, context: &str) {
    let name = scenario.name;
    assert_eq!(run.ended_at(), Some(at), "{name}");
    assert_eq!(run.finished().map(|finished| finished.stop_reason), Some(stop_reason), "{name}, {at}");
    assert!(run.error().is_some_and(|error| error.context(context).is_some()), "{name}, {at}");
}

#[test]
fn a_cancelled_run_ends_in_the_same_millisecond_whatever_it_is_doing() {
    for scenario in &SCENARIOS {
        for at in times().filter(|at| *at < scenario.ends_at) {
            let run = (scenario.sim)().cancel_at(at).run("hi");
            check(scenario, at, &run, StopReason::Cancelled, "by");
            assert_eq!(run.error().unwrap().code(), codes::EXECUTION_CANCELLED);
        }
    }
}

#[test]
fn a_run_ends_by_its_budgets_time_whatever_it_is_doing() {
    for scenario in &SCENARIOS {
        for limit in times().filter(|at| *at < scenario.ends_at) {
            let run = (scenario.sim)().budget(|budget| budget.max_duration_ms(limit)).run("hi");
            let ended_at = run.ended_at().unwrap();
            match run.finished().unwrap().stop_reason {
                StopReason::BudgetExhausted => {
                    check(scenario, limit, &run, StopReason::BudgetExhausted, "where");
                    assert_eq!(run.error().unwrap().code(), codes::EXECUTION_BUDGET_EXHAUSTED);
                }
                // A wait that would not be over in time is not begun.
                StopReason::Failed | StopReason::MaxSteps => {
                    assert!(ended_at < limit, "{}, {limit}", scenario.name)
                }
                other => panic!("{}, {limit}: {other:?}", scenario.name),
            }
        }
    }
}

#[test]
fn a_run_ends_by_its_deadline_whatever_it_is_doing() {
    for scenario in &SCENARIOS {
        for limit in times().filter(|at| *at < scenario.ends_at) {
            let run = (scenario.sim)().time_limit_ms(limit).run("hi");
            let ended_at = run.ended_at().unwrap();
            match run.finished().unwrap().stop_reason {
                StopReason::Timeout => check(scenario, limit, &run, StopReason::Timeout, "where"),
                // A wait that would not be over in time is not begun.
                StopReason::Failed | StopReason::MaxSteps => {
                    assert!(ended_at < limit, "{}, {limit}", scenario.name)
                }
                other => panic!("{}, {limit}: {other:?}", scenario.name),
            }
        }
    }
}

#[test]
fn a_session_whose_acquisition_panics_ends_the_run_though_it_has_no_deadline() {
    let run = sim().session_panics().run("hi");
    let error = run.error().unwrap();
    assert_eq!((error.code(), run.requests(), run.ended_at()), (codes::SESSION_ERROR, 0, Some(0)));
    assert!(error.message().contains("boom"), "{error}");
}
