//! The simulated driver: performs the machine's effects in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aplomb_core::decide::{Jitter, Policy, SessionRetry};
use aplomb_core::error::{Error, codes};
use aplomb_core::failure::Failure;
use aplomb_core::message::{Block, CallIds, FinishReason, Message, Reply, Role, TokenUsage, ToolCall};
use aplomb_core::record::Record;
use aplomb_core::run::{
    AgentSpec, Effect, EffectId, Entry, Identity, Input, Machine, OutputSchema, Pattern, Pricing, React,
    RunBudget, RunStart, State, Target, TimeLimit, WantedOutput,
};
use aplomb_core::tool::ToolSpec;
use serde_json::{Value, json};

use crate::promises;
use crate::report::{Performed, Report};

/// A request on the simulated wire.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Counts from 0 over the whole run.
    pub request: usize,
    /// Counts from 1 within its call.
    pub attempt: u32,
    /// Which target it went to; 0 is the first.
    pub target: usize,
    /// The conversation as it was sent.
    pub messages: Vec<Arc<Message>>,
    /// A draw of the run's entropy, for providers that answer at random.
    pub entropy: u64,
}

/// What a simulated provider does with a request.
#[derive(Debug, Clone)]
pub struct Turn {
    /// How long it takes, in virtual ms.
    pub takes_ms: u64,
    /// Whether some of the answer reaches somebody before it ends.
    pub delivered: bool,
    /// How it ends.
    pub end: Result<Reply, Failure>,
    /// Tokens that it used.
    pub usage: Option<TokenUsage>,
    /// The code that performs the request panics.
    pub panics: bool,
    /// There is no credential to send, so that nothing is sent.
    pub refused: bool,
}

impl Turn {
    /// Fails at once, with nothing delivered.
    pub fn fails(failure: Failure) -> Turn {
        Turn { takes_ms: 0, delivered: false, end: Err(failure), usage: None, panics: false, refused: false }
    }

    /// Answers at once with a text.
    pub fn says(text: &str) -> Turn {
        Turn::replies(vec![Block::Text { text: text.to_owned() }], FinishReason::Stop)
    }

