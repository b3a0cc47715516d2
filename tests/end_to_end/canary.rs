//! Canaries: on the real path, as often as one likes, and in nobody's way.

use crate::end_to_end::privacy::look;
use crate::end_to_end::world::{PERIOD, Said, World, counts, until, world};
use serde_json::Value;
use std::collections::BTreeMap;

/// Where canaries go: nowhere but in the ledger and in the message.
const TO: &str = "wombat.canary@privat.example";

/// `digestd canary` for the first customer, with these arguments: what it said, and its report.
async fn canary(world: &World, arguments: &str) -> (Said, Value) {
    let line =
        format!("canary --customer customer-0001 --to {TO} --period {PERIOD} --json {arguments}");
    let said = world.digestd(&line).await;
    assert!(!said.stdout.contains("wombat") && !said.stderr.contains("wombat"), "{said:?}");
    let report = serde_json::from_str(&said.stdout).unwrap_or(Value::Null);
    (said, report)
}

fn keys(report: &Value) -> Vec<String> {
    let keys = report["keys"].as_array().unwrap_or_else(|| panic!("no keys: {report:#}"));
    keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

/// Whether each check is as it should be, by its name.
fn checks(report: &Value) -> BTreeMap<String, bool> {
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line["ok"].as_bool().unwrap()))
        .collect()
}

