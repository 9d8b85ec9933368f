//! A response as it is pasted: its headers and its body may state a wait in any form.
#![no_main]

use aplomb_core::failure::Observation;
use libfuzzer_sys::fuzz_target;

/// Wed, 21 Oct 2015 07:28:00 GMT.
const NOW: u64 = 1_445_412_480_000;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Some(observation) = Observation::from_http(&text) else { return };
    let mut failure = observation.into_failure();
    for received_at_ms in [None, Some(0), Some(NOW), Some(u64::MAX)] {
        failure.received_at_ms = received_at_ms;
        aplomb_fuzz::judge(failure.clone());
    }
});
