//! The runtime: agents, ready to run.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aplomb_core::decide::schedule::Overview;
use aplomb_core::error::{Code, Error, check_declared, codes};
use aplomb_core::event::Event;
use aplomb_core::message::{Block, Message, Role};
use aplomb_core::near::did_you_mean;
use aplomb_core::redact::Redactor;
use aplomb_core::run::{Entry, Identity, RunBudget, RunStart, TimeLimit};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::{self, Agent, named};
use crate::config::{AgentConfig, Config, Loader, Warning};
use crate::credential::{CredentialSource, EnvCredential, Keyring, RunCredentials, SharedSource};
use crate::driver::{Benches, Driver, Publisher, SharedPublisher};
use crate::host::{Host, RunClock, SystemHost};
use crate::model;
use crate::output::{Form, Output};
use crate::plugins::Registry;
use crate::request::{Cancellation, Retry, RunInput, RunRequest, RunResult};
use crate::session::{STORE_LIMIT_MS, Sessions, given_up};
use crate::stream::{ChunkQueue, RunStream};
use crate::subscriber::Subscriber;

/// Agents, ready to run. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    agents: BTreeMap<String, Agent>,
    /// The runs under way.
    live: LiveRuns,
    redactor: Arc<Redactor>,
    /// The program's own errors that were made known by hand.
    errors: Vec<Code>,
    sessions: Arc<Sessions>,
    lock_timeout_ms: u64,
    host: Arc<dyn Host>,
    subscribers: Vec<Arc<dyn Subscriber>>,
}

/// Makes a [`Runtime`].
pub struct RuntimeBuilder {
    config: Config,
    host: Arc<dyn Host>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    credentials: BTreeMap<String, SharedSource>,
    registry: Registry,
    /// The one agent that is made ready, where it is one.
    only: Option<String>,
    /// What `validate` holds the agents against.
    budget: Option<RunBudget>,
}

impl RuntimeBuilder {
    /// Takes time and entropy from there.
    #[must_use]
    pub fn host(mut self, host: impl Host) -> RuntimeBuilder {
        self.host = Arc::new(host);
        self
    }

    /// Tells it what happens.
    #[must_use]
    pub fn subscriber(mut self, subscriber: impl Subscriber) -> RuntimeBuilder {
        self.subscribers.push(Arc::new(subscriber));
        self
    }

    /// Takes the plugins that the config may name from there, in place of the built-in ones alone.
    #[must_use]
    pub fn plugins(mut self, registry: Registry) -> RuntimeBuilder {
        self.registry = registry;
        self
    }

    /// Takes the credential of an agent's models from there, in place of the config's.
    #[must_use]
    pub fn credential(mut self, agent_id: &str, source: impl CredentialSource) -> RuntimeBuilder {
        self.credentials.insert(agent_id.to_owned(), SharedSource(Arc::new(source)));
        self
    }

    /// Makes one agent alone ready. What the others need, such as keys and plugins, need not be there, and they cannot be run.
    #[must_use]
    pub fn only(mut self, agent_id: impl Into<String>) -> RuntimeBuilder {
        self.only = Some(agent_id.into());
        self
    }

    /// Makes agents ready that could keep to a budget alone: a limit of cost that would go by a model without a price is
    /// refused, as each run with that budget would be.
    #[must_use]
    pub fn keeping_to(mut self, budget: RunBudget) -> RuntimeBuilder {
        self.budget = Some(budget);
        self
    }

    /// Looks whether a runtime can be made of all this, and what may go wrong with it. Sends nothing. Each plugin is made, as by
    /// [`build`](RuntimeBuilder::build), and dropped again. A key whose variable
    /// is not set is a warning here, and so is what is likely to be a mistake; with `strict`, each is an error.
    ///
    /// # Errors
    ///
    /// As [`build`](RuntimeBuilder::build).
    pub fn validate(mut self, strict: bool) -> Result<Vec<Warning>, Error> {
        // Told together with what is suspicious.
        let over = self.budget.take().map(|budget| self.cannot_keep_to(&budget)).transpose()?;
        let suspicions = self.config.suspicions(&self.registry);
        let warnings = self.config.warnings(&suspicions);
        let given = self.config.clone();
        for agent in &self.config.agents {
            // Whether the key is there has been looked at; nothing reads this one.
            let unread = || SharedSource(Arc::new(EnvCredential::new("")));
            self.credentials.entry(agent.id.clone()).or_insert_with(unread);
        }
        self.build()?;
        let mut problems = given.problems_of(&over.unwrap_or_default());
        problems.extend(suspicions.into_iter().filter(|_| strict));
        given.refuse(problems)?;
        Ok(warnings)
    }

