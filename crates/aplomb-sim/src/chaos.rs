//! Random runs: a provider and tools that do anything, a policy that may be anything, deadlines and cancellations at
//! any time. The same seed gives the same run.

use aplomb_core::decide::{Jitter, Mode, Restart, ToolRetry};
use aplomb_core::failure::{Anomaly, Failure, Phase, Reason, TransportKind};
use aplomb_core::message::{Block, CallIds, FinishReason, Message, Role, TokenUsage, ToolCall};
use aplomb_core::run::{RunBudget, Unpriced};
use serde_json::json;

use crate::driver::{Sim, ToolTurn, Turn, sim, tool_failure};

/// The random run of a seed.
pub fn chaotic(seed: u64) -> Sim {
    let mut dice = fastrand::Rng::with_seed(seed ^ 0x5EED);
    let mut sim = sim().seed(seed).provider(|attempt| turn(attempt.entropy)).tool(|_, entropy| tool(entropy));
    if dice.bool() {
        sim = sim.exec();
    }
    if dice.u8(..4) == 0 {
        sim = sim.time_limit_ms(dice.u64(1..40_000));
    }
    if dice.u8(..4) == 0 {
        sim = sim.cancel_at(dice.u64(..30_000));
    }
    if dice.bool() {
        sim = sim.late_inputs();
    }
    if dice.u8(..4) == 0 {
        sim = sim.history(vec![
            Message::text(Role::User, "before".repeat(dice.usize(1..200))),
            Message::text(Role::Assistant, "yes"),
        ]);
        if dice.u8(..32) == 0 {
            sim = sim.session_panics();
        }
    }
    for _ in 0..dice.u8(..3) {
        sim = sim.fallback(pick(&mut dice, CallIds::Any, &[CallIds::NineAlphanumerics, CallIds::Words]));
    }
    if dice.u8(..8) == 0 {
        sim = sim.benched(0, dice.u64(..20_000));
    }
    if dice.u8(..4) == 0 {
        sim = sim.bench_news(dice.u64(..20_000), dice.usize(..3), dice.u64(..40_000));
    }
    if dice.bool() {
        sim = sim.credential(|entropy| entropy.is_multiple_of(2));
    }
    if dice.u8(..4) == 0 {
        sim = sim.step_timeout_ms(dice.u64(1..10_000));
    }
    if dice.bool() {
        sim = sim.output(check).max_validation_retries(dice.u32(..5));
    }
    sim = bounded(sim, &mut dice);
    sim.max_steps(dice.u32(1..8)).policy(|policy| {
        policy.mode = pick(&mut dice, Mode::Additive, &[Mode::Additive, Mode::Layered]);
        policy.max_compactions = dice.u32(..3);
        policy.transport.total_budget_ms = (dice.u8(..4) == 0).then(|| dice.u64(..20_000));
        if dice.u8(..4) == 0 {
            policy.fallback_on = vec![Reason::Auth, Reason::Unknown, Reason::ContextOverflow];
        }
        policy.transport.max_attempts = dice.u32(1..5);
        policy.transport.jitter = pick(&mut dice, Jitter::None, &[Jitter::Full, Jitter::Equal]);
        policy.transport.retry_on_connection_errors = dice.u8(..4) > 0;
        policy.session.enabled = dice.u8(..4) > 0;
        policy.session.max_retries = dice.u32(..5);
        policy.exec.max_retries = dice.u32(1..5);
        policy.restart = pick(&mut dice, Restart::Auto, &[Restart::Marker, Restart::Never]);
        policy.tools = if dice.bool() { ToolRetry::default() } else { ToolRetry::never() };
        policy.max_inline_wait_ms = pick(&mut dice, 60_000, &[3_000]);
    })
}

/// Half of the outputs do not fit, for one of a few reasons.
fn check(output: &str, entropy: u64) -> Result<String, String> {
    let mut dice = fastrand::Rng::with_seed(entropy);
    if dice.bool() {
        Ok(output.to_owned())
    } else {
        Err(pick(&mut dice, "too long", &["too short"]).to_owned())
    }
}

