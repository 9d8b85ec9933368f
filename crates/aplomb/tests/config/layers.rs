//! What is set over a document, who wins, and where each value comes from. Variables need a process of their own: the
//! command line's tests have them.

use aplomb::config::{Config, Format, Layer, Loader, Setting};
use aplomb::{Error, RunBudget, Runtime};
use serde_json::{Value, json};

use crate::support::{RIGHT, but};

fn set<'a>(text: &str, assignments: impl IntoIterator<Item = &'a str>) -> Result<Config, Error> {
    let base = Loader::text(text, "agent.json", Format::Json);
    assignments.into_iter().fold(base, |layers, assignment| layers.set(assignment)).load()
}

/// The right config with this set over it, as JSON.
#[track_caller]
fn with(assignments: &[&str]) -> Value {
    set(RIGHT, assignments.iter().copied()).unwrap().resolved(false).unwrap()
}

#[test]
fn an_item_of_a_list_goes_by_its_place_or_its_id() {
    for path in [
        "agents.0.llm.model",
        "agents[0].llm.model",
        "agents.assistant.llm.model",
        "agents[assistant].llm.model",
    ] {
        let config = with(&[&format!("{path}=gpt-4o")]);
        assert_eq!(config["agents"][0]["llm"]["model"], "gpt-4o", "{path}");
    }
    let config = with(&["agents.assistant.tools.calc.enabled=false"]);
    assert_eq!(config["agents"][0]["tools"][0], json!({"id": "calc", "type": "calc", "enabled": false}));
    // An id with a dot needs brackets; a number is a place, also where it is an id.
    let text = but("\"assistant\"", "\"my.agent\"");
    let config = set(&text, ["agents[my.agent].llm.model=n"]).unwrap();
    assert_eq!(config.agents[0].llm.model.as_deref(), Some("n"));
    let text = but("\"assistant\"", "\"1\"");
    assert!(
        set(&text, ["agents.1.llm.model=n"])
            .unwrap_err()
            .message()
            .contains("there is no item 1; the list has one, at 0")
    );
}

#[test]
fn a_value_is_json_where_the_schema_takes_it_and_else_a_text() {
    let of = |path: &str, value: &str| {
        let config = with(&[&format!("agents.0.{path}={value}")]);
        let pointer = format!("/agents/0/{}", path.replace('.', "/"));
        config.pointer(&pointer).cloned().unwrap_or_else(|| panic!("{pointer}: {config}"))
    };
    for (path, value, expected) in [
        ("llm.model", "4o", json!("4o")),
        ("llm.model", "4", json!("4")),
        ("llm.model", "1.50", json!("1.50")),
        ("llm.model", "true", json!("true")),
        ("llm.model", "{\"a\": 1}", json!("{\"a\": 1}")),
        ("llm.model", "\"quoted\"", json!("quoted")),
        ("llm.model", "a=b", json!("a=b")),
        ("llm.temperature", "0.2", json!(0.2)),
        ("llm.temperature", "1", json!(1.0)),
        ("llm.max_tokens", "1e3", json!(1_000)),
        ("llm.timeout_ms", "2000.0", json!(2_000)),
        ("llm.stream", "never", json!("never")),
        ("llm.fallback_on", "[\"auth\"]", json!(["auth"])),
        ("llm.retry", "{\"max_attempts\": 2, \"jitter\": \"none\"}", json!(2)),
        ("tools.calc.enabled", "false", json!(false)),
        // A plugin's config has a schema, too.
        ("pattern.config.system_prompt", "42", json!("42")),
    ] {
        let (path, expected) = match path {
            "llm.retry" => ("llm.retry", json!({"max_attempts": expected, "jitter": "none"})),
            "tools.calc.enabled" => {
                let config = with(&[&format!("agents.0.{path}={value}")]);
                assert_eq!(config["agents"][0]["tools"][0]["enabled"], expected);
                continue;
            }
            _ => (path, expected),
        };
        let found = of(path, value);
        match expected.as_object() {
            Some(fields) => fields.iter().for_each(|(key, value)| assert_eq!(found[key], *value, "{path}")),
            None => assert_eq!(found, expected, "{path}={value}"),
        }
    }
    // What holds strings takes them, and what holds anything takes JSON. Long paths are paths.
    let header = format!("x-{}", "long".repeat(20));
    let config = with(&[&format!("agents.0.llm.extra_headers.{header}=5"), "agents.0.llm.extra_body.seed=5"]);
    assert_eq!(config["agents"][0]["llm"]["extra_headers"][&header], "5");
    assert_eq!(config["agents"][0]["llm"]["extra_body"]["seed"], 5);
    // A version is a text that looks like a number.
    assert_eq!(with(&["version=1.0"])["version"], "1.0");
}

