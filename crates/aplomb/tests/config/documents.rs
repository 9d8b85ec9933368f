//! Texts of every kind become values, or an error that names its place; never a panic.

use aplomb::config::{Config, Format, Loader};
use aplomb::{Runtime, codes};
use proptest::prelude::*;
use proptest::test_runner::Config as Cases;
use serde_json::{Value, json};

use crate::support::{RIGHT, load, refused};

const FORMATS: [Format; 3] = [Format::Json, Format::Yaml, Format::Toml];

#[test]
fn the_same_config_can_be_written_in_three_ways() {
    let yaml = r#"
# The same in YAML.
version: "1.0"
agents:
  - id: assistant
    memory: {type: buffer}
    pattern:
      type: react
      config:
        system_prompt: >-
          Be
          brief.
    llm: &model
      provider: openai_compatible
      model: m
      api_base: http://127.0.0.1:1/v1
      retry: {max_attempts: 3}
    tools:
      - {id: calc, type: calc}
"#;
    let toml = r#"
# The same in TOML.
version = "1.0"

[[agents]]
id = "assistant"
memory = { type = "buffer" }
tools = [{ id = "calc", type = "calc" }]

[agents.pattern]
type = "react"
config.system_prompt = "Be brief."

[agents.llm]
provider = "openai_compatible"
model = "m"
api_base = "http://127.0.0.1:1/v1"
retry.max_attempts = 3
"#;
    let json = Config::from_json(RIGHT, "agent.json").unwrap();
    assert_eq!(Loader::text(yaml, "agent.yaml", Format::Yaml).load().unwrap(), json);
    assert_eq!(Loader::text(toml, "agent.toml", Format::Toml).load().unwrap(), json);
}

#[test]
fn comments_commas_at_the_end_marks_and_line_ends_are_no_mistake() {
    let windows = RIGHT.replace('\n', "\r\n");
    let marked = format!("\u{feff}{RIGHT}");
    let commented = RIGHT.replace("\"model\": \"m\",", "/* the \"model\" */ \"model\": \"m\", // [{");
    let comma = RIGHT.replace("\"type\": \"calc\" }]", "\"type\": \"calc\", },]");
    let tabs = RIGHT.replace("  ", "\t");
    for text in [windows, marked, commented, comma, tabs] {
        if let Err(error) = load(&text, Format::Json) {
            panic!("{text}: {error}");
        }
    }
}

#[test]
fn null_is_the_default_and_never_without_end() {
    let with_null =
        RIGHT.replace("\"max_attempts\": 3", "\"max_attempts\": null, \"total_budget_ms\": null").replace(
            "\"model\": \"m\",",
            "\"model\": \"m\", \"timeouts\": { \"idle_ms\": null }, \"stream\": null,",
        );
    let config = Config::from_json(&with_null, "agent.json").unwrap();
    let llm = &config.agents[0].llm;
    assert_eq!((llm.retry.max_attempts, llm.timeouts.idle_ms), (3, 60_000));
}

#[test]
fn a_place_is_told_in_characters_whatever_stands_before_it() {
    for (text, format, place) in [
        ("{\n\t\"größe\": \"日本\", \"bananas\": 1\n}", Format::Json, ":2:17"),
        ("\u{feff}{\"bananas\": 1}", Format::Json, ":1:2"),
        ("{\r\n  \"bananas\": 1\r\n}", Format::Json, ":2:3"),
        ("größe: 日本\r\nbananas: 1\n", Format::Yaml, ":2:1"),
        ("\"größe\" = \"日本\"\nbananas = 1\n", Format::Toml, ":2:1"),
    ] {
        let error = refused(text, format);
        assert!(
            error
                .message()
                .contains(&format!("bananas: there is no key \"bananas\" (agent.{}{place})", name(format))),
            "{error}"
        );
    }
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Yaml => "yaml",
        _ => "toml",
    }
}

#[test]
fn what_is_too_deep_is_refused_and_no_stack_ends() {
    for (text, format) in [
        ("[".repeat(1_000_000), Format::Json),
        ("{\"a\":".repeat(1_000_000), Format::Json),
        ("[".repeat(1_000_000), Format::Yaml),
        ("- ".repeat(100_000), Format::Yaml),
        (format!("a = {}", "[".repeat(1_000_000)), Format::Toml),
        (format!("a = {}", "{a=".repeat(1_000_000)), Format::Toml),
        (format!("{} = 1", vec!["a"; 100_000].join(".")), Format::Toml),
        (format!("[{}]", vec!["a"; 100_000].join(".")), Format::Toml),
        ((0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(), Format::Yaml),
    ] {
        let error = refused(&text, format);
        assert_eq!(error.code(), codes::CONFIG_LOAD, "{}", error.message());
        assert!(error.message().starts_with(&format!("agent.{}:", name(format))), "{}", error.message());
    }
    // As deep as it may be, each way: what is left is not to fit.
    for format in FORMATS {
        let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
        let text = match format {
            Format::Json => format!("{{\"version\": {deep}}}"),
            Format::Yaml => format!("version: {deep}\n"),
            _ => format!("version = {deep}\n"),
        };
        assert_eq!(refused(&text, format).code(), codes::CONFIG_VALIDATION);
    }
}

#[test]
fn a_few_aliases_do_not_make_millions_of_values() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let error = refused(&text, Format::Yaml);
    assert_eq!(error.code(), codes::CONFIG_LOAD);
    assert!(error.message().contains("aliases"), "{error}");
}

