//! The transport that sends over the network.
#![expect(clippy::disallowed_methods, reason = "the one HTTP client is built here")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aplomb_core::error::{Error, codes};
use aplomb_core::failure::{TransportFault, TransportKind};
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use super::{Paths, Pool, Request, Response, Sent, Transport, fault};

/// Where requests go, and what goes with each of them.
#[derive(Debug)]
pub struct Target<'a> {
    /// The API's base, such as `https://api.openai.com/v1`.
    pub api_base: &'a str,
    /// Where below it.
    pub paths: &'a Paths,
    /// Added to each request's query, such as Azure's `api-version`.
    pub query: &'a [(String, String)],
    /// The headers of the protocol.
    pub headers: &'a [(&'static str, &'static str)],
    /// The header that carries the key, and what stands before the key in it.
    pub key_header: (&'static str, &'static str),
    /// The key.
    pub api_key: Option<&'a SecretString>,
    /// The user's headers, which win over ours.
    pub extra_headers: &'a BTreeMap<String, SecretString>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// Certificates to trust besides the platform's.
    pub ca_file: Option<&'a Path>,
}

/// The header that says whose request it is: the run's id.
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// Sends to one endpoint with one key.
pub struct HttpTransport {
    connections: Connections,
    /// What asks for an answer in one piece.
    whole: Head,
    /// What asks for a stream.
    streamed: Head,
    /// What carries the key, unless the user's own headers do.
    key_header: Option<(HeaderName, &'static str)>,
}

/// What every request of a kind begins with.
struct Head {
    url: reqwest::Url,
    headers: HeaderMap,
}

/// The client below, with its pool of connections.
///
/// An HTTP/1.1 connection that failed, or whose exchange was given up, leaves the pool by itself. One of HTTP/2 stays:
/// its other streams may be well. But a connection that has gone silent, as behind a router that forgot it, would take
/// every retry down with it. So after a fault that may be of that kind the next request has a new pool, unless another
/// request's fault has brought it already.
struct Connections {
    current: RwLock<(Pool, reqwest::Client)>,
    tls: rustls::ClientConfig,
    connect_timeout: Duration,
    /// Whether the server speaks HTTP/2, or may.
    multiplexed: AtomicBool,
}

impl HttpTransport {
    /// A transport to the target, with its own pool of connections.
    ///
    /// The client below repeats nothing and follows no redirect: a request that it sent by itself would be one that no
    /// ledger knows. (A pooled connection that turns out closed before a single byte was written is replaced by
    /// another; that is no second request on the wire.)
    ///
    /// # Errors
    ///
    /// `config.validation` if the address, a header or the certificate file is not usable.
    pub fn new(target: &Target<'_>) -> Result<HttpTransport, Error> {
        let mut base = reqwest::Url::parse(target.api_base.trim_end_matches('/'))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none())
            .filter(|url| url.fragment().is_none())
            // A password in the address would be in every message that names it.
            .filter(|url| url.username().is_empty() && url.password().is_none())
            .ok_or_else(|| {
                invalid("llm.api_base is not an http or https address without user, password and query")
                    .with_hint(
                        "such as https://api.openai.com/v1; credentials go into api_key_env or extra_headers",
                    )
            })?;
        if !target.query.is_empty() {
            base.query_pairs_mut().extend_pairs(target.query);
        }
        let (is_https, ca_file) = (base.scheme() == "https", target.ca_file);
        if !is_https && ca_file.is_some() {
            return Err(invalid("llm.ca_file has no use where llm.api_base is not https"));
        }
        let connections = Connections::new(tls(is_https, ca_file)?, target.connect_timeout, is_https)
            .map_err(|error| invalid("the HTTP client cannot be built").with_foreign_cause(error))?;
        let headers = headers(target)?;
        let head = |path, accept| {
            let (url, mut headers) = (address(&base, path), headers.clone());
            headers.entry(ACCEPT).or_insert(HeaderValue::from_static(accept));
            Head { url, headers }
        };
        let whole = head(&target.paths.whole, "application/json");
        let streamed = head(&target.paths.streamed, "text/event-stream");
        let (name, scheme) = target.key_header;
        let is_users = target.extra_headers.keys().any(|header| header.eq_ignore_ascii_case(name));
        let key_header = (!is_users).then(|| (HeaderName::from_static(name), scheme));
        Ok(HttpTransport { connections, whole, streamed, key_header })
    }
}