    /// What an agent's settings come to where model calls fail: for each class of failure how many requests a call costs
    /// and what is waited between them, the worst case, and the settings that defeat each other, in a run that may take
    /// `timeout`, or any time. Sends nothing, and needs no key.
    ///
    /// ```
    /// # fn main() -> Result<(), aplomb::Error> {
    /// let document = r#"{"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "openai", "model": "gpt-5"}}]}"#;
    /// let config = aplomb::config::Config::from_json(document, "agent.json")?;
    /// let overview = aplomb::Runtime::builder(config).policy_overview("a", None)?;
    /// assert_eq!(overview.classes["503"].additive.run.requests, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `config.*` and `plugin.*` where the config is wrong, `user.agent_not_found` where it has no such agent.
    pub fn policy_overview(&self, agent_id: &str, timeout: Option<Duration>) -> Result<Overview, Error> {
        self.registry.check()?;
        self.config.check(&self.registry, None)?;
        let agents = &self.config.agents;
        let agent = agents.iter().find(|agent| agent.id == agent_id).ok_or_else(|| {
            no_such_agent(agent_id, &agents.iter().map(|agent| agent.id.as_str()).collect::<Vec<_>>())
        })?;
        let overview = agent::overview(agent, &self.registry, timeout.map(in_ms));
        overview.map_err(|error| self.redactor().error(error).or_context("agent_id", agent_id))
    }

    /// The agents that could not keep to a budget, and why.
    fn cannot_keep_to(&self, budget: &RunBudget) -> Result<Vec<(usize, Error)>, Error> {
        budget.check([])?;
        let refused = self.chosen().filter_map(|(index, agent)| {
            let mut targets = model::priced(agent);
            for (place, target) in targets.iter_mut().enumerate() {
                for (key, said) in [("provider", &mut target.provider), ("model", &mut target.model)] {
                    if let Some(instead) = self.config.in_place_of(index, place, key) {
                        *said = instead.to_owned();
                    }
                }
            }
            let error = budget.check(&targets).err()?;
            Some((index, error.or_context("agent_id", agent.id.as_str())))
        });
        Ok(refused.collect())
    }

    /// The agents that are to be made ready, by their places.
    fn chosen(&self) -> impl Iterator<Item = (usize, &AgentConfig)> {
        let agents = self.config.agents.iter().enumerate();
        agents.filter(|(_, agent)| self.only.as_ref().is_none_or(|only| *only == agent.id))
    }

    /// What keeps the credentials that the config holds or names out of what is told.
    fn redactor(&self) -> Redactor {
        let keys = self.config.agents.iter().flat_map(|agent| model::keys(agent, &self.registry));
        let credentials = keys.map(|key| key.expose_secret().to_owned()).chain(self.config.credentials());
        Redactor::new(self.config.diagnostics.redact_keys.clone(), credentials)
    }

