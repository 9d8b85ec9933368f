//! What a policy comes to: for each class of failure the attempts and waits of a call that meets nothing else, the worst
//! case, and the settings that defeat each other. What `aplomb policy` prints.
//!
//! Nothing here knows the rule. A schedule is [`decide`] itself, played to its end.

mod warn;
mod worst;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use warn::Warning;
pub use worst::{Share, WorstCase};

use super::{
    Action, Allowances, Jitter, Layer, Ledger, Mode, Moment, Outcome, Policy, backoff, decide, resend,
};
use crate::failure::{Anomaly, Failure, Phase, TransportKind, Verdict, classify};

/// The most attempts that are played. A call may be allowed more; nobody reads on.
const LONGEST: u32 = 1_000;

/// What a call is made in, as far as it has a say in what may follow a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Setting {
    /// How many models there are to ask, the first included.
    pub targets: usize,
    /// How long the run may take, in ms.
    pub deadline_ms: Option<u64>,
    /// `runtime.step_timeout_ms`.
    pub step_timeout_ms: Option<u64>,
    /// `llm.timeouts.first_byte_ms`: how long an attempt takes that hears nothing.
    pub first_byte_ms: u64,
    /// `llm.timeouts.attempt_ms`.
    pub attempt_ms: Option<u64>,
    /// `max_resume_attempts` of a durable run; 0 for any other.
    pub resumes: u32,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            targets: 1,
            deadline_ms: None,
            step_timeout_ms: None,
            first_byte_ms: 30_000,
            attempt_ms: None,
            resumes: 0,
        }
    }
}

/// Everything that there is to say about a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Overview {
    /// The policy's own mode.
    pub mode: Mode,
    /// By class of failure: `503`, `500`, `429`, `connection`, …
    pub classes: BTreeMap<String, ByMode>,
    /// The most that a call may cost, whatever fails.
    pub worst_case: WorstByMode,
    /// Settings that defeat each other.
    pub warnings: Vec<Warning>,
}

/// One class in both modes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ByMode {
    /// Allowances add.
    pub additive: ByEntry,
    /// Allowances multiply.
    pub layered: ByEntry,
}

/// One class by the ways in which a call may be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ByEntry {
    /// By `run`, with nothing of the answers handed over.
    pub run: Schedule,
    /// By `exec`, with nothing of the answers handed over.
    pub exec: Schedule,
    /// By `run_stream`, each attempt having handed over some of its answer before it fails.
    pub stream: Schedule,
}

/// The most that a call may cost, in both modes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorstByMode {
    /// Allowances add.
    pub additive: WorstByEntry,
    /// Allowances multiply.
    pub layered: WorstByEntry,
}

/// The most that a call may cost, by the ways in which it may be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorstByEntry {
    /// By `run`.
    pub run: WorstCase,
    /// By `exec`.
    pub exec: WorstCase,
}

/// A way in which a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EntryPoint {
    /// By `run`.
    Run,
    /// By `exec`.
    Exec,
    /// By `run_stream`, with some of each answer handed over.
    Stream,
}

/// A call in which every attempt fails in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Schedule {
    /// Requests on the wire.
    pub requests: u32,
    /// The sum of the waits under jitter `none`, in ms.
    pub wait_ms: u64,
    /// The least that it may be under the policy's own jitter.
    pub wait_least_ms: u64,
    /// The most that it may be under the policy's own jitter.
    pub wait_most_ms: u64,
    /// What each attempt itself takes, in ms: 0 but for one that hears nothing.
    pub attempt_ms: u64,
    /// The attempts in order.
    pub attempts: Vec<Planned>,
    /// How the call ends.
    pub outcome: Outcome,
    /// The rule that ends it.
    pub rule: String,
    /// The rule that says what the failure is.
    pub verdict: String,
    /// The error's code.
    pub code: String,
    /// False where the call would go on beyond the thousand attempts that are played.
    pub complete: bool,
}

/// One attempt of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Planned {
    /// Counts from 1.
    pub attempt: u32,
    /// Whose allowance pays.
    pub layer: Layer,
    /// Which target is asked; 0 is the first.
    pub target: usize,
    /// The wait before it under jitter `none`, in ms.
    pub delay_ms: u64,
    /// The least that it may be under the policy's own jitter.
    pub delay_least_ms: u64,
    /// The most that it may be under the policy's own jitter.
    pub delay_most_ms: u64,
    /// Who asks for the wait; missing where there is none.
    pub delay_source: Option<String>,
    /// The rule that lets it be made.
    pub rule: String,
}

