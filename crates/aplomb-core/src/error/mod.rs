//! The one error type of Aplomb, its codes, and the shapes it takes outside the process.

mod code;
mod details;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use code::{Code, Declaration, Declared, all, check_declared, codes};
pub use details::{ErrorDetails, ErrorDict};

/// The identifiers that every error's context holds, null while unknown.
pub const IDENTIFIERS: [&str; 5] = ["agent_id", "session_id", "run_id", "tool_id", "step_number"];

/// Anything that goes wrong in Aplomb: a stable [code](Error::code), a message, what to do about it, what was tried,
/// and the cause.
///
/// One word wide and cheap to clone.
///
/// ```
/// use aplomb_core::error::{Error, codes};
///
/// let error = Error::new(codes::USER_AGENT_NOT_FOUND, "no agent is called \"asistant\"")
///     .with_hint("did you mean \"assistant\"?")
///     .with_context("agent_id", "asistant");
/// assert_eq!(error.to_string(), "no agent is called \"asistant\"\n  hint: did you mean \"assistant\"?");
/// assert!(error.is_a(codes::USER_ERROR));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    /// The names as a newer writer gave them, where this version's table does not know them.
    foreign_names: Option<(String, String)>,
    message: String,
    hint: Option<String>,
    docs_url: Option<String>,
    retryable: bool,
    context: Map<String, Value>,
    attempts: Vec<Attempt>,
    cause: Option<Cause>,
    /// The program's own error that this one stands for.
    origin: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Clone)]
enum Cause {
    Ours(Error),
    Foreign { type_name: &'static str, error: Arc<dyn StdError + Send + Sync> },
}

/// An error that a program defines: a code of its own, below a built-in one or another of its own.
///
/// Declared once, it works everywhere: its `retryable` is honoured, its code is in [`ErrorDetails`], listings show it.
/// Usually derived; [`Declaration`] shows the way without macros. [`Error::custom`] makes an [`Error`] of it.
pub trait AgentError: StdError + Send + Sync + 'static {
    /// The code.
    const CODE: Code;

    /// What to do about this one, where it is not what the code's declaration says.
    fn hint(&self) -> Option<String> {
        None
    }

    /// The context fields.
    fn context(&self) -> Map<String, Value> {
        Map::new()
    }
}

/// One request that was made, how it failed, and what was decided then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Counts from 1 within one logical model call.
    pub number: u32,
    /// Whose allowance paid for the attempt: `first`, `transport`, `session`, `exec`, `compaction`, `refresh` or
    /// `fallback`.
    pub layer: String,
    /// Which model was asked, as `provider/model`, where it is not the agent's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The documented name of the error, such as `LLMConnectionError`.
    pub error_type: String,
    /// What was seen, in a line. Empty where the failure came without any text.
    pub text: String,
    /// The fine cause, such as `overloaded`.
    pub reason: String,
    /// What was decided: `retry`, `failed permanently`, `stop`, …
    pub action: String,
    /// The rule that decided.
    pub rule: String,
    /// How long the next attempt was made to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Who asked for that wait: `backoff`, or where the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_source: Option<String>,
}

impl Attempt {
    /// An attempt that was still in flight when the run ended.
    pub(crate) fn cut_short(number: u32, layer: &str, code: Code, reason: &str) -> Attempt {
        Attempt {
            number,
            layer: layer.to_owned(),
            target: None,
            error_type: code.type_name().to_owned(),
            text: "cut short by the end of the run".to_owned(),
            reason: reason.to_owned(),
            action: "stop".to_owned(),
            rule: code.as_str().to_owned(),
            delay_ms: None,
            delay_source: None,
        }
    }

    /// `TypeName: text`, or `TypeName` alone where there is no text.
    pub fn error(&self) -> String {
        typed_text(&self.error_type, &self.text)
    }
}

