//! Faults that only HTTP/2 has words for, and what comes nearest to them elsewhere. Knows their meaning, and
//! no frames.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{CutBy, Fault};

/// A fault of an HTTP/2 connection or of one stream on it. Sections are of RFC 9113.
///
/// ```json
/// { "reply": { "message": { "text": "Hello" } },
///   "fault": { "http2": { "reset_stream": { "code": "internal_error", "after_events": 2 } } } }
/// ```
///
/// HTTP/1.1 and an in-process mock play what comes nearest, and each fault says what that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Http2Fault {
    /// The server goes away and says that it has not processed the request: GOAWAY with `no_error` and a last
    /// stream below this one (section 6.8). Earlier streams are answered to their end, then the connection is
    /// closed.
    ///
    /// Nearest: [`Fault::CloseBeforeHeaders`].
    GoAwayBefore,
    /// The server goes away in order: GOAWAY with `no_error` and a last stream that includes this one, then
    /// the whole answer. Every stream under way is answered to its end, no other is accepted, and then the
    /// connection is closed.
    ///
    /// Nearest: the whole answer with the header `connection: close`, and the end of the connection after it.
    /// A mock has the answer with that header.
    GoAwayGraceful,
    /// The server goes away at once: GOAWAY with this code and a last stream that includes this one, and the
    /// connection is closed with every stream on it. Nobody knows what became of the request.
    ///
    /// Nearest: [`Fault::ResetBeforeHeaders`].
    GoAwayAbrupt {
        /// Why.
        code: Http2Code,
    },
    /// The stream is reset with `refused_stream` before any header: the request was not processed (section
    /// 8.7). The connection goes on.
    ///
    /// Nearest: [`Fault::CloseBeforeHeaders`].
    RefusedStream,
    /// The stream is reset (RST_STREAM); the connection goes on.
    ///
    /// Nearest: [`Fault::ResetBeforeHeaders`], or [`Fault::Cut`] by a reset after as many events.
    ResetStream {
        /// Why.
        code: Http2Code,
        /// Content events before the reset, as [`Fault`] counts them; with a plain answer, half the body
        /// comes before it. If not given, the reset comes in place of the headers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_events: Option<usize>,
    },
}

/// An error code of HTTP/2, by its name in section 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
#[non_exhaustive]
pub enum Http2Code {
    /// Nothing is wrong.
    NoError = 0x0,
    /// The other side has broken the protocol.
    ProtocolError = 0x1,
    /// Something unforeseen.
    InternalError = 0x2,
    /// The other side has broken the rules of flow control.
    FlowControlError = 0x3,
    /// Settings were not acknowledged in time.
    SettingsTimeout = 0x4,
    /// A frame came for a stream that was half closed.
    StreamClosed = 0x5,
    /// A frame has the wrong size.
    FrameSizeError = 0x6,
    /// The stream was refused before it was processed.
    RefusedStream = 0x7,
    /// The stream is not needed any more.
    Cancel = 0x8,
    /// The compression of headers is out of step.
    CompressionError = 0x9,
    /// The connection that CONNECT had made failed.
    ConnectError = 0xa,
    /// The other side makes too much load.
    EnhanceYourCalm = 0xb,
    /// The transport is not safe enough.
    InadequateSecurity = 0xc,
    /// The other side should come by HTTP/1.1.
    #[serde(rename = "http_1_1_required")]
    Http11Required = 0xd,
}

impl Http2Code {
    /// The code as it is in a frame.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl Http2Fault {
    /// `None` where the answer is whole.
    fn nearest(&self) -> Option<Fault> {
        match *self {
            Self::GoAwayGraceful => None,
            Self::GoAwayBefore | Self::RefusedStream => Some(Fault::CloseBeforeHeaders),
            Self::GoAwayAbrupt { .. } | Self::ResetStream { after_events: None, .. } => {
                Some(Fault::ResetBeforeHeaders)
            }
            Self::ResetStream { after_events: Some(after_events), .. } => {
                Some(Fault::Cut { after_events, by: CutBy::Reset })
            }
        }
    }

    /// A header that the answer has for it, over HTTP/1.1.
    pub(super) fn header(&self) -> Option<(&'static str, &'static str)> {
        (*self == Self::GoAwayGraceful).then_some(("connection", "close"))
    }
}

/// The fault as any answer can have it, and HTTP/2's words for it if it has its own.
pub(super) fn apart(fault: Option<&Fault>) -> (Option<Cow<'_, Fault>>, Option<&Http2Fault>) {
    match fault {
        Some(Fault::Http2(http2)) => (http2.nearest().map(Cow::Owned), Some(http2)),
        fault => (fault.map(Cow::Borrowed), None),
    }
}
