//! What a run is asked, and what it gives.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aplomb_core::error::{Code, Error, ErrorDetails, codes};
use aplomb_core::event::{Event, names};
use aplomb_core::message::{Block, Message, Role};
use aplomb_core::redact::Redactor;
use aplomb_core::run::{Finished, Identity, RunBudget, RunUsage, StopReason};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::credential::{CredentialSource, SharedSource};
use crate::output::Output;

/// What the user says: text, or blocks of text and images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInput(pub(crate) Vec<Block>);

impl From<&str> for RunInput {
    fn from(text: &str) -> RunInput {
        text.to_owned().into()
    }
}

impl From<String> for RunInput {
    fn from(text: String) -> RunInput {
        RunInput(vec![Block::Text { text }])
    }
}

impl From<Vec<Block>> for RunInput {
    fn from(blocks: Vec<Block>) -> RunInput {
        RunInput(blocks)
    }
}

impl RunInput {
    /// The message, which is no longer here then.
    pub(crate) fn take_message(&mut self) -> Result<Message, Error> {
        let says_something = self.0.iter().any(|block| match block {
            Block::Text { text } => !text.trim().is_empty(),
            Block::Image { .. } => true,
            _ => false,
        });
        if !says_something {
            return Err(
                Error::new(codes::USER_INVALID_INPUT, "the input is empty").with_hint("say something")
            );
        }
        if self.0.iter().any(|block| !matches!(block, Block::Text { .. } | Block::Image { .. })) {
            return Err(Error::new(codes::USER_INVALID_INPUT, "an input holds text and images only"));
        }
        Ok(Message { role: Role::User, content: std::mem::take(&mut self.0) })
    }
}

/// What a run is asked.
///
/// ```
/// use std::time::Duration;
/// let request = aplomb::RunRequest::new("assistant", "What is 9 * 9?").timeout(Duration::from_secs(30));
/// ```
///
/// `T` is what the run gives: text, unless [`output`](RunRequest::output) or [`output_schema`](RunRequest::output_schema) says
/// otherwise.
#[non_exhaustive]
pub struct RunRequest<T = String> {
    /// Whose run it is.
    pub agent_id: String,
    /// What the user says.
    pub input: RunInput,
    /// Which conversation it belongs to; a new one where none is named.
    pub session_id: Option<String>,
    /// The run's name; made up where none is given.
    pub run_id: Option<String>,
    /// What the run may use.
    pub budget: RunBudget,
    /// How long the run may take.
    pub timeout: Option<Duration>,
    /// How the run can be cancelled.
    pub cancellation: Cancellation,
    /// What the output must be.
    pub(crate) output: Output<T>,
    /// Where the run's credential comes from, where it is not the agent's.
    pub(crate) credential: Option<SharedSource>,
    /// Whether whoever asks gets to know the session's name, so that it can go on.
    pub(crate) session_can_go_on: bool,
}

impl RunRequest {
    /// A request with nothing but what it must have.
    pub fn new(agent_id: impl Into<String>, input: impl Into<RunInput>) -> RunRequest {
        RunRequest {
            agent_id: agent_id.into(),
            input: input.into(),
            session_id: None,
            run_id: None,
            budget: RunBudget::new(),
            timeout: None,
            cancellation: Cancellation::new(),
            output: Output::text(),
            credential: None,
            session_can_go_on: true,
        }
    }

    /// A request of a caller who gets the output alone.
    pub(crate) fn for_output(agent_id: impl Into<String>, input: impl Into<RunInput>) -> RunRequest {
        RunRequest { session_can_go_on: false, ..RunRequest::new(agent_id, input) }
    }
}

