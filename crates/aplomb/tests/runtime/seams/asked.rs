//! What parts are asked before anything is run: who cannot answer is named, with its place.

use aplomb::plugins::{NoConfig, Registry};
use aplomb::tools::{Tool, ToolContext};
use aplomb::{Ask, Capability, Error, Pattern, View, codes};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{burnt, refused};

/// Panics when it is asked what it needs, or what it is called; or needs what hardly anybody offers.
#[derive(Clone, Copy)]
enum Odd {
    Needs,
    Kind,
    Choosy,
}

impl Pattern for Odd {
    fn kind(&self) -> &str {
        if let Odd::Kind = self { burnt() } else { "odd" }
    }

    fn version(&self) -> u32 {
        1
    }

    fn needs(&self) -> &[Capability] {
        match self {
            Odd::Needs => burnt(),
            Odd::Kind => &[],
            Odd::Choosy => &[Capability::StructuredOutput],
        }
    }

    fn next(&self, _: View<'_>) -> Ask {
        Ask::Model
    }
}

/// errors.md §2, `plugin.error`; the message names the thing and the place.
#[test]
fn a_pattern_that_panics_when_it_is_asked_is_named_with_its_place() {
    for (odd, asked) in [(Odd::Needs, "what it needs"), (Odd::Kind, "what it is")] {
        let registry = Registry::new().pattern("own", move |_: NoConfig| Ok(odd));
        let error = refused(registry, |document| {
            document["agents"][0]["pattern"] = json!({ "impl": "own" });
        });
        let said = format!("the pattern panicked when it was asked {asked}: out of cheese");
        assert!(error.message().contains(&said), "{said}: {error}");
        let path = error.context("path").and_then(Value::as_str);
        assert_eq!((error.code(), path), (codes::PLUGIN_ERROR, Some("agents[0].pattern")), "{error}");
    }
}

/// A config knows a pattern by the name that it was registered by, whatever it calls itself.
#[test]
fn a_pattern_that_needs_too_much_is_named_as_the_config_names_it() {
    let registry = Registry::new().pattern("own", |_: NoConfig| Ok(Odd::Choosy));
    let error = refused(registry, |document| {
        document["agents"][0]["pattern"] = json!({ "impl": "own" });
    });
    let said = "pattern \"own\" needs structured output, which provider \"mock\" does not offer";
    assert!(error.message().contains(said), "{said}: {error}");
    assert_eq!(error.code(), codes::PLUGIN_CAPABILITY);
}

struct Mute;

impl Tool for Mute {
    fn description(&self) -> &str {
        "Says nothing."
    }

    fn parameters(&self) -> Value {
        burnt()
    }

    fn call(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        burnt()
    }
}

/// docs/errors/plugin.error.md: "find it by the id in the message, which ends with what the panic said".
#[test]
fn a_tool_that_panics_when_it_is_asked_is_named_with_what_the_panic_said() {
    let registry = Registry::new().tool("mute", |_: NoConfig| Ok(Mute));
    let error = refused(registry, |document| {
        document["agents"][0]["tools"] = json!([{ "id": "lookup", "impl": "mute" }]);
    });
    let said = "tool \"lookup\" panicked when it was asked for its schema: out of cheese";
    assert!(error.message().contains(said), "{said}: {error}");
    assert_eq!(error.code(), codes::PLUGIN_ERROR);
}
