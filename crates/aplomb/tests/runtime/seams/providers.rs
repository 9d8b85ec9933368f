//! Providers of the program's own: models that it serves, and vendors that it names.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aplomb::config::Config;
use aplomb::event::names;
use aplomb::plugins::{NoConfig, Origin, Registry, Seam};
use aplomb::provider::{
    AnswerStream, Delta, Failure, FinishReason, ModelService, Phase, Place, Reply, ServiceRequest,
    StreamEvent, TokenUsage, TransportKind, Vendor, Wire, whole,
};
use aplomb::{
    Capability, Credential, CredentialRequest, CredentialSource, Error, Message, Role, RunRequest, Runtime,
    codes,
};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{burnt, refused};
use crate::support::*;

/// One step of an answer.
#[derive(Clone)]
pub(super) enum Step {
    Event(StreamEvent),
    Fails(Box<Failure>),
    Hangs,
    Panics,
}

/// Serves one answer after the other, and the last one for ever.
#[derive(Clone)]
pub(super) struct Served {
    answers: Arc<Vec<Vec<Step>>>,
    asked: Arc<Mutex<Vec<String>>>,
    pub(super) offers: &'static [Capability],
}

pub(super) fn serving(answers: impl IntoIterator<Item = Vec<Step>>) -> Served {
    let answers = Arc::new(answers.into_iter().collect());
    Served { answers, asked: Arc::default(), offers: &[Capability::Tools] }
}

impl Served {
    /// The requests so far, each as what it says.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl ModelService for Served {
    fn offers(&self) -> &[Capability] {
        self.offers
    }

    fn ask<'a>(&'a self, request: ServiceRequest<'a>) -> AnswerStream<'a> {
        let mut asked = self.asked.lock().unwrap();
        let last = request.messages.last().unwrap();
        asked.push(format!("{} {} {:?}", request.model, last.to_text(), request.credential));
        let answer = self.answers.get(asked.len() - 1).or(self.answers.last()).unwrap().clone();
        let steps = stream::iter(answer).then(|step| async {
            match step {
                Step::Event(event) => Ok(event),
                Step::Fails(failure) => Err(failure),
                Step::Hangs => std::future::pending().await,
                Step::Panics => burnt(),
            }
        });
        steps.boxed()
    }
}

pub(super) fn says(text: &str) -> Step {
    Step::Event(StreamEvent::Delta(Delta::Text { text: text.to_owned() }))
}

pub(super) fn ends() -> Step {
    Step::Event(StreamEvent::Finish(FinishReason::Stop))
}

pub(super) fn answer(words: &[&str]) -> Vec<Step> {
    words.iter().map(|word| says(word)).chain([ends()]).collect()
}

pub(super) fn fails(failure: Failure) -> Vec<Step> {
    vec![Step::Fails(Box::new(failure))]
}

