//! An event sink: says on standard error what was looked up.

use std::io::Write;

use aplomb::event::names;
use aplomb::{Event, Subscriber};
use schemars::JsonSchema;
use serde::Deserialize;

/// Says on standard error which tools were called, and with what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BellConfig {
    /// What each line begins with.
    sound: String,
}

pub(crate) struct Bell(pub(crate) BellConfig);

impl Subscriber for Bell {
    fn on_event(&self, event: &Event) {
        if event.name == names::TOOL_CALLED {
            let field = |name| event.payload.get(name).map(ToString::to_string).unwrap_or_default();
            let (tool, arguments) = (field("tool_id"), field("params"));
            // Where nobody listens, nothing is lost.
            let _unheard = writeln!(std::io::stderr(), "{} {tool} {arguments}", self.0.sound);
        }
    }
}
