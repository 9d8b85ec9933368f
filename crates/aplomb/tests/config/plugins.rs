//! Plugins of a program's own, by name.

use std::sync::{Arc, Mutex};

use aplomb::config::Config;
use aplomb::plugins::{NoConfig, Origin, Registry, Seam};
use aplomb::tools::{Calc, Tool, ToolContext};
use aplomb::{
    Ask, Capability, Error, Event, Memory, Message, Pattern, Role, Runtime, Subscriber, View, codes,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Says its greeting.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Greeting {
    /// What it says.
    text: String,
    #[serde(default)]
    #[schemars(range(max = 3))]
    times: u32,
}

struct Greet(Greeting);

impl Tool for Greet {
    fn description(&self) -> &str {
        "Greets."
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    fn call(&self, _arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        std::future::ready(Ok(json!(self.0.text.repeat(self.0.times as usize)))).boxed()
    }
}

/// Answers at once.
struct Says(String);

impl Pattern for Says {
    fn kind(&self) -> &str {
        "says"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, view: View<'_>) -> Ask {
        Ask::Finish(format!("{} after {} messages", self.0, view.transcript.len()))
    }
}

struct Needy;

impl Pattern for Needy {
    fn kind(&self) -> &str {
        "needy"
    }

    fn version(&self) -> u32 {
        1
    }

    fn needs(&self) -> &[Capability] {
        &[Capability::StructuredOutput]
    }

    fn next(&self, _view: View<'_>) -> Ask {
        Ask::Model
    }
}

/// Remembers what a test says, or fails to.
#[derive(Clone, Default)]
struct Notes {
    kept: Arc<Mutex<Vec<String>>>,
    fails: bool,
}

impl Memory for Notes {
    fn recall<'a>(&'a self, _session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        let recalled = if self.fails {
            Err(Error::new(codes::SESSION_ERROR, "the notes are burnt"))
        } else {
            let notes = self.kept.lock().unwrap().clone();
            Ok(notes.iter().map(|note| Arc::new(Message::text(Role::User, note.as_str()))).collect())
        };
        std::future::ready(recalled).boxed()
    }

    fn keep(&self, session_id: &str, messages: &[Arc<Message>]) -> Result<(), Error> {
        assert!(!self.fails, "the notes are burnt");
        self.kept
            .lock()
            .unwrap()
            .extend(messages.iter().map(|message| format!("{session_id}: {}", message.to_text())));
        Ok(())
    }

    fn forget(&self, _session_id: &str) {
        self.kept.lock().unwrap().clear();
    }
}

fn registry() -> Registry {
    Registry::new()
        .tool("greet", |config: Greeting| Ok(Greet(config)))
        .tool("broken", |_: NoConfig| -> Result<Calc, Error> { panic!("out of cheese") })
        .tool("refuses", |_: NoConfig| -> Result<Calc, Error> {
            Err(Error::new(codes::PLUGIN_ERROR, "no licence"))
        })
        .pattern("says", |config: Greeting| Ok(Says(config.text)))
        .pattern("needy", |_: NoConfig| Ok(Needy))
}

fn document(change: impl FnOnce(&mut Value)) -> Config {
    let mut agent = json!({
        "id": "a",
        "llm": {"provider": "mock", "script": {"steps": [{"reply": {"message": {"text": "hi"}}}], "at_end": "repeat_last"}},
    });
    change(&mut agent);
    let document = json!({"version": "1.0", "agents": [agent]});
    Config::from_json(&format!("{document:#}"), "agent.json").unwrap()
}

fn built(registry: Registry, change: impl FnOnce(&mut Value)) -> Result<Runtime, Error> {
    Runtime::builder(document(change)).plugins(registry).build()
}

#[track_caller]
fn refused(registry: Registry, change: impl FnOnce(&mut Value)) -> Error {
    built(registry, change).err().expect("it should be refused")
}

/// The model decides, not its vendor; and what the config says goes before both.
#[test]
fn a_pattern_that_needs_schemas_is_refused_with_a_model_that_takes_none() {
    let with = |provider: &str, model: &str, mode: &str| {
        built(registry(), |agent| {
            agent["pattern"] = json!({"impl": "needy"});
            agent["llm"] = json!({
                "provider": provider, "model": model, "output_schema": mode, "api_key_env": "CARGO_MANIFEST_DIR",
            });
        })
        .map(|_| ())
        .map_err(|error| error.code())
    };
    let refused = Err(codes::PLUGIN_CAPABILITY);
    assert_eq!(with("openai", "gpt-5", "auto"), Ok(()));
    assert_eq!(with("openai", "gpt-3.5-turbo", "auto"), refused);
    assert_eq!(with("openai", "gpt-3.5-turbo", "native"), Ok(()));
    assert_eq!(with("groq", "m", "auto"), refused);
    assert_eq!(with("groq", "m", "native"), Ok(()));
    assert_eq!(with("openai", "gpt-5", "instructions"), refused);
}

#[tokio::test]
async fn a_pattern_of_ones_own_is_named_by_impl_and_gets_its_config() {
    let runtime = built(registry(), |agent| {
        agent["pattern"] = json!({"impl": "says", "config": {"text": "hello", "system_prompt": "x"}});
    });
    // `system_prompt` is no key of this pattern's config.
    assert_eq!(runtime.err().unwrap().code(), codes::PLUGIN_CONFIG);
    let runtime = built(registry(), |agent| {
        agent["pattern"] = json!({"impl": "says", "config": {"text": "hello"}});
    });
    assert_eq!(runtime.unwrap().run("a", "hi").await.unwrap(), "hello after 1 messages");
}

#[tokio::test]
async fn a_memory_of_ones_own_is_asked_before_a_run_and_told_after_it() {
    let notes = Notes::default();
    let (kept, own) = (notes.kept.clone(), notes.clone());
    kept.lock().unwrap().push("an older note".to_owned());
    let registry = registry().memory("notes", move |_: NoConfig| Ok(own.clone()));
    let runtime = built(registry, |agent| {
        agent["memory"] = json!({"impl": "notes"});
        agent["pattern"] = json!({"impl": "says", "config": {"text": "hello"}});
    })
    .unwrap();
    let request = aplomb::RunRequest::new("a", "hi").session_id("s");
    let output = runtime.run_detailed(request).await.unwrap().into_output().unwrap();
    assert_eq!(output, "hello after 2 messages");
    assert_eq!(*kept.lock().unwrap(), ["an older note", "s: hi"]);
    runtime.close_session("s").await.unwrap();
    assert!(kept.lock().unwrap().is_empty());
}

struct Names(Arc<Mutex<Vec<String>>>);

impl Subscriber for Names {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.name.to_string());
    }
}

