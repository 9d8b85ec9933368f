//! Where a request may mark what is to be cached, and how often.
//!
//! Source: <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>, "What can be cached" and "What
//! cannot be cached". The errors are quoted in <https://github.com/coder/mux/pull/3112> (too many),
//! <https://github.com/UKGovernmentBEIS/inspect_ai/pull/3967> (on thinking) and
//! <https://github.com/anthropics/claude-code/issues/54039> (on empty text).

use serde_json::Value;

use super::invalid;
use crate::script::chat::Rejection;

const MARK: &str = "cache_control";

/// "You can define up to 4 cache breakpoints."
const MAX_MARKS: usize = 4;

/// Whether Anthropic would have the marks of this request, whose body is JSON.
pub(super) fn check(body: &[u8]) -> Result<(), Rejection> {
    if !body.windows(MARK.len()).any(|bytes| bytes == MARK.as_bytes()) {
        return Ok(());
    }
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut marks = usize::from(mark(&request, "")?);
    for (index, tool) in list(&request, "tools").iter().enumerate() {
        marks += usize::from(mark(tool, &format!("tools.{index}."))?);
    }
    marks += blocks(list(&request, "system"), "system")?;
    for (index, message) in list(&request, "messages").iter().enumerate() {
        let place = format!("messages.{index}.content");
        let content = list(message, "content");
        marks += blocks(content, &place)?;
        for (block, result) in content.iter().enumerate() {
            marks += blocks(list(result, "content"), &format!("{place}.{block}.content"))?;
        }
    }
    if marks > MAX_MARKS {
        return Err(invalid(format!(
            "A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {marks}."
        )));
    }
    Ok(())
}

/// The marks in a list of blocks.
fn blocks(blocks: &[Value], place: &str) -> Result<usize, Rejection> {
    let mut marks = 0;
    for (index, block) in blocks.iter().enumerate() {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        let place = format!("{place}.{index}.{kind}");
        if mark(block, &format!("{place}."))? {
            if matches!(kind, "thinking" | "redacted_thinking") {
                return Err(invalid(format!("{place}.{MARK}: Extra inputs are not permitted")));
            }
            if block.get("text").and_then(Value::as_str) == Some("") {
                return Err(invalid(format!("{place}: cache_control cannot be set for empty text blocks")));
            }
            marks += 1;
        }
    }
    Ok(marks)
}

/// Whether there is a mark here, and what Anthropic would have to say about it.
fn mark(marked: &Value, place: &str) -> Result<bool, Rejection> {
    let Some(mark) = marked.get(MARK).filter(|mark| !mark.is_null()) else { return Ok(false) };
    if mark.get("type").and_then(Value::as_str) != Some("ephemeral") {
        return Err(invalid(format!("{place}{MARK}.type: Input should be 'ephemeral'")));
    }
    match mark.get("ttl").map(Value::as_str) {
        None | Some(Some("5m" | "1h")) => Ok(true),
        Some(_) => Err(invalid(format!("{place}{MARK}.ttl: Input should be '5m' or '1h'"))),
    }
}

fn list<'a>(holder: &'a Value, field: &str) -> &'a [Value] {
    holder.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(request: &Value) -> Option<String> {
        check(request.to_string().as_bytes()).err().map(|rejection| rejection.message)
    }

    fn marked(mut block: Value) -> Value {
        block[MARK] = json!({ "type": "ephemeral" });
        block
    }

    fn message(block: &Value) -> Value {
        json!({ "messages": [ { "role": "user", "content": [block] } ] })
    }

    #[test]
    fn marks_are_fine_where_the_documentation_has_them() {
        let result = json!({ "type": "tool_result", "tool_use_id": "c1", "content": [] });
        for block in [
            json!({ "type": "text", "text": "a" }),
            json!({ "type": "image", "source": {} }),
            json!({ "type": "document", "source": {} }),
            json!({ "type": "tool_use", "id": "c1", "name": "f", "input": {} }),
            result,
        ] {
            assert_eq!(refusal(&message(&marked(block))), None);
        }
        assert_eq!(refusal(&marked(json!({ "tools": [marked(json!({ "name": "f" }))] }))), None);
        let hour = json!({ "system": [ { "type": "text", "text": "a",
                           "cache_control": { "type": "ephemeral", "ttl": "1h" } } ] });
        assert_eq!(refusal(&hour), None);
    }

    #[test]
    fn thoughts_and_empty_texts_have_no_mark() {
        for kind in ["thinking", "redacted_thinking"] {
            let expected =
                format!("messages.0.content.0.{kind}.cache_control: Extra inputs are not permitted");
            assert_eq!(refusal(&message(&marked(json!({ "type": kind })))), Some(expected));
        }
        assert_eq!(
            refusal(&message(&marked(json!({ "type": "text", "text": "" })))).as_deref(),
            Some("messages.0.content.0.text: cache_control cannot be set for empty text blocks")
        );
    }

    #[test]
    fn a_request_has_four_marks_at_most_wherever_they_are() {
        let block = marked(json!({ "type": "text", "text": "a" }));
        let results = json!([ { "type": "tool_result", "content": [block, block] } ]);
        let mut request = json!({ "system": [block], "tools": [marked(json!({ "name": "f" }))],
                                  "messages": [ { "role": "user", "content": results } ] });
        assert_eq!(refusal(&request), None);
        request[MARK] = json!({ "type": "ephemeral" });
        assert_eq!(
            refusal(&request).as_deref(),
            Some("A maximum of 4 blocks with cache_control may be provided. Found 5.")
        );
    }

    #[test]
    fn a_mark_says_a_kind_and_a_time_that_exist() {
        let with =
            |mark: Value| refusal(&message(&json!({ "type": "text", "text": "a", "cache_control": mark })));
        let place = "messages.0.content.0.text.cache_control";
        assert_eq!(
            with(json!({ "type": "eternal" })),
            Some(format!("{place}.type: Input should be 'ephemeral'"))
        );
        let ttl = json!({ "type": "ephemeral", "ttl": "2h" });
        assert_eq!(with(ttl), Some(format!("{place}.ttl: Input should be '5m' or '1h'")));
        // A word in a text or an input is no mark.
        let word = json!({ "type": "text", "text": "cache_control" });
        assert_eq!(refusal(&message(&word)), None);
        assert_eq!(with(Value::Null), None);
    }
}
