//! Every code of the contract has something that really raises it, and shows what the contract promises of it.
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::own_errors::Taken;
use crate::support::*;
use aplomb::config::Config;
use aplomb::error::{Code, IDENTIFIERS};
use aplomb::event::names;
use aplomb::host::{Host, SystemHost};
use aplomb::plugins::{NoConfig, Registry};
use aplomb::tools::{Tool, ToolContext};
use aplomb::{
    Ask, Cancellation, Capability, EnvCredential, Error, ErrorDetails, Pattern, RunBudget, RunRequest,
    Runtime, View, codes,
};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use serde_json::{Value, json};

/// The codes that nothing raises yet, and what will.
const PENDING: &[(&str, &str)] = &[
    ("execution.in_doubt", "durable runs"),
    ("execution.journal_mismatch", "durable runs and replay"),
    ("session.lease_lost", "stored sessions"),
    ("tool.cancelled", "the tool executors, which end a call in order"),
];

/// Raised only when nothing more precise is known, which is always known so far.
const PARENTS: &[&str] = &["config.error", "user.error"];

/// Too coarse for a way out: the message and the cause have to say it; or consumed on the way. errors.md §3 names no hint
/// for them.
const HINTLESS: &[&str] = &[
    "openagents.error",
    "plugin.error",
    "execution.error",
    "execution.cancelled",
    "tool.error",
    "tool.retryable",
    "tool.permanent",
    "llm.error",
    "llm.model_retry",
];

// ---- What is raised where.

/// How an error came to whoever has to handle it.
enum Raised {
    /// Nothing was run.
    Refused(Error),
    /// A run ended with it.
    Ended(Box<Outcome>),
    /// A tool failed; the model was told, and the run went on.
    ByTool(Box<Outcome>),
    /// Another error has it as its cause.
    Cause(ErrorDetails),
}

use Raised::{ByTool, Cause, Ended, Refused};

type Trigger = fn(Code) -> LocalBoxFuture<'static, Raised>;