#[test]
fn null_stands_for_the_default_and_what_is_missing_is_made() {
    let config = with(&[
        "agents.0.memory=null",
        "agents.0.llm.retry.max_attempts=null",
        "agents.0.retry.session.max_retries=1",
        "session.lock_timeout_ms=5000",
    ]);
    let agent = &config["agents"][0];
    assert_eq!(agent["memory"], Value::Null);
    assert_eq!(agent["llm"]["retry"]["max_attempts"], 3);
    assert_eq!(agent["retry"]["session"]["max_retries"], 1);
    assert_eq!(config["session"]["lock_timeout_ms"], 5_000);
}

#[test]
fn a_table_or_a_list_is_set_as_a_whole_and_what_comes_later_goes_over_it() {
    let config = with(&[
        "agents.0.tools=[{\"id\": \"now\", \"type\": \"current_time\"}]",
        "agents.0.tools.now.enabled=false",
        "agents.0.llm={\"provider\": \"openai\", \"model\": \"a\"}",
        "agents.0.llm.model=b",
        "agents.0.llm.model=c",
    ]);
    let agent = &config["agents"][0];
    assert_eq!(agent["tools"], json!([{"id": "now", "type": "current_time", "enabled": false}]));
    assert_eq!((&agent["llm"]["provider"], &agent["llm"]["model"]), (&json!("openai"), &json!("c")));
    assert_eq!(agent["llm"]["api_base"], Value::Null);
}

#[test]
fn a_variable_that_is_covered_need_not_be_set_and_one_in_an_override_is_replaced() {
    let variable = "CARGO_MANIFEST_DIR";
    let text = but("\"model\": \"m\"", "\"model\": \"${APLOMB_TEST_NOT_SET}\"");
    assert!(set(&text, []).is_err());
    let config = set(&text, [format!("agents.0.llm.model=x${{{variable}}}").as_str()]).unwrap();
    let expected = format!("x{}", std::env::var(variable).unwrap());
    assert_eq!(config.agents[0].llm.model.as_ref(), Some(&expected));
    assert_eq!(config.resolved(false).unwrap()["agents"][0]["llm"]["model"], format!("x${{{variable}}}"));
    let error = set(RIGHT, ["agents.0.llm.model=${APLOMB_TEST_NOT_SET}"]).unwrap_err();
    assert_eq!(error.code().as_str(), "config.load");
    assert!(error.message().contains("(--set agents.0.llm.model)"), "{error}");
}

fn source<'a>(settings: &'a [Setting], path: &str) -> (&'a Setting, String) {
    let setting = settings.iter().find(|setting| setting.path == path).unwrap();
    (setting, setting.source.to_string())
}

