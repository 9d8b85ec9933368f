//! The `aplomb` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    aplomb_cli::main()
}