/// A code, what provokes it, and the context fields that must have a value then.
const TRIGGERS: &[(Code, &str, Trigger, &[&str])] = &[
    (codes::OPENAGENTS_ERROR, "a foreign cause", |_| Box::pin(foreign_cause()), &[]),
    (codes::OPENAGENTS_ERROR, "a provider's answer", |_| Box::pin(cause_of(status(401))), &[]),
    (
        codes::CONFIG_LOAD,
        "a file that is not there",
        |_| Box::pin(refused(Runtime::from_config("/nowhere/agent.json").err())),
        &[],
    ),
    (
        codes::CONFIG_LOAD,
        "a document that is no JSON",
        |_| Box::pin(refused(Config::from_json("{\"version\": ", "agent.json").err())),
        &[],
    ),
    (
        codes::CONFIG_LOAD,
        "a variable that is not set",
        |_| Box::pin(unbuilt(|agent| agent["llm"]["api_key_env"] = json!("APLOMB_TEST_NOT_SET"))),
        &[],
    ),
    (
        codes::CONFIG_VALIDATION,
        "a misspelt key",
        |_| Box::pin(unbuilt(|agent| agent["llm"]["modle"] = json!("m"))),
        &[],
    ),
    (
        codes::CONFIG_VALIDATION,
        "an address that is none",
        |_| Box::pin(unbuilt(|agent| agent["llm"]["api_base"] = json!("127.0.0.1"))),
        &[],
    ),
    (codes::PLUGIN_ERROR, "a tool that panics when asked", |_| Box::pin(with_tool(Panics)), &[]),
    (codes::PLUGIN_ERROR, "a code that is taken", |_| Box::pin(two_errors_of_one_code()), &[]),
    (
        codes::PLUGIN_LOAD,
        "a tool that does not exist",
        |_| Box::pin(unbuilt(|agent| agent["tools"] = json!([{ "id": "a", "type": "clac" }]))),
        &[],
    ),
    (codes::PLUGIN_LOAD, "a credential for nobody", |_| Box::pin(credential_for_nobody()), &[]),
    (codes::PLUGIN_CAPABILITY, "a pattern that needs structured output", |_| Box::pin(unschooled()), &[]),
    (
        codes::PLUGIN_CONFIG,
        "parameters that are no JSON Schema",
        |_| {
            let tool = Probe::saying("x").parameters(json!({ "type": "objekt" }));
            Box::pin(with_tool(tool))
        },
        &[],
    ),
    (codes::EXECUTION_ERROR, "a pattern", |code| Box::pin(by_pattern(code)), &[]),
    (codes::EXECUTION_MAX_STEPS, "a model without end", |_| Box::pin(without_end()), &["current", "limit"]),
    (
        codes::EXECUTION_OUTPUT_VALIDATION,
        "a pattern that no answer is good enough for",
        |_| Box::pin(by_pattern(codes::LLM_MODEL_RETRY)),
        &["attempts", "last_validation_error"],
    ),
    (
        codes::LLM_MODEL_RETRY,
        "a pattern that wants a better answer",
        |code| Box::pin(unwanted(code)),
        &["validation_error"],
    ),
    (
        codes::EXECUTION_MAX_STEPS,
        "too many tool calls",
        |_| Box::pin(too_many_tools()),
        &["current", "limit"],
    ),
    (
        codes::EXECUTION_BUDGET_EXHAUSTED,
        "a budget of steps",
        |_| Box::pin(over(RunBudget::new().max_steps(1))),
        &BUDGET,
    ),
    (
        codes::EXECUTION_BUDGET_EXHAUSTED,
        "a budget of tool calls",
        |_| Box::pin(over(RunBudget::new().max_tool_calls(1))),
        &BUDGET,
    ),
    (
        codes::EXECUTION_BUDGET_EXHAUSTED,
        "a budget of money",
        |_| Box::pin(over(RunBudget::new().max_cost_usd(1e-9))),
        &BUDGET,
    ),
    (codes::EXECUTION_BUDGET_EXHAUSTED, "a budget of time", |_| Box::pin(over_time()), &BUDGET),
    (
        codes::EXECUTION_TIMEOUT,
        "a silent provider",
        |_| Box::pin(out_of_time()),
        &["limit_ms", "where", "setting"],
    ),
    (codes::EXECUTION_CANCELLED, "a cancellation", |_| Box::pin(cancelled()), &["by"]),
    (codes::SESSION_ERROR, "a session that is held too long", |_| Box::pin(held_too_long()), &[]),
    (codes::SESSION_ERROR, "closing a session that is in use", |_| Box::pin(closed_in_use()), &[]),
    (codes::PATTERN_ERROR, "a pattern that panics", |_| Box::pin(by(|| panic!("out of cheese"))), &[]),
    (
        codes::PATTERN_ERROR,
        "something untyped in a pattern",
        |code| Box::pin(by(move || Ask::Fail(Error::foreign(code, io::Error::other("the plan is torn"))))),
        &[],
    ),
    (codes::TOOL_ERROR, "a tool that panics", |_| Box::pin(by_tool(|_| panic!("out of cheese"))), &TOOL),
    (codes::TOOL_ERROR, "a tool", |code| Box::pin(tool_raising(code)), &TOOL),
    (codes::TOOL_RETRYABLE, "a tool", |code| Box::pin(tool_raising(code)), &TOOL),
    (codes::TOOL_PERMANENT, "a tool", |code| Box::pin(tool_raising(code)), &TOOL),
    (codes::TOOL_TIMEOUT, "a tool", |code| Box::pin(tool_raising(code)), &TOOL),
    (
        codes::TOOL_RATE_LIMIT,
        "a tool that was told to wait",
        |code| {
            let error = move || Error::new(code, "ten calls a minute").with_context("retry_after_ms", 50);
            Box::pin(by_tool(move |_| Err(error())))
        },
        &["tool_id", "tool_name", "retry_after_ms"],
    ),
    (codes::TOOL_UNAVAILABLE, "a tool", |code| Box::pin(tool_raising(code)), &TOOL),
    (codes::TOOL_AUTH, "a tool", |code| Box::pin(tool_raising(code)), &TOOL),
    (
        codes::TOOL_NOT_FOUND,
        "a tool that is not there",
        |_| Box::pin(called("prob", json!({}), Probe::saying("x"))),
        &TOOL,
    ),
    (
        codes::TOOL_VALIDATION,
        "arguments that do not fit",
        |_| {
            let needs = json!({ "type": "object", "required": ["path"] });
            Box::pin(called("probe", json!({}), Probe::saying("x").parameters(needs)))
        },
        &TOOL,
    ),
    (
        codes::TOOL_VALIDATION,
        "arguments that are no JSON",
        |_| Box::pin(called("probe", json!("not json"), Probe::saying("x"))),
        &TOOL,
    ),
    (codes::TOOL_VALIDATION, "a tool that refuses", |code| Box::pin(tool_raising(code)), &TOOL),
    (codes::LLM_ERROR, "a status that nobody knows", |_| Box::pin(provider(status(418))), &["reason"]),
    (codes::LLM_CONNECTION, "a dead provider", |_| Box::pin(provider(status(503))), &["reason", "status"]),
    (codes::LLM_CONNECTION, "nobody at the address", |_| Box::pin(unreachable()), &["reason"]),
    (codes::LLM_RATE_LIMIT, "a throttle", |_| Box::pin(provider(status(429))), &["reason", "status"]),
    (
        codes::LLM_RATE_LIMIT,
        "a wait too long to sit out",
        |_| Box::pin(provider(http(429, json!({ "retry-after": "3600" }), Value::Null))),
        &["reason", "status", "request_id", "retry_after_ms", "resume_at"],
    ),
    (codes::LLM_RESPONSE, "a key that is wrong", |_| Box::pin(provider(status(401))), &["reason", "status"]),
    (
        codes::LLM_RESPONSE,
        "an answer that was cut off",
        |_| Box::pin(provider(message(json!({ "text": "one", "finish_reason": "length" })))),
        &[],
    ),
    (codes::USER_INVALID_INPUT, "an empty input", |_| Box::pin(asked(hi_with("assistant", " \n"))), &[]),
    (codes::USER_INVALID_INPUT, "an empty run_id", |_| Box::pin(asked(hi().run_id(""))), &[]),
    (codes::USER_INVALID_INPUT, "a run that is under way", |_| Box::pin(twice()), &[]),
    (
        codes::USER_AGENT_NOT_FOUND,
        "an agent that is not there",
        |_| Box::pin(asked(hi_with("asistant", "hi"))),
        &["agent_id"],
    ),
];

