//! The local driver: performs the machine's effects with tokio, HTTP and the host's clock. Decides nothing.

mod benches;
mod publish;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use aplomb_core::error::{Error, codes};
use aplomb_core::event::{EventName, names};
use aplomb_core::message::{Delta, Message, ToolCall};
use aplomb_core::run::{
    Effect, EffectId, Finished, Identity, Input, Machine, OutputSchema, RunStart, State, TimerKind,
    panic_message,
};
use aplomb_core::tool::ToolSpec;
use aplomb_llm::model::{DeltaSink, Endpoint};
use aplomb_llm::{Answer, AttemptFailed, Model, ModelRequest};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use benches::Benches;
pub(crate) use publish::{Publisher, SharedPublisher};

use crate::credential::{Credential, RunCredentials};
use crate::host::RunClock;
use crate::memory::Remembering;
use crate::output::Check;
use crate::request::Cancellation;
use crate::session::{Held, STORE_LIMIT_MS, Sessions, given_up};
use crate::tools::{ToolContext, Toolbox};

/// What a run is carried out with.
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    /// One for each of the machine's targets.
    pub(crate) models: Arc<[Arc<Model>]>,
    pub(crate) credentials: RunCredentials,
    pub(crate) benches: Benches,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) memory: Option<Arc<Remembering>>,
    /// How long a run waits for another one of its session, in ms.
    pub(crate) lock_timeout_ms: u64,
    pub(crate) clock: Arc<RunClock>,
    pub(crate) publisher: SharedPublisher,
    pub(crate) cancellation: Cancellation,
    /// What the output is held to.
    pub(crate) check: Option<Arc<Check>>,
}

/// How much longer than the step's clock an attempt's own may run and still be together with it, in ms: the attempt's
/// begins a little later, and wins.
const TOGETHER_MS: u64 = 20;

/// What a model is asked.
struct Asked {
    messages: Vec<Arc<Message>>,
    tools: Arc<[ToolSpec]>,
    output: Option<Arc<OutputSchema>>,
}

impl Asked {
    fn request<'a>(&'a self, identity: &'a Identity) -> ModelRequest<'a> {
        ModelRequest {
            run_id: &identity.run_id,
            messages: &self.messages,
            tools: &self.tools,
            output: self.output.as_deref(),
        }
    }
}

/// The session, while it is the run's.
type Session = Arc<Mutex<Option<Held>>>;

/// The effects that take time. One that is no longer here has been let go of.
#[derive(Default)]
struct InFlight {
    /// In the order that it was begun.
    work: Vec<(EffectId, BoxFuture<'static, Input>)>,
    /// By due time on the run's clock.
    timers: BTreeMap<(u64, EffectId), TimerKind>,
    session: Session,
    /// The benches that this run knows of.
    benches_told: BTreeMap<usize, u64>,
}

impl Driver {
    /// Carries the run out. Dropping the future lets go of everything.
    pub(crate) async fn drive(self, mut start: Box<RunStart>) -> Finished {
        let identity = start.identity.clone();
        // The run's future is moved before it is polled, and the state is most of it.
        let mut state = Box::<State>::default();
        let mut in_flight = InFlight::default();
        start.benches = self.bench_news(&mut in_flight);
        let deadline = start.budget.deadline(start.time_limit.as_ref());
        let mut input = Input::Started(start);
        loop {
            let (at, entropy) = (self.clock.at(), self.clock.entropy());
            let (next, _records, effects) = self.machine.handle(&state, at, entropy, input);
            *state = next;
            for effect in effects {
                if let Effect::AppendTranscript { messages, forgotten } = effect {
                    self.keep(&identity, &messages, forgotten);
                    self.append(&identity, &messages, deadline).await;
                    continue;
                }
                if let Some(finished) = self.perform(&mut in_flight, &identity, effect) {
                    return finished;
                }
            }
            input = self.next_input(&mut in_flight).await;
            // Nothing new is begun after a cancellation, whatever else arrived with it.
            if let Some(by) = self.cancellation.cancelled_by() {
                input = Input::Cancelled { by };
            }
            // What other runs have found out meanwhile counts for whatever is decided now.
            for (target, until) in self.bench_news(&mut in_flight) {
                let news = Input::TargetBenched { target, until };
                (*state, ..) = self.machine.handle(&state, self.clock.at(), 0, news);
            }
        }
    }

