//! What follows when a pattern is done: its output is checked, and corrected by the model where it does not fit.

use std::sync::Arc;

use serde_json::Value;

use super::machine::Turn;
use super::{Effect, EffectId, Misfit, OutputSchema, Purpose, StopReason};
use crate::error::{Error, codes};
use crate::message::{Message, Role};
use crate::record::Fact;

impl Turn<'_> {
    /// The pattern is done: so is the run, unless its output must be checked first.
    pub(super) fn conclude(&mut self, output: String) {
        if self.wanted().is_none() {
            return self.finish(StopReason::Completed, Some(output), None);
        }
        let effect = self.state.next_effect();
        self.record(Fact::ValidationBegun { effect, output: output.clone() });
        self.effects.push(Effect::Validate { effect, output });
    }

    /// The output was checked; false if nobody waits for that.
    pub(super) fn validated(&mut self, effect: EffectId, checked: Result<String, Misfit>) -> bool {
        let Some((_, output)) = self.state.validation.waiting.clone().filter(|(id, _)| *id == effect) else {
            return false;
        };
        match checked {
            Ok(output) => self.finish(StopReason::Completed, Some(output), None),
            Err(misfit) => self.reject(Some(output), misfit, None),
        }
        true
    }

    /// The pattern wants a better answer from the model than its last one.
    pub(super) fn reject_last_answer(&mut self, raised: Error) {
        let said = raised.context("validation_error").and_then(Value::as_str);
        let error = said.unwrap_or(raised.message()).to_owned();
        let last = self.state.transcript.last().filter(|last| last.role == Role::Assistant);
        let answer = last.map(|last| last.to_text());
        self.reject(answer, error.into(), Some(raised));
    }

    /// Asks the model to correct what it said, unless it has been asked often enough, or says the same again.
    fn reject(&mut self, output: Option<String>, misfit: Misfit, raised: Option<Error>) {
        let Misfit { told, masked } = misfit;
        let before = &self.state.validation;
        let again =
            output.is_some() && before.last_answer == output && before.last_error.as_ref() == Some(&masked);
        self.record(Fact::OutputRejected { output: output.clone(), error: masked.clone() });
        let corrections = self.state.validation.rejected.saturating_sub(1);
        let last = self.state.transcript.last();
        let stopped = if last.is_some_and(|last| last.tool_calls().next().is_some()) {
            Some(Stopped::AtOpenCalls)
        } else if again {
            Some(Stopped::SameAgain)
        } else {
            (corrections >= self.budget().validation_retries()).then_some(Stopped::AfterAll)
        };
        if let Some(stopped) = stopped {
            let failed = self.output_error(stopped, &masked);
            return self.fail(raised.into_iter().fold(failed, Error::with_cause));
        }
        if let Some(spent) = self.no_call_left() {
            let cause = raised.unwrap_or_else(|| Error::new(codes::LLM_MODEL_RETRY, masked.as_str()));
            return self.fail(spent.with_cause(cause.or_context("validation_error", masked)));
        }
        // A pattern may give something else than what the model said last.
        let is_there = |output: &String| {
            last.is_some_and(|last| last.role == Role::Assistant && last.to_text() == *output)
        };
        let answer = output.filter(|output| !output.is_empty() && !is_there(output));
        let answer = answer.map(|output| Arc::new(Message::text(Role::Assistant, output)));
        let request = Arc::new(Message::text(Role::User, self.correction(&told)));
        self.announce_correction(&masked);
        self.record(Fact::CorrectionAsked { answer, request });
        self.open_call(Purpose::Correction);
    }

    /// What the output must fit.
    pub(super) fn wanted(&self) -> Option<Arc<OutputSchema>> {
        self.state.opening.as_ref().and_then(|opening| opening.output.clone())
    }

    /// What the model is told.
    fn correction(&self, error: &str) -> String {
        match self.wanted() {
            Some(schema) => format!(
                "Your answer is not a valid {}:\n{error}\nAnswer with the whole of it again, corrected, as JSON alone.",
                schema.name
            ),
            None => format!("Your answer was not accepted:\n{error}\nAnswer again, corrected."),
        }
    }

    fn output_error(&self, stopped: Stopped, error: &str) -> Error {
        let attempts = self.state.validation.rejected;
        let output_type = self.wanted().map(|schema| schema.name.clone());
        let what = match &output_type {
            Some(name) => format!("the output is not a valid {name}"),
            None => "the output was not accepted".to_owned(),
        };
        let after = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
        let in_a_line = error.lines().collect::<Vec<_>>().join("; ");
        let mut message = format!("{what} after {after}: {in_a_line}");
        if let Stopped::AtOpenCalls = stopped {
            message += "; it calls tools, and nothing can be said before their results are there";
        }
        Error::new(codes::EXECUTION_OUTPUT_VALIDATION, message)
            .with_hint(stopped.hint())
            .with_context("attempts", attempts)
            .with_context("output_type", output_type)
    }
}

/// Why the model is not asked to correct its output.
#[derive(Clone, Copy)]
enum Stopped {
    /// It has been asked as often as it may be.
    AfterAll,
    /// It has said the same again.
    SameAgain,
    /// It has called tools: their results come next, whatever else is to be said.
    AtOpenCalls,
}

impl Stopped {
    fn hint(self) -> &'static str {
        match self {
            Stopped::AfterAll => {
                "loosen the schema, say in the prompt what is expected, or raise max_validation_retries"
            }
            Stopped::SameAgain => {
                "the model gave the same answer twice: loosen the schema, or say in the prompt what is expected"
            }
            Stopped::AtOpenCalls => {
                "have the pattern run the tools (Ask::Tools) and raise llm.model_retry after that, or have the tool \
                 refuse the call with an error, which the model is told"
            }
        }
    }
}
