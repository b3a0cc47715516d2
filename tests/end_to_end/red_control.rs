//! The check that all tests here rely on, tried on senders that are broken on purpose: it must find
//! what they do.

use crate::end_to_end::world::{PERIOD, World, world};
use digest_activities::message::FrozenMessage;
use digest_activities::provider::{Found, Provider, Ready, Reply};
use digest_workflows::operation::{Contract, Failure, OperationKey, ProviderRef};
use digestd::assemble;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::sync::Arc;

/// A world whose worker was killed between an acceptance and its record.
async fn killed_after_an_acceptance(name: &str) -> Option<World> {
    let world = world(name).customers(3).start().await?;
    let worker = world.worker_that_dies_at("accepted").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    assert!(!world.inbox().is_empty(), "it was killed before anything was accepted");
    Some(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_acceptance_and_record_is_unknown_and_not_sent_again() {
    let Some(world) = killed_after_an_acceptance("kill-accepted").await else { return };
    let accepted = world.inbox();
    let under_way = world.under_way().await;
    let _worker = world.worker().await;
    let status = world.closed().await;
    assert_eq!(status["missing_count"], 0, "{status:#}");
    assert_ne!(status["unknown"], 0, "{status:#}");
    let after = world.inbox();
    for (key, state) in world.operations().await {
        // Another one may have been killed between its intent and its hand-over.
        let expected = if under_way.contains(&key) { "unknown" } else { "cleaned" };
        assert_eq!(state, expected, "{key}");
        let before = accepted.get(&key);
        assert!(before.is_none() || before == after.get(&key), "{key} was sent again");
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_sender_that_repeats_what_it_was_killed_in() {
    let Some(world) = killed_after_an_acceptance("broken-restart").await else { return };
    assert_eq!(world.violations().await, Vec::<String>::new());
    send_again_what_was_under_way(&world).await;
    let found = world.violations().await;
    assert!(found.iter().any(|text| text.ends_with("was taken 2 times")), "{found:?}");

    // What a correct worker does afterwards does not hide it.
    let _worker = world.worker().await;
    world.closed().await;
    let found = world.violations().await;
    assert!(found.iter().any(|text| text.ends_with("was taken 2 times")), "{found:?}");
}

/// What a sender without intents does when it starts: whatever has no outcome is sent again.
async fn send_again_what_was_under_way(world: &World) {
    let (config, secrets) = world.loaded();
    let delivering = assemble::provider(&config, &secrets).await.unwrap();
    let ledger = assemble::ledger(&config, &secrets).await.unwrap();
    let operations = world.operations().await;
    for (key, _) in operations.iter().filter(|(_, state)| *state == "sending") {
        let key = OperationKey::parse(key).unwrap();
        let message = ledger.message(&key).await.unwrap().unwrap();
        let Ok(ready) = delivering.provider.prepare(&key, &message).await else {
            panic!("the sandbox does not answer")
        };
        ready.hand_over().await;
    }
    ledger.close().await;
    delivering.sandbox.unwrap().stop().await;
}

/// A provider that repeats a message whose answer was lost, as some client libraries do by
/// themselves.
struct RepeatsLostAnswers(Arc<dyn Provider>);

struct Repeating {
    first: Box<dyn Ready>,
    provider: Arc<dyn Provider>,
    key: OperationKey,
    message: FrozenMessage,
}

impl Provider for RepeatsLostAnswers {
    fn provider_ref(&self) -> ProviderRef {
        self.0.provider_ref()
    }

    fn contract(&self) -> Contract {
        self.0.contract()
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let first = self.0.prepare(key, message).await?;
            let (provider, key) = (Arc::clone(&self.0), key.clone());
            let repeating = Repeating { first, provider, key, message: message.clone() };
            Ok(Box::new(repeating) as Box<dyn Ready>)
        }
        .boxed()
    }

    fn look_up<'a>(&'a self, key: &'a OperationKey, since: Timestamp) -> BoxFuture<'a, Found> {
        self.0.look_up(key, since)
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        self.0.check()
    }
}

impl Ready for Repeating {
    fn hand_over(self: Box<Self>) -> BoxFuture<'static, Reply> {
        async move {
            let Self { first, provider, key, message } = *self;
            match first.hand_over().await {
                Reply::Unknown(_) => match provider.prepare(&key, &message).await {
                    Ok(second) => second.hand_over().await,
                    Err(failure) => Reply::NotSent(failure),
                },
                reply => reply,
            }
        }
        .boxed()
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.first.abandon()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_catches_a_provider_client_that_repeats_by_itself() {
    let fault = toml::toml! { customer = "customer-0002" kinds = ["accept_then_reset"] };
    let plan = world("broken-client").customers(3);
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(world) = plan.start().await else { return };
    let worker = world.worker_within(|provider| Arc::new(RepeatsLostAnswers(provider)));
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 0, "{run:?}");
    let found = world.violations().await;
    let key = world.key("customer-0002");
    assert_eq!(found, [format!("{key} was taken 2 times")]);
    worker.stop();
}
