//! The request's budget and the agent's limits: who set a limit decides how a run ends that would pass it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use aplomb_core::decide::{Jitter, ToolRetry};
use aplomb_core::error::{Code, Error, codes};
use aplomb_core::event::names;
use aplomb_core::failure::Failure;
use aplomb_core::message::{Block, FinishReason, ToolCall};
use aplomb_core::record::Fact;
use aplomb_core::run::{Effect, StopReason, Unpriced, Usd};
use aplomb_sim::{Report, Sim, ToolTurn, Turn, sim};
use serde_json::{Value, json};

/// A model that asks for a tool for ever. Each answer is 1,000 tokens of input and 100 of output, which at 2 and 10 USD per
/// million cost 0.003 USD.
fn without_end() -> Sim {
    sim().jitter_none().priced(0, 2, 10).provider(|_| Turn::calls("calc", "{}").using(1_000, 100))
}

/// Calls of a tool, all in one answer.
fn batch(count: usize) -> Turn {
    let call = |index| {
        Block::ToolCall(ToolCall {
            id: format!("call_{index}"),
            name: "calc".to_owned(),
            arguments: "{}".to_owned(),
        })
    };
    Turn::replies((0..count).map(call).collect(), FinishReason::ToolCalls)
}

#[track_caller]
fn ends(run: &Report, code: Code, kind: Option<&str>, current: Value, limit: Value) {
    let error = run.error().unwrap();
    assert_eq!(error.code(), code, "{error}");
    let context = |field| error.context(field).cloned().unwrap_or_default();
    assert_eq!(error.context("kind").and_then(Value::as_str), kind, "{error}");
    assert_eq!((context("current"), context("limit")), (current, limit), "{error}");
    let stop_reason = run.finished().unwrap().stop_reason;
    let of_request = code == codes::EXECUTION_BUDGET_EXHAUSTED;
    assert_eq!(
        stop_reason,
        if of_request { StopReason::BudgetExhausted } else { StopReason::MaxSteps },
        "{error}"
    );
    assert!(!error.retryable());
}

#[test]
fn who_set_the_limit_decides_the_code_and_of_equal_limits_the_budget_wins() {
    use codes::{EXECUTION_BUDGET_EXHAUSTED as BUDGET, EXECUTION_MAX_STEPS as AGENT};
    let steps = |agent, budget: Option<u32>| {
        let run = without_end().max_steps(agent);
        run.budget(|limits| budget.map_or(limits, |most| limits.max_steps(most))).run("hi")
    };
    let tools = |agent: Option<u32>, budget: Option<u32>| {
        let run = without_end();
        let run = match agent {
            Some(most) => run.max_tool_calls(most),
            None => run,
        };
        run.budget(|limits| budget.map_or(limits, |most| limits.max_tool_calls(most))).run("hi")
    };
    for (agent, budget, code) in
        [(3, None, AGENT), (3, Some(4), AGENT), (4, Some(3), BUDGET), (3, Some(3), BUDGET)]
    {
        let run = steps(agent, budget);
        ends(&run, code, (code == BUDGET).then_some("steps"), json!(3), json!(3));
        assert_eq!(run.requests(), 3);
        let named = if code == BUDGET { "the budget's max_steps" } else { "runtime.max_steps" };
        assert!(run.error().unwrap().message().contains(named));
        assert!(run.error().unwrap().hint().unwrap().contains(named));
        let run = tools(Some(agent), budget);
        ends(&run, code, (code == BUDGET).then_some("tool_calls"), json!(3), json!(3));
        // The fourth answer asks for the fourth call.
        assert_eq!((run.requests(), run.tool_runs()), (4, 3));
        let named = if code == BUDGET { "the budget's max_tool_calls" } else { "runtime.max_tool_calls" };
        assert!(run.error().unwrap().message().contains(named));
    }
    ends(&tools(None, Some(2)), BUDGET, Some("tool_calls"), json!(2), json!(2));
    // Without any limit of tool calls, the steps end it.
    ends(&tools(None, None), AGENT, None, json!(16), json!(16));
}

#[test]
fn a_budget_of_no_tool_call_lets_the_model_answer_and_runs_none() {
    let run = sim().budget(|budget| budget.max_tool_calls(0)).run("hi");
    assert_eq!(run.output(), Some("ok"));
    let run = without_end().budget(|budget| budget.max_tool_calls(0)).run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("tool_calls"), json!(0), json!(0));
    assert_eq!((run.requests(), run.tool_runs()), (1, 0));
}

