//! The ledger rule, `docs/spec/retry.md` §5, as properties and as a second implementation written from its
//! text.
//!
//! Steps 1, 3, 4, 5 and 6 only: compaction and the refreshed credential (2), the gate (in 6), fallbacks (7) and the
//! layered mode have their own tests. Nothing here knows how `decide` does it: the numbers come from the page and
//! from arithmetic.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may")]

use std::ops::RangeInclusive;

use aplomb_core::decide::{
    Action, Allowances, Backoff, Decision, Jitter, Layer, Ledger, Level, Moment, Outcome, Policy, Restart,
    decide,
};
use aplomb_core::failure::{Failure, Phase, Reason, Verdict, classify};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};
use serde_json::json;

// ------------------------------------------------------------------------------------------------
// A call, as a driver makes it
// ------------------------------------------------------------------------------------------------

/// What one attempt comes to.
#[derive(Debug, Clone)]
struct Step {
    verdict: Verdict,
    /// Whether some of its answer is handed to somebody before it fails.
    delivers: bool,
    takes_ms: u64,
    entropy: u64,
}

#[derive(Debug, Clone)]
struct Call {
    policy: Policy,
    by_exec: bool,
    starts_at: u64,
    deadline: Option<u64>,
    /// Played in order, and again from the beginning: a call that stops by itself stops whatever comes.
    steps: Vec<Step>,
}

/// One decision, with what it was made from.
#[derive(Debug)]
struct Decided {
    step: Step,
    /// As `decide` saw it: the failed attempt is counted.
    ledger: Ledger,
    moment: Moment,
    decision: Decision,
}

impl Decided {
    /// Who pays and how long it waits, if it sends.
    fn sends(&self) -> Option<(Layer, u64)> {
        match self.decision.action {
            Action::Send { layer, delay_ms, .. } => Some((layer, delay_ms)),
            _ => None,
        }
    }

    fn hint(&self) -> Option<u64> {
        self.step.verdict.wait.map(|wait| wait.delay_ms)
    }
}

/// More attempts than any policy of these tests allows.
const ENDLESS: usize = 300;

/// What failed is judged by its verdict alone.
fn unseen() -> Failure {
    Failure::new(Phase::Response)
}

/// Makes the call: an attempt, its failure, a decision, and again while that is to send.
fn make(call: &Call) -> Vec<Decided> {
    let mut ledger = Ledger::new(Allowances::of(&call.policy, call.by_exec));
    let mut at = call.starts_at;
    let mut story = vec![];
    for step in call.steps.iter().cycle().take(ENDLESS) {
        ledger.begin_attempt();
        if step.delivers {
            ledger.note_delivered();
        }
        at = at.saturating_add(step.takes_ms);
        let moment = Moment { at, deadline: call.deadline, entropy: step.entropy, ..Moment::default() };
        let decision = decide(&unseen(), &step.verdict, &ledger, &call.policy, moment);
        let decided = Decided { step: step.clone(), ledger: ledger.clone(), moment, decision };
        let sends = decided.sends();
        story.push(decided);
        let Some((layer, delay_ms)) = sends else { break };
        ledger.charge(layer);
        at = at.saturating_add(delay_ms);
    }
    story
}

fn last(story: &[Decided]) -> &Action {
    &story.last().unwrap().decision.action
}

fn waits(story: &[Decided]) -> Vec<u64> {
    story.iter().filter_map(|decided| decided.sends()).map(|(_, delay_ms)| delay_ms).collect()
}

fn layers(story: &[Decided]) -> Vec<Layer> {
    story.iter().filter_map(|decided| decided.sends()).map(|(layer, _)| layer).collect()
}

// ------------------------------------------------------------------------------------------------
// Arithmetic of the page
// ------------------------------------------------------------------------------------------------

/// T, S and X.
fn allowances(policy: &Policy, by_exec: bool) -> (u32, u32, u32) {
    let session = if policy.session.enabled { policy.session.max_retries } else { 0 };
    let exec = if by_exec { policy.exec.max_retries - 1 } else { 0 };
    (policy.transport.max_attempts - 1, session, exec)
}

/// "Cap = 1 + max(T + S, X) attempts."
fn cap(policy: &Policy, by_exec: bool) -> u32 {
    let (t, s, x) = allowances(policy, by_exec);
    1 + (t + s).max(x)
}

/// The delay of a layer that has paid `used` times, before jitter. A range, since the page does not say how a
/// fraction of a millisecond is rounded.
fn layer_delay(policy: &Policy, layer: Layer, used: u32) -> RangeInclusive<u64> {
    let (base, factor, most) = match layer {
        Layer::Transport => {
            let transport = &policy.transport;
            (transport.initial_backoff_ms, transport.backoff_multiplier, transport.max_backoff_ms)
        }
        Layer::Session => (policy.session.base_delay_ms, 2.0, u64::MAX),
        Layer::Exec => (policy.exec.base_delay_ms, 2.0, u64::MAX),
        _ => panic!("{layer:?} has no delay"),
    };
    let delay = base as f64 * factor.powi(used as i32);
    (delay.floor() as u64).min(most)..=(delay.ceil() as u64).min(most)
}

fn jittered(jitter: Jitter, delay: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let (low, high) = delay.into_inner();
    match jitter {
        Jitter::None => low..=high,
        Jitter::Full => 0..=high,
        Jitter::Equal => low / 2..=high,
    }
}

/// The most that is added to a hint at random: "U(0, min(hint/10, 1 s))".
fn addition(hint: Option<u64>) -> u64 {
    hint.map_or(0, |hint| (hint / 10).min(1_000))
}

