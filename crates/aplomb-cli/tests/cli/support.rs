//! Runs the real binary.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

pub(crate) const QUICKSTART: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart/agent.json");

pub(crate) fn aplomb() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aplomb"));
    command.stdin(Stdio::null());
    command
}

pub(crate) fn output(command: &mut Command) -> Finished {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let finished = Finished {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    finished
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A config whose mock plays these steps, with back-offs of a millisecond.
pub(crate) fn config(steps: Value) -> NamedTempFile {
    let retry = json!({"initial_backoff_ms": 1, "max_backoff_ms": 1});
    let llm = json!({"provider": "mock", "model": "m", "script": {"steps": steps, "at_end": "repeat_last"}, "retry": retry});
    let session = json!({"session": {"base_delay_ms": 1}});
    file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm, "retry": session}]}).to_string())
}

pub(crate) fn status(status: u16, body: Value) -> Value {
    json!({"reply": {"http": {"status": status, "body": body}}})
}

pub(crate) fn says(text: &str) -> Value {
    json!({"reply": {"message": {"text": text}}})
}

pub(crate) fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}
