//! What goes over the network: the path, the query, the headers and the body of a request, as a server sees them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use aplomb_core::message::{Message, Role};
use aplomb_llm::vendors::{ApiStyle, Wanted, find};
use aplomb_llm::{Model, ModelConfig, ModelRequest, StreamMode};
use secrecy::SecretString;
use serde_json::{Value, json};

/// Sends one request and gives its head, in lower case, and its body.
fn seen(
    vendor: &str,
    want: impl FnOnce(&mut Wanted),
    change: impl FnOnce(&mut ModelConfig),
) -> (String, Value) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut wanted = Wanted {
        model: "my-model".to_owned(),
        api_base: Some(format!("http://{}", server.local_addr().unwrap())),
        api_key: Some(SecretString::from("my-key".to_owned())),
        ..Wanted::default()
    };
    want(&mut wanted);
    let mut config = find(vendor).unwrap().model(wanted).unwrap();
    change(&mut config);
    let serving = thread::spawn(move || {
        let (mut connection, _) = server.accept().unwrap();
        let mut request = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let count = connection.read(&mut bytes).unwrap();
            request.extend_from_slice(bytes.get(..count).unwrap());
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n")
                && let Ok(body) = serde_json::from_str(body)
            {
                connection.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
                return (head.to_ascii_lowercase(), body);
            }
        }
    });
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let messages = [Arc::new(Message::text(Role::User, "hi"))];
    let model = Model::new(config).unwrap();
    let failed = tokio.block_on(
        model.ask(ModelRequest { run_id: "r", messages: &messages, tools: &[], output: None }, None),
    );
    assert_eq!(failed.unwrap_err().failure.status, Some(400));
    serving.join().unwrap()
}

#[test]
fn geminis_model_is_in_the_path_and_its_key_in_a_header_of_its_own() {
    let (head, body) = seen("gemini", |_| {}, |config| config.stream = StreamMode::Always);
    assert!(head.starts_with("post /models/my-model:streamgeneratecontent?alt=sse http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-goog-api-key: my-key"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
    assert_eq!(body, json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}));
    let (head, _) = seen("gemini", |_| {}, |_| {});
    assert!(head.starts_with("post /models/my-model:generatecontent http/1.1\r\n"), "{head}");
}

#[test]
fn azure_is_asked_by_deployment_and_version_with_a_header_of_its_own() {
    let version = |wanted: &mut Wanted| wanted.api_version = Some("2024-10-21".to_owned());
    let (head, _) = seen("azure", version, |_| {});
    let line = "post /openai/deployments/my-model/chat/completions?api-version=2024-10-21 http/1.1\r\n";
    assert!(head.starts_with(line), "{head}");
    assert!(head.contains("\r\napi-key: my-key") && !head.contains("authorization"), "{head}");
    let (head, _) = seen("azure", |wanted| wanted.style = Some(ApiStyle::Responses), |_| {});
    assert!(head.starts_with("post /openai/v1/responses http/1.1\r\n"), "{head}");
}

#[test]
fn the_users_own_fields_are_in_the_body_and_in_the_place_of_ours() {
    let (head, body) = seen(
        "openai",
        |wanted| wanted.model = "gpt-5".to_owned(),
        |config| {
            config.temperature = Some(0.5);
            config.max_tokens = Some(100);
            let fields =
                json!({"reasoning_effort": "low", "stream_options": null, "max_completion_tokens": 7});
            config.extra_body = fields.as_object().unwrap().clone();
        },
    );
    assert!(head.starts_with("post /chat/completions http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nauthorization: bearer my-key"), "{head}");
    // A model that reasons is streamed though nobody watches, and is sent no temperature.
    assert_eq!(
        body,
        json!({"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "stream": true,
               "reasoning_effort": "low", "max_completion_tokens": 7})
    );
}
