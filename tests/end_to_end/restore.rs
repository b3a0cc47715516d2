//! A ledger that is restored from a backup in the middle of a run, with more sent since.

use crate::end_to_end::world::{Database, Plan, World, counts, until, world};
use digest_tests::postgres::Postgres;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use std::fmt::Write as _;
use std::time::Duration;

const CUSTOMERS: u64 = 30;
/// At least how many are sent before the backup, and between it and the restore.
const SENT: usize = 4;

/// Who can have seen the ledger further than its backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeenBy {
    /// The run too, which looks at the ledger's counter now and then.
    AnyOf,
    /// Only operations: the run has not looked since the backup.
    Operations,
}

/// Copies one ledger, which nobody has open, over another.
async fn copy(from: &Database, to: &Database) {
    match (from, to) {
        (Database::Sqlite(from), Database::Sqlite(to)) => {
            let url = format!("sqlite://{}", from.display());
            let mut ledger = SqliteConnection::connect(&url).await.unwrap();
            sqlx::query("pragma wal_checkpoint(truncate)").execute(&mut ledger).await.unwrap();
            ledger.close().await.unwrap();
            for side in ["-wal", "-shm"] {
                let mut path = to.clone().into_os_string();
                path.push(side);
                std::fs::remove_file(path).ok();
            }
            std::fs::copy(from, to).unwrap();
        }
        (Database::Postgres(from), Database::Postgres(to)) => {
            let name = |url: &str| url.rsplit('/').next().unwrap().to_owned();
            let server = from.rsplit_once('/').unwrap().0;
            let mut postgres = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
            let (from, to) = (name(from), name(to));
            for sql in [
                format!("drop database if exists \"{to}\" with (force)"),
                format!("create database \"{to}\" template \"{from}\""),
            ] {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut postgres).await.unwrap();
            }
        }
        _ => panic!("two kinds of ledger"),
    }
}

/// Lets a worker send some more, and drains it.
async fn send_some(world: &World) {
    let taken = world.inbox().len() + SENT;
    let mut worker = world.worker().await;
    if taken == SENT {
        world.start_run().await;
    }
    until(&format!("{taken} messages"), async || (world.inbox().len() >= taken).then_some(()))
        .await;
    worker.terminate();
    let status = worker.ended_within(Duration::from_secs(10)).await;
    assert!(status.success(), "{status}");
    assert_eq!(world.under_way().await, Vec::<String>::new());
}

/// Nothing is wrong but what the restore took from the ledger: intents and deliveries of what was sent
/// after the backup.
async fn check_but_for(world: &World, lost: &[&String]) {
    let forgotten = |found: &String| {
        ["nothing is taken without an intent", "only rows of what was sent are removed"]
            .iter()
            .any(|kind| found.starts_with(kind))
            && lost.iter().any(|key| found.contains(&format!(": {key} ")))
    };
    let mut found = world.violations().await;
    found.retain(|found| !forgotten(found));
    assert!(found.is_empty(), "{found:#?}");
}

async fn restored_in_mid_run(world: World, backup: Database, seen_by: SeenBy) {
    send_some(&world).await;
    copy(&world.ledger, &backup).await;
    let backed_up = world.inbox();
    send_some(&world).await;
    copy(&backup, &world.ledger).await;
    let sent = world.inbox();
    let lost: Vec<&String> = sent.keys().filter(|key| !backed_up.contains_key(*key)).collect();
    assert!(!lost.is_empty());
    if seen_by == SeenBy::Operations {
        let newest = "(select max(id) from @decisions)";
        let sql = format!("update @decisions set id = id + 1000000 where id = {newest}");
        assert_eq!(world.ledger.execute(&sql).await, 1);
    }
    // As if the backup were old: the sweep would start what it has open at once.
    world.half_a_minute_passes().await;

    let mut worker = world.worker().await;
    let held = world.until_status("a hold", |status| status["state"] == "held").await;
    assert!(held["held_because"].as_str().unwrap().contains("has gone back"), "{held:#}");
    worker.terminate();
    worker.ended_within(Duration::from_secs(10)).await;
    assert_eq!(world.inbox(), sent, "something was sent from a ledger that has gone back");
    let setup = world.digestd("setup --after-restore").await;
    assert_eq!(setup.code, 0, "{setup:?}");

    let _worker = world.worker().await;
    until("the rest", async || {
        let status = world.status().await;
        let open = ["pending", "sending", "retrying"].iter().map(|name| status[name].as_u64());
        open.sum::<Option<u64>>().filter(|open| *open == 0)
    })
    .await;
    let operations = world.operations().await;
    for key in &lost {
        assert_eq!(operations[*key], "unknown", "{key} was sent after the backup");
    }
    check_but_for(&world, &lost).await;
    // What was at work when its worker was stopped may be unknown without having been sent.
    let inbox = world.inbox();
    for (delivered, verdict) in [(true, "--delivered"), (false, "--not-delivered")] {
        let mut keys = String::new();
        for (key, state) in &operations {
            if state == "unknown" && inbox.contains_key(key) == delivered {
                writeln!(keys, "{key}").unwrap();
            }
        }
        if !keys.is_empty() {
            std::fs::write(world.folder().join("keys.txt"), keys).unwrap();
            let reason = "--reason logged --by kim --yes";
            let line = format!("resolve --keys-from keys.txt {verdict} {reason}");
            let resolved = world.digestd(&line).await;
            assert_eq!(resolved.code, 0, "{resolved:?}");
        }
    }
    let n = CUSTOMERS;
    counts(&world.closed().await, &[("selected", n), ("cleaned", n), ("contradicted", 0)]);
    assert_eq!(u64::try_from(world.requests().len()).unwrap(), CUSTOMERS);
    check_but_for(&world, &lost).await;
}

fn slow(name: &str) -> Plan {
    let customers = usize::try_from(CUSTOMERS).unwrap();
    world(name).customers(customers).with("provider.rate_per_second", 4.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_in_mid_run_nothing_is_sent_twice_with_sqlite() {
    let Some(world) = slow("restored").start().await else { return };
    let backup = Database::Sqlite(world.folder().join("backup.db"));
    restored_in_mid_run(world, backup, SeenBy::AnyOf).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn after_a_restore_that_no_run_could_notice_nothing_is_sent_twice() {
    let Some(world) = slow("restored-unseen").start().await else { return };
    let backup = Database::Sqlite(world.folder().join("backup.db"));
    restored_in_mid_run(world, backup, SeenBy::Operations).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn after_a_restore_in_mid_run_nothing_is_sent_twice_with_postgres() {
    let Some(postgres) = Postgres::shared("a restored ledger").await.unwrap() else { return };
    let url = postgres.database("restored").await.unwrap();
    let backup = Database::Postgres(postgres.database("restored_backup").await.unwrap());
    let plan = slow("restored-postgres").with("ledger.url", url.clone());
    let Some(mut world) = plan.start().await else { return };
    world.ledger = Database::Postgres(url);
    restored_in_mid_run(world, backup, SeenBy::AnyOf).await;
}
