//! HTTP/2 as a client of the `h2` crate meets it, with prior knowledge and by ALPN.
#![expect(clippy::disallowed_methods, reason = "a client's connection runs beside its requests")]

use aplomb_faultlab::script::{Http2Code, Script};
use aplomb_faultlab::server::FaultServer;
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::lab::{hello_script, start};
use crate::raw::{Client, Ending, exchange, post};
use crate::tls;

const ASK: &str = r#"{"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const PLAIN: &str = r#"{"messages":[{"role":"user","content":"hi"}]}"#;

type Connection = JoinHandle<Result<(), h2::Error>>;

async fn handshake<T>(io: T) -> (SendRequest<Bytes>, Connection)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (client, connection) = h2::client::handshake(io).await.unwrap();
    (client, tokio::task::spawn(connection))
}

async fn connect(server: &FaultServer) -> (SendRequest<Bytes>, Connection) {
    handshake(TcpStream::connect(server.addr()).await.unwrap()).await
}

async fn ask(client: &mut SendRequest<Bytes>, body: &str) -> Result<Response<RecvStream>, h2::Error> {
    let request = Request::post("http://x/v1/chat/completions?a=b").header("x-a", "1").header("x-a", "2");
    let mut ready = client.clone().ready().await?;
    let (response, mut stream) = ready.send_request(request.body(()).unwrap(), false)?;
    stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
    response.await
}

async fn read(body: &mut RecvStream) -> Result<String, (String, h2::Error)> {
    let mut bytes = BytesMut::new();
    let text = |bytes: &BytesMut| String::from_utf8(bytes.to_vec()).unwrap();
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                body.flow_control().release_capacity(data.len()).unwrap();
                bytes.extend_from_slice(&data);
            }
            Err(error) => return Err((text(&bytes), error)),
        }
    }
    Ok(text(&bytes))
}

async fn whole(client: &mut SendRequest<Bytes>, body: &str) -> (u16, HeaderMap, String) {
    let (head, mut body) = ask(client, body).await.unwrap().into_parts();
    (head.status.as_u16(), head.headers, read(&mut body).await.unwrap())
}

