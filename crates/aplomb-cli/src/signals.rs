//! The signals that end runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use aplomb::Cancellation;

/// A signal that ends runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    #[cfg(unix)]
    Hangup,
    Interrupt,
    #[cfg(unix)]
    Terminate,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            #[cfg(unix)]
            Signal::Hangup => "SIGHUP",
            Signal::Interrupt => "SIGINT",
            #[cfg(unix)]
            Signal::Terminate => "SIGTERM",
        }
    }

    /// 128 and the signal's number, as shells have it.
    fn exit_code(self) -> u8 {
        match self {
            #[cfg(unix)]
            Signal::Hangup => 129,
            Signal::Interrupt => 130,
            #[cfg(unix)]
            Signal::Terminate => 143,
        }
    }
}

/// Listens for signals in the background: the first one cancels; the second one, or one that comes when there is nothing
/// left to cancel, ends the process.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    /// The exit code of the signal that came; 0 before.
    came: Arc<AtomicU8>,
    nothing_to_cancel: Arc<AtomicBool>,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// If the system does not let it.
    #[expect(clippy::disallowed_methods, reason = "it listens for as long as the process lives")]
    pub(crate) fn listen(cancellation: Cancellation) -> std::io::Result<Signals> {
        let signals = Signals::default();
        let Signals { came, nothing_to_cancel } = signals.clone();
        let mut arriving = Arriving::new()?;
        tokio::spawn(async move {
            loop {
                let signal = arriving.next().await;
                let is_second = came.swap(signal.exit_code(), Ordering::Relaxed) != 0;
                if is_second || nothing_to_cancel.load(Ordering::Relaxed) {
                    std::process::exit(signal.exit_code().into());
                }
                cancellation.cancel(signal.name());
            }
        });
        Ok(signals)
    }

    /// From here on a signal ends the process.
    pub(crate) fn nothing_to_cancel(&self) {
        self.nothing_to_cancel.store(true, Ordering::Relaxed);
    }

    /// The exit code of the signal that came, if one did.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        Some(self.came.load(Ordering::Relaxed)).filter(|code| *code != 0)
    }
}

struct Arriving {
    /// None where it is ignored.
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Arriving {
    #[cfg(unix)]
    fn new() -> std::io::Result<Arriving> {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = (!ignores_hangups()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Arriving {
            hangup,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) -> Signal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = hangup => Signal::Hangup,
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    fn new() -> std::io::Result<Arriving> {
        Ok(Arriving {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Whether the process was started to outlive its terminal, as by `nohup`: it has been told to ignore hang-ups, and listening
/// would undo that. Only Linux says so.
///
/// Source: proc_pid_status(5): `SigIgn` is a mask in hexadecimal digits, whose lowest bit is signal 1, which is SIGHUP.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
