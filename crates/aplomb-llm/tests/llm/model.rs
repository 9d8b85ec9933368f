//! One attempt at a model, over the mock: what is kept of an error, and what is told to whoever watches.

use std::sync::Arc;
use std::time::Duration;

use aplomb_core::failure::{Anomaly, BODY_LIMIT, Failure, Phase, TransportKind};
use aplomb_core::message::{Block, Delta, ImageSource, Message, Role};
use aplomb_faultlab::script::Script;
use aplomb_llm::model::Endpoint;
use aplomb_llm::wire::{self, CachePoint, Parameters, Wire};
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
    let request = ModelRequest { run_id: "r", messages: &messages, tools: &[], output: None };
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

/// A good answer whose head does not say what it is, `bytes` at a time.
fn nameless(body: &str, bytes: usize) -> Model {
    let reply = json!({"http": {"status": 200, "headers": {"content-type": "application/octet-stream"}, "body": body}});
    let steps = json!([{"reply": reply, "fault": {"drip": {"bytes": bytes, "every_ms": 0}}}]);
    model(steps, |config| config.stream = StreamMode::Always)
}

#[test]
fn what_a_body_is_does_not_depend_on_where_the_network_cuts_it() {
    let event = json!({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]});
    let whole = json!({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]});
    let mut bodies: Vec<_> =
        ["", "\u{feff}", "\n\n", "\r\n", ": ping\n\n", "id: 1\n", "retry: 5\n", "event: message\n"]
            .map(|before| format!("{before}data: {event}\n\ndata: [DONE]\n\n"))
            .into();
    bodies.extend(["", "\n ", "   \r\n\t"].map(|before| format!("{before}{whole}")));
    for body in bodies {
        for bytes in 1..=body.len() {
            let answer = ask(&nameless(&body, bytes), None);
            assert_eq!(answer.unwrap().reply.message.to_text(), "ok", "{body:?} by {bytes}");
        }
    }
    for no_answer in ["<html>", "[1]", "", "  "] {
        let failure = if no_answer.is_empty() {
            let reply =
                json!({"http": {"status": 200, "headers": {"content-type": "text/plain"}, "body": ""}});
            failure(&model(json!([{ "reply": reply }]), |config| config.stream = StreamMode::Always))
        } else {
            failure(&nameless(no_answer, 1))
        };
        assert_eq!(failure.anomaly, Some(Anomaly::MalformedBody), "{no_answer:?}");
    }
}

