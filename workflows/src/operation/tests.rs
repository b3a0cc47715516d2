//! The machine against a small hostile world, and its rules one by one.

#![expect(clippy::needless_pass_by_value, reason = "events read better by value in tests")]

mod limits;

use super::*;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + seconds).unwrap()
}

fn moment(seconds: i64) -> Moment {
    Moment {
        now: at(seconds),
        held: false,
        held_for: SignedDuration::ZERO,
        cancelled: false,
        useful_until: at(5 * 86_400),
        suppressed: false,
    }
}

fn intent(op: &Operation, contract: Contract) -> Intent {
    Intent {
        generation: op.generation,
        ordinal: op.ordinal + 1,
        provider: ProviderRef { kind: "test".into(), account: "a".into() },
        contract,
        content_hash: "hash".into(),
        lease: SignedDuration::from_mins(15),
        settle: SignedDuration::from_mins(10),
        batch: None,
    }
}

const LEASE: i64 = 15 * 60;
const SETTLED: i64 = LEASE + 10 * 60;
const REPLAY: Contract = Contract {
    replay: Replay::ReturnsOriginal {
        window: SignedDuration::from_hours(24),
        margin: SignedDuration::from_hours(1),
    },
    ..Contract::NONE
};
const LOOKUP: Contract = Contract { lookup: Lookup::ByKey { miss_counts: true }, ..Contract::NONE };

/// The next try, ended before its intent.
fn closed(op: &Operation, failure: Failure, random: f64) -> Event {
    Event::Closed { generation: op.generation, ordinal: op.ordinal + 1, failure, random }
}

struct Bench {
    op: Operation,
    rules: Rules,
}

impl Bench {
    fn new() -> Self {
        Self { op: Operation::selected(at(0)), rules: Rules::default() }
    }

    /// An operation whose first attempt is in doubt since second 0.
    fn unknown(contract: Contract) -> Self {
        let mut bench = Self::new();
        bench.begin(contract, 0).unwrap();
        bench.apply(Event::Overdue { attempt: 1, random: 0.0 }, 0);
        assert_eq!(bench.op.state, State::Unknown);
        bench
    }

    fn begin(&mut self, contract: Contract, seconds: i64) -> Result<u32, CannotBegin> {
        self.op.begin(intent(&self.op, contract), &moment(seconds))
    }

    fn apply(&mut self, event: Event, seconds: i64) -> Change {
        self.op.apply(&event, &self.rules, &moment(seconds))
    }

    fn refused(&mut self, attempt: u32, class: FailureClass, seconds: i64) -> Change {
        let outcome = Outcome::NotSent(Failure::new(class, "test"));
        self.apply(Event::Answered { attempt, outcome, random: 0.0 }, seconds)
    }

    fn accepted(&mut self, attempt: u32, seconds: i64) -> Change {
        let outcome = Outcome::Accepted { message_id: None };
        self.apply(Event::Answered { attempt, outcome, random: 0.0 }, seconds)
    }

    fn judged(&mut self, verdict: Verdict, attempt: u32, seconds: i64) -> Option<Note> {
        self.apply(Event::Judged { verdict, attempt: Some(attempt) }, seconds).note
    }
}

#[test]
fn a_happy_operation_is_two_steps() {
    let mut bench = Bench::new();
    let first = bench.op.next(&bench.rules, at(0));
    assert_eq!(first, Step::Deliver { generation: 1, ordinal: 1 });
    bench.begin(Contract::NONE, 0).unwrap();
    bench.accepted(1, 1);
    assert_eq!(bench.op.next(&bench.rules, at(1)), Step::CleanUp);
    bench.apply(Event::CleanedUp, 2);
    assert_eq!(bench.op.state, State::Cleaned);
    assert_eq!(bench.op.next(&bench.rules, at(2)), Step::Done);
}