#[tokio::test]
async fn a_memory_that_fails_is_gone_on_without_or_ends_the_run_as_the_config_says() {
    for (on_error, output) in [("continue", Ok("hi")), ("fail", Err(codes::SESSION_ERROR))] {
        let names = Arc::new(Mutex::new(Vec::new()));
        let seen = names.clone();
        let registry = registry()
            .memory("burnt", |_: NoConfig| Ok(Notes { fails: true, ..Notes::default() }))
            .events("names", move |_: NoConfig| Ok(Names(seen.clone())));
        let mut config = document(|agent| agent["memory"] = json!({"impl": "burnt", "on_error": on_error}));
        config.events.r#type = None;
        config.events.r#impl = Some("names".to_owned());
        let runtime = Runtime::builder(config).plugins(registry).build().unwrap();
        let result = runtime.run_detailed(aplomb::RunRequest::new("a", "hi")).await.unwrap().into_output();
        assert_eq!(result.as_deref().map_err(Error::code), output);
        let names = names.lock().unwrap();
        let told = |name: &str| names.iter().any(|seen| seen == name);
        assert!(told("memory.inject_failed"), "{names:?}");
        // It panics when it is to keep what was said, which changes nothing about the answer.
        assert_eq!(told("memory.writeback_failed"), on_error == "continue", "{names:?}");
    }
}