impl<T> RunRequest<T> {
    /// Has the run give a `U`: the model is told its JSON Schema, and its output is held to it.
    ///
    /// The schema has the type's and the fields' doc comments as descriptions: they reach the model, and are the place to
    /// say what is meant. It goes into the field that the vendor's protocol has for it, where the vendor takes the schema
    /// there (and tools beside it, if the agent has any), with `strict` where the schema fulfils the vendor's subset: then
    /// the vendor itself holds the model to it. Anywhere else it goes into the instructions. Either way the output is
    /// checked here.
    ///
    /// An output that does not fit goes back to the model with what is wrong with it, up to
    /// [`RunBudget::max_validation_retries`] times; then the run fails with `execution.output_validation`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), aplomb::Error> {
    /// use aplomb::{RunRequest, Runtime, config::Config};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Invoice {
    ///     number: String,
    ///     cents: u32,
    /// }
    ///
    /// // A model that makes a mistake, and mends it.
    /// let config = Config::from_json(
    ///     r#"{ "version": "1.0", "agents": [{ "id": "clerk", "llm": { "provider": "mock", "script": { "steps": [
    ///         { "reply": { "message": { "text": "{\"number\": \"R7\", \"cents\": \"ten\"}" } } },
    ///         { "reply": { "message": { "text": "{\"number\": \"R7\", \"cents\": 10}" } } }
    ///     ] } } }] }"#,
    ///     "agent.json",
    /// )?;
    /// let runtime = Runtime::builder(config).build()?;
    /// let result = runtime.run_detailed(RunRequest::new("clerk", "Invoice R7, 10 cents.").output::<Invoice>()).await?;
    /// assert_eq!(result.usage.llm_calls, 2);
    /// let invoice = result.into_output()?;
    /// assert_eq!((invoice.number.as_str(), invoice.cents), ("R7", 10));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn output<U: DeserializeOwned + JsonSchema>(self) -> RunRequest<U> {
        self.with_output(Output::of_type())
    }

    /// Has the run give JSON that fits a schema of that name, as [`output`](RunRequest::output) does for a type. One that
    /// is no JSON Schema is refused before anything is sent.
    #[must_use]
    pub fn output_schema(self, name: impl Into<String>, schema: Value) -> RunRequest<Value> {
        self.with_output(Output::schema(name.into(), schema))
    }

    pub(crate) fn with_output<U>(self, output: Output<U>) -> RunRequest<U> {
        RunRequest {
            agent_id: self.agent_id,
            input: self.input,
            session_id: self.session_id,
            run_id: self.run_id,
            budget: self.budget,
            timeout: self.timeout,
            cancellation: self.cancellation,
            output,
            credential: self.credential,
            session_can_go_on: self.session_can_go_on,
        }
    }

    /// Names the conversation.
    #[must_use]
    pub fn session_id(mut self, session_id: impl Into<String>) -> RunRequest<T> {
        self.session_id = Some(session_id.into());
        self
    }

    /// Names the run.
    #[must_use]
    pub fn run_id(mut self, run_id: impl Into<String>) -> RunRequest<T> {
        self.run_id = Some(run_id.into());
        self
    }

    /// Limits what the run may use. A run that would use more ends with `execution.budget_exhausted`.
    ///
    /// ```
    /// use aplomb::{RunBudget, RunRequest};
    /// let budget = RunBudget::new().max_tool_calls(20).max_cost_usd(0.05);
    /// let request = RunRequest::new("assistant", "What is 9 * 9?").budget(budget);
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: RunBudget) -> RunRequest<T> {
        self.budget = budget;
        self
    }

    /// Limits the run's time. A run that is not done by then ends with `execution.timeout`.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> RunRequest<T> {
        self.timeout = Some(timeout);
        self
    }

    /// Lets the run be cancelled.
    #[must_use]
    pub fn cancellation(mut self, cancellation: Cancellation) -> RunRequest<T> {
        self.cancellation = cancellation;
        self
    }

    /// Has the run send a credential of its own, such as a tenant's, in place of the agent's.
    #[must_use]
    pub fn credential(mut self, source: impl CredentialSource) -> RunRequest<T> {
        self.credential = Some(SharedSource(Arc::new(source)));
        self
    }
}

// By hand, since a `T` that a request asks for need be neither.
impl<T> Clone for RunRequest<T> {
    fn clone(&self) -> RunRequest<T> {
        RunRequest {
            agent_id: self.agent_id.clone(),
            input: self.input.clone(),
            session_id: self.session_id.clone(),
            run_id: self.run_id.clone(),
            budget: self.budget,
            timeout: self.timeout,
            cancellation: self.cancellation.clone(),
            output: self.output.clone(),
            credential: self.credential.clone(),
            session_can_go_on: self.session_can_go_on,
        }
    }
}

impl<T> fmt::Debug for RunRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunRequest {
            agent_id,
            input,
            session_id,
            run_id,
            budget,
            timeout,
            cancellation,
            output,
            credential,
            session_can_go_on,
        } = self;
        f.debug_struct("RunRequest")
            .field("agent_id", agent_id)
            .field("input", input)
            .field("session_id", session_id)
            .field("run_id", run_id)
            .field("budget", budget)
            .field("timeout", timeout)
            .field("cancellation", cancellation)
            .field("output", output)
            .field("credential", credential)
            .field("session_can_go_on", session_can_go_on)
            .finish()
    }
}

