//! No message about a config shows a secret: not one that stands in it, and not one from the environment.

use aplomb::config::{Config, Format};
use aplomb::{Error, Runtime};

use crate::support::{RIGHT, but, load};

const CANARY: &str = "canary-51c9e2aa70b1";

/// A variable that every test run has; what is in it stands for a secret.
const VARIABLE: &str = "CARGO_MANIFEST_DIR";

fn told(error: &Error) -> String {
    let mut told = format!("{error}\n{error:?}\n{}", serde_json::to_string(&error.details()).unwrap());
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        told.push_str(&format!("{next}\n{next:?}\n"));
        cause = next.source();
    }
    told
}

#[test]
fn a_secret_is_in_no_message_wherever_it_stands_and_whatever_is_wrong_next_to_it() {
    let places = [
        ("\"model\": \"m\",", format!("\"model\": \"m\", \"extra_headers\": {{\"x-team\": \"{CANARY}\"}}, ")),
        ("\"model\": \"m\",", format!("\"model\": \"m\", \"api_key\": \"{CANARY}\", ")),
        ("\"model\": \"m\",", format!("\"model\": \"m\", \"api_key_env\": \"{CANARY}\", ")),
        ("\"model\": \"m\",", format!("\"model\": \"m\", \"max_tokens\": \"{CANARY}\", ")),
        ("\"model\": \"m\",", format!("\"model\": \"{CANARY}\", ")),
        (
            "\"model\": \"m\",",
            format!("\"model\": \"m\", \"stream\": \"{CANARY}-{CANARY}-{CANARY}-{CANARY}\", "),
        ),
        ("Be brief.", format!("The password is {CANARY}.")),
        ("\"Be brief.\"", format!("\"Be brief.\", \"token\": \"{CANARY}\"")),
        ("\"type\": \"calc\" }", format!("\"type\": \"calc\", \"config\": {{\"token\": \"{CANARY}\"}} }}")),
        ("\"Be brief.\"", format!("[\"{CANARY}\"]")),
    ];
    let mistakes =
        ["", "\"bananas\": 1,", "\"temperature\": 9,", "\"bananas\": [1,", "\"stream\": \"neverr\","];
    for (from, to) in &places {
        for mistake in mistakes {
            // In one line, so that every excerpt has the secret in it.
            let text =
                but(from, to).replacen("\"retry\"", &format!("{mistake}\"retry\""), 1).replace('\n', " ");
            for format in [Format::Json, Format::Yaml] {
                if let Err(error) = load(&text, format) {
                    let told = told(&error);
                    assert!(!told.contains(CANARY), "{format:?}: {told}");
                }
            }
        }
    }
}

#[test]
fn a_secret_of_toml_and_of_yaml_without_quotes_is_in_no_message() {
    let toml = format!(
        "version = \"1.0\"\n[[agents]]\nid = \"a\"\nbananas = 1\n[agents.llm]\nprovider = \"mock\"\nextra_headers = {{ a = \"{CANARY}\" }} # {CANARY}\nextra_headrs = {{ a = \"\"\"\n{CANARY}\n\"\"\" }}\n"
    );
    let yaml = format!(
        "version: \"1.0\"\nagents:\n- id: a\n  bananas: {CANARY}\n  llm:\n    provider: mock\n    password: {CANARY}\n    modle: |\n      {CANARY}\n      {CANARY}\n"
    );
    for (text, format) in [(toml, Format::Toml), (yaml, Format::Yaml)] {
        // The comment of a line is another matter where it has no form of a key.
        let text = text.replace(&format!("# {CANARY}"), "");
        let told = told(&load(&text, format).err().unwrap());
        assert!(!told.contains(CANARY), "{told}");
        assert!(told.contains("bananas"), "{told}");
    }
}

#[test]
fn a_value_from_the_environment_is_in_no_message() {
    let secret = std::env::var(VARIABLE).unwrap();
    for (from, to) in [
        ("\"provider\": \"openai_compatible\"", format!("\"provider\": \"${{{VARIABLE}}}\"")),
        ("\"type\": \"calc\"", format!("\"type\": \"${{{VARIABLE}}}\"")),
        ("\"id\": \"calc\"", format!("\"id\": \"${{{VARIABLE}}}\"")),
        ("\"version\": \"1.0\"", format!("\"version\": \"${{{VARIABLE}}}\"")),
        ("\"model\": \"m\"", format!("\"stream\": \"${{{VARIABLE}}}\"")),
        ("\"max_attempts\": 3", format!("\"max_attempts\": \"${{{VARIABLE}}}\"")),
        ("http://127.0.0.1:1/v1", format!("${{{VARIABLE}}}")),
        ("\"type\": \"buffer\"", format!("\"impl\": \"${{{VARIABLE}}}\"")),
        ("\"id\": \"assistant\"", format!("\"id\": \"${{{VARIABLE}}}\", \"bananas\": 1")),
    ] {
        let told = told(&load(&but(from, &to), Format::Json).err().unwrap());
        assert!(!told.contains(&secret), "{to}: {told}");
    }
}

#[test]
fn a_config_that_is_shown_shows_variables_as_they_were_written_and_no_credential_where_it_is_redacted() {
    let secret = std::env::var(VARIABLE).unwrap();
    let text = but(
        "\"model\": \"m\",",
        &format!(
            "\"model\": \"${{{VARIABLE}}}\", \"extra_headers\": {{\"x-team\": \"{CANARY}\", \"x-other\": \"${{{VARIABLE}}}\"}},"
        ),
    );
    let config = Config::from_json(&text, "agent.json").unwrap();
    assert_eq!(config.agents[0].llm.model.as_deref(), Some(secret.as_str()));
    let (plain, redacted) = (config.resolved(false).unwrap(), config.resolved(true).unwrap());
    for shown in [&plain, &redacted] {
        assert!(!shown.to_string().contains(&secret), "{shown}");
        assert_eq!(shown["agents"][0]["llm"]["model"], format!("${{{VARIABLE}}}"));
        assert_eq!(shown["agents"][0]["llm"]["extra_headers"]["x-other"], format!("${{{VARIABLE}}}"));
    }
    assert!(plain.to_string().contains(CANARY));
    assert!(!redacted.to_string().contains(CANARY), "{redacted}");
    assert!(!format!("{config:?}").contains(CANARY));
}

#[test]
fn a_config_that_was_made_in_code_is_checked_like_one_that_was_read() {
    let mut config = Config::from_json(RIGHT, "agent.json").unwrap();
    config.agents[0].llm.retry.max_attempts = 0;
    config.agents[0].tools[0].r#type = Some("clac".to_owned());
    let error = Runtime::builder(config).build().err().unwrap();
    // With the place of what it was before.
    for part in ["0 is not in 1..=100 (agent.json:12:36)", "no tool is called \"clac\" (agent.json:14:41)"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}
