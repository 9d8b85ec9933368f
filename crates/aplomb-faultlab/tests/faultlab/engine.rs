//! The engine as an in-process mock uses it: places in the script, keys, templates, refusals, plans as data.
use std::time::Duration;

use aplomb_faultlab::script::{Answer, End, Engine, Framing, Head, Part, Plan, Request, Response, Script};
use serde_json::{Value, json};

fn engine(script: &Value) -> Engine {
    Engine::new(Script::from_json(&script.to_string()).unwrap()).unwrap()
}

fn ask(engine: &Engine, key: &str, body: &Value) -> Plan {
    engine.plan(key, &Request::new("/v1/chat/completions", body.to_string()))
}

fn hi() -> Value {
    json!({ "model": "m", "messages": [ { "role": "user", "content": "hi" } ] })
}

fn response(plan: Plan) -> Response {
    match plan.answer {
        Answer::Response(response) => response,
        other => panic!("{other:?}"),
    }
}

fn body_of(plan: Plan) -> Value {
    let sent: Vec<u8> = response(plan)
        .parts
        .iter()
        .flat_map(|part| match part {
            Part::Bytes(bytes) => bytes.to_vec(),
            Part::Pause(_) => Vec::new(),
        })
        .collect();
    serde_json::from_slice(&sent).unwrap()
}

fn text(plan: Plan) -> String {
    body_of(plan)["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// Steps `a`, `b` twice, `c`.
fn letters(at_end: &str) -> Engine {
    engine(&json!({ "at_end": at_end, "steps": [
        { "reply": { "message": { "text": "a" } } },
        { "reply": { "message": { "text": "b" } }, "repeat": 2 },
        { "reply": { "message": { "text": "c" } } } ] }))
}

fn steps(engine: &Engine, requests: usize) -> Vec<Option<usize>> {
    (0..requests).map(|_| ask(engine, "k", &hi()).step).collect()
}

#[test]
fn a_step_serves_as_many_requests_as_it_says() {
    assert_eq!(steps(&letters("stop"), 4), [Some(0), Some(1), Some(1), Some(2)]);
}

#[test]
fn after_the_last_step_the_script_stops_or_repeats_it_or_restarts() {
    assert_eq!(steps(&letters("stop"), 6)[4..], [None, None]);
    assert_eq!(steps(&letters("repeat_last"), 6)[4..], [Some(2), Some(2)]);
    assert_eq!(steps(&letters("restart"), 9)[4..], [Some(0), Some(1), Some(1), Some(2), Some(0)]);
}

#[test]
fn a_request_past_the_end_is_told_so() {
    let engine = letters("stop");
    steps(&engine, 4);
    let plan = ask(&engine, "k", &hi());
    assert_eq!(response(plan.clone()).status, 400);
    let error = &body_of(plan)["error"];
    assert_eq!(error["type"], "invalid_request_error");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("The script has 3 steps for 4 requests and this was request 5."),
        "{message}"
    );
    assert!(body_of(ask(&engine, "k", &hi()))["error"]["message"].as_str().unwrap().contains("request 6"));
}

#[test]
fn every_key_has_its_own_place_in_the_script() {
    let engine = letters("stop");
    assert_eq!(text(ask(&engine, "one", &hi())), "a");
    assert_eq!(text(ask(&engine, "two", &hi())), "a");
    assert_eq!(text(ask(&engine, "one", &hi())), "b");
}

/// What is said to `inputs`, in order; `-` for a refusal.
fn said_to(engine: &Engine, inputs: &[&str]) -> Vec<String> {
    let ask = |input: &&str| {
        let plan = ask(engine, "k", &json!({ "messages": [ { "role": "user", "content": input } ] }));
        if plan.step.is_some() { text(plan) } else { "-".to_owned() }
    };
    inputs.iter().map(ask).collect()
}

/// Steps `a` for A, `any` twice, `b` for B, `a2` for A.
fn by_content(at_end: &str) -> Engine {
    engine(&json!({ "at_end": at_end, "steps": [
        { "when": { "input_contains": "A" }, "reply": { "message": { "text": "a" } } },
        { "reply": { "message": { "text": "any" } }, "repeat": 2 },
        { "when": { "input_contains": "B" }, "reply": { "message": { "text": "b" } } },
        { "when": { "input_contains": "A" }, "reply": { "message": { "text": "a2" } } } ] }))
}

#[test]
fn a_request_gets_the_first_step_that_matches_and_is_not_used_up() {
    let engine = by_content("stop");
    assert_eq!(said_to(&engine, &["x", "an A", "B", "B", "A", "A"]), ["any", "a", "any", "b", "a2", "-"]);
    // Case counts.
    assert_eq!(said_to(&by_content("stop"), &["a"]), ["any"]);
}

#[test]
fn at_the_end_only_the_matching_steps_repeat_or_restart() {
    let inputs = ["A", "A", "A", "A", "A", "B", "A", "x"];
    let repeated = said_to(&by_content("repeat_last"), &inputs);
    assert_eq!(repeated, ["a", "any", "any", "a2", "a2", "b", "a2", "any"]);
    // A's steps begin again after four, `any` among them; B comes to the second of them.
    let restarted = said_to(&by_content("restart"), &inputs);
    assert_eq!(restarted, ["a", "any", "any", "a2", "a", "any", "any", "any"]);
}

#[test]
fn a_request_that_nothing_matches_is_told_so() {
    let only = |at_end: &str| {
        engine(&json!({ "at_end": at_end, "steps": [
            { "when": { "input_contains": "A" }, "reply": { "message": {} } },
            { "when": { "input_contains": "B" }, "reply": { "message": {} } } ] }))
    };
    for at_end in ["stop", "repeat_last", "restart"] {
        assert_eq!(body_of(ask(&only(at_end), "k", &hi()))["error"]["code"], "no_step_matches");
    }
    let engine = only("stop");
    assert_eq!(step_for(&engine, "A"), Some(0));
    let ended = ask(&engine, "k", &json!({ "messages": [ { "role": "user", "content": "A" } ] }));
    let error = &body_of(ended)["error"];
    assert_eq!(error["code"], "script_ended");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("The script has 1 steps that match this request"), "{message}");
}

