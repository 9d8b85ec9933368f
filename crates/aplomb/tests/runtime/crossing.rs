//! From one protocol to another in the middle of a conversation: what one provider's model has thought, said and called,
//! another provider takes as it is sent. The fault lab refuses what the provider would refuse.
use aplomb::event::names;
use aplomb::{Error, RunRequest};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::*;

/// A protocol, by how a config asks for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) provider: &'static str,
    /// `openai_api_style`, where there is a choice.
    style: Option<&'static str>,
}

/// Every protocol that the fault lab speaks.
pub(crate) const WIRES: &[Wire] = &[
    Wire { provider: "openai_compatible", style: None },
    Wire { provider: "openai_compatible", style: Some("responses") },
    Wire { provider: "gemini", style: None },
    // With its thoughts sent back to it.
    Wire { provider: "deepseek", style: None },
    Wire { provider: "anthropic", style: None },
];

impl Wire {
    pub(crate) fn llm(self, model: &str, api_base: &str, mode: Mode) -> Value {
        let stream = if mode == Mode::Streamed { "always" } else { "auto" };
        // Cargo sets the variable for every test, so that a key is there to be sent.
        let mut llm = json!({
            "provider": self.provider, "model": model, "api_base": api_base, "stream": stream,
            "api_key_env": "CARGO_MANIFEST_DIR", "retry": {"jitter": "none"},
        });
        if let Some(style) = self.style {
            llm["openai_api_style"] = json!(style);
        }
        llm
    }
}

/// A step in which the model thinks, speaks, and calls a tool twice.
fn thinks_and_calls(thought: &str, first: &str, second: &str) -> Value {
    let calls =
        [first, second].map(|expression| json!({"name": "calc", "arguments": {"expression": expression}}));
    message(json!({"thinking": thought, "text": "Let me see.", "tool_calls": calls}))
}

fn thinks_and_says(thought: &str, said: &str) -> Value {
    message(json!({"thinking": thought, "text": said}))
}

/// What cannot pass, in any protocol: the account is empty.
fn spent() -> Value {
    status(402)
}

async fn crosses(from: Wire, to: Wire, mode: Mode) {
    let name = format!("{from:?} → {to:?}, {mode:?}");
    let second_script = once([
        thinks_and_calls("second thought", "9 * 9", "8 * 8"),
        thinks_and_says("third thought", "The second says {{tool_result}}."),
    ]);
    let second = FaultServer::start(Script::from_json(&second_script.to_string()).unwrap()).await.unwrap();
    let first_script = once([
        thinks_and_calls("first thought", "6 * 7", "5 * 5"),
        spent(),
        thinks_and_calls("fourth thought", "2 * 3", "3 * 3"),
        thinks_and_says("fifth thought", "The first says {{tool_result}}."),
    ]);
    let address = second.base_url();
    let lab = Setup::new(first_script)
        .agent(move |agent| {
            let own = agent["llm"]["api_base"].as_str().unwrap().to_owned();
            agent["llm"] = from.llm("first", &own, mode);
            agent["llm"]["fallbacks"] = json!([to.llm("second", &address, mode)]);
            agent["llm"]["fallbacks"][0].as_object_mut().unwrap().remove("retry");
            agent["tools"] = json!([{"id": "calc", "type": "calc"}]);
            agent["memory"] = json!({"type": "buffer"});
        })
        .start()
        .await;
    let ask = || RunRequest::new("assistant", "Calculate.").session_id("s");
    let run =
        async |request| if mode == Mode::Watched { lab.watch(request).await } else { lab.run(request).await };

    // There, with the first one's thoughts and calls in the history.
    let outcome = run(ask()).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("The second says 64."), "{name}");
    assert_eq!((lab.requests(), second.request_count()), (2, 2), "{name}");
    assert_eq!(outcome.events_of(names::MODEL_FALLBACK).len(), 1, "{name}");
    assert_eq!(outcome.result().usage.tool_calls, 4, "{name}");
    let taken = second.requests();
    for request in &taken {
        let body = request.body.to_string();
        // Every call with its result; and no thought of the other's.
        assert!(body.contains("6 * 7") && body.contains("42") && body.contains("25"), "{name}: {body}");
        assert!(!body.contains("first thought"), "{name}: {body}");
    }

    // And back: it was left for the rest of that run only.
    let outcome = run(ask()).await;
    assert_eq!(outcome.output.as_deref().map_err(Error::to_string), Ok("The first says 9."), "{name}");
    assert_eq!((lab.requests(), second.request_count()), (4, 2), "{name}");
    for request in &outcome.log {
        let body = request.body.to_string();
        assert!(body.contains("9 * 9") && body.contains("The second says 64."), "{name}: {body}");
        assert!(!body.contains("second thought") && !body.contains("third thought"), "{name}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_thoughts_and_calls_goes_from_every_protocol_to_every_other_and_back() {
    for from in WIRES {
        let ways = WIRES.iter().flat_map(|to| MODES.map(|mode| crosses(*from, *to, mode)));
        join_all(ways).await;
    }
}
