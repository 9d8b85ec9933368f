//! How tools are called: what goes before and after a call, and what the machine is told about calls that fail.

use std::time::Duration;

use aplomb_core::decide::ToolRetry;
use aplomb_core::error::Error;
use aplomb_core::tool::ToolSpec;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{Tool, ToolContext};

/// How an agent's tools are called: `agents[].tool_executor`.
///
/// It is two things: data that Aplomb goes by, and something around each call. It may check, limit, log or refuse a call;
/// it cannot repeat one, since whether a call that failed is made again is decided in one place, by that data.
///
/// ```
/// use aplomb::tools::{Next, ToolExecutor, ToolInvocation};
/// use aplomb::{Error, codes};
/// use futures_util::future::BoxFuture;
/// use serde_json::Value;
///
/// /// Calls nothing but what may be called twice.
/// struct Careful;
///
/// impl ToolExecutor for Careful {
///     fn around<'a>(&'a self, call: ToolInvocation<'a>, next: Next<'a>) -> BoxFuture<'a, Result<Value, Error>> {
///         Box::pin(async move {
///             if !call.tool().idempotent {
///                 return Err(Error::new(codes::TOOL_PERMANENT, "this is not done here"));
///             }
///             next.run(call).await
///         })
///     }
/// }
/// ```
pub trait ToolExecutor: Send + Sync + 'static {
    /// What Aplomb goes by. Asked once, when the agent is made ready.
    fn policy(&self) -> ToolPolicy {
        ToolPolicy::default()
    }

    /// One call of a tool whose arguments fit its schema. Each further attempt is a call of its own.
    ///
    /// # Errors
    ///
    /// What `next` gives, or why the call is refused. It counts as the tool's own error: its code says whether the call is
    /// made again, and in the end the model is told.
    fn around<'a>(&'a self, call: ToolInvocation<'a>, next: Next<'a>) -> BoxFuture<'a, Result<Value, Error>> {
        next.run(call)
    }
}

/// What Aplomb goes by where tools are called.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolPolicy {
    /// Which calls that failed are made again, and when. None, where nothing else is said.
    pub retry: ToolRetry,
    /// How long one attempt may take, what is around it included; it fails with `tool.timeout` then. Without a limit,
    /// where nothing else is said.
    pub time_limit: Option<Duration>,
}

impl Default for ToolPolicy {
    fn default() -> ToolPolicy {
        ToolPolicy { retry: ToolRetry::never(), time_limit: None }
    }
}

/// A call that is to be made.
#[derive(Debug)]
pub struct ToolInvocation<'a> {
    pub(super) tool: &'a ToolSpec,
    pub(super) arguments: Value,
    pub(super) context: ToolContext,
}

impl ToolInvocation<'_> {
    /// The tool, as the model sees it.
    pub fn tool(&self) -> &ToolSpec {
        self.tool
    }

    /// The arguments, an object that fits the tool's schema.
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// Whose call it is.
    pub fn context(&self) -> &ToolContext {
        &self.context
    }
}

/// The tool itself, which can be called once.
pub struct Next<'a>(pub(super) &'a dyn Tool);

impl<'a> Next<'a> {
    /// Calls the tool.
    pub fn run(self, call: ToolInvocation<'a>) -> BoxFuture<'a, Result<Value, Error>> {
        self.0.call(call.arguments, call.context)
    }
}

/// `tool_executor: safe`: calls a tool once.
pub(crate) struct Safe;

impl ToolExecutor for Safe {}

/// `tool_executor: retry`: calls a tool again where its error says that it may help.
pub(crate) struct Retrying(pub(crate) ToolRetry);

impl ToolExecutor for Retrying {
    fn policy(&self) -> ToolPolicy {
        ToolPolicy { retry: self.0.clone(), ..ToolPolicy::default() }
    }
}
