//! The Gemini codec against Google's documentation: Gemini API reference, "Generating content"
//! (<https://ai.google.dev/api/generate-content>); guides "Function calling", "Thinking" and "Thought signatures"
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

use std::collections::BTreeMap;
use std::sync::Arc;

use aplomb_core::failure::{Anomaly, Failure, Reason, classify};
use aplomb_core::message::{Block, FinishReason, ImageSource, Message, Reply, Role, ToolCall, ToolResult};
use aplomb_core::tool::ToolSpec;
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use aplomb_llm::model::Endpoint;
use aplomb_llm::wire::gemini::{decode_body, path, request_body};
use aplomb_llm::wire::{Parameters, Wire};
use aplomb_llm::{Model, ModelConfig, ModelRequest};
use serde_json::{Value, json};

use crate::splits::streamed;

fn body(parameters: Parameters<'_>, messages: Vec<Message>, tools: &[ToolSpec]) -> Value {
    let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
    serde_json::from_slice(&request_body(parameters, &messages, tools).unwrap()).unwrap()
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.to_owned(), name: "calc".to_owned(), arguments: arguments.to_owned() })
}

fn result(id: &str, text: &str, is_error: bool) -> Block {
    let (call_id, text) = (id.to_owned(), text.to_owned());
    Block::ToolResult(ToolResult { call_id, name: "calc".to_owned(), text, is_error })
}

fn text_block(text: &str) -> Block {
    Block::Text { text: text.to_owned() }
}

fn thinking(text: &str) -> Block {
    Block::Thinking { text: text.to_owned(), signature: None }
}

#[test]
fn a_conversation_is_written_as_the_reference_has_it() {
    let messages = vec![
        Message::text(Role::System, "be brief"),
        Message::text(Role::User, "hi"),
        Message {
            role: Role::Assistant,
            content: vec![
                // Another provider's thoughts, shown and not.
                Block::Thinking { text: "hm".to_owned(), signature: Some("proof".to_owned()) },
                thinking("hm"),
                Block::RedactedThinking { data: "opaque".to_owned() },
                Block::Opaque { wire: "openai_responses".to_owned(), data: "{}".to_owned() },
                text_block("let me see"),
                call("call_1", "{\"a\":1}"),
                call("call_2", "{\"a\":"),
            ],
        },
        Message { role: Role::Tool, content: vec![result("call_1", "one", false)] },
        Message { role: Role::Tool, content: vec![result("call_2", "broken", true)] },
        Message::text(Role::User, "and?"),
    ];
    let parameters = Parameters {
        model: "gemini-2.5-flash",
        stream: true,
        temperature: Some(0.5),
        max_tokens: Some(100),
        ..Parameters::default()
    };
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "integer"}}});
    let tool = ToolSpec {
        id: "calc".to_owned(),
        description: "adds".to_owned(),
        parameters: schema.clone(),
        idempotent: true,
    };
    assert_eq!(
        body(parameters, messages, &[tool]),
        json!({
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [
                    {"text": "let me see"},
                    {"functionCall": {"name": "calc", "args": {"a": 1}}},
                    {"functionCall": {"name": "calc", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "calc", "response": {"result": "one"}}},
                    {"functionResponse": {"name": "calc", "response": {"error": "broken"}}},
                ]},
                {"role": "user", "parts": [{"text": "and?"}]},
            ],
            "tools": [{"functionDeclarations": [
                {"name": "calc", "description": "adds", "parametersJsonSchema": schema},
            ]}],
            "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100},
        })
    );
}

#[test]
fn images_go_as_parts_and_what_is_not_asked_for_is_not_there() {
    let picture = |source| Block::Image { source };
    let content = vec![
        text_block("what is this?"),
        picture(ImageSource::Url { url: "https://host/a.png".to_owned() }),
        picture(ImageSource::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() }),
    ];
    assert_eq!(
        body(Parameters::default(), vec![Message { role: Role::User, content }], &[]),
        json!({"contents": [{"role": "user", "parts": [
            {"text": "what is this?"},
            {"fileData": {"fileUri": "https://host/a.png"}},
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        ]}]})
    );
}

