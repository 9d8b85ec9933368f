//! A stream of events, split in any way.
#![no_main]

use aplomb_llm::sse::{Decoder, Event};
use libfuzzer_sys::fuzz_target;

fn events<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut decoder = Decoder::default();
    chunks.flat_map(|chunk| decoder.push(chunk).0).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let at_once = events([bytes].into_iter());
    assert_eq!(at_once, events(bytes.chunks(1)));
    assert_eq!(at_once, events(bytes.chunks(7)));
});
