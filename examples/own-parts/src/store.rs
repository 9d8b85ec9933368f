//! A session store: a book, with a line for each run of each session.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aplomb::{Error, Message, SessionStore, codes};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps transcripts in a file, as lines of JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BookConfig {
    /// Which.
    file: PathBuf,
}

/// Whoever has it has the file alone.
pub(crate) struct Book(Mutex<PathBuf>);

/// What a run has added to a session, whose name is a value here and never part of a path.
#[derive(Serialize, Deserialize)]
struct Line {
    session_id: String,
    messages: Vec<Arc<Message>>,
}

impl Book {
    pub(crate) fn new(config: BookConfig) -> Book {
        Book(Mutex::new(config.file))
    }

    fn file(&self) -> MutexGuard<'_, PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, session_id: &str, messages: &[Arc<Message>]) -> io::Result<()> {
        let line = Line { session_id: session_id.to_owned(), messages: messages.to_vec() };
        let file = self.file();
        // One write: a run is there as a whole or not at all.
        OpenOptions::new().create(true).append(true).open(&*file)?.write_all(&written(&line)?)
    }

    fn load(&self, session_id: &str) -> io::Result<Vec<Arc<Message>>> {
        let lines = lines(&self.file())?;
        let of_session = lines.into_iter().filter(|line| line.session_id == session_id);
        Ok(of_session.flat_map(|line| line.messages).collect())
    }

    fn forget(&self, session_id: &str) -> io::Result<()> {
        let file = self.file();
        let mut left = Vec::new();
        for line in lines(&file)?.iter().filter(|line| line.session_id != session_id) {
            left.extend(written(line)?);
        }
        let new = file.with_extension("new");
        fs::write(&new, left)?;
        fs::rename(new, &*file)
    }
}

fn written(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

fn lines(file: &PathBuf) -> io::Result<Vec<Line>> {
    match fs::read_to_string(file) {
        Ok(text) => text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect(),
        // Nobody has said anything yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The file is small and near, so that it is read and written at once. What takes time belongs into the future.
fn done<'a, T: Send + 'a>(result: io::Result<T>) -> BoxFuture<'a, Result<T, Error>> {
    let result = result.map_err(|error| Error::new(codes::SESSION_ERROR, format!("the book: {error}")));
    ready(result).boxed()
}

impl SessionStore for Book {
    fn append<'a>(
        &'a self,
        session_id: &'a str,
        messages: &'a [Arc<Message>],
    ) -> BoxFuture<'a, Result<(), Error>> {
        done(Book::append(self, session_id, messages))
    }

    fn load<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        done(Book::load(self, session_id))
    }

    fn forget<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        done(Book::forget(self, session_id))
    }
}
