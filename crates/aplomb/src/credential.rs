//! Where credentials come from, and how one that was refused is read again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aplomb_core::error::{Error, codes};
use aplomb_core::redact;
use aplomb_core::run::Identity;
use aplomb_llm::Model;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use crate::host::RunClock;
use crate::process::{self, Output};

/// How long a source may take.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The most bytes that a command may write: a credential is a line.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// A credential. Shown to nobody: it has no text but for the provider.
#[derive(Clone)]
pub struct Credential(SecretString);

impl Credential {
    /// The credential without the white space around it.
    pub fn new(credential: impl AsRef<str>) -> Credential {
        Credential(SecretString::from(credential.as_ref().trim().to_owned()))
    }

    pub(crate) fn secret(&self) -> &SecretString {
        &self.0
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Credential) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for Credential {}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// Who needs a credential, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialRequest {
    /// The agent.
    pub agent_id: String,
    /// The session, which may be a tenant's.
    pub session_id: String,
    /// The run.
    pub run_id: String,
    /// The provider that it is for.
    pub provider: String,
    /// The model that it is for.
    pub model: String,
}

impl CredentialRequest {
    /// Outside of any run.
    pub(crate) fn for_agent(agent_id: &str, provider: &str, model: Option<&str>) -> CredentialRequest {
        CredentialRequest {
            agent_id: agent_id.to_owned(),
            session_id: String::new(),
            run_id: String::new(),
            provider: provider.to_owned(),
            model: model.unwrap_or_default().to_owned(),
        }
    }
}

/// Where a credential comes from.
///
/// It is read before the first request that needs it, and once more in a call whose credential was refused: if it is
/// another one by then, the call goes on with it. A source that takes longer than ten seconds has failed.
pub trait CredentialSource: Send + Sync + 'static {
    /// Reads the credential.
    ///
    /// # Errors
    ///
    /// Why there is none. The text reaches whoever sees the run's error, so it must not quote the credential.
    fn read(&self, request: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>>;
}

/// A source that can be handed on.
#[derive(Clone)]
pub(crate) struct SharedSource(pub(crate) Arc<dyn CredentialSource>);

impl SharedSource {
    /// Reads the credential, unless the time limit is over before it.
    pub(crate) async fn read(
        &self,
        request: CredentialRequest,
        limit: impl Future<Output = ()>,
    ) -> Result<Credential, Error> {
        tokio::select! {
            biased;
            read = self.0.read(request) => read,
            () = limit => {
                let message = format!("the credential was not read within {} s", TIME_LIMIT.as_secs());
                Err(Error::new(codes::CONFIG_LOAD, message)
                    .with_hint("run what gives it by hand: it may be waiting for an answer"))
            }
        }
    }
}

impl fmt::Debug for SharedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialSource")
    }
}

/// `llm.api_key_env`: an environment variable of this process, which something else in it may set anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvCredential {
    variable: String,
}

impl EnvCredential {
    /// Reads that variable.
    pub fn new(variable: impl Into<String>) -> EnvCredential {
        EnvCredential { variable: variable.into() }
    }

    /// What the variable holds, if it is set and not blank.
    pub(crate) fn now(&self) -> Option<Credential> {
        let value = std::env::var(&self.variable).ok().filter(|value| !value.trim().is_empty())?;
        Some(Credential::new(value))
    }
}

impl CredentialSource for EnvCredential {
    fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        // Who puts the key itself in the variable's place must not find it in a log.
        let name = redact::text(&self.variable);
        let read = self.now().ok_or_else(|| {
            Error::new(codes::CONFIG_LOAD, format!("the environment variable {name} holds no key"))
                .with_hint(format!("export {name}=…"))
        });
        Box::pin(std::future::ready(read))
    }
}