/// "The wait = max(the layer's delay with jitter, hint + U(0, min(hint/10, 1 s)))": its range, first without
/// the random addition to the hint, then with it.
fn wait(policy: &Policy, layer: Layer, used: u32, hint: Option<u64>) -> [RangeInclusive<u64>; 2] {
    let (low, high) = jittered(policy.transport.jitter, layer_delay(policy, layer, used)).into_inner();
    let floor = hint.unwrap_or(0);
    [low.max(floor)..=high.max(floor), low.max(floor)..=high.max(floor.saturating_add(addition(hint)))]
}

// ------------------------------------------------------------------------------------------------
// The second implementation
// ------------------------------------------------------------------------------------------------

/// What the page says must happen, as far as it says it.
#[derive(Debug, PartialEq)]
enum Says {
    Send(Layer),
    /// `None`: the page does not say with which words.
    Stop(Option<Outcome>),
    /// Send by that layer or stop after N attempts: it depends on a random number, or the page leaves it
    /// open.
    Open(Layer),
}

/// The ledger of §5 as its text describes it.
struct Model {
    policy: Policy,
    t_left: u32,
    s_left: u32,
    x_left: u32,
    t_used: u32,
    s_used: u32,
    x_used: u32,
    /// "Where T = S = 0, X serves retryable verdicts too."
    exec_only: bool,
    cap: u32,
    attempts: u32,
    delivered: bool,
    session_began: bool,
}

impl Model {
    fn new(policy: &Policy, by_exec: bool) -> Model {
        let (t, s, x) = allowances(policy, by_exec);
        Model {
            policy: policy.clone(),
            t_left: t,
            s_left: s,
            x_left: x,
            t_used: 0,
            s_used: 0,
            x_used: 0,
            exec_only: t == 0 && s == 0,
            cap: cap(policy, by_exec),
            attempts: 0,
            delivered: false,
            session_began: false,
        }
    }

    fn attempt(&mut self, delivers: bool) {
        self.attempts += 1;
        self.delivered |= delivers;
    }

    fn says(&self, verdict: &Verdict, moment: Moment) -> Says {
        // 1. "cancelled → stop. Deadline passed → stop, v is the cause."
        if verdict.reason == Reason::Cancelled || moment.deadline.is_some_and(|deadline| moment.at > deadline)
        {
            return Says::Stop(None);
        }
        let unknown = verdict.reason == Reason::Unknown;
        let permanent = !verdict.retryable && !unknown;
        // 3. "attempts ≥ cap → 7", and there is no fallback: "stop 'failed after N attempts'". For a
        // permanent verdict the page says two things: this step comes before the one that says "failed
        // permanently", but §2 has every permanent failure say so. A property below settles it.
        if self.attempts >= self.cap {
            return Says::Stop((!permanent).then_some(Outcome::AfterAttempts));
        }
        // 4. "v permanent → … stop 'failed permanently'. v unknown → if X is left and nothing was delivered:
        // wait 1.5 s × 2^used, send; else stop 'failed after N attempts'."
        if permanent {
            return Says::Stop(Some(Outcome::Permanent));
        }
        if unknown {
            if self.x_left > 0 && !self.delivered {
                return self.unless_too_long(Layer::Exec, verdict, moment);
            }
            return Says::Stop(Some(Outcome::AfterAttempts));
        }
        // 5. "v retryable, whatever its status: by T if the level is T, some is left, and nothing was
        // delivered; else by S if some is left, and either nothing was delivered or restarts are allowed;
        // else 7."
        let skips_t = !self.policy.transport.retry_on_connection_errors
            && matches!(verdict.reason, Reason::Connection | Reason::Timeout);
        let restarts = self.policy.restart != Restart::Never;
        if !self.session_began && !skips_t && self.t_left > 0 && !self.delivered {
            return self.unless_too_long(Layer::Transport, verdict, moment);
        }
        if self.s_left > 0 && (!self.delivered || restarts) {
            return self.unless_too_long(Layer::Session, verdict, moment);
        }
        if self.exec_only && self.x_left > 0 && !self.delivered {
            return self.unless_too_long(Layer::Exec, verdict, moment);
        }
        if self.exec_only && self.x_left > 0 && restarts {
            // The page does not say whether exec, as the only owner, restarts what has delivered.
            return match self.unless_too_long(Layer::Exec, verdict, moment) {
                Says::Send(layer) => Says::Open(layer),
                says => says,
            };
        }
        Says::Stop(Some(Outcome::AfterAttempts))
    }

    /// Step 6: "A wait (without its random addition) longer than `max_inline_wait_ms`, or that would end
    /// after the deadline, is not slept: 7."
    fn unless_too_long(&self, layer: Layer, verdict: &Verdict, moment: Moment) -> Says {
        let hint = verdict.wait.map(|wait| wait.delay_ms);
        let [bare, whole] = wait(&self.policy, layer, self.used(layer), hint);
        let inline = self.policy.max_inline_wait_ms;
        let left = moment.deadline.map_or(u64::MAX, |deadline| deadline - moment.at);
        if *bare.start() > inline || *bare.start() > left {
            Says::Stop(Some(Outcome::AfterAttempts))
        } else if *bare.end() <= inline && *whole.end() <= left && left > 0 {
            Says::Send(layer)
        } else {
            Says::Open(layer)
        }
    }

    fn used(&self, layer: Layer) -> u32 {
        match layer {
            Layer::Transport => self.t_used,
            Layer::Session => self.s_used,
            Layer::Exec => self.x_used,
            _ => panic!("{layer:?} pays for nothing"),
        }
    }

