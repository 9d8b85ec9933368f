//! What one logical model call has used of what it may use.

use serde::{Deserialize, Serialize};

use super::{Mode, Policy};

/// Who pays for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// The first attempt, which nobody's allowance pays for.
    First,
    /// `llm.retry`.
    Transport,
    /// `agent.retry.session`.
    Session,
    /// `agent.retry.exec`.
    Exec,
    /// `agent.retry.max_compactions`: the request is smaller now.
    Compaction,
    /// The credential is another one now.
    Refresh,
    /// `llm.fallbacks`: it goes to another model.
    Fallback,
}

impl Layer {
    /// The name in events and attempts.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::First => "first",
            Layer::Transport => "transport",
            Layer::Session => "session",
            Layer::Exec => "exec",
            Layer::Compaction => "compaction",
            Layer::Refresh => "refresh",
            Layer::Fallback => "fallback",
        }
    }

    /// The rule that lets this layer pay for one more attempt.
    pub(super) fn rule(self) -> &'static str {
        match self {
            Layer::First => "ledger.first",
            Layer::Transport => "ledger.transport",
            Layer::Session => "ledger.session",
            Layer::Exec => "ledger.exec",
            Layer::Compaction => "overflow.compacted",
            Layer::Refresh => "auth.credential_changed",
            Layer::Fallback => "fallback",
        }
    }
}

/// Whose turn it is. With one target it only ever moves forward, so that delays never fall back; another target begins
/// anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Transport pays.
    Transport,
    /// The session pays; what transport had left is forfeit.
    Session,
    /// Neither has anything left.
    Spent,
}

/// How many attempts each layer may add to the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Allowances {
    /// T = `llm.retry.max_attempts` − 1.
    pub transport: u32,
    /// S = the session's `max_retries`; 0 when it is disabled.
    pub session: u32,
    /// X = exec's `max_retries` − 1 when entered by `exec`, else 0.
    pub exec: u32,
    /// `max_compactions`.
    #[serde(default)]
    pub compactions: u32,
    /// Whether they add or multiply.
    #[serde(default)]
    pub mode: Mode,
}

impl Allowances {
    /// The allowances that a policy gives.
    pub fn of(policy: &Policy, entered_by_exec: bool) -> Allowances {
        Allowances {
            transport: policy.transport.max_attempts.saturating_sub(1),
            session: if policy.session.enabled { policy.session.max_retries } else { 0 },
            exec: if entered_by_exec { policy.exec.max_retries.saturating_sub(1) } else { 0 },
            compactions: policy.max_compactions,
            mode: policy.mode,
        }
    }

    /// The most attempts of a call that is neither compacted nor given another credential or target:
    /// 1 + max(T + S, X), or (1 + T) × (1 + S) × (1 + X) where they multiply.
    pub fn cap(self) -> u32 {
        let Allowances { transport, session, exec, .. } = self;
        match self.mode {
            Mode::Additive => transport.saturating_add(session).max(exec).saturating_add(1),
            Mode::Layered => {
                [session, exec].into_iter().fold(transport.saturating_add(1), |product, layer| {
                    product.saturating_mul(layer.saturating_add(1))
                })
            }
        }
    }
}

/// What was used of the allowances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    transport: u32,
    session: u32,
    exec: u32,
    compactions: u32,
    refreshes: u32,
}

/// The account of one logical model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    allowances: Allowances,
    attempts: u32,
    used: Used,
    /// What compaction, a changed credential and fallbacks have added to the cap.
    added: u32,
    level: Level,
    delivered: bool,
    opened_at: u64,
    /// What is left of the step's time, where it has a limit.
    step_left_ms: Option<u64>,
}

impl Ledger {
    /// A call that has made no attempt yet.
    pub fn new(allowances: Allowances) -> Ledger {
        Ledger {
            allowances,
            attempts: 0,
            used: Used::default(),
            added: 0,
            level: Level::Transport,
            delivered: false,
            opened_at: 0,
            step_left_ms: None,
        }
    }

    /// The same, opened at that time of the run's clock, in ms, and with that much time for its attempts.
    #[must_use]
    pub fn opened(self, at: u64, step_timeout_ms: Option<u64>) -> Ledger {
        Ledger { opened_at: at, step_left_ms: step_timeout_ms, ..self }
    }

    /// Counts an attempt, before its first byte.
    pub fn begin_attempt(&mut self) {
        self.attempts += 1;
    }

