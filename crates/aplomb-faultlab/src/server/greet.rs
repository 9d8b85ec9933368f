//! What happens on a connection before any request: it fails as the script says, or it shakes hands over TLS
//! and is passed on to the version of HTTP that its client speaks.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, NoRequest};
use super::state::{Arrival, State};
use super::stream::Stream;
use super::{http2, play};
use crate::script::Connect;

/// Counts the connection at once, so that connections have their numbers in the order in which they were
/// accepted, and then serves it.
pub(super) fn converse(socket: TcpStream, state: Arc<State>) -> impl Future<Output = ()> + Send {
    let arrival = state.arrive();
    async move {
        if let Some(socket) = survive(socket, arrival.connect).await {
            welcome(socket, arrival, state).await;
        }
    }
}

/// Does to the connection what the script says; a good one comes back.
async fn survive(socket: TcpStream, connect: Connect) -> Option<TcpStream> {
    let mut connection = match connect {
        Connect::Good => return Some(socket),
        _ => Connection::new(Stream::Clear(socket)),
    };
    if matches!(connect, Connect::CutHandshake | Connect::ResetHandshake)
        && connection.wait_for_bytes().await.is_err()
    {
        return None;
    }
    match connect {
        Connect::Good | Connect::Close | Connect::CutHandshake => connection.close().await,
        Connect::Reset | Connect::ResetHandshake => connection.reset().await,
        Connect::SilentHandshake => connection.wait_for_client_to_leave().await,
    }
    None
}

async fn welcome(socket: TcpStream, arrival: Arrival, state: Arc<State>) {
    let Arrival { number, http, tls, .. } = arrival;
    let stream = match tls {
        None => Stream::Clear(socket),
        Some(config) => match TlsAcceptor::from(config).accept(socket).into_fallible().await {
            Ok(stream) => Stream::Tls(Box::new(stream)),
            // The client was told why by an alert, or it was the client who told.
            Err((_, socket)) => return Connection::new(Stream::Clear(socket)).close().await,
        },
    };
    let agreed = stream.alpn().map(|name| name == b"h2");
    let mut connection = Connection::new(stream);
    let speaks_2 = match agreed {
        Some(speaks_2) => Ok(speaks_2),
        None => connection.begins_http2().await,
    };
    match speaks_2 {
        Err(NoRequest::Gone | NoRequest::Refused { .. }) => {}
        Ok(true) if http.has_2() => http2::converse(connection, number, state).await,
        Ok(false) if http.has_1() => play::converse(connection, number, state).await,
        Ok(false) => connection.close().await,
        Ok(true) => {
            // A client that reads neither this nor the end of the connection has left.
            let _ = connection.write_error(505, "This server speaks HTTP/1.1 only.").await;
            connection.close().await;
        }
    }
}