/// Prices, and limits of the budget and of the agent.
fn bounded(mut sim: Sim, dice: &mut fastrand::Rng) -> Sim {
    if dice.u8(..4) == 0 {
        sim = sim.twins();
    }
    for target in 0..3 {
        if dice.u8(..4) > 0 {
            sim = sim.priced(target, dice.u32(..20), dice.u32(..100));
        }
    }
    if dice.u8(..4) == 0 {
        sim = sim.max_tool_calls(dice.u32(1..5));
    }
    let mut budget = RunBudget::new().unpriced(Unpriced::Allow);
    if dice.u8(..8) == 0 {
        budget = budget.max_steps(dice.u32(1..6));
    }
    if dice.u8(..8) == 0 {
        budget = budget.max_duration_ms(dice.u64(1..30_000));
    }
    if dice.u8(..4) == 0 {
        budget = budget.max_tool_calls(dice.u32(..4));
    }
    if dice.u8(..4) == 0 {
        budget = budget.max_cost_usd(f64::from(dice.u32(1..200_000)) / 1e6);
    }
    sim.budget(|_| budget)
}

fn turn(entropy: u64) -> Turn {
    let mut dice = fastrand::Rng::with_seed(entropy);
    let mut turn = match dice.u8(..10) {
        0..=3 => answer(&mut dice),
        4..=8 => Turn::fails(failure(&mut dice)),
        _ => Turn { panics: dice.u8(..8) == 0, ..Turn::fails(failure(&mut dice)) },
    };
    turn.delivered = dice.u8(..4) == 0;
    turn.refused = dice.u8(..16) == 0;
    if dice.bool() {
        let mut usage = TokenUsage::default();
        (usage.input, usage.output) = (dice.u64(..1_000), dice.u64(..1_000));
        turn.usage = Some(usage);
    }
    turn.after_ms(dice.u64(..5_000))
}

fn answer(dice: &mut fastrand::Rng) -> Turn {
    let count = dice.usize(..4);
    let calls = (0..count).map(|index| {
        Block::ToolCall(ToolCall {
            id: format!("call_{index}"),
            name: pick(dice, "calc", &["lookup", "nosuch"]).to_owned(),
            arguments: pick(dice, "{}", &[r#"{"expression":"9*9"}"#, "", r#"{"expression":"#, "[]"])
                .to_owned(),
        })
    });
    let calls: Vec<_> = calls.collect();
    let finish = match dice.u8(..6) {
        0 => FinishReason::Length,
        _ if calls.is_empty() => FinishReason::Stop,
        _ => FinishReason::ToolCalls,
    };
    if calls.is_empty() {
        let text = pick(dice, "done", &["finished"]).to_owned();
        return Turn::replies(vec![Block::Text { text }], finish);
    }
    Turn::replies(calls, finish)
}

fn failure(dice: &mut fastrand::Rng) -> Failure {
    let overflow = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    let quota = json!({"error": {"message": "no money", "code": "insufficient_quota"}});
    match dice.u8(..6) {
        4 => Failure::status(400, overflow.to_string().as_bytes()),
        5 => Failure::status(429, quota.to_string().as_bytes()),
        0 => {
            let status =
                pick(dice, 503, &[400, 401, 401, 401, 401, 401, 408, 413, 418, 429, 500, 502, 504, 529]);
            Failure::status(status, b"")
        }
        1 => {
            let wait = pick(dice, "1", &["0", "7", "90", "soon"]);
            Failure::status(429, json!({"error": {"message": "slow down"}}).to_string().as_bytes())
                .with_headers([("retry-after", wait)])
        }
        2 => {
            let kinds = [
                TransportKind::Dns,
                TransportKind::Refused,
                TransportKind::Certificate,
                TransportKind::FirstByteTimeout,
                TransportKind::IdleTimeout,
                TransportKind::Other,
            ];
            let kind = pick(dice, TransportKind::Reset, &kinds);
            Failure::transport(Phase::Connect, kind, pick(dice, "broken", &[""]))
        }
        _ => {
            let anomalies = [Anomaly::Empty, Anomaly::MalformedEvent, Anomaly::Error];
            Failure::anomaly(Phase::MidStream, pick(dice, Anomaly::NoTerminalEvent, &anomalies), b"")
        }
    }
}

/// One of them, each as likely as the others.
fn pick<T: Copy>(dice: &mut fastrand::Rng, first: T, rest: &[T]) -> T {
    let index = dice.usize(..=rest.len());
    index.checked_sub(1).and_then(|index| rest.get(index)).copied().unwrap_or(first)
}

fn tool(entropy: u64) -> ToolTurn {
    let mut dice = fastrand::Rng::with_seed(entropy);
    match dice.u8(..8) {
        0 => ToolTurn::Panics,
        1 => ToolTurn::Fails(dice.u64(..2_000), tool_failure()),
        2 | 3 => ToolTurn::Refuses(dice.u64(..2_000)),
        _ => ToolTurn::Returns(dice.u64(..2_000), json!(81)),
    }
}
