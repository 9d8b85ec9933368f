//! Rules that hold for every provider: what HTTP statuses, the network and the shape of an answer say.

use super::rule::{Opinion, Rule, Seen, Test};
use crate::failure::{Anomaly, Phase, Reason, TransportKind};

pub(super) const RULES: &[Rule] = &[STATUS, TRANSPORT, SHAPE, WORDLESS];

/// Source: RFC 9110 §15, RFC 6585 §4 (429, 431), Anthropic's error page (529), nginx (499), Cloudflare's 5xx pages
/// (520–530), AWS's load balancer (460).
const STATUS: Rule = Rule {
    id: "generic.status",
    why: "The HTTP status says so.",
    test: Test::Look(|seen| status_opinion(seen.status()?)),
};

/// Also for statuses that come inside a body, as gateways give their upstream's.
pub(super) fn status_opinion(status: u16) -> Option<Opinion> {
    Some(match status {
        401 | 407 => Opinion::forbid(Reason::Auth),
        402 => Opinion::forbid(Reason::QuotaExhausted),
        403 | 451 => Opinion::forbid(Reason::Permission),
        408 => Opinion::retry(Reason::Timeout),
        409 => Opinion::retry(Reason::ServerError),
        413 => Opinion::forbid(Reason::PayloadTooLarge),
        425 | 460 | 499 => Opinion::retry(Reason::Connection),
        429 => Opinion::retry(Reason::RateLimit),
        400 | 404 | 405 | 406 | 410 | 411 | 412 | 414 | 415 | 417 | 421 | 422 | 426 | 428 | 431 => {
            Opinion::forbid(Reason::InvalidRequest)
        }
        // Bedrock's ModelErrorException: the model failed behind the service.
        424 => Opinion::retry(Reason::ServerError),
        504 | 522 | 524 => Opinion::retry(Reason::Timeout),
        529 => Opinion::retry(Reason::Overloaded),
        501 | 505 => Opinion::forbid(Reason::ServerError),
        500..=599 => Opinion::retry(Reason::ServerError),
        // We follow no redirect: it would be a request that the ledger does not know.
        300..=399 => Opinion::forbid(Reason::InvalidRequest),
        _ => return None,
    })
}

const TRANSPORT: Rule = Rule {
    id: "generic.transport",
    why: "The network or the HTTP client failed in a way that is known by its kind.",
    test: Test::Look(|seen| {
        let fault = seen.failure.transport.as_ref()?;
        let has_answer = seen.failure.phase != Phase::Connect;
        let broken = if has_answer { Reason::StreamInterrupted } else { Reason::Connection };
        Some(match fault.kind {
            TransportKind::Certificate | TransportKind::Tls | TransportKind::NotHttp => {
                Opinion::forbid(Reason::Connection)
            }
            TransportKind::Request => Opinion::forbid(Reason::InvalidRequest),
            TransportKind::Dns
            | TransportKind::Refused
            | TransportKind::Connect
            | TransportKind::TlsInterrupted => Opinion::retry(Reason::Connection),
            TransportKind::Reset
            | TransportKind::BrokenPipe
            | TransportKind::Closed
            | TransportKind::CutBody
            | TransportKind::GoAway
            | TransportKind::StreamReset => Opinion::retry(broken),
            TransportKind::ConnectTimeout
            | TransportKind::FirstByteTimeout
            | TransportKind::IdleTimeout
            | TransportKind::AttemptTimeout => Opinion::retry(Reason::Timeout),
            // An answer that had begun has broken off, whatever did it. Before that, a fault that nobody knows is
            // unknown.
            TransportKind::Other if fault.text.is_empty() || !has_answer => return None,
            TransportKind::Other => Opinion::retry(broken),
        })
    }),
};

const SHAPE: Rule = Rule {
    id: "generic.shape",
    why: "The status was good, and the shape of the answer is not.",
    test: Test::Look(|seen| {
        let failure = seen.failure;
        Some(match failure.anomaly? {
            Anomaly::NoTerminalEvent | Anomaly::MalformedEvent | Anomaly::BrokenOff => {
                Opinion::retry(Reason::StreamInterrupted)
            }
            Anomaly::Empty => Opinion::retry(Reason::EmptyResponse),
            Anomaly::EmptyAtTokenLimit => Opinion::forbid(Reason::EmptyResponse),
            // A page instead of an API stays one; a body that is not there at all may come next time.
            Anomaly::MalformedBody if failure.body.trim().is_empty() => {
                Opinion::retry(Reason::MalformedResponse)
            }
            Anomaly::MalformedBody | Anomaly::TooLarge | Anomaly::UnknownEnd => {
                Opinion::forbid(Reason::MalformedResponse)
            }
            Anomaly::Filtered | Anomaly::Refused => Opinion::forbid(Reason::ContentFilter),
            // What the error says is for other rules.
            Anomaly::Error => return None,
        })
    }),
};

/// An error without content is almost always a stream that broke before a structured body arrived.
///
/// Source: `docs/spec/retry.md` §2, step 4 of the session's judgement.
const WORDLESS: Rule = Rule {
    id: "generic.wordless",
    why: "An error without any content is almost always a stream that broke.",
    test: Test::Look(|seen| is_wordless(seen).then_some(Opinion::retry(Reason::StreamInterrupted))),
};

fn is_wordless(seen: &Seen<'_>) -> bool {
    seen.failure.is_wordless() && seen.said.names().next().is_none() && seen.said.prose.trim().is_empty()
}
