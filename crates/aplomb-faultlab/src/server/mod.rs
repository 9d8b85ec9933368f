//! Plays scripts over HTTP/1.1, byte for byte, and over HTTP/2, on clear text or TLS, on a TCP socket of its
//! own, so that a client meets real resets, real silence and real half-sent bodies.
//!
//! Knows HTTP's framing and TCP's ways to end; what is answered is the [`Plan`](crate::script::Plan)'s
//! business, and no protocol of a model is known here.
//!
//! # TLS, and connections that fail
//!
//! A script says in `server` how its server is [reached](crate::script::Reach). TLS has an authority of its
//! own, made at every start, that a client trusts by [`FaultServer::ca_pem`]; then
//! [`FaultServer::base_url`] begins with `https`. This server's first connection ends in the middle of its
//! handshake, and the second one meets a server that goes away before it has processed a request:
//!
//! ```
//! use aplomb_faultlab::{script::Script, server::FaultServer};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let script = Script::from_json(r#"{
//!     "server": { "tls": "good", "http": "2", "connections": ["cut_handshake", "good"] },
//!     "steps": [
//!         { "reply": { "message": { "text": "lost" } }, "fault": { "http2": "go_away_before" } },
//!         { "reply": { "message": { "text": "Hello" } } }
//!     ]
//! }"#)?;
//! let server = FaultServer::start(script).await?;
//! assert!(server.base_url().starts_with("https://127.0.0.1:"));
//! assert!(server.ca_pem().starts_with("-----BEGIN CERTIFICATE-----"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`LoggedRequest::connection`] tells which requests shared a connection, and
//! [`FaultServer::connection_count`] how many connections it took.
//!
//! # What a plan is over HTTP/2
//!
//! Requests on streams of one connection are answered side by side. Statuses, headers, parts and pauses are
//! what they are over HTTP/1.1, each part as DATA of its own; a length that is known is `content-length`, and
//! headers that are about HTTP/1.1's connections (`connection`, `transfer-encoding` and their like) are left
//! out. What ends a connection ends it here, too, with every stream on it, as a server or a proxy that dies
//! would; what ends one stream alone is an [`Http2Fault`](crate::script::Http2Fault).
//!
//! | in the plan | over HTTP/2 |
//! |---|---|
//! | `Answer::Close`, `End::Fin` | what was sent arrives, then TCP's FIN; no GOAWAY, no end of the stream |
//! | `Answer::Reset`, `End::Reset` | what was sent arrives, then TCP's RST |
//! | `Answer::Silence`, `End::Silence`, `End::Repeat` | the stream stays open until the client resets it or leaves |
//! | `Raw::head` | the head at once, after the whole delay |
//! | `Raw::tail` | left out: there is nothing outside of frames |
//! | `Plan::http2` | GOAWAY or RST_STREAM, as the fault says |
//!
//! Over TLS a FIN comes after a `close_notify`, and an RST comes without one.
//!
//! # Control
//!
//! A second port controls it, for tests in other processes and other languages:
//!
//! | request | answer |
//! |---|---|
//! | `GET /requests` | the [`LoggedRequest`]s as a JSON array |
//! | `DELETE /requests` | 204; the log is empty, the script goes on where it was |
//! | `GET /ca.pem` | the certificate of [`FaultServer::ca_pem`] |
//! | `POST /script` | 204; the body, in JSON or (by its `content-type`) in YAML, is the script now, from its first step, and the log is empty |
//!
//! Errors are JSON: `{ "error": { "message": … } }` with status 400 or 404.
//!
//! ```
//! use aplomb_faultlab::{script::Script, server::FaultServer};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let script = Script::from_json(r#"{ "steps": [ { "reply": { "message": {} }, "fault": "silence" } ] }"#)?;
//! let server = FaultServer::start(script).await?;
//! // … let a client talk to server.base_url() …
//! assert_eq!(server.request_count(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "a server is the other side of the clock: it plays pauses in real time, outside any run"
)]

mod connection;
mod control;
mod frames;
mod greet;
mod http2;
mod play;
mod state;
mod stream;
mod tls;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::script::{Engine, Script, ScriptError};
use connection::Connection;
use state::State;
use stream::Stream;

pub use state::LoggedRequest;

