//! The check that all tests here rely on, tried on senders that are broken on purpose: it must find
//! what they do.
//!
//! Each breaks one rule by a wrapper around a real part, and everything else is the real thing. Two
//! rules can't be broken from outside, because the decision core contains what a wrapper does: a
//! refused replay that is taken for not sent leaves the operation in doubt all the same, and an
//! intent without a hand-over is a doubt too. The model check breaks them inside.

mod bent;
mod within;

use crate::end_to_end::world::{World, world};
use digest_workflows::operation::OperationKey;
use digestd::assemble;

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
