//! Turns requests into plans: keeps the place in the script, asks the protocol to read the request and render
//! the reply, and the fault to spoil it. Knows no protocol's details and plays nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::fault::{self, Body, Whole};
use super::openai_chat::{self, Rejection};
use super::plan::Plan;
use super::template::Captures;
use super::{AtEnd, HttpReply, Reply, Script, ScriptError, Step};

/// A request, as far as a script cares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The path, with or without a query.
    pub path: String,
    /// The body as it came.
    pub body: Bytes,
}

impl Request {
    /// A request for this path with this body.
    #[must_use]
    pub fn new(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { path: path.into(), body: body.into() }
    }
}

/// Plays a script: one [`Plan`] per request, the same plans for the same requests every time.
#[derive(Debug)]
pub struct Engine {
    script: Script,
    captures: Captures,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Requests of any kind, refused ones included; numbers the answers.
    requests: u64,
    /// Requests that asked for a step, per key; the place in the script follows from it.
    asked: HashMap<String, u64>,
}

impl Engine {
    /// An engine at the beginning of the script, which it checks first.
    ///
    /// # Errors
    ///
    /// What [`Script::validate`] finds.
    pub fn new(script: Script) -> Result<Self, ScriptError> {
        script.validate()?;
        let captures = Captures::compile(&script.captures)?;
        Ok(Self { script, captures, progress: Mutex::default() })
    }

    /// What happens after this request.
    ///
    /// Every `key` goes through the script on its own, so that several runs can share an engine without
    /// taking each other's answers.
    ///
    /// The path must end in `/chat/completions` and the body must be a request that OpenAI would read: JSON,
    /// with messages, every tool result after its call and every call with its result. Otherwise the answer
    /// is the error that OpenAI would give, and no step is used.
    pub fn plan(&self, key: &str, request: &Request) -> Plan {
        let number = self.count_request();
        let chat = match openai_chat::read(request) {
            Ok(chat) => chat,
            Err(rejection) => return refuse(number, &rejection),
        };
        let (index, step) = match self.next_step(key) {
            Ok(next) => next,
            Err(rejection) => return refuse(number, &rejection),
        };
        let whole = match &step.reply {
            Reply::Http(http) => bare(http),
            Reply::Message(message) => {
                let values = self.captures.values(chat.last_user.as_deref(), chat.tool_result.as_deref());
                openai_chat::render(message, &chat, &values, number)
            }
        };
        let answer = fault::answer(number_headers(whole, number), step.fault.as_ref());
        Plan { step: Some(index), delay: Duration::from_millis(step.delay_ms), answer }
    }

    fn count_request(&self) -> u64 {
        let mut progress = self.progress();
        progress.requests += 1;
        progress.requests
    }

    /// Moves `key` on by one request.
    fn next_step(&self, key: &str) -> Result<(usize, &Step), Rejection> {
        let asked_before = {
            let mut progress = self.progress();
            let asked = progress.asked.entry(key.to_owned()).or_default();
            *asked += 1;
            *asked - 1
        };
        let steps = &self.script.steps;
        let served_in_all: u64 = steps.iter().map(|step| u64::from(step.repeat)).sum();
        let place = match self.script.at_end {
            AtEnd::Stop => asked_before,
            AtEnd::RepeatLast => asked_before.min(served_in_all.saturating_sub(1)),
            AtEnd::Restart => asked_before % served_in_all.max(1),
        };
        let mut served = 0;
        for (index, step) in steps.iter().enumerate() {
            served += u64::from(step.repeat);
            if place < served {
                return Ok((index, step));
            }
        }
        Err(Rejection::script_ended(steps.len(), served_in_all, asked_before + 1))
    }

    /// The counters stay right even if a thread died holding them: each is one addition.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reply that is HTTP and nothing more.
fn bare(http: &HttpReply) -> Whole {
    let (content_type, body) = match &http.body {
        None | Some(Value::Null) => (None, Bytes::new()),
        Some(Value::String(text)) => (Some("text/plain; charset=utf-8"), Bytes::from(text.clone())),
        Some(json) => (Some("application/json"), Bytes::from(json.to_string())),
    };
    let given = http.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut headers: Vec<(String, String)> = given.collect();
    if let Some(content_type) = content_type {
        set_default(&mut headers, "content-type", content_type.to_owned());
    }
    Whole { status: http.status, headers, body: Body::Plain { unfinished: body.clone(), body } }
}

fn refuse(number: u64, rejection: &Rejection) -> Plan {
    let whole = number_headers(rejection.render(), number);
    Plan { step: None, delay: Duration::ZERO, answer: fault::answer(whole, None) }
}

/// Gives the answer the number by which a log can be matched with it.
fn number_headers(mut whole: Whole, number: u64) -> Whole {
    set_default(&mut whole.headers, "x-request-id", format!("req_faultlab_{number}"));
    whole
}

fn set_default(headers: &mut Vec<(String, String)>, name: &str, value: String) {
    if !headers.iter().any(|(given, _)| given == name) {
        headers.push((name.to_owned(), value));
    }
}
