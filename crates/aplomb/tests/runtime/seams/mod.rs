//! Each seam filled by the program: registered, named by a config, and safe whatever it does.

mod asked;
mod assemblers;
mod executors;
mod providers;
mod stores;
mod unruly;

use aplomb::config::Config;
use aplomb::plugins::Registry;
use aplomb::{Error, Runtime};
use serde_json::{Value, json};

/// Why a runtime of this one agent, or of what the whole document is changed to, cannot be built.
#[track_caller]
pub(crate) fn refused(registry: Registry, change: impl FnOnce(&mut Value)) -> Error {
    let script = json!({ "steps": [{ "reply": { "message": { "text": "never" } } }] });
    let agent = json!({ "id": "assistant", "llm": { "provider": "mock", "script": script } });
    let mut document = json!({ "version": "1.0", "agents": [agent] });
    change(&mut document);
    let config = Config::from_json(&format!("{document:#}"), "agent.json");
    let built = config.and_then(|config| Runtime::builder(config).plugins(registry).build());
    built.err().expect("it should have been refused")
}

/// A panic of a plugin's.
pub(crate) fn burnt<T>() -> T {
    panic!("out of cheese")
}
