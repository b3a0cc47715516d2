//! Customers who are not written to any more, because of what a provider told.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, REPLAYS, on_both};
use super::events::event;
use super::transitions::check;
use digest_activities::ledger::{Actor, BeginAnswer, Suppression};
use digest_activities::webhook::{ProviderEvent, SuppressionReason};
use digest_workflows::operation::{CannotBegin, FailureClass, Finding, OperationKey, Rules, State};
use jiff::SignedDuration;
use std::time::{Duration, Instant};

on_both!(
    a_hard_bounce_keeps_the_next_message_from_being_sent_until_it_is_removed,
    the_first_reason_stays_and_the_same_event_counts_once,
    a_customer_in_doubt_stays_in_doubt_and_is_not_sent_to_again,
    a_suppression_that_comes_before_the_intent_keeps_it_from_beginning,
    what_may_pass_suppresses_nobody,
    a_suppression_is_of_one_campaign,
    neither_forgetting_nor_retention_removes_a_suppression,
    the_list_is_paged_by_customer,
);

const PERSON: Actor<'static> = Actor { by: "ann", reason: Some("new address") };

fn suppressing(id: &str, key: &OperationKey, reason: SuppressionReason) -> ProviderEvent {
    let mut findings = vec![Finding::Accepted { message_id: Some("m1".to_owned()) }];
    if reason == SuppressionReason::HardBounce {
        findings.push(Finding::Refused(FailureClass::Recipient));
    }
    ProviderEvent { suppresses: Some(reason), ..event(id, key.to_string(), findings) }
}

impl Bench {
    /// Goes on to the week after, with the customers 1 to `customers`.
    async fn next_week(&mut self, customers: u32) {
        self.period = self.period.next().unwrap();
        self.open().await;
        self.freeze(None, 1..=customers, None).await;
    }

    async fn suppression(&self, customer: u32) -> Option<Suppression> {
        let customer = self.key(customer).customer_id();
        self.ledger.suppression(CAMPAIGN, &customer).await.unwrap()
    }

    /// The timeline of `key`: event, who, and why.
    async fn story(&mut self, key: &OperationKey) -> Vec<Vec<String>> {
        let sql = format!(
            "select event, decided_by, coalesce(reason, '') from @decisions where key = '{key}' \
             order by id"
        );
        self.raw.rows(&sql).await
    }
}

async fn a_hard_bounce_keeps_the_next_message_from_being_sent_until_it_is_removed(place: Place) {
    let mut bench = place.bench(2).await;
    let (first, unrelated) = (bench.key(1), bench.key(2));
    for key in [&first, &unrelated] {
        bench.deliver_and_clean(key).await;
    }
    bench.hears(suppressing("e1", &first, SuppressionReason::HardBounce)).await;
    let operation = check(&mut bench.raw, &first).await;
    assert_eq!((operation.state, operation.undelivered), (State::Cleaned, true));
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((status.undelivered, status.newly_suppressed), (1, 1));
    let suppression = bench.suppression(1).await.unwrap();
    assert_eq!(suppression.reason, SuppressionReason::HardBounce);
    assert_eq!(
        (suppression.key.as_str(), suppression.event.as_str()),
        (first.to_string().as_str(), "e1")
    );
    let told = ["customer_suppressed", "resend", "suppressed: hard bounce"];
    assert_eq!(bench.story(&first).await.last().unwrap(), &told);

    bench.next_week(2).await;
    let next = bench.key(1);
    let answer = bench.answer(&next).await;
    assert_eq!(answer.suppressed, Some(SuppressionReason::HardBounce));
    let cannot = bench.begin(&next, NOTHING).await;
    assert!(matches!(cannot, BeginAnswer::Cannot(CannotBegin::Unwanted)), "{cannot:?}");
    let operation = check(&mut bench.raw, &next).await;
    assert_eq!(operation.state, State::Suppressed);
    assert_eq!(operation.class, Some(FailureClass::Suppressed));
    let ended = ["unwanted", "suppressions", "suppressed: hard bounce"];
    assert_eq!(bench.story(&next).await, [ended]);
    let other = bench.key(2);
    bench.deliver_and_clean(&other).await;

    let customer = next.customer_id();
    let remove = || bench.ledger.remove_suppression(CAMPAIGN, &customer, PERSON);
    assert_eq!(remove().await.unwrap().as_ref(), Some(&suppression));
    assert_eq!(remove().await.unwrap(), None);
    let removed = ["suppression_removed", "ann", "new address"];
    assert_eq!(bench.story(&first).await.last().unwrap(), &removed);
    check(&mut bench.raw, &first).await;
    bench.next_week(1).await;
    let after = bench.key(1);
    bench.deliver_and_clean(&after).await;
    assert_eq!(check(&mut bench.raw, &after).await.state, State::Cleaned);
}

