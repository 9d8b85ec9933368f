//! Keeps credentials out of everything that people and machines read: errors, events, logs.
//!
//! What is told by its form is removed by [`text`]; what is told only by its value, or by the name of the field that it
//! stands in, by a [`Redactor`]. What a run is resumed from is another matter: there, text that looks like a key is the
//! user's and stays.

use std::error::Error as StdError;
use std::fmt;

use serde_json::Value;

use crate::error::{Error, ErrorDetails};

/// What a removed credential leaves behind.
pub const MARK: &str = "[redacted]";

/// The names of fields whose values are credentials, unless the config says otherwise (`diagnostics.redact_keys`).
pub const DEFAULT_KEYS: [&str; 5] = ["api_key", "token", "secret", "password", "authorization"];

/// Whether a field of that name holds a credential by default, however the name is written.
pub fn is_secret_name(name: &str) -> bool {
    let name = normal(name);
    DEFAULT_KEYS.iter().any(|key| normal(key) == name)
}

/// Text with every credential that can be told by its form replaced by [`MARK`]: keys with a known prefix (OpenAI,
/// Anthropic, Google, AWS, GitHub, Groq, xAI, Hugging Face), bearer and basic credentials, JSON web tokens, the user
/// part of a URL, and a URL's query, where some providers take their key.
pub fn text(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut after_scheme = false;
    for word in text.split_inclusive(is_boundary) {
        let (core, boundary) = match word.char_indices().next_back() {
            Some((at, last)) if is_boundary(last) => word.split_at(at),
            _ => (word, ""),
        };
        if after_scheme && !is_prose(core) {
            clean.push_str(MARK);
        } else {
            clean.push_str(&word_without_credential(core));
        }
        clean.push_str(boundary);
        let is_scheme = ["bearer", "basic"].iter().any(|scheme| core.eq_ignore_ascii_case(scheme));
        after_scheme = is_scheme || (after_scheme && core.is_empty());
    }
    clean
}

/// Fields of our own whose values are names that programs compare. A key that is as guessable as one of them stays.
const STRUCTURE: [&str; 14] = [
    "code",
    "type",
    "reason",
    "rule",
    "action",
    "layer",
    "stop_reason",
    "agent_id",
    "session_id",
    "run_id",
    "tool_id",
    "call_id",
    "provider",
    "model",
];

/// A secret shorter than this is left where it is: it would take texts apart.
const SHORTEST: usize = 8;

