//! Delays as arithmetic. No number overflows, however large the settings.

use super::Jitter;

/// An exponential back-off with a ceiling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first delay, in ms.
    pub initial_ms: u64,
    /// What each delay is multiplied by to give the next.
    pub multiplier: f64,
    /// The longest delay, in ms.
    pub max_ms: u64,
}

impl Backoff {
    /// The delay before the retry with that index, counted from 0: initial × multiplier^index, at most the maximum.
    pub fn delay_ms(self, index: u32) -> u64 {
        let exponent = i32::try_from(index).unwrap_or(i32::MAX);
        let delay = self.initial_ms as f64 * self.multiplier.powi(exponent);
        // A cast from a double saturates, and NaN (0 × ∞) becomes 0.
        (delay as u64).min(self.max_ms)
    }
}

/// A number from 0 to `max`, both included, that follows `entropy` uniformly.
pub(super) fn uniform(entropy: u64, max: u64) -> u64 {
    let range = u128::from(max) + 1;
    ((u128::from(entropy) * range) >> 64) as u64
}

/// The most that is added to a hint, to keep many callers that got the same one apart. It only ever adds, and it leaves
/// time to send before the deadline.
pub(super) fn hint_spread(jitter: Jitter, hint_ms: u64, left_ms: u64) -> u64 {
    match jitter {
        Jitter::None => 0,
        _ => (hint_ms / 10).min(1_000).min(left_ms.saturating_sub(hint_ms.saturating_add(1))),
    }
}

/// Two draws that do not depend on each other, out of one (SplitMix64's finaliser; Steele, Lea and Flood, 2014).
pub(super) fn two_draws(entropy: u64) -> (u64, u64) {
    let mut mixed = entropy.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (entropy, mixed ^ (mixed >> 31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_ceiling_and_never_overflow() {
        let transport = Backoff { initial_ms: 500, multiplier: 2.0, max_ms: 5_000 };
        assert_eq!([0, 1, 2, 3, 4].map(|index| transport.delay_ms(index)), [500, 1_000, 2_000, 4_000, 5_000]);
        let absurd = Backoff { initial_ms: u64::MAX, multiplier: f64::MAX, max_ms: u64::MAX };
        assert_eq!(absurd.delay_ms(u32::MAX), u64::MAX);
        let zero = Backoff { initial_ms: 0, multiplier: f64::MAX, max_ms: 5_000 };
        assert_eq!(zero.delay_ms(u32::MAX), 0);
    }

    #[test]
    fn a_uniform_draw_reaches_both_ends() {
        assert_eq!((uniform(0, 1_000), uniform(u64::MAX, 1_000)), (0, 1_000));
        assert_eq!(uniform(u64::MAX, u64::MAX), u64::MAX);
    }
}
