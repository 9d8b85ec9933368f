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
    /// Whether any text came, or any thoughts.
    has_text: bool,
    has_thoughts: bool,
    has_calls: bool,
    refused: bool,
    ended: bool,
}

/// What came of an item in pieces.
#[derive(Debug, Default)]
struct Came {
    /// A call's id, or nothing as long as the id or the name is missing.
    call_id: String,
    /// A call's arguments.
    arguments: String,
    /// Whether it is a call.
    is_call: bool,
    /// Whether a call's arguments are known to be whole.
    has_arguments: bool,
    /// Whether there was text, or thoughts.
    text: bool,
    /// Whether the item came whole.
    closed: bool,
}

impl Came {
    /// Whether nothing is missing.
    fn is_whole(&self) -> bool {
        self.closed || (self.has_arguments && !self.call_id.is_empty())
    }

    /// Takes a call's arguments as a whole, and gives what of them had not come.
    fn complete(&mut self, whole: Option<String>) -> Result<String, Anomaly> {
        let whole = whole.unwrap_or_default();
        self.is_call = true;
        self.has_arguments = true;
        if self.arguments.is_empty() {
            self.arguments.clone_from(&whole);
            return Ok(whole);
        }
        if whole.is_empty() || is_same(&whole, &self.arguments) {
            return Ok(String::new());
        }
        // A piece was lost on the way. A call must not run with what is left.
        Err(Anomaly::MalformedEvent)
    }
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
                self.has_text = true;
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
                self.has_thoughts = true;
                show(Delta::Thinking { text: delta }, progress);
            }
            WireEvent::ArgumentsDelta { output_index, delta } => {
                let came = self.came(output_index);
                came.is_call = true;
                came.arguments.push_str(&delta);
                show(argument(output_index, delta), progress);
            }
            WireEvent::ArgumentsDone { output_index, arguments } => {
                let missing = self.came(output_index).complete(arguments)?;
                show(argument(output_index, missing), progress);
            }
            WireEvent::ItemDone { output_index, item } => return self.end(output_index, item, progress),
            WireEvent::Completed { response } => return self.finish(response, true, progress),
            WireEvent::Incomplete { response } => return self.finish(response, false, progress),
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
            came.is_call = true;
            if !name.is_empty() {
                came.call_id.clone_from(&call_id);
            }
            self.has_calls = true;
            show(Delta::ToolCall { index, id: Some(call_id), name: Some(name), text }, progress);
        }
    }

    /// The item is complete, and here whole: what did not come in pieces comes now.
    fn end(&mut self, index: u64, item: Item, progress: &mut Vec<StreamEvent>) -> Result<(), Anomaly> {
        let came = self.items.entry(index).or_default();
        came.closed = true;
        match item {
            Item::FunctionCall { call_id, name, arguments } => {
                self.has_calls = true;
                let text = came.complete(arguments)?;
                // What says which call it is may have been lost, too.
                if came.call_id.is_empty() {
                    came.call_id.clone_from(&call_id);
                    show(Delta::ToolCall { index, id: Some(call_id), name: Some(name), text }, progress);
                } else {
                    show(argument(index, text), progress);
                }
            }
            item => {
                let has_come = came.text;
                self.has_text |= matches!(item, Item::Message { .. });
                self.has_thoughts |= matches!(item, Item::Reasoning(_));
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

    /// The end, which holds the whole answer once more. Some gateways bring nothing else.
    fn finish(
        &mut self,
        mut response: Response,
        completed: bool,
        progress: &mut Vec<StreamEvent>,
    ) -> Result<(), Anomaly> {
        progress.extend(response.usage().map(StreamEvent::Usage));
        // An answer that was cut off may have been cut off in the middle of an item.
        if completed || self.items.is_empty() {
            for (index, item) in (0..).zip(response.output.take().unwrap_or_default()) {
                if let Some(index) = self.missing(index, &item) {
                    self.end(index, item, progress)?;
                }
            }
        }
        if completed && self.items.values().any(|came| came.is_call && !came.is_whole()) {
            return Err(Anomaly::MalformedEvent);
        }
        let finish = response.finish(self.has_calls).ok_or(Anomaly::MalformedEvent)?;
        self.ended = true;
        progress.push(StreamEvent::Finish(finish));
        Ok(())
    }

    /// Where an item of the whole answer belongs that has not come, or not whole. Not every gateway counts the items of
    /// its events as it does those of the whole answer: a call is known by its id, and text that came is not shown again.
    fn missing(&self, index: u64, item: &Item) -> Option<u64> {
        let here = self.items.get(&index);
        match item {
            Item::FunctionCall { call_id, .. } => {
                let known = self.items.iter().find(|(_, came)| came.is_call && came.call_id == *call_id);
                if let Some((index, came)) = known.filter(|_| !call_id.is_empty()) {
                    return (!came.closed).then_some(*index);
                }
                match here {
                    None => Some(index),
                    Some(came) if came.is_call => (!came.closed).then_some(index),
                    // Its place is another's: behind them all.
                    Some(_) => self.items.last_key_value().map(|(last, _)| last.saturating_add(1)),
                }
            }
            Item::Message { .. } if here.is_none() => (!self.has_text).then_some(index),
            Item::Reasoning(_) if here.is_none() => (!self.has_thoughts).then_some(index),
            _ => here.is_none_or(|came| !came.closed && !came.is_call).then_some(index),
        }
    }
}

/// Whether two texts are the same JSON, or the same text.
fn is_same(one: &str, other: &str) -> bool {
    let json = |text| serde_json::from_str::<serde_json::Value>(text).ok();
    one.trim() == other.trim() || json(one).is_some_and(|one| Some(one) == json(other))
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
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { output_index: u64, arguments: Option<String> },
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
