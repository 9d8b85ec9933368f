//! What Google refuses in a conversation: calls and responses that do not belong together, signatures that are
//! missing or were changed, contents that say nothing. Knows the contents alone.

use super::content::Content;
use super::{SIGNATURE, Target, invalid};
use crate::script::chat::Rejection;

/// What a client may send for a signature that it never had
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>, "FAQs").
const UNSIGNED: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Whether Google would read this conversation with this model.
pub(super) fn check(contents: &[Content], model: &str) -> Result<(), Rejection> {
    parts(contents)?;
    turns(contents)?;
    signatures(contents)?;
    if Target::always_signs(model) { signed(contents) } else { Ok(()) }
}

/// Contents have a role that there is, and parts that say something. `function` is a user's older name for one who
/// responds (`Tool.function_declarations` in Google's `content.proto`). The errors are quoted in
/// <https://github.com/the-open-agent/openagent/issues/1666>, <https://github.com/egoist/chatwise-releases/issues/250>
/// and <https://github.com/boldsoftware/sketch/issues/68>.
fn parts(contents: &[Content]) -> Result<(), Rejection> {
    for (index, content) in contents.iter().enumerate() {
        if !matches!(content.role.as_deref(), None | Some("" | "user" | "model" | "function")) {
            return Err(invalid("Please use a valid role: user, model."));
        }
        let place = format!("* GenerateContentRequest.contents[{index}].parts");
        if content.parts.is_empty() {
            return Err(invalid(format!("{place}: contents.parts must not be empty.\n")));
        }
        if let Some(part) = content.parts.iter().position(|part| !part.has_data()) {
            return Err(invalid(format!(
                "{place}[{part}].data: required oneof field 'data' must have one initialized field\n"
            )));
        }
    }
    Ok(())
}

/// Calls come after the user or a function has spoken, and as many responses right after them. The errors are quoted
/// in <https://github.com/google-gemini/gemini-cli/issues/11814>,
/// <https://github.com/langchain-ai/langchain/issues/27799> and
/// <https://github.com/google-gemini/gemini-cli/issues/7410>.
fn turns(contents: &[Content]) -> Result<(), Rejection> {
    let mut before: Option<&Content> = None;
    for content in contents {
        let called = before.map_or(0, |before| before.calls().count());
        let responds = content.responses().count();
        if responds > 0 && called == 0 {
            return Err(invalid(
                "Please ensure that function response turn comes immediately after a function call turn.",
            ));
        }
        as_many(called, responds)?;
        if content.calls().count() > 0 && before.is_none_or(Content::is_models) {
            return Err(invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function \
                 response turn.",
            ));
        }
        before = Some(content);
    }
    as_many(before.map_or(0, |before| before.calls().count()), 0)
}

fn as_many(called: usize, responds: usize) -> Result<(), Rejection> {
    if called == responds {
        return Ok(());
    }
    Err(invalid(
        "Please ensure that the number of function response parts is equal to the number of function call parts \
         of the function call turn.",
    ))
}

/// A signature comes back as it was. The error is quoted in
/// <https://github.com/google-gemini/gemini-cli/issues/13467>.
fn signatures(contents: &[Content]) -> Result<(), Rejection> {
    let parts = contents.iter().flat_map(|content| &content.parts);
    let mut given = parts.filter_map(|part| part.thought_signature.as_deref());
    if given.all(|signature| signature == SIGNATURE || UNSIGNED.contains(&signature)) {
        Ok(())
    } else {
        Err(invalid("Corrupted thought signature."))
    }
}

