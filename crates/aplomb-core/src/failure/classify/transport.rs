//! What HTTP clients say of the network: Node, Bun, Python, Go, Java, .NET and Rust; also where a gateway relays it.
//!
//! Rules of this family look at a client's text, so what they call permanent happened before any answer.

use super::rule::{Opinion, Rule, Seen, Test};
use crate::failure::{Phase, Reason};

/// What the ids of this family begin with.
pub(super) const FAMILY: &str = "transport.";

pub(super) const RULES: &[Rule] = &[
    BROKEN_BEFORE,
    BROKEN_INSIDE,
    RELAYED,
    TIMEOUT,
    CERTIFICATE,
    NOT_HTTP,
    REDIRECT,
    NOT_JSON,
    REQUEST,
    CREDENTIALS,
    CANCELLED,
];

fn before_an_answer(seen: &Seen<'_>) -> bool {
    seen.is_client_text() && !matches!(seen.failure.phase, Phase::Body | Phase::MidStream)
}

fn inside_an_answer(seen: &Seen<'_>) -> bool {
    seen.is_client_text() && seen.failure.anomaly.is_none() && !before_an_answer(seen)
}

/// Sources: Node's `errno` names (<https://nodejs.org/api/errors.html>) and undici's (`UND_ERR_*`); CPython's `socket`,
/// httpx, requests, aiohttp; Go's `net`; `java.net` and Netty; .NET's `HttpRequestException`; hyper and reqwest.
const BREAKS: &[&[&str]] = &[
    &["econnrefused"],
    &["econnreset"],
    &["econnaborted"],
    &["epipe"],
    &["enotfound"],
    &["eai_again"],
    &["ehostunreach"],
    &["enetunreach"],
    &["enetdown"],
    &["connection refused"],
    &["actively refused"],
    &["connection reset"],
    &["connection aborted"],
    &["connection was aborted"],
    &["forcibly closed"],
    &["broken pipe"],
    &["no such host"],
    &["name resolution"],
    &["name or service not known"],
    &["nodename nor servname"],
    &["getaddrinfo"],
    &["dns error"],
    &["failed to lookup address"],
    &["unknownhostexception"],
    &["no address associated"],
    &["network is unreachable"],
    &["no route to host"],
    &["network error"],
    &["networkerror"],
    &["err_network"],
    &["err_connection"],
    &["network connection was lost"],
    &["fetch failed"],
    &["failed to fetch"],
    &["load failed"],
    &["unable to connect"],
    &["failedtoopensocket"],
    &["cannot connect to host"],
    &["could not connect"],
    &["failed to connect"],
    &["connection failed"],
    &["all connection attempts failed"],
    &["connecterror"],
    &["readerror"],
    &["writeerror"],
    &["connection error"],
    &["apiconnectionerror"],
    &["newconnectionerror"],
    &["max retries exceeded with url"],
    &["socket hang up"],
    &["other side closed"],
    &["und_err_socket"],
    &["socket connection was closed"],
    &["connectionclosed"],
    &["connection closed"],
    &["closed connection"],
    &["connection was closed"],
    &["connection lost"],
    &["connection has been closed"],
    &["use of closed network connection"],
    &["server disconnected"],
    &["remote end closed connection"],
    &["remoteprotocolerror"],
    &["remotedisconnected"],
    &["premature close"],
    &["prematurely closed"],
    &["ended prematurely"],
    &["prematurecloseexception"],
    &["incomplete chunked read"],
    &["incompleteread"],
    &["clientpayloaderror"],
    &["unexpected eof"],
    &["unexpectedeof"],
    &["eof occurred in violation of protocol"],
    &["sslv3_alert"],
    &["[ssl:"],
    &["tls_alert"],
    &["tlsv1 alert"],
    &["handshake"],
    &["bad record mac"],
    &["decryption failed"],
    &["sslerror"],
    &["sslexception"],
    &["error sending request"],
    &["an error occurred while sending the request"],
    &["unable to read data from the transport connection"],
    &["error reading a body from connection"],
    &["error trying to connect"],
    &["client error (connect)"],
    &["client error (sendrequest)"],
    &["goaway"],
    &["http2 error"],
    &["http/2 stream"],
    &["stream error: stream id"],
    &["err_http2"],
    &["rst_stream"],
    &["server closed idle connection"],
    &["transport connection broken"],
    &["\nterminated"],
    &["typeerror: terminated"],
    &["stream disconnected"],
    &["stream closed before"],
    &["\neof"],
    &[": eof"],
    &["proxyerror"],
    &["proxy connect"],
    &["tunneling socket"],
    &["java.net.connectexception"],
    &["java.net.socketexception"],
    &["java.io.eofexception"],
    &["upstream connect error"],
];

