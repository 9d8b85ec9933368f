//! The settings of a config document over real TCP: each does what `docs/spec/retry.md` says of it, in requests and in
//! waits. Without jitter, unless the test is about it.
use std::fs;
use std::path::Path;
use std::time::Duration;

use aplomb::event::names;
use aplomb::{RunRequest, StopReason, codes};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use futures_util::future::{LocalBoxFuture, join_all};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crossing::{WIRES, Wire};
use crate::support::*;

// ---- One setting, or two, and what comes of it.

/// A failure that lasts, with its code and reason.
#[derive(Debug, Clone, Copy)]
enum Lasting {
    /// What passes, as a rule.
    Down,
    /// What the transport has no list for, in `layered` mode.
    Internal,
    /// A connection that dies.
    Dead,
    /// What nobody knows.
    Unknown,
    /// What cannot pass.
    Refused,
    /// An answer that breaks off after some words.
    Cut,
}

impl Lasting {
    fn step(self) -> Value {
        match self {
            Lasting::Down => status(503),
            Lasting::Internal => status(500),
            Lasting::Dead => with_fault(text("no"), json!("reset_before_headers")),
            Lasting::Unknown => status(418),
            Lasting::Refused => status(400),
            Lasting::Cut => {
                with_fault(text("one two three"), json!({"cut": {"after_events": 3, "by": "fin"}}))
            }
        }
    }

    fn code_and_reason(self) -> (&'static str, &'static str) {
        match self {
            Lasting::Down | Lasting::Internal => ("llm.connection", "server_error"),
            Lasting::Dead => ("llm.connection", "connection"),
            Lasting::Unknown => ("llm.error", "unknown"),
            Lasting::Refused => ("llm.response", "invalid_request"),
            Lasting::Cut => ("llm.connection", "stream_interrupted"),
        }
    }
}

/// How the call is made.
#[derive(Debug, Clone, Copy)]
enum By {
    Run,
    Exec,
    Stream,
}

async fn made(by: By, setup: Setup) -> Outcome {
    let lab = setup.start().await;
    match by {
        By::Run => lab.run(hi()).await,
        By::Exec => lab.exec(|exec| exec).await,
        By::Stream => lab.watch(hi()).await,
    }
}

/// Sets a key of the agent by its path.
fn set(agent: &mut Value, path: &str, value: Value) {
    *path.split('.').fold(agent, |node, step| &mut node[step]) = value;
}

