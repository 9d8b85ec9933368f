//! What an attempt that failed used all the same. What the provider says counts; the rest is an estimate, and says so.

use aplomb_core::failure::{Anomaly, Failure, Phase, TransportKind};
use aplomb_core::message::TokenUsage;

/// What a failed attempt used, where it used anything: `said` by the provider, or estimated from the bytes that were sent
/// and those of the answer that arrived. `connected` says that there was a connection for certain.
///
/// Some providers say at an answer's beginning what its input is, and then break off: what arrived since is added.
pub(crate) fn of_failed(
    failure: &Failure,
    said: Option<TokenUsage>,
    sent: u64,
    arrived: u64,
    connected: bool,
) -> Option<TokenUsage> {
    let estimate = TokenUsage::estimate(sent, arrived);
    match said {
        Some(said) if said.output >= estimate.output || !broke_off(failure) => Some(said),
        Some(mut said) => {
            (said.output, said.estimated) = (estimate.output, true);
            Some(said)
        }
        None => had_begun(failure, arrived, connected).then_some(estimate),
    }
}

/// Whether the provider had taken up the work: an answer had begun, or was awaited until a clock of ours ran out. A request
/// that is refused, or that never arrives, uses nothing; of one that may have got stuck on its way nothing is claimed.
fn had_begun(failure: &Failure, arrived: u64, connected: bool) -> bool {
    let clock = failure.transport.as_ref().map(|fault| fault.kind);
    let waited_for = matches!(
        clock,
        Some(TransportKind::FirstByteTimeout | TransportKind::IdleTimeout | TransportKind::AttemptTimeout)
    );
    // An error or a web page in the place of an answer is no work of a model.
    let is_no_answer = matches!(
        failure.anomaly,
        Some(Anomaly::Error | Anomaly::MalformedBody | Anomaly::MalformedEvent | Anomaly::TooLarge)
    );
    let began = match failure.phase {
        Phase::MidStream => arrived > 0 || !is_no_answer,
        // However much of such a body there is.
        Phase::Body => !matches!(failure.anomaly, Some(Anomaly::Error | Anomaly::MalformedBody)),
        _ => false,
    };
    began || (waited_for && connected)
}

/// Whether the answer came to no end of its own, so that its last count may be an early one.
fn broke_off(failure: &Failure) -> bool {
    let ended = matches!(
        failure.anomaly,
        Some(
            Anomaly::Empty
                | Anomaly::EmptyAtTokenLimit
                | Anomaly::Filtered
                | Anomaly::Refused
                | Anomaly::UnknownEnd
        )
    );
    !ended
}
