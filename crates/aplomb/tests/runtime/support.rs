//! What the tests share: a provider that fails by script, a runtime in front of it, and what became of a run.

use std::future::Future;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aplomb::config::Config;
use aplomb::event::{EventName, PENDING, names};
use aplomb::host::{Host, ScaledHost, SystemHost};
use aplomb::plugins::{NoConfig, Registry};
use aplomb::tools::{Tool, ToolContext};
use aplomb::{
    ChunkKind, Error, Event, Exec, Pattern, RunRequest, RunResult, RunStreamChunk, Runtime, RuntimeBuilder,
    StopReason, Subscriber,
};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::{FaultServer, LoggedRequest};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;
use tokio::net::{TcpSocket, TcpStream};

/// The waits of a call that failed six times with nothing delivered: T 500, 1000, then S 2000, 4000, 8000 (retry.md §2).
pub(crate) const T_THEN_S: &[u64] = &[500, 1_000, 2_000, 4_000, 8_000];
/// The waits of a call that has delivered: the transport's allowance is not for it (retry.md §5, step 5).
pub(crate) const S_ONLY: &[u64] = &[2_000, 4_000, 8_000];
/// The waits of exec, where it is the one that pays: 1.5 s × 2^n (retry.md §2).
pub(crate) const X_ONLY: &[u64] = &[1_500, 3_000];
/// No second request.
pub(crate) const NO_RETRY: &[u64] = &[];

// ---- Scripts: what the provider does.

/// A step that answers with this text.
pub(crate) fn text(text: &str) -> Value {
    message(json!({ "text": text }))
}

/// A step that answers with this message, in faultlab's vocabulary.
pub(crate) fn message(message: Value) -> Value {
    json!({ "reply": { "message": message } })
}

/// A step in which the model calls tools: name and arguments, with the ids `call_1`, `call_2`, …
pub(crate) fn calls(calls: &[(&str, Value)]) -> Value {
    let calls = calls.iter().map(|(name, arguments)| json!({ "name": name, "arguments": arguments }));
    message(json!({ "tool_calls": calls.collect::<Vec<_>>() }))
}

/// A step that answers with a status and an empty body.
pub(crate) fn status(status: u16) -> Value {
    json!({ "reply": { "http": { "status": status } } })
}

/// A step that answers with a status, headers and a body.
pub(crate) fn http(status: u16, headers: Value, body: Value) -> Value {
    json!({ "reply": { "http": { "status": status, "headers": headers, "body": body } } })
}

/// A step that answers 200 with these server-sent events, as they stand.
pub(crate) fn events(events: &[&str]) -> Value {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    http(200, json!({ "content-type": "text/event-stream" }), json!(body))
}

/// The same step, spoilt.
pub(crate) fn with_fault(mut step: Value, fault: Value) -> Value {
    step["fault"] = fault;
    step
}

/// A script that plays these steps and stops.
pub(crate) fn once(steps: impl IntoIterator<Item = Value>) -> Value {
    json!({ "steps": steps.into_iter().collect::<Vec<_>>() })
}

/// A script that plays this step for ever.
pub(crate) fn always(step: Value) -> Value {
    json!({ "steps": [step], "at_end": "repeat_last" })
}

// ---- The runtime in front of it.

/// The document of one agent, `assistant`, that asks that address. Without jitter, so that waits can be told.
pub(crate) fn document(api_base: &str, change: impl FnOnce(&mut Value)) -> Value {
    let llm = json!({
        "provider": "openai_compatible", "model": "m", "api_base": api_base, "retry": { "jitter": "none" },
    });
    let mut agent = json!({ "id": "assistant", "llm": llm });
    change(&mut agent);
    json!({ "version": "1.0", "agents": [agent] })
}

/// The same, read.
pub(crate) fn config(api_base: &str, change: impl FnOnce(&mut Value)) -> Config {
    Config::from_json(&document(api_base, change).to_string(), "agent.json").unwrap()
}

/// One request per call of `run`, however it fails.
pub(crate) fn no_retries(agent: &mut Value) {
    agent["llm"]["retry"]["max_attempts"] = json!(1);
    agent["retry"]["session"] = json!({ "enabled": false });
}

/// A provider and a runtime in the making.
pub(crate) struct Setup {
    script: Value,
    change: Box<dyn FnOnce(&mut Value)>,
    whole: Box<dyn FnOnce(&mut Value)>,
    plugins: Registry,
    build: Box<dyn FnOnce(RuntimeBuilder) -> RuntimeBuilder>,
    deltas: bool,
}

