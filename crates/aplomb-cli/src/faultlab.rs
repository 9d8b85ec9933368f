//! `aplomb faultlab`: serves a script until it is interrupted.

use aplomb::{Error, codes};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server;

use crate::args::FaultlabArguments;
use crate::exit::{self, Signals};
use crate::{output, render};

pub(crate) async fn faultlab(arguments: FaultlabArguments) -> u8 {
    match serve(arguments).await {
        Ok(()) => exit::SUCCESS,
        Err(error) => {
            output::talk(format_args!("{}", render::failure(&error)));
            exit::of(&error)
        }
    }
}

async fn serve(arguments: FaultlabArguments) -> Result<(), Error> {
    let file = arguments.script.display();
    let text = std::fs::read_to_string(&arguments.script).map_err(|error| {
        Error::new(codes::USER_INVALID_INPUT, format!("cannot read {file}: {error}"))
            .with_foreign_cause(error)
    })?;
    let script = Script::from_json(&text).map_err(|error| {
        Error::new(codes::USER_INVALID_INPUT, format!("{file}: {error}")).with_foreign_cause(error)
    })?;
    let cannot_listen = |error| {
        Error::new(codes::EXECUTION_ERROR, format!("cannot listen: {error}")).with_foreign_cause(error)
    };
    let mut signals = Signals::listen().map_err(cannot_listen)?;
    let server =
        server::serve(script, arguments.port, arguments.control_port).await.map_err(cannot_listen)?;
    let (base, control) = (server.base_url(), server.control_addr());
    let _reader_left = output::data(format_args!("listening on {base} (control http://{control})\n"));
    signals.next().await;
    Ok(())
}
