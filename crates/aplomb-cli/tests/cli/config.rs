//! The commands around configs: validate, schema, list-plugins, config show, init and doctor.

use std::path::Path;

use crate::support::{Finished, QUICKSTART, aplomb, config, file, output, says};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use serde_json::{Value, json};

fn call(arguments: &[&str]) -> Finished {
    output(aplomb().args(arguments))
}

const BAD: &str = r#"{"version":"1.0","agents":[{"id":"a","name":"A","memroy":{"type":"bufer"},"pattern":{"type":"react"},"llm":{"provider":"mock","temprature":9}}]}"#;

// ---- validate.

#[test]
fn validate_says_what_is_wrong_all_at_once_with_carets_and_near_matches_and_exits_with_2() {
    let bad = file(BAD);
    let path = bad.path().to_str().unwrap();
    let refused = call(&["validate", path]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    for part in [
        "5 problems",
        "did you mean \"memory\"?",
        "did you mean \"buffer\"?",
        "did you mean \"temperature\"?",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert!(
        refused.stderr.contains("9 is not in 0..=2") && refused.stderr.contains("^^^^^^^^"),
        "{}",
        refused.stderr
    );
    // The same for programs.
    let refused = call(&["validate", path, "--format", "json"]);
    assert_eq!(refused.code, Some(2));
    let details = &refused.json()["error_details"];
    assert_eq!(details["code"], "config.validation");
    let problems = details["context"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 5);
    let first = &problems[0];
    assert_eq!(
        (&first["path"], &first["line"], &first["column"]),
        (&json!("agents[0].memroy"), &json!(1), &json!(49))
    );
    assert_eq!(first["hint"], "did you mean \"memory\"?");
}

#[test]
fn validate_takes_what_is_right_and_shows_it_resolved() {
    let taken = call(&["validate", QUICKSTART, "--strict"]);
    assert_eq!((taken.code, taken.stderr.as_str()), (Some(0), ""));
    assert!(taken.stdout.contains("is valid; agents: assistant"), "{}", taken.stdout);
    let told = call(&["validate", QUICKSTART, "--format", "json"]).json();
    assert_eq!(
        (&told["valid"], &told["agents"], &told["warnings"]),
        (&json!(true), &json!(["assistant"]), &json!([]))
    );
    let resolved = call(&["validate", QUICKSTART, "--show-resolved"]).json();
    assert_eq!(resolved["agents"][0]["llm"]["retry"]["max_attempts"], 3);
}

#[test]
fn validate_finds_what_would_fail_before_the_first_call_and_is_strict_where_it_is_told_to() {
    let llm = json!({"provider": "anthropic", "model": "m", "api_key_env": "APLOMB_TEST_UNSET_KEY"});
    let keyless = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let path = keyless.path().to_str().unwrap();
    let lenient = call(&["validate", path]);
    assert_eq!(lenient.code, Some(0), "{}", lenient.stderr);
    assert!(
        lenient.stderr.contains("warning") && lenient.stderr.contains("APLOMB_TEST_UNSET_KEY"),
        "{}",
        lenient.stderr
    );
    let strict = call(&["validate", path, "--strict"]);
    assert_eq!(strict.code, Some(2));
    assert!(strict.stderr.contains("error[config.load]"), "{}", strict.stderr);
    let mut set = aplomb();
    let set =
        output(set.args(["validate", path, "--strict"]).env("APLOMB_TEST_UNSET_KEY", "canary-key-0815"));
    // A model without a price is no mistake.
    assert_eq!(set.code, Some(0), "{}", set.stderr);
    assert!(
        !set.stderr.contains("warning") && set.stderr.contains("note: agents[0].llm: "),
        "{}",
        set.stderr
    );
    let nobody = json!({"version": "1.0", "agents": [{"id": "a", "llm": {"provider": "mock", "script": {"steps": []}},
        "tools": [{"id": "x", "impl": "my.tools:Search"}]}]});
    let refused = call(&["validate", file(&nobody.to_string()).path().to_str().unwrap()]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("MCP") && refused.stderr.contains("main_with"), "{}", refused.stderr);
}

#[test]
fn validate_says_whether_the_agents_could_keep_to_a_limit_of_cost_as_run_does() {
    let script = json!({"steps": [says("hi")]});
    let llm = json!({"provider": "mock", "script": script});
    let unpriced = file(&format!("{:#}", json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]})));
    let path = unpriced.path().to_str().unwrap();
    for arguments in [
        &["validate", path, "--max-cost-usd", "1"][..],
        &["run", path, "--input", "hi", "--max-cost-usd", "1"],
    ] {
        let told = call(arguments);
        assert_eq!((told.code, told.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        // What is missing stands nowhere: the place is the model's.
        for part in ["error[config.validation]", ":5:14", "mock/mock", "hint: set llm.pricing", "--unpriced"]
        {
            assert!(told.stderr.contains(part), "{arguments:?} {part}: {}", told.stderr);
        }
        let allowed = call(&[arguments, &["--unpriced", "allow"]].concat());
        assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    }
    // Nobody misses the price of a script.
    assert_eq!(call(&["validate", path]).stderr, "");
    let priced = json!({"provider": "ollama", "model": "m", "pricing": {"input": 0, "output": 0},
        "fallbacks": [{"provider": "vllm", "model": "n", "api_base": "http://127.0.0.1:9/v1"}]});
    let half = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": priced}]}).to_string());
    let told = call(&["validate", half.path().to_str().unwrap(), "--strict", "--format", "json"]).json();
    assert_eq!((&told["valid"], &told["warnings"]), (&json!(true), &json!([])));
    let notes = told["notes"].as_array().unwrap();
    assert_eq!((notes.len(), &notes[0]["path"]), (1, &json!("agents[0].llm.fallbacks[0]")), "{told}");
    // Anthropic takes more for what is written to its cache than for other input.
    let cached = json!({"provider": "anthropic", "model": "m", "api_key_env": "CARGO_MANIFEST_DIR",
        "cache": ["system"], "pricing": {"input": 3, "output": 15}});
    let cached = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": cached}]}).to_string());
    let told = call(&["validate", cached.path().to_str().unwrap(), "--strict"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stderr.contains("note: agents[0].llm.pricing: ") && told.stderr.contains("cached_write"));
}

#[test]
fn a_limit_of_cost_names_the_agent_by_its_place_and_hides_no_warning() {
    let llm = json!({"provider": "openai", "model": "m", "api_key_env": "APLOMB_TEST_NOT_SET"});
    let agents = ["one", "two"].map(|id| json!({"id": id, "llm": llm}));
    let two = file(&format!("{:#}", json!({"version": "1.0", "agents": agents})));
    let path = two.path().to_str().unwrap();
    for arguments in [
        &["run", path, "--agent", "two", "--input", "hi", "--max-cost-usd", "1", "--format", "json"][..],
        &[
            "validate",
            path,
            "--max-cost-usd",
            "1",
            "--set",
            "agents.0.llm.pricing={\"input\": 1, \"output\": 1}",
            "--format",
            "json",
        ],
    ] {
        let told = call(arguments).json();
        assert_eq!(told["error_details"]["context"]["path"], "agents[1].llm", "{told}");
    }
    let told = call(&["validate", path, "--max-cost-usd", "1", "--strict"]).stderr;
    assert_eq!(told.matches("max_cost_usd").count(), 2, "{told}");
    assert_eq!(told.matches("which is not set").count(), 2, "{told}");
    // A model's name that is from the environment is not shown.
    let flag = ["--set", "agents.0.llm.model=${CARGO_PKG_NAME}"];
    let told = call(&[&["validate", path, "--max-cost-usd", "1"][..], &flag].concat()).stderr;
    assert!(told.contains("openai/${CARGO_PKG_NAME} has no known price"), "{told}");
    // What to do where there is no price is nothing to say where there is no limit.
    assert_eq!(call(&["validate", path, "--unpriced", "allow"]).code, Some(1));
}

#[test]
fn the_help_of_run_tells_its_two_time_limits_apart_and_has_the_budget_alone_under_its_heading() {
    let help = call(&["run", "--help"]).stdout;
    let (options, budget) = help.split_once("\nBudget:\n").unwrap();
    assert!(options.contains("--timeout-ms") && options.contains("execution.timeout"), "{help}");
    assert!(options.contains("--format") && !budget.contains("--format"), "{help}");
    assert!(budget.contains("--max-duration-ms") && budget.contains("execution.budget_exhausted"), "{help}");
    // Where nothing is run, a limit of cost is a question.
    let help = call(&["validate", "--help"]).stdout;
    assert!(help.contains("Refuse agents that could not keep to this cost"), "{help}");
}

// ---- schema and list-plugins.

#[test]
fn the_schema_is_json_and_that_of_a_plugin_is_its_configs() {
    let schema = call(&["schema"]).json();
    assert!(schema["properties"]["agents"].is_object(), "{schema}");
    let retry = call(&["schema", "--plugin", "retry"]).json();
    assert_eq!(retry["properties"]["max_attempts"]["maximum"], 100);
    for (arguments, code, part) in [
        (&["schema", "--plugin", "retyr"][..], 2, "did you mean \"retry\"?"),
        (&["schema", "--plugin", "retry", "--seam", "tool"], 2, "list-plugins"),
        (&["schema", "--plugin", "retry", "--seam", "tol"], 1, "did you mean \"tool\"?"),
        (&["schema", "--seam", "tool"], 1, "--plugin"),
        (&["schema", "--plugin", "sqlite"], 2, "not there yet"),
    ] {
        let refused = call(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(code), ""), "{arguments:?}");
        assert!(refused.stderr.contains(part), "{arguments:?}: {}", refused.stderr);
    }
}

#[test]
fn list_plugins_lists_all_seams_and_says_what_comes_later() {
    let listed = call(&["list-plugins"]);
    assert_eq!((listed.code, listed.stderr.as_str()), (Some(0), ""));
    for part in ["\nprovider\n", "\n  calc                   built in", "\n  sqlite                 later"] {
        assert!(listed.stdout.contains(part), "{part}: {}", listed.stdout);
    }
    let tools = call(&["list-plugins", "--seam", "tool", "--format", "json"]).json();
    let tools = tools.as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["seam"] == "tool"));
    let calc = tools.iter().find(|tool| tool["name"] == "calc").unwrap();
    assert_eq!((&calc["origin"], &calc["config"]["type"]), (&json!("built_in"), &json!("object")));
}