/// Since the user last spoke (a message that has more than responses), the first call of each step is signed
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>, "Function calling": others are not looked at). The
/// error is quoted in <https://github.com/lbjlaq/Antigravity-Manager/issues/938>.
fn signed(contents: &[Content]) -> Result<(), Rejection> {
    let speaks =
        |content: &Content| !content.is_models() && content.responses().count() < content.parts.len();
    let turn = contents.iter().rposition(speaks).unwrap_or(0);
    for (index, content) in contents.iter().enumerate().skip(turn) {
        if let Some((call, None)) = content.calls().next() {
            return Err(invalid(format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools \
                 to work correctly, and missing thought_signature may lead to degraded model performance. \
                 Additional data, function call `{}`, position {}. Please refer to \
                 https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
                call.name,
                index + 1
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::read;
    use super::*;

    fn ask(model: &str, contents: &[Value]) -> Result<(), String> {
        let body = json!({ "contents": contents }).to_string();
        let path = format!("/v1beta/models/{model}:generateContent");
        read(&path, body.as_bytes()).map(|_| ()).map_err(|rejection| {
            assert_eq!(rejection.status, 400);
            rejection.message
        })
    }

    fn refusal(contents: &[Value]) -> String {
        ask("gemini-2.5-flash", contents).unwrap_err()
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "parts": [ { "text": text } ] })
    }

    fn call(signature: Option<&str>) -> Value {
        let mut part = json!({ "functionCall": { "name": "f", "args": {} } });
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature.into();
        }
        part
    }

    fn model(parts: &[Value]) -> Value {
        json!({ "role": "model", "parts": parts })
    }

    fn responses(count: usize) -> Value {
        let part = json!({ "functionResponse": { "name": "f", "response": { "output": "x" } } });
        json!({ "role": "user", "parts": vec![part; count] })
    }

    #[test]
    fn a_response_without_its_call_right_before_it_is_refused() {
        let message =
            "Please ensure that function response turn comes immediately after a function call turn.";
        assert_eq!(refusal(&[user("go"), responses(1)]), message);
        let turns = [user("go"), model(&[call(None)]), responses(1), responses(1)];
        assert_eq!(refusal(&turns), message);
    }

    #[test]
    fn there_are_as_many_responses_as_calls() {
        let calls = model(&[call(None), call(None)]);
        for after in [vec![], vec![responses(1)], vec![responses(3)], vec![user("well?")]] {
            let turns = [vec![user("go"), calls.clone()], after].concat();
            assert!(refusal(&turns).starts_with("Please ensure that the number of function response parts"));
        }
        assert_eq!(ask("m", &[user("go"), calls, responses(2)]), Ok(()));
    }

    #[test]
    fn a_call_comes_after_a_user_or_a_response() {
        let first = [model(&[call(None)]), responses(1)];
        assert!(refusal(&first).starts_with("Please ensure that function call turn comes immediately after"));
        let second = [user("go"), model(&[json!({ "text": "hm" })]), model(&[call(None)]), responses(1)];
        assert!(
            refusal(&second).starts_with("Please ensure that function call turn comes immediately after")
        );
    }

    #[test]
    fn contents_have_a_role_and_parts_that_say_something() {
        let content = |role: &str, parts: Value| json!({ "role": role, "parts": parts });
        assert_eq!(
            refusal(&[content("assistant", json!([{ "text": "x" }]))]),
            "Please use a valid role: user, model."
        );
        assert_eq!(
            refusal(&[user("go"), content("model", json!([]))]),
            "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.\n"
        );
        assert_eq!(
            refusal(&[content("user", json!([{ "text": "x" }, { "thought": true }]))]),
            "* GenerateContentRequest.contents[0].parts[1].data: required oneof field 'data' must have one \
             initialized field\n"
        );
    }

    #[test]
    fn a_signature_comes_back_as_it_was() {
        let turns = |signature| [user("go"), model(&[call(Some(signature))]), responses(1)];
        assert_eq!(refusal(&turns("eA==")), "Corrupted thought signature.");
        for fine in [SIGNATURE, "skip_thought_signature_validator"] {
            assert_eq!(ask("gemini-3-pro", &turns(fine)), Ok(()));
        }
    }

    #[test]
    fn from_the_third_generation_on_the_first_call_of_a_step_is_signed() {
        let gemini_3 = |contents: &[Value]| ask("gemini-3-pro", contents);
        let unsigned = [user("go"), model(&[call(None)]), responses(1)];
        let message = gemini_3(&unsigned).unwrap_err();
        assert!(message.contains("function call `f`, position 2."), "{message}");
        assert_eq!(ask("gemini-2.5-pro", &unsigned), Ok(()));

        let parallel = [user("go"), model(&[call(Some(SIGNATURE)), call(None)]), responses(2)];
        assert_eq!(gemini_3(&parallel), Ok(()));
        let steps = [&parallel[..], &[model(&[call(None)]), responses(1)]].concat();
        assert!(gemini_3(&steps).is_err());
        // What was before the user spoke is not looked at.
        let over = [&unsigned[..], &[model(&[json!({ "text": "x" })]), user("on")]].concat();
        assert_eq!(gemini_3(&over), Ok(()));
        let mut speaks = responses(1);
        speaks["parts"].as_array_mut().unwrap().push(json!({ "text": "and hurry" }));
        assert_eq!(gemini_3(&[user("go"), model(&[call(None)]), speaks]), Ok(()));
    }
}
