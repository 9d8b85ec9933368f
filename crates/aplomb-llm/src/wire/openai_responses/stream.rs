//! An answer that comes in events.

use std::collections::BTreeMap;

use aplomb_core::failure::Anomaly;
use aplomb_core::message::{Block, Delta, StreamEvent};
use serde::Deserialize;

use super::WIRE;
use super::item::{Item, Response};
use crate::wire::{self, Protocol};

/// Decodes one streamed answer.
pub type Decoder = wire::Decoder<Responses>;

/// The protocol's events.
///
/// The terminal one is `response.completed`, or `response.incomplete`, which says why it is not. Those about the life of
/// the response and of its items bring nothing by themselves.
#[derive(Debug, Default)]
pub struct Responses {
    /// What came of each item, by its place in the answer.
    items: BTreeMap<u64, Came>,
    has_calls: bool,
    refused: bool,
    ended: bool,
}

/// What came of an item in pieces.
#[derive(Debug, Default)]
struct Came {
    /// A call's arguments.
    arguments: String,
    /// Whether there was text, or thoughts.
    text: bool,
}

impl Protocol for Responses {
    type Event = WireEvent;

    /// Not OpenAI's; gateways send it all the same.
    const END_MARK: Option<&'static str> = Some("[DONE]");

    fn take(&mut self, event: WireEvent, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        match event {
            WireEvent::ItemAdded { output_index, item } => self.begin(output_index, item, progress),
            WireEvent::TextDelta { output_index, delta } => {
                self.came(output_index).text = true;
                show(Delta::Text { text: delta }, progress);
            }
            WireEvent::RefusalDelta {} => self.refused = true,
            WireEvent::SummaryPartAdded { output_index } => {
                // The parts of a summary are paragraphs.
                if self.came(output_index).text {
                    show(Delta::Thinking { text: "\n\n".to_owned() }, progress);
                }
            }
            WireEvent::SummaryDelta { output_index, delta }
            | WireEvent::ReasoningDelta { output_index, delta } => {
                self.came(output_index).text = true;
                show(Delta::Thinking { text: delta }, progress);
            }
            WireEvent::ArgumentsDelta { output_index, delta } => {
                self.came(output_index).arguments.push_str(&delta);
                show(argument(output_index, delta), progress);
            }
            WireEvent::ItemDone { output_index, item } => return self.end(output_index, item, progress),
            WireEvent::Completed { response } | WireEvent::Incomplete { response } => {
                return self.finish(response, progress);
            }
            WireEvent::Failed { response } => {
                progress.extend(response.usage().map(StreamEvent::Usage));
                return Err(Anomaly::Error);
            }
            WireEvent::Error {} => return Err(Anomaly::Error),
            WireEvent::Other => {}
        }
        Ok(())
    }

    fn is_terminal(&self) -> bool {
        self.ended
    }

    fn is_done(&self) -> bool {
        self.ended
    }

    fn wrong_end(&self) -> Option<Anomaly> {
        if !self.ended {
            return Some(Anomaly::NoTerminalEvent);
        }
        self.refused.then_some(Anomaly::Refused)
    }
}

impl Responses {
    fn came(&mut self, index: u64) -> &mut Came {
        self.items.entry(index).or_default()
    }

    fn begin(&mut self, index: u64, item: Item, progress: &mut Vec<StreamEvent>) {
        let came = self.came(index);
        if let Item::FunctionCall { call_id, name, arguments } = item {
            let text = arguments.unwrap_or_default();
            came.arguments.push_str(&text);
            self.has_calls = true;
            show(Delta::ToolCall { index, id: Some(call_id), name: Some(name), text }, progress);
        }
    }

    /// The item is complete, and here whole: what did not come in pieces comes now.
    fn end(&mut self, index: u64, item: Item, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        let is_new = !self.items.contains_key(&index);
        let came = self.items.entry(index).or_default();
        match item {
            Item::FunctionCall { call_id, name, arguments } => {
                self.has_calls = true;
                let whole = arguments.unwrap_or_default();
                if is_new {
                    let (id, name) = (Some(call_id), Some(name));
                    show(Delta::ToolCall { index, id, name, text: whole }, progress);
                } else if came.arguments.is_empty() {
                    show(argument(index, whole), progress);
                } else if !whole.is_empty() && whole.trim() != came.arguments.trim() {
                    // A piece was lost on the way. A call must not run with what is left.
                    return Err(Anomaly::MalformedEvent);
                }
            }
            item => {
                let has_come = came.text;
                let (blocks, refused) = item.into_blocks();
                self.refused |= refused;
                for block in blocks {
                    match block {
                        Block::Text { text } if !has_come => show(Delta::Text { text }, progress),
                        Block::Thinking { text, .. } if !has_come => show(Delta::Thinking { text }, progress),
                        Block::Opaque { data, .. } => progress.push(StreamEvent::Opaque { wire: WIRE, data }),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, mut response: Response, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        progress.extend(response.usage().map(StreamEvent::Usage));
        // Some gateways bring nothing but the end.
        if self.items.is_empty() {
            for (index, item) in (0..).zip(response.output.take().unwrap_or_default()) {
                self.end(index, item, progress)?;
            }
        }
        let finish = response.finish(self.has_calls).ok_or(Anomaly::MalformedEvent)?;
        self.ended = true;
        progress.push(StreamEvent::Finish(finish));
        Ok(())
    }
}

fn argument(index: u64, text: String) -> Delta {
    Delta::ToolCall { index, id: None, name: None, text }
}

fn show(delta: Delta, progress: &mut Vec<StreamEvent>) {
    if !delta.is_empty() {
        progress.push(StreamEvent::Delta(delta));
    }
}

/// One event.
#[derive(Deserialize)]
#[serde(tag = "type")]
pub enum WireEvent {
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: u64, item: Item },
    #[serde(rename = "response.output_text.delta")]
    TextDelta { output_index: u64, delta: String },
    #[serde(rename = "response.refusal.delta")]
    RefusalDelta {},
    #[serde(rename = "response.reasoning_summary_part.added")]
    SummaryPartAdded { output_index: u64 },
    #[serde(rename = "response.reasoning_summary_text.delta")]
    SummaryDelta { output_index: u64, delta: String },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta { output_index: u64, delta: String },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { output_index: u64, delta: String },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: u64, item: Item },
    #[serde(rename = "response.completed")]
    Completed { response: Response },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Response },
    #[serde(rename = "response.failed")]
    Failed { response: Response },
    #[serde(rename = "error")]
    Error {},
    /// The life of the response and its items, and what a later version of the protocol may add.
    #[serde(other)]
    Other,
}