// ---- config show.

#[test]
fn a_script_has_no_use_for_a_way_of_telling_schemas() {
    let scripted = config(json!([says("hi")]));
    let path = scripted.path().to_str().unwrap();
    for (mode, code) in [("auto", 0), ("native", 2), ("instructions", 2)] {
        let set = format!("agents.0.llm.output_schema={mode}");
        let told = call(&["validate", path, "--set", &set]);
        assert_eq!(told.code, Some(code), "{mode}: {}", told.stderr);
        assert_eq!(told.stderr.contains("output_schema: mock sends nothing"), code == 2, "{}", told.stderr);
    }
}

#[test]
fn config_show_redacts_a_credential_in_place_of_a_key() {
    let key = "sk-ant-api03-canary4711canary";
    let mut llm = json!({"provider": "anthropic", "model": "m", "extra_body": {}});
    llm["extra_body"][key] = json!(1);
    let shown = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let path = shown.path().to_str().unwrap();
    let redacted = call(&["config", "show", path, "--redact"]);
    assert_eq!(redacted.code, Some(0));
    let body = redacted.json()["agents"][0]["llm"]["extra_body"].clone();
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["[redacted]"]);
}

#[test]
fn config_show_writes_a_config_that_says_the_same_in_each_form_and_no_secret() {
    let secret = "canary-value-4711";
    let llm = json!({"provider": "anthropic", "model": "${APLOMB_TEST_MODEL}",
        "extra_headers": {"x-team": "${APLOMB_TEST_SECRET}", "x-plain": "canary-literal-1234"}});
    let shown = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let path = shown.path().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for format in ["json", "yaml", "toml"] {
        let show = |arguments: &[&str]| {
            let mut command = aplomb();
            command.env("APLOMB_TEST_MODEL", "m").env("APLOMB_TEST_SECRET", secret);
            output(command.args(["config", "show"]).args(arguments))
        };
        let first = show(&[path, "--format", format]);
        assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""), "{format}");
        assert!(
            !first.stdout.contains(secret) && first.stdout.contains("${APLOMB_TEST_SECRET}"),
            "{}",
            first.stdout
        );
        assert!(first.stdout.contains("canary-literal-1234"));
        let redacted = show(&[path, "--format", format, "--redact"]);
        assert!(!redacted.stdout.contains("canary-literal-1234"), "{}", redacted.stdout);
        // Read again, it is the same config.
        let again = folder.path().join(format!("agent.{format}"));
        std::fs::write(&again, &first.stdout).unwrap();
        said.push(show(&[again.to_str().unwrap()]).json());
    }
    assert!(said.iter().all(|config| *config == said[0]), "{said:#?}");
    assert_eq!(
        call(&["config", "show", "/no/such/file", "--format", "json"]).json()["error_details"]["code"],
        "config.load"
    );
}

