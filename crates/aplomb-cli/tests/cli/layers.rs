//! A file, over it the environment, over both flags: from the outside. What people are told who got one wrong is in
//! `snapshots`; read it as text when it changes.

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::support::{Finished, aplomb, config, file, output, says};

/// A variable and its value.
type Variable<'a> = (&'a str, &'a str);

fn call(arguments: &[&str], variables: &[Variable<'_>]) -> Finished {
    output(aplomb().args(arguments).envs(variables.iter().copied()))
}

/// A config of two agents, over lines of its own.
fn two() -> NamedTempFile {
    let agent = |id: &str| {
        json!({"id": id, "llm": {"provider": "openai_compatible", "model": "m", "api_base": "http://127.0.0.1:1/v1",
            "extra_headers": {"x-team": "blue"}}, "tools": [{"id": "calc", "type": "calc"}]})
    };
    file(&format!("{:#}\n", json!({"version": "1.0", "agents": [agent("assistant"), agent("my-agent")]})))
}

const MODEL: &str = "APLOMB_CONFIG__AGENTS__0__LLM__MODEL";

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let file = two();
    let path = file.path().to_str().unwrap();
    let model = |arguments: &[&str], variables: &[Variable<'_>]| {
        let shown = call(&[&["validate", path, "--show-resolved"], arguments].concat(), variables);
        // Its models have no price, which is a note.
        assert!(shown.code == Some(0) && !shown.stderr.contains("warning"), "{}", shown.stderr);
        shown.json()["agents"][0]["llm"]["model"].clone()
    };
    assert_eq!(model(&[], &[]), "m");
    // What a variable holds is not shown.
    assert_eq!(model(&[], &[(MODEL, "by-variable")]), "${APLOMB_CONFIG__AGENTS__0__LLM__MODEL}");
    assert_eq!(model(&["--set", "agents.0.llm.model=by-flag"], &[(MODEL, "by-variable")]), "by-flag");
    assert_eq!(model(&["--set", "agents.0.llm.model=a", "--set", "agents.assistant.llm.model=b"], &[]), "b");
    // An empty variable is none.
    assert_eq!(model(&[], &[(MODEL, "")]), "m");
}

#[test]
fn a_run_goes_by_all_three() {
    let scripted = config(json!([says("from the file")]));
    let path = scripted.path().to_str().unwrap();
    let run = |arguments: &[&str], variables: &[Variable<'_>]| {
        call(&[&["run", path, "--input", "hi", "--format", "text"], arguments].concat(), variables).stdout
    };
    let script = |text: &str| json!({"steps": [says(text)]}).to_string();
    let (variable, flag) =
        (script("from a variable"), format!("agents.a.llm.script={}", script("from a flag")));
    let variables = [("APLOMB_CONFIG__AGENTS__A__LLM__SCRIPT", variable.as_str())];
    assert_eq!(run(&[], &[]), "from the file\n");
    assert_eq!(run(&[], &variables), "from a variable\n");
    assert_eq!(run(&["--set", &flag], &variables), "from a flag\n");
}

