//! Outputs that must fit a type, over real TCP on all protocols: `docs/spec/runtime.md` §2. The fault lab refuses what the
//! providers would refuse of a request that says what its output must fit.

use aplomb::event::names;
use aplomb::{
    ChunkKind, Error, RunBudget, RunRequest, RunResult, RunStreamChunk, Runtime, StopReason, codes,
};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Invoice {
    number: String,
    cents: u32,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Line {
    what: String,
    discount: Option<f64>,
}

const GOOD: &str = r#"{"number": "R7", "cents": 10, "lines": [{"what": "tea", "discount": null}]}"#;
const BAD: &str = r#"{"number": "R7", "cents": "ten", "lines": [{"discount": null}]}"#;

fn invoice() -> Invoice {
    Invoice {
        number: "R7".to_owned(),
        cents: 10,
        lines: vec![Line { what: "tea".to_owned(), discount: None }],
    }
}

fn ask_for_invoice() -> RunRequest<Invoice> {
    hi().output()
}

/// Every protocol that the fault lab speaks, by provider, model and `openai_api_style`, and where its requests say what the
/// output must fit.
const WIRES: [(&str, &str, Option<&str>, &str); 4] = [
    ("openai", "gpt-4o", Some("chat_completions"), "/response_format/json_schema/schema"),
    ("openai", "gpt-4o", Some("responses"), "/text/format/schema"),
    ("anthropic", "claude-sonnet-4-5", None, "/output_config/format/schema"),
    ("gemini", "gemini-2.5-flash", None, "/generationConfig/responseJsonSchema"),
];

fn on(wire: (&'static str, &'static str, Option<&'static str>, &'static str), script: Value) -> Setup {
    Setup::new(script).agent(move |agent| {
        let (provider, model, style, _) = wire;
        agent["llm"]["provider"] = json!(provider);
        agent["llm"]["model"] = json!(model);
        // Cargo sets it for every test, so that a key is there to be sent.
        agent["llm"]["api_key_env"] = json!("CARGO_MANIFEST_DIR");
        if let Some(style) = style {
            agent["llm"]["openai_api_style"] = json!(style);
        }
    })
}

/// One run of a fresh provider: its result, its chunks, and the lab.
async fn run_in(mode: Mode, setup: Setup) -> (RunResult<Invoice>, Vec<RunStreamChunk<Invoice>>, Lab) {
    let setup = match mode {
        Mode::Streamed => setup.agent(|agent| agent["llm"]["stream"] = json!("always")),
        Mode::Plain | Mode::Watched => setup,
    };
    let lab = setup.start().await;
    let (result, chunks) = match mode {
        Mode::Watched => {
            let stream = lab.runtime.run_stream(ask_for_invoice()).unwrap();
            let mut chunks: Vec<_> = in_time(stream.collect()).await;
            (chunks.last_mut().unwrap().result.take().unwrap(), chunks)
        }
        _ => (in_time(lab.runtime.run_detailed(ask_for_invoice())).await.unwrap(), Vec::new()),
    };
    check_events(&lab.events.all());
    (result, chunks, lab)
}

/// What is left to somebody who watches and follows `discard_from`.
fn kept_by<T>(chunks: &[RunStreamChunk<T>]) -> String {
    let mut kept: Vec<(u64, String)> = Vec::new();
    for chunk in chunks {
        match chunk.kind {
            ChunkKind::LlmDelta => {
                kept.push((chunk.sequence, chunk.payload["text"].as_str().unwrap().to_owned()))
            }
            ChunkKind::LlmRestarted => {
                let discard_from = chunk.payload["discard_from"].as_u64().unwrap();
                kept.retain(|(sequence, _)| *sequence < discard_from);
            }
            _ => {}
        }
    }
    kept.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_fit_is_corrected_on_every_wire_plain_streamed_and_watched() {
    for wire in WIRES {
        for mode in MODES {
            let (result, chunks, lab) = run_in(mode, on(wire, once([text(BAD), text(GOOD)]))).await;
            assert_eq!(result.final_output, Some(invoice()), "{wire:?} {mode:?}: {:?}", result.error_details);
            assert_eq!((lab.requests(), result.usage.llm_calls), (2, 2));
            let requests = lab.server.requests();
            assert!(requests.iter().all(|request| request.body.pointer(wire.3).is_some()), "{wire:?}");
            // The second request has the answer, and all that is wrong with it.
            let told = requests[1].body.to_string();
            for part in ["/cents", "/lines/0", r#"\"ten\""#] {
                assert!(told.contains(part), "{part}: {told}");
            }
            assert_eq!(told_text(&lab.events.all()), GOOD);
            if mode == Mode::Watched {
                assert_eq!(kept_by(&chunks), GOOD);
                let kinds: Vec<_> = chunks.iter().map(|chunk| chunk.kind).collect();
                let retried = kinds.iter().position(|kind| *kind == ChunkKind::ValidationRetry).unwrap();
                let restarted = kinds.iter().position(|kind| *kind == ChunkKind::LlmRestarted).unwrap();
                assert!(retried < restarted && kinds.last() == Some(&ChunkKind::RunFinished), "{kinds:?}");
                let sequences: Vec<_> = chunks.iter().map(|chunk| chunk.sequence).collect();
                assert_eq!(sequences, (0..chunks.len() as u64).collect::<Vec<_>>());
            }
        }
    }
}

/// The same answer and mistake would end it earlier: each of these is another one.
fn ever_another_bad_one() -> Vec<Value> {
    (0..9).map(|cents| text(&format!(r#"{{"cents": "{cents}"}}"#))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_three_corrections_it_ends_and_says_what_was_wrong_last() {
    for wire in WIRES {
        for mode in MODES {
            let (result, chunks, lab) = run_in(mode, on(wire, once(ever_another_bad_one()))).await;
            assert_eq!((lab.requests(), result.stop_reason), (4, StopReason::Failed), "{wire:?} {mode:?}");
            if mode == Mode::Watched {
                let retries = chunks.iter().filter(|chunk| chunk.kind == ChunkKind::ValidationRetry).count();
                assert_eq!(retries, 3);
            }
            let error = result.into_output().unwrap_err();
            assert_eq!(error.code(), codes::EXECUTION_OUTPUT_VALIDATION);
            let wrong = error.output_validation().unwrap();
            assert_eq!((wrong.attempts, wrong.output_type), (4, Some("Invoice")));
            assert!(wrong.last_error.contains("/cents"), "{error}");
            assert_eq!(error.context("partial_output"), Some(&json!(r#"{"cents": "3"}"#)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_answer_with_the_same_mistake_twice_in_a_row_ends_it_early() {
    let lab = Lab::new(always(text(BAD))).await;
    let error =
        in_time(lab.runtime.run_detailed(ask_for_invoice())).await.unwrap().into_output().unwrap_err();
    assert_eq!((lab.requests(), error.output_validation().unwrap().attempts), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_says_how_many_corrections_there_may_be() {
    for most in [0, 1, 5] {
        let lab = Lab::new(once(ever_another_bad_one())).await;
        let budget = RunBudget::new().max_validation_retries(most);
        let request = ask_for_invoice().budget(budget);
        assert!(in_time(lab.runtime.run_detailed(request)).await.unwrap().into_output().is_err());
        assert_eq!(lab.requests(), 1 + most as usize);
        let lab = Lab::new(once(ever_another_bad_one())).await;
        let exec = lab.runtime.exec("assistant", "hi").output::<Invoice>().budget(budget);
        assert!(in_time(exec.into_future()).await.is_err());
        assert_eq!(lab.requests(), 1 + most as usize);
    }
}

/// 503, 503, then the correction: retry.md §5, "A correction is a new call".
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_fails_during_a_correction_is_asked_again_by_the_ledger() {
    for wire in WIRES {
        for mode in MODES {
            let script = once([text(BAD), status(503), status(503), text(GOOD)]);
            let (result, chunks, lab) = run_in(mode, on(wire, script)).await;
            assert_eq!(result.final_output, Some(invoice()), "{wire:?} {mode:?}: {:?}", result.error_details);
            assert_eq!((lab.requests(), result.usage.llm_calls, result.usage.llm_retry_count), (4, 2, 2));
            assert_eq!(waits(&lab.events.all()), [500, 1_000]);
            assert_eq!(told_text(&lab.events.all()), GOOD);
            assert!(mode != Mode::Watched || kept_by(&chunks) == GOOD);
        }
    }
}

/// A correction that breaks off and begins anew: what was rejected and what broke off are both void.
#[tokio::test(flavor = "multi_thread")]
async fn a_correction_that_breaks_off_leaves_nothing_of_itself_or_of_the_answer_before() {
    for wire in WIRES {
        let cut = with_fault(text(GOOD), json!({"cut": {"after_events": 3, "by": "reset"}}));
        let (result, chunks, lab) = run_in(Mode::Watched, on(wire, once([text(BAD), cut, text(GOOD)]))).await;
        assert_eq!(result.final_output, Some(invoice()), "{wire:?}: {:?}", result.error_details);
        assert_eq!((kept_by(&chunks), told_text(&lab.events.all())), (GOOD.to_owned(), GOOD.to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_as_and_exec_give_the_type_and_correct_too() {
    for wire in WIRES {
        let lab = on(wire, once([text(BAD), text(GOOD), text(BAD), text(GOOD)])).start().await;
        let exec = lab.runtime.exec("assistant", "hi").output::<Invoice>();
        assert_eq!(in_time(exec.into_future()).await.unwrap(), invoice());
        assert_eq!(in_time(lab.runtime.run_as::<Invoice>("assistant", "hi")).await.unwrap(), invoice());
        assert_eq!(lab.requests(), 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_as_a_value_gives_a_value() {
    let schema = json!({ "type": "array", "items": { "type": "integer" }, "minItems": 2 });
    let lab = Lab::new(once([text("[1]"), text("```json\n[1, 2]\n```")])).await;
    let request = hi().output_schema("Numbers", schema);
    let result = in_time(lab.runtime.run_detailed(request)).await.unwrap();
    assert_eq!(result.final_output, Some(json!([1, 2])));
    assert_eq!(serde_json::to_value(&result).unwrap()["final_output"], json!([1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_none_is_refused_before_anything_is_sent() {
    let lab = Lab::new(always(text("never"))).await;
    for (name, schema) in [("X", json!({ "type": "objekt" })), ("X", json!(7)), (" ", json!({}))] {
        let error = lab.runtime.run_detailed(hi().output_schema(name, schema.clone())).await.unwrap_err();
        assert_eq!(error.code(), codes::USER_INVALID_INPUT, "{error}");
        let exec = lab.runtime.exec("assistant", "hi").output_schema(name, schema.clone());
        assert_eq!(exec.await.unwrap_err().code(), codes::USER_INVALID_INPUT);
        assert!(lab.runtime.run_stream(hi().output_schema(name, schema)).is_err());
    }
    assert_eq!((lab.requests(), lab.events.all().len()), (0, 0));
}

/// A vendor that takes no schema, a model that is older than schemas, tools beside one that cannot have both, and a schema
/// that cannot be said in the vendor's subset: the model is told in its instructions.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_vendor_takes_no_schema_it_is_in_the_instructions() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 5] = [
        ("config", |agent| {
            agent["llm"]["provider"] = json!("openai");
            agent["llm"]["output_schema"] = json!("instructions");
        }),
        ("deepseek", |agent| agent["llm"]["provider"] = json!("deepseek")),
        ("gpt-4-turbo", |agent| {
            agent["llm"]["provider"] = json!("openai");
            agent["llm"]["model"] = json!("gpt-4-turbo");
        }),
        ("tools", |agent| agent["tools"] = json!([{"id": "calc", "type": "calc"}])),
        ("prompt", |agent| {
            agent["llm"]["provider"] = json!("groq");
            agent["pattern"] = json!({"type": "react", "config": {"system_prompt": "Be brief."}});
        }),
    ];
    for (case, change) in cases {
        let setup = Setup::new(once([text(BAD), text(GOOD)])).agent(move |agent| {
            agent["llm"]["api_key_env"] = json!("CARGO_MANIFEST_DIR");
            change(agent);
        });
        let lab = setup.start().await;
        assert_eq!(
            in_time(lab.runtime.run_as::<Invoice>("assistant", "hi")).await.unwrap(),
            invoice(),
            "{case}"
        );
        for request in lab.server.requests() {
            assert!(request.body.get("response_format").is_none(), "{case}");
            let said = said(&request);
            assert_eq!(said.iter().filter(|(role, _)| role == "system").count(), 1, "{case}");
            assert!(said[0].1.contains(r#""cents""#) && said[0].1.contains("Invoice"), "{case}: {said:?}");
            assert!(case != "prompt" || said[0].1.starts_with("Be brief."), "{said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_and_a_schema_go_together_where_the_vendor_has_both() {
    let script = || {
        let expression = json!({"expression": "5 + 5"});
        once([calls(&[("calc", expression)]), text(BAD), text(GOOD)])
    };
    for wire in WIRES {
        let setup =
            on(wire, script()).agent(|agent| agent["tools"] = json!([{"id": "calc", "type": "calc"}]));
        let lab = setup.start().await;
        assert_eq!(in_time(lab.runtime.run_as::<Invoice>("assistant", "hi")).await.unwrap(), invoice());
        // Gemini's models before the third generation have one or the other.
        let natively = lab.server.requests().iter().all(|request| request.body.pointer(wire.3).is_some());
        assert_eq!(natively, wire.0 != "gemini");
    }
}

/// Each model of an agent has its own word in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_knows_better_has_its_schema_in_the_protocols_field() {
    let refused = json!({ "error": { "message": "no such field", "type": "invalid_request_error" } });
    let setup = Setup::new(once([http(400, json!({}), refused), text(GOOD)])).agent(|agent| {
        let mut fallback = agent["llm"].clone();
        fallback.as_object_mut().unwrap().remove("retry");
        fallback["output_schema"] = json!("instructions");
        agent["llm"]["provider"] = json!("groq");
        agent["llm"]["output_schema"] = json!("native");
        agent["llm"]["api_key_env"] = json!("CARGO_MANIFEST_DIR");
        agent["llm"]["fallback_on"] = json!(["invalid_request"]);
        agent["llm"]["fallbacks"] = json!([fallback]);
    });
    let lab = setup.start().await;
    assert_eq!(in_time(lab.runtime.run_as::<Invoice>("assistant", "hi")).await.unwrap(), invoice());
    let requests = lab.server.requests();
    let natively: Vec<bool> =
        requests.iter().map(|request| request.body.get("response_format").is_some()).collect();
    assert_eq!(natively, [true, false]);
}

/// What is known of a vendor may be wrong, so a refusal names the key that helps; where there is no schema it would not.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_refused_with_a_schema_names_the_way_out() {
    let refused = json!({ "error": { "message": "no such field", "type": "invalid_request_error" } });
    let lab = Setup::new(always(http(400, json!({}), refused))).start().await;
    let error = in_time(lab.runtime.run_as::<Invoice>("assistant", "hi")).await.unwrap_err();
    assert!(error.hint().unwrap().contains("llm.output_schema"), "{error}");
    let error = in_time(lab.runtime.run("assistant", "hi")).await.unwrap_err();
    assert!(!error.hint().unwrap().contains("llm.output_schema"), "{error}");
}

/// Strict where the schema fulfils OpenAI's subset: every property is required, and no text is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_strict_where_it_can_be_and_sent_as_it_is_where_it_cannot() {
    let complete = json!({
        "type": "object", "properties": { "a": { "type": "integer", "minimum": 0 } }, "required": ["a"],
    });
    let optional = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    for (schema, strict) in [(complete, true), (optional, false)] {
        let lab = on(WIRES[0], always(text(r#"{"a": 1}"#))).start().await;
        let result =
            in_time(lab.runtime.run_detailed(hi().output_schema("A b", schema.clone()))).await.unwrap();
        assert_eq!(result.final_output, Some(json!({ "a": 1 })));
        let sent = &lab.server.requests()[0].body["response_format"]["json_schema"];
        assert_eq!((&sent["strict"], &sent["name"]), (&json!(strict), &json!("A_b")));
        assert_eq!(sent["schema"] == schema, !strict, "a strict one is closed: {sent}");
    }
}

/// The values of an answer stay out of what is told about it, and a credential that the answer repeats out of the events.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_an_answer_does_not_get_into_what_is_said_of_it() {
    let key = env!("CARGO_MANIFEST_DIR");
    let bad =
        json!({ "number": 7, "cents": "sesame", "lines": [{ "what": ["sesame"], key: 1 }] }).to_string();
    let strict = json!({
        "type": "object",
        "properties": { "lines": { "type": "array", "items": { "additionalProperties": false, "properties": {} } } },
    });
    let lab = on(WIRES[0], always(text(&bad))).start().await;
    let error =
        in_time(lab.runtime.run_detailed(ask_for_invoice())).await.unwrap().into_output().unwrap_err();
    assert!(!error.message().contains("sesame"), "{error}");
    let result = in_time(lab.runtime.run_detailed(hi().output_schema("Strict", strict))).await.unwrap();
    let details = serde_json::to_string(&result.error_details).unwrap();
    assert!(result.final_output.is_none() && !details.contains(key), "{details}");
    let about = |name| name == names::VALIDATION_RETRY || name == names::RUN_FAILED;
    let told: Vec<_> = lab.events.all().into_iter().filter(|event| about(event.name)).collect();
    assert_eq!(told.len(), 4);
    for event in told {
        assert!(!event.payload["error"].to_string().contains("sesame"), "{event:?}");
        assert!(!serde_json::to_string(&event.payload).unwrap().contains(key), "{event:?}");
    }
}

/// A schema takes 271828.0 for an integer, as JSON Schema has it; `u32` does not, and serde's words quote it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_type_says_of_a_value_is_told_to_the_model_alone() {
    let bad = |what: &str| json!({"number": "R7", "cents": 271_828.0, "lines": [{"what": what}]}).to_string();
    let lab = on(WIRES[0], once([text(&bad("tea")), text(&bad("milk"))])).start().await;
    let request = ask_for_invoice().budget(RunBudget::new().max_validation_retries(1));
    let error = in_time(lab.runtime.run_detailed(request)).await.unwrap().into_output().unwrap_err();
    let told = lab.server.requests()[1].body["messages"].to_string();
    assert!(told.contains("invalid type: floating point"), "{told}");
    let masked = "cents: it is not a valid Invoice";
    let told: Vec<_> =
        lab.events.all().into_iter().filter(|event| event.payload.contains_key("error")).collect();
    assert_eq!(told.len(), 2, "one correction, one end: {told:?}");
    let told = told.iter().map(|event| event.payload["error"].as_str().unwrap());
    for told in told.chain([error.message(), error.output_validation().unwrap().last_error]) {
        assert!(told.contains(masked) && !told.contains("271828"), "{told}");
    }
}

#[test]
fn a_request_can_be_copied_and_shown_whatever_it_asks_for() {
    #[derive(Deserialize, JsonSchema)]
    struct Bare {
        _number: String,
    }
    let request: RunRequest<Bare> = hi().output().run_id("r7");
    let shown = format!("{:?}", request.clone());
    assert!(shown.contains("r7") && shown.contains("Bare"), "{shown}");
}

#[test]
fn what_is_kept_of_a_text_result_is_what_it_was() {
    let written = json!({
        "run_id": "r", "session_id": "s", "final_output": "text", "stop_reason": "completed",
        "usage": {}, "error_details": null,
    });
    let read: RunResult = serde_json::from_value(written).unwrap();
    assert_eq!(read.into_output().map_err(|error: Error| error.code()), Ok("text".to_owned()));
}

/// What a request costs that wants nothing in particular has not changed, and neither has what is sent for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_text_says_nothing_of_schemas() {
    for wire in WIRES {
        let lab = on(wire, always(text("hello"))).start().await;
        let runtime: &Runtime = &lab.runtime;
        assert_eq!(in_time(runtime.run("assistant", "hi")).await.unwrap(), "hello");
        assert!(!lab.server.requests()[0].body.to_string().contains("chema"));
    }
}
