//! What people are told who set something that is wrong. The golden files are in `snapshots`, as those of `messages`.

use aplomb::config::{Format, Loader};
use aplomb::{Error, Runtime};
use proptest::{collection, prelude::*, sample};

use crate::support::{RIGHT, but};

fn refused(text: &str, assignments: &[&str]) -> Error {
    let base = Loader::text(text, "agent.json", Format::Json);
    let layers = assignments.iter().fold(base, |layers, assignment| layers.set(*assignment));
    match layers.load().and_then(|config| Runtime::builder(config).build()) {
        Ok(_) => panic!("this is taken: {assignments:?}"),
        Err(error) => error,
    }
}

fn said(cases: &[(&str, &[&str])]) -> String {
    let say = |(title, assignments): &(&str, &[&str])| {
        let error = refused(RIGHT, assignments);
        format!("--- {title}\n[{}] {error}\n", error.code())
    };
    cases.iter().map(say).collect::<Vec<_>>().join("\n")
}

macro_rules! golden {
    ($said:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($said) })
    };
}

#[test]
fn flags_that_are_no_assignments() {
    golden!(said(&[
        ("no value", &["agents.0.llm.model"]),
        ("nothing", &[""]),
        ("no path", &["=gpt-4o"]),
        ("a key too few", &["agents..llm.model=gpt-4o"]),
        ("a dot at the end", &["agents.0.llm.=gpt-4o"]),
        ("a bracket without its end", &["agents[0.llm.model=gpt-4o"]),
        ("a bracket at the beginning", &["[0].llm.model=gpt-4o"]),
        ("a dot too few", &["agents[0]llm.model=gpt-4o"]),
        ("a colon for an equals sign", &["agents.0.llm.model: gpt-4o"]),
        ("a key twice", &["agents.0.llm.retry={\"jitter\": \"none\", \"jitter\": \"full\"}"]),
        ("a number that no computer holds", &["agents.0.llm.temperature=1e999"]),
    ]));
}

#[test]
fn paths_that_lead_nowhere() {
    golden!(said(&[
        ("a misspelt key", &["agents.0.llm.temprature=9"]),
        ("a misspelt key and a text that reads as a number", &["agents.0.llm.modle=4"]),
        ("a misspelt table", &["sesion.lock_timeout_ms=0"]),
        ("a key that is far from all", &["agents.0.llm.banana=1"]),
        ("a key that is there in another case", &["Agents.0.name=x"]),
        ("a key of another system", &["agents.0.llm.api_key=sk-proj-abcdefghijklmnopqrst"]),
        ("no such agent", &["agents.asistant.llm.model=gpt-4o"]),
        ("no such agent, and none near", &["agents.banana.llm.model=gpt-4o"]),
        ("no such place", &["agents.1.llm.model=gpt-4o"]),
        ("a place in a list that is not there", &["agents.0.llm.fallbacks.0.model=gpt-4o"]),
        ("an id where there are none", &["agents.0.llm.fallbacks.spare.model=gpt-4o"]),
        ("a key of a text", &["agents.0.id.name=x"]),
        ("a place in an object", &["agents[0].llm[0]=x"]),
        ("a key that does nothing yet", &["traffic.max_concurrency=8"]),
    ]));
}

#[test]
fn values_that_do_not_fit() {
    golden!(said(&[
        ("a word for a number", &["agents.0.llm.temperature=hot"]),
        ("too hot", &["agents.0.llm.temperature=9"]),
        ("a word for a list", &["agents.0.llm.fallback_on=auth"]),
        ("an object for a list", &["agents.0.tools={\"id\": \"calc\", \"type\": \"calc\"}"]),
        ("a mode that is misspelt", &["agents.0.llm.stream=neverr"]),
        ("a mistake in an object", &["agents.0.llm.retry={\"max_attempts\": 0, \"jiter\": \"none\"}"]),
        ("a tool that is misspelt", &["agents.0.tools.calc.type=clac"]),
        ("a plugin's config", &["agents.0.pattern.config.system_promt=Hi."]),
        ("null where something is needed", &["agents.0.id=null"]),
        ("an address that is none", &["agents.0.llm.api_base=127.0.0.1"]),
    ]));
}

