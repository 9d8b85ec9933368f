//! What a rule is, and what it looks at.

use crate::failure::said::Said;
use crate::failure::{Anomaly, Failure, Phase, Reason, TransportKind};

/// One rule's view of a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Opinion {
    pub(super) reason: Reason,
    pub(super) retryable: bool,
}

impl Opinion {
    /// The same request may pass later.
    pub(super) const fn retry(reason: Reason) -> Opinion {
        Opinion { reason, retryable: true }
    }

    /// The same request would fail the same way.
    pub(super) const fn forbid(reason: Reason) -> Opinion {
        Opinion { reason, retryable: false }
    }
}

/// A rule: what it knows, and where from.
pub(super) struct Rule {
    /// Stable for ever.
    pub(super) id: &'static str,
    /// One sentence for people.
    pub(super) why: &'static str,
    pub(super) test: Test,
}

/// How a rule finds its opinion.
pub(super) enum Test {
    /// By looking at fields.
    Look(fn(&Seen<'_>) -> Option<Opinion>),
    /// By the provider's names for its errors: codes, types, gRPC statuses, reasons; upper and lower case are the same.
    Names { at: fn(&Seen<'_>) -> bool, names: &'static [&'static str], then: Opinion },
    /// By what the messages say. Comes last, since prose is for people and changes without notice.
    ///
    /// A phrase is a list of fragments that must all be there. `\n` stands for the beginning of a message.
    Wording { at: fn(&Seen<'_>) -> bool, any: &'static [&'static [&'static str]], then: Opinion },
}

/// What the rules look at: a failure, what its texts say, and which known phrases are in them.
pub(super) struct Seen<'a> {
    pub(super) failure: &'a Failure,
    pub(super) said: Said,
    /// A status that a message quotes.
    pub(super) quoted_status: Option<u16>,
    /// Whether the HTTP client's own text speaks of the network.
    pub(super) speaks_of_network: bool,
    /// The fragments of known phrases that were found.
    pub(super) found: Found,
}

/// A bit for each known fragment.
pub(super) type Found = [u64; 12];

impl Seen<'_> {
    /// The response's status, where it says that the request failed.
    pub(super) fn status(&self) -> Option<u16> {
        (self.failure.phase == Phase::Response).then_some(self.failure.status).flatten()
    }

    /// The status says something about this request, and not that a server had a problem.
    pub(super) fn is_client_error(&self) -> bool {
        self.status().is_some_and(|status| {
            (400..500).contains(&status) && !matches!(status, 408 | 409 | 425 | 429 | 499)
        })
    }

    /// The status was good, but an error came all the same.
    pub(super) fn is_error_inside(&self) -> bool {
        self.failure.anomaly == Some(Anomaly::Error)
    }

    /// The status does not say what it is: there is none that does, or it is a gateway's for whatever went wrong
    /// behind it.
    pub(super) fn is_wrapped(&self) -> bool {
        self.status().is_none_or(|status| status >= 500)
    }

    /// True if the messages hold one of these words, in lower case.
    pub(super) fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.said.prose.contains(word))
    }

    /// Only the text of the HTTP client tells what happened, and it speaks of the network. An SDK's exception that
    /// repeats what the provider said is as good as the provider's message.
    pub(super) fn is_client_text(&self) -> bool {
        self.speaks_of_network && self.quoted_status.is_none()
    }

    /// All there is was raised by the HTTP client, or by an SDK.
    pub(super) fn is_exception(&self) -> bool {
        self.failure.transport.as_ref().is_some_and(|fault| fault.kind == TransportKind::Other)
    }
}

/// For gates: at any status.
pub(super) fn anywhere(_: &Seen<'_>) -> bool {
    true
}
