//! A tool, and an error with a code of its own: `own-parts errors parcels.unknown` explains it.

use std::collections::BTreeMap;

use aplomb::tools::{Tool, ToolContext};
use aplomb::{AgentError, Error};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, AgentError)]
#[agent_error(
    code = "parcels.unknown",
    parent = "tool.permanent",
    hint = "ask for the number on the receipt"
)]
#[error("no parcel has the number {number}")]
struct UnknownParcel {
    number: String,
}

/// Says where parcels are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParcelsConfig {
    /// Where each parcel is, by its number.
    known: BTreeMap<String, String>,
}

pub(crate) struct Parcels(BTreeMap<String, String>);

impl Parcels {
    pub(crate) fn new(config: ParcelsConfig) -> Parcels {
        Parcels(config.known)
    }
}

impl Tool for Parcels {
    fn description(&self) -> &str {
        "Says where a parcel is, by its number."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"number": {"type": "string"}},
            "required": ["number"],
            "additionalProperties": false
        })
    }

    fn idempotent(&self) -> bool {
        true
    }

    fn call(&self, arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        let number = arguments.get("number").and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = self.0.get(&number).map(|place| json!(place));
        ready(found.ok_or_else(|| UnknownParcel { number }.into())).boxed()
    }
}
