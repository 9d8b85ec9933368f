//! A model, ready to be asked: over a wire, or in this process.

use std::time::Duration;

use aplomb_core::Error;
use aplomb_core::error::codes;
use aplomb_core::failure::{Failure, Phase, TransportKind};
use aplomb_core::message::TokenUsage;
use secrecy::{ExposeSecret, SecretString};

use crate::clocks::Clocks;
use crate::credentials;
use crate::exchange::Attempt;
use crate::model::{
    Answer, AttemptFailed, DeltaSink, Endpoint, ModelConfig, ModelRequest, StreamMode, image_bytes,
};
use crate::served;
use crate::service::Service;
use crate::transport::{Request, Transport};
use crate::usage;

/// A model, ready to be asked.
pub struct Model {
    config: ModelConfig,
    way: Way,
}

/// How a model is asked.
enum Way {
    Wire(Box<dyn Transport>),
    Service(Service),
}

impl Model {
    /// Makes ready to ask a model. Sends nothing.
    ///
    /// # Errors
    ///
    /// `config.validation` if the endpoint is not usable, or the protocol cannot say what is to be cached.
    pub fn new(config: ModelConfig) -> Result<Model, Error> {
        if !config.cache.is_empty() && !config.wire.takes_cache_points() {
            let message = format!("a cache has no use with provider {:?}", config.provider);
            return Err(Error::new(codes::CONFIG_VALIDATION, message)
                .with_context("path", "llm.cache")
                .with_hint("Anthropic's protocol alone asks for caching; other providers cache unasked"));
        }
        let way = match &config.endpoint {
            Endpoint::Service(service) => Way::Service(service.clone()),
            _ => Way::Wire(config.transport()?),
        };
        Ok(Model { config, way })
    }

    /// What the model is.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Makes one attempt. With a sink, somebody watches: each delta is handed over as it comes.
    ///
    /// Dropping the future ends the attempt and closes its connection.
    ///
    /// # Errors
    ///
    /// Whatever the network, the provider or the answer was wrong with. Nothing was repeated.
    pub async fn ask(
        &self,
        request: ModelRequest<'_>,
        sink: Option<DeltaSink<'_>>,
    ) -> Result<Answer, AttemptFailed> {
        self.ask_with(request, None, sink).await
    }

    /// The same, with another key than the one that the model was made with.
    ///
    /// # Errors
    ///
    /// As [`ask`](Model::ask) does.
    pub async fn ask_with(
        &self,
        request: ModelRequest<'_>,
        api_key: Option<&SecretString>,
        sink: Option<DeltaSink<'_>>,
    ) -> Result<Answer, AttemptFailed> {
        let transport = match &self.way {
            Way::Wire(transport) => &**transport,
            Way::Service(service) => {
                let asked = served::attempt(service, &self.config, request, api_key, sink).await;
                return asked.map_err(|failed| {
                    let failure = Box::new(self.completed(*failed.failure, api_key));
                    AttemptFailed { failure, ..failed }
                });
            }
        };
        let stream = match self.config.stream {
            StreamMode::Always => true,
            StreamMode::Never => false,
            // A model that reasons is silent for longer than the first-byte clock allows.
            StreamMode::Auto => sink.is_some() || self.config.reasons,
        };
        let mut attempt = Attempt {
            wire: self.config.wire,
            quirks: self.config.quirks,
            clocks: Clocks::start(&self.config.timeouts),
            connects_within: match self.config.endpoint {
                Endpoint::Http { .. } => self.config.timeouts.connect,
                Endpoint::Mock(_) | Endpoint::Service(_) => Duration::ZERO,
            },
            sink,
            usage: None,
            arrived: 0,
            connected: false,
            pool: None,
            delivered: false,
            first_delta_ms: None,
        };
        let mut sent = 0;
        let begun = match self.config.request(request, stream) {
            Ok(http) => {
                sent = (http.body.len() as u64).saturating_sub(image_bytes(request.messages));
                Ok(transport.send(Request { api_key: api_key.cloned(), ..http }))
            }
            Err(error) => {
                let text = format!("the request cannot be written as JSON: {error}");
                Err(Box::new(Failure::transport(Phase::Connect, TransportKind::Request, &text)))
            }
        };
        let outcome = match begun {
            Ok(begun) => attempt.make(begun, stream).await,
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(mut reply) => {
                // Some servers never say what was used. It was not nothing.
                reply.usage.get_or_insert_with(|| TokenUsage::estimate(sent, attempt.arrived));
                Ok(Answer { reply, first_delta_ms: attempt.first_delta_ms })
            }
            Err(failure) => {
                if let (Some(fault), Some(pool)) = (&failure.transport, attempt.pool)
                    && spoils_connections(fault.kind)
                {
                    transport.distrust(pool);
                }
                Err(AttemptFailed {
                    usage: usage::of_failed(
                        &failure,
                        attempt.usage,
                        sent,
                        attempt.arrived,
                        attempt.connected,
                    ),
                    failure: Box::new(self.completed(*failure, api_key)),
                    delivered: attempt.delivered,
                })
            }
        }
    }

    /// The credentials that are sent with requests.
    pub fn credentials(&self) -> impl Iterator<Item = &str> {
        let (key, headers) = match &self.config.endpoint {
            Endpoint::Http { api_key, extra_headers, .. } => (api_key.as_ref(), Some(extra_headers)),
            Endpoint::Mock(_) | Endpoint::Service(_) => (None, None),
        };
        let headers = headers.into_iter().flatten().filter(|(name, _)| !credentials::is_public(name));
        let values =
            key.into_iter().chain(headers.map(|(_, value)| value)).map(|secret| secret.expose_secret());
        values.flat_map(credentials::of_header).chain(credentials::of_fields(&self.config.extra_body))
    }

    /// The failure with whose it is, and without the secrets that were sent, which some providers repeat.
    fn completed(&self, mut failure: Failure, api_key: Option<&SecretString>) -> Failure {
        failure.provider.clone_from(&self.config.provider);
        failure.model.clone_from(&self.config.model);
        if let Endpoint::Http { api_base, .. } = &self.config.endpoint {
            failure.endpoint.clone_from(api_base);
        }
        failure.seal(self.credentials().chain(api_key.map(|key| key.expose_secret())));
        failure
    }
}

/// Whether a connection with that fault may be dead or silent, and others of its pool with it. A stream that the peer gave
/// up says nothing about its connection; the other kinds here are of connections that never were.
fn spoils_connections(kind: TransportKind) -> bool {
    !matches!(
        kind,
        TransportKind::StreamReset
            | TransportKind::Request
            | TransportKind::Dns
            | TransportKind::Refused
            | TransportKind::Certificate
            | TransportKind::Tls
            | TransportKind::TlsInterrupted
            | TransportKind::Connect
            | TransportKind::ConnectTimeout
    )
}
