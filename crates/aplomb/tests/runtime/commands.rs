//! Keys from a command, and what becomes of the command: nothing of it outlives the run that waits for it.
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::*;
use aplomb::host::{Host, SystemHost};
use aplomb::{Cancellation, codes};
use futures_util::future::BoxFuture;
use serde_json::json;
use tempfile::TempDir;

/// A folder with a command that does this, and notes whom it has started. Its own id is in `$noted/self`.
fn command(lines: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let (script, noted) = (folder.path().join("key.sh"), folder.path().display().to_string());
    fs::write(&script, format!("noted='{noted}'\necho $$ > \"$noted/self\"\n{lines}\n")).unwrap();
    let command = format!("sh '{}'", script.display());
    (folder, command)
}

/// A command that never gives a key, as it waits for another one that it has started.
const WAITS: &str =
    "sleep 60 &\necho $! > \"$noted/child.part\"\nmv \"$noted/child.part\" \"$noted/child\"\nwait";

fn has_begun(folder: &Path) -> bool {
    folder.join("child").exists()
}

/// Whether a process that was noted has ended. One that nobody has asked after has, too.
fn is_gone(folder: &Path, name: &str) -> bool {
    let id = fs::read_to_string(folder.join(name)).unwrap();
    let listed = Command::new("ps").args(["-o", "stat=", "-p", id.trim()]).output().unwrap();
    let state = String::from_utf8(listed.stdout).unwrap();
    state.trim().is_empty() || state.trim().starts_with('Z')
}

async fn both_go(folder: &Path) {
    until(|| is_gone(folder, "self") && is_gone(folder, "child")).await;
}

fn asking(command: String) -> Setup {
    Setup::new(always(text("ok"))).agent(move |agent| agent["llm"]["api_key_command"] = json!(command))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_times_out_takes_its_command_along_and_whatever_the_command_has_started() {
    let (folder, command) = command(WAITS);
    let lab = asking(command).start().await;
    let outcome = lab.run(hi().timeout(Duration::from_millis(3_000))).await;
    assert_eq!((lab.requests(), outcome.error().code()), (0, codes::EXECUTION_TIMEOUT));
    both_go(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_takes_its_command_along_too() {
    let (folder, command) = command(WAITS);
    let lab = asking(command).start().await;
    let cancellation = Cancellation::new();
    let cancel = async {
        until(|| has_begun(folder.path())).await;
        assert!(!is_gone(folder.path(), "child"));
        cancellation.cancel("operator");
    };
    let (outcome, ()) = tokio::join!(lab.run(hi().cancellation(cancellation.clone())), cancel);
    assert_eq!((lab.requests(), outcome.error().code()), (0, codes::EXECUTION_CANCELLED));
    both_go(folder.path()).await;
}

/// A host whose time runs five times as fast: limits of the run's own clock, too.
struct Hurried {
    started: Instant,
}

impl Host for Hurried {
    fn now(&self) -> Instant {
        self.started + self.started.elapsed() * 5
    }

    fn wall_ms(&self) -> u64 {
        SystemHost.wall_ms()
    }

    fn entropy(&self) -> u64 {
        SystemHost.entropy()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemHost.sleep(time / 5)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_ten_seconds() {
    let (folder, command) = command(WAITS);
    let hurried = Hurried { started: Instant::now() };
    let lab = asking(command).build(|builder| builder.host(hurried)).start().await;
    let outcome = lab.run(hi()).await;
    let error = outcome.error();
    assert_eq!((lab.requests(), error.code(), error.attempts().len()), (0, codes::CONFIG_LOAD, 0));
    assert!(error.message().contains("not read within 10 s"), "{error}");
    both_go(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_running_is_not_waited_for_and_left_alone() {
    // It holds the command's standard output open.
    let (folder, command) = command("sleep 60 &\necho $! > \"$noted/child\"\necho canary-key");
    let lab = asking(command).start().await;
    let outcome = lab.run(hi()).await;
    outcome.gives("ok", NO_RETRY);
    assert_eq!(outcome.log[0].headers["authorization"], "Bearer canary-key");
    assert!(!is_gone(folder.path(), "child"));
    let id = fs::read_to_string(folder.path().join("child")).unwrap();
    assert!(Command::new("kill").arg(id.trim()).status().unwrap().success());
    // All that the command itself has written counts, though nobody waits for more.
    let (_folder, command) = self::command("sleep 1 &\nprintf 'canary-a\\ncanary-b'");
    let outcome = asking(command).start().await.run(hi()).await;
    assert_eq!((outcome.log.len(), outcome.error().code()), (0, codes::CONFIG_LOAD));
}
