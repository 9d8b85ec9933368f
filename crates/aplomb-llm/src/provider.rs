//! One attempt at a model: a request out, deltas while they come, and in the end one reply or one failure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aplomb_core::Error;
use aplomb_core::error::codes;
use aplomb_core::failure::{Anomaly, Failure, Phase, TransportFault, TransportKind};
use aplomb_core::message::{Block, CallIds, Delta, ImageSource, Message, Reply, StreamEvent, TokenUsage};
use aplomb_core::run::OutputSchema;
use aplomb_core::tool::ToolSpec;
use aplomb_faultlab::script::Script;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clocks::{Clocks, Timeouts, wall_ms};
use crate::credentials;
use crate::mock::MockTransport;
use crate::service::{self, Service};
use crate::structured::{self, Told};
use crate::transport::{Body, HttpTransport, Paths, Pool, Request, Response, Sent, Target, Transport};
use crate::usage;
use crate::wire::{self, ANSWER_LIMIT, CachePoint, Parameters, Quirks, Schemas, Wire};

/// The most bytes that are read of an error.
const ERROR_BODY_LIMIT: usize = 1024 * 1024;

/// Whether answers are streamed: `llm.stream`. With [`Auto`](StreamMode::Auto) those of a model that reasons always are,
/// since that may take it minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum StreamMode {
    /// Where somebody watches them come.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: whoever watches gets the answer in one piece.
    Never,
}

/// What a model is, and how it is reached.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The provider's name, for messages.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// Which protocol it speaks.
    pub wire: Wire,
    /// Where it is.
    pub endpoint: Endpoint,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// The most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// Whether the model reasons before it answers: it is sent no temperature (but for Google's), and its thoughts count against the limit of
    /// the answer.
    pub reasons: bool,
    /// Whether answers are streamed.
    pub stream: StreamMode,
    /// What the provider is to keep in its cache. Anthropic's protocol alone asks for it; others cache unasked, and refuse
    /// it here.
    pub cache: Vec<CachePoint>,
    /// Merged into each request's body, as a JSON merge patch (RFC 7396): what the provider takes and Aplomb has no word
    /// for. It wins over ours.
    pub extra_body: Map<String, Value>,
    /// Added to the query of each request, such as Azure's `api-version`.
    pub query: Vec<(String, String)>,
    /// How the vendor differs from the protocol.
    pub quirks: Quirks,
    /// Which ids of calls it takes back.
    pub call_ids: CallIds,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// Where a model is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Endpoint {
    /// Behind HTTP.
    Http {
        /// Such as `https://api.openai.com/v1`.
        api_base: String,
        /// Sent as the protocol has it.
        api_key: Option<SecretString>,
        /// Sent with every request; they win over ours.
        extra_headers: BTreeMap<String, SecretString>,
        /// Certificates to trust besides the platform's.
        ca_file: Option<PathBuf>,
    },
    /// In a script.
    Mock(Script),
    /// In this process. It is given the conversation as it is: no wire, and nothing of one, comes between.
    Service(Service),
}

impl ModelConfig {
    /// A model with the defaults of everything else.
    pub fn new(
        provider: impl Into<String>,
        model: impl Into<String>,
        wire: Wire,
        endpoint: Endpoint,
    ) -> ModelConfig {
        ModelConfig {
            provider: provider.into(),
            model: model.into(),
            wire,
            endpoint,
            temperature: None,
            max_tokens: None,
            reasons: false,
            stream: StreamMode::Auto,
            cache: Vec::new(),
            extra_body: Map::new(),
            query: Vec::new(),
            quirks: Quirks::default(),
            call_ids: wire.call_ids(),
            timeouts: Timeouts::default(),
        }
    }

    /// What carries requests there.
    ///
    /// # Errors
    ///
    /// `config.validation` if the endpoint is not usable, or there is nothing to carry.
    pub fn transport(&self) -> Result<Box<dyn Transport>, Error> {
        let path = |stream| self.wire.path(&self.model, stream);
        let paths = Paths { whole: path(false), streamed: path(true) };
        Ok(match &self.endpoint {
            Endpoint::Http { api_base, api_key, extra_headers, ca_file } => {
                Box::new(HttpTransport::new(&Target {
                    api_base,
                    paths: &paths,
                    query: &self.query,
                    headers: self.wire.headers(),
                    key_header: self.quirks.key_header.unwrap_or(self.wire.key_header()),
                    api_key: api_key.as_ref(),
                    extra_headers,
                    connect_timeout: self.timeouts.connect,
                    ca_file: ca_file.as_deref(),
                })?)
            }
            Endpoint::Mock(script) => Box::new(MockTransport::new(script.clone(), paths)?),
            Endpoint::Service(_) => {
                let message = format!("provider {:?} is served in this process", self.provider);
                return Err(Error::new(codes::CONFIG_VALIDATION, message));
            }
        })
    }