/// How long to wait after a failed `accept` (out of descriptors, mostly) before the next.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// A running server. It stops when dropped: both ports are closed and every connection with them.
#[derive(Debug)]
pub struct FaultServer {
    addr: SocketAddr,
    control_addr: SocketAddr,
    state: Arc<State>,
    /// Owns the two listeners, each of which owns its connections; dropping it aborts them all.
    _tasks: JoinSet<()>,
}

/// Starts a server on these ports of 127.0.0.1 (0 for any), for a command line: the caller has
/// [`FaultServer::base_url`] and [`FaultServer::control_addr`] to print.
///
/// # Errors
///
/// As [`FaultServer::start_on`].
pub async fn serve(script: Script, port: u16, control_port: u16) -> io::Result<FaultServer> {
    FaultServer::start_on(script, (Ipv4Addr::LOCALHOST, port), (Ipv4Addr::LOCALHOST, control_port)).await
}

impl FaultServer {
    /// Starts a server on free ports of 127.0.0.1. Needs a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    ///
    /// As [`FaultServer::start_on`].
    pub async fn start(script: Script) -> io::Result<Self> {
        serve(script, 0, 0).await
    }

    /// Starts a server on these addresses, for requests and for control.
    ///
    /// # Errors
    ///
    /// If an address cannot be bound; with [`io::ErrorKind::InvalidInput`] and the [`ScriptError`] inside if
    /// the script is not valid.
    pub async fn start_on(
        script: Script,
        addr: impl Into<SocketAddr>,
        control_addr: impl Into<SocketAddr>,
    ) -> io::Result<Self> {
        let engine =
            Engine::new(script).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let state = Arc::new(State::new(engine)?);
        let provider = TcpListener::bind(addr.into()).await?;
        let control = TcpListener::bind(control_addr.into()).await?;
        let (addr, control_addr) = (provider.local_addr()?, control.local_addr()?);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(provider, Arc::clone(&state), greet::converse));
        tasks.spawn(accept(control, Arc::clone(&state), |socket, state| {
            control::converse(Connection::new(Stream::Clear(socket)), state)
        }));
        Ok(Self { addr, control_addr, state, _tasks: tasks })
    }

    /// What a client takes for the provider's base URL: `http://127.0.0.1:PORT/v1` (`https` where the script
    /// says TLS), under which are `/chat/completions`, `/responses`, `/messages` and `/models/…`. (Anthropic's
    /// own SDKs want it without the `/v1`, Google's without it and with a version of theirs.)
    #[must_use]
    pub fn base_url(&self) -> String {
        let scheme = if self.state.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}/v1", self.addr)
    }

    /// The certificate, as PEM, of the authority that signs the server's certificates: what a client has to
    /// trust, and for a file that it reads. It is another one at every start, and the same for every script
    /// that the server plays.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.state.ca_pem()
    }

    /// How many connections were accepted since the start, those included that never carried a request.
    #[must_use]
    pub fn connection_count(&self) -> u64 {
        self.state.connection_count()
    }

    /// Where requests are answered.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where the server is controlled.
    #[must_use]
    pub fn control_addr(&self) -> SocketAddr {
        self.control_addr
    }

    /// The requests so far, in the order in which their heads had arrived.
    ///
    /// A request is here before its answer begins; its body and step are, too, unless the body is still on
    /// its way.
    #[must_use]
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.state.requests()
    }

    /// How many requests there are in [`FaultServer::requests`].
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.state.request_count()
    }

    /// Plays this script from its first step, with an empty log. Answers under way are played to their end,
    /// and requests whose head has arrived still belong to the old script. Connections that are there stay as
    /// they are; new ones are reached as the new script says, [`FaultServer::base_url`] included.
    ///
    /// # Errors
    ///
    /// If the script is not valid; the old one goes on then.
    pub fn set_script(&self, script: Script) -> Result<(), ScriptError> {
        self.state.set_engine(Engine::new(script)?)
    }
}

/// Accepts connections for as long as it is polled, and owns them.
async fn accept<Conversation>(
    listener: TcpListener,
    state: Arc<State>,
    converse: impl Fn(TcpStream, Arc<State>) -> Conversation,
) where
    Conversation: Future<Output = ()> + Send + 'static,
{
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted.and_then(|(socket, _)| at_once(socket)) {
                Ok(socket) => {
                    conversations.spawn(converse(socket, Arc::clone(&state)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
            Some(_ended) = conversations.join_next() => {}
        }
    }
}

/// Without it the kernel would gather small chunks, and an event would arrive with the next one.
fn at_once(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}
