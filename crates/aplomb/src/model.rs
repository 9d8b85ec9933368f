//! A model, made ready from its config: whose it is, how it is reached, and where its credential comes from.

use std::sync::Arc;
use std::time::Duration;

use aplomb_core::error::{Error, codes};
use aplomb_core::message::CallIds;
use aplomb_core::redact;
use aplomb_core::run::{Capability, Pricing, Target};
use aplomb_llm::model::Endpoint;
use aplomb_llm::service::{ModelService, Service};
use aplomb_llm::vendors::{Place, Vendor, Wanted};
use aplomb_llm::wire::{Schemas, Wire};
use aplomb_llm::{Model, ModelConfig, Timeouts};
use secrecy::SecretString;

use crate::boundary;
use crate::config::{AgentConfig, LlmConfig, OutputSchemaMode, PricingConfig};
use crate::credential::{
    CommandCredential, Credential, CredentialRequest, EnvCredential, Keyring, SharedSource, TIME_LIMIT,
};
use crate::host::Host;
use crate::plugins::{Provider, Registry};

/// A model that can be asked.
pub(crate) struct Asked {
    /// What can be asked of it besides text.
    pub(crate) offers: Vec<Capability>,
    pub(crate) target: Target,
    pub(crate) model: Arc<Model>,
    /// None where nothing is to be sent.
    pub(crate) keyring: Option<Keyring>,
}

impl Asked {
    /// `own` is the program's source of credentials, which goes before the config's.
    pub(crate) fn new(
        llm: &LlmConfig,
        registry: &Registry,
        own: Option<&SharedSource>,
    ) -> Result<Asked, Error> {
        let provider = provider(llm, registry)?;
        let source = source(llm, provider, own)?;
        let mut config = config_with(llm, provider, source.as_ref())?;
        let mut offers = match &config.endpoint {
            Endpoint::Service(Service(service)) => {
                let who = format!("provider {:?}", provider.name());
                let offers = boundary::ask(&who, "what it offers", || service.offers().to_vec())?;
                let has_a_say = llm.output_schema == OutputSchemaMode::Auto;
                if has_a_say && !offers.contains(&Capability::StructuredOutput) {
                    config.quirks.schemas = Schemas::Never;
                }
                offers
            }
            _ => vec![Capability::Tools, Capability::Images],
        };
        offers.retain(|offer| *offer != Capability::StructuredOutput);
        if config.quirks.schemas != Schemas::Never {
            offers.push(Capability::StructuredOutput);
        }
        let model = Model::new(config)?;
        let keyring = source.map(|source| source.keyring(&model));
        let mut target = Target::new(provider.name(), model.config().model.as_str());
        target.call_ids = model.config().call_ids;
        target.rereads_credential = keyring.is_some();
        target.pricing = pricing(llm);
        Ok(Asked { offers, target, model: Arc::new(model), keyring })
    }
}

fn pricing(llm: &LlmConfig) -> Option<Pricing> {
    llm.pricing.as_ref().map(PricingConfig::pricing)
}

/// An agent's models by their places, as far as a budget is concerned: without what it takes to ask them.
pub(crate) fn priced(agent: &AgentConfig) -> Vec<Target> {
    let models = [&agent.llm].into_iter().chain(&agent.llm.fallbacks);
    let target = |llm: &LlmConfig| {
        let mut target = Target::new(llm.provider.as_str(), llm.model.as_ref().unwrap_or(&llm.provider));
        target.pricing = pricing(llm);
        target
    };
    models.map(target).collect()
}

