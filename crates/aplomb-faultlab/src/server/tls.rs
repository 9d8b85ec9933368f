//! The server's certificates: an authority of its own, made anew at every start, and what it signs. Knows no
//! sockets and no script but [`Reach`].

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::script::{Http, Reach, Tls};

/// What a good certificate is for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
/// What the wrong one is for: `.invalid` is nobody's (RFC 6761, section 6.4).
const WRONG_NAME: &str = "wrong-host.invalid";

/// The authority that signs the server's certificates.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new one, with a key that never leaves memory.
    pub(super) fn new() -> io::Result<Self> {
        Self::named("Faultlab CA")
    }

    fn named(name: &str) -> io::Result<Self> {
        let mut params = params(&[], name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)? })
    }

    /// Its certificate, as PEM.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// How TLS is accepted for a server that is reached so; `None` for clear text.
    pub(super) fn tls(&self, reach: &Reach) -> io::Result<Option<Arc<ServerConfig>>> {
        reach.tls.map(|tls| self.config(tls, reach.http)).transpose()
    }

    fn config(&self, tls: Tls, http: Http) -> io::Result<Arc<ServerConfig>> {
        let names: &[&str] = if tls == Tls::WrongHost { &[WRONG_NAME] } else { &NAMES };
        let mut params = params(names, "Faultlab")?;
        params.use_authority_key_identifier_extension = true;
        match tls {
            Tls::Expired => {
                params.not_before = rcgen::date_time_ymd(2000, 1, 1);
                params.not_after = rcgen::date_time_ymd(2001, 1, 1);
            }
            Tls::NotYetValid => params.not_before = rcgen::date_time_ymd(4000, 1, 1),
            Tls::Good | Tls::WrongHost | Tls::Untrusted => {}
        }
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let stranger;
        let issuer = if tls == Tls::Untrusted {
            // By the same name it would be a forger, and its signature what a client objects to.
            stranger = Self::named("Nobody's CA")?;
            &stranger.issuer
        } else {
            &self.issuer
        };
        let certificate = params.signed_by(&key, issuer).map_err(io::Error::other)?;
        let chain = vec![certificate.der().clone()];
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .map_err(io::Error::other)?;
        config.alpn_protocols = alpn(http);
        Ok(Arc::new(config))
    }
}

/// The names of the protocols, best first (RFC 9113, section 3.2; RFC 7301, section 6).
fn alpn(http: Http) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    if http.has_2() {
        names.push(b"h2".to_vec());
    }
    if http.has_1() {
        names.push(b"http/1.1".to_vec());
    }
    names
}

/// A certificate for these names, from 1975 to 4096, which no client's clock is wrong enough to miss.
fn params(names: &[&str], common_name: &str) -> io::Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}
