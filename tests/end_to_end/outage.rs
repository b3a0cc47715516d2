//! The ledger is away, the worker is told to stop, everything is restarted.

use crate::end_to_end::world::{
    Database, Plan, Worker, World, counts, of_mail, server, until, world,
};
use digest_tests::absent::absent;
use digest_tests::postgres::Postgres;
use digest_tests::proxy::Proxy;
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Waits until a ledger that is away was offered an outcome for the last time, which is then given to
/// the workflow.
pub(super) async fn outcome_given_up(worker: &Worker) {
    const OFFERS: usize = 4;
    until("a ledger that takes no outcome", async || {
        let refusals = worker.said().matches("the ledger did not take an outcome").count();
        (refusals >= OFFERS).then_some(())
    })
    .await;
}

/// A plan whose ledger is reached through a proxy that can be cut, the proxy, and the ledger's own URL.
pub(super) async fn ledger_behind_a_proxy(plan: Plan, name: &str) -> Option<(Plan, Proxy, String)> {
    let postgres = Postgres::shared("an outage of the ledger").await.unwrap()?;
    let url = postgres.database(name).await.unwrap();
    let direct = Url::parse(&url).unwrap();
    let target = format!("{}:{}", direct.host_str().unwrap(), direct.port().unwrap());
    let proxy = Proxy::start(target).await.unwrap();
    let mut through = direct;
    through.set_ip_host(proxy.address().ip()).unwrap();
    through.set_port(Some(proxy.address().port())).unwrap();
    Some((plan.with("ledger.url", through.to_string()), proxy, url))
}

