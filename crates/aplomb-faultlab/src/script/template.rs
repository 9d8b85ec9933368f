//! Finds `{{name}}` in texts, finds out what the names stand for in a conversation, and puts it there.
//!
//! Knows nothing of protocols: a conversation is a user's text and a tool's result here.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::Value;

use super::ScriptError;

/// The names that every script has.
pub(super) const BUILT_IN: [&str; 2] = ["input", "tool_result"];

/// A stretch of a template.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{")
        && let Some((name, behind)) = after.split_once("}}")
    {
        pieces.extend([Piece::Literal(before), Piece::Name(name.trim())]);
        rest = behind;
    }
    pieces.push(Piece::Literal(rest));
    pieces
}

/// The names a template uses, in order.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Literal(_) => None,
    })
}

/// The script's named expressions, ready to search.
#[derive(Debug)]
pub(super) struct Captures(Vec<(String, Regex)>);

impl Captures {
    /// Compiles the expressions; an error names the one that does not.
    pub(super) fn compile(sources: &BTreeMap<String, String>) -> Result<Self, ScriptError> {
        let compile = |(name, source): (&String, &String)| match Regex::new(source) {
            Ok(regex) => Ok((name.clone(), regex)),
            Err(error) => Err(ScriptError::new(
                format!("captures.{name}"),
                format!("expected a regular expression, but {error}"),
            )),
        };
        sources.iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// What every name stands for in this conversation.
    pub(super) fn values(&self, input: Option<&str>, tool_result: Option<&str>) -> Values {
        let captured = self.0.iter().filter_map(|(name, regex)| {
            let found = regex.captures(input?)?;
            let value = found.get(1).or_else(|| found.get(0))?;
            Some((name.clone(), value.as_str().trim().to_owned()))
        });
        let built_in = BUILT_IN.into_iter().zip([input, tool_result]);
        let known = built_in.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        Values(captured.chain(known).collect())
    }
}

/// The names that have a value in a conversation.
#[derive(Debug)]
pub(super) struct Values(BTreeMap<String, String>);

impl Values {
    /// The template with its values. A name without one shows as `[no name]`: an empty string would let an
    /// answer look finished that never saw what it was to repeat.
    pub(super) fn fill(&self, template: &str) -> String {
        let mut text = String::with_capacity(template.len());
        for piece in pieces(template) {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Name(name) => match self.0.get(name) {
                    Some(value) => text.push_str(value),
                    None => text.extend(["[no ", name, "]"]),
                },
            }
        }
        text
    }

    /// The same for every string value inside `json`; keys stay as they are.
    pub(super) fn fill_json(&self, json: &Value) -> Value {
        match json {
            Value::String(template) => Value::String(self.fill(template)),
            Value::Array(items) => items.iter().map(|item| self.fill_json(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), self.fill_json(value))).collect()
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(captures: &[(&str, &str)], input: Option<&str>, tool_result: Option<&str>) -> Values {
        let sources = captures.iter().map(|&(name, source)| (name.to_owned(), source.to_owned())).collect();
        Captures::compile(&sources).unwrap().values(input, tool_result)
    }

    #[test]
    fn names_are_filled_in_and_may_have_space_around_them() {
        let values = values(&[], Some("hi"), Some("42"));
        assert_eq!(values.fill("{{input}}: {{ tool_result }}."), "hi: 42.");
    }

    #[test]
    fn a_name_without_a_value_shows() {
        let values = values(&[("city", "in ([A-Z][a-z]+)")], Some("hello"), None);
        assert_eq!(values.fill("{{city}}, {{tool_result}}"), "[no city], [no tool_result]");
    }

    #[test]
    fn a_capture_is_its_first_group_or_the_whole_match_trimmed() {
        let input = Some("what is 6 * 7 ?");
        assert_eq!(values(&[("e", "is ([0-9 *]+)")], input, None).fill("{{e}}"), "6 * 7");
        assert_eq!(values(&[("e", "[0-9 *]{4,}")], input, None).fill("{{e}}"), "6 * 7");
        assert_eq!(values(&[("e", "what|(never)")], input, None).fill("{{e}}"), "what");
    }

    #[test]
    fn values_are_not_expanded_again() {
        assert_eq!(values(&[], Some("{{tool_result}}"), Some("x")).fill("{{input}}"), "{{tool_result}}");
    }

    #[test]
    fn braces_without_a_partner_are_text() {
        let values = values(&[], Some("x"), None);
        assert_eq!(values.fill("{ {{input}} }} {{input"), "{ x }} {{input");
        assert_eq!(names("a }} {{ b").count(), 0);
    }

    #[test]
    fn strings_at_any_depth_of_arguments_are_templates_and_keys_are_not() {
        let values = values(&[], Some("x\"y"), None);
        let filled = values.fill_json(&json!({ "{{input}}": ["{{input}}", { "n": 1, "s": "<{{input}}>" }] }));
        assert_eq!(filled, json!({ "{{input}}": ["x\"y", { "n": 1, "s": "<x\"y>" }] }));
    }
}