impl Error {
    /// An error of that code.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            code,
            foreign_names: None,
            message: message.into(),
            hint: code.hint().map(str::to_owned),
            docs_url: code.docs_url(),
            retryable: code.retryable(),
            context: Map::new(),
            attempts: Vec::new(),
            cause: None,
            origin: None,
        }))
    }

    /// An error of that code which stands for a foreign one: its text is the message, and it is the cause.
    ///
    /// ```
    /// use aplomb_core::error::{Error, codes};
    /// let read = std::fs::read_to_string("/no/such/file");
    /// let error = read.map_err(|error| Error::foreign(codes::TOOL_ERROR, error)).unwrap_err();
    /// assert!(std::error::Error::source(&error).unwrap().is::<std::io::Error>());
    /// ```
    pub fn foreign<E: StdError + Send + Sync + 'static>(code: Code, error: E) -> Error {
        Error::new(code, error.to_string()).with_foreign_cause(error)
    }

    /// The error that a program's own error is to the rest of Aplomb: its code, text, hint, context and causes.
    pub fn custom<E: AgentError>(error: E) -> Error {
        let mut made = Error::new(E::CODE, error.to_string());
        if let Some(hint) = error.hint() {
            made = made.with_hint(hint);
        }
        for (field, value) in error.context() {
            made = made.with_context(&field, value);
        }
        made.with(|inner| inner.origin = Some(Arc::new(error)))
    }

    /// The error with its code recognised among these, where it came from outside with one that was not known.
    #[must_use]
    pub fn recognise(self, codes: &[Code]) -> Error {
        let named = self.0.foreign_names.as_ref().map(|(code, _)| code.as_str());
        match codes.iter().find(|code| Some(code.as_str()) == named) {
            Some(code) => self.with(|inner| (inner.code, inner.foreign_names) = (*code, None)),
            None => self,
        }
    }

    /// The program's own error that this one was made of, while it has not left the process.
    pub fn downcast_ref<E: AgentError>(&self) -> Option<&E> {
        (&**self.0.origin.as_ref()? as &(dyn StdError + 'static)).downcast_ref()
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Error {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Says, in one line, what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Error {
        let hint = hint.into().split_whitespace().collect::<Vec<_>>().join(" ");
        self.with(|inner| inner.hint = Some(hint))
    }

    /// Puts a place before the message: `PLACE: message`.
    #[must_use]
    pub fn with_place(self, place: &str) -> Error {
        self.with(|inner| inner.message = format!("{place}: {}", inner.message))
    }

    /// Says the same in other words, such as with its place in a document.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Error {
        let message = message.into();
        self.with(|inner| inner.message = message)
    }

    /// Adds a context field, or replaces it.
    #[must_use]
    pub fn with_context(self, field: &str, value: impl Into<Value>) -> Error {
        let value = value.into();
        self.with(|inner| {
            inner.context.insert(field.to_owned(), value);
        })
    }

    /// Adds a context field where nothing nearer to the cause has set it.
    #[must_use]
    pub fn or_context(self, field: &str, value: impl Into<Value>) -> Error {
        if self.0.context.get(field).is_some_and(|set| !set.is_null()) {
            self
        } else {
            self.with_context(field, value)
        }
    }

    /// Keeps what led to this error.
    #[must_use]
    pub fn with_cause(self, cause: Error) -> Error {
        self.with(|inner| inner.cause = Some(Cause::Ours(cause)))
    }

    /// Keeps a foreign error that led to this one; its own `source()` chain stays reachable.
    #[must_use]
    pub fn with_foreign_cause<E: StdError + Send + Sync + 'static>(self, cause: E) -> Error {
        let cause = Cause::Foreign { type_name: std::any::type_name::<E>(), error: Arc::new(cause) };
        self.with(|inner| inner.cause = Some(cause))
    }

    /// Lists what was tried before this error was given up on.
    #[must_use]
    pub fn with_attempts(self, attempts: Vec<Attempt>) -> Error {
        self.with(|inner| inner.attempts = attempts)
    }

    /// The code. For an error that a newer version wrote with a code that this one does not know, the base code;
    /// [`details`](Error::details) keeps the original.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// True if the code is `ancestor` or below it.
    pub fn is_a(&self, ancestor: Code) -> bool {
        self.0.code.is_a(ancestor)
    }

    /// The message alone, without hint and documentation lines.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it, in one line: the error's own hint, or else the code's.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Whether the same thing may pass when tried again.
    pub fn retryable(&self) -> bool {
        self.0.retryable
    }

    /// A context field, if it is set.
    pub fn context(&self, field: &str) -> Option<&Value> {
        self.0.context.get(field).filter(|value| !value.is_null())
    }

    /// How long the provider asked to wait, and when that is over, where it did.
    pub fn wait(&self) -> Option<Wait> {
        let number = |field| self.context(field).and_then(Value::as_u64);
        Some(Wait { retry_after_ms: number("retry_after_ms")?, resume_at_ms: number("resume_at") })
    }

    /// What the provider's HTTP response was, where there was one.
    pub fn http(&self) -> Option<Http<'_>> {
        let text = |field| self.context(field).and_then(Value::as_str);
        let status = u16::try_from(self.context("status")?.as_u64()?).ok()?;
        Some(Http { status, request_id: text("request_id"), excerpt: text("excerpt") })
    }

    /// Which time limit passed, where one did.
    pub fn time_limit(&self) -> Option<TimeLimit<'_>> {
        let text = |field| self.context(field).and_then(Value::as_str);
        let limit_ms = self.context("limit_ms").and_then(Value::as_u64);
        Some(TimeLimit { setting: text("setting")?, limit_ms, waiting_for: text("where") })
    }

    /// Which limit was reached, where one was.
    pub fn limit(&self) -> Option<Limit<'_>> {
        let kind = self.context("kind").and_then(Value::as_str);
        Some(Limit {
            kind,
            current: self.context("current")?.as_f64()?,
            limit: self.context("limit")?.as_f64()?,
        })
    }

    /// What was wrong with an output, where that is the error.
    pub fn output_validation(&self) -> Option<OutputValidation<'_>> {
        let text = |field| self.context(field).and_then(Value::as_str);
        Some(OutputValidation {
            attempts: self.context("attempts")?.as_u64()?,
            last_error: text("last_validation_error")?,
            output_type: text("output_type"),
        })
    }

    /// The fine cause of a model failure, such as `rate_limit` or `quota_exhausted`.
    pub fn reason(&self) -> Option<&str> {
        self.context("reason").and_then(Value::as_str)
    }

    /// Every attempt that was made, in order. Empty where the error has nothing to do with attempts.
    pub fn attempts(&self) -> &[Attempt] {
        &self.0.attempts
    }

    /// How a run ends that this error ends.
    pub fn stop_reason(&self) -> crate::run::StopReason {
        self.0.code.stop_reason()
    }

    /// The serialisable superset: the six keys of [`ErrorDict`], type, cause and attempts.
    pub fn details(&self) -> ErrorDetails {
        ErrorDetails::of(self)
    }

    /// The shape that the contract calls `to_dict`.
    pub fn to_dict(&self) -> ErrorDict {
        self.details().dict
    }
}

