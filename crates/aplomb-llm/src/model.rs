//! What a model is, what is asked of it, and what comes of that.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use aplomb_core::Error;
use aplomb_core::error::codes;
use aplomb_core::failure::Failure;
use aplomb_core::message::{Block, CallIds, Delta, ImageSource, Message, Reply, TokenUsage};
use aplomb_core::run::OutputSchema;
use aplomb_core::tool::ToolSpec;
use aplomb_faultlab::script::Script;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clocks::Timeouts;
use crate::mock::MockTransport;
use crate::service::Service;
use crate::structured::{self, Told};
use crate::transport::{HttpTransport, Paths, Request, Target, Transport};
use crate::wire::{self, CachePoint, Parameters, Quirks, Schemas, Wire};

/// Whether answers are streamed: `llm.stream`. With [`Auto`](StreamMode::Auto) those of a model that reasons always are,
/// since that may take it minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[non_exhaustive]
pub enum StreamMode {
    /// Where somebody watches them come.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: whoever watches gets the answer in one piece.
    Never,
}

/// What a model is, and how it is reached.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The provider's name, for messages.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// Which protocol it speaks.
    pub wire: Wire,
    /// Where it is.
    pub endpoint: Endpoint,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// The most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// Whether the model reasons before it answers: it is sent no temperature (but for Google's), and its thoughts count against the limit of
    /// the answer.
    pub reasons: bool,
    /// Whether answers are streamed.
    pub stream: StreamMode,
    /// What the provider is to keep in its cache. Anthropic's protocol alone asks for it; others cache unasked, and refuse
    /// it here.
    pub cache: Vec<CachePoint>,
    /// Merged into each request's body, as a JSON merge patch (RFC 7396): what the provider takes and Aplomb has no word
    /// for. It wins over ours.
    pub extra_body: Map<String, Value>,
    /// Added to the query of each request, such as Azure's `api-version`.
    pub query: Vec<(String, String)>,
    /// How the vendor differs from the protocol.
    pub quirks: Quirks,
    /// Which ids of calls it takes back.
    pub call_ids: CallIds,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// Where a model is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Endpoint {
    /// Behind HTTP.
    Http {
        /// Such as `https://api.openai.com/v1`.
        api_base: String,
        /// Sent as the protocol has it.
        api_key: Option<SecretString>,
        /// Sent with every request; they win over ours.
        extra_headers: BTreeMap<String, SecretString>,
        /// Certificates to trust besides the platform's.
        ca_file: Option<PathBuf>,
    },
    /// In a script.
    Mock(Script),
    /// In this process. It is given the conversation as it is: no wire, and nothing of one, comes between.
    Service(Service),
}

impl ModelConfig {
    /// A model with the defaults of everything else.
    pub fn new(
        provider: impl Into<String>,
        model: impl Into<String>,
        wire: Wire,
        endpoint: Endpoint,
    ) -> ModelConfig {
        let mut quirks = Quirks::default();
        if let Endpoint::Mock(_) = endpoint {
            // A script answers what it answers, and is shown what a model would be told.
            quirks.schemas = Schemas::Never;
        }
        ModelConfig {
            provider: provider.into(),
            model: model.into(),
            wire,
            endpoint,
            temperature: None,
            max_tokens: None,
            reasons: false,
            stream: StreamMode::Auto,
            cache: Vec::new(),
            extra_body: Map::new(),
            query: Vec::new(),
            quirks,
            call_ids: wire.call_ids(),
            timeouts: Timeouts::default(),
        }
    }

    /// What carries requests there.
    ///
    /// # Errors
    ///
    /// `config.validation` if the endpoint is not usable, or there is nothing to carry.
    pub fn transport(&self) -> Result<Box<dyn Transport>, Error> {
        let path = |stream| self.wire.path(&self.model, stream);
        let paths = Paths { whole: path(false), streamed: path(true) };
        Ok(match &self.endpoint {
            Endpoint::Http { api_base, api_key, extra_headers, ca_file } => {
                Box::new(HttpTransport::new(&Target {
                    api_base,
                    paths: &paths,
                    query: &self.query,
                    headers: self.wire.headers(),
                    key_header: self.quirks.key_header.unwrap_or(self.wire.key_header()),
                    api_key: api_key.as_ref(),
                    extra_headers,
                    connect_timeout: self.timeouts.connect,
                    ca_file: ca_file.as_deref(),
                })?)
            }
            Endpoint::Mock(script) => Box::new(MockTransport::new(script.clone(), paths)?),
            Endpoint::Service(_) => {
                let message = format!("provider {:?} is served in this process", self.provider);
                return Err(Error::new(codes::CONFIG_VALIDATION, message));
            }
        })
    }

    /// What is sent to ask that.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON.
    pub fn request(&self, request: ModelRequest<'_>, stream: bool) -> serde_json::Result<Request> {
        let with_tools = !request.tools.is_empty();
        let told = request.output.map(|output| {
            (output, structured::told(output, &self.model, self.wire, self.quirks, with_tools))
        });
        let (format, messages) = match told {
            None => (None, Cow::Borrowed(request.messages)),
            Some((_, Told::Natively(format))) => (Some(format), Cow::Borrowed(request.messages)),
            Some((output, Told::InInstructions)) => {
                (None, Cow::Owned(structured::instructed(request.messages, output)))
            }
        };
        let parameters = Parameters {
            model: &self.model,
            stream,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            reasons: self.reasons,
            cache: &self.cache,
            output: format.as_ref(),
            quirks: self.quirks,
        };
        let mut body = self.wire.request_body(parameters, &messages, request.tools)?;
        if !self.extra_body.is_empty() {
            body = wire::merge(&body, &self.extra_body)?;
        }
        Ok(Request { body: body.into(), stream, api_key: None, run_id: request.run_id.to_owned() })
    }
}

/// What is asked of a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Whose request it is.
    pub run_id: &'a str,
    /// The conversation.
    pub messages: &'a [Arc<Message>],
    /// The tools that it may ask for.
    pub tools: &'a [ToolSpec],
    /// What its output must fit.
    pub output: Option<&'a OutputSchema>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub reply: Reply,
    /// From the attempt's start to the first piece of the answer, where it was streamed.
    pub first_delta_ms: Option<u64>,
}

/// An attempt that failed.
#[derive(Debug)]
pub struct AttemptFailed {
    /// What was seen.
    pub failure: Box<Failure>,
    /// What was used all the same: as the provider said; or estimated and flagged where the answer had begun and nobody
    /// said.
    pub usage: Option<TokenUsage>,
    /// Whether some of the answer was handed to somebody.
    pub delivered: bool,
}

/// Whoever watches an answer come.
pub type DeltaSink<'a> = &'a mut (dyn FnMut(&Delta) + Send);

/// The bytes of the pictures in a conversation. What a picture costs has nothing to do with them.
pub(crate) fn image_bytes(messages: &[Arc<Message>]) -> u64 {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let sizes = blocks.map(|block| match block {
        Block::Image { source: ImageSource::Base64 { data, .. } } => data.len() as u64,
        _ => 0,
    });
    sizes.sum()
}