// ---- init.

#[test]
fn each_template_validates_and_runs_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    for (template, agent, answer) in [
        ("minimal", "assistant", "script's answer"),
        ("tools", "assistant", "81"),
        ("multi-provider", "scripted", "script's answer"),
    ] {
        let project = folder.path().join(template);
        let written = call(&["init", project.to_str().unwrap(), "--template", template]);
        assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""), "{template}");
        let config = project.join("agent.json");
        let config = config.to_str().unwrap();
        assert!(written.stdout.contains(config), "{}", written.stdout);
        let strict = if template == "multi-provider" { &[][..] } else { &["--strict"] };
        let set = output(aplomb().args(["validate", config, "--strict"]).env("ANTHROPIC_API_KEY", "x"));
        assert_eq!(set.code, Some(0), "{template}: {}", set.stderr);
        let valid = output(aplomb().args(["validate", config]).args(strict).env_remove("ANTHROPIC_API_KEY"));
        assert_eq!(valid.code, Some(0), "{template}: {}", valid.stderr);
        let run = output(
            aplomb()
                .args(["run", config, "--agent", agent, "--input", "What is 9 * 9?", "--format", "text"])
                .env_remove("ANTHROPIC_API_KEY"),
        );
        assert_eq!(run.code, Some(0), "{template}: {}", run.stderr);
        assert!(run.stdout.contains(answer), "{template}: {}", run.stdout);
        // The schema that it names is there, and is the one that is printed.
        let schema = std::fs::read_to_string(project.join("agent.schema.json")).unwrap();
        assert_eq!(schema, call(&["schema"]).stdout);
    }
}