const BROKEN_BEFORE: Rule = Rule {
    id: "transport.connection",
    why: "The HTTP client says that the connection failed before an answer began.",
    test: Test::Wording { at: before_an_answer, any: BREAKS, then: Opinion::retry(Reason::Connection) },
};

const BROKEN_INSIDE: Rule = Rule {
    id: "transport.stream",
    why: "The HTTP client says that the connection broke while the answer came.",
    test: Test::Wording {
        at: inside_an_answer,
        any: BREAKS,
        then: Opinion::retry(Reason::StreamInterrupted),
    },
};

/// A gateway's own connection to the provider broke, whatever status it found for that.
///
/// Source: Envoy, `upstream connect error or disconnect/reset before headers`; OpenRouter's "Network connection lost.".
const RELAYED: Rule = Rule {
    id: "transport.relayed",
    why: "A gateway says that its connection to the provider broke.",
    test: Test::Wording {
        at: |seen| !seen.is_client_text() && seen.status().is_none_or(|status| status < 500),
        any: &[
            &["\nupstream connect error"],
            &["disconnect/reset before headers"],
            &["\nnetwork connection lost"],
            &["\nfetch failed"],
            &["connection reset by peer"],
            &["econnreset"],
            &["econnrefused"],
            &["socket hang up"],
        ],
        then: Opinion::retry(Reason::Connection),
    },
};

const TIMEOUT: Rule = Rule {
    id: "transport.timeout",
    why: "The HTTP client says that a time limit passed.",
    test: Test::Wording {
        at: |seen| seen.is_client_text(),
        any: &[
            &["timed out"],
            &["time out"],
            &["timeout"],
            &["etimedout"],
            &["esockettimedout"],
            &["deadline exceeded"],
            &["deadline has elapsed"],
            &["errno 110"],
            &["errno 60]"],
        ],
        then: Opinion::retry(Reason::Timeout),
    },
};

/// Sources: OpenSSL's `X509_V_ERR_*` texts as Node and Python give them, Go's `x509:`, rustls' `InvalidCertificate`,
/// Java's PKIX, .NET.
const CERTIFICATE: Rule = Rule {
    id: "transport.certificate",
    why: "The peer's certificate is not accepted; it will not be next time either.",
    test: Test::Wording {
        at: |seen| seen.is_client_text(),
        any: &[
            &["certificate verify failed"],
            &["certificate_verify_failed"],
            &["certificate has expired"],
            &["cert_has_expired"],
            &["self signed certificate"],
            &["self-signed certificate"],
            &["self_signed_cert"],
            &["unable to verify the first certificate"],
            &["unable_to_verify_leaf_signature"],
            &["unable to get local issuer certificate"],
            &["unable_to_get_issuer_cert"],
            &["x509: certificate"],
            &["invalid peer certificate"],
            &["unknownissuer"],
            &["pkix path building failed"],
            &["does not match certificate's altnames"],
            &["err_tls_cert_altname_invalid"],
            &["remote certificate is invalid"],
            &["remote certificate was rejected"],
            &["certificate is not valid for"],
        ],
        then: Opinion::forbid(Reason::Connection),
    },
};

const NOT_HTTP: Rule = Rule {
    id: "transport.not_http",
    why: "What answers there does not speak HTTP, or not the kind that was tried.",
    test: Test::Wording {
        at: before_an_answer,
        any: &[
            &["wrong version number"],
            &["wrong_version_number"],
            &["server gave http response to https client"],
            &["malformed http response"],
            &["invalid http version"],
            &["packet length too long"],
            &["illegal request line"],
            &["expected http/"],
        ],
        then: Opinion::forbid(Reason::Connection),
    },
};