impl Setup {
    pub(crate) fn new(script: Value) -> Setup {
        let (change, whole) = (Box::new(|_: &mut Value| ()), Box::new(|_: &mut Value| ()));
        let build = Box::new(|builder| builder);
        Setup { script, change, whole, plugins: Registry::new(), build, deltas: false }
    }

    /// Changes the agent's config.
    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Value) + 'static) -> Setup {
        let before = self.change;
        self.change = Box::new(move |agent| {
            before(agent);
            change(agent);
        });
        self
    }

    /// Changes the whole document, after the agent.
    pub(crate) fn document(mut self, change: impl FnOnce(&mut Value) + 'static) -> Setup {
        self.whole = Box::new(change);
        self
    }

    /// Changes the runtime's builder.
    pub(crate) fn build(mut self, build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Setup {
        let before = self.build;
        self.build = Box::new(move |builder| build(before(builder)));
        self
    }

    /// Registers plugins.
    pub(crate) fn plugins(mut self, register: impl FnOnce(Registry) -> Registry) -> Setup {
        self.plugins = register(self.plugins);
        self
    }

    /// Gives the agent a tool.
    pub(crate) fn tool(self, id: &'static str, tool: impl Tool + Clone) -> Setup {
        let setup = self.plugins(|registry| registry.tool(id, move |_: NoConfig| Ok(tool.clone())));
        setup.agent(move |agent| {
            let mut tools = agent["tools"].as_array().cloned().unwrap_or_default();
            tools.push(json!({ "id": id, "impl": id }));
            agent["tools"] = json!(tools);
        })
    }

    /// Gives the agent a pattern.
    pub(crate) fn pattern(self, pattern: impl Pattern + Clone) -> Setup {
        let setup = self.plugins(|registry| registry.pattern("own", move |_: NoConfig| Ok(pattern.clone())));
        setup.agent(|agent| agent["pattern"] = json!({ "impl": "own" }))
    }

    /// Lets the lab's subscriber take deltas as they come, so that every answer is watched.
    pub(crate) fn deltas(mut self) -> Setup {
        self.deltas = true;
        self
    }

    pub(crate) async fn start(self) -> Lab {
        let script = Script::from_json(&self.script.to_string()).unwrap();
        let server = FaultServer::start(script).await.unwrap();
        let events = Events { seen: Arc::default(), deltas: self.deltas };
        // Read when the runtime is built, and not needed after that.
        let mut authority = NamedTempFile::new().unwrap();
        authority.write_all(server.ca_pem().as_bytes()).unwrap();
        let mut document = document(&server.base_url(), |agent| {
            if server.base_url().starts_with("https") {
                agent["llm"]["ca_file"] = json!(authority.path());
            }
            (self.change)(agent);
        });
        (self.whole)(&mut document);
        let config = Config::from_json(&document.to_string(), "agent.json").unwrap();
        let builder = Runtime::builder(config).plugins(self.plugins);
        let builder = builder.host(ScaledHost::new(0.01)).subscriber(events.clone());
        let runtime = (self.build)(builder).build().unwrap();
        Lab { server, runtime, events }
    }
}

/// A provider, a runtime, and what the runtime told its subscriber.
pub(crate) struct Lab {
    pub(crate) server: FaultServer,
    pub(crate) runtime: Runtime,
    pub(crate) events: Events,
}

impl Lab {
    pub(crate) async fn new(script: Value) -> Lab {
        Setup::new(script).start().await
    }

    pub(crate) fn requests(&self) -> usize {
        self.server.request_count()
    }

    /// `run_detailed`.
    pub(crate) async fn run(&self, request: RunRequest) -> Outcome {
        let before = self.mark();
        let result = in_time(self.runtime.run_detailed(request)).await.unwrap();
        let output = result.clone().into_output();
        self.outcome(before, output, Some(result), Vec::new())
    }

    /// `run_stream`, to its end.
    pub(crate) async fn watch(&self, request: RunRequest) -> Outcome {
        let before = self.mark();
        let stream = self.runtime.run_stream(request).unwrap();
        let chunks: Vec<_> = in_time(stream.collect()).await;
        let result = check_chunks(&chunks);
        self.outcome(before, result.clone().into_output(), Some(result), chunks)
    }

