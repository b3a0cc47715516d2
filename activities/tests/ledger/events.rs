//! What providers tell: stored once, told once, and never lost.

use super::bench::{Bench, NOTHING, Place, REPLAYS, on_both};
use super::transitions::check;
use digest_activities::ledger::{Stored, Told, Untold};
use digest_activities::provider::alias::alias;
use digest_activities::webhook::ProviderEvent;
use digest_workflows::operation::{FailureClass, Finding, OperationKey, Rules, State};
use futures::future::join_all;
use std::collections::BTreeSet;

on_both!(
    an_event_settles_a_doubt_once_however_often_and_by_whomever_it_is_told,
    an_event_before_our_own_answer_is_evidence_too,
    a_bounce_after_sending_is_recorded_on_the_operation,
    an_event_of_nobody_is_kept_and_told_to_nobody,
    an_event_that_says_what_is_known_is_told_when_it_is_stored,
    an_event_that_cannot_be_told_is_kept_and_in_nobodys_way,
    events_are_told_in_order_page_by_page,
    a_great_many_events_are_stored_at_once_each_for_its_operation,
);

fn accepted() -> Finding {
    Finding::Accepted { message_id: Some("m1".to_owned()) }
}

pub(crate) fn event(id: &str, carried: impl Into<String>, findings: Vec<Finding>) -> ProviderEvent {
    let (id, carried) = (id.to_owned(), Some(carried.into()));
    ProviderEvent { id, carried, findings, suppresses: None }
}

impl Bench {
    pub(crate) async fn store(&self, events: &[ProviderEvent]) -> u64 {
        let stored = self.ledger.store_events("resend", events).await.unwrap();
        stored.new + stored.unknown_key
    }

    pub(crate) async fn untold(&self) -> Vec<Untold> {
        self.ledger.untold_events(None, 100).await.unwrap()
    }

    pub(crate) async fn tell(&self, untold: &Untold) -> Told {
        self.ledger.tell_event(untold, &Rules::default()).await.unwrap()
    }

    /// Stores `event` and tells it.
    pub(crate) async fn hears(&self, event: ProviderEvent) -> Told {
        self.store(&[event]).await;
        let untold = self.untold().await;
        assert_eq!(untold.len(), 1);
        self.tell(&untold[0]).await
    }
}

/// Whether the operation of `key` was told, and its workflow should ask or not.
fn is_told(told: &Told, key: &OperationKey, asks: bool) -> bool {
    matches!(told, Told::Operation { key: of, ask, .. } if of == key && *ask == asks)
}

async fn an_event_settles_a_doubt_once_however_often_and_by_whomever_it_is_told(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.unknown(&key, REPLAYS, &Rules::default()).await;
    // By its alias, as a field that does not take every key carries it; and twice in one request.
    let told = event("e1", alias(&key), vec![accepted()]);
    let events = [told.clone(), told];
    assert_eq!(bench.store(&events).await, 1);
    assert_eq!(bench.store(&events).await, 0);
    let untold = bench.untold().await;
    assert_eq!(untold.len(), 1);
    let done = join_all((0..3).map(|_| bench.tell(&untold[0]))).await;
    let asks = done.iter().filter(|told| is_told(told, &key, true)).count();
    assert_eq!((asks, done.len()), (1, 3), "{done:?}");
    assert!(bench.untold().await.is_empty());
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
    let told = bench.hears(event("e1", key.to_string(), vec![accepted()])).await;
    assert!(is_told(&told, &key, true), "{told:?}");
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
    // Its workflow is over, and has nothing to ask.
    let told = bench.hears(event("e1", key.to_string(), bounce)).await;
    assert!(is_told(&told, &key, false), "{told:?}");
    let operation = check(&mut bench.raw, &key).await;
    assert_eq!((operation.state, operation.undelivered), (State::Cleaned, true));
}

async fn an_event_of_nobody_is_kept_and_told_to_nobody(place: Place) {
    let mut bench = place.bench(1).await;
    let nobody = "digest:2026-W42:nobody";
    let strange = ProviderEvent {
        id: "e2".to_owned(),
        carried: None,
        findings: vec![accepted()],
        suppresses: None,
    };
    let events = [
        event("e1", nobody, vec![accepted()]),
        strange,
        event("e3", bench.key(1).to_string(), Vec::new()),
    ];
    let stored = bench.ledger.store_events("resend", &events).await.unwrap();
    assert_eq!(stored, Stored { new: 1, unknown_key: 2 });
    assert_eq!(bench.store(&events).await, 0);
    assert!(bench.untold().await.is_empty());
    let rows = "select event_id, coalesce(carried, '') from @provider_events order by event_id";
    let rows = bench.raw.rows(rows).await;
    assert_eq!(rows[0], ["e1", nobody]);
    assert_eq!(rows.len(), 3);
    let key = bench.key(1);
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Selected);
}