/// The address of a request: the base with the path and the query of both.
fn address(base: &reqwest::Url, path: &str) -> reqwest::Url {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    let queries = [base.query().unwrap_or_default(), query];
    let query = queries.into_iter().filter(|query| !query.is_empty()).collect::<Vec<_>>().join("&");
    url.set_query((!query.is_empty()).then_some(&query));
    url
}

impl Connections {
    fn new(
        tls: rustls::ClientConfig,
        connect_timeout: Duration,
        https: bool,
    ) -> reqwest::Result<Connections> {
        let current = RwLock::new((Pool::default(), client(tls.clone(), connect_timeout)?));
        Ok(Connections { current, tls, connect_timeout, multiplexed: AtomicBool::new(https) })
    }

    fn current(&self) -> (Pool, reqwest::Client) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has another pool in the place of that one. Requests under way keep their connections.
    fn renew(&self, pool: Pool) {
        if !self.multiplexed.load(Ordering::Relaxed) {
            return;
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // The same settings made a client before.
        if current.0 == pool
            && let Ok(client) = client(self.tls.clone(), self.connect_timeout)
        {
            *current = (Pool(pool.0.wrapping_add(1)), client);
        }
    }
}

/// The client repeats nothing and follows no redirect.
fn client(tls: rustls::ClientConfig, connect_timeout: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout)
        .tcp_nodelay(true)
        .user_agent(concat!("aplomb/", env!("CARGO_PKG_VERSION")))
        .build()
}

impl Transport for HttpTransport {
    fn send(&self, request: Request) -> Sent<'_> {
        let (pool, client) = self.connections.current();
        let Head { url, headers } = if request.stream { &self.streamed } else { &self.whole };
        let mut headers = headers.clone();
        // A name for the request that both sides' logs have. Source: <https://developers.openai.com/api/reference/overview>,
        // "Debugging requests", for OpenAI; gateways log it, and others ignore it.
        if let Ok(run_id) = HeaderValue::from_str(&request.run_id) {
            headers.entry(CLIENT_REQUEST_ID).or_insert(run_id);
        }
        if let (Some(key), Some((name, scheme))) = (&request.api_key, &self.key_header) {
            match key_value(scheme, key) {
                Ok(value) => headers.insert(name.clone(), value),
                Err(error) => {
                    let (kind, text) = (TransportKind::Request, error.message().to_owned());
                    let refused = std::future::ready(Err(TransportFault { kind, text }));
                    return Sent { pool, response: Box::pin(refused) };
                }
            };
        }
        let mut message = reqwest::Request::new(Method::POST, url.clone());
        *message.headers_mut() = headers;
        *message.body_mut() = Some(request.body.into());
        let sent = client.execute(message);
        let response = Box::pin(async move {
            let mut response = sent.await.map_err(fault::of)?;
            let multiplexed = response.version() == http::Version::HTTP_2;
            self.connections.multiplexed.store(multiplexed, Ordering::Relaxed);
            Ok(Response {
                status: response.status().as_u16(),
                headers: std::mem::take(response.headers_mut()),
                body: response.bytes_stream().map_err(fault::of).boxed(),
            })
        });
        Sent { pool, response }
    }

    fn distrust(&self, pool: Pool) {
        self.connections.renew(pool);
    }
}

