//! The events that a run announces: one row per name, with the payload that it must and may carry.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The name of an event, which is a row of the taxonomy.
#[derive(Clone, Copy)]
pub struct EventName(&'static Row);

struct Row {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

impl EventName {
    /// The name as users see it.
    pub fn as_str(self) -> &'static str {
        self.0.name
    }

    /// The payload fields that are always there.
    pub fn required(self) -> &'static [&'static str] {
        self.0.required
    }

    /// The payload fields that may be there.
    pub fn optional(self) -> &'static [&'static str] {
        self.0.optional
    }

    /// The event of that name.
    pub fn find(name: &str) -> Option<EventName> {
        names::ALL.iter().copied().find(|event| event.as_str() == name)
    }

    /// What is wrong with a payload of this event; empty if nothing is.
    pub fn violations(self, payload: &Map<String, Value>) -> Vec<String> {
        let missing = self.required().iter().filter(|field| !payload.contains_key(**field));
        let unknown = payload.keys().filter(|key| {
            !self.required().contains(&key.as_str()) && !self.optional().contains(&key.as_str())
        });
        missing
            .map(|field| format!("{self}: the payload lacks `{field}`"))
            .chain(unknown.map(|key| format!("{self}: the payload has an undeclared `{key}`")))
            .collect()
    }
}

impl PartialEq for EventName {
    fn eq(&self, other: &EventName) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for EventName {}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Something that happened in a run, for whoever watches it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub name: EventName,
    /// In which run.
    pub run_id: String,
    /// In which session.
    pub session_id: String,
    /// By which agent.
    pub agent_id: String,
    /// Counts from 0 within the run, without gaps.
    pub sequence: u64,
    /// When, in ms of Unix time.
    pub timestamp_ms: u64,
    /// What there is to say about it.
    pub payload: Map<String, Value>,
}

impl Event {
    /// An event of a run.
    pub fn new(
        name: EventName,
        identity: &crate::run::Identity,
        sequence: u64,
        timestamp_ms: u64,
        payload: Map<String, Value>,
    ) -> Event {
        Event {
            name,
            run_id: identity.run_id.clone(),
            session_id: identity.session_id.clone(),
            agent_id: identity.agent_id.clone(),
            sequence,
            timestamp_ms,
            payload,
        }
    }
}

macro_rules! events {
    ($($constant:ident: $name:literal, [$($required:literal),*], [$($optional:literal),*];)*) => {
        /// Every event of the contract, as a constant.
        pub mod names {
            use super::{EventName, Row};

            $(
                #[doc = concat!("`", $name, "`")]
                pub const $constant: EventName = EventName(&Row {
                    name: $name,
                    required: &[$($required),*],
                    optional: &[$($optional),*],
                });
            )*

            /// All events.
            pub const ALL: &[EventName] = &[$($constant),*];
        }
    };
}