#[test]
fn each_value_knows_where_it_comes_from() {
    let text = but("http://127.0.0.1:1/v1", "http://127.0.0.1:1/${CARGO_PKG_NAME}");
    let mut config =
        set(&text, ["agents.assistant.llm.model=gpt-4o", "agents.0.runtime={\"max_steps\": 4}"]).unwrap();
    let settings = config.provenance(false).unwrap();
    for (path, value, expected) in [
        ("agents[0].llm.model", json!("gpt-4o"), "--set agents.assistant.llm.model"),
        ("agents[0].runtime.max_steps", json!(4), "--set agents.0.runtime"),
        ("agents[0].llm.provider", json!("openai_compatible"), "agent.json:9:21"),
        (
            "agents[0].llm.api_base",
            json!("http://127.0.0.1:1/${CARGO_PKG_NAME}"),
            "agent.json:11:21, ${CARGO_PKG_NAME}",
        ),
        ("agents[0].llm.timeout_ms", json!(30_000), "default"),
        ("session.type", json!("in_memory"), "default"),
        ("agents[0].tools[0].id", json!("calc"), "agent.json:14:25"),
    ] {
        let (setting, place) = source(&settings, path);
        assert_eq!((&setting.value, place.as_str()), (&value, expected), "{path}");
    }
    assert_eq!(
        json!(source(&settings, "agents[0].llm.model").0),
        json!({"path": "agents[0].llm.model", "value": "gpt-4o", "source": {"kind": "flag", "file": null, "line": null,
            "column": null, "variable": null, "flag": "--set agents.assistant.llm.model", "replaced": []}})
    );
    // Null is a value where it is sent, and a key with a dot is one key.
    let body = r#"agents.0.llm.extra_body={"n": null, "a.b": 1, "a": {"b": 2}, "": 3}"#;
    let settings = set(RIGHT, [body]).unwrap().provenance(false).unwrap();
    for (path, value) in [
        ("agents[0].llm.extra_body.n", Value::Null),
        (r#"agents[0].llm.extra_body["a.b"]"#, json!(1)),
        ("agents[0].llm.extra_body.a.b", json!(2)),
        (r#"agents[0].llm.extra_body[""]"#, json!(3)),
    ] {
        let (setting, place) = source(&settings, path);
        assert_eq!((&setting.value, place.as_str()), (&value, "--set agents.0.llm.extra_body"), "{path}");
    }
    // What the program changes later is the program's.
    config.agents[0].llm.model = Some("mine".to_owned());
    let settings = config.provenance(false).unwrap();
    assert_eq!(source(&settings, "agents[0].llm.model").0.source.kind, Layer::Code);
    assert_eq!(source(&settings, "agents[0].llm.provider").0.source.kind, Layer::File);
}

#[test]
fn a_mistake_that_is_found_later_and_a_warning_name_the_layer_of_the_value() {
    // When the runtime is made.
    let config = set(RIGHT, ["agents.0.llm.api_base=127.0.0.1"]).unwrap();
    let error = Runtime::builder(config).build().err().unwrap();
    assert!(error.message().contains("--set agents.0.llm.api_base"), "{error}");
    // When the config was changed in code.
    let mut config = set(RIGHT, ["agents.0.llm.retry.max_attempts=2"]).unwrap();
    config.agents[0].llm.retry.max_attempts = 0;
    let error = Runtime::builder(config).build().err().unwrap();
    assert!(
        error.message().contains("0 is not in 1..=100 (--set agents.0.llm.retry.max_attempts)"),
        "{error}"
    );
    // A plugin that only the program can know.
    let config = set(RIGHT, ["agents.0.tools.calc={\"id\": \"calc\", \"impl\": \"nobodys\"}"]).unwrap();
    let error = Runtime::builder(config).build().err().unwrap();
    assert!(
        error.message().contains("nobodys") && error.message().contains("(--set agents.0.tools.calc)"),
        "{error}"
    );
    // A warning.
    let config = set(RIGHT, ["agents.0.llm.api_key_env=APLOMB_TEST_NOT_SET"]).unwrap();
    let warnings = Runtime::builder(config).validate(false).unwrap();
    let told = warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(
        told.contains("APLOMB_TEST_NOT_SET, which is not set (--set agents.0.llm.api_key_env)"),
        "{told}"
    );
    assert_eq!(warnings[0].place.flag.as_deref(), Some("--set agents.0.llm.api_key_env"));
    assert_eq!((warnings[0].place.file.as_deref(), warnings[0].place.line), (None, None));
    // One of a key with dots.
    let text = but("\"model\": \"m\",", "\"model\": \"m\", \"extra_headers\": {\"x.api.key\": \"plain\"},");
    let warnings = Runtime::builder(set(&text, []).unwrap()).validate(false).unwrap();
    assert_eq!(warnings[0].path, r#"agents[0].llm.extra_headers["x.api.key"]"#);
    assert_eq!(warnings[0].place.line, Some(10));
}

#[test]
fn an_agent_that_is_made_ready_alone_keeps_its_place_and_its_neighbours_secrets() {
    let canary = "canary-51c9e2aa70b1";
    let other = format!("{{\"id\": \"b\", \"llm\": {{\"provider\": \"openai\", \"model\": \"{canary}\"}}}},");
    // In one line, so that an excerpt has both.
    let text = but("\"agents\": [", &format!("\"agents\": [{other}")).replace('\n', " ");
    let mut config = set(&text, ["agents.assistant.llm.temperature=1"]).unwrap();
    // The neighbour's key is not there.
    let runtime = Runtime::builder(config.clone()).only("assistant").build().unwrap();
    assert_eq!(runtime.list_agents(), ["assistant"]);
    let costs = Runtime::builder(config.clone()).only("assistant");
    let error = costs.keeping_to(RunBudget::new().max_cost_usd(1.0)).build().err().unwrap();
    assert_eq!(error.context("path"), Some(&json!("agents[1].llm")));
    assert!(error.message().starts_with("agents[1].llm: "), "{error}");
    config.agents[1].llm.retry.max_attempts = 0;
    let error = Runtime::builder(config).only("assistant").build().err().unwrap();
    assert_eq!(error.context("path"), Some(&json!("agents[1].llm.retry.max_attempts")));
    assert!(
        error.message().contains('^') && !format!("{error}{:?}", error.details()).contains(canary),
        "{error}"
    );
    let error = Runtime::builder(set(RIGHT, []).unwrap()).only("asistant").build().err().unwrap();
    assert_eq!(
        (error.code().as_str(), error.hint()),
        ("user.agent_not_found", Some("did you mean \"assistant\"?"))
    );
}

#[test]
fn a_runtime_from_a_config_file_and_the_command_line_read_the_same_environment() {
    const VARIABLE: &str = "APLOMB_CONFIG__AGENTS__ASSISTANT__ID";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.json");
    std::fs::write(&file, RIGHT).unwrap();
    if std::env::var_os(VARIABLE).is_none() {
        // Once more, in a process that has the variable.
        let name = "layers::a_runtime_from_a_config_file_and_the_command_line_read_the_same_environment";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let again = again.args([name, "--exact"]).env(VARIABLE, "other").output().unwrap();
        let told = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let runtime = Runtime::from_config(&file).unwrap();
    assert_eq!(runtime.list_agents(), ["other"]);
    // Who does not want that leaves it out.
    assert_eq!(Loader::file(&file).load().unwrap().agents[0].id, "assistant");
    assert_eq!(Loader::file(&file).set("agents.0.id=mine").load().unwrap().agents[0].id, "mine");
}
