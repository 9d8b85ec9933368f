//! The script being played and the requests seen, behind one lock, so that a reset takes both and a request
//! belongs to one side of it. Knows no sockets.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio_rustls::rustls::ServerConfig;

use super::connection::Head;
use super::tls::Authority;
use crate::script::{Connect, Engine, Http, Plan, Request, ScriptError};

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
    /// The mishap that befell it by lot, from 0, where one did.
    pub mishap: Option<usize>,
    /// The connection that it came by, counted from 0 as the server accepted them; requests with the same
    /// number shared one.
    pub connection: u64,
    /// The version of HTTP that it was sent in: `1.1` or `2`.
    pub http: &'static str,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, names in lower case. Repeated ones are joined with `, `. HTTP/2's `:authority` is `host`
    /// here.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON, or as a string if it is none; `null` while it is on its way.
    pub body: Value,
}

/// What the connections share.
#[derive(Debug)]
pub(super) struct State {
    started: Instant,
    authority: Authority,
    /// Connections accepted in all.
    connections: AtomicU64,
    session: Mutex<Session>,
}

#[derive(Debug)]
struct Session {
    engine: Arc<Engine>,
    /// For TLS, if the script wants it.
    tls: Option<Arc<ServerConfig>>,
    /// Connections accepted under this script.
    accepted: usize,
    log: Vec<LoggedRequest>,
    /// Counts the logs that were thrown away, so that a request knows whether its entry was.
    logs_before: u64,
}

/// What a request's connection says about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) connection: u64,
    pub(super) http: &'static str,
}

/// A connection that was counted, and what becomes of it.
pub(super) struct Arrival {
    pub(super) number: u64,
    pub(super) connect: Connect,
    pub(super) http: Http,
    /// For TLS; `None` for clear text.
    pub(super) tls: Option<Arc<ServerConfig>>,
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
    /// Fails where no key can be made.
    pub(super) fn new(engine: Engine) -> io::Result<Self> {
        let authority = Authority::new()?;
        let tls = authority.tls(engine.reach())?;
        let engine = Arc::new(engine);
        let session = Session { engine, tls, accepted: 0, log: Vec::new(), logs_before: 0 };
        Ok(Self {
            started: Instant::now(),
            authority,
            connections: AtomicU64::new(0),
            session: Mutex::new(session),
        })
    }

    /// Counts a connection that was accepted.
    pub(super) fn arrive(&self) -> Arrival {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut session = self.session();
        let reach = session.engine.reach();
        let (connect, http) = (reach.connect(session.accepted), reach.http);
        session.accepted += 1;
        Arrival { number, connect, http, tls: session.tls.clone() }
    }

    pub(super) fn connection_count(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.session().tls.is_some()
    }

    pub(super) fn ca_pem(&self) -> String {
        self.authority.pem()
    }

    /// Logs a request whose head has arrived.
    pub(super) fn begin(&self, head: &Head, origin: Origin) -> Ticket {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut session = self.session();
        let index = session.log.len();
        session.log.push(LoggedRequest {
            index,
            at_ms,
            step: None,
            mishap: None,
            connection: origin.connection,
            http: origin.http,
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
            entry.mishap = plan.mishap;
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

    /// Fails where no key can be made for it, and changes nothing then.
    pub(super) fn set_engine(&self, engine: Engine) -> Result<(), ScriptError> {
        let tls = self.authority.tls(engine.reach()).map_err(|error| {
            ScriptError::new("server.tls", format!("no certificate can be made: {error}"))
        })?;
        let mut session = self.session();
        session.clear_log();
        session.tls = tls;
        session.accepted = 0;
        session.engine = Arc::new(engine);
        Ok(())
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