/// An agent of that service, and a provider over TCP that nobody asks.
pub(super) fn served(service: &Served) -> Setup {
    let service = service.clone();
    Setup::new(always(text("over TCP")))
        .plugins(move |registry| registry.provider("served", move |_: NoConfig| Ok(service.clone())))
        .agent(|agent| agent["llm"] = json!({ "provider": "served", "retry": { "jitter": "none" } }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_the_program_serves_answers_piece_by_piece_and_is_counted() {
    let mut usage = TokenUsage::default();
    (usage.input, usage.output) = (7, 3);
    let mut steps = answer(&["one ", "two"]);
    steps.push(Step::Event(StreamEvent::Usage(usage)));
    let service = serving([steps]);
    let lab = served(&service).start().await;
    let outcome = lab.watch(hi()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "one two");
    assert_eq!(kept_text(&outcome.chunks), "one two");
    assert_eq!(outcome.events_of(names::LLM_DELTA).len(), 2);
    let told = &outcome.result().usage;
    assert_eq!((told.llm_calls, told.total_tokens, told.estimated_tokens), (1, 10, 0));
    assert!(told.ttft_ms.is_some());
    // Its model is called like the provider where the config does not say, and nothing went over the wire.
    assert_eq!((service.asked(), lab.requests()), (vec!["served hi None".to_owned()], 0));
    assert_eq!(outcome.events_of(names::LLM_CALLED)[0].payload["model"], "served");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_to_be_streamed_whoever_watches_gets_the_answer_in_one_piece() {
    let service = serving([answer(&["one ", "two"])]);
    let outcome = served(&service)
        .agent(|agent| agent["llm"]["stream"] = json!("never"))
        .start()
        .await
        .watch(hi())
        .await;
    assert_eq!(
        (kept_text(&outcome.chunks).as_str(), outcome.events_of(names::LLM_DELTA).len()),
        ("one two", 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn it_asks_for_tools_and_goes_on_with_their_results() {
    let call = Delta::ToolCall {
        index: 0,
        id: Some("c".to_owned()),
        name: Some("probe".to_owned()),
        text: "{\"n\":1}".to_owned(),
    };
    let calls = vec![
        Step::Event(StreamEvent::Delta(call)),
        Step::Event(StreamEvent::Finish(FinishReason::ToolCalls)),
    ];
    let service = serving([calls, answer(&["done"])]);
    let probe = Probe::saying("x");
    let outcome = served(&service).tool("probe", probe.clone()).start().await.run(hi()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "done");
    assert_eq!((probe.calls(), service.asked().len()), (vec![json!({ "n": 1 })], 2));
}

/// retry.md §2: the delays of transport, then of the session; Retry-After is a floor.
#[tokio::test(flavor = "multi_thread")]
async fn its_failures_are_classified_and_retried_like_any_providers() {
    let service = serving([fails(Failure::status(503, b""))]);
    let outcome = served(&service).start().await.run(hi()).await;
    let error = outcome.error();
    assert_eq!((error.code(), error.reason()), (codes::LLM_CONNECTION, Some("server_error")));
    assert_eq!((outcome.waits(), service.asked().len(), error.attempts().len()), (T_THEN_S.to_vec(), 6, 6));
    assert_eq!(error.context("provider"), Some(&json!("served")));

    let throttle = Failure::status(429, b"").with_headers([("retry-after", "7")]);
    let service = serving([fails(throttle), answer(&["ok"])]);
    let outcome = served(&service).start().await.run(hi()).await;
    assert_eq!((outcome.output.as_deref().unwrap(), outcome.waits()), ("ok", vec![7_000]));

    let refused = Failure::transport(Phase::Connect, TransportKind::Refused, "nobody is at the counter");
    let service = serving([fails(refused), answer(&["ok"])]);
    let outcome = served(&service).start().await.run(hi()).await;
    assert_eq!((outcome.output.as_deref().unwrap(), outcome.waits()), ("ok", vec![500]));

    let service = serving([fails(Failure::status(400, br#"{"error":{"message":"no such thing"}}"#))]);
    let outcome = served(&service).start().await.run(hi()).await;
    assert_eq!((outcome.error().code(), service.asked().len()), (codes::LLM_RESPONSE, 1));
    assert!(outcome.error().message().contains("served/served failed permanently: "), "{}", outcome.error());
}

/// design.md §5, promises 4 and 5.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_or_never_ends_is_a_failure_and_what_was_said_is_taken_back() {
    let cut = vec![says("half an ")];
    let broken = vec![
        says("half an "),
        Step::Fails(Box::new(Failure::transport(Phase::MidStream, TransportKind::Reset, "reset"))),
    ];
    for broken in [cut, broken] {
        let service = serving([broken, answer(&["whole"])]);
        let lab = served(&service).start().await;
        let outcome = lab.watch(hi()).await;
        assert_eq!((outcome.output.as_deref().unwrap(), outcome.waits()), ("whole", vec![2_000]));
        assert_eq!(kept_text(&outcome.chunks), "whole");
        assert_eq!(outcome.events_of(names::LLM_RESTARTED).len(), 1);
        // What the failed attempt said counts, as our guess.
        assert!(outcome.result().usage.estimated_tokens > 0);
    }
    let service = serving([vec![ends()]]);
    let outcome = served(&service).agent(no_retries).start().await.run(hi()).await;
    assert_eq!(outcome.error().reason(), Some("empty_response"), "{}", outcome.error());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_is_ended_by_the_clocks_of_the_model() {
    for (steps, limit, setting) in [
        (vec![Step::Hangs], "first_byte_ms", "llm.timeouts.first_byte_ms"),
        (vec![says("one"), Step::Hangs], "idle_ms", "llm.timeouts.idle_ms"),
        (vec![says("one"), Step::Hangs], "attempt_ms", "llm.timeouts.attempt_ms"),
    ] {
        let service = serving([steps]);
        let setup = served(&service).agent(no_retries);
        let outcome = setup
            .agent(move |agent| agent["llm"]["timeouts"] = json!({ limit: 100 }))
            .start()
            .await
            .run(hi())
            .await;
        assert_eq!(
            (outcome.error().code(), outcome.context("setting")),
            (codes::LLM_CONNECTION, json!(setting))
        );
    }
    // And by the run's own.
    let service = serving([vec![Step::Hangs]]);
    let outcome = served(&service).start().await.run(hi().timeout(Duration::from_millis(200))).await;
    assert_eq!(outcome.error().code(), codes::EXECUTION_TIMEOUT);
    // An answer that is whole is not waited for any longer than a moment.
    let service = serving([vec![says("one"), ends(), Step::Hangs]]);
    let setup = served(&service).agent(|agent| agent["llm"]["timeouts"] = json!({ "idle_ms": 100 }));
    assert_eq!(setup.start().await.run(hi()).await.output.unwrap(), "one");
}

struct PanicsAtOnce;

impl ModelService for PanicsAtOnce {
    fn ask<'a>(&'a self, _request: ServiceRequest<'a>) -> AnswerStream<'a> {
        burnt()
    }
}

struct OffersPanic;

impl ModelService for OffersPanic {
    fn offers(&self) -> &[Capability] {
        burnt()
    }

    fn ask<'a>(&'a self, _request: ServiceRequest<'a>) -> AnswerStream<'a> {
        burnt()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_panics_fails_its_run_and_nothing_else() {
    let later = serving([vec![says("one"), Step::Panics]]);
    let at_once = Setup::new(always(text("never")))
        .plugins(|registry| registry.provider("at_once", |_: NoConfig| Ok(PanicsAtOnce)))
        .agent(|agent| agent["llm"] = json!({ "provider": "at_once" }));
    for setup in [served(&later), at_once] {
        let outcome = setup.start().await.run(hi()).await;
        assert_eq!(outcome.error().code(), codes::LLM_ERROR);
        assert!(outcome.error().message().contains("the model call panicked: out of cheese"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_leads_from_it_to_a_vendor_and_back() {
    let spent = br#"{"error":{"message":"no money","code":"insufficient_quota"}}"#;
    let lab = Lab::new(always(text("over TCP"))).await;
    let (service, address) = (serving([answer(&["served"])]), lab.server.base_url());
    let back = service.clone();
    let over_tcp = Setup::new(always(http(429, json!({}), serde_json::from_slice(spent).unwrap())))
        .plugins(move |registry| registry.provider("served", move |_: NoConfig| Ok(back.clone())))
        .agent(|agent| agent["llm"]["fallbacks"] = json!([{ "provider": "served", "model": "second" }]));
    let outcome = over_tcp.start().await.run(hi()).await;
    assert_eq!((outcome.output.as_deref().unwrap(), outcome.log.len()), ("served", 1));
    assert_eq!(service.asked(), ["second hi None"]);

    let there = served(&serving([fails(Failure::status(429, spent))])).agent(move |agent| {
        agent["llm"]["fallbacks"] =
            json!([{ "provider": "openai_compatible", "model": "m", "api_base": address }]);
    });
    assert_eq!(there.start().await.run(hi()).await.output.unwrap(), "over TCP");
}

/// Gives one key after the other.
struct Keys(Mutex<Vec<&'static str>>);

impl CredentialSource for Keys {
    fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        let mut keys = self.0.lock().unwrap();
        let key = if keys.len() > 1 { keys.remove(0) } else { keys[0] };
        Box::pin(std::future::ready(Ok(Credential::new(key))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_gets_the_credential_of_the_config_or_the_run_and_one_that_it_repeats_is_not_shown() {
    // Cargo sets it for every test.
    let service = serving([answer(&["ok"])]);
    let lab =
        served(&service).agent(|agent| agent["llm"]["api_key_env"] = json!("CARGO_PKG_NAME")).start().await;
    lab.run(hi()).await.output.unwrap();
    assert_eq!(service.asked(), ["served hi Some(\"aplomb\")"]);

    let refused = Failure::status(401, br#"{"error":{"message":"canary-0123456789 is not known"}}"#);
    let service = serving([fails(refused.clone()), answer(&["ok"]), fails(refused)]);
    let lab = served(&service).start().await;
    let keys = || Keys(Mutex::new(vec!["canary-0123456789", "canary-9876543210"]));
    let outcome = lab.run(hi().credential(keys())).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "ok");
    assert!(service.asked()[1].contains("canary-9876543210"), "{:?}", service.asked());
    let outcome = lab
        .run(RunRequest::new("assistant", "again").credential(Keys(Mutex::new(vec!["canary-0123456789"]))))
        .await;
    let told = format!("{:?} {:?}", outcome.events, outcome.error());
    assert!(told.contains("is not known") && !told.contains("canary"), "{told}");
}

// ---- What its config says.

/// Says its word.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Word {
    /// What it says.
    word: String,
    #[serde(default)]
    #[schemars(range(max = 3))]
    times: Option<usize>,
}

impl ModelService for Word {
    fn ask<'a>(&'a self, _request: ServiceRequest<'a>) -> AnswerStream<'a> {
        let message = Message::text(Role::Assistant, self.word.repeat(self.times.unwrap_or(1)));
        whole(async move { Ok(Reply { message, finish: FinishReason::Stop, usage: None }) })
    }
}

fn registry() -> Registry {
    let mut acme = Vendor::new("acme", Wire::OpenaiChat);
    (acme.place, acme.key_variable) = (Place::At("http://127.0.0.1:1/v1"), Some("APLOMB_TEST_ACME"));
    acme.needs_key = true;
    Registry::new()
        .provider("word", |config: Word| Ok(config))
        .provider("torn", |_: NoConfig| Ok(OffersPanic))
        .vendor(acme)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_made_of_its_provider_config() {
    let lab = Setup::new(always(text("never")))
        .plugins(|_| registry())
        .agent(|agent| {
            let config = json!({ "word": "ha", "times": 3 });
            agent["llm"] = json!({ "provider": "word", "model": "laughs", "provider_config": config });
        })
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    assert_eq!(outcome.output.as_deref().unwrap(), "hahaha");
    assert_eq!(outcome.events_of(names::LLM_CALLED)[0].payload["model"], "laughs");
}

/// What is said of an `llm`, with the agent's tools where it is to have one.
fn said_of(llm: Value, has_tool: bool) -> Error {
    refused(registry(), |document| {
        document["agents"][0]["llm"] = llm;
        if has_tool {
            document["agents"][0]["tools"] = json!([{ "id": "calc", "type": "calc" }]);
        }
    })
}

#[test]
fn what_is_wrong_with_a_provider_of_ones_own_is_named_with_its_path() {
    let word = |config: Value| json!({ "provider": "word", "provider_config": config });
    let fallback = json!([{ "provider": "word", "provider_config": { "wrod": "ha" } }]);
    for (llm, code, said, hint) in [
        (
            word(json!({ "wrod": "ha" })),
            codes::PLUGIN_CONFIG,
            "agents[0].llm.provider_config.wrod: there is no key \"wrod\" (agent.json:",
            Some("did you mean \"word\"?"),
        ),
        (
            word(json!({ "word": "ha", "times": 4 })),
            codes::PLUGIN_CONFIG,
            "agents[0].llm.provider_config.times: 4 is not in 0..=3 (agent.json:",
            None,
        ),
        (
            json!({ "provider": "word" }),
            codes::PLUGIN_CONFIG,
            "agents[0].llm.provider_config.word: \"word\" is missing (agent.json:",
            None,
        ),
        (
            json!({ "provider": "mock", "script": always(text("never")), "fallbacks": fallback }),
            codes::PLUGIN_CONFIG,
            "agents[0].llm.fallbacks[0].provider_config.wrod: there is no key \"wrod\"",
            Some("did you mean \"word\"?"),
        ),
        (
            json!({ "provider": "wrod" }),
            codes::CONFIG_VALIDATION,
            "agents[0].llm.provider: no provider is called \"wrod\" (agent.json:",
            Some("did you mean \"word\"?"),
        ),
        (
            json!({ "provider": "antropic", "model": "m" }),
            codes::CONFIG_VALIDATION,
            "agents[0].llm.provider: no provider is called \"antropic\"",
            Some("did you mean \"anthropic\"?"),
        ),
        (
            json!({ "provider": "banana" }),
            codes::CONFIG_VALIDATION,
            "the providers are acme, anthropic, anthropic_compatible, azure,",
            None,
        ),
        (
            json!({ "provider": "word", "provider_config": { "word": "ha" }, "api_base": "http://127.0.0.1:1" }),
            codes::CONFIG_VALIDATION,
            "agents[0].llm.api_base: word is served in this process (agent.json:",
            None,
        ),
        (
            json!({ "provider": "anthropic", "model": "m", "provider_config": { "word": "ha" } }),
            codes::CONFIG_VALIDATION,
            "agents[0].llm.provider_config: anthropic takes the other keys of `llm`",
            None,
        ),
        (
            json!({ "provider": "torn" }),
            codes::PLUGIN_ERROR,
            "provider \"torn\" panicked when it was asked what it offers: out of cheese",
            None,
        ),
        (
            json!({ "provider": "acme", "model": "m" }),
            codes::CONFIG_LOAD,
            "acme needs a key, and APLOMB_TEST_ACME is not set",
            None,
        ),
    ] {
        let error = said_of(llm, false);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert!(hint.is_none_or(|hint| error.hint() == Some(hint)), "{error}");
    }
}

#[test]
fn what_it_does_not_offer_is_refused_with_both_names() {
    let error = said_of(json!({ "provider": "word", "provider_config": { "word": "ha" } }), true);
    assert_eq!(error.code(), codes::PLUGIN_CAPABILITY);
    assert!(
        error.message().contains("an agent with tools needs tools, which provider \"word\" does not offer")
    );
    // A fallback has to offer it, too.
    let fallbacks = json!([{ "provider": "word", "provider_config": { "word": "ha" } }]);
    let script = always(text("never"));
    let error = said_of(json!({ "provider": "mock", "script": script, "fallbacks": fallbacks }), true);
    assert_eq!(error.code(), codes::PLUGIN_CAPABILITY);
}

#[test]
fn a_name_that_is_a_built_in_providers_is_refused() {
    let mock = Registry::new().provider("mock", |config: Word| Ok(config));
    let openai = Registry::new().vendor(Vendor::new("openai", Wire::Gemini));
    for registry in [mock, openai] {
        let error = refused(registry, |_| ());
        assert_eq!((error.code(), error.hint()), (codes::PLUGIN_ERROR, Some("give yours another name")));
    }
}

#[test]
fn they_are_listed_with_their_schemas() {
    let listed = registry().list();
    let find = |name: &str| {
        listed.iter().find(|plugin| plugin.seam == Seam::Provider && plugin.name == name).unwrap()
    };
    let word = find("word");
    assert_eq!((word.origin, word.summary.as_str()), (Origin::Program, "Says its word."));
    assert_eq!(word.config.as_ref().unwrap()["properties"]["times"]["maximum"], 3);
    let acme = find("acme");
    assert_eq!((acme.origin, acme.config.is_none()), (Origin::Program, true));
    assert_eq!(acme.summary, "OpenAI's Chat Completions or Responses, at http://127.0.0.1:1/v1.");
    assert_eq!(find("openai").origin, Origin::BuiltIn);
}

/// A document that names a provider of the program's own is read before the program's registry is known.
#[tokio::test(flavor = "multi_thread")]
async fn validate_and_policy_know_it() {
    let llm = json!({ "provider": "word", "provider_config": { "word": "ha" } });
    let document = json!({ "version": "1.0", "agents": [{ "id": "assistant", "llm": llm }] });
    let config = || Config::from_json(&document.to_string(), "agent.json").unwrap();
    let builder = || Runtime::builder(config()).plugins(registry());
    assert!(builder().validate(true).unwrap().is_empty());
    assert_eq!(builder().policy_overview("assistant", None).unwrap().classes["503"].additive.run.requests, 6);
    assert!(Runtime::builder(config()).build().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_of_ones_own_is_asked_as_its_row_says() {
    let lab = Setup::new(always(text("from acme")))
        .plugins(|registry| {
            let mut acme = Vendor::new("acme", Wire::OpenaiChat);
            acme.key_variable = Some("CARGO_PKG_NAME");
            registry.vendor(acme)
        })
        .agent(|agent| {
            agent["llm"]["provider"] = json!("acme");
            agent["llm"]["api_key_env"] = json!("CARGO_PKG_NAME");
        })
        .start()
        .await;
    let outcome = lab.run(hi()).await;
    outcome.gives("from acme", NO_RETRY);
    assert_eq!(outcome.log[0].headers["authorization"], "Bearer aplomb");
    let without_address = said_of(
        json!({ "provider": "acme", "model": "m", "api_key_env": "CARGO_PKG_NAME", "api_version": "1" }),
        false,
    );
    assert!(
        without_address.message().contains("llm.api_version: a version has no use with acme"),
        "{without_address}"
    );
}
