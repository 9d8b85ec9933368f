//! What another request may cure: another model, a smaller conversation, another credential. `docs/spec/retry.md` §3 and
//! §5, steps 2 and 7.

use aplomb_core::decide::Restart;
use aplomb_core::error::codes;
use aplomb_core::event::names;
use aplomb_core::failure::{Failure, Reason};
use aplomb_core::message::{Block, CallIds, FinishReason, Message, Role, ToolCall};
use aplomb_core::run::Effect;
use aplomb_sim::{Attempt, Report, Sim, Turn, sim};
use serde_json::{Map, Value, json};

fn coded(status: u16, code: &str) -> Turn {
    let body = json!({"error": {"message": "no", "code": code}});
    Turn::fails(Failure::status(status, body.to_string().as_bytes()))
}

fn status(status: u16) -> Turn {
    Turn::fails(Failure::status(status, b""))
}

fn overflow() -> Turn {
    coded(400, "context_length_exceeded")
}

fn layers(run: &Report) -> Vec<String> {
    let error = run.error();
    let attempts = error.iter().flat_map(|error| error.attempts());
    attempts.map(|attempt| attempt.layer.clone()).collect()
}

fn event(run: &Report, name: aplomb_core::event::EventName) -> Option<Map<String, Value>> {
    run.events().find(|(event, _)| *event == name).map(|(_, payload)| payload.clone())
}

fn to_targets(answer: impl Fn(usize, &Attempt) -> Turn + 'static) -> Sim {
    sim().jitter_none().fallback(CallIds::Any).provider(move |attempt| answer(attempt.target, attempt))
}

// ---- Another model

#[test]
fn a_spent_quota_goes_to_the_next_model_at_once() {
    let run =
        to_targets(|target, _| if target == 0 { coded(429, "insufficient_quota") } else { Turn::says("ok") })
            .run("hi");
    assert_eq!((run.requests(), run.output(), run.ended_at()), (2, Some("ok"), Some(0)));
    let told = event(&run, names::MODEL_FALLBACK).unwrap();
    assert_eq!(
        Value::Object(told),
        json!({"from": "simulated/model", "to": "simulated/fallback-1", "reason": "quota_exhausted",
               "bench_ms": null})
    );
}

#[test]
fn only_what_is_listed_falls_back_among_what_is_permanent_or_unknown() {
    for failing in [400, 401, 418] {
        let run = to_targets(move |target, _| if target == 0 { status(failing) } else { Turn::says("ok") })
            .run("hi");
        assert_eq!(run.requests(), 1, "{failing}");
    }
    let listed = |policy: &mut aplomb_core::decide::Policy| {
        policy.fallback_on = vec![Reason::Auth, Reason::Unknown];
    };
    for failing in [401, 418] {
        let run = to_targets(move |target, _| if target == 0 { status(failing) } else { Turn::says("ok") })
            .policy(listed)
            .run("hi");
        assert_eq!((run.requests(), run.output()), (2, Some("ok")), "{failing}");
    }
}

#[test]
fn another_model_has_a_fresh_transport_and_the_session_is_not_renewed() {
    let run = to_targets(|_, _| status(503)).run("hi");
    let t = "transport";
    let expected = ["first", t, t, "session", "session", "session", "fallback", t, t];
    assert_eq!(layers(&run), expected);
    assert_eq!(run.requests(), 6 + 1 + 2); // the cap grows by 1 + T
    assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000, 500, 1_000]);
    let error = run.error().unwrap();
    assert_eq!(error.context("model"), Some(&json!("fallback-1")));
    assert!(error.message().contains("failed after 9 attempts"), "{error}");
    // A model that is left for what is permanent leaves the session's allowance to the next.
    let run = to_targets(|target, _| if target == 0 { coded(404, "model_not_found") } else { status(503) })
        .run("hi");
    assert_eq!(run.requests(), 1 + 1 + 2 + 3);
}

#[test]
fn a_wait_that_is_too_long_is_not_slept_where_there_is_another_model() {
    let busy = || Turn::fails(Failure::status(429, b"").with_headers([("retry-after", "90")]));
    let run = to_targets(move |target, _| if target == 0 { busy() } else { Turn::says("ok") }).run("hi");
    assert_eq!((run.requests(), run.ended_at(), run.output()), (2, Some(0), Some("ok")));
    // For as long as the provider asked for, since that is more than a minute.
    assert_eq!(event(&run, names::MODEL_FALLBACK).unwrap()["bench_ms"], 90_000);
    let benched = run.effects().iter().find_map(|(_, effect)| match effect {
        Effect::BenchTarget { target, until } => Some((*target, *until)),
        _ => None,
    });
    assert_eq!(benched, Some((0, 90_000)));
}