#[test]
fn of_a_batch_as_many_calls_are_run_as_there_is_room_for_and_their_results_stay() {
    let run = sim()
        .budget(|budget| budget.max_tool_calls(2))
        .provider(|_| batch(5))
        .tool(|call, _| ToolTurn::Returns(if call.id == "call_0" { 500 } else { 10 }, json!(81)))
        .run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("tool_calls"), json!(2), json!(2));
    // Not before those that had room are done.
    assert_eq!((run.tool_runs(), run.ended_at()), (2, Some(500)));
    assert_eq!(run.finished().unwrap().usage.tool_calls, 2);
    let told = |name| run.events().filter(move |(event, _)| *event == name).map(|(_, payload)| payload);
    let calls = |name| told(name).map(|payload| payload["call_id"].as_str().unwrap()).collect::<Vec<_>>();
    // What never began was not called.
    assert_eq!(calls(names::TOOL_CALLED), ["call_0", "call_1"]);
    assert_eq!(calls(names::TOOL_SUCCEEDED), ["call_1", "call_0"]);
    assert_eq!(calls(names::TOOL_CANCELLED), ["call_2", "call_3", "call_4"]);
    assert!(told(names::TOOL_CANCELLED).all(|payload| payload["reason"] == "max_tool_calls"));
}

#[test]
fn calls_that_cannot_be_run_take_no_room() {
    let unknown = |name: &str| {
        Block::ToolCall(ToolCall { id: name.to_owned(), name: name.to_owned(), arguments: "{}".to_owned() })
    };
    let run = sim()
        .budget(|budget| budget.max_tool_calls(1))
        .provider(move |attempt| match attempt.request {
            0 => Turn::replies(
                vec![unknown("nosuch"), unknown("neither"), unknown("calc")],
                FinishReason::ToolCalls,
            ),
            _ => Turn::says("done"),
        })
        .run("hi");
    assert_eq!((run.output(), run.tool_runs()), (Some("done"), 1));
}

#[test]
fn what_a_tool_does_not_take_leaves_its_room_to_a_call_that_was_withheld() {
    let run = sim()
        .budget(|budget| budget.max_tool_calls(2))
        .provider(|attempt| match attempt.request {
            0 => batch(3),
            _ => Turn::says("done"),
        })
        .tool(|call, _| match call.id.as_str() {
            "call_0" => ToolTurn::Refuses(0),
            _ => ToolTurn::Returns(100, json!(81)),
        })
        .run("hi");
    // The third begins when the second is done.
    assert_eq!((run.output(), run.tool_runs(), run.ended_at()), (Some("done"), 2, Some(200)));
    assert_eq!(run.finished().unwrap().usage.tool_calls, 2);
    let begun = run.effects().iter().filter_map(|(at, effect)| match effect {
        Effect::Emit { name, payload } if *name == names::TOOL_CALLED => Some((*at, &payload["call_id"])),
        _ => None,
    });
    let begun: Vec<_> = begun.collect();
    assert_eq!(begun, [(0, &json!("call_0")), (0, &json!("call_1")), (100, &json!("call_2"))]);
}

#[test]
fn another_attempt_of_a_tool_is_another_call_and_without_room_the_model_is_told() {
    let flaky = |room| {
        sim()
            .policy(|policy| {
                policy.tools = ToolRetry::default();
                policy.tools.jitter = Jitter::None;
            })
            .budget(|budget| budget.max_tool_calls(room))
            .provider(|attempt| match attempt.request {
                0 => Turn::calls("calc", "{}"),
                _ => Turn::says("I could not"),
            })
            .tool(|_, _| ToolTurn::Fails(0, Error::new(codes::TOOL_UNAVAILABLE, "down")))
            .run("hi")
    };
    for (room, runs) in [(1, 1), (2, 2), (3, 3), (9, 3)] {
        let run = flaky(room);
        assert_eq!((run.tool_runs(), run.output()), (runs, Some("I could not")), "{room}");
    }
}

#[test]
fn a_budgets_time_ends_a_run_like_a_timeout_and_the_earlier_of_both_names_itself() {
    let silent = || sim().provider(|_| Turn::says("late").after_ms(60_000));
    let run = silent().budget(|budget| budget.max_duration_ms(3_000)).run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("duration"), json!(3_000), json!(3_000));
    assert_eq!(run.ended_at(), Some(3_000));
    let error = run.error().unwrap();
    assert_eq!(error.context("where"), Some(&json!("attempt 1 of model call 1")));
    assert_eq!(error.attempts().len(), 1);
    for (timeout, budget, code) in [
        (2_000, 3_000, codes::EXECUTION_TIMEOUT),
        (3_000, 2_000, codes::EXECUTION_BUDGET_EXHAUSTED),
        (2_000, 2_000, codes::EXECUTION_BUDGET_EXHAUSTED),
    ] {
        let run = silent().time_limit_ms(timeout).budget(|limits| limits.max_duration_ms(budget)).run("hi");
        assert_eq!((run.ended_at(), run.error().unwrap().code()), (Some(2_000), code));
    }
}

