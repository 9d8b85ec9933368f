//! What runs cost, and what ends them that would use more than they may.

use std::time::Duration;

use aplomb::event::names;
use aplomb::{ChunkKind, Error, RunBudget, RunRequest, StopReason, Unpriced, Usd, codes};
use serde_json::{Value, json};

use crate::support::*;

/// Prices in USD per million tokens.
fn pricing() -> Value {
    json!({"input": 3, "output": 15, "cached_read": 0.3, "cached_write": 3.75})
}

fn priced(script: Value) -> Setup {
    Setup::new(script).agent(|agent| agent["llm"]["pricing"] = pricing())
}

/// The step, with what it used.
fn using(mut step: Value, input: u64, output: u64) -> Value {
    step["reply"]["message"]["usage"] = json!({"prompt_tokens": input, "completion_tokens": output});
    step
}

/// A step that calls `probe` so often, and costs 1,000 × 3 + 100 × 15 millionths of a dollar: 0.0045 USD.
fn probing(count: usize) -> Value {
    let probes: Vec<_> = (0..count).map(|index| ("probe", json!({"index": index}))).collect();
    using(calls(&probes), 1_000, 100)
}

#[track_caller]
fn exhausted(outcome: &Outcome, kind: &str, current: Value, limit: Value) {
    let error = outcome.error();
    assert_eq!(error.code(), codes::EXECUTION_BUDGET_EXHAUSTED, "{error}");
    assert_eq!((outcome.context("kind"), outcome.context("limit")), (json!(kind), limit), "{error}");
    if !current.is_null() {
        assert_eq!(outcome.context("current"), current, "{error}");
    }
    if let Some(result) = &outcome.result {
        assert_eq!(result.stop_reason, StopReason::BudgetExhausted, "{error}");
        assert_eq!(result.error_details.as_ref().unwrap().dict.code, "execution.budget_exhausted");
    }
    assert!(error.hint().is_some() && !error.retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_costs_its_tokens_by_their_prices_on_every_wire() {
    let mut answer = text("It is 81.");
    answer["reply"]["message"]["usage"] = json!({"prompt_tokens": 1_000, "completion_tokens": 50, "cached_tokens": 200, "cache_write_tokens": 100});
    // 700 × 3 + 200 × 0.3 + 100 × 3.75 + 50 × 15 millionths of a dollar. Gemini does not say what was written.
    let (all, unwritten) = (0.003_285, 0.003_21);
    for (provider, style, cost) in [
        ("openai_compatible", None, all),
        ("openai_compatible", Some("responses"), all),
        ("anthropic", None, all),
        ("gemini", None, unwritten),
    ] {
        for mode in MODES {
            let setup = priced(once([answer.clone()])).agent(move |agent| {
                agent["llm"]["provider"] = json!(provider);
                agent["llm"]["openai_api_style"] = json!(style);
                // Cargo sets it for every test, so that a key is there to be sent.
                agent["llm"]["api_key_env"] = json!("CARGO_MANIFEST_DIR");
            });
            let outcome = ask(mode, setup).await;
            let usage = &outcome.result().usage;
            let name = format!("{provider} {style:?} {mode:?}: {usage:?}");
            assert_eq!(usage.cost_usd, Some(Usd::new(cost)), "{name}");
            let used = &usage.cost_breakdown[&format!("{provider}/m")];
            assert_eq!((used.input_tokens, used.output_tokens, used.input_tokens_cached), (1_000, 50, 200));
            assert_eq!(used.cost_usd, usage.cost_usd, "{name}");
            let told = outcome.events_of(names::USAGE_UPDATED);
            assert_eq!(told.last().unwrap().payload["usage"]["cost_usd"], cost, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_attempts_used_is_paid_for_too() {
    let cut = with_fault(text("one two three"), json!({"cut": {"after_events": 3, "by": "reset"}}));
    for mode in [Mode::Streamed, Mode::Watched] {
        let outcome = ask(mode, priced(once([cut.clone(), using(text("ok"), 1_000, 100)]))).await;
        let usage = &outcome.result().usage;
        // What the first attempt used is estimated, since the provider never said.
        let (input, output) = (usage.input_tokens - 1_000, usage.output_tokens - 100);
        assert_eq!(input + output, usage.estimated_tokens);
        assert!(input > 0 && output > 0, "{usage:?}");
        let millionths = usage.input_tokens * 3 + usage.output_tokens * 15;
        assert_eq!(usage.cost_usd, Some(Usd::new(millionths as f64 / 1e6)));
    }
    // A refusal uses nothing.
    let outcome = ask(Mode::Plain, priced(once([status(503), using(text("ok"), 1_000, 100)]))).await;
    assert_eq!(outcome.result().usage.cost_usd, Some(Usd::new(0.004_5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_knows_the_price_of_has_no_cost_and_is_named() {
    let outcome = ask(Mode::Plain, Setup::new(once([text("ok")]))).await;
    let result = serde_json::to_value(outcome.result()).unwrap();
    assert_eq!(result["usage"]["cost_usd"], Value::Null);
    assert_eq!(result["usage"]["cost_breakdown"]["openai_compatible/m"]["cost_usd"], Value::Null);
    // The first model has a price, and the one that answers has none.
    let setup = priced(once([spent_quota(), using(text("ok"), 1_000, 100)]));
    let setup = setup.agent(|agent| {
        let mut other = agent["llm"].clone();
        other["model"] = json!("other");
        for key in ["pricing", "retry"] {
            other.as_object_mut().unwrap().remove(key);
        }
        agent["llm"]["fallbacks"] = json!([other]);
    });
    let outcome = ask(Mode::Plain, setup).await;
    let usage = &outcome.result().usage;
    assert_eq!(usage.cost_usd, None);
    let cost_of = |name: &str| usage.cost_breakdown[name].cost_usd;
    assert_eq!((cost_of("openai_compatible/m"), cost_of("openai_compatible/other")), (Some(Usd::ZERO), None));
}

fn spent_quota() -> Value {
    http(429, json!({}), json!({"error": {"message": "no money", "code": "insufficient_quota"}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_cost_is_refused_before_anything_is_sent_where_a_price_is_missing() {
    let budget = RunBudget::new().max_cost_usd(1.0);
    let without_first = Setup::new(always(text("ok")));
    let without_fallback = priced(always(text("ok"))).agent(|agent| {
        agent["llm"]["fallbacks"] = json!([{"provider": "openai_compatible", "model": "n",
            "api_base": agent["llm"]["api_base"]}]);
    });
    for (setup, name, path) in [
        (without_first, "openai_compatible/m", "llm"),
        (without_fallback, "openai_compatible/n", "llm.fallbacks[0]"),
    ] {
        let lab = setup.start().await;
        let refused: [Error; 3] = [
            lab.runtime.run_detailed(hi().budget(budget)).await.unwrap_err(),
            lab.runtime.run_stream(hi().budget(budget)).err().unwrap(),
            lab.runtime.exec("assistant", "hi").budget(budget).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.code(), codes::CONFIG_VALIDATION, "{error}");
            assert!(
                error.message().contains(name) && error.hint().unwrap().contains("llm.pricing"),
                "{error}"
            );
            assert_eq!(error.context("path"), Some(&json!(path)));
            assert_eq!(error.context("agent_id"), Some(&json!("assistant")));
        }
        assert_eq!(lab.requests(), 0);
        let allowed = lab.run(hi().budget(budget.unpriced(Unpriced::Allow))).await;
        assert_eq!(allowed.output.as_deref().unwrap(), "ok");
        // Other limits need no price.
        assert!(lab.run(hi().budget(RunBudget::new().max_steps(1))).await.output.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_allows_nothing_is_an_invalid_request() {
    let lab = Lab::new(always(text("ok"))).await;
    for budget in [RunBudget::new().max_steps(0), RunBudget::new().max_cost_usd(f64::NAN)] {
        let error = lab.runtime.run_detailed(hi().budget(budget)).await.unwrap_err();
        assert_eq!(error.code(), codes::USER_INVALID_INPUT, "{error}");
    }
    assert_eq!(lab.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_goes_past_the_cost_ends_the_run_before_its_tools_are_run() {
    for mode in MODES {
        let probe = Probe::saying("x");
        let lab = {
            let stream = if mode == Mode::Streamed { "always" } else { "auto" };
            let setup = priced(always(probing(1))).tool("probe", probe.clone());
            setup.agent(move |agent| agent["llm"]["stream"] = json!(stream)).start().await
        };
        // Two calls cost 0.009 USD.
        let request = hi().budget(RunBudget::new().max_cost_usd(0.005));
        let outcome = if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await };
        exhausted(&outcome, "cost", json!(0.009), json!(0.005));
        assert_eq!((outcome.log.len(), probe.calls().len()), (2, 1), "{mode:?}");
        assert_eq!(outcome.result().usage.cost_usd, Some(Usd::new(0.009)));
        assert!(outcome.error().hint().unwrap().contains("max_cost_usd"));
        let failed = outcome.events_of(names::RUN_FAILED);
        assert_eq!(failed[0].payload["error_details"]["context"]["kind"], "cost");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_broke_off_can_be_the_one_that_costs_too_much() {
    let long = "word ".repeat(200);
    let cut = with_fault(text(&long), json!({"cut": {"after_events": 150, "by": "reset"}}));
    let setup = priced(always(cut)).agent(|agent| agent["llm"]["stream"] = json!("always"));
    let lab = setup.start().await;
    // Some 150 words of five bytes are more than 180 tokens, at 15 millionths each.
    let outcome = lab.run(hi().budget(RunBudget::new().max_cost_usd(0.002))).await;
    exhausted(&outcome, "cost", Value::Null, json!(0.002));
    assert_eq!((outcome.log.len(), outcome.waits().len()), (1, 0));
    let attempts = outcome.error().attempts();
    assert_eq!((attempts.len(), attempts[0].rule.as_str()), (1, "budget.cost"));
    let cause = std::error::Error::source(outcome.error()).expect("what the attempt failed with");
    assert!(!cause.to_string().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_as_many_tools_are_run_as_there_is_room_for() {
    for mode in MODES {
        let probe = Probe::saying("x");
        let lab = Setup::new(always(probing(5))).tool("probe", probe.clone()).start().await;
        let request = hi().budget(RunBudget::new().max_tool_calls(2));
        let outcome = if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await };
        exhausted(&outcome, "tool_calls", json!(2), json!(2));
        let mut run: Vec<_> = probe.calls().iter().map(|call| call["index"].as_u64().unwrap()).collect();
        run.sort_unstable();
        assert_eq!((outcome.log.len(), run), (1, vec![0, 1]));
        assert_eq!(outcome.result().usage.tool_calls, 2);
        let count = |name| outcome.events_of(name).len();
        assert_eq!((count(names::TOOL_SUCCEEDED), count(names::TOOL_CANCELLED)), (2, 3));
        if mode == Mode::Watched {
            assert_eq!(crate::support::count(&outcome.chunks, ChunkKind::ToolFinished), 5);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_own_limit_of_tool_calls_is_none_of_the_request() {
    let probe = Probe::saying("x");
    let setup = Setup::new(always(probing(2))).tool("probe", probe.clone());
    let lab = setup.agent(|agent| agent["runtime"] = json!({"max_tool_calls": 3})).start().await;
    let outcome = lab.run(hi().budget(RunBudget::new().max_tool_calls(4))).await;
    assert_eq!(outcome.error().code(), codes::EXECUTION_MAX_STEPS);
    assert_eq!(outcome.result().stop_reason, StopReason::MaxSteps);
    assert_eq!((outcome.context("current"), outcome.context("limit")), (json!(3), json!(3)));
    assert!(outcome.error().message().contains("runtime.max_tool_calls is 3"), "{}", outcome.error());
    assert_eq!(probe.calls().len(), 3);
    // Where they are equal, the request's counts.
    exhausted(
        &lab.run(hi().budget(RunBudget::new().max_tool_calls(3))).await,
        "tool_calls",
        json!(3),
        json!(3),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_limited_by_whoever_allows_fewer() {
    let setup = Setup::new(always(probing(1))).tool("probe", Probe::saying("x"));
    let lab = setup.agent(|agent| agent["runtime"] = json!({"max_steps": 3})).start().await;
    exhausted(&lab.run(hi().budget(RunBudget::new().max_steps(2))).await, "steps", json!(2), json!(2));
    exhausted(&lab.run(hi().budget(RunBudget::new().max_steps(3))).await, "steps", json!(3), json!(3));
    let outcome = lab.run(hi().budget(RunBudget::new().max_steps(4))).await;
    assert_eq!((outcome.error().code(), outcome.log.len()), (codes::EXECUTION_MAX_STEPS, 3));
    let outcome = lab.exec(|exec| exec.budget(RunBudget::new().max_steps(1))).await;
    exhausted(&outcome, "steps", json!(1), json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_earlier_of_timeout_and_budget_ends_the_run_and_names_itself() {
    let silent = || Setup::new(always(with_fault(text("never"), json!("silence"))));
    let request = |timeout_ms, budget_ms| -> RunRequest {
        let budget = RunBudget::new().max_duration_ms(budget_ms);
        hi().timeout(Duration::from_millis(timeout_ms)).budget(budget)
    };
    let outcome = silent().start().await.run(request(60_000, 300)).await;
    exhausted(&outcome, "duration", Value::Null, json!(300));
    assert!(outcome.context("current").as_u64() >= Some(300));
    assert!(outcome.error().message().contains("max_duration_ms"), "{}", outcome.error());
    let outcome = silent().start().await.run(request(300, 60_000)).await;
    assert_eq!(outcome.error().code(), codes::EXECUTION_TIMEOUT);
    assert_eq!((outcome.context("setting"), outcome.context("limit_ms")), (json!("timeout"), json!(300)));
}
