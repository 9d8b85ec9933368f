//! What Anthropic refuses in a conversation: calls and results that do not belong together, thoughts that were
//! changed, messages that say nothing. Knows the messages alone.

use std::collections::BTreeSet;

use super::message::{Block, Content, Message, Role};
use super::{REDACTED, SIGNATURE, invalid};
use crate::script::chat::{Rejection, Unthought};

/// Whether Anthropic would read this conversation.
pub(super) fn check(system: Option<&Content>, messages: &[Message]) -> Result<(), Rejection> {
    texts(system, messages)?;
    systems(messages)?;
    calls(messages)?;
    unique_calls(messages)?;
    signatures(messages)
}

/// Text has a word in it, and messages have content. The errors are quoted in
/// <https://github.com/anthropics/claude-code/issues/59812>,
/// <https://github.com/home-assistant/core/issues/175637> and
/// <https://github.com/glowingjade/obsidian-smart-composer/pull/156>; the last is in
/// <https://platform.claude.com/docs/en/api/errors>, too.
fn texts(system: Option<&Content>, messages: &[Message]) -> Result<(), Rejection> {
    if let Some(Content::Blocks(blocks)) = system {
        blocks.iter().filter_map(Block::text).try_for_each(|text| has_a_word("system", text))?;
    }
    let last = messages.len().saturating_sub(1);
    for (index, message) in messages.iter().enumerate() {
        let is_prefill = index == last && message.role == Role::Assistant;
        let texts: Vec<&str> = match &message.content {
            Content::Text(text) if text.is_empty() => Vec::new(),
            Content::Text(text) => vec![text],
            Content::Blocks(blocks) => blocks.iter().filter_map(Block::text).collect(),
        };
        if texts.is_empty() && message.content.blocks().is_empty() && !is_prefill {
            return Err(invalid(format!(
                "messages.{index}: all messages must have non-empty content except for the optional final \
                 assistant message"
            )));
        }
        texts.iter().try_for_each(|text| has_a_word("messages", text))?;
        if is_prefill && texts.last().is_some_and(|text| text.ends_with(char::is_whitespace)) {
            return Err(invalid("messages: final assistant content cannot end with trailing whitespace"));
        }
    }
    Ok(())
}

/// A system message comes right after a user's, with text alone
/// (<https://platform.claude.com/docs/en/about-claude/models/whats-new-claude-4-8>, "Mid-conversation system
/// messages").
fn systems(messages: &[Message]) -> Result<(), Rejection> {
    let pairs = messages.iter().zip(messages.iter().skip(1)).enumerate();
    for (index, (before, message)) in pairs.filter(|(_, (_, message))| message.role == Role::System) {
        if before.role != Role::User || message.content.blocks().iter().any(|block| block.text().is_none()) {
            return Err(invalid(format!(
                "messages.{}: a `system` message holds text, and comes right after a `user` message",
                index + 1
            )));
        }
    }
    Ok(())
}

fn has_a_word(place: &str, text: &str) -> Result<(), Rejection> {
    if text.is_empty() {
        return Err(invalid(format!("{place}: text content blocks must be non-empty")));
    }
    if text.trim().is_empty() {
        return Err(invalid(format!("{place}: text content blocks must contain non-whitespace text")));
    }
    Ok(())
}

