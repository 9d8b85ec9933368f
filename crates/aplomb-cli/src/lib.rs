//! The `aplomb` command: reads arguments, calls the library, shows what came of it. Decides nothing about runs.
//!
//! A program of your own gets the whole command line by calling [`main`]; the errors that it declares are listed with the
//! built-in ones.

mod args;
mod errors;
mod exit;
mod faultlab;
mod output;
mod render;
mod run;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; everything else is a usage error.
            let code = if error.use_stderr() { exit::USAGE } else { exit::SUCCESS };
            let _nobody_to_tell = error.print();
            return ExitCode::from(code);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::talk(format_args!("error: cannot start: {error}"));
            return ExitCode::from(exit::FAILED);
        }
    };
    let code = runtime.block_on(async {
        match arguments.command {
            Command::Errors(arguments) => errors::errors(&arguments),
            Command::Run(arguments) => run::run(arguments).await,
            Command::Faultlab(arguments) => faultlab::faultlab(arguments).await,
        }
    });
    // A tool that blocks its thread must not hold up the end.
    runtime.shutdown_background();
    ExitCode::from(code)
}
