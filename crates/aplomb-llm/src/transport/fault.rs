//! Tells the kind of a transport fault from the chain of its sources.

use std::error::Error as StdError;
use std::io;

use aplomb_core::failure::{TransportFault, TransportKind};
use aplomb_core::redact;

/// The fault behind an error of the HTTP client.
pub(super) fn of(error: reqwest::Error) -> TransportFault {
    // The URL may hold a key, and says nothing that the config does not.
    let error = error.without_url();
    let kind = kind(&error);
    TransportFault { kind, text: redact::text(&deepest_text(&error)) }
}

fn kind(error: &reqwest::Error) -> TransportKind {
    if error.is_builder() {
        return TransportKind::Request;
    }
    if error.is_timeout() && error.is_connect() {
        return TransportKind::ConnectTimeout;
    }
    // The deepest error that says anything is right.
    let found = chain(error).filter_map(kind_of_one).last();
    match found {
        // A TCP connection that nobody takes is refused or not answered. One that is taken and then lost before it can be
        // used was lost to TLS (or to a proxy's tunnel, which is as good or bad as that).
        Some(TransportKind::Reset | TransportKind::Closed | TransportKind::BrokenPipe)
            if error.is_connect() =>
        {
            TransportKind::TlsInterrupted
        }
        Some(TransportKind::Closed) if error.is_body() || error.is_decode() => TransportKind::CutBody,
        Some(kind) => kind,
        None if error.is_connect() => TransportKind::Connect,
        None => TransportKind::Other,
    }
}

/// The error and its sources, outermost first.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An I/O error that wraps another as what it is hides it from `source()`.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| error.source())
    })
}

/// What one error of the chain says by its type.
fn kind_of_one(error: &(dyn StdError + 'static)) -> Option<TransportKind> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(TransportKind::Refused),
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Some(TransportKind::Reset),
            io::ErrorKind::BrokenPipe => Some(TransportKind::BrokenPipe),
            io::ErrorKind::UnexpectedEof => Some(TransportKind::Closed),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(match error {
            rustls::Error::InvalidCertificate(_) => TransportKind::Certificate,
            _ => TransportKind::Tls,
        });
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return match error {
            _ if error.is_go_away() => Some(TransportKind::GoAway),
            _ if error.is_reset() => Some(TransportKind::StreamReset),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return match error {
            _ if error.is_incomplete_message() => Some(TransportKind::Closed),
            _ if error.is_parse() => Some(TransportKind::NotHttp),
            _ => None,
        };
    }
    // The resolver's error is of a private type, and of its own kind by its text alone.
    error.to_string().starts_with("dns error").then_some(TransportKind::Dns)
}

/// The text of the deepest cause. Those above it say only which part of the client passed it on.
fn deepest_text(error: &reqwest::Error) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}
