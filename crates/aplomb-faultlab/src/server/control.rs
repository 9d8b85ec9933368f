//! The control port: shows and clears the log, replaces the script. The paths are in the documentation of
//! [`server`](super).

use std::io;
use std::sync::Arc;

use super::connection::{Connection, Head, Length, NoRequest};
use super::state::State;
use crate::script::{Engine, Format, Script};

/// What a request to the control port comes to.
enum Outcome {
    Done,
    Json(Vec<u8>),
    Pem(String),
    Refused(u16, String),
}

/// Serves the connection until one side has had enough of it.
pub(super) async fn converse(mut connection: Connection, state: Arc<State>) {
    loop {
        match exchange(&mut connection, &state).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(NoRequest::Gone) => return,
            Err(NoRequest::Refused { status, message }) => {
                if connection.write_error(status, &message).await.is_err() {
                    return;
                }
                break;
            }
        }
    }
    connection.close().await;
}

/// One request and its answer; whether there may be another.
async fn exchange(connection: &mut Connection, state: &State) -> Result<bool, NoRequest> {
    let head = connection.read_head().await?;
    let body = connection.read_body(&head).await?;
    let outcome = match (head.method.as_str(), head.target.as_str()) {
        ("GET", "/requests") => list(state),
        ("DELETE", "/requests") => {
            state.clear_log();
            Outcome::Done
        }
        ("GET", "/ca.pem") => Outcome::Pem(state.ca_pem()),
        ("POST", "/script") => replace(state, format_of(&head), &body),
        (method, target) => {
            let message = format!(
                "There is no {method} {target}; try GET or DELETE /requests, GET /ca.pem, or POST /script."
            );
            Outcome::Refused(404, message)
        }
    };
    answer(connection, outcome).await?;
    Ok(!head.asks_to_close())
}

fn list(state: &State) -> Outcome {
    match serde_json::to_vec(&state.requests()) {
        Ok(json) => Outcome::Json(json),
        Err(error) => Outcome::Refused(500, format!("The log cannot be written: {error}.")),
    }
}

/// `application/yaml` (RFC 9512) and its older names are YAML, everything else is JSON.
fn format_of(head: &Head) -> Format {
    let is_yaml = |(name, value): &(String, String)| name == "content-type" && value.contains("yaml");
    if head.headers.iter().any(is_yaml) { Format::Yaml } else { Format::Json }
}

fn replace(state: &State, format: Format, body: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(body) else {
        return Outcome::Refused(400, "The script is not UTF-8.".to_owned());
    };
    match Script::read(text, format).and_then(Engine::new).and_then(|engine| state.set_engine(engine)) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Refused(400, error.to_string()),
    }
}

async fn answer(connection: &mut Connection, outcome: Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Done => connection.write_head(204, &[], Length::None).await,
        Outcome::Json(json) => connection.write_json(200, &json).await,
        Outcome::Pem(pem) => {
            connection.write_whole(200, "application/pem-certificate-chain", pem.as_bytes()).await
        }
        Outcome::Refused(status, message) => connection.write_error(status, &message).await,
    }
}
