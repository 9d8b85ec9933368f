//! The JSON Schema of the language: its types, and what is written about them.

use serde_json::Value;

use super::Script;

/// The schema of a script (JSON Schema, draft 2020-12), with the documentation of every field and fault.
///
/// It accepts every script that [`Script::read`] accepts, but not the other way round: what
/// [`Script::validate`] checks is not in it.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(Script).to_value();
    words(&mut schema);
    schema
}

/// Descriptions are for people who write scripts: a paragraph is one line, and a link to a Rust item is the
/// name that a script has for it.
fn words(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => *text = readable(text),
                    other => words(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(words),
        _ => {}
    }
}

fn readable(documentation: &str) -> String {
    let paragraphs = documentation.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    without_links(&paragraphs.collect::<Vec<_>>().join("\n\n"))
}

/// ``[`Fault::WrongChunkSize`]`` and ``[`Step::delay_ms`](super::Step)`` become `wrong_chunk_size` and `delay_ms`
/// between backticks.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`")
        && let Some((item, behind)) = after.split_once("`]")
    {
        let name = item.rsplit("::").next().unwrap_or(item);
        plain.extend([before, "`", &snake_case(name), "`"]);
        rest = behind
            .strip_prefix('(')
            .and_then(|target| target.split_once(')'))
            .map_or(behind, |(_, rest)| rest);
    }
    plain + rest
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_the_names_of_the_language() {
        let text =
            "As [`Fault::WrongChunkSize`], [`Step::delay_ms`](super::Step::delay_ms) and [one] of (two).";
        assert_eq!(without_links(text), "As `wrong_chunk_size`, `delay_ms` and [one] of (two).");
    }

    #[test]
    fn every_field_and_fault_is_described_in_words_without_rust() {
        let schema = json_schema();
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            let fields = definition["properties"].as_object().into_iter().flatten();
            let variants = definition["oneOf"].as_array().into_iter().flatten();
            let described = fields.map(|(_, field)| field).chain(variants).chain([definition]);
            for part in described {
                let text = part["description"].as_str().unwrap_or_default();
                assert!(!text.is_empty(), "{name}: {part}");
                assert!(!text.contains("[`") && !text.contains("::"), "{name}: {text}");
            }
        }
    }
}