/// What the ledger holds of a customer beside keys, states and times.
async fn contents(world: &World, key: &str) -> u64 {
    let of = |table: &str| format!("@{table} where key = '{key}'");
    world.ledger.count(&of("messages")).await + world.ledger.count(&of("digest_rows")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_may_be_repeated_is_in_no_count_and_touches_nothing_of_the_customers() {
    let Some(world) = world("canary").customers(3).postgres().start().await else { return };
    let worker = world.worker().await;
    let mut sent = Vec::new();
    for _ in 0..2 {
        let (said, report) = canary(&world, "").await;
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(report["schedule_may_be_enabled"], Value::Null);
        sent.extend(keys(&report));
    }
    assert_ne!(sent[0], sent[1]);
    let inbox = world.inbox();
    for key in &sent {
        assert!(key.starts_with(&format!("canary-canary:{PERIOD}:customer-0001~")), "{key}");
        assert_eq!(inbox.get(key), Some(&1), "{inbox:?}");
        assert_eq!(contents(&world, key).await, 0, "{key} is still stored");
        let history = serde_json::to_value(world.history(key, "").await).unwrap();
        let mut payloads = 0;
        let clean = |text: &str| assert!(!text.contains("wombat") && !text.contains("Name1"));
        look(&history, &mut |text| clean(text), &mut |payload| {
            payloads += 1;
            clean(&String::from_utf8_lossy(payload));
        });
        assert!(payloads > 0, "no payload of {key} was looked at");
    }
    assert!(!world.worker_logs().contains("wombat"));
    assert_eq!(world.shop.count("digest_items").await, 6, "rows were removed from the shop");
    let status = world.digestd("status --json").await;
    assert_eq!(status.code, 1, "a canary is no run: {status:?}");
    let metrics = format!("{}/metrics", worker.http().await);
    let metrics = reqwest::get(metrics).await.unwrap().text().await.unwrap();
    let attempts: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("digestd_attempts_total{")).collect();
    assert!(!attempts.is_empty() && attempts.iter().all(|line| line.ends_with(" 0")), "{metrics}");

    // The week's own run sends to everybody all the same.
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3), ("sent", 3)]);
    let inbox = world.inbox();
    assert_eq!(inbox.len(), 5, "{inbox:?}");
    assert!(inbox.values().all(|taken| *taken == 1), "{inbox:?}");
    assert_eq!(world.shop.count("digest_items").await, 0);
    assert_eq!(world.audit().await["selected"], 3);
    // After the run the customer's rows are gone, so there is nothing to send any more.
    let (said, _) = canary(&world, "").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("no rows in 2024-W10"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_failures_show_that_the_schedule_may_be_enabled() {
    let Some(mut world) = world("rehearsal").customers(2).start().await else { return };
    // A check that fails keeps everything from being sent.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    world.edit("http.listen", taken.local_addr().unwrap().to_string());
    let (said, report) = canary(&world, "--force-failures").await;
    assert_eq!((said.code, keys(&report)), (1, Vec::new()), "{said:?}");
    assert_eq!(report["schedule_may_be_enabled"], false);
    assert_eq!(checks(&report).get("http"), Some(&false));
    assert_eq!(world.ledger.count("@operations").await, 0);
    world.edit("http.listen", "127.0.0.1:0");
    let _worker = world.worker().await;
    let (said, report) = canary(&world, "--force-failures").await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(report["schedule_may_be_enabled"], true, "{report:#}");
    let checks = checks(&report);
    for name in ["provider", "source", "delivery", "no trace", "retry", "dead letter"] {
        assert_eq!(checks.get(name), Some(&true), "{name}: {report:#}");
    }
    let keys = keys(&report);
    let inbox = world.inbox();
    assert_eq!((inbox.get(&keys[0]), inbox.get(&keys[1])), (Some(&1), Some(&1)), "{inbox:?}");
    assert!(keys[1].ends_with("-transient") && keys[2].ends_with("-permanent"), "{keys:?}");
    assert!(!inbox.contains_key(&keys[2]), "a refusal on purpose reached the provider");
    let letters = world.ledger.count("@dead_letters where class = 'rejected'").await;
    assert_eq!(letters, 1);
    let shown = world.digestd("show --customer customer-0001 --json").await;
    assert!(shown.code == 0 && keys.iter().all(|key| shown.stdout.contains(key)), "{shown:?}");
    // Erasing the customer erases what the dead letter still has of them.
    assert_eq!(contents(&world, &keys[2]).await, 2);
    let forget = "forget --customer customer-0001 --reason test";
    assert_eq!(world.digestd(forget).await.code, 0);
    assert_eq!(contents(&world, &keys[2]).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_nobody_takes_is_given_up_and_never_sent() {
    let Some(world) = world("untaken").customers(1).start().await else { return };
    let (said, report) = canary(&world, "--timeout 1s").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(checks(&report).get("delivery"), Some(&false));
    assert!(said.stdout.contains("no worker has taken it"), "{said:?}");
    let _worker = world.worker().await;
    let key = keys(&report).remove(0);
    let ended = format!("WorkflowId = '{key}' AND ExecutionStatus = 'Completed'");
    until("the end of its workflow", async || {
        (!world.listed(ended.clone()).await.is_empty()).then_some(())
    })
    .await;
    assert!(world.inbox().is_empty(), "{:?}", world.inbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_finds_a_wrong_configuration_holds_no_run_and_the_next_one_goes() {
    let fault = toml::toml! { customer = "customer-0001" kinds = ["configuration"] };
    let plan = world("suspended").customers(2);
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(mut world) = plan.start().await else { return };
    let worker = world.worker().await;
    let (said, report) = canary(&world, "").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("held, and given up: configuration"), "{said:?}");
    let first = keys(&report).remove(0);
    assert_eq!(world.digestd("status").await.code, 1, "a run is held that does not exist");
    drop(worker);
    world.edit("sandbox.fault", toml::Value::Array(Vec::new()));
    let _worker = world.worker().await;
    let (said, report) = canary(&world, "").await;
    assert_eq!(said.code, 0, "{said:?}");
    let inbox = world.inbox();
    assert_eq!(inbox.get(&keys(&report)[0]), Some(&1), "{inbox:?}");
    assert!(!inbox.contains_key(&first), "what was given up was sent: {inbox:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_want_it_or_cannot_be_written_to_gets_none() {
    let Some(world) = world("unwanting").customers(2).start().await else { return };
    let nowhere = format!("canary --customer customer-0001 --to wombat --period {PERIOD}");
    let said = world.digestd(&nowhere).await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("--to") && !said.stderr.contains("wombat"), "{said:?}");
    let nobody = format!("canary --customer customer-9999 --to {TO} --period {PERIOD}");
    let said = world.digestd(&nobody).await;
    assert!(said.code == 1 && said.stderr.contains("no row with this customer_id"), "{said:?}");
    world.shop.execute("update customers set digest_opt_in = 0").await;
    let (said, _) = canary(&world, "").await;
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(world.ledger.count("@operations").await, 0);
    assert!(world.inbox().is_empty());
}