/// `llm.api_key_command`: a program that writes the credential to its standard output. No shell is involved.
///
/// What it has written by the time it has ended counts. Where the run ends before it, or its time is up, it is killed
/// together with whatever it has started (on Unix; elsewhere alone). It has a process group of its own, so it cannot ask
/// anything at the terminal, and the terminal's signals do not reach it: a program that ends by one cancels its runs first,
/// as the command line does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandCredential {
    program: String,
    arguments: Vec<String>,
}

impl CommandCredential {
    /// Runs that program with these arguments.
    pub fn new(
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> CommandCredential {
        let arguments = arguments.into_iter().map(Into::into).collect();
        CommandCredential { program: program.into(), arguments }
    }

    /// A program and its arguments in one line, in quotes where they hold white space. Nothing else means anything:
    /// there are no variables, no pipes, no patterns.
    ///
    /// # Errors
    ///
    /// `config.validation` if there is no program, or a quote is not closed.
    pub fn from_line(line: &str) -> Result<CommandCredential, Error> {
        let mut words = shlex::split(line).unwrap_or_default().into_iter();
        let program = words.next().filter(|program| !program.is_empty()).ok_or_else(|| {
            Error::new(codes::CONFIG_VALIDATION, "llm.api_key_command is not a program and its arguments")
                .with_hint("close every quote, or name a script")
        })?;
        Ok(CommandCredential::new(program, words))
    }
}

impl CredentialSource for CommandCredential {
    fn read(&self, _: CredentialRequest) -> BoxFuture<'_, Result<Credential, Error>> {
        // What the program says is its secret or its talk: neither is repeated.
        let failed = |why: String| {
            Error::new(codes::CONFIG_LOAD, format!("llm.api_key_command: {} {why}", self.program))
                .with_hint("run the command by hand to see what it says")
        };
        Box::pin(async move {
            let cannot = |error: std::io::Error| failed(format!("cannot be run: {error}"));
            let output = process::output(&self.program, &self.arguments, OUTPUT_LIMIT).await;
            let (status, written) = match output.map_err(cannot)? {
                Output::Written(status, written) => (status, written),
                Output::TooMuch => return Err(failed(format!("wrote more than {OUTPUT_LIMIT} bytes"))),
            };
            if !status.success() {
                return Err(failed(format!("failed with {status}")));
            }
            let text = String::from_utf8(written)
                .map_err(|_| failed("wrote something that is no text".to_owned()))?;
            let credential = Credential::new(&text);
            if credential.0.expose_secret().is_empty() || text.trim().contains(char::is_control) {
                return Err(failed("did not write one line with the credential".to_owned()));
            }
            Ok(credential)
        })
    }
}

/// What a target's source gave last, for every run that shares it.
#[derive(Clone)]
pub(crate) struct Keyring {
    source: SharedSource,
    provider: String,
    model: String,
    last: Arc<Mutex<Option<Credential>>>,
    /// One read at a time: of many runs that need a credential, one asks for it.
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl Keyring {
    pub(crate) fn new(source: SharedSource, provider: String, model: String) -> Keyring {
        Keyring { source, provider, model, last: Arc::default(), reading: Arc::default() }
    }

    /// The same, which has given this already: what a program takes out of its environment at the start is still known.
    pub(crate) fn having_read(self, credential: Credential) -> Keyring {
        Keyring { last: Arc::new(Mutex::new(Some(credential))), ..self }
    }

    /// A model's, from that source.
    pub(crate) fn of(model: &Model, source: SharedSource) -> Keyring {
        let config = model.config();
        Keyring::new(source, config.provider.clone(), config.model.clone())
    }

    /// What was read last, or else what the source gives now.
    async fn get(&self, identity: &Identity, clock: &RunClock) -> Result<Credential, Error> {
        if let Some(credential) = self.last() {
            return Ok(credential);
        }
        let _reading = self.reading.lock().await;
        match self.last() {
            Some(credential) => Ok(credential),
            None => self.read(identity, clock).await,
        }
    }

    fn last(&self) -> Option<Credential> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is another one than was sent. Another run may have read it already.
    async fn has_changed(&self, sent: &Credential, identity: &Identity, clock: &RunClock) -> bool {
        let _reading = self.reading.lock().await;
        if self.last().is_some_and(|last| last != *sent) {
            return true;
        }
        // A source that fails has no other one; that the first was refused is what the run fails with.
        self.read(identity, clock).await.is_ok_and(|read| read != *sent)
    }

    async fn read(&self, identity: &Identity, clock: &RunClock) -> Result<Credential, Error> {
        let request = CredentialRequest {
            agent_id: identity.agent_id.clone(),
            session_id: identity.session_id.clone(),
            run_id: identity.run_id.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
        };
        let limit = clock.at().saturating_add(TIME_LIMIT.as_millis() as u64);
        let credential = self.source.read(request, clock.sleep_until(limit, false)).await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(credential.clone());
        Ok(credential)
    }
}

/// The credentials of one run: what each target was sent last.
#[derive(Clone)]
pub(crate) struct RunCredentials {
    keyrings: Arc<[Option<Keyring>]>,
    sent: Arc<Mutex<BTreeMap<usize, Credential>>>,
}

impl RunCredentials {
    pub(crate) fn new(keyrings: Arc<[Option<Keyring>]>) -> RunCredentials {
        RunCredentials { keyrings, sent: Arc::default() }
    }

