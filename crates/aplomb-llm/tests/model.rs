//! One attempt at a model, over the mock: what is kept of an error, and what is told to whoever watches.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use aplomb_core::failure::{BODY_LIMIT, Failure, Phase, TransportKind};
use aplomb_core::message::{Delta, Message, Role};
use aplomb_faultlab::script::Script;
use aplomb_llm::provider::Endpoint;
use aplomb_llm::wire::Wire;
use aplomb_llm::{Answer, AttemptFailed, Model, ModelConfig, ModelRequest, StreamMode};
use serde_json::{Value, json};

fn model(steps: Value, change: impl FnOnce(&mut ModelConfig)) -> Model {
    let script = Script::from_json(&json!({ "steps": steps }).to_string()).unwrap();
    let mut config = ModelConfig::new("mock", "m", Wire::OpenaiChat, Endpoint::Mock(script));
    change(&mut config);
    Model::new(config).unwrap()
}

fn ask(model: &Model, deltas: Option<&mut Vec<Delta>>) -> Result<Answer, AttemptFailed> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let messages = [Arc::new(Message::text(Role::User, "hi"))];
    let request = ModelRequest { run_id: "r", messages: &messages, tools: &[] };
    tokio.block_on(async {
        match deltas {
            Some(deltas) => model.ask(request, Some(&mut |delta: &Delta| deltas.push(delta.clone()))).await,
            None => model.ask(request, None).await,
        }
    })
}

fn failure(model: &Model) -> Box<Failure> {
    ask(model, None).unwrap_err().failure
}

#[test]
fn of_a_huge_error_a_mebibyte_is_read_and_eight_kibibytes_are_kept() {
    // Half of the body comes, then silence: reading on would wait for the clock and lose nothing but time.
    let huge = json!({"http": {"status": 500, "body": "x".repeat(3 << 20)}});
    let model = model(json!([{"reply": huge, "fault": {"stall": {"after_events": 0}}}]), |config| {
        config.timeouts.first_byte = Duration::from_secs(3600);
    });
    let failure = failure(&model);
    assert_eq!((failure.status, failure.body.len()), (Some(500), BODY_LIMIT));
}

#[test]
fn an_error_whose_body_breaks_off_is_still_what_its_status_says() {
    let error = json!({"http": {"status": 429, "headers": {"retry-after": "7"}, "body": {"error": {"message": "slow"}}}});
    let model =
        model(json!([{"reply": error, "fault": {"cut": {"after_events": 0, "by": "reset"}}}]), |_| {});
    let failure = failure(&model);
    assert_eq!((failure.phase, failure.status), (Phase::Response, Some(429)));
    assert_eq!(failure.headers.get("retry-after").map(String::as_str), Some("7"));
}

#[test]
fn whoever_watches_gets_an_answer_in_pieces_or_in_one() {
    let steps = || json!([{"reply": {"message": {"text": "one two three"}}}]);
    let text = |deltas: &[Delta]| -> Vec<String> {
        let texts = deltas.iter().filter_map(|delta| match delta {
            Delta::Text { text } => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    };
    let mut pieces = Vec::new();
    let streamed = ask(&model(steps(), |_| {}), Some(&mut pieces)).unwrap();
    assert!(streamed.first_delta_ms.is_some());
    assert_eq!((text(&pieces).concat().as_str(), pieces.len()), ("one two three", 3));
    let mut pieces = Vec::new();
    let plain = ask(&model(steps(), |config| config.stream = StreamMode::Never), Some(&mut pieces)).unwrap();
    assert_eq!((text(&pieces), plain.first_delta_ms), (vec!["one two three".to_owned()], None));
}

#[test]
fn each_clock_names_itself() {
    let short = Duration::from_millis(20);
    let silence = || json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]);
    let pings = || json!([{"reply": {"message": {"text": "never"}}, "fault": {"pings": {"after_events": 0, "every_ms": 5}}}]);
    for (steps, change, expected) in [
        (
            silence(),
            Box::new(|config: &mut ModelConfig| config.timeouts.first_byte = short)
                as Box<dyn FnOnce(&mut ModelConfig)>,
            TransportKind::FirstByteTimeout,
        ),
        (silence(), Box::new(|config| config.timeouts.attempt = Some(short)), TransportKind::AttemptTimeout),
        // Comments keep the connection alive, and are no progress.
        (
            pings(),
            Box::new(|config| {
                config.stream = StreamMode::Always;
                config.timeouts.idle = short;
            }),
            TransportKind::IdleTimeout,
        ),
        // An answer that is not streamed must be there whole within the first-byte clock.
        (pings(), Box::new(|config| config.timeouts.first_byte = short), TransportKind::FirstByteTimeout),
    ] {
        assert_eq!(failure(&model(steps, change)).transport.unwrap().kind, expected);
    }
}

#[test]
fn pings_after_a_whole_answer_do_not_hold_it_back() {
    // The answer with its end, and then comments for ever; the script's own faults never send the end.
    let answer = json!({"message": {"text": "ok"}});
    let model =
        model(json!([{"reply": answer, "fault": {"pings_after_end": {"every_ms": 100}}}]), |config| {
            config.stream = StreamMode::Always;
        });
    assert_eq!(ask(&model, None).unwrap().reply.message.to_text(), "ok");
}

#[test]
fn a_stream_is_known_under_another_name() {
    let event = json!({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]});
    let reply = json!({"http": {
        "status": 200,
        "headers": {"content-type": "text/plain"},
        "body": format!("data: {event}\n\ndata: [DONE]\n\n"),
    }});
    let model = model(json!([{ "reply": reply }]), |config| config.stream = StreamMode::Always);
    assert_eq!(ask(&model, None).unwrap().reply.message.to_text(), "ok");
}
