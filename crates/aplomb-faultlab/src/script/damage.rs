//! Faults below the events: how bytes are cut, ended and counted wrongly. Knows lines, characters and chunks,
//! and neither protocols nor what an event means.

use std::time::Duration;

use bytes::Bytes;

use super::Fault;
use super::plan::{Head, Part};

/// How many bytes a [`Fault::ShortBody`] announces and never sends.
pub(super) const MISSING: u64 = 16;

/// The pieces of a [`Fault::SplitHeaders`]: short enough to cut names, values and line ends.
const HEAD_PIECE: usize = 16;

/// Enough for two writes to arrive as two, mostly.
const APART: Duration = Duration::from_millis(5);

/// How the head is sent.
pub(super) fn head(fault: Option<&Fault>) -> Head {
    match fault {
        Some(Fault::SplitHeaders) => Head::Pieces { bytes: HEAD_PIECE, every: APART },
        Some(Fault::SlowHeaders { delay_ms }) => {
            Head::StatusLineFirst { lead: Duration::from_millis(*delay_ms) }
        }
        _ => Head::AtOnce,
    }
}

/// The event as two, each with half of the data; what is not of the data stays in both. Half of a JSON object
/// is none.
pub(super) fn halves(event: &[u8]) -> [Bytes; 2] {
    let event = String::from_utf8_lossy(event);
    [true, false].map(|first| {
        let lines = event.lines().map(|line| match line.strip_prefix("data: ") {
            Some(data) => {
                let middle = data.chars().count() / 2;
                let half: String = if first {
                    data.chars().take(middle).collect()
                } else {
                    data.chars().skip(middle).collect()
                };
                format!("data: {half}\n")
            }
            None => format!("{line}\n"),
        });
        Bytes::from(lines.collect::<String>())
    })
}

/// The event with the next one's data after its own, on the same line.
pub(super) fn glued(event: &[u8], next: &[u8]) -> Bytes {
    let (event, next) = (String::from_utf8_lossy(event), String::from_utf8_lossy(next));
    let data: String = next.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    Bytes::from(format!("{}{data}\n\n", event.trim_end_matches('\n')))
}

/// The event with `bytes` bytes in all, by spaces before the brace that ends its JSON.
pub(super) fn padded_event(event: &[u8], bytes: usize) -> Bytes {
    const END: &[u8] = b"}\n\n";
    match event.strip_suffix(END) {
        Some(start) => [start, &spaces(bytes.saturating_sub(event.len())), END].concat().into(),
        None => Bytes::copy_from_slice(event),
    }
}

/// So many spaces.
pub(super) fn spaces(count: usize) -> Bytes {
    Bytes::from(vec![b' '; count])
}

/// The chunks of a body to its end, the first of them one byte larger than its size says.
pub(super) fn chunks_with_wrong_size(pieces: &[Bytes]) -> Bytes {
    let mut chunks = Vec::new();
    let mut wrong_by = 1;
    for piece in pieces {
        chunks.extend_from_slice(format!("{:x}\r\n", piece.len().saturating_sub(wrong_by)).as_bytes());
        chunks.extend_from_slice(piece);
        chunks.extend_from_slice(b"\r\n");
        wrong_by = 0;
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    Bytes::from(chunks)
}

/// The event with other line ends. JSON writes the line breaks of its strings as `\n`, so that every byte 10
/// is the end of a line.
pub(super) fn lines_ending_with(end: &[u8], event: &[u8]) -> Bytes {
    let mut changed = Vec::with_capacity(event.len());
    for byte in event {
        match byte {
            b'\n' => changed.extend_from_slice(end),
            byte => changed.push(*byte),
        }
    }
    Bytes::from(changed)
}

/// Cuts the first character beyond ASCII in half.
pub(super) fn split_character(parts: Vec<Part>) -> Vec<Part> {
    let mut split = Vec::with_capacity(parts.len() + 2);
    let mut parts = parts.into_iter();
    for part in parts.by_ref() {
        match part {
            Part::Bytes(mut bytes) => match middle_of_character(&bytes) {
                Some(middle) => {
                    split.push(Part::Bytes(bytes.split_to(middle)));
                    split.push(Part::Pause(APART));
                    split.push(Part::Bytes(bytes));
                    break;
                }
                None => split.push(Part::Bytes(bytes)),
            },
            pause @ Part::Pause(_) => split.push(pause),
        }
    }
    split.extend(parts);
    split
}

fn middle_of_character(bytes: &[u8]) -> Option<usize> {
    let (start, character) =
        str::from_utf8(bytes).ok()?.char_indices().find(|(_, character)| !character.is_ascii())?;
    Some(start + character.len_utf8() / 2)
}

/// Cuts the body into pieces of `size` bytes with pauses between.
pub(super) fn drip(body: &[u8], size: usize, every_ms: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in body.chunks(size.max(1)) {
        if every_ms > 0 && !parts.is_empty() {
            parts.push(Part::Pause(Duration::from_millis(every_ms)));
        }
        parts.push(Part::Bytes(Bytes::copy_from_slice(piece)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_event_is_still_an_event() {
        let [first, second] = halves(b"event: x\ndata: {\"a\":1}\n\n");
        assert_eq!(
            (&first[..], &second[..]),
            (&b"event: x\ndata: {\"a\n\n"[..], &b"event: x\ndata: \":1}\n\n"[..])
        );
        let [first, second] = halves("data: \"äö\"\n\n".as_bytes());
        assert_eq!((first, second), ("data: \"ä\n\n".into(), "data: ö\"\n\n".into()));
    }

    #[test]
    fn glued_data_stands_on_the_first_events_line() {
        assert_eq!(
            glued(b"event: x\ndata: {1}\n\n", b"event: y\ndata: {2}\n\n"),
            "event: x\ndata: {1}{2}\n\n"
        );
    }

    #[test]
    fn a_padded_event_has_its_size_unless_it_is_longer() {
        assert_eq!(padded_event(b"data: {1}\n\n", 14), "data: {1   }\n\n"); // 11 bytes and 3
        assert_eq!(padded_event(b"data: {1}\n\n", 3), "data: {1}\n\n");
    }

    #[test]
    fn a_character_is_cut_in_its_middle_and_only_the_first() {
        let part = |bytes: &'static [u8]| Part::Bytes(Bytes::from_static(bytes));
        let parts = vec![part(b"a"), part("x😀é".as_bytes()), part("é".as_bytes())];
        let split = split_character(parts);
        let expected = [
            part(b"a"),
            part(b"x\xF0\x9F"),
            Part::Pause(APART),
            part(b"\x98\x80\xC3\xA9"),
            part("é".as_bytes()),
        ];
        assert_eq!(split, expected);
        assert_eq!(split_character(vec![part(b"abc")]), [part(b"abc")]);
    }

    #[test]
    fn only_the_first_chunk_has_a_wrong_size() {
        let pieces = [Bytes::from_static(b"abc"), Bytes::from_static(b"de")];
        assert_eq!(chunks_with_wrong_size(&pieces), "2\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    }
}
