//! The design's promises, checked on what a run did. Each check is a sentence that the run must not break.

use std::collections::{BTreeMap, BTreeSet};

use aplomb_core::decide::{Action, Layer, Mode};
use aplomb_core::error::{Error, codes};
use aplomb_core::event::names;
use aplomb_core::failure::Reason;
use aplomb_core::message::{Block, FinishReason, Role};
use aplomb_core::record::{Fact, Record};
use aplomb_core::run::{Effect, Purpose, RunBudget, StopReason, Usd};

use crate::report::Report;

/// The promises that the run broke.
pub(crate) fn broken(report: &Report) -> Vec<String> {
    let mut broken = report.divergences.clone();
    for check in [
        ends,
        attempts_agree,
        calls_keep_to_their_ledger,
        targets_and_budgets_are_kept,
        nothing_is_exceeded,
        conversations_are_whole,
        waits_are_kept,
        tools_run_once,
        outputs_are_checked,
        events_are_true,
    ] {
        check(report, &mut broken);
    }
    broken
}

/// A run ends once, by its deadline, and asks for nothing after its end.
fn ends(report: &Report, broken: &mut Vec<String>) {
    let finishes = report.effects.iter().filter(|(_, effect)| matches!(effect, Effect::Finish(_))).count();
    if finishes != 1 {
        broken.push(format!("the run finished {finishes} times"));
    }
    if !matches!(report.effects.last(), Some((_, Effect::Finish(_)))) {
        broken.push("something was asked for after the end".to_owned());
    }
    let limit = report.records.iter().find_map(|record| match &record.fact {
        Fact::Started { time_limit, budget, .. } => {
            let timeout = time_limit.as_ref().map(|limit| limit.limit_ms);
            timeout.into_iter().chain(budget.max_duration_ms).min()
        }
        _ => None,
    });
    if let (Some(limit), Some(ended)) = (limit, report.ended_at())
        && ended > limit
    {
        broken.push(format!("the run ended at {ended}, past its deadline {limit}"));
    }
    let ended = report.records.iter().position(|record| matches!(record.fact, Fact::Finished { .. }));
    for record in report.records.iter().skip(ended.map_or(usize::MAX, |index| index + 1)) {
        if !matches!(record.fact, Fact::Stale { .. }) {
            broken.push(format!("a fact after the end: {record:?}"));
        }
    }
}

/// Promise 1: requests on the wire = attempts in the ledger = attempts in the error.
fn attempts_agree(report: &Report, broken: &mut Vec<String>) {
    let started = |records: &[Record]| {
        records.iter().filter(|record| matches!(record.fact, Fact::AttemptStarted { .. })).count()
    };
    let refused = |records: &[Record]| {
        records.iter().filter(|record| matches!(record.fact, Fact::AttemptRefused { .. })).count()
    };
    // What was not sent and is not taken back was still being looked into when the run ended.
    let (recorded, unsent) = (started(&report.records), report.performed.unsent);
    if recorded != report.requests() + unsent || refused(&report.records) > unsent {
        broken.push(format!(
            "{} requests on the wire and {unsent} not sent, {recorded} in the records",
            report.requests()
        ));
    }
    let opened = report.records.iter().rposition(|record| matches!(record.fact, Fact::CallOpened { .. }));
    let last_call = report.records.get(opened.unwrap_or(0)..).unwrap_or_default();
    let of_last_call = started(last_call) - refused(last_call);
    // An answer that goes past what the run may cost is the end of its call all the same.
    let overspent = |error: &Error| {
        error.limit().is_some_and(|limit| limit.kind == Some("cost") && limit.current > limit.limit)
    };
    if let Some(error) = report.error()
        && (overspent(&error)
            || !last_call.iter().any(|record| matches!(record.fact, Fact::ModelReplied { .. })))
        && error.attempts().len() != of_last_call
    {
        broken.push(format!(
            "{of_last_call} attempts in the last call, {} in the error",
            error.attempts().len()
        ));
    }
}

