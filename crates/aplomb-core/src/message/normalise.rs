//! A conversation as another model takes it: without what only its author can read, and with names that it accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Block, Message};

/// What a provider accepts as the id of a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallIds {
    /// Anything.
    #[default]
    Any,
    /// At most that many characters.
    ///
    /// Source: OpenAI's refusal "string too long. Expected a string with maximum length 40" of `tool_calls[].id`.
    AtMost(usize),
    /// Letters, digits, `_` and `-`.
    ///
    /// Source: Anthropic's refusal "String should match pattern '^[a-zA-Z0-9_-]+$'" of `tool_use.id`.
    Words,
    /// Exactly nine letters and digits.
    ///
    /// Source: Mistral's refusal "must be a-z, A-Z, 0-9, with a length of 9" of `tool_calls[].id`.
    NineAlphanumerics,
}

impl CallIds {
    fn accept(self, id: &str) -> bool {
        let all = |allowed: fn(u8) -> bool| !id.is_empty() && id.bytes().all(allowed);
        match self {
            CallIds::Any => true,
            CallIds::AtMost(longest) => id.chars().count() <= longest,
            CallIds::Words => all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'),
            CallIds::NineAlphanumerics => id.len() == 9 && all(|byte| byte.is_ascii_alphanumeric()),
        }
    }
}

/// The conversation for a model that accepts these ids. The messages marked `true` were said by another one: what only
/// their author can read (thoughts, and the proof that they are its own) is left out of them, and their calls get names
/// that it accepts. What a model said itself it gets back as it was.
///
/// The same conversation always gives the same one, so that providers can cache it.
pub fn normalise<'a>(
    messages: impl IntoIterator<Item = (&'a Arc<Message>, bool)>,
    ids: CallIds,
) -> Vec<Arc<Message>> {
    let messages: Vec<_> = messages.into_iter().collect();
    let names = Names::of(&messages, ids);
    let normalised = messages.into_iter().filter_map(|(message, foreign)| {
        let changes = |block: &Block| (foreign && !is_portable(block)) || names.change(block);
        if !message.content.iter().any(changes) {
            return Some(message.clone());
        }
        let kept = message.content.iter().filter(|block| !foreign || is_portable(block));
        let content: Vec<_> = kept.map(|block| names.renamed(block)).collect();
        (!content.is_empty()).then(|| Arc::new(Message { role: message.role, content }))
    });
    normalised.collect()
}

/// Whether a block means the same to every model.
fn is_portable(block: &Block) -> bool {
    matches!(block, Block::Text { .. } | Block::Image { .. } | Block::ToolCall(_) | Block::ToolResult(_))
}

/// The new names of the calls whose own are not accepted.
struct Names(BTreeMap<String, String>);

impl Names {
    fn of(messages: &[(&Arc<Message>, bool)], ids: CallIds) -> Names {
        let foreign = messages.iter().filter(|(_, foreign)| *foreign);
        let calls = foreign.flat_map(|(message, _)| message.tool_calls()).map(|call| call.id.as_str());
        let refused: BTreeSet<&str> = calls.filter(|id| !ids.accept(id)).collect();
        let mut names = BTreeMap::new();
        if refused.is_empty() {
            return Names(names);
        }
        let used = messages.iter().flat_map(|(message, _)| &message.content).filter_map(call_id);
        let mut taken: BTreeSet<String> = used.map(str::to_owned).collect();
        for id in refused {
            let free = (0..).map(|salt| nine_alphanumerics(id, salt)).find(|name| !taken.contains(name));
            let name = free.unwrap_or_default();
            taken.insert(name.clone());
            names.insert(id.to_owned(), name);
        }
        Names(names)
    }

    fn change(&self, block: &Block) -> bool {
        call_id(block).is_some_and(|id| self.0.contains_key(id))
    }

    fn renamed(&self, block: &Block) -> Block {
        let mut block = block.clone();
        let id = match &mut block {
            Block::ToolCall(call) => &mut call.id,
            Block::ToolResult(result) => &mut result.call_id,
            _ => return block,
        };
        if let Some(name) = self.0.get(id) {
            id.clone_from(name);
        }
        block
    }
}