#[test]
fn the_path_names_the_model_and_says_whether_the_answer_is_streamed() {
    for (model, stream, expected) in [
        ("gemini-2.5-flash", false, "/models/gemini-2.5-flash:generateContent"),
        ("gemini-2.5-flash", true, "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("tunedModels/mine", false, "/tunedModels/mine:generateContent"),
        ("a b?c#d", false, "/models/a%20b%3Fc%23d:generateContent"),
    ] {
        assert_eq!(path(model, stream), expected);
    }
}

fn usage() -> Value {
    json!({"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 5,
           "totalTokenCount": 17})
}

fn chunk(parts: &Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let (Some(word), Some(fields)) = (finish, candidate.as_object_mut()) {
        fields.insert("finishReason".to_owned(), json!(word));
    }
    json!({"candidates": [candidate], "usageMetadata": usage(), "modelVersion": "gemini-3", "responseId": "r"})
}

fn decoded(body: &Value) -> Result<Reply, Box<Failure>> {
    decode_body(body.to_string().as_bytes()).0
}

/// The parts of an answer of Gemini 3 as the guides show them: thoughts, text, and calls made at once, of which the first
/// is signed.
fn parts() -> Vec<Value> {
    vec![
        json!({"text": "hm, ah", "thought": true}),
        json!({"text": "größe"}),
        json!({"executableCode": {"language": "PYTHON", "code": "1"}}),
        json!({"functionCall": {"name": "calc", "args": {"a": 1}}, "thoughtSignature": "U2lnQQ=="}),
        json!({"functionCall": {"name": "calc"}}),
        json!({"functionCall": {"id": "fc_3", "name": "calc", "args": {}}}),
    ]
}

fn shown(reply: &Reply) -> Vec<Block> {
    reply.message.content.iter().filter(|block| !matches!(block, Block::Opaque { .. })).cloned().collect()
}

fn everything_shown() -> Vec<Block> {
    // Whoever runs the calls names those that the provider gave no name.
    let calls = [call("", "{\"a\":1}"), call("", "{}"), call("fc_3", "{}")];
    [thinking("hm, ah"), text_block("größe")].into_iter().chain(calls).collect()
}

#[test]
fn a_whole_answer_is_read_with_its_usage() {
    let reply = decoded(&chunk(&json!(parts()), Some("STOP"))).unwrap();
    assert_eq!(shown(&reply), everything_shown());
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    let usage = reply.usage.unwrap();
    // Thoughts are counted apart from the candidates: 2 + 5.
    assert_eq!((usage.input, usage.input_cached, usage.output, usage.reasoning), (10, 4, 7, 5));
    let text = decoded(&chunk(&json!([{"text": "ok"}]), Some("STOP"))).unwrap();
    assert_eq!((text.message.to_text().as_str(), text.finish), ("ok", FinishReason::Stop));
    // Where no stream of events was given, the answer's pieces are an array.
    let pieces = json!([chunk(&json!([{"text": "o"}]), None), chunk(&json!([{"text": "k"}]), Some("STOP"))]);
    assert_eq!(decoded(&pieces).unwrap().message, text.message);
}

#[test]
fn signatures_go_back_each_in_its_part_and_ids_only_where_the_provider_gave_them() {
    let replies = [decoded(&chunk(&json!(parts()), Some("STOP"))).unwrap(), stream(&everything()).unwrap()];
    for mut reply in replies {
        // As the machine names the calls that have no name.
        for (index, call) in reply.message.tool_calls_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_1_{index}");
            }
        }
        let results =
            vec![result("call_1_0", "a", false), result("call_1_1", "b", false), result("fc_3", "c", false)];
        let messages = vec![reply.message, Message { role: Role::Tool, content: results }];
        assert_eq!(
            body(Parameters::default(), messages, &[])["contents"],
            json!([
                {"role": "model", "parts": [
                    {"text": "hm, ah", "thought": true},
                    {"text": "größe"},
                    {"functionCall": {"name": "calc", "args": {"a": 1}}, "thoughtSignature": "U2lnQQ=="},
                    {"functionCall": {"name": "calc", "args": {}}},
                    {"functionCall": {"id": "fc_3", "name": "calc", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "calc", "response": {"result": "a"}}},
                    {"functionResponse": {"name": "calc", "response": {"result": "b"}}},
                    {"functionResponse": {"id": "fc_3", "name": "calc", "response": {"result": "c"}}},
                ]},
            ])
        );
    }
}