const BUDGET: [&str; 3] = ["kind", "current", "limit"];
const TOOL: [&str; 2] = ["tool_id", "tool_name"];

fn hi_with(agent: &str, input: &str) -> RunRequest {
    RunRequest::new(agent, input)
}

/// The request of every run here, so that the identifiers are known.
pub(crate) fn named() -> RunRequest {
    hi().run_id("r1").session_id("s1")
}

async fn refused(error: Option<Error>) -> Raised {
    Refused(error.expect("it should have been refused"))
}

fn built(
    change: impl FnOnce(&mut Value),
    build: impl FnOnce(aplomb::RuntimeBuilder) -> aplomb::RuntimeBuilder,
) -> Result<Runtime, Error> {
    let document = document("http://127.0.0.1:1/v1", change).to_string();
    build(Runtime::builder(Config::from_json(&document, "agent.json")?)).build()
}

async fn unbuilt(change: fn(&mut Value)) -> Raised {
    refused(built(change, |builder| builder).err()).await
}

async fn with_tool(tool: impl Tool + Clone) -> Raised {
    let registry = Registry::new().tool("probe", move |_: NoConfig| Ok(tool.clone()));
    let named = |agent: &mut Value| agent["tools"] = json!([{ "id": "probe", "impl": "probe" }]);
    refused(built(named, |builder| builder.plugins(registry)).err()).await
}

async fn credential_for_nobody() -> Raised {
    refused(built(|_| (), |builder| builder.credential("asistant", EnvCredential::new("X"))).err()).await
}

async fn unschooled() -> Raised {
    let registry = Registry::new().pattern("own", |_: NoConfig| Ok(Needy));
    let named = |agent: &mut Value| {
        agent["llm"]["provider"] = json!("deepseek");
        agent["pattern"] = json!({ "impl": "own" });
    };
    refused(built(named, |builder| builder.plugins(registry)).err()).await
}

async fn two_errors_of_one_code() -> Raised {
    refused(built(|_| (), |builder| builder.plugins(Registry::new().error::<Taken>())).err()).await
}

