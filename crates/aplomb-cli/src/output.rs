//! Standard output is data, standard error is talk. The only place that writes to either.
//!
//! A run's output is written by a thread of its own, in order: a reader that pauses must not hold up the run, its
//! deadline or a signal.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What a run puts out, written in the background.
pub(crate) struct Output {
    /// None once nothing more may be written.
    waiting: Mutex<Option<Sender<Piece>>>,
    outcome: Mutex<Receiver<io::Result<()>>>,
}

enum Piece {
    Data(String),
    Talk(String),
}

impl Output {
    /// Begins to write. `on_error` is called once, from the writer's thread, when standard output takes no more.
    pub(crate) fn start(on_error: impl FnOnce() + Send + 'static) -> Output {
        let (sender, waiting) = channel();
        let (done, outcome) = channel();
        thread::spawn(move || {
            let written = write_all(&waiting, on_error);
            // Who does not wait for the outcome does not want it.
            let _unwanted = done.send(written);
        });
        Output { waiting: Mutex::new(Some(sender)), outcome: Mutex::new(outcome) }
    }

    /// Writes data. What standard output does not take is lost; [`finish`](Output::finish) says so.
    pub(crate) fn data(&self, text: String) {
        self.put(Piece::Data(text));
    }

    /// Writes a line of talk, after the data before it.
    pub(crate) fn talk(&self, line: String) {
        self.put(Piece::Talk(line));
    }

    fn put(&self, piece: Piece) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = &*waiting {
            let _writer_has_failed = waiting.send(piece);
        }
    }

    /// Waits until everything is written, at most for `patience` where there is one.
    ///
    /// # Errors
    ///
    /// What standard output failed with. A reader that has left, or does not read in time, is no error.
    pub(crate) fn finish(&self, patience: Option<Duration>) -> io::Result<()> {
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take());
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match patience {
            Some(patience) => outcome.recv_timeout(patience).unwrap_or(Ok(())),
            None => outcome.recv().unwrap_or(Ok(())),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }
}

/// Writes until there is nothing more; talk also where standard output has failed.
fn write_all(waiting: &Receiver<Piece>, on_error: impl FnOnce()) -> io::Result<()> {
    let (mut written, mut on_error) = (Ok(()), Some(on_error));
    for piece in waiting {
        match piece {
            Piece::Data(text) if written.is_ok() => {
                // Flushed at once: whoever reads sees it when it happens.
                let mut stdout = io::stdout().lock();
                written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
                if let Some(on_error) = on_error.take_if(|_| written.is_err()) {
                    on_error();
                }
            }
            Piece::Data(_) => {}
            Piece::Talk(line) => talk(format_args!("{line}")),
        }
    }
    written
}

/// Standard output for lines without end: who reads slowly holds up who writes, and nothing piles up.
pub(crate) struct Lines(io::BufWriter<io::StdoutLock<'static>>);

impl Lines {
    pub(crate) fn start() -> Lines {
        Lines(io::BufWriter::new(io::stdout().lock()))
    }

    pub(crate) fn write(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.0, "{line}")
    }

    /// Gives the reader all that is written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a line of talk. Where nobody listens, nothing is lost.
pub(crate) fn talk(line: fmt::Arguments<'_>) {
    let mut stderr = anstream::AutoStream::auto(io::stderr().lock());
    let _nobody_listens = writeln!(stderr, "{line}");
}

/// Text of a model, a provider or a tool, safe to show on a terminal: without the characters that command it.
pub(crate) fn for_terminal(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}
