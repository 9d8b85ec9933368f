//! How a model is told what its output must fit: in its protocol's own words where it has them and the schema is one that
//! the vendor takes, in the instructions otherwise. Decides; the codecs only write.
//!
//! Whatever the vendor promises, the answer is checked against the whole schema where it arrives.

mod measure;
mod subset;

use std::sync::Arc;

use aplomb_core::message::{Block, Message, Role};
use aplomb_core::run::OutputSchema;
use serde_json::json;

use self::subset::{ANTHROPIC, GEMINI, OPENAI, OPENAI_PLAIN};
use crate::wire::{OutputFormat, Quirks, Schemas, Wire, gemini};

/// How the schema is told.
pub(crate) enum Told {
    /// In a field of the request.
    Natively(OutputFormat),
    /// In the standing instructions.
    InInstructions,
}

/// How a model is told what its output must fit, which may also ask for tools.
pub(crate) fn told(output: &OutputSchema, model: &str, wire: Wire, quirks: Quirks, with_tools: bool) -> Told {
    let takes_it = match quirks.schemas {
        Schemas::Never => false,
        Schemas::Always => true,
        Schemas::WithoutTools => !with_tools,
        Schemas::AsProtocol => wire != Wire::Gemini || !with_tools || gemini::generation(model) >= 3,
    };
    let is_plain = quirks.schemas_are_plain || model.starts_with("ft:");
    let format = if takes_it { format(output, wire, is_plain) } else { None };
    let format = format.or_else(|| (quirks.schemas == Schemas::Always).then(|| as_it_is(output)));
    format.map_or(Told::InInstructions, Told::Natively)
}

/// The schema for a field of the request, if the vendor takes such a one.
fn format(output: &OutputSchema, wire: Wire, is_plain: bool) -> Option<OutputFormat> {
    let name = name(&output.name);
    let is_object = output.schema.get("type") == Some(&json!("object"));
    // What OpenAI's schemas cannot have at their root, strict or not.
    let is_choice =
        ["anyOf", "oneOf", "allOf", "not", "enum"].iter().any(|key| output.schema.get(key).is_some());
    match wire {
        // Without `strict` the schema is guidance, and may be any object's.
        Wire::OpenaiChat | Wire::OpenaiResponses => (is_object && !is_choice).then(|| {
            let subset = if is_plain { OPENAI_PLAIN } else { OPENAI };
            match subset.fit(&output.schema) {
                Some(schema) => OutputFormat { name, schema, strict: true },
                None => as_it_is(output),
            }
        }),
        Wire::Anthropic => {
            let schema = if is_object { ANTHROPIC.fit(&output.schema) } else { None };
            schema.map(|schema| OutputFormat { name, schema, strict: true })
        }
        Wire::Gemini => GEMINI.fit(&output.schema).map(|schema| OutputFormat { name, schema, strict: true }),
    }
}

fn as_it_is(output: &OutputSchema) -> OutputFormat {
    OutputFormat { name: name(&output.name), schema: output.schema.clone(), strict: false }
}

/// The conversation with the schema in its standing instructions.
pub(crate) fn instructed(messages: &[Arc<Message>], output: &OutputSchema) -> Vec<Arc<Message>> {
    let text = format!(
        "Your final answer must be JSON that fits the following JSON Schema ({}). Give the JSON alone: no other text, no \
         code fence.\n{}",
        output.name, output.schema
    );
    let mut told = messages.to_vec();
    match told.first_mut().filter(|first| first.role == Role::System) {
        // Some vendors take one message of instructions and no more.
        Some(first) => Arc::make_mut(first).content.push(Block::Text { text: format!("\n\n{text}") }),
        None => told.insert(0, Arc::new(Message::text(Role::System, text))),
    }
    told
}

/// A name that OpenAI's protocols take: up to 64 letters, digits, underscores and dashes (API reference, "Create chat
/// completion", `response_format`).
fn name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().map(plain).take(64).collect();
    if name.is_empty() { "output".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_one_that_is_taken() {
        assert_eq!(name("Page<Invoice>"), "Page_Invoice_");
        assert_eq!((name(""), name(&"ü".repeat(70))), ("output".to_owned(), "_".repeat(64)));
    }
}
