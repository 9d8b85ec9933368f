//! The local driver: performs the machine's effects with tokio, HTTP and the host's clock. Decides nothing.

mod benches;
mod publish;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aplomb_core::error::{Error, codes};
use aplomb_core::event::{EventName, names};
use aplomb_core::message::{Message, ToolCall};
use aplomb_core::run::{
    Effect, EffectId, Finished, Identity, Input, Machine, OutputSchema, RunStart, State, TimerKind,
    panic_message,
};
use aplomb_core::tool::ToolSpec;
use aplomb_llm::{Model, ModelRequest};
use futures_util::future::{AbortHandle, Aborted, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use benches::Benches;
pub(crate) use publish::{Publisher, SharedPublisher};

use crate::credential::{Credential, RunCredentials};
use crate::host::RunClock;
use crate::memory::{Held, Sessions};
use crate::output::Check;
use crate::request::Cancellation;
use crate::tools::{ToolContext, Toolbox};

/// What a run is carried out with.
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    /// One for each of the machine's targets.
    pub(crate) models: Arc<[Arc<Model>]>,
    pub(crate) credentials: RunCredentials,
    pub(crate) benches: Benches,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) sessions: Option<Arc<Sessions>>,
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

/// The session, while it is the run's.
type Session = Arc<Mutex<Option<Held>>>;

/// The effects that take time, each with the way to let go of it.
#[derive(Default)]
struct InFlight {
    work: FuturesUnordered<BoxFuture<'static, Result<Input, Aborted>>>,
    aborts: HashMap<EffectId, AbortHandle>,
    /// By due time on the run's clock.
    timers: BTreeMap<(u64, EffectId), TimerKind>,
    session: Session,
    /// The benches that this run knows of.
    benches_told: BTreeMap<usize, u64>,
}

