//! The `layered` mode: the counts and delays of `docs/spec/retry.md` §2, which multiply.

use aplomb_core::decide::{Mode, Restart};
use aplomb_core::failure::{Anomaly, Failure, Phase, TransportKind};
use aplomb_sim::{Report, Sim, Turn, sim};
use serde_json::json;

fn layered(failure: Failure) -> Sim {
    sim()
        .policy(|policy| policy.mode = Mode::Layered)
        .jitter_none()
        .provider(move |_| Turn::fails(failure.clone()))
}

fn said(status: u16, message: &str) -> Failure {
    Failure::status(status, json!({"error": {"message": message}}).to_string().as_bytes())
}

/// Requests, and ms of delay.
fn cost(run: &Report) -> (usize, u64) {
    (run.requests(), run.waits_ms().iter().sum())
}

fn by_run(failure: Failure) -> (usize, u64) {
    cost(&layered(failure).run("hi"))
}

fn by_exec(failure: Failure) -> (usize, u64) {
    cost(&layered(failure).exec().run("hi"))
}

#[test]
fn a_persistent_503_costs_36_requests_by_exec_and_12_by_run() {
    for failure in [
        Failure::status(503, b""),
        Failure::status(429, b""),
        Failure::status(529, b""),
        Failure::transport(Phase::Connect, TransportKind::Refused, "refused"),
        Failure::transport(Phase::Connect, TransportKind::FirstByteTimeout, "no first byte"),
    ] {
        // 3 × 4 × 3; transport 12 × 1.5 s, session 3 × 14 s, exec 1.5 + 3 s.
        assert_eq!(by_exec(failure.clone()), (36, 12 * 1_500 + 3 * 14_000 + 4_500), "{failure}");
        assert_eq!(by_exec(failure.clone()).1, 64_500);
        // 4 × 3; transport 4 × 1.5 s, session 2 + 4 + 8 s.
        assert_eq!(by_run(failure), (12, 4 * 1_500 + 14_000));
    }
}

#[test]
fn what_transport_does_not_list_is_the_sessions() {
    for failure in [
        Failure::status(500, b""),
        Failure::anomaly(Phase::MidStream, Anomaly::NoTerminalEvent, b""),
        Failure::transport(Phase::MidStream, TransportKind::Reset, "reset"),
        Failure::transport(Phase::Connect, TransportKind::Dns, "no such host"),
    ] {
        // 3 × 4; session 3 × 14 s, exec 4.5 s.
        assert_eq!(by_exec(failure.clone()), (12, 46_500), "{failure}");
        assert_eq!(by_run(failure), (4, 14_000));
    }
}

#[test]
fn an_unrecognised_text_is_execs_alone_and_a_permanent_failure_nobodys() {
    assert_eq!(by_exec(said(418, "I am a teapot")), (3, 4_500));
    assert_eq!(by_run(said(418, "I am a teapot")), (1, 0));
    let quota = json!({"error": {"message": "no money", "code": "insufficient_quota"}}).to_string();
    for failure in [Failure::status(401, b""), Failure::status(429, quota.as_bytes())] {
        assert_eq!(by_exec(failure), (1, 0));
    }
}

#[test]
fn the_references_texts_decide_about_what_no_rule_knows() {
    // The session's pattern, with the status as a whole word; nothing for transport.
    assert_eq!(by_exec(said(418, "upstream answered 503")), (12, 46_500));
    assert_eq!(by_exec(said(418, "take 5030 of them")), (3, 4_500));
    let run = layered(said(418, "Your Login Expired")).exec().run("hi");
    assert_eq!(cost(&run), (1, 0));
    assert!(run.error().unwrap().message().contains("failed permanently"), "{:?}", run.error());
}

#[test]
fn a_step_of_one_layer_resets_the_counters_below_it() {
    let run = layered(Failure::status(503, b"")).exec().run("hi");
    let one_session = [500, 1_000];
    let one_exec: Vec<u64> =
        [&one_session[..], &[2_000], &one_session, &[4_000], &one_session, &[8_000], &one_session].concat();
    let all = [&one_exec[..], &[1_500], &one_exec, &[3_000], &one_exec].concat();
    assert_eq!(run.waits_ms(), all);
    assert_eq!(run.error().unwrap().attempts().len(), 36);
}

#[test]
fn with_the_defaults_of_one_layer_changed_the_product_follows() {
    let run = layered(Failure::status(503, b""))
        .exec()
        .policy(|policy| {
            policy.transport.max_attempts = 2;
            policy.session.max_retries = 1;
            policy.exec.max_retries = 4;
        })
        .run("hi");
    // 2 × 2 × 4; transport 8 × 0.5 s, session 4 × 2 s, exec 1.5 + 3 + 6 s.
    assert_eq!(cost(&run), (16, 8 * 500 + 4 * 2_000 + 10_500));
}

#[test]
fn what_has_been_delivered_is_no_more_for_transport_and_not_restarted_where_that_is_forbidden() {
    let cut = || Turn::fails(Failure::status(503, b"")).delivering();
    let run = layered(Failure::status(503, b"")).exec().provider(move |_| cut()).run("hi");
    assert_eq!(cost(&run), (12, 46_500));
    let run = layered(Failure::status(503, b""))
        .policy(|policy| policy.restart = Restart::Never)
        .provider(move |_| cut())
        .run("hi");
    assert_eq!(run.requests(), 1);
}

#[test]
fn the_boundaries_that_no_retry_crosses_stand_in_this_mode_too() {
    let overflow = json!({"error": {"message": "too long", "code": "context_length_exceeded"}}).to_string();
    // Nothing to leave out: one request.
    assert_eq!(by_exec(Failure::status(400, overflow.as_bytes())), (1, 0));
    let cancelled = layered(Failure::status(503, b"")).exec().cancel_at(700).run("hi");
    assert_eq!((cancelled.requests(), cancelled.ended_at()), (2, Some(700)));
    let timed = layered(Failure::status(503, b"")).exec().time_limit_ms(3_000).run("hi");
    // 0, 500, 1500: two seconds more would end after the deadline.
    assert_eq!((timed.requests(), timed.ended_at()), (3, Some(1_500)));
}