    /// Answers at once with one tool call.
    pub fn calls(name: &str, arguments: &str) -> Turn {
        let call =
            ToolCall { id: "call_1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        Turn::replies(vec![Block::ToolCall(call)], FinishReason::ToolCalls)
    }

    /// Answers at once.
    pub fn replies(content: Vec<Block>, finish: FinishReason) -> Turn {
        let message = Message { role: Role::Assistant, content };
        Turn {
            takes_ms: 0,
            delivered: false,
            end: Ok(Reply { message, finish, usage: None }),
            usage: None,
            panics: false,
            refused: false,
        }
    }

    /// Is never sent: the target's credential cannot be read.
    pub fn without_credential() -> Turn {
        Turn { refused: true, ..Turn::says("never sent") }
    }

    /// The same, having used so many tokens of input and output.
    #[must_use]
    pub fn using(self, input: u64, output: u64) -> Turn {
        let mut usage = TokenUsage::default();
        (usage.input, usage.output) = (input, output);
        Turn { usage: Some(usage), ..self }
    }

    /// The same, that long in virtual ms.
    #[must_use]
    pub fn after_ms(self, takes_ms: u64) -> Turn {
        Turn { takes_ms, ..self }
    }

    /// The same, with some of the answer handed to somebody.
    #[must_use]
    pub fn delivering(self) -> Turn {
        Turn { delivered: true, ..self }
    }
}

/// What a simulated tool does with a call.
#[derive(Debug, Clone)]
pub enum ToolTurn {
    /// Gives a result after that many ms.
    Returns(u64, Value),
    /// Fails after that many ms.
    Fails(u64, Error),
    /// Does not take the arguments, after that many ms: nothing is run.
    Refuses(u64),
    /// Panics.
    Panics,
}

type Provider = dyn FnMut(&Attempt) -> Turn;
type Tool = dyn FnMut(&ToolCall, u64) -> ToolTurn;
type Credential = dyn FnMut(u64) -> bool;
type Check = dyn FnMut(&str, u64) -> Result<String, String>;

/// A simulation, ready to be run.
pub struct Sim {
    seed: u64,
    run_id: Option<String>,
    policy: Policy,
    entry: Entry,
    max_steps: u32,
    max_tool_calls: Option<u32>,
    budget: RunBudget,
    /// By target, USD per million tokens of input and output.
    prices: BTreeMap<usize, (u32, u32)>,
    twins: bool,
    time_limit_ms: Option<u64>,
    cancel_at: Option<u64>,
    late_inputs: bool,
    history: Option<Vec<Arc<Message>>>,
    session_panics: bool,
    first_accepts: CallIds,
    fallbacks: Vec<Target>,
    step_timeout_ms: Option<u64>,
    benches: Vec<(usize, u64)>,
    /// When the run is told of a bench, of which target, and until when it is.
    bench_news: Vec<(u64, usize, u64)>,
    provider: Box<Provider>,
    tool: Box<Tool>,
    credential: Option<Box<Credential>>,
    output: WantedOutput,
    check: Box<Check>,
    pattern: Arc<dyn Pattern>,
}

/// A simulation with the default policy, a provider that says "ok", and a tool `calc` that returns 81.
pub fn sim() -> Sim {
    Sim {
        seed: 0,
        run_id: None,
        policy: Policy::default(),
        entry: Entry::Run,
        max_steps: 16,
        max_tool_calls: None,
        budget: RunBudget::default(),
        prices: BTreeMap::new(),
        twins: false,
        time_limit_ms: None,
        cancel_at: None,
        late_inputs: false,
        history: None,
        session_panics: false,
        first_accepts: CallIds::Any,
        fallbacks: Vec::new(),
        step_timeout_ms: None,
        benches: Vec::new(),
        bench_news: Vec::new(),
        provider: Box::new(|_| Turn::says("ok")),
        tool: Box::new(|_, _| ToolTurn::Returns(1, json!(81))),
        credential: None,
        output: WantedOutput::default(),
        check: Box::new(|text, _| Ok(text.to_owned())),
        pattern: Arc::new(React::default()),
    }
}

impl Sim {
    /// Where entropy begins.
    #[must_use]
    pub fn seed(self, seed: u64) -> Sim {
        Sim { seed, ..self }
    }

    /// What the run is called; by its seed, unless told.
    #[must_use]
    pub fn run_id(self, run_id: &str) -> Sim {
        Sim { run_id: Some(run_id.to_owned()), ..self }
    }

    /// What answers requests.
    #[must_use]
    pub fn provider(self, provider: impl FnMut(&Attempt) -> Turn + 'static) -> Sim {
        Sim { provider: Box::new(provider), ..self }
    }

    /// What runs tool calls.
    #[must_use]
    pub fn tool(self, tool: impl FnMut(&ToolCall, u64) -> ToolTurn + 'static) -> Sim {
        Sim { tool: Box::new(tool), ..self }
    }

    /// Enters by `exec`.
    #[must_use]
    pub fn exec(self) -> Sim {
        Sim { entry: Entry::Exec, ..self }
    }

    /// Changes the policy.
    #[must_use]
    pub fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Sim {
        change(&mut self.policy);
        self
    }

    /// Makes every delay exactly what the schedule says.
    #[must_use]
    pub fn jitter_none(self) -> Sim {
        self.policy(|policy| policy.transport.jitter = Jitter::None)
    }

    /// Leaves exec as the only owner of retries.
    #[must_use]
    pub fn only_exec_retries(self) -> Sim {
        self.exec().policy(|policy| {
            policy.transport.max_attempts = 1;
            policy.session = SessionRetry::default();
            policy.session.enabled = false;
        })
    }

    /// The most model calls.
    #[must_use]
    pub fn max_steps(self, max_steps: u32) -> Sim {
        Sim { max_steps, ..self }
    }

    /// The most tool calls.
    #[must_use]
    pub fn max_tool_calls(self, max_tool_calls: u32) -> Sim {
        Sim { max_tool_calls: Some(max_tool_calls), ..self }
    }

    /// What the run may use.
    #[must_use]
    pub fn budget(self, change: impl FnOnce(RunBudget) -> RunBudget) -> Sim {
        Sim { budget: change(self.budget), ..self }
    }

