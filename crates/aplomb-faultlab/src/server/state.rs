//! The script being played and the requests seen, behind one lock, so that a reset takes both and a request
//! belongs to one side of it. Knows no sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::connection::Head;
use crate::script::{Engine, Plan, Request};

/// The run of all requests that do not say theirs: they come from who knows where.
const KEY: &str = "server";

/// A request as it arrived, headers and all (credentials too: give it none that are worth anything).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoggedRequest {
    /// Its place in the log, from 0.
    pub index: usize,
    /// When its head had arrived, in milliseconds since the server started.
    pub at_ms: u64,
    /// The step that answers it, from 0; `None` if it was refused, or while its body is on its way.
    pub step: Option<usize>,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, names in lower case. Repeated ones are joined with `, `.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON, or as a string if it is none; `null` while it is on its way.
    pub body: Value,
}

/// What the connections share.
#[derive(Debug)]
pub(super) struct State {
    started: Instant,
    session: Mutex<Session>,
}

#[derive(Debug)]
struct Session {
    engine: Arc<Engine>,
    log: Vec<LoggedRequest>,
    /// Counts the logs that were thrown away, so that a request knows whether its entry was.
    logs_before: u64,
}

/// A request that was logged and now has its script, whatever becomes of either.
#[derive(Debug)]
pub(super) struct Ticket {
    engine: Arc<Engine>,
    headers: Vec<(String, String)>,
    log: u64,
    index: usize,
}

impl State {
    pub(super) fn new(engine: Engine) -> Self {
        let session = Session { engine: Arc::new(engine), log: Vec::new(), logs_before: 0 };
        Self { started: Instant::now(), session: Mutex::new(session) }
    }

    /// Logs a request whose head has arrived.
    pub(super) fn begin(&self, head: &Head) -> Ticket {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut session = self.session();
        let index = session.log.len();
        session.log.push(LoggedRequest {
            index,
            at_ms,
            step: None,
            method: head.method.clone(),
            path: head.target.clone(),
            headers: joined(&head.headers),
            body: Value::Null,
        });
        let headers = head.headers.clone();
        Ticket { engine: Arc::clone(&session.engine), headers, log: session.logs_before, index }
    }

    /// Completes the entry of a request whose body has arrived, and says what happens now.
    pub(super) fn plan(&self, ticket: &Ticket, path: &str, body: Bytes) -> Plan {
        let logged = serde_json::from_slice(&body)
            .unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
        let unix_time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let request = Request::new(path, body).with_headers(ticket.headers.clone()).at(unix_time);
        let plan = ticket.engine.plan(KEY, &request);
        let mut session = self.session();
        if session.logs_before == ticket.log
            && let Some(entry) = session.log.get_mut(ticket.index)
        {
            entry.body = logged;
            entry.step = plan.step;
        }
        plan
    }

    pub(super) fn requests(&self) -> Vec<LoggedRequest> {
        self.session().log.clone()
    }

    pub(super) fn request_count(&self) -> usize {
        self.session().log.len()
    }

    pub(super) fn clear_log(&self) {
        self.session().clear_log();
    }

    pub(super) fn set_engine(&self, engine: Engine) {
        let mut session = self.session();
        session.clear_log();
        session.engine = Arc::new(engine);
    }

    /// Nothing is left half done where a holder of this lock could panic, so a poisoned one is as good as
    /// any.
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn clear_log(&mut self) {
        self.log.clear();
        self.logs_before += 1;
    }
}

/// RFC 9110, section 5.3: repeated fields are one list.
fn joined(headers: &[(String, String)]) -> BTreeMap<String, String> {
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        map.entry(name.clone())
            .and_modify(|joined| joined.extend([", ", value]))
            .or_insert_with(|| value.clone());
    }
    map
}