async fn the_first_reason_stays_and_the_same_event_counts_once(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.deliver_and_clean(&key).await;
    let complaint = suppressing("e1", &key, SuppressionReason::Complaint);
    bench.hears(complaint.clone()).await;
    bench.hears(suppressing("e2", &key, SuppressionReason::OptOut)).await;
    assert_eq!(bench.suppression(1).await.unwrap().reason, SuppressionReason::Complaint);
    // A complaint says that the message was delivered.
    assert!(!check(&mut bench.raw, &key).await.undelivered);
    // Told again after a person has removed it, an event that is known changes nothing.
    let customer = key.customer_id();
    bench.ledger.remove_suppression(CAMPAIGN, &customer, PERSON).await.unwrap().unwrap();
    assert_eq!(bench.store(&[complaint]).await, 0);
    assert!(bench.untold().await.is_empty());
    assert_eq!(bench.suppression(1).await, None);
    // A new one does.
    bench.hears(suppressing("e3", &key, SuppressionReason::OptOut)).await;
    assert_eq!(bench.suppression(1).await.unwrap().reason, SuppressionReason::OptOut);
}

async fn a_customer_in_doubt_stays_in_doubt_and_is_not_sent_to_again(place: Place) {
    let mut bench = place.bench(1).await;
    let first = bench.key(1);
    bench.deliver_and_clean(&first).await;
    bench.next_week(1).await;
    let key = bench.key(1);
    bench.unknown(&key, REPLAYS, &Rules::default()).await;
    bench.hears(suppressing("e1", &first, SuppressionReason::OptOut)).await;
    let cannot = bench.begin(&key, REPLAYS).await;
    assert!(matches!(cannot, BeginAnswer::Cannot(CannotBegin::Unwanted)), "{cannot:?}");
    let operation = check(&mut bench.raw, &key).await;
    assert_eq!((operation.state, operation.unwanted), (State::Unknown, true));
    // Also once the suppression is gone: consent was withdrawn for this message.
    bench.ledger.remove_suppression(CAMPAIGN, &key.customer_id(), PERSON).await.unwrap().unwrap();
    let cannot = bench.begin(&key, REPLAYS).await;
    assert!(matches!(cannot, BeginAnswer::Cannot(CannotBegin::Unwanted)), "{cannot:?}");
    bench.hears(event("e2", key.to_string(), vec![Finding::Accepted { message_id: None }])).await;
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Sent);
}

async fn a_suppression_that_comes_before_the_intent_keeps_it_from_beginning(place: Place) {
    let mut bench = place.bench(1).await;
    let first = bench.key(1);
    bench.deliver_and_clean(&first).await;
    bench.next_week(1).await;
    let key = bench.key(1);
    // Consent was asked, and nothing was on the list.
    assert_eq!(bench.answer(&key).await.suppressed, None);
    let told = bench.hears(suppressing("e1", &first, SuppressionReason::Complaint));
    let (_, begun) = tokio::join!(told, bench.begin(&key, NOTHING));
    let operation = check(&mut bench.raw, &key).await;
    match begun {
        BeginAnswer::Begun(_) => assert_eq!(operation.state, State::Sending),
        BeginAnswer::Cannot(cannot) => {
            assert_eq!((cannot, operation.state), (CannotBegin::Unwanted, State::Suppressed));
        }
    }
    // Whichever came first, nothing begins from here on.
    assert!(matches!(bench.begin(&key, NOTHING).await, BeginAnswer::Cannot(_)));
}

