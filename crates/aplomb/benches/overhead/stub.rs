//! A server that answers as fast as it can, with the same bytes every time.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::json;

/// Starts the server on its own core and gives the API's base.
pub(super) fn start(core: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || {
        super::pin(core);
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || {
                super::pin(core);
                serve(stream);
            });
        }
    });
    base
}

fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let (plain, streamed, tool_call) = (plain(), streamed(), tool_call());
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(body) = read_request(&mut reader) {
        let wants = |word: &str| body.windows(word.len()).any(|window| window == word.as_bytes());
        let answer = if wants("\"stream\":true") {
            &streamed
        } else if wants("\"tools\"") && !wants("\"role\":\"tool\"") {
            &tool_call
        } else {
            &plain
        };
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn whole(message: serde_json::Value, finish: &str) -> Vec<u8> {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 60},
    })
    .to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

fn plain() -> Vec<u8> {
    whole(json!({"role": "assistant", "content": "word ".repeat(50)}), "stop")
}

fn tool_call() -> Vec<u8> {
    let call = json!({"id": "call_1", "type": "function",
                      "function": {"name": "calc", "arguments": "{\"expression\":\"9*9\"}"}});
    whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
}

fn streamed() -> Vec<u8> {
    let chunk = |delta: serde_json::Value, finish: Option<&str>| {
        json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
        .to_string()
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    events.extend((0..50).map(|_| chunk(json!({"content": "word "}), None)));
    events.push(chunk(json!({}), Some("stop")));
    events.push("[DONE]".to_owned());
    let mut answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    for event in events {
        write!(answer, "{:x}\r\ndata: {event}\n\n\r\n", "data: \n\n".len() + event.len()).unwrap();
    }
    answer.push_str("0\r\n\r\n");
    answer.into()
}