    fn keyring(&self, target: usize) -> Option<&Keyring> {
        self.keyrings.get(target)?.as_ref()
    }

    /// What is to be sent to a target; none where nobody says.
    pub(crate) async fn for_request(
        &self,
        target: usize,
        identity: &Identity,
        clock: &RunClock,
    ) -> Result<Option<Credential>, Error> {
        let Some(keyring) = self.keyring(target) else { return Ok(None) };
        let credential = keyring.get(identity, clock).await?;
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).insert(target, credential.clone());
        Ok(Some(credential))
    }

    /// Reads a target's credential again; true if it is another one than this run sent.
    pub(crate) async fn has_changed(&self, target: usize, identity: &Identity, clock: &RunClock) -> bool {
        let Some(keyring) = self.keyring(target) else { return false };
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).get(&target).cloned();
        match sent {
            Some(sent) => keyring.has_changed(&sent, identity, clock).await,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CredentialRequest {
        let text = String::new;
        let (agent_id, session_id, run_id, provider, model) = (text(), text(), text(), text(), text());
        CredentialRequest { agent_id, session_id, run_id, provider, model }
    }

    #[test]
    fn a_credential_has_no_text() {
        assert_eq!(format!("{:?}", Credential::new("sk-canary-0123456789")), "Credential");
    }

    #[test]
    fn a_line_is_words_and_no_shell() {
        let parsed = CommandCredential::from_line("op read 'op://vault/my key' $HOME | tee").unwrap();
        assert_eq!(parsed, CommandCredential::new("op", ["read", "op://vault/my key", "$HOME", "|", "tee"]));
        for line in ["", "  ", "pass 'openai", "''"] {
            assert_eq!(CommandCredential::from_line(line).unwrap_err().code(), codes::CONFIG_VALIDATION);
        }
    }

    #[tokio::test]
    async fn a_command_gives_its_line_and_nothing_of_it_when_it_fails() {
        let read = |command: CommandCredential| async move { command.read(request()).await };
        let key = read(CommandCredential::new("printf", ["  sk-canary-1\\n"])).await.unwrap();
        assert_eq!(key, Credential::new("sk-canary-1"));
        for command in [
            CommandCredential::new("sh", ["-c", "echo sk-canary-2; exit 3"]),
            CommandCredential::new("printf", ["sk-canary-2\\nsk-canary-3"]),
            CommandCredential::new("true", [""; 0]),
            CommandCredential::new("no-such-program-anywhere", [""; 0]),
        ] {
            let error = read(command).await.unwrap_err();
            assert_eq!(error.code(), codes::CONFIG_LOAD);
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }
}
