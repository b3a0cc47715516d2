//! Attempts in doubt: how they come about, what time, people and the provider say of them.

use super::Turn;
use crate::operation::class::{Failure, FailureClass};
use crate::operation::contract::{Contract, ProviderRef};
use crate::operation::event::{Finding, Note, Outcome};
use crate::operation::state::{Doubt, Lookups, PendingVerdict, State, Verdict};
use jiff::{SignedDuration, Timestamp};

/// Look-ups never wait longer than this for each other.
const LOOKUP_WAIT_MAX: SignedDuration = SignedDuration::from_hours(1);

impl Turn<'_> {
    pub(super) fn overdue(&mut self, attempt: u32, random: f64) -> Option<Note> {
        if self.op.doubt(attempt).is_none() {
            return Some(Note::AlreadyRecorded);
        }
        if self.op.state == State::Expired {
            return Some(Note::DoesNotApply);
        }
        let first = self.op.state != State::Unknown;
        if !first && self.op.retry_at.is_some() {
            return Some(Note::AlreadyRecorded);
        }
        self.op.class = Some(FailureClass::Ambiguous);
        self.op.enter(State::Unknown, self.moment.now);
        self.pace_replay(FailureClass::Ambiguous, None, random);
        if first {
            self.op.lookups = Lookups { next_at: Some(self.moment.now), ..Lookups::default() };
        }
        None
    }

    pub(super) fn judged(&mut self, verdict: Verdict, attempt: Option<u32>) -> Option<Note> {
        if self.op.state != State::Unknown {
            return Some(Note::NotUnknown);
        }
        let names_newest = match attempt {
            Some(number) => number == self.op.newest_handed_over,
            None => self.op.doubts_ever == 1,
        };
        if !names_newest {
            return Some(Note::NotNewestAttempt);
        }
        let pending = self.op.verdict.map(|pending| pending.verdict);
        let acts_at = match (pending, verdict) {
            (_, Verdict::Abandon) => {
                self.op.verdict = None;
                self.op.enter(State::Expired, self.moment.now);
                return None;
            }
            (Some(before), _) if before == verdict => return Some(Note::AlreadyRecorded),
            // A correction may only lead away from another send.
            (Some(Verdict::Delivered), _) => return Some(Note::VerdictStands),
            (_, Verdict::Delivered) => self.op.lease_ends(),
            (_, Verdict::NotDelivered) => self.op.settles_at(),
        };
        let acts_at = acts_at.unwrap_or(self.moment.now);
        self.op.verdict = Some(PendingVerdict { verdict, acts_at });
        if self.moment.now < acts_at {
            return Some(Note::ActsLater);
        }
        self.act_on_verdict();
        None
    }

    pub(super) fn looked_up(
        &mut self,
        finding: &Finding,
        asked_at: Timestamp,
        random: f64,
    ) -> Option<Note> {
        match finding {
            Finding::Miss | Finding::Unavailable if self.op.state != State::Unknown => {
                Some(Note::DoesNotApply)
            }
            Finding::Miss | Finding::Unavailable => {
                self.missed(*finding == Finding::Miss, asked_at, random);
                None
            }
            Finding::Refused(_) if self.op.state == State::Unknown && !self.is_one_message() => {
                self.missed(false, asked_at, random);
                Some(Note::PerhapsAnother)
            }
            found => self.told(found),
        }
    }

    /// Whether the doubts are of one message, and no other was ever on its way under this key: then
    /// a word about the key is a word about each of them.
    fn is_one_message(&self) -> bool {
        let doubts = &self.op.doubts;
        let unrecorded = ProviderRef::unrecorded();
        let repeats = |doubt: &Doubt| doubt.contract.replay.window().is_some();
        !self.op.presumed_not_sent
            && doubts.iter().all(|doubt| doubt.provider != unrecorded)
            && (doubts.len() == 1 || doubts.iter().all(repeats))
    }

    /// A look-up that found nothing: counts as "not sent" only where the contract says that it can,
    /// and only when nothing can still arrive.
    fn missed(&mut self, is_miss: bool, asked_at: Timestamp, random: f64) {
        let now = self.moment.now;
        let counting = self.op.doubts.iter().all(|doubt| doubt.contract.lookup.miss_counts());
        let settles_at = self.op.settles_at().unwrap_or(now);
        let delivered = self.op.verdict.is_some_and(|v| v.verdict == Verdict::Delivered);
        if is_miss && counting && asked_at >= settles_at && !delivered {
            let failure = Failure::new(FailureClass::Ambiguous, "look-up found nothing");
            self.settle_doubts(&failure, random);
            return;
        }
        let lookups = &mut self.op.lookups;
        lookups.asked += 1;
        let doubled = 2_i32.saturating_pow(lookups.asked.saturating_sub(1).min(20));
        let wait = self.rules.unknown.lookup_every.saturating_mul(doubled).min(LOOKUP_WAIT_MAX);
        // The first miss that may count is not put off by the doubling.
        let next_at =
            if counting && settles_at > now { (now + wait).min(settles_at) } else { now + wait };
        lookups.next_at = Some(next_at);
        lookups.spent = !counting && now >= self.op.since + self.rules.unknown.escalate_after;
    }

    pub(super) fn told(&mut self, finding: &Finding) -> Option<Note> {
        match (finding, self.op.state) {
            (Finding::Accepted { message_id }, State::Sent | State::Cleaned) => {
                if let Some(accepted) = &mut self.op.accepted
                    && accepted.message_id.is_none()
                {
                    accepted.message_id.clone_from(message_id);
                }
                Some(Note::AlreadyRecorded)
            }
            (Finding::Accepted { message_id }, _) if self.is_open() => {
                let contradicts = self.op.doubts.is_empty();
                self.accept(None, message_id.as_deref());
                self.op.contradicted |= contradicts;
                contradicts.then_some(Note::Contradicts)
            }
            (Finding::Accepted { .. }, _) => {
                self.op.contradicted = true;
                Some(Note::Contradicts)
            }
            (Finding::Refused(_), State::Sent | State::Cleaned) => {
                self.op.undelivered = true;
                Some(Note::Undelivered)
            }
            (Finding::Refused(class), State::Sending | State::Unknown)
                if !self.op.doubts.is_empty() =>
            {
                if !self.is_one_message() {
                    return Some(Note::PerhapsAnother);
                }
                let failure = Failure::new(*class, "provider accepted, then refused");
                self.settle_doubts(&failure, 0.0);
                None
            }
            _ => Some(Note::DoesNotApply),
        }
    }

    pub(super) fn provider_gone(&mut self) -> Option<Note> {
        if self.op.state != State::Unknown {
            return Some(Note::DoesNotApply);
        }
        self.op.replay_over = true;
        self.op.lookups.spent = true;
        None
    }

    pub(super) fn end_replays(&mut self) -> Option<Note> {
        if self.op.state != State::Unknown {
            return Some(Note::DoesNotApply);
        }
        if self.op.replay_over {
            return Some(Note::AlreadyRecorded);
        }
        self.op.replay_over = true;
        None
    }

    pub(super) fn time_passed(&mut self) -> Option<Note> {
        let now = self.moment.now;
        self.op.asked_at = Some(now);
        if self.op.state != State::Unknown {
            return None;
        }
        if self.op.verdict.is_some_and(|verdict| now >= verdict.acts_at) {
            self.act_on_verdict();
        } else if self.op.verdict.is_none()
            && now >= self.op.since + self.rules.unknown.keep_rows_for
        {
            self.op.enter(State::Expired, now);
        }
        None
    }

    /// Keeps a doubt for what is not on record, which may be more than one attempt. Whatever it was
    /// handed to, nothing can be asked about it, nothing is replayed past it, and the refusal of one
    /// attempt says nothing of the others; only evidence of an acceptance or a human settles it.
    pub(super) fn restored(&mut self, attempts: u32) -> Option<Note> {
        match self.op.state {
            State::Unknown if attempts <= self.op.attempts => return Some(Note::AlreadyRecorded),
            State::Selected | State::Sending | State::Retrying | State::Unknown => {}
            // What the engine has seen go on was replayed after the backup: another generation.
            State::Dead => self.open_generation(),
            State::Sent | State::Cleaned | State::Suppressed | State::Expired => {
                return Some(Note::DoesNotApply);
            }
        }
        let (now, timeouts) = (self.moment.now, self.rules.timeouts);
        self.op.count_attempt(self.moment);
        self.op.attempts = self.op.attempts.max(attempts);
        self.op.doubts.push(Doubt {
            number: self.op.attempts,
            generation: self.op.generation,
            ordinal: self.op.ordinal,
            begun_at: now,
            lease_ends: now,
            // A worker that holds a lease from before the restore may still hand over.
            settles_at: now + timeouts.lease + timeouts.settle,
            provider: ProviderRef::unrecorded(),
            contract: Contract::NONE,
            content_hash: String::new(),
            batch: None,
        });
        self.op.newest_handed_over = self.op.attempts;
        self.op.doubts_ever += 1;
        self.op.first_intent_at.get_or_insert(now);
        // It spoke of the attempts on record alone; that the customer has the message stays true.
        self.op.verdict = self.op.verdict.filter(|v| v.verdict == Verdict::Delivered);
        self.op.retry_at = None;
        self.op.class = Some(FailureClass::Ambiguous);
        if self.op.state != State::Unknown {
            self.op.lookups = Lookups { next_at: Some(now), ..Lookups::default() };
        }
        self.op.enter(State::Unknown, now);
        None
    }

    fn act_on_verdict(&mut self) {
        let Some(pending) = self.op.verdict.take() else { return };
        if pending.verdict == Verdict::Delivered {
            self.accept(None, None);
            // A person speaks of one message, not of the others in its batch.
            if let Some(accepted) = &mut self.op.accepted {
                accepted.batch = None;
            }
        } else {
            let failure = Failure::new(FailureClass::Ambiguous, "verdict not_delivered");
            self.settle_doubts(&failure, 0.0);
        }
    }

    /// Settles every doubt as not sent, on other evidence than an attempt's own answer.
    fn settle_doubts(&mut self, failure: &Failure, random: f64) {
        self.op.presumed_not_sent = true;
        for doubt in std::mem::take(&mut self.op.doubts) {
            self.settled.push((doubt.number, Outcome::NotSent(failure.clone())));
        }
        self.refused(failure, random);
    }

    /// When a replay of the doubts is due, should the contract allow one.
    pub(super) fn pace_replay(
        &mut self,
        class: FailureClass,
        wish: Option<SignedDuration>,
        random: f64,
    ) {
        let doubts = u32::try_from(self.op.doubts.len()).unwrap_or(u32::MAX);
        let delay = self.rules.retry(class).delay(doubts, random);
        self.op.retry_at = Some(self.moment.now + delay.max(wish.unwrap_or_default()));
    }
}