    /// `exec`.
    pub(crate) async fn exec(&self, change: impl FnOnce(Exec) -> Exec) -> Outcome {
        let before = self.mark();
        let output = in_time(change(self.runtime.exec("assistant", "hi")).into_future()).await;
        self.outcome(before, output, None, Vec::new())
    }

    fn mark(&self) -> (usize, usize) {
        (self.requests(), self.events.all().len())
    }

    fn outcome(
        &self,
        (requests, events): (usize, usize),
        output: Result<String, Error>,
        result: Option<RunResult>,
        chunks: Vec<RunStreamChunk>,
    ) -> Outcome {
        let log = self.server.requests().split_off(requests);
        let events = self.events.all().split_off(events);
        check_events(&events);
        Outcome { output, result, chunks, events, log }
    }
}

/// A request that says "hi".
pub(crate) fn hi() -> RunRequest {
    RunRequest::new("assistant", "hi")
}

/// How a call is made, as far as it matters to what may happen to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// The answer comes whole.
    Plain,
    /// The answer is streamed, and nobody watches.
    Streamed,
    /// The answer is streamed to somebody.
    Watched,
}

pub(crate) const MODES: [Mode; 3] = [Mode::Plain, Mode::Streamed, Mode::Watched];
pub(crate) const UNWATCHED: [Mode; 2] = [Mode::Plain, Mode::Streamed];

/// One run of a fresh provider and a fresh runtime.
pub(crate) async fn ask(mode: Mode, setup: Setup) -> Outcome {
    match mode {
        Mode::Plain => setup.start().await.run(hi()).await,
        Mode::Streamed => {
            setup.agent(|agent| agent["llm"]["stream"] = json!("always")).start().await.run(hi()).await
        }
        Mode::Watched => setup.start().await.watch(hi()).await,
    }
}

// ---- What became of a run.

/// What a run gave, what was told about it, and what reached the provider.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) output: Result<String, Error>,
    /// None for `exec`.
    pub(crate) result: Option<RunResult>,
    /// Empty if the run was not watched.
    pub(crate) chunks: Vec<RunStreamChunk>,
    pub(crate) events: Vec<Event>,
    pub(crate) log: Vec<LoggedRequest>,
}

impl Outcome {
    pub(crate) fn error(&self) -> &Error {
        self.output.as_ref().expect_err("the run should have failed")
    }

    pub(crate) fn result(&self) -> &RunResult {
        self.result.as_ref().unwrap()
    }

    /// A field of the error's context.
    pub(crate) fn context(&self, name: &str) -> Value {
        self.error().context(name).cloned().unwrap_or_default()
    }

    pub(crate) fn events_of(&self, name: EventName) -> Vec<&Event> {
        self.events.iter().filter(|event| event.name == name).collect()
    }

    /// The waits that were decided on, in order.
    pub(crate) fn waits(&self) -> Vec<u64> {
        waits(&self.events)
    }

    /// The run's one call succeeded after these waits, and gave its text once.
    #[track_caller]
    pub(crate) fn gives(&self, text: &str, waits: &[u64]) -> &Outcome {
        assert_eq!(self.output.as_deref().map_err(Error::to_string), Ok(text));
        if let Some(result) = &self.result {
            assert_eq!(result.stop_reason, StopReason::Completed);
        }
        if !self.chunks.is_empty() {
            assert_eq!(kept_text(&self.chunks), text);
        }
        assert_eq!(told_text(&self.events), text);
        self.check_requests(waits);
        self
    }

