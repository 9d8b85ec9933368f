//! The protocols, each with the answer "Hello you", for what is the same on all of them.

use crate::lab::{self, LAST_CHUNK, chunks, hello_script, start};
use crate::raw::Client;
use crate::{golden, golden_anthropic, golden_gemini, golden_responses};
use aplomb_faultlab::server::FaultServer;

/// A protocol and the answer "Hello you" on it.
pub(crate) struct Wire {
    pub(crate) path: &'static str,
    /// Where streams are asked for.
    streamed_path: &'static str,
    pub(crate) streamed: &'static str,
    pub(crate) plain: &'static str,
    /// The header with the number of the request, if there is one.
    id: &'static str,
    /// Content first.
    pub(crate) events: &'static [&'static str],
    pub(crate) content: usize,
    pub(crate) document: &'static str,
}

pub(crate) const OPENAI: Wire = {
    use golden::{DOCUMENT, DONE, HELLO, PLAIN, ROLE, STOP, STREAMED, YOU};
    Wire {
        path: "/v1/chat/completions",
        streamed_path: "/v1/chat/completions",
        streamed: STREAMED,
        plain: PLAIN,
        id: "x-request-id: req_faultlab_1\r\n",
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
        streamed_path: "/v1/messages",
        streamed: STREAMED,
        plain: PLAIN,
        id: "request-id: req_faultlab_1\r\n",
        events: &[START, PING, TEXT, HELLO, YOU, TEXT_END, END_TURN, STOP],
        content: 6,
        document: DOCUMENT,
    }
};

pub(crate) const RESPONSES: Wire = {
    use golden_responses::{
        COMPLETED, CREATED, DOCUMENT, HELLO, IN_PROGRESS, ITEM, ITEM_DONE, PART, PART_DONE, PLAIN, STREAMED,
        TEXT_DONE, YOU,
    };
    Wire {
        path: "/v1/responses",
        streamed_path: "/v1/responses",
        streamed: STREAMED,
        plain: PLAIN,
        id: "x-request-id: req_faultlab_1\r\n",
        events: &[CREATED, IN_PROGRESS, ITEM, PART, HELLO, YOU, TEXT_DONE, PART_DONE, ITEM_DONE, COMPLETED],
        content: 9,
        document: DOCUMENT,
    }
};

pub(crate) const GEMINI: Wire = {
    use golden_gemini::{DOCUMENT, HELLO, PLAIN, STOP, STREAMED, YOU};
    Wire {
        path: "/v1beta/models/m:generateContent",
        streamed_path: "/v1beta/models/m:streamGenerateContent?alt=sse",
        streamed: STREAMED,
        plain: PLAIN,
        id: "",
        events: &[HELLO, YOU, STOP],
        content: 2,
        document: DOCUMENT,
    }
};

pub(crate) const WIRES: [Wire; 4] = [OPENAI, RESPONSES, ANTHROPIC, GEMINI];

impl Wire {
    /// Where this body is posted to.
    pub(crate) fn path_of(&self, body: &str) -> &'static str {
        if body == self.plain { self.path } else { self.streamed_path }
    }

    pub(crate) fn head(&self, content_type: &str, framing: &str) -> String {
        format!("HTTP/1.1 200 \r\ncontent-type: {content_type}\r\n{}{framing}\r\n\r\n", self.id)
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
        (lab::ask(&server, self.path_of(body), body), server)
    }

    pub(crate) async fn hello_with(&self, fault: &str, body: &str) -> (Client, FaultServer) {
        self.ask(&hello_script(fault), body).await
    }
}
