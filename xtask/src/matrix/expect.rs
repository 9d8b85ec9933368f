//! What the contract says should come of a fault.

use std::fmt;

use aplomb::failure::Reason;

/// What a fault does to one attempt, in the terms of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: the answer arrives whole.
    None,
    /// It fails before anybody was handed a word; the same request may pass later.
    Transient(Reason),
    /// It fails after words had been handed over; the same request may pass later.
    TransientAfterWords(Reason),
    /// It fails, and the same request would fail again.
    Permanent(Reason),
    /// It fails, and is to be sent again later than anybody waits here.
    WaitTooLong(Reason),
    /// It fails, and nobody knows why.
    Unknown,
    /// The answer is whole, but what it asks for cannot be done.
    CallRefused,
}

/// How a run ends, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With the good answer.
    Answered,
    /// With a failure.
    Failed {
        /// Why.
        reason: Reason,
        /// What its code says about the same request.
        retryable: bool,
        /// Whether the error calls it permanent.
        permanently: bool,
    },
}

/// What is expected of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    effect: Effect,
    /// Where the fault lasts: the end and the requests.
    pub(crate) lasting: (End, usize),
    /// Where it happens once.
    pub(crate) once: (End, usize),
    /// How often a watcher is told to begin anew: where it lasts, and where it happens once.
    pub(crate) restarts: (usize, usize),
}

/// `llm.retry.max_attempts` − 1.
const TRANSPORT: usize = 2;
/// `agent.retry.session.max_retries`.
const SESSION: usize = 3;

impl Expected {
    /// By `docs/spec/retry.md` §5, steps 3 to 7, with the defaults.
    pub(crate) fn of(effect: Effect) -> Expected {
        let failed = |reason, retryable, permanently| End::Failed { reason, retryable, permanently };
        let (lasting, once, restarts) = match effect {
            Effect::None => ((End::Answered, 1), (End::Answered, 1), (0, 0)),
            Effect::Transient(reason) => {
                ((failed(reason, true, false), 1 + TRANSPORT + SESSION), (End::Answered, 2), (0, 0))
            }
            Effect::TransientAfterWords(reason) => {
                ((failed(reason, true, false), 1 + SESSION), (End::Answered, 2), (SESSION, 1))
            }
            Effect::Permanent(reason) => {
                ((failed(reason, false, true), 1), (failed(reason, false, true), 1), (0, 0))
            }
            // Step 6: reported, and not slept.
            Effect::WaitTooLong(reason) => {
                ((failed(reason, true, false), 1), (failed(reason, true, false), 1), (0, 0))
            }
            Effect::Unknown => {
                let end = failed(Reason::Unknown, false, false);
                ((end, 1), (end, 1), (0, 0))
            }
            // The model is told, and is asked again: another step, not another attempt.
            Effect::CallRefused => ((End::Answered, 2), (End::Answered, 2), (0, 0)),
        };
        Expected { effect, lasting, once, restarts }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.effect {
            Effect::None => f.write_str("good"),
            Effect::Transient(reason) | Effect::TransientAfterWords(reason) | Effect::WaitTooLong(reason) => {
                write!(f, "`{reason}` × {}", self.lasting.1)
            }
            Effect::Permanent(reason) => write!(f, "`{reason}` permanent"),
            Effect::Unknown => write!(f, "`{}` × {}", Reason::Unknown, self.lasting.1),
            Effect::CallRefused => f.write_str("told to the model"),
        }
    }
}
