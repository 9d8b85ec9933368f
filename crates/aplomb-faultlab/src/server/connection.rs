//! One HTTP/1.1 connection from the server's side: reads requests, writes heads and bodies, and ends in the
//! ways TCP knows. Knows no script and no log.
//!
//! Section numbers are of RFC 9112 (HTTP/1.1) if nothing else is said.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stream::Stream;

/// A head larger than this is refused with 431.
const MAX_HEAD: usize = 64 * 1024;
/// As are more headers than this.
const MAX_HEADERS: usize = 128;
/// A body larger than this is refused with 413.
pub(super) const MAX_BODY: u64 = 32 * 1024 * 1024;
/// How long a client may take to notice that the connection was closed, before its end is closed for it.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// What a client of HTTP/2 says first (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Lets what was sent arrive before a reset throws away what was not.
const RESET_GRACE: Duration = Duration::from_millis(20);

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    /// The path and query, as sent.
    pub(super) target: String,
    /// In order, names in lower case.
    pub(super) headers: Vec<(String, String)>,
}

/// How a body is announced.
pub(super) enum Length {
    /// Not at all: the status has no body.
    None,
    Bytes(u64),
    Chunked,
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The client left, between requests or in the midst of one.
    Gone,
    /// What came is no request, or one too large: answer this and close.
    Refused { status: u16, message: String },
}

impl From<io::Error> for NoRequest {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

fn refused<T>(status: u16, message: impl Into<String>) -> Result<T, NoRequest> {
    Err(NoRequest::Refused { status, message: message.into() })
}

impl Head {
    fn from_parsed(parsed: &httparse::Request<'_, '_>) -> Self {
        let header = |header: &httparse::Header<'_>| {
            (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).into_owned())
        };
        Self {
            method: parsed.method.unwrap_or_default().to_owned(),
            target: parsed.path.unwrap_or_default().to_owned(),
            headers: parsed.headers.iter().map(header).collect(),
        }
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Whether the list in the header `name` has this word.
    fn has_word(&self, name: &str, word: &str) -> bool {
        self.values(name)
            .flat_map(|value| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(word))
    }

    /// Whether the client wants no further request on this connection (section 9.6).
    pub(super) fn asks_to_close(&self) -> bool {
        self.has_word("connection", "close")
    }

    /// The body's length as announced; `None` if it is chunked (section 6.3).
    fn body_length(&self) -> Result<Option<u64>, NoRequest> {
        if self.values("transfer-encoding").next().is_some() {
            if !self.has_word("transfer-encoding", "chunked") {
                return refused(501, "The only transfer-encoding that faultlab reads is chunked.");
            }
            return Ok(None);
        }
        match self.values("content-length").next().map(str::parse) {
            None => Ok(Some(0)),
            Some(Ok(length)) if length <= MAX_BODY => Ok(Some(length)),
            Some(Ok(_)) => too_large(),
            Some(Err(_)) => refused(400, "content-length is not a number."),
        }
    }
}

fn too_large<T>() -> Result<T, NoRequest> {
    refused(413, format!("The body has more than {MAX_BODY} bytes."))
}