#[test]
fn a_model_that_was_left_is_passed_over_for_a_minute_by_later_calls_too() {
    // The second call begins 5 s after the first has left the model, the third more than a minute after.
    let run = to_targets(|_, attempt| match attempt.request {
        0..=5 => status(503),
        6 => Turn::calls("calc", "{}"),
        7 => Turn::calls("calc", "{}"),
        _ => Turn::says(&attempt.target.to_string()),
    })
    .tool(|_, entropy| aplomb_sim::ToolTurn::Returns(if entropy == 0 { 0 } else { 30_000 }, json!(81)))
    .run("hi");
    let asked: Vec<_> = run
        .effects()
        .iter()
        .filter_map(|(at, effect)| match effect {
            Effect::CallModel { target, .. } => Some((*at, *target)),
            _ => None,
        })
        .skip(6)
        .collect();
    // Left at 15.5 s, so benched until 75.5 s.
    assert_eq!(asked, [(15_500, 1), (45_500, 1), (75_500, 0)]);
}

#[test]
fn a_model_that_another_run_has_left_is_not_asked_first_and_asked_where_it_is_the_only_one() {
    let run = to_targets(|target, _| Turn::says(&target.to_string())).benched(0, 10_000).run("hi");
    assert_eq!(run.output(), Some("1"));
    let run = sim().provider(|attempt| Turn::says(&attempt.target.to_string())).benched(0, 10_000).run("hi");
    assert_eq!(run.output(), Some("0"));
    let run = to_targets(|target, _| Turn::says(&target.to_string()))
        .benched(0, 9_000)
        .benched(1, 10_000)
        .run("hi");
    assert_eq!(run.output(), Some("0"), "the one whose bench ends first");
}

#[test]
fn what_another_run_finds_out_meanwhile_counts_for_the_next_decision() {
    // Told while the first attempt is under way that the next model is benched too: there is nowhere to go.
    let run =
        to_targets(|_, _| coded(429, "insufficient_quota").after_ms(100)).bench_news(50, 1, 60_000).run("hi");
    assert_eq!(run.requests(), 1);
}

#[test]
fn the_first_model_that_can_be_asked_again_says_when_to_come_back() {
    let busy = |seconds| Turn::fails(Failure::status(429, b"").with_headers([("retry-after", seconds)]));
    let run =
        to_targets(move |target, _| busy(if target == 0 { "90" } else { "600" }).after_ms(250)).run("hi");
    assert_eq!((run.requests(), run.ended_at()), (2, Some(500)));
    // 90 s from the first answer.
    assert_eq!(run.error().unwrap().context("resume_at"), Some(&json!(1_700_000_000_250_u64 + 90_000)));
}

