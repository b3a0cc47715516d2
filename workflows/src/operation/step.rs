//! `next`: what an operation needs now.

use super::class::FailureClass;
use super::policy::Rules;
use super::state::{Operation, State};
use jiff::Timestamp;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Make this attempt; or, if it was begun, ask the ledger what became of it.
    Deliver {
        /// The generation of attempts.
        generation: u32,
        /// The attempt's ordinal within it.
        ordinal: u32,
    },
    /// Ask the ledger, and where it is due the provider, about the doubts.
    Reconcile,
    /// Remove the rows of this operation.
    CleanUp,
    /// Wait until this instant by the ledger's clock, or for a signal, then ask the ledger.
    Wait(Timestamp, Why),
    /// Nothing follows by itself any more.
    Done,
}

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The next attempt, after a failure of this class.
    Retry(FailureClass),
    /// The next replay of an attempt in doubt.
    Replay,
    /// The next look-up at the provider.
    LookUp,
    /// A late answer, until the lease ends.
    LateAnswer,
    /// A verdict that is recorded, until it may be acted on.
    Verdict,
    /// A human; the retention rule ends the wait.
    Human,
    /// The next try of a cleanup that failed.
    Cleanup,
}

impl Operation {
    /// The next step at `now`, the ledger's time of the last answer.
    #[must_use]
    pub fn next(&self, rules: &Rules, now: Timestamp) -> Step {
        match self.state {
            State::Unknown => self.pursue(rules, now),
            State::Sending if !self.doubts.is_empty() => deliver(self.generation, self.ordinal),
            State::Selected | State::Sending | State::Retrying => match self.retry_at {
                Some(at) if at > now => {
                    let class = self.class.unwrap_or(FailureClass::Transport);
                    Step::Wait(at, Why::Retry(class))
                }
                _ => deliver(self.generation, self.ordinal + 1),
            },
            State::Sent if self.cleanup.given_up => Step::Done,
            State::Sent => match self.cleanup.retry_at {
                Some(at) if at > now => Step::Wait(at, Why::Cleanup),
                _ => Step::CleanUp,
            },
            State::Cleaned | State::Suppressed | State::Dead | State::Expired => Step::Done,
        }
    }

    /// Whether nothing automatic is left, so that the run may close over it.
    #[must_use]
    pub fn is_at_rest(&self, rules: &Rules, now: Timestamp) -> bool {
        match self.next(rules, now) {
            Step::Done => true,
            Step::Wait(_, why) => why == Why::Human,
            _ => false,
        }
    }

    /// Whether the provider should be asked at `now`.
    #[must_use]
    pub fn look_up_is_due(&self, now: Timestamp) -> bool {
        self.state == State::Unknown && self.next_look_up().is_some_and(|at| at <= now)
    }

    /// What an unknown needs: the earliest of its automatic means, then a human.
    fn pursue(&self, rules: &Rules, now: Timestamp) -> Step {
        let verdict = self.verdict.map(|verdict| (verdict.acts_at, Why::Verdict));
        let replay = self.next_replay(rules, now).map(|at| (at, Why::Replay));
        let look_up = self.next_look_up().map(|at| (at, Why::LookUp));
        let late = self
            .lease_ends()
            .filter(|ends| self.asked_at.is_none_or(|asked| asked < *ends))
            .map(|ends| (ends, Why::LateAnswer));
        let expiry = (self.since + rules.unknown.keep_rows_for, Why::Human);
        let earliest = [verdict, replay, look_up, late]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
            .unwrap_or(expiry);
        match earliest {
            (at, why) if at > now => Step::Wait(at, why),
            (_, Why::Replay) => deliver(self.generation, self.ordinal + 1),
            _ => Step::Reconcile,
        }
    }

    /// When the doubts may be replayed next; `None` when replaying is spent.
    fn next_replay(&self, rules: &Rules, now: Timestamp) -> Option<Timestamp> {
        let until = self.replayable_until()?;
        let spent = self.doubts.len() >= rules.retry(FailureClass::Ambiguous).max_attempts as usize;
        let at = self.retry_at.unwrap_or(now).max(now);
        (!spent && at < until).then_some(at)
    }

    /// When the provider is asked next; `None` when it cannot be, or has nothing more to tell.
    fn next_look_up(&self) -> Option<Timestamp> {
        let possible = self.doubts.iter().any(|doubt| doubt.contract.lookup.is_offered());
        if !possible || self.lookups.spent {
            return None;
        }
        Some(self.lookups.next_at.unwrap_or(self.since))
    }
}

const fn deliver(generation: u32, ordinal: u32) -> Step {
    Step::Deliver { generation, ordinal }
}