#[test]
fn each_class_goes_where_the_table_says() {
    for (class, state) in [
        (FailureClass::Transport, State::Retrying),
        (FailureClass::Overloaded, State::Retrying),
        (FailureClass::RateLimited, State::Retrying),
        (FailureClass::Configuration, State::Retrying),
        (FailureClass::Recipient, State::Dead),
        (FailureClass::Rejected, State::Dead),
        (FailureClass::Schema, State::Dead),
        (FailureClass::Stale, State::Dead),
        (FailureClass::Suppressed, State::Suppressed),
    ] {
        let mut handed_over = Bench::new();
        handed_over.begin(Contract::NONE, 0).unwrap();
        handed_over.refused(1, class, 1);
        assert_eq!(handed_over.op.state, state, "{class} after the hand-over");

        let mut before = Bench::new();
        let failure = Failure::new(class, "test");
        before.apply(closed(&before.op, failure, 0.0), 1);
        assert_eq!(before.op.state, state, "{class} before the intent");
        assert_eq!(before.op.ordinal, 1);
    }
}

#[test]
fn retries_end_dead_but_configuration_counts_against_no_bound() {
    let mut bench = Bench::new();
    for n in 1..=100 {
        let failure = Failure::new(FailureClass::Configuration, "quota");
        bench.apply(closed(&bench.op, failure, 0.0), n);
        assert_eq!(bench.op.state, State::Retrying);
    }
    for n in 1..=8 {
        assert_eq!(bench.op.state, State::Retrying, "failure {n}");
        let failure = Failure::new(FailureClass::Transport, "connect");
        bench.apply(closed(&bench.op, failure, 0.0), 200 + n);
    }
    assert_eq!(bench.op.state, State::Dead);
    assert_eq!(bench.op.class, Some(FailureClass::Transport));
}

#[test]
fn a_try_is_closed_once_and_only_in_its_own_place() {
    let mut bench = Bench::new();
    let event = closed(&bench.op, Failure::new(FailureClass::Transport, "connect"), 0.0);
    bench.apply(event.clone(), 0);
    let once = bench.op.clone();
    assert_eq!(bench.apply(event.clone(), 1).note, Some(Note::AlreadyRecorded));
    assert_eq!(bench.op, once);

    // Another execution of the same try has reached its intent meanwhile.
    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    let begun = bench.op.clone();
    assert_eq!(bench.apply(event, 1).note, Some(Note::AlreadyRecorded));
    assert_eq!(bench.op, begun);
}

#[test]
fn retry_after_is_obeyed_even_above_the_cap() {
    let mut bench = Bench::new();
    let wish = SignedDuration::from_hours(3);
    let failure = Failure::new(FailureClass::RateLimited, "429").after(wish);
    bench.apply(closed(&bench.op, failure, 0.9), 0);
    assert_eq!(bench.op.retry_at, Some(at(0) + wish));
}

#[test]
fn time_under_a_hold_does_not_age_an_operation() {
    let mut bench = Bench::new();
    let failure = |bench: &mut Bench, hours: i64, held_hours: i64| {
        let failure = Failure::new(FailureClass::Transport, "connect");
        let held_for = SignedDuration::from_hours(held_hours);
        let moment = Moment { held_for, ..moment(hours * 3600) };
        let event = closed(&bench.op, failure, 0.0);
        bench.op.apply(&event, &bench.rules, &moment);
    };
    failure(&mut bench, 0, 0);
    failure(&mut bench, 30, 20);
    assert_eq!(bench.op.state, State::Retrying);
    failure(&mut bench, 45, 20);
    assert_eq!(bench.op.state, State::Dead);
}

