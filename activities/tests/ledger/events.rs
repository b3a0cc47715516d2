//! What providers tell: stored once, told once, and never lost.

use super::bench::{NOTHING, Place, REPLAYS, on_both};
use super::transitions::check;
use digest_activities::provider::alias::alias;
use digest_activities::webhook::ProviderEvent;
use digest_workflows::operation::{FailureClass, Finding, Rules, State};
use futures::future::join_all;

on_both!(
    an_event_settles_a_doubt_once_however_often_and_by_whomever_it_is_told,
    an_event_before_our_own_answer_is_evidence_too,
    a_bounce_after_sending_is_recorded_on_the_operation,
    an_event_of_nobody_is_kept_and_told_to_nobody,
);

fn accepted() -> Finding {
    Finding::Accepted { message_id: Some("m1".to_owned()) }
}

fn event(id: &str, carried: impl Into<String>, findings: Vec<Finding>) -> ProviderEvent {
    ProviderEvent { id: id.to_owned(), carried: Some(carried.into()), findings }
}

async fn an_event_settles_a_doubt_once_however_often_and_by_whomever_it_is_told(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.unknown(&key, REPLAYS, &Rules::default()).await;
    // By its alias, as a field that does not take every key carries it; and twice in one request.
    let told = event("e1", alias(&key), vec![accepted()]);
    let events = [told.clone(), told];
    assert_eq!(bench.ledger.store_events("resend", &events).await.unwrap(), 1);
    assert_eq!(bench.ledger.store_events("resend", &events).await.unwrap(), 0);
    let untold = bench.ledger.untold_events(10).await.unwrap();
    assert_eq!(untold.len(), 1);
    let rules = Rules::default();
    let tell = || bench.ledger.tell_event(&untold[0], &rules);
    for done in join_all((0..3).map(|_| tell())).await {
        assert_eq!(done.unwrap(), key);
    }
    assert!(bench.ledger.untold_events(10).await.unwrap().is_empty());
    let operation = check(&mut bench.raw, &key).await;
    assert_eq!((operation.state, operation.contradicted), (State::Sent, false));
    assert_eq!(operation.accepted.unwrap().message_id.as_deref(), Some("m1"));
    let sql = format!("select count(*) from @decisions where key = '{key}' and event = 'told'");
    assert_eq!(bench.raw.rows(&sql).await[0][0], "1", "it was told more than once");
}

async fn an_event_before_our_own_answer_is_evidence_too(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    let attempt = bench.begun(&key, NOTHING).await;
    let events = [event("e1", key.to_string(), vec![accepted()])];
    bench.ledger.store_events("resend", &events).await.unwrap();
    let untold = bench.ledger.untold_events(10).await.unwrap();
    bench.ledger.tell_event(&untold[0], &Rules::default()).await.unwrap();
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Sent);
    // Our own answer then says nothing new.
    bench.accepted(&key, attempt).await;
    let operation = check(&mut bench.raw, &key).await;
    assert_eq!((operation.state, operation.contradicted), (State::Sent, false));
}

async fn a_bounce_after_sending_is_recorded_on_the_operation(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.deliver_and_clean(&key).await;
    let bounce = vec![accepted(), Finding::Refused(FailureClass::Recipient)];
    let events = [event("e1", key.to_string(), bounce)];
    bench.ledger.store_events("resend", &events).await.unwrap();
    let untold = bench.ledger.untold_events(10).await.unwrap();
    bench.ledger.tell_event(&untold[0], &Rules::default()).await.unwrap();
    let operation = check(&mut bench.raw, &key).await;
    assert_eq!((operation.state, operation.undelivered), (State::Cleaned, true));
}

async fn an_event_of_nobody_is_kept_and_told_to_nobody(place: Place) {
    let mut bench = place.bench(1).await;
    let nobody = "digest:2026-W42:nobody";
    let events = [
        event("e1", nobody, vec![accepted()]),
        ProviderEvent { id: "e2".to_owned(), carried: None, findings: vec![accepted()] },
        event("e3", bench.key(1).to_string(), Vec::new()),
    ];
    assert_eq!(bench.ledger.store_events("resend", &events).await.unwrap(), 3);
    assert!(bench.ledger.untold_events(10).await.unwrap().is_empty());
    let rows = "select event_id, coalesce(carried, '') from @provider_events order by event_id";
    let rows = bench.raw.rows(rows).await;
    assert_eq!(rows[0], ["e1", nobody]);
    assert_eq!(rows.len(), 3);
    let key = bench.key(1);
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Selected);
}
