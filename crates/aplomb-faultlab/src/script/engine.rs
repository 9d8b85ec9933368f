//! Turns requests into plans: keeps the place in the script, asks the protocol to read the request and render
//! the reply, and the fault to spoil it. Knows no protocol's details and plays nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

#[cfg(feature = "server")]
use super::Reach;
use super::chat::{Chat, Rejection};
use super::fault::{self, Body, Whole};
use super::fits;
use super::http2;
use super::plan::Plan;
use super::render::request_id;
use super::said::Said;
use super::template::Captures;
use super::wire::Wire;
use super::{AtEnd, Fault, Http2Fault, HttpReply, Mishap, Reply, Script, ScriptError, Step, When};

/// A request, as far as a script cares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The path, with or without a query.
    pub path: String,
    /// The body as it came.
    pub body: Bytes,
    /// The headers, for [`Script::run_header`].
    pub headers: Vec<(String, String)>,
    /// Wall time, since the Unix epoch: dates in answers count from it.
    pub unix_time: Duration,
}

impl Request {
    /// A request for this path with this body.
    #[must_use]
    pub fn new(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { path: path.into(), body: body.into(), headers: Vec::new(), unix_time: Duration::ZERO }
    }

    /// The same with these headers.
    #[must_use]
    pub fn with_headers(self, headers: Vec<(String, String)>) -> Self {
        Self { headers, ..self }
    }

    /// The same at this wall time, which is since the Unix epoch.
    #[must_use]
    pub fn at(self, unix_time: Duration) -> Self {
        Self { unix_time, ..self }
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
    /// How far each key is.
    places: HashMap<String, Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// Requests that the protocol did not refuse.
    asked: u64,
    /// How many of them each step has served, as far as any was asked for.
    served: Vec<u32>,
    /// The calls that were sent after thoughts, which have to come back with them.
    thought: HashSet<String>,
}

/// What a request gets: a step, a mishap in its place, or a step that a mishap befalls.
struct Turn<'a> {
    step: Option<usize>,
    mishap: Option<usize>,
    reply: &'a Reply,
    fault: Option<&'a Fault>,
    delay: Duration,
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

    /// How the server of this script is reached.
    #[cfg(feature = "server")]
    pub(crate) fn reach(&self) -> &Reach {
        &self.script.server
    }

    /// What happens after this request.
    ///
    /// Every `key` goes through the script on its own, so that several runs can share an engine without
    /// taking each other's answers. Where the script names a [`Script::run_header`] and the request has it,
    /// its value is the key.
    ///
    /// The path must end in `/chat/completions` (OpenAI's Chat Completions), `/responses` (OpenAI's Responses),
    /// `/messages` (Anthropic's Messages) or, after `/models/` and a model's name, `:generateContent` or
    /// `:streamGenerateContent` (Google's Gemini); and the body must be a request that the provider would
    /// read: JSON, with messages, every tool result after its call and every call with its result. Otherwise
    /// the answer is the error that the provider would give, and no step is used.
    pub fn plan(&self, key: &str, request: &Request) -> Plan {
        let number = self.count_request();
        let key = self.run_of(request).unwrap_or(key);
        let wire = match Wire::of(&request.path) {
            Ok(wire) => wire,
            Err(rejection) => return refuse(Wire::OpenAiChat, number, &rejection),
        };
        let chat = match wire.read(&request.path, &request.body) {
            Ok(chat) => chat,
            Err(rejection) => return refuse(wire, number, &rejection),
        };
        let turn = match self.turn(key, &chat) {
            Ok(turn) => turn,
            Err(rejection) => return refuse(wire, number, &rejection),
        };
        let Turn { step, mishap, reply, fault, .. } = turn;
        let (fault, http2) = http2::apart(fault);
        let delay = turn.delay.saturating_add(fault::delay(fault.as_deref()));
        let mut whole = match reply {
            Reply::Http(http) => bare(http, request.unix_time.saturating_add(delay)),
            Reply::Message(message) => {
                let values = self.captures.values(chat.last_user.as_deref(), chat.tool_result.as_deref());
                let said = Said::new(message, fault.as_deref(), wire.call_id_prefix(), &chat, &values);
                self.remember_thoughts(key, &said);
                wire.render(&said, &chat, number)
            }
        };
        if let Some((name, value)) = http2.and_then(Http2Fault::header) {
            set_default(&mut whole.headers, name, value.to_owned());
        }
        let answer = fault::answer(number_headers(whole, wire, number), fault.as_deref());
        Plan { step, mishap, delay, answer, http2: http2.cloned() }
    }

