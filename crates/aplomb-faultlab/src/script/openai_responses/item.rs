//! An item of a conversation, as far as faultlab knows it.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// An item of a conversation, of any type: the fields that faultlab knows of all of them.
#[derive(Deserialize, Default)]
pub(super) struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    pub(super) id: Option<String>,
    pub(super) role: Option<String>,
    pub(super) content: Option<Content>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) output: Option<Content>,
    pub(super) summary: Option<Vec<IgnoredAny>>,
    pub(super) encrypted_content: Option<String>,
}

/// What an item is.
#[derive(PartialEq, Clone, Copy)]
pub(super) enum Kind {
    Message,
    Call,
    Output,
    Reasoning,
    Reference,
    /// What OpenAI's own tools do, and what may follow.
    Other,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a content; parts that are no text (images, files) have none.
#[derive(Deserialize)]
pub(super) struct Part {
    #[serde(rename = "type")]
    pub(super) kind: String,
    text: Option<String>,
}

impl Item {
    /// A message may leave its type out.
    pub(super) fn kind(&self) -> Kind {
        match self.kind.as_deref() {
            Some("message") => Kind::Message,
            None if self.role.is_some() => Kind::Message,
            Some("function_call") => Kind::Call,
            Some("function_call_output") => Kind::Output,
            Some("reasoning") => Kind::Reasoning,
            Some("item_reference") => Kind::Reference,
            _ => Kind::Other,
        }
    }

    /// Whether the model made it.
    pub(super) fn is_models(&self) -> bool {
        match self.kind() {
            Kind::Message => self.role.as_deref() == Some("assistant"),
            Kind::Call | Kind::Reasoning => true,
            Kind::Output | Kind::Reference | Kind::Other => false,
        }
    }
}

impl Content {
    pub(super) fn parts(&self) -> &[Part] {
        match self {
            Content::Text(_) => &[],
            Content::Parts(parts) => parts,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
        }
    }
}