/// Whether a word after "bearer" or "basic" is no credential: few lower-case letters and nothing else.
fn is_prose(word: &str) -> bool {
    word.len() < 20 && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_boundary(character: char) -> bool {
    character.is_whitespace() || "\"'`,;<>(){}[]".contains(character)
}

fn word_without_credential(word: &str) -> String {
    if let Some((scheme, rest)) = word.split_once("://") {
        let (rest, query) = match rest.split_once('?') {
            Some((rest, _)) => (rest, format!("?{MARK}")),
            None => (rest, String::new()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = match authority.rsplit_once('@') {
            Some((_, host)) => format!("{MARK}@{host}"),
            None => authority.to_owned(),
        };
        return format!("{scheme}://{host}{path}{query}");
    }
    word.split('&').map(pair_without_credential).collect::<Vec<_>>().join("&")
}

/// `key=…` and `token=…` outside of a URL, and words such as `x-api-key:sk-…`.
fn pair_without_credential(pair: &str) -> String {
    if let Some((name, value)) = pair.rsplit_once('=').or_else(|| pair.rsplit_once(':'))
        // What stands for a value is none, such as `OPENAI_API_KEY=…`.
        && value.contains(char::is_alphanumeric)
        && (is_key(value) || ["key", "token", "secret", "password"].iter().any(|last| ends_with(name, last)))
    {
        let sign = pair.get(name.len()..=name.len()).unwrap_or_default();
        return format!("{name}{sign}{MARK}");
    }
    if is_key(pair) { MARK.to_owned() } else { pair.to_owned() }
}

/// Whether the last word of a name is this one: `api_key`, `?key`, and not `monkey`.
fn ends_with(name: &str, last: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.strip_suffix(last).is_some_and(|before| !before.ends_with(|letter: char| letter.is_alphanumeric()))
}

/// The forms of provider keys. Shorter words with such a prefix are examples or placeholders, such as `sk-...`.
fn is_key(word: &str) -> bool {
    const PREFIXES: [&str; 14] = [
        "sk-",
        "sk_",
        "AIza",
        "gsk_",
        "xai-",
        "hf_",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "AKIA",
        "ASIA",
    ];
    let word = word.trim_end_matches(['.', ':', '!', '?']);
    let is_web_token = word.starts_with("eyJ") && word.matches('.').count() == 2;
    word.len() >= 16 && (is_web_token || PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
}

/// Removes the credentials that a runtime holds, and the values of fields whose name says that they are some.
#[derive(Clone, Default)]
pub struct Redactor {
    keys: Vec<String>,
    secrets: Vec<String>,
}

impl Redactor {
    /// One that knows these names of fields and these values.
    pub fn new(
        keys: impl IntoIterator<Item = String>,
        secrets: impl IntoIterator<Item = String>,
    ) -> Redactor {
        let keys = keys.into_iter().map(|key| normal(&key)).collect();
        let mut redactor = Redactor { keys, secrets: Vec::new() };
        secrets.into_iter().for_each(|secret| redactor.learn(secret));
        redactor
    }

    /// Has it know one more value.
    pub fn learn(&mut self, secret: String) {
        if secret.len() < SHORTEST || self.secrets.contains(&secret) {
            return;
        }
        self.secrets.extend([in_json(&secret), secret]);
        // The longest first: one secret may be a part of another.
        self.secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.secrets.dedup();
    }

    /// The value without credentials, however deep they stand in it.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.string(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                // A name is a text like any other. Of two that come to the same, one is left.
                let told: Vec<_> = fields.keys().filter(|key| self.string(key) != **key).cloned().collect();
                for key in told {
                    if let Some(field) = fields.remove(&key) {
                        fields.insert(self.string(&key), field);
                    }
                }
                for (key, field) in fields {
                    if self.keys.contains(&normal(key)) && !field.is_null() {
                        *field = Value::String(MARK.to_owned());
                    } else if !(STRUCTURE.contains(&key.as_str()) && field.is_string()) {
                        self.value(field);
                    }
                }
            }
            _ => {}
        }
    }

    /// The text without credentials. Values come before forms: a form may cut a value in two.
    pub fn string(&self, dirty: &str) -> String {
        let clean = self.secrets.iter().fold(dirty.to_owned(), |clean, secret| {
            if clean.contains(secret) { clean.replace(secret, MARK) } else { clean }
        });
        text(&self.without_named_values(&clean))
    }

    /// JSON inside of a text, whole or not, without the values of fields whose name says that they are secrets.
    fn without_named_values(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        // Each piece ends with a quote, and may be a field's name.
        while let Some((piece, after)) = rest.split_once('"') {
            clean.push_str(piece);
            clean.push('"');
            rest = after;
            if let Some(value) = rest.trim_start().strip_prefix(':')
                && self.keys.contains(&normal(piece))
            {
                clean.push(':');
                clean.push_str(MARK);
                rest = after_value(value.trim_start());
            }
        }
        clean + rest
    }

    /// The error without credentials, its causes included. One that has none stays as it is; of another one are left its
    /// code and its [`ErrorDetails`].
    pub fn error(&self, error: Error) -> Error {
        let details = error.details();
        let clean = self.details(details.clone());
        let mut texts = std::iter::successors(Some(&error as &dyn StdError), |&error| error.source());
        let is_clean = |text: String| self.string(&text) == text;
        if clean == details && texts.all(|error| is_clean(error.to_string())) {
            return error;
        }
        Error::from(clean).recognise(&[error.code()])
    }

    /// The error without credentials, its causes and attempts included.
    pub fn details(&self, details: ErrorDetails) -> ErrorDetails {
        let redacted = serde_json::to_value(&details).and_then(|mut value| {
            self.value(&mut value);
            serde_json::from_value(value)
        });
        // The shape is our own, so this cannot happen; if it did, saying less is better than saying a secret.
        redacted.unwrap_or_else(|_| Error::new(crate::error::codes::OPENAGENTS_ERROR, MARK).details())
    }
}

/// The secret as it stands in JSON.
fn in_json(secret: &str) -> String {
    Value::String(secret.to_owned()).to_string().trim_matches('"').to_owned()
}

/// What follows a JSON value, which may be cut off.
fn after_value(text: &str) -> &str {
    let end = match text.strip_prefix('"') {
        Some(inside) => {
            let mut escaped = false;
            let closing = inside.char_indices().find(|(_, letter)| {
                let closes = *letter == '"' && !escaped;
                escaped = *letter == '\\' && !escaped;
                closes
            });
            closing.map(|(at, _)| at + 2)
        }
        None => text.find([',', '}', ']']),
    };
    end.and_then(|end| text.get(end..)).unwrap_or_default()
}

/// Without the secrets.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// `API-Key`, `apiKey` and `api_key` are one name.
fn normal(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).map(|character| character.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_the_form_of_a_credential_is_removed_and_prose_is_not() {
        for (dirty, clean) in [
            (
                "Incorrect API key provided: sk-proj-abcdefghijklmnop.",
                "Incorrect API key provided: [redacted]",
            ),
            ("key sk-ant-api03-abcdefghijk!", "key [redacted]"),
            ("Authorization: Bearer abc.def.ghi, retry", "Authorization: Bearer [redacted], retry"),
            ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
            (
                "error for url (https://host/v1?key=AIzaSyA) at",
                "error for url (https://host/v1?[redacted]) at",
            ),
            ("see https://user:pass@host:80/v1", "see https://[redacted]@host:80/v1"),
            (r#"{"key":"gsk_0123456789abcdef"}"#, r#"{"key":"[redacted]"}"#),
            ("aws AKIAIOSFODNN7EXAMPLE and ghp_0123456789abcdef", "aws [redacted] and [redacted]"),
            ("api_key=hunter2000 token:abc", "api_key=[redacted] token:[redacted]"),
            ("GET /v1/x?page=2&api_key=AIzaSyA0123456789abcdef", "GET /v1/x?page=2&api_key=[redacted]"),
            ("POST /m/x:generate?key=hunter2", "POST /m/x:generate?key=[redacted]"),
            ("monkey=3", "monkey=3"),
            ("jwt eyJhbGciOi.eyJzdWIiOi.SflKxwRJ", "jwt [redacted]"),
            ("what is a sk-... key? ask", "what is a sk-... key? ask"),
            ("a basic question, a bearer of news", "a basic question, a bearer of news"),
            ("see https://platform.openai.com/docs", "see https://platform.openai.com/docs"),
            ("at 12:30, ratio=3:4", "at 12:30, ratio=3:4"),
        ] {
            assert_eq!(text(dirty), clean);
        }
    }

    #[test]
    fn what_stands_in_a_field_that_is_named_so_or_is_known_is_removed() {
        let redactor = Redactor::new(DEFAULT_KEYS.map(str::to_owned), ["my-own-value".to_owned()]);
        let mut value = json!({
            "apiKey": "x", "Password": 5, "tokens": 7, "token": {"input": 3}, "secret": null,
            "raw": r#"{"user": "ada", "password": "hun\"ter2", "n": 1, "token": 5} {"secret": "cut of"#,
            "list": ["my-own-value in a text", {"API-KEY": "y"}],
        });
        redactor.value(&mut value);
        assert_eq!(
            value,
            json!({
                "apiKey": MARK, "Password": MARK, "tokens": 7, "token": MARK, "secret": null,
                "raw": r#"{"user": "ada", "password":[redacted], "n": 1, "token":[redacted]} {"secret":[redacted]"#,
                "list": ["[redacted] in a text", {"API-KEY": MARK}],
            })
        );
        assert!(!format!("{redactor:?}").contains("my-own"));
    }
}