impl Driver {
    /// Carries the run out. Dropping the future lets go of everything.
    pub(crate) async fn drive(self, mut start: RunStart) -> Finished {
        let identity = Arc::new(start.identity.clone());
        let mut state = State::default();
        let mut in_flight = InFlight::default();
        start.benches = self.bench_news(&mut in_flight);
        let mut input = Input::Started(Box::new(start));
        loop {
            let (at, entropy) = (self.clock.at(), self.clock.entropy());
            let (records, effects) = self.machine.handle(&state, at, entropy, input);
            for record in &records {
                state.apply(record);
            }
            for effect in effects {
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
                let (records, _nothing) = self.machine.handle(&state, self.clock.at(), 0, news);
                records.iter().for_each(|record| state.apply(record));
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
                in_flight.begin(effect, self.acquire_session(effect, identity, in_flight.session.clone()));
            }
            Effect::AppendTranscript { messages, forgotten } => {
                self.keep(identity, &messages, forgotten);
            }
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
                in_flight.begin(effect, caught(effect, read));
            }
            Effect::BenchTarget { target, until } => {
                let until_wall_ms = self.clock.started_wall_ms().saturating_add(until);
                in_flight.benches_told.insert(target, until_wall_ms);
                self.benches.bench(target, until_wall_ms);
            }
            Effect::CallTool { effect, call, arguments } => {
                in_flight.begin(effect, self.call_tool(effect, call, arguments, identity));
            }
            Effect::Validate { effect, output } => {
                let check = self.check.clone();
                let checked = async move {
                    let checked = check.map_or(Ok(output.clone()), |check| check.judge(&output));
                    Input::Validated { effect, checked }
                };
                in_flight.begin(effect, caught(effect, checked));
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
        loop {
            let timer = in_flight.timers.first_key_value().map(|(timer, kind)| (*timer, *kind));
            let timer_is_due = async {
                match timer {
                    Some(((at, _), kind)) => self.clock.sleep_until(at, kind == TimerKind::Wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // Work comes first, so that what has been asked for is begun: a request that was counted is sent.
                Some(done) = in_flight.work.next(), if !in_flight.work.is_empty() => {
                    // Nobody waits for what was aborted.
                    if let Ok(input) = done {
                        return input;
                    }
                }
                () = self.cancellation.cancelled() => {
                    let by = self.cancellation.cancelled_by().unwrap_or_default();
                    return Input::Cancelled { by };
                }
                () = timer_is_due => {
                    if let Some(((at, effect), _)) = timer {
                        in_flight.timers.remove(&(at, effect));
                        return Input::TimerFired { effect };
                    }
                }
            }
        }
    }

    fn acquire_session(
        &self,
        effect: EffectId,
        identity: &Identity,
        session: Session,
    ) -> impl Future<Output = Input> + Send + 'static {
        let sessions = self.sessions.clone();
        let (session_id, lock_timeout_ms) = (identity.session_id.clone(), self.lock_timeout_ms);
        let (clock, publisher, identity) = (self.clock.clone(), self.publisher.clone(), identity.clone());
        async move {
            let Some(sessions) = sessions else {
                return Input::SessionAcquired { effect, history: Vec::new() };
            };
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
            // The call itself may panic, before there is a future.
            let recall = async { sessions.memory.recall(&session_id).await };
            let recalled = AssertUnwindSafe(recall).catch_unwind().await;
            match recalled.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                Ok(history) => Input::SessionAcquired { effect, history },
                Err(error) => {
                    tell_of_memory(&publisher, names::MEMORY_INJECT_FAILED, &identity, &error);
                    if sessions.must_recall {
                        return Input::SessionRefused { effect, error };
                    }
                    Input::SessionAcquired { effect, history: Vec::new() }
                }
            }
        }
    }

    /// Hands the memory what the run has added to the conversation, and how much of it the model could not take.
    fn keep(&self, identity: &Identity, messages: &[Arc<Message>], forgotten: usize) {
        let Some(sessions) = &self.sessions else { return };
        let kept = AssertUnwindSafe(|| {
            if forgotten > 0 {
                sessions.memory.forget_oldest(&identity.session_id, forgotten)?;
            }
            sessions.memory.keep(&identity.session_id, messages)
        });
        if let Err(error) = std::panic::catch_unwind(kept).unwrap_or_else(|panic| Err(panicked(&*panic))) {
            tell_of_memory(&self.publisher, names::MEMORY_WRITEBACK_FAILED, identity, &error);
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
        let answered = async move {
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
            let request = ModelRequest {
                run_id: &identity.run_id,
                messages: &asked.messages,
                tools: &asked.tools,
                output: asked.output.as_deref(),
            };
            match model.ask_with(request, key, deltas.as_mut().map(|sink| sink as _)).await {
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
        };
        caught(effect, answered)
    }

    /// A tool runs as a task of its own, so that one that blocks its thread does not hold up the run's clocks.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the run: its handle aborts it on drop")]
    fn call_tool(
        &self,
        effect: EffectId,
        call: ToolCall,
        arguments: Value,
        identity: &Identity,
    ) -> impl Future<Output = Input> + Send + 'static {
        let context = ToolContext::new(identity, &call, self.clock.wall_ms());
        let tools = self.tools.clone();
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
        let task = AbortOnDropHandle::new(tokio::spawn(called));
        async move {
            match task.await {
                Ok(input) => input,
                Err(joined) => {
                    let message = match joined.try_into_panic() {
                        Ok(panic) => panic_message(&*panic).to_owned(),
                        Err(_) => "the task was aborted".to_owned(),
                    };
                    Input::EffectPanicked { effect, message }
                }
            }
        }
    }
}

/// The work behind a panic boundary.
fn caught(
    effect: EffectId,
    work: impl Future<Output = Input> + Send + 'static,
) -> impl Future<Output = Input> + Send + 'static {
    AssertUnwindSafe(work).catch_unwind().map(move |done| {
        done.unwrap_or_else(|panic| Input::EffectPanicked {
            effect,
            message: panic_message(&*panic).to_owned(),
        })
    })
}

impl InFlight {
    fn begin(&mut self, effect: EffectId, work: impl Future<Output = Input> + Send + 'static) {
        let (work, abort) = abortable(work);
        self.aborts.insert(effect, abort);
        self.work.push(Box::pin(work));
    }

    fn abort(&mut self, effect: EffectId) {
        if let Some(abort) = self.aborts.remove(&effect) {
            abort.abort();
        }
        self.timers.retain(|(_, timer), _| *timer != effect);
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::new(codes::EXECUTION_ERROR, format!("the memory panicked: {}", panic_message(panic)))
}

fn tell_of_memory(publisher: &SharedPublisher, name: EventName, identity: &Identity, error: &Error) {
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
