//! A context assembler: where a conversation is too long, the last word is enough.

use aplomb::{Assembler, Assembly, Message};

pub(crate) struct LastWord;

impl Assembler for LastWord {
    fn shrink(&self, conversation: &[&Message]) -> Assembly {
        // What cannot be left out stays, whatever is said here.
        Assembly::Drop((0..conversation.len()).collect())
    }
}