/// The user's headers win over ours.
fn headers(target: &Target<'_>) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in target.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = target.api_key {
        let (name, scheme) = target.key_header;
        headers.insert(HeaderName::from_static(name), key_value(scheme, key)?);
    }
    for (name, value) in target.extra_headers {
        let refused = || invalid(format!("llm.extra_headers.{name} is not a header"));
        let header = HeaderName::try_from(name).map_err(|_| refused())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| refused())?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn key_value(scheme: &str, key: &SecretString) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(&format!("{scheme}{}", key.expose_secret()))
        .map_err(|_| invalid("the API key holds characters that no header takes"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// TLS by rustls with ring, trusting the platform's roots and those of `ca_file`. Installs no process-wide provider.
fn tls(needed: bool, ca_file: Option<&Path>) -> Result<rustls::ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS cannot be set up").with_foreign_cause(error))?;
    // Where no TLS is spoken the roots are not read: it takes time, and a machine may have none.
    let mut config = if needed {
        let extra = ca_file.map(certificates).transpose()?.unwrap_or_default();
        let verifier =
            rustls_platform_verifier::Verifier::new_with_extra_roots(extra, provider).map_err(|error| {
                invalid("no certificate authority is known, so no https address can be trusted")
                    .with_hint("install the platform's CA certificates, or name some with llm.ca_file")
                    .with_foreign_cause(error)
            })?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
    } else {
        builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let refused = || invalid(format!("llm.ca_file {} holds no certificates in PEM form", file.display()));
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| refused().with_foreign_cause(error))?;
    if certificates.is_empty() { Err(refused()) } else { Ok(certificates) }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(codes::CONFIG_VALIDATION, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport(
        api_base: &str,
        path: &'static str,
        query: &[(String, String)],
    ) -> Result<HttpTransport, Error> {
        HttpTransport::new(&Target {
            api_base,
            paths: &Paths { whole: path.into(), streamed: path.into() },
            query,
            headers: &[],
            key_header: ("api-key", ""),
            api_key: None,
            extra_headers: &BTreeMap::new(),
            connect_timeout: Duration::from_secs(1),
            ca_file: None,
        })
    }

    #[test]
    fn a_request_goes_to_the_base_with_its_path_and_the_query_of_both() {
        let version = [("api-version".to_owned(), "2024-10-21".to_owned())];
        for (base, query, path, expected) in [
            ("http://host/v1", &version[..0], "/messages", "http://host/v1/messages"),
            ("http://host/v1/", &version[..0], "/messages", "http://host/v1/messages"),
            ("http://host", &version[..0], "/messages", "http://host/messages"),
            (
                "http://host/v1beta",
                &version[..0],
                "/models/a%20b:c?alt=sse",
                "http://host/v1beta/models/a%20b:c?alt=sse",
            ),
            (
                "http://host/openai/deployments/mine",
                &version,
                "/chat/completions",
                "http://host/openai/deployments/mine/chat/completions?api-version=2024-10-21",
            ),
            ("http://host", &version, "/a?alt=sse", "http://host/a?api-version=2024-10-21&alt=sse"),
        ] {
            assert_eq!(transport(base, path, query).unwrap().whole.url.as_str(), expected);
        }
    }

    #[test]
    fn faults_of_one_pool_bring_one_new_pool() {
        let tls = tls(false, None).unwrap();
        let connections = Connections::new(tls, Duration::from_secs(1), true).unwrap();
        let (first, _) = connections.current();
        connections.renew(first);
        let (second, _) = connections.current();
        assert_ne!(second, first);
        connections.renew(first);
        assert_eq!(connections.current().0, second);
    }

    #[test]
    fn an_address_that_is_more_than_a_place_is_refused() {
        for base in [
            "",
            "host",
            "ftp://host",
            "http://u:p@host",
            "http://u@host",
            "http://host?key=x",
            "http://host#x",
        ] {
            assert!(transport(base, "/messages", &[]).is_err(), "{base}");
        }
    }
}
