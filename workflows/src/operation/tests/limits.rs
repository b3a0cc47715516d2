//! How far evidence reaches, and how long a window may be used.

use super::*;

#[test]
fn a_refusal_by_key_settles_no_other_attempt_than_the_one_it_speaks_of() {
    let refused = Finding::Refused(FailureClass::Rejected);
    let told = || Event::Told { finding: refused.clone() };
    let mut bench = Bench::unknown(LOOKUP);
    assert_eq!(bench.apply(told(), 5).to, State::Dead);
    bench.apply(Event::Replayed, 6);
    bench.begin(LOOKUP, 7).unwrap();
    // The provider tells the same once more, or is asked and still has the first one's record.
    assert_eq!(bench.apply(told(), 8).note, Some(Note::PerhapsAnother));
    bench.apply(Event::Overdue { attempt: 2, random: 0.0 }, 9);
    let event = Event::LookedUp { finding: refused.clone(), asked_at: at(9), random: 0.0 };
    assert_eq!(bench.apply(event, 9).note, Some(Note::PerhapsAnother));
    assert_eq!((bench.op.state, bench.op.doubts.len()), (State::Unknown, 1));
    assert!(matches!(bench.op.next(&bench.rules, at(9)), Step::Wait(..)), "asked again later");

    // Under one key that the provider remembers, two attempts are one message.
    let mut bench = Bench::unknown(REPLAY);
    bench.begin(REPLAY, 60).unwrap();
    assert_eq!(bench.apply(told(), 61).settled.len(), 2);
}

#[test]
fn a_refusal_of_one_attempt_settles_no_doubt_that_may_stand_for_several() {
    let mut bench = Bench::new();
    bench.apply(Event::Restored { attempts: 2 }, 5);
    let change = bench.refused(2, FailureClass::RateLimited, 6);
    assert_eq!((change.to, change.note), (State::Unknown, Some(Note::PerhapsAnother)));
    let told = Event::Told { finding: Finding::Refused(FailureClass::Rejected) };
    assert_eq!(bench.apply(told, 7).note, Some(Note::PerhapsAnother));
    bench.accepted(2, 8);
    assert_eq!(bench.op.state, State::Sent);
}

#[test]
fn a_replay_begins_only_if_it_arrives_while_the_key_is_remembered() {
    let hour = SignedDuration::from_hours(1);
    let replay = Replay::ReturnsOriginal { window: hour, margin: SignedDuration::ZERO };
    let contract = Contract { replay, ..Contract::NONE };
    let mut bench = Bench::unknown(contract);
    let until = 3_600 - SETTLED;
    assert_eq!(bench.op.replayable_until(), Some(at(until)));
    assert_eq!(bench.begin(contract, until), Err(CannotBegin::InDoubt));
    // One that would listen longer has to begin sooner.
    let mut longer = intent(&bench.op, contract);
    longer.settle = hour;
    assert_eq!(bench.op.begin(longer, &moment(until - 1)), Err(CannotBegin::InDoubt));
    bench.begin(contract, until - 1).unwrap();
}

#[test]
fn nothing_begins_for_a_customer_whom_a_provider_told_not_to_write_to() {
    let suppressed = |seconds| Moment { suppressed: true, ..moment(seconds) };
    for mut bench in [Bench::new(), Bench::unknown(REPLAY)] {
        let before = bench.op.clone();
        let begun = bench.op.begin(intent(&before, REPLAY), &suppressed(10));
        assert_eq!(begun, Err(CannotBegin::Unwanted));
        assert_eq!(bench.op, before);
        // Nothing of it is the operation's own until it is recorded.
        assert!(bench.op.may_begin(&intent(&before, REPLAY), &moment(10)).is_ok());
    }
}
