//! The server as a client on a bare socket meets it: connections, requests in odd shapes, the log, the
//! control port.
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::raw::{Client, Ending, exchange, post};
use aplomb_faultlab::script::{Engine, HttpReply, Message, Reply, Script, Step};
use aplomb_faultlab::server::{FaultServer, serve};
use serde_json::{Value, json};

const ASK: &str = r#"{"messages":[{"role":"user","content":"hi"}]}"#;

/// Answers `1`, `2` and `3`, one step each.
fn one_two_three() -> Script {
    let reply = |text: &str| {
        let mut http = HttpReply::new(200);
        http.body = Some(text.into());
        http.headers.insert("x-request-id".to_owned(), "-".to_owned());
        Step::new(Reply::Http(http))
    };
    Script::new(["1", "2", "3"].map(reply).into())
}

/// What [`one_two_three`] sends.
fn answer(text: &str) -> String {
    format!(
        "HTTP/1.1 200 \r\nx-request-id: -\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: 1\r\n\r\n{text}"
    )
}

/// The status and the body of a control request.
fn control(server: &FaultServer, method: &str, path: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let (answer, ending) = exchange(server.control_addr(), &request);
    assert_eq!(ending, Ending::Fin);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_several_requests() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut client = Client::connect(server.addr());
    client.post(ASK);
    client.expect(&answer("1"));
    client.post(ASK);
    client.expect(&answer("2"));
    // And two at once, answered in order.
    client.send(&(post(ASK) + &post(ASK)));
    client.expect(&answer("3"));
    client.expect("HTTP/1.1 400 \r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_told_apart_by_a_header_if_the_script_names_one() {
    let mut script = one_two_three();
    script.run_header = Some("X-Run".to_owned());
    let server = FaultServer::start(script).await.unwrap();
    let mut client = Client::connect(server.addr());
    for (run, expected) in [("one", "1"), ("two", "1"), ("one", "2"), ("two", "2")] {
        client.send(&post(ASK).replace("host: x", &format!("host: x\r\nx-run: {run}")));
        client.expect(&answer(expected));
    }
    client.post(ASK);
    client.expect(&answer("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_wants_the_connection_closed_gets_it_closed() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let request = post(ASK).replace("host: x", "host: x\r\nConnection: Close");
    assert_eq!(exchange(server.addr(), &request), (answer("1"), Ending::Fin));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_arrive_byte_by_byte() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut client = Client::connect(server.addr());
    for byte in post(ASK).as_bytes() {
        client.send(str::from_utf8(&[*byte]).unwrap());
        std::thread::yield_now();
    }
    client.expect(&answer("1"));
    assert_eq!(server.requests()[0].body, serde_json::from_str::<Value>(ASK).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_logged_once_its_head_has_arrived() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut client = Client::connect(server.addr());
    let request = post(ASK);
    let (head, body) = request.split_at(request.len() - ASK.len());
    client.send(head);
    eventually(|| server.request_count() == 1);
    let logged = &server.requests()[0];
    assert_eq!((&logged.body, logged.step), (&Value::Null, None));
    let (first, second) = body.split_at(10);
    client.send(first);
    client.expect_silence();
    client.send(second);
    client.expect(&answer("1"));
    assert_eq!(server.requests()[0].step, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_may_be_chunked_with_extensions_and_trailers() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let (first, second) = ASK.split_at(10);
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
         a;x=y\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\nx-trailer: 1\r\n\r\n",
        second.len()
    );
    let mut client = Client::connect(server.addr());
    client.send(&request);
    client.expect(&answer("1"));
    client.post(ASK); // the trailer was the body's, not the next request's
    client.expect(&answer("2"));
    assert_eq!(server.requests()[0].body, serde_json::from_str::<Value>(ASK).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_expects_to_be_asked_for_its_body_is_asked() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut client = Client::connect(server.addr());
    let length = ASK.len();
    client.send(&format!(
        "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {length}\r\nExpect: 100-Continue\r\n\r\n"
    ));
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send(ASK);
    client.expect(&answer("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_and_the_connection_closed() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let cases = [
        ("GET / FTP/1.1\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.0\r\n\r\n".to_owned(), 505),
        ("POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ncontent-length: 33554433\r\n\r\n".to_owned(), 413),
        ("POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n".to_owned(), 501),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc".to_owned(), 400),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2000001\r\n".to_owned(), 413),
        (format!("POST / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(70_000)), 431),
        (format!("POST / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200)), 431),
    ];
    for (request, status) in cases {
        let (answer, ending) = exchange(server.addr(), &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} \r\n")), "{status}: {answer}");
        assert!(answer.contains(r#"{"error":{"message":"#), "{answer}");
        assert_eq!(ending, Ending::Fin);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_what_the_client_sent() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut client = Client::connect(server.addr());
    client.send(&post(ASK).replace("host: x", "Authorization: Bearer k\r\nx-a: 1\r\nX-A: 2"));
    client.expect(&answer("1"));
    client.send("GET /v1/models?x=1 HTTP/1.1\r\n\r\n");
    client.expect("HTTP/1.1 404 \r\n");

    let log = server.requests();
    assert_eq!(log.len(), 2);
    assert_eq!((log[0].index, log[0].step, log[0].method.as_str()), (0, Some(0), "POST"));
    assert_eq!(log[0].path, "/v1/chat/completions");
    assert_eq!(log[0].headers["authorization"], "Bearer k");
    assert_eq!(log[0].headers["x-a"], "1, 2");
    assert_eq!((log[1].index, log[1].step, log[1].path.as_str()), (1, None, "/v1/models?x=1"));
    assert_eq!(log[1].body, "");
    assert!(log[0].at_ms <= log[1].at_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_which_requests_shared_a_connection() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut clients = [Client::connect(server.addr()), Client::connect(server.addr())];
    for (client, text) in [(1, "1"), (0, "2"), (1, "3")] {
        clients[client].post(ASK);
        clients[client].expect(&answer(text));
    }
    let log = server.requests();
    // Connections are accepted in the order in which they were made.
    assert_eq!([log[0].connection, log[1].connection, log[2].connection], [1, 0, 1]);
    assert!(log.iter().all(|request| request.http == "1.1"));
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_script_begins_at_its_first_step_with_an_empty_log() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let mut client = Client::connect(server.addr());
    client.post(ASK);
    client.expect(&answer("1"));
    server.set_script(one_two_three()).unwrap();
    assert_eq!(server.request_count(), 0);
    client.post(ASK);
    client.expect(&answer("1"));
    assert!(server.set_script(Script::new(Vec::new())).is_err());
    client.post(ASK);
    client.expect(&answer("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_port_shows_and_clears_the_log_and_replaces_the_script() {
    let server = serve(one_two_three(), 0, 0).await.unwrap();
    let mut client = Client::connect(server.addr());
    client.post(ASK);
    client.expect(&answer("1"));

    let (status, log) = control(&server, "GET", "/requests", "");
    assert_eq!(status, 200);
    assert_eq!(log.as_array().unwrap().len(), 1);
    assert_eq!(log[0]["step"], 0);
    assert_eq!(log[0]["body"]["messages"][0]["content"], "hi");
    assert_eq!(log[0]["headers"]["host"], "x");

    assert_eq!(control(&server, "DELETE", "/requests", ""), (204, Value::Null));
    assert_eq!(control(&server, "GET", "/requests", ""), (200, json!([])));
    client.post(ASK);
    client.expect(&answer("2")); // the script goes on

    let script = serde_json::to_string(&one_two_three()).unwrap();
    assert_eq!(control(&server, "POST", "/script", &script), (204, Value::Null));
    assert_eq!(server.request_count(), 0);
    client.post(ASK);
    client.expect(&answer("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_port_says_what_is_wrong() {
    let server = FaultServer::start(one_two_three()).await.unwrap();
    let (status, error) = control(&server, "POST", "/script", r#"{ "steps": [] }"#);
    assert_eq!((status, &error["error"]["message"]), (400, &json!("steps: expected at least one step")));
    let (status, error) = control(&server, "GET", "/script", "");
    assert_eq!(status, 404);
    assert!(error["error"]["message"].as_str().unwrap().contains("POST /script"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_is_not_valid_does_not_start() {
    let error = FaultServer::start(Script::new(Vec::new())).await.unwrap_err();
    assert_eq!(error.to_string(), "steps: expected at least one step");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_server_closes_its_ports_and_its_connections() {
    let script = r#"{ "steps": [ { "reply": { "message": {} }, "fault": "silence" } ] }"#;
    let server = FaultServer::start(Script::from_json(script).unwrap()).await.unwrap();
    let mut client = Client::connect(server.addr());
    client.post(ASK);
    client.expect_silence();
    let ports = [server.addr(), server.control_addr()];
    drop(server);
    assert_eq!(client.read_to_end().0, "");
    for port in ports {
        eventually(|| is_closed(port));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_and_gaps_change_no_byte() {
    let mut message = Message::new("a b");
    message.event_gap_ms = 1;
    let mut slow = Step::new(Reply::Message(message.clone()));
    slow.delay_ms = 1;
    message.event_gap_ms = 0;
    let quick = Step::new(Reply::Message(message));
    let request = post(r#"{"stream":true,"messages":[{"role":"user","content":"hi"}]}"#);
    let read = async |step: Step| {
        let server = FaultServer::start(Script::new(vec![step])).await.unwrap();
        let mut client = Client::connect(server.addr());
        client.send(&request);
        client.read_through("0\r\n\r\n")
    };
    assert_eq!(read(slow).await, read(quick).await);
}

#[test]
fn what_crosses_threads_may() {
    fn crosses<T: Send + Sync>() {}
    crosses::<FaultServer>();
    crosses::<Engine>();
}

fn is_closed(addr: SocketAddr) -> bool {
    TcpStream::connect(addr).is_err()
}

/// Waits for what another thread is about to do; far longer than it takes.
#[track_caller]
fn eventually(condition: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("this should have happened by now");
}
