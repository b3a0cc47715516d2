//! A ledger that can be read and not written to: its disk is full, or its server has become a replica.
//! Nothing is sent without an intent that is committed, and everything is once it can be again.

use super::world::{Database, Worker, counts, until, world};
use digest_tests::postgres::Postgres;
use digest_tests::small_disk::SmallDisk;
use jiff::{SignedDuration, Timestamp};

/// How many times the ledger refuses before it is made to take what it is told again.
const REFUSALS: usize = 5;

async fn refused(worker: &Worker, words: &str) {
    until(&format!("a worker that says {words:?}"), async || {
        (worker.said().matches(words).count() >= REFUSALS).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_sends_nothing_that_is_not_recorded_and_everything_after_it() {
    let Some(disk) = SmallDisk::mount("a ledger on a full disk").unwrap() else { return };
    let file = disk.path().join("digestd.db");
    let plan = world("disk-full")
        .customers(60)
        .with("ledger.url", format!("sqlite://{}", file.display()))
        .with("provider.rate_per_second", 8.0);
    let Some(mut world) = plan.start().await else { return };
    world.ledger = Database::Sqlite(file);
    let worker = world.worker().await;
    world.start_run().await;
    until("some messages", async || (world.inbox().len() >= 5).then_some(())).await;
    world.ledger.truncate_log().await;
    disk.fill().unwrap();
    refused(&worker, "full").await;
    assert!(world.inbox().len() < 60, "everything was sent before the disk was full");
    disk.clear().unwrap();
    let status = world.closed().await;
    counts(&status, &[("selected", 60), ("cleaned", 60), ("unknown", 0), ("dead", 0)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_only_reads_sends_nothing_and_everything_after_it() {
    let Some(postgres) = Postgres::shared("a ledger that only reads").await.unwrap() else {
        return;
    };
    let url = postgres.database("only_reads").await.unwrap();
    let plan = world("only-reads")
        .customers(40)
        .with("ledger.url", url.clone())
        .with("provider.rate_per_second", 8.0);
    let Some(mut world) = plan.start().await else { return };
    world.ledger = Database::Postgres(url.clone());
    let worker = world.worker().await;
    world.start_run().await;
    until("some messages", async || (world.inbox().len() >= 5).then_some(())).await;
    let name = url.rsplit('/').next().unwrap();
    let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                  where datname = current_database() and pid <> pg_backend_pid()";
    let only_reads = format!("alter database \"{name}\" set default_transaction_read_only = on");
    world.ledger.execute(&only_reads).await;
    world.ledger.execute(others).await;
    // What had begun may still be handed over, but nothing begins now.
    let begun = Timestamp::now() + SignedDuration::from_secs(1);
    refused(&worker, "read-only").await;
    let ended = Timestamp::now();
    let writes = format!(
        "begin; set transaction read write; \
         alter database \"{name}\" set default_transaction_read_only = off; commit"
    );
    world.ledger.script(&writes).await;
    world.ledger.execute(others).await;
    let status = world.closed().await;
    counts(&status, &[("selected", 40), ("cleaned", 40), ("unknown", 0), ("dead", 0)]);
    let meanwhile: Vec<_> = world
        .requests()
        .into_iter()
        .filter(|request| request.at > begun && request.at < ended)
        .collect();
    assert!(meanwhile.is_empty(), "sent on a ledger that only reads: {meanwhile:?}");
    world.check().await;
}
