//! From where on a restart voids what was told: the first delta of the answer under way.

use aplomb_core::event::{EventName, names};

/// The first delta of the answer under way, or of the one that was rejected, until the correction begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FirstDelta {
    sequence: Option<u64>,
    is_rejected: bool,
}

impl FirstDelta {
    /// A call begins an answer of its own, unless it is to correct the last one.
    pub(crate) fn note_event(&mut self, name: EventName) {
        if name == names::VALIDATION_RETRY {
            self.is_rejected = true;
        } else if name == names::LLM_CALLED && !std::mem::take(&mut self.is_rejected) {
            self.sequence = None;
        }
    }

    pub(crate) fn note_delta(&mut self, sequence: u64) {
        self.sequence.get_or_insert(sequence);
    }

    /// What a restart voids from, if anything.
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.sequence.take()
    }
}
