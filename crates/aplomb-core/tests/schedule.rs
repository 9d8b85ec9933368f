//! What a policy comes to: the counts and delays of `docs/spec/retry.md` §2 and §5, and its worst case.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use aplomb_core::decide::schedule::{EntryPoint, Overview, Setting, overview, play};
use aplomb_core::decide::{Jitter, Layer, Mode, Outcome, Policy};
use aplomb_core::failure::Failure;

fn of(change: impl FnOnce(&mut Policy, &mut Setting)) -> Overview {
    let (mut policy, mut setting) = (Policy::default(), Setting::default());
    change(&mut policy, &mut setting);
    overview(&policy, setting)
}

/// Requests and ms of delay, by run, by exec, and by a stream that has delivered.
fn costs(overview: &Overview, class: &str, mode: Mode) -> [(u32, u64); 3] {
    let by_mode = &overview.classes[class];
    let by = if mode == Mode::Layered { &by_mode.layered } else { &by_mode.additive };
    [&by.run, &by.exec, &by.stream].map(|schedule| (schedule.requests, schedule.wait_ms))
}

#[test]
fn additive_every_class_costs_what_the_page_says() {
    let overview = of(|_, _| {});
    // T 0.5 + 1, S 2 + 4 + 8 s; what has delivered is S's alone.
    for class in ["429", "500", "503", "529", "connection", "cut_stream", "timeout"] {
        let expected = [(6, 15_500), (6, 15_500), (4, 14_000)];
        assert_eq!(costs(&overview, class, Mode::Additive), expected, "{class}");
    }
    for class in ["permanent", "401", "model_not_found", "quota"] {
        assert_eq!(costs(&overview, class, Mode::Additive), [(1, 0); 3], "{class}");
    }
    assert_eq!(costs(&overview, "unknown", Mode::Additive), [(1, 0), (3, 4_500), (1, 0)]);
    // One compaction, sent at once.
    assert_eq!(costs(&overview, "overflow", Mode::Additive), [(2, 0); 3]);
    assert_eq!(
        costs(&overview, "429_retry_after_20s", Mode::Additive),
        [(6, 100_000), (6, 100_000), (4, 60_000)]
    );
    assert_eq!(costs(&overview, "429_retry_after_120s", Mode::Additive), [(1, 0); 3]);
    let too_long = &overview.classes["429_retry_after_120s"].additive.run;
    assert_eq!((too_long.rule.as_str(), too_long.outcome), ("wait.too_long", Outcome::AfterAttempts));
}

#[test]
fn layered_every_class_costs_what_the_page_says() {
    let overview = of(|_, _| {});
    let cost = |class| costs(&overview, class, Mode::Layered);
    // By run 4 × 3: four times 1.5 s, and 14 s.
    assert_eq!(cost("503"), [(12, 20_000), (36, 64_500), (4, 14_000)]);
    assert_eq!(cost("500"), [(4, 14_000), (12, 46_500), (4, 14_000)]);
    assert_eq!(cost("cut_stream"), [(4, 14_000), (12, 46_500), (4, 14_000)]);
    assert_eq!(cost("unknown"), [(1, 0), (3, 4_500), (1, 0)]);
    for class in ["permanent", "401"] {
        assert_eq!(cost(class), [(1, 0); 3], "{class}");
    }
}

#[test]
fn a_schedule_tells_each_attempt_with_its_layer_its_wait_and_its_rule() {
    let overview = of(|_, _| {});
    let run = &overview.classes["503"].additive.run;
    let told: Vec<_> =
        run.attempts.iter().map(|planned| (planned.layer, planned.delay_ms, planned.rule.as_str())).collect();
    assert_eq!(
        told,
        [
            (Layer::First, 0, "ledger.first"),
            (Layer::Transport, 500, "ledger.transport"),
            (Layer::Transport, 1_000, "ledger.transport"),
            (Layer::Session, 2_000, "ledger.session"),
            (Layer::Session, 4_000, "ledger.session"),
            (Layer::Session, 8_000, "ledger.session"),
        ]
    );
    assert_eq!((run.rule.as_str(), run.code.as_str(), run.complete), ("ledger.cap", "llm.connection", true));
}

