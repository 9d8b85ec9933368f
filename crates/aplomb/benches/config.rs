//! How long a config takes to be read, checked and made ready: one of a thousand agents, and the quickstart's.
//!
//! The promise is 100 ms for a thousand agents. Run by `cargo bench -p aplomb --bench config`.

use aplomb::Runtime;
use aplomb::config::{Config, Format, Loader};
use serde_json::{Value, json};

const QUICKSTART: &str = include_str!("../../../examples/quickstart/agent.json");

fn main() {
    divan::main();
}

/// As people write it, over many lines.
fn thousand() -> String {
    let agent = |index: usize| {
        json!({
            "id": format!("agent-{index}"),
            "name": format!("Agent number {index}"),
            "memory": {"type": "buffer"},
            "pattern": {"type": "react", "config": {"system_prompt": "You answer questions about numbers. Use calc; never guess."}},
            "llm": {
                "provider": "mock", "model": "scripted", "temperature": 0.2, "max_tokens": 1_000,
                "retry": {"max_attempts": 3, "jitter": "full"},
                "script": {"steps": [{"reply": {"message": {"text": "The answer is 81."}}}], "at_end": "repeat_last"},
            },
            "tool_executor": {"type": "retry", "config": {"max_attempts": 3}},
            "tools": [{"id": "calc", "type": "calc"}, {"id": "current_time", "type": "current_time"}],
            "runtime": {"max_steps": 8},
        })
    };
    let agents: Vec<Value> = (0..1_000).map(agent).collect();
    format!("{:#}", json!({"version": "1.0", "agents": agents}))
}

#[divan::bench]
fn read_a_thousand_agents(bencher: divan::Bencher<'_, '_>) {
    let text = thousand();
    bencher
        .bench(|| Loader::text(&text, "agent.json", Format::Json).load().map(|config| config.agents.len()));
}

#[divan::bench]
fn read_a_thousand_agents_and_set_two_values(bencher: divan::Bencher<'_, '_>) {
    let text = thousand();
    bencher.bench(|| {
        let layers = Loader::text(text.as_str(), "agent.json", Format::Json);
        let layers = layers.set("agents.agent-999.llm.model=4").set("session.lock_timeout_ms=5000");
        layers.load().map(|config| config.agents.len())
    });
}

#[divan::bench]
fn read_and_build_a_thousand_agents(bencher: divan::Bencher<'_, '_>) {
    let text = thousand();
    bencher.bench(|| {
        let config = Loader::text(&text, "agent.json", Format::Json).load()?;
        Runtime::builder(config).build()
    });
}

#[divan::bench]
fn read_the_quickstart(bencher: divan::Bencher<'_, '_>) {
    bencher.bench(|| Config::from_json(QUICKSTART, "agent.json").map(|config| config.agents.len()));
}
