//! Context assemblers of the program's own.

use std::sync::{Arc, Mutex};

use aplomb::event::names;
use aplomb::plugins::{NoConfig, Registry};
use aplomb::{Assembler, Assembly, Message, RunRequest, codes};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{burnt, refused};
use crate::support::*;

fn too_long() -> Value {
    http(400, json!({}), json!({"error": {"message": "too long", "code": "context_length_exceeded"}}))
}

/// Leaves out what the config says, whatever it is.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Leaves {
    /// The places of the messages.
    out: Vec<usize>,
}

impl Assembler for Leaves {
    fn shrink(&self, _conversation: &[&Message]) -> Assembly {
        Assembly::Drop(self.out.clone())
    }
}

struct Panics;

impl Assembler for Panics {
    fn shrink(&self, _conversation: &[&Message]) -> Assembly {
        burnt()
    }
}

fn registry() -> Registry {
    Registry::new()
        .context_assembler("leaves", |config: Leaves| Ok(config))
        .context_assembler("panics", |_: NoConfig| Ok(Panics))
}

/// Two turns, the first with a tool, and a third that the model takes in two goes. The conversation of it is: 0
/// instructions, 1 "one", 2 a call, 3 its result, 4 "first", 5 "two", 6 "second", 7 "three".
async fn third_turn(assembler: Value) -> Outcome {
    let script =
        once([calls(&[("probe", json!({}))]), text("first"), text("second"), too_long(), text("third")]);
    let lab = Setup::new(script)
        .plugins(|_| registry())
        .tool("probe", Probe::saying("x"))
        .agent(move |agent| {
            agent["memory"] = json!({ "type": "buffer" });
            agent["pattern"] = json!({ "type": "react", "config": { "system_prompt": "Be brief." } });
            agent["context_assembler"] = assembler;
        })
        .start()
        .await;
    for input in ["one", "two"] {
        lab.run(RunRequest::new("assistant", input).session_id("s")).await.output.unwrap();
    }
    lab.run(RunRequest::new("assistant", "three").session_id("s")).await
}

/// What the second request of the third turn says.
fn sent(outcome: &Outcome) -> Vec<String> {
    said(&outcome.log[1]).into_iter().map(|(role, text)| format!("{role} {text}").trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_assembler_leaves_out_is_not_sent_again() {
    let outcome = third_turn(json!({ "impl": "leaves", "config": { "out": [1, 2, 3, 4] } })).await;
    outcome.output.as_ref().unwrap();
    assert_eq!(sent(&outcome), ["system Be brief.", "user two", "assistant second", "user three"]);
    assert_eq!(outcome.events_of(names::CONTEXT_COMPACTED)[0].payload["dropped_messages"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_assembler_says_the_next_request_is_one_that_a_model_takes() {
    let everything: Vec<_> = (0..100).collect();
    let outcome = third_turn(json!({ "impl": "leaves", "config": { "out": everything } })).await;
    outcome.output.as_ref().unwrap();
    assert_eq!(sent(&outcome), ["system Be brief.", "user three"]);
    // The result without its call, and the answer that would come first.
    let outcome = third_turn(json!({ "impl": "leaves", "config": { "out": [1, 2, 4, 5] } })).await;
    outcome.output.as_ref().unwrap();
    let kept = ["system Be brief.", "user one", "assistant", "tool x", "assistant second", "user three"];
    assert_eq!(sent(&outcome), kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assembler_that_panics_or_leaves_nothing_out_ends_the_call_with_its_failure() {
    for assembler in
        [json!({ "impl": "panics" }), json!({ "impl": "leaves", "config": { "out": [0, 7, 99] } })]
    {
        let outcome = third_turn(assembler).await;
        assert_eq!((outcome.error().code(), outcome.log.len()), (codes::LLM_RESPONSE, 1));
        assert_eq!(outcome.error().reason(), Some("context_overflow"));
        assert!(outcome.events_of(names::CONTEXT_COMPACTED).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncating_is_what_there_is_where_nothing_is_said() {
    let named = third_turn(json!({ "type": "truncating" })).await;
    let unsaid = third_turn(Value::Null).await;
    named.output.as_ref().unwrap();
    assert_eq!(sent(&named), sent(&unsaid));
    assert!(sent(&named).len() < 8, "{:?}", sent(&named));
}

#[test]
fn what_is_wrong_with_an_assembler_is_named_with_its_path() {
    for (assembler, code, said, hint) in [
        (
            json!({ "impl": "leaves", "config": { "out": [1, "two"] } }),
            codes::PLUGIN_CONFIG,
            "agents[0].context_assembler.config.out[1]:",
            None,
        ),
        (
            json!({ "impl": "leafs" }),
            codes::PLUGIN_LOAD,
            "agents[0].context_assembler.impl: no context assembler is called \"leafs\"",
            Some("did you mean \"leaves\"?"),
        ),
        (
            json!({ "type": "truncating", "config": { "compact_at": 0.5 } }),
            codes::CONFIG_VALIDATION,
            "agents[0].context_assembler.config.compact_at: this does nothing yet; it comes with windows that are known",
            None,
        ),
        (
            json!({ "type": "head_tail" }),
            codes::PLUGIN_LOAD,
            "the context assembler \"head_tail\" is not there yet",
            None,
        ),
    ] {
        let error = refused(registry(), |document| document["agents"][0]["context_assembler"] = assembler);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(said), "{said}: {error}");
        assert!(hint.is_none_or(|hint| error.hint() == Some(hint)), "{error}");
    }
    // A program's own may call its keys whatever it likes.
    #[derive(Deserialize, JsonSchema)]
    struct Own {
        compact_at: f64,
    }
    let seen = Arc::new(Mutex::new(0.0));
    let told = seen.clone();
    let registry = Registry::new().context_assembler("own", move |config: Own| {
        *told.lock().unwrap() = config.compact_at;
        Ok(Panics)
    });
    let error = refused(registry, |document| {
        document["agents"][0]["context_assembler"] =
            json!({ "impl": "own", "config": { "compact_at": 0.5 } });
        document["events"] = json!({ "impl": "nobody" });
    });
    assert!(!error.message().contains("compact_at"), "{error}");
}