async fn foreign_cause() -> Raised {
    let error = Runtime::from_config("/nowhere/agent.json").err().unwrap();
    Cause(*error.details().cause.unwrap())
}

async fn cause_of(step: Value) -> Raised {
    let outcome = ended(Setup::new(always(step)).start().await, named()).await;
    Cause(*outcome.result().error_details.clone().unwrap().cause.unwrap())
}

async fn ended(lab: Lab, request: RunRequest) -> Outcome {
    lab.run(request).await
}

async fn provider(step: Value) -> Raised {
    Ended(Box::new(ended(Setup::new(always(step)).start().await, named()).await))
}

async fn unreachable() -> Raised {
    let (address, _bound) = nobody();
    let setup = Setup::new(always(text("never")))
        .agent(move |agent| agent["llm"]["api_base"] = json!(format!("http://{address}/v1")));
    Ended(Box::new(ended(setup.start().await, named()).await))
}

async fn without_end() -> Raised {
    let setup = Setup::new(always(calls(&[("probe", json!({}))])))
        .tool("probe", Probe::saying("x"))
        .agent(|agent| agent["runtime"] = json!({ "max_steps": 2 }));
    Ended(Box::new(ended(setup.start().await, named()).await))
}

/// A model without end that has a price.
fn endless() -> Setup {
    Setup::new(always(calls(&[("probe", json!({}))])))
        .tool("probe", Probe::saying("x"))
        .agent(|agent| agent["llm"]["pricing"] = json!({ "input": 1, "output": 1 }))
}

async fn too_many_tools() -> Raised {
    let setup = endless().agent(|agent| agent["runtime"] = json!({ "max_tool_calls": 1 }));
    Ended(Box::new(ended(setup.start().await, named()).await))
}

async fn over(budget: RunBudget) -> Raised {
    Ended(Box::new(ended(endless().start().await, named().budget(budget)).await))
}

async fn over_time() -> Raised {
    let request = named().budget(RunBudget::new().max_duration_ms(100));
    Ended(Box::new(ended(silent().start().await, request).await))
}

fn silent() -> Setup {
    Setup::new(always(with_fault(text("never"), json!("silence"))))
}

async fn out_of_time() -> Raised {
    let request = named().timeout(Duration::from_millis(100));
    Ended(Box::new(ended(silent().start().await, request).await))
}

async fn cancelled() -> Raised {
    let lab = silent().start().await;
    let cancellation = Cancellation::new();
    let cancel = async {
        until(|| lab.requests() == 1).await;
        cancellation.cancel("operator");
    };
    let (outcome, ()) = tokio::join!(lab.run(named().cancellation(cancellation.clone())), cancel);
    Ended(Box::new(outcome))
}

/// A silent provider, and a run that has the session.
async fn session_in_use() -> (Lab, tokio::task::JoinHandle<()>) {
    let remembering = |agent: &mut Value| agent["memory"] = json!({ "type": "buffer" });
    let lab = silent().agent(remembering).build(|builder| builder.host(Hasty)).start().await;
    let runtime = lab.runtime.clone();
    let holder = tokio::spawn(async move {
        let _never_ends = runtime.run_detailed(hi().session_id("s1")).await;
    });
    until(|| lab.requests() == 1).await;
    (lab, holder)
}

async fn held_too_long() -> Raised {
    let (lab, holder) = session_in_use().await;
    let result = in_time(lab.runtime.run_detailed(named())).await.unwrap();
    holder.abort();
    let events = lab.events.all().into_iter().filter(|event| event.run_id == "r1").collect();
    let output = result.clone().into_output();
    Ended(Box::new(Outcome { output, result: Some(result), chunks: vec![], events, log: vec![] }))
}

async fn closed_in_use() -> Raised {
    let (lab, holder) = session_in_use().await;
    let refusal = lab.runtime.close_session("s1").await;
    holder.abort();
    refused(refusal.err()).await
}

/// Says that a time limit has passed long before it has.
struct Hasty;

impl Host for Hasty {
    fn now(&self) -> Instant {
        SystemHost.now()
    }

    fn wall_ms(&self) -> u64 {
        SystemHost.wall_ms()
    }

    fn entropy(&self) -> u64 {
        SystemHost.entropy()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemHost.sleep(time / 1_000)
    }
}

