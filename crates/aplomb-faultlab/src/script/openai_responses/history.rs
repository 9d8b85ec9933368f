//! What OpenAI refuses in a conversation of items: calls and outputs that do not belong together, reasoning that
//! lost what it led to, items that are not what they say. Knows the items alone.

use std::collections::BTreeSet;

use super::item::{Item, Kind};
use super::{ENCRYPTED, invalid, missing, unsupported};
use crate::script::chat::{Rejection, Unthought};

/// The roles of messages (`EasyInputMessage` of OpenAI's SDKs). A tool's result is an item of its own.
const ROLES: [&str; 4] = ["assistant", "system", "developer", "user"];

/// What messages consist of, by who speaks.
const SAID_BY_MODEL: [&str; 2] = ["output_text", "refusal"];
const SAID_TO_MODEL: [&str; 3] = ["input_text", "input_image", "input_file"];

/// Whether OpenAI would read this conversation, whose answers it keeps or not.
pub(super) fn check(items: &[Item], store: bool) -> Result<(), Rejection> {
    for (index, item) in items.iter().enumerate() {
        let place = format!("input[{index}]");
        match item.kind() {
            Kind::Message => message(item, &place)?,
            Kind::Call => {
                needs(&place, "call_id", item.call_id.is_some())?;
                needs(&place, "name", item.name.is_some())?;
                needs(&place, "arguments", item.arguments.is_some())?;
                id(item, &place, "fc")?;
            }
            Kind::Output => {
                needs(&place, "call_id", item.call_id.is_some())?;
                needs(&place, "output", item.output.is_some())?;
            }
            Kind::Reasoning => {
                needs(&place, "summary", item.summary.is_some())?;
                id(item, &place, "rs")?;
                reasoning(item, items.get(index + 1), store)?;
            }
            Kind::Reference => return Err(not_kept(item, "faultlab keeps no items")),
            Kind::Other => {}
        }
    }
    calls(items)
}

fn needs(place: &str, field: &str, is_there: bool) -> Result<(), Rejection> {
    if is_there { Ok(()) } else { Err(missing(format!("{place}.{field}"))) }
}

/// The parts of the model's messages are not those of the others: the error is quoted in
/// <https://github.com/tinyhumansai/openhuman/issues/3624>.
fn message(item: &Item, place: &str) -> Result<(), Rejection> {
    let role = item.role.as_deref().ok_or_else(|| missing(format!("{place}.role")))?;
    if !ROLES.contains(&role) {
        return Err(unsupported(format!("{place}.role"), role, &ROLES));
    }
    let content = item.content.as_ref().ok_or_else(|| missing(format!("{place}.content")))?;
    let supported: &[&str] = if role == "assistant" { &SAID_BY_MODEL } else { &SAID_TO_MODEL };
    for (part, said) in content.parts().iter().enumerate() {
        if !supported.contains(&said.kind.as_str()) {
            return Err(unsupported(format!("{place}.content[{part}]"), &said.kind, supported));
        }
    }
    if role == "assistant" { id(item, place, "msg") } else { Ok(()) }
}

/// An item may have no id; one that it has begins as OpenAI's do. The error is quoted in
/// <https://github.com/BigPizzaV3/CodexPlusPlus/issues/1796>,
/// <https://github.com/jlcodes99/cockpit-tools/issues/2090> and <https://github.com/openai/codex/issues/33176>.
fn id(item: &Item, place: &str, prefix: &str) -> Result<(), Rejection> {
    match item.id.as_deref() {
        Some(id) if !id.starts_with(prefix) => {
            let message =
                format!("Invalid '{place}.id': '{id}'. Expected an ID that begins with '{prefix}'.");
            Err(Rejection { code: Some("invalid_value"), ..invalid(format!("{place}.id"), message) })
        }
        _ => Ok(()),
    }
}

/// Reasoning comes back as it was and before what it led to. The errors are quoted in
/// <https://github.com/openai/codex/issues/8145>, <https://github.com/continuedev/continue/issues/8933> and, with
/// its status, <https://github.com/can1357/oh-my-pi/issues/41>.
fn reasoning(item: &Item, next: Option<&Item>, store: bool) -> Result<(), Rejection> {
    match item.encrypted_content.as_deref() {
        Some(content) if content != ENCRYPTED => {
            let message = format!("The encrypted content {content} could not be verified.");
            let rejection = Rejection::invalid(None, message);
            return Err(Rejection { code: Some("invalid_encrypted_content"), ..rejection });
        }
        None if !store => {
            return Err(not_kept(
                item,
                "Items are not persisted when `store` is set to false. Try again with `store` set to true, or \
                 remove this item from your input",
            ));
        }
        _ => {}
    }
    if next.is_none_or(|next| !next.is_models()) {
        let id = item.id.as_deref().unwrap_or_default();
        let message =
            format!("Item '{id}' of type 'reasoning' was provided without its required following item.");
        return Err(invalid("input", message));
    }
    Ok(())
}