/// Promise 2, and the second sentence of promise 1: a call's attempts stay within its cap, layers only move forward,
/// and what is permanent costs one, unless something about the request has changed.
fn calls_keep_to_their_ledger(report: &Report, broken: &mut Vec<String>) {
    let (mut attempts, mut cap, mut layer, mut permanent) = (0, 0, Layer::First, false);
    let (mut compacted, mut refreshed, mut transport) = (0, 0, 0);
    let mut before = (0, 0);
    let layered = report.policy.mode == Mode::Layered;
    for record in &report.records {
        match &record.fact {
            Fact::CallOpened { allowances, .. } => {
                (attempts, cap, layer, permanent) = (0, allowances.cap(), Layer::First, false);
                (compacted, refreshed, transport) = (0, 0, allowances.transport);
            }
            // What is not sent leaves the account as it was.
            Fact::AttemptRefused { .. } => (attempts, cap) = before,
            Fact::AttemptStarted { layer: paying, .. } => {
                before = (attempts, cap);
                attempts += 1;
                match paying {
                    Layer::Compaction => (cap, compacted) = (cap + 1, compacted + 1),
                    Layer::Refresh => (cap, refreshed) = (cap + 1, refreshed + 1),
                    Layer::Fallback => cap += 1 + transport,
                    _ if permanent => broken.push("an attempt after a permanent failure".to_owned()),
                    _ => {}
                }
                if attempts > cap {
                    broken.push(format!("attempt {attempts} of a call whose cap is {cap}"));
                }
                if compacted > report.policy.max_compactions || refreshed > 1 {
                    broken.push(format!("{compacted} compactions and {refreshed} refreshes in a call"));
                }
                if !layered && (*paying, layer) == (Layer::Transport, Layer::Session) {
                    broken.push("transport paid after the session's turn had begun".to_owned());
                }
                // Exec pays for unknown failures whenever they come, and what cures a failure has no place in the order
                // either. Another target begins anew.
                match paying {
                    Layer::Exec | Layer::Compaction | Layer::Refresh => {}
                    paying => layer = *paying,
                }
            }
            Fact::AttemptFailed { verdict, .. } => {
                permanent = !verdict.retryable && verdict.reason != Reason::Unknown;
            }
            _ => {}
        }
    }
}

/// A target that was left is not asked while it is benched, and an attempt begins only while its call has time.
fn targets_and_budgets_are_kept(report: &Report, broken: &mut Vec<String>) {
    let mut benches = BTreeMap::<usize, u64>::new();
    let (mut target, mut opened_at) = (0, 0);
    for record in &report.records {
        match &record.fact {
            Fact::Started { benches: told, .. } => benches.extend(told.iter().copied()),
            Fact::TargetBenched { target, until } => {
                let bench = benches.entry(*target).or_default();
                *bench = (*until).max(*bench);
            }
            Fact::CallOpened { target: first, .. } => {
                (target, opened_at) = (*first, record.at);
                let is_free = |place: usize| benches.get(&place).is_none_or(|until| *until <= record.at);
                if !is_free(target) && (0..=report.fallbacks).any(is_free) {
                    broken.push(format!("a call began with target {target}, which is benched"));
                }
            }
            Fact::Decided { decision, .. } => {
                if let Action::FallBack { target: next, bench_ms } = decision.action {
                    benches.insert(target, bench_ms.map_or(u64::MAX, |ms| record.at + ms));
                    if benches.get(&next).is_some_and(|until| *until > record.at) {
                        broken.push(format!("fell back to target {next}, which is benched"));
                    }
                    target = next;
                }
            }
            Fact::AttemptStarted { layer, .. } => {
                let budget = report.policy.transport.total_budget_ms.unwrap_or(u64::MAX);
                if *layer != Layer::First && record.at - opened_at > budget {
                    broken.push(format!("an attempt {} ms into a call", record.at - opened_at));
                }
            }
            _ => {}
        }
    }
}

/// No dimension of the budget, nor a limit of the agent's, is exceeded: what would pass one is not begun. What an attempt
/// costs is known when it has ended, so the last one alone may go past the limit.
fn nothing_is_exceeded(report: &Report, broken: &mut Vec<String>) {
    let budget = report.records.iter().find_map(|record| match &record.fact {
        Fact::Started { budget, .. } => Some(*budget),
        _ => None,
    });
    let budget = budget.unwrap_or_default();
    let tool_limit = budget.max_tool_calls.into_iter().chain(report.max_tool_calls).min();
    let tool_runs = report.tool_runs();
    if tool_limit.is_some_and(|limit| tool_runs > limit as usize) {
        broken.push(format!("{tool_runs} tool calls, and the limit is {tool_limit:?}"));
    }
    // Millionths of a dollar: whole tokens by whole dollars per million.
    let (mut cost, mut unpriced, mut target) = (0, false, 0);
    let limit = budget.max_cost_usd.map(|limit| limit.as_f64() * 1e6);
    let spent = |cost: u64| limit.is_some_and(|limit| cost as f64 >= limit);
    let overspent = |cost: u64| limit.is_some_and(|limit| cost as f64 > limit);
    for record in &report.records {
        let usage = match &record.fact {
            Fact::CallOpened { step, target: first, .. } => {
                target = *first;
                if budget.max_steps.is_some_and(|limit| *step > limit) {
                    broken.push(format!("step {step} of a budget of {:?}", budget.max_steps));
                }
                continue;
            }
            Fact::Decided { decision, .. } => {
                if let Action::FallBack { target: next, .. } = decision.action {
                    target = next;
                }
                continue;
            }
            Fact::AttemptStarted { .. } if spent(cost) => {
                broken.push(format!("an attempt after {cost} millionths of a dollar"));
                continue;
            }
            Fact::BatchOpened { .. } if overspent(cost) => {
                broken.push(format!("tools after {cost} millionths of a dollar"));
                continue;
            }
            Fact::AttemptFailed { usage, .. } => *usage,
            Fact::ModelReplied { reply, .. } => reply.usage,
            _ => continue,
        };
        let tokens = usage.map_or((0, 0), |usage| (usage.input, usage.output));
        match report.prices.get(&target) {
            Some((input, output)) => cost += tokens.0 * u64::from(*input) + tokens.1 * u64::from(*output),
            None => unpriced = true,
        }
    }
    let Some(finished) = report.finished() else { return };
    let told = finished.usage.cost_usd;
    let asked = !finished.usage.cost_breakdown.is_empty();
    let expected = (asked && !unpriced).then(|| Usd::new(cost as f64 / 1e6));
    if told != expected {
        broken.push(format!("it cost {expected:?}, and {told:?} is told"));
    }
    if finished.stop_reason == StopReason::Completed && overspent(cost) {
        broken.push("a run that cost too much is called complete".to_owned());
    }
    ends_by_its_budget(report, budget, broken);
}

