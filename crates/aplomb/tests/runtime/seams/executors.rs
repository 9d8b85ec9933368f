//! Tool executors of the program's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aplomb::decide::ToolRetry;
use aplomb::event::names;
use aplomb::plugins::{NoConfig, Registry};
use aplomb::tools::{Next, ToolExecutor, ToolInvocation, ToolPolicy};
use aplomb::{Error, codes};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{burnt, refused};
use crate::support::*;

/// What a test has an executor do.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Manners {
    /// The attempts that a call may take.
    #[schemars(range(min = 1))]
    attempts: Option<u32>,
    /// The longest that one may take.
    limit_ms: Option<u64>,
    /// A word that no argument may hold.
    forbidden: Option<String>,
}

/// Notes each call, and what came of it.
#[derive(Clone)]
struct Noting {
    manners: Manners,
    notes: Arc<Mutex<Vec<String>>>,
}

impl ToolExecutor for Noting {
    fn policy(&self) -> ToolPolicy {
        let mut policy = ToolPolicy::default();
        policy.retry.max_attempts = self.manners.attempts.unwrap_or(policy.retry.max_attempts);
        policy.time_limit = self.manners.limit_ms.map(Duration::from_millis);
        policy
    }

    fn around<'a>(&'a self, call: ToolInvocation<'a>, next: Next<'a>) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(async move {
            let note = |note: &str| self.notes.lock().unwrap().push(note.to_owned());
            let (tool, whose) = (call.tool().id.clone(), call.context().agent_id.clone());
            note(&format!("{whose} calls {tool} {}", call.arguments()));
            let forbidden = self.manners.forbidden.as_ref();
            if forbidden.is_some_and(|word| call.arguments().to_string().contains(word)) {
                return Err(Error::new(codes::TOOL_PERMANENT, "that is not spoken of here"));
            }
            let result = next.run(call).await;
            note(if result.is_ok() { "it worked" } else { "it failed" });
            result
        })
    }
}

/// An agent that calls `probe` once with that executor, and is done.
fn calling(executor: impl ToolExecutor + Clone, config: Value, probe: Probe) -> Setup {
    let script = once([calls(&[("probe", json!({ "word": "cheese" }))]), text("done")]);
    Setup::new(script)
        .plugins(|registry| registry.tool_executor("plain", move |_: NoConfig| Ok(executor.clone())))
        .tool("probe", probe)
        .agent(move |agent| agent["tool_executor"] = config)
}

/// The same, with one that minds its manners. Gives what became of it, and its notes.
async fn noting(manners: Value, probe: Probe) -> (Outcome, Vec<String>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noted = notes.clone();
    let make = move |manners: Manners| Ok(Noting { manners, notes: noted.clone() });
    let script = once([calls(&[("probe", json!({ "word": "cheese" }))]), text("done")]);
    let setup = Setup::new(script)
        .plugins(|registry| registry.tool_executor("noting", make))
        .tool("probe", probe)
        .agent(move |agent| agent["tool_executor"] = json!({ "impl": "noting", "config": manners }));
    let outcome = setup.start().await.run(hi()).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
    let notes = notes.lock().unwrap().clone();
    (outcome, notes)
}