    /// Makes the runtime, and each plugin once for each place that names it. Sends nothing.
    ///
    /// # Errors
    ///
    /// `config.*` where an agent could not work, `plugin.error` where two errors have one code.
    pub fn build(mut self) -> Result<Runtime, Error> {
        self.registry.check()?;
        // A config that was put together in code has not been checked yet, and names may be the program's.
        let only = match &self.only {
            Some(id) => {
                let ids: Vec<_> = self.config.agents.iter().map(|agent| agent.id.as_str()).collect();
                let place = ids.iter().position(|known| known == id);
                Some(place.ok_or_else(|| no_such_agent(id, &ids))?)
            }
            None => None,
        };
        self.config.check(&self.registry, only)?;
        check_declared(self.registry.errors())?;
        if let Some(budget) = &self.budget {
            self.config.all_of(&self.cannot_keep_to(budget)?)?;
        }
        let mut redactor = self.redactor();
        let mut agents = BTreeMap::new();
        let mut refused = Vec::new();
        for (index, agent) in self.chosen() {
            match Agent::new(agent, &self.registry, self.credentials.get(&agent.id)) {
                Ok(built) => {
                    let credentials = built.models.iter().flat_map(|model| model.credentials());
                    credentials.for_each(|credential| redactor.learn(credential.to_owned()));
                    agents.insert(agent.id.clone(), built);
                }
                Err(error) => refused.push((index, error.or_context("agent_id", agent.id.as_str()))),
            }
        }
        let shown = refused.into_iter().map(|(index, error)| (index, redactor.error(error)));
        self.config.all_of(&shown.collect::<Vec<_>>())?;
        let sink = &self.config.events;
        let sink = self.registry.make(named(&sink.r#type, &sink.r#impl), &sink.config);
        let sink = sink.map_err(|error| redactor.error(error).with_place("events"))?;
        self.subscribers.extend::<Option<_>>(sink);
        let session = &self.config.session;
        let store = self.registry.make(named(&session.r#type, &session.r#impl), &session.config);
        let sessions = Sessions::new(store.map_err(|error| redactor.error(error).with_place("session"))?);
        let is_known = |id: &str| self.config.agents.iter().any(|agent| agent.id == id);
        if let Some(agent_id) = self.credentials.keys().find(|agent_id| !is_known(agent_id)) {
            let message = format!("a credential is for agent {agent_id:?}, which the config does not have");
            let error = Error::new(codes::PLUGIN_LOAD, message).with_context("agent_id", agent_id.as_str());
            return Err(match did_you_mean(agent_id, agents.keys().map(String::as_str)) {
                Some(hint) => error.with_hint(hint),
                None => error,
            });
        }
        let live = LiveRuns::default();
        Ok(Runtime(Arc::new(Inner {
            agents,
            live,
            redactor: Arc::new(redactor),
            errors: self.registry.errors().to_vec(),
            sessions: Arc::new(sessions),
            lock_timeout_ms: self.config.session.lock_timeout_ms,
            host: self.host,
            subscribers: self.subscribers,
        })))
    }
}

fn no_such_agent(agent_id: &str, there_are: &[&str]) -> Error {
    let meant = did_you_mean(agent_id, there_are.iter().copied());
    Error::new(codes::USER_AGENT_NOT_FOUND, format!("no agent is called {agent_id:?}"))
        .with_hint(meant.unwrap_or_else(|| format!("the config defines: {}", there_are.join(", "))))
        .with_context("agent_id", agent_id)
}

impl Runtime {
    /// A runtime of the agents of a config file, with what the environment sets over it (`APLOMB_CONFIG__…`), as the command
    /// line has it. [`Loader`](crate::config::Loader) leaves that out, or sets more.
    ///
    /// # Errors
    ///
    /// `config.*`; the message names the place.
    pub fn from_config(file: impl AsRef<Path>) -> Result<Runtime, Error> {
        Runtime::builder(Loader::file(file).environment().load()?).build()
    }

    /// A runtime in the making.
    pub fn builder(config: Config) -> RuntimeBuilder {
        RuntimeBuilder {
            config,
            host: Arc::new(SystemHost),
            subscribers: Vec::new(),
            credentials: BTreeMap::new(),
            registry: Registry::new(),
            only: None,
            budget: None,
        }
    }

    /// The agents' ids.
    pub fn list_agents(&self) -> Vec<&str> {
        self.0.agents.keys().map(String::as_str).collect()
    }

    /// Runs an agent, and gives its output.
    ///
    /// # Errors
    ///
    /// Why the run failed.
    pub async fn run(&self, agent_id: &str, input: impl Into<RunInput>) -> Result<String, Error> {
        self.run_detailed(RunRequest::for_output(agent_id, input)).await?.into_output()
    }

    /// Runs an agent, and gives its output as a `T`: see [`RunRequest::output`].
    ///
    /// ```no_run
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Invoice;
    /// # async fn example(runtime: aplomb::Runtime) -> Result<(), aplomb::Error> {
    /// let invoice = runtime.run_as::<Invoice>("clerk", "Invoice R7, 10 cents.").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Why the run failed.
    pub async fn run_as<T>(&self, agent_id: &str, input: impl Into<RunInput>) -> Result<T, Error>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        self.run_detailed(RunRequest::for_output(agent_id, input).output()).await?.into_output()
    }

    /// Runs an agent, and gives everything that there is to know. A run that failed is a result, too.
    ///
    /// # Errors
    ///
    /// `user.*` if the request is none, and `config.validation` if its budget limits the cost of a model without a price: nothing
    /// was run.
    pub async fn run_detailed<T: 'static>(&self, request: RunRequest<T>) -> Result<RunResult<T>, Error> {
        Ok(self.prepare(request, Entry::Run, None, None)?.await)
    }

    /// Runs an agent, and lets it be watched.
    ///
    /// # Errors
    ///
    /// `user.*` if the request is none, and `config.validation` if its budget limits the cost of a model without a price: nothing
    /// was run.
    pub fn run_stream<T: 'static>(&self, request: RunRequest<T>) -> Result<RunStream<T>, Error> {
        let chunks = ChunkQueue::default();
        let run = self.prepare(request, Entry::Run, None, Some(chunks.clone()))?;
        Ok(RunStream::new(run, chunks))
    }

    /// Asks an agent once, with the retries of `exec` where no other layer serves. Tools are used if the agent has them.
    ///
    /// ```no_run
    /// # async fn example(runtime: aplomb::Runtime) -> Result<(), aplomb::Error> {
    /// let answer = runtime.exec("assistant", "hi").on_retry(|retry| eprintln!("{retry}")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exec(&self, agent_id: &str, input: impl Into<RunInput>) -> Exec {
        Exec { runtime: self.clone(), request: RunRequest::for_output(agent_id, input), hook: None }
    }