/// A run that says that its budget is used up has a budget, and has used it up.
fn ends_by_its_budget(report: &Report, budget: RunBudget, broken: &mut Vec<String>) {
    let Some(error) = report.error().filter(|error| error.code() == codes::EXECUTION_BUDGET_EXHAUSTED) else {
        return;
    };
    let Some(limit) = error.limit() else { return broken.push("a budget without its limit".to_owned()) };
    let expected = match limit.kind {
        Some("steps") => budget.max_steps.map(f64::from),
        Some("tool_calls") => budget.max_tool_calls.map(f64::from),
        Some("duration") => budget.max_duration_ms.map(|limit| limit as f64),
        Some("cost") => budget.max_cost_usd.map(Usd::as_f64),
        _ => None,
    };
    if expected != Some(limit.limit) || limit.current < limit.limit {
        broken.push(format!("{limit:?} of {budget:?}"));
    }
}

/// A conversation that is sent is one that a provider takes: it has the user's word, and each result follows its call.
fn conversations_are_whole(report: &Report, broken: &mut Vec<String>) {
    for (_, effect) in &report.effects {
        let Effect::CallModel { messages, .. } = effect else { continue };
        if !messages.iter().any(|message| message.role == Role::User) {
            broken.push("a conversation without the user's word".to_owned());
        }
        let calls = messages.iter().flat_map(|message| message.tool_calls());
        let mut names = BTreeSet::new();
        for call in calls.filter(|call| !names.insert(call.id.as_str())) {
            broken.push(format!("two calls are named {:?}", call.id));
        }
        let mut asked = Vec::new();
        for message in messages {
            let results: Vec<_> = message
                .content
                .iter()
                .filter_map(|block| match block {
                    Block::ToolResult(result) => Some(result.call_id.clone()),
                    _ => None,
                })
                .collect();
            if results != asked {
                broken.push(format!("results {results:?} after the calls {asked:?}"));
            }
            asked = message.tool_calls().map(|call| call.id.clone()).collect();
        }
    }
}

/// Hints are floors, and nothing is sent before its wait is over.
fn waits_are_kept(report: &Report, broken: &mut Vec<String>) {
    let (mut hint_ms, mut not_before) = (0, 0);
    for record in &report.records {
        match &record.fact {
            Fact::AttemptFailed { verdict, .. } => {
                (hint_ms, not_before) = (verdict.wait.map_or(0, |wait| wait.delay_ms), 0);
            }
            Fact::Decided { decision, .. } => {
                if let Action::Send { delay_ms, .. } = &decision.action {
                    not_before = record.at + delay_ms;
                    if *delay_ms < hint_ms {
                        broken.push(format!("waited {delay_ms} where the provider said {hint_ms}"));
                    }
                }
            }
            Fact::AttemptStarted { .. } if record.at < not_before => {
                broken.push(format!("sent at {}, before {not_before}", record.at));
            }
            _ => {}
        }
    }
    if report.waits_ms().iter().any(|wait| *wait > report.policy.max_inline_wait_ms.saturating_add(1_000)) {
        broken.push("a wait longer than max_inline_wait_ms".to_owned());
    }
}

