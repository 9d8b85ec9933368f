//! An output that does not fit goes back to the model: `docs/spec/runtime.md` §2, `docs/spec/retry.md` §2, "Finalize".
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use aplomb_core::decide::Layer;
use aplomb_core::error::{Error, codes};
use aplomb_core::event::names;
use aplomb_core::failure::Failure;
use aplomb_core::message::{Message, Role, TokenUsage};
use aplomb_core::record::Fact;
use aplomb_core::run::{Ask, Effect, Pattern, Purpose, StopReason, View};
use aplomb_sim::{Report, Sim, ToolTurn, Turn, sim};
use serde_json::json;

/// Only "good" fits.
fn check(output: &str, _entropy: u64) -> Result<String, String> {
    if output == "good" { Ok(output.to_owned()) } else { Err(format!("{} letters", output.len())) }
}

/// A run whose model says these, one after the other, and then the last for ever.
fn saying(answers: &'static [&'static str]) -> Sim {
    let said = move |request: usize| answers[request.min(answers.len() - 1)];
    sim().jitter_none().output(check).provider(move |attempt| Turn::says(said(attempt.request)))
}

fn corrections(run: &Report) -> usize {
    let is_one = |fact: &Fact| matches!(fact, Fact::CallOpened { purpose: Purpose::Correction, .. });
    run.records().iter().filter(|record| is_one(&record.fact)).count()
}

/// What the last request held after the first message: who spoke, and what was said.
fn sent(run: &Report) -> Vec<(Role, String)> {
    let mut calls = run.effects().iter().filter_map(|(_, effect)| match effect {
        Effect::CallModel { messages, .. } => Some(messages),
        _ => None,
    });
    let last = calls.next_back().unwrap();
    last.iter().skip(1).map(|message| (message.role, message.to_text())).collect()
}

#[test]
fn the_model_is_shown_its_own_answer_and_what_is_wrong_with_it() {
    let run = saying(&["bad", "good"]).run("hi");
    assert_eq!((run.output(), run.requests(), corrections(&run)), (Some("good"), 2, 1));
    let sent = sent(&run);
    assert_eq!(sent[0], (Role::Assistant, "bad".to_owned()));
    assert_eq!((sent.len(), sent[1].0), (2, Role::User));
    assert!(sent[1].1.contains("3 letters") && sent[1].1.contains("Output"), "{sent:?}");
    let retries: Vec<_> = run.events().filter(|(name, _)| *name == names::VALIDATION_RETRY).collect();
    assert_eq!(retries.len(), 1);
    assert_eq!((&retries[0].1["attempt"], &retries[0].1["error"]), (&json!(1), &json!("3 letters")));
}

/// One answer and three corrections.
#[test]
fn after_three_corrections_that_do_not_help_the_run_fails_and_keeps_what_was_said_last() {
    let run = saying(&["a", "bb", "ccc", "dddd", "good"]).run("hi");
    let error = run.error().unwrap();
    assert_eq!((error.code(), run.requests()), (codes::EXECUTION_OUTPUT_VALIDATION, 4));
    let wrong = error.output_validation().unwrap();
    assert_eq!((wrong.attempts, wrong.last_error, wrong.output_type), (4, "4 letters", Some("Output")));
    assert_eq!(error.context("partial_output"), Some(&json!("dddd")));
    assert_eq!(run.finished().unwrap().stop_reason, StopReason::Failed);
}

#[test]
fn the_request_says_how_many_corrections_there_may_be() {
    for most in [0, 1, 2] {
        let run = saying(&["a", "bb", "ccc", "dddd", "good"])
            .budget(|budget| budget.max_validation_retries(most))
            .run("hi");
        assert_eq!(run.error().unwrap().output_validation().unwrap().attempts, u64::from(most) + 1);
    }
}

#[test]
fn the_same_mistake_in_the_same_answer_ends_it_early_and_another_one_does_not() {
    let run = saying(&["a", "bb", "bb", "good"]).run("hi");
    assert_eq!(run.error().unwrap().output_validation().unwrap().attempts, 3);
    assert_eq!(saying(&["a", "bb", "a", "good"]).run("hi").output(), Some("good"));
}