#[test]
fn an_answer_that_is_cut_between_two_of_its_finish_reasons_is_no_success() {
    let chat = json!({"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": "stop"}]});
    let gemini = json!({"candidates": [
        {"index": 0, "content": {"role": "model", "parts": [{"text": "word "}]}, "finishReason": "STOP"},
    ]});
    for (wire, event) in [(Wire::OpenaiChat, chat), (Wire::Gemini, gemini)] {
        let body = format!("data: {event}\n\n").repeat(8);
        let reply =
            json!({"http": {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": body}});
        let asked = |fault: Value| {
            let steps = json!([{"reply": reply, "fault": fault}]);
            ask(
                &model(steps, |config| {
                    config.wire = wire;
                    config.timeouts.idle = Duration::from_millis(50);
                }),
                None,
            )
        };
        // Half of it comes: four words, each with a finish reason.
        for (fault, kind) in [
            (json!({"cut": {"after_events": 0, "by": "reset"}}), TransportKind::Reset),
            (json!({"stall": {"after_events": 0}}), TransportKind::IdleTimeout),
        ] {
            let failure = asked(fault).unwrap_err().failure;
            assert_eq!(
                (failure.phase, failure.transport.unwrap().kind),
                (Phase::MidStream, kind),
                "{wire:?}"
            );
        }
        let whole = asked(json!({"drip": {"bytes": 7, "every_ms": 0}})).unwrap();
        assert_eq!(whole.reply.message.to_text(), "word ".repeat(8), "{wire:?}");
    }
}

#[test]
fn credentials_are_found_behind_any_scheme_and_below_secret_names() {
    let secret = |text: &str| text.to_owned().into();
    let endpoint = Endpoint::Http {
        api_base: "http://host/v1".to_owned(),
        api_key: Some(secret("key-of-the-api")),
        extra_headers: [
            ("Authorization".to_owned(), secret("bearer lower-case-1")),
            ("X-Gateway".to_owned(), secret("DPoP  scheme-of-its-own")),
            ("Cookie".to_owned(), secret("session=cookie-1; csrf=cookie-2")),
            ("Referer".to_owned(), secret("https://public")),
        ]
        .into(),
        ca_file: None,
    };
    let mut config = ModelConfig::new("test", "m", Wire::OpenaiChat, endpoint);
    let fields = json!({
        "apiKey": "body-1", "n": 3, "user": "ada",
        "connection": [{"Password": {"current": ["body-2", 5]}, "host": "public"}],
    });
    config.extra_body = fields.as_object().unwrap().clone();
    let model = Model::new(config).unwrap();
    let found: Vec<_> = model.credentials().collect();
    for expected in
        ["key-of-the-api", "lower-case-1", "scheme-of-its-own", "cookie-1", "cookie-2", "body-1", "body-2"]
    {
        assert!(found.contains(&expected), "{expected}");
    }
    for public in ["https://public", "public", "ada"] {
        assert!(!found.contains(&public), "{public}");
    }
}

#[test]
fn of_a_whole_answer_that_is_none_and_says_no_counts_the_size_is_what_it_used() {
    let body = json!({"choices": [{"message": {"content": "half"}, "finish_reason": null}]});
    let size = body.to_string().len() as u64;
    let usage = |body: &Value| {
        let steps = json!([{"reply": {"http": {"status": 200, "body": body}}}]);
        ask(&model(steps, |_| {}), None).unwrap_err().usage
    };
    let estimated = usage(&body).unwrap();
    assert_eq!((estimated.output, estimated.estimated), (size.div_ceil(4), true));
    assert_eq!(usage(&json!({"error": {"message": "no"}})), None);
}

#[test]
fn what_an_answer_used_is_estimated_where_the_provider_never_says() {
    let whole = json!({"choices": [{"message": {"content": "one two"}, "finish_reason": "stop"}]});
    let steps = json!([{"reply": {"http": {"status": 200, "body": whole}}}]);
    let usage = ask(&model(steps, |_| {}), None).unwrap().reply.usage.unwrap();
    // Seven bytes of answer; the document around them is none.
    assert!(usage.estimated && usage.input > 0, "{usage:?}");
    assert_eq!(usage.output, 2);
    let events = "data: {\"choices\":[{\"delta\":{\"content\":\"one two\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let steps = json!([{"reply": {"http": {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": events}}}]);
    let streamed = model(steps, |config| config.stream = StreamMode::Always);
    let usage = ask(&streamed, None).unwrap().reply.usage.unwrap();
    assert_eq!((usage.estimated, usage.output), (true, 2));
}

