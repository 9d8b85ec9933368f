//! How far an answer got.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::Anomaly;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Regular,
    /// To call tools.
    ToolCalls,
    /// At the token limit.
    TokenLimit,
    /// By a filter.
    Filtered,
    /// The provider broke it off.
    BrokenOff,
    /// The model wrote a call that nobody can read.
    MalformedCall,
    /// For a reason that nobody knows.
    Unknown,
}

/// What is known of an answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Something of the answer came, if only its frame.
    pub(super) has_begun: bool,
    /// There is text, or another thing that somebody could use.
    pub(super) has_content: bool,
    /// The model refused.
    pub(super) is_refusal: bool,
    /// How it ended, once it has.
    pub(super) end: Option<End>,
    /// The stream's own mark that nothing follows.
    pub(super) is_done: bool,
    /// The arguments of tool calls, by their index.
    pub(super) arguments: BTreeMap<u64, String>,
}

impl Progress {
    /// Text that somebody could use.
    pub(super) fn text(&mut self, text: Option<&str>) {
        self.has_content |= text.is_some_and(|text| !text.trim().is_empty());
    }

    /// What is wrong with an answer that came whole.
    pub(super) fn anomaly(&self) -> Anomaly {
        if self.is_refusal {
            return Anomaly::Refused;
        }
        let is_usable = (self.has_content || !self.arguments.is_empty()) && self.arguments_are_whole();
        match self.end {
            Some(End::Filtered) => Anomaly::Filtered,
            Some(End::BrokenOff) => Anomaly::BrokenOff,
            Some(End::MalformedCall) => Anomaly::Empty,
            Some(End::ToolCalls) if self.arguments.is_empty() => Anomaly::Empty,
            Some(End::TokenLimit) if !is_usable => Anomaly::EmptyAtTokenLimit,
            Some(End::Unknown) => Anomaly::UnknownEnd,
            _ if !is_usable => Anomaly::Empty,
            None => Anomaly::NoTerminalEvent,
            // Nothing that a reader of text can see is wrong with it, and yet it is called a failure.
            Some(End::Regular | End::ToolCalls | End::TokenLimit) => Anomaly::UnknownEnd,
        }
    }

    /// What is wrong with a stream that ends here.
    pub(super) fn anomaly_of_stream(&self) -> Anomaly {
        match self.end {
            None if self.is_done && !self.has_begun => Anomaly::Empty,
            None => Anomaly::NoTerminalEvent,
            Some(_) => self.anomaly(),
        }
    }

    fn arguments_are_whole(&self) -> bool {
        self.arguments
            .values()
            .all(|text| text.trim().is_empty() || serde_json::from_str::<IgnoredAny>(text).is_ok())
    }
}
