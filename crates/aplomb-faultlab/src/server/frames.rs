//! What HTTP/2's frames go through on their way to the socket. The library that makes the frames can only go
//! away politely, so GOAWAY is put between its frames here, with any last stream and any code.
//!
//! Knows where one frame ends and the next begins, and nothing else of HTTP/2. A GOAWAY may not come between
//! a HEADERS and its CONTINUATION; answers have heads of one frame, unless a script has headers of 16 KiB.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;
use super::stream::Stream;

/// The bytes before a frame's payload: its length in the first three, then type, flags and stream (RFC 9113,
/// section 4.1).
const HEADER: usize = 9;
/// The type of GOAWAY (section 6.8).
const GOAWAY: u8 = 0x7;

/// A connection that carries frames. Clones are the same connection.
#[derive(Debug, Clone)]
pub(super) struct Frames(Arc<Mutex<Carrier>>);

#[derive(Debug)]
struct Carrier {
    stream: Stream,
    /// What was read of the stream before, and comes first.
    unread: BytesMut,
    place: Place,
    /// A GOAWAY, or more of them, to be written between two frames.
    pending: BytesMut,
    /// The last stream of the last GOAWAY.
    last_stream: Option<u32>,
    /// Whether nothing was written since the last flush.
    flushed: bool,
}

/// How far the frame being written is.
#[derive(Debug, Default)]
struct Place {
    /// What is written of its header, until all of it is.
    header: Vec<u8>,
    /// What is left of its payload.
    left: usize,
}

impl Frames {
    pub(super) fn new(connection: Connection) -> Self {
        let (stream, unread) = connection.into_parts();
        Self(Arc::new(Mutex::new(Carrier {
            stream,
            unread,
            place: Place::default(),
            pending: BytesMut::new(),
            last_stream: None,
            flushed: true,
        })))
    }

    /// Has a GOAWAY written before the next frame, or with the next flush. A last stream above that of an
    /// earlier GOAWAY becomes the earlier one: what was said to be lost stays so (section 6.8).
    pub(super) fn go_away(&self, last_stream: u32, code: u32) {
        let mut carrier = self.carrier();
        let last_stream = carrier.last_stream.map_or(last_stream, |earlier| earlier.min(last_stream));
        carrier.last_stream = Some(last_stream);
        let frame = &mut carrier.pending;
        frame.put_uint(8, 3);
        frame.put_slice(&[GOAWAY, 0]);
        frame.put_u32(0);
        frame.put_u32(last_stream);
        frame.put_u32(code);
    }

    pub(super) fn is_going_away(&self) -> bool {
        self.carrier().last_stream.is_some()
    }

    /// Whether everything that was to be written is with the kernel.
    pub(super) fn is_flushed(&self) -> bool {
        let carrier = self.carrier();
        carrier.flushed && carrier.pending.is_empty()
    }

    /// The connection again, for its end; `None` while there are clones.
    pub(super) fn into_connection(self) -> Option<Connection> {
        let carrier = Arc::into_inner(self.0)?.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(Connection::new(carrier.stream))
    }

    /// Nothing is left half done where a holder of this lock could panic.
    fn carrier(&self) -> MutexGuard<'_, Carrier> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Frames {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut carrier = self.carrier();
        if carrier.unread.is_empty() {
            return Pin::new(&mut carrier.stream).poll_read(cx, buf);
        }
        let length = carrier.unread.len().min(buf.remaining());
        buf.put_slice(&carrier.unread.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Frames {
    /// Writes no further than to the end of a frame, so that what is pending has its turn.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut carrier = self.carrier();
        carrier.flushed = false;
        ready!(carrier.poll_write_pending(cx))?;
        let frame = buf.get(..carrier.place.rest_of_frame(buf)).unwrap_or(buf);
        let written = ready!(Pin::new(&mut carrier.stream).poll_write(cx, frame))?;
        carrier.place.advance(frame.get(..written).unwrap_or(frame));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut carrier = self.carrier();
        ready!(carrier.poll_write_pending(cx))?;
        ready!(Pin::new(&mut carrier.stream).poll_flush(cx))?;
        carrier.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.carrier().stream).poll_shutdown(cx)
    }
}

impl Carrier {
    fn poll_write_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.place.is_between_frames() && !self.pending.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.pending.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Place {
    fn is_between_frames(&self) -> bool {
        self.header.is_empty() && self.left == 0
    }

    /// How many of these bytes, which come next, belong to the same frame.
    fn rest_of_frame(&self, bytes: &[u8]) -> usize {
        if self.left > 0 {
            return self.left.min(bytes.len());
        }
        let header: Vec<u8> = self.header.iter().chain(bytes).copied().take(HEADER).collect();
        match payload_length(&header) {
            Some(length) => (HEADER - self.header.len()).saturating_add(length).min(bytes.len()),
            None => bytes.len(),
        }
    }

    /// Counts bytes of one frame.
    fn advance(&mut self, written: &[u8]) {
        if self.left > 0 {
            self.left = self.left.saturating_sub(written.len());
            return;
        }
        let missing = HEADER - self.header.len();
        self.header.extend(written.iter().take(missing));
        if let Some(length) = payload_length(&self.header) {
            self.left = length.saturating_sub(written.len().saturating_sub(missing));
            self.header.clear();
        }
    }
}

/// The length that a whole header says.
fn payload_length(header: &[u8]) -> Option<usize> {
    match *header {
        [high, middle, low, _, _, _, _, _, _] => {
            usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames: three bytes of payload, and none.
    const FRAMES: [u8; 21] = [0, 0, 3, 0, 0, 0, 0, 0, 1, 7, 7, 7, 0, 0, 0, 4, 1, 0, 0, 0, 0];

    #[test]
    fn frames_end_at_the_same_places_however_they_are_written() {
        for size in 1..=FRAMES.len() {
            let (mut place, mut written, mut between) = (Place::default(), 0, Vec::new());
            while written < FRAMES.len() {
                let bytes = &FRAMES[written..FRAMES.len().min(written + size)];
                let rest = place.rest_of_frame(bytes);
                place.advance(&bytes[..rest]);
                written += rest;
                if place.is_between_frames() {
                    between.push(written);
                }
            }
            assert_eq!(between, [12, 21], "in pieces of {size}");
        }
    }
}
