//! Crashes: whatever was interrupted, a transition is there whole or not at all.

use super::bench::{NOTHING, Place, TEST, accepted, begin, next_intent, on_both, refused};
use super::transitions::check;
use digest_activities::ledger::BeginAnswer;
use digest_workflows::operation::{CannotBegin, FailureClass, Rules, State};
use std::time::Duration;

on_both!(
    a_transition_that_is_dropped_anywhere_is_whole_or_absent,
    a_dead_letter_and_its_state_are_one_commit,
    what_was_answered_survives_the_process,
);

/// Drops the future at ever later points, as a killed worker would, and looks at the tables.
async fn a_transition_that_is_dropped_anywhere_is_whole_or_absent(place: Place) {
    let mut bench = place.bench(60).await;
    let (mut dropped, mut done) = (0, 0);
    for customer in 1..=60 {
        let key = bench.key(customer);
        let ledger = place.connect().await;
        let patience = Duration::from_micros(u64::from(customer) * 150);
        let intent = next_intent(&bench.operation(&key).await, NOTHING);
        match tokio::time::timeout(patience, begin(&ledger, &key, &intent)).await {
            Ok(answer) => drop(answer.unwrap()),
            Err(_) => dropped += 1,
        }
        drop(ledger);
        bench.raw.settle(&key).await;
        let op = check(&mut bench.raw, &key).await;
        if op.state == State::Selected {
            assert!(matches!(bench.begin(&key, NOTHING).await, BeginAnswer::Begun(_)));
        } else {
            let again = begin(&bench.ledger, &key, &intent).await.unwrap();
            assert!(matches!(again, BeginAnswer::Cannot(CannotBegin::NotNext)), "{again:?}");
        }
        let ledger = place.connect().await;
        let (event, rules) = (refused(1, FailureClass::Rejected), Rules::default());
        let record = ledger.record(&key, &event, &rules, TEST, None);
        match tokio::time::timeout(patience, record).await {
            Ok(recorded) => {
                assert_eq!(recorded.unwrap().answer.operation.state, State::Dead);
                done += 1;
            }
            Err(_) => dropped += 1,
        }
        drop(ledger);
        bench.raw.settle(&key).await;
        check(&mut bench.raw, &key).await;
        bench.record(&key, event).await;
        assert_eq!(check(&mut bench.raw, &key).await.state, State::Dead);
    }
    assert!(dropped > 0, "none of {done} was interrupted");
}

/// The state, the attempt, the dead letter and the audit: a failure at the last write undoes all.
async fn a_dead_letter_and_its_state_are_one_commit(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    let attempt = bench.begun(&key, NOTHING).await;
    bench.raw.execute("alter table @decisions rename to hidden").await;
    let event = refused(attempt, FailureClass::Rejected);
    let result = bench.ledger.record(&key, &event, &Rules::default(), TEST, None).await;
    assert!(result.unwrap_err().is_temporary());
    let back = if place.is_sqlite() { "hidden" } else { "digestd.hidden" };
    let name = if place.is_sqlite() { "digestd_decisions" } else { "decisions" };
    bench.raw.execute(&format!("alter table {back} rename to {name}")).await;
    let op = check(&mut bench.raw, &key).await;
    assert_eq!((op.state, op.doubts.len()), (State::Sending, 1));
    bench.record(&key, event).await;
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Dead);
}

async fn what_was_answered_survives_the_process(place: Place) {
    let mut bench = place.bench(3).await;
    for customer in 1..=3 {
        let key = bench.key(customer);
        let ledger = place.connect().await;
        let intent = next_intent(&bench.operation(&key).await, NOTHING);
        assert!(matches!(begin(&ledger, &key, &intent).await.unwrap(), BeginAnswer::Begun(_)));
        drop(ledger);
        let ledger = place.connect().await;
        assert_eq!(ledger.operation(&key).await.unwrap().operation.doubts.len(), 1);
        ledger.record(&key, &accepted(1), &Rules::default(), TEST, None).await.unwrap();
        drop(ledger);
        let ledger = place.connect().await;
        assert_eq!(ledger.operation(&key).await.unwrap().operation.state, State::Sent);
        check(&mut bench.raw, &key).await;
    }
}
