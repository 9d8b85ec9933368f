//! The transport that sends over the network.
#![expect(clippy::disallowed_methods, reason = "the one HTTP client is built here")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aplomb_core::error::{Error, codes};
use aplomb_core::failure::{TransportFault, TransportKind};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use super::{Request, Response, Transport, fault};
use crate::wire::Wire;

/// Sends to one endpoint with one key.
pub struct HttpTransport {
    connections: Connections,
    url: reqwest::Url,
    headers: HeaderMap,
    /// What carries the key, unless the user's own headers do.
    key_header: Option<(HeaderName, &'static str)>,
}

/// The client below, with its pool of connections.
///
/// An HTTP/1.1 connection that failed, or whose exchange was given up, leaves the pool by itself. One of HTTP/2 stays:
/// its other streams may be well. But a connection that has gone silent, as behind a router that forgot it, would take
/// every retry down with it. So after a fault the next request has a new pool.
struct Connections {
    client: RwLock<reqwest::Client>,
    tls: rustls::ClientConfig,
    connect_timeout: Duration,
    /// Whether the server speaks HTTP/2, or may.
    multiplexed: AtomicBool,
}

impl HttpTransport {
    /// A transport to `api_base`, with its own pool of connections.
    ///
    /// The client below repeats nothing and follows no redirect: a request that it sent by itself would be one that no
    /// ledger knows. (A pooled connection that turns out closed before a single byte was written is replaced by
    /// another; that is no second request on the wire.)
    ///
    /// # Errors
    ///
    /// `config.validation` if the address, a header or the certificate file is not usable.
    pub fn new(
        wire: Wire,
        api_base: &str,
        api_key: Option<&SecretString>,
        extra_headers: &BTreeMap<String, SecretString>,
        connect_timeout: Duration,
        ca_file: Option<&Path>,
    ) -> Result<HttpTransport, Error> {
        let url = reqwest::Url::parse(&format!("{}{}", api_base.trim_end_matches('/'), wire.path()))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none())
            // A password in the address would be in every message that names it.
            .filter(|url| url.username().is_empty() && url.password().is_none())
            .ok_or_else(|| {
                invalid("llm.api_base is not an http or https address without user, password and query")
                    .with_hint(
                        "such as https://api.openai.com/v1; credentials go into api_key_env or extra_headers",
                    )
            })?;
        if url.scheme() == "http" && ca_file.is_some() {
            return Err(invalid("llm.ca_file has no use where llm.api_base is not https"));
        }
        let https = url.scheme() == "https";
        let connections = Connections::new(tls(https, ca_file)?, connect_timeout, https)
            .map_err(|error| invalid("the HTTP client cannot be built").with_foreign_cause(error))?;
        let headers = headers(wire, api_key, extra_headers)?;
        let (name, scheme) = wire.key_header();
        let is_users = extra_headers.keys().any(|header| header.eq_ignore_ascii_case(name));
        let key_header = (!is_users).then(|| (HeaderName::from_static(name), scheme));
        Ok(HttpTransport { connections, url, headers, key_header })
    }
}

impl Connections {
    fn new(
        tls: rustls::ClientConfig,
        connect_timeout: Duration,
        https: bool,
    ) -> reqwest::Result<Connections> {
        let client = RwLock::new(client(tls.clone(), connect_timeout)?);
        Ok(Connections { client, tls, connect_timeout, multiplexed: AtomicBool::new(https) })
    }

    fn client(&self) -> reqwest::Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests under way keep their connections.
    fn renew(&self) {
        if !self.multiplexed.load(Ordering::Relaxed) {
            return;
        }
        // The same settings made a client before.
        if let Ok(client) = client(self.tls.clone(), self.connect_timeout) {
            *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
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
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportFault>> {
        let accept = if request.stream { "text/event-stream" } else { "application/json" };
        let mut headers = self.headers.clone();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static(accept));
        if let (Some(key), Some((name, scheme))) = (&request.api_key, &self.key_header) {
            match key_value(scheme, key) {
                Ok(value) => headers.insert(name.clone(), value),
                Err(error) => {
                    let (kind, text) = (TransportKind::Request, error.message().to_owned());
                    return Box::pin(std::future::ready(Err(TransportFault { kind, text })));
                }
            };
        }
        let sent =
            self.connections.client().post(self.url.clone()).headers(headers).body(request.body).send();
        Box::pin(async move {
            let response = sent.await.map_err(fault::of)?;
            let multiplexed = response.version() == http::Version::HTTP_2;
            self.connections.multiplexed.store(multiplexed, Ordering::Relaxed);
            Ok(Response {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: response.bytes_stream().map_err(fault::of).boxed(),
            })
        })
    }

    fn distrust_connections(&self) {
        self.connections.renew();
    }
}

/// The user's headers win over ours.
fn headers(
    wire: Wire,
    api_key: Option<&SecretString>,
    extra: &BTreeMap<String, SecretString>,
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in wire.headers() {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = api_key {
        let (name, scheme) = wire.key_header();
        headers.insert(HeaderName::from_static(name), key_value(scheme, key)?);
    }
    for (name, value) in extra {
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