#[test]
fn a_wait_that_would_end_past_the_budgets_time_is_not_slept() {
    let run = sim()
        .jitter_none()
        .provider(|_| Turn::fails(Failure::status(503, b"")))
        .budget(|budget| budget.max_duration_ms(3_000))
        .run("hi");
    // 500 + 1,000 fit, 2,000 more do not.
    assert_eq!((run.requests(), run.ended_at()), (3, Some(1_500)));
    assert_eq!(run.error().unwrap().attempts()[2].rule, "wait.past_deadline");
}

#[test]
fn a_run_ends_with_the_call_that_goes_past_what_it_may_cost_and_runs_none_of_its_tools() {
    // 0.003 USD a call: three are 0.009.
    let run = without_end().budget(|budget| budget.max_cost_usd(0.008)).run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(0.009), json!(0.008));
    assert_eq!((run.requests(), run.tool_runs()), (3, 2));
    let message = run.error().unwrap().message().to_owned();
    assert_eq!(message, "the run has cost $0.009; the budget's max_cost_usd is $0.008");
    assert!(run.error().unwrap().hint().unwrap().contains("max_cost_usd"));
    // What is used up to the last picodollar is not passed: the tools are run, and no further call is begun.
    let run = without_end().budget(|budget| budget.max_cost_usd(0.009)).run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(0.009), json!(0.009));
    assert_eq!((run.requests(), run.tool_runs()), (3, 3));
    assert_eq!(run.finished().unwrap().usage.cost_usd, Some(Usd::new(0.009)));
}

#[test]
fn an_answer_that_goes_past_what_the_run_may_cost_is_attached_to_the_error() {
    let run = sim()
        .priced(0, 2, 10)
        .provider(|_| Turn::says("dear").using(1_000, 100))
        .budget(|budget| budget.max_cost_usd(0.001))
        .run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(0.003), json!(0.001));
    assert_eq!(run.error().unwrap().context("partial_output"), Some(&json!("dear")));
}

#[test]
fn failed_attempts_cost_too_and_none_follows_when_nothing_is_left() {
    let cut = || Turn::fails(Failure::status(503, b"")).using(1_000, 100);
    let run = sim()
        .jitter_none()
        .priced(0, 2, 10)
        .provider(move |_| cut())
        .budget(|budget| budget.max_cost_usd(0.006))
        .run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(0.006), json!(0.006));
    // 0 and 500 ms: no wait is slept for an attempt that is not to be had.
    assert_eq!((run.requests(), run.ended_at()), (2, Some(500)));
    let error = run.error().unwrap();
    assert_eq!((error.attempts().len(), error.attempts()[1].rule.as_str()), (2, "budget.cost"));
    let cause = std::error::Error::source(&error).expect("the last failure is the cause");
    assert!(cause.to_string().contains("503"), "{cause}");
    let usage = &run.finished().unwrap().usage;
    assert_eq!((usage.input_tokens, usage.cost_usd), (2_000, Some(Usd::new(0.006))));
}

#[test]
fn no_model_is_fallen_back_to_when_nothing_is_left() {
    let quota = json!({"error": {"message": "no money", "code": "insufficient_quota"}});
    let run = sim()
        .fallback(aplomb_core::message::CallIds::Any)
        .priced(0, 2, 10)
        .priced(1, 1, 1)
        .provider(move |_| Turn::fails(Failure::status(429, quota.to_string().as_bytes())).using(1_000, 100))
        .budget(|budget| budget.max_cost_usd(0.001))
        .run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(0.003), json!(0.001));
    assert_eq!(run.requests(), 1);
}

#[test]
fn what_one_model_costs_and_nobody_knows_what_the_other_does_is_told_apart() {
    let fails_first = || {
        sim().fallback(aplomb_core::message::CallIds::Any).priced(0, 2, 10).provider(|attempt| match attempt
            .target
        {
            0 => Turn::fails(Failure::status(503, b"")).using(1_000, 100),
            _ => Turn::says("ok").using(500, 50),
        })
    };
    let run = fails_first().jitter_none().run("hi");
    assert_eq!(run.output(), Some("ok"));
    let usage = &run.finished().unwrap().usage;
    assert_eq!(usage.cost_usd, None);
    // Six attempts at the first, at 0.003 each.
    let first = &usage.cost_breakdown["simulated/model"];
    assert_eq!((first.input_tokens, first.cost_usd), (6_000, Some(Usd::new(0.018))));
    let second = &usage.cost_breakdown["simulated/fallback-1"];
    assert_eq!((second.input_tokens, second.output_tokens, second.cost_usd), (500, 50, None));
    // What has no price is not counted, where that is allowed.
    let run = fails_first()
        .jitter_none()
        .budget(|budget| budget.max_cost_usd(0.02).unpriced(Unpriced::Allow))
        .run("hi");
    assert_eq!(run.output(), Some("ok"));
}

