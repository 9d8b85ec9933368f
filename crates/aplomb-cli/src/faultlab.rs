//! `aplomb faultlab`: serves a script until it is interrupted.

use aplomb::{Cancellation, Error, codes};
use aplomb_faultlab::script::{Format, Script};
use aplomb_faultlab::server;

use crate::args::FaultlabArguments;
use crate::output::Output;
use crate::signals::Signals;
use crate::{exit, output, render};

pub(crate) async fn faultlab(arguments: FaultlabArguments) -> u8 {
    match serve(arguments).await {
        Ok(code) => code,
        Err(error) => {
            output::talk(format_args!("{}", render::failure(&error)));
            exit::of(&error)
        }
    }
}

async fn serve(arguments: FaultlabArguments) -> Result<u8, Error> {
    let FaultlabArguments { script, port, control_port, ca_file } = arguments;
    let file = script.display();
    let text = std::fs::read_to_string(&script).map_err(|error| {
        Error::new(codes::USER_INVALID_INPUT, format!("cannot read {file}: {error}"))
            .with_foreign_cause(error)
    })?;
    let script = Script::read(&text, Format::of(&script)).map_err(|error| {
        Error::new(codes::USER_INVALID_INPUT, format!("{file}: {error}")).with_foreign_cause(error)
    })?;
    let cannot_listen = |error| {
        let message = format!("cannot listen on port {port} or control port {control_port}: {error}");
        Error::new(codes::EXECUTION_ERROR, message).with_foreign_cause(error)
    };
    let interrupted = Cancellation::new();
    let signals = Signals::listen(interrupted.clone()).map_err(cannot_listen)?;
    let server = server::serve(script, port, control_port).await.map_err(cannot_listen)?;
    if let Some(file) = ca_file {
        std::fs::write(&file, server.ca_pem()).map_err(|error| {
            let message = format!("cannot write {}: {error}", file.display());
            Error::new(codes::USER_INVALID_INPUT, message).with_foreign_cause(error)
        })?;
    }
    let output = Output::start(|| {});
    output.data(format!("listening on {} (control http://{})\n", server.base_url(), server.control_addr()));
    interrupted.cancelled().await;
    Ok(signals.exit_code().unwrap_or(exit::SUCCESS))
}
