//! What people are told who got a config wrong. The golden files are in `snapshots`: read them as text when they change,
//! and ask whether you would thank the author.

use aplomb::config::Format;

use crate::support::{RIGHT, but, refused};

/// Compares with the golden file of the test.
macro_rules! golden {
    ($said:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($said) })
    };
}

/// Everything that is said of these configs.
fn said<'a>(cases: impl IntoIterator<Item = (&'a str, Format, String)>) -> String {
    let say = |(title, format, text): (&str, Format, String)| {
        let error = refused(&text, format);
        format!("--- {title}\n[{}] {error}\n", error.code())
    };
    cases.into_iter().map(say).collect::<Vec<_>>().join("\n")
}

fn json<'a>(title: &'a str, from: &str, to: &str) -> (&'a str, Format, String) {
    (title, Format::Json, but(from, to))
}

const LLM: &str = r#""model": "m","#;
const ID: &str = r#""id": "assistant","#;
const TOOL: &str = r#"{ "id": "calc", "type": "calc" }"#;
const MEMORY: &str = r#"{ "type": "buffer" }"#;
const PATTERN: &str = r#"{ "type": "react", "config": { "system_prompt": "Be brief." } }"#;
const ATTEMPTS: &str = r#"{ "max_attempts": 3 }"#;
const VERSION: &str = r#""version": "1.0","#;