async fn an_event_that_says_what_is_known_is_told_when_it_is_stored(place: Place) {
    let mut bench = place.bench(2).await;
    let (sent, other) = (bench.key(1), bench.key(2));
    bench.deliver_and_clean(&sent).await;
    bench.begun(&other, NOTHING).await;
    let decisions = bench.raw.count("@decisions").await;
    let events = [
        event("e1", sent.to_string(), vec![accepted()]),
        event("e2", alias(&sent), vec![accepted()]),
        event("e3", other.to_string(), vec![accepted()]),
        event("e4", sent.to_string(), vec![Finding::Refused(FailureClass::Recipient)]),
    ];
    assert_eq!(bench.store(&events).await, 4);
    let untold = bench.untold().await;
    let ids: Vec<_> = untold.iter().map(Untold::id).collect();
    assert_eq!(ids, ["e3", "e4"], "only these say anything new");
    let keyed = bench.raw.count(&format!("@provider_events where key = '{sent}'")).await;
    assert_eq!((keyed, bench.raw.count("@decisions").await), (3, decisions));
    // Delivered by a verdict, of which nobody has told the message's id: that one is news.
    let raw = &mut bench.raw;
    raw.execute(&format!("update @operations set message_id = null where key = '{sent}'")).await;
    bench.store(&[event("e5", sent.to_string(), vec![accepted()])]).await;
    assert_eq!(bench.untold().await.last().unwrap().id(), "e5");
}

async fn an_event_that_cannot_be_told_is_kept_and_in_nobodys_way(place: Place) {
    let mut bench = place.bench(4).await;
    let keys: Vec<_> = (1..=4).map(|n| bench.key(n)).collect();
    for (n, key) in keys.iter().enumerate() {
        bench.begun(key, NOTHING).await;
        bench.store(&[event(&format!("e{n}"), key.to_string(), vec![accepted()])]).await;
    }
    let raw = &mut bench.raw;
    raw.execute(&format!("delete from @operations where key = '{}'", keys[0])).await;
    raw.execute("update @provider_events set finding = '{' where event_id = 'e1'").await;
    raw.execute("update @provider_events set key = 'no key' where event_id = 'e2'").await;
    let untold = bench.untold().await;
    assert_eq!(untold.len(), 4);
    for poison in &untold[..3] {
        let told = bench.tell(poison).await;
        assert!(matches!(told, Told::Nobody { .. }), "{told:?}");
    }
    let told = bench.tell(&untold[3]).await;
    assert!(is_told(&told, &keys[3], true), "{told:?}");
    // Kept, each with its reason, counted, and never read again.
    assert!(bench.untold().await.is_empty());
    assert_eq!(bench.ledger.faulty_events().await.unwrap(), 3);
    assert_eq!(bench.raw.count("@provider_events").await, 4);
    let faults = "select fault from @provider_events where fault is not null order by event_id";
    let faults = bench.raw.rows(faults).await.concat();
    assert!(faults[0].contains("knows no operation"), "{faults:?}");
    assert!(faults.iter().all(|fault| !fault.is_empty()), "{faults:?}");
}

async fn events_are_told_in_order_page_by_page(place: Place) {
    let bench = place.bench(7).await;
    for n in 1..=7 {
        let key = bench.key(n);
        bench.begun(&key, NOTHING).await;
        // Several at one time, and some later.
        bench.store(&[event(&format!("e{n}"), key.to_string(), vec![accepted()])]).await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        // None of them is told meanwhile, as if each could not be.
        let page = bench.ledger.untold_events(after.as_ref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.place());
        seen.extend(page.iter().map(|event| (event.place(), event.id().to_owned())));
    }
    assert!(seen.is_sorted());
    let ids: BTreeSet<_> = seen.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!((seen.len(), ids.len()), (7, 7));
}

async fn a_great_many_events_are_stored_at_once_each_for_its_operation(place: Place) {
    let mut bench = place.bench(700).await;
    let events: Vec<_> = (1..=700)
        .flat_map(|n| {
            let key = bench.key(n);
            let carried = if n % 2 == 0 { alias(&key) } else { key.to_string() };
            [
                event(&format!("a{n}"), carried.clone(), vec![accepted()]),
                event(&format!("b{n}"), carried, Vec::new()),
            ]
        })
        .collect();
    assert_eq!(bench.store(&events).await, 1_400);
    assert_eq!(bench.store(&events).await, 0);
    let right = "@provider_events e join @operations o on o.key = e.key \
                 and e.carried in (o.key, o.alias)";
    assert_eq!(bench.raw.count(right).await, 1_400);
    assert_eq!(bench.raw.count("@provider_events where told_at is null").await, 700);
}