events! {
    // constant                name                               required                                              optional
    SESSION_RUN_STARTED:       "session.run.started",             ["agent_id", "session_id"],                           ["run_id", "input_text"];
    SESSION_RUN_COMPLETED:     "session.run.completed",           ["agent_id", "session_id", "stop_reason"],            ["run_id", "duration_ms"];
    RUN_FAILED:                "run.failed",                      ["agent_id", "session_id", "error", "error_details"], ["run_id"];
    RUN_CHECKPOINT_SAVED:      "run.checkpoint_saved",            ["run_id", "checkpoint_id", "step_index", "transcript_length"], [];
    RUN_CHECKPOINT_FAILED:     "run.checkpoint_failed",           ["run_id", "checkpoint_id", "error", "error_type", "error_details"], [];
    RUN_RESUME_ATTEMPTED:      "run.resume_attempted",            ["run_id", "checkpoint_id", "error_type", "error_code", "attempt_index"], [];
    RUN_RESUME_SUCCEEDED:      "run.resume_succeeded",            ["run_id", "checkpoint_id", "attempt_index"],         [];
    RUN_RESUME_EXHAUSTED:      "run.resume_exhausted",            ["run_id", "attempt_index", "error_type", "error_code", "limit"], [];
    RUN_IDEMPOTENCY_WARNING:   "run.durable_idempotency_warning", ["run_id", "tool_id"],                                ["hint"];
    CONTEXT_ASSEMBLE_STARTED:  "context.assemble.started",        [],                                                   [];
    CONTEXT_ASSEMBLE_COMPLETED: "context.assemble.completed",     ["transcript_size"],                                  ["artifact_count", "duration_ms"];
    MEMORY_INJECT_STARTED:     "memory.inject.started",           [],                                                   ["view_size"];
    MEMORY_INJECT_COMPLETED:   "memory.inject.completed",         [],                                                   ["view_size"];
    MEMORY_INJECT_FAILED:      "memory.inject_failed",            ["agent_id", "session_id", "error", "error_details"], ["view_size"];
    MEMORY_WRITEBACK_STARTED:  "memory.writeback.started",        [],                                                   ["view_size"];
    MEMORY_WRITEBACK_COMPLETED: "memory.writeback.completed",     [],                                                   ["view_size"];
    MEMORY_WRITEBACK_FAILED:   "memory.writeback_failed",         ["agent_id", "session_id", "error", "error_details"], ["view_size"];
    PATTERN_PHASE:             "pattern.phase",                   ["phase"],                                            [];
    PATTERN_PLAN_CREATED:      "pattern.plan_created",            ["plan"],                                             [];
    PATTERN_STEP_STARTED:      "pattern.step_started",            ["step"],                                             ["plan_step"];
    PATTERN_STEP_FINISHED:     "pattern.step_finished",           ["step", "action"],                                   ["plan_step"];
    LLM_CALLED:                "llm.called",                      ["model"],                                            ["_metrics"];
    LLM_SUCCEEDED:             "llm.succeeded",                   ["model"],                                            ["_metrics"];
    LLM_FAILED:                "llm.failed",                      ["model", "error", "error_details"],                  ["_metrics"];
    USAGE_UPDATED:             "usage.updated",                   ["usage"],                                            [];
    TOOL_CALLED:               "tool.called",                     ["tool_id", "params"],                                ["call_id"];
    TOOL_SUCCEEDED:            "tool.succeeded",                  ["tool_id", "result"],                                ["call_id", "executor_metadata"];
    TOOL_FAILED:               "tool.failed",                     ["tool_id", "error", "error_details"],                ["call_id", "executor_metadata"];
    TOOL_CANCELLED:            "tool.cancelled",                  ["tool_id", "call_id"],                               ["reason"];
    TOOL_RETRY_REQUESTED:      "tool.retry_requested",            ["tool_id", "attempt", "error"],                      ["call_id"];
    TOOL_APPROVAL_NEEDED:      "tool.approval_needed",            ["tool_id", "call_id", "params"],                     ["reason"];
    TOOL_BATCH_STARTED:        "tool.batch.started",              ["batch_id", "call_ids", "concurrent_count"],         ["duration_ms"];
    TOOL_BATCH_COMPLETED:      "tool.batch.completed",            ["batch_id", "successes", "failures"],                ["duration_ms"];
    TOOL_BACKGROUND_SUBMITTED: "tool.background.submitted",       ["tool_id", "call_id", "job_id"],                     ["progress"];
    TOOL_BACKGROUND_POLLED:    "tool.background.polled",          ["tool_id", "call_id", "job_id", "status"],           ["progress"];
    TOOL_BACKGROUND_COMPLETED: "tool.background.completed",       ["tool_id", "call_id", "job_id", "status"],           ["progress"];
    // Aplomb's own.
    SESSION_APPEND_FAILED:     "session.append_failed",           ["agent_id", "session_id", "error", "error_details"], [];
    LLM_DELTA:                 "llm.delta",                       ["kind", "text"],                                     ["index", "id", "name"];
    LLM_RESTARTED:             "llm.restarted",                   ["discard_from"],                                     [];
    VALIDATION_RETRY:          "validation.retry",                ["attempt", "error"],                                 [];
    RETRY_DECIDED:             "retry.decided",                   ["layer", "attempt", "max_attempts", "reason", "rule", "action", "delay_ms", "delay_source", "deadline_left_ms", "will_retry"], ["error"];
    CONTEXT_COMPACTED:         "context.compacted",               ["dropped_messages", "tokens_before", "tokens_after"], [];
    MODEL_FALLBACK:            "model.fallback",                  ["from", "to", "reason"],                             ["bench_ms"];
    COOLDOWN_STARTED:          "cooldown.started",                [],                                                   [];
    COOLDOWN_ENDED:            "cooldown.ended",                  [],                                                   [];
}

/// The events that nothing announces yet, and what they come with.
pub const PENDING: &[(EventName, &str)] = &[
    (names::RUN_CHECKPOINT_SAVED, "durable runs"),
    (names::RUN_CHECKPOINT_FAILED, "durable runs"),
    (names::RUN_RESUME_ATTEMPTED, "durable runs"),
    (names::RUN_RESUME_SUCCEEDED, "durable runs"),
    (names::RUN_RESUME_EXHAUSTED, "durable runs"),
    (names::RUN_IDEMPOTENCY_WARNING, "durable runs"),
    (names::CONTEXT_ASSEMBLE_STARTED, "the context assemblers"),
    (names::CONTEXT_ASSEMBLE_COMPLETED, "the context assemblers"),
    (names::MEMORY_INJECT_STARTED, "memories that are bounded"),
    (names::MEMORY_INJECT_COMPLETED, "memories that are bounded"),
    (names::MEMORY_WRITEBACK_STARTED, "memories that are bounded"),
    (names::MEMORY_WRITEBACK_COMPLETED, "memories that are bounded"),
    (names::PATTERN_PHASE, "patterns that plan"),
    (names::PATTERN_PLAN_CREATED, "patterns that plan"),
    (names::PATTERN_STEP_STARTED, "patterns that plan"),
    (names::PATTERN_STEP_FINISHED, "patterns that plan"),
    (names::TOOL_APPROVAL_NEEDED, "approvals"),
    (names::TOOL_BATCH_STARTED, "batches of tool calls"),
    (names::TOOL_BATCH_COMPLETED, "batches of tool calls"),
    (names::TOOL_BACKGROUND_SUBMITTED, "tools in the background"),
    (names::TOOL_BACKGROUND_POLLED, "tools in the background"),
    (names::TOOL_BACKGROUND_COMPLETED, "tools in the background"),
    (names::COOLDOWN_STARTED, "the gate"),
    (names::COOLDOWN_ENDED, "the gate"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_held_to_its_row() {
        let payload = serde_json::json!({"tool_id": "calc", "parms": {}});
        let violations = names::TOOL_CALLED.violations(payload.as_object().unwrap());
        assert_eq!(
            violations,
            ["tool.called: the payload lacks `params`", "tool.called: the payload has an undeclared `parms`"]
        );
    }
}
