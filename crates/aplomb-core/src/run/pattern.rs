//! Patterns: the policy that says what an agent does next. Knows the conversation, not how it is carried out.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, codes};
use crate::message::{FinishReason, Message, Role, ToolCall};

/// What a pattern may look at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The conversation so far.
    pub transcript: &'a [Arc<Message>],
    /// Why the model stopped last.
    pub finish: Option<&'a FinishReason>,
}

/// What a pattern wants next.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Ask {
    /// The model's answer to the conversation.
    Model,
    /// These tools' results.
    Tools(Vec<ToolCall>),
    /// The run's end, with this output.
    Finish(String),
    /// The run's end, with this error; but with `llm.model_retry` a better answer of the model, which is shown its last one
    /// and what is wrong with it.
    Fail(Error),
}

/// Something that one part of an agent may need of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Asking for tools.
    Tools,
    /// Answering in the form of a schema, to which the provider holds the model.
    StructuredOutput,
    /// Looking at images.
    Images,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::Tools => "tools",
            Capability::StructuredOutput => "structured output",
            Capability::Images => "images",
        })
    }
}

/// The policy that says what an agent does next.
///
/// A pattern is consulted whenever nothing is in flight. Its answer must follow from the view alone.
pub trait Pattern: Send + Sync + 'static {
    /// What it calls itself, in messages and in what is recorded of a run. A config selects it by the name that it was
    /// registered by.
    fn kind(&self) -> &str;

    /// Changes when the same view may get another answer; recorded with the run.
    fn version(&self) -> u32;

    /// What it cannot do without.
    fn needs(&self) -> &[Capability] {
        &[]
    }

    /// What is to happen next.
    fn next(&self, view: View<'_>) -> Ask;
}

/// Ask the model, run the tools that it asks for, until it answers without asking for any.
///
/// Source: Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models", 2022.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct React;

impl Pattern for React {
    fn kind(&self) -> &str {
        "react"
    }

    fn version(&self) -> u32 {
        1
    }

    fn next(&self, view: View<'_>) -> Ask {
        let Some(last) = view.transcript.last().filter(|last| last.role == Role::Assistant) else {
            return Ask::Model;
        };
        let calls: Vec<_> = last.tool_calls().cloned().collect();
        if !calls.is_empty() {
            return Ask::Tools(calls);
        }
        if view.finish == Some(&FinishReason::Length) {
            return Ask::Fail(
                Error::new(codes::LLM_RESPONSE, "the model's answer was cut off at the token limit")
                    .with_hint("raise llm.max_tokens, or ask for a shorter answer"),
            );
        }
        Ask::Finish(last.to_text())
    }
}
