//! How connections end before they carry a request, and TLS as a client of rustls sees it.
use std::io::ErrorKind;
use std::sync::Arc;

use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    SupportedProtocolVersion,
};
use tokio_rustls::{TlsConnector, rustls};

use crate::lab::start;
use crate::raw::{Client, Ending, exchange, post};

const ASK: &str = r#"{"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// Scripts that say the same thing, reached like this.
fn reached(server: &str) -> String {
    format!(
        r#"{{ "server": {server}, "at_end": "repeat_last",
              "steps": [ {{ "reply": {{ "message": {{ "text": "Hello you" }} }} }} ] }}"#
    )
}

/// A client's side of TLS that trusts the server's authority and no other.
fn config(
    server: &FaultServer,
    alpn: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Shakes hands with the server under this name.
pub(crate) async fn connect(
    server: &FaultServer,
    name: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(server.addr()).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(config(server, alpn, rustls::ALL_VERSIONS)).connect(name, socket).await
}

/// What a client does not like about the server's certificate.
async fn objection(tls: &str) -> CertificateError {
    let server = start(&reached(&format!(r#"{{ "tls": "{tls}" }}"#))).await;
    let error = connect(&server, "localhost", &[]).await.expect_err("this certificate is bad");
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(error)) => {
            assert_eq!(server.request_count(), 0);
            assert_eq!(server.connection_count(), 1);
            error.clone()
        }
        _ => panic!("expected an objection to the certificate, not {error}"),
    }
}

/// The first message of a handshake.
fn client_hello(server: &FaultServer) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    hello(&mut ClientConnection::new(config(server, &[], rustls::ALL_VERSIONS), name).unwrap())
}

fn hello(client: &mut ClientConnection) -> Vec<u8> {
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_carries_the_same_bytes_under_both_names() {
    let clear = start(&reached("{}")).await;
    let request = post(ASK).replace("host: x", "connection: close");
    let (expected, ending) = exchange(clear.addr(), &request);
    assert_eq!(ending, Ending::Fin);
    assert!(clear.base_url().starts_with("http://127.0.0.1:"));

    let server = start(&reached(r#"{ "tls": "good" }"#)).await;
    assert!(server.base_url().starts_with("https://127.0.0.1:"));
    for name in ["localhost", "127.0.0.1"] {
        let mut client = connect(&server, name, &["http/1.1"]).await.unwrap();
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // Fails where TLS does not end with its close_notify.
        client.read_to_string(&mut answer).await.unwrap();
        // Answers are numbered by server.
        assert_eq!(answer.replace("faultlab_2", "faultlab_1").replace("faultlab-2", "faultlab-1"), expected);
    }
    let log = server.requests();
    assert_eq!([log[0].connection, log[1].connection], [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_ends_tls_in_order_and_one_that_is_reset_does_not() {
    for (by, kind) in [("fin", None), ("reset", Some(ErrorKind::ConnectionReset))] {
        let server = start(&format!(
            r#"{{ "server": {{ "tls": "good" }}, "steps": [ {{ "reply": {{ "message": {{ "text": "a b" }} }},
                  "fault": {{ "cut": {{ "after_events": 2, "by": "{by}" }} }} }} ] }}"#
        ))
        .await;
        let mut client = connect(&server, "localhost", &[]).await.unwrap();
        client.write_all(post(ASK).as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let end = client.read_to_end(&mut answer).await;
        assert_eq!(end.err().map(|error| error.kind()), kind);
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains(r#"{"content":"a"}"#) && !answer.contains(r#"{"content":" b"}"#), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_tls_refuses_every_bad_certificate_for_its_own_reason() {
    let error = objection("expired").await;
    assert!(matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. }), "{error}");
    let error = objection("not_yet_valid").await;
    assert!(
        matches!(error, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }),
        "{error}"
    );
    let error = objection("wrong_host").await;
    assert!(
        matches!(error, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        "{error}"
    );
    assert_eq!(objection("untrusted").await, CertificateError::UnknownIssuer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_offers_no_protocol_of_the_servers_is_told_so_by_an_alert() {
    for (http, offered) in [("1.1", "h2"), ("2", "http/1.1")] {
        let server = start(&reached(&format!(r#"{{ "tls": "good", "http": "{http}" }}"#))).await;
        let error = connect(&server, "localhost", &[offered]).await.unwrap_err();
        let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(error, Some(&Error::AlertReceived(AlertDescription::NoApplicationProtocol)));

        // TLS 1.2 has nothing encrypted by then. RFC 5246, section 7.2: an alert (21) record of TLS 1.2 (3, 3),
        // two bytes long: fatal (2), and RFC 7301's no_application_protocol (120).
        let name = ServerName::try_from("localhost").unwrap();
        let config = config(&server, &[offered], &[&rustls::version::TLS12]);
        let mut tls = ClientConnection::new(config, name).unwrap();
        let mut client = Client::connect(server.addr());
        client.send_bytes(&hello(&mut tls));
        client.expect_bytes(&[21, 3, 3, 0, 2, 2, 120]);
        assert_eq!(client.read_to_end(), (String::new(), Ending::Fin));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_cut_shows_its_end_and_the_next_connection_is_good() {
    let cases =
        [("cut_handshake", ErrorKind::UnexpectedEof), ("reset_handshake", ErrorKind::ConnectionReset)];
    for (fault, kind) in cases {
        let server =
            start(&reached(&format!(r#"{{ "tls": "good", "connections": ["{fault}", "good"] }}"#))).await;
        assert_eq!(connect(&server, "localhost", &[]).await.unwrap_err().kind(), kind, "{fault}");
        connect(&server, "localhost", &[]).await.unwrap();
        connect(&server, "localhost", &[]).await.unwrap();
        assert_eq!(server.connection_count(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_is_cut_after_the_clients_first_bytes_and_not_before() {
    for (fault, ending) in [("cut_handshake", Ending::Fin), ("reset_handshake", Ending::Reset)] {
        for tls in [r#""tls": "good", "#, ""] {
            let server = start(&reached(&format!(r#"{{ {tls}"connections": ["{fault}"] }}"#))).await;
            for _ in 0..2 {
                let mut client = Client::connect(server.addr());
                client.expect_silence();
                client.send_bytes(&client_hello(&server));
                assert_eq!(client.read_to_end(), (String::new(), ending), "{fault}");
            }
            assert_eq!(server.request_count(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_accepts_and_never_answers_the_handshake() {
    let server = start(&reached(r#"{ "tls": "good", "connections": ["silent_handshake", "good"] }"#)).await;
    let mut client = Client::connect(server.addr());
    client.send_bytes(&client_hello(&server));
    client.expect_silence();
    connect(&server, "localhost", &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_may_end_as_soon_as_it_is_accepted() {
    let server = start(&reached(r#"{ "connections": ["close", "reset", "good"] }"#)).await;
    assert_eq!(Client::connect(server.addr()).read_to_end(), (String::new(), Ending::Fin));
    assert_eq!(Client::connect(server.addr()).read_to_end(), (String::new(), Ending::Reset));
    let request = post(ASK).replace("host: x", "connection: close");
    assert!(exchange(server.addr(), &request).0.starts_with("HTTP/1.1 200 \r\n"));
    assert_eq!(server.requests()[0].connection, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_script_is_reached_as_it_says_under_the_same_authority() {
    let server = start(&reached(r#"{ "tls": "expired", "connections": ["close"] }"#)).await;
    assert_eq!(Client::connect(server.addr()).read_to_end(), (String::new(), Ending::Fin));
    let ca = server.ca_pem();
    server
        .set_script(
            Script::from_json(&reached(r#"{ "tls": "good", "connections": ["reset", "good"] }"#)).unwrap(),
        )
        .unwrap();
    assert_eq!(server.ca_pem(), ca);
    assert_eq!(Client::connect(server.addr()).read_to_end(), (String::new(), Ending::Reset));
    connect(&server, "localhost", &[]).await.unwrap();
    server.set_script(Script::from_json(&reached("{}")).unwrap()).unwrap();
    let mut client = Client::connect(server.addr());
    client.post(ASK);
    client.expect("HTTP/1.1 200 \r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_port_gives_the_authoritys_certificate_out() {
    let server = start(&reached(r#"{ "tls": "good" }"#)).await;
    let request = "GET /ca.pem HTTP/1.1\r\nconnection: close\r\n\r\n";
    let (answer, _) = exchange(server.control_addr(), request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/pem-certificate-chain"), "{head}");
    assert_eq!(body, server.ca_pem());
}

#[test]
fn how_a_server_is_reached_survives_the_way_through_json_and_misspelt_words_are_refused() {
    let script = Script::from_json(&reached(
        r#"{ "tls": "wrong_host", "http": "1.1", "connections": ["close", "good"] }"#,
    ))
    .unwrap();
    assert_eq!(Script::from_json(&serde_json::to_string(&script).unwrap()).unwrap(), script);
    let error = Script::from_json(&reached(r#"{ "tls": "great" }"#)).unwrap_err();
    assert_eq!(error.place(), "server.tls");
    let error = Script::from_json(&reached(r#"{ "https": true }"#)).unwrap_err();
    assert!(error.to_string().contains("expected one of `tls`, `http`, `connections`"), "{error}");
}