/// The body of an answer of HTTP/1.1, out of its chunks, if it has any.
fn body_over_http_1_1(server: &FaultServer, body: &str) -> String {
    let mut client = Client::connect(server.addr());
    client.send(&post(body).replace("host: x", "connection: close"));
    let head = client.read_through("\r\n\r\n");
    // No answer here is that long.
    let (mut rest, ending) = client.read_exactly(1 << 20).unwrap_err();
    assert_eq!(ending, Ending::Fin);
    if !head.contains("chunked") {
        return String::from_utf8(rest).unwrap();
    }
    let mut whole = Vec::new();
    while let Some(line) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = usize::from_str_radix(str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let mut chunk = rest.split_off(line + 2);
        rest = chunk.split_off(size + 2);
        whole.extend_from_slice(&chunk[..size]);
    }
    String::from_utf8(whole).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_has_the_same_bodies_over_every_way_to_reach_it() {
    let steps = r#"[
        { "reply": { "http": { "status": 429, "headers": { "retry-after": "1", "connection": "close" },
                               "body": { "error": { "message": "slow down" } } } } },
        { "reply": { "message": { "text": "Grüße 😀", "event_gap_ms": 1 } }, "fault": "split_utf8" },
        { "reply": { "message": { "tool_calls": [ { "name": "f", "arguments": { "a": 1 } } ] } },
          "fault": "crlf" },
        { "reply": { "message": { "text": "a b c" } }, "fault": { "drip": { "bytes": 7, "every_ms": 0 } } },
        { "reply": { "message": { "text": "a" } }, "fault": "split_headers" },
        { "reply": { "message": { "text": "a" } }, "fault": { "slow_headers": { "delay_ms": 1 } } },
        { "reply": { "message": { "text": "a" } }, "fault": { "end_without_terminal": { "done": true } } },
        { "reply": { "http": { "status": 204 } } } ]"#;
    let clear = start(&format!(r#"{{ "steps": {steps}, "at_end": "restart" }}"#)).await;
    let expected: Vec<String> = [ASK, PLAIN]
        .iter()
        .flat_map(|body| (0..8).map(|_| body_over_http_1_1(&clear, body)).collect::<Vec<_>>())
        .collect();

    let tls =
        start(&format!(r#"{{ "server": {{ "tls": "good" }}, "steps": {steps}, "at_end": "restart" }}"#))
            .await;
    let by_alpn = tls::connect(&tls, "localhost", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(by_alpn.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    clear
        .set_script(Script::from_json(&format!(r#"{{ "steps": {steps}, "at_end": "restart" }}"#)).unwrap())
        .unwrap();
    for (mut client, server) in [(handshake(by_alpn).await.0, &tls), (connect(&clear).await.0, &clear)] {
        let mut bodies = Vec::new();
        for body in [ASK, PLAIN] {
            for _ in 0..8 {
                let (status, headers, text) = whole(&mut client, body).await;
                assert!([200, 204, 429].contains(&status), "{status}");
                assert_eq!(headers.get("retry-after").is_some(), status == 429);
                assert!(headers.get("connection").is_none() && headers.get("transfer-encoding").is_none());
                bodies.push(text);
            }
        }
        assert_eq!(bodies, expected);
        let log = server.requests();
        assert_eq!(log.len(), 16);
        assert!(log.iter().all(|request| request.http == "2" && request.connection == log[0].connection));
        assert_eq!((log[0].method.as_str(), log[0].path.as_str()), ("POST", "/v1/chat/completions?a=b"));
        assert_eq!((log[0].headers["host"].as_str(), log[0].headers["x-a"].as_str()), ("x", "1, 2"));
        assert_eq!(log[0].body, serde_json::from_str::<serde_json::Value>(ASK).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_larger_than_every_window_goes_both_ways() {
    // RFC 9113, section 6.9.2: a window has 65,535 bytes at first.
    let text = "0123456789".repeat(30_000);
    let server = start(&format!(
        r#"{{ "steps": [ {{ "reply": {{ "http": {{ "status": 200, "body": "{text}" }} }} }} ] }}"#
    ))
    .await;
    let (client, _connection) = connect(&server).await;
    let asked = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let request = Request::post("http://x/v1/chat/completions").body(()).unwrap();
    let (response, mut stream) = client.ready().await.unwrap().send_request(request, false).unwrap();
    stream.send_data(Bytes::from(asked), true).unwrap();
    let mut response = response.await.unwrap();
    assert_eq!(response.headers()["content-length"], "300000");
    assert_eq!(read(response.body_mut()).await.unwrap(), text);
    assert_eq!(server.requests()[0].body["messages"][0]["content"], text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_stream_is_a_reset_that_says_so_and_the_next_request_is_answered() {
    let server = start(
        r#"{ "steps": [ { "reply": { "message": {} }, "fault": { "http2": "refused_stream" } },
                        { "reply": { "message": { "text": "a" } } } ] }"#,
    )
    .await;
    let (mut client, _connection) = connect(&server).await;
    let error = ask(&mut client, ASK).await.unwrap_err();
    assert!(error.is_reset() && error.is_remote());
    assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    assert_eq!(whole(&mut client, PLAIN).await.0, 200);
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_reset_in_its_body_has_what_came_before_and_the_code() {
    let fault = r#"{ "http2": { "reset_stream": { "code": "internal_error", "after_events": 2 } } }"#;
    let server = start(&hello_script(fault)).await;
    let (mut client, _connection) = connect(&server).await;
    let mut response = ask(&mut client, ASK).await.unwrap();
    let (text, error) = read(response.body_mut()).await.unwrap_err();
    assert!(text.contains("Hello") && !text.contains(" you"), "{text}");
    assert!(error.is_reset() && error.is_remote());
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_before_a_request_fails_it_with_goaway() {
    let server = start(&hello_script(r#"{ "http2": "go_away_before" }"#)).await;
    let (mut client, _connection) = connect(&server).await;
    let error = ask(&mut client, ASK).await.unwrap_err();
    assert!(error.is_go_away() && error.is_remote());
    assert_eq!(error.reason(), Some(Reason::NO_ERROR));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_in_order_gives_its_answer_and_takes_no_other_request() {
    let server = start(&hello_script(r#"{ "http2": "go_away_graceful" }"#)).await;
    let (mut client, connection) = connect(&server).await;
    let (status, _, text) = whole(&mut client, ASK).await;
    assert_eq!((status, text.ends_with("data: [DONE]\n\n")), (200, true));
    assert!(ask(&mut client, ASK).await.is_err());
    drop(client);
    connection.await.unwrap().unwrap();
    assert_eq!(server.request_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_at_once_ends_the_connection_with_its_code() {
    let fault = r#"{ "http2": { "go_away_abrupt": { "code": "enhance_your_calm" } } }"#;
    let server = start(&hello_script(fault)).await;
    let (mut client, connection) = connect(&server).await;
    ask(&mut client, ASK).await.unwrap_err();
    let error = connection.await.unwrap().unwrap_err();
    assert!(error.is_go_away() && error.is_remote());
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_may_end_beneath_a_stream() {
    for fault in [r#""reset_before_headers""#, r#""close_before_headers""#] {
        let server = start(&hello_script(fault)).await;
        let (mut client, connection) = connect(&server).await;
        let error = ask(&mut client, ASK).await.unwrap_err();
        assert!(error.is_io() && error.reason().is_none(), "{error}");
        drop(client);
        let _ = connection.await.unwrap();
    }
    let server = start(&hello_script(r#"{ "cut": { "after_events": 2, "by": "fin" } }"#)).await;
    let (mut client, _connection) = connect(&server).await;
    let mut response = ask(&mut client, ASK).await.unwrap();
    let (text, error) = read(response.body_mut()).await.unwrap_err();
    assert!(text.contains("Hello") && !text.contains(" you"), "{text}");
    assert!(error.is_io(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_gives_up_on_a_stream_keeps_the_connection() {
    let server = start(
        r#"{ "steps": [ { "reply": { "message": {} }, "fault": "silence" },
                        { "reply": { "message": {} }, "fault": { "stall": { "after_events": 1 } } },
                        { "reply": { "message": {} }, "fault": { "pings": { "after_events": 1, "every_ms": 1 } } },
                        { "reply": { "message": { "text": "a" } } } ] }"#,
    )
    .await;
    let (mut client, _connection) = connect(&server).await;
    let silent = {
        let mut client = client.clone();
        tokio::task::spawn(async move { ask(&mut client, ASK).await.map(drop) })
    };
    while server.requests().first().is_none_or(|request| request.step.is_none()) {
        tokio::task::yield_now().await;
    }
    silent.abort();
    for _ in 0..2 {
        let mut response = ask(&mut client, ASK).await.unwrap();
        assert!(response.body_mut().data().await.unwrap().is_ok());
    }
    assert_eq!(whole(&mut client, PLAIN).await.0, 200);
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_speaks_the_versions_that_its_script_says() {
    let reached = |http: &str| {
        format!(
            r#"{{ "server": {{ "http": "{http}" }}, "at_end": "repeat_last",
                  "steps": [ {{ "reply": {{ "message": {{}} }} }} ] }}"#
        )
    };
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let server = start(&reached("1.1")).await;
    let (answer, ending) = exchange(server.addr(), preface);
    assert!(answer.starts_with("HTTP/1.1 505 \r\n"), "{answer}");
    assert_eq!(ending, Ending::Fin);
    let server = start(&reached("2")).await;
    assert_eq!(exchange(server.addr(), &post(ASK)), (String::new(), Ending::Fin));
    let server = start(&reached("either")).await;
    assert_eq!(whole(&mut connect(&server).await.0, ASK).await.0, 200);
    let mut client = Client::connect(server.addr());
    client.post(ASK);
    client.expect("HTTP/1.1 200 \r\n");
    // The preface may come in pieces.
    let mut client = Client::connect(server.addr());
    for byte in preface.bytes() {
        client.send_bytes(&[byte]);
    }
    // Settings come first (RFC 9113, section 3.4): type 4, no flags, stream 0.
    let header = client.read_exactly(9).unwrap();
    assert_eq!(header[3..], [4, 0, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_of_tls_carry_the_faults_of_streams() {
    let server = start(
        r#"{ "server": { "tls": "good", "http": "2" }, "steps": [
            { "reply": { "message": { "text": "a b" } },
              "fault": { "http2": { "reset_stream": { "code": "cancel", "after_events": 1 } } } },
            { "reply": { "message": {} }, "fault": { "http2": { "go_away_abrupt": { "code": "protocol_error" } } } }
        ] }"#,
    )
    .await;
    let tls = tls::connect(&server, "127.0.0.1", &["h2"]).await.unwrap();
    let (mut client, connection) = handshake(tls).await;
    let mut response = ask(&mut client, ASK).await.unwrap();
    let (_, error) = read(response.body_mut()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    ask(&mut client, ASK).await.unwrap_err();
    assert_eq!(connection.await.unwrap().unwrap_err().reason(), Some(Reason::PROTOCOL_ERROR));
}

#[test]
fn codes_have_the_names_and_numbers_of_the_protocol() {
    // RFC 9113, section 7.
    let names = [
        "no_error",
        "protocol_error",
        "internal_error",
        "flow_control_error",
        "settings_timeout",
        "stream_closed",
        "frame_size_error",
        "refused_stream",
        "cancel",
        "compression_error",
        "connect_error",
        "enhance_your_calm",
        "inadequate_security",
        "http_1_1_required",
    ];
    for (number, name) in (0..).zip(names) {
        let code: Http2Code = serde_json::from_value(name.into()).unwrap();
        assert_eq!(code.number(), number, "{name}");
    }
}

#[test]
fn a_fault_of_http_2_must_be_spelt_right_and_fit_its_reply() {
    let with = |reply: &str, fault: &str| {
        Script::from_json(&format!(
            r#"{{ "steps": [ {{ "reply": {reply}, "fault": {{ "http2": {fault} }} }} ] }}"#
        ))
    };
    let message = r#"{ "message": {} }"#;
    for fault in [r#""go_away_before""#, r#"{ "go_away_abrupt": { "code": "cancel" } }"#] {
        let script = with(message, fault).unwrap();
        assert_eq!(Script::from_json(&serde_json::to_string(&script).unwrap()).unwrap(), script);
    }
    let error = with(message, r#"{ "reset_stream": { "code": "tired" } }"#).unwrap_err().to_string();
    assert!(error.starts_with("steps[0].fault.http2.reset_stream.code: unknown variant"), "{error}");
    let error = with(
        r#"{ "http": { "status": 503 } }"#,
        r#"{ "reset_stream": { "code": "cancel", "after_events": 1 } }"#,
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "steps[0].fault.http2.reset_stream: expected a reply with a body to cut"
    );
}