/// Promises 3 and 5: a tool call runs at most once, and never when its answer was cut off.
fn tools_run_once(report: &Report, broken: &mut Vec<String>) {
    let distinct: BTreeSet<_> = report.performed.tool_effects.iter().collect();
    if distinct.len() != report.performed.tool_effects.len() {
        broken.push("a tool call ran twice".to_owned());
    }
    // A call that is made again has failed: it has a decision, and no result.
    let mut returned = BTreeSet::new();
    for record in &report.records {
        match &record.fact {
            Fact::ToolReturned { effect, .. } => {
                returned.insert(*effect);
            }
            Fact::ToolRetryDecided { effect, error, .. }
                if returned.contains(effect) || !error.dict.retryable =>
            {
                broken.push("a tool call was made again that had succeeded, or could not".to_owned());
            }
            _ => {}
        }
    }
    let mut cut_off = false;
    let mut forbidden = BTreeSet::new();
    for record in &report.records {
        match &record.fact {
            Fact::ModelReplied { reply, .. } => cut_off = reply.finish == FinishReason::Length,
            Fact::BatchOpened { calls, .. } if cut_off => {
                forbidden.extend(calls.iter().map(|(effect, _)| *effect));
            }
            _ => {}
        }
    }
    if report.performed.tool_effects.iter().any(|effect| forbidden.contains(effect)) {
        broken.push("a tool call ran whose arguments were cut off".to_owned());
    }
}

/// An output that must fit was found to; one that was not goes back to the model, as often as the run allows and never
/// twice for the same mistake.
fn outputs_are_checked(report: &Report, broken: &mut Vec<String>) {
    let mut most = None;
    let (mut corrections, mut last, mut repeats, mut checked) = (0, None, false, false);
    for record in &report.records {
        match &record.fact {
            Fact::Started { output, .. } => {
                most = output.schema.as_ref().map(|_| output.max_validation_retries);
            }
            Fact::ValidationBegun { .. } => checked = true,
            Fact::OutputRejected { output, error } => {
                checked = false;
                repeats = last.replace((output, error)) == Some((output, error));
            }
            Fact::CallOpened { purpose: Purpose::Correction, .. } => {
                corrections += 1;
                if repeats {
                    broken.push("a correction of the same mistake in the same answer".to_owned());
                }
            }
            Fact::Finished { stop_reason: StopReason::Completed, .. } if most.is_some() && !checked => {
                broken.push("an output that was not checked".to_owned());
            }
            _ => {}
        }
    }
    if most.is_some_and(|most| corrections > most) {
        broken.push(format!("{corrections} corrections where {most:?} are allowed"));
    }
    let announced = report.events().filter(|(name, _)| *name == names::VALIDATION_RETRY).count();
    if announced != corrections as usize {
        broken.push(format!("{corrections} corrections, {announced} announced"));
    }
}

/// Every event has the payload that its row declares; a tool call that is taken up has its event; every failed attempt has
/// its decision, and every decision its event; the last event is the end.
fn events_are_true(report: &Report, broken: &mut Vec<String>) {
    let mut last = None;
    let mut decisions = 0;
    for (name, payload) in report.events() {
        broken.extend(name.violations(payload));
        decisions += usize::from(name == names::RETRY_DECIDED);
        last = Some(name);
    }
    if last != Some(names::SESSION_RUN_COMPLETED) {
        broken.push(format!("the last event is {last:?}"));
    }
    // A call is announced when it is begun or refused, once, and never where there was no room for it.
    let called = report.events().filter(|(name, _)| *name == names::TOOL_CALLED).count();
    let taken_up = report.records.iter().map(|record| match &record.fact {
        Fact::BatchOpened { calls, withheld } => calls.len() - withheld.len(),
        Fact::ToolAdmitted { .. } => 1,
        _ => 0,
    });
    let taken_up: usize = taken_up.sum();
    if called != taken_up {
        broken.push(format!("{called} tool calls announced, and {taken_up} taken up"));
    }
    let count = |is: fn(&Fact) -> bool| report.records.iter().filter(|record| is(&record.fact)).count();
    let failed = count(|fact| matches!(fact, Fact::AttemptFailed { .. }));
    let decided = count(|fact| matches!(fact, Fact::Decided { .. }));
    // What was tried to cure a failure is decided on, and so is what follows from it; what follows an attempt that could
    // not be made is, if another target follows.
    let tried = count(|fact| match fact {
        Fact::Decided { decision, .. } => matches!(decision.action, Action::Compact | Action::ReadCredential),
        Fact::AttemptRefused { .. } => true,
        _ => false,
    });
    if decided != decisions || decided > failed + tried || decided < failed {
        broken.push(format!("{failed} attempts failed, {decided} decisions, {decisions} announced"));
    }
}