async fn asked(request: RunRequest) -> Raised {
    let lab = Lab::new(always(text("never"))).await;
    let refusal = lab.runtime.run_detailed(request).await;
    assert_eq!((lab.requests(), lab.events.all().len()), (0, 0), "nothing is run");
    refused(refusal.err()).await
}

async fn twice() -> Raised {
    let lab = silent().start().await;
    let first = lab.runtime.run_detailed(named());
    let second = async {
        until(|| lab.requests() == 1).await;
        lab.runtime.run_detailed(named()).await
    };
    tokio::select! {
        _ = first => panic!("the provider is silent"),
        refusal = second => refused(refusal.err()).await,
    }
}

// ---- Patterns.

/// A pattern that does what a test says.
#[derive(Clone)]
pub(crate) struct Does(pub(crate) Arc<dyn Fn() -> Ask + Send + Sync>);

impl Pattern for Does {
    fn kind(&self) -> &str {
        "does"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, _view: View<'_>) -> Ask {
        (self.0)()
    }
}

async fn by(next: impl Fn() -> Ask + Send + Sync + 'static) -> Raised {
    let setup = Setup::new(always(text("never"))).pattern(Does(Arc::new(next)));
    Ended(Box::new(ended(setup.start().await, named()).await))
}

/// What is consumed on the way is the cause of what is left when that does not help.
async fn unwanted(code: Code) -> Raised {
    let wanting =
        move || Ask::Fail(Error::new(code, "no colour").with_context("validation_error", "no colour"));
    let Ended(outcome) = by(wanting).await else { panic!("a run was carried out") };
    Cause(*outcome.result().error_details.clone().unwrap().cause.unwrap())
}

async fn by_pattern(code: Code) -> Raised {
    by(move || Ask::Fail(Error::new(code, "the plan is torn"))).await
}

/// A pattern that a vendor which takes no schema cannot serve.
struct Needy;

impl Pattern for Needy {
    fn kind(&self) -> &str {
        "needy"
    }

    fn version(&self) -> u32 {
        1
    }

    fn needs(&self) -> &[Capability] {
        &[Capability::Tools, Capability::StructuredOutput]
    }

    fn next(&self, _view: View<'_>) -> Ask {
        Ask::Model
    }
}

// ---- Tools.

/// A tool that panics when it is asked what it is.
#[derive(Clone)]
struct Panics;

impl Tool for Panics {
    fn description(&self) -> &str {
        "panics"
    }

    fn parameters(&self) -> Value {
        panic!("out of cheese")
    }

    fn call(&self, _arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(async { Ok(Value::Null) })
    }
}

/// The model calls a tool of that name, and then says that it is done.
async fn called(name: &str, arguments: Value, probe: Probe) -> Raised {
    let script = once([calls(&[(name, arguments)]), text("done")]);
    ByTool(Box::new(ended(Setup::new(script).tool("probe", probe).start().await, named()).await))
}

async fn by_tool(act: impl Fn(Value) -> Result<Value, Error> + Send + Sync + 'static) -> Raised {
    let probe = Probe::new(move |arguments| std::future::ready(act(arguments)));
    called("probe", json!({}), probe).await
}

async fn tool_raising(code: Code) -> Raised {
    by_tool(move |_| Err(Error::new(code, "the directory is torn"))).await
}

// ---- What everybody may rely on.

/// The cell "typical hint" of errors.md §3.
fn typical_hint(code: Code) -> String {
    const ERRORS: &str = include_str!("../../../../docs/spec/errors.md");
    let section = ERRORS.split("\n## 3. ").nth(1).unwrap().split("\n## ").next().unwrap();
    let row = section.lines().find(|line| line.starts_with(&format!("| `{code}` |")));
    row.map(|row| row.split('|').nth(3).unwrap().trim().to_owned()).unwrap_or_default()
}

