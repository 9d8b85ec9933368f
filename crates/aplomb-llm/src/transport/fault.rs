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
    let mut found = None;
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        found = kind_of_one(error).or(found);
        next = error.source();
    }
    if let Some(kind) = found {
        return kind;
    }
    if error.is_connect() { TransportKind::Connect } else { TransportKind::Other }
}

/// What one error of the chain says by its type. The deepest one that says anything is right.
fn kind_of_one(error: &(dyn StdError + 'static)) -> Option<TransportKind> {
    if let Some(io) = error.downcast_ref::<io::Error>() {
        // An error that wraps another as a source hides it from `source()`.
        if let Some(kind) = io.get_ref().and_then(|inner| kind_of_one(inner)) {
            return Some(kind);
        }
        return match io.kind() {
            io::ErrorKind::ConnectionRefused => Some(TransportKind::Refused),
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                Some(TransportKind::Reset)
            }
            io::ErrorKind::UnexpectedEof => Some(TransportKind::Closed),
            _ => None,
        };
    }
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return match tls {
            rustls::Error::InvalidCertificate(_) => Some(TransportKind::Certificate),
            _ => None,
        };
    }
    // hyper says these by text alone: its own predicates cannot be reached through reqwest.
    let text = error.to_string();
    [
        ("connection closed before message completed", TransportKind::Closed),
        ("dns error", TransportKind::Dns),
        ("invalid HTTP", TransportKind::NotHttp),
    ]
    .into_iter()
    .find(|(words, _)| text.starts_with(words))
    .map(|(_, kind)| kind)
}

/// The text of the deepest cause. Those above it say only which part of the client passed it on.
fn deepest_text(error: &reqwest::Error) -> String {
    let mut deepest: &(dyn StdError + 'static) = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