    /// The run's one call failed for good after these waits, and so did the run.
    #[track_caller]
    pub(crate) fn fails(&self, code: &str, reason: &str, waits: &[u64]) -> &Outcome {
        let error = self.error();
        assert_eq!((error.code().as_str(), error.reason()), (code, Some(reason)), "{error}");
        assert_eq!(error.retryable(), ["llm.connection", "llm.rate_limit"].contains(&code), "{error}");
        if let Some(result) = &self.result {
            assert_eq!((result.stop_reason, &result.final_output), (StopReason::Failed, &None));
        }
        self.check_requests(waits);
        // Requests on the wire = attempts in the error, and the error says what was waited for.
        let attempts = error.attempts();
        assert_eq!(attempts.len(), self.log.len(), "{attempts:?}");
        let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.number as usize).collect();
        assert_eq!(numbers, (1..=self.log.len()).collect::<Vec<_>>());
        let waited: Vec<_> = attempts.iter().filter_map(|attempt| attempt.delay_ms).collect();
        assert_eq!(waited, self.waits());
        let permanent = error.message().contains("failed permanently");
        let after = format!("failed after {} attempt", attempts.len());
        assert!(permanent != error.message().contains(&after), "{error}");
        self
    }

    /// A failure that is called permanent, or one that was given up on after so many attempts.
    #[track_caller]
    pub(crate) fn permanently(&self, permanent: bool) -> &Outcome {
        assert_eq!(self.error().message().contains("failed permanently"), permanent, "{}", self.error());
        self
    }

    #[track_caller]
    fn check_requests(&self, waits: &[u64]) {
        let waited = self.waits();
        assert_eq!(self.log.len(), waits.len() + 1, "requests on the wire; waits: {waited:?}");
        assert_eq!(waited, waits);
        // The same request again, without a trace of what failed; and not before the wait was over.
        for (pair, wait) in self.log.windows(2).zip(waits) {
            assert_eq!(pair[0].body, pair[1].body);
            let apart = pair[1].at_ms - pair[0].at_ms;
            // Each end of a scaled wait is rounded down to a whole ms.
            assert!(apart + 2 >= wait / 100, "{apart} ms between requests, {wait} ms were decided on");
        }
    }
}

/// The waits that were decided on, in order.
pub(crate) fn waits(events: &[Event]) -> Vec<u64> {
    let decided = events.iter().filter(|event| event.name == names::RETRY_DECIDED);
    decided.filter_map(|event| event.payload["delay_ms"].as_u64()).collect()
}

/// The text that is left to somebody who watches and follows `discard_from`.
pub(crate) fn kept_text(chunks: &[RunStreamChunk]) -> String {
    kept(chunks.iter().map(|chunk| match chunk.kind {
        ChunkKind::LlmDelta => (names::LLM_DELTA, chunk.sequence, &chunk.payload),
        ChunkKind::LlmRestarted => (names::LLM_RESTARTED, chunk.sequence, &chunk.payload),
        _ => (names::LLM_CALLED, chunk.sequence, &chunk.payload),
    }))
}

/// The same for a subscriber.
pub(crate) fn told_text(events: &[Event]) -> String {
    kept(events.iter().map(|event| (event.name, event.sequence, &event.payload)))
}

fn kept<'a>(told: impl Iterator<Item = (EventName, u64, &'a Map<String, Value>)>) -> String {
    let mut kept: Vec<(u64, &str)> = Vec::new();
    for (name, sequence, payload) in told {
        if name == names::LLM_DELTA && payload["kind"] == "text" {
            kept.push((sequence, payload["text"].as_str().unwrap()));
        } else if name == names::LLM_RESTARTED {
            let discard_from = payload["discard_from"].as_u64().unwrap();
            kept.retain(|(sequence, _)| *sequence < discard_from);
        }
    }
    kept.into_iter().map(|(_, text)| text).collect()
}

/// How many chunks are of that kind.
pub(crate) fn count(chunks: &[RunStreamChunk], kind: ChunkKind) -> usize {
    chunks.iter().filter(|chunk| chunk.kind == kind).count()
}

/// What every stream keeps to, whatever happens in it. Gives the result.
#[track_caller]
pub(crate) fn check_chunks(chunks: &[RunStreamChunk]) -> RunResult {
    let sequences: Vec<_> = chunks.iter().map(|chunk| chunk.sequence).collect();
    assert_eq!(sequences, (0..chunks.len() as u64).collect::<Vec<_>>());
    assert_eq!(chunks.first().map(|chunk| chunk.kind), Some(ChunkKind::RunStarted));
    assert_eq!(chunks.last().map(|chunk| chunk.kind), Some(ChunkKind::RunFinished));
    assert_eq!((count(chunks, ChunkKind::RunStarted), count(chunks, ChunkKind::RunFinished)), (1, 1));
    let results: Vec<_> = chunks.iter().filter_map(|chunk| chunk.result.clone()).collect();
    assert_eq!(results.len(), 1, "only the last chunk has a result");
    for pair in chunks.windows(2).filter(|pair| pair[0].kind == ChunkKind::LlmRestarted) {
        assert_eq!(pair[1].kind, ChunkKind::LlmDelta, "a restart comes just before the new attempt's delta");
    }
    results[0].clone()
}

