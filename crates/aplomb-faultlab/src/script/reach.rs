//! How the server of a script is reached: by which protocols, with which certificate, and what becomes of
//! connections before they carry a request. Data alone; an in-process mock has no connections and ignores it.

use serde::{Deserialize, Serialize};

/// How the server is reached. If not given: clear text, HTTP/1.1 or HTTP/2 as the client likes, and every
/// connection is served. An in-process mock has no connections and ignores all of it.
///
/// ```json
/// { "server": { "tls": "good", "http": "2", "connections": ["cut_handshake", "good"] }, "steps": […] }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Reach {
    /// Whether connections are TLS, and the certificate that a client is shown. Clear text, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The versions of HTTP that the server speaks.
    pub http: Http,
    /// What becomes of connections before a request is read, in the order in which they are accepted. The
    /// last entry is for all that follow: `["cut_handshake", "good"]` spoils one connection, and
    /// `["cut_handshake"]` every one. If empty, all are good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Connect>,
}

/// The certificate that a TLS server shows. All of them come with their key and with a chain that is in
/// order, but for what their name says; times are the client's clock's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tls {
    /// For `localhost` and 127.0.0.1, by the authority whose certificate the server gives out.
    Good,
    /// The same, and its time was over in 2001.
    Expired,
    /// The same, and its time begins in 4000.
    NotYetValid,
    /// By the right authority, for `wrong-host.invalid` and no other name.
    WrongHost,
    /// For the right names, by an authority that nobody knows.
    Untrusted,
}

/// The versions of HTTP that a server speaks.
///
/// Over TLS it offers them by ALPN (RFC 7301), HTTP/2 first; a client that offers none of them is refused
/// with the alert `no_application_protocol`. On clear text, and where a client came without ALPN, the first
/// bytes decide: HTTP/2 begins with a preface (RFC 9113, section 3.4) that is no request of HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[non_exhaustive]
pub enum Http {
    /// HTTP/1.1 alone: the preface of HTTP/2 is answered with 505.
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2 alone: a connection that begins otherwise is closed.
    #[serde(rename = "2")]
    Http2,
    /// Both, as the client likes.
    #[default]
    #[serde(rename = "either")]
    Either,
}

/// What becomes of a connection before a request is read.
///
/// On clear text there is no handshake: the first bytes that the client sends stand for its ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Connect {
    /// It is served.
    Good,
    /// It is closed (TCP FIN) as soon as it is accepted.
    Close,
    /// It is reset (TCP RST) as soon as it is accepted.
    Reset,
    /// The handshake begins: the client's ClientHello is read, then the connection is closed (TCP FIN).
    CutHandshake,
    /// The handshake begins: the client's ClientHello is read, then the connection is reset (TCP RST).
    ResetHandshake,
    /// The connection is accepted and nothing is ever sent, until the client leaves.
    SilentHandshake,
}

impl Reach {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(feature = "server")]
impl Reach {
    /// What becomes of the connection that is the `number`-th, from 0.
    pub(crate) fn connect(&self, number: usize) -> Connect {
        self.connections.get(number).or(self.connections.last()).copied().unwrap_or(Connect::Good)
    }
}

#[cfg(feature = "server")]
impl Http {
    /// Whether HTTP/1.1 is among them.
    pub(crate) fn has_1(self) -> bool {
        matches!(self, Self::Http1 | Self::Either)
    }

    /// Whether HTTP/2 is among them.
    pub(crate) fn has_2(self) -> bool {
        matches!(self, Self::Http2 | Self::Either)
    }
}
