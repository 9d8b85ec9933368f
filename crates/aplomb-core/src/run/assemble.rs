//! What is left out of a conversation that is too large for the model. Knows the conversation, and no model.

use std::collections::BTreeSet;
use std::fmt;

use crate::message::{Message, Role};
use crate::tool::ToolSpec;

/// What is to become of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assembly {
    /// It stays as it is: nothing can be left out.
    Fits,
    /// It goes on without these messages, by their place. Those that cannot be left out stay: see [`Assembler`].
    Drop(Vec<usize>),
}

/// Decides what is left out of a conversation: `agents[].context_assembler`. Its answer must follow from the conversation
/// alone.
///
/// Whatever it says, instructions stay, and so do the user's last word and the last answer after it, from which the model
/// goes on.
/// What a run has been asked to correct is not shown to it: that stays as it is, and earlier corrections of the run go first.
/// An answer that calls tools and the results of these calls go together or stay together, and a conversation goes on to
/// begin with the user. One that panics leaves nothing out.
pub trait Assembler: Send + Sync + 'static {
    /// The model has said that the conversation is too large for it. It is sent again only if it gets smaller by a tenth at
    /// least.
    fn shrink(&self, conversation: &[&Message]) -> Assembly;
}

impl fmt::Debug for dyn Assembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Assembler")
    }
}

/// Leaves out the oldest turns, until half of the conversation is left or nothing more can go.
///
/// A turn is left out as a whole, from the user's word to the next one. Of the last turn, whose beginning stays, the
/// oldest answers go with the results of their tool calls; the last of them stays, since the model is about to go on from
/// it. Instructions stay. How large the model's window is, is known to its provider only: half is what one attempt can
/// afford to get wrong.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Truncating;

impl Assembler for Truncating {
    fn shrink(&self, conversation: &[&Message]) -> Assembly {
        let mut left: u64 = conversation.iter().map(|message| size(message)).sum();
        let enough = left / 2;
        let mut dropped = Vec::new();
        for unit in units(conversation) {
            if left <= enough {
                break;
            }
            left = left.saturating_sub(unit.iter().map(|(_, message)| size(message)).sum());
            dropped.extend(unit.iter().map(|(place, _)| *place));
        }
        if dropped.is_empty() { Assembly::Fits } else { Assembly::Drop(dropped) }
    }
}

/// What can be left out, the oldest first, each only as a whole.
fn units<'a>(conversation: &[&'a Message]) -> Vec<Vec<(usize, &'a Message)>> {
    let last_user = conversation.iter().rposition(|message| message.role == Role::User);
    let (mut turns, mut answers) = (Vec::new(), Vec::new());
    for (place, message) in conversation.iter().enumerate() {
        let begun = last_user.is_some_and(|last| place > last);
        match message.role {
            Role::System => {}
            Role::User if Some(place) == last_user => {}
            Role::User => turns.push(vec![(place, *message)]),
            Role::Assistant if begun => answers.push(vec![(place, *message)]),
            _ => {
                let unit = if begun { answers.last_mut() } else { turns.last_mut() };
                match unit {
                    Some(unit) => unit.push((place, *message)),
                    // Before the first word of any user there may be something that an application put there.
                    None if !begun => turns.push(vec![(place, *message)]),
                    None => {}
                }
            }
        }
    }
    answers.pop();
    turns.extend(answers);
    turns
}

/// What is left out of a conversation where an assembler wants these places out: without those that cannot be.
pub(super) fn permitted(conversation: &[&Message], wanted: Vec<usize>) -> BTreeSet<usize> {
    let mut out: BTreeSet<usize> = wanted.into_iter().filter(|place| *place < conversation.len()).collect();
    let last_user = conversation.iter().rposition(|message| message.role == Role::User);
    out.retain(|place| {
        Some(*place) != last_user
            && conversation.get(*place).is_some_and(|message| message.role != Role::System)
    });
    let mut exchanges = exchanges(conversation);
    // What follows the user's last word is what the model goes on from.
    if exchanges.last().is_some_and(|last| last.first().copied() > last_user) {
        let last = exchanges.pop().unwrap_or_default();
        out.retain(|place| !last.contains(place));
    }
    for exchange in exchanges {
        if !exchange.iter().all(|place| out.contains(place)) {
            out.retain(|place| !exchange.contains(place));
        }
    }
    // The first that is left must be the user's, if it was before.
    let speaks = |place: &usize| conversation.get(*place).is_some_and(|message| message.role != Role::System);
    let is_users = |place: &usize| conversation.get(*place).is_some_and(|message| message.role == Role::User);
    if let Some(first) = (0..conversation.len()).filter(speaks).find(|place| !out.contains(place))
        && !is_users(&first)
        && let Some(users) = (0..first).rev().find(is_users)
    {
        out.remove(&users);
    }
    out
}

/// The places of each answer of the model, with those of the results of its tool calls.
fn exchanges(conversation: &[&Message]) -> Vec<Vec<usize>> {
    let mut exchanges: Vec<Vec<usize>> = Vec::new();
    for (place, message) in conversation.iter().enumerate() {
        match (message.role, exchanges.last_mut()) {
            (Role::Assistant, _) | (Role::Tool, None) => exchanges.push(vec![place]),
            (Role::Tool, Some(exchange)) => exchange.push(place),
            (Role::System | Role::User, _) => {}
        }
    }
    exchanges
}

