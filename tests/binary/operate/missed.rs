//! Weeks that did not run.

use super::bench::{Shop, last_week, ready, server};
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::run::{DigestRun, RunInput};
use digestd::config::Config;
use digestd::missed::Missed;
use jiff::{SignedDuration, Timestamp};
use temporalio_client::{Client, WorkflowStartOptions};

async fn missed(shop: &Shop, client: &Client) -> Missed {
    let config = Config::load(&shop.path("digestd.toml")).unwrap();
    Missed {
        ledger: shop.ledger().await,
        client: client.clone(),
        campaign: "digest".to_owned(),
        calendar: config.calendar().unwrap(),
        catch_up: config.campaign.catch_up,
        kept: config.retention.records,
    }
}

/// Makes the first setup look `days` days old.
async fn age(shop: &Shop, days: i64) {
    use sqlx::Connection as _;
    let since = Timestamp::now() - SignedDuration::from_hours(24 * days);
    let mut ledger = sqlx::SqliteConnection::connect(&shop.ledger_url()).await.unwrap();
    sqlx::query("update digestd_meta set value = $1 where name = 'since:digest'")
        .bind(since.to_string())
        .execute(&mut ledger)
        .await
        .unwrap();
    ledger.close().await.unwrap();
}

#[tokio::test]
async fn a_week_without_a_run_is_recorded_once_with_its_reason_and_can_be_sent() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 2).await;
    let client = server.client("a test").await.unwrap();
    let missed = missed(&shop, &client).await;
    let now = Timestamp::now();
    assert_eq!(missed.once(now).await.unwrap(), [], "no tick has passed since the setup");

    age(&shop, 22).await;
    let found = missed.once(now).await.unwrap();
    assert!((2..=4).contains(&found.len()), "{found:?}");
    assert!(found.contains(&last_week()), "{found:?}");
    assert_eq!(missed.once(now).await.unwrap(), [], "it was recorded before");
    let status = shop.status(last_week());
    assert_eq!(
        (&status["state"], &status["held_because"]),
        (&"missed".into(), &"the schedule is paused".into())
    );
    let said = shop.digestd(&format!("status --period {}", last_week()));
    assert_eq!(said.code, 4);
    assert!(said.out.contains("schedule backfill --period"), "{}", said.out);

    let _worker = shop.worker();
    let said = shop.digestd(&format!("schedule backfill --period {}", last_week()));
    assert_eq!(said.code, 0, "{}", said.err);
    let status = shop.until("the end of the run", last_week(), |s| s["state"] == "closed").await;
    assert_eq!(status["sent"], 2);
    assert_eq!(missed.once(now).await.unwrap(), []);
}

#[tokio::test]
async fn a_week_whose_workflow_waits_for_a_worker_is_not_missed() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 1).await;
    let client = server.client("a test").await.unwrap();
    age(&shop, 8).await;
    let week = last_week();
    let start = RunStart { campaign: "digest".to_owned(), period: week, tick: None };
    let id = digest_workflows::run_id("digest", week);
    let options = WorkflowStartOptions::new("digest".to_owned(), id)
        .search_attributes(attributes::of_run("digest", week))
        .build();
    client.start_workflow(DigestRun::run, RunInput::new(start), options).await.unwrap();
    let teller = digestd::tell::Teller { client: client.clone(), campaign: "digest".to_owned() };
    // Seen by queries a moment after it was started.
    let begun = std::time::Instant::now();
    while !teller.run(week).await.unwrap() {
        assert!(begun.elapsed().as_secs() < 20);
    }
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let found = missed(&shop, &client).await.once(Timestamp::now()).await.unwrap();
    assert!(!found.contains(&week), "{found:?}");
}