    /// The targets that are passed over, as far as this run has not been told, on the run's clock.
    fn bench_news(&self, in_flight: &mut InFlight) -> Vec<(usize, u64)> {
        if self.models.len() == 1 {
            return Vec::new();
        }
        let news = self.benches.news(&mut in_flight.benches_told).into_iter();
        news.map(|(target, until)| (target, until.saturating_sub(self.clock.started_wall_ms()))).collect()
    }

    fn perform(
        &self,
        in_flight: &mut InFlight,
        identity: &Arc<Identity>,
        effect: Effect,
    ) -> Option<Finished> {
        match effect {
            Effect::AcquireSession { effect } => {
                let acquired = self.acquire_session(effect, identity, in_flight.session.clone());
                in_flight.begin(effect, acquired);
            }
            // Done before this, since the next effect waits for it.
            Effect::AppendTranscript { .. } => {}
            Effect::CallModel { effect, target, messages, tools, output, announce_restart, .. } => {
                let asked = Asked { messages, tools, output };
                let call = self.call_model(effect, target, identity.clone(), asked, announce_restart);
                in_flight.begin(effect, call);
            }
            Effect::ReadCredential { effect, target } => {
                let (credentials, clock) = (self.credentials.clone(), self.clock.clone());
                let identity = identity.clone();
                let read = async move {
                    let changed = credentials.has_changed(target, &identity, &clock).await;
                    Input::CredentialRead { effect, changed }
                };
                in_flight.begin(effect, read);
            }
            Effect::BenchTarget { target, until } => {
                let until_wall_ms = self.clock.started_wall_ms().saturating_add(until);
                in_flight.benches_told.insert(target, until_wall_ms);
                self.benches.bench(target, until_wall_ms);
            }
            Effect::CallTool { effect, call, arguments, idempotency_key } => {
                let context = ToolContext::new(identity, &call, idempotency_key, self.clock.wall_ms());
                in_flight.begin(effect, self.call_tool(effect, call, arguments, context));
            }
            Effect::Validate { effect, output } => {
                let check = self.check.clone();
                let checked = async move {
                    let checked = check.map_or(Ok(output.clone()), |check| check.judge(&output));
                    Input::Validated { effect, checked }
                };
                in_flight.begin(effect, checked);
            }
            Effect::SetTimer { effect, at, kind } => {
                let leeway_ms = if kind == TimerKind::StepLimit { TOGETHER_MS } else { 0 };
                in_flight.timers.insert((at.saturating_add(leeway_ms), effect), kind);
            }
            Effect::Abort { effect } => in_flight.abort(effect),
            Effect::Emit { name, payload } => self.publisher.publish(name, payload),
            Effect::Finish(finished) => return Some(*finished),
        }
        None
    }

