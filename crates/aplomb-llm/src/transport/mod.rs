//! One HTTP exchange: a request out, a head and a body in, or a fault with its kind. Never sends anything twice.

mod fault;
mod http;

use std::borrow::Cow;
use std::pin::Pin;

use ::http::HeaderMap;
use aplomb_core::failure::TransportFault;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use secrecy::SecretString;

pub use self::http::{HttpTransport, Target};

/// A request. Always a POST of JSON.
#[derive(Debug)]
pub struct Request {
    /// The JSON.
    pub body: Bytes,
    /// Whether the answer is wanted as a stream of events.
    pub stream: bool,
    /// The key, where it is another one than the transport was made with.
    pub api_key: Option<SecretString>,
    /// Whose request it is.
    pub run_id: String,
}

/// Where below the API's base requests go, with the query where there is one.
#[derive(Debug, Clone)]
pub struct Paths {
    /// For an answer in one piece.
    pub whole: Cow<'static, str>,
    /// For a stream of events.
    pub streamed: Cow<'static, str>,
}

/// The head of a response, and its body as it comes.
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// A body as it comes.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, TransportFault>> + Send>>;

/// What carries requests: the network, or a script.
pub trait Transport: Send + Sync + 'static {
    /// Sends the request, once.
    fn send(&self, request: Request) -> Sent<'_>;

    /// A connection of that pool may be dead or silent: none of its connections is used for another request.
    fn distrust(&self, _pool: Pool) {}
}

/// A request that is on its way once the response is awaited.
pub struct Sent<'a> {
    /// The pool that its connection is from.
    pub pool: Pool,
    /// What comes of it.
    pub response: BoxFuture<'a, Result<Response, TransportFault>>,
}

/// One of the pools of connections that a transport has had, counted from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pool(u64);
