//! What follows when a pattern is done: its output is checked, and corrected by the model where it does not fit.

use std::sync::Arc;

use serde_json::Value;

use super::machine::Turn;
use super::{Effect, EffectId, Purpose, StopReason, WantedOutput};
use crate::error::{Error, codes};
use crate::message::{Message, Role};
use crate::record::Fact;

impl Turn<'_> {
    /// The pattern is done: so is the run, unless its output must be checked first.
    pub(super) fn conclude(&mut self, output: String) {
        if self.wanted().schema.is_none() {
            return self.finish(StopReason::Completed, Some(output), None);
        }
        let effect = self.state.next_effect();
        self.record(Fact::ValidationBegun { effect, output: output.clone() });
        self.effects.push(Effect::Validate { effect, output });
    }

    /// The output was checked; false if nobody waits for that.
    pub(super) fn validated(&mut self, effect: EffectId, checked: Result<String, String>) -> bool {
        let Some((_, output)) = self.state.validation.waiting.clone().filter(|(id, _)| *id == effect) else {
            return false;
        };
        match checked {
            Ok(output) => self.finish(StopReason::Completed, Some(output), None),
            Err(error) => self.reject(output, error, None),
        }
        true
    }

    /// The pattern wants a better answer from the model than its last one.
    pub(super) fn reject_last_answer(&mut self, raised: Error) {
        let said = raised.context("validation_error").and_then(Value::as_str);
        let error = said.unwrap_or(raised.message()).to_owned();
        let last = self.state.transcript.last().filter(|last| last.role == Role::Assistant);
        let output = last.map(|last| last.to_text()).unwrap_or_default();
        self.reject(output, error, Some(raised));
    }

    /// Asks the model to correct what it said, unless it has been asked often enough, or says the same again.
    fn reject(&mut self, output: String, error: String, raised: Option<Error>) {
        let rejected = (output, error.clone());
        let again = self.state.validation.last.as_ref() == Some(&rejected);
        let (output, _) = rejected;
        self.record(Fact::OutputRejected { output: output.clone(), error: error.clone() });
        let corrections = self.state.validation.rejected.saturating_sub(1);
        let last = self.state.transcript.last();
        // Nothing can be said between a call and its result.
        let is_open = last.is_some_and(|last| last.tool_calls().next().is_some());
        if again || is_open || corrections >= self.wanted().max_validation_retries {
            let failed = self.output_error(again, &error);
            return self.fail(raised.into_iter().fold(failed, Error::with_cause));
        }
        if let Some(spent) = self.no_call_left() {
            let cause = raised.unwrap_or_else(|| Error::new(codes::LLM_MODEL_RETRY, error.as_str()));
            return self.fail(spent.with_cause(cause.or_context("validation_error", error)));
        }
        // A pattern may give something else than what the model said last.
        let is_there = output.is_empty()
            || last.is_some_and(|last| last.role == Role::Assistant && last.to_text() == output);
        let answer = (!is_there).then(|| Arc::new(Message::text(Role::Assistant, output)));
        let request = Arc::new(Message::text(Role::User, self.correction(&error)));
        self.announce_correction(&error);
        self.record(Fact::CorrectionAsked { answer, request });
        self.open_call(Purpose::Correction);
    }

    pub(super) fn wanted(&self) -> WantedOutput {
        self.state.opening.as_ref().map(|opening| opening.output.clone()).unwrap_or_default()
    }

    /// What the model is told.
    fn correction(&self, error: &str) -> String {
        match self.wanted().schema {
            Some(schema) => format!(
                "Your answer is not a valid {}:\n{error}\nAnswer with the whole of it again, corrected, as JSON alone.",
                schema.name
            ),
            None => format!("Your answer was not accepted:\n{error}\nAnswer again, corrected."),
        }
    }

    fn output_error(&self, again: bool, error: &str) -> Error {
        let attempts = self.state.validation.rejected;
        let output_type = self.wanted().schema.map(|schema| schema.name.clone());
        let what = match &output_type {
            Some(name) => format!("the output is not a valid {name}"),
            None => "the output was not accepted".to_owned(),
        };
        let after = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
        let hint = if again {
            "the model gave the same answer twice: loosen the schema, or say in the prompt what is expected"
        } else {
            "loosen the schema, say in the prompt what is expected, or raise max_validation_retries"
        };
        let in_a_line = error.lines().collect::<Vec<_>>().join("; ");
        Error::new(codes::EXECUTION_OUTPUT_VALIDATION, format!("{what} after {after}: {in_a_line}"))
            .with_hint(hint)
            .with_context("attempts", attempts)
            .with_context("last_validation_error", error)
            .with_context("output_type", output_type)
    }
}