fn step_for(engine: &Engine, input: &str) -> Option<usize> {
    ask(engine, "k", &json!({ "messages": [ { "role": "user", "content": input } ] })).step
}

#[test]
fn a_step_may_be_for_some_runs_only() {
    let engine = engine(&json!({ "steps": [
        { "when": { "run_contains": "two", "input_contains": "h" }, "reply": { "message": { "text": "2" } } },
        { "reply": { "message": { "text": "all" } } } ] }));
    assert_eq!(text(ask(&engine, "run-one", &hi())), "all");
    assert_eq!(text(ask(&engine, "run-two", &hi())), "2");
    assert_eq!(text(ask(&engine, "run-two", &hi())), "all");
}

#[test]
fn a_header_may_say_the_run_and_what_lacks_it_has_the_engines_key() {
    let engine = engine(&json!({ "run_header": "X-Run", "steps": [
        { "when": { "run_contains": "two" }, "reply": { "message": { "text": "2" } } },
        { "reply": { "message": { "text": "a" } } },
        { "reply": { "message": { "text": "b" } } } ] }));
    let ask = |headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let request = Request::new("/v1/chat/completions", hi().to_string()).with_headers(headers);
        text(engine.plan("k", &request))
    };
    assert_eq!(ask(&[("x-run", "one")]), "a");
    assert_eq!(ask(&[("x-other", "-"), ("x-run", "run-two")]), "2");
    assert_eq!(ask(&[("x-run", "one")]), "b");
    assert_eq!(ask(&[("x-run", "run-two")]), "a");
    assert_eq!(ask(&[]), "a");
    assert_eq!(ask(&[("x-other", "one")]), "b");
}

