//! However the network cuts the bytes of a stream, on every wire the events are the same, and a beginning is no answer.

use aplomb_core::failure::Failure;
use aplomb_core::message::{Delta, Reply, StreamEvent};
use aplomb_llm::wire::{Quirks, Wire};
use proptest::prelude::*;

use crate::{anthropic, gemini, openai_chat, openai_responses};

/// What a decoder makes of a stream.
pub(crate) fn streamed<'a>(
    wire: Wire,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<StreamEvent>, Reply), Box<Failure>> {
    let mut decoder = wire.decoder(Quirks::default());
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk, &mut events)?;
    }
    decoder.finish().map(|reply| (events, reply))
}

/// A stream of each wire, with everything that an answer can have, in the shape that its provider's documentation shows.
fn recorded() -> [(Wire, Vec<u8>); 4] {
    [
        (Wire::OpenaiChat, openai_chat::everything()),
        (Wire::OpenaiResponses, openai_responses::everything()),
        (Wire::Anthropic, anthropic::everything()),
        (Wire::Gemini, gemini::everything()),
    ]
    .map(|(wire, parts)| (wire, parts.concat().into_bytes()))
}

fn deltas(events: &[StreamEvent]) -> Vec<&Delta> {
    let deltas = events.iter().filter_map(|event| match event {
        StreamEvent::Delta(delta) => Some(delta),
        _ => None,
    });
    deltas.collect()
}

#[test]
fn every_split_into_two_gives_the_same_events() {
    for (wire, bytes) in recorded() {
        let whole = streamed(wire, [&bytes[..]]).unwrap();
        for at in 0..=bytes.len() {
            let split = streamed(wire, [&bytes[..at], &bytes[at..]]).unwrap();
            assert_eq!((deltas(&split.0), &split.1), (deltas(&whole.0), &whole.1), "{wire:?}, {at}");
        }
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_events(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        for (wire, bytes) in recorded() {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            let (split, whole) = (streamed(wire, chunks).unwrap(), streamed(wire, [&bytes[..]]).unwrap());
            prop_assert_eq!((deltas(&split.0), &split.1), (deltas(&whole.0), &whole.1));
        }
    }
}
