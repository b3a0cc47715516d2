//! Canaries, which are operations like any other and in no run's counts.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, TEST, on_both};
use digest_activities::ledger::{FrozenData, NewCanary};
use digest_workflows::operation::canary::campaign_of_canaries;
use digest_workflows::operation::{FailureClass, OperationKey, Rehearsal, Rules, State};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::BTreeSet;

on_both!(
    a_canary_is_in_no_count_of_its_campaign,
    canaries_that_are_added_at_once_have_places_of_their_own,
    what_waits_is_given_up_and_what_is_in_doubt_is_not,
    a_hold_of_canaries_ends_with_the_next_one,
    forgetting_and_retention_reach_canaries,
);

fn canaries() -> String {
    campaign_of_canaries(CAMPAIGN)
}

impl Bench {
    /// Adds a canary with the data of customer 1, under a key that `nth` makes another one.
    async fn canary(&self, nth: i64) -> OperationKey {
        let customer = self.key(1).customer_id();
        let at = Timestamp::from_second(nth).unwrap();
        let key =
            OperationKey::canary(CAMPAIGN, self.period, &customer, at, Rehearsal::None).unwrap();
        let customer = json!({ "customer_id": customer, "address": "me@shop.example" });
        let data = FrozenData {
            customer: customer.as_object().unwrap().clone(),
            rows: vec![json!({ "title": "T" })],
        };
        let window = (at, at + SignedDuration::from_hours(1));
        let useful_for = SignedDuration::from_hours(1);
        let new = NewCanary { key: &key, data: &data, window, useful_for };
        self.ledger.add_canary(&new).await.unwrap();
        key
    }

    async fn state(&self, key: &OperationKey) -> State {
        self.operation(key).await.state
    }
}

async fn a_canary_is_in_no_count_of_its_campaign(place: Place) {
    let bench = place.bench(2).await;
    let before = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    let key = bench.canary(1).await;
    assert_eq!(bench.ledger.frozen_data(&key).await.unwrap().unwrap().rows.len(), 1);
    bench.deliver_and_clean(&key).await;
    let failed = bench.canary(2).await;
    bench.closed(&failed, FailureClass::Rejected, "no").await;
    let after = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!(json!(before), json!(after));
    let figures = bench.ledger.figures(CAMPAIGN, SignedDuration::from_mins(30)).await.unwrap();
    assert_eq!(format!("{figures:?}").matches("canary").count(), 0);
    assert_eq!(bench.ledger.open_runs(&canaries()).await.unwrap(), []);
    let own = bench.ledger.keys_of(CAMPAIGN, &bench.key(1).customer_id()).await.unwrap();
    assert_eq!(own, [bench.key(1)]);
    let theirs = bench.ledger.keys_of(&canaries(), &bench.key(1).customer_id()).await.unwrap();
    assert_eq!(theirs, [key, failed]);
}

async fn canaries_that_are_added_at_once_have_places_of_their_own(place: Place) {
    let mut bench = place.bench(1).await;
    let added = futures::future::join_all((0..8).map(|nth| bench.canary(nth))).await;
    assert_eq!(added.iter().collect::<BTreeSet<_>>().len(), 8);
    let sql = format!("select position from @operations where campaign = '{}'", canaries());
    let places: BTreeSet<String> =
        bench.raw.rows(&sql).await.into_iter().map(|mut row| row.remove(0)).collect();
    assert_eq!(places, (1..=8).map(|place| place.to_string()).collect());
}

async fn what_waits_is_given_up_and_what_is_in_doubt_is_not(place: Place) {
    let bench = place.bench(1).await;
    let rules = Rules::default();
    let (waiting, retrying, doubtful, sent) = (
        bench.canary(1).await,
        bench.canary(2).await,
        bench.canary(3).await,
        bench.canary(4).await,
    );
    bench.closed(&retrying, FailureClass::Transport, "refused").await;
    bench.unknown(&doubtful, NOTHING, &rules).await;
    bench.deliver_and_clean(&sent).await;
    let ended = bench.ledger.give_up_canaries(&canaries(), &rules, TEST).await.unwrap();
    assert_eq!(ended, [waiting.clone(), retrying.clone()]);
    for (key, state) in [
        (&waiting, State::Suppressed),
        (&retrying, State::Suppressed),
        (&doubtful, State::Unknown),
        (&sent, State::Cleaned),
        (&bench.key(1), State::Selected),
    ] {
        assert_eq!(bench.state(key).await, state, "{key}");
    }
    let again = bench.ledger.give_up_canaries(&canaries(), &rules, TEST).await.unwrap();
    assert!(again.is_empty(), "{again:?}");
}

async fn a_hold_of_canaries_ends_with_the_next_one(place: Place) {
    let bench = place.bench(1).await;
    let canaries = canaries();
    let resume = || bench.ledger.resume_canaries(&canaries, bench.period, TEST);
    assert!(!resume().await.unwrap(), "there was none yet");
    let key = bench.canary(1).await;
    bench.closed(&key, FailureClass::Configuration, "suspended").await;
    assert!(bench.answer(&key).await.moment.held);
    assert!(bench.run().await.held_since.is_none(), "the campaign's own run is held");
    assert!(resume().await.unwrap());
    assert!(!bench.answer(&bench.canary(2).await).await.moment.held);
    assert!(!bench.ledger.has_gone_back(CAMPAIGN).await.unwrap());
    bench.ledger.hold_gone_back(CAMPAIGN, bench.period).await.unwrap();
    assert!(bench.ledger.has_gone_back(CAMPAIGN).await.unwrap());
    assert!(
        bench.answer(&key).await.moment.held,
        "a canary may go out on a ledger that has gone back"
    );
    assert_eq!(bench.ledger.resume_after_restore(&canaries, TEST).await.unwrap(), 1);
}

async fn forgetting_and_retention_reach_canaries(place: Place) {
    let bench = place.bench(1).await;
    let (rules, customer) = (Rules::default(), bench.key(1).customer_id());
    let erased = bench.canary(1).await;
    bench.closed(&erased, FailureClass::Rejected, "no").await;
    let forgotten = bench.ledger.forget(&canaries(), &customer, &rules, TEST).await.unwrap();
    assert_eq!((forgotten.keys, forgotten.erased), (1, 1));
    assert!(bench.ledger.frozen_data(&erased).await.unwrap().is_none());
    let old = bench.canary(2).await;
    bench.closed(&old, FailureClass::Rejected, "no").await;
    let dropped =
        bench.ledger.drop_old_content(&canaries(), SignedDuration::ZERO, 10).await.unwrap();
    assert_eq!(dropped, 1);
    assert!(bench.ledger.frozen_data(&old).await.unwrap().is_none());
    let removed =
        bench.ledger.remove_old_records(&canaries(), SignedDuration::ZERO, 10).await.unwrap();
    assert_eq!(removed, Some(2));
}
