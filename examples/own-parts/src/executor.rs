//! A tool executor: limits the time of calls, and refuses those that cannot be taken back.

use std::time::Duration;

use aplomb::tools::{Next, ToolExecutor, ToolInvocation, ToolPolicy};
use aplomb::{Error, codes};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Calls no tool that does more when it is called twice.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CarefulConfig {
    /// How long a call may take.
    #[schemars(range(min = 1))]
    limit_ms: u64,
}

pub(crate) struct Careful(pub(crate) CarefulConfig);

impl ToolExecutor for Careful {
    fn policy(&self) -> ToolPolicy {
        let mut policy = ToolPolicy::default();
        policy.time_limit = Some(Duration::from_millis(self.0.limit_ms));
        policy
    }

    fn around<'a>(&'a self, call: ToolInvocation<'a>, next: Next<'a>) -> BoxFuture<'a, Result<Value, Error>> {
        Box::pin(async move {
            if !call.tool().idempotent {
                return Err(Error::new(
                    codes::TOOL_PERMANENT,
                    "this cannot be taken back: it is not done here",
                ));
            }
            next.run(call).await
        })
    }
}