/// What a policy comes to.
///
/// ```
/// use aplomb_core::decide::{Policy, schedule::{Setting, overview}};
///
/// let overview = overview(&Policy::default(), Setting::default());
/// assert_eq!(overview.classes["503"].additive.run.requests, 6);
/// assert_eq!(overview.classes["503"].layered.exec.wait_ms, 64_500);
/// ```
pub fn overview(policy: &Policy, setting: Setting) -> Overview {
    let in_mode = |mode| Policy { mode, ..policy.clone() };
    let by_entry = |mode, failure: &Failure, takes_ms| {
        let policy = in_mode(mode);
        let by = |entry| play(failure, &policy, entry, setting, takes_ms);
        ByEntry { run: by(EntryPoint::Run), exec: by(EntryPoint::Exec), stream: by(EntryPoint::Stream) }
    };
    let classes = classes().into_iter().map(|(name, failure)| {
        // Whichever clock runs out first ends an attempt that hears nothing.
        let clocks = [Some(setting.first_byte_ms), setting.attempt_ms, setting.deadline_ms];
        let silence_ms = clocks.into_iter().flatten().min().unwrap_or_default();
        let takes_ms = if name == "timeout" { silence_ms } else { 0 };
        let additive = by_entry(Mode::Additive, &failure, takes_ms);
        let layered = by_entry(Mode::Layered, &failure, takes_ms);
        (name.to_owned(), ByMode { additive, layered })
    });
    let worst = |mode| {
        let policy = in_mode(mode);
        let by = |exec| worst::worst_case(&policy, exec, setting);
        WorstByEntry { run: by(false), exec: by(true) }
    };
    Overview {
        mode: policy.mode,
        classes: classes.collect(),
        worst_case: WorstByMode { additive: worst(Mode::Additive), layered: worst(Mode::Layered) },
        warnings: warn::warnings(policy, setting),
    }
}