    /// What is sent to ask that.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON.
    pub fn request(&self, request: ModelRequest<'_>, stream: bool) -> serde_json::Result<Request> {
        // A script answers what it answers, and is shown what a model would be told.
        let mut quirks = self.quirks;
        if !matches!(self.endpoint, Endpoint::Http { .. }) {
            quirks.schemas = Schemas::Never;
        }
        let with_tools = !request.tools.is_empty();
        let told = request
            .output
            .map(|output| (output, structured::told(output, &self.model, self.wire, quirks, with_tools)));
        let (format, messages) = match told {
            None => (None, Cow::Borrowed(request.messages)),
            Some((_, Told::Natively(format))) => (Some(format), Cow::Borrowed(request.messages)),
            Some((output, Told::InInstructions)) => {
                (None, Cow::Owned(structured::instructed(request.messages, output)))
            }
        };
        let parameters = Parameters {
            model: &self.model,
            stream,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            reasons: self.reasons,
            cache: &self.cache,
            output: format.as_ref(),
            quirks: self.quirks,
        };
        let mut body = self.wire.request_body(parameters, &messages, request.tools)?;
        if !self.extra_body.is_empty() {
            body = wire::merge(&body, &self.extra_body)?;
        }
        Ok(Request { body: body.into(), stream, api_key: None, run_id: request.run_id.to_owned() })
    }
}

/// What is asked of a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Whose request it is.
    pub run_id: &'a str,
    /// The conversation.
    pub messages: &'a [Arc<Message>],
    /// The tools that it may ask for.
    pub tools: &'a [ToolSpec],
    /// What its output must fit.
    pub output: Option<&'a OutputSchema>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub reply: Reply,
    /// From the attempt's start to the first piece of the answer, where it was streamed.
    pub first_delta_ms: Option<u64>,
}

/// An attempt that failed.
#[derive(Debug)]
pub struct AttemptFailed {
    /// What was seen.
    pub failure: Box<Failure>,
    /// What was used all the same: as the provider said; or estimated and flagged where the answer had begun and nobody
    /// said.
    pub usage: Option<TokenUsage>,
    /// Whether some of the answer was handed to somebody.
    pub delivered: bool,
}

/// Whoever watches an answer come.
pub type DeltaSink<'a> = &'a mut (dyn FnMut(&Delta) + Send);

/// A model, ready to be asked.
pub struct Model {
    config: ModelConfig,
    way: Way,
}

/// How a model is asked.
enum Way {
    Wire(Box<dyn Transport>),
    Service(Service),
}

impl Model {
    /// Makes ready to ask a model. Sends nothing.
    ///
    /// # Errors
    ///
    /// `config.validation` if the endpoint is not usable, or the protocol cannot say what is to be cached.
    pub fn new(config: ModelConfig) -> Result<Model, Error> {
        if !config.cache.is_empty() && !config.wire.takes_cache_points() {
            let message = format!("a cache has no use with provider {:?}", config.provider);
            return Err(Error::new(codes::CONFIG_VALIDATION, message)
                .with_context("path", "llm.cache")
                .with_hint("Anthropic's protocol alone asks for caching; other providers cache unasked"));
        }
        let way = match &config.endpoint {
            Endpoint::Service(service) => Way::Service(service.clone()),
            _ => Way::Wire(config.transport()?),
        };
        Ok(Model { config, way })
    }

    /// What the model is.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Makes one attempt. With a sink, somebody watches: each delta is handed over as it comes.
    ///
    /// Dropping the future ends the attempt and closes its connection.
    ///
    /// # Errors
    ///
    /// Whatever the network, the provider or the answer was wrong with. Nothing was repeated.
    pub async fn ask(
        &self,
        request: ModelRequest<'_>,
        sink: Option<DeltaSink<'_>>,
    ) -> Result<Answer, AttemptFailed> {
        self.ask_with(request, None, sink).await
    }