#[test]
fn an_unknown_is_never_sent_again_without_evidence() {
    let mut bench = Bench::unknown(Contract::NONE);
    assert_eq!(bench.begin(Contract::NONE, 10), Err(CannotBegin::InDoubt));
    assert_eq!(bench.begin(REPLAY, 10), Err(CannotBegin::InDoubt));
    bench.apply(Event::TimePassed, SETTLED + 1);
    assert_eq!(bench.begin(Contract::NONE, SETTLED + 1), Err(CannotBegin::InDoubt));
    assert!(bench.op.is_at_rest(&bench.rules, at(SETTLED + 1)));
    bench.apply(Event::Cancelled, SETTLED + 1);
    bench.apply(Event::Replayed, SETTLED + 1);
    assert_eq!(bench.op.state, State::Unknown);
}

#[test]
fn a_late_answer_wins_over_not_delivered_until_it_acts() {
    let mut bench = Bench::unknown(Contract::NONE);
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 5), Some(Note::ActsLater));
    assert_eq!(bench.begin(Contract::NONE, LEASE + 1), Err(CannotBegin::VerdictPending));
    bench.accepted(1, LEASE - 1);
    assert_eq!(bench.op.state, State::Sent);
    bench.apply(Event::TimePassed, SETTLED + 1);
    assert_eq!(bench.op.state, State::Sent);
    assert!(!bench.op.contradicted);
}

#[test]
fn not_delivered_acts_after_lease_and_settle() {
    let mut bench = Bench::unknown(Contract::NONE);
    bench.judged(Verdict::NotDelivered, 1, 5);
    bench.apply(Event::TimePassed, SETTLED - 1);
    assert_eq!(bench.op.state, State::Unknown);
    bench.apply(Event::TimePassed, SETTLED);
    assert_eq!(bench.op.state, State::Retrying);
    assert!(bench.begin(Contract::NONE, SETTLED + 60).is_ok());
}

#[test]
fn a_definite_refusal_wins_over_delivered_until_it_acts() {
    let mut bench = Bench::unknown(Contract::NONE);
    assert_eq!(bench.judged(Verdict::Delivered, 1, 5), Some(Note::ActsLater));
    bench.refused(1, FailureClass::Rejected, LEASE - 1);
    assert_eq!(bench.op.state, State::Dead);

    let mut bench = Bench::unknown(Contract::NONE);
    bench.judged(Verdict::Delivered, 1, 5);
    bench.apply(Event::TimePassed, LEASE);
    assert_eq!(bench.op.state, State::Sent);
    bench.refused(1, FailureClass::Rejected, LEASE + 1);
    assert_eq!((bench.op.state, bench.op.contradicted), (State::Sent, true));
}

#[test]
fn a_verdict_for_an_older_doubt_is_ignored() {
    let mut bench = Bench::unknown(REPLAY);
    bench.begin(REPLAY, 10).unwrap();
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 20), Some(Note::NotNewestAttempt));
    let unnamed = Event::Judged { verdict: Verdict::NotDelivered, attempt: None };
    assert_eq!(bench.apply(unnamed, 20).note, Some(Note::NotNewestAttempt));
    assert_eq!(bench.judged(Verdict::NotDelivered, 2, 20), Some(Note::ActsLater));
    bench.apply(Event::TimePassed, SETTLED + 10);
    assert_eq!(bench.op.state, State::Retrying, "it speaks for the earlier doubt as well");
}

#[test]
fn a_correction_leads_only_away_from_another_send() {
    let mut bench = Bench::unknown(Contract::NONE);
    bench.judged(Verdict::NotDelivered, 1, 5);
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 6), Some(Note::AlreadyRecorded));
    bench.judged(Verdict::Delivered, 1, 7);
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 8), Some(Note::VerdictStands));
    bench.apply(Event::TimePassed, SETTLED + 1);
    assert_eq!(bench.op.state, State::Sent);
}

#[test]
fn early_and_late_verdicts_change_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 0), Some(Note::NotUnknown));
    bench.begin(Contract::NONE, 0).unwrap();
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 1), Some(Note::NotUnknown));
    bench.accepted(1, 2);
    assert_eq!(bench.judged(Verdict::NotDelivered, 1, 3), Some(Note::NotUnknown));
    assert_eq!(bench.op.state, State::Sent);
}