fn not_kept(item: &Item, why: &str) -> Rejection {
    let id = item.id.as_deref().unwrap_or_default();
    Rejection { status: 404, ..invalid("input", format!("Item with id '{id}' not found. {why}.")) }
}

/// Every output has its call before it, and every call its output somewhere after it: "pairs tool calls with
/// their outputs by `call_id` regardless of position"
/// (<https://github.com/deepseek-ai/awesome-deepseek-integration/issues/740>). The errors are quoted in
/// <https://github.com/microsoft/vscode/issues/320060> and
/// <https://github.com/router-for-me/CLIProxyAPI/issues/2368>.
fn calls(items: &[Item]) -> Result<(), Rejection> {
    let mut called = BTreeSet::new();
    let mut answered = BTreeSet::new();
    for item in items {
        let Some(id) = item.call_id.as_deref() else { continue };
        match item.kind() {
            Kind::Call => {
                called.insert(id);
            }
            Kind::Output if !called.contains(id) => {
                let message = format!("No tool call found for function call output with call_id {id}.");
                return Err(invalid("input", message));
            }
            Kind::Output => {
                answered.insert(id);
            }
            _ => {}
        }
    }
    match called.difference(&answered).next() {
        Some(id) => Err(invalid("input", format!("No tool output found for function call {id}."))),
        None => Ok(()),
    }
}