    /// The same, with another key than the one that the model was made with.
    ///
    /// # Errors
    ///
    /// As [`ask`](Model::ask) does.
    pub async fn ask_with(
        &self,
        request: ModelRequest<'_>,
        api_key: Option<&SecretString>,
        sink: Option<DeltaSink<'_>>,
    ) -> Result<Answer, AttemptFailed> {
        let transport = match &self.way {
            Way::Wire(transport) => &**transport,
            Way::Service(service) => {
                let asked = service::attempt(service, &self.config, request, api_key, sink).await;
                return asked.map_err(|failed| {
                    let failure = Box::new(self.completed(*failed.failure, api_key));
                    AttemptFailed { failure, ..failed }
                });
            }
        };
        let stream = match self.config.stream {
            StreamMode::Always => true,
            StreamMode::Never => false,
            // A model that reasons is silent for longer than the first-byte clock allows.
            StreamMode::Auto => sink.is_some() || self.config.reasons,
        };
        let mut attempt = Attempt {
            wire: self.config.wire,
            quirks: self.config.quirks,
            clocks: Clocks::start(&self.config.timeouts),
            connects_within: match self.config.endpoint {
                Endpoint::Http { .. } => self.config.timeouts.connect,
                Endpoint::Mock(_) | Endpoint::Service(_) => Duration::ZERO,
            },
            sink,
            usage: None,
            arrived: 0,
            connected: false,
            pool: None,
            delivered: false,
            first_delta_ms: None,
        };
        let mut sent = 0;
        let begun = match self.config.request(request, stream) {
            Ok(http) => {
                sent = (http.body.len() as u64).saturating_sub(image_bytes(request.messages));
                Ok(transport.send(Request { api_key: api_key.cloned(), ..http }))
            }
            Err(error) => {
                let text = format!("the request cannot be written as JSON: {error}");
                Err(Box::new(Failure::transport(Phase::Connect, TransportKind::Request, &text)))
            }
        };
        let outcome = match begun {
            Ok(begun) => attempt.make(begun, stream).await,
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(mut reply) => {
                // Some servers never say what was used. It was not nothing.
                reply.usage.get_or_insert_with(|| TokenUsage::estimate(sent, attempt.arrived));
                Ok(Answer { reply, first_delta_ms: attempt.first_delta_ms })
            }
            Err(failure) => {
                if let (Some(fault), Some(pool)) = (&failure.transport, attempt.pool)
                    && spoils_connections(fault.kind)
                {
                    transport.distrust(pool);
                }
                Err(AttemptFailed {
                    usage: usage::of_failed(
                        &failure,
                        attempt.usage,
                        sent,
                        attempt.arrived,
                        attempt.connected,
                    ),
                    failure: Box::new(self.completed(*failure, api_key)),
                    delivered: attempt.delivered,
                })
            }
        }
    }

    /// The credentials that are sent with requests.
    pub fn credentials(&self) -> impl Iterator<Item = &str> {
        let (key, headers) = match &self.config.endpoint {
            Endpoint::Http { api_key, extra_headers, .. } => (api_key.as_ref(), Some(extra_headers)),
            Endpoint::Mock(_) | Endpoint::Service(_) => (None, None),
        };
        let headers = headers.into_iter().flatten().filter(|(name, _)| !credentials::is_public(name));
        let values =
            key.into_iter().chain(headers.map(|(_, value)| value)).map(|secret| secret.expose_secret());
        values.flat_map(credentials::of_header).chain(credentials::of_fields(&self.config.extra_body))
    }

    /// The failure with whose it is, and without the secrets that were sent, which some providers repeat.
    fn completed(&self, mut failure: Failure, api_key: Option<&SecretString>) -> Failure {
        failure.provider.clone_from(&self.config.provider);
        failure.model.clone_from(&self.config.model);
        if let Endpoint::Http { api_base, .. } = &self.config.endpoint {
            failure.endpoint.clone_from(api_base);
        }
        failure.seal(self.credentials().chain(api_key.map(|key| key.expose_secret())));
        failure
    }
}