/// The bytes of a head. The reason phrase stays empty, which section 4 allows and clients are told to ignore
/// anyway.
pub(super) fn head(status: u16, headers: &[(String, String)], length: Length) -> String {
    let mut head = format!("HTTP/1.1 {status} \r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    match length {
        Length::None => {}
        Length::Bytes(length) => head.push_str(&format!("content-length: {length}\r\n")),
        Length::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
    }
    head.push_str("\r\n");
    head
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    /// What was read and not yet used.
    buffer: BytesMut,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// What is under it, and what was read of that and not used.
    pub(super) fn into_parts(self) -> (Stream, BytesMut) {
        (self.stream, self.buffer)
    }

    /// Whether the client begins with HTTP/2's preface, which stays to be read.
    pub(super) async fn begins_http2(&mut self) -> Result<bool, NoRequest> {
        loop {
            let begun = self.buffer.iter().zip(HTTP2_PREFACE).all(|(sent, expected)| sent == expected);
            if !begun || self.buffer.len() >= HTTP2_PREFACE.len() {
                return Ok(begun);
            }
            self.fill().await?;
        }
    }

    /// Waits for the client's first bytes, or more of them; they stay to be read.
    pub(super) async fn wait_for_bytes(&mut self) -> Result<(), NoRequest> {
        self.fill().await
    }

    /// Reads the next request's head.
    pub(super) async fn read_head(&mut self) -> Result<Head, NoRequest> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut parsed = httparse::Request::new(&mut headers);
            match parsed.parse(&self.buffer) {
                Ok(httparse::Status::Complete(_)) if parsed.version != Some(1) => {
                    return refused(505, "Faultlab speaks HTTP/1.1 only.");
                }
                Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => {
                    let head = Head::from_parsed(&parsed);
                    self.buffer.advance(length);
                    return Ok(head);
                }
                Ok(httparse::Status::Partial) if self.buffer.len() <= MAX_HEAD => self.fill().await?,
                Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                    let message =
                        format!("The head has more than {MAX_HEAD} bytes or {MAX_HEADERS} headers.");
                    return refused(431, message);
                }
                Err(error) => return refused(400, format!("This is not HTTP/1.1: {error}.")),
            }
        }
    }

    /// Reads the body that belongs to `head`.
    pub(super) async fn read_body(&mut self, head: &Head) -> Result<Bytes, NoRequest> {
        let length = head.body_length()?;
        if length != Some(0) && head.has_word("expect", "100-continue") {
            // RFC 9110, section 10.1.1: the client waits for this before it sends the body.
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        match length {
            Some(length) => self.take(length).await,
            None => self.read_chunks().await,
        }
    }

    /// Section 7.1.
    async fn read_chunks(&mut self) -> Result<Bytes, NoRequest> {
        let mut body = BytesMut::new();
        loop {
            let size = self.read_chunk_size().await?;
            if size == 0 {
                self.skip_trailers().await?;
                return Ok(body.freeze());
            }
            if size > MAX_BODY || u64::try_from(body.len()).unwrap_or(u64::MAX) + size > MAX_BODY {
                return too_large();
            }
            body.extend_from_slice(&self.take(size).await?);
            if *self.take(2).await? != *b"\r\n" {
                return refused(400, "A chunk is longer than its size says.");
            }
        }
    }

    async fn read_chunk_size(&mut self) -> Result<u64, NoRequest> {
        loop {
            match httparse::parse_chunk_size(&self.buffer) {
                Ok(httparse::Status::Complete((length, size))) => {
                    self.buffer.advance(length);
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) if self.buffer.len() <= MAX_HEAD => self.fill().await?,
                _ => return refused(400, "A chunk does not begin with its size."),
            }
        }
    }

    async fn skip_trailers(&mut self) -> Result<(), NoRequest> {
        loop {
            let mut trailers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            match httparse::parse_headers(&self.buffer, &mut trailers) {
                Ok(httparse::Status::Complete((length, _))) => {
                    self.buffer.advance(length);
                    return Ok(());
                }
                Ok(httparse::Status::Partial) if self.buffer.len() <= MAX_HEAD => self.fill().await?,
                _ => return refused(400, "The body's trailers are no headers."),
            }
        }
    }

    /// Takes this many bytes off the buffer, as soon as they are there. The caller has checked the number.
    async fn take(&mut self, length: u64) -> Result<Bytes, NoRequest> {
        let Ok(length) = usize::try_from(length) else {
            return too_large();
        };
        while self.buffer.len() < length {
            self.fill().await?;
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn fill(&mut self) -> Result<(), NoRequest> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(NoRequest::Gone),
            _ => Ok(()),
        }
    }

    /// Writes a head.
    pub(super) async fn write_head(
        &mut self,
        status: u16,
        headers: &[(String, String)],
        length: Length,
    ) -> io::Result<()> {
        self.write(head(status, headers, length).as_bytes()).await
    }

    /// Writes bytes as they are; each call is a write of its own.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Writes one chunk. Nothing at all for no bytes: a chunk of size 0 would end the body.
    pub(super) async fn write_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.write(&chunk).await
    }

    /// Ends a chunked body.
    pub(super) async fn write_last_chunk(&mut self) -> io::Result<()> {
        self.write(b"0\r\n\r\n").await
    }

    /// A whole answer with a JSON body.
    pub(super) async fn write_json(&mut self, status: u16, json: &[u8]) -> io::Result<()> {
        self.write_whole(status, "application/json", json).await
    }

    /// A whole answer of this type.
    pub(super) async fn write_whole(
        &mut self,
        status: u16,
        content_type: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let headers = [("content-type".to_owned(), content_type.to_owned())];
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        self.write_head(status, &headers, Length::Bytes(length)).await?;
        self.write(body).await
    }

    /// A whole answer that says what is wrong with the request.
    pub(super) async fn write_error(&mut self, status: u16, message: &str) -> io::Result<()> {
        let error = serde_json::json!({ "error": { "message": message } });
        self.write_json(status, error.to_string().as_bytes()).await
    }

    /// Closes in order, TLS before TCP. What the client still sends is read, as the kernel would answer it with a reset
    /// otherwise, and that could overtake the last bytes of an answer (section 9.6).
    pub(super) async fn close(mut self) {
        if self.stream.shutdown().await.is_ok() {
            // However this ends, the connection ends with it.
            let _ = tokio::time::timeout(CLOSE_LIMIT, self.wait_for_client_to_leave()).await;
        }
    }

    /// Closes by a reset: TCP has nothing else to say when it may not linger.
    pub(super) async fn reset(self) {
        tokio::time::sleep(RESET_GRACE).await;
        // If the option cannot be set the socket is gone already, and the client with it.
        let _ = self.stream.socket().set_zero_linger();
    }

    /// Says nothing and reads until the client closes its side or is gone.
    pub(super) async fn wait_for_client_to_leave(&mut self) {
        loop {
            self.buffer.clear();
            if self.fill().await.is_err() {
                return;
            }
        }
    }
}
