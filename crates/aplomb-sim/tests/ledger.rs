//! The schedules of `docs/spec/retry.md` §5, to the millisecond, on whole runs.

use aplomb_core::decide::Restart;
use aplomb_core::error::codes;
use aplomb_core::failure::{Anomaly, Failure, Phase, TransportKind};
use aplomb_core::run::StopReason;
use aplomb_sim::{ToolTurn, Turn, sim};
use serde_json::json;

fn status(status: u16) -> Turn {
    Turn::fails(Failure::status(status, b""))
}

#[test]
fn a_persistent_503_costs_six_requests_and_waits_half_one_two_four_eight_seconds() {
    let run = sim().provider(|_| status(503)).jitter_none().run("hi");
    assert_eq!(run.requests(), 6); // 1 + T 2 + S 3
    assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000]);
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::LLM_CONNECTION);
    assert_eq!(error.attempts().len(), 6);
    assert!(error.message().contains("failed after 6 attempts"), "{error}");
    let layers: Vec<_> = error.attempts().iter().map(|attempt| attempt.layer.as_str()).collect();
    assert_eq!(layers, ["first", "transport", "transport", "session", "session", "session"]);
}

#[test]
fn entered_by_exec_a_persistent_503_costs_no_more_than_by_run() {
    let run = sim().exec().provider(|_| status(503)).jitter_none().run("hi");
    assert_eq!(run.requests(), 6); // max(T 2 + S 3, X 2) + 1
    assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000]);
}

#[test]
fn a_permanent_failure_costs_one_request_and_says_so() {
    let quota = br#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    for failure in [Failure::status(400, b""), Failure::status(401, b""), Failure::status(429, quota)] {
        for entry in [sim(), sim().exec()] {
            let failure = failure.clone();
            let run = entry.provider(move |_| Turn::fails(failure.clone())).run("hi");
            assert_eq!(run.requests(), 1);
            let error = run.error().unwrap();
            assert_eq!(error.code(), codes::LLM_RESPONSE);
            assert!(error.message().contains("failed permanently"), "{error}");
        }
    }
}

#[test]
fn an_unknown_failure_costs_run_one_request_and_exec_three() {
    let run = sim().provider(|_| status(418)).run("hi");
    assert_eq!(run.requests(), 1);
    assert!(run.error().unwrap().message().contains("failed after 1 attempt:"));
    let exec = sim().exec().provider(|_| status(418)).jitter_none().run("hi");
    assert_eq!(exec.requests(), 3);
    assert_eq!(exec.waits_ms(), [1_500, 3_000]);
    assert!(!exec.error().unwrap().retryable());
}

#[test]
fn with_the_other_owners_disabled_exec_retries_what_is_retryable() {
    let run = sim().only_exec_retries().provider(|_| status(503)).jitter_none().run("hi");
    assert_eq!(run.requests(), 3);
    assert_eq!(run.waits_ms(), [1_500, 3_000]);
}

#[test]
fn one_exec_attempt_and_no_other_owner_is_one_request() {
    let run = sim()
        .only_exec_retries()
        .policy(|policy| policy.exec.max_retries = 1)
        .provider(|_| status(503))
        .run("hi");
    assert_eq!(run.requests(), 1);
}

#[test]
fn both_routes_of_an_error_without_text_give_the_same_verdict_count_and_code() {
    let raised = || Turn::fails(Failure::transport(Phase::MidStream, TransportKind::Other, ""));
    let event = || Turn::fails(Failure::anomaly(Phase::MidStream, Anomaly::Error, b""));
    let raised = sim().provider(move |_| raised()).jitter_none().run("hi");
    let event = sim().provider(move |_| event()).jitter_none().run("hi");
    assert_eq!((raised.requests(), event.requests()), (6, 6));
    assert_eq!(raised.error().unwrap().code(), codes::LLM_CONNECTION);
    assert_eq!(raised.error().unwrap().attempts(), event.error().unwrap().attempts());
    assert_eq!(raised.error().unwrap().attempts()[0].error(), "LLMConnectionError");
}

#[test]
fn what_was_delivered_is_the_sessions_to_restart_and_transports_turn_is_over() {
    // A cut after something was delivered, then failures before anything was.
    let run = sim()
        .provider(|attempt| if attempt.request == 0 { status(503).delivering() } else { status(503) })
        .jitter_none()
        .run("hi");
    assert_eq!(run.waits_ms(), [2_000, 4_000, 8_000]);
    assert_eq!(run.requests(), 4); // 1 + S 3; T is forfeit
}

