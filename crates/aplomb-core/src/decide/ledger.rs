//! What one logical model call has used of what it may use.

use serde::{Deserialize, Serialize};

use super::Policy;

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
}

impl Layer {
    /// The name in events and attempts.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::First => "first",
            Layer::Transport => "transport",
            Layer::Session => "session",
            Layer::Exec => "exec",
        }
    }

    /// The rule that lets this layer pay for one more attempt.
    pub(super) fn rule(self) -> &'static str {
        match self {
            Layer::First => "ledger.first",
            Layer::Transport => "ledger.transport",
            Layer::Session => "ledger.session",
            Layer::Exec => "ledger.exec",
        }
    }
}

/// Whose turn it is. Only ever moves forward, so that delays never fall back.
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
pub struct Allowances {
    /// T = `llm.retry.max_attempts` − 1.
    pub transport: u32,
    /// S = the session's `max_retries`; 0 when it is disabled.
    pub session: u32,
    /// X = exec's `max_retries` − 1 when entered by `exec`, else 0.
    pub exec: u32,
}

impl Allowances {
    /// The allowances that a policy gives.
    pub fn of(policy: &Policy, entered_by_exec: bool) -> Allowances {
        Allowances {
            transport: policy.transport.max_attempts.saturating_sub(1),
            session: if policy.session.enabled { policy.session.max_retries } else { 0 },
            exec: if entered_by_exec { policy.exec.max_retries.saturating_sub(1) } else { 0 },
        }
    }

    /// The most attempts that a call may make: 1 + max(T + S, X).
    pub fn cap(self) -> u32 {
        self.transport.saturating_add(self.session).max(self.exec).saturating_add(1)
    }

    fn get(self, layer: Layer) -> u32 {
        match layer {
            Layer::First => 1,
            Layer::Transport => self.transport,
            Layer::Session => self.session,
            Layer::Exec => self.exec,
        }
    }
}

/// The account of one logical model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    allowances: Allowances,
    attempts: u32,
    used: Allowances,
    level: Level,
    delivered: bool,
}

impl Ledger {
    /// A call that has made no attempt yet.
    pub fn new(allowances: Allowances) -> Ledger {
        Ledger {
            allowances,
            attempts: 0,
            used: Allowances { transport: 0, session: 0, exec: 0 },
            level: Level::Transport,
            delivered: false,
        }
    }

    /// Counts an attempt, before its first byte.
    pub fn begin_attempt(&mut self) {
        self.attempts += 1;
    }

    /// Notes that some of the answer has been handed to somebody. Holds for the rest of the call.
    pub fn note_delivered(&mut self) {
        self.delivered = true;
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
        }
        let session_is_spent = self.used.session >= self.allowances.session;
        let transport_is_spent = self.used.transport >= self.allowances.transport;
        if session_is_spent && (transport_is_spent || self.level == Level::Session) {
            self.level = Level::Spent;
        }
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The most attempts that this call may make.
    pub fn cap(&self) -> u32 {
        self.allowances.cap()
    }

    /// Whose turn it is.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Whether some of the answer has been handed to somebody.
    pub fn delivered(&self) -> bool {
        self.delivered
    }

    /// What a layer has used.
    pub fn used(&self, layer: Layer) -> u32 {
        self.used.get(layer)
    }

    /// What a layer has left.
    pub fn left(&self, layer: Layer) -> u32 {
        self.allowances.get(layer).saturating_sub(self.used.get(layer))
    }

    /// True where exec is the only layer with an allowance at all.
    pub fn is_exec_only(&self) -> bool {
        self.allowances.transport == 0 && self.allowances.session == 0
    }
}