#[test]
fn texts_that_are_no_documents() {
    let case = |title, format, text: &str| (title, format, text.to_owned());
    golden!(said([
        case("nothing", Format::Json, ""),
        case("a comment alone", Format::Json, "// later\n"),
        json("a comma too few", r#""model": "m","#, r#""model": "m""#),
        json("a quote too few", r#""model": "m","#, r#""model": "m,"#),
        json("single quotes", r#""model": "m","#, r#"'model': 'm',"#),
        json("a word for a string", r#""model": "m","#, r#""model": m,"#),
        case("a bracket too few", Format::Json, RIGHT.trim_end().strip_suffix('}').unwrap()),
        case("something after the end", Format::Json, &format!("{RIGHT}{{}}")),
        json("a key twice", r#""model": "m","#, r#""model": "m", "model": "n","#),
        json("a number that no computer holds", "\"max_attempts\": 3", "\"max_attempts\": 1e999"),
        case("too deep", Format::Json, &"[".repeat(100_000)),
        case("YAML that is torn", Format::Yaml, "version: \"1.0\"\nagents:\n  - id: a\n llm: {}\n"),
        case("YAML with a tab", Format::Yaml, "version: \"1.0\"\nagents:\n\t- id: a\n"),
        case("YAML with a key twice", Format::Yaml, "version: \"1.0\"\nversion: \"1.0\"\n"),
        case("YAML of two documents", Format::Yaml, "version: \"1.0\"\n---\nversion: \"1.0\"\n"),
        case("YAML with an unknown alias", Format::Yaml, "version: *v\n"),
        case("YAML with a tag", Format::Yaml, "version: !mine 1\n"),
        case("TOML that is torn", Format::Toml, "version = 1.0.0\n"),
        case("TOML with a key twice", Format::Toml, "version = \"1.0\"\nversion = \"1.0\"\n"),
    ]));
}

#[test]
fn documents_of_another_shape() {
    let case = |title, text: &str| (title, Format::Json, text.to_owned());
    golden!(said([
        case("a list", "[]"),
        case("an empty object", "{}"),
        case("no agent", r#"{"version": "1.0", "agents": []}"#),
        case("an agent that is a string", r#"{"version": "1.0", "agents": ["a"]}"#),
        json("a version that is a number", VERSION, r#""version": 1.0,"#),
        json("a version to come", VERSION, r#""version": "2.0","#),
        json("a misspelt key", r#""model": "m","#, r#""modle": "m","#),
        json("a key in another case", r#""max_attempts": 3"#, r#""maxAttempts": 3"#),
        json("a key that is far from all", r#""model": "m","#, r#""model": "m", "banana": 1,"#),
        json("a key of a level above", r#""max_attempts": 3"#, r#""max_attempts": 3, "timeout_ms": 5"#),
        json("an agent without an id", ID, ""),
        json("a null where something is needed", r#""id": "assistant","#, r#""id": null,"#),
        json("a string for a number", r#""max_attempts": 3"#, r#""max_attempts": "3""#),
        json("a word for a number", r#""max_attempts": 3"#, r#""max_attempts": "three""#),
        json("a number with a fraction", r#""max_attempts": 3"#, r#""max_attempts": 2.5"#),
        json("a list for a string", r#""model": "m","#, r#""model": ["m"],"#),
        json("an object for a list", r#"[{ "id": "calc", "type": "calc" }]"#, TOOL),
        json("a string for a boolean", TOOL, r#"{ "id": "calc", "type": "calc", "enabled": "yes" }"#),
        ("YAML's yes", Format::Yaml, yaml("tools: [{id: calc, type: calc, enabled: yes}]")),
        ("a table of TOML that is misspelt", Format::Toml, toml("[agents.llm.retyr]\nmax_attempts = 3\n")),
    ]));
}

fn yaml(more: &str) -> String {
    format!(
        "version: \"1.0\"\nagents:\n  - id: a\n    {more}\n    llm:\n      provider: mock\n      script: {{steps: [{{reply: {{message: {{text: hi}}}}}}]}}\n"
    )
}

fn toml(more: &str) -> String {
    format!(
        "version = \"1.0\"\n\n[[agents]]\nid = \"a\"\n\n[agents.llm]\nprovider = \"openai_compatible\"\nmodel = \"m\"\napi_base = \"http://127.0.0.1:1/v1\"\n\n{more}"
    )
}

#[test]
fn values_that_are_out_of_range_or_do_not_go_together() {
    let script = r#""script": {"steps": [{"reply": {"message": {"text": "{{nope}}"}}}]}"#;
    golden!(said([
        json("no attempt", r#""max_attempts": 3"#, r#""max_attempts": 0"#),
        json("too many attempts", r#""max_attempts": 3"#, r#""max_attempts": 101"#),
        json("less than nothing", r#""max_attempts": 3"#, r#""max_attempts": -1"#),
        json("no time at all", LLM, r#""model": "m", "timeout_ms": 0,"#),
        json("no tokens", LLM, r#""model": "m", "max_tokens": 0,"#),
        json("more tokens than a number holds", LLM, r#""model": "m", "max_tokens": 99999999999,"#),
        json("too hot", LLM, r#""model": "m", "temperature": 2.5,"#),
        json("a mode that is misspelt", LLM, r#""model": "m", "stream": "alwyas","#),
        json("a mode that is none", LLM, r#""model": "m", "stream": true,"#),
        json("a delay longer than the longest", ATTEMPTS, r#"{ "initial_backoff_ms": 9000 }"#),
        json("a multiplier that shrinks", ATTEMPTS, r#"{ "backoff_multiplier": 0.5 }"#),
        json(
            "an id twice",
            TOOL,
            r#"{ "id": "calc", "type": "calc" }, { "id": "calc", "type": "current_time" }"#
        ),
        json("an id with a space", TOOL, r#"{ "id": "my calc", "type": "calc" }"#),
        json("an id of nothing", ID, r#""id": " ","#),
        json("no model", LLM, ""),
        json("no address", r#""api_base": "http://127.0.0.1:1/v1","#, ""),
        json("an address that is none", "http://127.0.0.1:1/v1", "127.0.0.1"),
        json("a provider that is misspelt", "openai_compatible", "antropic"),
        json("a provider of another system", "openai_compatible", "litellm"),
        json("a script where none is played", LLM, &format!("{LLM} {script},")),
        json(
            "a script that is none",
            r#""provider": "openai_compatible","#,
            &format!(r#""provider": "mock", {script},"#)
        ),
        json("a key in the config", LLM, r#""model": "m", "api_key": "sk-proj-abcdefghijklmnopqrst","#),
        json(
            "a key whose variable is not set",
            LLM,
            r#""model": "m", "api_key_env": "APLOMB_TEST_NOT_SET","#
        ),
    ]));
}

#[test]
fn plugins_that_are_not_there() {
    golden!(said([
        json("a tool that is misspelt", TOOL, r#"{ "id": "calc", "type": "clac" }"#),
        json("a tool that comes later", TOOL, r#"{ "id": "sh", "type": "shell_exec" }"#),
        json("a tool that is far from all", TOOL, r#"{ "id": "x", "type": "teleport" }"#),
        json("a tool that nobody registered", TOOL, r#"{ "id": "x", "impl": "my_tool" }"#),
        json("a tool of Python's", TOOL, r#"{ "id": "x", "impl": "app.tools:Search" }"#),
        json("a tool of neither kind", TOOL, r#"{ "id": "x" }"#),
        json("a memory of both kinds", MEMORY, r#"{ "type": "buffer", "impl": "mine" }"#),
        json("a memory that is misspelt", MEMORY, r#"{ "type": "bufer" }"#),
        json("a memory that is hosted", MEMORY, r#"{ "type": "mem0" }"#),
        json(
            "a memory that comes later",
            MEMORY,
            r#"{ "type": "window_buffer", "config": { "window_size": 10 } }"#
        ),
        json("a pattern that is misspelt", PATTERN, r#"{ "type": "reakt" }"#),
        json("a built-in one as one's own", PATTERN, r#"{ "impl": "react" }"#),
        json(
            "a pattern's config that does not fit",
            PATTERN,
            r#"{ "type": "react", "config": { "system_promt": 1 } }"#
        ),
        json(
            "an executor's config that does not fit",
            ID,
            r#""id": "assistant", "tool_executor": { "type": "retry", "config": { "max_attempts": 0 } },"#,
        ),
        json("a session that comes later", VERSION, r#""version": "1.0", "session": { "type": "sqlite" },"#),
    ]));
}

#[test]
fn keys_that_do_nothing_yet() {
    golden!(said([
        json("an address for streams", LLM, r#""model": "m", "stream_endpoint": "https://a.example/v1","#),
        json(
            "a fallback's address for streams",
            LLM,
            r#""model": "m", "fallbacks": [{ "provider": "anthropic", "model": "m", "stream_endpoint": "https://a.example" }],"#,
        ),
        json("a grace for tools", ID, r#""id": "assistant", "runtime": { "interrupt_grace_ms": 9 },"#),
        json("traffic", VERSION, r#""version": "1.0", "traffic": { "max_concurrency": 8 },"#),
    ]));
}

#[test]
fn prices_that_are_none() {
    let price = |title, pricing: &str| json(title, LLM, &format!(r#""model": "m", "pricing": {pricing},"#));
    golden!(said([
        price("less than nothing", r#"{ "input": -3, "output": 15 }"#),
        price("the price of gold", r#"{ "input": 3, "output": 1500000 }"#),
        price("a text", r#"{ "input": "3 USD", "output": 15 }"#),
        price("a number in quotes", r#"{ "input": "3.0", "output": 15 }"#),
        price("one price for all", "3"),
        price("half of it", r#"{ "input": 3 }"#),
        price("nothing in it", "{}"),
        price("a null", r#"{ "input": 3, "output": null }"#),
        price("a misspelt key", r#"{ "input": 3, "output": 15, "cache_read": 0.3 }"#),
        price("a key of another system", r#"{ "input": 3, "output": 15, "currency": "EUR" }"#),
        price("more than a number holds", r#"{ "input": 3, "output": 1e999 }"#),
        (
            "no number in YAML",
            Format::Yaml,
            yaml("llm_: 1").replace("llm_: 1\n    llm:", "llm:\n      pricing: {input: .nan, output: 15}")
        ),
        ("no number in TOML", Format::Toml, toml("[agents.llm.pricing]\ninput = nan\noutput = 15.0\n")),
        ("infinite", Format::Toml, toml("[agents.llm.pricing]\ninput = inf\noutput = 15.0\n")),
        json(
            "a fallback's price",
            LLM,
            r#""model": "m", "fallbacks": [{ "provider": "anthropic", "model": "m", "pricing": { "output": -1 } }],"#,
        ),
        json("no tool call at all", ID, r#""id": "assistant", "runtime": { "max_tool_calls": 0 },"#),
    ]));
}

#[test]
fn variables_that_are_not_set() {
    golden!(said([
        json("one that is not set", "http://127.0.0.1:1/v1", "${APLOMB_TEST_NOT_SET}/v1"),
        json("one without its end", "http://127.0.0.1:1/v1", "${APLOMB_TEST_NOT_SET/v1"),
        json("one that is no name", "http://127.0.0.1:1/v1", "${APLOMB TEST}/v1"),
        (
            "two",
            Format::Json,
            but("Be brief.", "${APLOMB_TEST_A} ${APLOMB_TEST_B}").replace("\"m\"", "\"${APLOMB_TEST_C}\"")
        ),
    ]));
}

/// What the reference SDK's own `init` writes, and what its other parts would be.
#[test]
fn a_config_of_the_reference_is_refused_part_by_part() {
    const MINIMAL: &str = r#"{
  "version": "1.0",
  "agents": [
    {
      "id": "assistant",
      "name": "demo",
      "memory": {"type": "window_buffer", "config": {"window_size": 10}},
      "pattern": {"type": "react", "config": {"max_steps": 4}},
      "llm": {
        "provider": "anthropic",
        "model": "PLACEHOLDER_MODEL_NAME",
        "temperature": 0
      },
      "tools": [],
      "runtime": {
        "max_steps": 8,
        "step_timeout_ms": 15000,
        "session_queue_size": 100,
        "event_queue_size": 200
      }
    }
  ]
}
"#;
    let more = MINIMAL.replacen(
        "\"agents\"",
        "\"skills\": {\"type\": \"local\"},\n  \"multi_agent\": {\"enabled\": true},\n  \"diagnostics\": {\"type\": \"null\", \"redact_keys\": []},\n  \"events\": {\"type\": \"async\"},\n  \"session\": {\"type\": \"in_memory\"},\n  \"runtime\": {\"type\": \"default\"},\n  \"agents\"",
        1,
    );
    golden!(said([
        ("what init writes", Format::Json, MINIMAL.to_owned()),
        ("with all the rest", Format::Json, more),
    ]));
}

#[test]
fn many_problems_are_told_at_once_in_the_order_of_the_text() {
    let text = r#"{"version":"1.0","agents":[{"id":"a","name":"A","memroy":{"type":"bufer"},"pattern":{"type":"react"},"llm":{"provider":"mock","temprature":9}}]}"#;
    let yaml = "version: 1.0\nagents:\n- id: a\n  memory: {type: bufer}\n  llm:\n    provider: antropic\n    retry: {max_attempts: 0, jiter: none}\n- id: a\n  llm: {}\n";
    let toml = toml("stream = \"sometimes\"\n[[agents.tools]]\nid = \"a b\"\ntype = \"clac\"\n");
    golden!(said([
        ("in one line", Format::Json, text.to_owned()),
        ("in YAML", Format::Yaml, yaml.to_owned()),
        ("in TOML", Format::Toml, toml),
    ]));
}
