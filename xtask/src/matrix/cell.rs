//! One cell: a fresh provider and a fresh runtime, asked twice.

use std::io::{self, Write};
use std::path::Path;

use aplomb::config::Config;
use aplomb::host::ScaledHost;
use aplomb::{ChunkKind, Error, RunRequest, RunStreamChunk, Runtime};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::expect::{End, Expected};
use super::rows::{GOOD, Row};
use super::{Way, Wire};

pub(crate) struct Cell<'a> {
    pub(crate) row: &'a Row,
    pub(crate) wire: Wire,
    pub(crate) way: Way,
}

/// What came of a run.
struct Seen {
    output: Result<String, Error>,
    requests: usize,
    /// What a watcher has in the end, and how often it was told to begin anew.
    watched: Option<(String, usize)>,
}

impl Cell<'_> {
    /// Runs it, and says what is not as expected. An error is one of the bench, and no finding.
    pub(crate) async fn run(&self) -> Result<Option<String>, String> {
        let expected = Expected::of(self.row.effect(self.wire, self.way));
        // A call that cannot be done would be asked for for ever.
        let once = self.row.once(self.wire);
        let lasting = if self.row.calls_tools() { once.clone() } else { self.row.lasting(self.wire) };
        let seen = self.ask(lasting).await?;
        if let Some(wrong) = self.wrong(&seen, expected.lasting, expected.restarts.0) {
            return Ok(Some(format!("lasting: {wrong}")));
        }
        let seen = self.ask(once).await?;
        Ok(self.wrong(&seen, expected.once, expected.restarts.1).map(|wrong| format!("once: {wrong}")))
    }

    async fn ask(&self, script: Value) -> Result<Seen, String> {
        let script = Script::from_json(&script.to_string())
            .map_err(|error| format!("{}: the script is not valid: {error}", self.row.name))?;
        let server = FaultServer::start(script)
            .await
            .map_err(|error| format!("cannot start the fault lab: {error}"))?;
        let authority = authority(&server).map_err(|error| format!("cannot write a certificate: {error}"))?;
        let config = self.config(&server, authority.as_ref().map(NamedTempFile::path));
        let config = Config::from_json(&config.to_string(), "agent.json")
            .map_err(|error| format!("the config is not valid: {error}"))?;
        let runtime = Runtime::builder(config)
            .host(ScaledHost::new(0.01))
            .build()
            .map_err(|error| format!("the runtime cannot be built: {error}"))?;
        let request = RunRequest::new("assistant", "hi");
        let (output, watched) = match self.way {
            Way::Plain => (runtime.run_detailed(request).await.and_then(|run| run.into_output()), None),
            Way::Streamed => {
                let stream = runtime.run_stream(request).map_err(|error| error.to_string())?;
                let chunks: Vec<RunStreamChunk> = stream.collect().await;
                let result = chunks.iter().find_map(|chunk| chunk.result.clone());
                let result = result.ok_or("a stream ended without its result")?;
                (result.into_output(), Some(kept(&chunks)))
            }
        };
        Ok(Seen { output, requests: server.request_count(), watched })
    }

    fn wrong(&self, seen: &Seen, (end, attempts): (End, usize), restarts: usize) -> Option<String> {
        let ended = match &seen.output {
            Ok(_) => "an answer".to_owned(),
            Err(error) => error.to_string(),
        };
        let as_expected = match (&seen.output, end) {
            (Ok(output), End::Answered) => output == GOOD,
            (Err(error), End::Failed { reason, retryable, permanently }) => {
                error.reason() == Some(reason.as_str())
                    && error.code() == reason.code(retryable)
                    && error.message().contains("failed permanently") == permanently
                    && error.attempts().len() == attempts
            }
            _ => false,
        };
        if !as_expected {
            return Some(format!("expected {end:?}, got {ended}"));
        }
        let requests = self.row.requests(attempts, end);
        if seen.requests != requests {
            return Some(format!("expected {requests} requests, got {}", seen.requests));
        }
        let (text, restarted) = seen.watched.as_ref()?;
        if end == End::Answered && text != GOOD {
            return Some(format!("a watcher is left with {text:?}"));
        }
        // Words that stand twice would be more than there are.
        if !GOOD.starts_with(text.as_str()) {
            return Some(format!("a watcher has {text:?} in its hands"));
        }
        (restarts != *restarted).then(|| format!("expected {restarts} restarts, got {restarted}"))
    }

    fn config(&self, server: &FaultServer, ca_file: Option<&Path>) -> Value {
        let (provider, style) = match self.wire {
            Wire::OpenAiChat => ("openai_compatible", Some("chat_completions")),
            Wire::OpenAiResponses => ("openai_compatible", Some("responses")),
            Wire::Anthropic => ("anthropic", None),
            Wire::Gemini => ("gemini", None),
        };
        let llm = json!({
            "provider": provider,
            "openai_api_style": style,
            "model": "m",
            "api_base": server.base_url(),
            // Cargo sets it, so that there is a key to send.
            "api_key_env": "CARGO_MANIFEST_DIR",
            "timeouts": self.row.timeouts(),
            "ca_file": ca_file,
        });
        let tools = json!([{ "id": "calc", "type": "calc" }]);
        json!({ "version": "1.0", "agents": [{ "id": "assistant", "llm": llm, "tools": tools }] })
    }
}

/// A file with the authority that vouches for the server, where there is one to be vouched for.
fn authority(server: &FaultServer) -> io::Result<Option<NamedTempFile>> {
    if !server.base_url().starts_with("https") {
        return Ok(None);
    }
    let mut file = NamedTempFile::new()?;
    file.write_all(server.ca_pem().as_bytes())?;
    Ok(Some(file))
}

/// The text that is left to somebody who follows `discard_from`, and how often there was one.
fn kept(chunks: &[RunStreamChunk]) -> (String, usize) {
    let mut kept: Vec<(u64, &str)> = Vec::new();
    let mut restarts = 0;
    for chunk in chunks {
        let payload = &chunk.payload;
        match chunk.kind {
            ChunkKind::LlmDelta if payload.get("kind").is_some_and(|kind| kind == "text") => {
                kept.extend(payload.get("text").and_then(Value::as_str).map(|text| (chunk.sequence, text)));
            }
            ChunkKind::LlmRestarted => {
                restarts += 1;
                let discard_from = payload.get("discard_from").and_then(Value::as_u64).unwrap_or_default();
                kept.retain(|(sequence, _)| *sequence < discard_from);
            }
            _ => {}
        }
    }
    (kept.into_iter().map(|(_, text)| text).collect(), restarts)
}