/// Every request has a mishap, of which there is one.
fn unlucky(mishap: &Value, reply: &Value) -> Engine {
    engine(&json!({ "steps": [ { "reply": reply } ], "at_end": "repeat_last",
                    "random": { "seed": 1, "rate": 1, "faults": [mishap] } }))
}

#[test]
fn a_mishaps_reply_leaves_the_step_for_the_next_request() {
    let script = |rate: f64| {
        json!({ "steps": [ { "reply": { "message": { "text": "a" } } }, { "reply": { "message": { "text": "b" } } } ],
                "random": { "seed": 3, "rate": rate, "faults": [ { "reply": { "http": { "status": 503 } } } ] } })
    };
    let engine = engine(&script(0.5));
    let plans: Vec<Plan> = (0..40).map(|_| ask(&engine, "k", &hi())).collect();
    let (unlucky, others): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(|plan| plan.mishap.is_some());
    assert!(unlucky.len() > 1 && others.len() > 2, "{plans:?}");
    for plan in unlucky {
        assert_eq!((plan.step, response(plan.clone()).status), (None, 503));
    }
    // Whoever was spared had the steps in order, and after them the end.
    let steps: Vec<Option<usize>> = others.iter().map(|plan| plan.step).collect();
    assert_eq!(steps[..3], [Some(0), Some(1), None]);
}

#[test]
fn a_mishaps_fault_befalls_the_step() {
    let plan = ask(&unlucky(&json!({ "fault": "silence" }), &json!({ "message": {} })), "k", &hi());
    assert_eq!((plan.step, plan.mishap, plan.answer), (Some(0), Some(0), Answer::Silence));
}

#[test]
fn a_mishap_may_be_a_reply_with_a_fault() {
    let mishap = json!({ "reply": { "http": { "status": 502, "body": "abcd" } },
                         "fault": { "cut": { "after_events": 0, "by": "fin" } } });
    let plan = ask(&unlucky(&mishap, &json!({ "message": {} })), "k", &hi());
    assert_eq!((plan.step, plan.mishap), (None, Some(0)));
    let response = response(plan);
    assert_eq!((response.status, response.end), (502, End::Fin));
}

#[test]
fn a_fault_that_does_not_fit_the_step_leaves_it_alone() {
    let engine =
        unlucky(&json!({ "fault": { "cut_arguments": {} } }), &json!({ "message": { "text": "a" } }));
    let plan = ask(&engine, "k", &hi());
    assert_eq!((plan.step, plan.mishap), (Some(0), None));
    assert_eq!(text(plan), "a");
}

#[test]
fn the_same_seed_has_the_same_plans_whatever_other_runs_do() {
    let script = json!({ "at_end": "restart", "steps": [ { "reply": { "message": { "text": "a" } } } ],
        "random": { "seed": 42, "rate": 0.5, "faults": [
            { "weight": 2, "fault": "crlf" }, { "reply": { "http": { "status": 529 } } } ] } });
    let lots = |others: usize| -> Vec<Option<usize>> {
        let engine = engine(&script);
        let alone = (0..50).map(|_| {
            (0..others).for_each(|_| drop(ask(&engine, "other", &hi())));
            ask(&engine, "k", &hi()).mishap
        });
        alone.collect()
    };
    assert_eq!(lots(0), lots(2));
    assert!(lots(0).contains(&Some(0)) && lots(0).contains(&Some(1)) && lots(0).contains(&None));
}

