//! Signals, to whatever the command line is doing.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use tempfile::{NamedTempFile, TempDir};

use crate::support::{aplomb, config, file};

fn send(signal: &str, child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
}

/// What it has said on standard error, and its exit code.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

/// An agent whose key comes from a command that never gives one, as it waits for another one that it has started. Both note
/// their ids in the folder.
fn waiting_for_a_key() -> (TempDir, NamedTempFile) {
    let folder = tempfile::tempdir().unwrap();
    let (script, noted) = (folder.path().join("key.sh"), folder.path().display());
    let lines = format!(
        "echo $$ > '{noted}/self'\nsleep 60 &\necho $! > '{noted}/part'\nmv '{noted}/part' '{noted}/child'\nwait\n"
    );
    fs::write(&script, lines).unwrap();
    let llm = json!({"provider": "openai_compatible", "model": "m", "api_base": "http://127.0.0.1:1/v1",
        "api_key_command": format!("sh '{}'", script.display())});
    let config = file(&json!({"version": "1.0", "agents": [{"id": "a", "llm": llm}]}).to_string());
    (folder, config)
}

/// Whether a process that was noted has ended. One that nobody has asked after has, too.
fn is_gone(folder: &Path, name: &str) -> bool {
    let id = fs::read_to_string(folder.join(name)).unwrap();
    let listed = Command::new("ps").args(["-o", "stat=", "-p", id.trim()]).output().unwrap();
    let state = String::from_utf8(listed.stdout).unwrap();
    state.trim().is_empty() || state.trim().starts_with('Z')
}

/// Waits until it is so, much longer than it takes.
fn until(so: impl Fn() -> bool) {
    let mut looks = 0..2_000;
    while !so() {
        assert!(looks.next().is_some(), "it should have been so long ago");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_takes_the_command_that_gives_the_key_along_whoever_waits_for_it() {
    for command in [&["doctor"][..], &["run", "--input", "hi"]] {
        for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            let (folder, config) = waiting_for_a_key();
            let mut doing = aplomb();
            doing.args(command).arg(config.path()).env("APLOMB_DATA_DIR", folder.path());
            let child = doing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            until(|| folder.path().join("child").exists());
            assert!(!is_gone(folder.path(), "self") && !is_gone(folder.path(), "child"));
            send(signal, &child);
            let (ended, stderr) = ended(child);
            assert_eq!(ended, Some(code), "{command:?}: {stderr}");
            assert!(stderr.contains("error[execution.cancelled]"), "{command:?} {signal}: {stderr}");
            until(|| is_gone(folder.path(), "self") && is_gone(folder.path(), "child"));
        }
    }
}

/// As by `nohup`.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_was_started_to_outlive_its_terminal_does() {
    let config = config(json!([{"reply": {"message": {"text": "never"}}, "fault": "silence"}]));
    let mut shell = Command::new("sh");
    let aplomb = aplomb();
    shell.args(["-c", "trap '' HUP; exec \"$0\" run \"$1\" --input hi --format events"]);
    shell.arg(aplomb.get_program()).arg(config.path()).stdin(Stdio::null());
    let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The signals are listened for before the first event.
    assert!(lines.next().unwrap().unwrap().contains("session.run.started"));
    send("HUP", &child);
    send("TERM", &child);
    let (ended, stderr) = ended(child);
    assert_eq!(ended, Some(143), "{stderr}");
    assert!(stderr.contains("cancelled by SIGTERM"), "{stderr}");
}
