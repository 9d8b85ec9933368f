//! Decodes `text/event-stream`. Knows bytes and lines, not what the events mean.
//!
//! Source: WHATWG HTML, "Server-sent events", §9.2.5 "Parsing an event stream" and §9.2.6 "Interpreting an event
//! stream". Limits are ours.

/// The most bytes of one event. A model's largest event is some tens of kilobytes.
pub const EVENT_LIMIT: usize = 8 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its type; `message` where the stream names none.
    pub kind: String,
    /// Its data, lines joined by line feeds.
    pub data: String,
}

/// An event was larger than [`EVENT_LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

/// Turns bytes, however they are split, into events.
///
/// ```
/// use aplomb_llm::sse::Decoder;
///
/// let mut decoder = Decoder::default();
/// let (mut events, _) = decoder.push(b"data: he");
/// events.extend(decoder.push(b"llo\r\n\r").0);
/// events.extend(decoder.push(b"\n: a comment\n\n").0);
/// assert_eq!(events.len(), 1);
/// assert_eq!(events[0].data, "hello");
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    kind: String,
    data: Option<String>,
    /// The last byte was CR: a LF that follows belongs to it.
    after_cr: bool,
    began: bool,
}

impl Decoder {
    /// Takes the next bytes and gives the events that they complete, and whether what follows is larger than
    /// [`EVENT_LIMIT`]. After that the stream is not worth reading on.
    pub fn push(&mut self, mut bytes: &[u8]) -> (Vec<Event>, Option<TooLarge>) {
        let mut events = Vec::new();
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, tail) = bytes.split_at(end);
            if self.line.is_empty() {
                events.extend(self.take_line(head));
            } else {
                self.line.extend_from_slice(head);
                let line = std::mem::take(&mut self.line);
                events.extend(self.take_line(&line));
            }
            bytes = match tail {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
            if self.is_too_large() {
                return (events, Some(TooLarge));
            }
        }
        self.line.extend_from_slice(bytes);
        (events, self.is_too_large().then_some(TooLarge))
    }

    fn is_too_large(&self) -> bool {
        self.line.len() + self.data.as_ref().map_or(0, String::len) > EVENT_LIMIT
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Event> {
        // Characters are decoded a whole line at a time, so that one split between packets stays whole.
        let line = String::from_utf8_lossy(line);
        let line = if self.began { &*line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        self.began = true;
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            // An event type without data dispatches nothing, by the standard. But `event: error` alone is how some
            // gateways end a stream, and an error must not be lost.
            let data = self.data.take().or_else(|| (kind == "error").then(String::new))?;
            return Some(Event { kind: if kind.is_empty() { "message".to_owned() } else { kind }, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.kind),
            // Comments (an empty field), `id`, `retry`, and what nobody has defined.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = Decoder::default();
        let events = chunks.iter().flat_map(|chunk| decoder.push(chunk).0);
        events.map(|event| (event.kind, event.data)).collect()
    }

    fn message(data: &str) -> (String, String) {
        ("message".to_owned(), data.to_owned())
    }

    #[test]
    fn lines_end_in_lf_cr_or_crlf() {
        for stream in ["data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n"] {
            assert_eq!(decode(&[stream.as_bytes()]), [message("a"), message("b")], "{stream:?}");
        }
    }

    #[test]
    fn one_space_after_the_colon_is_not_data_and_none_is_needed() {
        assert_eq!(decode(&[b"data:a\n\ndata:  b\n\n"]), [message("a"), message(" b")]);
    }

    #[test]
    fn data_lines_are_joined_and_comments_are_nothing() {
        assert_eq!(decode(&[b": hi\ndata: a\n: ho\ndata: b\n\n: ping\n\n"]), [message("a\nb")]);
    }

    #[test]
    fn a_byte_order_mark_before_the_stream_is_ignored() {
        assert_eq!(decode(&["\u{feff}data: a\n\n".as_bytes()]), [message("a")]);
    }

    #[test]
    fn an_error_event_without_data_is_an_event() {
        assert_eq!(decode(&[b"event: error\n\n"]), [("error".to_owned(), String::new())]);
        assert_eq!(decode(&[b"event: ping\n\n"]), []);
    }

    #[test]
    fn an_event_without_end_is_none() {
        assert_eq!(decode(&[b"data: a\n"]), []);
    }

    #[test]
    fn an_event_larger_than_the_limit_is_refused() {
        let mut decoder = Decoder::default();
        let line = vec![b'x'; EVENT_LIMIT / 2];
        assert_eq!((decoder.push(b"data: ").1, decoder.push(&line).1), (None, None));
        assert_eq!(decoder.push(&line).1, Some(TooLarge));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(
            stream in "(data:? ?[a-cäß€😀]{0,4}|: ?x|event: ?(error|x)|\u{feff})?(\n|\r|\r\n|\n\n|\r\r|\r\n\r\n){0,3}(data: y(\r|\n|\r\n){1,2}){0,6}",
            cuts in proptest::collection::vec(0usize..64, 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(decode(&chunks), decode(&[bytes]));
        }
    }
}
