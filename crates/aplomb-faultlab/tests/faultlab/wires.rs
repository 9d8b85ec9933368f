//! The protocols, each with the answer "Hello you", for what is the same on all of them.

use crate::lab::{self, LAST_CHUNK, chunks, hello_script, start};
use crate::raw::Client;
use crate::{golden, golden_anthropic};
use aplomb_faultlab::server::FaultServer;

/// A protocol and the answer "Hello you" on it.
pub(crate) struct Wire {
    pub(crate) path: &'static str,
    pub(crate) streamed: &'static str,
    pub(crate) plain: &'static str,
    pub(crate) id: &'static str,
    /// Content first.
    pub(crate) events: &'static [&'static str],
    pub(crate) content: usize,
    pub(crate) document: &'static str,
}

pub(crate) const OPENAI: Wire = {
    use golden::{DOCUMENT, DONE, HELLO, PLAIN, ROLE, STOP, STREAMED, YOU};
    Wire {
        path: "/v1/chat/completions",
        streamed: STREAMED,
        plain: PLAIN,
        id: "x-request-id",
        events: &[ROLE, HELLO, YOU, STOP, DONE],
        content: 3,
        document: DOCUMENT,
    }
};

pub(crate) const ANTHROPIC: Wire = {
    use golden_anthropic::{
        DOCUMENT, END_TURN, HELLO, PING, PLAIN, START, STOP, STREAMED, TEXT, TEXT_END, YOU,
    };
    Wire {
        path: "/v1/messages",
        streamed: STREAMED,
        plain: PLAIN,
        id: "request-id",
        events: &[START, PING, TEXT, HELLO, YOU, TEXT_END, END_TURN, STOP],
        content: 6,
        document: DOCUMENT,
    }
};

impl Wire {
    pub(crate) fn head(&self, content_type: &str, framing: &str) -> String {
        format!(
            "HTTP/1.1 200 \r\ncontent-type: {content_type}\r\n{}: req_faultlab_1\r\n{framing}\r\n\r\n",
            self.id
        )
    }

    pub(crate) fn stream_head(&self) -> String {
        self.head("text/event-stream", "transfer-encoding: chunked")
    }

    pub(crate) fn plain_head(&self, length: usize) -> String {
        self.head("application/json", &format!("content-length: {length}"))
    }

    pub(crate) fn whole_stream(&self) -> String {
        self.stream_head() + &chunks(self.events) + LAST_CHUNK
    }

    pub(crate) fn whole_document(&self) -> String {
        self.plain_head(self.document.len()) + self.document
    }

    /// Asks a server of its own, which stays with the client.
    pub(crate) async fn ask(&self, script: &str, body: &str) -> (Client, FaultServer) {
        let server = start(script).await;
        (lab::ask(&server, self.path, body), server)
    }

    pub(crate) async fn hello_with(&self, fault: &str, body: &str) -> (Client, FaultServer) {
        self.ask(&hello_script(fault), body).await
    }
}
