//! The truth table: what failed × what the call has used × what the policy says → what is decided, and by which rule.
//!
//! `truth_table.txt` is the table, for people: a change of behaviour is a change of its lines. Its lines were checked
//! against `docs/spec/retry.md` §2 and §5 one by one. `APLOMB_WRITE_TABLE=1 cargo test -p aplomb-core --test truth_table`
//! writes it anew.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may")]

use std::fmt::Write;

use aplomb_core::decide::{
    Action, Allowances, Decision, Jitter, Layer, Ledger, Mode, Moment, Outcome, Policy, Restart, decide,
};
use aplomb_core::failure::{Failure, Phase, Reason, TransportKind, Verdict, classify};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};
use serde_json::json;

/// A failure that comes with the verdict that its name says, whatever the classifier's rules are called.
struct Case {
    name: &'static str,
    failure: Failure,
}

fn coded(status: u16, code: &str) -> Failure {
    Failure::status(status, json!({"error": {"message": "no", "code": code}}).to_string().as_bytes())
}

fn cases() -> Vec<Case> {
    let hinted = |seconds| Failure::status(429, b"").with_headers([("retry-after", seconds)]);
    let refused = Failure::transport(Phase::Connect, TransportKind::Refused, "connection refused");
    let timeout = Failure::transport(Phase::Connect, TransportKind::FirstByteTimeout, "no answer in time");
    let unknown = Failure::transport(Phase::Connect, TransportKind::Other, "nobody knows this");
    [
        ("503", Failure::status(503, b"")),
        ("500", Failure::status(500, b"")),
        ("429", Failure::status(429, b"")),
        ("429, wait 3 s", hinted("3")),
        ("429, wait 61 s", hinted("61")),
        ("connection refused", refused),
        ("timeout", timeout),
        ("unknown", unknown),
        ("401", Failure::status(401, b"")),
        ("400", Failure::status(400, b"")),
        ("quota spent", coded(429, "insufficient_quota")),
        ("context overflow", coded(400, "context_length_exceeded")),
    ]
    .into_iter()
    .map(|(name, failure)| Case { name, failure })
    .collect()
}

/// A policy, and what is around a call under it.
struct Policies {
    name: &'static str,
    policy: Policy,
    by_exec: bool,
    moment: Moment,
}

fn policies() -> Vec<Policies> {
    let row = |name, by_exec, change: fn(&mut Policy, &mut Moment)| {
        let (mut policy, mut moment) = (Policy::default(), Moment::default());
        policy.transport.jitter = Jitter::None;
        change(&mut policy, &mut moment);
        Policies { name, policy, by_exec, moment }
    };
    vec![
        row("defaults, by run", false, |_, _| {}),
        row("defaults, by exec", true, |_, _| {}),
        row("layered, by exec", true, |policy, _| policy.mode = Mode::Layered),
        row("exec alone", true, |policy, _| {
            policy.transport.max_attempts = 1;
            policy.session.enabled = false;
        }),
        row("restart never, by run", false, |policy, _| policy.restart = Restart::Never),
        row("a fallback and a credential to read, by run", false, |_, moment| {
            (moment.next_target, moment.can_refresh) = (Some(1), true);
        }),
        row("900 ms to the deadline, by run", false, |_, moment| moment.deadline = Some(900)),
        row("a budget of 900 ms, by run", false, |policy, _| policy.transport.total_budget_ms = Some(900)),
    ]
}

/// What a call has used: charges, and whether some of an answer was handed over.
fn ledgers(policy: &Policy, by_exec: bool) -> Vec<(&'static str, Ledger)> {
    let call = |paid: &[Layer], delivered: bool| {
        let mut ledger = Ledger::new(Allowances::of(policy, by_exec));
        ledger.begin_attempt();
        for layer in paid {
            ledger.charge(*layer);
            ledger.begin_attempt();
        }
        if delivered {
            ledger.note_delivered();
        }
        ledger
    };
    use Layer::{Session, Transport};
    vec![
        ("first attempt", call(&[], false)),
        ("first, delivered", call(&[], true)),
        ("T spent", call(&[Transport, Transport], false)),
        ("T and S spent", call(&[Transport, Transport, Session, Session, Session], false)),
    ]
}

fn words(decision: &Decision) -> String {
    let what = match &decision.action {
        Action::Send { layer, delay_ms, .. } => format!("wait {delay_ms} ms, send ({})", layer.as_str()),
        Action::Compact => "compact".to_owned(),
        Action::ReadCredential => "read the credential".to_owned(),
        Action::FallBack { target, bench_ms: Some(ms) } => format!("target {target}, bench {ms} ms"),
        Action::FallBack { target, bench_ms: None } => format!("target {target}, bench for the run"),
        Action::Stop { outcome: Outcome::Permanent, .. } => "stop: permanently".to_owned(),
        Action::Stop { outcome: Outcome::AfterAttempts, .. } => "stop: after attempts".to_owned(),
        Action::Stop { outcome: Outcome::OutOfTime, .. } => "stop: out of time".to_owned(),
        other => panic!("{other:?} has no words"),
    };
    format!("{what}  [{}]", decision.rule)
}

