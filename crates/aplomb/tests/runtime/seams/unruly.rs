//! Models of the program's own that leave something unsaid, never stop, block their thread, or cannot do what is asked.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aplomb::event::names;
use aplomb::plugins::NoConfig;
use aplomb::provider::{
    AnswerStream, Delta, Failure, FinishReason, ModelService, Phase, ServiceRequest, StreamEvent,
    TransportKind,
};
use aplomb::{Block, Cancellation, Capability, ImageSource, RunBudget, RunRequest, codes};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::providers::{Step, answer, fails, says, served, serving};
use crate::support::*;

/// An agent of that service.
fn of(service: impl ModelService + Clone) -> Setup {
    Setup::new(always(text("over TCP")))
        .plugins(move |registry| registry.provider("served", move |_: NoConfig| Ok(service.clone())))
        .agent(|agent| agent["llm"] = json!({ "provider": "served", "retry": { "max_attempts": 1 } }))
        .agent(no_retries)
}

fn piece(text: &str) -> StreamEvent {
    StreamEvent::Delta(Delta::Text { text: text.to_owned() })
}

// ---- What it does not say.

/// runtime.md: what is not counted is estimated, at 4 bytes to a token.
#[tokio::test(flavor = "multi_thread")]
async fn what_it_does_not_count_is_estimated_and_costs_what_it_costs() {
    let priced = |agent: &mut Value| agent["llm"]["pricing"] = json!({ "input": 3, "output": 15 });
    let lab = served(&serving([answer(&["one ", "two"])])).agent(priced).start().await;
    let outcome = lab.run(hi()).await;
    let told = &outcome.result().usage;
    // The answer's 7 bytes are 2 tokens, and what is asked is at least the two letters.
    assert!(told.total_tokens > 2 && told.estimated_tokens == told.total_tokens, "{told:?}");

    // 4,000 bytes of arguments are 1,000 tokens at least: 0.015 USD. Two such answers are too much.
    let call = Delta::ToolCall {
        index: 0,
        id: Some("c".to_owned()),
        name: Some("probe".to_owned()),
        text: json!({ "text": "x".repeat(4_000) }).to_string(),
    };
    let calls = vec![
        Step::Event(StreamEvent::Delta(call)),
        Step::Event(StreamEvent::Finish(FinishReason::ToolCalls)),
    ];
    let service = serving([calls]);
    let setup = served(&service).agent(priced).tool("probe", Probe::saying("x"));
    let outcome = setup.start().await.run(hi().budget(RunBudget::new().max_cost_usd(0.02))).await;
    assert_eq!(outcome.error().code(), codes::EXECUTION_BUDGET_EXHAUSTED, "{}", outcome.error());
    assert_eq!(service.asked().len(), 2);
}

/// A service says of its failures what it knows; that an answer had begun, Aplomb has seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_in_the_middle_of_an_answer_is_one_whatever_phase_it_names() {
    let refused = Failure::transport(Phase::Connect, TransportKind::Reset, "reset");
    let service = serving([vec![says("half an "), Step::Fails(Box::new(refused.clone()))]]);
    let outcome = served(&service).agent(no_retries).start().await.run(hi()).await;
    assert_eq!(outcome.error().reason(), Some("stream_interrupted"), "{}", outcome.error());
    assert!(outcome.result().usage.estimated_tokens > 0);
    // What has a status keeps what that says, and what came counts all the same.
    let busy = Failure::status(503, b"");
    let service = serving([vec![says("half an "), Step::Fails(Box::new(busy))]]);
    let outcome = served(&service).agent(no_retries).start().await.run(hi()).await;
    assert_eq!(outcome.error().reason(), Some("server_error"), "{}", outcome.error());
    assert!(outcome.result().usage.estimated_tokens > 0);
    // Where nothing came, there was no answer.
    let service = serving([fails(refused)]);
    let outcome = served(&service).agent(no_retries).start().await.run(hi()).await;
    assert_eq!((outcome.error().reason(), outcome.result().usage.total_tokens), (Some("connection"), 0));
}

// ---- That it never stops.

/// Always has more to say, and takes 1 ms for each piece: without end, as far as a test is concerned.
#[derive(Clone)]
struct Endless;

impl ModelService for Endless {
    fn ask<'a>(&'a self, _request: ServiceRequest<'a>) -> AnswerStream<'a> {
        let more = || {
            std::thread::sleep(Duration::from_millis(1));
            Ok(piece("x"))
        };
        stream::repeat_with(more).boxed()
    }
}

