//! The same calls by hand: reqwest, serde_json, and nothing that looks after failures.

use aplomb::tools::Tool;
use serde_json::{Value, json};

use crate::tool::Product;

pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    tools: Value,
}

impl Client {
    pub(super) fn new(base: &str) -> Client {
        let tls = rustls_config();
        let http =
            reqwest::Client::builder().tls_backend_preconfigured(tls).tcp_nodelay(true).build().unwrap();
        let function = json!({
            "name": "calc", "description": Product.description(), "parameters": Product.parameters(),
        });
        let tools = json!([{"type": "function", "function": function}]);
        Client { http, url: format!("{base}/chat/completions"), tools }
    }

    async fn send(&self, body: &Value) -> reqwest::Response {
        let body = serde_json::to_vec(body).unwrap();
        let request = self.http.post(&self.url).header("content-type", "application/json").body(body);
        request.send().await.unwrap().error_for_status().unwrap()
    }

    pub(super) async fn plain(&self) {
        let answer = self.send(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})).await;
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert!(text_of(&answer).starts_with("word "));
    }

    pub(super) async fn streamed(&self) {
        let body = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
                          "messages": [{"role": "user", "content": "hi"}]});
        let mut answer = self.send(&body).await;
        let (mut buffer, mut text) = (Vec::new(), String::new());
        while let Some(bytes) = answer.chunk().await.unwrap() {
            buffer.extend_from_slice(&bytes);
            while let Some(end) = buffer.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = buffer.drain(..end + 2).collect();
                let data = event.strip_prefix(b"data: ").unwrap();
                if !data.starts_with(b"[DONE]") {
                    let chunk: Value = serde_json::from_slice(data).unwrap();
                    text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
                }
            }
        }
        assert!(text.starts_with("word "));
    }

    pub(super) async fn agent(&self) {
        let tools = &self.tools;
        let user = json!({"role": "user", "content": "hi"});
        let answer = self.send(&json!({"model": "m", "messages": [user], "tools": tools})).await;
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        let message = &answer["choices"][0]["message"];
        let call = &message["tool_calls"][0];
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        let product = Product::multiply(&arguments).to_string();
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": product});
        let answer =
            self.send(&json!({"model": "m", "messages": [user, message, result], "tools": tools})).await;
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert!(text_of(&answer).starts_with("word "));
    }
}

fn text_of(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The address is plain http; without a TLS configuration of some kind reqwest would look for one.
fn rustls_config() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}