/// runtime.md §1: "what has no price is not counted then", and what has one is.
#[test]
fn what_a_model_costs_is_counted_though_another_one_of_its_name_has_no_price() {
    let mut targets = Vec::new();
    for (priced, limit) in [(0, 0.006), (1, 0.003)] {
        let run = sim()
            .twins()
            .jitter_none()
            .fallback(aplomb_core::message::CallIds::Any)
            .priced(priced, 2, 10)
            .budget(|budget| budget.max_cost_usd(limit).unpriced(Unpriced::Allow))
            .policy(|policy| {
                policy.transport.max_attempts = 1;
                policy.session.max_retries = 1;
            })
            .provider(|attempt| match (attempt.request, attempt.target) {
                (_, 0) => Turn::fails(Failure::status(503, b"")).using(1_000, 100),
                _ => Turn::calls("calc", "{}").using(1_000, 100),
            })
            .run("hi");
        ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(limit), json!(limit));
        // What the run cost as a whole nobody knows, unless only the one with a price was asked.
        let usage = &run.finished().unwrap().usage;
        targets.push((run.requests(), usage.cost_usd));
        assert_eq!(usage.cost_breakdown.keys().collect::<Vec<_>>(), ["simulated/model"]);
    }
    // Two attempts at the first, at 0.003 USD each; and two at the first, which are not counted, before one at the second.
    assert_eq!(targets, [(2, Some(Usd::new(0.006))), (3, None)]);
}

/// retry.md §4: the error "lists every attempt".
#[test]
fn an_answer_that_costs_too_much_leaves_the_attempts_before_it_in_the_error() {
    let run = sim()
        .jitter_none()
        .priced(0, 2, 10)
        .provider(|attempt| match attempt.request {
            0 | 1 => Turn::fails(Failure::status(503, b"")).using(1_000, 100),
            _ => Turn::says("dear").using(1_000, 100),
        })
        .budget(|budget| budget.max_cost_usd(0.007))
        .run("hi");
    ends(&run, codes::EXECUTION_BUDGET_EXHAUSTED, Some("cost"), json!(0.009), json!(0.007));
    let error = run.error().unwrap();
    let attempts: Vec<_> =
        error.attempts().iter().map(|attempt| (attempt.number, attempt.reason.as_str())).collect();
    assert_eq!(attempts, [(1, "server_error"), (2, "server_error"), (3, "unknown")]);
    assert!(error.attempts()[2].text.contains("answered"), "{}", error.attempts()[2].text);
    assert_eq!(error.attempts()[1].delay_ms, Some(1_000));
}

#[test]
fn what_is_free_costs_nothing_and_what_has_no_price_costs_nobody_knows_what() {
    let usage = |sim: Sim| sim.run("hi").finished().unwrap().usage.clone();
    let says = |sim: Sim| sim.provider(|_| Turn::says("ok").using(1_000, 100));
    assert_eq!(usage(says(sim().priced(0, 0, 0))).cost_usd, Some(Usd::ZERO));
    assert_eq!(usage(says(sim())).cost_usd, None);
    // Refused, which used nothing and is known to.
    let refused = |sim: Sim| sim.provider(|_| Turn::fails(Failure::status(401, b"")));
    assert_eq!(usage(refused(sim().priced(0, 2, 10))).cost_usd, Some(Usd::ZERO));
    assert_eq!(usage(refused(sim())).cost_usd, None);
}

#[test]
fn usage_that_is_told_during_a_run_says_what_it_cost_so_far() {
    let run = without_end().budget(|budget| budget.max_steps(3)).run("hi");
    let told = run.events().filter(|(name, _)| *name == names::USAGE_UPDATED);
    let told: Vec<_> = told.map(|(_, payload)| payload["usage"]["cost_usd"].clone()).collect();
    assert_eq!(told, [json!(0.003), json!(0.006), json!(0.009)]);
    let breakdown = &run.events().filter(|(name, _)| *name == names::USAGE_UPDATED).last().unwrap().1;
    assert_eq!(
        breakdown["usage"]["cost_breakdown"],
        json!({"simulated/model": {"input_tokens": 3_000, "output_tokens": 300, "input_tokens_cached": 0,
            "input_tokens_cache_creation": 0, "cost_usd": 0.009}})
    );
}

#[test]
fn a_run_goes_by_the_prices_and_the_budget_that_it_began_with() {
    let run = without_end().budget(|budget| budget.max_cost_usd(0.5).max_steps(2)).run("hi");
    let Fact::Started { budget, models, .. } = &run.records()[0].fact else { panic!("it began otherwise") };
    assert_eq!((budget.max_steps, budget.max_cost_usd), (Some(2), Some(Usd::new(0.5))));
    assert_eq!(models[0].model, "simulated/model");
    assert!(models[0].pricing.is_some());
}
