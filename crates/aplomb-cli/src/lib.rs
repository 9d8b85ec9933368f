//! The `aplomb` command: reads arguments, calls the library, shows what came of it. Decides nothing about runs.
//!
//! A program of your own gets the whole command line by calling [`main_with`] with the plugins that it registers; the
//! errors that it declares are listed with the built-in ones.

mod args;
mod classify;
mod doctor;
mod errors;
mod exit;
mod faultlab;
mod init;
mod inspect;
mod output;
mod plugins;
mod policy;
mod render;
mod report;
mod run;
mod signals;

use std::process::ExitCode;

use aplomb::plugins::Registry;
use clap::Parser;

use crate::args::{Arguments, Command, ConfigCommand};

/// Runs the command line of this process, with the built-in plugins.
pub fn main() -> ExitCode {
    main_with(Registry::new())
}

/// Runs the command line of this process, with these plugins: `run`, `validate`, `list-plugins` and all others know them.
///
/// ```no_run
/// use aplomb::plugins::{NoConfig, Registry};
///
/// fn main() -> std::process::ExitCode {
///     aplomb_cli::main_with(Registry::new().tool("my_calc", |_: NoConfig| Ok(aplomb::tools::Calc)))
/// }
/// ```
pub fn main_with(registry: Registry) -> ExitCode {
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
            Command::Classify(arguments) => classify::classify(&arguments),
            Command::Run(arguments) => run::run(arguments, registry).await,
            Command::Validate(arguments) => inspect::validate(&arguments, registry),
            Command::Policy(arguments) => policy::policy(&arguments, registry),
            Command::Config(ConfigCommand::Show(arguments)) => inspect::show(&arguments),
            Command::Schema(arguments) => plugins::schema(&arguments, &registry),
            Command::ListPlugins(arguments) => plugins::list(&arguments, &registry),
            Command::Init(arguments) => init::init(&arguments),
            Command::Doctor(arguments) => doctor::doctor(arguments, registry).await,
            Command::Faultlab(arguments) => faultlab::faultlab(arguments).await,
        }
    });
    // A tool that blocks its thread must not hold up the end.
    runtime.shutdown_background();
    ExitCode::from(code)
}
