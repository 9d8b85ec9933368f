//! A failure as a corpus, a log or a bug report holds it.
#![no_main]

use aplomb_core::failure::Observation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(observation) = serde_json::from_slice::<Observation>(bytes) {
        aplomb_fuzz::judge(observation.into_failure());
    }
});