#[test]
fn a_part_with_a_signature_is_never_merged_with_another() {
    // "Thought signatures": parts are not merged where one has a signature; in a stream it may come with an empty text.
    for parts in [
        json!([{"text": "a"}, {"text": "", "thoughtSignature": "cw=="}]),
        json!([{"text": "a"}, {"text": "b", "thoughtSignature": "cw=="}]),
        json!([{"text": "a", "thoughtSignature": "cw=="}, {"text": "b"}]),
        json!([{"text": "a", "thoughtSignature": "cw=="}, {"text": "b", "thoughtSignature": "dA=="}]),
        json!([{"text": "a"}, {"text": "", "thoughtSignature": "cw=="}, {"text": "b"}]),
        json!([{"text": "h", "thought": true, "thoughtSignature": "cw=="}, {"text": "m", "thought": true}, {"text": "a"}]),
        json!([{"text": "h", "thought": true}, {"text": "", "thought": true, "thoughtSignature": "cw=="}, {"text": "a"}]),
        json!([{"text": "a"}, {"text": "h", "thought": true}, {"text": "b"}]),
        json!([{"text": "", "thoughtSignature": "cw=="}, {"functionCall": {"name": "calc", "args": {}}}]),
        json!([{"text": "a", "thoughtSignature": "cw=="},
               {"functionCall": {"name": "calc", "args": {}}, "thoughtSignature": "dA=="}, {"text": "b"}]),
    ] {
        let all_at_once = decoded(&chunk(&parts, Some("STOP"))).unwrap();
        let one_by_one = parts.as_array().unwrap().iter().map(|part| event(&chunk(&json!([part]), None)));
        let one_by_one: Vec<_> = one_by_one.chain([event(&chunk(&json!([]), Some("STOP")))]).collect();
        for reply in [all_at_once, stream(&one_by_one).unwrap()] {
            let body = body(Parameters::default(), vec![reply.message], &[]);
            assert_eq!(body["contents"][0]["parts"], parts);
        }
    }
}

