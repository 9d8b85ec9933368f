//! What an answer looks like on the wire, as data that a TCP server and an in-process mock play the same way,
//! but for [`Raw`], which takes a socket.
//!
//! Knows HTTP's notions of status, headers and body, and nothing of scripts or model protocols.

use std::time::Duration;

use bytes::Bytes;

use super::Http2Fault;

/// The whole of what happens after a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The step of the script that is served, counted from 0; `None` if the request was refused, or answered
    /// by a mishap, and no step used.
    pub step: Option<usize>,
    /// The mishap of [`Random`](super::Random) that befell the request, counted from 0.
    pub mishap: Option<usize>,
    /// How long to wait, from the end of the request, before [`Plan::answer`] begins.
    pub delay: Duration,
    /// What happens then.
    pub answer: Answer,
    /// What an HTTP/2 connection does beside or in place of that: [`Plan::answer`] is what comes nearest to it
    /// elsewhere.
    pub http2: Option<Http2Fault>,
}

/// How a request is answered, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The connection is reset (TCP RST); no byte is sent.
    Reset,
    /// The connection is closed (TCP FIN); no byte is sent.
    Close,
    /// Nothing is sent and the connection stays open until the client leaves.
    Silence,
    /// An HTTP response, complete or not.
    Response(Response),
}

/// An HTTP response: the head (at once, if [`Raw`] says nothing else), then the parts in order, then the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers in order, names in lower case, but for those that follow from [`Response::framing`].
    pub headers: Vec<(String, String)>,
    /// How the head announces the body's length.
    pub framing: Framing,
    /// What is sent of the body, which a fault can make less than was announced.
    pub parts: Vec<Part>,
    /// What follows the last part.
    pub end: End,
    /// What a server does beside that. A mock leaves it out, and is as near as it can be.
    pub raw: Raw,
}

/// What only a server on a socket can play: how bytes go out that HTTP's readers never see as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Raw {
    /// How the head is sent.
    pub head: Head,
    /// Bytes that are sent as they are, outside of all framing, after the last part and before
    /// [`Response::end`].
    pub tail: Bytes,
}

/// How the bytes of a head are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Head {
    /// In one write.
    #[default]
    AtOnce,
    /// The status line first, the rest when [`Plan::delay`] is over.
    StatusLineFirst {
        /// How long before the end of [`Plan::delay`] the status line is sent; never longer than it.
        lead: Duration,
    },
    /// In pieces.
    Pieces {
        /// Bytes per piece, at least 1.
        bytes: usize,
        /// How long to wait between one piece and the next.
        every: Duration,
    },
}

/// How the head announces the body's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `content-length`, with this many bytes (a status that has no body, such as 204, has none to announce).
    Length(u64),
    /// `transfer-encoding: chunked`, one chunk per [`Part::Bytes`].
    Chunked,
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes to send and flush on their own. An event of a stream is a part of its own, unless a fault cuts
    /// the body differently.
    Bytes(Bytes),
    /// Time in which nothing is sent.
    Pause(Duration),
}

/// What follows the last part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The body ends as HTTP wants it to; the connection can serve another request.
    Clean,
    /// The connection is closed (TCP FIN), whatever was announced.
    Fin,
    /// The connection is reset (TCP RST).
    Reset,
    /// Nothing more is sent and the connection stays open until the client leaves.
    Silence,
    /// The same bytes for ever: a wait of `every`, the bytes, a wait, … until the client leaves.
    Repeat {
        /// What is sent each time.
        bytes: Bytes,
        /// How long to wait before each time, the first included.
        every: Duration,
    },
}
