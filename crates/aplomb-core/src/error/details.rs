//! The shapes of an error outside the process, and the way back.

use std::error::Error as StdError;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Attempt, Cause, Code, Error, IDENTIFIERS, Inner, codes};

/// How deep a chain of causes is followed. A chain longer than this is a cycle or a mistake.
const MAX_DEPTH: usize = 16;

/// Exactly the six keys of the contract's `to_dict`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorDict {
    /// The stable code.
    pub code: String,
    /// The message's first line.
    pub message: String,
    /// What to do about it, in one line.
    pub hint: Option<String>,
    /// Where the code is documented.
    pub docs_url: Option<String>,
    /// Whether the same thing may pass when tried again.
    pub retryable: bool,
    /// The identifiers (null when unknown) and the extra fields of the code's row.
    pub context: Map<String, Value>,
}

/// A superset of [`ErrorDict`] with the type's name, the cause (the same shape again) and the attempts.
///
/// Reads and writes codes and types that this version does not know, without loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorDetails {
    /// The six keys.
    #[serde(flatten)]
    pub dict: ErrorDict,
    /// The name in the documentation, or the type of a foreign error.
    #[serde(rename = "type")]
    pub type_name: String,
    /// What led to it.
    pub cause: Option<Box<ErrorDetails>>,
    /// Every attempt that was made; the key is absent where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

impl ErrorDetails {
    pub(super) fn of(error: &Error) -> ErrorDetails {
        ErrorDetails::at_depth(error, 0)
    }

    fn at_depth(error: &Error, depth: usize) -> ErrorDetails {
        let inner = &*error.0;
        let (code, type_name) = match &inner.foreign_names {
            Some((code, type_name)) => (code.clone(), type_name.clone()),
            None => (inner.code.as_str().to_owned(), inner.code.type_name().to_owned()),
        };
        let mut context = inner.context.clone();
        for field in IDENTIFIERS.into_iter().chain(inner.code.fields()) {
            context.entry(field).or_insert(Value::Null);
        }
        let cause = (depth < MAX_DEPTH).then_some(inner.cause.as_ref()).flatten();
        let of_origin = || {
            let source = (depth < MAX_DEPTH).then(|| inner.origin.as_ref()?.source()).flatten()?;
            Some(Box::new(ErrorDetails::foreign("Error", source, depth + 1)))
        };
        ErrorDetails {
            dict: ErrorDict {
                code,
                message: first_line(&inner.message),
                hint: inner.hint.clone(),
                docs_url: inner.docs_url.clone(),
                retryable: inner.retryable,
                context,
            },
            type_name,
            cause: match cause {
                Some(Cause::Ours(error)) => Some(Box::new(ErrorDetails::at_depth(error, depth + 1))),
                Some(Cause::Foreign { type_name, error }) => {
                    Some(Box::new(ErrorDetails::foreign(type_name, &**error, depth + 1)))
                }
                None => of_origin(),
            },
            attempts: inner.attempts.clone(),
        }
    }

    /// What is no error of ours has a type and a text, and no code of its own: it gets the base code.
    pub(crate) fn untyped(type_name: &str, text: &str) -> ErrorDetails {
        ErrorDetails {
            dict: ErrorDict {
                code: codes::OPENAGENTS_ERROR.as_str().to_owned(),
                message: first_line(text),
                hint: None,
                docs_url: None,
                retryable: false,
                context: IDENTIFIERS.into_iter().map(|field| (field.to_owned(), Value::Null)).collect(),
            },
            type_name: type_name.to_owned(),
            cause: None,
            attempts: Vec::new(),
        }
    }

    fn foreign(type_name: &str, error: &(dyn StdError + 'static), depth: usize) -> ErrorDetails {
        if let Some(ours) = error.downcast_ref::<Error>() {
            return ErrorDetails::at_depth(ours, depth);
        }
        let source = (depth < MAX_DEPTH).then(|| error.source()).flatten();
        // The type of a `dyn Error` further down is not knowable.
        let cause = source.map(|source| Box::new(ErrorDetails::foreign("Error", source, depth + 1)));
        ErrorDetails { cause, ..ErrorDetails::untyped(type_name, &error.to_string()) }
    }
}

impl From<ErrorDetails> for Error {
    fn from(details: ErrorDetails) -> Error {
        let ErrorDetails { dict, type_name, cause, attempts } = details;
        let known = Code::find(&dict.code);
        let code = known.unwrap_or(codes::OPENAGENTS_ERROR);
        let as_in_table = known.is_some() && type_name == code.type_name();
        Error(Arc::new(Inner {
            code,
            foreign_names: (!as_in_table).then_some((dict.code, type_name)),
            message: dict.message,
            hint: dict.hint,
            docs_url: dict.docs_url,
            retryable: dict.retryable,
            context: dict.context,
            attempts,
            cause: cause.map(|cause| Cause::Ours(Error::from(*cause))),
            origin: None,
        }))
    }
}

/// The most characters of a message that leave the process. What is longer is a document, and not a message.
const MESSAGE_LIMIT: usize = 4_096;

fn first_line(message: &str) -> String {
    let line = message.split(['\n', '\r']).next().unwrap_or_default();
    match line.char_indices().nth(MESSAGE_LIMIT) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_dict_has_exactly_the_six_keys_and_null_identifiers() {
        let value =
            serde_json::to_value(Error::new(codes::TOOL_RATE_LIMIT, "slow down\nsecond line")).unwrap();
        let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "context", "docs_url", "hint", "message", "retryable"]);
        assert_eq!(value["message"], "slow down");
        assert_eq!(value["context"]["run_id"], Value::Null);
        // Inherited from tool.error, and its own.
        assert!(value["context"].as_object().unwrap().contains_key("tool_name"));
        assert!(value["context"].as_object().unwrap().contains_key("retry_after_ms"));
    }

    #[test]
    fn details_of_a_newer_writer_survive_the_way_in_and_out() {
        let newer = serde_json::json!({
            "code": "tool.quantum", "message": "m", "hint": null, "docs_url": null, "retryable": true,
            "context": {"run_id": "r", "session_id": null, "agent_id": null, "tool_id": null, "step_number": 3},
            "type": "QuantumError",
            "cause": {
                "code": "openagents.error", "message": "inner", "hint": null, "docs_url": null, "retryable": false,
                "context": {"run_id": null, "session_id": null, "agent_id": null, "tool_id": null, "step_number": null},
                "type": "std::io::Error", "cause": null
            }
        });
        let details: ErrorDetails = serde_json::from_value(newer.clone()).unwrap();
        assert_eq!(serde_json::to_value(Error::from(details).details()).unwrap(), newer);
    }

    #[test]
    fn a_foreign_cause_keeps_its_type_its_text_and_its_own_causes() {
        let io = std::io::Error::other(std::io::Error::other("disk on fire"));
        let details = Error::new(codes::SESSION_ERROR, "cannot write").with_foreign_cause(io).details();
        let cause = details.cause.unwrap();
        assert_eq!(cause.type_name, "std::io::error::Error");
        assert_eq!(cause.dict.message, "disk on fire");
    }
}
