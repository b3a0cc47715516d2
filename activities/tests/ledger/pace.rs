//! Pace: the rate holds for the whole deployment, and time that was not used is not saved up.

use super::bench::{Place, on_both};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};

on_both!(
    no_second_holds_more_slots_than_the_rate,
    unused_time_is_not_saved_up,
    paces_with_different_names_are_apart,
);

const RATE: f64 = 50.0;
const PER_SECOND: usize = 50;

async fn no_second_holds_more_slots_than_the_rate(place: Place) {
    let first = place.set_up().await;
    let second = place.connect().await;
    let tasks = (0..8).map(|n: u32| {
        let ledger = if n.is_multiple_of(2) { first.clone() } else { second.clone() };
        tokio::spawn(async move {
            let mut slots = Vec::new();
            // 25 slots a task, some of them several at once.
            for count in [1, 1, 3, 1, 4, 1, 5, 1, 1, 7] {
                let (now, reserved) = ledger.reserve("sandbox", RATE, count).await.unwrap();
                assert_eq!(reserved.len(), count as usize);
                assert!(reserved.iter().all(|slot| slot.at() >= now));
                slots.extend(reserved.iter().map(digest_activities::ledger::Slot::at));
            }
            slots
        })
    });
    let mut slots: Vec<Timestamp> = Vec::new();
    for task in join_all(tasks).await {
        slots.extend(task.unwrap());
    }
    slots.sort_unstable();
    assert_eq!(slots.len(), 200);
    for (index, from) in slots.iter().enumerate() {
        let end = *from + SignedDuration::from_secs(1);
        let within = slots[index..].iter().filter(|at| **at < end).count();
        assert!(within <= PER_SECOND, "{within} slots in the second from {from}");
    }
    // And it is no slower than it has to be.
    let took = slots[199].duration_since(slots[0]);
    assert!(took <= SignedDuration::from_millis(199 * 20 + 5_000), "{took}");
}

async fn unused_time_is_not_saved_up(place: Place) {
    let ledger = place.set_up().await;
    let mut raw = place.raw().await;
    ledger.reserve("sandbox", RATE, 1).await.unwrap();
    // As if nothing had been sent for an hour.
    raw.execute("update @pace set next_slot = next_slot - 3600000000").await;
    let (now, slots) = ledger.reserve("sandbox", RATE, 51).await.unwrap();
    assert!(slots[0].at() >= now);
    assert!(slots[50].at().duration_since(slots[0].at()) >= SignedDuration::from_secs(1));
}

async fn paces_with_different_names_are_apart(place: Place) {
    let ledger = place.set_up().await;
    ledger.reserve("one", 0.1, 5).await.unwrap();
    for other in 0..50 {
        let (now, slots) = ledger.reserve(&format!("another-{other}"), RATE, 1).await.unwrap();
        assert_eq!(slots[0].at(), now);
    }
}
