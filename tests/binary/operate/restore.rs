//! A ledger that was restored from a backup.

use super::bench::{Shop, last_week, ready, server};
use digest_workflows::run::DigestRun;
use std::time::{Duration, Instant};
use temporalio_client::WorkflowQueryOptions;

/// Copies the ledger, which nobody has open, to `to`.
fn copy(shop: &Shop, from: &str, to: &str) {
    std::fs::copy(shop.path(from), shop.path(to)).unwrap();
    for side in ["-wal", "-shm"] {
        std::fs::remove_file(shop.path(&format!("{to}{side}"))).ok();
    }
}

/// Makes the ledger's file whole.
async fn checkpoint(shop: &Shop) {
    use sqlx::Connection as _;
    let mut ledger = sqlx::SqliteConnection::connect(&shop.ledger_url()).await.unwrap();
    sqlx::query("pragma wal_checkpoint(truncate)").execute(&mut ledger).await.unwrap();
    ledger.close().await.unwrap();
}

/// The sandbox remembers what it accepted in a file, one line each.
fn accepted(shop: &Shop) -> usize {
    std::fs::read_to_string(shop.path("accepted.log")).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn what_was_sent_after_the_backup_becomes_unknown_and_is_not_sent_again() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 3).await;
    shop.edit("[http]", "[sandbox]\nlog = \"accepted.log\"\n\n[http]");
    let week = last_week();
    checkpoint(&shop).await;
    copy(&shop, "ledger.db", "backup.db");
    let worker = shop.worker();
    shop.digestd(&format!("run --period {week}"));
    shop.until("the end of the run", week, |s| s["state"] == "closed").await;
    drop(worker);
    let before = accepted(&shop);
    assert!(before >= 3, "{before}");

    copy(&shop, "backup.db", "ledger.db");
    // Whoever forgets to compare it is held, even where the ledger has forgotten the whole run.
    let worker = shop.worker();
    shop.until("the hold", week, |s| s["state"] == "held").await;
    shop.digestd(&format!("run --period {week}"));
    let status = shop.until("the held selection", week, |s| s["selected"] == 3).await;
    assert!(status["held_because"].as_str().unwrap().contains("has gone back"), "{status}");
    drop(worker);
    assert_eq!(accepted(&shop), before, "something was sent again");
    let said = shop.digestd("setup --after-restore");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("epoch is 2"), "{}", said.out);
    assert!(said.out.contains("3 operations compared with the engine, 3 of them"), "{}", said.out);
    let again = shop.digestd("setup --after-restore");
    assert!(
        again.out.contains("3 operations compared with the engine, 0 of them"),
        "{}",
        again.out
    );

    let _worker = shop.worker();
    let going = |s: &serde_json::Value| s["state"] == "dispatching";
    let status = shop.until("the run under the new epoch", week, going).await;
    assert_eq!((&status["selected"], &status["unknown"]), (&3.into(), &3.into()));
    assert_eq!(accepted(&shop), before, "something was sent again");
}

#[tokio::test]
async fn a_run_that_the_backup_does_not_know_is_made_again_around_what_was_sent() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 3).await;
    shop.edit("[http]", "[sandbox]\nlog = \"accepted.log\"\n\n[http]");
    let week = last_week();
    checkpoint(&shop).await;
    copy(&shop, "ledger.db", "backup.db");
    let worker = shop.worker();
    shop.digestd(&format!("run --period {week}"));
    shop.until("the end of the run", week, |s| s["state"] == "closed").await;
    drop(worker);
    let before = accepted(&shop);
    copy(&shop, "backup.db", "ledger.db");
    let said = shop.digestd("setup --after-restore");
    assert!(said.out.contains("3 operations compared with the engine, 3 of them"), "{}", said.out);

    let _worker = shop.worker();
    shop.sql("insert into customers values (4, 'c4@shop.example', 'Customer 4', 1)").await;
    shop.sql("insert into items values (4, 'Tea')").await;
    let run = shop.digestd(&format!("run --period {week}"));
    assert_eq!(run.code, 0, "{}", run.err);
    let status = shop.until("the new customer's delivery", week, |s| s["sent"] == 1).await;
    assert_eq!((&status["selected"], &status["unknown"]), (&4.into(), &3.into()));
    assert_eq!(accepted(&shop), before + before / 3, "something was sent again");
}

#[tokio::test]
async fn a_ledger_that_went_back_holds_its_runs_until_it_is_compared() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 4).await;
    let week = last_week();
    shop.edit("rate_per_second = 500", "rate_per_second = 0.2");
    let worker = shop.worker();
    shop.digestd(&format!("run --period {week}"));
    shop.until("the first delivery", week, |s| s["sent"] != 0 && s["selected"] == 4).await;
    let client = server.client("a test").await.unwrap();
    let teller = digestd::tell::Teller { client: client.clone(), campaign: "digest".to_owned() };
    let run = client.get_workflow_handle::<DigestRun>(digest_workflows::run_id("digest", week));
    let begun = Instant::now();
    loop {
        teller.run(week).await.unwrap();
        let options = WorkflowQueryOptions::default();
        let answer = run.query(DigestRun::status, (), options).await.unwrap();
        if answer.standing.is_some_and(|standing| standing.counter > 0) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the run never noted the counter");
    }
    drop(worker);
    checkpoint(&shop).await;
    // The same ledger without what was decided since the selection.
    use sqlx::Connection as _;
    let mut ledger = sqlx::SqliteConnection::connect(&shop.ledger_url()).await.unwrap();
    let (key,): (String,) =
        sqlx::query_as("select key from digestd_operations where state in ('sent', 'cleaned')")
            .fetch_one(&mut ledger)
            .await
            .unwrap();
    let machine: (String, i64) = sqlx::query_as(
        "select machine, frozen_at from digestd_operations where state = 'selected'",
    )
    .fetch_one(&mut ledger)
    .await
    .unwrap();
    sqlx::query(
        "update digestd_operations set state = 'selected', machine = $1, attempts = 0, at_rest = 0",
    )
    .bind(machine.0)
    .execute(&mut ledger)
    .await
    .unwrap();
    sqlx::query("delete from digestd_attempts").execute(&mut ledger).await.unwrap();
    sqlx::query("delete from digestd_decisions").execute(&mut ledger).await.unwrap();
    sqlx::query("delete from sqlite_sequence").execute(&mut ledger).await.unwrap();
    ledger.close().await.unwrap();

    let worker = shop.worker();
    let status = shop.until("the hold", week, |s| s["state"] == "held").await;
    assert!(status["held_because"].as_str().unwrap().contains("has gone back"), "{status}");
    drop(worker);
    let said = shop.digestd("setup --after-restore");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("1 holds ended"), "{}", said.out);
    let shown = shop.digestd(&format!("show {key} --json"));
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(shown["state"], "unknown", "{shown}");

    // The sweep starts what is open under the new epoch.
    shop.edit("rate_per_second = 0.2", "rate_per_second = 500");
    let _worker = shop.worker();
    let begun = Instant::now();
    while !teller.run(week).await.unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the run was not started again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = shop.until("the rest", week, |s| s["pending"] == 0 && s["sending"] == 0).await;
    assert_eq!(status["sent"].as_u64().unwrap() + status["unknown"].as_u64().unwrap(), 4);
}
