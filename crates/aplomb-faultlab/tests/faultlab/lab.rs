//! What the golden tests of all protocols share: servers, requests, chunks.

use crate::raw::Client;
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;

pub(crate) const LAST_CHUNK: &str = "0\r\n\r\n";

/// One step that says "Hello you", with this fault.
pub(crate) fn hello_script(fault: &str) -> String {
    script(r#"{ "text": "Hello you" }"#, fault)
}

/// One step with this message and this fault.
pub(crate) fn script(message: &str, fault: &str) -> String {
    format!(r#"{{ "steps": [ {{ "reply": {{ "message": {message} }}, "fault": {fault} }} ] }}"#)
}

pub(crate) async fn start(script: &str) -> FaultServer {
    FaultServer::start(Script::from_json(script).unwrap()).await.unwrap()
}

/// A client that has sent this request.
pub(crate) fn ask(server: &FaultServer, path: &str, body: &str) -> Client {
    let mut client = Client::connect(server.addr());
    client.post_to(path, body);
    client
}

pub(crate) fn chunks(events: &[&str]) -> String {
    events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect()
}
