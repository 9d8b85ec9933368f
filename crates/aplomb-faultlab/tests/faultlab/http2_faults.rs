//! What each fault is in HTTP/2's frames, and what comes nearest to it over HTTP/1.1. Codes are those of
//! RFC 9113, section 7.
use aplomb_faultlab::server::FaultServer;

use crate::frames::{Frame, FrameClient};
use crate::lab::{chunks, start};
use crate::raw::{Ending, exchange, post};

const ASK: &str = r#"{"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

const NO_ERROR: u32 = 0x0;
const REFUSED_STREAM: u32 = 0x7;

/// Steps that each say "Hello you", with these faults; `null` is none.
fn faults(faults: &[&str]) -> String {
    let step = |fault: &&str| {
        format!(r#"{{ "reply": {{ "message": {{ "text": "Hello you" }} }}, "fault": {fault} }}"#)
    };
    format!(r#"{{ "steps": [ {} ] }}"#, faults.iter().map(step).collect::<Vec<_>>().join(", "))
}

/// The events of the `number`-th answer, and `[DONE]`.
fn events(number: u32) -> Vec<String> {
    let chunk = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-faultlab-{number}\",\"object\":\"chat.completion.chunk\",\
             \"created\":1700000000,\"model\":\"faultlab\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
             \"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    vec![
        chunk(r#"{"role":"assistant","content":""}"#, "null"),
        chunk(r#"{"content":"Hello"}"#, "null"),
        chunk(r#"{"content":" you"}"#, "null"),
        chunk("{}", "\"stop\""),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// The frames of the first events of the `number`-th answer.
fn begun(stream: u32, number: u32, after_events: usize) -> Vec<Frame> {
    let data = |text| Frame::Data { stream, text };
    [Frame::Headers { stream }]
        .into_iter()
        .chain(events(number).into_iter().take(after_events).map(data))
        .collect()
}

/// The frames of the whole of the `number`-th answer.
fn whole(stream: u32, number: u32) -> Vec<Frame> {
    let mut frames = begun(stream, number, usize::MAX);
    frames.push(Frame::EndStream { stream });
    frames
}

fn client(server: &FaultServer) -> FrameClient {
    FrameClient::connect(server.addr())
}

/// Everything that one request brings on a connection of its own.
async fn frames_of(fault: &str) -> (Vec<Frame>, Ending) {
    let server = start(&faults(&[fault])).await;
    let mut client = client(&server);
    client.post(1, ASK);
    client.read_to_end()
}

/// The same over HTTP/1.1.
async fn bytes_of(fault: &str) -> (String, Ending) {
    let server = start(&faults(&[fault])).await;
    exchange(server.addr(), &post(ASK))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_before_a_request_names_a_stream_below_it() {
    let goaway = |last_stream| Frame::GoAway { last_stream, code: NO_ERROR };
    let fault = r#"{ "http2": "go_away_before" }"#;
    assert_eq!(frames_of(fault).await, (vec![goaway(0)], Ending::Fin));

    let server = start(&faults(&["null", fault])).await;
    let mut client = client(&server);
    client.post(1, ASK);
    client.expect(&whole(1, 1));
    client.post(3, ASK);
    assert_eq!(client.read_to_end(), (vec![goaway(1)], Ending::Fin));
    let log = server.requests();
    assert_eq!((log[1].step, log[1].headers["x-stream"].as_str()), (Some(1), "3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_below_the_last_one_are_answered_before_the_server_is_gone() {
    let server = start(&faults(&["null", r#"{ "http2": "go_away_before" }"#])).await;
    let mut client = FrameClient::connect_without_room(server.addr());
    client.post(1, ASK);
    client.expect(&begun(1, 1, 0));
    client.post(3, ASK);
    client.expect(&[Frame::GoAway { last_stream: 1, code: NO_ERROR }]);
    client.open(1);
    assert_eq!(client.read_to_end(), (whole(1, 1).split_off(1), Ending::Fin));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_in_order_answers_what_it_has_taken_and_takes_no_more() {
    let server = start(&faults(&["null", r#"{ "http2": "go_away_graceful" }"#, "null"])).await;
    let mut client = FrameClient::connect_without_room(server.addr());
    client.post(1, ASK);
    client.expect(&begun(1, 1, 0));
    client.post(3, ASK);
    client.expect(&[Frame::GoAway { last_stream: 3, code: NO_ERROR }]);
    client.expect(&begun(3, 2, 0));
    // As a client does that has not read the GOAWAY yet.
    client.post(5, ASK);
    client.expect(&[Frame::Reset { stream: 5, code: REFUSED_STREAM }]);
    client.open(3);
    client.expect(&whole(3, 2).split_off(1));
    client.open(1);
    assert_eq!(client.read_to_end(), (whole(1, 1).split_off(1), Ending::Fin));
    assert_eq!(server.request_count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_at_once_says_why_and_answers_nothing() {
    for (name, code) in [("internal_error", 0x2), ("enhance_your_calm", 0xb), ("no_error", 0x0)] {
        let fault = format!(r#"{{ "http2": {{ "go_away_abrupt": {{ "code": "{name}" }} }} }}"#);
        let expected = vec![Frame::GoAway { last_stream: 1, code }];
        assert_eq!(frames_of(&fault).await, (expected, Ending::Fin), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_refused_or_reset_and_the_connection_goes_on() {
    let reset = |code: &str| format!(r#"{{ "http2": {{ "reset_stream": {{ "code": "{code}" }} }} }}"#);
    let in_body = |code: &str, events: usize| {
        format!(r#"{{ "http2": {{ "reset_stream": {{ "code": "{code}", "after_events": {events} }} }} }}"#)
    };
    let server = start(&faults(&[
        r#"{ "http2": "refused_stream" }"#,
        &reset("cancel"),
        &in_body("internal_error", 2),
        &in_body("enhance_your_calm", 99),
        &in_body("http_1_1_required", 0),
        "null",
    ]))
    .await;
    let mut client = client(&server);
    client.post(1, ASK);
    client.expect(&[Frame::Reset { stream: 1, code: REFUSED_STREAM }]);
    client.post(3, ASK);
    client.expect(&[Frame::Reset { stream: 3, code: 0x8 }]);
    client.post(5, ASK);
    client.expect(&[begun(5, 3, 2), vec![Frame::Reset { stream: 5, code: 0x2 }]].concat());
    client.post(7, ASK);
    client.expect(&[begun(7, 4, 3), vec![Frame::Reset { stream: 7, code: 0xb }]].concat());
    client.post(9, ASK);
    client.expect(&[begun(9, 5, 0), vec![Frame::Reset { stream: 9, code: 0xd }]].concat());
    client.post(11, ASK);
    client.expect(&whole(11, 6));
    assert_eq!(server.connection_count(), 1);
    assert!(server.requests().iter().all(|request| request.connection == 0 && request.http == "2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_answer_is_reset_after_half_its_body() {
    let server = start(
        r#"{ "steps": [ { "reply": { "http": { "status": 200, "body": "123456789" } },
             "fault": { "http2": { "reset_stream": { "code": "cancel", "after_events": 7 } } } } ] }"#,
    )
    .await;
    let mut client = client(&server);
    client.post(1, ASK);
    client.expect(&[
        Frame::Headers { stream: 1 },
        Frame::Data { stream: 1, text: "1234".to_owned() },
        Frame::Reset { stream: 1, code: 0x8 },
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_a_connection_ends_it_here_too_with_all_that_was_sent_before() {
    let cut = |by: &str| format!(r#"{{ "cut": {{ "after_events": 2, "by": "{by}" }} }}"#);
    assert_eq!(frames_of(&cut("fin")).await, (begun(1, 1, 2), Ending::Fin));
    assert_eq!(frames_of(&cut("reset")).await, (begun(1, 1, 2), Ending::Reset));
    assert_eq!(frames_of(r#""close_before_headers""#).await, (Vec::new(), Ending::Fin));
    assert_eq!(frames_of(r#""reset_before_headers""#).await, (Vec::new(), Ending::Reset));
    // There are no chunks: the events in proper ones, and the end.
    assert_eq!(
        frames_of(r#"{ "wrong_chunk_size": { "after_events": 1 } }"#).await,
        (begun(1, 1, 1), Ending::Fin)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_1_1_each_fault_is_what_comes_nearest() {
    let nothing = |ending| (String::new(), ending);
    assert_eq!(bytes_of(r#"{ "http2": "go_away_before" }"#).await, nothing(Ending::Fin));
    assert_eq!(bytes_of(r#"{ "http2": "refused_stream" }"#).await, nothing(Ending::Fin));
    let abrupt = r#"{ "http2": { "go_away_abrupt": { "code": "internal_error" } } }"#;
    assert_eq!(bytes_of(abrupt).await, nothing(Ending::Reset));
    let reset = r#"{ "http2": { "reset_stream": { "code": "cancel" } } }"#;
    assert_eq!(bytes_of(reset).await, nothing(Ending::Reset));

    let head = "HTTP/1.1 200 \r\ncontent-type: text/event-stream\r\n";
    let rest = "x-request-id: req_faultlab_1\r\ntransfer-encoding: chunked\r\n\r\n";
    let events = events(1);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let reset = r#"{ "http2": { "reset_stream": { "code": "cancel", "after_events": 2 } } }"#;
    let expected = format!("{head}{rest}{}", chunks(&events[..2]));
    assert_eq!(bytes_of(reset).await, (expected, Ending::Reset));
    let expected = format!("{head}connection: close\r\n{rest}{}0\r\n\r\n", chunks(&events));
    assert_eq!(bytes_of(r#"{ "http2": "go_away_graceful" }"#).await, (expected, Ending::Fin));
}
