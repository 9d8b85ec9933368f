//! A conversation whose calls and results are in pairs, as every provider wants it.

use std::sync::Arc;

use super::{Block, Message, Role, ToolCall, ToolResult};

/// What the model is told of a call of which nobody knows the result.
const INTERRUPTED: &str =
    "tool.error: the call was interrupted, and it is not known whether it was carried out";

/// The conversation with a result for every call, and without results that nobody called for.
///
/// A memory may give what no provider takes: a run that died between a call and its result, a history whose beginning was
/// cut off in the middle of a turn. Results are those of the messages that follow the call's at once; a call without one
/// gets one that says that it was interrupted. The same conversation always gives the same one.
///
/// Sources: OpenAI's refusals "An assistant message with 'tool_calls' must be followed by tool messages responding to each
/// 'tool_call_id'" and "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"; Anthropic,
/// "Handling tool results" (<https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use>); Gemini's
/// "number of function response parts is equal to the number of function call parts".
pub fn paired<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Vec<Arc<Message>> {
    let mut paired: Vec<Arc<Message>> = Vec::new();
    let mut open: Vec<&ToolCall> = Vec::new();
    for message in messages {
        if message.role != Role::Tool {
            close(&mut paired, std::mem::take(&mut open));
        }
        let kept: Vec<&Block> = message.content.iter().filter(|block| answers(block, &mut open)).collect();
        if kept.len() == message.content.len() {
            paired.push(message.clone());
        } else if !kept.is_empty() {
            let content = kept.into_iter().cloned().collect();
            paired.push(Arc::new(Message { role: message.role, content }));
        }
        open.extend(message.tool_calls());
    }
    close(&mut paired, open);
    paired
}

/// Whether a block stays: it is no result, or the first one of a call that waits for it.
fn answers(block: &Block, open: &mut Vec<&ToolCall>) -> bool {
    let Block::ToolResult(result) = block else { return true };
    let call = open.iter().position(|call| call.id == result.call_id);
    call.map(|place| open.remove(place)).is_some()
}

/// Gives the calls that still wait for a result one, beside the results of the others.
fn close(paired: &mut Vec<Arc<Message>>, open: Vec<&ToolCall>) {
    if open.is_empty() {
        return;
    }
    let results = open.into_iter().map(|call| {
        let (call_id, name, text) = (call.id.clone(), call.name.clone(), INTERRUPTED.to_owned());
        Block::ToolResult(ToolResult { call_id, name, text, is_error: true })
    });
    match paired.last_mut().filter(|last| last.role == Role::Tool) {
        Some(last) => Arc::make_mut(last).content.extend(results),
        None => paired.push(Arc::new(Message { role: Role::Tool, content: results.collect() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(ids: &[&str]) -> Arc<Message> {
        let call = |id: &&str| {
            let (id, name, arguments) = ((*id).to_owned(), "calc".to_owned(), "{}".to_owned());
            Block::ToolCall(ToolCall { id, name, arguments })
        };
        Arc::new(Message { role: Role::Assistant, content: ids.iter().map(call).collect() })
    }

    fn result(id: &str, text: &str, is_error: bool) -> Block {
        let (call_id, name, text) = (id.to_owned(), "calc".to_owned(), text.to_owned());
        Block::ToolResult(ToolResult { call_id, name, text, is_error })
    }

    fn results(ids: &[&str]) -> Arc<Message> {
        let content = ids.iter().map(|id| result(id, "81", false)).collect();
        Arc::new(Message { role: Role::Tool, content })
    }

    fn interrupted(ids: &[&str]) -> Arc<Message> {
        let content = ids.iter().map(|id| result(id, INTERRUPTED, true)).collect();
        Arc::new(Message { role: Role::Tool, content })
    }

    fn says(role: Role) -> Arc<Message> {
        Arc::new(Message::text(role, "hm"))
    }

    #[test]
    fn what_is_in_pairs_stays_as_it_is() {
        let said = [
            says(Role::System),
            says(Role::User),
            calls(&["a", "b"]),
            results(&["b", "a"]),
            calls(&["a"]),
            results(&["a"]),
            says(Role::Assistant),
        ];
        assert_eq!(paired(&said), said);
        // In a message each, as some keep them.
        let apart = [calls(&["a", "b"]), results(&["a"]), results(&["b"])];
        assert_eq!(paired(&apart), apart);
    }

    #[test]
    fn a_call_without_a_result_gets_one_that_says_that_it_was_interrupted() {
        for (said, expected) in [
            (
                vec![says(Role::User), calls(&["a"])],
                vec![says(Role::User), calls(&["a"]), interrupted(&["a"])],
            ),
            (
                vec![calls(&["a", "b"]), says(Role::User)],
                vec![calls(&["a", "b"]), interrupted(&["a", "b"]), says(Role::User)],
            ),
            // Too late is not at all.
            (
                vec![calls(&["a"]), says(Role::User), results(&["a"])],
                vec![calls(&["a"]), interrupted(&["a"]), says(Role::User)],
            ),
            // Two calls of one name, and one result.
            (vec![calls(&["a", "a"]), results(&["a"])], {
                let content = vec![result("a", "81", false), result("a", INTERRUPTED, true)];
                vec![calls(&["a", "a"]), Arc::new(Message { role: Role::Tool, content })]
            }),
        ] {
            assert_eq!(paired(&said), expected);
            assert_eq!(paired(&expected), expected, "what is mended stays as it is");
        }
    }

    #[test]
    fn a_result_that_nobody_called_for_is_left_out() {
        for (said, expected) in [
            (vec![results(&["a"]), says(Role::User)], vec![says(Role::User)]),
            (vec![calls(&["a"]), results(&["a", "b"])], vec![calls(&["a"]), results(&["a"])]),
            (vec![calls(&["a"]), results(&["a"]), results(&["a"])], vec![calls(&["a"]), results(&["a"])]),
        ] {
            assert_eq!(paired(&said), expected);
        }
    }
}
