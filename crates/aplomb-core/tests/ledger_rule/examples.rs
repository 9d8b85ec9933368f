//! The page's own numbers.

use aplomb_core::decide::{
    Action, Allowances, Jitter, Layer, Ledger, Moment, Outcome, Policy, Restart, decide,
};
use aplomb_core::failure::{Failure, Reason, Verdict, classify};

use crate::arithmetic::*;
use crate::call::*;
use crate::drawn::*;

fn without_jitter() -> Policy {
    let mut policy = Policy::default();
    policy.transport.jitter = Jitter::None;
    policy
}

/// The same failure, for ever, from 0 ms on.
fn persistent(policy: Policy, by_exec: bool, verdict: Verdict) -> Call {
    let step = Step { verdict, delivers: false, takes_ms: 0, entropy: 0x9e37_79b9_7f4a_7c15 };
    Call { policy, by_exec, starts_at: 0, deadline: None, steps: vec![step] }
}

fn unavailable() -> Verdict {
    classify(&Failure::status(503, b""))
}

fn after_attempts(story: &[Decided]) -> Option<u64> {
    match *last(story) {
        Action::Stop { outcome: Outcome::AfterAttempts, resume_after_ms } => resume_after_ms,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_are_those_of_the_page() {
    let policy = Policy::default();
    let transport = &policy.transport;
    assert_eq!(
        (transport.max_attempts, transport.initial_backoff_ms, transport.max_backoff_ms),
        (3, 500, 5_000)
    );
    assert_eq!((transport.backoff_multiplier, transport.retry_on_connection_errors), (2.0, true));
    assert_eq!(
        (policy.session.enabled, policy.session.max_retries, policy.session.base_delay_ms),
        (true, 3, 2_000)
    );
    assert_eq!((policy.exec.max_retries, policy.exec.base_delay_ms), (3, 1_500));
    assert_eq!(policy.max_inline_wait_ms, 60_000);
    assert_eq!(policy.restart, Restart::Auto);
    assert_eq!(cap(&policy, false), 6);
    assert_eq!(cap(&policy, true), 6); // 1 + max(2 + 3, 2)
}

#[test]
fn a_persistent_503_costs_six_requests_and_waits_half_one_two_four_eight_seconds() {
    for by_exec in [false, true] {
        let story = make(&persistent(without_jitter(), by_exec, unavailable()));
        assert_eq!(story.len(), 6); // 1 + T 2 + S 3
        assert_eq!(waits(&story), [500, 1_000, 2_000, 4_000, 8_000]);
        let (t, s) = (Layer::Transport, Layer::Session);
        assert_eq!(layers(&story), [t, t, s, s, s]);
        assert_eq!(after_attempts(&story), None);
    }
}

#[test]
fn an_unknown_failure_costs_run_one_request_and_exec_three_with_one_and_a_half_and_three_seconds_between() {
    let unknown = || verdict(Reason::Unknown, false, None);
    assert_eq!(make(&persistent(without_jitter(), false, unknown())).len(), 1);
    let story = make(&persistent(without_jitter(), true, unknown()));
    assert_eq!(story.len(), 3);
    assert_eq!(waits(&story), [1_500, 3_000]);
}

#[test]
fn exec_as_the_only_owner_of_retries_serves_a_503_too() {
    let mut policy = without_jitter();
    policy.transport.max_attempts = 1;
    policy.session.enabled = false;
    policy.exec.max_retries = 4;
    let story = make(&persistent(policy.clone(), true, unavailable()));
    assert_eq!(waits(&story), [1_500, 3_000, 6_000]); // "6 s only where `max_retries` is 4 or more"
    assert_eq!(layers(&story), [Layer::Exec; 3]);
    assert_eq!(make(&persistent(policy, false, unavailable())).len(), 1);
}

#[test]
fn connections_and_time_outs_skip_transport_where_it_does_not_retry_them() {
    let mut policy = without_jitter();
    policy.transport.retry_on_connection_errors = false;
    for reason in [Reason::Connection, Reason::Timeout] {
        let story = make(&persistent(policy.clone(), false, verdict(reason, true, None)));
        assert_eq!(waits(&story), [2_000, 4_000, 8_000], "{reason}");
    }
    // The rest of the connection class is the gate's notion, not this setting's.
    for reason in [Reason::ServerError, Reason::StreamInterrupted] {
        let story = make(&persistent(policy.clone(), false, verdict(reason, true, None)));
        assert_eq!(waits(&story), [500, 1_000, 2_000, 4_000, 8_000], "{reason}");
    }
}

#[test]
fn once_the_session_has_begun_what_transport_had_left_is_forfeit() {
    let mut policy = without_jitter();
    policy.transport.retry_on_connection_errors = false;
    let mut call = persistent(policy, false, verdict(Reason::Connection, true, None));
    call.steps.resize(10, Step { verdict: unavailable(), ..call.steps[0].clone() });
    let story = make(&call);
    assert_eq!(layers(&story), [Layer::Session; 3]);
    assert_eq!(waits(&story), [2_000, 4_000, 8_000]);
}

#[test]
fn a_stream_that_breaks_after_it_has_delivered_is_the_sessions_to_restart() {
    let mut call = persistent(without_jitter(), false, verdict(Reason::StreamInterrupted, true, None));
    call.steps[0].delivers = true;
    assert_eq!(waits(&make(&call)), [2_000, 4_000, 8_000]);
    call.policy.restart = Restart::Never;
    assert_eq!(make(&call).len(), 1);
}

#[test]
fn a_delivery_holds_for_the_rest_of_the_call() {
    let mut call = persistent(without_jitter(), false, unavailable());
    call.steps.resize(10, call.steps[0].clone());
    call.steps[1].delivers = true;
    // By transport while nothing was delivered, then by the session, although later attempts deliver nothing.
    assert_eq!(waits(&make(&call)), [500, 2_000, 4_000, 8_000]);
}

#[test]
fn a_hint_is_a_floor_and_a_longer_back_off_stays() {
    let hinted = verdict(Reason::RateLimit, true, Some(3_000));
    assert_eq!(
        waits(&make(&persistent(without_jitter(), false, hinted))),
        [3_000, 3_000, 3_000, 4_000, 8_000]
    );
    let now = verdict(Reason::RateLimit, true, Some(0));
    assert_eq!(waits(&make(&persistent(without_jitter(), false, now))), [500, 1_000, 2_000, 4_000, 8_000]);
}

#[test]
fn a_hint_of_a_minute_is_slept_and_one_millisecond_more_is_reported_with_the_time_to_come_back() {
    for jitter in [Jitter::None, Jitter::Full, Jitter::Equal] {
        let mut policy = Policy::default();
        policy.transport.jitter = jitter;
        for entropy in [0, 1, u64::MAX / 2, u64::MAX] {
            let hinted = |hint| {
                let mut call =
                    persistent(policy.clone(), false, verdict(Reason::RateLimit, true, Some(hint)));
                call.steps[0].entropy = entropy;
                make(&call)
            };
            // The random addition does not count: 60 s + U(0, 1 s) is slept.
            let story = hinted(60_000);
            assert_eq!(story.len(), 6, "{jitter:?}");
            assert!(waits(&story).iter().all(|wait| (60_000..=61_000).contains(wait)));
            let story = hinted(60_001);
            assert_eq!(story.len(), 1, "{jitter:?}");
            let resume_after = after_attempts(&story).expect("the hint is known");
            assert!((60_001..=61_001).contains(&resume_after), "{resume_after}");
        }
    }
}

#[test]
fn a_wait_may_end_at_the_deadline_but_not_after_it() {
    let with = |deadline, hint| {
        let mut call = persistent(without_jitter(), false, verdict(Reason::RateLimit, true, hint));
        call.deadline = Some(deadline);
        make(&call)
    };
    assert_eq!(waits(&with(500, None)), [500]);
    assert_eq!(waits(&with(499, None)), [0; 0]);
    assert_eq!(after_attempts(&with(499, None)), None, "nobody stated when to come back");
    assert!(after_attempts(&with(2_999, Some(3_000))).is_some_and(|after| after >= 3_000));
}

#[test]
fn after_a_run_has_cost_what_it_may_nothing_follows_whatever_would() {
    let overflow = br#"{"error": {"code": "context_length_exceeded"}}"#;
    for failure in [
        Failure::status(503, b""),
        Failure::status(401, b""),
        Failure::status(418, b""),
        Failure::status(400, overflow),
    ] {
        let verdict = classify(&failure);
        let mut ledger = Ledger::new(Allowances::of(&Policy::default(), true));
        ledger.begin_attempt();
        // Another model, another credential, a shorter conversation: all of it would cost more.
        let spent = Moment { is_spent: true, next_target: Some(1), can_refresh: true, ..Moment::default() };
        let decided = |moment| {
            let decision = decide(&failure, &verdict, &ledger, &Policy::default(), moment);
            match decision.action {
                Action::Stop { outcome, .. } => (outcome, decision.rule),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(decided(spent), (Outcome::OutOfBudget, "budget.cost".to_owned()), "{failure}");
        // Where the time is up as well, that is what ended the run.
        let late = Moment { at: 9, deadline: Some(9), ..spent };
        assert_eq!(decided(late).0, Outcome::OutOfTime, "{failure}");
    }
}

#[test]
fn a_call_that_runs_out_of_attempts_says_when_to_come_back_where_that_is_known() {
    // Step 7: "else stop 'failed after N attempts', with `resume_at` where known." The last answer named a
    // time.
    let story = make(&persistent(without_jitter(), false, verdict(Reason::RateLimit, true, Some(3_000))));
    assert_eq!(story.len(), 6);
    assert!(
        after_attempts(&story).is_some_and(|after| (3_000..=3_300).contains(&after)),
        "{:?}",
        last(&story)
    );
}

#[test]
fn jitter_uses_the_whole_of_its_range() {
    let waits_with = |jitter, hint| -> Vec<u64> {
        let mut policy = Policy::default();
        policy.transport.jitter = jitter;
        policy.transport.initial_backoff_ms = 4_000;
        (1..=2_000_u64)
            .map(|n| {
                let mut call = persistent(policy.clone(), false, verdict(Reason::RateLimit, true, hint));
                call.steps[0].entropy = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                waits(&make(&call))[0]
            })
            .collect()
    };
    // U(low, high) over 2,000 draws: the ends are met within 2 %, the mean within 3 % of the width.
    let spread = |waits: &[u64], low: u64, high: u64| {
        let width = (high - low) as f64;
        let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
        let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
        assert!(least >= low && (least - low) as f64 <= 0.02 * width, "{least} in {low}..={high}");
        assert!(most <= high && (high - most) as f64 <= 0.02 * width, "{most} in {low}..={high}");
        assert!((mean - (low + high) as f64 / 2.0).abs() <= 0.03 * width, "{mean} in {low}..={high}");
    };
    spread(&waits_with(Jitter::Full, None), 0, 4_000);
    spread(&waits_with(Jitter::Equal, None), 2_000, 4_000);
    // The random addition to a hint: a tenth of it, at most a second.
    spread(&waits_with(Jitter::Full, Some(8_000)), 8_000, 8_800);
    spread(&waits_with(Jitter::Equal, Some(40_000)), 40_000, 41_000);
}
