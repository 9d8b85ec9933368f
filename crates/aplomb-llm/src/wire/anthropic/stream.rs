//! An answer that comes in events.

use aplomb_core::failure::Anomaly;
use aplomb_core::message::{Delta, StreamEvent, TokenUsage};
use serde::Deserialize;
use serde_json::Value;

use super::response::Content;
use super::{add_usage, finish_reason};
use crate::wire::{self, Protocol, Quirks};

/// Decodes one streamed answer.
pub type Decoder = wire::Decoder<Messages>;

/// The protocol's events. The terminal one is `message_stop`.
#[derive(Debug, Default)]
pub struct Messages {
    /// The vendor may end the stream without `message_stop`: the stop reason is the terminal event.
    stop_is_optional: bool,
    usage: TokenUsage,
    /// A stop reason came.
    ended: bool,
    /// `message_stop` came.
    stopped: bool,
}

impl Protocol for Messages {
    type Event = WireEvent;

    fn take(&mut self, event: WireEvent, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        match event {
            WireEvent::Error {} => return Err(Anomaly::Error),
            WireEvent::MessageStart { message } => self.take_usage(message.usage.as_ref(), progress),
            WireEvent::ContentBlockStart { index, content_block } => {
                progress.extend(begin(index, content_block));
            }
            WireEvent::ContentBlockDelta { index, delta } => progress.extend(go_on(index, delta)),
            WireEvent::MessageDelta { delta, usage } => {
                self.take_usage(usage.as_ref(), progress);
                let finish = finish_reason(delta.stop_reason.as_deref());
                self.ended |= finish.is_some();
                progress.extend(finish.map(StreamEvent::Finish));
            }
            WireEvent::MessageStop {} => self.stopped = true,
            // Pings, the ends of blocks, and what a later version of the protocol may add.
            WireEvent::Other => {}
        }
        Ok(())
    }

    fn is_terminal(&self) -> bool {
        self.stopped || (self.stop_is_optional && self.ended)
    }

    fn is_done(&self) -> bool {
        self.stopped
    }

    fn wrong_end(&self) -> Option<Anomaly> {
        (!self.is_terminal()).then_some(Anomaly::NoTerminalEvent)
    }
}

impl Messages {
    /// What a vendor with these quirks sends.
    pub fn of(quirks: Quirks) -> Messages {
        Messages { stop_is_optional: quirks.message_stop_is_optional, ..Messages::default() }
    }

    fn take_usage(&mut self, usage: Option<&Value>, progress: &mut Vec<StreamEvent>) {
        if let Some(usage) = usage {
            add_usage(&mut self.usage, usage);
            progress.push(StreamEvent::Usage(self.usage));
        }
    }
}

/// What the beginning of a block brings.
fn begin(index: u64, block: Content) -> Option<StreamEvent> {
    // A signature that stands here is that of thoughts which are not shown; others follow their thoughts.
    let event = match block {
        Content::Thinking { signature: Some(signature), .. } if !signature.is_empty() => {
            StreamEvent::Signature(signature)
        }
        Content::Text { text } => StreamEvent::Delta(Delta::Text { text }),
        Content::Thinking { thinking, .. } => StreamEvent::Delta(Delta::Thinking { text: thinking }),
        Content::RedactedThinking { data } => StreamEvent::RedactedThinking(data),
        Content::ToolUse { id, name, input } => {
            // The arguments follow in fragments; some vendors give them here, whole.
            let whole = input.as_object().filter(|fields| !fields.is_empty());
            let text = whole.map(|_| input.to_string()).unwrap_or_default();
            StreamEvent::Delta(Delta::ToolCall { index, id: Some(id), name: Some(name), text })
        }
        Content::Other => return None,
    };
    seen(event)
}

/// What a delta of a block brings.
fn go_on(index: u64, delta: BlockDelta) -> Option<StreamEvent> {
    let event = match delta {
        BlockDelta::TextDelta { text } => StreamEvent::Delta(Delta::Text { text }),
        BlockDelta::ThinkingDelta { thinking } => StreamEvent::Delta(Delta::Thinking { text: thinking }),
        BlockDelta::SignatureDelta { signature } => StreamEvent::Signature(signature),
        BlockDelta::InputJsonDelta { partial_json } => {
            StreamEvent::Delta(Delta::ToolCall { index, id: None, name: None, text: partial_json })
        }
        BlockDelta::Other => return None,
    };
    seen(event)
}

/// An event, unless there is nothing in it.
fn seen(event: StreamEvent) -> Option<StreamEvent> {
    match &event {
        StreamEvent::Delta(delta) if delta.is_empty() => None,
        _ => Some(event),
    }
}

/// One event.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WireEvent {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: Content,
    },
    ContentBlockDelta {
        index: u64,
        delta: BlockDelta,
    },
    MessageDelta {
        delta: Stop,
        usage: Option<Value>,
    },
    MessageStop {},
    Error {},
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub struct Start {
    usage: Option<Value>,
}

#[derive(Deserialize)]
pub struct Stop {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockDelta {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}
