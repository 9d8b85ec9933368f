//! What a person at a terminal sees.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use crate::support::{QUICKSTART, aplomb};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs the quickstart with standard output, and `stderr` if asked for, on a terminal, and gives what that shows.
fn on_a_terminal(stderr_too: bool) -> (String, Option<i32>) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let screen = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
    let mut command = aplomb();
    command.args(["run", QUICKSTART, "--input", "What is 9 * 9?"]).stdout(screen());
    command.stderr(if stderr_too { screen() } else { Stdio::null() });
    let mut child = command.spawn().unwrap();
    // Our own ends of the terminal must be closed for it to come to an end.
    drop(command);
    let mut shown = Vec::new();
    // A terminal whose last writer has gone gives an error instead of an end.
    let _closed = File::from(terminal).read_to_end(&mut shown);
    (String::from_utf8(shown).unwrap().replace("\r\n", "\n"), child.wait().unwrap().code())
}

#[test]
fn on_a_terminal_the_answer_comes_as_text_and_a_restart_is_announced() {
    let (shown, code) = on_a_terminal(true);
    assert_eq!(code, Some(0));
    let order =
        ["rate_limit", "Let me work", "stream_interrupted", "begins anew", "calc → 81", "The answer is 81."];
    let places: Vec<_> = order.iter().map(|part| shown.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{order:?} at {places:?} in {shown}");
}

#[test]
fn standard_output_holds_the_answer_and_no_talk() {
    let (shown, _) = on_a_terminal(false);
    assert_eq!(shown, "Let me work that out for\nThe answer is 81.\n");
}