fn with(settings: &[(&'static str, Value)]) -> impl FnOnce(&mut Value) + use<> {
    let settings = settings.to_vec();
    move |agent| settings.into_iter().for_each(|(path, value)| set(agent, path, value))
}

/// The call fails for good after these waits, which are all that there are.
async fn costs(settings: &[(&'static str, Value)], failure: Lasting, by: By, waits: &[u64]) {
    let outcome = made(by, Setup::new(always(failure.step())).agent(with(settings))).await;
    let (code, reason) = failure.code_and_reason();
    outcome.fails(code, reason, waits);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_setting_of_llm_retry_does_what_it_says() {
    use By::{Run, Stream};
    use Lasting::{Cut, Dead, Down};
    let one = |path: &'static str, value: Value| vec![(path, value)];
    for (settings, failure, by, waits) in [
        // 1 + T + S 3, with T = max_attempts − 1.
        (one("llm.retry.max_attempts", json!(1)), Down, Run, &[2_000, 4_000, 8_000][..]),
        (one("llm.retry.max_attempts", json!(2)), Down, Run, &[500, 2_000, 4_000, 8_000]),
        (one("llm.retry.initial_backoff_ms", json!(100)), Down, Run, &[100, 200, 2_000, 4_000, 8_000]),
        (one("llm.retry.max_backoff_ms", json!(700)), Down, Run, &[500, 700, 2_000, 4_000, 8_000]),
        (one("llm.retry.backoff_multiplier", json!(4.0)), Down, Run, &[500, 2_000, 2_000, 4_000, 8_000]),
        (one("llm.retry.retry_on_connection_errors", json!(false)), Dead, Run, S_ONLY),
        // A 503 is none.
        (one("llm.retry.retry_on_connection_errors", json!(false)), Down, Run, T_THEN_S),
        // 0.5 + 1 + 2 s fit into 5 s, and 4 s more do not; into 3.4 s the 2 s do not. What attempts take counts, too.
        (one("llm.retry.total_budget_ms", json!(5_000)), Down, Run, &[500, 1_000, 2_000]),
        (one("llm.retry.total_budget_ms", json!(3_400)), Down, Run, &[500, 1_000]),
        // 2 s fit into 5 s; 4 s more do not.
        (one("llm.retry.total_budget_ms", json!(5_000)), Cut, Stream, &[2_000]),
    ] {
        println!("{settings:?} {failure:?} {by:?}");
        costs(&settings, failure, by, waits).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_setting_of_the_agents_retry_does_what_it_says() {
    use By::{Exec, Run, Stream};
    use Lasting::{Cut, Down, Unknown};
    let disabled = ("retry.session.enabled", json!(false));
    for (settings, failure, by, waits) in [
        (vec![disabled.clone()], Down, Run, &[500, 1_000][..]),
        // What has delivered is the session's alone.
        (vec![disabled.clone()], Cut, Stream, NO_RETRY),
        (vec![("retry.session.max_retries", json!(0))], Down, Run, &[500, 1_000]),
        (vec![("retry.session.max_retries", json!(1))], Down, Run, &[500, 1_000, 2_000]),
        (vec![("retry.session.base_delay_ms", json!(300))], Down, Run, &[500, 1_000, 300, 600, 1_200]),
        // Attempts including the first: 1 makes exec like run.
        (vec![("retry.exec.max_retries", json!(1))], Unknown, Exec, NO_RETRY),
        (vec![("retry.exec.max_retries", json!(4))], Unknown, Exec, &[1_500, 3_000, 6_000]),
        (vec![("retry.exec.base_delay_ms", json!(100))], Unknown, Exec, &[100, 200]),
        // It is not run's.
        (vec![("retry.exec.max_retries", json!(4))], Unknown, Run, NO_RETRY),
        // Exec as the only owner.
        (vec![disabled.clone(), ("llm.retry.max_attempts", json!(1))], Down, Exec, X_ONLY),
        (vec![disabled, ("llm.retry.max_attempts", json!(1))], Down, Run, NO_RETRY),
        // A longer wait is reported, not slept.
        (vec![("retry.max_inline_wait_ms", json!(4_000))], Down, Run, &[500, 1_000, 2_000, 4_000]),
        (vec![("retry.max_inline_wait_ms", json!(3_999))], Down, Run, &[500, 1_000, 2_000]),
        (vec![("retry.restart", json!("never"))], Cut, Stream, NO_RETRY),
        (vec![("retry.restart", json!("never"))], Cut, Run, T_THEN_S),
        (vec![("retry.restart", json!("marker"))], Cut, Stream, S_ONLY),
    ] {
        println!("{settings:?} {failure:?} {by:?}");
        costs(&settings, failure, by, waits).await;
    }
}

/// retry.md §5: "`llm.retry.jitter` governs T, S, X and resume". Full: from nothing; equal: from half.
#[tokio::test(flavor = "multi_thread")]
async fn jitter_spreads_the_waits_of_every_layer() {
    let exec = [1_500, 3_000, 6_000, 12_000];
    for (jitter, parts) in [("full", 0), ("equal", 1)] {
        for (by, failure, full) in [(By::Run, Lasting::Down, T_THEN_S), (By::Exec, Lasting::Unknown, &exec)] {
            let settings = [("llm.retry.jitter", json!(jitter)), ("retry.exec.max_retries", json!(5))];
            let outcome = made(by, Setup::new(always(failure.step())).agent(with(&settings))).await;
            let waits = outcome.waits();
            assert_eq!(waits.len(), full.len());
            for (wait, full) in waits.iter().zip(full) {
                assert!((full * parts / 2..=*full).contains(wait), "{jitter}: {waits:?}");
            }
            // Four draws that all come out at the longest: one in a million millions.
            assert!(waits != full, "{jitter}: {waits:?}");
        }
    }
}

/// retry.md §2: 36 requests and 64.5 s, 12 and 46.5 s, 3 and 4.5 s, 1.
#[tokio::test(flavor = "multi_thread")]
async fn layered_the_allowances_multiply_as_in_the_reference() {
    let transport = [500, 1_000];
    let session = [&transport[..], &[2_000], &transport, &[4_000], &transport, &[8_000], &transport].concat();
    let exec = [&session[..], &[1_500], &session, &[3_000], &session].concat();
    let of_500 = [S_ONLY, &[1_500], S_ONLY, &[3_000], S_ONLY].concat();
    assert_eq!((exec.len() + 1, exec.iter().sum()), (36, 64_500));
    assert_eq!((of_500.len() + 1, of_500.iter().sum()), (12, 46_500));
    use By::{Exec, Run, Stream};
    for (failure, by, waits) in [
        (Lasting::Down, Exec, &exec[..]),
        // 4 × 3, and 20 s.
        (Lasting::Down, Run, &session),
        (Lasting::Internal, Exec, &of_500),
        (Lasting::Internal, Run, S_ONLY),
        (Lasting::Cut, Exec, &of_500),
        (Lasting::Cut, Stream, S_ONLY),
        (Lasting::Unknown, Exec, X_ONLY),
        (Lasting::Unknown, Run, NO_RETRY),
        (Lasting::Refused, Exec, NO_RETRY),
        (Lasting::Refused, Run, NO_RETRY),
    ] {
        println!("layered {failure:?} {by:?}");
        costs(&[("llm.retry.mode", json!("layered"))], failure, by, waits).await;
    }
    // 2 × 2 × 2: transport 4 × 0.5 s, session 2 × 2 s, exec 1.5 s.
    let two = [
        ("llm.retry.mode", json!("layered")),
        ("llm.retry.max_attempts", json!(2)),
        ("retry.session.max_retries", json!(1)),
        ("retry.exec.max_retries", json!(2)),
    ];
    costs(&two, Lasting::Down, Exec, &[500, 2_000, 500, 1_500, 500, 2_000, 500]).await;
}

// ---- Time limits.

#[tokio::test(flavor = "multi_thread")]
async fn each_clock_of_llm_timeouts_ends_an_attempt_and_the_next_one_begins() {
    let (address, _deaf) = deaf().await;
    let two = [("llm.retry.max_attempts", json!(2)), ("retry.session.enabled", json!(false))];
    let stall = || with_fault(text("one two"), json!({"stall": {"after_events": 2}}));
    let silence = || with_fault(text("no"), json!("silence"));
    for (clock, step, stream) in [
        ("llm.timeouts.first_byte_ms", silence(), "never"),
        ("llm.timeout_ms", silence(), "never"),
        ("llm.timeouts.idle_ms", stall(), "always"),
        ("llm.timeouts.attempt_ms", stall(), "always"),
        ("llm.timeouts.attempt_ms", silence(), "never"),
    ] {
        let setup = Setup::new(always(step)).agent(with(&two));
        let setup = setup.agent(with(&[(clock, json!(500)), ("llm.stream", json!(stream))]));
        println!("{clock}");
        made(By::Run, setup).await.fails("llm.connection", "timeout", &[500]);
    }
    let setup = Setup::new(always(text("elsewhere"))).agent(with(&two));
    let setup =
        setup.agent(with(&[("llm.timeouts.connect_ms", json!(500)), ("llm.api_base", json!(address))]));
    let outcome = made(By::Run, setup).await;
    assert_eq!((outcome.error().reason(), outcome.error().attempts().len()), (Some("timeout"), 2));
    assert_eq!(outcome.waits(), [500]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_too_long_ends_the_run_and_names_its_setting() {
    let limit = || with(&[("runtime.step_timeout_ms", json!(700))]);
    for mode in MODES {
        let silent = with_fault(text("no"), json!("silence"));
        let script = once([status(503), status(503), silent]);
        let outcome = ask(mode, Setup::new(script).agent(limit())).await;
        let error = outcome.error();
        assert_eq!((error.code(), error.retryable()), (codes::EXECUTION_TIMEOUT, false), "{error}");
        assert_eq!(outcome.context("setting"), "runtime.step_timeout_ms");
        assert_eq!(outcome.context("limit_ms"), 700);
        assert_eq!(outcome.result().stop_reason, StopReason::Timeout);
        // What was waited, 1.5 s, took nothing of it.
        assert_eq!((outcome.log.len(), outcome.waits()), (3, vec![500, 1_000]));
        assert!(std::error::Error::source(error).is_some_and(|cause| cause.to_string().contains("503")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_clock_stands_still_while_a_wait_is_slept() {
    // Of the 15.5 s between the attempts more than 5 s are one wait.
    let script = || once([status(503), status(503), status(503), status(503), status(503), text("ok")]);
    for mode in MODES {
        let limit = with(&[("runtime.step_timeout_ms", json!(5_000))]);
        ask(mode, Setup::new(script()).agent(limit)).await.gives("ok", T_THEN_S);
    }
    // A run's own limit counts them: 0.5 + 1 s fit, 4 s more do not.
    let lab = Lab::new(script()).await;
    let outcome = lab.run(hi().timeout(Duration::from_millis(5_000))).await;
    outcome.fails("llm.connection", "server_error", &[500, 1_000, 2_000]);
}

// ---- Other models.

/// A provider, and the model that is asked there.
async fn model(name: &str, script: Value) -> (FaultServer, Value) {
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    let llm = json!({"provider": "openai_compatible", "model": name, "api_base": server.base_url()});
    (server, llm)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fallback_has_a_fresh_transport_allowance_and_no_other() {
    let (second, second_llm) = model("second", always(status(503))).await;
    let (third, third_llm) = model("third", always(status(503))).await;
    let lab = Setup::new(always(status(503)))
        .agent(with(&[("llm.fallbacks", json!([second_llm, third_llm]))]))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    // 1 + T 2 + S 3, then 1 + T 2 each.
    assert_eq!((lab.requests(), second.request_count(), third.request_count()), (6, 3, 3));
    let transport = [500, 1_000];
    // Another model is asked at once.
    assert_eq!(outcome.waits(), [T_THEN_S, &[0], &transport, &[0], &transport].concat());
    assert_eq!(outcome.error().attempts().len(), 12);
    assert!(outcome.error().message().contains("failed after 12 attempts"), "{}", outcome.error());
    assert_eq!(outcome.events_of(names::MODEL_FALLBACK).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_pass_goes_to_another_model_only_if_it_is_listed() {
    let not_found =
        || http(404, json!({}), json!({"error": {"message": "no such model", "code": "model_not_found"}}));
    let both = json!(["quota_exhausted", "model_not_found"]);
    for (step, listed, falls_back) in [
        (status(402), None, true),
        (not_found(), None, true),
        (status(402), Some(both), true),
        (status(402), Some(json!(["model_not_found"])), false),
        (not_found(), Some(json!(["model_not_found"])), true),
        (not_found(), Some(json!([])), false),
        // Nothing of that kind: another model would be asked the same.
        (status(400), None, false),
        (status(401), None, false),
        (status(418), None, false),
    ] {
        let (other, llm) = model("other", always(text("ok"))).await;
        println!("{step} {listed:?}");
        let setup = Setup::new(always(step)).agent(with(&[("llm.fallbacks", json!([llm]))]));
        let setup = match listed {
            Some(listed) => setup.agent(with(&[("llm.fallback_on", listed)])),
            None => setup,
        };
        let lab = setup.start().await;
        let outcome = lab.run(hi()).await;
        assert_eq!((lab.requests(), other.request_count()), (1, usize::from(falls_back)));
        assert_eq!(outcome.output.is_ok(), falls_back);
    }
    // What may pass, and did not, falls back whatever is listed.
    let (other, llm) = model("other", always(text("ok"))).await;
    let settings = [("llm.fallbacks", json!([llm])), ("llm.fallback_on", json!([]))];
    let lab = Setup::new(always(status(503))).agent(with(&settings)).start().await;
    assert_eq!(lab.run(hi()).await.output.as_deref().ok(), Some("ok"));
    assert_eq!((lab.requests(), other.request_count()), (6, 1));
}

/// What a wire's own servers say inside a 200 when they have too much to do.
///
/// Sources: OpenAI, "Error codes", 503; Anthropic, "Errors", 529; Gemini API, "Troubleshooting", 503.
fn overload(wire: Wire) -> Value {
    match wire.provider {
        "anthropic" => {
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
        }
        "gemini" => json!({"error": {
            "code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE",
        }}),
        _ => json!({"error": {
            "message": "The engine is currently overloaded, please try again later", "type": "server_error",
            "code": null, "param": null,
        }}),
    }
}

/// The first model fails so often, and then another one is asked, once, before anybody has heard a word.
async fn falls_back(
    wire: Wire,
    mode: Mode,
    step: Value,
    change: impl FnOnce(&mut Value) + 'static,
    requests: usize,
) -> Outcome {
    let name = format!("{wire:?} {mode:?} {step}");
    let (other, llm) = model("other", always(text("ok"))).await;
    let lab = Setup::new(always(step))
        .agent(move |agent| {
            let own = agent["llm"]["api_base"].as_str().unwrap().to_owned();
            agent["llm"] = wire.llm("first", &own, mode);
            agent["llm"]["fallbacks"] = json!([llm]);
        })
        .agent(change)
        .start()
        .await;
    let outcome = if mode == Mode::Watched { lab.watch(hi()).await } else { lab.run(hi()).await };
    assert_eq!(outcome.output.as_deref().map_err(ToString::to_string), Ok("ok"), "{name}");
    assert_eq!((lab.requests(), other.request_count()), (requests, 1), "{name}");
    let count = |event| outcome.events_of(event).len();
    assert_eq!((count(names::MODEL_FALLBACK), count(names::LLM_RESTARTED)), (1, 0), "{name}");
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_may_pass_falls_back_on_every_wire_before_a_word() {
    let spoilt = |fault: Value| with_fault(text("never"), fault);
    let clock = |clock: &'static str| {
        move |agent: &mut Value| {
            no_retries(agent);
            agent["llm"]["timeouts"] = json!({ clock: 500 });
        }
    };
    for wire in WIRES.iter().copied() {
        let busy = spoilt(json!({"error_event": {"after_events": 0, "body": overload(wire)}}));
        let silence = spoilt(json!("silence"));
        let slow = spoilt(json!({"slow_headers": {"delay_ms": 5_000}}));
        // The idle clock begins with the answer. On Gemini's wire that is a word, unless it is a ping.
        let stall = spoilt(match wire.provider {
            "gemini" => json!({"pings": {"after_events": 0, "every_ms": 50}}),
            _ => json!({"stall": {"after_events": 1}}),
        });
        let mut runs: Vec<LocalBoxFuture<'_, Outcome>> = Vec::new();
        for mode in MODES {
            runs.push(Box::pin(falls_back(wire, mode, silence.clone(), clock("first_byte_ms"), 1)));
            runs.push(Box::pin(falls_back(wire, mode, slow.clone(), clock("first_byte_ms"), 1)));
            if mode != Mode::Plain {
                runs.push(Box::pin(falls_back(wire, mode, stall.clone(), clock("idle_ms"), 1)));
            }
            for step in [busy.clone(), status(529)] {
                runs.push(Box::pin(falls_back(wire, mode, step.clone(), no_retries, 1)));
                // 1 + T 2 + S 3, and the other model at once.
                runs.push(Box::pin(async move {
                    let outcome = falls_back(wire, mode, step, |_| (), 6).await;
                    assert_eq!(outcome.waits(), [T_THEN_S, &[0]].concat());
                    outcome
                }));
            }
        }
        join_all(runs).await;
    }
}

// ---- Smaller conversations.

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_shortened_as_often_as_the_config_allows_and_never_sent_again_as_it_was() {
    let too_long =
        http(400, json!({}), json!({"error": {"message": "too long", "code": "context_length_exceeded"}}));
    let long = "x".repeat(2_000);
    for allowed in 0..=2 {
        let turns = std::iter::repeat_n(text("yes"), 6).chain([too_long.clone()]);
        let script = json!({"steps": turns.collect::<Vec<_>>(), "at_end": "repeat_last"});
        let settings = [("memory.type", json!("buffer")), ("retry.max_compactions", json!(allowed))];
        let lab = Setup::new(script).agent(with(&settings)).start().await;
        let ask = || RunRequest::new("assistant", long.as_str()).session_id("s");
        for _ in 0..6 {
            lab.run(ask()).await.output.as_ref().unwrap();
        }
        // Of 7 turns about half are left, 3; of those again, 1.
        let outcome = lab.run(ask()).await;
        assert_eq!(outcome.error().reason(), Some("context_overflow"), "{}", outcome.error());
        assert_eq!(outcome.log.len(), 1 + allowed);
        assert_eq!(outcome.events_of(names::CONTEXT_COMPACTED).len(), allowed);
        let sizes: Vec<_> = outcome.log.iter().map(|request| request.body.to_string().len()).collect();
        assert!(sizes.windows(2).all(|pair| pair[1] * 10 <= pair[0] * 9), "{sizes:?}");
    }
}

// ---- Keys from a command.

const OLD: &str = "canary-old-7c02";
const NEW: &str = "canary-new-51ab";

/// A script that gives `first`, and when it is called again `then`; and a folder in which it notes each call.
fn key_script(first: &str, then: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let (script, called) = (folder.path().join("key.sh"), folder.path().join("called"));
    let called = called.display();
    let lines =
        format!("if [ -e '{called}' ]; then echo {then}; else echo {first}; fi\necho x >> '{called}'\n");
    fs::write(&script, lines).unwrap();
    let command = format!("sh '{}'", script.display());
    (folder, command)
}

fn calls_of(folder: &Path) -> usize {
    fs::read_to_string(folder.join("called")).unwrap().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_read_again_by_its_command_and_sent_only_if_it_differs() {
    for mode in MODES {
        for (then, requests) in [(NEW, 2), (OLD, 1)] {
            let (folder, command) = key_script(OLD, then);
            let script = json!({"steps": [status(401), text("ok")]});
            let setup = Setup::new(script).agent(with(&[("llm.api_key_command", json!(command))]));
            let outcome = ask(mode, setup).await;
            let sent: Vec<_> =
                outcome.log.iter().map(|request| request.headers["authorization"].as_str()).collect();
            let keys = [format!("Bearer {OLD}"), format!("Bearer {then}")];
            assert_eq!(sent, keys[..requests]);
            // Both times it was asked.
            assert_eq!(calls_of(folder.path()), 2);
            assert_eq!(outcome.waits(), vec![0; requests - 1]);
            match requests {
                2 => assert_eq!(outcome.output.as_deref().ok(), Some("ok")),
                _ => assert_eq!(outcome.permanently(true).error().reason(), Some("auth")),
            }
            let told = format!("{:?} {:?} {:?}", outcome.events, outcome.output, outcome.result());
            assert!(!told.contains("canary"), "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_refused_twice_is_not_read_a_third_time() {
    let (folder, command) = key_script(OLD, NEW);
    let setup = Setup::new(always(status(401))).agent(with(&[("llm.api_key_command", json!(command))]));
    let outcome = made(By::Exec, setup).await;
    outcome.permanently(true);
    assert_eq!((outcome.log.len(), calls_of(folder.path())), (2, 2));
}