#[test]
fn the_bounds_of_a_wait_are_those_of_the_policys_jitter_and_hints_are_floors() {
    let waits = |jitter, class: &str| {
        let overview = of(|policy, _| policy.transport.jitter = jitter);
        let run = &overview.classes[class].additive.run;
        (run.wait_least_ms, run.wait_ms, run.wait_most_ms)
    };
    assert_eq!(waits(Jitter::None, "503"), (15_500, 15_500, 15_500));
    assert_eq!(waits(Jitter::Full, "503"), (0, 15_500, 15_500));
    assert_eq!(waits(Jitter::Equal, "503"), (7_750, 15_500, 15_500));
    // 20 s and up to a second more, five times.
    assert_eq!(waits(Jitter::None, "429_retry_after_20s"), (100_000, 100_000, 100_000));
    assert_eq!(waits(Jitter::Full, "429_retry_after_20s"), (100_000, 100_000, 105_000));
}

#[test]
fn other_models_are_part_of_a_schedule() {
    let overview = of(|_, setting| setting.targets = 3);
    // 6, and twice 1 + T with T's waits of 1.5 s.
    assert_eq!(costs(&overview, "503", Mode::Additive)[0], (12, 18_500));
    assert_eq!(costs(&overview, "quota", Mode::Additive)[0], (3, 0));
    assert_eq!(costs(&overview, "permanent", Mode::Additive)[0], (1, 0));
    let targets: Vec<_> =
        overview.classes["quota"].additive.run.attempts.iter().map(|planned| planned.target).collect();
    assert_eq!(targets, [0, 1, 2]);
}

#[test]
fn an_attempt_that_hears_nothing_takes_its_time_limit() {
    let overview = of(|_, setting| setting.deadline_ms = Some(65_000));
    // 30 s, a wait, 30 s more, and the next would end after the deadline: 61.5 s + 1 s is the last that fits.
    assert_eq!(costs(&overview, "timeout", Mode::Additive)[0], (3, 1_500));
    let timeout = &overview.classes["timeout"].additive.run;
    assert_eq!((timeout.outcome, timeout.attempt_ms), (Outcome::OutOfTime, 30_000));
    // Its own limit may come first.
    let overview = of(|_, setting| setting.attempt_ms = Some(10_000));
    assert_eq!(overview.classes["timeout"].additive.run.attempt_ms, 10_000);
}

#[test]
fn the_worst_case_is_the_sum_of_the_page() {
    let worst = of(|_, _| {}).worst_case.additive;
    // (1 + 2) × 1 + 3 + 1 × (2 + 2) + 1 + 0.
    assert_eq!((worst.run.requests, worst.exec.requests), (11, 11));
    // T and S 15.5 s, the summary's own T 1.5 s. By exec the five longest of 0.5 1 2 4 8 1.5 3 are 18.5 s.
    assert_eq!((worst.run.wait_ms, worst.exec.wait_ms), (17_000, 20_000));
    let worst = of(|policy, setting| {
        policy.max_compactions = 2;
        policy.transport.jitter = Jitter::None;
        (setting.targets, setting.resumes) = (3, 3);
    })
    .worst_case
    .additive;
    // (1 + 2) × 3 + 3 + 2 × (2 + 2) + 1 + 3.
    assert_eq!(worst.run.requests, 24);
    // T 1.5 × 3, S 14, summaries 1.5 × 2, resumes 5 + 10 + 20 s.
    assert_eq!(worst.run.wait_ms, 4_500 + 14_000 + 3_000 + 35_000);
    // A minute before each but the first, and the two that go to another model at once.
    assert_eq!(worst.run.wait_hinted_ms, 21 * 60_000);
    assert_eq!(worst.run.shares.iter().map(|share| share.requests).sum::<u64>(), 24);
}

