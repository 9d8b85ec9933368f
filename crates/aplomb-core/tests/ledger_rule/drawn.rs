//! What is drawn at random: verdicts, policies, calls.

use aplomb_core::decide::{Jitter, Policy, Restart};
use aplomb_core::failure::{Reason, Verdict};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};
use serde_json::json;

use crate::call::*;

/// The same cases everywhere and every time, and no files.
pub(crate) fn config() -> Config {
    Config {
        cases: 1_024,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x0041_504c_4f4d_4221),
        ..Config::default()
    }
}

/// Retryable reasons: any that is neither ours nor unknown, nor step 2's.
pub(crate) const RETRYABLE: [Reason; 8] = [
    Reason::RateLimit,
    Reason::Overloaded,
    Reason::ServerError,
    Reason::Connection,
    Reason::Timeout,
    Reason::StreamInterrupted,
    Reason::EmptyResponse,
    Reason::MalformedResponse,
];

/// Permanent reasons. Those of step 2, an overflow and an auth failure, are left to the tests of that step.
pub(crate) const PERMANENT: [Reason; 11] = [
    Reason::QuotaExhausted,
    Reason::Permission,
    Reason::InvalidRequest,
    Reason::ModelNotFound,
    Reason::ContentFilter,
    Reason::PayloadTooLarge,
    Reason::InvalidImage,
    Reason::ToolSchemaInvalid,
    Reason::ServerError,
    Reason::MalformedResponse,
    Reason::Connection,
];

pub(crate) fn verdict(reason: Reason, retryable: bool, hint_ms: Option<u64>) -> Verdict {
    let wait = hint_ms.map(|delay_ms| json!({"delay_ms": delay_ms, "source": "retry-after"}));
    serde_json::from_value(json!({"reason": reason, "retryable": retryable, "wait": wait, "rule": "test"}))
        .unwrap()
}

pub(crate) fn hints() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        4 => Just(None),
        2 => (0..=5_000_u64).prop_map(Some),
        1 => (54_000..=66_000_u64).prop_map(Some),
        1 => (0..=300_000_u64).prop_map(Some),
    ]
}

pub(crate) fn retryable_verdicts() -> impl Strategy<Value = Verdict> {
    (select(&RETRYABLE[..]), hints()).prop_map(|(reason, hint)| verdict(reason, true, hint))
}

pub(crate) fn unknown_verdicts() -> impl Strategy<Value = Verdict> {
    hints().prop_map(|hint| verdict(Reason::Unknown, false, hint))
}

pub(crate) fn permanent_verdicts() -> impl Strategy<Value = Verdict> {
    (select(&PERMANENT[..]), hints()).prop_map(|(reason, hint)| verdict(reason, false, hint))
}

pub(crate) fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![8 => retryable_verdicts(), 4 => unknown_verdicts(), 1 => permanent_verdicts()]
}

pub(crate) fn steps_of(verdicts: impl Strategy<Value = Verdict>) -> impl Strategy<Value = Vec<Step>> {
    let delivers = prop_oneof![6 => Just(false), 1 => Just(true)];
    let step = (verdicts, delivers, 0..=3_000_u64, any::<u64>())
        .prop_map(|(verdict, delivers, takes_ms, entropy)| Step { verdict, delivers, takes_ms, entropy });
    prop::collection::vec(step, 1..=14)
}

pub(crate) fn jitters() -> impl Strategy<Value = Jitter> {
    select(&[Jitter::None, Jitter::Full, Jitter::Equal][..])
}