    /// Takes back the attempt that was counted last, and what was charged to `layer` added to the cap: it was not made.
    pub fn take_back(&mut self, layer: Layer) {
        self.attempts = self.attempts.saturating_sub(1);
        let added = match layer {
            Layer::Compaction | Layer::Refresh => 1,
            Layer::Fallback => self.allowances.transport.saturating_add(1),
            Layer::First | Layer::Transport | Layer::Session | Layer::Exec => 0,
        };
        self.added = self.added.saturating_sub(added);
    }

    /// Takes an attempt's time from the step's. Waits that were ordered take nothing from it.
    pub fn spend_time(&mut self, elapsed_ms: u64) {
        self.step_left_ms = self.step_left_ms.map(|left| left.saturating_sub(elapsed_ms));
    }

    /// Notes that some of the answer has been handed to somebody. Holds for the rest of the call.
    pub fn note_delivered(&mut self) {
        self.delivered = true;
    }

    /// Notes that the conversation was looked through for what can be left out.
    pub fn note_compaction(&mut self) {
        self.used.compactions += 1;
    }

    /// Notes that nothing can be left out: looking again would find nothing.
    pub fn forfeit_compactions(&mut self) {
        self.used.compactions = self.used.compactions.max(self.allowances.compactions);
    }

    /// Notes that the credential was read again.
    pub fn note_refresh(&mut self) {
        self.used.refreshes += 1;
    }

    /// Charges a layer for the next attempt.
    pub fn charge(&mut self, layer: Layer) {
        match layer {
            Layer::First => {}
            Layer::Transport => self.used.transport += 1,
            Layer::Session => {
                self.used.session += 1;
                self.level = Level::Session;
            }
            Layer::Exec => self.used.exec += 1,
            Layer::Compaction | Layer::Refresh => self.added = self.added.saturating_add(1),
            Layer::Fallback => {
                self.used.transport = 0;
                self.level = Level::Transport;
                self.added = self.added.saturating_add(1).saturating_add(self.allowances.transport);
            }
        }
        match self.allowances.mode {
            Mode::Additive => self.note_spent(),
            Mode::Layered => self.turn_over(layer),
        }
    }

    fn note_spent(&mut self) {
        let session_is_spent = self.used.session >= self.allowances.session;
        let transport_is_spent = self.used.transport >= self.allowances.transport;
        if session_is_spent && (transport_is_spent || self.level == Level::Session) {
            self.level = Level::Spent;
        }
    }

    /// An odometer: a step of one layer resets the counters below it. There is no level, since every layer's turn comes
    /// again.
    fn turn_over(&mut self, layer: Layer) {
        self.level = Level::Transport;
        if matches!(layer, Layer::Session | Layer::Exec) {
            self.used.transport = 0;
        }
        if layer == Layer::Exec {
            self.used.session = 0;
        }
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The most attempts that this call may make, as it stands.
    pub fn cap(&self) -> u32 {
        self.allowances.cap().saturating_add(self.added)
    }

    /// Whose turn it is.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Whether some of the answer has been handed to somebody.
    pub fn delivered(&self) -> bool {
        self.delivered
    }

    /// When the call began, on the run's clock.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// What is left of the step's time, where it has a limit.
    pub fn step_left_ms(&self) -> Option<u64> {
        self.step_left_ms
    }

    /// What a layer has used. Fallbacks are as many as there are targets: they are not counted here.
    pub fn used(&self, layer: Layer) -> u32 {
        match layer {
            Layer::First | Layer::Fallback => 0,
            Layer::Transport => self.used.transport,
            Layer::Session => self.used.session,
            Layer::Exec => self.used.exec,
            Layer::Compaction => self.used.compactions,
            Layer::Refresh => self.used.refreshes,
        }
    }

    /// What a layer has left.
    pub fn left(&self, layer: Layer) -> u32 {
        let allowed = match layer {
            Layer::First | Layer::Fallback => 0,
            Layer::Transport => self.allowances.transport,
            Layer::Session => self.allowances.session,
            Layer::Exec => self.allowances.exec,
            Layer::Compaction => self.allowances.compactions,
            Layer::Refresh => 1,
        };
        allowed.saturating_sub(self.used(layer))
    }

    /// True where exec is the only layer with an allowance at all.
    pub fn is_exec_only(&self) -> bool {
        self.allowances.transport == 0 && self.allowances.session == 0
    }
}
