//! Operations that are never in doubt.

use super::fault;
use crate::end_to_end::world::{Customer, PERIOD, counts, of_mail, world};
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use std::sync::Arc;
use temporalio_common::protos::temporal::api::enums::v1::EventType;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn definite_answers() {
    let mut customers: Vec<Customer> =
        (1..=6).map(|number| Customer::new(format!("customer-{number}"), number)).collect();
    customers[4].name = "Gone".to_owned();
    customers[5].rows = 0;
    let faults = vec![
        fault("customer-1", "rate_limit"),
        fault("customer-2", "overload"),
        fault("customer-3", "reject"),
        fault("customer-4", "refuse_recipient"),
    ];
    let still_wanted = "select 1 from customers where id = :customer_id and first_name <> 'Gone'";
    let plan = world("recorded-definite").these(customers).with("sandbox.fault", faults);
    let plan = plan.with("source.still_wanted", still_wanted);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("cleaned", 2), ("dead", 2), ("suppressed", 2)]);
    world.keep("customer-rate-limited", world.key("customer-1")).await;
    world.keep("customer-overloaded", world.key("customer-2")).await;
    let dead = world.key("customer-3");
    world.keep("customer-dead-rejected", &dead).await;
    world.keep("customer-refused-recipient", world.key("customer-4")).await;
    world.keep("customer-suppressed", world.key("customer-5")).await;
    world.keep("customer-nothing-to-send", world.key("customer-6")).await;

    let replay = format!("replay --period {PERIOD} --key {dead} --reason corrected --yes");
    assert_eq!(world.digestd(&replay).await.code, 0);
    world.until_state(&dead, "cleaned").await;
    world.keep("customer-dead-replayed", &dead).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_reset_before_the_hand_over() {
    let reset = vec![(At::Greeting, Act::Reset)];
    let server = Arc::new(SmtpServer::start(Traits::default(), [reset]).unwrap());
    // Other rules than everywhere else: they travel in the history.
    let plan = world("recorded-transport").customers(1).smtp(server.port());
    let plan = plan.with("provider.timeout", "2s").with("provider.lease", "7s");
    let plan = plan.with("retry.transport.base", "700ms").with("retry.transport.jitter", 0.1);
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("cleaned", 1)]);
    world.keep("customer-retried-transport", world.key("customer-0001")).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_place_in_the_rate() {
    let plan = world("recorded-paced").customers(2).with("provider.rate_per_second", 0.2);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("cleaned", 2)]);
    // One of the two had to wait.
    let mut paced = Vec::new();
    for key in world.operations().await.into_keys() {
        let run = world.latest(&key).await;
        let history = world.history(&key, &run).await;
        if history.iter().any(|event| event.event_type() == EventType::TimerStarted) {
            paced.push(key);
        }
    }
    world.keep("customer-paced", &paced[0]).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_cleanup_that_fails_until_somebody_mends_it() {
    let plan = world("recorded-cleanup").customers(1).with("retry.cleanup.max_attempts", 2);
    let Some(world) = plan.start().await else { return };
    let refuse = "create trigger refuse before delete on digest_items \
                  begin select raise(abort, 'refused'); end";
    world.shop.execute(refuse).await;
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("sent", 1), ("cleaned", 0), ("cleanup_failed", 1)]);
    let key = world.key("customer-0001");
    world.keep("customer-cleanup-given-up", &key).await;
    world.shop.execute("drop trigger refuse").await;
    let again = world.digestd(&format!("cleanup --period {PERIOD}")).await;
    assert_eq!(again.code, 0, "{again:?}");
    world.until_state(&key, "cleaned").await;
    world.keep("customer-cleanup-retried", &key).await;
    world.check().await;
}
