//! `apply`: what an event does to an operation. What concerns attempts in doubt is in [`doubts`].

mod doubts;

use super::begin::Moment;
use super::class::{Failure, FailureClass};
use super::contract::ProviderRef;
use super::event::{Change, Event, Note, Outcome};
use super::policy::Rules;
use super::state::{Acceptance, Cleanups, Lookups, Operation, State};
use jiff::SignedDuration;

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
            Event::ReplayOver => self.end_replays(),
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
        if self.op.doubt(attempt).is_some_and(|doubt| doubt.provider == ProviderRef::unrecorded()) {
            return Some(Note::PerhapsAnother);
        }
        let Some(doubt) = self.op.doubt(attempt) else {
            let by_verdict = self.op.accepted.as_ref().is_some_and(|accepted| {
                accepted.attempt.is_none() && accepted.covers.contains(&attempt)
            });
            self.op.contradicted |= by_verdict;
            return Some(if by_verdict { Note::Contradicts } else { Note::AlreadyRecorded });
        };
        let refused_together = doubt.batch.is_some() && failure.is_of_the_batch();
        self.op.alone |= refused_together;
        self.op.doubts.retain(|doubt| doubt.number != attempt);
        self.settled.push((attempt, Outcome::NotSent(failure.clone())));
        if self.op.state == State::Expired {
            // It was given up for good; what became of the attempt is only kept.
            return None;
        }
        self.refused(failure, random);
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

    fn cancelled(&mut self) -> Option<Note> {
        if self.op.state == State::Unknown {
            // The doubt keeps its course, but nothing is repeated for a cancelled run.
            return self.end_replays();
        }
        // A replayed dead letter is sending before its first attempt.
        let waits = matches!(self.op.state, State::Selected | State::Retrying | State::Sending);
        if !waits || !self.op.is_proven_not_sent() {
            return Some(Note::DoesNotApply);
        }
        self.end(State::Suppressed, FailureClass::Suppressed);
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

    /// Takes the acceptance for the truth, for every doubt.
    fn accept(&mut self, attempt: Option<u32>, message_id: Option<&str>) {
        let message_id = message_id.map(str::to_owned);
        let batch = self.op.batch_accepted_with(attempt);
        let covers: Vec<u32> = self.op.doubts.drain(..).map(|doubt| doubt.number).collect();
        for number in &covers {
            let message_id = message_id.clone();
            self.settled.push((*number, Outcome::Accepted { message_id }));
        }
        self.op.accepted = Some(Acceptance { attempt, message_id, covers, batch });
        self.op.verdict = None;
        self.op.retry_at = None;
        self.op.class = None;
        self.op.enter(State::Sent, self.moment.now);
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
            // Nor does what may be the fault of another member; it happens once, and then it goes alone.
            class if failure.is_of_the_batch() => {
                self.retry_after(self.rules.retry(class).delay(1, random));
            }
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

    fn end(&mut self, state: State, class: FailureClass) {
        self.op.class = Some(class);
        self.op.retry_at = None;
        self.op.enter(state, self.moment.now);
    }
}
