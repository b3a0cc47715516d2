//! One operation more in a run that is selected.

use crate::bench::{CAMPAIGN, Place, TEST, key, on_both, selected};
use digest_activities::ledger::{CannotPublish, Published};
use digest_workflows::operation::{Period, Rules};
use jiff::SignedDuration;

on_both!(
    published_once_and_enqueued,
    several_at_once_get_places_of_their_own,
    refused_where_it_could_not_be_sent_or_would_be_sent_twice,
    a_closed_run_takes_one_more_and_stays_closed,
);

async fn published_once_and_enqueued(place: Place) {
    let bench = place.bench(2).await;
    let new = selected(bench.period, 9);
    let publish = async |request| {
        bench.ledger.publish(&new.key, &new.data, request, TEST).await.unwrap().unwrap()
    };
    assert_eq!(bench.ledger.publication(&new.key, None).await.unwrap(), None);
    assert_eq!(publish(Some("hash")).await, Published::New);
    assert_eq!(publish(Some("hash")).await, Published::Same);
    assert_eq!(publish(Some("other")).await, Published::Other);
    assert_eq!(publish(None).await, Published::Other);
    // One that the run itself selected is there for whoever names only the customer.
    let first = bench.ledger.publication(&bench.key(1), None).await.unwrap();
    assert_eq!(first, Some(Published::Same));
    assert_eq!(bench.run().await.selected, 3);
    assert!(bench.answer(&new.key).await.enqueued_at.is_some());
    let shown = bench.ledger.show(&new.key).await.unwrap();
    let line = &shown.timeline[0];
    assert_eq!((line.event.as_str(), line.by.as_str()), ("published", "test"));
    assert_eq!(line.note.as_deref(), Some("of the request hash"));
    // The sweep starts it if nobody else does.
    let unfinished = bench.ledger.unfinished(CAMPAIGN, SignedDuration::ZERO, "", 10).await.unwrap();
    assert_eq!(unfinished.len(), 1);
    bench.deliver_and_clean(&new.key).await;
    assert_eq!(publish(Some("hash")).await, Published::Same, "also once its content is gone");
}

async fn several_at_once_get_places_of_their_own(place: Place) {
    let bench = place.bench(1).await;
    let publishing = (10..20).map(|n| {
        let (ledger, new) = (bench.ledger.clone(), selected(bench.period, n));
        async move { ledger.publish(&new.key, &new.data, None, TEST).await.unwrap().unwrap() }
    });
    let published = futures::future::join_all(publishing).await;
    assert!(published.iter().all(|one| *one == Published::New), "{published:?}");
    assert_eq!(bench.run().await.selected, 11);
    let page = bench.ledger.enqueue(CAMPAIGN, bench.period, 0, 100, usize::MAX).await.unwrap();
    assert_eq!((page.keys.len(), page.last), (11, 11));
}

async fn refused_where_it_could_not_be_sent_or_would_be_sent_twice(place: Place) {
    let bench = place.bench(1).await;
    let other = Period::parse("2026-W43").unwrap();
    let publish = async |period| {
        let new = selected(period, 9);
        bench.ledger.publish(&new.key, &new.data, None, TEST).await.unwrap()
    };
    assert_eq!(publish(other).await, Err(CannotPublish::NotSelected));
    bench.ledger.hold(CAMPAIGN, other, "early", TEST).await.unwrap();
    assert_eq!(publish(other).await, Err(CannotPublish::NotSelected));
    assert_eq!(bench.ledger.publication(&key(other, 9), None).await.unwrap(), None);
    bench.ledger.cancel(CAMPAIGN, bench.period, &Rules::default(), TEST).await.unwrap();
    assert_eq!(publish(bench.period).await, Err(CannotPublish::Cancelled));
    assert_eq!(bench.run().await.selected, 1);
}

async fn a_closed_run_takes_one_more_and_stays_closed(place: Place) {
    let bench = place.bench(1).await;
    bench.enqueue_all().await;
    bench.deliver_and_clean(&bench.key(1)).await;
    assert!(bench.ledger.close_run(CAMPAIGN, bench.period).await.unwrap());
    let at_work = async || bench.ledger.closed_runs_at_work(CAMPAIGN).await.unwrap().len();
    assert_eq!(at_work().await, 0);
    let new = selected(bench.period, 9);
    bench.ledger.publish(&new.key, &new.data, None, TEST).await.unwrap().unwrap();
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((status.state.as_str(), status.missing_count), ("closed", 1));
    // So that whoever waits under a hold of it is told when it is resumed.
    assert_eq!(at_work().await, 1);
    bench.deliver_and_clean(&new.key).await;
    assert_eq!(at_work().await, 0);
}
