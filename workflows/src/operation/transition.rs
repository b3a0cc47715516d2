//! `apply`: what an event does to an operation.

use super::begin::Moment;
use super::class::{Failure, FailureClass};
use super::contract::{Contract, ProviderRef};
use super::event::{Change, Event, Finding, Note, Outcome};
use super::policy::Rules;
use super::state::{
    Acceptance, Cleanups, Doubt, Lookups, Operation, PendingVerdict, State, Verdict,
};
use jiff::{SignedDuration, Timestamp};

/// Look-ups never wait longer than this for each other.
const LOOKUP_WAIT_MAX: SignedDuration = SignedDuration::from_hours(1);

impl Operation {
    /// Applies `event` at `moment` under `rules`. An event that does not fit changes nothing that it
    /// should not; the note says why.
    pub fn apply(&mut self, event: &Event, rules: &Rules, moment: &Moment) -> Change {
        let from = self.state;
        let mut turn = Turn { op: self, rules, moment, settled: Vec::new() };
        let note = turn.apply(event);
        let settled = turn.settled;
        Change { from, to: self.state, settled, note }
    }
}

/// One event being applied.
struct Turn<'a> {
    op: &'a mut Operation,
    rules: &'a Rules,
    moment: &'a Moment,
    settled: Vec<(u32, Outcome)>,
}