#[test]
fn aliases_stand_for_what_they_name() {
    let text = r#"
version: "1.0"
agents:
  - id: a
    llm: &model {provider: openai_compatible, model: m, api_base: "http://127.0.0.1:1/v1"}
  - id: b
    llm: *model
"#;
    let runtime = load(text, Format::Yaml).unwrap();
    assert_eq!(runtime.list_agents(), ["a", "b"]);
}

#[test]
fn ten_megabytes_are_read_and_told_apart() {
    // A prompt of ten megabytes is odd, and a config.
    let long = RIGHT.replace("Be brief.", &"Be brief. ".repeat(1_000_000));
    assert!(load(&long, Format::Json).is_ok());
    // Ten megabytes of mistakes are listed as far as somebody reads.
    let wrong: Vec<_> = (0..300_000).map(|index| format!("\"key number {index} here\": {index}")).collect();
    let error = refused(&format!("{{{}}}", wrong.join(",")), Format::Json);
    assert!(
        error.message().contains("and 299962 more") && error.message().len() < 20_000,
        "{}",
        error.message().len()
    );
}

#[test]
fn a_file_that_is_not_utf_8_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, place) in [(&b"{\n  \"id\": \"gr\xf6\xdfe\"}"[..], ":2:12"), (b"\xff\xfe{\x00}\x00", ":1:1")]
    {
        let file = folder.path().join("agent.json");
        std::fs::write(&file, bytes).unwrap();
        let error = Runtime::from_config(&file).err().unwrap();
        assert_eq!(error.code(), codes::CONFIG_LOAD);
        assert!(error.message().contains(&format!("agent.json{place}: ")), "{error}");
        assert!(error.message().contains("UTF-8"), "{error}");
    }
}

#[test]
fn the_end_of_a_files_name_says_what_it_is_written_in() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.yml", "version: \"1.0\"\nagents: []\n"),
        ("a.YAML", "version: \"1.0\"\nagents: []\n"),
        ("a.toml", "version = \"1.0\"\nagents = []\n"),
        ("a.jsonc", "{\"version\": \"1.0\", /* none */ \"agents\": []}"),
        ("a", "{\"version\": \"1.0\", \"agents\": []}"),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let error = Loader::file(&file).load().unwrap_err();
        // It was read, and what is in it was looked at.
        assert_eq!(error.code(), codes::CONFIG_VALIDATION, "{name}: {error}");
    }
}

// ---- Anything at all.

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("agents".to_owned()),
        Just("version".to_owned()),
        Just("1.0".to_owned()),
        Just("llm".to_owned()),
        Just("id".to_owned()),
        Just("type".to_owned()),
        Just("config".to_owned()),
        Just("tools".to_owned()),
        Just("memory".to_owned()),
        Just("react".to_owned()),
        Just("mock".to_owned()),
        Just("provider".to_owned()),
        Just("script".to_owned()),
        Just("${HOME}".to_owned()),
        Just("retry".to_owned()),
        Just("pattern".to_owned()),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A config in which something was replaced by something else.
fn nearly_right() -> impl Strategy<Value = Value> {
    let right: Value = serde_json::from_str(RIGHT).unwrap();
    let pointers = [
        "/version",
        "/agents",
        "/agents/0",
        "/agents/0/id",
        "/agents/0/memory",
        "/agents/0/pattern",
        "/agents/0/pattern/config",
        "/agents/0/llm",
        "/agents/0/llm/provider",
        "/agents/0/llm/retry",
        "/agents/0/llm/retry/max_attempts",
        "/agents/0/tools",
        "/agents/0/tools/0",
        "/agents/0/tools/0/type",
    ];
    (prop::sample::select(pointers.to_vec()), any_json()).prop_map(move |(pointer, value)| {
        let mut document = right.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        document
    })
}

proptest! {
    #![proptest_config(Cases { failure_persistence: None, ..Cases::with_cases(300) })]

    #[test]
    fn any_value_is_a_config_or_has_an_error_of_its_class(
        value in prop_oneof![any_json(), nearly_right()],
    ) {
        let text = serde_json::to_string_pretty(&value).unwrap();
        for format in [Format::Json, Format::Yaml] {
            if let Err(error) = load(&text, format) {
                prop_assert!(error.is_a(codes::CONFIG_ERROR) || error.is_a(codes::PLUGIN_ERROR), "{error}");
            }
        }
    }

    #[test]
    fn any_text_is_a_config_or_has_an_error_of_its_class(text in prop_oneof![".{0,200}", "[\\[\\]{}:,\"'\\\\a-c0-9 \n\t#&*!|>=.-]{0,80}"]) {
        for format in FORMATS {
            if let Err(error) = load(&text, format) {
                prop_assert!(error.is_a(codes::CONFIG_ERROR) || error.is_a(codes::PLUGIN_ERROR), "{error}");
            }
        }
    }

    #[test]
    fn a_config_that_is_cut_off_anywhere_is_refused_at_a_place(end in 1..RIGHT.len() - 2) {
        let error = refused(&RIGHT[..end], Format::Json);
        prop_assert_eq!(error.code(), codes::CONFIG_LOAD);
        prop_assert!(error.message().starts_with("agent.json:"), "{}", error);
    }
}