#[test]
fn a_refused_replay_proves_nothing_about_the_first_attempt() {
    let mut bench = Bench::unknown(REPLAY);
    bench.begin(REPLAY, 10).unwrap();
    bench.refused(2, FailureClass::Configuration, 11);
    assert_eq!(bench.op.state, State::Unknown);
    let outside = 30 * 3600;
    assert_eq!(bench.begin(REPLAY, outside), Err(CannotBegin::InDoubt));
    assert!(bench.begin(REPLAY, 3600).is_ok(), "inside the window it may go again");
}

#[test]
fn a_replay_needs_the_same_bytes_and_account() {
    let bench = Bench::unknown(REPLAY);
    let mut other = intent(&bench.op, REPLAY);
    other.content_hash = "other".into();
    assert_eq!(bench.op.may_begin(&other, &moment(10)), Err(CannotBegin::InDoubt));
    let mut other = intent(&bench.op, REPLAY);
    other.provider.account = "b".into();
    assert_eq!(bench.op.may_begin(&other, &moment(10)), Err(CannotBegin::InDoubt));
}

#[test]
fn a_miss_counts_only_when_asked_after_the_settling() {
    let mut bench = Bench::unknown(LOOKUP);
    let miss = |bench: &mut Bench, asked: i64, now: i64| {
        let asked_at = at(asked);
        bench.apply(Event::LookedUp { finding: Finding::Miss, asked_at, random: 0.0 }, now);
    };
    miss(&mut bench, SETTLED - 1, SETTLED + 1);
    assert_eq!(bench.op.state, State::Unknown);
    miss(&mut bench, SETTLED, SETTLED + 1);
    assert_eq!(bench.op.state, State::Retrying);

    let never = Contract { lookup: Lookup::ByKey { miss_counts: false }, ..Contract::NONE };
    let mut bench = Bench::unknown(never);
    miss(&mut bench, SETTLED, SETTLED + 1);
    assert_eq!(bench.op.state, State::Unknown);
    bench.apply(Event::TimePassed, SETTLED + 1);
    miss(&mut bench, 3600, 3601);
    assert!(bench.op.is_at_rest(&bench.rules, at(3602)), "look-ups are spent");
}

#[test]
fn withdrawn_consent_ends_only_what_is_not_in_doubt() {
    let mut bench = Bench::new();
    bench.apply(Event::Unwanted, 0);
    assert_eq!(bench.op.state, State::Suppressed);

    let mut bench = Bench::unknown(REPLAY);
    bench.apply(Event::Unwanted, 5);
    assert_eq!(bench.op.state, State::Unknown);
    assert_eq!(bench.begin(REPLAY, 10), Err(CannotBegin::Unwanted));
    bench.judged(Verdict::NotDelivered, 1, 10);
    bench.apply(Event::TimePassed, SETTLED);
    assert_eq!(bench.op.state, State::Suppressed);
}

#[test]
fn a_dead_letter_is_replayed_as_a_new_generation_unless_stale() {
    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    bench.refused(1, FailureClass::Rejected, 1);
    bench.apply(Event::Replayed, 2);
    assert_eq!((bench.op.state, bench.op.generation), (State::Sending, 2));
    let step = bench.op.next(&bench.rules, at(2));
    assert_eq!(step, Step::Deliver { generation: 2, ordinal: 1 });
    assert_eq!(bench.begin(Contract::NONE, 3), Ok(2), "the running number goes on");

    let mut bench = Bench::new();
    bench.apply(Event::TooLate, 1);
    assert_eq!(bench.op.class, Some(FailureClass::Stale));
    assert_eq!(bench.apply(Event::Replayed, 2).note, Some(Note::DoesNotApply));
}