fn table() -> String {
    let mut table = String::from(
        "What failed, and what the call has used -> what is decided  [the rule]\n\
         Jitter none. T 2 (0.5, 1 s), S 3 (2, 4, 8 s), X 2 by exec (1.5, 3 s). The run's clock stands at 0.\n",
    );
    for Policies { name, policy, by_exec, moment } in policies() {
        writeln!(table, "\n== {name}").unwrap();
        for case in cases() {
            let verdict = classify(&case.failure);
            let decided = ledgers(&policy, by_exec).into_iter().map(|(used, ledger)| {
                (used, words(&decide(&case.failure, &verdict, &ledger, &policy, moment)))
            });
            let decided: Vec<_> = decided.collect();
            let mut line = |used: &str, words: &str| {
                let left = format!("{}, {used}", case.name);
                writeln!(table, "{left:<38}-> {words}").unwrap();
            };
            if decided.iter().all(|(_, words)| *words == decided[0].1) {
                line("whatever was used", &decided[0].1);
            } else {
                decided.iter().for_each(|(used, words)| line(used, words));
            }
        }
    }
    table
}

#[test]
fn every_decision_is_the_one_in_the_table() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/truth_table.txt");
    let now = table();
    if std::env::var_os("APLOMB_WRITE_TABLE").is_some() {
        std::fs::write(file, &now).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap();
    let differences: Vec<_> = written.lines().zip(now.lines()).filter(|(then, now)| then != now).collect();
    assert!(differences.is_empty() && written.len() == now.len(), "{differences:#?}");
}

// ---- Arbitrary sequences, with everything that another request may cure

#[derive(Debug, Clone)]
struct Step {
    verdict: Verdict,
    delivers: bool,
    takes_ms: u64,
    entropy: u64,
    /// Whether the conversation shrinks, or the credential is another one, where that is tried.
    cures: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hint = prop_oneof![3 => Just(None), 2 => (0..=70_000_u64).prop_map(Some)];
    let step = (select(Reason::ALL), any::<bool>(), hint, any::<(bool, bool)>(), 0..=2_000_u64, any::<u64>());
    let step = step.prop_map(|(reason, retryable, hint, (delivers, cures), takes_ms, entropy)| {
        let wait = hint.map(|delay_ms| json!({"delay_ms": delay_ms, "source": "retry-after"}));
        let verdict = json!({"reason": reason, "retryable": retryable, "wait": wait, "rule": "test"});
        let verdict = serde_json::from_value(verdict).unwrap();
        Step { verdict, delivers: delivers && cures, takes_ms, entropy, cures }
    });
    prop::collection::vec(step, 1..=12)
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let counts = (1..=4_u32, 0..=4_u32, 1..=4_u32, 0..=3_u32);
    let switches = any::<(bool, bool, bool)>();
    let budget = prop::option::of(0..=30_000_u64);
    let modes = select(&[Mode::Additive, Mode::Layered][..]);
    let jitters = select(&[Jitter::None, Jitter::Full, Jitter::Equal][..]);
    let listed = prop::sample::subsequence(Reason::ALL.to_vec(), 0..=Reason::ALL.len());
    (counts, switches, budget, modes, jitters, listed).prop_map(
        |(counts, (enabled, connections, never), budget, mode, jitter, listed)| {
            let mut policy = Policy::default();
            policy.mode = mode;
            policy.transport.max_attempts = counts.0;
            policy.transport.retry_on_connection_errors = connections;
            policy.transport.total_budget_ms = budget;
            policy.transport.jitter = jitter;
            (policy.session.enabled, policy.session.max_retries) = (enabled, counts.1);
            policy.exec.max_retries = counts.2;
            policy.max_compactions = counts.3;
            policy.restart = if never { Restart::Never } else { Restart::Auto };
            policy.fallback_on = listed;
            policy
        },
    )
}