    /// What this request gets.
    fn turn(&self, key: &str, chat: &Chat) -> Result<Turn<'_>, Rejection> {
        self.check_thoughts(key, chat)?;
        let asked = self.count_asked(key);
        let drawn = self.script.random.as_ref().and_then(|random| random.draw(key, asked));
        if let Some((index, Mishap { reply: Some(reply), fault, .. })) = drawn {
            let fault = fault.as_ref();
            return Ok(Turn { step: None, mishap: Some(index), reply, fault, delay: Duration::ZERO });
        }
        let (index, step) = self.next_step(key, chat, asked)?;
        let fits = |fault: &&Fault| fits::reply(fault, &step.reply).is_ok();
        let befalls = drawn.and_then(|(index, mishap)| Some((index, mishap.fault.as_ref().filter(fits)?)));
        Ok(Turn {
            step: Some(index),
            mishap: befalls.map(|(index, _)| index),
            reply: &step.reply,
            fault: befalls.map(|(_, fault)| fault).or(step.fault.as_ref()),
            delay: Duration::from_millis(step.delay_ms),
        })
    }

    /// The run that the request says it belongs to.
    fn run_of<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let name = self.script.run_header.as_deref()?;
        let (_, value) = request.headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    fn count_request(&self) -> u64 {
        let mut progress = self.progress();
        progress.requests += 1;
        progress.requests
    }

    /// The number of this request among those of `key` that the protocol does not refuse.
    fn count_asked(&self, key: &str) -> u64 {
        let mut progress = self.progress();
        let place = progress.places.entry(key.to_owned()).or_default();
        place.asked += 1;
        place.asked
    }

    /// Whether every call that `key` got after thoughts comes back with them.
    fn check_thoughts(&self, key: &str, chat: &Chat) -> Result<(), Rejection> {
        let progress = self.progress();
        let thought = progress.places.get(key).map(|place| &place.thought);
        match chat.unthought.iter().find(|unthought| thought.is_some_and(|ids| ids.contains(&unthought.call)))
        {
            Some(unthought) => Err(unthought.rejection.clone()),
            None => Ok(()),
        }
    }

    /// Keeps which calls were sent after thoughts. An id that is sent again is what it is now.
    fn remember_thoughts(&self, key: &str, said: &Said) {
        let thinks = said.thinking.is_some() || said.redacted_thinking;
        let mut progress = self.progress();
        let place = progress.places.entry(key.to_owned()).or_default();
        for call in &said.calls {
            if thinks {
                place.thought.insert(call.id.clone());
            } else {
                place.thought.remove(&call.id);
            }
        }
    }

    /// Moves `key` on by one request: the first step that is for such a request and has not yet served as
    /// many as it is to serve.
    fn next_step(&self, key: &str, chat: &Chat, asked: u64) -> Result<(usize, &Step), Rejection> {
        let steps = &self.script.steps;
        let mut progress = self.progress();
        let place = progress.places.entry(key.to_owned()).or_default();
        place.served.resize(steps.len(), 0);
        let counted = steps.iter().zip(&mut place.served).enumerate();
        let mut matching: Vec<(usize, &Step, &mut u32)> = counted
            .filter(|(_, (step, _))| step.when.as_ref().is_none_or(|when| when.is_for(key, chat)))
            .map(|(index, (step, served))| (index, step, served))
            .collect();
        if matching.iter().all(|(_, step, served)| **served >= step.repeat) {
            match self.script.at_end {
                AtEnd::Stop => {}
                AtEnd::RepeatLast => {
                    if let Some((index, step, _)) = matching.last() {
                        return Ok((*index, *step));
                    }
                }
                AtEnd::Restart => matching.iter_mut().for_each(|(_, _, served)| **served = 0),
            }
        }
        let served_in_all = matching.iter().map(|(_, step, _)| u64::from(step.repeat)).sum();
        let matched = matching.len();
        match matching.into_iter().find(|(_, step, served)| **served < step.repeat) {
            Some((index, step, served)) => {
                *served += 1;
                Ok((index, step))
            }
            None if matched == 0 => Err(Rejection::no_step_matches(steps.len())),
            None if matched < steps.len() => Err(Rejection::matching_steps_ended(matched, served_in_all)),
            None => Err(Rejection::script_ended(matched, served_in_all, asked)),
        }
    }

    /// The counters stay right even if a thread died holding them: none is left half changed.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl When {
    fn is_for(&self, key: &str, chat: &Chat) -> bool {
        let has = |text: Option<&str>, part: &Option<String>| match part {
            Some(part) => text.is_some_and(|text| text.contains(part.as_str())),
            None => true,
        };
        has(chat.last_user.as_deref(), &self.input_contains) && has(Some(key), &self.run_contains)
    }
}

/// A reply that is HTTP and nothing more, and begins at this time.
fn bare(http: &HttpReply, at: Duration) -> Whole {
    let (content_type, body) = match &http.body {
        None | Some(Value::Null) => (None, Bytes::new()),
        Some(Value::String(text)) => (Some("text/plain; charset=utf-8"), Bytes::from(text.clone())),
        Some(json) => (Some("application/json"), Bytes::from(json.to_string())),
    };
    let given = http.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut headers: Vec<(String, String)> = given.collect();
    headers.extend(http.retry_after.as_ref().map(|wait| {
        let (name, value) = wait.header(at);
        (name.to_owned(), value)
    }));
    if let Some(content_type) = content_type {
        set_default(&mut headers, "content-type", content_type.to_owned());
    }
    Whole { status: http.status, headers, body: Body::Plain { unfinished: body.clone(), body } }
}

fn refuse(wire: Wire, number: u64, rejection: &Rejection) -> Plan {
    let whole = number_headers(wire.refuse(rejection, number), wire, number);
    let answer = fault::answer(whole, None);
    Plan { step: None, mishap: None, delay: Duration::ZERO, answer, http2: None }
}

/// Gives the answer the number by which a log can be matched with it.
fn number_headers(mut whole: Whole, wire: Wire, number: u64) -> Whole {
    if let Some(name) = wire.request_id_header() {
        set_default(&mut whole.headers, name, request_id(number));
    }
    whole
}

fn set_default(headers: &mut Vec<(String, String)>, name: &str, value: String) {
    if !headers.iter().any(|(given, _)| given == name) {
        headers.push((name.to_owned(), value));
    }
}