/// Each correction is a call with a ledger of its own: 1 + T 2 + S 3 attempts.
#[test]
fn a_correction_that_fails_is_retried_by_the_ledger_of_a_call_of_its_own() {
    let run = sim()
        .jitter_none()
        .output(check)
        .provider(|attempt| match attempt.request {
            0 => Turn::says("bad"),
            _ => Turn::fails(Failure::status(503, b"")),
        })
        .run("hi");
    assert_eq!((run.requests(), run.error().unwrap().code()), (7, codes::LLM_CONNECTION));
    assert_eq!(run.waits_ms(), [500, 1_000, 2_000, 4_000, 8_000]);
    let layers = run.records().iter().filter_map(|record| match record.fact {
        Fact::AttemptStarted { layer, .. } => Some(layer),
        _ => None,
    });
    assert_eq!(layers.filter(|layer| *layer == Layer::First).count(), 2);
    assert_eq!(run.error().unwrap().context("partial_output"), Some(&json!("bad")));
}

#[test]
fn exec_corrects_within_the_same_bound() {
    assert_eq!(saying(&["bad", "good"]).exec().run("hi").output(), Some("good"));
    assert_eq!(saying(&["a", "bb", "ccc", "dddd", "good"]).exec().run("hi").requests(), 4);
}

#[test]
fn what_a_correction_costs_counts() {
    let run = sim()
        .output(check)
        .provider(|attempt| {
            let mut turn = Turn::says(if attempt.request == 0 { "bad" } else { "good" });
            let mut usage = TokenUsage::default();
            (usage.input, usage.output) = (10, 1);
            if let Ok(reply) = &mut turn.end {
                reply.usage = Some(usage);
            }
            turn
        })
        .run("hi");
    let usage = &run.finished().unwrap().usage;
    assert_eq!((usage.llm_calls, usage.input_tokens, usage.output_tokens), (2, 20, 2));
}

#[test]
fn a_correction_is_a_step_and_the_last_one_says_what_it_was_for() {
    let run = saying(&["a", "bb", "good"]).max_steps(2).run("hi");
    let error = run.error().unwrap();
    assert_eq!((error.code(), run.requests(), corrections(&run)), (codes::EXECUTION_MAX_STEPS, 2, 1));
    assert_eq!(error.details().cause.unwrap().dict.context["validation_error"], json!("2 letters"));
}

#[test]
fn a_session_goes_on_from_the_answer_that_fits() {
    let run = saying(&["bad", "good"]).history(vec![Message::text(Role::User, "before")]).run("hi");
    let kept = run.effects().iter().find_map(|(_, effect)| match effect {
        Effect::AppendTranscript { messages, .. } => Some(messages.clone()),
        _ => None,
    });
    let kept: Vec<_> = kept.unwrap().iter().map(|message| (message.role, message.to_text())).collect();
    assert_eq!(kept, [(Role::User, "hi".to_owned()), (Role::Assistant, "good".to_owned())]);
}

fn too_long() -> Turn {
    let said = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    Turn::fails(Failure::status(400, said.to_string().as_bytes()))
}