#[test]
fn after_a_restore_nothing_is_sent_again_without_evidence() {
    let restored = |bench: &mut Bench, attempts| bench.apply(Event::Restored { attempts }, 10).note;
    let mut selected = Bench::new();
    let mut retrying = Bench::new();
    retrying.begin(REPLAY, 0).unwrap();
    retrying.refused(1, FailureClass::Transport, 1);
    let mut in_doubt = Bench::unknown(REPLAY);
    let mut dead = Bench::new();
    dead.begin(Contract::NONE, 0).unwrap();
    dead.refused(1, FailureClass::Rejected, 1);
    for bench in [&mut selected, &mut retrying, &mut in_doubt, &mut dead] {
        assert_eq!(restored(bench, 2), None);
        assert_eq!((bench.op.state, bench.op.attempts), (State::Unknown, 2), "{:?}", bench.op);
        assert_eq!(
            restored(bench, 2),
            Some(Note::AlreadyRecorded),
            "a second restore adds nothing"
        );
        assert_eq!(bench.begin(REPLAY, 11), Err(CannotBegin::InDoubt));
        assert_eq!(bench.begin(Contract::NONE, 11), Err(CannotBegin::InDoubt));
        assert_eq!(bench.apply(Event::Replayed, 11).note, Some(Note::DoesNotApply));
        // A verdict counts, but not while a worker of before may still hand over.
        assert_eq!(bench.judged(Verdict::NotDelivered, 2, 20), Some(Note::ActsLater));
        assert_eq!(bench.op.state, State::Unknown);
    }
    // What was replayed after the backup belongs to another generation.
    assert_eq!((dead.op.generation, dead.op.ordinal), (2, 1));

    for state in [State::Sent, State::Cleaned] {
        let mut bench = Bench::new();
        bench.begin(Contract::NONE, 0).unwrap();
        bench.accepted(1, 1);
        if state == State::Cleaned {
            bench.apply(Event::CleanedUp, 2);
        }
        assert_eq!(restored(&mut bench, 5), Some(Note::DoesNotApply));
        assert_eq!(bench.op.state, state);
    }
}

#[test]
fn a_dead_letter_that_was_accepted_after_all_is_never_replayed() {
    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    bench.refused(1, FailureClass::Rejected, 1);
    assert_eq!(bench.op.may_replay(&moment(2)), Ok(()));
    bench.accepted(1, 3);
    assert_eq!((bench.op.state, bench.op.contradicted), (State::Dead, true));
    assert_eq!(bench.op.may_replay(&moment(4)), Err(CannotReplay::NotProvenNotSent));
    assert_eq!(bench.apply(Event::Replayed, 4).note, Some(Note::DoesNotApply));
}

#[test]
fn a_replay_that_could_not_send_is_refused() {
    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    bench.refused(1, FailureClass::Rejected, 1);
    let over = 5 * 86_400;
    assert_eq!(bench.op.may_replay(&moment(over)), Err(CannotReplay::TooLate(at(over))));
    let cancelled = Moment { cancelled: true, ..moment(2) };
    assert_eq!(bench.op.may_replay(&cancelled), Err(CannotReplay::Cancelled));
    assert_eq!(bench.apply(Event::Unwanted, 2).note, None);
    assert_eq!(bench.op.may_replay(&moment(3)), Err(CannotReplay::Unwanted));
    assert_eq!(bench.apply(Event::Replayed, 3).to, State::Dead);
}

#[test]
fn a_replay_that_was_not_tried_yet_can_be_cancelled() {
    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    bench.apply(Event::Cancelled, 1);
    assert_eq!(bench.op.state, State::Sending, "what is being sent keeps its course");
    bench.refused(1, FailureClass::Rejected, 1);
    bench.apply(Event::Replayed, 2);
    bench.apply(Event::Cancelled, 3);
    assert_eq!(bench.op.state, State::Suppressed);
}

