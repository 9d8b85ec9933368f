//! What bad proxies do to streams of every wire: events glued together, and events cut in two.

use aplomb_core::failure::{Anomaly, Failure};
use aplomb_core::message::Reply;
use aplomb_llm::wire::{Quirks, Wire};
use serde_json::{Value, json};

/// The data of one answer of each wire, event by event, with its end mark where there is one.
fn answers() -> Vec<(Wire, Vec<String>)> {
    let text = |events: Vec<Value>| events.iter().map(Value::to_string).collect::<Vec<_>>();
    let chat = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let mut openai_chat = text(vec![
        chat(json!({"content": "one { \"two\" } "}), Value::Null),
        chat(json!({"content": "three"}), Value::Null),
        chat(json!({}), json!("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
    ]);
    openai_chat.push("[DONE]".to_owned());
    let delta = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let anthropic = text(vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        delta("one { \"two\" } "),
        delta("three"),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]);
    let delta = |text: &str| json!({"type": "response.output_text.delta", "output_index": 0, "delta": text});
    let openai_responses = text(vec![
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}}),
        delta("one { \"two\" } "),
        delta("three"),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ]);
    let chunk = |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}, "index": 0}]});
    let gemini = text(vec![
        chunk("one { \"two\" } "),
        chunk("three"),
        json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP", "index": 0}]}),
    ]);
    vec![
        (Wire::OpenaiChat, openai_chat),
        (Wire::OpenaiResponses, openai_responses),
        (Wire::Anthropic, anthropic),
        (Wire::Gemini, gemini),
    ]
}

fn read(wire: Wire, data: &[String]) -> Result<Reply, Box<Failure>> {
    let mut decoder = wire.decoder(Quirks::default());
    for data in data {
        decoder.push(format!("data: {data}\n\n").as_bytes(), &mut Vec::new())?;
    }
    decoder.finish()
}

#[test]
fn events_glued_together_are_each_taken_by_themselves() {
    for (wire, events) in answers() {
        let expected = read(wire, &events).unwrap();
        assert_eq!(expected.message.to_text(), "one { \"two\" } three", "{wire:?}");
        for first in 0..events.len() {
            for last in first + 1..=events.len() {
                for between in ["", " "] {
                    let glued = events[first..last].join(between);
                    let data = [&events[..first], &[glued], &events[last..]].concat();
                    assert_eq!(read(wire, &data).unwrap(), expected, "{wire:?} {first}..{last}");
                }
            }
        }
    }
}

#[test]
fn an_error_that_is_glued_to_an_event_is_not_lost() {
    for (wire, events) in answers() {
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        for at in 0..events.len() {
            if events[at].starts_with('{') {
                let data = [&events[..at], &[format!("{}{error}", events[at])]].concat();
                let failure = read(wire, &data).unwrap_err();
                assert_eq!(failure.anomaly, Some(Anomaly::Error), "{wire:?} {at}");
                assert_eq!(failure.provider_error.message.as_deref(), Some("Overloaded"));
            }
        }
    }
}

#[test]
fn an_event_cut_in_two_is_never_lost_in_silence() {
    for (wire, events) in answers() {
        let expected = read(wire, &events).unwrap();
        for (at, event) in events.iter().enumerate().filter(|(_, event)| event.starts_with('{')) {
            for cut in 1..event.len() {
                let (head, tail) = event.split_at(cut);
                let data = [&events[..at], &[head.to_owned(), tail.to_owned()], &events[at + 1..]].concat();
                match read(wire, &data) {
                    Err(failure) => assert_eq!(failure.anomaly, Some(Anomaly::MalformedEvent), "{wire:?}"),
                    // After the end nothing but counts can be lost.
                    Ok(reply) => assert_eq!(reply.message, expected.message, "{wire:?} {at} {cut}"),
                }
            }
        }
    }
}
