//! Publishes a run's events: numbers them, and hands them to whoever watches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use aplomb_core::event::{Event, EventName, names};
use aplomb_core::message::{Delta, Message};
use aplomb_core::redact::Redactor;
use aplomb_core::run::Identity;
use serde_json::{Map, Value, json};

use crate::first_delta::FirstDelta;
use crate::host::RunClock;
use crate::stream::ChunkQueue;
use crate::subscriber::Subscriber;

/// Whoever watches one run, and what they have been told.
pub(crate) struct Publisher {
    pub(crate) identity: Arc<Identity>,
    pub(crate) clock: Arc<RunClock>,
    pub(crate) subscribers: Vec<Arc<dyn Subscriber>>,
    pub(crate) stream: Option<ChunkQueue>,
    wants_deltas: bool,
    redactor: Arc<Redactor>,
    sequence: u64,
    first_delta: FirstDelta,
}

impl Publisher {
    pub(crate) fn new(
        identity: Arc<Identity>,
        clock: Arc<RunClock>,
        subscribers: Vec<Arc<dyn Subscriber>>,
        stream: Option<ChunkQueue>,
        redactor: Arc<Redactor>,
    ) -> Publisher {
        let wants_deltas = stream.is_some()
            || subscribers.iter().any(|subscriber| {
                catch_unwind(AssertUnwindSafe(|| subscriber.wants_deltas())).unwrap_or_default()
            });
        Publisher {
            identity,
            clock,
            subscribers,
            stream,
            wants_deltas,
            redactor,
            sequence: 0,
            first_delta: FirstDelta::default(),
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        !self.subscribers.is_empty() || self.stream.is_some()
    }

    fn publish(&mut self, name: EventName, payload: Map<String, Value>) {
        let timestamp_ms = self.clock.wall_ms();
        let payload = self.redacted(name, payload);
        let event = Event::new(name, &self.identity, self.sequence, timestamp_ms, payload);
        self.sequence += 1;
        for subscriber in &self.subscribers {
            // A subscriber that fails does not disturb the run; the panic's own message has been printed.
            let _its_own_failure = catch_unwind(AssertUnwindSafe(|| subscriber.on_event(&event)));
        }
        if let Some(stream) = &self.stream {
            stream.push_event(&event);
        }
    }

    /// The payload without credentials. What the user said and what the model answers is theirs, and stays as it is.
    fn redacted(&self, name: EventName, payload: Map<String, Value>) -> Map<String, Value> {
        if [names::LLM_DELTA, names::SESSION_RUN_STARTED].contains(&name) {
            return payload;
        }
        let mut payload = Value::Object(payload);
        self.redactor.value(&mut payload);
        match payload {
            Value::Object(payload) => payload,
            _ => Map::new(),
        }
    }

    fn publish_delta(&mut self, delta: &Delta) {
        self.first_delta.note_delta(self.sequence);
        if let Ok(Value::Object(payload)) = serde_json::to_value(delta) {
            self.publish(names::LLM_DELTA, payload);
        }
    }

    fn publish_restart(&mut self) {
        let discard_from = self.first_delta.take().unwrap_or(self.sequence);
        if let Value::Object(payload) = json!({ "discard_from": discard_from }) {
            self.publish(names::LLM_RESTARTED, payload);
        }
    }
}

/// The one publisher of a run, shared by the driver and the model call under way.
#[derive(Clone)]
pub(crate) struct SharedPublisher(Arc<Mutex<Publisher>>);

impl SharedPublisher {
    pub(crate) fn new(publisher: Publisher) -> SharedPublisher {
        SharedPublisher(Arc::new(Mutex::new(publisher)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Publisher) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish(&self, name: EventName, payload: Map<String, Value>) {
        self.with(|publisher| {
            publisher.first_delta.note_event(name);
            publisher.publish(name, payload);
        });
    }

    /// Keeps a credential that was read during the run out of everything that is told from now on.
    pub(crate) fn learn(&self, secret: &str) {
        self.with(|publisher| Arc::make_mut(&mut publisher.redactor).learn(secret.to_owned()));
    }

    /// What keeps the run's credentials out of what is told.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.with(|publisher| publisher.redactor.clone())
    }

    /// Tells of an answer that nobody saw come.
    pub(crate) fn publish_whole(&self, message: &Message, announce_restart: bool) {
        self.with(|publisher| {
            if publisher.is_watched() {
                if announce_restart {
                    publisher.publish_restart();
                }
                Delta::of_whole(message).for_each(|delta| publisher.publish_delta(&delta));
            }
        });
    }

    /// Whether anybody takes an answer piece by piece, as it comes.
    pub(crate) fn wants_deltas(&self) -> bool {
        self.with(|publisher| publisher.wants_deltas)
    }

    /// Takes the deltas of one attempt. A restart is announced just before its first delta, so that a call that fails
    /// for good discards nothing.
    pub(crate) fn delta_sink(&self, mut announce_restart: bool) -> impl FnMut(&Delta) + Send + use<> {
        let shared = self.clone();
        move |delta| {
            shared.with(|publisher| {
                if std::mem::take(&mut announce_restart) {
                    publisher.publish_restart();
                }
                publisher.publish_delta(delta);
            });
        }
    }
}
