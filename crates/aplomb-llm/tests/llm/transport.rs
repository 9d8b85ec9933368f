//! What the network does has a kind, told from what really happened on a socket, and one request stays one.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use aplomb_core::failure::{Failure, Phase, TransportKind};
use aplomb_core::message::{Message, Role};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use aplomb_llm::model::Endpoint;
use aplomb_llm::wire::Wire;
use aplomb_llm::{Answer, AttemptFailed, Model, ModelConfig, ModelRequest, StreamMode};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::net::TcpSocket;

/// A provider, and a model that asks it.
struct Lab {
    server: FaultServer,
    model: Model,
}

impl Lab {
    async fn new(server: Value, steps: Value, stream: StreamMode) -> Lab {
        Lab::with(server, steps, stream, |_| {}).await
    }

    async fn with(
        server: Value,
        steps: Value,
        stream: StreamMode,
        change: impl FnOnce(&mut ModelConfig),
    ) -> Lab {
        let script = json!({ "server": server, "steps": steps, "at_end": "repeat_last" });
        let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
        let mut authority = NamedTempFile::new().unwrap();
        authority.write_all(server.ca_pem().as_bytes()).unwrap();
        let authority = server.base_url().starts_with("https").then_some(&authority);
        let mut config = config(&server.base_url(), authority, stream);
        change(&mut config);
        let model = Model::new(config).unwrap();
        Lab { server, model }
    }

    /// The fault of an attempt that fails.
    async fn fails(&self) -> (Phase, TransportKind) {
        kind(&ask(&self.model).await.unwrap_err().failure)
    }
}

fn model(api_base: &str, authority: Option<&NamedTempFile>, stream: StreamMode) -> Model {
    Model::new(config(api_base, authority, stream)).unwrap()
}

fn config(api_base: &str, authority: Option<&NamedTempFile>, stream: StreamMode) -> ModelConfig {
    let endpoint = Endpoint::Http {
        api_base: api_base.to_owned(),
        api_key: None,
        extra_headers: BTreeMap::new(),
        ca_file: authority.map(|file| file.path().to_owned()),
    };
    let mut config = ModelConfig::new("test", "m", Wire::OpenaiChat, endpoint);
    config.stream = stream;
    config
}

async fn ask(model: &Model) -> Result<Answer, AttemptFailed> {
    let messages = [Arc::new(Message::text(Role::User, "hi"))];
    model.ask(ModelRequest { run_id: "r", messages: &messages, tools: &[], output: None }, None).await
}

fn kind(failure: &Failure) -> (Phase, TransportKind) {
    let fault = failure.transport.as_ref().unwrap();
    assert!(!fault.text.is_empty(), "{fault:?}");
    (failure.phase, fault.kind)
}

fn answer() -> Value {
    json!({ "reply": { "message": { "text": "one two three" } } })
}

fn spoilt(fault: Value) -> Value {
    json!({ "reply": { "message": { "text": "one two three" } }, "fault": fault })
}

#[tokio::test]
async fn a_connection_that_is_lost_before_the_answer_is_told_from_one_that_is_lost_in_it() {
    for (stream, phase) in [(StreamMode::Never, Phase::Body), (StreamMode::Always, Phase::MidStream)] {
        for (fault, expected) in [
            (json!("reset_before_headers"), (Phase::Connect, TransportKind::Reset)),
            (json!("close_before_headers"), (Phase::Connect, TransportKind::Closed)),
            (json!({ "cut": { "after_events": 2, "by": "fin" } }), (phase, TransportKind::CutBody)),
            (json!({ "cut": { "after_events": 2, "by": "reset" } }), (phase, TransportKind::Reset)),
        ] {
            let lab = Lab::new(json!({}), json!([spoilt(fault.clone())]), stream).await;
            assert_eq!(lab.fails().await, expected, "{fault}");
            assert_eq!(lab.server.request_count(), 1, "{fault}");
        }
    }
}

#[tokio::test]
async fn nobody_there_is_told_from_nobody_of_that_name() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let refused = format!("http://{}/v1", socket.local_addr().unwrap());
    // A label has at most 63 bytes (RFC 1035, section 2.3.4), so no resolver has to be asked.
    let unknown = format!("http://{}.invalid/v1", "a".repeat(64));
    for (address, expected) in [(refused, TransportKind::Refused), (unknown, TransportKind::Dns)] {
        let failure = ask(&model(&address, None, StreamMode::Never)).await.unwrap_err().failure;
        assert_eq!(kind(&failure), (Phase::Connect, expected));
    }
}

