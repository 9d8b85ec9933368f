//! The most that one call may cost, whatever fails.

use serde::{Deserialize, Serialize};

use super::Setting;
use crate::decide::{Allowances, Backoff, Jitter, Layer, Mode, Policy};

/// The most that one call may cost: `docs/spec/retry.md` §5, (1 + T) × targets + S + compactions × (2 + T) + 1 refresh +
/// resumes.
///
/// The page's sum leaves out that exec may have more than transport and session together, which its cap counts: then
/// exec's is in the place of theirs. In `layered` mode the product of the layers is in the place of the first target's sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorstCase {
    /// Requests.
    pub requests: u64,
    /// What is waited between them, in ms, where no provider asks for more.
    pub wait_ms: u64,
    /// What is waited between them, in ms, where a provider asks for as much as is slept each time.
    pub wait_hinted_ms: u64,
    /// What it is made up of.
    pub shares: Vec<Share>,
}

/// A part of the worst case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Share {
    /// What it is for.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Waits, in ms.
    pub wait_ms: u64,
}

pub(super) fn worst_case(policy: &Policy, by_exec: bool, setting: Setting) -> WorstCase {
    let allowances = Allowances::of(policy, by_exec);
    let Allowances { transport, session, exec, compactions, .. } = allowances;
    let waits = |layer, count| sum(policy.backoff(layer), count);
    let per_target = 1 + u64::from(transport);
    let transport_ms = waits(Layer::Transport, transport);
    let share = |name: &str, requests: u64, wait_ms: u64| Share { name: name.to_owned(), requests, wait_ms };
    let others = u64::try_from(setting.targets.saturating_sub(1)).unwrap_or(u64::MAX);
    let mut shares = vec![share("first", 1, 0)];
    match policy.mode {
        Mode::Additive => {
            let (beyond, beyond_ms) =
                (u64::from(transport) + u64::from(session), waits(Layer::Session, session));
            shares.push(share("transport", u64::from(transport), transport_ms));
            shares.push(share("session", u64::from(session), beyond_ms));
            // Exec's attempts come among the others, for what nobody knows, and the cap is what bounds them all: at
            // worst the longest waits of every layer are the ones that are slept.
            let more = u64::from(exec).saturating_sub(beyond);
            let longest_ms =
                longest(policy, allowances).saturating_sub(transport_ms.saturating_add(beyond_ms));
            shares.push(share("exec", more, longest_ms));
        }
        Mode::Layered => {
            let (sessions, execs) = (1 + u64::from(session), 1 + u64::from(exec));
            let product = u64::from(allowances.cap());
            let wait_ms = transport_ms
                .saturating_mul(sessions)
                .saturating_mul(execs)
                .saturating_add(waits(Layer::Session, session).saturating_mul(execs))
                .saturating_add(waits(Layer::Exec, exec));
            shares.push(share("layers", product.saturating_sub(1), wait_ms));
        }
    }
    shares.push(share("fallbacks", per_target.saturating_mul(others), transport_ms.saturating_mul(others)));
    let compactions = u64::from(compactions);
    // One more request, and the call that makes the summary.
    let of_compactions = compactions.saturating_mul(1 + per_target);
    shares.push(share("compactions", of_compactions, transport_ms.saturating_mul(compactions)));
    shares.push(share("refresh", 1, 0));
    let resumes_ms = sum(policy.resume.backoff(), setting.resumes);
    shares.push(share("resumes", u64::from(setting.resumes), resumes_ms));

    let total = |part: fn(&Share) -> u64| shares.iter().map(part).fold(0, u64::saturating_add);
    let (requests, wait_ms) = (total(|share| share.requests), total(|share| share.wait_ms));
    let added_ms = match policy.transport.jitter {
        Jitter::None => 0,
        _ => (policy.max_inline_wait_ms / 10).min(1_000),
    };
    let longest_ms = policy.max_inline_wait_ms.saturating_add(added_ms);
    // Before every request but the first, and those that go to another target at once.
    let hinted = requests.saturating_sub(1).saturating_sub(others).saturating_mul(longest_ms);
    let within = |ms: u64| ms.min(setting.deadline_ms.unwrap_or(u64::MAX));
    WorstCase { requests, wait_ms: within(wait_ms), wait_hinted_ms: within(hinted.max(wait_ms)), shares }
}

/// The first `count` delays of a back-off.
fn sum(backoff: Backoff, count: u32) -> u64 {
    (0..count).map(|index| backoff.delay_ms(index)).fold(0, u64::saturating_add)
}

/// The longest waits of all layers, as many as the cap lets there be.
fn longest(policy: &Policy, allowances: Allowances) -> u64 {
    let Allowances { transport, session, exec, .. } = allowances;
    let layers = [(Layer::Transport, transport), (Layer::Session, session), (Layer::Exec, exec)];
    let delays = |(layer, count)| (0..count).map(move |index| policy.backoff(layer).delay_ms(index));
    let mut delays: Vec<u64> = layers.into_iter().flat_map(delays).collect();
    delays.sort_unstable_by_key(|delay| std::cmp::Reverse(*delay));
    let count = usize::try_from(allowances.cap()).unwrap_or(usize::MAX).saturating_sub(1);
    delays.into_iter().take(count).fold(0, u64::saturating_add)
}