#[test]
fn a_message_is_rendered_anew_only_when_the_provider_has_forgotten_the_key() {
    let mut bench = Bench::new();
    bench.begin(REPLAY, 0).unwrap();
    bench.refused(1, FailureClass::Rejected, 1);
    let until = LEASE + 24 * 3_600;
    assert_eq!(bench.op.may_refreeze(&moment(until - 1)), Err(CannotReplay::Remembered(at(until))));
    let before = bench.op.clone();
    assert_eq!(bench.apply(Event::Refrozen, until - 1).note, Some(Note::DoesNotApply));
    assert_eq!(bench.op, before);
    assert_eq!(bench.apply(Event::Refrozen, until).note, None);
    assert_eq!((bench.op.state, bench.op.first_intent_at), (State::Dead, None));
    bench.apply(Event::Replayed, until);
    bench.begin(REPLAY, until).unwrap();
    assert_eq!(bench.op.first_intent_at, Some(at(until)), "the window of the new bytes");

    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    bench.refused(1, FailureClass::Rejected, 1);
    assert_eq!(bench.op.may_refreeze(&moment(2)), Ok(()));
    let mut bench = Bench::unknown(Contract::NONE);
    assert_eq!(bench.op.may_refreeze(&moment(2)), Err(CannotReplay::NotDead(State::Unknown)));
    assert_eq!(bench.apply(Event::Refrozen, 2).note, Some(Note::DoesNotApply));
}

#[test]
fn a_doubt_whose_bytes_are_gone_is_not_repeated() {
    let mut bench = Bench::unknown(REPLAY);
    bench.apply(Event::ReplayOver, 60);
    assert_eq!(bench.op.replayable_until(), None);
    assert_eq!(bench.begin(REPLAY, 61), Err(CannotBegin::InDoubt));
    for hours in 1..400 {
        let step = bench.op.next(&bench.rules, at(hours * 3_600));
        assert!(!matches!(step, Step::Deliver { .. }), "{step:?}");
    }
}

#[test]
fn an_expired_operation_stays_expired() {
    let mut bench = Bench::unknown(Contract::NONE);
    bench.judged(Verdict::Abandon, 1, 5);
    assert_eq!(bench.op.state, State::Expired);
    assert_eq!(bench.apply(Event::Replayed, 6).note, Some(Note::DoesNotApply));
    assert_eq!(bench.begin(Contract::NONE, 6), Err(CannotBegin::Settled));
    bench.accepted(1, 7);
    assert_eq!((bench.op.state, bench.op.contradicted), (State::Expired, true));

    let mut bench = Bench::unknown(Contract::NONE);
    bench.apply(Event::TimePassed, SETTLED);
    assert_eq!(bench.op.next(&bench.rules, at(14 * 86_400)), Step::Reconcile);
    bench.apply(Event::TimePassed, 14 * 86_400);
    assert_eq!(bench.op.state, State::Expired);
}

#[test]
fn a_failed_cleanup_is_retried_then_rests_and_is_never_forgotten() {
    let mut bench = Bench::new();
    bench.begin(Contract::NONE, 0).unwrap();
    bench.accepted(1, 1);
    for n in 0..12 {
        assert!(!bench.op.cleanup.given_up);
        bench.apply(Event::CleanupFailed { random: 0.0 }, 2 + n);
    }
    assert!(bench.op.cleanup.given_up);
    assert_eq!(bench.op.state, State::Sent);
    bench.apply(Event::CleanupAgain, 50);
    assert_eq!(bench.op.next(&bench.rules, at(50)), Step::CleanUp);
}

#[test]
fn a_cancelled_run_sends_nothing_more_but_keeps_doubts() {
    let mut bench = Bench::new();
    let cancelled = Moment { cancelled: true, ..moment(1) };
    let first = intent(&bench.op, Contract::NONE);
    assert_eq!(bench.op.begin(first, &cancelled), Err(CannotBegin::Cancelled));
    bench.begin(Contract::NONE, 0).unwrap();
    let failure = Failure::new(FailureClass::Transport, "test");
    let event = Event::Answered { attempt: 1, outcome: Outcome::NotSent(failure), random: 0.0 };
    bench.op.apply(&event, &bench.rules, &cancelled);
    assert_eq!(bench.op.state, State::Suppressed);
}