#[test]
fn only_a_finish_reason_that_is_known_to_be_a_good_one_makes_a_success() {
    let text = json!([{"text": "half"}]);
    for (word, finish) in [("STOP", FinishReason::Stop), ("MAX_TOKENS", FinishReason::Length)] {
        assert_eq!(decoded(&chunk(&text, Some(word))).unwrap().finish, finish);
    }
    let gateways = decoded(&chunk(&json!(parts()), Some("FUNCTION_CALL"))).unwrap();
    assert_eq!(gateways.finish, FinishReason::ToolCalls);
    for (words, anomaly, retryable) in [
        // It waits for the results of calls that are not there.
        (&["FUNCTION_CALL"][..], Anomaly::Empty, true),
        (
            &[
                "SAFETY",
                "RECITATION",
                "LANGUAGE",
                "BLOCKLIST",
                "PROHIBITED_CONTENT",
                "SPII",
                "MODEL_ARMOR",
                "IMAGE_SAFETY",
                "IMAGE_PROHIBITED_CONTENT",
                "IMAGE_RECITATION",
            ],
            Anomaly::Filtered,
            false,
        ),
        // The model may do better the next time.
        (
            &["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"],
            Anomaly::BrokenOff,
            true,
        ),
        (
            &[
                "OTHER",
                "FINISH_REASON_UNSPECIFIED",
                "TOO_MANY_TOOL_CALLS",
                "MISSING_THOUGHT_SIGNATURE",
                "NO_IMAGE",
                "SURPRISE",
            ],
            Anomaly::UnknownEnd,
            false,
        ),
        (&[""], Anomaly::NoTerminalEvent, true),
    ] {
        for word in words {
            let without_content = json!({"candidates": [{"finishReason": word, "index": 0}]});
            for chunk in [chunk(&text, Some(word)), without_content] {
                for failure in [decoded(&chunk).unwrap_err(), stream(&[event(&chunk)]).unwrap_err()] {
                    assert_eq!(
                        (failure.anomaly, classify(&failure).retryable),
                        (Some(anomaly), retryable),
                        "{word}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_200_that_is_no_answer_is_a_failure_of_its_kind() {
    let blocked = |reason: &str| json!({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 9}});
    let error = json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}});
    for (body, expected) in [
        (json!({}), Anomaly::MalformedBody),
        (json!([]), Anomaly::MalformedBody),
        (json!({"text": "ok"}), Anomaly::MalformedBody),
        (json!({"candidates": "ok"}), Anomaly::MalformedBody),
        (error.clone(), Anomaly::Error),
        (json!([error]), Anomaly::Error),
        (json!([chunk(&json!([{"text": "half"}]), None), error]), Anomaly::Error),
        (json!({"candidates": []}), Anomaly::Empty),
        (json!({"usageMetadata": usage()}), Anomaly::Empty),
        (chunk(&json!([]), Some("STOP")), Anomaly::Empty),
        (chunk(&json!([{"text": " "}]), Some("STOP")), Anomaly::Empty),
        (chunk(&json!([{"text": "hm", "thought": true}]), Some("STOP")), Anomaly::Empty),
        (chunk(&json!([]), Some("MAX_TOKENS")), Anomaly::EmptyAtTokenLimit),
        (chunk(&json!([{"text": "half"}]), None), Anomaly::NoTerminalEvent),
        (blocked("SAFETY"), Anomaly::Filtered),
        (blocked("OTHER"), Anomaly::Filtered),
        (blocked("BLOCKLIST"), Anomaly::Filtered),
        (blocked("PROHIBITED_CONTENT"), Anomaly::Filtered),
        (blocked("IMAGE_SAFETY"), Anomaly::Filtered),
    ] {
        assert_eq!(decoded(&body).unwrap_err().anomaly, Some(expected), "{body}");
    }
    assert_eq!(decode_body(b"<html>").0.unwrap_err().anomaly, Some(Anomaly::MalformedBody));
    assert_eq!(stream(&[event(&blocked("SAFETY"))]).unwrap_err().anomaly, Some(Anomaly::Filtered));
    let (reply, usage) = decode_body(blocked("SAFETY").to_string().as_bytes());
    assert!(reply.is_err());
    assert_eq!(usage.unwrap().input, 9);
    let fine = json!({"promptFeedback": {"safetyRatings": []}, "candidates": chunk(&json!([{"text": "ok"}]), Some("STOP"))["candidates"]});
    assert!(decoded(&fine).is_ok());
}

fn event(data: &Value) -> String {
    format!("data: {data}\r\n\r\n")
}

fn stream(parts: &[String]) -> Result<Reply, Box<Failure>> {
    streamed(Wire::Gemini, parts.iter().map(|part| part.as_bytes())).map(|(_, reply)| reply)
}

/// The same answer in events, as the guide "Text generation" shows a stream: usage with each, the finish reason with the
/// last.
pub(crate) fn everything() -> Vec<String> {
    let parts = parts();
    let from = |first: usize, count: usize| parts.iter().skip(first).take(count).collect::<Vec<_>>();
    let chunks = [
        chunk(&json!([{"text": "hm, ", "thought": true}]), None),
        chunk(&json!([{"text": "ah", "thought": true}, {"text": "grö"}]), None),
        chunk(&json!([{"text": "ße"}]), None),
        chunk(&json!(from(2, 2)), None),
        json!({"usageMetadata": usage()}),
        chunk(&json!(from(4, 2)), None),
        chunk(&json!([{"text": ""}]), Some("STOP")),
    ];
    chunks.iter().map(event).collect()
}

#[test]
fn a_streamed_answer_is_put_together_in_the_order_of_its_parts() {
    let reply = stream(&everything()).unwrap();
    assert_eq!(reply, decoded(&chunk(&json!(parts()), Some("STOP"))).unwrap());
    assert_eq!(shown(&reply), everything_shown());
}

#[test]
fn a_finish_reason_that_is_not_the_last_ends_nothing() {
    let said = |text: &str, word| event(&chunk(&json!([{"text": text}]), word));
    let ended = stream(&[said("one", Some("STOP")), said(" two", Some("STOP"))]).unwrap();
    assert_eq!((ended.message.to_text().as_str(), ended.finish), ("one two", FinishReason::Stop));
    let cut = stream(&[said("one", Some("STOP")), said(" two", None)]).unwrap_err();
    assert_eq!(cut.anomaly, Some(Anomaly::NoTerminalEvent));
    // What holds nothing of the answer takes nothing back.
    assert!(
        stream(&[said("one", Some("STOP")), said("", None), event(&json!({"usageMetadata": usage()}))])
            .is_ok()
    );
}

/// Who asks for a calculation, and another model that has made it.
fn calculation_of_another_model() -> [Arc<Message>; 3] {
    [
        Message::text(Role::User, "go"),
        Message { role: Role::Assistant, content: vec![call("call_1", "{}"), call("call_2", "{}")] },
        Message {
            role: Role::Tool,
            content: vec![result("call_1", "one", false), result("call_2", "two", false)],
        },
    ]
    .map(Arc::new)
}

#[tokio::test]
async fn a_model_that_wants_signatures_takes_over_from_one_that_gave_none() {
    let script = json!({"steps": [{"reply": {"message": {"text": "three"}}}], "at_end": "repeat_last"});
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    for name in ["gemini-3-pro-preview", "models/gemini-3.1-flash", "gemini-10-pro", "gemini-2.5-pro"] {
        let endpoint = Endpoint::Http {
            api_base: server.base_url(),
            api_key: Some("key".into()),
            extra_headers: BTreeMap::new(),
            ca_file: None,
        };
        let model = Model::new(ModelConfig::new("gemini", name, Wire::Gemini, endpoint)).unwrap();
        let messages = calculation_of_another_model();
        let answer = model
            .ask(ModelRequest { run_id: "r", messages: &messages, tools: &[], output: None }, None)
            .await;
        assert_eq!(answer.unwrap().reply.message.to_text(), "three", "{name}");
    }
}

#[test]
fn the_first_call_of_a_turn_alone_is_given_a_stand_in_for_a_signature() {
    // "Thought signatures", "FAQs".
    let parts = |model: &str| {
        let parameters = Parameters { model, ..Parameters::default() };
        let bytes = request_body(parameters, &calculation_of_another_model(), &[]).unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        body["contents"][1]["parts"].clone()
    };
    let unsigned = json!({"functionCall": {"name": "calc", "args": {}}});
    let mut signed = unsigned.clone();
    signed["thoughtSignature"] = json!("skip_thought_signature_validator");
    assert_eq!(parts("gemini-3-pro-preview"), json!([signed, unsigned]));
    assert_eq!(parts("gemini-2.5-pro"), json!([unsigned, unsigned]));
}

#[test]
fn every_beginning_of_a_stream_is_a_failure_unless_the_finish_reason_is_in_it() {
    let parts = everything();
    for length in 0..parts.len() {
        let failure = stream(&parts[..length]).unwrap_err();
        assert_eq!(failure.anomaly, Some(Anomaly::NoTerminalEvent), "{length}");
        let done = [parts[..length].concat(), "data: [DONE]\n\n".to_owned()];
        assert_eq!(stream(&done).unwrap_err().anomaly, Some(Anomaly::NoTerminalEvent), "{length}");
    }
}

#[test]
fn an_error_in_the_stream_is_what_it_says_in_an_array_or_not() {
    for (code, status, reason, retryable) in [
        // "The service may be temporarily overloaded or down": <https://ai.google.dev/gemini-api/docs/troubleshooting>.
        (503, "UNAVAILABLE", Reason::Overloaded, true),
        (500, "INTERNAL", Reason::ServerError, true),
        (429, "RESOURCE_EXHAUSTED", Reason::RateLimit, true),
        (400, "INVALID_ARGUMENT", Reason::InvalidRequest, false),
        (403, "PERMISSION_DENIED", Reason::Permission, false),
    ] {
        let error = json!({"error": {"code": code, "message": "no", "status": status}});
        for error in [error.clone(), json!([error])] {
            for before in [vec![], everything()[..3].to_vec(), everything()] {
                let failure = stream(&[before, vec![event(&error)]].concat()).unwrap_err();
                let verdict = classify(&failure);
                assert_eq!((verdict.reason, verdict.retryable), (reason, retryable), "{error}");
                assert_eq!(failure.provider_error.kind.as_deref(), Some(status));
                assert_eq!(failure.provider_error.message.as_deref(), Some("no"));
            }
        }
    }
    let broken = [everything()[..3].concat(), "data: {\"candidates\": [{\"conte\n\n".to_owned()];
    assert_eq!(stream(&broken).unwrap_err().anomaly, Some(Anomaly::MalformedEvent));
}