#[test]
fn a_call_that_has_delivered_is_not_restarted_where_restarts_are_forbidden() {
    let run = sim()
        .policy(|policy| policy.restart = Restart::Never)
        .provider(|_| status(503).delivering())
        .run("hi");
    assert_eq!(run.requests(), 1);
    assert_eq!(run.error().unwrap().attempts()[0].rule, "restart.never");
}

#[test]
fn connection_failures_skip_transport_where_it_is_told_not_to_retry_them() {
    let refused = || Turn::fails(Failure::transport(Phase::Connect, TransportKind::Refused, "refused"));
    let run = sim()
        .policy(|policy| policy.transport.retry_on_connection_errors = false)
        .provider(move |_| refused())
        .jitter_none()
        .run("hi");
    assert_eq!(run.waits_ms(), [2_000, 4_000, 8_000]);
    let run = sim()
        .policy(|policy| policy.transport.retry_on_connection_errors = false)
        .provider(|_| status(503))
        .jitter_none()
        .run("hi");
    assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000]);
}

#[test]
fn a_hint_is_a_floor_and_the_back_off_goes_on_beneath_it() {
    let limited = || Turn::fails(Failure::status(429, b"").with_headers([("retry-after", "3")]));
    let run = sim().provider(move |_| limited()).jitter_none().run("hi");
    assert_eq!(run.waits_ms(), [3_000, 3_000, 3_000, 4_000, 8_000]);
    assert_eq!(run.error().unwrap().code(), codes::LLM_RATE_LIMIT);
}

#[test]
fn a_wait_longer_than_the_inline_limit_is_reported_and_not_slept() {
    let limited = || Turn::fails(Failure::status(429, b"").with_headers([("retry-after", "61")]));
    let run = sim().provider(move |_| limited().after_ms(250)).run("hi");
    assert_eq!((run.requests(), run.ended_at()), (1, Some(250)));
    let error = run.error().unwrap();
    assert_eq!(error.context("retry_after_ms"), Some(&json!(61_000)));
    assert_eq!(error.context("resume_at"), Some(&json!(1_700_000_000_250_u64 + 61_000)));
}

#[test]
fn a_wait_that_would_end_past_the_deadline_is_not_slept() {
    let run = sim().time_limit_ms(3_000).provider(|_| status(503)).jitter_none().run("hi");
    // 500 + 1 000 fit, 2 000 more do not.
    assert_eq!((run.requests(), run.ended_at()), (3, Some(1_500)));
    assert_eq!(run.error().unwrap().code(), codes::LLM_CONNECTION);
    assert_eq!(run.finished().unwrap().stop_reason, StopReason::Failed);
}

#[test]
fn a_run_ends_by_its_deadline_while_the_provider_is_silent() {
    let run = sim().time_limit_ms(3_000).provider(|_| Turn::says("late").after_ms(60_000)).run("hi");
    assert_eq!(run.ended_at(), Some(3_000));
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::EXECUTION_TIMEOUT);
    assert_eq!(error.context("where"), Some(&json!("attempt 1 of model call 1")));
    assert_eq!(run.finished().unwrap().stop_reason, StopReason::Timeout);
}

#[test]
fn a_run_ends_by_its_deadline_while_a_tool_is_busy() {
    let run = sim()
        .time_limit_ms(3_000)
        .provider(|_| Turn::calls("calc", "{}"))
        .tool(|_, _| ToolTurn::Returns(60_000, json!(81)))
        .run("hi");
    assert_eq!(run.ended_at(), Some(3_000));
    assert_eq!(run.error().unwrap().context("where"), Some(&json!("tool calc")));
}

#[test]
fn cancellation_ends_a_run_at_once_in_a_back_off_too() {
    let run = sim().cancel_at(700).provider(|_| status(503)).jitter_none().run("hi");
    assert_eq!((run.requests(), run.ended_at()), (2, Some(700)));
    assert_eq!(run.error().unwrap().code(), codes::EXECUTION_CANCELLED);
    assert_eq!(run.finished().unwrap().stop_reason, StopReason::Cancelled);
}

