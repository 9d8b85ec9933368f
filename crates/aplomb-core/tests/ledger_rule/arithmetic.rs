//! The page's arithmetic: allowances, caps, delays.

use std::ops::RangeInclusive;

use aplomb_core::decide::{Jitter, Layer, Policy};

/// T, S and X.
pub(crate) fn allowances(policy: &Policy, by_exec: bool) -> (u32, u32, u32) {
    let session = if policy.session.enabled { policy.session.max_retries } else { 0 };
    let exec = if by_exec { policy.exec.max_retries - 1 } else { 0 };
    (policy.transport.max_attempts - 1, session, exec)
}

/// "Cap = 1 + max(T + S, X) attempts."
pub(crate) fn cap(policy: &Policy, by_exec: bool) -> u32 {
    let (t, s, x) = allowances(policy, by_exec);
    1 + (t + s).max(x)
}

/// The delay of a layer that has paid `used` times, before jitter. A range, since the page does not say how a
/// fraction of a millisecond is rounded.
pub(crate) fn layer_delay(policy: &Policy, layer: Layer, used: u32) -> RangeInclusive<u64> {
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

pub(crate) fn jittered(jitter: Jitter, delay: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let (low, high) = delay.into_inner();
    match jitter {
        Jitter::None => low..=high,
        Jitter::Full => 0..=high,
        Jitter::Equal => low / 2..=high,
    }
}

/// The most that is added to a hint at random: "U(0, min(hint/10, 1 s))".
pub(crate) fn addition(hint: Option<u64>) -> u64 {
    hint.map_or(0, |hint| (hint / 10).min(1_000))
}

/// "The wait = max(the layer's delay with jitter, hint + U(0, min(hint/10, 1 s)))": its range, first without
/// the random addition to the hint, then with it.
pub(crate) fn wait(policy: &Policy, layer: Layer, used: u32, hint: Option<u64>) -> [RangeInclusive<u64>; 2] {
    let (low, high) = jittered(policy.transport.jitter, layer_delay(policy, layer, used)).into_inner();
    let floor = hint.unwrap_or(0);
    [low.max(floor)..=high.max(floor), low.max(floor)..=high.max(floor.saturating_add(addition(hint)))]
}