#[test]
fn an_operation_with_every_bound_reached_fits_a_payload() {
    let mut bench = Bench::unknown(REPLAY);
    while let Ok(attempt) = bench.begin(REPLAY, i64::from(bench.op.ordinal)) {
        bench.apply(Event::Overdue { attempt, random: 0.0 }, 60);
        if !matches!(bench.op.next(&bench.rules, at(3600)), Step::Deliver { .. }) {
            break;
        }
    }
    let bytes = serde_json::to_vec(&bench.op).unwrap().len();
    assert!(bytes < 6_000, "{bytes} bytes");
}

#[test]
fn a_cancelled_run_repeats_no_doubt() {
    let mut bench = Bench::unknown(REPLAY);
    let cancelled = Moment { cancelled: true, ..moment(60) };
    bench.op.apply(&Event::Cancelled, &bench.rules, &cancelled);
    assert_eq!((bench.op.state, bench.op.replayable_until()), (State::Unknown, None));
    for minutes in 1..3_000 {
        let step = bench.op.next(&bench.rules, at(minutes * 60));
        assert!(!matches!(step, Step::Deliver { .. }), "{step:?}");
    }
    bench.judged(Verdict::NotDelivered, 1, 120);
    let cancelled = Moment { cancelled: true, ..moment(SETTLED + 120) };
    bench.op.apply(&Event::TimePassed, &bench.rules, &cancelled);
    assert_eq!(bench.op.state, State::Suppressed);
}

#[test]
fn what_was_given_up_stays_given_up_whatever_comes_late() {
    let mut bench = Bench::unknown(Contract::NONE);
    bench.judged(Verdict::Abandon, 1, 10);
    bench.apply(Event::Overdue { attempt: 1, random: 0.0 }, 11);
    assert_eq!(bench.op.state, State::Expired);
    let change = bench.refused(1, FailureClass::Transport, 20);
    assert_eq!((bench.op.state, change.settled.len()), (State::Expired, 1));
    assert_eq!(bench.op.next(&bench.rules, at(21)), Step::Done);
    assert_eq!(bench.begin(Contract::NONE, 21), Err(CannotBegin::Settled));
}

/// What a hostile world may do next.
#[derive(Clone, Debug)]
enum Act {
    Begin,
    ProviderAccepts,
    AnswerArrives,
    Refuse(FailureClass),
    CloseBeforeIntent(FailureClass),
    Overdue,
    TruthfulVerdict,
    Withdraw,
    LookUp,
    TimePasses(i64),
    Replay,
    Cancel,
    CleanUp(bool),
    /// The ledger is restored, and what was lost of it was accepted or not.
    Restore(bool),
}