    /// What was said in a session's runs that completed, as the session store has it; nothing of one that there is not. Runs
    /// whose session nobody can name again ([`run`](Runtime::run), [`exec`](Runtime::exec)) are in none.
    ///
    /// # Errors
    ///
    /// `session.error` if the store fails, or is not done within 10 s.
    pub async fn transcript(&self, session_id: &str) -> Result<Vec<Arc<Message>>, Error> {
        let loaded = self.stored(self.0.sessions.load(session_id)).await;
        loaded.map_err(|error| self.in_session(session_id, error))
    }

    /// What the session store does, if it is done in time.
    async fn stored<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.0.host.sleep(Duration::from_millis(STORE_LIMIT_MS)) => Err(given_up("its time was up")),
        }
    }

    /// A plugin's error, of that session.
    fn in_session(&self, session_id: &str, error: Error) -> Error {
        self.0.redactor.error(error).or_context("session_id", session_id)
    }

    /// Forgets a session: its transcript, and what agents remember of it.
    ///
    /// # Errors
    ///
    /// `session.error` while a run of the session is under way, or if something of it could not be forgotten; the rest is.
    pub async fn close_session(&self, session_id: &str) -> Result<(), Error> {
        let in_session = |error| self.in_session(session_id, error);
        // No run of it begins before all of it is forgotten.
        let Some(_held) = self.0.sessions.try_hold(session_id) else {
            let message = format!("a run of session {session_id:?} is under way");
            return Err(in_session(
                Error::new(codes::SESSION_ERROR, message).with_hint("cancel it, or wait for its end"),
            ));
        };
        let mut forgotten = Ok(());
        for (agent_id, agent) in &self.0.agents {
            let Some(memory) = &agent.memory else { continue };
            forgotten = forgotten.and(memory.forget(session_id).map_err(|error| {
                let message = format!("agent {agent_id:?} remembers session {session_id:?} still");
                Error::new(codes::SESSION_ERROR, message)
                    .with_cause(error)
                    .with_context("agent_id", agent_id.as_str())
            }));
        }
        // The store may take its time, or not come to an end.
        forgotten.and(self.stored(self.0.sessions.forget(session_id)).await).map_err(in_session)
    }

    /// What a request asks for: the agent, what it is told, and the run's name for the run alone.
    fn accept(&self, request: &mut RunRequest) -> Result<(&Agent, Message, LiveRun), Error> {
        let Some(agent) = self.0.agents.get(&request.agent_id) else {
            return Err(no_such_agent(&request.agent_id, &self.list_agents()));
        };
        for (field, id) in [("run_id", &request.run_id), ("session_id", &request.session_id)] {
            if id.as_ref().is_some_and(|id| id.trim().is_empty()) {
                return Err(Error::new(codes::USER_INVALID_INPUT, format!("{field} is empty")));
            }
        }
        agent.machine.check_budget(&request.budget)?;
        let message = request.input.take_message()?;
        if let Some(provider) = &agent.without_images
            && message.content.iter().any(|block| matches!(block, Block::Image { .. }))
        {
            let message = format!("the input has images, which provider {provider:?} does not offer to take");
            return Err(Error::new(codes::USER_INVALID_INPUT, message)
                .with_hint("leave them out, or ask an agent whose providers all take images"));
        }
        let run_id = request.run_id.clone().unwrap_or_else(|| new_id(&*self.0.host));
        Ok((agent, message, self.0.live.begin(run_id)?))
    }

    /// The run, not begun.
    fn prepare<T: 'static>(
        &self,
        request: RunRequest<T>,
        entry: Entry,
        hook: Option<Arc<dyn Subscriber>>,
        stream: Option<ChunkQueue>,
    ) -> Result<BoxFuture<'static, RunResult<T>>, Error> {
        let output = request.output.clone();
        // Whatever is wanted of it, a run is carried out in the same way, and gives a text.
        let request = request.with_output(Output::text());
        let run = self.prepare_known(request, output.form.as_ref(), entry, hook, stream)?;
        Ok(run.map(move |result| result.read_as(&output)).boxed())
    }

    fn prepare_known(
        &self,
        mut request: RunRequest,
        form: Option<&Form>,
        entry: Entry,
        hook: Option<Arc<dyn Subscriber>>,
        stream: Option<ChunkQueue>,
    ) -> Result<impl Future<Output = RunResult> + Send + use<>, Error> {
        let accepted = form.map(Form::check).transpose().and_then(|check| {
            let (agent, message, live) = self.accept(&mut request)?;
            Ok((agent, message, live, check.map(Arc::new)))
        });
        let (agent, message, live, check) = accepted.map_err(|error| {
            error
                .or_context("agent_id", request.agent_id.as_str())
                .or_context("session_id", request.session_id.as_deref())
                .or_context("run_id", request.run_id.as_deref())
        })?;
        let RunRequest {
            agent_id,
            input: _,
            session_id,
            run_id: _,
            budget,
            timeout,
            cancellation,
            output: _,
            credential,
            session_can_go_on,
        } = request;
        let host = &self.0.host;
        let identity = Arc::new(Identity {
            run_id: live.run_id.clone(),
            session_id: session_id.unwrap_or_else(|| new_id(&**host)),
            agent_id,
        });
        let system = agent.system_prompt.as_ref().map(|prompt| Message::text(Role::System, prompt.as_str()));
        let messages = system.into_iter().chain([message]).map(Arc::new).collect();
        let clock = Arc::new(RunClock::start(host.clone()));
        let subscribers = self.0.subscribers.iter().cloned().chain(hook).collect();
        let publisher =
            Publisher::new(identity.clone(), clock.clone(), subscribers, stream, self.0.redactor.clone());
        let runtime = self.clone();
        let own_credential = credential.is_some();
        let keyrings = match credential {
            Some(source) => {
                agent.models.iter().map(|model| Some(Keyring::of(model, source.clone()))).collect()
            }
            None => agent.keyrings.clone(),
        };
        let start = RunStart {
            identity: identity.clone(),
            wall_ms: clock.started_wall_ms(),
            entry,
            messages,
            time_limit: timeout
                .map(|timeout| TimeLimit { limit_ms: in_ms(timeout), setting: "timeout".to_owned() }),
            budget,
            // What nobody can name again is not worth remembering.
            remembers: session_can_go_on,
            cancelled_by: cancellation.cancelled_by(),
            // The driver knows them when the run begins.
            benches: Vec::new(),
            own_credential,
            watched: publisher.is_watched(),
            output: form.map(Form::schema),
        };
        let publisher = SharedPublisher::new(publisher);
        let told = publisher.clone();
        let driver = Driver {
            machine: agent.machine.clone(),
            models: agent.models.clone(),
            credentials: RunCredentials::new(keyrings),
            // What a tenant's own account has used up says nothing about anybody else's.
            benches: if own_credential { Benches::default() } else { agent.benches.clone() },
            tools: agent.tools.clone(),
            sessions: self.0.sessions.clone(),
            memory: agent.memory.clone(),
            lock_timeout_ms: self.0.lock_timeout_ms,
            clock,
            publisher,
            cancellation,
            check,
        };
        let ended = move |finished| {
            drop(live);
            RunResult::of(&identity, finished, &told.redactor(), &runtime.0.errors)
        };
        Ok(driver.drive(Box::new(start)).map(ended))
    }
}