/// Every result answers a call of the message directly before it, and every call is answered in the message
/// directly after it, once: the history errors that clients of Anthropic know best. Their wording is quoted in
/// <https://github.com/anthropics/claude-code/issues/13460>,
/// <https://github.com/anthropics/claude-code/issues/8210> and
/// <https://github.com/forkwright/aletheia/pull/57>.
fn calls(messages: &[Message]) -> Result<(), Rejection> {
    let mut called: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let answered: Vec<&str> = match message.role {
            Role::User => message.content.leading_results().collect(),
            Role::Assistant | Role::System => Vec::new(),
        };
        all_answered(&called, &answered, index)?;
        let mut results = BTreeSet::new();
        for (place, id) in message.content.blocks().iter().map(Block::answers).enumerate() {
            let Some(id) = id else { continue };
            if !called.contains(&id) {
                return Err(invalid(format!(
                    "messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` \
                     blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in \
                     the previous message."
                )));
            }
            if !results.insert(id) {
                return Err(invalid(format!(
                    "messages.{index}.content.{place}: each tool_use must have a single result. Found \
                     multiple `tool_result` blocks with id: {id}"
                )));
            }
        }
        called = match message.role {
            Role::User | Role::System => Vec::new(),
            Role::Assistant => message.content.calls().collect(),
        };
    }
    all_answered(&called, &[], messages.len())
}

/// `index` is the message after the calls.
fn all_answered(called: &[&str], answered: &[&str], index: usize) -> Result<(), Rejection> {
    let unanswered: Vec<&str> = called.iter().copied().filter(|id| !answered.contains(id)).collect();
    if unanswered.is_empty() {
        return Ok(());
    }
    Err(invalid(format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
         `tool_use` block must have a corresponding `tool_result` block in the next message.",
        index.saturating_sub(1),
        unanswered.join(", ")
    )))
}