    /// What a target costs, in USD per million tokens of input and output.
    #[must_use]
    pub fn priced(mut self, target: usize, input: u32, output: u32) -> Sim {
        self.prices.insert(target, (input, output));
        self
    }

    /// Gives all targets one name, as of a model that is asked in two places.
    #[must_use]
    pub fn twins(self) -> Sim {
        Sim { twins: true, ..self }
    }

    /// When the run must have ended.
    #[must_use]
    pub fn time_limit_ms(self, limit_ms: u64) -> Sim {
        Sim { time_limit_ms: Some(limit_ms), ..self }
    }

    /// Cancels at that time.
    #[must_use]
    pub fn cancel_at(self, at: u64) -> Sim {
        Sim { cancel_at: Some(at), ..self }
    }

    /// Lets the results of aborted effects arrive all the same, as they do when an abort comes too late, and every
    /// input arrive twice.
    #[must_use]
    pub fn late_inputs(self) -> Sim {
        Sim { late_inputs: true, ..self }
    }

    /// Gives the session a conversation so far.
    #[must_use]
    pub fn history(self, history: Vec<Message>) -> Sim {
        Sim { history: Some(history.into_iter().map(Arc::new).collect()), ..self }
    }

    /// Has the code that is to get the session panic.
    #[must_use]
    pub fn session_panics(self) -> Sim {
        Sim { session_panics: true, ..self }
    }

    /// Lets the credential be read again; the closure gets a draw of entropy and says whether it is another one then.
    #[must_use]
    pub fn credential(self, changed: impl FnMut(u64) -> bool + 'static) -> Sim {
        Sim { credential: Some(Box::new(changed)), ..self }
    }

    /// Holds the output to a schema. The closure gets it and a draw of entropy, and gives it back, or what is wrong with
    /// it.
    #[must_use]
    pub fn output(mut self, check: impl FnMut(&str, u64) -> Result<String, String> + 'static) -> Sim {
        let schema = OutputSchema { name: "Output".to_owned(), schema: json!({"type": "object"}) };
        self.output.schema = Some(Arc::new(schema));
        Sim { check: Box::new(check), ..self }
    }

    /// How often the model may correct its output.
    #[must_use]
    pub fn max_validation_retries(mut self, most: u32) -> Sim {
        self.output.max_validation_retries = most;
        self
    }

    /// Goes by that pattern.
    #[must_use]
    pub fn pattern(self, pattern: impl Pattern) -> Sim {
        Sim { pattern: Arc::new(pattern), ..self }
    }

    /// What the first target accepts as the id of a tool call.
    #[must_use]
    pub fn first_accepts(self, first_accepts: CallIds) -> Sim {
        Sim { first_accepts, ..self }
    }

    /// Gives the agent one more target to fall back to.
    #[must_use]
    pub fn fallback(mut self, call_ids: CallIds) -> Sim {
        let mut target = Target::new("simulated", format!("fallback-{}", self.fallbacks.len() + 1));
        target.call_ids = call_ids;
        self.fallbacks.push(target);
        self
    }

    /// Has a target passed over from the run's beginning until that time.
    #[must_use]
    pub fn benched(mut self, target: usize, until: u64) -> Sim {
        self.benches.push((target, until));
        self
    }

    /// Tells the run at that time that another one has left a target, which is passed over until then.
    #[must_use]
    pub fn bench_news(mut self, at: u64, target: usize, until: u64) -> Sim {
        self.bench_news.push((at, target, until));
        self
    }

    /// How long the attempts of one step may take together.
    #[must_use]
    pub fn step_timeout_ms(self, limit_ms: u64) -> Sim {
        Sim { step_timeout_ms: Some(limit_ms), ..self }
    }

    /// Runs to the end and checks every promise.
    ///
    /// # Panics
    ///
    /// If a promise is broken: names the seed.
    pub fn run(self, input: &str) -> Report {
        let report = self.run_unchecked(input);
        let broken = promises::broken(&report);
        if !broken.is_empty() {
            #[expect(clippy::panic, reason = "a broken promise is a failed test")]
            {
                panic!("seed {}:\n  {}", report.seed, broken.join("\n  "));
            }
        }
        report
    }

