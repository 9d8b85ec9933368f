//! Tools: what an agent can do besides talking, and how they are called.

mod calc;
mod current_time;
mod executor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aplomb_core::error::{Error, codes};
use aplomb_core::message::ToolCall;
use aplomb_core::run::Identity;
use aplomb_core::tool::ToolSpec;
use futures_util::future::BoxFuture;
use jsonschema::Validator;
use serde_json::Value;

pub use calc::Calc;
pub use current_time::CurrentTime;
pub use executor::{Next, ToolExecutor, ToolInvocation, ToolPolicy};
pub(crate) use executor::{Retrying, Safe};

use crate::boundary;

/// Something that an agent can do.
///
/// A tool is called once per call of the model; whether a failed call is repeated is decided elsewhere.
pub trait Tool: Send + Sync + 'static {
    /// When and how to use it, for the model.
    fn description(&self) -> &str;

    /// JSON Schema of the arguments, an object's.
    fn parameters(&self) -> Value;

    /// Whether a call that is made twice does no more than one that is made once. A call that timed out is made again
    /// only where it is so.
    fn idempotent(&self) -> bool {
        false
    }

    /// Does it.
    ///
    /// # Errors
    ///
    /// Errors below `tool.error` reach the model as they are, so that it can do better.
    fn call(&self, arguments: Value, context: ToolContext) -> BoxFuture<'_, Result<Value, Error>>;
}

/// What a tool may know of the call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The run.
    pub run_id: String,
    /// Its session. The run has it until it ends: a tool that runs an agent in it, too, would wait for itself, and be refused
    /// after `session.lock_timeout_ms`. Let that run have a session of its own.
    pub session_id: String,
    /// Its agent.
    pub agent_id: String,
    /// The provider's id for the call. Providers use them again.
    pub call_id: String,
    /// What tells a service that it has been asked for this already: the same for every attempt of one call, and another
    /// one for every other call of whatever run, also of a run that has the id of an earlier one. Hexadecimal digits and
    /// a hyphen, so that it can be sent as a header.
    pub idempotency_key: String,
    /// The time, in ms of Unix time.
    pub now_ms: u64,
}

impl ToolContext {
    pub(crate) fn new(
        identity: &Identity,
        call: &ToolCall,
        idempotency_key: String,
        now_ms: u64,
    ) -> ToolContext {
        ToolContext {
            run_id: identity.run_id.clone(),
            session_id: identity.session_id.clone(),
            agent_id: identity.agent_id.clone(),
            call_id: call.id.clone(),
            idempotency_key,
            now_ms,
        }
    }
}

/// The tools of one agent, and how they are called.
pub(crate) struct Toolbox {
    tools: BTreeMap<String, Entry>,
    executor: Arc<dyn ToolExecutor>,
    time_limit: Option<Duration>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
    arguments: Validator,
}

impl Toolbox {
    /// Without any tool so far; `time_limit` is that of one attempt.
    pub(crate) fn new(executor: Arc<dyn ToolExecutor>, time_limit: Option<Duration>) -> Toolbox {
        Toolbox { tools: BTreeMap::new(), executor, time_limit }
    }

    /// How long one attempt may take.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// Adds a tool.
    pub(crate) fn add(&mut self, id: &str, tool: Arc<dyn Tool>) -> Result<(), Error> {
        self.try_add(id, tool).map_err(|error| error.with_context("tool_id", id))
    }

    fn try_add(&mut self, id: &str, tool: Arc<dyn Tool>) -> Result<(), Error> {
        if !is_tool_id(id) {
            return Err(Error::new(codes::PLUGIN_CONFIG, format!("the id of tool {id:?} must be {TOOL_ID}")));
        }
        let (description, parameters, idempotent) =
            boundary::ask(&format!("tool {id:?}"), "for its schema", || {
                (tool.description().to_owned(), tool.parameters(), tool.idempotent())
            })?;
        let arguments = jsonschema::validator_for(&parameters).map_err(|error| {
            Error::new(
                codes::PLUGIN_CONFIG,
                format!("the parameters of tool {id:?} are no JSON Schema: {error}"),
            )
        })?;
        let spec = ToolSpec { id: id.to_owned(), description, parameters, idempotent };
        match self.tools.insert(id.to_owned(), Entry { tool, spec, arguments }) {
            None => Ok(()),
            Some(_) => Err(Error::new(codes::CONFIG_VALIDATION, format!("two tools are called {id:?}"))),
        }
    }

    /// What the model is told.
    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        self.tools.values().map(|entry| entry.spec.clone()).collect()
    }

    /// Whether a tool takes these arguments.
    pub(crate) fn check(&self, id: &str, arguments: &Value) -> Result<(), Error> {
        let schema = &self.entry(id)?.arguments;
        if schema.is_valid(arguments) {
            return Ok(());
        }
        let problems = schema.iter_errors(arguments);
        // Masked: a value that does not fit may be a secret all the same.
        let problems = problems.map(|error| match error.instance_path().as_str() {
            "" => error.masked().to_string(),
            path => format!("{path}: {}", error.masked()),
        });
        let problems = problems.collect::<Vec<_>>().join("; ");
        let message = format!("the arguments of {id} do not fit its schema: {problems}");
        Err(Error::new(codes::TOOL_VALIDATION, message))
    }

    /// Runs a tool, in the executor's hands.
    pub(crate) async fn call(
        &self,
        id: &str,
        arguments: Value,
        context: ToolContext,
    ) -> Result<Value, Error> {
        let Entry { tool, spec, .. } = self.entry(id)?;
        self.executor.around(ToolInvocation { tool: spec, arguments, context }, Next(&**tool)).await
    }

    fn entry(&self, id: &str) -> Result<&Entry, Error> {
        let unknown = || Error::new(codes::TOOL_NOT_FOUND, format!("no tool is called {id:?}"));
        self.tools.get(id).ok_or_else(unknown)
    }
}

/// What an id of a tool must be. Source: OpenAI API reference, `tools[].function.name`; Anthropic's is the same.
const TOOL_ID: &str = "1 to 64 letters, digits, underscores or dashes";

fn is_tool_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&id.len()) && id.bytes().all(fits)
}

/// A required text argument.
fn text_argument<'a>(arguments: &'a Value, name: &str) -> Result<&'a str, Error> {
    arguments
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| Error::new(codes::TOOL_VALIDATION, format!("`{name}` is required and must be a text")))
}