#[test]
fn a_config_that_does_not_fit_a_plugin_of_ones_own_is_named_with_its_place() {
    let error = refused(registry(), |agent| {
        agent["tools"] = json!([{"id": "greet", "impl": "greet", "config": {"txet": "hi", "times": 4}}]);
    });
    assert_eq!(error.code(), codes::PLUGIN_CONFIG, "{error}");
    for part in [
        "agents[0].tools[0].config.txet: there is no key \"txet\" (agent.json:",
        "did you mean \"text\"?",
        "agents[0].tools[0].config.times: 4 is not in 0..=3 (agent.json:",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
    let error = refused(registry(), |agent| agent["tools"] = json!([{"id": "g", "impl": "gret"}]));
    assert_eq!((error.code(), error.hint()), (codes::PLUGIN_LOAD, Some("did you mean \"greet\"?")));
    let error = refused(registry(), |agent| agent["tools"] = json!([{"id": "g", "impl": "calc"}]));
    assert!(error.message().contains("the tool \"calc\" is built in"), "{error}");
    assert_eq!(error.hint(), Some("write `type`"));
}

#[test]
fn what_two_parts_cannot_do_together_names_both() {
    let error = refused(registry(), |agent| agent["pattern"] = json!({"impl": "needy"}));
    assert_eq!(error.code(), codes::PLUGIN_CAPABILITY);
    for part in ["needy", "structured output", "mock"] {
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn a_plugin_that_fails_or_panics_when_it_is_made_is_named() {
    for (name, what) in [("broken", "out of cheese"), ("refuses", "no licence")] {
        let error = refused(registry(), |agent| agent["tools"] = json!([{"id": "x", "impl": name}]));
        assert_eq!(error.code(), codes::PLUGIN_ERROR);
        assert!(error.message().contains("tools[0]") && error.message().contains(what), "{error}");
    }
}

#[test]
fn a_name_that_is_taken_or_none_is_refused_when_the_runtime_is_built() {
    let twice = registry().tool("greet", |_: NoConfig| Ok(Calc));
    assert!(refused(twice, |_| ()).message().contains("two plugins"), "twice");
    for name in ["", "my.tool"] {
        let error = refused(registry().tool(name, |_: NoConfig| Ok(Calc)), |_| ());
        assert_eq!(error.code(), codes::PLUGIN_ERROR);
    }
}

#[test]
fn the_list_has_every_name_of_the_contract_once_and_the_programs_own() {
    const SPEC: &str = include_str!("../../../../docs/spec/runtime.md");
    let listed = registry().list();
    let seams = SPEC.split("Seams and their built-ins: ").nth(1).unwrap().split(". Parts of").next().unwrap();
    for part in seams.replace('\n', " ").split(';') {
        let (seam, names) = part.trim().split_once(" (").unwrap();
        let seam = seam.trim_matches('`');
        let tools = SPEC
            .split("Built in: ")
            .nth(1)
            .unwrap()
            .split(". The network")
            .next()
            .unwrap()
            .replace('\n', " ");
        let names = if seam == "tool" { tools.as_str() } else { names };
        for name in names.trim_end_matches(')').split(", ") {
            let name = name.trim().split(' ').next().unwrap();
            let found = listed.iter().filter(|plugin| plugin.seam.as_str() == seam && plugin.name == name);
            assert_eq!(found.count(), 1, "{seam} {name}");
        }
    }
    let own: Vec<_> =
        listed.iter().filter(|plugin| plugin.origin == Origin::Program).map(|plugin| &plugin.name).collect();
    assert_eq!(own, ["needy", "says", "broken", "greet", "refuses"]);
    let greet = listed.iter().find(|plugin| plugin.name == "greet").unwrap();
    assert_eq!((greet.seam, greet.summary.as_str()), (Seam::Tool, "Says its greeting."));
    assert_eq!(greet.config.as_ref().unwrap()["properties"]["text"]["type"], "string");
}

#[test]
fn keys_of_all_agents_that_are_missing_are_told_at_once_or_are_warnings() {
    let llm = |variable: &str| json!({"provider": "anthropic", "model": "m", "api_key_env": variable});
    let document = json!({"version": "1.0", "agents": [
        {"id": "a", "llm": llm("APLOMB_TEST_A")}, {"id": "b", "llm": llm("APLOMB_TEST_B")},
    ]});
    let config = || Config::from_json(&format!("{document:#}"), "agent.json").unwrap();
    let strict = Runtime::builder(config()).validate(true).unwrap_err();
    for error in [Runtime::builder(config()).build().err().unwrap(), strict] {
        assert_eq!(error.code(), codes::CONFIG_LOAD);
        for variable in ["APLOMB_TEST_A", "APLOMB_TEST_B"] {
            assert!(error.message().contains(variable), "{error}");
        }
    }
    let warnings = Runtime::builder(config()).validate(false).unwrap();
    let paths: Vec<_> = warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(paths, ["agents[0].llm.api_key_env", "agents[1].llm.api_key_env"]);
    assert!(
        warnings.iter().all(|warning| warning.place.line.is_some() && warning.hint.is_some()),
        "{warnings:?}"
    );
}

/// A tool that tells everybody what it was told.
struct Blabs(Blabbing);

#[derive(Deserialize, JsonSchema)]
struct Blabbing {
    token: String,
    region: String,
}

impl Tool for Blabs {
    fn description(&self) -> &str {
        "Blabs."
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    fn call(&self, _arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        let Blabbing { token, region } = &self.0;
        std::future::ready(Err(Error::new(codes::TOOL_AUTH, format!("{token} is not known in {region}"))))
            .boxed()
    }
}

struct Seen(Arc<Mutex<String>>);

impl Subscriber for Seen {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push_str(&serde_json::to_string(event).unwrap());
    }
}

#[tokio::test]
async fn what_a_plugin_is_told_as_a_credential_is_in_no_event_and_the_rest_is() {
    let seen = Arc::new(Mutex::new(String::new()));
    let config = document(|agent| {
        let steps = json!([{"reply": {"message": {"tool_calls": [{"name": "blabs"}]}}}, {"reply": {"message": {"text": "hi"}}}]);
        agent["llm"]["script"]["steps"] = steps;
        agent["tools"] = json!([{"id": "blabs", "impl": "blabs",
            "config": {"token": "canary-0123456789", "region": "eu-central-1"}}]);
    });
    let registry = registry().tool("blabs", |config: Blabbing| Ok(Blabs(config)));
    let builder = Runtime::builder(config).plugins(registry).subscriber(Seen(seen.clone()));
    assert_eq!(builder.build().unwrap().run("a", "hi").await.unwrap(), "hi");
    let seen = seen.lock().unwrap();
    assert!(!seen.contains("canary-0123456789"), "{seen}");
    assert!(seen.contains("[redacted] is not known in eu-central-1"), "{seen}");
}