async fn what_may_pass_suppresses_nobody(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.deliver_and_clean(&key).await;
    let soft = vec![Finding::Refused(FailureClass::Recipient)];
    bench.hears(event("e1", key.to_string(), soft)).await;
    assert!(check(&mut bench.raw, &key).await.undelivered);
    assert_eq!(bench.raw.count("@suppressions").await, 0);
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((status.undelivered, status.newly_suppressed), (1, 0));
}

async fn a_suppression_is_of_one_campaign(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.key(1);
    bench.deliver_and_clean(&key).await;
    bench.hears(suppressing("e1", &key, SuppressionReason::OptOut)).await;
    let customer = key.customer_id();
    assert_eq!(bench.ledger.suppression("reminder", &customer).await.unwrap(), None);
    let none = bench.ledger.suppressions("reminder", None, 10).await.unwrap();
    assert!(none.suppressions.is_empty());
    let removed = bench.ledger.remove_suppression("reminder", &customer, PERSON).await.unwrap();
    assert_eq!(removed, None);
    assert!(bench.suppression(1).await.is_some());
}

async fn neither_forgetting_nor_retention_removes_a_suppression(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.enqueue_all().await;
    bench.deliver_and_clean(&key).await;
    bench.hears(suppressing("e1", &key, SuppressionReason::Complaint)).await;
    let customer = key.customer_id();
    bench.ledger.forget(CAMPAIGN, &customer, &Rules::default(), PERSON).await.unwrap();
    assert!(bench.ledger.close_run(CAMPAIGN, bench.period).await.unwrap());
    let removed = bench.ledger.remove_old_records(CAMPAIGN, SignedDuration::ZERO, 100).await;
    assert_eq!(removed.unwrap(), Some(1));
    while bench
        .ledger
        .remove_old_records(CAMPAIGN, SignedDuration::ZERO, 100)
        .await
        .unwrap()
        .is_some()
    {}
    assert_eq!(bench.raw.count("@operations").await, 0);
    assert!(bench.suppression(1).await.is_some());
    // It can still be removed, with its audit on the run.
    let removed = bench.ledger.remove_suppression(CAMPAIGN, &customer, PERSON).await.unwrap();
    assert_eq!(removed.unwrap().key, key.to_string());
    let audited = "@decisions where event = 'suppression_removed' and key is null";
    assert_eq!(bench.raw.count(audited).await, 1);
}

async fn the_list_is_paged_by_customer(place: Place) {
    let bench = place.bench(5).await;
    for n in 1..=5 {
        let key = bench.key(n);
        bench.deliver_and_clean(&key).await;
        bench.hears(suppressing(&format!("e{n}"), &key, SuppressionReason::OptOut)).await;
    }
    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = bench.ledger.suppressions(CAMPAIGN, after.as_deref(), 2).await.unwrap();
        assert!(page.suppressions.len() <= 2);
        seen.extend(page.suppressions.into_iter().map(|line| line.customer));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let all: Vec<_> = (1..=5).map(|n| bench.key(n).customer_id()).collect();
    assert_eq!(seen, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_while_a_lock_is_waited_for_counts() {
    let Some(place) = Place::postgres("a suppression during a wait").await else { return };
    let mut bench = place.bench(1).await;
    let first = bench.key(1);
    bench.deliver_and_clean(&first).await;
    bench.next_week(1).await;
    let key = bench.key(1);
    let (mut holder, mut watcher) = (place.raw().await, place.raw().await);
    let lock = format!("begin; select 1 from @operations where key = '{key}' for update");
    holder.execute(&lock).await;
    let told = async {
        let waiting = "pg_stat_activity where datname = current_database() \
                       and wait_event_type = 'Lock'";
        let deadline = Instant::now() + Duration::from_secs(8);
        while watcher.count(waiting).await == 0 {
            assert!(Instant::now() < deadline, "nobody waits for the lock");
        }
        bench.hears(suppressing("e1", &first, SuppressionReason::Complaint)).await;
        holder.execute("commit").await;
    };
    let (begun, ()) = tokio::join!(bench.begin(&key, NOTHING), told);
    assert!(matches!(begun, BeginAnswer::Cannot(CannotBegin::Unwanted)), "{begun:?}");
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Suppressed);
}