/// The config of an agent's model, with the credential that its source gives now. None of a model in this process, which is
/// not made for that.
pub(crate) async fn model_config(
    agent: &AgentConfig,
    registry: &Registry,
    host: &impl Host,
) -> Result<Option<ModelConfig>, Error> {
    let llm = &agent.llm;
    let provider = provider(llm, registry)?;
    let mut source = source(llm, provider, None)?;
    if let Some(source) = source.as_mut().filter(|source| source.read.is_none()) {
        let request = CredentialRequest::for_agent(&agent.id, provider.name(), llm.model.as_deref());
        source.read = Some(source.shared.read(request, host.sleep(TIME_LIMIT)).await?);
    }
    match provider {
        Provider::Vendor(_) => config_with(llm, provider, source.as_ref()).map(Some),
        Provider::Mock | Provider::Service(_) => Ok(None),
    }
}

/// The credentials of an agent's models, as far as the environment has them.
pub(crate) fn keys(agent: &AgentConfig, registry: &Registry) -> Vec<SecretString> {
    let models = [&agent.llm].into_iter().chain(&agent.llm.fallbacks);
    let key = |llm: &LlmConfig| source(llm, provider(llm, registry).ok()?, None).ok()??.now();
    models.filter_map(key).collect()
}

/// Whether a model's key is where it should be.
pub(crate) fn check_key(llm: &LlmConfig, registry: &Registry) -> Result<(), Error> {
    source(llm, provider(llm, registry)?, None).map(|_| ())
}

fn provider<'a>(llm: &LlmConfig, registry: &'a Registry) -> Result<Provider<'a>, Error> {
    registry.find_provider(&llm.provider).ok_or_else(|| {
        let message = format!("no provider is called {:?}", llm.provider);
        Error::new(codes::CONFIG_VALIDATION, message).with_context("path", "llm.provider")
    })
}

fn config_with(
    llm: &LlmConfig,
    provider: Provider<'_>,
    source: Option<&Source>,
) -> Result<ModelConfig, Error> {
    // A model in this process needs no name.
    let model = llm.model.clone().unwrap_or_else(|| provider.name().to_owned());
    let mut config = match provider {
        Provider::Mock => {
            let script = llm.script.clone().ok_or_else(|| {
                let error = Error::new(codes::CONFIG_VALIDATION, "mock needs a script to play");
                error.with_context("path", "llm.script")
            })?;
            ModelConfig::new(provider.name(), model, Wire::OpenaiChat, Endpoint::Mock(script))
        }
        Provider::Service(plugin) => {
            let service: Arc<dyn ModelService> = plugin.make(&llm.provider_config).map_err(|error| {
                error.with_place("llm.provider_config").with_context("path", "llm.provider_config")
            })?;
            let endpoint = Endpoint::Service(Service(service));
            let mut config = ModelConfig::new(provider.name(), model, Wire::OpenaiChat, endpoint);
            // No protocol stands between, and none has rules for them.
            config.call_ids = CallIds::Any;
            config
        }
        Provider::Vendor(vendor) => vendor.model(Wanted {
            model,
            style: llm.openai_api_style,
            api_base: llm.api_base.clone(),
            api_version: llm.api_version.clone(),
            api_key: source.and_then(Source::now),
            extra_headers: llm.extra_headers.secret(),
            ca_file: llm.ca_file.clone(),
            reasons: llm.reasoning_model,
        })?,
    };
    match llm.output_schema {
        OutputSchemaMode::Auto => {}
        OutputSchemaMode::Native => config.quirks.schemas = Schemas::Always,
        OutputSchemaMode::Instructions => config.quirks.schemas = Schemas::Never,
    }
    config.temperature = llm.temperature;
    config.max_tokens = llm.max_tokens;
    config.stream = llm.stream;
    config.cache.clone_from(&llm.cache);
    config.extra_body = llm.extra_body.0.clone();
    config.timeouts = timeouts(llm);
    Ok(config)
}

fn timeouts(llm: &LlmConfig) -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.connect = Duration::from_millis(llm.timeouts.connect_ms);
    timeouts.first_byte = Duration::from_millis(llm.first_byte_ms());
    timeouts.idle = Duration::from_millis(llm.timeouts.idle_ms);
    timeouts.attempt = llm.timeouts.attempt_ms.map(Duration::from_millis);
    timeouts
}

