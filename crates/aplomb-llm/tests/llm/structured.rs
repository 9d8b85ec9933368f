//! How a model is told what its output must fit: by which field, of which vendor, and in the instructions otherwise.

use std::sync::Arc;

use aplomb_core::message::{Message, Role};
use aplomb_core::run::OutputSchema;
use aplomb_core::tool::ToolSpec;
use aplomb_faultlab::script::Script;
use aplomb_llm::provider::Endpoint;
use aplomb_llm::vendors::{self, ApiStyle, Wanted};
use aplomb_llm::wire::Wire;
use aplomb_llm::{ModelConfig, ModelRequest};
use serde_json::{Value, json};

fn point() -> OutputSchema {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object", "properties": { "x": { "type": "number", "minimum": 0 } }, "required": ["x"],
    });
    OutputSchema { name: "Point".to_owned(), schema }
}

fn body(config: &ModelConfig, output: &OutputSchema, tools: &[ToolSpec]) -> Value {
    let messages = [Arc::new(Message::text(Role::User, "hi"))];
    let request = ModelRequest { run_id: "r", messages: &messages, tools, output: Some(output) };
    serde_json::from_slice(&config.request(request, false).unwrap().body).unwrap()
}

fn model(vendor: &str, model: &str, style: Option<ApiStyle>) -> ModelConfig {
    let wanted = Wanted {
        model: model.to_owned(),
        style,
        api_base: Some("https://host/v1".to_owned()),
        ..Wanted::default()
    };
    vendors::find(vendor).unwrap().model(wanted).unwrap()
}

/// Source: the pages that the codecs name. The schema is closed where the vendor wants that, and what it does not take is
/// left out.
#[test]
fn each_protocol_has_a_field_of_its_own() {
    let closed = json!({
        "type": "object", "properties": { "x": { "type": "number", "minimum": 0 } }, "required": ["x"],
        "additionalProperties": false,
    });
    let chat = body(&model("openai", "gpt-4o", None), &point(), &[]);
    let json_schema = json!({ "name": "Point", "strict": true, "schema": closed });
    assert_eq!(chat["response_format"], json!({ "type": "json_schema", "json_schema": json_schema }));
    let responses = body(&model("openai", "gpt-4o", Some(ApiStyle::Responses)), &point(), &[]);
    let format = json!({ "type": "json_schema", "name": "Point", "strict": true, "schema": closed });
    assert_eq!(responses["text"], json!({ "format": format }));
    let anthropic = body(&model("anthropic", "claude-sonnet-4-5", None), &point(), &[]);
    let mut unbounded = closed.clone();
    unbounded["properties"]["x"] = json!({ "type": "number" });
    assert_eq!(
        anthropic["output_config"],
        json!({ "format": { "type": "json_schema", "schema": unbounded } })
    );
    let gemini = body(&model("gemini", "gemini-2.5-pro", None), &point(), &[]);
    let mut open = closed;
    open.as_object_mut().unwrap().remove("additionalProperties");
    let config = json!({ "responseMimeType": "application/json", "responseJsonSchema": open });
    assert_eq!(gemini["generationConfig"], config);
}

/// Whether the schema is in a field, or else in the instructions: never in both, never in neither.
fn natively(config: &ModelConfig, output: &OutputSchema, tools: &[ToolSpec]) -> bool {
    let body = body(config, output, tools);
    let fields =
        ["/response_format", "/text/format", "/output_config/format", "/generationConfig/responseJsonSchema"];
    let in_field = fields.iter().any(|field| body.pointer(field).is_some());
    let instructions = ["/messages/0/content", "/instructions", "/system", "/systemInstruction/parts/0/text"];
    let told = instructions.iter().filter_map(|place| body.pointer(place)?.as_str());
    let in_instructions = told.into_iter().any(|text| text.contains("JSON Schema (Point)"));
    assert!(in_field != in_instructions, "{body}");
    in_field
}

#[test]
fn a_vendors_row_says_whether_a_schema_has_its_field() {
    let tool = ToolSpec {
        id: "t".to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
        idempotent: false,
    };
    let (both, alone, neither) = ([true, true], [true, false], [false, false]);
    for (vendor, name, expected) in [
        ("openai", "gpt-5", both),
        ("openai", "gpt-4o-mini", both),
        ("openai", "gpt-4.1", both),
        ("openai", "gpt-4", neither),
        ("openai", "gpt-4-turbo", neither),
        ("openai", "gpt-3.5-turbo", neither),
        ("azure", "gpt-4o", both),
        ("anthropic", "claude-opus-4-5", both),
        ("anthropic", "claude-haiku-4-5-20251001", both),
        ("anthropic", "claude-3-7-sonnet-latest", neither),
        ("anthropic", "claude-sonnet-4-20250514", neither),
        ("gemini", "gemini-3-pro-preview", both),
        ("gemini", "gemini-2.5-flash", alone),
        ("gemini", "gemma-3-27b-it", neither),
        ("mistral", "mistral-large-latest", alone),
        ("xai", "grok-4", alone),
        ("ollama", "qwen3", alone),
        ("vllm", "qwen3", alone),
        ("llama_cpp", "qwen3", alone),
        ("openai_compatible", "m", alone),
        ("openrouter", "openai/gpt-5", neither),
        ("groq", "llama-3.3-70b-versatile", neither),
        ("deepseek", "deepseek-chat", neither),
        ("anthropic_compatible", "m", neither),
    ] {
        let config = model(vendor, name, None);
        let found = [&[], std::slice::from_ref(&tool)].map(|tools| natively(&config, &point(), tools));
        assert_eq!(found, expected, "{vendor} {name}: without tools, with tools");
    }
    let compatible = model("openai_compatible", "m", Some(ApiStyle::Responses));
    assert!(natively(&compatible, &point(), &[]) && !natively(&compatible, &point(), &[tool]));
}

#[test]
fn what_a_vendor_cannot_be_told_natively_is_in_the_instructions() {
    let list = OutputSchema { name: "Point".to_owned(), schema: json!({ "type": "array" }) };
    let map = json!({ "type": "object", "additionalProperties": { "type": "number" } });
    let map = OutputSchema { name: "Point".to_owned(), schema: map };
    for (vendor, name, expected) in [
        ("openai", "gpt-5", [false, true]),
        ("anthropic", "claude-opus-4-5", [false, false]),
        ("gemini", "gemini-2.5-pro", [true, true]),
    ] {
        let config = model(vendor, name, None);
        let found = [&list, &map].map(|output| natively(&config, output, &[]));
        assert_eq!(found, expected, "{vendor}: a list, a map");
    }
}

#[test]
fn a_script_is_told_in_the_instructions() {
    let script = Script::from_json(r#"{"steps": [{"reply": {"message": {"text": "x"}}}]}"#).unwrap();
    let config = ModelConfig::new("mock", "m", Wire::OpenaiChat, Endpoint::Mock(script));
    assert!(!natively(&config, &point(), &[]));
}