    fn charge(&mut self, layer: Layer) {
        let (used, left) = match layer {
            Layer::Transport => (&mut self.t_used, &mut self.t_left),
            Layer::Session => (&mut self.s_used, &mut self.s_left),
            Layer::Exec => (&mut self.x_used, &mut self.x_left),
            _ => panic!("{layer:?} pays for nothing"),
        };
        *used += 1;
        *left -= 1;
        self.session_began |= layer == Layer::Session;
    }
}

// ------------------------------------------------------------------------------------------------
// What is drawn
// ------------------------------------------------------------------------------------------------

/// The same cases everywhere and every time, and no files.
fn config() -> Config {
    Config {
        cases: 1_024,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x0041_504c_4f4d_4221),
        ..Config::default()
    }
}

/// Retryable reasons: any that is neither ours nor unknown, nor step 2's.
const RETRYABLE: [Reason; 8] = [
    Reason::RateLimit,
    Reason::Overloaded,
    Reason::ServerError,
    Reason::Connection,
    Reason::Timeout,
    Reason::StreamInterrupted,
    Reason::EmptyResponse,
    Reason::MalformedResponse,
];

/// Permanent reasons. Those of step 2, an overflow and an auth failure, are left to the tests of that step.
const PERMANENT: [Reason; 11] = [
    Reason::QuotaExhausted,
    Reason::Permission,
    Reason::InvalidRequest,
    Reason::ModelNotFound,
    Reason::ContentFilter,
    Reason::PayloadTooLarge,
    Reason::InvalidImage,
    Reason::ToolSchemaInvalid,
    Reason::ServerError,
    Reason::MalformedResponse,
    Reason::Connection,
];

fn verdict(reason: Reason, retryable: bool, hint_ms: Option<u64>) -> Verdict {
    let wait = hint_ms.map(|delay_ms| json!({"delay_ms": delay_ms, "source": "retry-after"}));
    serde_json::from_value(json!({"reason": reason, "retryable": retryable, "wait": wait, "rule": "test"}))
        .unwrap()
}

fn hints() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        4 => Just(None),
        2 => (0..=5_000_u64).prop_map(Some),
        1 => (54_000..=66_000_u64).prop_map(Some),
        1 => (0..=300_000_u64).prop_map(Some),
    ]
}

fn retryable_verdicts() -> impl Strategy<Value = Verdict> {
    (select(&RETRYABLE[..]), hints()).prop_map(|(reason, hint)| verdict(reason, true, hint))
}

fn unknown_verdicts() -> impl Strategy<Value = Verdict> {
    hints().prop_map(|hint| verdict(Reason::Unknown, false, hint))
}

fn permanent_verdicts() -> impl Strategy<Value = Verdict> {
    (select(&PERMANENT[..]), hints()).prop_map(|(reason, hint)| verdict(reason, false, hint))
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![8 => retryable_verdicts(), 4 => unknown_verdicts(), 1 => permanent_verdicts()]
}

fn steps_of(verdicts: impl Strategy<Value = Verdict>) -> impl Strategy<Value = Vec<Step>> {
    let delivers = prop_oneof![6 => Just(false), 1 => Just(true)];
    let step = (verdicts, delivers, 0..=3_000_u64, any::<u64>())
        .prop_map(|(verdict, delivers, takes_ms, entropy)| Step { verdict, delivers, takes_ms, entropy });
    prop::collection::vec(step, 1..=14)
}

fn jitters() -> impl Strategy<Value = Jitter> {
    select(&[Jitter::None, Jitter::Full, Jitter::Equal][..])
}

fn restarts() -> impl Strategy<Value = Restart> {
    select(&[Restart::Auto, Restart::Marker, Restart::Never][..])
}

fn policies() -> impl Strategy<Value = Policy> {
    let transport = (
        prop_oneof![1 => Just(1_u32), 2 => 1..=6_u32],
        0..=20_000_u64,
        0..=70_000_u64,
        select(&[1.0, 1.5, 2.0, 3.0][..]),
        any::<bool>(),
        jitters(),
    );
    let session = (prop::bool::weighted(0.7), 0..=5_u32, 0..=20_000_u64);
    let exec = (1..=6_u32, 0..=20_000_u64);
    let inline = prop_oneof![2 => Just(60_000_u64), 1 => 0..=30_000_u64, 2 => Just(u64::MAX)];
    (transport, session, exec, inline, restarts()).prop_map(|(transport, session, exec, inline, restart)| {
        let mut policy = Policy::default();
        let t = &mut policy.transport;
        (t.max_attempts, t.initial_backoff_ms, t.max_backoff_ms) = (transport.0, transport.1, transport.2);
        (t.backoff_multiplier, t.retry_on_connection_errors, t.jitter) =
            (transport.3, transport.4, transport.5);
        let s = &mut policy.session;
        (s.enabled, s.max_retries, s.base_delay_ms) = session;
        (policy.exec.max_retries, policy.exec.base_delay_ms) = exec;
        policy.max_inline_wait_ms = inline;
        policy.restart = restart;
        policy
    })
}

fn calls_of(verdicts: impl Strategy<Value = Verdict>) -> impl Strategy<Value = Call> {
    let deadline = prop_oneof![2 => Just(None), 1 => (0..=200_000_u64).prop_map(Some)];
    (policies(), any::<bool>(), 0..=1_000_000_u64, deadline, steps_of(verdicts)).prop_map(
        |(policy, by_exec, starts_at, left, steps)| Call {
            policy,
            by_exec,
            starts_at,
            deadline: left.map(|left| starts_at + left),
            steps,
        },
    )
}

fn calls() -> impl Strategy<Value = Call> {
    calls_of(verdicts())
}

/// A call whose waits are all slept: no deadline, no longest wait.
fn patient(mut call: Call) -> Call {
    call.deadline = None;
    call.policy.max_inline_wait_ms = u64::MAX;
    call
}

