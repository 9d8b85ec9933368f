//! The machine's tool calls: which may be run, which are made again, and what the model is told.

use std::collections::BTreeSet;

use serde_json::Value;

use super::machine::Turn;
use super::state::{PendingTool, ToolWaiting};
use super::{Effect, EffectId, TimerKind};
use crate::decide::{Moment, decide_tool};
use crate::error::{Error, codes};
use crate::message::{FinishReason, Reply, ToolCall};
use crate::near::did_you_mean;
use crate::record::Fact;
use crate::tool::ToolSpec;

impl Turn<'_> {
    pub(super) fn open_batch(&mut self, calls: Vec<ToolCall>) {
        let EffectId(first) = self.state.next_effect();
        let calls: Vec<_> = (first..).map(EffectId).zip(calls).collect();
        let can_run = calls.iter().filter(|(_, call)| self.arguments_of(call).is_ok());
        let withheld: Vec<_> = can_run.map(|(effect, _)| *effect).skip(self.tool_room()).collect();
        self.record(Fact::BatchOpened { calls: calls.clone(), withheld: withheld.clone() });
        for (effect, call) in calls {
            if !withheld.contains(&effect) {
                self.announce_tool_call(&call);
                self.call_tool(effect, effect, call);
            }
        }
        self.settle_withheld();
    }

    /// Where nothing is left of a batch but what was withheld: runs as much of it as there is room for now, since what a
    /// tool did not take was no call; without any room, the run ends.
    fn settle_withheld(&mut self) {
        let open = || self.state.batch.iter().filter(|tool| tool.result.is_none());
        let withheld = open().filter_map(|tool| match tool.waiting {
            ToolWaiting::Room(effect) => Some((effect, tool.call.clone())),
            ToolWaiting::Result(_) | ToolWaiting::Backoff(_) => None,
        });
        let withheld: Vec<_> = withheld.collect();
        if withheld.is_empty() || withheld.len() < open().count() {
            return;
        }
        match self.tool_room() {
            0 => self.no_tool_call_left(),
            room => {
                for (effect, call) in withheld.into_iter().take(room) {
                    self.record(Fact::ToolAdmitted { effect });
                    self.announce_tool_call(&call);
                    self.call_tool(effect, effect, call);
                }
            }
        }
    }

    /// Has a tool called, as far as the call may be run at all.
    fn call_tool(&mut self, effect: EffectId, first: EffectId, call: ToolCall) {
        match self.arguments_of(&call) {
            Ok(arguments) => {
                let idempotency_key = self.idempotency_key(first);
                self.effects.push(Effect::CallTool { effect, call, arguments, idempotency_key });
            }
            Err(error) => self.refuse_tool(effect, &call, error),
        }
    }

    /// The key of a call. The run's id has no part in it: it may be anybody's text, and may have been another run's before.
    fn idempotency_key(&self, EffectId(first): EffectId) -> String {
        let stamp = self.state.opening.as_ref().map(|opening| opening.stamp);
        format!("{:032x}-{first}", stamp.unwrap_or_default())
    }

    /// The arguments of a call that may be run. One that was cut off, or that nobody could run, never is.
    fn arguments_of(&self, call: &ToolCall) -> Result<Value, Error> {
        if self.state.finish == Some(FinishReason::Length) {
            return Err(Error::new(
                codes::TOOL_VALIDATION,
                format!(
                    "{} was not run: the model reached its token limit in the middle of the call",
                    call.name
                ),
            )
            .with_hint("ask for less in one call"));
        }
        if self.tool_spec(call).is_none() {
            let known = || self.agent.tools.iter().map(|tool| tool.id.as_str());
            let hint = did_you_mean(&call.name, known()).unwrap_or_else(|| match known().next() {
                None => "this agent has no tools".to_owned(),
                Some(_) => format!("the tools are: {}", known().collect::<Vec<_>>().join(", ")),
            });
            return Err(Error::new(codes::TOOL_NOT_FOUND, format!("no tool is called {:?}", call.name))
                .with_hint(hint));
        }
        // A tool without parameters may be called with nothing at all.
        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        match serde_json::from_str(text) {
            Ok(arguments @ Value::Object(_)) => Ok(arguments),
            Ok(_) => Err(Error::new(
                codes::TOOL_VALIDATION,
                format!("{} takes a JSON object as arguments", call.name),
            )),
            Err(cause) => Err(Error::new(
                codes::TOOL_VALIDATION,
                format!("the arguments of {} are not valid JSON: {cause}", call.name),
            )),
        }
    }

    pub(super) fn tool_failed(&mut self, effect: EffectId, tool: &PendingTool, error: Error) {
        let error = self.tool_error(error, &tool.call);
        let idempotent = self.tool_spec(&tool.call).is_some_and(|spec| spec.idempotent);
        let attempts = u32::try_from(tool.retries.len()).unwrap_or(u32::MAX).saturating_add(1);
        let moment = Moment {
            at: self.at,
            deadline: self.state.deadline(),
            entropy: self.entropy,
            ..Moment::default()
        };
        // Another attempt is another call: where there is no room for it, the model is told of the failure.
        let may_repeat = self.tool_room() > 0;
        let delay_ms = decide_tool(&error, idempotent, attempts, &self.agent.policy, moment);
        if let Some(delay_ms) = delay_ms.filter(|_| may_repeat) {
            self.announce_tool_retry(&tool.call, attempts, &error);
            let timer = self.state.next_effect();
            self.record(Fact::ToolRetryDecided { effect, error: error.details(), delay_ms, timer });
            let at = self.at.saturating_add(delay_ms);
            return self.effects.push(Effect::SetTimer { effect: timer, at, kind: TimerKind::Wait });
        }
        self.announce_tool_failed(&tool.call, &tool.retries, &error);
        self.record(Fact::ToolFailed { effect, told: told(&error), error: error.details() });
    }

    /// Calls a tool again whose wait is over; false if none waits for that timer.
    pub(super) fn restart_tool(&mut self, timer: EffectId) -> bool {
        let waits =
            |tool: &&PendingTool| tool.waiting == ToolWaiting::Backoff(timer) && tool.result.is_none();
        let Some((first, call)) =
            self.state.batch.iter().find(waits).map(|tool| (tool.first, tool.call.clone()))
        else {
            return false;
        };
        let effect = self.state.next_effect();
        self.record(Fact::ToolRestarted { timer, effect });
        self.call_tool(effect, first, call);
        true
    }

    fn tool_spec(&self, call: &ToolCall) -> Option<&ToolSpec> {
        self.agent.tools.iter().find(|tool| tool.id == call.name)
    }

    pub(super) fn refuse_tool(&mut self, effect: EffectId, call: &ToolCall, error: Error) {
        let error = self.tool_error(error, call);
        self.announce_tool_failed(call, &[], &error);
        self.record(Fact::ToolRefused { effect, told: told(&error), error: error.details() });
    }

    fn tool_error(&self, error: Error, call: &ToolCall) -> Error {
        self.identified(error)
            .or_context("tool_id", call.name.as_str())
            .or_context("tool_name", call.name.as_str())
    }

    pub(super) fn advance_after_batch(&mut self) {
        if self.state.batch.is_empty() {
            self.advance();
        } else {
            self.settle_withheld();
        }
    }

    /// Gives a name to the tool calls that the provider gave none, or one that another call of the conversation has: a
    /// result could not be told whose it is.
    pub(super) fn name_calls(&self, reply: &mut Reply) {
        if reply.message.tool_calls().next().is_none() {
            return;
        }
        let said = self.state.transcript.iter().flat_map(|message| message.tool_calls());
        let mut taken: BTreeSet<String> = said.map(|call| call.id.clone()).collect();
        let place = self.state.transcript.len();
        for (index, call) in reply.message.tool_calls_mut().enumerate() {
            if call.id.is_empty() || taken.contains(&call.id) {
                // A session that has forgotten its beginning may come to the same place twice.
                let more = (1_u64..).map(|again| format!("call_{place}_{index}_{again}"));
                let mut names = std::iter::once(format!("call_{place}_{index}")).chain(more);
                call.id = names.find(|name| !taken.contains(name)).unwrap_or_default();
            }
            taken.insert(call.id.clone());
        }
    }

    pub(super) fn awaits_tool(&self, effect: EffectId) -> Option<PendingTool> {
        let waits =
            |tool: &&PendingTool| tool.waiting == ToolWaiting::Result(effect) && tool.result.is_none();
        self.state.batch.iter().find(waits).cloned()
    }
}

/// What the model is told of a tool's error. The hint of a code is for people who run the agent; one of the error's own
/// may help the model, too.
fn told(error: &Error) -> String {
    let own_hint = error.hint().filter(|hint| error.code().hint() != Some(hint));
    let hint = own_hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    let details = error.to_dict();
    format!("{}: {}{hint}", details.code, details.message)
}
