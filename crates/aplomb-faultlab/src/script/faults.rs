//! What can go wrong with an answer, as scripts say it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Http2Fault;
#[cfg(doc)]
use super::Reply;

/// What goes wrong with an answer.
///
/// Every fault works the same with all protocols. An in-process mock can play all of them, but for the three
/// that need a socket, [`Fault::WrongChunkSize`], [`Fault::SplitHeaders`] and [`Fault::SlowHeaders`], and
/// [`Fault::Http2`]: each says what a mock has instead. HTTP/2 has for the three what a mock has.
///
/// *Streamed* is what a [`Reply::Message`] is when the request asks for a stream; everything else is *plain*,
/// as a [`Reply::Http`] always is.
///
/// `after_events` counts the content events of a stream, each an SSE event. OpenAI: the one that names the
/// role is the first, then come thinking, text and tool calls. Anthropic: `message_start` is the first, a
/// `ping` the second, then come the content blocks with their starts, deltas and stops. Responses:
/// `response.created`, `response.in_progress`, then all that is about items. Gemini: the pieces of thinking
/// and text, and each call. A number past the last of them means all of them: an answer that breaks off
/// never has the *terminal events*, which are the finish reason and the usage (OpenAI), `message_delta` and
/// `message_stop` (Anthropic), `response.completed` or `response.incomplete` (Responses), or the event with
/// `finishReason` and the whole usage (Gemini); nor `[DONE]`, which only OpenAI has. A plain answer has no events and ignores the number: where a stream breaks after
/// so many events, a plain body breaks after half its bytes, rounded down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// The stream ends cleanly, as HTTP sees it, but the message never does. Needs a message.
    ///
    /// Streamed: every content event, no terminal event. Plain: `finish_reason` (`stop_reason`) is `null`;
    /// Responses: the status is `in_progress`; Gemini: there is no `finishReason`.
    EndWithoutTerminal {
        /// Whether `data: [DONE]` is sent all the same. Plain answers and the other protocols have no such
        /// thing and ignore it.
        done: bool,
    },
    /// An error arrives in the body of an answer that began as a success; then the body ends cleanly.
    /// Needs a message.
    ///
    /// Streamed: `after_events` events, then the error as an event. Plain: status 200 and the error as its
    /// body.
    ErrorEvent {
        /// Content events before the error.
        after_events: usize,
        /// The error. A string is the event's data as it is; any other JSON is sent as JSON. The empty string
        /// is an event of type `error` with empty data, and an empty body if plain. Anthropic's errors are
        /// always events of type `error`; Responses' are of the `type` that is in the data (`error`,
        /// `response.failed`), or `error`.
        body: Value,
    },
    /// The connection is kept alive and nothing more is said, for as long as the client stays.
    ///
    /// Streamed: `after_events` events, then a ping every `every_ms`. Plain: the headers, then a space (white
    /// space before a JSON value, as some gateways send it) every `every_ms`.
    Pings {
        /// Content events before the first ping.
        after_events: usize,
        /// Milliseconds between pings, and before the first; at least 1.
        every_ms: u64,
        /// What a ping is in a stream; the protocol's own kind, if not given: events for Anthropic. The others
        /// have none, and comments are what proxies send.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<PingKind>,
    },
    /// The whole answer, and then pings instead of the end of the body, for as long as the client stays.
    ///
    /// Streamed: every event but `[DONE]`, then the pings of [`Fault::Pings`]. Plain: the document, then
    /// spaces.
    PingsAfterEnd {
        /// Milliseconds between pings, and before the first; at least 1.
        every_ms: u64,
        /// As in [`Fault::Pings`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<PingKind>,
    },
    /// The answer stops and the connection stays open until the client leaves.
    ///
    /// Streamed: `after_events` events. Plain: the headers with the whole `content-length` and half the body.
    Stall {
        /// Content events before the silence.
        after_events: usize,
    },
    /// One piece of JSON is broken; everything around it is in order. Needs a message.
    ///
    /// Streamed: of the event after `after_events` events, only the first half of its data is sent, as an
    /// event; then the stream goes on to its proper end. A number past the content breaks the first terminal
    /// event. Plain: half the document's bytes, announced as if that were all.
    MalformedEvent {
        /// Whole content events before the broken one.
        after_events: usize,
    },
    /// The JSON of two events stands on one line, back to back, as a proxy leaves it that loses line breaks.
    /// Needs a message.
    ///
    /// Streamed: the event after `after_events` events has the next one's data after its own, on the same
    /// `data:` line, and the next one is not sent by itself; then the stream goes on to its proper end. A
    /// number past the content glues the first terminal event to what follows it (or to what comes before,
    /// where nothing follows). Plain: the document twice, with nothing between.
    GluedEvents {
        /// Whole content events before the two.
        after_events: usize,
    },
    /// The JSON of one event is spread over two events, as a proxy leaves it that breaks lines where its
    /// buffer ends. Neither half is JSON. Needs a message.
    ///
    /// Streamed: of the event after `after_events` events, half the characters of its data, rounded down, are
    /// one event and the rest is another of the same type; then the stream goes on to its proper end. A
    /// number past the content splits the first terminal event. Plain: nothing, a document has no events.
    SplitEvent {
        /// Whole content events before the split one.
        after_events: usize,
    },
    /// The answer ends, cleanly as HTTP sees it, after the reason for its end and before the protocol's last
    /// word. Some vendors always end so: the message is whole. Needs a message.
    ///
    /// Streamed: every content event and the first terminal one: OpenAI's finish reason without usage and
    /// `[DONE]`, Anthropic's `message_delta` without `message_stop`. Responses and Gemini say the reason in
    /// their last word: nothing is left out. Plain: nothing, a document has its reason in it.
    EndAfterReason,
    /// An answer in which nothing is said by nobody, as gateways give it that lost the model's: OpenAI's
    /// `choices` is an empty list, Anthropic's `content` has no block, Responses' `output` no item, Gemini's
    /// content no `parts`. It ends in order. Needs a message, whose text, thinking and calls are left out.
    ///
    /// Streamed: OpenAI: one chunk with empty `choices`, no finish reason, then usage (if asked for) and
    /// `[DONE]`; Anthropic and Responses: no block or item between the start and the end; Gemini: one event,
    /// with the finish reason. Plain: the document with the empty list.
    EmptyAnswer,
    /// One piece of the answer is very long. Its meaning is the same: what is added is spaces where JSON
    /// allows them. A client with a limit for a line or a body finds it here; one without has the whole
    /// answer.
    ///
    /// Streamed: the event after `after_events` events is a line and a blank line of `bytes` bytes together,
    /// by spaces before the last brace of its JSON (longer events stay as they are); a number past the
    /// content means the first terminal event. Plain: the document is followed by spaces up to `bytes` bytes,
    /// and announced so.
    HugeEvent {
        /// Content events before the long one.
        after_events: usize,
        /// Bytes of the long event, or of a plain body; at most 268435456 (256 MiB).
        bytes: usize,
    },
    /// The answer is very long and no piece of it is, as from a model that says the same for ever.
    ///
    /// Streamed: the event after `after_events` events is sent again and again, so often that the body has
    /// `bytes` bytes or just more; then the stream goes on to its proper end. A number past the content
    /// repeats the first terminal event. Plain: the document, and then spaces, 16 KiB at a time, up to
    /// `bytes` bytes; the length is not announced.
    Flood {
        /// Content events before the one that is repeated.
        after_events: usize,
        /// Bytes of the whole body; at most 268435456 (256 MiB).
        bytes: usize,
    },
    /// The body's first character beyond ASCII is split: half its bytes, a pause of a few milliseconds, and
    /// the rest of the event (or of the document) as a chunk (or a write) of its own.
    ///
    /// The reply must have such a character, or a template that may bring one; if it brings none, nothing is
    /// split.
    SplitUtf8,
    /// The lines of a stream end with CRLF instead of LF, as the format allows (WHATWG HTML, 9.2.5). Needs a
    /// message.
    ///
    /// Streamed: every line of every event. Plain: nothing, a document has no such lines.
    Crlf,
    /// The lines of a stream end with CR instead of LF, as the format allows, too. Needs a message.
    ///
    /// Streamed: every line of every event. Plain: nothing, a document has no such lines.
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
    /// Streamed: the fragments end there. Plain: OpenAI's arguments are the half; Anthropic's, and Gemini's in
    /// a stream, too, have no place for half of an object, the half is a JSON string there.
    CutArguments {
        /// Why the message says that it ended; it replaces [`Message::finish_reason`](super::Message).
        /// `length` if not given, which is the truth; `tool_calls` (or Anthropic's `tool_use`) is the lie.
        #[serde(default = "length")]
        finish_reason: String,
    },
    /// What goes wrong is HTTP/2's own. Everything else plays what each form calls nearest.
    Http2(Http2Fault),
}

fn length() -> String {
    "length".to_owned()
}

/// What keeps a stream alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PingKind {
    /// The comment line `: ping`, which no client is to notice (WHATWG HTML, 9.2.6: a line that begins with a
    /// colon). OpenRouter and others do so in OpenAI's protocols, and proxies in any.
    Comments,
    /// An event `ping` with the data `{"type": "ping"}`, as Anthropic sends it. In the other protocols it is an
    /// event that is none of theirs, as gateways let it slip that translate from Anthropic's.
    Events,
}

/// How a connection ends in mid-answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CutBy {
    /// In order, as TCP sees it: the client reads the end of the file too early.
    Fin,
    /// By a reset: the client's read fails. Bytes that a slow client has not read by then may be lost to it,
    /// as with any reset.
    Reset,
}