/// The names of the runs under way: a name is a lock, so that no run is carried out twice at once.
#[derive(Clone, Default)]
struct LiveRuns(Arc<Mutex<BTreeSet<String>>>);

/// A run under way, until it is dropped.
struct LiveRun {
    runs: LiveRuns,
    run_id: String,
}

impl LiveRuns {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, run_id: String) -> Result<LiveRun, Error> {
        if !self.names().insert(run_id.clone()) {
            let message = format!("a run called {run_id:?} is under way");
            return Err(
                Error::new(codes::USER_INVALID_INPUT, message).with_hint("give each run a name of its own")
            );
        }
        Ok(LiveRun { runs: self.clone(), run_id })
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        self.runs.names().remove(&self.run_id);
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A UUID of version 7, so that ids sort by time.
fn new_id(host: &dyn Host) -> String {
    let drawn = (u128::from(host.entropy()) << 64) | u128::from(host.entropy());
    let [_, _, _, _, _, _, random @ ..] = drawn.to_le_bytes();
    uuid::Builder::from_unix_timestamp_millis(host.wall_ms(), &random).into_uuid().to_string()
}

/// A call by [`Runtime::exec`], which begins when it is awaited.
#[must_use = "nothing happens until it is awaited"]
pub struct Exec<T = String> {
    runtime: Runtime,
    request: RunRequest<T>,
    hook: Option<Arc<dyn Subscriber>>,
}

impl<T> Exec<T> {
    /// Has it give a `U`: see [`RunRequest::output`].
    pub fn output<U: DeserializeOwned + JsonSchema>(self) -> Exec<U> {
        let Exec { runtime, request, hook } = self;
        Exec { runtime, request: request.output(), hook }
    }