#[test]
fn what_has_been_delivered_goes_to_no_other_model_where_restarts_are_forbidden() {
    let cut = |target, _: &Attempt| if target == 0 { status(503).delivering() } else { Turn::says("ok") };
    let run = to_targets(cut).policy(|policy| policy.restart = Restart::Never).run("hi");
    assert_eq!(run.requests(), 1);
    let run = to_targets(cut).policy(|policy| policy.session.enabled = false).run("hi");
    let restarts = run.effects().iter().filter_map(|(_, effect)| match effect {
        Effect::CallModel { announce_restart, .. } => Some(*announce_restart),
        _ => None,
    });
    assert_eq!(restarts.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn another_model_gets_the_conversation_without_the_thoughts_of_the_first_and_with_ids_that_it_accepts() {
    let thoughts = || Block::Thinking { text: "hm".to_owned(), signature: Some("proof".to_owned()) };
    let call = || {
        Block::ToolCall(ToolCall {
            id: "toolu_01ABC".to_owned(),
            name: "calc".to_owned(),
            arguments: "{}".to_owned(),
        })
    };
    let run = sim()
        .fallback(CallIds::NineAlphanumerics)
        .history(vec![])
        .provider(move |attempt| match (attempt.request, attempt.target) {
            (0, _) => Turn::replies(vec![thoughts(), call()], FinishReason::ToolCalls),
            (_, 0) => coded(429, "insufficient_quota"),
            _ => Turn::replies(vec![thoughts(), Block::Text { text: "ok".to_owned() }], FinishReason::Stop),
        })
        .run("hi");
    assert_eq!(run.output(), Some("ok"));
    let sent: Vec<_> = run
        .effects()
        .iter()
        .filter_map(|(_, effect)| match effect {
            Effect::CallModel { messages, .. } => Some(messages.clone()),
            _ => None,
        })
        .collect();
    // To its author as it was.
    assert_eq!(sent[1][1].content, [thoughts(), call()]);
    let given: Vec<_> = sent[2][1].tool_calls().collect();
    assert_eq!(sent[2][1].content.len(), 1, "no thoughts");
    assert!(given[0].id.len() == 9 && given[0].id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    // What the session remembers of a fallback has no thoughts that the first model could not read.
    let remembered = run.effects().iter().find_map(|(_, effect)| match effect {
        Effect::AppendTranscript { messages, .. } => Some(messages.clone()),
        _ => None,
    });
    let remembered = remembered.unwrap();
    assert_eq!(remembered[1].content, [thoughts(), call()]);
    assert_eq!(remembered[3].content, [Block::Text { text: "ok".to_owned() }]);
}

#[test]
fn the_session_remembers_the_calls_of_a_fallback_by_names_that_the_first_model_accepts() {
    let call =
        || ToolCall { id: "toolu_01ABC".to_owned(), name: "calc".to_owned(), arguments: "{}".to_owned() };
    let run = sim()
        .first_accepts(CallIds::NineAlphanumerics)
        .fallback(CallIds::Any)
        .history(vec![])
        .provider(move |attempt| match (attempt.target, attempt.messages.len()) {
            (0, _) => coded(429, "insufficient_quota"),
            (_, 1) => Turn::replies(vec![Block::ToolCall(call())], FinishReason::ToolCalls),
            _ => Turn::says("ok"),
        })
        .run("hi");
    assert_eq!(run.output(), Some("ok"));
    let remembered = run.effects().iter().find_map(|(_, effect)| match effect {
        Effect::AppendTranscript { messages, .. } => Some(messages.clone()),
        _ => None,
    });
    let remembered = remembered.unwrap();
    let id = remembered[1].tool_calls().next().unwrap().id.clone();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    let results = remembered[2].content.iter().map(|block| match block {
        Block::ToolResult(result) => result.call_id.as_str(),
        _ => "",
    });
    assert_eq!(results.collect::<Vec<_>>(), [id]);
}

#[test]
fn a_fallback_whose_credential_cannot_be_read_is_passed_over_and_costs_nothing() {
    let run = sim()
        .fallback(CallIds::Any)
        .fallback(CallIds::Any)
        .provider(|attempt| match attempt.target {
            0 => coded(429, "insufficient_quota"),
            1 => Turn::without_credential(),
            _ => Turn::says("ok"),
        })
        .run("hi");
    assert_eq!((run.requests(), run.output()), (2, Some("ok")));
    assert_eq!(run.finished().unwrap().usage.llm_retry_count, 1);
    let attempts: Vec<_> = run
        .effects()
        .iter()
        .filter_map(|(_, effect)| match effect {
            Effect::CallModel { target, attempt, .. } => Some((*target, *attempt)),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [(0, 1), (1, 2), (2, 2)]);
    // Other runs may have a credential for it.
    assert!(!run.effects().iter().any(|(_, effect)| matches!(effect, Effect::BenchTarget { .. })));
}

#[test]
fn a_last_fallback_whose_credential_cannot_be_read_does_not_hide_what_led_to_it() {
    let run =
        to_targets(
            |target, _| {
                if target == 0 { coded(429, "insufficient_quota") } else { Turn::without_credential() }
            },
        )
        .run("hi");
    let error = run.error().unwrap();
    assert_eq!((run.requests(), error.code(), error.attempts().len()), (1, codes::CONFIG_LOAD, 1));
    assert_eq!(run.finished().unwrap().usage.llm_retry_count, 0);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("429"), "{cause}");
}

// ---- A smaller conversation

fn long_history() -> Vec<Message> {
    let said = |role, letter: &str| Message::text(role, letter.repeat(1_000));
    ["a", "b", "c"].iter().flat_map(|turn| [said(Role::User, turn), said(Role::Assistant, turn)]).collect()
}

#[test]
fn an_overflow_is_compacted_and_sent_once_more_smaller() {
    let run = sim()
        .history(long_history())
        .provider(|attempt| match attempt.request {
            0 => overflow(),
            _ => Turn::says(&attempt.messages.len().to_string()),
        })
        .run("hi");
    // 7 messages of a little over 6 000 bytes: two turns of three go before half is left.
    assert_eq!((run.requests(), run.output(), run.ended_at()), (2, Some("3"), Some(0)));
    let told = event(&run, names::CONTEXT_COMPACTED).unwrap();
    assert_eq!(told["dropped_messages"], 4);
    let rules: Vec<_> = run
        .events()
        .filter(|(name, _)| *name == names::RETRY_DECIDED)
        .map(|(_, p)| p["action"].clone())
        .collect();
    assert_eq!(rules, [json!("compact"), json!("retry")]);
    // The session keeps the turn, and forgets what was left out, so that the next run begins smaller.
    let appended = run.effects().iter().find_map(|(_, effect)| match effect {
        Effect::AppendTranscript { messages, forgotten } => Some((messages.len(), *forgotten)),
        _ => None,
    });
    assert_eq!(appended, Some((2, 4)));
}

/// A window of its own: the conversation is compacted for the model that refused it, and that model is asked again.
#[test]
fn a_fallback_that_overflows_is_compacted_and_asked_itself() {
    let run = to_targets(|target, attempt| match (target, attempt.request) {
        (0, _) => coded(429, "insufficient_quota"),
        (_, 1) => overflow(),
        _ => Turn::says("ok"),
    })
    .history(long_history())
    .run("hi");
    let asked = run.effects().iter().filter_map(|(_, effect)| match effect {
        Effect::CallModel { target, .. } => Some(*target),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!((run.requests(), run.output(), run.ended_at()), (3, Some("ok"), Some(0)));
    assert_eq!(run.events().filter(|(name, _)| *name == names::CONTEXT_COMPACTED).count(), 1);
}

#[test]
fn an_overflow_that_lasts_costs_one_more_request_for_each_compaction() {
    let run = sim().history(long_history()).provider(|_| overflow()).run("hi");
    assert_eq!(layers(&run), ["first", "compaction"]);
    assert!(run.error().unwrap().message().contains("failed permanently"));
    let never = sim().history(long_history()).policy(|policy| policy.max_compactions = 0);
    assert_eq!(never.provider(|_| overflow()).run("hi").requests(), 1);
}

#[test]
fn an_overflow_of_what_cannot_be_shortened_by_a_tenth_is_never_sent_again() {
    let run = sim().provider(|_| overflow()).run("hi");
    assert_eq!(run.requests(), 1);
    let error = run.error().unwrap();
    assert_eq!((error.code(), error.reason()), (codes::LLM_RESPONSE, Some("context_overflow")));
    // One short turn that can go, beside an input that cannot.
    let little = vec![Message::text(Role::User, "x"), Message::text(Role::Assistant, "y")];
    let run = sim().history(little).provider(|_| overflow()).run(&"z".repeat(10_000));
    assert_eq!(run.requests(), 1);
}

#[test]
fn what_is_left_out_stays_left_out_for_the_rest_of_the_run() {
    let run = sim()
        .history(long_history())
        .provider(|attempt| match attempt.request {
            0 => overflow(),
            1 => Turn::calls("calc", "{}"),
            _ => Turn::says(&attempt.messages.len().to_string()),
        })
        .run("hi");
    assert_eq!(run.output(), Some("5"), "a turn, the input, the call and its result");
}

// ---- Another credential

#[test]
fn a_refused_credential_costs_a_second_request_only_if_another_one_is_read() {
    let run = sim().credential(|_| false).provider(|_| status(401)).run("hi");
    assert_eq!((run.requests(), run.ended_at()), (1, Some(0)));
    assert!(run.error().unwrap().message().contains("failed permanently"));
    let refused_once = |attempt: &Attempt| if attempt.request == 0 { status(401) } else { Turn::says("ok") };
    let run = sim().credential(|_| true).provider(refused_once).run("hi");
    assert_eq!((run.requests(), run.output(), run.ended_at()), (2, Some("ok"), Some(0)));
}

#[test]
fn a_credential_is_read_again_once_in_a_call() {
    let run = sim().credential(|_| true).provider(|_| status(401)).run("hi");
    assert_eq!(layers(&run), ["first", "refresh"]);
    // The second request is beyond no allowance: a 503 after it has the whole of its own.
    let run = sim()
        .jitter_none()
        .credential(|_| true)
        .provider(|attempt| if attempt.request == 0 { status(401) } else { status(503) })
        .run("hi");
    assert_eq!(run.requests(), 1 + 1 + 2 + 3);
}

#[test]
fn what_is_no_matter_of_the_credential_does_not_read_it_again() {
    for failing in [400, 403, 503] {
        let run = sim().credential(|_| true).provider(move |_| status(failing)).run("hi");
        assert!(!run.effects().iter().any(|(_, effect)| matches!(effect, Effect::ReadCredential { .. })));
    }
}