fn silent(mut call: Call) -> Call {
    call.steps.iter_mut().for_each(|step| step.delivers = false);
    call
}

fn without_hints(mut call: Call) -> Call {
    call.steps.iter_mut().for_each(|step| step.verdict.wait = None);
    call
}

/// Numbers from the ends of their types.
fn extremes() -> impl Strategy<Value = u64> {
    prop_oneof![
        select(&[0, 1, 2, u32::MAX as u64, i64::MAX as u64, (1 << 53) + 1, u64::MAX - 1, u64::MAX][..]),
        any::<u64>(),
    ]
}

fn extreme_counts() -> impl Strategy<Value = u32> {
    prop_oneof![select(&[0, 1, 2, u32::MAX - 1, u32::MAX][..]), any::<u32>()]
}

fn extreme_multipliers() -> impl Strategy<Value = f64> {
    prop_oneof![
        select(
            &[1e308, 1.0, 0.0, -2.0, f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
                [..]
        ),
        any::<f64>(),
    ]
}

fn extreme_policies() -> impl Strategy<Value = Policy> {
    // Up to the most that the settings' documentation allows, and 0 where it says 1.
    let counts = (0..=100_u32, 0..=100_u32, 0..=100_u32);
    let times = (extremes(), extremes(), extremes(), extremes(), extremes());
    (counts, times, extreme_multipliers(), any::<bool>(), any::<bool>(), jitters(), restarts()).prop_map(
        |(counts, times, multiplier, connections, enabled, jitter, restart)| {
            let mut policy = Policy::default();
            policy.transport.max_attempts = counts.0;
            policy.transport.initial_backoff_ms = times.0;
            policy.transport.max_backoff_ms = times.1;
            policy.transport.backoff_multiplier = multiplier;
            policy.transport.retry_on_connection_errors = connections;
            policy.transport.jitter = jitter;
            policy.session.enabled = enabled;
            policy.session.max_retries = counts.1;
            policy.session.base_delay_ms = times.2;
            policy.exec.max_retries = counts.2;
            policy.exec.base_delay_ms = times.3;
            policy.max_inline_wait_ms = times.4;
            policy.restart = restart;
            policy
        },
    )
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    (select(Reason::ALL), any::<bool>(), prop::option::of(extremes()))
        .prop_map(|(reason, retryable, hint)| verdict(reason, retryable, hint))
}

// ------------------------------------------------------------------------------------------------
// Properties
// ------------------------------------------------------------------------------------------------

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_decision_is_the_one_that_the_page_says(call in calls()) {
        let mut model = Model::new(&call.policy, call.by_exec);
        for decided in make(&call) {
            model.attempt(decided.step.delivers);
            let says = model.says(&decided.step.verdict, decided.moment);
            match (&says, &decided.decision.action) {
                (Says::Send(expected) | Says::Open(expected), Action::Send { layer, delay_ms, .. }) => {
                    prop_assert_eq!(layer, expected, "{:?} {:?}", says, decided);
                    let [_, range] = wait(&call.policy, *layer, model.used(*layer), decided.hint());
                    prop_assert!(range.contains(delay_ms), "{:?}: {:?}", range, decided);
                    model.charge(*layer);
                }
                (Says::Stop(Some(expected)), Action::Stop { outcome, .. }) => {
                    prop_assert_eq!(outcome, expected, "{:?}", decided);
                }
                (Says::Open(_), Action::Stop { outcome, .. }) => {
                    prop_assert_eq!(*outcome, Outcome::AfterAttempts, "{:?}", decided);
                }
                (Says::Stop(None), Action::Stop { .. }) => {}
                _ => prop_assert!(false, "the page says {:?}: {:?}", says, decided),
            }
            prop_assert!(!decided.decision.rule.is_empty(), "every decision names its rule");
        }
    }

    #[test]
    fn the_cap_is_one_and_the_larger_of_transport_plus_session_and_exec(policy in policies(), by_exec: bool) {
        let (t, s, x) = allowances(&policy, by_exec);
        let given = Allowances::of(&policy, by_exec);
        prop_assert_eq!((given.transport, given.session, given.exec), (t, s, x));
        prop_assert_eq!(given.cap(), 1 + (t + s).max(x));
        prop_assert_eq!(Ledger::new(given).cap(), given.cap());
    }

    #[test]
    fn a_call_ends_within_its_cap(call in calls()) {
        let story = make(&call);
        prop_assert!(matches!(last(&story), Action::Stop { .. }), "endless");
        prop_assert!(story.len() <= cap(&call.policy, call.by_exec) as usize);
    }

    #[test]
    fn no_layer_pays_more_than_its_allowance(call in calls()) {
        let (t, s, x) = allowances(&call.policy, call.by_exec);
        let layers = layers(&make(&call));
        for (layer, allowance) in
            [(Layer::First, 0), (Layer::Transport, t), (Layer::Session, s), (Layer::Exec, x)]
        {
            let paid = layers.iter().filter(|paid| **paid == layer).count();
            prop_assert!(paid <= allowance as usize, "{layers:?}");
        }
    }

    #[test]
    fn a_patient_silent_call_that_could_pass_later_uses_all_of_transport_and_then_all_of_session(
        call in calls_of(retryable_verdicts()),
    ) {
        let mut call = patient(silent(call));
        call.policy.transport.retry_on_connection_errors = true;
        let (t, s, x) = allowances(&call.policy, call.by_exec);
        let expected = match (t, s) {
            (0, 0) => vec![Layer::Exec; x as usize],
            _ => [vec![Layer::Transport; t as usize], vec![Layer::Session; s as usize]].concat(),
        };
        prop_assert_eq!(layers(&make(&call)), expected);
    }

    #[test]
    fn the_first_permanent_verdict_stops_and_says_permanently(call in calls()) {
        let story = make(&call);
        for (index, decided) in story.iter().enumerate() {
            let verdict = &decided.step.verdict;
            if verdict.retryable || verdict.reason == Reason::Unknown {
                continue;
            }
            prop_assert_eq!(index + 1, story.len(), "a request after a permanent verdict");
            let Action::Stop { outcome, .. } = decided.decision.action else { panic!("the last one sends") };
            // Past the deadline the page does not say with which words.
            if decided.moment.deadline.is_none_or(|deadline| decided.moment.at < deadline) {
                prop_assert_eq!(outcome, Outcome::Permanent, "{:?}", decided);
            }
        }
    }

    #[test]
    fn a_permanent_failure_costs_exactly_one_request(call in calls_of(permanent_verdicts())) {
        prop_assert_eq!(make(&call).len(), 1);
    }

    #[test]
    fn an_unknown_failure_costs_one_request_by_run_and_exec_adds_its_own(
        call in calls_of(unknown_verdicts()),
    ) {
        let call = patient(silent(call));
        let (_, _, x) = allowances(&call.policy, call.by_exec);
        let story = make(&call);
        prop_assert_eq!(layers(&story), vec![Layer::Exec; if call.by_exec { x as usize } else { 0 }]);
        let after_attempts = matches!(last(&story), Action::Stop { outcome: Outcome::AfterAttempts, .. });
        prop_assert!(after_attempts, "unknown is not permanent");
    }

    #[test]
    fn what_has_delivered_is_not_repeated_for_an_unknown_failure(call in calls_of(unknown_verdicts())) {
        for decided in make(&call) {
            prop_assert!(!decided.ledger.delivered() || decided.sends().is_none(), "{:?}", decided);
        }
    }

    #[test]
    fn what_has_delivered_is_never_paid_by_transport(call in calls()) {
        for decided in make(&call) {
            let by_transport = decided.sends().is_some_and(|(layer, _)| layer == Layer::Transport);
            prop_assert!(!decided.ledger.delivered() || !by_transport, "{:?}", decided);
        }
    }

    #[test]
    fn what_has_delivered_is_not_repeated_where_restart_is_never(call in calls()) {
        let mut call = call;
        call.policy.restart = Restart::Never;
        for decided in make(&call) {
            prop_assert!(!decided.ledger.delivered() || decided.sends().is_none(), "{:?}", decided);
        }
    }

    #[test]
    fn the_two_ways_of_announcing_a_restart_decide_alike(call in calls()) {
        let with = |restart| {
            let mut call = call.clone();
            call.policy.restart = restart;
            make(&call).into_iter().map(|decided| decided.decision).collect::<Vec<_>>()
        };
        prop_assert_eq!(with(Restart::Auto), with(Restart::Marker));
    }

    #[test]
    fn more_deliveries_never_add_attempts_where_restart_is_never(
        call in calls(),
        more in prop::collection::vec(any::<bool>(), 14),
    ) {
        let mut call = call;
        call.policy.restart = Restart::Never;
        let attempts = make(&call).len();
        for (step, delivers) in call.steps.iter_mut().zip(more) {
            step.delivers |= delivers;
        }
        prop_assert!(make(&call).len() <= attempts);
    }

    #[test]
    fn a_wait_is_never_shorter_than_the_providers_hint(call in calls()) {
        for decided in make(&call) {
            if let (Some((_, delay_ms)), Some(hint)) = (decided.sends(), decided.hint()) {
                prop_assert!(delay_ms >= hint, "{:?}", decided);
            }
        }
    }

    #[test]
    fn a_wait_is_never_longer_than_the_layers_delay_or_the_hint_and_a_tenth_of_it_up_to_a_second(
        call in calls(),
    ) {
        for decided in make(&call) {
            let Some((layer, delay_ms)) = decided.sends() else { continue };
            let delay = *layer_delay(&call.policy, layer, decided.ledger.used(layer)).end();
            let longest = delay.max(decided.hint().map_or(0, |hint| hint + (hint / 10).min(1_000)));
            prop_assert!(delay_ms <= longest, "{} > {}: {:?}", delay_ms, longest, decided);
        }
    }

    #[test]
    fn without_jitter_a_wait_is_exactly_the_layers_delay_or_the_hint(call in calls()) {
        let mut call = call;
        call.policy.transport.jitter = Jitter::None;
        for decided in make(&call) {
            let Some((layer, delay_ms)) = decided.sends() else { continue };
            let (low, high) = layer_delay(&call.policy, layer, decided.ledger.used(layer)).into_inner();
            let hint = decided.hint().unwrap_or(0);
            prop_assert!((low.max(hint)..=high.max(hint)).contains(&delay_ms), "{:?}", decided);
        }
    }

    #[test]
    fn a_wait_says_who_asked_for_it(call in calls()) {
        for decided in make(&call) {
            let Action::Send { layer, ref delay_source, .. } = decided.decision.action else { continue };
            let delay = layer_delay(&call.policy, layer, decided.ledger.used(layer));
            let jittered = jittered(call.policy.transport.jitter, delay);
            match decided.hint() {
                None => prop_assert_eq!(delay_source, "backoff"),
                Some(hint) if hint > *jittered.end() => prop_assert_eq!(delay_source, "retry-after"),
                Some(hint) if hint + addition(Some(hint)) < *jittered.start() => {
                    prop_assert_eq!(delay_source, "backoff");
                }
                Some(_) => prop_assert!(["backoff", "retry-after"].contains(&delay_source.as_str())),
            }
        }
    }

    #[test]
    fn no_wait_ends_after_the_deadline(call in calls()) {
        for decided in make(&call) {
            if let (Some((_, delay_ms)), Some(deadline)) = (decided.sends(), decided.moment.deadline) {
                prop_assert!(decided.moment.at + delay_ms <= deadline, "{:?}", decided);
            }
        }
    }

    #[test]
    fn nothing_is_sent_after_the_deadline(call in calls(), late in 1..=1_000_000_u64) {
        let mut call = call;
        call.deadline = Some(call.starts_at);
        call.steps[0].takes_ms = late;
        prop_assert_eq!(make(&call).len(), 1);
    }

    #[test]
    fn no_wait_without_its_random_addition_is_longer_than_the_longest_inline_wait(call in calls()) {
        for decided in make(&call) {
            let Some((layer, delay_ms)) = decided.sends() else { continue };
            let longest = call.policy.max_inline_wait_ms;
            prop_assert!(delay_ms <= longest.saturating_add(addition(decided.hint())), "{:?}", decided);
            let [bare, _] = wait(&call.policy, layer, decided.ledger.used(layer), decided.hint());
            prop_assert!(*bare.start() <= longest, "{:?}", decided);
        }
    }

    #[test]
    fn transport_never_pays_after_the_session_has(call in calls()) {
        let layers = layers(&make(&call));
        if let Some(first) = layers.iter().position(|layer| *layer == Layer::Session) {
            prop_assert!(!layers[first..].contains(&Layer::Transport), "{layers:?}");
        }
    }

    #[test]
    fn the_level_only_ever_moves_forward(call in calls()) {
        let story = make(&call);
        for pair in story.windows(2) {
            prop_assert!(pair[0].ledger.level() <= pair[1].ledger.level(), "{pair:?}");
        }
    }

    #[test]
    fn the_level_is_transport_until_the_session_pays_and_spent_once_the_session_has_paid_all(
        call in calls(),
    ) {
        for decided in make(&call) {
            let ledger = &decided.ledger;
            let (paid, left) = (ledger.used(Layer::Session), ledger.left(Layer::Session));
            match ledger.level() {
                Level::Transport => prop_assert_eq!(paid, 0, "{:?}", decided),
                Level::Session => prop_assert!(left > 0, "{:?}", decided),
                Level::Spent => prop_assert_eq!(left, 0, "{:?}", decided),
            }
            if paid == 0 && ledger.left(Layer::Transport) > 0 {
                prop_assert_eq!(ledger.level(), Level::Transport, "{:?}", decided);
            }
        }
    }

    #[test]
    fn the_ledger_counts_attempts_and_payments_as_they_were_made(call in calls()) {
        let story = make(&call);
        let (t, s, x) = allowances(&call.policy, call.by_exec);
        let layers = layers(&story);
        for (index, decided) in story.iter().enumerate() {
            prop_assert_eq!(decided.ledger.attempts() as usize, index + 1);
            for (layer, allowance) in [(Layer::Transport, t), (Layer::Session, s), (Layer::Exec, x)] {
                let paid = layers[..index].iter().filter(|paid| **paid == layer).count() as u32;
                prop_assert_eq!(decided.ledger.used(layer), paid);
                // What transport has left once the session has begun is forfeit; it may show as nothing left.
                if layer != Layer::Transport {
                    prop_assert_eq!(decided.ledger.left(layer), allowance - paid);
                }
            }
            prop_assert_eq!(decided.ledger.delivered(), story[..=index].iter().any(|d| d.step.delivers));
        }
    }

    #[test]
    fn within_a_layer_no_delay_is_shorter_than_the_one_before(call in calls_of(retryable_verdicts())) {
        let mut call = patient(without_hints(call));
        call.policy.transport.jitter = Jitter::None;
        let sends: Vec<_> = make(&call).iter().filter_map(Decided::sends).collect();
        for pair in sends.windows(2) {
            prop_assert!(pair[0].0 != pair[1].0 || pair[0].1 <= pair[1].1, "{sends:?}");
        }
    }

    #[test]
    fn the_same_failure_with_the_same_account_is_decided_the_same_way(call in calls()) {
        for decided in make(&call) {
            let again =
                decide(&unseen(), &decided.step.verdict, &decided.ledger, &call.policy, decided.moment);
            prop_assert_eq!(&again, &decided.decision);
        }
    }

    #[test]
    fn full_jitter_stays_between_nothing_and_the_delay(delay in extremes(), entropy in extremes()) {
        prop_assert!(Jitter::Full.apply(delay, entropy) <= delay);
    }

    #[test]
    fn equal_jitter_stays_between_half_of_the_delay_and_the_delay(
        delay in extremes(),
        entropy in extremes(),
    ) {
        prop_assert!((delay / 2..=delay).contains(&Jitter::Equal.apply(delay, entropy)));
    }

    #[test]
    fn no_jitter_leaves_the_delay_as_it_is(delay in extremes(), entropy in extremes()) {
        prop_assert_eq!(Jitter::None.apply(delay, entropy), delay);
    }

    #[test]
    fn no_number_is_too_large_to_decide_with(
        policy in extreme_policies(),
        by_exec: bool,
        at in extremes(),
        deadline in prop::option::of(extremes()),
        attempts in prop::collection::vec((any_verdict(), any::<bool>(), extremes()), 1..=8),
    ) {
        let steps: Vec<Step> = attempts
            .into_iter()
            .map(|(verdict, delivers, entropy)| Step { verdict, delivers, takes_ms: 1, entropy })
            .collect();
        let given = Allowances::of(&policy, by_exec);
        let limit = given.cap();
        for decided in make(&Call { policy: policy.clone(), by_exec, starts_at: at, deadline, steps }) {
            prop_assert!(decided.ledger.attempts() <= limit.max(1));
            let Some((_, delay_ms)) = decided.sends() else { continue };
            prop_assert!(delay_ms >= decided.hint().unwrap_or(0), "{:?}", decided);
            prop_assert!(delay_ms <= policy.max_inline_wait_ms.saturating_add(addition(decided.hint())));
            if let Some(deadline) = deadline {
                let ends = decided.moment.at.checked_add(delay_ms);
                prop_assert!(ends.is_some_and(|ends| ends <= deadline), "{:?}", decided);
            }
        }
    }

    #[test]
    fn no_allowance_is_too_large_to_add(
        max_attempts in extreme_counts(),
        session_retries in extreme_counts(),
        exec_retries in extreme_counts(),
        by_exec: bool,
    ) {
        let mut policy = Policy::default();
        policy.transport.max_attempts = max_attempts;
        policy.session.max_retries = session_retries;
        policy.exec.max_retries = exec_retries;
        let given = Allowances::of(&policy, by_exec);
        prop_assert!(given.cap() >= 1);
        prop_assert!(given.cap() >= given.transport.max(given.session).max(given.exec));
    }

    #[test]
    fn no_back_off_overflows_its_maximum(
        initial_ms in extremes(),
        multiplier in extreme_multipliers(),
        max_ms in extremes(),
        index in extreme_counts(),
    ) {
        let delay = Backoff { initial_ms, multiplier, max_ms }.delay_ms(index);
        prop_assert!(delay <= max_ms);
        if multiplier >= 1.0 && initial_ms <= 1 << 53 {
            prop_assert!(delay >= initial_ms.min(max_ms), "{}", delay);
        }
    }
}