impl Turn<'_> {
    fn apply(&mut self, event: &Event) -> Option<Note> {
        match event {
            Event::Closed { generation, ordinal, failure, random } => {
                self.closed((*generation, *ordinal), failure, *random)
            }
            Event::Answered { attempt, outcome: Outcome::Accepted { message_id }, .. } => {
                self.answered_accepted(*attempt, message_id.as_deref())
            }
            Event::Answered { attempt, outcome: Outcome::NotSent(failure), random } => {
                self.answered_not_sent(*attempt, failure, *random)
            }
            Event::Overdue { attempt, random } => self.overdue(*attempt, *random),
            Event::Judged { verdict, attempt } => self.judged(*verdict, *attempt),
            Event::LookedUp { finding, asked_at, random } => {
                self.looked_up(finding, *asked_at, *random)
            }
            Event::Told { finding } => self.told(finding),
            Event::ProviderGone => self.provider_gone(),
            Event::Unwanted => self.unwanted(),
            Event::TooLate => self.too_late(),
            Event::TimePassed => self.time_passed(),
            Event::Cancelled => self.cancelled(),
            Event::ContentGone => self.content_gone(),
            Event::Refrozen => self.refrozen(),
            Event::Replayed => self.replayed(),
            Event::Restored { attempts } => self.restored(*attempts),
            Event::CleanedUp => self.cleaned_up(),
            Event::CleanupFailed { random } => self.cleanup_failed(*random),
            Event::CleanupAgain => self.cleanup_again(),
        }
    }

    /// Whether another attempt could follow, so that a try or a withdrawal means something.
    fn is_open(&self) -> bool {
        self.op.state != State::Sent && !self.op.state.is_terminal()
    }

    fn closed(&mut self, place: (u32, u32), failure: &Failure, random: f64) -> Option<Note> {
        if !self.is_open() {
            return Some(Note::DoesNotApply);
        }
        // Recorded again, or overtaken by an execution that has reached its intent.
        if place != (self.op.generation, self.op.ordinal + 1) {
            return Some(Note::AlreadyRecorded);
        }
        self.op.count_attempt(self.moment);
        self.settled.push((self.op.attempts, Outcome::NotSent(failure.clone())));
        self.refused(failure, random);
        None
    }

    fn answered_accepted(&mut self, attempt: u32, message_id: Option<&str>) -> Option<Note> {
        let in_doubt = self.op.doubt(attempt).is_some();
        if let Some(accepted) = &mut self.op.accepted {
            if accepted.attempt == Some(attempt) || accepted.covers.contains(&attempt) {
                if accepted.message_id.is_none() {
                    accepted.message_id = message_id.map(str::to_owned);
                }
                return Some(Note::AlreadyRecorded);
            }
            self.op.contradicted = true;
            return Some(Note::Contradicts);
        }
        if self.op.state.is_terminal() {
            self.op.contradicted = true;
            return Some(Note::Contradicts);
        }
        self.accept(Some(attempt), message_id);
        if in_doubt {
            return None;
        }
        // The attempt was settled as not sent, and was accepted after all.
        self.op.contradicted = true;
        Some(Note::Contradicts)
    }

    fn answered_not_sent(&mut self, attempt: u32, failure: &Failure, random: f64) -> Option<Note> {
        if self.op.doubt(attempt).is_none() {
            let by_verdict = self.op.accepted.as_ref().is_some_and(|accepted| {
                accepted.attempt.is_none() && accepted.covers.contains(&attempt)
            });
            self.op.contradicted |= by_verdict;
            return Some(if by_verdict { Note::Contradicts } else { Note::AlreadyRecorded });
        }
        self.op.doubts.retain(|doubt| doubt.number != attempt);
        self.settled.push((attempt, Outcome::NotSent(failure.clone())));
        self.refused(failure, random);
        None
    }

    fn overdue(&mut self, attempt: u32, random: f64) -> Option<Note> {
        if self.op.doubt(attempt).is_none() {
            return Some(Note::AlreadyRecorded);
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

    fn judged(&mut self, verdict: Verdict, attempt: Option<u32>) -> Option<Note> {
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

    fn looked_up(&mut self, finding: &Finding, asked_at: Timestamp, random: f64) -> Option<Note> {
        match finding {
            Finding::Miss | Finding::Unavailable if self.op.state != State::Unknown => {
                Some(Note::DoesNotApply)
            }
            Finding::Miss | Finding::Unavailable => {
                self.missed(*finding == Finding::Miss, asked_at, random);
                None
            }
            found => self.told(found),
        }
    }

    /// A look-up that found nothing: counts as "not sent" only where the contract says that it can,
    /// and only when nothing can still arrive.
    fn missed(&mut self, is_miss: bool, asked_at: Timestamp, random: f64) {
        let now = self.moment.now;
        let counting = self.op.doubts.iter().all(|doubt| doubt.contract.lookup.miss_counts());
        let settles_at = self.op.settles_at().unwrap_or(now);
        let delivered = self.op.verdict.is_some_and(|v| v.verdict == Verdict::Delivered);
        if is_miss && counting && asked_at >= settles_at && !delivered {
            self.settle_doubts("look-up found nothing", random);
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

    fn told(&mut self, finding: &Finding) -> Option<Note> {
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
                let failure = Failure::new(*class, "provider accepted, then refused");
                for doubt in std::mem::take(&mut self.op.doubts) {
                    self.settled.push((doubt.number, Outcome::NotSent(failure.clone())));
                }
                self.refused(&failure, 0.0);
                None
            }
            _ => Some(Note::DoesNotApply),
        }
    }

    fn provider_gone(&mut self) -> Option<Note> {
        if self.op.state != State::Unknown {
            return Some(Note::DoesNotApply);
        }
        self.op.replay_over = true;
        self.op.lookups.spent = true;
        None
    }

    fn unwanted(&mut self) -> Option<Note> {
        let dead = self.op.state == State::Dead;
        if !self.is_open() && !dead {
            return Some(Note::DoesNotApply);
        }
        if self.op.unwanted {
            return Some(Note::AlreadyRecorded);
        }
        self.op.unwanted = true;
        if dead {
            // Never replayed any more.
            return None;
        }
        if self.op.is_proven_not_sent() {
            self.end(State::Suppressed, FailureClass::Suppressed);
            return None;
        }
        Some(Note::NotSentAgain)
    }

    fn too_late(&mut self) -> Option<Note> {
        if !self.is_open() {
            return Some(Note::DoesNotApply);
        }
        if self.op.is_proven_not_sent() {
            self.end(State::Dead, FailureClass::Stale);
        } else {
            self.op.replay_over = true;
        }
        None
    }

    fn time_passed(&mut self) -> Option<Note> {
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

    fn cancelled(&mut self) -> Option<Note> {
        // A replayed dead letter is sending before its first attempt.
        let waits = matches!(self.op.state, State::Selected | State::Retrying | State::Sending);
        if !waits || !self.op.is_proven_not_sent() {
            return Some(Note::DoesNotApply);
        }
        self.end(State::Suppressed, FailureClass::Suppressed);
        None
    }

    fn content_gone(&mut self) -> Option<Note> {
        if self.op.state != State::Unknown {
            return Some(Note::DoesNotApply);
        }
        self.op.replay_over = true;
        None
    }

    fn refrozen(&mut self) -> Option<Note> {
        if self.op.may_refreeze(self.moment).is_err() {
            return Some(Note::DoesNotApply);
        }
        // Windows count from the first intent with the present bytes, and these are new.
        self.op.first_intent_at = None;
        self.op.remembered_until = None;
        None
    }

    fn replayed(&mut self) -> Option<Note> {
        if self.op.may_replay(self.moment).is_err() {
            return Some(Note::DoesNotApply);
        }
        self.open_generation();
        self.op.replay_over = false;
        self.op.enter(State::Sending, self.moment.now);
        None
    }

    fn open_generation(&mut self) {
        self.op.generation += 1;
        self.op.ordinal = 0;
        self.op.began = None;
        self.op.failures.clear();
        self.op.retry_at = None;
    }

    /// Keeps a doubt for the attempt that is not on record. Whatever it was handed to, nothing can
    /// be asked about it, and nothing is replayed past it; only a late answer or a human settles it.
    fn restored(&mut self, attempts: u32) -> Option<Note> {
        match self.op.state {
            State::Selected | State::Sending | State::Retrying => {}
            State::Unknown if attempts <= self.op.attempts => return Some(Note::AlreadyRecorded),
            State::Unknown => {}
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

    fn cleaned_up(&mut self) -> Option<Note> {
        if self.op.state != State::Sent {
            let again = self.op.state == State::Cleaned;
            return Some(if again { Note::AlreadyRecorded } else { Note::DoesNotApply });
        }
        self.op.cleanup = Cleanups::default();
        self.op.enter(State::Cleaned, self.moment.now);
        None
    }

    fn cleanup_failed(&mut self, random: f64) -> Option<Note> {
        if self.op.state != State::Sent {
            return Some(Note::DoesNotApply);
        }
        let cleanup = &mut self.op.cleanup;
        cleanup.failures += 1;
        let policy = &self.rules.cleanup;
        let too_old = self.moment.now.duration_since(self.op.since) >= policy.max_age;
        cleanup.given_up = cleanup.failures >= policy.max_attempts || too_old;
        cleanup.retry_at =
            (!cleanup.given_up).then(|| self.moment.now + policy.delay(cleanup.failures, random));
        None
    }

    fn cleanup_again(&mut self) -> Option<Note> {
        if self.op.state != State::Sent {
            return Some(Note::DoesNotApply);
        }
        self.op.cleanup = Cleanups::default();
        None
    }

    fn act_on_verdict(&mut self) {
        let Some(pending) = self.op.verdict.take() else { return };
        match pending.verdict {
            Verdict::Delivered => self.accept(None, None),
            _ => self.settle_doubts("verdict not_delivered", 0.0),
        }
    }

    /// Takes the acceptance for the truth, for every doubt.
    fn accept(&mut self, attempt: Option<u32>, message_id: Option<&str>) {
        let message_id = message_id.map(str::to_owned);
        let covers: Vec<u32> = self.op.doubts.drain(..).map(|doubt| doubt.number).collect();
        for number in &covers {
            let message_id = message_id.clone();
            self.settled.push((*number, Outcome::Accepted { message_id }));
        }
        self.op.accepted = Some(Acceptance { attempt, message_id, covers });
        self.op.verdict = None;
        self.op.retry_at = None;
        self.op.class = None;
        self.op.enter(State::Sent, self.moment.now);
    }

    /// Settles every doubt as not sent.
    fn settle_doubts(&mut self, code: &str, random: f64) {
        let failure = Failure::new(FailureClass::Ambiguous, code);
        for doubt in std::mem::take(&mut self.op.doubts) {
            self.settled.push((doubt.number, Outcome::NotSent(failure.clone())));
        }
        self.refused(&failure, random);
    }

    /// One attempt is proven not sent. It proves nothing about the others: with one in doubt, the
    /// operation stays unknown and only the next replay is paced.
    fn refused(&mut self, failure: &Failure, random: f64) {
        if !self.op.doubts.is_empty() {
            self.pace_replay(failure.class, failure.retry_after, random);
            return;
        }
        self.op.verdict = None;
        self.op.lookups = Lookups::default();
        self.op.class = Some(failure.class);
        if self.op.unwanted {
            self.end(State::Suppressed, FailureClass::Suppressed);
            return;
        }
        match failure.class {
            FailureClass::Recipient
            | FailureClass::Rejected
            | FailureClass::Schema
            | FailureClass::Stale => self.end(State::Dead, failure.class),
            FailureClass::Suppressed => self.end(State::Suppressed, failure.class),
            // Counts against no bound: the run is held, and resume sends the operation again.
            FailureClass::Configuration => self.retry_after(SignedDuration::ZERO),
            FailureClass::Transport
            | FailureClass::Overloaded
            | FailureClass::RateLimited
            | FailureClass::Ambiguous => self.back_off(failure, random),
        }
    }

    fn back_off(&mut self, failure: &Failure, random: f64) {
        let failures = self.op.failures.entry(failure.class).or_default();
        *failures += 1;
        let failures = *failures;
        let policy = self.rules.retry(failure.class);
        if failures >= policy.max_attempts || self.age() >= policy.max_age {
            self.end(State::Dead, failure.class);
            return;
        }
        let delay = policy.delay(failures, random);
        self.retry_after(delay.max(failure.retry_after.unwrap_or_default()));
    }

    /// How old the generation is, without the time under a hold.
    fn age(&self) -> SignedDuration {
        self.op.began.map_or(SignedDuration::ZERO, |began| {
            let held = self.moment.held_for.saturating_sub(began.held_before);
            self.moment.now.duration_since(began.at).saturating_sub(held)
        })
    }

    fn retry_after(&mut self, delay: SignedDuration) {
        if self.moment.cancelled {
            self.end(State::Suppressed, FailureClass::Suppressed);
            return;
        }
        self.op.retry_at = Some(self.moment.now + delay);
        self.op.enter(State::Retrying, self.moment.now);
    }

    /// When a replay of the doubts is due, should the contract allow one.
    fn pace_replay(&mut self, class: FailureClass, wish: Option<SignedDuration>, random: f64) {
        let doubts = u32::try_from(self.op.doubts.len()).unwrap_or(u32::MAX);
        let delay = self.rules.retry(class).delay(doubts, random);
        self.op.retry_at = Some(self.moment.now + delay.max(wish.unwrap_or_default()));
    }

    fn end(&mut self, state: State, class: FailureClass) {
        self.op.class = Some(class);
        self.op.retry_at = None;
        self.op.enter(state, self.moment.now);
    }
}