#[tokio::test]
async fn one_that_always_has_more_is_ended_by_the_runs_time_and_by_the_attempts() {
    let outcome = of(Endless).start().await.run(hi().timeout(Duration::from_millis(200))).await;
    assert_eq!(outcome.error().code(), codes::EXECUTION_TIMEOUT, "{}", outcome.error());
    let setup = of(Endless).agent(|agent| agent["llm"]["timeouts"] = json!({ "attempt_ms": 100 }));
    let outcome = setup.start().await.run(hi()).await;
    assert_eq!(
        (outcome.error().code(), outcome.context("setting")),
        (codes::LLM_CONNECTION, json!("llm.timeouts.attempt_ms"))
    );
}

/// Says a MiB at a time.
#[derive(Clone)]
struct Flood;

impl ModelService for Flood {
    fn ask<'a>(&'a self, _request: ServiceRequest<'a>) -> AnswerStream<'a> {
        let mib = "x".repeat(1024 * 1024);
        stream::repeat_with(move || Ok(piece(&mib))).boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_large_is_a_failure() {
    let outcome = of(Flood).start().await.run(hi()).await;
    let error = outcome.error();
    assert_eq!((error.code(), error.reason()), (codes::LLM_RESPONSE, Some("malformed_response")), "{error}");
    assert!(error.message().contains("the answer is larger than the limit"), "{error}");
}

// ---- That it holds up its thread.

/// Says one word, and blocks its thread until it is let go; then another one.
#[derive(Clone)]
struct Blocking(Arc<Mutex<Receiver<()>>>);

impl ModelService for Blocking {
    fn ask<'a>(&'a self, _request: ServiceRequest<'a>) -> AnswerStream<'a> {
        let blocked = stream::once(async {
            let _let_go = self.0.lock().unwrap().recv();
            Ok(piece("late"))
        });
        stream::iter([Ok(piece("early "))]).chain(blocked).boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_blocks_its_thread_holds_up_neither_timeout_nor_cancellation_and_is_not_heard_after() {
    for cancels in [false, true] {
        let (let_go, blocked) = channel();
        let lab = of(Blocking(Arc::new(Mutex::new(blocked)))).deltas().start().await;
        let code = if cancels {
            let cancellation = Cancellation::new();
            let cancel = async {
                until(|| lab.events.has(names::LLM_DELTA)).await;
                cancellation.cancel("operator");
            };
            let run = lab.run(hi().cancellation(cancellation.clone()));
            tokio::join!(run, cancel).0.error().code()
        } else {
            lab.run(hi().timeout(Duration::from_millis(200))).await.error().code()
        };
        let wanted = if cancels { codes::EXECUTION_CANCELLED } else { codes::EXECUTION_TIMEOUT };
        assert_eq!(code, wanted);
        let told = lab.events.all().len();
        drop(let_go);
        a_while().await;
        assert_eq!(lab.events.all().len(), told);
    }
}

// ---- What it cannot do.

fn picture() -> RunRequest {
    let source = ImageSource::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() };
    RunRequest::new(
        "assistant",
        vec![Block::Text { text: "what is it?".to_owned() }, Block::Image { source }],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_refused_where_a_provider_of_the_agent_does_not_offer_to_take_them() {
    let mut service = serving([answer(&["a cat"])]);
    let lab = served(&service).start().await;
    let error = lab.runtime.run_detailed(picture()).await.unwrap_err();
    assert_eq!(error.code(), codes::USER_INVALID_INPUT);
    assert_eq!(error.message(), "the input has images, which provider \"served\" does not offer to take");
    assert!(service.asked().is_empty());
    // A fallback has to take them, too.
    let blind = service.clone();
    let lab = Setup::new(always(text("never")))
        .plugins(move |registry| registry.provider("served", move |_: NoConfig| Ok(blind.clone())))
        .agent(|agent| agent["llm"]["fallbacks"] = json!([{ "provider": "served" }]))
        .start()
        .await;
    assert_eq!(lab.runtime.run_detailed(picture()).await.unwrap_err().code(), codes::USER_INVALID_INPUT);

    service.offers = &[Capability::Images];
    assert_eq!(served(&service).start().await.run(picture()).await.output.unwrap(), "a cat");
}