#[test]
fn a_retried_call_keeps_its_steps_and_its_tools_results() {
    // Fails twice, calls the tool, fails twice more, answers: the tool has run once.
    let run = sim()
        .provider(|attempt| match attempt.request {
            0 | 1 | 3 | 4 => status(503),
            2 => Turn::calls("calc", r#"{"expression":"9*9"}"#),
            _ => Turn::says(&format!("{}", attempt.messages.len())),
        })
        .run("hi");
    assert_eq!((run.requests(), run.tool_runs()), (6, 1));
    assert_eq!(run.output(), Some("3")); // user, assistant, tool: no failed answer among them
}

#[test]
fn an_agent_that_does_not_converge_stops_at_its_step_limit() {
    let run = sim().max_steps(3).provider(|_| Turn::calls("calc", "{}")).run("hi");
    assert_eq!((run.requests(), run.tool_runs()), (3, 3));
    let error = run.error().unwrap();
    assert_eq!(error.code(), codes::EXECUTION_MAX_STEPS);
    assert_eq!((error.context("current"), error.context("limit")), (Some(&json!(3)), Some(&json!(3))));
    assert_eq!(run.finished().unwrap().stop_reason, StopReason::MaxSteps);
}

#[test]
fn a_session_gives_its_history_and_gets_the_whole_turn_only_if_the_run_completed() {
    use aplomb_core::message::{Message, Role};
    use aplomb_core::run::Effect;
    let history =
        || vec![Message::text(Role::User, "my name is Ada"), Message::text(Role::Assistant, "hello")];
    let run = sim()
        .history(history())
        .provider(|attempt| Turn::says(&attempt.messages[0].to_text()))
        .run("what is my name?");
    assert_eq!(run.output(), Some("my name is Ada"));
    let appended = run.effects().iter().find_map(|(_, effect)| match effect {
        Effect::AppendTranscript { messages, .. } => {
            Some(messages.iter().map(|m| m.to_text()).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(appended.unwrap(), ["what is my name?", "my name is Ada"]);
    let failed = sim().history(history()).provider(|_| status(400)).run("hi");
    assert!(!failed.effects().iter().any(|(_, effect)| matches!(effect, Effect::AppendTranscript { .. })));
}

#[test]
fn the_spread_of_a_wait_leaves_time_to_send() {
    // Two seconds are asked for and 60 ms are left after them; the spread could be up to 200.
    for seed in 0..50 {
        let limited = || Turn::fails(Failure::status(429, b"").with_headers([("retry-after", "2")]));
        let run = sim()
            .seed(seed)
            .time_limit_ms(2_060)
            .provider(move |attempt| if attempt.request == 0 { limited() } else { Turn::says("ok") })
            .run("hi");
        assert_eq!(run.output(), Some("ok"), "seed {seed}");
    }
}

#[test]
fn what_the_provider_said_about_waiting_reaches_the_caller_of_a_permanent_failure_too() {
    let quota = br#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    let failure = Failure::status(429, quota).with_headers([("retry-after", "3600")]);
    let run = sim().provider(move |_| Turn::fails(failure.clone())).run("hi");
    assert_eq!(run.requests(), 1);
    assert_eq!(run.error().unwrap().context("retry_after_ms"), Some(&json!(3_600_000)));
}

#[test]
fn calls_that_the_provider_did_not_name_get_names_of_their_own() {
    use aplomb_core::message::{Block, FinishReason, ToolCall};
    let call = || {
        Block::ToolCall(ToolCall { id: String::new(), name: "calc".to_owned(), arguments: "{}".to_owned() })
    };
    let run = sim()
        .provider(move |attempt| match attempt.request {
            0 => Turn::replies(vec![call(), call()], FinishReason::ToolCalls),
            _ => {
                let results = attempt.messages[2].content.iter().map(|block| match block {
                    Block::ToolResult(result) => result.call_id.clone(),
                    _ => String::new(),
                });
                Turn::says(&results.collect::<Vec<_>>().join(" "))
            }
        })
        .run("hi");
    // After the one message of the conversation: calls 0 and 1.
    assert_eq!(run.output(), Some("call_1_0 call_1_1"));
}

#[test]
fn calls_that_are_named_like_earlier_ones_get_names_of_their_own() {
    use aplomb_core::message::{Block, Message, Role, ToolCall, ToolResult};
    let called = |id: &str| {
        let (id, name) = (id.to_owned(), "calc".to_owned());
        let call = ToolCall { id: id.clone(), name: name.clone(), arguments: "{}".to_owned() };
        let result = ToolResult { call_id: id, name, text: "81".to_owned(), is_error: false };
        [
            Message { role: Role::Assistant, content: vec![Block::ToolCall(call)] },
            Message { role: Role::Tool, content: vec![Block::ToolResult(result)] },
        ]
    };
    // The session has used the name that the provider gives, and the one that the place would give.
    let history = [Message::text(Role::User, "before")].into_iter();
    let history = history.chain(called("call_1")).chain(called("call_6_0")).collect();
    let run = sim()
        .history(history)
        .provider(|attempt| match attempt.request {
            0 | 1 => Turn::calls("calc", "{}"),
            _ => {
                let calls = attempt.messages.iter().flat_map(|message| message.tool_calls());
                Turn::says(&calls.map(|call| call.id.as_str()).collect::<Vec<_>>().join(" "))
            }
        })
        .run("hi");
    // Six messages go before the first answer, and eight before the second.
    assert_eq!(run.output(), Some("call_1 call_6_0 call_6_0_1 call_8_0"));
}