/// What the model was told of its call.
fn told(outcome: &Outcome) -> String {
    tool_results(outcome.log.last().unwrap())[0].1.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_is_around_each_attempt_and_the_machine_alone_repeats_them() {
    let calls = "assistant calls probe {\"word\":\"cheese\"}";
    let (outcome, notes) = noting(json!({}), Probe::saying("x")).await;
    assert_eq!((told(&outcome).as_str(), notes), ("x", vec![calls.to_owned(), "it worked".to_owned()]));
    let probe = Probe::new(|_| async { Err(Error::new(codes::TOOL_UNAVAILABLE, "shut")) });
    let (outcome, notes) = noting(json!({ "attempts": 3 }), probe.clone()).await;
    assert_eq!(notes, [calls, "it failed"].repeat(3));
    assert_eq!((probe.calls().len(), outcome.events_of(names::TOOL_RETRY_REQUESTED).len()), (3, 2));
    assert!(told(&outcome).starts_with("tool.unavailable: shut"), "{}", told(&outcome));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_an_executor_refuses_is_not_made_and_the_model_is_told_why() {
    let probe = Probe::saying("x");
    let (outcome, notes) = noting(json!({ "forbidden": "cheese", "attempts": 3 }), probe.clone()).await;
    assert_eq!((probe.calls().len(), notes.len()), (0, 1));
    assert!(told(&outcome).starts_with("tool.permanent: that is not spoken of here"), "{}", told(&outcome));
}

/// retry.md §2, Tools: "one exception: a time-out of a tool that is not idempotent, since it may have run".
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_outlasts_the_executors_limit_is_a_time_out() {
    let probe = Probe::hanging();
    let (outcome, _) = noting(json!({ "limit_ms": 50, "attempts": 3 }), probe.clone()).await;
    assert_eq!(probe.calls().len(), 1);
    let said = "tool.timeout: probe did not end within 50 ms, its executor's time limit";
    assert!(told(&outcome).starts_with(said), "{}", told(&outcome));
}

#[derive(Clone, Copy)]
struct Panics {
    at_once: bool,
}

impl ToolExecutor for Panics {
    fn around<'a>(
        &'a self,
        _call: ToolInvocation<'a>,
        _next: Next<'a>,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        if self.at_once { burnt() } else { Box::pin(async { burnt() }) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_panics_is_a_tool_that_failed() {
    for at_once in [true, false] {
        let setup = calling(Panics { at_once }, json!({ "impl": "plain" }), Probe::saying("x"));
        let outcome = setup.start().await.run(hi()).await;
        assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("done"));
        assert!(told(&outcome).starts_with("tool.error: tool probe panicked: out of cheese"));
        assert_eq!(outcome.events_of(names::TOOL_FAILED).len(), 1);
    }
}

struct NoPolicy;

impl ToolExecutor for NoPolicy {
    fn policy(&self) -> ToolPolicy {
        burnt()
    }
}

/// Everything that executors are registered as here.
fn registry() -> Registry {
    let notes = Arc::<Mutex<Vec<String>>>::default();
    Registry::new()
        .tool_executor("noting", move |manners: Manners| Ok(Noting { manners, notes: notes.clone() }))
        .tool_executor("no_policy", |_: NoConfig| Ok(NoPolicy))
}

#[test]
fn what_is_wrong_with_an_executor_is_named_with_its_path() {
    for (executor, code, said, hint) in [
        (
            json!({ "impl": "noting", "config": { "atempts": 3 } }),
            codes::PLUGIN_CONFIG,
            "agents[0].tool_executor.config.atempts: there is no key \"atempts\" (agent.json:",
            Some("did you mean \"attempts\"?"),
        ),
        (
            json!({ "impl": "noting", "config": { "attempts": 0 } }),
            codes::PLUGIN_CONFIG,
            "agents[0].tool_executor.config.attempts: 0 is not in 1..=4294967295 (agent.json:",
            None,
        ),
        (
            json!({ "impl": "notting" }),
            codes::PLUGIN_LOAD,
            "agents[0].tool_executor.impl: no tool executor is called \"notting\" (agent.json:",
            Some("did you mean \"noting\"?"),
        ),
        (
            json!({ "impl": "no_policy" }),
            codes::PLUGIN_ERROR,
            "the tool executor panicked when it was asked for its policy: out of cheese",
            None,
        ),
    ] {
        let error = refused(registry(), |document| document["agents"][0]["tool_executor"] = executor);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(said), "{said}: {error}");
        assert!(hint.is_none_or(|hint| error.hint() == Some(hint)), "{error}");
    }
}

/// retry.md §2, Tools: "`max_attempts` 3", and `safe` makes one; both are registered as a program's are.
#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_executors_differ_by_their_policy() {
    assert_eq!(ToolPolicy::default().retry, ToolRetry::never());
    for (executor, made) in [(json!({ "type": "safe" }), 1), (json!({ "type": "retry" }), 3)] {
        let probe = Probe::new(|_| async { Err(Error::new(codes::TOOL_UNAVAILABLE, "shut")) });
        let setup = calling(Panics { at_once: true }, executor, probe.clone());
        setup.start().await.run(hi()).await.output.unwrap();
        assert_eq!(probe.calls().len(), made);
    }
}
