//! A second implementation of the rule, written from its text.

use aplomb_core::decide::{Layer, Moment, Outcome, Policy, Restart};
use aplomb_core::failure::{Reason, Verdict};

use crate::arithmetic::*;

/// What the page says must happen, as far as it says it.
#[derive(Debug, PartialEq)]
pub(crate) enum Says {
    Send(Layer),
    /// `None`: the page does not say with which words.
    Stop(Option<Outcome>),
    /// Send by that layer or stop after N attempts: it depends on a random number, or the page leaves it
    /// open.
    Open(Layer),
}

/// The ledger of §5 as its text describes it.
pub(crate) struct Model {
    pub(crate) policy: Policy,
    pub(crate) t_left: u32,
    pub(crate) s_left: u32,
    pub(crate) x_left: u32,
    pub(crate) t_used: u32,
    pub(crate) s_used: u32,
    pub(crate) x_used: u32,
    /// "Where T = S = 0, X serves retryable verdicts too."
    pub(crate) exec_only: bool,
    pub(crate) cap: u32,
    pub(crate) attempts: u32,
    pub(crate) delivered: bool,
    pub(crate) session_began: bool,
}

impl Model {
    pub(crate) fn new(policy: &Policy, by_exec: bool) -> Model {
        let (t, s, x) = allowances(policy, by_exec);
        Model {
            policy: policy.clone(),
            t_left: t,
            s_left: s,
            x_left: x,
            t_used: 0,
            s_used: 0,
            x_used: 0,
            exec_only: t == 0 && s == 0,
            cap: cap(policy, by_exec),
            attempts: 0,
            delivered: false,
            session_began: false,
        }
    }

    pub(crate) fn attempt(&mut self, delivers: bool) {
        self.attempts += 1;
        self.delivered |= delivers;
    }

    pub(crate) fn says(&self, verdict: &Verdict, moment: Moment) -> Says {
        // 1. "cancelled → stop. Deadline passed → stop, v is the cause."
        if verdict.reason == Reason::Cancelled || moment.deadline.is_some_and(|deadline| moment.at > deadline)
        {
            return Says::Stop(None);
        }
        let unknown = verdict.reason == Reason::Unknown;
        let permanent = !verdict.retryable && !unknown;
        // 3. "attempts ≥ cap → 7", and there is no fallback: "stop 'failed after N attempts'". For a
        // permanent verdict the page says two things: this step comes before the one that says "failed
        // permanently", but §2 has every permanent failure say so. A property below settles it.
        if self.attempts >= self.cap {
            return Says::Stop((!permanent).then_some(Outcome::AfterAttempts));
        }
        // 4. "v permanent → … stop 'failed permanently'. v unknown → if X is left and nothing was delivered:
        // wait 1.5 s × 2^used, send; else stop 'failed after N attempts'."
        if permanent {
            return Says::Stop(Some(Outcome::Permanent));
        }
        if unknown {
            if self.x_left > 0 && !self.delivered {
                return self.unless_too_long(Layer::Exec, verdict, moment);
            }
            return Says::Stop(Some(Outcome::AfterAttempts));
        }
        // 5. "v retryable, whatever its status: by T if the level is T, some is left, and nothing was
        // delivered; else by S if some is left, and either nothing was delivered or restarts are allowed;
        // else 7."
        let skips_t = !self.policy.transport.retry_on_connection_errors
            && matches!(verdict.reason, Reason::Connection | Reason::Timeout);
        let restarts = self.policy.restart != Restart::Never;
        if !self.session_began && !skips_t && self.t_left > 0 && !self.delivered {
            return self.unless_too_long(Layer::Transport, verdict, moment);
        }
        if self.s_left > 0 && (!self.delivered || restarts) {
            return self.unless_too_long(Layer::Session, verdict, moment);
        }
        if self.exec_only && self.x_left > 0 && !self.delivered {
            return self.unless_too_long(Layer::Exec, verdict, moment);
        }
        if self.exec_only && self.x_left > 0 && restarts {
            // The page does not say whether exec, as the only owner, restarts what has delivered.
            return match self.unless_too_long(Layer::Exec, verdict, moment) {
                Says::Send(layer) => Says::Open(layer),
                says => says,
            };
        }
        Says::Stop(Some(Outcome::AfterAttempts))
    }

    /// Step 6: "A wait (without its random addition) longer than `max_inline_wait_ms`, or that would end
    /// after the deadline, is not slept: 7."
    pub(crate) fn unless_too_long(&self, layer: Layer, verdict: &Verdict, moment: Moment) -> Says {
        let hint = verdict.wait.map(|wait| wait.delay_ms);
        let [bare, whole] = wait(&self.policy, layer, self.used(layer), hint);
        let inline = self.policy.max_inline_wait_ms;
        let left = moment.deadline.map_or(u64::MAX, |deadline| deadline - moment.at);
        if *bare.start() > inline || *bare.start() > left {
            Says::Stop(Some(Outcome::AfterAttempts))
        } else if *bare.end() <= inline && *whole.end() <= left && left > 0 {
            Says::Send(layer)
        } else {
            Says::Open(layer)
        }
    }

    pub(crate) fn used(&self, layer: Layer) -> u32 {
        match layer {
            Layer::Transport => self.t_used,
            Layer::Session => self.s_used,
            Layer::Exec => self.x_used,
            _ => panic!("{layer:?} pays for nothing"),
        }
    }

    pub(crate) fn charge(&mut self, layer: Layer) {
        let (used, left) = match layer {
            Layer::Transport => (&mut self.t_used, &mut self.t_left),
            Layer::Session => (&mut self.s_used, &mut self.s_left),
            Layer::Exec => (&mut self.x_used, &mut self.x_left),
            _ => panic!("{layer:?} pays for nothing"),
        };
        *used += 1;
        *left -= 1;
        self.session_began |= layer == Layer::Session;
    }
}