proptest! {
    #![proptest_config(Config {
        cases: 2_048,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x0041_504c_4f4d_4222),
        ..Config::default()
    })]

    /// Bounded by the cap as it grows, which is bounded by the worst case; never before a hint, to the same target; never
    /// past the deadline or the budget; nothing delivered is sent again where that is forbidden; total.
    #[test]
    fn any_sequence_of_failures_ends_within_its_bounds(
        policy in any_policy(),
        by_exec: bool,
        targets in 1..=4_usize,
        step_timeout in prop::option::of(0..=8_000_u64),
        deadline in prop::option::of(0..=60_000_u64),
        can_refresh: bool,
        steps in steps(),
    ) {
        let allowances = Allowances::of(&policy, by_exec);
        let mut ledger = Ledger::new(allowances).opened(0, step_timeout);
        let (mut at, mut target, mut ended) = (0_u64, 0, false);
        let (mut compactions, mut refreshes) = (0, 0);
        let failure = Failure::new(Phase::Response);
        // More than any of these policies allows: 4 × 5 × 4 + 3 × 4 + 3 + 1.
        for step in steps.iter().cycle().take(200) {
            ledger.begin_attempt();
            prop_assert!(ledger.attempts() <= ledger.cap());
            if step.delivers {
                ledger.note_delivered();
            }
            at += step.takes_ms;
            ledger.spend_time(step.takes_ms);
            let next_target = Some(target + 1).filter(|next| *next < targets);
            let moment = Moment {
                at,
                deadline,
                entropy: step.entropy,
                next_target,
                can_refresh,
                ..Moment::default()
            };
            let mut decision = decide(&failure, &step.verdict, &ledger, &policy, moment);
            loop {
                let cured = match decision.action {
                    Action::Compact => {
                        prop_assert_eq!(step.verdict.reason, Reason::ContextOverflow);
                        compactions += 1;
                        ledger.note_compaction();
                        if !step.cures {
                            ledger.forfeit_compactions();
                        }
                        Layer::Compaction
                    }
                    Action::ReadCredential => {
                        prop_assert!(step.verdict.reason == Reason::Auth && can_refresh);
                        refreshes += 1;
                        ledger.note_refresh();
                        Layer::Refresh
                    }
                    _ => break,
                };
                decision = match step.cures {
                    true => aplomb_core::decide::resend(
                        cured, &failure, &step.verdict, &ledger, &policy, moment,
                    ),
                    false => decide(&failure, &step.verdict, &ledger, &policy, moment),
                };
            }
            prop_assert!(compactions <= policy.max_compactions && refreshes <= 1);
            prop_assert!(!decision.rule.is_empty());
            let in_time = deadline.is_none_or(|deadline| at < deadline)
                && policy.transport.total_budget_ms.is_none_or(|budget| at < budget)
                && ledger.step_left_ms() != Some(0);
            let may_restart = !ledger.delivered() || policy.restart != Restart::Never;
            match decision.action {
                Action::Send { layer, delay_ms, .. } => {
                    prop_assert!(in_time && may_restart, "{:?}", decision);
                    prop_assert!(delay_ms >= step.verdict.wait.map_or(0, |wait| wait.delay_ms));
                    prop_assert!(delay_ms <= policy.max_inline_wait_ms + 1_000);
                    prop_assert!(deadline.is_none_or(|deadline| at + delay_ms <= deadline));
                    let budget = policy.transport.total_budget_ms;
                    prop_assert!(budget.is_none_or(|budget| at + delay_ms <= budget));
                    let permanent = !step.verdict.retryable && step.verdict.reason != Reason::Unknown;
                    let overflow = step.verdict.reason == Reason::ContextOverflow;
                    let cured = matches!(layer, Layer::Compaction | Layer::Refresh);
                    prop_assert!(cured || !(permanent || overflow), "{:?} after {:?}", layer, step.verdict);
                    ledger.charge(layer);
                    at += delay_ms;
                }
                Action::FallBack { target: next, bench_ms } => {
                    prop_assert!(in_time && may_restart, "{:?}", decision);
                    prop_assert_eq!(Some(next), next_target);
                    prop_assert!(bench_ms.is_none_or(|ms| ms >= 60_000));
                    let unconditional = step.verdict.retryable
                        && !matches!(step.verdict.reason, Reason::ContextOverflow | Reason::Unknown);
                    prop_assert!(unconditional || policy.fallback_on.contains(&step.verdict.reason));
                    ledger.charge(Layer::Fallback);
                    target = next;
                }
                Action::Stop { .. } => {
                    ended = true;
                    break;
                }
                other => prop_assert!(false, "{:?} is no end of a decision", other),
            }
        }
        prop_assert!(ended, "endless");
        // (1 + T) × targets + S + compactions + 1 refresh, with the layers' product in `layered` mode.
        let others = u32::try_from(targets).unwrap() - 1;
        let most = allowances.cap() + others * (1 + allowances.transport) + policy.max_compactions + 1;
        prop_assert!(ledger.attempts() <= most, "{} > {}", ledger.attempts(), most);
    }
}
