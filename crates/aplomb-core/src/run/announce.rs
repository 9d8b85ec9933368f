//! What those who watch are told, event by event. Where nobody watches, nothing is put into words.

use std::fmt;

use serde_json::{Value, json};

use super::machine::Turn;
use super::state::{PendingTool, ToolWaiting, action_name};
use super::{Effect, StopReason};
use crate::decide::{Action, Decision, Layer};
use crate::error::Error;
use crate::event::{EventName, names};
use crate::failure::{Reason, Verdict};
use crate::message::{Role, TokenUsage, ToolCall};

impl Turn<'_> {
    pub(super) fn announce_start(&mut self) {
        self.announce(names::SESSION_RUN_STARTED, |turn| {
            let input = turn.state.transcript.iter().rfind(|message| message.role == Role::User);
            joined(turn.identity(), json!({"input_text": input.map(|message| message.to_text())}))
        });
    }

    pub(super) fn announce_call(&mut self) {
        self.announce(names::LLM_CALLED, |turn| json!({"model": turn.asked().model}));
    }

    pub(super) fn announce_reply(&mut self, model: &str, usage: Option<TokenUsage>) {
        self.announce(names::LLM_SUCCEEDED, |_| json!({"model": model, "_metrics": {"usage": usage}}));
    }

    pub(super) fn announce_usage(&mut self) {
        self.announce(names::USAGE_UPDATED, |turn| json!({"usage": turn.state.usage}));
    }

    /// The decision about the attempt that failed last, or could not be made.
    pub(super) fn announce_decision(
        &mut self,
        why: &impl fmt::Display,
        verdict: &Verdict,
        decision: &Decision,
    ) {
        self.announce(names::RETRY_DECIDED, |turn| {
            let call = turn.state.call.as_ref();
            let failed_layer = call.map_or(Layer::First, |call| call.layer);
            let (layer, delay_ms, delay_source) = match &decision.action {
                Action::Send { layer, delay_ms, delay_source } => {
                    (*layer, Some(*delay_ms), Some(delay_source.as_str()))
                }
                Action::FallBack { .. } => (Layer::Fallback, Some(0), Some("fallback")),
                Action::Stop { .. } | Action::Compact | Action::ReadCredential => (failed_layer, None, None),
            };
            json!({
                "layer": layer,
                "attempt": call.map(|call| call.ledger.attempts()),
                "max_attempts": call.map(|call| call.ledger.cap()),
                "reason": verdict.reason,
                "rule": format!("{} > {}", verdict.rule, decision.rule),
                "action": action_name(&decision.action),
                "delay_ms": delay_ms,
                "delay_source": delay_source,
                "deadline_left_ms": turn.state.deadline().map(|deadline| deadline.saturating_sub(turn.at)),
                "will_retry": delay_ms.is_some(),
                "error": why.to_string(),
            })
        });
    }

    pub(super) fn announce_fallback(
        &mut self,
        from: usize,
        to: usize,
        reason: Reason,
        bench_ms: Option<u64>,
    ) {
        self.announce(names::MODEL_FALLBACK, |turn| {
            let name = |place| turn.agent.target_at(place).name();
            json!({"from": name(from), "to": name(to), "reason": reason, "bench_ms": bench_ms})
        });
    }

    pub(super) fn announce_compaction(&mut self, dropped: usize, tokens_before: u64, tokens_after: u64) {
        self.announce(names::CONTEXT_COMPACTED, |_| {
            json!({
                "dropped_messages": dropped, "tokens_before": tokens_before, "tokens_after": tokens_after,
            })
        });
    }

    pub(super) fn announce_call_failed(&mut self, error: &Error) {
        self.announce(names::LLM_FAILED, |turn| {
            joined(turn.told(error), json!({"model": turn.asked().model}))
        });
    }

    pub(super) fn announce_tool_call(&mut self, call: &ToolCall) {
        self.announce(names::TOOL_CALLED, |_| {
            let params =
                serde_json::from_str(&call.arguments).unwrap_or(Value::String(call.arguments.clone()));
            json!({"tool_id": call.name, "params": params, "call_id": call.id})
        });
    }

    pub(super) fn announce_tool_result(&mut self, tool: &PendingTool, result: &Value) {
        let call = &tool.call;
        self.announce(names::TOOL_SUCCEEDED, |_| {
            let payload = json!({"tool_id": call.name, "result": result, "call_id": call.id});
            joined(payload, executor_metadata(&tool.retries))
        });
    }

    pub(super) fn announce_tool_retry(&mut self, call: &ToolCall, attempt: u32, error: &Error) {
        self.announce(
            names::TOOL_RETRY_REQUESTED,
            |_| json!({"tool_id": call.name, "attempt": attempt, "error": error.message(), "call_id": call.id}),
        );
    }

    pub(super) fn announce_tool_failed(&mut self, call: &ToolCall, retries: &[(u64, String)], error: &Error) {
        self.announce(names::TOOL_FAILED, |turn| {
            let payload = joined(turn.told(error), json!({"tool_id": call.name, "call_id": call.id}));
            joined(payload, executor_metadata(retries))
        });
    }

    pub(super) fn announce_tool_cancelled(&mut self, tool: &PendingTool) {
        self.announce(names::TOOL_CANCELLED, |_| {
            let payload = json!({"tool_id": tool.call.name, "call_id": tool.call.id});
            match tool.waiting {
                ToolWaiting::Room(_) => joined(payload, json!({"reason": "max_tool_calls"})),
                ToolWaiting::Result(_) | ToolWaiting::Backoff(_) => payload,
            }
        });
    }

    /// The output was rejected, and the model is asked to correct it.
    pub(super) fn announce_correction(&mut self, error: &str) {
        self.announce(
            names::VALIDATION_RETRY,
            |turn| json!({"attempt": turn.state.validation.rejected, "error": error}),
        );
    }

    /// The end, and why where the run failed.
    pub(super) fn announce_end(&mut self, stop_reason: StopReason, error: Option<&Error>) {
        if let Some(error) = error {
            self.announce(names::RUN_FAILED, |turn| joined(turn.identity(), turn.told(error)));
        }
        self.announce(names::SESSION_RUN_COMPLETED, |turn| {
            joined(turn.identity(), json!({"stop_reason": stop_reason, "duration_ms": turn.at}))
        });
    }

    fn announce(&mut self, name: EventName, payload: impl FnOnce(&Turn<'_>) -> Value) {
        if !self.state.opening.as_ref().is_some_and(|opening| opening.watched) {
            return;
        }
        if let Value::Object(payload) = payload(self) {
            self.effects.push(Effect::Emit { name, payload });
        }
    }

    fn identity(&self) -> Value {
        let identity = self.state.opening.as_ref().map(|opening| &opening.identity);
        identity.map_or_else(|| json!({}), |identity| json!(identity))
    }

    fn told(&self, error: &Error) -> Value {
        json!({"error": error.message(), "error_details": self.identified(error.clone()).details()})
    }
}

/// What the executor did besides calling the tool once, if it did.
fn executor_metadata(retries: &[(u64, String)]) -> Value {
    if retries.is_empty() {
        return json!({});
    }
    let (delays, reasons): (Vec<_>, Vec<_>) = retries.iter().cloned().unzip();
    json!({"executor_metadata": {
        "retry_attempts": retries.len(), "retry_delays_ms": delays, "retry_reasons": reasons,
    }})
}

/// The fields of both.
fn joined(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}
