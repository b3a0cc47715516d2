//! Senders that break one rule each, and a cleanup that does.

use super::bent::{Bent, Prepared, handing};
use crate::end_to_end::world::{PERIOD, Plan, World, until, world};
use digest_activities::message::FrozenMessage;
use digest_activities::provider::{Provider, Reply};
use digest_workflows::operation::{Failure, FailureClass, OperationKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The customer on whom a rule is broken.
const VICTIM: &str = "customer-0002";

/// Three customers, and a provider with `contract` that does `fault` to the first request of
/// `customer`.
fn plan(name: &str, contract: &str, customer: &str, fault: &str) -> Plan {
    let mut faults = toml::Table::new();
    faults.insert("customer".to_owned(), customer.into());
    faults.insert("kinds".to_owned(), vec![toml::Value::from(fault)].into());
    world(name)
        .customers(3)
        .with("sandbox.contract", contract)
        .with("sandbox.fault", vec![toml::Value::Table(faults)])
}

/// What the check finds after a whole run by a worker whose provider is prepared by `prepare`.
async fn found<P>(
    world: &World,
    prepare: impl Fn(Arc<dyn Provider>, OperationKey, FrozenMessage) -> P + Send + Sync + 'static,
) -> Vec<String>
where
    P: Future<Output = Prepared> + Send + 'static,
{
    let worker = world.worker_within(|provider| Arc::new(Bent::new(provider, prepare)));
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert!([0, 4].contains(&run.code), "{run:?}");
    let found = world.violations().await;
    worker.stop();
    found
}

/// As some client libraries do by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_client_that_repeats_a_message_whose_answer_was_lost() {
    let plan = plan("red-client", "none", VICTIM, "accept_then_reset");
    let Some(world) = plan.start().await else { return };
    let found = found(&world, async |provider, key, message| {
        let first = provider.prepare(&key, &message).await?;
        Ok(handing(async move {
            match first.hand_over().await {
                Reply::Unknown(_) => match provider.prepare(&key, &message).await {
                    Ok(second) => second.hand_over().await,
                    Err(failure) => Reply::NotSent(failure),
                },
                reply => reply,
            }
        }))
    })
    .await;
    assert_eq!(found, [format!("taken at most once: {} was taken 2 times", world.key(VICTIM))]);
}

/// No answer is taken for no message, as a queue with retries does.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_blind_retry_of_an_unknown() {
    let plan = plan("red-retry", "none", VICTIM, "accept_then_reset");
    let Some(world) = plan.start().await else { return };
    let found = found(&world, async |provider, key, message| {
        let ready = provider.prepare(&key, &message).await?;
        Ok(handing(async move {
            match ready.hand_over().await {
                Reply::Unknown(code) => Reply::NotSent(Failure::new(FailureClass::Transport, code)),
                reply => reply,
            }
        }))
    })
    .await;
    assert_eq!(found, [format!("taken at most once: {} was taken 2 times", world.key(VICTIM))]);
}

/// The key has the engine's run in it, or an attempt: every execution is another message, and a
/// provider that returns originals can't know it again.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_key_that_is_another_one_in_every_execution() {
    let first = format!("{VICTIM}.run-1");
    let plan = plan("red-run-id", "replay", &first, "accept_then_reset");
    let Some(world) = plan.start().await else { return };
    let executions = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
    let found = found(&world, move |provider, key, message| {
        let mut executions = executions.lock().unwrap();
        let nth = executions.entry(key.to_string()).or_default();
        *nth += 1;
        let customer = format!("{}.run-{nth}", key.customer_id());
        let key = OperationKey::new(key.campaign(), key.period(), &customer).unwrap();
        async move { provider.prepare(&key, &message).await }
    })
    .await;
    let (one, two) = (world.key(&first), world.key(&format!("{VICTIM}.run-2")));
    let twice = format!(
        "one message has one key: one message was taken under {:?}",
        std::collections::BTreeSet::from([one.to_string(), two.to_string()])
    );
    assert!(found.contains(&twice), "{found:#?}");
}