/// Whether a connection with that fault may be dead or silent, and others of its pool with it. A stream that the peer gave
/// up says nothing about its connection; the other kinds here are of connections that never were.
fn spoils_connections(kind: TransportKind) -> bool {
    !matches!(
        kind,
        TransportKind::StreamReset
            | TransportKind::Request
            | TransportKind::Dns
            | TransportKind::Refused
            | TransportKind::Certificate
            | TransportKind::Tls
            | TransportKind::TlsInterrupted
            | TransportKind::Connect
            | TransportKind::ConnectTimeout
    )
}

/// An attempt under way.
struct Attempt<'a> {
    wire: Wire,
    quirks: Quirks,
    clocks: Clocks,
    /// How long it can take at most to get a connection.
    connects_within: Duration,
    /// The pool that the connection is from.
    pool: Option<Pool>,
    /// Whether there was a connection when a clock ran out. The client below does not say; the time says it.
    connected: bool,
    sink: Option<DeltaSink<'a>>,
    /// What the provider says that was used.
    usage: Option<TokenUsage>,
    /// The bytes of the answer that came: of its deltas, or of its body where it is one piece.
    arrived: u64,
    delivered: bool,
    first_delta_ms: Option<u64>,
}

impl Attempt<'_> {
    async fn make(&mut self, sent: Sent<'_>, streamed: bool) -> Result<Reply, Box<Failure>> {
        self.pool = Some(sent.pool);
        let Response { status, headers, body } = match self.clocks.wait(sent.response).await {
            Ok(response) => response.map_err(|fault| broken(Phase::Connect, &fault))?,
            Err(limit) => {
                self.connected = self.clocks.elapsed() > self.connects_within;
                return Err(timed_out(Phase::Connect, limit));
            }
        };
        let received_at_ms = wall_ms();
        let seen = |mut failure: Box<Failure>| {
            failure.status = Some(status);
            failure.received_at_ms = Some(received_at_ms);
            let readable =
                headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
            Box::new(failure.with_headers(readable))
        };
        if !(200..300).contains(&status) {
            // An error whose body breaks off, or is too long, is still the error that its status says.
            let (body, _) = read(&mut self.clocks, body, ERROR_BODY_LIMIT).await;
            return Err(seen(Box::new(Failure::status(status, &body))));
        }
        let outcome = match streamed_as(&headers) {
            Some(true) => self.read_stream(body).await,
            // Where a stream was asked for, some servers give it without saying so.
            None if streamed => match peek(&mut self.clocks, body).await {
                Ok((true, body)) => self.read_stream(body).await,
                Ok((false, body)) => self.read_whole(body).await,
                Err(failure) => Err(failure),
            },
            _ => self.read_whole(body).await,
        };
        outcome.map_err(seen)
    }

    /// An answer in one piece. Some servers give one although a stream was asked for.
    async fn read_whole(&mut self, body: Body) -> Result<Reply, Box<Failure>> {
        let (body, failure) = read(&mut self.clocks, body, ANSWER_LIMIT).await;
        if let Some(failure) = failure {
            self.arrived = body.len() as u64;
            return Err(failure);
        }
        let (reply, usage) = self.wire.decode_body(&body);
        self.usage = usage;
        // Of a whole body the provider's own count is the last word.
        if usage.is_none() {
            self.arrived = body.len() as u64;
        }
        let reply = reply?;
        self.arrived = 0;
        for delta in Delta::of_whole(&reply.message) {
            self.arrived += delta.size();
            self.deliver(&delta);
        }
        Ok(reply)
    }

    async fn read_stream(&mut self, mut body: Body) -> Result<Reply, Box<Failure>> {
        let mut decoder = self.wire.decoder(self.quirks);
        let (mut began, mut whole) = (false, false);
        let mut events = Vec::new();
        while !decoder.is_done() {
            let bytes = match self.clocks.wait(body.next()).await {
                Ok(Some(Ok(bytes))) => bytes,
                Ok(None) => break,
                // Nothing that comes after the terminal event can take the answer back but an error that says so.
                Ok(Some(Err(_))) | Err(_) if decoder.is_terminal() => break,
                Ok(Some(Err(fault))) => {
                    return Err(broken(Phase::MidStream, &fault));
                }
                Err(limit) => return Err(timed_out(Phase::MidStream, limit)),
            };
            events.clear();
            let pushed = decoder.push(&bytes, &mut events);
            self.usage = decoder.usage();
            for event in &events {
                if let StreamEvent::Delta(delta) = event {
                    self.arrived += delta.size();
                    self.first_delta_ms.get_or_insert_with(|| self.clocks.elapsed_ms());
                    self.deliver(delta);
                }
            }
            pushed?;
            if decoder.is_terminal() {
                // Once: what follows the whole answer, pings too, does not prolong the wait for more.
                if !std::mem::replace(&mut whole, true) {
                    self.clocks.answer_is_whole();
                }
            } else if !began || !events.is_empty() {
                self.clocks.progress();
            }
            began = true;
        }
        if decoder.is_done() {
            // The connection can serve the next request only if this body has been read to its end.
            self.clocks.wait_for_end(body.next()).await;
        }
        decoder.finish()
    }

    fn deliver(&mut self, delta: &Delta) {
        if let Some(sink) = &mut self.sink {
            sink(delta);
            self.delivered = true;
        }
    }
}

