//! How a model is told what its output must fit: by which field, of which vendor, and in the instructions otherwise.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use aplomb_core::message::{Message, Role};
use aplomb_core::run::OutputSchema;
use aplomb_core::tool::ToolSpec;
use aplomb_faultlab::script::Script;
use aplomb_llm::model::Endpoint;
use aplomb_llm::vendors::{self, ApiStyle, Wanted};
use aplomb_llm::wire::{Schemas, Wire};
use aplomb_llm::{ModelConfig, ModelRequest};
use schemars::JsonSchema;
use serde::Serialize;
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

/// What is known of vendors, models and schemas may be wrong, and the config says so.
#[test]
fn whoever_knows_better_has_a_schema_where_they_want_it() {
    let tool = ToolSpec {
        id: "t".to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
        idempotent: false,
    };
    let both = json!({ "type": "object", "properties": {}, "allOf": [{ "properties": { "x": true } }] });
    let both = OutputSchema { name: "Point".to_owned(), schema: both };
    for (vendor, name) in [
        ("openai", "gpt-3.5-turbo"),
        ("groq", "openai/gpt-oss-20b"),
        ("anthropic", "claude-opus-4-5"),
        ("gemini", "gemini-2.5-pro"),
    ] {
        let mut config = model(vendor, name, None);
        config.quirks.schemas = Schemas::Always;
        let tools = std::slice::from_ref(&tool);
        assert!(natively(&config, &point(), tools) && natively(&config, &both, tools), "{vendor}");
        assert_eq!(sent(&config, &both), Some(both.schema.clone()), "{vendor}: as it is");
        config.quirks.schemas = Schemas::Never;
        assert!(!natively(&config, &point(), &[]), "{vendor}");
    }
}

#[test]
fn a_script_is_told_in_the_instructions() {
    let script = Script::from_json(r#"{"steps": [{"reply": {"message": {"text": "x"}}}]}"#).unwrap();
    let config = ModelConfig::new("mock", "m", Wire::OpenaiChat, Endpoint::Mock(script));
    assert!(!natively(&config, &point(), &[]));
}

/// A schema that stands in the field of a request.
fn sent(config: &ModelConfig, output: &OutputSchema) -> Option<Value> {
    let body = body(config, output, &[]);
    let places = [
        "/response_format/json_schema/schema",
        "/output_config/format/schema",
        "/generationConfig/responseJsonSchema",
    ];
    places.iter().find_map(|place| body.pointer(place)).cloned()
}

#[derive(Serialize, JsonSchema)]
enum Colour {
    Red,
    Blue,
}

/// Of variants that are described, schemars makes options.
#[derive(Serialize, JsonSchema)]
enum Size {
    /// Up to ten.
    Small,
    /// More.
    Large,
}

#[derive(Serialize, JsonSchema)]
struct Line {
    what: String,
    pieces: u32,
    size: Size,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "by")]
enum Payment {
    Card { digits: String },
    Transfer { days: u8 },
}

#[derive(Serialize, JsonSchema)]
struct Invoice {
    number: String,
    note: Option<String>,
    colour: Option<Colour>,
    lines: Vec<Line>,
    first: Option<Line>,
    tags: HashSet<String>,
    paid: Payment,
    #[schemars(range(min = 1, max = 12))]
    month: u32,
    #[schemars(length(min = 2, max = 2), regex(pattern = "^(?=[A-Z])[A-Z]+$"))]
    country: String,
}

#[derive(Serialize, JsonSchema)]
struct Stamped {
    id: u32,
    #[serde(flatten)]
    payment: Payment,
}

#[derive(Serialize, JsonSchema)]
struct Named {
    by_name: BTreeMap<String, u32>,
}

#[derive(Serialize, JsonSchema)]
struct Pair {
    both: (u32, String),
}

