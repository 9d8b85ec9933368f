//! A secret that is made up for each run goes in wherever one can, and comes out nowhere; a word beside it, which is no
//! credential, comes out everywhere.
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex};

use crate::support::*;
use aplomb::config::Config;
use aplomb::event::names;
use aplomb::host::ScaledHost;
use aplomb::plugins::{NoConfig, Registry};
use aplomb::{Ask, ChunkKind, Error, Event, Pattern, RunRequest, RunStreamChunk, Runtime, View, codes};
use serde_json::{Value, json};

/// A word that nobody has said before, of no form that is a credential's.
fn fresh() -> String {
    format!("qz{:016x}", RandomState::new().build_hasher().finish())
}

// ---- Sinks.

/// What came out, by the place where it came out.
#[derive(Default)]
struct Sinks(BTreeMap<&'static str, Vec<String>>);

/// All of them.
const ALL: [&str; 6] = ["events", "result", "error", "chunks", "exec", "on_retry"];

impl Sinks {
    fn add(&mut self, sink: &'static str, texts: impl IntoIterator<Item = String>) {
        self.0.entry(sink).or_default().extend(texts);
    }

    fn add_error(&mut self, sink: &'static str, error: &Error) {
        let details = error.details();
        self.add(
            sink,
            [
                format!("{error}\n{error:?}\n{error:#?}\n{}", error.message()),
                format!("{:?}\n{:?}", error.attempts(), error.hint()),
                format!("{details:?}\n{}", serde_json::to_string(&details).unwrap()),
                serde_json::to_string(error).unwrap(),
            ],
        );
        let mut cause = StdError::source(error);
        while let Some(error) = cause {
            self.add(sink, [format!("{error}\n{error:?}")]);
            cause = error.source();
        }
    }

    /// The model's own words are its own, and are looked at elsewhere.
    fn add_events(&mut self, events: &[Event]) {
        let told = events.iter().filter(|event| event.name != names::LLM_DELTA);
        self.add("events", told.map(|event| format!("{event:?}\n{}", serde_json::to_string(event).unwrap())));
    }

    fn add_chunks(&mut self, chunks: &[RunStreamChunk]) {
        let told = chunks.iter().filter(|chunk| chunk.kind != ChunkKind::LlmDelta);
        self.add("chunks", told.map(|chunk| format!("{chunk:?}\n{}", serde_json::to_string(chunk).unwrap())));
    }

    /// The sinks that hold that word, as it is or as JSON or Rust write it.
    fn with(&self, word: &str) -> Vec<&'static str> {
        let quoted = json!(word).to_string();
        let written = quoted.trim_matches('"').to_owned();
        let twice = json!(written).to_string().trim_matches('"').to_owned();
        let holds = |text: &String| [word, &written, &twice].iter().any(|form| text.contains(*form));
        self.0.iter().filter(|(_, texts)| texts.iter().any(holds)).map(|(sink, _)| *sink).collect()
    }

    /// The sinks that have seen nothing, of those that should have.
    #[track_caller]
    fn saw_something(&self, sinks: &[&str]) {
        for sink in sinks {
            assert!(self.0.get(sink).is_some_and(|texts| !texts.is_empty()), "{sink} has seen nothing");
        }
    }
}