    /// Has it give JSON that fits a schema of that name: see [`RunRequest::output_schema`].
    pub fn output_schema(self, name: impl Into<String>, schema: Value) -> Exec<Value> {
        let Exec { runtime, request, hook } = self;
        Exec { runtime, request: request.output_schema(name, schema), hook }
    }

    /// Calls `hook` before each wait for a retry.
    pub fn on_retry(mut self, hook: impl Fn(&Retry) + Send + Sync + 'static) -> Exec<T> {
        self.hook = Some(Arc::new(RetryHook(hook)));
        self
    }

    /// Limits what it may use.
    pub fn budget(mut self, budget: RunBudget) -> Exec<T> {
        self.request = self.request.budget(budget);
        self
    }

    /// Limits the time.
    pub fn timeout(mut self, timeout: Duration) -> Exec<T> {
        self.request = self.request.timeout(timeout);
        self
    }

    /// Lets it be cancelled.
    pub fn cancellation(mut self, cancellation: Cancellation) -> Exec<T> {
        self.request = self.request.cancellation(cancellation);
        self
    }
}

impl<T: Send + 'static> IntoFuture for Exec<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Result<T, Error>>;

    fn into_future(self) -> Self::IntoFuture {
        let Exec { runtime, request, hook } = self;
        async move { runtime.prepare(request, Entry::Exec, hook, None)?.await.into_output() }.boxed()
    }
}

/// The retries among the events.
struct RetryHook<F>(F);

impl<F: Fn(&Retry) + Send + Sync + 'static> Subscriber for RetryHook<F> {
    fn on_event(&self, event: &Event) {
        if let Some(retry) = Retry::of(event) {
            (self.0)(&retry);
        }
    }
}