const REDIRECT: Rule = Rule {
    id: "transport.redirect",
    why: "The address leads round in circles.",
    test: Test::Wording {
        at: |seen| seen.is_client_text(),
        any: &[
            &["too many redirects"],
            &["redirect count exceeded"],
            &["stopped after 10 redirects"],
            &["maxredirects"],
        ],
        then: Opinion::forbid(Reason::Connection),
    },
};

/// In a stream, a part that is not JSON is a broken stream; a whole body that is not JSON is another thing than an API.
const NOT_JSON: Rule = Rule {
    id: "transport.not_json",
    why: "The whole body is not JSON.",
    test: Test::Wording {
        at: |seen| seen.is_client_text() && seen.failure.phase == Phase::Body,
        any: &[
            &["expected value at line"],
            &["jsondecodeerror"],
            &["is not valid json"],
            &["looking for beginning of value"],
            &["unexpected token"],
            &["expecting value: line"],
            &["could not parse response"],
            &["jsonexception"],
            &["jsonparseexception"],
            &["is an invalid start of a value"],
        ],
        then: Opinion::forbid(Reason::MalformedResponse),
    },
};

const REQUEST: Rule = Rule {
    id: "transport.request",
    why: "The request itself could not be built.",
    test: Test::Wording {
        at: before_an_answer,
        any: &[
            &["invalid url"],
            &["failed to parse url"],
            &["relative url without a base"],
            &["unsupported protocol scheme"],
            &["unsupportedprotocol"],
            &["missingschema"],
            &["invalidschema"],
            &["builder error"],
            &["invalid uri"],
            &["invalid header value"],
            &["invalid header field"],
            &["err_invalid_url"],
            &["illegal header value"],
        ],
        then: Opinion::forbid(Reason::InvalidRequest),
    },
};

/// Sources: AWS SDKs ("failed to refresh cached credentials", "Unable to locate credentials"), google-auth
/// (`DefaultCredentialsError`, `RefreshError`), azure-identity (`CredentialUnavailableError`), OpenAI's and Anthropic's
/// SDKs, which refuse to send without a key.
const CREDENTIALS: Rule = Rule {
    id: "transport.credentials",
    why: "There is no credential to send, or it could not be renewed.",
    test: Test::Wording {
        at: before_an_answer,
        any: &[
            &["get credentials:"],
            &["refresh cached credentials"],
            &["unable to refresh sso token"],
            &["token has expired and refresh failed"],
            &["unable to locate credentials"],
            &["could not load credentials"],
            &["could not find credentials"],
            &["no valid credential"],
            &["nocredential"],
            &["credentialsprovidererror"],
            &["expiredtoken"],
            &["default credentials"],
            &["defaultcredentialserror"],
            &["google.auth.exceptions.refresherror"],
            &["invalid_grant"],
            &["credentialunavailable"],
            &["defaultazurecredential failed"],
            &["missing credentials"],
            &["api_key client option must be set"],
            &["could not resolve authentication method"],
            &["no api key"],
            &["api key is missing"],
            &["missing api key"],
        ],
        then: Opinion::forbid(Reason::Auth),
    },
};

/// A client's word for a cancellation of its own. A time limit is often reported as one, and says so.
const CANCELLED: Rule = Rule {
    id: "transport.cancelled",
    why: "The request was cancelled on our side.",
    test: Test::Look(|seen| {
        seen.is_exception().then_some(())?;
        let text = &seen.said.prose;
        const WORDS: [&str; 15] = [
            "aborterror",
            "operation was aborted",
            "request was aborted",
            "apiuseraborterror",
            "user aborted",
            "context canceled",
            "context cancelled",
            "keyboardinterrupt",
            "cancellederror",
            "cancelederror",
            "taskcanceledexception",
            "operationcanceledexception",
            "cancellationexception",
            "operation was canceled",
            "err_canceled",
        ];
        let is_limit = ["timeout", "timed out", "deadline"].iter().any(|word| text.contains(word));
        let says = WORDS.iter().any(|word| text.contains(word));
        (says && !is_limit).then_some(Opinion::forbid(Reason::Cancelled))
    }),
};