#[test]
fn every_command_that_takes_a_config_takes_flags_and_says_where_one_is_wrong() {
    let scripted = config(json!([says("hi")]));
    let path = scripted.path().to_str().unwrap();
    let wrong = ["--set", "agents.a.llm.temprature=1"];
    for arguments in [
        &["run", path, "--input", "hi"][..],
        &["validate", path],
        &["policy", path],
        &["config", "show", path],
        &["doctor", path, "--offline"],
    ] {
        let refused = call(&[arguments, &wrong].concat(), &[]);
        assert_eq!(refused.code, Some(2), "{arguments:?}");
        let told = format!("{}{}", refused.stdout, refused.stderr);
        assert!(told.contains("(--set agents.a.llm.temprature)"), "{arguments:?}: {told}");
        assert!(told.contains("^^^^^^^^^^"), "{arguments:?}: {told}");
    }
    // Without a config there is nothing to set.
    let refused = call(&["doctor", "--set", "version=1.0"], &[]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
}

/// What `validate` says on standard error.
fn said(cases: &[(&str, &[Variable<'_>], &[&str])], file: &NamedTempFile) -> String {
    let path = file.path().to_str().unwrap();
    let say = |(title, variables, flags): &(&str, &[Variable<'_>], &[&str])| {
        let flags: Vec<_> = flags.iter().flat_map(|flag| ["--set", flag]).collect();
        let refused = call(&[&["validate", path][..], &flags].concat(), variables);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{title}");
        format!("--- {title}\n{}", refused.stderr.replace(path, "agent.json"))
    };
    cases.iter().map(say).collect::<Vec<_>>().join("\n")
}

macro_rules! golden {
    ($said:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($said) })
    };
}

#[test]
fn variables_that_set_nothing_or_what_does_not_fit() {
    golden!(said(
        &[
            ("a misspelt key", &[("APLOMB_CONFIG__AGENTS__0__LLM__TEMPRATURE", "0.5")], &[]),
            ("a key that is far from all", &[("APLOMB_CONFIG__BANANA", "1")], &[]),
            ("nothing after the prefix", &[("APLOMB_CONFIG__", "1")], &[]),
            ("underscores too many", &[("APLOMB_CONFIG__SESSION____LOCK_TIMEOUT_MS", "1")], &[]),
            ("an underscore too few", &[("APLOMB_CONFIG__SESSION_LOCK_TIMEOUT_MS", "1")], &[]),
            ("no such agent", &[("APLOMB_CONFIG__AGENTS__ASISTANT__LLM__MODEL", "n")], &[]),
            ("no such place", &[("APLOMB_CONFIG__AGENTS__2__LLM__MODEL", "n")], &[]),
            ("a word for a number", &[("APLOMB_CONFIG__SESSION__LOCK_TIMEOUT_MS", "soon")], &[]),
            ("a number out of range", &[("APLOMB_CONFIG__AGENTS__0__LLM__TEMPERATURE", "9.25")], &[]),
            ("a mode that is misspelt", &[("APLOMB_CONFIG__AGENTS__0__LLM__STREAM", "neverr")], &[]),
            ("a tool that is misspelt", &[("APLOMB_CONFIG__AGENTS__0__TOOLS__CALC__TYPE", "clac")], &[]),
            (
                "a mistake in an object",
                &[("APLOMB_CONFIG__SESSION", r#"{"lock_timeout_ms": 0, "lok": 1}"#)],
                &[]
            ),
            (
                "the same by two names",
                &[(MODEL, "n"), ("APLOMB_CONFIG__AGENTS__ASSISTANT__LLM__MODEL", "o")],
                &[]
            ),
            ("a variable in it that is not set", &[(MODEL, "${APLOMB_TEST_NOT_SET}")], &[]),
        ],
        &two(),
    ));
}

#[test]
fn an_id_that_variables_cannot_tell_from_another() {
    let agent = |id: &str| json!({"id": id, "llm": {"provider": "openai", "model": "m"}});
    let file =
        file(&format!("{:#}\n", json!({"version": "1.0", "agents": [agent("my-agent"), agent("my.agent")]})));
    golden!(said(&[("two ids", &[("APLOMB_CONFIG__AGENTS__MY_AGENT__LLM__MODEL", "n")], &[])], &file));
    // By its place it can be set; a flag has the id as it is.
    let path = file.path().to_str().unwrap();
    let variables = [("APLOMB_CONFIG__AGENTS__1__LLM__MODEL", "n")];
    let shown = call(&["config", "show", path, "--set", "agents[my.agent].name=x"], &variables);
    assert_eq!((shown.code, &shown.json()["agents"][1]["name"]), (Some(0), &json!("x")), "{}", shown.stderr);
}

#[test]
fn mistakes_of_all_three_layers_come_together() {
    let text = std::fs::read_to_string(two().path()).unwrap().replacen("\"provider\"", "\"providr\"", 1);
    golden!(said(
        &[(
            "one in each layer",
            &[("APLOMB_CONFIG__AGENTS__MY_AGENT__LLM__TEMPERATURE", "hot"), ("APLOMB_CONFIG__SESION", "{}")],
            &["agents.1.llm.modle=n", "agents.2.name=x", "agents.0"],
        )],
        &file(&text),
    ));
}

#[test]
fn provenance_says_of_each_value_where_it_is_from() {
    let file = two();
    let path = file.path().to_str().unwrap();
    let variables = [
        (MODEL, "canary-by-variable"),
        ("APLOMB_CONFIG__AGENTS__MY_AGENT__LLM__EXTRA_HEADERS__X_TEAM", "canary-header"),
        ("APLOMB_CONFIG__SESSION", r#"{"lock_timeout_ms": 4711}"#),
        ("APLOMB_TEST_HOST", "canary-host"),
    ];
    let show = |arguments: &[&str]| {
        let flags = [
            "--set",
            "agents.my-agent.llm.model=gpt-4o",
            "--set",
            "agents.1.llm.api_base=http://${APLOMB_TEST_HOST}/v1",
        ];
        let shown =
            call(&[&["config", "show", path, "--provenance"], &flags[..], arguments].concat(), &variables);
        assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""));
        assert!(!shown.stdout.contains("canary") && !shown.stdout.contains("4711"), "{}", shown.stdout);
        Finished { stdout: shown.stdout.replace(path, "agent.json"), ..shown }
    };
    golden!(show(&[]).stdout);
    // The defaults, too.
    let all = show(&["--defaults"]).stdout;
    assert!(all.contains("\nagents[0].llm.timeout_ms = 30000  # default\n"), "{all}");
    // For programs.
    let told = show(&["--format", "json"]).json();
    let settings = told["settings"].as_array().unwrap();
    let source = |path: &str| &settings.iter().find(|setting| setting["path"] == path).unwrap()["source"];
    let nothing = json!({"kind": "file", "file": null, "line": null, "column": null, "variable": null, "flag": null,
        "replaced": []});
    let with = |kind: &str, field: &str, value: Value| {
        let mut expected = nothing.clone();
        expected["kind"] = json!(kind);
        expected[field] = value;
        expected
    };
    assert_eq!(*source("agents[0].llm.model"), with("environment", "variable", json!(MODEL)));
    let flag = "--set agents.my-agent.llm.model";
    assert_eq!(*source("agents[1].llm.model"), with("flag", "flag", json!(flag)));
    assert_eq!(source("agents[1].llm.api_base")["replaced"], json!(["APLOMB_TEST_HOST"]));
    let version = source("version");
    assert_eq!((&version["kind"], &version["file"]), (&json!("file"), &json!("agent.json")));
    assert!(version["line"].is_u64() && version["column"].is_u64(), "{version}");
    // In the other forms it says the same.
    assert!(show(&["--format", "yaml"]).stdout.starts_with("settings:\n"));
    assert!(show(&["--format", "toml"]).stdout.starts_with("[[settings]]\n"));
}

#[test]
fn what_a_config_shows_is_redacted_with_its_provenance_too() {
    let canary = "canary-51c9e2aa70b1";
    let llm = json!({"provider": "openai", "model": "m", "extra_headers": {"x-team": canary}});
    let file = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    let path = file.path().to_str().unwrap();
    let flag = format!("agents.a.llm.extra_headers.x-other={canary}");
    for provenance in [&[][..], &["--provenance"], &["--provenance", "--format", "json"]] {
        let show = |more: &[&str]| {
            let arguments = [&["config", "show", path, "--set", &flag], provenance, more].concat();
            call(&arguments, &[]).stdout
        };
        assert_eq!(show(&[]).matches(canary).count(), 2);
        assert_eq!(show(&["--redact"]).matches(canary).count(), 0);
    }
}

#[test]
fn no_value_of_a_variable_is_shown_by_any_command_whatever_is_wrong() {
    let canary = "canary-51c9e2aa70b1";
    let file = two();
    let path = file.path().to_str().unwrap();
    for (name, value) in [
        (MODEL, canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__LLM__API_KEY", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__LLM__TEMPERATURE", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__LLM__STREAM", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__LLM__PROVIDER", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__LLM__API_BASE", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__TOOLS__0__TYPE", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__TOOLS__0__IMPL", canary.to_owned()),
        ("APLOMB_CONFIG__AGENTS__0__TOOLS__0__CONFIG", format!("{{\"token\": \"{canary}\"}}")),
        ("APLOMB_CONFIG__AGENTS__0__LLM__EXTRA_HEADERS", format!("{{\"x\": \"{canary}\", \"x\": 1}}")),
        ("APLOMB_CONFIG__AGENTS__B__LLM__MODEL", canary.to_owned()),
        ("APLOMB_CONFIG__BANANAS", canary.to_owned()),
        ("APLOMB_CONFIG__VERSION", canary.to_owned()),
    ] {
        for arguments in [
            &["validate", path, "--set", "agents.0.bananas=1"][..],
            &["validate", path, "--format", "json"],
            &["validate", path, "--strict", "--show-resolved"],
            &["config", "show", path],
            &["config", "show", path, "--provenance", "--defaults"],
            &["doctor", path, "--offline"],
        ] {
            let told = call(arguments, &[(name, &value)]);
            assert!(
                !told.stdout.contains(canary) && !told.stderr.contains(canary),
                "{name} {arguments:?}: {told:?}"
            );
        }
    }
}