pub(crate) fn restarts() -> impl Strategy<Value = Restart> {
    select(&[Restart::Auto, Restart::Marker, Restart::Never][..])
}

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let transport = (
        prop_oneof![1 => Just(1_u32), 2 => 1..=6_u32],
        0..=20_000_u64,
        0..=70_000_u64,
        select(&[1.0, 1.5, 2.0, 3.0][..]),
        any::<bool>(),
        jitters(),
    );
    let session = (prop::bool::weighted(0.7), 0..=5_u32, 0..=20_000_u64);
    let exec = (1..=6_u32, 0..=20_000_u64);
    let inline = prop_oneof![2 => Just(60_000_u64), 1 => 0..=30_000_u64, 2 => Just(u64::MAX)];
    (transport, session, exec, inline, restarts()).prop_map(|(transport, session, exec, inline, restart)| {
        let mut policy = Policy::default();
        let t = &mut policy.transport;
        (t.max_attempts, t.initial_backoff_ms, t.max_backoff_ms) = (transport.0, transport.1, transport.2);
        (t.backoff_multiplier, t.retry_on_connection_errors, t.jitter) =
            (transport.3, transport.4, transport.5);
        let s = &mut policy.session;
        (s.enabled, s.max_retries, s.base_delay_ms) = session;
        (policy.exec.max_retries, policy.exec.base_delay_ms) = exec;
        policy.max_inline_wait_ms = inline;
        policy.restart = restart;
        policy
    })
}

pub(crate) fn calls_of(verdicts: impl Strategy<Value = Verdict>) -> impl Strategy<Value = Call> {
    let deadline = prop_oneof![2 => Just(None), 1 => (0..=200_000_u64).prop_map(Some)];
    (policies(), any::<bool>(), 0..=1_000_000_u64, deadline, steps_of(verdicts)).prop_map(
        |(policy, by_exec, starts_at, left, steps)| Call {
            policy,
            by_exec,
            starts_at,
            deadline: left.map(|left| starts_at + left),
            steps,
        },
    )
}

pub(crate) fn calls() -> impl Strategy<Value = Call> {
    calls_of(verdicts())
}

/// A call whose waits are all slept: no deadline, no longest wait.
pub(crate) fn patient(mut call: Call) -> Call {
    call.deadline = None;
    call.policy.max_inline_wait_ms = u64::MAX;
    call
}

pub(crate) fn silent(mut call: Call) -> Call {
    call.steps.iter_mut().for_each(|step| step.delivers = false);
    call
}

pub(crate) fn without_hints(mut call: Call) -> Call {
    call.steps.iter_mut().for_each(|step| step.verdict.wait = None);
    call
}

/// Numbers from the ends of their types.
pub(crate) fn extremes() -> impl Strategy<Value = u64> {
    prop_oneof![
        select(&[0, 1, 2, u32::MAX as u64, i64::MAX as u64, (1 << 53) + 1, u64::MAX - 1, u64::MAX][..]),
        any::<u64>(),
    ]
}

pub(crate) fn extreme_counts() -> impl Strategy<Value = u32> {
    prop_oneof![select(&[0, 1, 2, u32::MAX - 1, u32::MAX][..]), any::<u32>()]
}

pub(crate) fn extreme_multipliers() -> impl Strategy<Value = f64> {
    prop_oneof![
        select(
            &[1e308, 1.0, 0.0, -2.0, f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
                [..]
        ),
        any::<f64>(),
    ]
}

pub(crate) fn extreme_policies() -> impl Strategy<Value = Policy> {
    // Up to the most that the settings' documentation allows, and 0 where it says 1.
    let counts = (0..=100_u32, 0..=100_u32, 0..=100_u32);
    let times = (extremes(), extremes(), extremes(), extremes(), extremes());
    (counts, times, extreme_multipliers(), any::<bool>(), any::<bool>(), jitters(), restarts()).prop_map(
        |(counts, times, multiplier, connections, enabled, jitter, restart)| {
            let mut policy = Policy::default();
            policy.transport.max_attempts = counts.0;
            policy.transport.initial_backoff_ms = times.0;
            policy.transport.max_backoff_ms = times.1;
            policy.transport.backoff_multiplier = multiplier;
            policy.transport.retry_on_connection_errors = connections;
            policy.transport.jitter = jitter;
            policy.session.enabled = enabled;
            policy.session.max_retries = counts.1;
            policy.session.base_delay_ms = times.2;
            policy.exec.max_retries = counts.2;
            policy.exec.base_delay_ms = times.3;
            policy.max_inline_wait_ms = times.4;
            policy.restart = restart;
            policy
        },
    )
}

pub(crate) fn any_verdict() -> impl Strategy<Value = Verdict> {
    (select(Reason::ALL), any::<bool>(), prop::option::of(extremes()))
        .prop_map(|(reason, retryable, hint)| verdict(reason, retryable, hint))
}