fn invoice(some: bool) -> Invoice {
    let line = || Line { what: "tea".to_owned(), pieces: 2, size: Size::Small };
    Invoice {
        number: "R1".to_owned(),
        note: some.then(|| "soon".to_owned()),
        colour: some.then_some(Colour::Red),
        lines: vec![line(), Line { size: Size::Large, ..line() }],
        first: some.then(line),
        tags: ["a".to_owned()].into(),
        paid: if some { Payment::Card { digits: "1".to_owned() } } else { Payment::Transfer { days: 3 } },
        month: 12,
        country: "DE".to_owned(),
    }
}

/// An answer without what is null, as it may be given, too.
fn without_null(mut answer: Value) -> Value {
    if let Value::Object(fields) = &mut answer {
        fields.retain(|_, value| !value.is_null());
    }
    answer
}

/// Each answer fits the schema that is meant. Of the ways to say that something is missing, vendors are told one.
#[test]
fn a_schema_that_is_sent_admits_valid_answers() {
    fn case<T: JsonSchema + Serialize>(answers: &[T]) -> (Value, Vec<Value>) {
        let answers = answers.iter().map(|answer| serde_json::to_value(answer).unwrap()).collect();
        (schemars::schema_for!(T).to_value(), answers)
    }
    let blue = Invoice { colour: Some(Colour::Blue), ..invoice(true) };
    let cases = [
        (case(&[invoice(true), invoice(false), blue]), [true, true, true]),
        (case(&[Stamped { id: 1, payment: Payment::Transfer { days: 3 } }]), [false, false, false]),
        // Guidance for OpenAI, which has no word for either in what is strict.
        (case(&[Named { by_name: [("a".to_owned(), 1)].into() }]), [true, false, true]),
        (case(&[Pair { both: (1, "a".to_owned()) }]), [true, false, true]),
    ];
    let vendors =
        [("openai", "gpt-5"), ("anthropic", "claude-opus-4-5"), ("gemini", "gemini-2.5-pro")].into_iter();
    for (at, (vendor, name)) in vendors.enumerate() {
        for ((schema, answers), natively) in &cases {
            let output = OutputSchema { name: "Point".to_owned(), schema: schema.clone() };
            let sent = sent(&model(vendor, name, None), &output);
            assert_eq!(sent.is_some(), natively[at], "{vendor}: {schema}");
            let Some(sent) = sent else { continue };
            for answer in answers {
                assert!(jsonschema::is_valid(schema, answer), "{answer}");
                let ways = [answer.clone(), without_null(answer.clone())];
                let fits = ways.iter().any(|answer| jsonschema::is_valid(&sent, answer));
                assert!(fits, "{vendor}: {answer} does not fit {sent}");
            }
        }
    }
}

/// Source: OpenAI's guide "Structured model outputs": "The root level object of a schema must be an object, and not use
/// anyOf"; for fine-tuned models fewer keywords are taken.
#[test]
fn openai_is_strict_where_it_takes_the_schema_and_asked_by_instructions_where_its_root_is_a_choice() {
    let output = |schema: Value| OutputSchema { name: "Point".to_owned(), schema };
    let format = |name: &str, output: &OutputSchema| {
        body(&model("openai", name, None), output, &[])["response_format"]["json_schema"].clone()
    };
    let plain = format("ft:gpt-4o-mini:acme::1", &point());
    assert_eq!(
        (&plain["strict"], &plain["schema"]["properties"]["x"]),
        (&json!(true), &json!({ "type": "number" }))
    );
    let azure = body(&model("azure", "ours", None), &point(), &[]);
    assert_eq!(azure["response_format"]["json_schema"], plain);
    let bounded = json!({ "type": "object", "properties": { "x": { "type": "string", "maxLength": 3 } }, "required": ["x"] });
    assert_eq!(format("gpt-5", &output(bounded))["strict"], json!(true));
    let map = json!({ "type": "object", "additionalProperties": { "type": "number" } });
    assert_eq!(format("gpt-5", &output(map))["strict"], json!(false));
    let choice = json!({ "type": "object", "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] });
    assert!(!natively(&model("openai", "gpt-5", None), &output(choice), &[]));
}