/// Thinking comes back as it was, signature and all
/// (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking>, "Preserving thinking blocks").
/// The wording of the errors is quoted in <https://github.com/lbjlaq/Antigravity-Manager/issues/498>,
/// <https://github.com/justlovemaki/AIClient2API/issues/437> and
/// <https://github.com/microsoft/vscode/pull/318076>.
fn signatures(messages: &[Message]) -> Result<(), Rejection> {
    for (index, message) in messages.iter().enumerate() {
        for (place, block) in message.content.blocks().iter().enumerate() {
            match block {
                Block::Thinking { signature: None } => {
                    return Err(invalid(format!(
                        "messages.{index}.content.{place}.thinking.signature: Field required"
                    )));
                }
                Block::Thinking { signature: Some(signature) } if signature != SIGNATURE => {
                    return Err(invalid(format!(
                        "messages.{index}.content.{place}: Invalid `signature` in `thinking` block"
                    )));
                }
                Block::RedactedThinking { data: None } => {
                    return Err(invalid(format!(
                        "messages.{index}.content.{place}.redacted_thinking.data: Field required"
                    )));
                }
                Block::RedactedThinking { data: Some(data) } if data != REDACTED => {
                    return Err(invalid(format!(
                        "messages.{index}.content.{place}: Invalid `data` in `redacted_thinking` block"
                    )));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Only an assistant calls, and never twice by one id (<https://github.com/anthropics/claude-code/issues/20901>).
fn unique_calls(messages: &[Message]) -> Result<(), Rejection> {
    let mut ids = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        for (place, block) in message.content.blocks().iter().enumerate() {
            let Block::ToolUse { id, .. } = block else { continue };
            if message.role != Role::Assistant {
                return Err(invalid(format!(
                    "messages.{index}.content.{place}: `tool_use` blocks are for `assistant` messages alone"
                )));
            }
            if !ids.insert(id) {
                return Err(invalid(format!(
                    "messages.{index}.content.{place}: `tool_use` ids must be unique"
                )));
            }
        }
    }
    Ok(())
}

/// The calls since the user last spoke whose messages do not begin with a thought, for whoever knows whether
/// they did: while tools are used, the thoughts before a call have to come back with it. The wording of the
/// error is quoted in <https://github.com/deepset-ai/haystack-core-integrations/issues/2146>.
pub(super) fn unthought(messages: &[Message]) -> Vec<Unthought> {
    let speaks = |message: &Message| message.role == Role::User && message.content.says_something();
    let turn = messages.iter().rposition(speaks).unwrap_or(0);
    let mut unthought = Vec::new();
    for (index, message) in messages.iter().enumerate().skip(turn) {
        let is_thought =
            |block: &Block| matches!(block, Block::Thinking { .. } | Block::RedactedThinking { .. });
        if message.content.blocks().first().is_some_and(is_thought) {
            continue;
        }
        let rejection = invalid(format!(
            "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`. When `thinking` is \
             enabled, an `assistant` message whose calls are being answered must begin with the thinking \
             that it began with."
        ));
        unthought.extend(
            message
                .content
                .calls()
                .map(|call| Unthought { call: call.to_owned(), rejection: rejection.clone() }),
        );
    }
    unthought
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::read;
    use super::super::turns::*;
    use super::*;

    #[test]
    fn a_result_without_its_call_in_the_message_before_is_refused() {
        let orphan = refusal(&[user("go"), user(json!([text("x"), result("c1", "x")]))]);
        assert!(
            orphan.starts_with(
                "messages.1.content.1: unexpected `tool_use_id` found in `tool_result` blocks: c1."
            ),
            "{orphan}"
        );
        let turns = [assistant(json!([call("c1")])), user(json!([result("c1", "x")]))];
        let late = refusal(&[user("go"), turns[0].clone(), turns[1].clone(), turns[1].clone()]);
        assert!(late.starts_with("messages.3.content.0: unexpected"), "{late}");
    }

    #[test]
    fn a_call_without_its_result_in_the_next_message_is_refused() {
        let expected =
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c1.";
        let calls = assistant(json!([text("hm"), call("c1")]));
        for rest in [vec![], vec![user("well?")], vec![user(json!([text("first"), result("c1", "x")]))]] {
            let messages = [vec![user("go"), calls.clone()], rest].concat();
            let refused = refusal(&messages);
            assert!(refused.starts_with(expected), "{refused}");
        }
    }

    #[test]
    fn a_second_result_of_a_call_is_refused() {
        let results = user(json!([result("c1", "x"), result("c1", "x")]));
        let refused = refusal(&[user("go"), assistant(json!([call("c1")])), results]);
        assert!(
            refused.starts_with("messages.2.content.1: each tool_use must have a single result."),
            "{refused}"
        );
    }

    #[test]
    fn calls_have_ids_of_their_own_and_are_the_assistants() {
        let twice = refusal(&[
            user("go"),
            assistant(json!([call("c1")])),
            user(json!([result("c1", "x")])),
            assistant(json!([text("again"), call("c1")])),
            user(json!([result("c1", "x")])),
        ]);
        assert_eq!(twice, "messages.3.content.1: `tool_use` ids must be unique");
        let users = refusal(&[user(json!([call("c1")]))]);
        assert_eq!(users, "messages.0.content.0: `tool_use` blocks are for `assistant` messages alone");
    }

    #[test]
    fn text_without_a_word_is_refused() {
        let empty = "messages: text content blocks must be non-empty";
        let blank = "messages: text content blocks must contain non-whitespace text";
        assert_eq!(refusal(&[user(json!([text("a"), text("")]))]), empty);
        assert_eq!(refusal(&[user("go"), assistant(json!([text(" \n")])), user("on")]), blank);
        assert_eq!(refusal(&[user(" ")]), blank);
        let system = json!({ "max_tokens": 9, "system": [text("")], "messages": [user("go")] });
        let refused = read(system.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused.message, "system: text content blocks must be non-empty");
        // A tool may have nothing to say.
        let turn = [user("go"), assistant(json!([call("c1")])), user(json!([result("c1", "")]))];
        assert!(chat(&turn).is_ok());
    }

    #[test]
    fn a_system_message_is_text_after_the_users() {
        let system = |content: Value| json!({ "role": "system", "content": content });
        let result = user(json!([result("c1", "x")]));
        let turn = [user("go"), assistant(json!([call("c1")])), result.clone(), system(json!("be brief"))];
        assert_eq!(chat(&turn).unwrap().tool_result.as_deref(), Some("x"));
        assert!(chat(&[user("go"), system(json!([text("be brief")])), assistant("ok"), user("on")]).is_ok());
        let misplaced = refusal(&[user("go"), assistant("ok"), system(json!("be brief")), user("on")]);
        assert!(misplaced.starts_with("messages.2: a `system` message holds text, and comes"), "{misplaced}");
        let between = refusal(&[user("go"), assistant(json!([call("c1")])), system(json!("x")), result]);
        assert!(between.starts_with("messages.2: "), "{between}");
        let image = refusal(&[user("go"), system(json!([{ "type": "image", "source": {} }]))]);
        assert!(image.starts_with("messages.1: "), "{image}");
    }

    #[test]
    fn only_the_last_assistants_message_may_be_empty() {
        let expected = "messages.1: all messages must have non-empty content except for the optional final \
                        assistant message";
        for nothing in [json!(""), json!([])] {
            assert_eq!(refusal(&[user("go"), assistant(nothing.clone()), user("on")]), expected);
            assert_eq!(refusal(&[user("go"), user(nothing.clone())]), expected);
            assert!(chat(&[user("go"), assistant(nothing)]).is_ok());
        }
    }

    #[test]
    fn a_beginning_for_the_model_does_not_end_with_a_space() {
        assert!(chat(&[user("go"), assistant("The answer")]).is_ok());
        let refused = refusal(&[user("go"), assistant("The answer is ")]);
        assert_eq!(refused, "messages: final assistant content cannot end with trailing whitespace");
    }

    #[test]
    fn redacted_thinking_comes_back_with_its_data() {
        let with = |thinking: Value| chat(&[user("go"), assistant(json!([thinking])), user("on")]);
        assert!(with(json!({ "type": "redacted_thinking", "data": REDACTED })).is_ok());
        let wrong = with(json!({ "type": "redacted_thinking", "data": "x" })).unwrap_err();
        assert_eq!(wrong.message, "messages.1.content.0: Invalid `data` in `redacted_thinking` block");
        let none = with(json!({ "type": "redacted_thinking" })).unwrap_err();
        assert_eq!(none.message, "messages.1.content.0.redacted_thinking.data: Field required");
    }

    #[test]
    fn thinking_comes_back_with_its_signature() {
        let with = |thinking: Value| chat(&[user("go"), assistant(json!([thinking])), user("on")]);
        assert!(with(json!({ "type": "thinking", "thinking": "", "signature": SIGNATURE })).is_ok());
        let wrong = with(json!({ "type": "thinking", "thinking": "", "signature": "x" })).unwrap_err();
        assert_eq!(wrong.message, "messages.1.content.0: Invalid `signature` in `thinking` block");
        let none = with(json!({ "type": "thinking", "thinking": "" })).unwrap_err();
        assert_eq!(none.message, "messages.1.content.0.thinking.signature: Field required");
    }

    #[test]
    fn calls_that_came_without_their_thoughts_are_known() {
        let thought = json!({ "type": "thinking", "thinking": "", "signature": SIGNATURE });
        let of = |thinking: &str, messages: &[Value]| {
            let body = json!({ "max_tokens": 9, "thinking": { "type": thinking }, "messages": messages });
            let chat = read(body.to_string().as_bytes()).unwrap();
            chat.unthought.into_iter().map(|unthought| unthought.call).collect::<Vec<_>>()
        };
        let turn = |blocks: Value| vec![user("go"), assistant(blocks), user(json!([result("c1", "x")]))];
        let without = turn(json!([call("c1")]));
        assert_eq!(of("enabled", &without), ["c1"]);
        assert_eq!(of("adaptive", &without), ["c1"]);
        assert!(of("disabled", &without).is_empty());
        assert!(of("enabled", &turn(json!([thought, call("c1")]))).is_empty());
        // The user has spoken since: the thoughts may be left out.
        assert!(of("enabled", &[without, vec![user("and now?")]].concat()).is_empty());
    }
}