#[test]
fn a_refused_request_uses_no_step_but_has_a_number() {
    let engine = letters("stop");
    let lost = engine.plan("k", &Request::new("/v1/embeddings", "{}"));
    assert_eq!((lost.step, response(lost.clone()).status), (None, 404));
    let error = json!({ "error": {
        "message": "Invalid URL (/v1/embeddings): faultlab serves */chat/completions, */responses, \
                    */messages, */models/*:generateContent and */models/*:streamGenerateContent.",
        "type": "invalid_request_error", "param": null, "code": null } });
    assert_eq!(body_of(lost), error);
    let calls = json!([ { "id": "c", "function": { "name": "f", "arguments": "{}" } } ]);
    let unanswered = json!({ "messages": [
        { "role": "user", "content": "hi" }, { "role": "assistant", "tool_calls": calls } ] });
    let refused = ask(&engine, "k", &unanswered);
    assert_eq!((refused.step, response(refused.clone()).status), (None, 400));

    let served = ask(&engine, "k", &hi());
    assert_eq!(served.step, Some(0));
    let id = ("x-request-id".to_owned(), "req_faultlab_3".to_owned());
    assert!(response(served).headers.contains(&id));
}

#[test]
fn a_conversation_with_a_tool_goes_through() {
    let engine = engine(&json!({
        "captures": { "expression": "([0-9][-+*/ ().0-9]*)" },
        "steps": [
            { "reply": { "message": { "tool_calls": [
                { "name": "calc", "arguments": { "expression": "{{expression}}" } } ] } } },
            { "reply": { "message": { "text": "The answer is {{tool_result}}.", "tool_calls": [
                { "name": "calc" }, { "id": "call_3", "name": "calc" }, { "name": "calc" } ] } } } ] }));
    let mut messages = vec![json!({ "role": "user", "content": "What is 6 * (3 + 4) ?" })];
    let message =
        body_of(ask(&engine, "k", &json!({ "messages": messages })))["choices"][0]["message"].clone();
    assert_eq!(message["content"], Value::Null);
    assert_eq!(
        message["tool_calls"],
        json!([{ "id": "call_1", "type": "function",
                 "function": { "name": "calc", "arguments": "{\"expression\":\"6 * (3 + 4)\"}" } }])
    );

    messages.push(message);
    messages.push(json!({ "role": "tool", "tool_call_id": "call_1", "content": "42" }));
    let message =
        body_of(ask(&engine, "k", &json!({ "messages": messages })))["choices"][0]["message"].clone();
    assert_eq!(message["content"], "The answer is 42.");
    let ids: Vec<&str> =
        message["tool_calls"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["call_2", "call_3", "call_4"]); // one call before, and call_3 is taken
}

#[test]
fn a_conversation_with_a_tool_goes_through_on_anthropics_wire_too() {
    let engine = engine(&json!({
        "captures": { "expression": "([0-9][-+*/ ().0-9]*)" },
        "steps": [
            { "reply": { "message": { "thinking": "Hm", "tool_calls": [
                { "name": "calc", "arguments": { "expression": "{{expression}}" } } ] } } },
            { "reply": { "message": { "text": "{{input}} {{tool_result}}.", "tool_calls": [
                { "name": "calc" } ] } } } ] }));
    let ask = |messages: &[Value]| {
        let body = json!({ "max_tokens": 9, "messages": messages }).to_string();
        body_of(engine.plan("k", &Request::new("/v1/messages", body)))["content"].clone()
    };
    let mut messages = vec![json!({ "role": "user", "content": "6 * (3 + 4) =" })];
    let content = ask(&messages);
    assert_eq!(content[1]["input"], json!({ "expression": "6 * (3 + 4)" }));

    let result = json!([{ "type": "tool_result", "tool_use_id": content[1]["id"], "content": "42" }]);
    messages.push(json!({ "role": "assistant", "content": content }));
    messages.push(json!({ "role": "user", "content": result }));
    let content = ask(&messages);
    assert_eq!(content[0]["text"], "6 * (3 + 4) = 42.");
    assert_eq!(content[1]["id"], "toolu_2");
}

/// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>: during tool use, the thinking of
/// the last assistant message has to come back.
#[test]
fn thoughts_before_a_call_come_back_with_it_or_the_next_request_is_refused() {
    let ask_again = |step: Value, keep: bool, thinking: &str| {
        let engine = engine(&json!({ "steps": [step, { "reply": { "message": {} } }] }));
        let ask = |messages: &[Value]| {
            let body = json!({ "max_tokens": 9, "thinking": { "type": thinking }, "messages": messages });
            engine.plan("k", &Request::new("/v1/messages", body.to_string()))
        };
        let mut messages = vec![json!({ "role": "user", "content": "go" })];
        let mut content = body_of(ask(&messages))["content"].as_array().unwrap().clone();
        if !keep {
            content.retain(|block| block["type"] == "tool_use");
        }
        let result = json!([{ "type": "tool_result", "tool_use_id": "toolu_1", "content": "x" }]);
        messages.push(json!({ "role": "assistant", "content": content }));
        messages.push(json!({ "role": "user", "content": result }));
        response(ask(&messages)).status
    };
    let redacted = || {
        let message = json!({ "redacted_thinking": true, "tool_calls": [ { "name": "f" } ] });
        json!({ "reply": { "message": message } })
    };
    assert_eq!(ask_again(redacted(), true, "enabled"), 200);
    assert_eq!(ask_again(redacted(), false, "enabled"), 400);
    assert_eq!(ask_again(redacted(), false, "disabled"), 200);
    // What was not thought cannot come back.
    let silent = json!({ "reply": { "message": { "tool_calls": [ { "name": "f" } ] } } });
    assert_eq!(ask_again(silent, false, "enabled"), 200);
}

/// The error is quoted in <https://github.com/cline/cline/issues/12242>: a call that comes back by its item's id
/// needs the reasoning that it came with.
#[test]
fn reasoning_before_a_call_comes_back_with_its_item_or_the_next_request_is_refused() {
    let ask_again = |thinking: Option<&str>, keep: &[&str]| {
        let message = json!({ "thinking": thinking, "tool_calls": [ { "name": "f" } ] });
        let engine = engine(&json!({ "steps": [
            { "reply": { "message": message } }, { "reply": { "message": { "text": "{{tool_result}}" } } } ] }));
        let ask = |input: &[Value]| {
            engine.plan("k", &Request::new("/v1/responses", json!({ "input": input }).to_string()))
        };
        let mut input = vec![json!({ "role": "user", "content": "go" })];
        let mut output = body_of(ask(&input))["output"].as_array().unwrap().clone();
        output.retain(|item| keep.contains(&item["type"].as_str().unwrap()));
        input.extend(output);
        input.push(json!({ "type": "function_call_output", "call_id": "call_1", "output": "42" }));
        let answer = body_of(ask(&input));
        let text = &answer["output"][0]["content"][0]["text"];
        text.as_str().or(answer["error"]["message"].as_str()).unwrap().to_owned()
    };
    assert_eq!(ask_again(Some("Hm"), &["reasoning", "function_call"]), "42");
    assert_eq!(
        ask_again(Some("Hm"), &["function_call"]),
        "Item 'fc_faultlab_1_1' of type 'function_call' was provided without its required 'reasoning' item."
    );
    // What was not thought cannot come back.
    assert_eq!(ask_again(None, &["function_call"]), "42");
}