// ------------------------------------------------------------------------------------------------
// The page's own numbers
// ------------------------------------------------------------------------------------------------

fn without_jitter() -> Policy {
    let mut policy = Policy::default();
    policy.transport.jitter = Jitter::None;
    policy
}

/// The same failure, for ever, from 0 ms on.
fn persistent(policy: Policy, by_exec: bool, verdict: Verdict) -> Call {
    let step = Step { verdict, delivers: false, takes_ms: 0, entropy: 0x9e37_79b9_7f4a_7c15 };
    Call { policy, by_exec, starts_at: 0, deadline: None, steps: vec![step] }
}

fn unavailable() -> Verdict {
    classify(&Failure::status(503, b""))
}

fn after_attempts(story: &[Decided]) -> Option<u64> {
    match *last(story) {
        Action::Stop { outcome: Outcome::AfterAttempts, resume_after_ms } => resume_after_ms,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_are_those_of_the_page() {
    let policy = Policy::default();
    let transport = &policy.transport;
    assert_eq!(
        (transport.max_attempts, transport.initial_backoff_ms, transport.max_backoff_ms),
        (3, 500, 5_000)
    );
    assert_eq!((transport.backoff_multiplier, transport.retry_on_connection_errors), (2.0, true));
    assert_eq!(
        (policy.session.enabled, policy.session.max_retries, policy.session.base_delay_ms),
        (true, 3, 2_000)
    );
    assert_eq!((policy.exec.max_retries, policy.exec.base_delay_ms), (3, 1_500));
    assert_eq!(policy.max_inline_wait_ms, 60_000);
    assert_eq!(policy.restart, Restart::Auto);
    assert_eq!(cap(&policy, false), 6);
    assert_eq!(cap(&policy, true), 6); // 1 + max(2 + 3, 2)
}

#[test]
fn a_persistent_503_costs_six_requests_and_waits_half_one_two_four_eight_seconds() {
    for by_exec in [false, true] {
        let story = make(&persistent(without_jitter(), by_exec, unavailable()));
        assert_eq!(story.len(), 6); // 1 + T 2 + S 3
        assert_eq!(waits(&story), [500, 1_000, 2_000, 4_000, 8_000]);
        let (t, s) = (Layer::Transport, Layer::Session);
        assert_eq!(layers(&story), [t, t, s, s, s]);
        assert_eq!(after_attempts(&story), None);
    }
}

#[test]
fn an_unknown_failure_costs_run_one_request_and_exec_three_with_one_and_a_half_and_three_seconds_between() {
    let unknown = || verdict(Reason::Unknown, false, None);
    assert_eq!(make(&persistent(without_jitter(), false, unknown())).len(), 1);
    let story = make(&persistent(without_jitter(), true, unknown()));
    assert_eq!(story.len(), 3);
    assert_eq!(waits(&story), [1_500, 3_000]);
}

#[test]
fn exec_as_the_only_owner_of_retries_serves_a_503_too() {
    let mut policy = without_jitter();
    policy.transport.max_attempts = 1;
    policy.session.enabled = false;
    policy.exec.max_retries = 4;
    let story = make(&persistent(policy.clone(), true, unavailable()));
    assert_eq!(waits(&story), [1_500, 3_000, 6_000]); // "6 s only where `max_retries` is 4 or more"
    assert_eq!(layers(&story), [Layer::Exec; 3]);
    assert_eq!(make(&persistent(policy, false, unavailable())).len(), 1);
}

#[test]
fn connections_and_time_outs_skip_transport_where_it_does_not_retry_them() {
    let mut policy = without_jitter();
    policy.transport.retry_on_connection_errors = false;
    for reason in [Reason::Connection, Reason::Timeout] {
        let story = make(&persistent(policy.clone(), false, verdict(reason, true, None)));
        assert_eq!(waits(&story), [2_000, 4_000, 8_000], "{reason}");
    }
    // The rest of the connection class is the gate's notion, not this setting's.
    for reason in [Reason::ServerError, Reason::StreamInterrupted] {
        let story = make(&persistent(policy.clone(), false, verdict(reason, true, None)));
        assert_eq!(waits(&story), [500, 1_000, 2_000, 4_000, 8_000], "{reason}");
    }
}

#[test]
fn once_the_session_has_begun_what_transport_had_left_is_forfeit() {
    let mut policy = without_jitter();
    policy.transport.retry_on_connection_errors = false;
    let mut call = persistent(policy, false, verdict(Reason::Connection, true, None));
    call.steps.resize(10, Step { verdict: unavailable(), ..call.steps[0].clone() });
    let story = make(&call);
    assert_eq!(layers(&story), [Layer::Session; 3]);
    assert_eq!(waits(&story), [2_000, 4_000, 8_000]);
}

#[test]
fn a_stream_that_breaks_after_it_has_delivered_is_the_sessions_to_restart() {
    let mut call = persistent(without_jitter(), false, verdict(Reason::StreamInterrupted, true, None));
    call.steps[0].delivers = true;
    assert_eq!(waits(&make(&call)), [2_000, 4_000, 8_000]);
    call.policy.restart = Restart::Never;
    assert_eq!(make(&call).len(), 1);
}

#[test]
fn a_delivery_holds_for_the_rest_of_the_call() {
    let mut call = persistent(without_jitter(), false, unavailable());
    call.steps.resize(10, call.steps[0].clone());
    call.steps[1].delivers = true;
    // By transport while nothing was delivered, then by the session, although later attempts deliver nothing.
    assert_eq!(waits(&make(&call)), [500, 2_000, 4_000, 8_000]);
}

#[test]
fn a_hint_is_a_floor_and_a_longer_back_off_stays() {
    let hinted = verdict(Reason::RateLimit, true, Some(3_000));
    assert_eq!(
        waits(&make(&persistent(without_jitter(), false, hinted))),
        [3_000, 3_000, 3_000, 4_000, 8_000]
    );
    let now = verdict(Reason::RateLimit, true, Some(0));
    assert_eq!(waits(&make(&persistent(without_jitter(), false, now))), [500, 1_000, 2_000, 4_000, 8_000]);
}

#[test]
fn a_hint_of_a_minute_is_slept_and_one_millisecond_more_is_reported_with_the_time_to_come_back() {
    for jitter in [Jitter::None, Jitter::Full, Jitter::Equal] {
        let mut policy = Policy::default();
        policy.transport.jitter = jitter;
        for entropy in [0, 1, u64::MAX / 2, u64::MAX] {
            let hinted = |hint| {
                let mut call =
                    persistent(policy.clone(), false, verdict(Reason::RateLimit, true, Some(hint)));
                call.steps[0].entropy = entropy;
                make(&call)
            };
            // The random addition does not count: 60 s + U(0, 1 s) is slept.
            let story = hinted(60_000);
            assert_eq!(story.len(), 6, "{jitter:?}");
            assert!(waits(&story).iter().all(|wait| (60_000..=61_000).contains(wait)));
            let story = hinted(60_001);
            assert_eq!(story.len(), 1, "{jitter:?}");
            let resume_after = after_attempts(&story).expect("the hint is known");
            assert!((60_001..=61_001).contains(&resume_after), "{resume_after}");
        }
    }
}

#[test]
fn a_wait_may_end_at_the_deadline_but_not_after_it() {
    let with = |deadline, hint| {
        let mut call = persistent(without_jitter(), false, verdict(Reason::RateLimit, true, hint));
        call.deadline = Some(deadline);
        make(&call)
    };
    assert_eq!(waits(&with(500, None)), [500]);
    assert_eq!(waits(&with(499, None)), [0; 0]);
    assert_eq!(after_attempts(&with(499, None)), None, "nobody stated when to come back");
    assert!(after_attempts(&with(2_999, Some(3_000))).is_some_and(|after| after >= 3_000));
}

#[test]
fn a_call_that_runs_out_of_attempts_says_when_to_come_back_where_that_is_known() {
    // Step 7: "else stop 'failed after N attempts', with `resume_at` where known." The last answer named a
    // time.
    let story = make(&persistent(without_jitter(), false, verdict(Reason::RateLimit, true, Some(3_000))));
    assert_eq!(story.len(), 6);
    assert!(
        after_attempts(&story).is_some_and(|after| (3_000..=3_300).contains(&after)),
        "{:?}",
        last(&story)
    );
}

#[test]
fn jitter_uses_the_whole_of_its_range() {
    let waits_with = |jitter, hint| -> Vec<u64> {
        let mut policy = Policy::default();
        policy.transport.jitter = jitter;
        policy.transport.initial_backoff_ms = 4_000;
        (1..=2_000_u64)
            .map(|n| {
                let mut call = persistent(policy.clone(), false, verdict(Reason::RateLimit, true, hint));
                call.steps[0].entropy = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                waits(&make(&call))[0]
            })
            .collect()
    };
    // U(low, high) over 2,000 draws: the ends are met within 2 %, the mean within 3 % of the width.
    let spread = |waits: &[u64], low: u64, high: u64| {
        let width = (high - low) as f64;
        let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
        let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
        assert!(least >= low && (least - low) as f64 <= 0.02 * width, "{least} in {low}..={high}");
        assert!(most <= high && (high - most) as f64 <= 0.02 * width, "{most} in {low}..={high}");
        assert!((mean - (low + high) as f64 / 2.0).abs() <= 0.03 * width, "{mean} in {low}..={high}");
    };
    spread(&waits_with(Jitter::Full, None), 0, 4_000);
    spread(&waits_with(Jitter::Equal, None), 2_000, 4_000);
    // The random addition to a hint: a tenth of it, at most a second.
    spread(&waits_with(Jitter::Full, Some(8_000)), 8_000, 8_800);
    spread(&waits_with(Jitter::Equal, Some(40_000)), 40_000, 41_000);
}