fn call_id(block: &Block) -> Option<&str> {
    match block {
        Block::ToolCall(call) => Some(&call.id),
        Block::ToolResult(result) => Some(&result.call_id),
        _ => None,
    }
}

/// A name that every provider accepts, and that follows from the id (FNV-1a, 64 bits).
fn nine_alphanumerics(id: &str, salt: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ salt;
    for byte in id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let digits = (0..9_u32).map(|place| hash / 62_u64.pow(place) % 62);
    digits
        .filter_map(|digit| DIGITS.get(usize::try_from(digit).ok()?))
        .map(|digit| char::from(*digit))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Role, ToolCall, ToolResult};

    fn call(id: &str) -> Block {
        Block::ToolCall(ToolCall { id: id.to_owned(), name: "calc".to_owned(), arguments: "{}".to_owned() })
    }

    fn result(id: &str) -> Block {
        let (call_id, name, text) = (id.to_owned(), "calc".to_owned(), "81".to_owned());
        Block::ToolResult(ToolResult { call_id, name, text, is_error: false })
    }

    fn thoughts() -> Block {
        Block::Thinking { text: "hm".to_owned(), signature: Some("proof".to_owned()) }
    }

    fn message(role: Role, content: Vec<Block>) -> Arc<Message> {
        Arc::new(Message { role, content })
    }

    #[test]
    fn a_call_and_its_result_get_the_same_new_name_and_others_keep_theirs() {
        let said = [
            message(Role::Assistant, vec![call("toolu_01ABCDEF"), call("abc123XYZ")]),
            message(Role::Tool, vec![result("toolu_01ABCDEF"), result("abc123XYZ")]),
        ];
        let given = normalise(said.iter().map(|message| (message, true)), CallIds::NineAlphanumerics);
        let ids: Vec<_> = given.iter().flat_map(|message| &message.content).filter_map(call_id).collect();
        assert_eq!(ids[0], ids[2]);
        assert!(CallIds::NineAlphanumerics.accept(ids[0]), "{ids:?}");
        assert_eq!((ids[1], ids[3]), ("abc123XYZ", "abc123XYZ"));
        let again = normalise(said.iter().map(|message| (message, true)), CallIds::NineAlphanumerics);
        assert_eq!(given, again);
        // Whoever made the names up knows them.
        let own = normalise(said.iter().map(|message| (message, false)), CallIds::NineAlphanumerics);
        assert_eq!(own, said);
        // The call is foreign, its result is nobody's.
        let mixed = [(&said[0], true), (&said[1], false)];
        assert_eq!(normalise(mixed, CallIds::NineAlphanumerics), given);
    }

    #[test]
    fn each_provider_gets_ids_that_it_accepts() {
        let (longest, too_long) = ("x".repeat(40), "x".repeat(41));
        for (ids, accepted, refused) in [
            (CallIds::AtMost(40), longest.as_str(), too_long.as_str()),
            (CallIds::Words, "toolu_01-A", "call:1"),
            (CallIds::NineAlphanumerics, "aB3456789", "call_1234"),
        ] {
            let said = [message(Role::Assistant, vec![call(accepted), call(refused)])];
            let given = normalise(said.iter().map(|message| (message, true)), ids);
            let given: Vec<_> = given[0].content.iter().filter_map(call_id).collect();
            assert_eq!(given[0], accepted);
            assert!(given[1] != refused && ids.accept(given[1]), "{given:?}");
        }
    }

    #[test]
    fn thoughts_go_back_to_their_author_alone() {
        let redacted = Block::RedactedThinking { data: "sealed".to_owned() };
        let text = Block::Text { text: "81".to_owned() };
        let own = message(Role::Assistant, vec![thoughts(), redacted.clone(), text.clone()]);
        let only_thoughts = message(Role::Assistant, vec![thoughts()]);
        let given = normalise([(&own, true), (&only_thoughts, true), (&own, false)], CallIds::Any);
        assert_eq!(given, [message(Role::Assistant, vec![text]), own]);
    }
}
