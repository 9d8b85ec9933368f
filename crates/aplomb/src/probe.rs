//! Asks an agent's model for one token: whether it can be reached, takes the key, and has the right time.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aplomb_core::error::{Error, codes};
use aplomb_core::failure::classify::classify;
use aplomb_core::failure::{Anomaly, Failure, Phase, Reason};
use aplomb_core::message::{Message, Role};
use aplomb_llm::ModelRequest;
use aplomb_llm::model::Endpoint;
use futures_util::StreamExt;
use secrecy::{ExposeSecret, SecretString};

use crate::config::AgentConfig;
use crate::host::Host;
use crate::model::model_config;
use crate::plugins::Registry;

/// The most bytes of an answer that are looked at.
const LONGEST: usize = 64 * 1024;

/// What came of asking a model for one token.
#[derive(Debug)]
#[non_exhaustive]
pub struct Probe {
    /// Where it was asked; none of a model in this process, which is not asked.
    pub endpoint: Option<String>,
    /// Which model it was.
    pub model: String,
    /// Whether it answered. A model that refuses the question, and not the key, has been reached.
    pub outcome: Result<(), Error>,
    /// How far this machine's clock is ahead of the provider's, in ms, where it told the time. Exact to a second.
    pub clock_ahead_ms: Option<i64>,
}

/// Asks an agent's model for one token: the smallest request that there is. It is sent once.
///
/// # Errors
///
/// `config.*` if the agent could not be made ready, its key included.
pub async fn probe(agent: &AgentConfig, registry: &Registry, host: &impl Host) -> Result<Probe, Error> {
    let mut model = model_config(agent, registry, host).await?;
    if let Some(model) = &mut model {
        model.max_tokens = Some(1);
    }
    let Some((model, Endpoint::Http { api_base, api_key, extra_headers, .. })) =
        model.as_ref().map(|model| (model, &model.endpoint))
    else {
        let model = agent.llm.model.as_ref().unwrap_or(&agent.llm.provider).clone();
        return Ok(Probe { endpoint: None, model, outcome: Ok(()), clock_ahead_ms: None });
    };
    let limit = model.timeouts.first_byte;
    let transport = model.transport()?;
    let question = [Arc::new(Message::text(Role::User, "hi"))];
    let question = ModelRequest { run_id: "doctor", messages: &question, tools: &[], output: None };
    let request = model.request(question, false);
    let request = request.map_err(|error| Error::foreign(codes::CONFIG_ERROR, error))?;
    let asked = async {
        let response = transport.send(request).response.await.map_err(|fault| {
            let failure = Failure::transport(Phase::Connect, fault.kind, &fault.text);
            (failure, None)
        })?;
        let date = response.headers.get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
        let received_ms = host.wall_ms();
        let clock_ahead_ms = date.and_then(|date| ahead_ms(&date, received_ms));
        let (status, headers, mut body) = (response.status, response.headers, response.body);
        let mut read = Vec::new();
        while let Some(Ok(piece)) = body.next().await
            && read.len() < LONGEST
        {
            read.extend_from_slice(&piece);
        }
        let failure = if (200..300).contains(&status) {
            match model.wire.decode_body(&read).0 {
                Ok(_) => return Ok(clock_ahead_ms),
                // One token may be too few for a word.
                Err(failure) if failure.anomaly == Some(Anomaly::EmptyAtTokenLimit) => {
                    return Ok(clock_ahead_ms);
                }
                Err(failure) => *failure,
            }
        } else {
            Failure::status(status, &read)
        };
        let readable = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        Err((failure.with_headers(readable), clock_ahead_ms))
    };
    let secrets = || api_key.iter().chain(extra_headers.values());
    let (outcome, clock_ahead_ms) = tokio::select! {
        asked = asked => match asked {
            Ok(clock_ahead_ms) => (Ok(()), clock_ahead_ms),
            Err((failure, clock_ahead_ms)) => (said(failure, secrets()), clock_ahead_ms),
        },
        () = host.sleep(limit) => (Err(too_late(limit)), None),
    };
    Ok(Probe { endpoint: Some(api_base.clone()), model: model.model.clone(), outcome, clock_ahead_ms })
}

fn too_late(limit: Duration) -> Error {
    Error::new(codes::LLM_CONNECTION, format!("no answer within {} ms", limit.as_millis()))
        .with_hint("look at the address and the network, or raise llm.timeout_ms")
}

/// What a failure says of the endpoint.
fn said<'a>(mut failure: Failure, secrets: impl Iterator<Item = &'a SecretString>) -> Result<(), Error> {
    failure.seal(secrets.map(|secret| secret.expose_secret()));
    let verdict = classify(&failure);
    // A model that refuses the question, in words of its own, has been reached. A page that is not there has not.
    let refused =
        matches!(verdict.reason, Reason::InvalidRequest | Reason::ContentFilter | Reason::ContextOverflow);
    if refused && matches!(failure.status, Some(400 | 422)) && !failure.provider_error.is_empty() {
        return Ok(());
    }
    let error =
        Error::new(verdict.code(), failure.to_string()).with_context("reason", verdict.reason.as_str());
    Err(match verdict.reason.hint() {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}

/// How far a clock is ahead of an HTTP date. Source: RFC 9110, §6.6.1.
fn ahead_ms(date: &str, received_ms: u64) -> Option<i64> {
    let date = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let date_ms = i64::try_from(date.as_millis()).ok()?;
    i64::try_from(received_ms).ok()?.checked_sub(date_ms)
}