#[test]
fn the_round_trip_of_a_call_works_on_geminis_wire_too() {
    let engine = engine(&json!({ "captures": { "sum": "[0-9][0-9*]*" }, "steps": [
        { "reply": { "message": { "tool_calls": [ { "name": "calc", "arguments": { "it": "{{sum}}" } } ] } } },
        { "reply": { "message": { "text": "It is {{tool_result}}." } } } ] }));
    let ask = |contents: &[Value]| {
        let path = "/v1beta/models/gemini-3-pro:generateContent";
        let plan = engine.plan("k", &Request::new(path, json!({ "contents": contents }).to_string()));
        body_of(plan)["candidates"][0]["content"].clone()
    };
    let mut contents = vec![json!({ "role": "user", "parts": [ { "text": "What is 6*7?" } ] })];
    let called = ask(&contents);
    assert_eq!(called["parts"][0]["functionCall"], json!({ "name": "calc", "args": { "it": "6*7" } }));
    let response = json!({ "functionResponse": { "name": "calc", "response": { "output": "42" } } });
    contents.extend([called, json!({ "role": "user", "parts": [response] })]);
    assert_eq!(ask(&contents)["parts"], json!([ { "text": "It is 42." } ]));
}

#[test]
fn a_tool_result_that_never_came_shows_in_the_answer() {
    let engine =
        engine(&json!({ "steps": [ { "reply": { "message": { "text": "It is {{tool_result}}." } } } ] }));
    assert_eq!(text(ask(&engine, "k", &hi())), "It is [no tool_result].");
}

#[test]
fn the_plan_of_a_stream_is_one_part_per_event_with_pauses_between() {
    let engine = engine(&json!({ "steps": [ {
        "reply": { "message": { "text": "abcde", "chunk_chars": 3, "event_gap_ms": 7 } }, "delay_ms": 9,
        "fault": { "pings": { "after_events": 2, "every_ms": 50 } } } ] }));
    let mut request = hi();
    request["stream"] = true.into();
    let plan = ask(&engine, "k", &request);
    assert_eq!(plan.delay, Duration::from_millis(9));
    let response = response(plan);
    assert_eq!(response.framing, Framing::Chunked);
    let [Part::Bytes(_), Part::Pause(gap), Part::Bytes(second)] = response.parts.as_slice() else {
        panic!("{:?}", response.parts);
    };
    assert_eq!(*gap, Duration::from_millis(7));
    assert!(second.ends_with(b"\"delta\":{\"content\":\"abc\"},\"finish_reason\":null}]}\n\n"), "{second:?}");
    assert_eq!(response.end, End::Repeat { bytes: ": ping\n\n".into(), every: Duration::from_millis(50) });
}

fn streamed_with(fault: &Value) -> Plan {
    let engine = engine(
        &json!({ "steps": [ { "reply": { "message": { "text": "a" } }, "fault": fault, "delay_ms": 9 } ] }),
    );
    let mut request = hi();
    request["stream"] = true.into();
    ask(&engine, "k", &request)
}

#[test]
fn what_takes_a_socket_is_apart_from_what_a_mock_plays() {
    let wrong = response(streamed_with(&json!({ "wrong_chunk_size": { "after_events": 1 } })));
    assert_eq!((wrong.parts.len(), wrong.end), (1, End::Fin));
    assert!(wrong.raw.tail.ends_with(b"0\r\n\r\n"));

    let slow = streamed_with(&json!({ "slow_headers": { "delay_ms": 30 } }));
    assert_eq!(slow.delay, Duration::from_millis(39));
    let lead = Duration::from_millis(30);
    assert_eq!(response(slow).raw.head, Head::StatusLineFirst { lead });

    let split = response(streamed_with(&json!("split_headers")));
    let mut whole = split.clone();
    whole.raw = response(streamed_with(&Value::Null)).raw;
    assert_eq!(whole, response(streamed_with(&Value::Null)));
    assert_ne!(split, whole);
}

#[test]
fn a_message_without_anything_is_an_answer_too() {
    let engine = engine(&json!({ "steps": [ { "reply": { "message": {} } } ] }));
    let answer = body_of(ask(&engine, "k", &hi()));
    assert_eq!(
        answer["choices"][0]["message"],
        json!({ "role": "assistant", "content": null, "refusal": null })
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[test]
fn the_same_requests_have_the_same_plans() {
    let run = || {
        let engine = letters("restart");
        (0..6).map(|_| ask(&engine, "k", &hi())).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
