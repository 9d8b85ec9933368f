//! A program that embeds the command line lists its own errors with the built-in ones.
//!
//! It is such a program itself: called with arguments it is `aplomb`, called without it calls itself and looks.
#![expect(clippy::panic, clippy::print_stdout, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, ExitCode};

#[derive(Debug, aplomb::AgentError)]
#[agent_error(code = "billing.declined", parent = "tool.permanent", hint = "ask for another card")]
#[error("the card was declined")]
struct Declined;

fn main() -> ExitCode {
    // Libtest's own flags, such as `--list`, begin with a dash.
    if std::env::args().nth(1).is_some_and(|argument| !argument.starts_with('-')) {
        return aplomb_cli::main();
    }
    let says = |arguments: &[&str]| {
        let ran = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let tree = says(&["errors"]);
    let Some(at) = tree.find("    billing.declined") else { panic!("{tree}") };
    assert!(tree.find("  tool.permanent").is_some_and(|parent| parent < at), "{tree}");
    let page = says(&["errors", "billing.declined"]);
    for part in ["Declined", "tool.permanent", "not retryable", "ask for another card", "embedding/main.rs:"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(aplomb::Error::from(Declined).code().as_str(), "billing.declined");
    println!("1 passed, 0 failed");
    ExitCode::SUCCESS
}
