//! Events out of the text of a stream, in whichever of the protocols' forms it is.

/// One event.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Event {
    /// Its name, where it has one.
    pub(super) kind: String,
    /// Its data.
    pub(super) data: String,
    /// The frame itself says that it is an exception.
    pub(super) is_exception: bool,
}

/// The events of a stream's text. An event that is cut off counts too: it is what arrived.
pub(super) fn read(text: &str) -> Vec<Event> {
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.split(['\n', '\r']);
    let begin = text.trim_start();
    if begin.starts_with(['{', '[']) {
        if serde_json::from_str::<serde::de::IgnoredAny>(begin).is_ok() {
            return vec![Event { data: begin.to_owned(), ..Event::default() }];
        }
        // Lines of JSON, or the messages of a web socket.
        let lines = lines.filter(|line| !line.trim().is_empty());
        return lines.map(|line| Event { data: line.to_owned(), ..Event::default() }).collect();
    }
    if begin.starts_with(":message-type")
        || begin.contains("\n:event-type:")
        || begin.contains(":exception-type:")
    {
        return frames(text);
    }
    server_sent(text)
}

/// Source: WHATWG HTML, "Server-sent events", "Interpreting an event stream".
fn server_sent(text: &str) -> Vec<Event> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut open = Event::default();
    for line in text.split('\n').chain([""]) {
        if line.is_empty() {
            let event = std::mem::take(&mut open);
            if event != Event::default() {
                events.push(event);
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut open.kind),
            "data" => {
                if !open.data.is_empty() {
                    open.data.push('\n');
                }
                open.data.push_str(value);
            }
            _ => {}
        }
    }
    events
}

/// A picture of AWS's event stream: lines of headers, each with a colon before its name, an empty line, the payload.
///
/// Source: Smithy, "Amazon Event Stream Specification" (`:message-type`, `:exception-type`, `:event-type`).
fn frames(text: &str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut in_headers = false;
    for line in text.lines() {
        if let Some(header) = line.strip_prefix(':') {
            if !in_headers {
                events.push(Event::default());
                in_headers = true;
            }
            let (name, value) = header.split_once(':').unwrap_or((header, ""));
            let Some(event) = events.last_mut() else { continue };
            match (name.trim(), value.trim()) {
                ("message-type", kind) => event.is_exception |= matches!(kind, "exception" | "error"),
                ("exception-type" | "event-type" | "error-code", kind) => kind.clone_into(&mut event.kind),
                _ => {}
            }
        } else if line.trim().is_empty() {
            in_headers = false;
        } else if let Some(event) = events.last_mut() {
            event.data.push_str(line);
        }
    }
    events
}