/// One failure of each class that an operator plans for.
fn classes() -> Vec<(&'static str, Failure)> {
    let said = |status, code: &str| {
        Failure::status(status, format!(r#"{{"error":{{"message":"{code}","code":"{code}"}}}}"#).as_bytes())
    };
    let throttled = |seconds: &str| Failure::status(429, b"").with_headers([("retry-after", seconds)]);
    vec![
        ("401", Failure::status(401, b"")),
        ("429", Failure::status(429, b"")),
        ("429_retry_after_20s", throttled("20")),
        ("429_retry_after_120s", throttled("120")),
        ("500", Failure::status(500, b"")),
        ("503", Failure::status(503, b"")),
        ("529", Failure::status(529, b"")),
        ("connection", Failure::transport(Phase::Connect, TransportKind::Refused, "connection refused")),
        ("cut_stream", Failure::anomaly(Phase::MidStream, Anomaly::NoTerminalEvent, b"")),
        ("model_not_found", said(404, "model_not_found")),
        ("overflow", said(400, "context_length_exceeded")),
        ("permanent", Failure::status(400, b"")),
        ("quota", said(429, "insufficient_quota")),
        ("timeout", Failure::transport(Phase::Connect, TransportKind::FirstByteTimeout, "no first byte")),
        ("unknown", Failure::transport(Phase::Connect, TransportKind::Other, "something nobody knows")),
    ]
}

/// A call in which every attempt fails like that, after `takes_ms`. A conversation that overflows is taken to shrink
/// each time, and a credential that is read again to be the same.
pub fn play(
    failure: &Failure,
    policy: &Policy,
    entry: EntryPoint,
    setting: Setting,
    takes_ms: u64,
) -> Schedule {
    let mut exact = policy.clone();
    exact.transport.jitter = Jitter::None;
    Player {
        failure,
        verdict: classify(failure),
        exact,
        jitter: policy.transport.jitter,
        ledger: Ledger::new(Allowances::of(policy, entry == EntryPoint::Exec))
            .opened(0, setting.step_timeout_ms),
        moment: Moment { deadline: setting.deadline_ms, can_refresh: true, ..Moment::default() },
        target: 0,
        targets: setting.targets,
    }
    .play(entry == EntryPoint::Stream, takes_ms)
}

struct Player<'a> {
    failure: &'a Failure,
    verdict: Verdict,
    exact: Policy,
    jitter: Jitter,
    ledger: Ledger,
    moment: Moment,
    target: usize,
    targets: usize,
}

impl Player<'_> {
    fn play(mut self, delivers: bool, takes_ms: u64) -> Schedule {
        let mut attempts = Vec::new();
        let mut next = Planned {
            attempt: 1,
            layer: Layer::First,
            target: 0,
            delay_ms: 0,
            delay_least_ms: 0,
            delay_most_ms: 0,
            delay_source: None,
            rule: Layer::First.rule().to_owned(),
        };
        let (outcome, rule, complete) = loop {
            self.ledger.begin_attempt();
            if delivers {
                self.ledger.note_delivered();
            }
            self.ledger.spend_time(takes_ms);
            self.moment.at = self.moment.at.saturating_add(takes_ms);
            attempts.push(next);
            match self.next_attempt() {
                Ok(planned) => next = planned,
                Err((outcome, rule)) => break (outcome, rule, true),
            }
            if self.ledger.attempts() >= LONGEST {
                break (Outcome::AfterAttempts, "played no further".to_owned(), false);
            }
        };
        let sum = |wait: fn(&Planned) -> u64| attempts.iter().map(wait).fold(0, u64::saturating_add);
        Schedule {
            requests: self.ledger.attempts(),
            wait_ms: sum(|planned| planned.delay_ms),
            wait_least_ms: sum(|planned| planned.delay_least_ms),
            wait_most_ms: sum(|planned| planned.delay_most_ms),
            attempt_ms: takes_ms,
            attempts,
            outcome,
            rule,
            verdict: self.verdict.rule.clone(),
            code: self.verdict.code().as_str().to_owned(),
            complete,
        }
    }

    /// What is decided, and charged; or how the call ends.
    fn next_attempt(&mut self) -> Result<Planned, (Outcome, String)> {
        self.moment.next_target = Some(self.target + 1).filter(|next| *next < self.targets);
        let mut decision = decide(self.failure, &self.verdict, &self.ledger, &self.exact, self.moment);
        match decision.action {
            Action::Compact => {
                self.ledger.note_compaction();
                let (layer, ledger) = (Layer::Compaction, &self.ledger);
                decision = resend(layer, self.failure, &self.verdict, ledger, &self.exact, self.moment);
            }
            Action::ReadCredential => {
                self.ledger.note_refresh();
                decision = decide(self.failure, &self.verdict, &self.ledger, &self.exact, self.moment);
            }
            _ => {}
        }
        let attempt = self.ledger.attempts().saturating_add(1);
        match decision.action {
            Action::Send { layer, delay_ms, delay_source } => {
                let (delay_least_ms, delay_most_ms) = self.bounds(layer);
                self.ledger.charge(layer);
                self.moment.at = self.moment.at.saturating_add(delay_ms);
                Ok(Planned {
                    attempt,
                    layer,
                    target: self.target,
                    delay_ms,
                    delay_least_ms,
                    delay_most_ms,
                    delay_source: Some(delay_source),
                    rule: decision.rule,
                })
            }
            Action::FallBack { target, .. } => {
                self.ledger.charge(Layer::Fallback);
                self.target = target;
                Ok(Planned {
                    attempt,
                    layer: Layer::Fallback,
                    target,
                    delay_ms: 0,
                    delay_least_ms: 0,
                    delay_most_ms: 0,
                    delay_source: None,
                    rule: decision.rule,
                })
            }
            Action::Stop { outcome, .. } => Err((outcome, decision.rule)),
            Action::Compact | Action::ReadCredential => Err((Outcome::Permanent, decision.rule)),
        }
    }

    /// What the wait may be under the policy's own jitter.
    fn bounds(&self, layer: Layer) -> (u64, u64) {
        let delay_ms = self.exact.backoff(layer).delay_ms(self.ledger.used(layer));
        let hint_ms = self.verdict.wait.map_or(0, |wait| wait.delay_ms);
        let ends = self.moment.waits_end(&self.ledger, &self.exact);
        let left_ms = ends.map_or(u64::MAX, |end| end.saturating_sub(self.moment.at));
        let spread_ms = backoff::hint_spread(self.jitter, hint_ms, left_ms);
        let least = self.jitter.least(delay_ms).max(hint_ms);
        (least, delay_ms.max(hint_ms.saturating_add(spread_ms)))
    }
}