    fn run_unchecked(mut self, input: &str) -> Report {
        let tool = |id: &str| ToolSpec {
            id: id.to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            idempotent: false,
        };
        let mut target = Target::new("simulated", "model");
        target.rereads_credential = self.credential.is_some();
        target.call_ids = self.first_accepts;
        let mut agent = AgentSpec::new(target);
        agent.fallbacks = self.fallbacks.clone();
        for target in &mut agent.fallbacks {
            target.rereads_credential = self.credential.is_some();
            if self.twins {
                target.model.clone_from(&agent.target.model);
            }
        }
        for (place, (input, output)) in &self.prices {
            let pricing = Some(Pricing::per_million(f64::from(*input), f64::from(*output)));
            match place.checked_sub(1) {
                None => agent.target.pricing = pricing,
                Some(index) => {
                    if let Some(target) = agent.fallbacks.get_mut(index) {
                        target.pricing = pricing;
                    }
                }
            }
        }
        agent.tools = Arc::new([tool("calc"), tool("lookup")]);
        agent.max_steps = self.max_steps;
        agent.max_tool_calls = self.max_tool_calls;
        agent.step_timeout_ms = self.step_timeout_ms;
        agent.policy = self.policy.clone();
        let machine = Machine::new(Arc::new(agent), self.pattern.clone());
        let mut world = World::new(self.seed, self.policy.clone(), self.fallbacks.len(), self.late_inputs);
        world.report.prices.clone_from(&self.prices);
        world.report.max_tool_calls = self.max_tool_calls;
        world.expect(0, None, Input::Started(Box::new(self.start(input))));
        if let Some(at) = self.cancel_at {
            world.expect(at, None, Input::Cancelled { by: "test".to_owned() });
        }
        for (at, target, until) in &self.bench_news {
            world.expect(*at, None, Input::TargetBenched { target: *target, until: *until });
        }
        while let Some((at, input)) = world.next_input() {
            let entropy = world.entropy.u64(..);
            let (state, records, effects) = machine.handle(&world.live, at, entropy, input);
            world.take(state, &records);
            for effect in effects {
                world.report.effects.push((at, effect.clone()));
                self.perform(&mut world, at, effect);
            }
        }
        world.report
    }

    fn start(&self, input: &str) -> RunStart {
        RunStart {
            identity: Arc::new(Identity {
                run_id: self.run_id.clone().unwrap_or_else(|| format!("run-{}", self.seed)),
                session_id: "session".to_owned(),
                agent_id: "agent".to_owned(),
            }),
            wall_ms: 1_700_000_000_000,
            entry: self.entry,
            messages: vec![Arc::new(Message::text(Role::User, input))],
            time_limit: self
                .time_limit_ms
                .map(|limit_ms| TimeLimit { limit_ms, setting: "timeout".to_owned() }),
            budget: self.budget,
            remembers: self.history.is_some() || self.session_panics,
            cancelled_by: None,
            benches: self.benches.clone(),
            own_credential: false,
            watched: true,
            output: self.output.clone(),
        }
    }