/// Cancels runs. Clones cancel the same ones.
#[derive(Debug, Clone, Default)]
pub struct Cancellation {
    token: CancellationToken,
    by: Arc<OnceLock<String>>,
}

impl Cancellation {
    /// One that has not been used.
    pub fn new() -> Cancellation {
        Cancellation::default()
    }

    /// Ends every run that was given this, at once. `by` says who wanted it; the first one to say so is right.
    pub fn cancel(&self, by: impl Into<String>) {
        let _already_cancelled = self.by.set(by.into());
        self.token.cancel();
    }

    /// By whom it was used, once it was.
    pub(crate) fn cancelled_by(&self) -> Option<String> {
        self.token.is_cancelled().then(|| self.by.get().cloned().unwrap_or_default())
    }

    /// Waits until it is used.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

/// Everything that a run gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunResult<T = String> {
    /// The run.
    pub run_id: String,
    /// Its session.
    pub session_id: String,
    /// What it gave, if it completed.
    pub final_output: Option<T>,
    /// How it ended.
    pub stop_reason: StopReason,
    /// What it used, failed attempts included.
    pub usage: RunUsage,
    /// Why it failed.
    pub error_details: Option<ErrorDetails>,
    /// The program's own errors that were made known by hand.
    #[serde(skip)]
    known: Vec<Code>,
}

impl RunResult {
    pub(crate) fn of(
        identity: &Identity,
        finished: Finished,
        redactor: &Redactor,
        known: &[Code],
    ) -> RunResult {
        let Finished { stop_reason, output, error, usage, .. } = finished;
        // The answer is the user's and stays as it is; the error may quote what a tool or a provider let slip.
        let error_details = error.map(|details| redactor.details(details));
        RunResult {
            run_id: identity.run_id.clone(),
            session_id: identity.session_id.clone(),
            final_output: output,
            stop_reason,
            usage,
            error_details,
            known: known.to_vec(),
        }
    }

    /// The same with its text read as what it is.
    pub(crate) fn read_as<T>(self, output: &Output<T>) -> RunResult<T> {
        let RunResult { run_id, session_id, final_output, mut stop_reason, usage, mut error_details, known } =
            self;
        let final_output = match final_output.map(|text| output.read(text)).transpose() {
            Ok(output) => output,
            Err(error) => {
                (stop_reason, error_details) = (StopReason::Failed, Some(error.details()));
                None
            }
        };
        RunResult { run_id, session_id, final_output, stop_reason, usage, error_details, known }
    }
}

impl<T> RunResult<T> {
    /// The output, or why there is none.
    ///
    /// # Errors
    ///
    /// The run's error.
    pub fn into_output(self) -> Result<T, Error> {
        match (self.final_output, self.error_details) {
            (_, Some(details)) => Err(Error::from(details).recognise(&self.known)),
            (Some(output), None) => Ok(output),
            (None, None) => Err(Error::new(codes::EXECUTION_ERROR, "the run gave no output")),
        }
    }
}

/// A retry that is about to be waited for, as an `on_retry` hook sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Retry {
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// The most attempts that the call may make.
    pub max_attempts: u32,
    /// Whose allowance pays for the next one: `transport`, `session`, `exec`, `compaction`, `refresh` or `fallback`.
    pub layer: String,
    /// What the failure is.
    pub reason: String,
    /// The rules that said so.
    pub rule: String,
    /// How long is waited before the next attempt.
    pub delay_ms: u64,
    /// Who asked for that long: `backoff`, or where the provider said so; `fallback` where another model is asked at
    /// once.
    pub delay_source: String,
    /// What was seen. Empty where the failure came without any text.
    pub error: String,
}

impl Retry {
    /// The retry that an event announces, if it does.
    pub fn of(event: &Event) -> Option<Retry> {
        let announces =
            event.name == names::RETRY_DECIDED && event.payload.get("will_retry") == Some(&true.into());
        let payload = announces.then(|| Value::Object(event.payload.clone()))?;
        serde_json::from_value(payload).ok()
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retry { attempt, max_attempts, reason, delay_ms, delay_source, error, .. } = self;
        write!(f, "attempt {attempt} of {max_attempts} failed ({reason}")?;
        if !error.is_empty() {
            write!(f, ": {error}")?;
        }
        write!(f, "); trying again in {} ({delay_source})", for_people(*delay_ms))
    }
}

/// A time as people read it: `40 ms`, `1.5 s`.
pub fn for_people(time_ms: u64) -> String {
    if time_ms < 1_000 { format!("{time_ms} ms") } else { format!("{:.1} s", time_ms as f64 / 1_000.0) }
}
