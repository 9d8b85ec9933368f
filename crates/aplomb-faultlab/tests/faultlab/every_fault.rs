//! Every fault that the language has, played once on every protocol: streamed and plain, each has a plan that is
//! not empty by mistake.

use aplomb_faultlab::script::{Answer, Engine, Part, Request, Script, json_schema};
use serde_json::{Value, json};

use crate::wires::WIRES;

/// A fault of each kind, by its name. What needs HTTP/2 is played as what comes nearest.
fn faults() -> Vec<(&'static str, Value)> {
    let with = |name: &'static str, fields: Value| (name, json!({ name: fields }));
    let bare = |name: &'static str| (name, json!(name));
    vec![
        bare("reset_before_headers"),
        bare("close_before_headers"),
        bare("silence"),
        with("cut", json!({ "after_events": 1, "by": "fin" })),
        with("end_without_terminal", json!({ "done": true })),
        with("error_event", json!({ "after_events": 1, "body": { "error": { "message": "oh" } } })),
        with("pings", json!({ "after_events": 1, "every_ms": 1 })),
        with("pings_after_end", json!({ "every_ms": 1 })),
        with("stall", json!({ "after_events": 1 })),
        with("malformed_event", json!({ "after_events": 1 })),
        with("glued_events", json!({ "after_events": 1 })),
        with("split_event", json!({ "after_events": 1 })),
        bare("end_after_reason"),
        bare("empty_answer"),
        with("huge_event", json!({ "after_events": 1, "bytes": 9000 })),
        with("flood", json!({ "after_events": 1, "bytes": 9000 })),
        bare("split_utf8"),
        bare("crlf"),
        bare("lone_cr"),
        with("wrong_chunk_size", json!({ "after_events": 1 })),
        bare("short_body"),
        bare("split_headers"),
        with("slow_headers", json!({ "delay_ms": 1 })),
        with("drip", json!({ "bytes": 7, "every_ms": 0 })),
        with("cut_arguments", json!({})),
        with("http2", json!("refused_stream")),
    ]
}

/// The faults of the schema, so that a new one is missed here.
fn known() -> Vec<String> {
    let schema = json_schema();
    let faults = schema.pointer("/$defs/Fault/oneOf").and_then(Value::as_array).unwrap().clone();
    let name = |fault: &Value| match fault.get("const") {
        Some(name) => name.as_str().unwrap().to_owned(),
        None => fault["properties"].as_object().unwrap().keys().next().unwrap().clone(),
    };
    faults.iter().map(name).collect()
}

#[test]
fn every_fault_has_a_plan_on_every_wire() {
    let names: Vec<&str> = faults().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known());
    let message = json!({ "thinking": "Hm", "redacted_thinking": true, "text": "Héllo you",
                          "tool_calls": [ { "name": "f", "arguments": { "a": "b" } }, { "name": "g" } ] });
    for (name, fault) in faults() {
        let script = json!({ "steps": [ { "reply": { "message": message }, "fault": fault } ] });
        for wire in WIRES {
            for request in [wire.streamed, wire.plain] {
                let engine = Engine::new(Script::from_json(&script.to_string()).unwrap()).unwrap();
                let plan = engine.plan("k", &Request::new(wire.path_of(request), request));
                assert_eq!(plan.step, Some(0), "{name} on {}", wire.path);
                let has_body = match &plan.answer {
                    Answer::Response(response) => {
                        assert_eq!(response.status, 200, "{name} on {}", wire.path);
                        let is_bytes = |part: &Part| matches!(part, Part::Bytes(bytes) if !bytes.is_empty());
                        response.parts.iter().any(is_bytes) || !response.raw.tail.is_empty()
                    }
                    Answer::Reset | Answer::Close | Answer::Silence => false,
                };
                let nothing = ["reset_before_headers", "close_before_headers", "silence", "http2"];
                let spaces_alone = name == "pings" && request == wire.plain;
                assert_eq!(has_body, !nothing.contains(&name) && !spaces_alone, "{name} on {}", wire.path);
            }
        }
    }
}