#[test]
fn values_that_are_nearly_what_is_expected() {
    golden!(said(&[
        ("a list without its end", &["agents.0.llm.fallback_on=[\"auth\","]),
        ("a list without quotes", &["agents.0.llm.fallback_on=[auth]"]),
        ("an object with a word in it", &["agents.0.llm.retry={\"max_attempts\": two}"]),
        ("a number with a zero before it", &["agents.0.llm.max_tokens=010"]),
        ("a number in quotes", &["agents.0.llm.max_tokens=\"10\""]),
        ("nothing", &["agents.0.llm.max_tokens="]),
        ("a word for a boolean", &["agents.0.tools.calc.enabled=yes"]),
        ("a version to come", &["version=2"]),
        ("more ms than a number holds", &["agents.0.llm.timeout_ms=1e30"]),
        ("a variable for a number", &["agents.0.llm.max_tokens=${CARGO_PKG_VERSION_MAJOR}"]),
    ]));
}

#[test]
fn an_id_with_dots_is_said_in_brackets_and_no_id_is_called_the_only_one_that_is_not() {
    let dots = but("\"assistant\"", "\"my.agent\"");
    let error = refused(&dots, &["agents.my.agent.llm.model=x"]);
    assert!(error.message().contains("write agents[my.agent]"), "{error}");
    // One of two ids is from the environment, and is not shown.
    let two = but("\"agents\": [", "\"agents\": [{\"id\": \"${CARGO_PKG_NAME}\", \"llm\": {}}, ");
    let error = refused(&two, &["agents.banana.llm.model=x"]);
    assert!(!error.message().contains("only id") && error.message().contains("by its place"), "{error}");
}

#[test]
fn a_credential_in_a_path_is_in_no_message() {
    for key in [
        "sk-ant-api03-canaryabcdefgh",
        "AKIACANARYEXAMPLE777",
        "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjF9.c2lnbmVk",
    ] {
        for assignment in [
            format!("agents.0.{key}=1"),
            format!("agents.{key}.llm.model=1"),
            format!("agents[{key}].llm.model=1"),
            format!("agents.0.llm.extra_body.{key}=1"),
            format!("agents.0.llm.extra_body.{key}"),
            format!("{key}=1"),
        ] {
            let error = refused(RIGHT, &[&assignment, "agents.0.bananas=1"]);
            let told = format!("{error}\n{}", serde_json::to_string(&error.details()).unwrap());
            assert!(key.split('.').all(|part| !told.contains(part)), "{assignment}: {told}");
        }
    }
}

#[test]
fn what_is_wrong_in_a_script_is_said_at_its_flag_and_without_the_text() {
    let mock =
        r#"agents.0.llm={"provider": "mock", "script": {"steps": [{"reply": {"http": {"status": 500}}}]}}"#;
    let canary = "canary-51c9e2aa70b1";
    for (wrong, flag) in [
        (format!("agents.0.llm.script.steps.0.reply.http.status={canary}"), "status"),
        (format!("agents.0.llm.script.at_end={canary}"), "at_end"),
        ("agents.0.llm.script.stepz=1".to_owned(), "stepz"),
        ("agents.0.llm.script.steps.0.reply.http.stauts=1".to_owned(), "stauts"),
    ] {
        let error = refused(RIGHT, &[mock, &wrong]);
        let caret = "^".repeat(if wrong.ends_with("=1") { flag.len() } else { 1 });
        let place = format!("{flag})\n");
        assert!(
            error.message().contains(&place) && error.message().ends_with(&format!(" {caret}")),
            "{error}"
        );
        assert!(!format!("{error}{:?}", error.details()).contains(canary), "{error}");
    }
    // A key with dots has its place, too.
    let headers = "agents.0.llm.script.steps.0.reply.http.headers={\"a.b\": 5}";
    let error = refused(RIGHT, &[mock, headers]);
    assert!(error.message().contains("headers)\n") && error.message().ends_with(" ^"), "{error}");
}