#[test]
fn exec_may_have_more_than_the_other_layers_and_layers_may_multiply() {
    let worst = of(|policy, _| policy.exec.max_retries = 10).worst_case.additive;
    // 1 + max(2 + 3, 9) + 4 + 1.
    assert_eq!(worst.exec.requests, 15);
    // Whichever mode is the policy's own.
    let worst = of(|_, _| {}).worst_case.layered;
    // 36 + 4 + 1, and 64.5 s + 1.5 s.
    assert_eq!((worst.exec.requests, worst.exec.wait_ms), (41, 66_000));
}

#[test]
fn no_schedule_costs_more_than_the_worst_case() {
    for targets in [1, 3, 4] {
        let overview = of(|_, setting| setting.targets = targets);
        let of_all = &overview.worst_case;
        for (class, by_mode) in &overview.classes {
            for (by, worst) in [(&by_mode.additive, &of_all.additive), (&by_mode.layered, &of_all.layered)] {
                let worst = [&worst.run, &worst.exec, &worst.run];
                for (schedule, worst) in [&by.run, &by.exec, &by.stream].into_iter().zip(worst) {
                    assert!(u64::from(schedule.requests) <= worst.requests, "{class}");
                    assert!(schedule.wait_most_ms <= worst.wait_hinted_ms, "{class}");
                }
            }
        }
    }
}

#[test]
fn settings_that_defeat_each_other_are_named() {
    let warned = |change: fn(&mut Policy, &mut Setting)| -> Vec<String> {
        of(change).warnings.into_iter().map(|warning| warning.setting).collect()
    };
    assert_eq!(warned(|_, _| {}), [""; 0]);
    assert_eq!(warned(|policy, _| policy.session.max_retries = 6), ["agent.retry.session.max_retries"]);
    assert_eq!(warned(|policy, _| policy.max_inline_wait_ms = 7_999), ["agent.retry.session.max_retries"]);
    assert_eq!(
        warned(|policy, _| policy.transport.total_budget_ms = Some(500)),
        ["llm.retry.total_budget_ms", "llm.timeouts.first_byte_ms"]
    );
    assert_eq!(warned(|_, setting| setting.deadline_ms = Some(30_000)), ["llm.timeouts.first_byte_ms"]);
    assert_eq!(
        warned(|policy, setting| {
            (policy.transport.total_budget_ms, setting.deadline_ms) = (Some(90_000), Some(60_000));
        }),
        ["llm.retry.total_budget_ms"]
    );
    assert_eq!(
        warned(|_, setting| (setting.step_timeout_ms, setting.attempt_ms) = (Some(5_000), Some(5_000))),
        ["runtime.step_timeout_ms"]
    );
    assert_eq!(
        warned(|policy, _| {
            policy.mode = Mode::Layered;
            policy.exec.max_retries = 10;
        }),
        ["agent.retry.exec.max_retries", "llm.retry.mode"]
    );
    assert_eq!(warned(|policy, _| policy.transport.max_backoff_ms = 100), ["llm.retry.max_backoff_ms"]);
}

#[test]
fn a_schedule_that_nobody_would_read_to_its_end_is_cut_and_says_so() {
    let mut policy = Policy::default();
    policy.mode = Mode::Layered;
    policy.session.max_retries = 100;
    policy.session.base_delay_ms = 0;
    policy.transport.max_attempts = 100;
    let schedule = play(&Failure::status(503, b""), &policy, EntryPoint::Run, Setting::default(), 0);
    assert_eq!((schedule.requests, schedule.complete), (1_000, false));
}

#[test]
fn an_overview_survives_json_and_has_the_paths_that_programs_read() {
    let overview = of(|_, _| {});
    let json = serde_json::to_value(&overview).unwrap();
    assert_eq!(json["classes"]["503"]["additive"]["run"]["requests"], 6);
    assert_eq!(json["classes"]["503"]["layered"]["exec"]["attempts"][35]["layer"], "transport");
    assert_eq!(json["worst_case"]["additive"]["run"]["requests"], 11);
    assert_eq!(json["mode"], "additive");
    assert_eq!(serde_json::from_value::<Overview>(json).unwrap(), overview);
}
