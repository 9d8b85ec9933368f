//! Exit codes, a contract: `docs/spec/runtime.md` §7.

use aplomb::{Error, codes};

pub(crate) const SUCCESS: u8 = 0;
pub(crate) const USAGE: u8 = 1;
pub(crate) const CONFIG: u8 = 2;
pub(crate) const FAILED: u8 = 3;

/// The exit code of an error.
pub(crate) fn of(error: &Error) -> u8 {
    if error.is_a(codes::USER_ERROR) {
        USAGE
    } else if error.is_a(codes::CONFIG_ERROR) || error.is_a(codes::PLUGIN_ERROR) {
        CONFIG
    } else {
        FAILED
    }
}

/// A signal that ends runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
        }
    }

    /// 128 and the signal's number, as shells have it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

/// The signals that end runs, as they come.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Signals> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Signals {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Signals {})
    }

    pub(crate) async fn next(&mut self) -> Signal {
        #[cfg(unix)]
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
        #[cfg(not(unix))]
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}
