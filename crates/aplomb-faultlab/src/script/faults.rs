//! What can go wrong with an answer, as scripts say it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Http2Fault;
#[cfg(doc)]
use super::Reply;

/// What goes wrong with an answer.
///
/// Every fault works the same with both protocols. An in-process mock can play all of them, but for the three
/// that need a socket, [`Fault::WrongChunkSize`], [`Fault::SplitHeaders`] and [`Fault::SlowHeaders`], and
/// [`Fault::Http2`]: each says what a mock has instead. HTTP/2 has for the three what a mock has.
///
/// *Streamed* is what a [`Reply::Message`] is when the request asks for a stream; everything else is *plain*,
/// a [`Reply::Http`] always.
///
/// `after_events` counts the content events of a stream, each an SSE event. OpenAI: the one that names the
/// role is the first, then come thinking, text and tool calls. Anthropic: `message_start` is the first, a
/// `ping` the second, then come the content blocks with their starts, deltas and stops. A number past the
/// last of them means all of them: an answer that breaks off never has the *terminal events*, which are the
/// finish reason and the usage (OpenAI) or `message_delta` and `message_stop` (Anthropic), nor `[DONE]`,
/// which only OpenAI has. A plain answer has no events and ignores the number: where a stream breaks after
/// so many events, a plain body breaks after half its bytes, rounded down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// The request is read, then the connection is reset (TCP RST) without a byte of an answer.
    ResetBeforeHeaders,
    /// The request is read, then the connection is closed (TCP FIN) without a byte of an answer.
    CloseBeforeHeaders,
    /// The request is read and nothing follows until the client leaves.
    Silence,
    /// The connection dies in the body.
    ///
    /// Streamed: `after_events` events, then the end of the connection where the next chunk would begin.
    /// Plain: the headers with the whole `content-length`, half the body, then the end.
    Cut {
        /// Content events before the cut.
        after_events: usize,
        /// How the connection ends.
        by: CutBy,
    },
    /// The stream ends cleanly, as HTTP sees it, but the message never does.
    ///
    /// Streamed: every content event, no terminal event. Plain: `finish_reason` (`stop_reason`) is `null`.
    /// Needs a message.
    EndWithoutTerminal {
        /// Whether `data: [DONE]` is sent all the same. Plain answers and Anthropic have no such thing and
        /// ignore it.
        done: bool,
    },
    /// An error arrives in the body of an answer that began as a success; then the body ends cleanly.
    ///
    /// Streamed: `after_events` events, then the error as an event. Plain: status 200 and the error as its
    /// body. Needs a message.
    ErrorEvent {
        /// Content events before the error.
        after_events: usize,
        /// The error. A string is the event's data as it is; any other JSON is sent as JSON. The empty string
        /// is an event of type `error` with empty data, and an empty body if plain. Anthropic's errors are
        /// always events of type `error`.
        body: Value,
    },
    /// The connection is kept alive and nothing more is said, for as long as the client stays.
    ///
    /// Streamed: `after_events` events, then every `every_ms` the SSE comment `: ping` (OpenAI) or the event
    /// `ping` (Anthropic). Plain: the headers, then a space (white space before a JSON value, as some
    /// gateways send it) every `every_ms`.
    Pings {
        /// Content events before the first ping.
        after_events: usize,
        /// Milliseconds between pings, and before the first; at least 1.
        every_ms: u64,
    },
    /// The whole answer, and then pings instead of the end of the body, for as long as the client stays.
    ///
    /// Streamed: every event but `[DONE]`, then the pings of [`Fault::Pings`]. Plain: the document, then
    /// spaces.
    PingsAfterEnd {
        /// Milliseconds between pings, and before the first; at least 1.
        every_ms: u64,
    },
    /// The answer stops and the connection stays open until the client leaves.
    ///
    /// Streamed: `after_events` events. Plain: the headers with the whole `content-length` and half the body.
    Stall {
        /// Content events before the silence.
        after_events: usize,
    },
    /// One piece of JSON is broken; everything around it is in order.
    ///
    /// Streamed: of the event after `after_events` events, only the first half of its data is sent, as an
    /// event; then the stream goes on to its proper end. A number past the content breaks the first terminal
    /// event. Plain: half the document's bytes, announced as if that were all. Needs a message.
    MalformedEvent {
        /// Whole content events before the broken one.
        after_events: usize,
    },
    /// The body's first character beyond ASCII is split: half its bytes, a pause of a few milliseconds, and
    /// the rest of the event (or of the document) as a chunk (or a write) of its own.
    ///
    /// The reply must have such a character, or a template that may bring one; if it brings none, nothing is
    /// split.
    SplitUtf8,
    /// The lines of a stream end with CRLF instead of LF, as the format allows (WHATWG HTML, 9.2.5). A plain
    /// answer has no lines and comes as it is. Needs a message.
    Crlf,
    /// The lines of a stream end with CR instead of LF, as the format allows, too. A plain answer comes as it
    /// is. Needs a message.
    LoneCr,
    /// The size of a chunk is wrong: one less than the bytes that follow. Then the body goes on as if nothing
    /// had happened, at once and to its proper end, and the connection is closed (TCP FIN). Needs a body.
    ///
    /// Streamed: the chunk of the event after `after_events` events; a number past the content means the
    /// first terminal event. Plain: the document, as one such chunk.
    ///
    /// A mock has no chunks: it plays the events before the wrong one and then the end of the connection.
    WrongChunkSize {
        /// Content events in proper chunks before the wrong one.
        after_events: usize,
    },
    /// The whole body is sent and is 16 bytes shorter than its `content-length` says; then the connection is
    /// closed (TCP FIN). A stream is announced by its length here, too, and not chunked.
    ShortBody,
    /// The head is sent in pieces of 16 bytes, 5 ms apart, wherever that cuts it.
    ///
    /// A mock has no head in bytes: it plays the answer as if there were no fault.
    SplitHeaders,
    /// The status line is sent, and the rest of the head `delay_ms` later: a client has its first byte in
    /// time and still no answer.
    ///
    /// A mock has no head in lines: it waits as long, and then has the whole head.
    SlowHeaders {
        /// Milliseconds between the status line and the rest; [`Step::delay_ms`](super::Step::delay_ms) comes
        /// before both.
        delay_ms: u64,
    },
    /// The body is sent in small pieces, each a chunk (or a write) of its own, wherever that cuts it. The
    /// pauses of [`Message::event_gap_ms`](super::Message::event_gap_ms) are left out. Needs a body.
    Drip {
        /// Bytes per piece, at least 1.
        bytes: usize,
        /// Milliseconds between one piece and the next; may be 0.
        every_ms: u64,
    },
    /// The arguments of the last tool call end after half their characters, rounded down, and the message
    /// ends in order all the same. Needs a message with a tool call.
    ///
    /// Anthropic's plain answers have no place for half of an object; the half is a JSON string there.
    CutArguments {
        /// Why the message says that it ended; it replaces [`Message::finish_reason`](super::Message).
        /// `length` if not given, which is the truth; `tool_calls` (or Anthropic's `tool_use`) is the lie.
        #[serde(default = "length")]
        finish_reason: String,
    },
    /// What goes wrong is HTTP/2's own. Everything else plays what comes nearest, as [`Http2Fault`] says.
    Http2(Http2Fault),
}

fn length() -> String {
    "length".to_owned()
}

/// How a connection ends in mid-answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CutBy {
    /// In order, as TCP sees it: the client reads the end of the file too early.
    Fin,
    /// By a reset: the client's read fails. Bytes that a slow client has not read by then may be lost to it,
    /// as with any reset.
    Reset,
}