    async fn next_input(&self, in_flight: &mut InFlight) -> Input {
        let timer = in_flight.timers.first_key_value().map(|(timer, kind)| (*timer, *kind));
        let timer_is_due = async {
            match timer {
                Some((timer, kind)) => {
                    self.clock.sleep_until(timer.0, kind == TimerKind::Wait).await;
                    timer
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Work comes first, so that what has been asked for is begun: a request that was counted is sent.
            input = poll_fn(|context| in_flight.poll_work(context)) => input,
            () = self.cancellation.cancelled() => {
                Input::Cancelled { by: self.cancellation.cancelled_by().unwrap_or_default() }
            }
            timer = timer_is_due => {
                in_flight.timers.remove(&timer);
                Input::TimerFired { effect: timer.1 }
            }
        }
    }

    fn acquire_session(
        &self,
        effect: EffectId,
        identity: &Arc<Identity>,
        session: Session,
    ) -> impl Future<Output = Input> + Send + 'static {
        let (sessions, memory) = (self.sessions.clone(), self.memory.clone());
        let (session_id, lock_timeout_ms) = (identity.session_id.clone(), self.lock_timeout_ms);
        let (clock, publisher, identity) = (self.clock.clone(), self.publisher.clone(), identity.clone());
        async move {
            let too_late = clock.sleep_until(clock.at().saturating_add(lock_timeout_ms), false);
            tokio::select! {
                biased;
                held = sessions.hold(&session_id) => *lock(&session) = Some(held),
                () = too_late => {
                    let message = format!("another run held the session for {lock_timeout_ms} ms");
                    let error = Error::new(codes::SESSION_ERROR, message)
                        .with_hint("one run at a time per session: wait for the other one, or use another session_id");
                    return Input::SessionRefused { effect, error };
                }
            }
            let Some(memory) = memory else {
                return Input::SessionAcquired { effect, history: Vec::new() };
            };
            match memory.recall(&session_id).await {
                Ok(history) => Input::SessionAcquired { effect, history },
                Err(error) => {
                    tell_of(&publisher, names::MEMORY_INJECT_FAILED, &identity, &error);
                    if memory.must_recall {
                        return Input::SessionRefused { effect, error };
                    }
                    Input::SessionAcquired { effect, history: Vec::new() }
                }
            }
        }
    }

    /// Hands the memory what the run has added to the conversation, and how much of it the model could not take.
    fn keep(&self, identity: &Identity, messages: &[Arc<Message>], forgotten: usize) {
        let Some(memory) = &self.memory else { return };
        if let Err(error) = memory.keep(&identity.session_id, messages, forgotten) {
            tell_of(&self.publisher, names::MEMORY_WRITEBACK_FAILED, identity, &error);
        }
    }

    /// Adds it to the session's transcript. The run has its answer, which it does not lose by a store that fails, or that
    /// is not done when the run must end.
    async fn append(&self, identity: &Identity, messages: &[Arc<Message>], deadline: Option<u64>) {
        let limit = self.clock.at().saturating_add(STORE_LIMIT_MS).min(deadline.unwrap_or(u64::MAX));
        let appended = tokio::select! {
            biased;
            appended = self.sessions.append(&identity.session_id, messages) => appended,
            () = self.cancellation.cancelled() => Err(given_up("the run was cancelled")),
            () = self.clock.sleep_until(limit, false) => Err(given_up("its time was up")),
        };
        if let Err(error) = appended {
            tell_of(&self.publisher, names::SESSION_APPEND_FAILED, identity, &error);
        }
    }

    fn call_model(
        &self,
        effect: EffectId,
        target: usize,
        identity: Arc<Identity>,
        asked: Asked,
        announce_restart: bool,
    ) -> impl Future<Output = Input> + Send + 'static {
        let (model, publisher) = (self.models.get(target).cloned(), self.publisher.clone());
        let (credentials, clock) = (self.credentials.clone(), self.clock.clone());
        async move {
            let Some(model) = model else {
                let error = Error::new(codes::LLM_ERROR, format!("the agent has no model {target}"));
                return Input::ModelRefused { effect, error };
            };
            let credential = match credentials.for_request(target, &identity, &clock).await {
                Ok(credential) => credential,
                Err(error) => return Input::ModelRefused { effect, error },
            };
            let key = credential.as_ref().map(Credential::secret);
            if let Some(key) = key {
                publisher.learn(key.expose_secret());
            }
            let mut deltas = publisher.wants_deltas().then(|| publisher.delta_sink(announce_restart));
            let sink = deltas.as_mut().map(|sink| sink as DeltaSink<'_>);
            let asked = match model.config().endpoint {
                Endpoint::Service(_) => match ask_apart(model, identity, asked, credential, sink).await {
                    Ok(asked) => asked,
                    Err(message) => return Input::EffectPanicked { effect, message },
                },
                _ => model.ask_with(asked.request(&identity), key, sink).await,
            };
            match asked {
                Ok(answer) => {
                    if deltas.is_none() {
                        publisher.publish_whole(&answer.reply.message, announce_restart);
                    }
                    let (reply, first_delta_ms) = (answer.reply, answer.first_delta_ms);
                    Input::ModelReplied { effect, reply, first_delta_ms }
                }
                Err(failed) => Input::ModelFailed {
                    effect,
                    failure: failed.failure,
                    usage: failed.usage,
                    delivered: failed.delivered,
                },
            }
        }
    }

    /// A tool runs as a task of its own, so that one that blocks its thread does not hold up the run's clocks.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the run: its handle aborts it on drop")]
    fn call_tool(
        &self,
        effect: EffectId,
        call: ToolCall,
        arguments: Value,
        context: ToolContext,
    ) -> impl Future<Output = Input> + Send + 'static {
        let (tools, name) = (self.tools.clone(), call.name.clone());
        let called = async move {
            // Arguments that do not fit are no call at all.
            if let Err(error) = tools.check(&call.name, &arguments) {
                return Input::ToolRefused { effect, error };
            }
            match tools.call(&call.name, arguments, context).await {
                Ok(result) => Input::ToolReturned { effect, result },
                Err(error) => Input::ToolFailed { effect, error },
            }
        };
        let (limit, clock) = (self.tools.time_limit(), self.clock.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(called));
        async move {
            let joined = match limit {
                None => task.await,
                Some(limit) => {
                    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    tokio::select! {
                        biased;
                        joined = task => joined,
                        () = clock.sleep_until(clock.at().saturating_add(limit_ms), false) => {
                            let message = format!("{name} did not end within {limit_ms} ms, its executor's time limit");
                            let error = Error::new(codes::TOOL_TIMEOUT, message);
                            return Input::ToolFailed { effect, error };
                        }
                    }
                }
            };
            joined.unwrap_or_else(|joined| Input::EffectPanicked { effect, message: why_ended(joined) })
        }
    }
}

impl InFlight {
    fn begin(&mut self, effect: EffectId, work: impl Future<Output = Input> + Send + 'static) {
        self.work.push((effect, work.boxed()));
    }