/// What is wrong with an error, as whoever handles it sees it.
fn wrong_with(raised: &Raised, code: Code, set: &[&str]) -> Vec<String> {
    let details = match raised {
        Refused(error) => error.details(),
        Ended(outcome) => outcome.result().error_details.clone().unwrap(),
        ByTool(outcome) => tool_details(outcome),
        Cause(details) => details.clone(),
    };
    let dict = &details.dict;
    let mut wrong = Vec::new();
    let mut check = |what: &str, is_right: bool| {
        if !is_right {
            wrong.push(format!("{what}: {}", serde_json::to_string(&details).unwrap()));
        }
    };
    check("code", dict.code == code.as_str());
    check("retryable", dict.retryable == code.retryable());
    check("message", !dict.message.is_empty() && !dict.message.contains('\n'));
    let needs_hint = !HINTLESS.contains(&code.as_str());
    check("hint", !needs_hint || dict.hint.as_ref().is_some_and(|hint| !hint.trim().is_empty()));
    check("hint in one line", dict.hint.as_ref().is_none_or(|hint| !hint.contains('\n')));
    let is_cause = matches!(raised, Cause(_));
    check("type", is_cause || details.type_name == code.type_name());
    for field in IDENTIFIERS.into_iter().chain(code.fields()) {
        check(field, dict.context.contains_key(field));
    }
    let is_set = |field: &str| dict.context.get(field).is_some_and(|value| !value.is_null());
    for field in set {
        check(field, is_set(field));
    }
    if let Ended(_) | ByTool(_) = raised {
        for (field, value) in [("agent_id", "assistant"), ("session_id", "s1"), ("run_id", "r1")] {
            check(field, dict.context[field] == value);
        }
        check("step_number", dict.context["step_number"].is_u64());
    }
    match raised {
        Refused(error) => {
            check("the error's own code", error.code() == code && error.retryable() == code.retryable());
        }
        Ended(outcome) => {
            let result = outcome.result();
            check("stop reason", result.stop_reason == code.stop_reason());
            check("no output", result.final_output.is_none());
            let error = outcome.error();
            check("the error's own code", error.code() == code && error.stop_reason() == code.stop_reason());
            // errors.md §2: a failed result's `error_details`, and those of every `*.failed` event.
            let failed = outcome.events_of(names::RUN_FAILED);
            check("run.failed", failed.len() == 1 && failed[0].payload["error_details"] == json!(details));
            let is_llms = code.is_a(codes::LLM_ERROR) && dict.context.get("reason").is_some();
            let failed = outcome.events_of(names::LLM_FAILED);
            check("llm.failed", !is_llms || failed[0].payload["error_details"] == json!(details));
            let completed = outcome.events_of(names::SESSION_RUN_COMPLETED);
            check("how it ended", completed[0].payload["stop_reason"] == json!(code.stop_reason()));
        }
        ByTool(outcome) => {
            check("the run goes on", outcome.output.as_deref().is_ok_and(|output| output == "done"));
            let told = tool_results(&outcome.log[1])[0].1.clone();
            check(&told, told.starts_with(&format!("{code}: {}", dict.message)));
        }
        Cause(_) => {}
    }
    wrong
}

