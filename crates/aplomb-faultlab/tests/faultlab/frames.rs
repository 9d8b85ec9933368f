//! A client that writes and reads the frames of HTTP/2 (RFC 9113, section 4) by hand, so that no library
//! tidies up what a server does.
use std::net::SocketAddr;

use crate::raw::{Client, Ending};

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;

/// Flags: of DATA and HEADERS, of SETTINGS, and of HEADERS.
const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// A frame that says something about a request. What a body is made of is text here.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Frame {
    Headers {
        stream: u32,
    },
    Data {
        stream: u32,
        text: String,
    },
    /// DATA or HEADERS with END_STREAM come as themselves, if they are not empty, and then as this.
    EndStream {
        stream: u32,
    },
    Reset {
        stream: u32,
        code: u32,
    },
    GoAway {
        last_stream: u32,
        code: u32,
    },
}

pub(crate) struct FrameClient(Client);

impl FrameClient {
    /// A connection with prior knowledge: the preface and empty settings (section 3.4).
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::with_settings(addr, &[])
    }

    /// A connection on which no stream has room for a body until the client opens it: the setting
    /// SETTINGS_INITIAL_WINDOW_SIZE (4) is 0 (section 6.5.2).
    pub(crate) fn connect_without_room(addr: SocketAddr) -> Self {
        Self::with_settings(addr, &[0, 4, 0, 0, 0, 0])
    }

    fn with_settings(addr: SocketAddr, settings: &[u8]) -> Self {
        let mut client = Client::connect(addr);
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut client = Self(client);
        client.write(SETTINGS, 0, 0, settings);
        client
    }

    /// Gives this stream room for more than any body here.
    pub(crate) fn open(&mut self, stream: u32) {
        self.write(WINDOW_UPDATE, 0, stream, &65_535_u32.to_be_bytes());
    }

    /// POSTs a body to the chat endpoint on this stream.
    pub(crate) fn post(&mut self, stream: u32, body: &str) {
        let mut block = Vec::new();
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/v1/chat/completions"),
            (":authority", "x"),
            ("x-stream", &stream.to_string()),
        ];
        for (name, value) in fields {
            // RFC 7541, section 6.2.2: a literal without indexing, with a new name; lengths below 127.
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.write(HEADERS, END_HEADERS, stream, &block);
        self.write(DATA, END_STREAM, stream, body.as_bytes());
    }

    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.send_bytes(&frame);
    }

    /// The next frame that says something, or the end.
    fn read(&mut self) -> Result<Vec<Frame>, Ending> {
        loop {
            let header = self.0.read_exactly(9).map_err(|(rest, ending)| {
                assert!(rest.is_empty(), "the connection ended within a frame's header: {rest:?}");
                ending
            })?;
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let (kind, flags) = (header[3], header[4]);
            let stream = number(&header[5..9]);
            let payload = self
                .0
                .read_exactly(usize::try_from(length).unwrap())
                .map_err(|(_, ending)| panic!("the connection ended within a frame: {ending:?}"))
                .unwrap();
            let mut frames = Vec::new();
            match kind {
                HEADERS => frames.push(Frame::Headers { stream }),
                DATA if payload.is_empty() => {}
                DATA => frames.push(Frame::Data { stream, text: String::from_utf8(payload).unwrap() }),
                RST_STREAM => frames.push(Frame::Reset { stream, code: number(&payload) }),
                GOAWAY => {
                    assert_eq!((stream, payload.len()), (0, 8));
                    let (last_stream, code) = (number(&payload[..4]), number(&payload[4..]));
                    frames.push(Frame::GoAway { last_stream, code });
                }
                SETTINGS if flags & ACK == 0 => self.write(SETTINGS, ACK, 0, &[]),
                SETTINGS | PING | WINDOW_UPDATE => {}
                kind => panic!("a frame of type {kind}"),
            }
            if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
                frames.push(Frame::EndStream { stream });
            }
            if !frames.is_empty() {
                return Ok(frames);
            }
        }
    }

    /// Reads exactly these frames, and compares them.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[Frame]) {
        let mut frames = Vec::new();
        while frames.len() < expected.len() {
            match self.read() {
                Ok(more) => frames.extend(more),
                Err(ending) => panic!("{ending:?} after {frames:?}"),
            }
        }
        assert_eq!(frames, expected);
    }

    /// Reads to the end, which the server must make.
    pub(crate) fn read_to_end(mut self) -> (Vec<Frame>, Ending) {
        let mut frames = Vec::new();
        loop {
            match self.read() {
                Ok(more) => frames.extend(more),
                Err(ending) => return (frames, ending),
            }
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}
