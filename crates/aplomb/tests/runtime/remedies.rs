//! What another request cures, over real TCP: another model, a smaller conversation, another credential.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aplomb::event::names;
use aplomb::tools::{Tool, ToolContext};
use aplomb::{CommandCredential, Credential, CredentialRequest, CredentialSource, Error, RunRequest, codes};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::*;

fn quota_spent() -> Value {
    http(429, json!({}), json!({"error": {"message": "no money", "code": "insufficient_quota"}}))
}

fn too_long() -> Value {
    http(400, json!({}), json!({"error": {"message": "too long", "code": "context_length_exceeded"}}))
}

/// A second provider, which speaks the other protocol.
async fn other(script: Value) -> (FaultServer, Value) {
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    // Cargo sets it for every test, so that a key is there to be sent.
    let llm = json!({
        "provider": "anthropic", "model": "other", "api_base": server.base_url(),
        "api_key_env": "CARGO_MANIFEST_DIR",
    });
    (server, llm)
}

// ---- Another model.

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_with_another_providers_model_in_the_middle_of_its_tools() {
    let (server, llm) = other(always(text("81, says the other"))).await;
    let first = once([calls(&[("calc", json!({ "expression": "9*9" }))]), quota_spent()]);
    let lab = Setup::new(first)
        .agent(|agent| agent["tools"] = json!([{ "id": "calc", "type": "calc" }]))
        .agent(move |agent| agent["llm"]["fallbacks"] = json!([llm]))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "81, says the other");
    assert_eq!((lab.requests(), server.request_count()), (2, 1));
    let told = &outcome.events_of(names::MODEL_FALLBACK)[0].payload;
    assert_eq!((&told["from"], &told["to"]), (&json!("openai_compatible/m"), &json!("anthropic/other")));
    let succeeded = outcome.events_of(names::LLM_SUCCEEDED);
    assert_eq!(succeeded[1].payload["model"], "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_was_left_is_passed_over_by_the_agents_other_runs_for_a_minute() {
    let (server, llm) = other(always(text("ok"))).await;
    let lab = Setup::new(always(status(503)))
        .agent(no_retries)
        .agent(move |agent| agent["llm"]["fallbacks"] = json!([llm]))
        .start()
        .await;
    for _ in 0..3 {
        lab.run(hi()).await.output.as_ref().unwrap();
    }
    assert_eq!((lab.requests(), server.request_count()), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_everywhere_lists_every_attempt_with_its_model() {
    let (_server, llm) = other(always(status(503))).await;
    let lab = Setup::new(always(status(503)))
        .agent(no_retries)
        .agent(move |agent| agent["llm"]["fallbacks"] = json!([llm]))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    let error = outcome.error();
    assert_eq!((error.code(), error.context("model")), (codes::LLM_CONNECTION, Some(&json!("other"))));
    let asked: Vec<_> = error.attempts().iter().map(|attempt| attempt.target.as_deref()).collect();
    assert_eq!(asked, [None, Some("anthropic/other")]);
    assert!(error.message().contains("failed after 2 attempts"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_answer_has_said_is_taken_back_before_another_model_speaks() {
    let (_server, llm) = other(always(text("whole"))).await;
    let cut = always(events(&[r#"{"choices":[{"index":0,"delta":{"content":"half"}}]}"#]));
    let lab = Setup::new(cut)
        .agent(no_retries)
        .agent(move |agent| agent["llm"]["fallbacks"] = json!([llm]))
        .start()
        .await;
    let outcome = lab.watch(hi()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "whole");
    assert_eq!(kept_text(&outcome.chunks), "whole");
}

// ---- A smaller conversation.

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_grown_too_long_goes_on_without_its_oldest_turns() {
    let long = "x".repeat(2_000);
    let lab = Setup::new(once([text("one"), text("two"), too_long(), text("three")]))
        .agent(|agent| agent["memory"] = json!({ "type": "buffer" }))
        .start()
        .await;
    let ask = || RunRequest::new("assistant", long.as_str()).session_id("s");
    lab.run(ask()).await.output.as_ref().unwrap();
    lab.run(ask()).await.output.as_ref().unwrap();
    let outcome = lab.run(ask()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "three");
    let sizes: Vec<_> = outcome.log.iter().map(|request| request.body.to_string().len()).collect();
    assert!(sizes[1] * 10 <= sizes[0] * 9, "{sizes:?}");
    assert_eq!(outcome.events_of(names::CONTEXT_COMPACTED).len(), 1);
}

/// A provider whose model takes requests of 5 000 bytes. A turn is a little over 2 000, so two of them fit and three do
/// not; half of those three is one turn, and the next run begins with that one. Were the others remembered too, the
/// conversation would have three windows by the end, and half of it would be too long as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_goes_past_twice_the_models_window_goes_on() {
    const WINDOW: usize = 5_000;
    let two_more = || [text("ok"), too_long(), text("ok")];
    let lab = Setup::new(once([text("ok")].into_iter().chain((0..6).flat_map(|_| two_more()))))
        .agent(|agent| agent["memory"] = json!({ "type": "buffer" }))
        .start()
        .await;
    let long = "x".repeat(2_000);
    for _ in 0..12 {
        let run = lab.run(RunRequest::new("assistant", long.as_str()).session_id("s")).await;
        assert_eq!(run.output.as_deref().unwrap(), "ok");
        // The script answers as a model of that window would.
        let sizes: Vec<_> = run.log.iter().map(|request| request.body.to_string().len()).collect();
        let (answered, refused) = sizes.split_last().unwrap();
        assert!(*answered < WINDOW && refused.iter().all(|size| *size > WINDOW), "{sizes:?}");
    }
}

// ---- Another credential.

/// One key for whatever is asked.
struct TenantKey(&'static str);

impl CredentialSource for TenantKey {
    fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        Box::pin(std::future::ready(Ok(Credential::new(self.0))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_tenants_account_has_used_up_moves_nobody_else_to_another_model() {
    let (server, llm) = other(always(text("fallback"))).await;
    let throttled = || http(429, json!({ "retry-after": "90" }), Value::Null);
    let script = once([throttled(), text("first"), throttled(), text("first")]);
    let lab = Setup::new(script)
        .agent(no_retries)
        .agent(move |agent| agent["llm"]["fallbacks"] = json!([llm]))
        .start()
        .await;
    let tenant = |key| hi().credential(TenantKey(key));
    assert_eq!(lab.run(tenant("canary-a")).await.output.unwrap(), "fallback");
    assert_eq!(lab.run(tenant("canary-b")).await.output.unwrap(), "first");
    // The agent's own account is another one, too, and what it has used up is known to its own runs alone.
    assert_eq!(lab.run(hi()).await.output.unwrap(), "fallback");
    assert_eq!(lab.run(tenant("canary-a")).await.output.unwrap(), "first");
    assert_eq!(lab.run(hi()).await.output.unwrap(), "fallback");
    assert_eq!((lab.requests(), server.request_count()), (4, 3));
}

/// Gives these, one after the other, and then the last one for ever.
#[derive(Clone)]
struct Rotating {
    keys: &'static [&'static str],
    reads: Arc<AtomicUsize>,
}

impl Rotating {
    fn new(keys: &'static [&'static str]) -> Rotating {
        Rotating { keys, reads: Arc::default() }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl CredentialSource for Rotating {
    fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        let read = self.reads.fetch_add(1, Ordering::SeqCst);
        let key = self.keys.get(read).or(self.keys.last());
        Box::pin(std::future::ready(Ok(Credential::new(key.unwrap()))))
    }
}

const OLD: &str = "canary-old-4b1d";
const NEW: &str = "canary-new-9e2f";

fn keys_sent(outcome: &Outcome) -> Vec<String> {
    outcome.log.iter().map(|request| request.headers["authorization"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_renewed_meanwhile_is_sent_in_a_second_request() {
    let source = Rotating::new(&[OLD, NEW]);
    let given = source.clone();
    let lab = Setup::new(once([status(401), text("ok"), text("ok")]))
        .build(move |builder| builder.credential("assistant", given))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "ok");
    assert_eq!(keys_sent(&outcome), [format!("Bearer {OLD}"), format!("Bearer {NEW}")]);
    // The next run begins with what was read last.
    assert_eq!(keys_sent(&lab.run(hi()).await), [format!("Bearer {NEW}")]);
    assert_eq!(source.reads(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_still_the_same_costs_no_second_request_and_gets_nowhere() {
    let source = Rotating::new(&[OLD]);
    let given = source.clone();
    let echo = json!({ "error": { "message": format!("Incorrect key: {OLD}") } });
    let lab = Setup::new(always(http(401, json!({}), echo)))
        .build(move |builder| builder.credential("assistant", given))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!((lab.requests(), source.reads()), (1, 2));
    outcome.permanently(true);
    let told = format!("{:?} {:?} {:?}", outcome.events, outcome.error(), outcome.result());
    assert!(!told.contains("canary"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_key_that_is_refused_and_repeated_gets_nowhere_either() {
    let echo = json!({ "error": { "message": format!("Incorrect keys: {OLD} {NEW}") } });
    let lab = Setup::new(always(http(401, json!({}), echo)))
        .build(|builder| builder.credential("assistant", Rotating::new(&[OLD, NEW])))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!(lab.requests(), 2);
    let last = outcome.error().attempts().last().unwrap().text.clone();
    assert!(!last.contains(NEW), "{last}");
}

/// Fails with what it was told in confidence.
#[derive(Clone)]
struct Indiscreet;

impl Tool for Indiscreet {
    fn description(&self) -> &str {
        "says too much"
    }

    fn parameters(&self) -> Value {
        json!({ "type": "object" })
    }

    fn call(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(std::future::ready(Err(Error::new(codes::TOOL_ERROR, format!("{OLD} and {NEW}")))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_read_in_the_run_are_kept_out_of_what_tools_let_slip() {
    let script = once([status(401), calls(&[("slip", json!({}))]), status(400)]);
    let lab = Setup::new(script)
        .build(|builder| builder.credential("assistant", Rotating::new(&[OLD, NEW])))
        .tool("slip", Indiscreet)
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!(lab.requests(), 3);
    let told = format!("{:?} {:?} {:?}", outcome.events, outcome.error(), outcome.result());
    assert!(told.contains("tool.error") && !told.contains("canary"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_run_may_bring_a_key_of_its_own() {
    let lab = Setup::new(always(text("ok"))).start().await;
    for tenant in ["canary-tenant-a", "canary-tenant-b"] {
        let request = hi().credential(Fixed(tenant));
        assert_eq!(keys_sent(&lab.run(request).await), [format!("Bearer {tenant}")]);
    }
}

struct Fixed(&'static str);

impl CredentialSource for Fixed {
    fn read(&self, request: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        assert_eq!((request.agent_id.as_str(), request.model.as_str()), ("assistant", "m"));
        Box::pin(std::future::ready(Ok(Credential::new(self.0))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gives_the_key() {
    let lab = Setup::new(always(text("ok")))
        .build(|builder| builder.credential("assistant", CommandCredential::new("printf", ["canary-cmd\\n"])))
        .start()
        .await;
    assert_eq!(keys_sent(&lab.run(hi()).await), ["Bearer canary-cmd"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_read_fails_the_run_before_anything_is_sent() {
    let lab = Setup::new(always(text("ok")))
        .build(|builder| builder.credential("assistant", CommandCredential::new("false", [""; 0])))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!((lab.requests(), outcome.error().code()), (0, codes::CONFIG_LOAD));
    assert_eq!(outcome.error().attempts().len(), 0);
    assert!(outcome.error().message().contains("llm.api_key_command"), "{}", outcome.error());
}

/// A source that never answers.
struct Silent;

impl CredentialSource for Silent {
    fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_time_limit_holds_while_a_key_is_read() {
    let lab =
        Setup::new(always(text("ok"))).build(|builder| builder.credential("assistant", Silent)).start().await;
    let outcome = lab.run(hi().timeout(Duration::from_millis(200))).await;
    assert_eq!((lab.requests(), outcome.error().code()), (0, codes::EXECUTION_TIMEOUT));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_panics_fails_the_run_and_nothing_else() {
    struct Panicking;
    impl CredentialSource for Panicking {
        fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
            panic!("no key today")
        }
    }
    let lab = Setup::new(always(text("ok")))
        .build(|builder| builder.credential("assistant", Panicking))
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!((lab.requests(), outcome.error().code()), (0, codes::LLM_ERROR));
}