fn calls_calc() -> Turn {
    Turn::calls("calc", r#"{"expression": "9 * 9"}"#)
}

/// The conversation of each request.
fn conversations(run: &Report) -> Vec<Vec<Arc<Message>>> {
    let calls = run.effects().iter().filter_map(|(_, effect)| match effect {
        Effect::CallModel { messages, .. } => Some(messages.clone()),
        _ => None,
    });
    calls.collect()
}

/// A run of a session, whose turns go on like this from request to request.
fn turns(turns: Vec<Turn>) -> Sim {
    let history =
        vec![Message::text(Role::User, "before".repeat(200)), Message::text(Role::Assistant, "yes")];
    let sim = sim().jitter_none().output(check).history(history);
    sim.provider(move |attempt| turns[attempt.request].clone())
}

#[test]
fn a_correction_that_is_too_long_goes_without_old_turns_and_with_all_that_it_is_about() {
    let run = turns(vec![calls_calc(), Turn::says("bad"), too_long(), Turn::says("good")]).run("hi");
    assert_eq!(run.output(), Some("good"));
    let sent = conversations(&run);
    // Before, yes, hi, the call, its result, bad, and what is wrong with it.
    assert_eq!(sent[2].len(), 7);
    assert_eq!(sent[3], sent[2][2..]);
}

/// 2,000 bytes of about 6,000: a tenth at least, so that nothing else goes.
#[test]
fn what_was_rejected_earlier_goes_first_when_a_correction_is_too_long() {
    let (bad, worse) = ("bad".repeat(700), "worse".repeat(500));
    let run = turns(vec![calls_calc(), Turn::says(&bad), Turn::says(&worse), too_long(), Turn::says("good")])
        .run("hi");
    assert_eq!(run.output(), Some("good"));
    let sent = conversations(&run);
    // Before, yes, hi, the call, its result; then bad, worse, and what is wrong with each.
    assert_eq!(sent[3].len(), 9);
    assert_eq!(sent[4], [&sent[3][..5], &sent[3][7..]].concat());
}

#[test]
fn of_a_turn_that_is_corrected_the_oldest_tool_calls_go_and_the_last_ones_stay() {
    let run = sim()
        .jitter_none()
        .output(check)
        .tool(|_, _| ToolTurn::Returns(1, json!("81".repeat(1_000))))
        .provider(|attempt| match attempt.request {
            0 | 1 => calls_calc(),
            2 => Turn::says("bad"),
            3 => too_long(),
            _ => Turn::says("good"),
        })
        .run("hi");
    assert_eq!(run.output(), Some("good"));
    let sent = conversations(&run);
    // Hi, two calls with their results, bad, and what is wrong with it.
    assert_eq!(sent[3].len(), 7);
    assert_eq!(sent[4], [&sent[3][..1], &sent[3][3..]].concat());
}

/// The tools that a correction calls do not make what was asked an old turn.
#[test]
fn a_correction_that_calls_tools_and_is_too_long_then_keeps_what_was_asked_and_what_was_rejected() {
    let run = turns(vec![Turn::says("bad"), calls_calc(), too_long(), Turn::says("good")]).run("hi");
    assert_eq!(run.output(), Some("good"));
    let sent = conversations(&run);
    // Before, yes, hi, bad, and what is wrong with it, the call, its result.
    assert_eq!(sent[2].len(), 7);
    assert_eq!(sent[3], sent[2][2..]);
}

/// retry.md §3: "never a blind resend".
#[test]
fn a_correction_of_which_nothing_can_be_left_out_is_not_sent_again() {
    let run = sim()
        .jitter_none()
        .output(check)
        .provider(|attempt| if attempt.request == 0 { Turn::says(&"bad".repeat(1_000)) } else { too_long() })
        .run("hi");
    assert_eq!(run.requests(), 2);
    assert_eq!(run.error().unwrap().context("reason"), Some(&json!("context_overflow")));
}

#[test]
fn whatever_ends_a_run_in_a_correction_its_error_says_what_was_to_be_corrected() {
    let first_bad = |turn: fn() -> Turn| {
        let sim = sim().jitter_none().output(check).priced(0, 1, 1);
        sim.provider(
            move |attempt| {
                if attempt.request == 0 { Turn::says("bad").using(10, 0) } else { turn() }
            },
        )
    };
    let lasting = first_bad(|| Turn::fails(Failure::status(503, b"")));
    let late = first_bad(|| Turn::says("good").after_ms(5_000)).time_limit_ms(1_000);
    // 10 tokens at 1 USD a million, and 10 more.
    let dear = first_bad(|| Turn::says("good").using(10, 0)).budget(|budget| budget.max_cost_usd(15e-6));
    for (sim, code) in [
        (lasting, codes::LLM_CONNECTION),
        (late, codes::EXECUTION_TIMEOUT),
        (dear, codes::EXECUTION_BUDGET_EXHAUSTED),
    ] {
        let error = sim.run("hi").error().unwrap();
        assert_eq!((error.code(), error.context("last_validation_error")), (code, Some(&json!("3 letters"))));
    }
}

/// What a tool brings may make the same answer another one.
#[test]
fn the_same_answer_after_a_tool_call_does_not_end_it_early() {
    let run = turns(vec![Turn::says("bad"), calls_calc(), Turn::says("bad"), Turn::says("good")]).run("hi");
    assert_eq!((run.output(), corrections(&run)), (Some("good"), 2));
}

/// The first delta of a correction voids the answer before it; that of an answer voids nothing.
#[test]
fn a_correction_voids_the_answer_that_was_rejected() {
    let run = saying(&["bad", "good"]).run("hi");
    let announced = run.effects().iter().filter_map(|(_, effect)| match effect {
        Effect::CallModel { announce_restart, .. } => Some(*announce_restart),
        _ => None,
    });
    assert_eq!(announced.collect::<Vec<_>>(), [false, true]);
}

/// Wants an answer of one word.
struct OneWord;

impl Pattern for OneWord {
    fn kind(&self) -> &str {
        "one_word"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, view: View<'_>) -> Ask {
        match view.transcript.last().filter(|last| last.role == Role::Assistant) {
            None => Ask::Model,
            Some(last) if last.to_text().contains(' ') => Ask::Fail(
                Error::new(codes::LLM_MODEL_RETRY, "too many words")
                    .with_context("validation_error", "one word is wanted"),
            ),
            Some(last) => Ask::Finish(last.to_text()),
        }
    }
}

/// errors.md §3: `llm.model_retry` is "consumed by the finalize loop".
#[test]
fn a_pattern_that_wants_the_model_asked_again_is_served_without_any_schema() {
    let saying = |answers: &'static [&'static str]| {
        let said = move |request: usize| answers[request.min(answers.len() - 1)];
        sim().pattern(OneWord).provider(move |attempt| Turn::says(said(attempt.request)))
    };
    let run = saying(&["two words", "word"]).run("hi");
    assert_eq!((run.output(), corrections(&run)), (Some("word"), 1));
    assert!(sent(&run)[1].1.contains("one word is wanted"));
    let error = saying(&["two words"]).run("hi").error().unwrap();
    let wrong = error.output_validation().unwrap();
    assert_eq!((wrong.attempts, wrong.last_error, wrong.output_type), (2, "one word is wanted", None));
    assert_eq!(error.details().cause.unwrap().dict.code, "llm.model_retry");
    let error = saying(&["a b", "a c", "a d", "a e", "word"]).run("hi").error().unwrap();
    assert_eq!(error.output_validation().unwrap().attempts, 4);
}