/// The calls that came back by their items' ids and without reasoning before them, for whoever knows whether
/// there was some. The error is quoted in <https://github.com/cline/cline/issues/12242>; a call without its
/// item's id is the client's own, and nobody asks for its reasoning.
pub(super) fn unthought(items: &[Item]) -> Vec<Unthought> {
    let mut thought = false;
    let mut unthought = Vec::new();
    for item in items {
        thought = match item.kind() {
            Kind::Reasoning => true,
            _ => thought && item.is_models(),
        };
        if item.kind() == Kind::Call
            && !thought
            && let (Some(id), Some(call)) = (&item.id, &item.call_id)
        {
            let message = format!(
                "Item '{id}' of type 'function_call' was provided without its required 'reasoning' item."
            );
            unthought.push(Unthought { call: call.clone(), rejection: invalid("input", message) });
        }
    }
    unthought
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::read;
    use super::*;
    use crate::script::chat::Chat;

    fn chat(input: &[Value]) -> Result<Chat, Rejection> {
        read(json!({ "model": "m", "store": false, "input": input }).to_string().as_bytes())
    }

    /// The field, the code and the message of a refusal.
    fn refusal(input: &[Value]) -> (String, Option<&'static str>, String) {
        let rejection = chat(input).unwrap_err();
        (rejection.param.unwrap_or_default(), rejection.code, rejection.message)
    }

    fn user(content: impl Into<Value>) -> Value {
        json!({ "role": "user", "content": content.into() })
    }

    fn call(id: &str) -> Value {
        json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" })
    }

    fn output(id: &str) -> Value {
        json!({ "type": "function_call_output", "call_id": id, "output": "x" })
    }

    fn reasoning() -> Value {
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ENCRYPTED })
    }

    #[test]
    fn an_output_without_its_call_before_it_is_refused() {
        for input in [vec![user("go"), output("c1")], vec![user("go"), output("c1"), call("c1")]] {
            let (param, code, message) = refusal(&input);
            assert_eq!((param.as_str(), code), ("input", None));
            assert_eq!(message, "No tool call found for function call output with call_id c1.");
        }
    }

    #[test]
    fn a_call_without_its_output_is_refused_and_others_may_come_between() {
        let (_, _, message) = refusal(&[user("go"), call("c1"), call("c2"), output("c1")]);
        assert_eq!(message, "No tool output found for function call c2.");
        assert!(chat(&[user("go"), call("c1"), user("well?"), output("c1")]).is_ok());
    }

    #[test]
    fn a_message_has_one_of_four_roles_and_a_content() {
        let (param, code, message) = refusal(&[json!({ "role": "tool", "content": "x" })]);
        assert_eq!((param.as_str(), code), ("input[0].role", Some("invalid_value")));
        assert_eq!(
            message,
            "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
        );
        assert_eq!(refusal(&[json!({ "role": "user" })]).0, "input[0].content");
        assert_eq!(refusal(&[json!({ "type": "message", "content": "x" })]).0, "input[0].role");
    }

    #[test]
    fn what_the_model_said_has_other_parts_than_what_was_said_to_it() {
        let said = |role: &str, kind: &str| {
            let part = json!({ "type": kind, "text": "x" });
            vec![user("go"), json!({ "role": role, "content": [part] }), user("on")]
        };
        let (param, code, message) = refusal(&said("assistant", "input_text"));
        assert_eq!((param.as_str(), code), ("input[1].content[0]", Some("invalid_value")));
        assert_eq!(
            message,
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."
        );
        assert_eq!(refusal(&said("user", "output_text")).0, "input[1].content[0]");
        assert!(chat(&said("assistant", "output_text")).is_ok());
        assert!(chat(&said("developer", "input_text")).is_ok());
    }

    #[test]
    fn a_call_has_its_id_its_name_and_its_arguments() {
        for field in ["call_id", "name", "arguments"] {
            let mut call = call("c1");
            call.as_object_mut().unwrap().remove(field);
            let (param, code, _) = refusal(&[user("go"), call]);
            assert_eq!((param, code), (format!("input[1].{field}"), Some("missing_required_parameter")));
        }
        let no_output = json!({ "type": "function_call_output", "call_id": "c1" });
        assert_eq!(refusal(&[user("go"), call("c1"), no_output]).0, "input[2].output");
    }

    #[test]
    fn an_items_id_begins_as_its_type_wants_it() {
        let mut call = call("c1");
        call["id"] = "call_1".into();
        let (param, _, message) = refusal(&[user("go"), call, output("c1")]);
        assert_eq!(param, "input[1].id");
        assert_eq!(message, "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.");
        let message = json!({ "role": "assistant", "id": "x", "content": "hi" });
        assert_eq!(refusal(&[user("go"), message, user("on")]).0, "input[1].id");
    }

    #[test]
    fn reasoning_comes_back_as_it_was_and_before_what_it_led_to() {
        assert!(chat(&[user("go"), reasoning(), call("c1"), output("c1")]).is_ok());
        let assistant = json!({ "role": "assistant", "content": "hi" });
        assert!(chat(&[user("go"), reasoning(), reasoning(), assistant, user("on")]).is_ok());

        for input in [vec![user("go"), reasoning()], vec![user("go"), reasoning(), user("on")]] {
            let (_, _, message) = refusal(&input);
            assert_eq!(
                message,
                "Item 'rs_1' of type 'reasoning' was provided without its required following item."
            );
        }
        let without = |field: &str| {
            let mut reasoning = reasoning();
            reasoning.as_object_mut().unwrap().remove(field);
            [user("go"), reasoning, call("c1"), output("c1")]
        };
        assert_eq!(refusal(&without("summary")).0, "input[1].summary");
        let not_kept = chat(&without("encrypted_content")).unwrap_err();
        assert_eq!(not_kept.status, 404);
        assert!(not_kept.message.starts_with("Item with id 'rs_1' not found. Items are not persisted"));
        let kept = json!({ "input": without("encrypted_content") });
        assert!(read(kept.to_string().as_bytes()).is_ok());

        let mut changed = reasoning();
        changed["encrypted_content"] = "x".into();
        let (_, code, message) = refusal(&[user("go"), changed, call("c1"), output("c1")]);
        assert_eq!(message, "The encrypted content x could not be verified.");
        assert_eq!(code, Some("invalid_encrypted_content"));
    }

    #[test]
    fn a_call_by_its_items_id_misses_its_reasoning() {
        let mut named = call("c1");
        named["id"] = "fc_1".into();
        let unthought = |input: &[Value]| chat(input).unwrap().unthought.len();
        assert_eq!(unthought(&[user("go"), named.clone(), output("c1")]), 1);
        assert_eq!(unthought(&[user("go"), reasoning(), named.clone(), output("c1")]), 0);
        assert_eq!(unthought(&[user("go"), call("c1"), output("c1")]), 0);
        // The reasoning of one answer is not that of the next.
        let turns = [user("go"), reasoning(), call("c0"), output("c0"), named, output("c1")];
        assert_eq!(unthought(&turns), 1);
    }

    #[test]
    fn a_reference_finds_nothing() {
        let rejection = chat(&[json!({ "type": "item_reference", "id": "msg_1" })]).unwrap_err();
        assert_eq!(rejection.status, 404);
        assert_eq!(rejection.message, "Item with id 'msg_1' not found. faultlab keeps no items.");
    }
}