/// What the event says of the one tool that failed.
pub(crate) fn tool_details(outcome: &Outcome) -> ErrorDetails {
    let failed = outcome.events_of(names::TOOL_FAILED);
    assert_eq!(failed.len(), 1, "{:?}", outcome.events);
    assert_eq!(failed[0].payload["error"], failed[0].payload["error_details"]["message"]);
    serde_json::from_value(failed[0].payload["error_details"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_code_has_a_real_trigger_and_keeps_its_promises() {
    let mut wrong = Vec::new();
    for (code, what, trigger, set) in TRIGGERS {
        let raised = in_time(trigger(*code)).await;
        let found = wrong_with(&raised, *code, set);
        wrong.extend(found.into_iter().map(|found| format!("{code} by {what}: {found}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_code_is_triggered_or_pending_or_a_parent_and_never_two_of_them() {
    let triggered: BTreeSet<_> = TRIGGERS.iter().map(|(code, ..)| code.as_str()).collect();
    let pending: Vec<_> = PENDING.iter().map(|(code, _)| *code).collect();
    for code in codes::ALL {
        let name = code.as_str();
        let places = [triggered.contains(name), pending.contains(&name), PARENTS.contains(&name)];
        assert_eq!(places.into_iter().filter(|listed| *listed).count(), 1, "{name}: {places:?}");
    }
    for name in pending.iter().chain(PARENTS).chain(HINTLESS) {
        assert!(codes::ALL.iter().any(|code| code.as_str() == *name), "{name} is no code");
    }
    for parent in PARENTS {
        assert!(codes::ALL.iter().any(|code| code.parent().is_some_and(|code| code.as_str() == *parent)));
    }
}

#[test]
fn no_code_for_which_the_contract_names_a_hint_is_excused_from_having_one() {
    for name in HINTLESS {
        assert_eq!(typical_hint(Code::find(name).unwrap()), "", "{name}");
    }
    // The table is read where it stands.
    assert_eq!(typical_hint(codes::TOOL_NOT_FOUND), "near match");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_original_of_a_patterns_error_is_its_cause() {
    let io_error = || io::Error::new(io::ErrorKind::BrokenPipe, "the plan is torn");
    let Ended(outcome) = by(move || Ask::Fail(Error::foreign(codes::PATTERN_ERROR, io_error()))).await else {
        panic!("a pattern's error ends the run")
    };
    let details = outcome.result().error_details.clone().unwrap();
    assert_eq!(details.dict.message, "the plan is torn");
    let cause = details.cause.unwrap();
    assert_eq!(
        (cause.type_name.as_str(), cause.dict.message.as_str()),
        (std::any::type_name::<io::Error>(), "the plan is torn")
    );
    assert_eq!(cause.dict.code, "openagents.error");
    // A panic has no original but its text.
    let Ended(outcome) = by(|| panic!("out of cheese")).await else { panic!("so does a panic") };
    assert!(outcome.error().message().contains("out of cheese"), "{}", outcome.error());
    assert_eq!(outcome.log.len(), 0);
}

/// The hint of what a name that is nearly right led to.
fn hint_of(raised: &Raised) -> String {
    match raised {
        Refused(error) => error.hint().unwrap_or_default().to_owned(),
        ByTool(outcome) => tool_details(outcome).dict.hint.unwrap_or_default(),
        Ended(_) | Cause(_) => panic!("nothing is run with such a name"),
    }
}

/// errors.md §3: "near match".
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
    let key = |agent: &mut Value| agent["llm"]["modle"] = json!("m");
    for (raised, right) in [
        (unbuilt(key).await, "model"),
        (asked(hi_with("asistant", "hi")).await, "assistant"),
        (called("prob", json!({}), Probe::saying("x")).await, "probe"),
    ] {
        assert_eq!(hint_of(&raised), format!("did you mean {right:?}?"));
    }
}

/// errors.md §3, `plugin.load`: the typical hint is "did you mean …?".
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_nearly_right_is_answered_with_the_right_one() {
    let tool = |agent: &mut Value| agent["tools"] = json!([{ "id": "a", "type": "clac" }]);
    for (raised, right) in [(unbuilt(tool).await, "calc"), (credential_for_nobody().await, "assistant")] {
        assert_eq!(hint_of(&raised), format!("did you mean {right:?}?"));
    }
}

/// errors.md §2: "Context identifiers, filled in as the error travels up", null only "when unknown".
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_whose_it_is() {
    let blank = || hi_with("assistant", " ").session_id("s1").run_id("r1");
    let mut wrong = Vec::new();
    for (what, raised, expected) in [
        ("closed in use", closed_in_use().await, &[("session_id", "s1")][..]),
        (
            "blank input",
            asked(blank()).await,
            &[("agent_id", "assistant"), ("session_id", "s1"), ("run_id", "r1")],
        ),
        ("under way", twice().await, &[("agent_id", "assistant"), ("session_id", "s1"), ("run_id", "r1")]),
        (
            "no such agent",
            asked(hi_with("asistant", "hi").session_id("s1").run_id("r1")).await,
            &[("agent_id", "asistant"), ("session_id", "s1"), ("run_id", "r1")],
        ),
        ("a tool that panics", with_tool(Panics).await, &[("agent_id", "assistant"), ("tool_id", "probe")]),
        ("a credential for nobody", credential_for_nobody().await, &[("agent_id", "asistant")]),
        ("a needy pattern", unschooled().await, &[("agent_id", "assistant")]),
    ] {
        let Refused(error) = raised else { panic!("it is refused") };
        for (field, value) in expected {
            if error.context(field) != Some(&json!(value)) {
                wrong.push(format!("{what}: {field}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