#[test]
fn init_overwrites_nothing_and_begins_nothing_where_it_cannot_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for there in ["agent.json", "agent.schema.json"] {
        std::fs::write(path(there), "mine").unwrap();
        let refused = call(&["init", folder.path().to_str().unwrap()]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
        assert!(
            refused.stderr.contains(there) && refused.stderr.contains("left as it is"),
            "{}",
            refused.stderr
        );
        assert_eq!(std::fs::read_to_string(path(there)).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::remove_file(path(there)).unwrap();
    }
    let in_the_way = path("file");
    std::fs::write(&in_the_way, "").unwrap();
    let refused = call(&["init", in_the_way.to_str().unwrap(), "--format", "json"]);
    assert_eq!(
        (refused.code, &refused.json()["error_details"]["code"]),
        (Some(1), &json!("user.invalid_input"))
    );
}

// ---- Keys.

#[tokio::test(flavor = "multi_thread")]
async fn a_vendors_key_is_where_its_documentation_puts_it_and_goes_to_no_other_address() {
    let llm = json!({"provider": "groq", "model": "m"});
    let of = |llm: &Value| file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let agent = of(&llm);
    let missing = output(
        aplomb().args(["run", agent.path().to_str().unwrap(), "--input", "hi"]).env_remove("GROQ_API_KEY"),
    );
    assert_eq!(missing.code, Some(2));
    assert!(
        missing.stderr.contains("config.load") && missing.stderr.contains("GROQ_API_KEY"),
        "{}",
        missing.stderr
    );
    // The address is the config's, so the key has to be, too.
    let script = json!({"steps": [says("hi")], "at_end": "repeat_last"});
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    for (key, sent) in [(Value::Null, None), (json!("GROQ_API_KEY"), Some("Bearer gsk_canary"))] {
        let llm =
            json!({"provider": "groq", "model": "m", "api_base": server.base_url(), "api_key_env": key});
        let agent = of(&llm);
        let arguments = ["run", agent.path().to_str().unwrap(), "--input", "hi", "--format", "text"];
        let told = output(aplomb().args(arguments).env("GROQ_API_KEY", "gsk_canary"));
        assert_eq!((told.code, told.stdout.as_str()), (Some(0), "hi\n"), "{}", told.stderr);
        let requests = server.requests();
        let headers = &requests.last().unwrap().headers;
        assert_eq!(headers.get("authorization").map(String::as_str), sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_config_says_of_a_request_is_in_the_request() {
    let script = json!({"steps": [says("hi")], "at_end": "repeat_last"});
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    let sent = |llm: Value| {
        let mut llm = llm;
        llm["model"] = json!("m");
        llm["api_base"] = json!(server.base_url());
        let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
        let arguments = ["run", config.path().to_str().unwrap(), "--input", "hi", "--format", "text"];
        let told = output(aplomb().args(arguments).env("APLOMB_TEST_KEY", "canary-1"));
        assert_eq!(told.code, Some(0), "{}", told.stderr);
        server.requests().pop().unwrap()
    };
    // A null takes away what Aplomb would send (RFC 7396).
    let chat = json!({"provider": "openai_compatible", "stream": "always"});
    assert!(sent(chat.clone()).body["stream_options"].is_object());
    let mut patched = chat;
    patched["extra_body"] = json!({"stream_options": null, "top_k": 3});
    let patched = sent(patched).body;
    assert_eq!((patched.get("stream_options"), &patched["top_k"]), (None, &json!(3)));
    let cached =
        sent(json!({"provider": "anthropic", "api_key_env": "APLOMB_TEST_KEY", "cache": ["last_message"]}));
    assert!(cached.body["messages"].to_string().contains("cache_control"), "{}", cached.body);
    let commanded = sent(json!({"provider": "openai_compatible", "api_key_command": "printf canary-2"}));
    assert_eq!(commanded.headers["authorization"], "Bearer canary-2");
    // A header of the user's that is no key leaves the key where it is.
    let more = json!({"provider": "anthropic", "api_key_env": "APLOMB_TEST_KEY", "extra_headers": {"anthropic-beta": "b"}});
    let more = sent(more);
    assert_eq!(
        (more.headers["x-api-key"].as_str(), more.headers["anthropic-beta"].as_str()),
        ("canary-1", "b")
    );
    let responses = sent(json!({"provider": "openai_compatible", "openai_api_style": "responses"}));
    assert!(responses.path.ends_with("/responses"), "{}", responses.path);
    let gemini = sent(json!({"provider": "gemini", "api_key_env": "APLOMB_TEST_KEY"}));
    assert!(gemini.path.ends_with("/models/m:generateContent"), "{}", gemini.path);
    assert_eq!(gemini.headers["x-goog-api-key"], "canary-1");
}

#[test]
fn a_header_that_is_no_key_does_not_hide_that_the_key_is_missing() {
    let llm = json!({"provider": "openrouter", "model": "m", "extra_headers": {"X-Title": "me"}});
    let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let arguments = ["validate", config.path().to_str().unwrap(), "--strict"];
    let told = output(aplomb().args(arguments).env_remove("OPENROUTER_API_KEY"));
    assert_eq!(told.code, Some(2), "{}", told.stdout);
    assert!(told.stderr.contains("OPENROUTER_API_KEY"), "{}", told.stderr);
}

#[test]
fn a_fallback_is_looked_at_like_the_first_model() {
    let fallback = json!({"provider": "groq", "model": "n", "api_key_env": "APLOMB_TEST_UNSET_KEY"});
    let llm = json!({"provider": "ollama", "model": "m", "fallbacks": [fallback]});
    let config = file(&format!("{:#}", json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]})));
    let path = config.path().to_str().unwrap();
    for arguments in [vec!["validate", path, "--strict"], vec!["run", path, "--input", "hi"]] {
        let told = output(aplomb().args(arguments));
        assert_eq!(told.code, Some(2), "{}", told.stdout);
        let place = "llm.fallbacks[0].api_key_env";
        assert!(
            told.stderr.contains(place) && told.stderr.contains("APLOMB_TEST_UNSET_KEY"),
            "{}",
            told.stderr
        );
    }
}

// ---- doctor.

fn doctor(config: &Path, data: &Path, secret: &str) -> Finished {
    let mut command = aplomb();
    command.args(["doctor", config.to_str().unwrap(), "--format", "json"]);
    output(command.env("APLOMB_DATA_DIR", data).env("APLOMB_TEST_KEY", secret))
}

fn check<'a>(told: &'a Value, name: &str) -> &'a Value {
    told["checks"].as_array().unwrap().iter().find(|check| check["check"] == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_each_endpoint_once_for_one_token_and_shows_no_key() {
    let script = json!({"steps": [says("hi")], "at_end": "repeat_last"});
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    let llm = json!({"provider": "openai_compatible", "model": "m", "api_base": server.base_url(), "api_key_env": "APLOMB_TEST_KEY"});
    let agents = json!([{"id": "a", "llm": llm}, {"id": "b", "llm": llm}]);
    let config = file(&json!({"version": "1.0", "agents": agents}).to_string());
    let folder = tempfile::tempdir().unwrap();
    let secret = "canary-key-no-one-may-see";
    let told = doctor(config.path(), folder.path(), secret);
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""), "{}", told.stdout);
    assert!(!told.stdout.contains(secret), "{}", told.stdout);
    let told = told.json();
    assert_eq!(told["healthy"], json!(true));
    for name in ["config", "key of a", "model of a", "data folder"] {
        assert_eq!(check(&told, name)["state"], "ok", "{told}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    let sent: Value = serde_json::from_str(&requests[0].body.to_string()).unwrap();
    assert!(
        sent.to_string().contains("\"max_tokens\":1") || sent.to_string().contains("max_completion_tokens"),
        "{sent}"
    );
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_which_key_is_refused_whose_clock_is_wrong_and_what_cannot_be_written() {
    let refusal = json!({"reply": {"http": {"status": 401, "headers": {"date": "Sun, 06 Nov 1994 08:49:37 GMT"},
        "body": {"error": {"message": "Incorrect API key provided: canary-key-no-one-may-see"}}}}});
    let script = json!({"steps": [refusal], "at_end": "repeat_last"});
    let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
    let llm = json!({"provider": "openai_compatible", "model": "m", "api_base": server.base_url(), "api_key_env": "APLOMB_TEST_KEY"});
    let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let told = doctor(config.path(), Path::new("/proc/none"), "canary-key-no-one-may-see");
    assert_eq!(told.code, Some(3), "{}", told.stdout);
    assert!(!told.stdout.contains("canary"), "{}", told.stdout);
    let told = told.json();
    let model = check(&told, "model of a");
    assert_eq!(model["state"], "wrong");
    assert!(model["message"].as_str().unwrap().contains("401"), "{model}");
    let clock = check(&told, "clock, by the provider of a");
    assert!(clock["state"] == "warning" && clock["message"].as_str().unwrap().contains("ahead"), "{clock}");
    assert_eq!(check(&told, "data folder")["state"], "wrong");
    // What answers there is no API.
    let page =
        |status: u16| json!({"reply": {"http": {"status": status, "body": "<html><h1>Sign in</h1></html>"}}});
    for status in [200, 302, 404] {
        let script = json!({"steps": [page(status)], "at_end": "repeat_last"});
        let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
        let llm = json!({"provider": "openai_compatible", "model": "m", "api_base": server.base_url()});
        let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
        let folder = tempfile::tempdir().unwrap();
        let told = doctor(config.path(), folder.path(), "x").json();
        assert_eq!(check(&told, "model of a")["state"], "wrong", "{status}: {told}");
    }
    // A dead endpoint, a missing key, a broken config: each by name.
    let dead = json!({"provider": "openai_compatible", "model": "m", "api_base": "http://127.0.0.1:1/v1"});
    let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": dead}]}).to_string());
    let folder = tempfile::tempdir().unwrap();
    let told = doctor(config.path(), folder.path(), "x").json();
    assert!(
        check(&told, "model of a")["message"].as_str().unwrap().starts_with("llm.connection: "),
        "{told}"
    );
    let broken = doctor(file("{").path(), folder.path(), "x");
    assert_eq!((broken.code, &check(&broken.json(), "config")["state"]), (Some(2), &json!("wrong")));
    // And without a network nothing is sent.
    let mut offline = aplomb();
    offline.args(["doctor", config.path().to_str().unwrap(), "--offline"]);
    assert_eq!(output(offline.env("APLOMB_DATA_DIR", folder.path())).code, Some(0));
}

#[test]
fn a_run_needs_the_keys_of_its_own_agent_alone() {
    let quiet = config(json!([says("hello")]));
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(quiet.path()).unwrap()).unwrap();
    let other = json!({"id": "b", "llm": {"provider": "anthropic", "model": "m", "api_key_env": "APLOMB_TEST_UNSET_KEY"}});
    document["agents"].as_array_mut().unwrap().push(other);
    let both = file(&document.to_string());
    let path = both.path().to_str().unwrap();
    assert_eq!(call(&["run", path, "--agent", "a", "--input", "hi", "--format", "text"]).stdout, "hello\n");
    let refused = call(&["run", path, "--agent", "b", "--input", "hi"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("APLOMB_TEST_UNSET_KEY"), "{}", refused.stderr);
}