    fn perform(&mut self, world: &mut World, at: u64, effect: Effect) {
        match effect {
            Effect::CallModel { effect, target, attempt, messages, .. } => {
                let request = world.report.performed.requests;
                let entropy = world.entropy.u64(..);
                let turn = (self.provider)(&Attempt { request, attempt, target, messages, entropy });
                if turn.refused {
                    world.report.performed.unsent += 1;
                } else {
                    world.report.performed.requests += 1;
                }
                let input = match turn.end {
                    _ if turn.refused => {
                        let error = Error::new(codes::CONFIG_LOAD, "the key cannot be read");
                        Input::ModelRefused { effect, error }
                    }
                    _ if turn.panics => Input::EffectPanicked { effect, message: "boom".to_owned() },
                    Ok(mut reply) => {
                        reply.usage = reply.usage.or(turn.usage);
                        Input::ModelReplied { effect, reply, first_delta_ms: None }
                    }
                    Err(failure) => Input::ModelFailed {
                        effect,
                        failure: Box::new(failure),
                        usage: turn.usage,
                        delivered: turn.delivered,
                    },
                };
                world.expect(at + turn.takes_ms, Some(effect), input);
            }
            Effect::CallTool { effect, call, .. } => {
                let entropy = world.entropy.u64(..);
                let turn = (self.tool)(&call, entropy);
                if !matches!(turn, ToolTurn::Refuses(_)) {
                    world.report.performed.tool_effects.push(effect);
                }
                let (takes_ms, input) = match turn {
                    ToolTurn::Returns(takes_ms, result) => (takes_ms, Input::ToolReturned { effect, result }),
                    ToolTurn::Fails(takes_ms, error) => (takes_ms, Input::ToolFailed { effect, error }),
                    ToolTurn::Refuses(takes_ms) => {
                        let error = Error::new(codes::TOOL_VALIDATION, "no such argument");
                        (takes_ms, Input::ToolRefused { effect, error })
                    }
                    ToolTurn::Panics => (0, Input::EffectPanicked { effect, message: "boom".to_owned() }),
                };
                world.expect(at + takes_ms, Some(effect), input);
            }
            Effect::ReadCredential { effect, .. } => {
                let entropy = world.entropy.u64(..);
                let changed = self.credential.as_mut().is_some_and(|changed| changed(entropy));
                world.expect(at, Some(effect), Input::CredentialRead { effect, changed });
            }
            Effect::Validate { effect, output } => {
                let checked = (self.check)(&output, world.entropy.u64(..));
                world.expect(at, Some(effect), Input::Validated { effect, checked });
            }
            Effect::AcquireSession { effect } => {
                let input = match self.history.clone().unwrap_or_default() {
                    _ if self.session_panics => Input::EffectPanicked { effect, message: "boom".to_owned() },
                    history => Input::SessionAcquired { effect, history },
                };
                world.expect(at, Some(effect), input);
            }
            Effect::SetTimer { effect, at: due, .. } => {
                world.expect(due.max(at), Some(effect), Input::TimerFired { effect });
            }
            Effect::Abort { effect } => {
                world.aborted.insert(effect);
            }
            _ => {}
        }
    }
}

/// What is going on at one moment of virtual time.
struct World {
    entropy: fastrand::Rng,
    queue: BTreeMap<(u64, u64), (Option<EffectId>, Input)>,
    queued: u64,
    aborted: BTreeSet<EffectId>,
    late_inputs: bool,
    live: State,
    /// Folded from the same records, but after they have been to JSON and back.
    replayed: State,
    report: Report,
}

impl World {
    fn new(seed: u64, policy: Policy, fallbacks: usize, late_inputs: bool) -> World {
        World {
            entropy: fastrand::Rng::with_seed(seed),
            queue: BTreeMap::new(),
            queued: 0,
            aborted: BTreeSet::new(),
            late_inputs,
            live: State::default(),
            replayed: State::default(),
            report: Report {
                seed,
                policy,
                fallbacks,
                prices: BTreeMap::new(),
                max_tool_calls: None,
                records: Vec::new(),
                effects: Vec::new(),
                performed: Performed::default(),
                divergences: Vec::new(),
            },
        }
    }

    fn expect(&mut self, at: u64, effect: Option<EffectId>, input: Input) {
        let copies = if self.late_inputs && effect.is_some() { 2 } else { 1 };
        for _ in 0..copies {
            self.queue.insert((at, self.queued), (effect, input.clone()));
            self.queued += 1;
        }
    }

    fn next_input(&mut self) -> Option<(u64, Input)> {
        loop {
            let ((at, _), (effect, input)) = self.queue.pop_first()?;
            let aborted = effect.is_some_and(|effect| self.aborted.contains(&effect));
            if !aborted || self.late_inputs {
                return Some((at, input));
            }
        }
    }

    fn take(&mut self, state: State, records: &[Record]) {
        self.live = state;
        for record in records {
            match serde_json::to_string(record).and_then(|json| serde_json::from_str::<Record>(&json)) {
                Ok(read_back) => self.replayed.apply(&read_back),
                Err(error) => {
                    self.report.divergences.push(format!("{record:?} does not survive JSON: {error}"))
                }
            }
        }
        if self.live != self.replayed {
            let last = records.last().map(|record| format!("{record:?}"));
            self.report.divergences.push(format!("the fold differs from the live state after {last:?}"));
        }
        self.report.records.extend_from_slice(records);
    }
}

/// A tool failure of the kind that user code gives.
pub(crate) fn tool_failure() -> Error {
    Error::new(codes::TOOL_UNAVAILABLE, "the service is down")
}
