//! Generates what is derived from the code, and checks what the code puts out.
//!
//! ```text
//! cargo run -p xtask                        write the references under docs/ and schema/
//! cargo run -p xtask -- --check             fail if they are not up to date
//! cargo run -p xtask -- check-events FILE   hold a run's events (JSON lines) against the taxonomy
//! cargo run -p xtask -- fault-matrix        run every fault on every wire, and write docs/fault-matrix.md
//! cargo run -p xtask -- fault-matrix --check   run it, and fail if a cell or the page is not right
//! cargo run -p xtask -- corpus add FILE …       add a failure that somebody met to the corpus
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talking is its job")]

mod config;
mod corpus;
mod events;
mod faultlab;
mod matrix;
mod references;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] => references::write(),
        ["--check"] => references::check(),
        ["check-events", file] => events::check(file),
        ["fault-matrix"] => matrix::write(),
        ["fault-matrix", "--check"] => matrix::check(),
        ["corpus", "add", options @ ..] => corpus::add(options),
        _ => Err(format!(
            "usage: xtask [--check | check-events FILE | fault-matrix [--check] | {}]",
            corpus::USAGE
        )),
    };
    match outcome {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