/// Where a model's credential comes from.
struct Source {
    shared: SharedSource,
    /// What it has given already.
    read: Option<Credential>,
}

impl Source {
    fn now(&self) -> Option<SecretString> {
        self.read.as_ref().map(|credential| credential.secret().clone())
    }

    fn keyring(self, model: &Model) -> Keyring {
        let keyring = Keyring::of(model, self.shared);
        match self.read {
            Some(read) => keyring.having_read(read),
            None => keyring,
        }
    }
}

/// The program's own source, or `llm.api_key_env`, or `llm.api_key_command`, or the variable that the vendor's key is in by
/// custom.
fn source(
    llm: &LlmConfig,
    provider: Provider<'_>,
    own: Option<&SharedSource>,
) -> Result<Option<Source>, Error> {
    if let Provider::Mock = provider {
        return Ok(None);
    }
    if let Some(own) = own {
        return Ok(Some(Source { shared: own.clone(), read: None }));
    }
    if let Some(variable) = &llm.api_key_env {
        return Ok(Some(in_variable(variable, named_variable(variable)?)));
    }
    if let Some(command) = &llm.api_key_command {
        let command = CommandCredential::from_line(command)?;
        return Ok(Some(Source { shared: SharedSource(Arc::new(command)), read: None }));
    }
    match provider {
        Provider::Vendor(vendor) => by_custom(llm, vendor),
        Provider::Mock | Provider::Service(_) => Ok(None),
    }
}

fn in_variable(variable: &str, read: Credential) -> Source {
    Source { shared: SharedSource(Arc::new(EnvCredential::new(variable))), read: Some(read) }
}

/// Nobody said where the key is: it is where the vendor's documentation puts it, unless the user's headers do without.
fn by_custom(llm: &LlmConfig, vendor: &Vendor) -> Result<Option<Source>, Error> {
    let Some(variable) = vendor.key_variable.filter(|_| !brings_key(llm, vendor)) else {
        return Ok(None);
    };
    // An address of the config's may be anybody's: a key goes there only if the config says so.
    if llm.api_base.is_some() && vendor.place != Place::AzureResource {
        return Ok(None);
    }
    match EnvCredential::new(variable).now() {
        Some(read) => Ok(Some(in_variable(variable, read))),
        None if !vendor.needs_key => Ok(None),
        None => {
            let message = format!("{} needs a key, and {variable} is not set", vendor.name);
            Err(Error::new(codes::CONFIG_LOAD, message)
                .with_hint(format!("export {variable}=…, or name another variable in llm.api_key_env"))
                .with_context("path", "llm.api_key_env"))
        }
    }
}

/// Whether one of the user's headers is the one that carries the key.
fn brings_key(llm: &LlmConfig, vendor: &Vendor) -> bool {
    let (key_header, _) = vendor.quirks.key_header.unwrap_or(vendor.wire.key_header());
    llm.extra_headers.0.keys().any(|name| name.eq_ignore_ascii_case(key_header))
}

/// The key in the variable that the config names.
fn named_variable(variable: &str) -> Result<Credential, Error> {
    if let Some(credential) = EnvCredential::new(variable).now() {
        return Ok(credential);
    }
    // Whoever puts the key itself here must not find it in a log: only what looks like a variable's name is repeated.
    let looks_like_a_name = variable.starts_with(|first: char| first.is_ascii_uppercase())
        && variable.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
        && variable.contains('_');
    let error = if looks_like_a_name && redact::text(variable) == variable {
        Error::new(codes::CONFIG_LOAD, format!("the key's variable is {variable}, which is not set"))
            .with_hint(format!("export {variable}=…"))
    } else {
        Error::new(codes::CONFIG_LOAD, "the key's environment variable is not set")
            .with_hint("it takes the variable's name, such as OPENAI_API_KEY, and not the key itself")
    };
    Err(error.with_context("path", "llm.api_key_env"))
}
