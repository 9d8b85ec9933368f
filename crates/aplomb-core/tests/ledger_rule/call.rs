//! A call, as a driver makes it.

use aplomb_core::decide::{Action, Allowances, Decision, Layer, Ledger, Moment, Policy, decide};
use aplomb_core::failure::{Failure, Phase, Verdict};

/// What one attempt comes to.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) verdict: Verdict,
    /// Whether some of its answer is handed to somebody before it fails.
    pub(crate) delivers: bool,
    pub(crate) takes_ms: u64,
    pub(crate) entropy: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) policy: Policy,
    pub(crate) by_exec: bool,
    pub(crate) starts_at: u64,
    pub(crate) deadline: Option<u64>,
    /// Played in order, and again from the beginning: a call that stops by itself stops whatever comes.
    pub(crate) steps: Vec<Step>,
}

/// One decision, with what it was made from.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) step: Step,
    /// As `decide` saw it: the failed attempt is counted.
    pub(crate) ledger: Ledger,
    pub(crate) moment: Moment,
    pub(crate) decision: Decision,
}

impl Decided {
    /// Who pays and how long it waits, if it sends.
    pub(crate) fn sends(&self) -> Option<(Layer, u64)> {
        match self.decision.action {
            Action::Send { layer, delay_ms, .. } => Some((layer, delay_ms)),
            _ => None,
        }
    }

    pub(crate) fn hint(&self) -> Option<u64> {
        self.step.verdict.wait.map(|wait| wait.delay_ms)
    }
}

/// More attempts than any policy of these tests allows.
pub(crate) const ENDLESS: usize = 300;

/// What failed is judged by its verdict alone.
pub(crate) fn unseen() -> Failure {
    Failure::new(Phase::Response)
}

/// Makes the call: an attempt, its failure, a decision, and again while that is to send.
pub(crate) fn make(call: &Call) -> Vec<Decided> {
    let mut ledger = Ledger::new(Allowances::of(&call.policy, call.by_exec));
    let mut at = call.starts_at;
    let mut story = vec![];
    for step in call.steps.iter().cycle().take(ENDLESS) {
        ledger.begin_attempt();
        if step.delivers {
            ledger.note_delivered();
        }
        at = at.saturating_add(step.takes_ms);
        let moment = Moment { at, deadline: call.deadline, entropy: step.entropy, ..Moment::default() };
        let decision = decide(&unseen(), &step.verdict, &ledger, &call.policy, moment);
        let decided = Decided { step: step.clone(), ledger: ledger.clone(), moment, decision };
        let sends = decided.sends();
        story.push(decided);
        let Some((layer, delay_ms)) = sends else { break };
        ledger.charge(layer);
        at = at.saturating_add(delay_ms);
    }
    story
}

pub(crate) fn last(story: &[Decided]) -> &Action {
    &story.last().unwrap().decision.action
}

pub(crate) fn waits(story: &[Decided]) -> Vec<u64> {
    story.iter().filter_map(|decided| decided.sends()).map(|(_, delay_ms)| delay_ms).collect()
}

pub(crate) fn layers(story: &[Decided]) -> Vec<Layer> {
    story.iter().filter_map(|decided| decided.sends()).map(|(layer, _)| layer).collect()
}