/// Asks in every way that there is, and keeps what is told.
async fn listen(setup: impl Fn() -> Setup) -> Sinks {
    let mut sinks = Sinks::default();
    let at_once = |setup: Setup| setup.build(|builder| builder.host(ScaledHost::new(0.0)));
    let outcome = at_once(setup()).start().await.run(hi()).await;
    let result = outcome.result();
    sinks.add("result", [format!("{result:?}\n{}", serde_json::to_string(result).unwrap())]);
    sinks.add_events(&outcome.events);
    if let Err(error) = &outcome.output {
        sinks.add_error("error", error);
    }
    let outcome = at_once(setup()).start().await.watch(hi()).await;
    sinks.add_events(&outcome.events);
    sinks.add_chunks(&outcome.chunks);
    if let Err(error) = &outcome.output {
        sinks.add_error("error", error);
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = heard.clone();
    let hook = move |retry: &aplomb::Retry| kept.lock().unwrap().push(format!("{retry}\n{retry:?}"));
    let outcome = at_once(setup()).start().await.exec(|exec| exec.on_retry(hook)).await;
    sinks.add_events(&outcome.events);
    if let Err(error) = &outcome.output {
        sinks.add_error("exec", error);
    }
    sinks.add("on_retry", heard.lock().unwrap().drain(..));
    sinks
}

// ---- What the provider repeats.

/// The variable that every test run has, as the key's.
const KEY_VARIABLE: &str = "CARGO_MANIFEST_DIR";

fn key() -> String {
    std::env::var(KEY_VARIABLE).unwrap()
}

/// How a secret is given to an agent: where it goes in the config.
#[derive(Debug, Clone, Copy)]
enum Given {
    Header,
    BearerHeader,
    OwnAuthorization,
    Key,
}

impl Given {
    const ALL: [Given; 4] = [Given::Header, Given::BearerHeader, Given::OwnAuthorization, Given::Key];

    fn secret(self) -> String {
        match self {
            Given::Key => key(),
            _ => fresh(),
        }
    }

    fn to(self, agent: &mut Value, secret: &str) {
        let headers = match self {
            Given::Header => json!({ "x-team": secret }),
            Given::BearerHeader => json!({ "x-team": format!("Bearer {secret}") }),
            Given::OwnAuthorization => json!({ "authorization": format!("Bearer {secret}") }),
            Given::Key => {
                agent["llm"]["api_key_env"] = json!(KEY_VARIABLE);
                return;
            }
        };
        agent["llm"]["extra_headers"] = headers;
    }
}

/// Answers that are asked for again, with that word in them; where it stands, and whether every sink shows it there.
fn echoes(word: &str) -> Vec<(&'static str, bool, Value)> {
    let said = format!("wrong key {word} given, with Authorization: Bearer {word}");
    let named = |error: Value| json!({ "error": error });
    let no_headers = || json!({});
    let broken = json!({ "error_event": { "after_events": 0, "body": named(json!({ "message": said, "type": "server_error" })) } });
    vec![
        ("message", true, http(503, no_headers(), named(json!({ "message": said })))),
        ("code", true, http(503, no_headers(), named(json!({ "code": word })))),
        ("type", true, http(503, no_headers(), named(json!({ "type": word })))),
        ("text", true, http(502, no_headers(), json!(said))),
        ("page", true, http(502, json!({ "content-type": "text/html" }), json!(format!("<b>{word}</b>")))),
        ("other shape", true, http(500, no_headers(), json!({ "detail": [{ "msg": said }] }))),
        ("error as a text", true, http(500, no_headers(), json!({ "error": said }))),
        ("a throttle's message", true, http(429, no_headers(), named(json!({ "message": said })))),
        ("200 with an error", true, http(200, no_headers(), named(json!({ "message": said, "code": 503 })))),
        ("error event", true, with_fault(text("one"), broken)),
        ("request id", false, http(503, json!({ "x-request-id": word }), Value::Null)),
        ("param", false, http(503, no_headers(), named(json!({ "message": "no", "param": word })))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_the_provider_repeats_comes_out_nowhere() {
    for given in Given::ALL {
        let (secret, control) = (given.secret(), fresh());
        let mut leaks = Vec::new();
        for (place, everywhere, _) in echoes("") {
            // The same answer with both.
            let step = |word: &str| echoes(word).into_iter().find(|(name, ..)| *name == place).unwrap().2;
            let sinks = listen(|| {
                let secret = secret.clone();
                Setup::new(always(step(&secret))).agent(move |agent| given.to(agent, &secret))
            })
            .await;
            sinks.saw_something(&ALL);
            let found = sinks.with(&secret);
            if !found.is_empty() {
                leaks.push((place, found));
            }
            if matches!(given, Given::Header) {
                let sinks = listen(|| {
                    let secret = secret.clone();
                    Setup::new(always(step(&control))).agent(move |agent| given.to(agent, &secret))
                })
                .await;
                let found = sinks.with(&control);
                let mut all = ALL;
                all.sort_unstable();
                assert!(if everywhere { found == all } else { !found.is_empty() }, "{place}: {found:?}");
            }
        }
        assert!(leaks.is_empty(), "{given:?}: {leaks:#?}");
    }
}

/// A header may hold several words; each is a part of the credential.
async fn echoed_header(value: &str, parts: &[&str]) -> Vec<(String, Vec<&'static str>)> {
    let sinks = listen(|| {
        let value = value.to_owned();
        let said = format!("not allowed with {value} at all");
        Setup::new(always(http(503, json!({}), json!({ "error": { "message": said } }))))
            .agent(move |agent| agent["llm"]["extra_headers"] = json!({ "x-team": value }))
    })
    .await;
    sinks.saw_something(&ALL);
    let found = parts.iter().map(|part| ((*part).to_owned(), sinks.with(part)));
    found.filter(|(_, sinks)| !sinks.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_with_signs_in_it_comes_out_nowhere() {
    let secret = fresh();
    let mut leaks = Vec::new();
    for value in [
        format!("{secret}/+=="),
        format!("Token {secret}"),
        format!("Basic {secret}=="),
        format!("{secret}.{secret}-_~"),
        format!("a b {secret}"),
    ] {
        leaks.extend(echoed_header(&value, &[&secret]).await.into_iter().map(|leak| (value.clone(), leak)));
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_json_writes_in_another_form_comes_out_nowhere() {
    let secret = fresh();
    let mut leaks = Vec::new();
    for value in [format!("{secret}\"quoted"), format!("{secret}\\slashed")] {
        leaks.extend(echoed_header(&value, &[&secret]).await.into_iter().map(|leak| (value.clone(), leak)));
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_which_a_part_has_a_telling_form_comes_out_nowhere_in_any_part() {
    let (first, second, third) = (fresh(), fresh(), fresh());
    let mut leaks = Vec::new();
    for value in [
        format!("session_token={first};csrf={second};team={third}"),
        format!("session_token={first}; csrf={second}; team={third}"),
        format!("SharedAccessKey={first};sig={second}"),
        format!("sk-{first},{second}"),
    ] {
        leaks.extend(
            echoed_header(&value, &[&first, &second, &third])
                .await
                .into_iter()
                .map(|leak| (value.clone(), leak)),
        );
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

// ---- What tools and patterns repeat.

/// The sinks of what happens inside a run that goes on.
const INSIDE: [&str; 2] = ["chunks", "events"];

/// The model calls the tool `probe` with these arguments, and is done. The secret is a header of the agent's.
fn with_probe(secret: &str, arguments: &Value, probe: Probe) -> Setup {
    let secret = secret.to_owned();
    Setup::new(once([calls(&[("probe", arguments.clone())]), text("done")]))
        .tool("probe", probe)
        .agent(move |agent| Given::BearerHeader.to(agent, &secret))
}

/// Makes a tool that says a word.
type MakeProbe = fn(String) -> Probe;

/// The ways in which a tool can let a word slip.
const SLIPS: [(&str, MakeProbe); 8] = [
    ("message", |word| fails(move || Error::new(codes::TOOL_AUTH, format!("{word} was refused")))),
    ("hint", |word| {
        fails(move || Error::new(codes::TOOL_AUTH, "refused").with_hint(format!("renew {word}")))
    }),
    ("context", |word| {
        fails(move || Error::new(codes::TOOL_AUTH, "refused").with_context("header", json!({ "h": [word] })))
    }),
    ("foreign cause", |word| {
        fails(move || {
            Error::new(codes::TOOL_AUTH, "refused").with_foreign_cause(io::Error::other(word.clone()))
        })
    }),
    ("cause", |word| {
        fails(move || {
            Error::new(codes::TOOL_AUTH, "refused").with_cause(Error::new(codes::TOOL_ERROR, word.clone()))
        })
    }),
    ("panic", |word| Probe::new(move |_| -> std::future::Ready<_> { panic!("{word} was refused") })),
    ("result", |word| Probe::new(move |_| std::future::ready(Ok(json!(format!("GET with {word}: ok")))))),
    ("deep result", |word| {
        Probe::new(move |_| std::future::ready(Ok(json!({ "sent": [{ "with": word }] }))))
    }),
];

fn fails(error: impl Fn() -> Error + Send + Sync + 'static) -> Probe {
    Probe::new(move |_| std::future::ready(Err(error())))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_tool_lets_slip_comes_out_nowhere() {
    let (secret, control) = (fresh(), fresh());
    for (slip, make) in SLIPS {
        let sinks = listen(|| with_probe(&secret, &json!({}), make(secret.clone()))).await;
        sinks.saw_something(&["events", "result", "chunks"]);
        assert_eq!(sinks.with(&secret), [""; 0], "{slip}");
        let sinks = listen(|| with_probe(&secret, &json!({}), make(control.clone()))).await;
        assert_eq!(sinks.with(&control), INSIDE, "{slip}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_tools_retries_repeat_comes_out_nowhere() {
    let secret = fresh();
    let control = fresh();
    for word in [&secret, &control] {
        let sinks = listen(|| {
            let said = word.clone();
            let probe = fails(move || Error::new(codes::TOOL_UNAVAILABLE, format!("{said} was refused")));
            with_probe(&secret, &json!({}), probe)
                .agent(|agent| agent["tool_executor"] = json!({ "type": "retry" }))
        })
        .await;
        let requested = |text: &&String| text.contains("tool.retry_requested");
        assert_eq!(sinks.0["events"].iter().filter(requested).count(), 3 * 2); // runs × retries
        assert_eq!(!sinks.with(word).is_empty(), *word == control);
    }
}

/// Ends the run with what it is told to say.
#[derive(Clone)]
struct Says(Arc<dyn Fn() -> Ask + Send + Sync>);

impl Pattern for Says {
    fn kind(&self) -> &str {
        "says"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, _view: View<'_>) -> Ask {
        (self.0)()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_pattern_lets_slip_comes_out_nowhere() {
    type Slip = fn(&str) -> Ask;
    let slips: [Slip; 3] = [
        |word| Ask::Fail(Error::foreign(codes::PATTERN_ERROR, io::Error::other(format!("no {word}")))),
        |word| Ask::Fail(Error::new(codes::PATTERN_ERROR, "no").with_context("why", word).with_hint(word)),
        |word| panic!("no {word}"),
    ];
    let (secret, control) = (fresh(), fresh());
    for slip in slips {
        for word in [&secret, &control] {
            let sinks = listen(|| {
                let (word, secret) = (word.clone(), secret.clone());
                let says = Says(Arc::new(move || slip(&word)));
                Setup::new(always(text("never")))
                    .pattern(says)
                    .agent(move |agent| Given::Header.to(agent, &secret))
            })
            .await;
            let sinks_of_an_end = ["chunks", "error", "events", "exec", "result"];
            sinks.saw_something(&sinks_of_an_end);
            let expected = if *word == control { &sinks_of_an_end[..] } else { &[] };
            assert_eq!(sinks.with(word), expected);
        }
    }
}

// ---- Arguments whose name says what they are.

/// What comes out of a call with these arguments. The tool itself gets them as they are.
async fn argued(arguments: Value, change: fn(&mut Value)) -> Sinks {
    let sinks = listen(|| with_probe("a-header", &arguments, Probe::saying("x")).agent(change)).await;
    sinks.saw_something(&["events", "result", "chunks"]);
    sinks
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_that_is_called_a_secret_comes_out_nowhere_and_the_tool_gets_it() {
    let (secret, control) = (fresh(), fresh());
    let arguments = json!({
        "user": control, "password": secret, "api_key": secret, "Token": secret, "SECRET": secret,
        "deep": [{ "apiKey": secret, "headers": { "Authorization": format!("Basic {secret}") } }],
    });
    let sinks = argued(arguments.clone(), |_| ()).await;
    assert_eq!((sinks.with(&secret), sinks.with(&control)), (vec![], INSIDE.to_vec()));
    let probe = Probe::saying("x");
    with_probe(&secret, &arguments, probe.clone()).start().await.run(hi()).await;
    assert_eq!(probe.calls(), [arguments]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_place_of_a_name_comes_out_nowhere_and_the_tool_gets_it() {
    let (secret, control) = (fresh(), fresh());
    let mut arguments = json!({});
    arguments[&secret] = json!({ control.as_str(): 1 });
    let probe = Probe::saying("x");
    let sinks = listen(|| with_probe(&secret, &arguments, probe.clone())).await;
    sinks.saw_something(&["events", "result", "chunks"]);
    assert_eq!((sinks.with(&secret), sinks.with(&control)), (vec![], INSIDE.to_vec()));
    assert_eq!(probe.calls()[0], arguments);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_says_which_names_are_secrets() {
    let (secret, control) = (fresh(), fresh());
    let document = |address: &str| {
        let tool = |agent: &mut Value| agent["tools"] = json!([{ "id": "probe", "impl": "probe" }]);
        let mut document = document(address, tool);
        document["diagnostics"] = json!({ "redact_keys": ["pin"] });
        Config::from_json(&document.to_string(), "agent.json").unwrap()
    };
    let arguments = json!({ "PIN": secret, "password": control });
    let script = once([calls(&[("probe", arguments)]), text("done")]);
    let server = aplomb_faultlab::server::FaultServer::start(
        aplomb::config::Script::from_json(&script.to_string()).unwrap(),
    )
    .await
    .unwrap();
    let runtime = Runtime::builder(document(&server.base_url()))
        .plugins(Registry::new().tool("probe", |_: NoConfig| Ok(Probe::saying("x"))))
        .build()
        .unwrap();
    let stream = runtime.run_stream(hi()).unwrap();
    let chunks: Vec<_> = in_time(futures_util::StreamExt::collect(stream)).await;
    let mut sinks = Sinks::default();
    sinks.add_chunks(&chunks);
    assert_eq!((sinks.with(&secret), sinks.with(&control)), (vec![], vec!["chunks"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_that_is_called_a_secret_and_holds_several_comes_out_nowhere() {
    let secret = fresh();
    for value in [json!([secret]), json!({ "value": secret })] {
        let sinks = argued(json!({ "password": value }), |_| ()).await;
        assert_eq!(sinks.with(&secret), [""; 0], "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_that_is_called_a_secret_comes_out_nowhere_where_the_call_is_broken() {
    let (secret, control) = (fresh(), fresh());
    let whole = json!({ "user": control, "password": secret }).to_string();
    // Cut off in the middle, and with something behind it.
    let cut = whole.strip_suffix('}').unwrap().to_owned();
    for broken in [json!(cut), json!(format!("{whole}{{"))] {
        let sinks = argued(broken.clone(), |_| ()).await;
        assert_eq!((sinks.with(&secret), sinks.with(&control)), (vec![], INSIDE.to_vec()), "{broken}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_that_is_called_a_secret_comes_out_nowhere_where_it_does_not_fit() {
    let (secret, control) = (fresh(), fresh());
    let schema = json!({ "type": "object", "properties": {
        "user": { "type": "integer" }, "password": { "type": "integer" },
    } });
    let arguments = json!({ "user": control, "password": secret });
    let probe = Probe::saying("x").parameters(schema);
    let sinks = listen(|| with_probe("a-header", &arguments, probe.clone())).await;
    assert_eq!(probe.calls(), [Value::Null; 0]);
    assert_eq!((sinks.with(&secret), sinks.with(&control)), (vec![], INSIDE.to_vec()));
}

// ---- Mistakes in a config.

/// Everything that a refusal says.
fn refusal(document: &Value) -> (Error, Sinks) {
    let read = Config::from_json(&document.to_string(), "agent.json");
    let error = read.and_then(|config| Runtime::builder(config).build()).err().expect("it is a mistake");
    let mut sinks = Sinks::default();
    sinks.add_error("error", &error);
    (error, sinks)
}

#[test]
fn a_secret_in_the_wrong_place_of_a_config_comes_out_nowhere() {
    let secret = fresh();
    let base = |change: &dyn Fn(&mut Value)| document("http://127.0.0.1:1/v1", |agent| change(agent));
    let upper = secret.to_uppercase();
    let mistakes: [(&str, Value); 14] = [
        ("the key for its variable", base(&|agent| agent["llm"]["api_key_env"] = json!(secret))),
        ("a key in capitals", base(&|agent| agent["llm"]["api_key_env"] = json!(upper))),
        ("a key of a known form", base(&|agent| agent["llm"]["api_key_env"] = json!(format!("sk-{secret}")))),
        ("a key that is none of ours", base(&|agent| agent["llm"]["api_key"] = json!(secret))),
        ("a header in place of headers", base(&|agent| agent["llm"]["extra_headers"] = json!(secret))),
        ("a list of headers", base(&|agent| agent["llm"]["extra_headers"] = json!([secret]))),
        (
            "headers of a header",
            base(&|agent| agent["llm"]["extra_headers"] = json!({ "authorization": { "Bearer": secret } })),
        ),
        (
            "a header of two lines",
            base(&|agent| agent["llm"]["extra_headers"] = json!({ "authorization": format!("{secret}\n") })),
        ),
        (
            "a user's name",
            base(&|agent| agent["llm"]["api_base"] = json!(format!("http://{secret}@127.0.0.1/v1"))),
        ),
        (
            "a password",
            base(&|agent| agent["llm"]["api_base"] = json!(format!("http://user:{secret}@127.0.0.1/v1"))),
        ),
        (
            "a query",
            base(&|agent| agent["llm"]["api_base"] = json!(format!("http://127.0.0.1/v1?key={secret}"))),
        ),
        ("a number's place", base(&|agent| agent["llm"]["max_tokens"] = json!(secret))),
        ("a list's place", base(&|agent| agent["tools"] = json!(secret))),
        (
            "a value with a placeholder",
            base(&|agent| agent["llm"]["extra_headers"] = json!({ "x-team": format!("{secret}${{X}}") })),
        ),
    ];
    let mut leaks = Vec::new();
    for (mistake, document) in &mistakes {
        let (error, sinks) = refusal(document);
        assert!(error.is_a(codes::CONFIG_ERROR), "{mistake}: {error}");
        if !sinks.with(&secret).is_empty() || !sinks.with(&upper).is_empty() {
            leaks.push(format!("{mistake}: {error}"));
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
    // What is no credential is shown: a name that nobody knows.
    let (_, sinks) = refusal(&base(&|agent| agent["tools"] = json!([{ "id": "a", "type": secret }])));
    assert_eq!(sinks.with(&secret), ["error"]);
}

#[test]
fn a_document_that_is_broken_behind_a_secret_does_not_repeat_it() {
    let secret = fresh();
    let whole = document("http://127.0.0.1:1/v1", |agent| {
        agent["llm"]["extra_headers"] = json!({ "authorization": format!("Bearer {secret}") });
    })
    .to_string();
    let place = whole.find(&secret).unwrap();
    for end in [place + 5, place + secret.len(), whole.len() - 1] {
        let error = Config::from_json(whole.get(..end).unwrap(), "agent.json").unwrap_err();
        assert_eq!(error.code(), codes::CONFIG_LOAD);
        let mut sinks = Sinks::default();
        sinks.add_error("error", &error);
        // Not even the beginning of it.
        assert_eq!(sinks.with(secret.get(..5).unwrap()), [""; 0]);
    }
    let config = Config::from_json(&whole, "agent.json").unwrap();
    assert!(!format!("{config:?}{config:#?}").contains(&secret));
}

// ---- What is the user's and the model's.

#[tokio::test(flavor = "multi_thread")]
async fn the_users_words_and_the_models_stay_as_they_are_even_where_they_look_like_a_key() {
    let secret = fresh();
    let asked = format!("is sk-proj-abcdefghijklmnopqrstuvwxyz or {secret} a key? Bearer abc.def.ghi");
    let answer = format!("api_key={secret}, sk-proj-abcdefghijklmnopqrstuvwxyz and https://u:p@host/?q=1");
    let given = secret.clone();
    let setup = || {
        let given = given.clone();
        Setup::new(always(text(&answer))).agent(move |agent| Given::BearerHeader.to(agent, &given))
    };
    let request = || RunRequest::new("assistant", asked.as_str());
    for outcome in [setup().start().await.run(request()).await, setup().start().await.watch(request()).await]
    {
        outcome.gives(&answer, NO_RETRY);
        assert_eq!(outcome.result().final_output.as_deref(), Some(answer.as_str()));
        let started = outcome.events_of(names::SESSION_RUN_STARTED);
        assert_eq!(started[0].payload["input_text"], asked.as_str());
        assert_eq!(said(&outcome.log[0])[0].1, asked);
        if let Some(last) = outcome.chunks.last() {
            assert_eq!(last.result.as_ref().unwrap().final_output.as_deref(), Some(answer.as_str()));
        }
    }
    assert_eq!(setup().start().await.runtime.run("assistant", asked.as_str()).await.unwrap(), answer);
    assert_eq!(setup().start().await.runtime.exec("assistant", asked.as_str()).await.unwrap(), answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_models_call_is_told_piece_by_piece_as_the_model_wrote_it() {
    let secret = fresh();
    let arguments = json!({ "password": secret });
    let outcome = with_probe(&secret, &arguments, Probe::saying("x")).start().await.watch(hi()).await;
    let pieces = outcome.events_of(names::LLM_DELTA).into_iter();
    let pieces = pieces.filter(|event| event.payload["kind"] == "tool_call");
    let written: String = pieces.map(|event| event.payload["text"].as_str().unwrap()).collect();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), arguments);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_model_is_told_of_a_tools_result_is_what_the_tool_said() {
    let secret = fresh();
    let probe = Probe::new(move |_| std::future::ready(Ok(json!("see sk-proj-abcdefghijklmnopqrstuvwxyz"))));
    let outcome = with_probe(&secret, &json!({}), probe).start().await.run(hi()).await;
    assert_eq!(tool_results(&outcome.log[1])[0].1, "see sk-proj-abcdefghijklmnopqrstuvwxyz");
}
