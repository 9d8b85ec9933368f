//! `aplomb faultlab`: scripts in both formats, and the storm of the examples.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::{Builder, NamedTempFile};

use crate::support::{aplomb, file, output};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/faultlab");

/// A lab that ends with the test.
struct Lab {
    process: Child,
    base_url: String,
}

impl Lab {
    fn start(script: &str) -> Self {
        Self::start_with(script, &[])
    }

    fn start_with(script: &str, more: &[&str]) -> Self {
        let mut command = aplomb();
        command.args(["faultlab", "--script", script]).args(more).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let base_url = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next()).unwrap();
        Self { base_url: base_url.to_owned(), process }
    }

    /// What the example's agent says, with its address replaced by this lab's.
    fn answer(&self) -> String {
        self.answer_trusting(None)
    }

    fn answer_trusting(&self, ca_file: Option<&Path>) -> String {
        let text = std::fs::read_to_string(format!("{EXAMPLES}/agent.json")).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["agents"][0]["llm"]["api_base"] = json!(self.base_url);
        config["agents"][0]["llm"]["ca_file"] = json!(ca_file);
        let config = file(&config.to_string());
        let arguments = ["--input", "What is 9 * 9?", "--format", "text"];
        let finished = output(aplomb().args(["run", config.path().to_str().unwrap()]).args(arguments));
        assert_eq!(finished.code, Some(0), "{finished:?}");
        finished.stdout
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _it_may_have_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn yaml(text: &str) -> NamedTempFile {
    let file = Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn an_agent_with_the_default_settings_rides_out_the_storm_of_the_examples() {
    let lab = Lab::start(&format!("{EXAMPLES}/storm.yaml"));
    assert_eq!(lab.answer(), "The answer is 81.\n");
}

#[test]
fn a_script_may_be_yaml_or_json() {
    let script = yaml("# says hi\nsteps:\n- reply: { message: { text: hi } }\n");
    assert_eq!(Lab::start(script.path().to_str().unwrap()).answer(), "hi\n");
    let script = file(&json!({ "steps": [ { "reply": { "message": { "text": "ho" } } } ] }).to_string());
    assert_eq!(Lab::start(script.path().to_str().unwrap()).answer(), "ho\n");
}

#[test]
fn a_mistake_in_a_yaml_script_is_told_by_file_place_and_line() {
    let script = yaml("steps:\n- reply:\n    message: { txt: hi }\n");
    let path = script.path().to_str().unwrap();
    let refused = output(aplomb().args(["faultlab", "--script", path]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in [path, "steps[0].reply.message.txt", "line 3", "did you mean `text`?"] {
        assert!(refused.stderr.contains(part), "{part} is not in {}", refused.stderr);
    }
}

#[test]
fn a_client_trusts_the_lab_by_the_certificate_that_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    let script = yaml(
        "server: { tls: good, connections: [cut_handshake, good] }\n\
         steps: [{ reply: { message: { text: Safe. } } }]\n",
    );
    let lab = Lab::start_with(script.path().to_str().unwrap(), &["--ca-file", ca_file.to_str().unwrap()]);
    assert!(lab.base_url.starts_with("https://"), "{}", lab.base_url);
    assert_eq!(lab.answer_trusting(Some(&ca_file)), "Safe.\n");
}
