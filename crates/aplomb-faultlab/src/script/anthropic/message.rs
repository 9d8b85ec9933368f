//! A message of a conversation, as far as faultlab knows it.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) role: Role,
    pub(super) content: Content,
}

/// There are no others: a tool's result is a user's block (<https://platform.claude.com/docs/en/api/messages>).
#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
    /// In mid-conversation; the system prompt is a field of the request.
    System,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        /// Read only so that a call without a name, or with arguments that are no object, is refused.
        #[serde(rename = "name")]
        _name: String,
        #[serde(rename = "input")]
        _input: serde_json::Map<String, serde_json::Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Content>,
    },
    Thinking {
        signature: Option<String>,
    },
    RedactedThinking {
        data: Option<String>,
    },
    /// Images, documents, the blocks of the server's own tools.
    #[serde(other)]
    Other,
}

impl Content {
    pub(super) fn blocks(&self) -> &[Block] {
        match self {
            Content::Text(_) => &[],
            Content::Blocks(blocks) => blocks,
        }
    }

    /// The text, but not that of tool results.
    pub(super) fn text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Blocks(blocks) => blocks.iter().filter_map(Block::text).collect(),
        }
    }

    /// Whether there is anything beside tool results.
    pub(super) fn says_something(&self) -> bool {
        match self {
            Content::Text(_) => true,
            Content::Blocks(blocks) => {
                blocks.is_empty() || blocks.iter().any(|block| block.answers().is_none())
            }
        }
    }

    /// The calls that are made here.
    pub(super) fn calls(&self) -> impl Iterator<Item = &str> {
        self.blocks().iter().filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    /// The results given here, as far as nothing else comes before them: "the tool_result blocks must come
    /// first in the content array. Any text must come after"
    /// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls>).
    pub(super) fn leading_results(&self) -> impl Iterator<Item = &str> {
        self.blocks().iter().map_while(Block::answers)
    }

    pub(super) fn last_result(&self) -> Option<String> {
        self.blocks().iter().rev().find_map(Block::result)
    }

    pub(super) fn chars(&self) -> usize {
        let results = self.blocks().iter().filter_map(Block::result);
        self.text().chars().count() + results.map(|result| result.chars().count()).sum::<usize>()
    }
}

impl Block {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Block::Text { text } => Some(text),
            _ => None,
        }
    }

    /// The call that this is the result of.
    pub(super) fn answers(&self) -> Option<&str> {
        match self {
            Block::ToolResult { tool_use_id, .. } => Some(tool_use_id),
            _ => None,
        }
    }

    fn result(&self) -> Option<String> {
        match self {
            Block::ToolResult { content, .. } => {
                Some(content.as_ref().map(Content::text).unwrap_or_default())
            }
            _ => None,
        }
    }
}