    /// What the first of the work that is done has brought. Work that panics has brought that.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Input> {
        let done = self.work.iter_mut().enumerate().find_map(|(place, (effect, work))| {
            match catch_unwind(AssertUnwindSafe(|| work.poll_unpin(context))) {
                Ok(Poll::Ready(input)) => Some((place, input)),
                Ok(Poll::Pending) => None,
                Err(panic) => {
                    let message = panic_message(&*panic).to_owned();
                    Some((place, Input::EffectPanicked { effect: *effect, message }))
                }
            }
        });
        match done {
            Some((place, input)) => {
                drop(self.work.remove(place));
                Poll::Ready(input)
            }
            None => Poll::Pending,
        }
    }

    fn abort(&mut self, effect: EffectId) {
        self.work.retain(|(begun, _)| *begun != effect);
        self.timers.retain(|(_, timer), _| *timer != effect);
    }
}

/// Asks a model in this process, in a task of its own, so that one that computes for long does not hold up the run's clocks.
/// What comes of the answer is handed on here, in the run: an attempt that is given up tells nobody anything more.
///
/// # Errors
///
/// With what it panicked.
#[expect(clippy::disallowed_methods, reason = "the task ends with the attempt: its handle aborts it on drop")]
async fn ask_apart(
    model: Arc<Model>,
    identity: Arc<Identity>,
    asked: Asked,
    credential: Option<Credential>,
    sink: Option<DeltaSink<'_>>,
) -> Result<Result<Answer, AttemptFailed>, String> {
    let (deltas, mut coming) = unbounded_channel();
    let hand_on = move |delta: &Delta| {
        let _nobody_listens = deltas.send(delta.clone());
    };
    let mut deltas = sink.is_some().then_some(hand_on);
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        let sink = deltas.as_mut().map(|sink| sink as DeltaSink<'_>);
        model.ask_with(asked.request(&identity), credential.as_ref().map(Credential::secret), sink).await
    }));
    if let Some(sink) = sink {
        // The channel is closed when the task is over.
        while let Some(delta) = coming.recv().await {
            sink(&delta);
        }
    }
    task.await.map_err(why_ended)
}

/// Why a task gave nothing.
fn why_ended(joined: JoinError) -> String {
    match joined.try_into_panic() {
        Ok(panic) => panic_message(&*panic).to_owned(),
        Err(_) => "the task was aborted".to_owned(),
    }
}

/// Tells of a failure that the run survives.
fn tell_of(publisher: &SharedPublisher, name: EventName, identity: &Identity, error: &Error) {
    let payload = serde_json::json!({
        "agent_id": identity.agent_id,
        "session_id": identity.session_id,
        "error": error.to_string(),
        "error_details": error.details(),
    });
    if let Value::Object(payload) = payload {
        publisher.publish(name, payload);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