/// How long a provider asked to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// Milliseconds from the failure.
    pub retry_after_ms: u64,
    /// When the wait is over, in ms of Unix time.
    pub resume_at_ms: Option<u64>,
}

/// A provider's HTTP response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Http<'a> {
    /// The status.
    pub status: u16,
    /// The provider's name for the request.
    pub request_id: Option<&'a str>,
    /// The beginning of the body.
    pub excerpt: Option<&'a str>,
}

/// A time limit that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeLimit<'a> {
    /// The setting that governs it.
    pub setting: &'a str,
    /// The limit, in ms.
    pub limit_ms: Option<u64>,
    /// What was waited for.
    pub waiting_for: Option<&'a str>,
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Limit<'a> {
    /// The dimension of a budget; `None` for a limit of the agent.
    pub kind: Option<&'a str>,
    /// How much was used.
    pub current: f64,
    /// How much there was.
    pub limit: f64,
}

/// An output that did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputValidation<'a> {
    /// How many times the model was asked.
    pub attempts: u64,
    /// What was wrong the last time.
    pub last_error: &'a str,
    /// What was wanted.
    pub output_type: Option<&'a str>,
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.cause {
            Some(Cause::Ours(error)) => Some(error),
            Some(Cause::Foreign { error, .. }) => Some(&**error),
            None => self.0.origin.as_ref()?.source(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(hint) = &self.0.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        if let Some(url) = &self.0.docs_url {
            write!(f, "\n  docs: {url}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("code", &self.0.code).field("message", &self.0.message);
        if let Some(cause) = self.source() {
            debug.field("cause", &cause);
        }
        debug.finish_non_exhaustive()
    }
}

impl Serialize for Error {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_dict().serialize(serializer)
    }
}

/// The text form of an error: `TypeName: text`, or `TypeName` alone where the text is empty.
fn typed_text(type_name: &str, text: &str) -> String {
    if text.is_empty() { type_name.to_owned() } else { format!("{type_name}: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word_wide_and_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() -> usize {
            std::mem::size_of::<T>()
        }
        assert_eq!(check::<Error>(), std::mem::size_of::<usize>());
    }

    #[test]
    fn the_text_of_an_error_without_text_is_its_type_name_alone() {
        assert_eq!(typed_text("LLMConnectionError", ""), "LLMConnectionError");
        assert_eq!(typed_text("LLMConnectionError", "reset"), "LLMConnectionError: reset");
    }
}