/// The outcome is recorded while the answer, here a refusal, is still to come.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_an_outcome_before_the_answer() {
    let plan = plan("red-outcome", "none", VICTIM, "reject");
    let Some(world) = plan.start().await else { return };
    let found = found(&world, async |provider, key, message| {
        let ready = provider.prepare(&key, &message).await?;
        Ok(handing(async move {
            let answered = tokio::spawn(ready.hand_over());
            drop(answered);
            Reply::Accepted { message_id: None }
        }))
    })
    .await;
    let key = world.key(VICTIM);
    let lost =
        format!("the ledger agrees with the provider: {key} is cleaned, and nobody has taken it");
    assert!(found.contains(&lost), "{found:#?}");
}

/// The message leaves before its intent is recorded, and then the customer opts out.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_message_that_is_sent_before_its_intent() {
    let Some(world) = world("red-intent").customers(3).start().await else { return };
    let shop = world.shop.clone();
    let found = found(&world, move |provider, key, message| {
        let shop = shop.clone();
        async move {
            let reply = provider.prepare(&key, &message).await?.hand_over().await;
            if key.customer_id() == VICTIM {
                let sql = format!("update customers set digest_opt_in = 0 where id = '{VICTIM}'");
                shop.execute(&sql).await;
            }
            Ok(handing(async { reply }))
        }
    })
    .await;
    let key = world.key(VICTIM);
    let invented = "nothing is taken without an intent before it";
    assert!(
        found.contains(&format!("{invented}: {key} was taken before any intent")),
        "{found:#?}"
    );
    let differs = format!(
        "the ledger agrees with the provider: {key} was taken, and the ledger says suppressed"
    );
    assert!(found.contains(&differs), "{found:#?}");
}

/// A hand-over that goes on after its lease, when a look-up has found nothing and the message has
/// gone again.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_sender_that_outlives_its_lease() {
    let Some(world) =
        world("red-lease").customers(3).with("sandbox.contract", "lookup").start().await
    else {
        return;
    };
    let (begun, second_sent) = (Arc::new(Mutex::new(0)), Arc::new(Notify::new()));
    let worker_found = found(&world, move |provider, key, message| {
        let victim = key.customer_id() == VICTIM;
        let nth = {
            let mut begun = begun.lock().unwrap();
            *begun += u32::from(victim);
            *begun
        };
        let second_sent = Arc::clone(&second_sent);
        async move {
            let ready = provider.prepare(&key, &message).await?;
            Ok(match (victim, nth) {
                (true, 1) => handing(async move {
                    // Dropping what waits here no longer ends what was begun.
                    let zombie = tokio::spawn(async move {
                        second_sent.notified().await;
                        ready.hand_over().await
                    });
                    zombie.await.unwrap()
                }),
                (true, _) => handing(async move {
                    let reply = ready.hand_over().await;
                    second_sent.notify_one();
                    reply
                }),
                (false, _) => ready,
            })
        }
    })
    .await;
    drop(worker_found);
    let key = world.key(VICTIM);
    let twice = format!("taken at most once: {key} was taken 2 times");
    until("the second message", async || world.violations().await.contains(&twice).then_some(()))
        .await;
}

/// A statement that binds everything it must, and deletes everybody's rows.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_cleanup_that_is_not_bound_to_its_key() {
    let cleanup = "delete from digest_items where (customer_id = :customer_id or 1 = 1) \
                   and created_at >= :period_start and created_at < :period_end";
    let plan = world("red-cleanup").customers(3).with("source.cleanup", cleanup);
    let Some(world) = plan.start().await else { return };
    // Nothing is sent to this one, so nothing of it may go.
    world
        .shop
        .execute(&format!("update customers set digest_opt_in = 0 where id = '{VICTIM}'"))
        .await;
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 0, "{run:?}");
    let key = world.key(VICTIM);
    let removed = "only rows of what was sent are removed";
    let nobodys = format!("{removed}: {key} is nobody's operation, and its rows are gone");
    assert_eq!(world.violations().await, [nobodys]);
}