/// What the events of every run keep to.
#[track_caller]
pub(crate) fn check_events(events: &[Event]) {
    let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (0..events.len() as u64).collect::<Vec<_>>());
    for event in events {
        assert_eq!(event.name.violations(&event.payload), [""; 0]);
        assert!(PENDING.iter().all(|(pending, _)| *pending != event.name), "{} comes later", event.name);
        assert_eq!(event.run_id, events[0].run_id);
    }
    if let Some(last) = events.last() {
        assert_eq!(events[0].name, names::SESSION_RUN_STARTED);
        assert_eq!(last.name, names::SESSION_RUN_COMPLETED);
    }
    for pair in events.windows(2).filter(|pair| pair[0].name == names::LLM_RESTARTED) {
        assert_eq!(pair[1].name, names::LLM_DELTA, "a restart comes just before the new attempt's delta");
    }
}

/// A subscriber that keeps what it is told.
#[derive(Clone)]
pub(crate) struct Events {
    seen: Arc<Mutex<Vec<Event>>>,
    deltas: bool,
}

impl Events {
    pub(crate) fn all(&self) -> Vec<Event> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn has(&self, name: EventName) -> bool {
        self.all().iter().any(|event| event.name == name)
    }
}

impl Subscriber for Events {
    fn on_event(&self, event: &Event) {
        self.seen.lock().unwrap().push(event.clone());
    }

    fn wants_deltas(&self) -> bool {
        self.deltas
    }
}

/// An address that refuses every connection, for as long as what comes with it is kept: bound, and not listened at.
pub(crate) fn nobody() -> (SocketAddr, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// An address that takes no connection and refuses none, for as long as what comes with it is kept.
pub(crate) async fn deaf() -> (String, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    // This one waits to be accepted, and there is no room for another.
    let first = TcpStream::connect(address).await.unwrap();
    (format!("http://{address}/v1"), (listener, first))
}

// ---- Tools.

type Act = Box<dyn Fn(Value) -> BoxFuture<'static, Result<Value, Error>> + Send + Sync>;

/// A tool that does what a test says, and keeps the arguments of its calls.
#[derive(Clone)]
pub(crate) struct Probe {
    act: Arc<Act>,
    parameters: Value,
    calls: Arc<Mutex<Vec<Value>>>,
}

impl Probe {
    pub(crate) fn new<F>(act: impl Fn(Value) -> F + Send + Sync + 'static) -> Probe
    where
        F: Future<Output = Result<Value, Error>> + Send + 'static,
    {
        Probe {
            act: Arc::new(Box::new(move |arguments| Box::pin(act(arguments)))),
            parameters: json!({ "type": "object" }),
            calls: Arc::default(),
        }
    }

    /// A tool that says this.
    pub(crate) fn saying(said: &'static str) -> Probe {
        Probe::new(move |_| async move { Ok(json!(said)) })
    }

    /// A tool that never ends.
    pub(crate) fn hanging() -> Probe {
        Probe::new(|_| std::future::pending())
    }

    pub(crate) fn parameters(mut self, parameters: Value) -> Probe {
        self.parameters = parameters;
        self
    }

    /// The arguments of the calls so far.
    pub(crate) fn calls(&self) -> Vec<Value> {
        self.calls.lock().unwrap().clone()
    }
}

impl Tool for Probe {
    fn description(&self) -> &str {
        "does what the test says"
    }

    fn parameters(&self) -> Value {
        self.parameters.clone()
    }

    fn call(&self, arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        self.calls.lock().unwrap().push(arguments.clone());
        (self.act)(arguments)
    }
}

/// The tool results that a request brings the model: call id and content, in order.
pub(crate) fn tool_results(request: &LoggedRequest) -> Vec<(String, String)> {
    let told = messages(request).into_iter().filter(|message| message["role"] == "tool");
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    told.map(|message| (word(&message["tool_call_id"]), word(&message["content"]))).collect()
}

/// The messages of a request.
pub(crate) fn messages(request: &LoggedRequest) -> Vec<Value> {
    request.body["messages"].as_array().unwrap().clone()
}

/// Role and text of the messages of a request.
pub(crate) fn said(request: &LoggedRequest) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages(request).iter().map(|message| (word(&message["role"]), word(&message["content"]))).collect()
}

// ---- Time.

/// Gives up on what should have ended long ago: nothing here takes that long, on the slowest machine.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("it should have ended long ago")
}

/// Waits until it is so.
pub(crate) async fn until(mut so: impl FnMut() -> bool) {
    in_time(async {
        while !so() {
            SystemHost.sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Gives those who should not do anything the time to do it.
pub(crate) async fn a_while() {
    SystemHost.sleep(Duration::from_millis(300)).await;
}