fn class() -> impl Strategy<Value = FailureClass> {
    prop::sample::select(&FailureClass::ALL[..9])
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Begin),
        3 => Just(Act::ProviderAccepts),
        2 => Just(Act::AnswerArrives),
        2 => class().prop_map(Act::Refuse),
        1 => class().prop_map(Act::CloseBeforeIntent),
        3 => Just(Act::Overdue),
        2 => Just(Act::TruthfulVerdict),
        1 => Just(Act::Withdraw),
        2 => Just(Act::LookUp),
        4 => (1_i64..5_000).prop_map(Act::TimePasses),
        2 => Just(Act::Replay),
        1 => Just(Act::Cancel),
        1 => any::<bool>().prop_map(Act::CleanUp),
        1 => any::<bool>().prop_map(Act::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// A provider without replay: whatever happens in whatever order, one key is accepted at most
    /// once, and every state that is not terminal has a next step.
    #[test]
    fn one_key_is_accepted_at_most_once(
        acts in prop::collection::vec(act(), 1..60),
        contract in prop::sample::select(vec![Contract::NONE, LOOKUP]),
    ) {
        let mut bench = Bench::new();
        let mut now = 0;
        // Per attempt: when its lease ends, and whether the provider has accepted it.
        let mut world: Vec<(u32, i64, bool)> = Vec::new();
        for act in acts {
            let accepted = world.iter().any(|(_, _, accepted)| *accepted);
            let newest = world.last().copied();
            let before = bench.op.clone();
            match act {
                Act::Begin => if let Ok(number) = bench.begin(contract, now) {
                    prop_assert!(!accepted, "begun although accepted: {:?}", before);
                    world.push((number, now + LEASE, false));
                },
                // The provider may accept whatever was handed over until the lease's end.
                Act::ProviderAccepts => if let Some(last) = world.last_mut()
                    && now < last.1 && bench.op.doubt(last.0).is_some()
                {
                    last.2 = true;
                },
                Act::AnswerArrives => if let Some((number, ends, true)) = newest && now < ends {
                    bench.accepted(number, now);
                },
                Act::Refuse(class) => if let Some((number, _, false)) = newest {
                    bench.refused(number, class, now);
                },
                Act::CloseBeforeIntent(class) => if bench.op.doubts.is_empty() {
                    let failure = Failure::new(class, "test");
                    bench.apply(closed(&bench.op, failure, 0.5), now);
                },
                Act::Overdue => if let Some((attempt, ..)) = newest {
                    bench.apply(Event::Overdue { attempt, random: 0.5 }, now);
                },
                // A human who looks now can be overtaken only until the lease ends, which is why
                // the verdict acts later; the world must let such an acceptance be heard.
                Act::TruthfulVerdict => if let Some((number, ends, _)) = newest && now >= ends {
                    let verdict = if accepted { Verdict::Delivered } else { Verdict::NotDelivered };
                    bench.judged(verdict, number, now);
                },
                Act::Withdraw => { bench.apply(Event::Unwanted, now); },
                Act::LookUp => if contract.lookup.is_offered() {
                    let finding = if accepted {
                        Finding::Accepted { message_id: None }
                    } else {
                        Finding::Miss
                    };
                    bench.apply(Event::LookedUp { finding, asked_at: at(now), random: 0.5 }, now);
                },
                Act::TimePasses(seconds) => {
                    now += seconds;
                    bench.apply(Event::TimePassed, now);
                },
                Act::Replay => { bench.apply(Event::Replayed, now); },
                Act::Cancel => { bench.apply(Event::Cancelled, now); },
                Act::CleanUp(true) => { bench.apply(Event::CleanedUp, now); },
                Act::CleanUp(false) => {
                    bench.apply(Event::CleanupFailed { random: 0.5 }, now);
                },
                Act::Restore(lost) => {
                    let attempts = bench.op.attempts + 1;
                    if bench.apply(Event::Restored { attempts }, now).note.is_none() {
                        world.push((attempts, now, lost && !accepted));
                    }
                },
            }
            let op = &bench.op;
            let accepted = world.iter().filter(|(_, _, accepted)| *accepted).count();
            prop_assert!(accepted <= 1);
            if before.state == State::Unknown && op.state != State::Unknown {
                prop_assert!(op.state == State::Expired || op.doubts.is_empty());
            }
            if matches!(op.state, State::Retrying | State::Dead | State::Suppressed) {
                prop_assert!(op.doubts.is_empty(), "{:?} with a doubt", op.state);
                prop_assert_eq!(accepted, 0, "{:?} although accepted", op.state);
            }
            if matches!(op.state, State::Sent | State::Cleaned) {
                prop_assert_eq!(accepted, 1, "sent without an acceptance");
            }
            let done = op.next(&bench.rules, at(now)) == Step::Done;
            prop_assert_eq!(done, op.state.is_terminal() || op.cleanup.given_up);
        }
    }
}