/// What a message takes in a request, in bytes, roughly.
pub(super) fn size(message: &Message) -> u64 {
    let written = serde_json::to_vec(&message.content).unwrap_or_default();
    u64::try_from(written.len()).unwrap_or(u64::MAX)
}

/// What tools take in a request, in bytes, roughly.
pub(super) fn size_of_tools(tools: &[ToolSpec]) -> u64 {
    let bytes: usize = tools
        .iter()
        .map(|tool| tool.id.len() + tool.description.len() + tool.parameters.to_string().len())
        .sum();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether a request has shrunk by at least a tenth. Source: `docs/spec/retry.md` §3.
pub(super) fn is_smaller(before: u64, after: u64) -> bool {
    u128::from(after) * 10 <= u128::from(before) * 9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Block, ToolCall, ToolResult};

    fn said(role: Role, length: usize) -> Message {
        Message::text(role, "x".repeat(length))
    }

    fn calls(length: usize) -> [Message; 2] {
        let (id, name) = ("1".to_owned(), "calc".to_owned());
        let call = Block::ToolCall(ToolCall { id: id.clone(), name: name.clone(), arguments: String::new() });
        let result = ToolResult { call_id: id, name, text: "x".repeat(length), is_error: false };
        [
            Message { role: Role::Assistant, content: vec![call] },
            Message { role: Role::Tool, content: vec![Block::ToolResult(result)] },
        ]
    }

    fn shrink(conversation: &[Message]) -> Assembly {
        Truncating.shrink(&conversation.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_oldest_whole_turns_go_until_half_is_left() {
        let [call, result] = calls(300);
        let conversation = [
            said(Role::System, 100),
            said(Role::User, 100),
            call,
            result,
            said(Role::Assistant, 100),
            said(Role::User, 100),
            said(Role::Assistant, 100),
            said(Role::User, 100),
        ];
        // Without the first turn 400 of about 900 characters are left.
        assert_eq!(shrink(&conversation), Assembly::Drop(vec![1, 2, 3, 4]));
    }

    #[test]
    fn of_the_last_turn_the_oldest_answers_go_with_their_results_and_the_last_one_stays() {
        let [first, first_result] = calls(1_000);
        let [second, second_result] = calls(1_000);
        let conversation = [said(Role::User, 10), first, first_result, second, second_result];
        assert_eq!(shrink(&conversation), Assembly::Drop(vec![1, 2]));
    }

    #[test]
    fn instructions_and_the_last_word_of_the_user_stay() {
        assert_eq!(shrink(&[said(Role::System, 1_000), said(Role::User, 1_000)]), Assembly::Fits);
        let [call, result] = calls(1_000);
        assert_eq!(shrink(&[said(Role::User, 1_000), call, result]), Assembly::Fits);
    }

    #[test]
    fn whatever_an_assembler_wants_out_a_request_stays_one_that_a_model_takes() {
        let [first, first_result] = calls(10);
        let [last, last_result] = calls(10);
        let conversation = [
            said(Role::System, 10),
            said(Role::User, 10),
            first,
            first_result,
            said(Role::Assistant, 10),
            said(Role::User, 10),
            last,
            last_result,
        ];
        let conversation: Vec<_> = conversation.iter().collect();
        let permitted = |wanted: &[usize]| Vec::from_iter(permitted(&conversation, wanted.to_vec()));
        // All of it: instructions, the last word and what follows it stay.
        assert_eq!(permitted(&[0, 1, 2, 3, 4, 5, 6, 7, 8, usize::MAX]), [1, 2, 3, 4]);
        // A call without its result, and a result without its call.
        assert_eq!(permitted(&[1, 2, 4]), [4]);
        assert_eq!(permitted(&[3, 4]), [4]);
        assert_eq!(permitted(&[2, 3]), [2, 3]);
        // What answers a word that is gone cannot come first.
        assert_eq!(permitted(&[1]), [] as [usize; 0]);
        assert_eq!(permitted(&[1, 2, 3]), [2, 3]);
        assert_eq!(permitted(&[]), [] as [usize; 0]);
    }

    #[test]
    fn what_is_no_conversation_at_all_is_left_as_it_is() {
        assert!(permitted(&[], vec![0, 1]).is_empty());
        let result = calls(10)[1].clone();
        assert!(permitted(&[&result], vec![0]).is_empty());
    }

    #[test]
    fn what_answers_an_earlier_word_can_be_left_out_to_the_last() {
        let conversation = [said(Role::User, 10), said(Role::Assistant, 10), said(Role::User, 10)];
        let conversation: Vec<_> = conversation.iter().collect();
        assert_eq!(Vec::from_iter(permitted(&conversation, vec![0, 1])), [0, 1]);
    }

    #[test]
    fn a_tenth_is_smaller_and_less_is_not() {
        assert!(is_smaller(1_000, 900));
        assert!(!is_smaller(1_000, 901));
        assert!(is_smaller(u64::MAX, 0));
    }
}
