//! Mishaps by lot: which request has one, and which. Pure arithmetic on a seed, so that the same seed is the same
//! misfortune, on every machine and in every version.

use serde::{Deserialize, Serialize};

use super::{Fault, Reply};

/// Mishaps that befall requests at random, and yet the same ones every time.
///
/// Whether a request has one, and which, follows from the seed, the request's run (see
/// [`Script::run_header`](super::Script::run_header)) and its number among the run's requests, and from nothing
/// else: neither from the clock nor from what other runs do. Requests that the protocol refuses are not counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Random {
    /// Any number; another one is another lot.
    pub seed: u64,
    /// The share of requests that have a mishap, from 0 to 1.
    pub rate: f64,
    /// What may happen; one at least.
    pub faults: Vec<Mishap>,
}

/// Something that may happen: a reply in place of the step's, which leaves the step for the next request; or a
/// fault of the step's reply, in place of its own; or a reply with a fault of its own.
///
/// A fault alone that does not fit the step's reply (such as half of a tool call's arguments where none is
/// called) leaves the step as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mishap {
    /// How often this happens, relative to the others; at least 1, which it is if not given.
    #[serde(default = "even")]
    pub weight: u32,
    /// What is answered in place of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// What goes wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

fn even() -> u32 {
    1
}

/// 2 to the power of 53: as many values as a double has in equal steps from 0 to 1.
const STEPS: f64 = 9_007_199_254_740_992.0;

impl Random {
    /// What befalls the `number`-th request of this run, with its place in [`Random::faults`].
    pub(super) fn draw(&self, run: &str, number: u64) -> Option<(usize, &Mishap)> {
        let mut state = mix(self.seed);
        for byte in run.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        let whether = mix(state ^ number);
        // The upper 53 bits, which a double holds exactly.
        if (whether >> 11) as f64 / STEPS >= self.rate {
            return None;
        }
        let weights = || self.faults.iter().map(|mishap| u64::from(mishap.weight));
        let mut which = mix(whether).checked_rem(weights().sum())?;
        for (index, mishap) in self.faults.iter().enumerate() {
            match which.checked_sub(u64::from(mishap.weight)) {
                Some(rest) => which = rest,
                None => return Some((index, mishap)),
            }
        }
        None
    }
}

/// The step and the output of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014), with the constants of its public-domain reference <https://prng.di.unimi.it/splitmix64.c>.
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn random(seed: u64, rate: f64, weights: &[u32]) -> Random {
        let mishap = |weight: &u32| Mishap { weight: *weight, reply: None, fault: Some(Fault::Silence) };
        Random { seed, rate, faults: weights.iter().map(mishap).collect() }
    }

    fn drawn(random: &Random, run: &str, requests: u64) -> Vec<Option<usize>> {
        (0..requests).map(|number| random.draw(run, number).map(|(index, _)| index)).collect()
    }

    /// The first outputs of the reference for the seed 0. Each step adds the constant to the state first.
    #[test]
    fn the_mixing_is_splitmix64() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    proptest! {
        #[test]
        fn the_same_seed_is_the_same_lot(seed: u64, run: String, rate in 0.0..=1.0, weights in prop::collection::vec(1..9u32, 1..5)) {
            let random = random(seed, rate, &weights);
            prop_assert_eq!(drawn(&random, &run, 50), drawn(&random.clone(), &run, 50));
        }

        /// For 4000 requests a standard deviation is sqrt(0.25 / 4000) = 0.008 at most; 0.05 are six of them.
        #[test]
        fn the_rate_is_the_share(seed: u64, rate in 0.0..=1.0) {
            let hit = drawn(&random(seed, rate, &[1]), "run", 4_000).iter().flatten().count();
            prop_assert!((hit as f64 / 4_000.0 - rate).abs() < 0.05, "{hit} of 4000 at {rate}");
        }

        #[test]
        fn a_rate_of_0_is_never_and_of_1_always(seed: u64, run: String) {
            prop_assert!(drawn(&random(seed, 0.0, &[1]), &run, 50).iter().all(Option::is_none));
            prop_assert!(drawn(&random(seed, 1.0, &[1, 2]), &run, 50).iter().all(Option::is_some));
        }
    }

    /// 3 to 1: 3000 of 4000, give or take five standard deviations, 5 * sqrt(4000 * 3/16) = 137.
    #[test]
    fn weights_are_shares() {
        let often =
            drawn(&random(7, 1.0, &[3, 1]), "run", 4_000).iter().filter(|index| **index == Some(0)).count();
        assert!((2_863..=3_137).contains(&often), "{often}");
    }

    #[test]
    fn another_seed_or_run_is_another_lot() {
        let lot = |seed, run| drawn(&random(seed, 0.5, &[1]), run, 64);
        assert_ne!(lot(1, "a"), lot(2, "a"));
        assert_ne!(lot(1, "a"), lot(1, "b"));
    }
}