/// A world whose ledger is reached through a proxy that can be cut.
pub(super) async fn behind_a_proxy(plan: Plan, name: &str) -> Option<(World, Proxy)> {
    let (plan, proxy, url) = ledger_behind_a_proxy(plan, name).await?;
    let mut world = plan.start().await?;
    world.ledger = Database::Postgres(url);
    Some((world, proxy))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_ledger_nothing_is_sent_and_everything_after_it_is_back() {
    let plan = world("ledger-away").customers(40).with("provider.rate_per_second", 8.0);
    let Some((world, proxy)) = behind_a_proxy(plan, "ledger_away").await else { return };
    let worker = world.worker().await;
    let ready = format!("{}/readyz", worker.http().await);
    world.start_run().await;
    until("some messages", async || (world.inbox().len() >= 5).then_some(())).await;
    proxy.cut();
    // What had begun may still be handed over, but nothing begins now.
    let cut = Timestamp::now() + SignedDuration::from_secs(1);
    until("a worker that is not ready", async || {
        let answer = reqwest::get(&ready).await.ok()?;
        (!answer.status().is_success()).then_some(())
    })
    .await;
    let waiting = world.operations().await.into_iter().find(|(_, state)| state == "selected");
    let waiting = digest_workflows::operation::OperationKey::parse(&waiting.unwrap().0).unwrap();
    world.until_details_say(&waiting, "the ledger or a worker").await;
    // The outage lasts for some tries.
    let healed = until("an outage of a few seconds", async || {
        Some(Timestamp::now()).filter(|now| *now > cut + SignedDuration::from_secs(4))
    })
    .await;
    proxy.heal();
    let status = world.closed().await;
    counts(&status, &[("selected", 40), ("cleaned", 40), ("unknown", 0), ("dead", 0)]);
    let meanwhile: Vec<_> = world
        .requests()
        .into_iter()
        .filter(|request| request.at > cut && request.at < healed)
        .collect();
    assert!(meanwhile.is_empty(), "sent without a ledger: {meanwhile:?}");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_while_the_ledger_is_away_is_recorded_without_a_human() {
    let late = vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [late]).unwrap());
    let plan = world("answer-cut").customers(1).smtp(server.port());
    let plan = plan.with("provider.timeout", "8s").with("provider.lease", "9s");
    let plan = plan.with("worker.shutdown_grace", "12s");
    let Some((mut world, proxy)) = behind_a_proxy(plan, "answer_cut").await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let key = world.key("customer-0001");
    let worker = world.worker().await;
    world.start_run().await;
    server.until(|record| record.stored.len() == 1).await.unwrap();
    proxy.cut();
    server.release();
    until("a ledger that does not take the outcome", async || {
        worker.said().contains("the ledger did not take an outcome").then_some(())
    })
    .await;
    proxy.heal();
    world.until_state(&key, "cleaned").await;
    let shown = world.show(&key).await;
    assert!(shown["timeline"].as_array().unwrap().iter().all(|line| line["by"] != "kim"));
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1, "{shown:#}");
    assert_eq!(server.record().ends_of_data, 1);
    counts(&world.closed().await, &[("cleaned", 1), ("unknown", 0)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_while_the_ledger_is_away_is_kept_by_the_workflow() {
    let late = vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [late]).unwrap());
    let plan = world("late-cut").customers(1).smtp(server.port());
    let plan = plan.with("provider.lease", "20s").with("unknown.escalate_after", "40s");
    let Some((mut world, proxy)) = behind_a_proxy(plan, "late_cut").await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let key = world.key("customer-0001");
    let worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    proxy.cut();
    server.release();
    outcome_given_up(&worker).await;
    proxy.heal();
    world.until_state(&key, "cleaned").await;
    assert_eq!(server.record().ends_of_data, 1);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_leaves_finished_or_unknown_and_ends_in_time() {
    let hang = vec![(At::Dot, Act::store_then(Act::Hang))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [hang]).unwrap());
    let plan = world("sigterm").customers(6).smtp(server.port());
    let plan = plan
        .with("provider.timeout", "2s")
        .with("provider.lease", "15s")
        .with("unknown.escalate_after", "30s")
        .with("worker.shutdown_grace", "3s")
        .with("provider.rate_per_second", 2.0);
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let mut worker = world.worker().await;
    world.start_run().await;
    server.until(|record| !record.stored.is_empty()).await.unwrap();
    worker.terminate();
    let status = worker.ended_within(Duration::from_secs(3 + 4)).await;
    assert!(status.success(), "{status}: {}", worker.said());
    for (key, state) in world.operations().await {
        assert_ne!(state, "sending", "{key} was left in mid-air");
    }
    world.check().await;
    let inbox = world.inbox();

    let _worker = world.worker().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 6), ("unknown", 1), ("cleaned", 5), ("contradicted", 0)]);
    assert!(world.inbox().len() >= inbox.len());
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_the_restart_of_everything() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut engine) = server(Some(folder.path().join("temporal.db"))).await else { return };
    let plan = world("restarts").customers(30).with("provider.rate_per_second", 10.0);
    let Some(world) = plan.start_on(engine.address()).await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    until("half of the messages", async || (world.inbox().len() >= 15).then_some(())).await;
    worker.kill();
    engine.kill();
    let status = world.status().await;
    assert_ne!(status["state"], "closed", "{status:#}");
    assert_ne!(status["missing_count"], 0, "{status:#}");
    engine.restart().await.unwrap();
    let _worker = world.worker().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 30), ("missing_count", 0), ("dead", 0)]);
    let of = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(of("cleaned") + of("unknown"), 30, "{status:#}");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_run_survives_the_restart_of_database_provider_worker_and_engine_in_turn() {
    let Some(mut postgres) = Postgres::start_own().await.unwrap() else {
        return absent(
            "PostgreSQL",
            "the restart of its server",
            "run `apt-get install postgresql`",
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let Some(mut engine) = server(Some(folder.path().join("temporal.db"))).await else { return };
    let url = postgres.database("restarted").await.unwrap();
    let plan = world("all-restarts")
        .customers(40)
        .with("ledger.url", url.clone())
        .with("sandbox.contract", "lookup_hits_only")
        .with("provider.rate_per_second", 8.0);
    let Some(mut world) = plan.start_on(engine.address()).await else { return };
    world.ledger = Database::Postgres(url);
    let mut sandbox = world.sandbox_outside().await;
    let address = sandbox.url().trim_start_matches("http://").to_owned();
    let mut worker = world.worker().await;
    world.start_run().await;
    for (share, what) in [(5, "database"), (12, "provider"), (20, "worker"), (28, "engine")] {
        until(&format!("{share} messages"), async || (world.inbox().len() >= share).then_some(()))
            .await;
        match what {
            "database" => {
                postgres.kill().await.unwrap();
                postgres.restart().await.unwrap();
            }
            "provider" => {
                sandbox.stop().await;
                sandbox = world.sandbox_at(address.parse().unwrap()).await;
            }
            "worker" => {
                worker.kill();
                worker = world.worker().await;
            }
            _ => {
                engine.kill();
                engine.restart().await.unwrap();
            }
        }
        let status = world.status().await;
        assert_ne!(status["state"], "closed", "after the restart of the {what}: {status:#}");
        assert_ne!(status["missing_count"], 0, "after the restart of the {what}: {status:#}");
        world.check().await;
    }
    let status = world.closed().await;
    counts(&status, &[("selected", 40), ("missing_count", 0), ("dead", 0), ("suppressed", 0)]);
    let of = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(of("cleaned") + of("unknown"), 40, "{status:#}");
    world.check().await;
    drop(worker);
    sandbox.stop().await;
}