#[test]
fn what_a_failed_attempt_used_is_estimated_where_the_answer_had_begun_and_nobody_said() {
    let sent = |model: &Model| {
        let messages = [Arc::new(Message::text(Role::User, "hi"))];
        let parameters = Parameters { model: "m", stream: true, ..Parameters::default() };
        model.config().wire.request_body(parameters, &messages, &[]).unwrap().len() as u64
    };
    let streamed = |steps: Value| model(steps, |config| config.stream = StreamMode::Always);
    // After the event that names the role, "one " and "two " arrived: eight bytes, which make two tokens of four.
    let cut = streamed(json!([
        {"reply": {"message": {"text": "one two three"}}, "fault": {"cut": {"after_events": 3, "by": "reset"}}}
    ]));
    let usage = ask(&cut, None).unwrap_err().usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.estimated), (sent(&cut).div_ceil(4), 2, true));
    // A request that was refused, or that never arrived, used nothing.
    for step in [
        json!({"reply": {"http": {"status": 429, "body": {"error": {"message": "slow"}}}}}),
        json!({"reply": {"http": {"status": 200, "headers": {"content-type": "text/html"}, "body": "<html>"}}}),
        json!({"reply": {"message": {"text": "never"}}, "fault": "reset_before_headers"}),
    ] {
        assert_eq!(ask(&streamed(json!([step])), None).unwrap_err().usage, None, "{step}");
    }
    // The provider was at work when our patience ended.
    let silent = model(json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]), |config| {
        config.stream = StreamMode::Always;
        config.timeouts.first_byte = Duration::from_millis(20);
    });
    let usage = ask(&silent, None).unwrap_err().usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.estimated), (sent(&silent).div_ceil(4), 0, true));
}

#[test]
fn what_the_provider_says_that_a_failed_attempt_used_is_no_estimate() {
    let empty = json!([{"reply": {"http": {"status": 200, "body": {
        "choices": [{"message": {"content": ""}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }}}}]);
    let usage = ask(&model(empty, |_| {}), None).unwrap_err().usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.estimated), (10, 5, false));
}

#[test]
fn an_early_count_of_an_answer_that_breaks_off_is_mended_by_what_arrived() {
    // Anthropic counts the input at the answer's beginning, when it has made one token of it.
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let body = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x".repeat(40)}}),
    ]
    .map(event)
    .concat();
    let reply =
        json!({"http": {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": body}});
    let model = model(json!([{ "reply": reply }]), |config| config.wire = Wire::Anthropic);
    let usage = ask(&model, None).unwrap_err().usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.estimated), (10, 10, true));
}

#[test]
fn a_picture_is_not_taken_for_so_much_text() {
    let source = ImageSource::Base64 { media_type: "image/png".to_owned(), data: "A".repeat(400_000) };
    let messages = [Arc::new(Message { role: Role::User, content: vec![Block::Image { source }] })];
    let model = model(
        json!([{"reply": {"message": {"text": "one two"}}, "fault": {"cut": {"after_events": 1, "by": "fin"}}}]),
        |config| {
            config.stream = StreamMode::Always;
        },
    );
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = ModelRequest { run_id: "r", messages: &messages, tools: &[], output: None };
    let usage = tokio.block_on(model.ask(request, None)).unwrap_err().usage.unwrap();
    assert!(usage.input < 100, "{usage:?}");
}

#[test]
fn the_users_own_fields_are_merged_into_the_body_and_win() {
    let body = json!({"a": {"b": 1, "c": 2}, "d": 3, "e": 4});
    let patch = json!({"a": {"b": 5, "f": {"g": null, "h": 6}}, "d": {"i": 7}, "e": null});
    let merged = wire::merge(body.to_string().as_bytes(), patch.as_object().unwrap()).unwrap();
    let merged: Value = serde_json::from_slice(&merged).unwrap();
    assert_eq!(merged, json!({"a": {"b": 5, "c": 2, "f": {"h": 6}}, "d": {"i": 7}}));
}

#[test]
fn caching_is_refused_where_the_protocol_has_no_word_for_it() {
    let script = json!({"steps": [{"reply": {"message": {"text": "a"}}}]});
    let endpoint = Endpoint::Mock(Script::from_json(&script.to_string()).unwrap());
    let mut config = ModelConfig::new("groq", "m", Wire::OpenaiChat, endpoint);
    config.cache = vec![CachePoint::System];
    let error = Model::new(config.clone()).err().unwrap();
    assert_eq!(error.code().as_str(), "config.validation");
    config.wire = Wire::Anthropic;
    assert!(Model::new(config).is_ok());
}