/// The bytes of the pictures in a conversation. What a picture costs has nothing to do with them.
pub(crate) fn image_bytes(messages: &[Arc<Message>]) -> u64 {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let sizes = blocks.map(|block| match block {
        Block::Image { source: ImageSource::Base64 { data, .. } } => data.len() as u64,
        _ => 0,
    });
    sizes.sum()
}

/// Looks at the beginning of a body, however it is cut, and gives whether it is a stream, and the body whole.
async fn peek(clocks: &mut Clocks, body: Body) -> Result<(bool, Body), Box<Failure>> {
    let mut body = body.fuse();
    let mut beginning = Vec::new();
    let is_stream = loop {
        match begins_stream(&beginning) {
            Some(is_stream) => break is_stream,
            None if beginning.len() > ANSWER_LIMIT => break false,
            None => {}
        }
        match clocks.wait(body.next()).await {
            Ok(Some(Ok(bytes))) => beginning.extend_from_slice(&bytes),
            Ok(None) => break false,
            Ok(Some(Err(fault))) => return Err(broken(Phase::Body, &fault)),
            Err(limit) => return Err(timed_out(Phase::Body, limit)),
        }
    };
    Ok((is_stream, stream::iter([Ok(Bytes::from(beginning))]).chain(body).boxed()))
}

/// Whether what begins so is a stream of events; `None` while that is open. JSON and HTML are told by their first
/// character, and everything else may be an event's field or comment.
fn begins_stream(beginning: &[u8]) -> Option<bool> {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    if MARK.starts_with(beginning) {
        return None;
    }
    let text = beginning.strip_prefix(MARK).unwrap_or(beginning);
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(!matches!(first, b'{' | b'[' | b'<'))
}

/// As much of a body as comes, at most `limit` bytes, and what went wrong with the rest.
async fn read(clocks: &mut Clocks, mut body: Body, limit: usize) -> (Vec<u8>, Option<Box<Failure>>) {
    let mut whole = Vec::new();
    loop {
        let failure = match clocks.wait(body.next()).await {
            Ok(None) => return (whole, None),
            Ok(Some(Ok(bytes))) => {
                let room = limit - whole.len();
                whole.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
                if bytes.len() <= room {
                    continue;
                }
                Box::new(Failure::anomaly(Phase::Body, Anomaly::TooLarge, b""))
            }
            Ok(Some(Err(fault))) => broken(Phase::Body, &fault),
            Err(limit) => timed_out(Phase::Body, limit),
        };
        return (whole, Some(failure));
    }
}

fn broken(phase: Phase, fault: &TransportFault) -> Box<Failure> {
    Box::new(Failure::transport(phase, fault.kind, &fault.text))
}

pub(crate) fn timed_out(phase: Phase, limit: TransportKind) -> Box<Failure> {
    let text = limit.setting().map(|setting| format!("timed out ({setting})")).unwrap_or_default();
    Box::new(Failure::transport(phase, limit, &text))
}

/// Whether the head says that the body is a stream of events; `None` where it says neither that nor another thing of which
/// it is known that it is none.
fn streamed_as(headers: &HeaderMap) -> Option<bool> {
    let content_type = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().trim_start();
    let says =
        |kind: &str| content_type.get(..kind.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(kind));
    if says("text/event-stream") {
        return Some(true);
    }
    // AWS's frames are no events of any protocol that is spoken here, whatever is in them.
    // Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>.
    const NO_EVENTS: [&str; 3] = ["application/json", "text/html", "application/vnd.amazon.eventstream"];
    NO_EVENTS.iter().any(|kind| says(kind)).then_some(false)
}
