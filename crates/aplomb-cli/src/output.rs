//! Standard output is data, standard error is talk. The only place that writes to either.

use std::fmt;
use std::io::{self, Write};

/// Writes data and flushes it, so that a reader sees it when it happens.
///
/// # Errors
///
/// If standard output takes no more, as when its reader has gone.
pub(crate) fn data(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut stdout = anstream::AutoStream::auto(io::stdout().lock());
    stdout.write_fmt(text)?;
    stdout.flush()
}

/// Writes a line of talk. Where nobody listens, nothing is lost.
pub(crate) fn talk(line: fmt::Arguments<'_>) {
    let mut stderr = anstream::AutoStream::auto(io::stderr().lock());
    let _nobody_listens = writeln!(stderr, "{line}");
}