#[test]
fn ids_that_name_several() {
    let twice = but(
        r#"{ "id": "calc", "type": "calc" }"#,
        r#"{ "id": "calc", "type": "calc" }, { "id": "calc", "type": "current_time" }"#,
    );
    let error = refused(&twice, &["agents.0.tools.calc.enabled=false"]);
    golden!(format!("[{}] {error}", error.code()));
}

#[test]
fn mistakes_of_the_file_and_of_flags_come_together_in_the_order_of_the_layers() {
    let text = but("\"max_attempts\": 3", "\"max_attempts\": 0");
    let error = refused(
        &text,
        &[
            "agents.0.llm.temprature=0.5",
            "agents.b.llm.model=x",
            "session.lock_timeout_ms=0",
            "agents.0.llm.model",
        ],
    );
    golden!(format!("[{}] {error}", error.code()));
    let problems = error.context("problems").unwrap().as_array().unwrap();
    let places: Vec<_> = problems.iter().map(|problem| (&problem["file"], &problem["flag"])).collect();
    assert_eq!(places.len(), 5);
    assert_eq!((places[0].0.as_str(), places[0].1.as_str()), (Some("agent.json"), None));
    assert_eq!((places[1].0.as_str(), places[1].1.as_str()), (None, Some("--set agents.0.llm.temprature")));
}

#[test]
fn no_value_of_a_flag_that_may_be_a_secret_is_in_a_message() {
    let canary = "canary-51c9e2aa70b1";
    for assignment in [
        format!("={canary}"),
        format!("agents..x={canary}"),
        format!("agents.0.llm.api_key={canary}"),
        format!("agents.0.llm.temperature={canary}"),
        format!("agents.0.llm.extra_headers={{\"x-team\": \"{canary}\", \"x\": 1}}"),
        format!("agents.0.llm.extra_headers={{\"x\": \"{canary}\", \"x\": \"y\"}}"),
        format!("agents.0.tools.calc.config={{\"token\": \"{canary}\"}}"),
        format!("agents.b.llm.api_key={canary}"),
        format!("agents.0.llm.api_key: {canary}"),
        format!("agents.0.llm.stream={canary}"),
        format!("agents.0.llm.stream={canary} {canary} {canary} {canary} {canary}"),
        format!("agents.0.tools.calc.type={canary} {canary} {canary} {canary} {canary}"),
    ] {
        // Next to another mistake, and where it is covered by a later flag.
        for also in [&[][..], &["agents.0.bananas=1"], &["agents.0.llm.api_key=1", "agents.0.bananas=1"]] {
            let assignments: Vec<_> = [assignment.as_str()].into_iter().chain(also.iter().copied()).collect();
            let error = refused(RIGHT, &assignments);
            let told = format!("{error}\n{error:?}\n{}", serde_json::to_string(&error.details()).unwrap());
            let is_name = assignment.starts_with("agents.0.llm.stream=canary-51c9e2aa70b1")
                && !assignment.contains(' ');
            assert!(is_name || !told.contains(canary), "{assignments:?}: {told}");
        }
    }
    // What stands in the file under what is set over it stays hidden.
    let text = but(
        "\"model\": \"m\",",
        &format!("\"model\": \"m\", \"api_key_env\": \"{canary}\", \"bananas\": 1, "),
    );
    let error = refused(&text, &["agents.0.llm.api_key_env=OTHER"]);
    assert!(error.message().contains('^') && !error.message().contains(canary), "{error}");
}

fn pieces() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "agents",
        "0",
        "assistant",
        "llm",
        "tools",
        "calc",
        "[0]",
        "[",
        "]",
        ".",
        "=",
        "null",
        "{\"a\": 1}",
        "é",
        "${X}",
    ];
    let piece = prop_oneof![4 => sample::select(KNOWN).prop_map(str::to_owned), 1 => ".{0,6}"];
    collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_flag_is_taken_or_has_an_error_of_its_class(one in pieces(), other in pieces()) {
        let layers = Loader::text(RIGHT, "agent.json", Format::Json).set(one).set(other);
        if let Err(error) = layers.load() {
            let class = error.code().as_str().split('.').next().unwrap_or_default().to_owned();
            prop_assert!(["config", "plugin"].contains(&class.as_str()), "{}", error);
            prop_assert!(error.message().contains("--set"), "{}", error);
        }
    }
}