#[tokio::test]
async fn a_certificate_is_told_from_a_handshake_that_breaks() {
    for (server, expected) in [
        (json!({ "tls": "expired" }), TransportKind::Certificate),
        (json!({ "tls": "wrong_host" }), TransportKind::Certificate),
        (json!({ "tls": "untrusted" }), TransportKind::Certificate),
        (json!({ "tls": "good", "connections": ["cut_handshake"] }), TransportKind::TlsInterrupted),
        (json!({ "tls": "good", "connections": ["reset_handshake"] }), TransportKind::TlsInterrupted),
        (json!({ "tls": "good", "connections": ["close"] }), TransportKind::TlsInterrupted),
    ] {
        let lab = Lab::new(server.clone(), json!([answer()]), StreamMode::Never).await;
        assert_eq!(lab.fails().await, (Phase::Connect, expected), "{server}");
        assert_eq!(lab.server.request_count(), 0, "{server}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told_from_one_that_breaks_off() {
    let lab = Lab::new(json!({}), json!([answer()]), StreamMode::Never).await;
    let https = lab.server.base_url().replace("http://", "https://");
    // Any authority will do: it does not come to a certificate.
    let other = Lab::new(json!({ "tls": "good" }), json!([answer()]), StreamMode::Never).await;
    let mut authority = NamedTempFile::new().unwrap();
    authority.write_all(other.server.ca_pem().as_bytes()).unwrap();
    let failure = ask(&model(&https, Some(&authority), StreamMode::Never)).await.unwrap_err().failure;
    assert_eq!(kind(&failure), (Phase::Connect, TransportKind::Tls));
}

#[tokio::test]
async fn http2_gives_up_a_connection_or_a_stream_and_the_request_is_not_sent_again() {
    let reset = |events| json!({ "reset_stream": { "code": "internal_error", "after_events": events } });
    for (fault, expected) in [
        (json!("go_away_before"), (Phase::Connect, TransportKind::GoAway)),
        (json!("refused_stream"), (Phase::Connect, TransportKind::StreamReset)),
        (reset(Value::Null), (Phase::Connect, TransportKind::StreamReset)),
        (reset(json!(2)), (Phase::MidStream, TransportKind::StreamReset)),
    ] {
        let steps = json!([spoilt(json!({ "http2": fault }))]);
        let lab = Lab::new(json!({ "tls": "good", "http": "2" }), steps, StreamMode::Always).await;
        assert_eq!(lab.fails().await, expected, "{fault}");
        assert_eq!(lab.server.request_count(), 1, "{fault}");
    }
}

#[tokio::test]
async fn a_connection_that_is_given_up_at_once_is_lost_whichever_of_its_signs_comes_first() {
    let fault = json!({ "http2": { "go_away_abrupt": { "code": "enhance_your_calm" } } });
    let lab =
        Lab::new(json!({ "tls": "good", "http": "2" }), json!([spoilt(fault)]), StreamMode::Always).await;
    let (phase, kind) = lab.fails().await;
    // The frame races with the end of the connection that follows it.
    let signs =
        [TransportKind::GoAway, TransportKind::BrokenPipe, TransportKind::Reset, TransportKind::Closed];
    assert!(phase == Phase::Connect && signs.contains(&kind), "{phase:?} {kind:?}");
    assert_eq!(lab.server.request_count(), 1);
}

#[tokio::test]
async fn a_connection_that_may_be_silent_is_not_used_again_and_one_that_gave_a_stream_up_is() {
    let given_up = json!({ "http2": { "reset_stream": { "code": "cancel" } } });
    for (fault, kind, connections) in [
        (given_up, TransportKind::StreamReset, [0, 0, 0, 0]),
        (json!("silence"), TransportKind::FirstByteTimeout, [0, 0, 0, 1]),
    ] {
        let steps = json!([answer(), answer(), spoilt(fault), answer()]);
        let lab = Lab::with(json!({ "tls": "good", "http": "2" }), steps, StreamMode::Never, |config| {
            config.timeouts.first_byte = Duration::from_secs(2);
        })
        .await;
        for _ in 0..2 {
            ask(&lab.model).await.unwrap();
        }
        assert_eq!(lab.fails().await.1, kind);
        ask(&lab.model).await.unwrap();
        let used: Vec<_> = lab.server.requests().iter().map(|request| request.connection).collect();
        assert_eq!(used, connections, "{kind:?}");
    }
}

#[tokio::test]
async fn a_request_that_may_not_have_arrived_is_not_said_to_have_used_anything() {
    // It waits for longer than a connection may take, or not.
    let (short, long) = (Duration::from_millis(50), Duration::from_millis(1200));
    for (connect, wait, is_billed) in
        [(Duration::from_secs(10), short, false), (Duration::from_secs(1), long, true)]
    {
        for by_attempt in [false, true] {
            let lab = Lab::with(json!({}), json!([spoilt(json!("silence"))]), StreamMode::Never, |config| {
                config.timeouts.connect = connect;
                if by_attempt {
                    config.timeouts.attempt = Some(wait);
                } else {
                    config.timeouts.first_byte = wait;
                }
            })
            .await;
            let usage = ask(&lab.model).await.unwrap_err().usage;
            assert_eq!(usage.is_some(), is_billed, "{connect:?} {by_attempt}");
        }
    }
}
