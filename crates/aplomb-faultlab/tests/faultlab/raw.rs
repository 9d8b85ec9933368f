//! A client that knows TCP and nothing else: it sees the bytes as they come and how the connection ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far longer than anything here takes; a test that hangs fails instead.
const HANGS: Duration = Duration::from_secs(20);
/// How long to look for bytes that must not come. A slow machine can only make this find less.
const LOOK: Duration = Duration::from_millis(150);

/// How a connection ended, as a client sees it.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Ending {
    /// `read` returned no bytes: a FIN.
    Fin,
    /// `read` failed with `ConnectionReset`: an RST.
    Reset,
}

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    /// The same for what is not UTF-8.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// POSTs a body to the chat endpoint.
    pub(crate) fn post(&mut self, body: &str) {
        self.send(&post(body));
    }

    /// POSTs a body to this path.
    pub(crate) fn post_to(&mut self, path: &str, body: &str) {
        self.send(&post_to(path, body));
    }

    /// Reads exactly as many bytes as `expected` has, and compares them. Returns how many reads it took.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) -> usize {
        self.expect_bytes(expected.as_bytes())
    }

    /// The same for what is not UTF-8.
    #[track_caller]
    pub(crate) fn expect_bytes(&mut self, expected: &[u8]) -> usize {
        let mut bytes = vec![0; expected.len()];
        let (mut read, mut reads) = (0, 0);
        while read < bytes.len() {
            match self.0.read(&mut bytes[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes[..read])),
            }
            reads += 1;
        }
        // Text for people to compare; the bytes decide.
        assert_eq!(String::from_utf8_lossy(&bytes[..read]), String::from_utf8_lossy(expected));
        assert_eq!(&bytes[..read], expected);
        reads
    }

    /// Reads this many bytes, or as many as come before the connection ends, and how it did.
    pub(crate) fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>, (Vec<u8>, Ending)> {
        let mut bytes = vec![0; length];
        let mut read = 0;
        while read < length {
            let ending = match self.0.read(&mut bytes[read..]) {
                Ok(0) => Ending::Fin,
                Ok(more) => {
                    read += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Ending::Reset,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes[..read])),
            };
            bytes.truncate(read);
            return Err((bytes, ending));
        }
        Ok(bytes)
    }

    /// Reads until `text` has come, and returns everything up to its end.
    pub(crate) fn read_through(&mut self, text: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(text.as_bytes()) {
            let mut byte = [0];
            let read = self.0.read(&mut byte).unwrap();
            assert_eq!(read, 1, "ended before {text:?}: {:?}", String::from_utf8_lossy(&bytes));
            bytes.push(byte[0]);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Reads to the end, which the server must make.
    pub(crate) fn read_to_end(mut self) -> (String, Ending) {
        let mut bytes = Vec::new();
        let ending = match self.0.read_to_end(&mut bytes) {
            Ok(_) => Ending::Fin,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ending::Reset,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        };
        (String::from_utf8(bytes).unwrap(), ending)
    }

    /// Nothing more has come and the connection is open.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.0.set_read_timeout(Some(LOOK)).unwrap();
        let error = self.0.read(&mut [0]).expect_err("expected neither bytes nor an end");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        self.0.set_read_timeout(Some(HANGS)).unwrap();
    }
}

/// The bytes of a POST to the chat endpoint.
pub(crate) fn post(body: &str) -> String {
    post_to("/v1/chat/completions", body)
}

fn post_to(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// One request on a connection of its own, for servers on which something follows that ends it.
pub(crate) fn exchange(addr: SocketAddr, request: &str) -> (String, Ending) {
    let mut client = Client::connect(addr);
    client.send(request);
    client.read_to_end()
}