/// Wants three results of tools.
struct ThreeResults;

impl Pattern for ThreeResults {
    fn kind(&self) -> &str {
        "three_results"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, view: View<'_>) -> Ask {
        let results = view.transcript.iter().filter(|message| message.role == Role::Tool).count();
        let Some(last) = view.transcript.last() else { return Ask::Model };
        match last.role {
            Role::Tool if results < 3 => Ask::Fail(Error::new(codes::LLM_MODEL_RETRY, "use the tool again")),
            Role::Assistant if last.tool_calls().next().is_some() => {
                Ask::Tools(last.tool_calls().cloned().collect())
            }
            Role::Assistant => Ask::Finish(last.to_text()),
            _ => Ask::Model,
        }
    }
}

#[test]
fn a_pattern_may_ask_for_more_after_tool_calls_in_the_same_words() {
    let run = sim()
        .pattern(ThreeResults)
        .provider(|attempt| if attempt.request < 3 { calls_calc() } else { Turn::says("done") })
        .run("hi");
    assert_eq!((run.output(), corrections(&run)), (Some("done"), 2));
}

/// Does not let tools be called.
struct NoTools;

impl Pattern for NoTools {
    fn kind(&self) -> &str {
        "no_tools"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, view: View<'_>) -> Ask {
        match view.transcript.last() {
            Some(last) if last.tool_calls().next().is_some() => {
                Ask::Fail(Error::new(codes::LLM_MODEL_RETRY, "no tools"))
            }
            Some(last) if last.role == Role::Assistant => Ask::Finish(last.to_text()),
            _ => Ask::Model,
        }
    }
}

#[test]
fn a_pattern_that_rejects_a_tool_call_is_told_why_that_cannot_be() {
    let run = sim().pattern(NoTools).provider(|_| calls_calc()).run("hi");
    let error = run.error().unwrap();
    assert_eq!((error.code(), run.requests()), (codes::EXECUTION_OUTPUT_VALIDATION, 1));
    assert!(error.message().contains("no tools; it calls tools"), "{error}");
    assert!(error.hint().unwrap().contains("Ask::Tools"), "{error}");
}
