//! `digestd check`, and what the other commands refuse: each problem is one paragraph that names its
//! cause and its cure, within half a minute, and nothing is changed.

use super::bench::{Said, last_week, ready, server, shop};
use digest_activities::ledger::LedgerRef;
use digest_workflows::attributes;
use digest_workflows::customer::{CustomerDigest, CustomerInput};
use digest_workflows::operation::{OperationKey, Rules};
use temporalio_client::WorkflowStartOptions;

fn refused(said: &Said, code: i32, name: &str, parts: &[&str]) {
    let line = said.line(name);
    assert_eq!(said.code, code, "{}{}", said.out, said.err);
    assert!(line.starts_with("problem "), "{line}");
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in: {line}");
    }
}

#[tokio::test]
async fn what_is_in_order_is_told_line_by_line() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 3).await;
    let before = shop.content();
    let said = shop.digestd("check");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    for (name, part) in [
        ("configuration", "campaign \"digest\""),
        ("secrets", "not set: DIGESTD_LEDGER_URL"),
        ("calendar", "the next tick is"),
        ("templates", "rendered for digest:"),
        ("source", "would select 3 customers now"),
        ("ledger", "(epoch 1), 0 decisions"),
        ("engine", "namespace \"default\""),
        ("search attributes", "DigestPeriod"),
        ("schedule", "paused"),
        ("provider", "sandbox"),
        ("http", "is free"),
    ] {
        let line = said.line(name);
        assert!(line.starts_with("ok ") && line.contains(part), "{part:?} is not in: {line}");
    }
    assert_eq!(shop.content(), before, "a check has changed something");
    let json = shop.digestd("check --json");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["ok"], json["checks"].as_array().unwrap().len()), (&true.into(), 11));
    let secret = shop.command("check").env("DIGESTD_HTTP_TOKEN", "hush").output().unwrap();
    let secret = String::from_utf8(secret.stdout).unwrap();
    assert!(secret.contains("set: DIGESTD_HTTP_TOKEN;") && !secret.contains("hush"), "{secret}");
}

#[tokio::test]
async fn every_problem_is_told_at_once_with_its_cure() {
    let shop = shop(None, 1).await;
    shop.edit("\"0 9 * * MON\"", "\"30 2 * * SUN\"");
    shop.write("digest.txt", "Hello {{ name");
    let before = shop.content();
    let said = shop.digestd("check");
    refused(&said, 2, "calendar", &["clocks go", "the nearest safe time is"]);
    refused(&said, 2, "templates", &["digest.txt"]);
    refused(&said, 2, "ledger", &["no ledger file", "digestd setup"]);
    refused(&said, 2, "engine", &["127.0.0.1:1", "check that the server runs"]);
    assert!(said.line("source").starts_with("ok "), "{}", said.out);
    assert_eq!(shop.content(), before, "a check has changed something");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_ends_with_2() {
    let missing = shop(None, 0).await;
    std::fs::remove_file(missing.path("digestd.toml")).unwrap();
    refused(&missing.digestd("check"), 2, "configuration", &["no configuration", "digestd init"]);
    assert_eq!(missing.digestd("run --period 2026-W01").code, 2);

    for (from, to, name, parts) in [
        ("[ledger]", "[ledgre]", "configuration", ["ledgre", "did you mean"]),
        (
            "still_wanted =",
            "# still_wanted =",
            "configuration",
            ["source.still_wanted: this is missing", "such as"],
        ),
        ("id as customer_id, ", "id, ", "source", ["customer_id", "name one so with as"]),
        (
            "[campaign]",
            "cleanup = \"delete from items where title = :campaign\"\n[campaign]",
            "source",
            ["cleanup", ":operation_key"],
        ),
    ] {
        let shop = shop(None, 1).await;
        shop.edit(from, to);
        let before = shop.content();
        let said = shop.digestd("check");
        let all = format!("{}{}", said.out, said.err);
        assert_eq!(said.code, 2, "{all}");
        for part in parts {
            assert!(all.contains(part), "{part:?} is not in: {all}");
        }
        assert!(said.line(name).starts_with("problem "), "{all}");
        assert_eq!(shop.content(), before);
    }
}

#[tokio::test]
async fn what_keeps_a_worker_from_starting_is_a_problem_of_the_configuration() {
    let shop = shop(None, 1).await;
    shop.edit("[http]", "[webhooks]\nlisten = \"127.0.0.1:0\"\n[http]");
    refused(&shop.digestd("check"), 2, "configuration", &["sandbox", "has no webhooks"]);
    shop.edit("kind = \"sandbox\"", "kind = \"resend\"");
    let parts = ["DIGESTD_WEBHOOK_SECRET", "not set"];
    refused(&shop.digestd("check"), 2, "configuration", &parts);
}

#[tokio::test]
async fn a_console_that_strangers_could_reach_is_refused_by_check_and_worker() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 1).await;
    shop.edit("[http]\nlisten = \"127.0.0.1", "[http]\nlisten = \"0.0.0.0");
    let parts = ["DIGESTD_HTTP_TOKEN", "user_header"];
    refused(&shop.digestd("check"), 2, "http", &parts);
    let worker = shop.digestd("worker");
    assert_eq!(worker.code, 2, "{}{}", worker.out, worker.err);
    for part in parts {
        assert!(worker.err.contains(part), "{}", worker.err);
    }
}

#[tokio::test]
async fn a_database_without_a_ledger_is_told_and_left_alone() {
    let shop = shop(None, 1).await;
    shop.edit("sqlite://ledger.db", "sqlite://shop.db");
    let before = shop.content();
    for command in ["check", "status", "hold --period 2026-W01 --reason test"] {
        let said = shop.digestd(command);
        let all = format!("{}{}", said.out, said.err);
        assert_ne!(said.code, 0, "{all}");
        assert!(
            all.contains("no ledger of this version") && all.contains("digestd setup"),
            "{all}"
        );
    }
    assert_eq!(shop.content(), before);
    // One that is not reachable at all.
    shop.edit(
        "[ledger]\nurl = \"sqlite://shop.db\"",
        "[ledger]\nurl = \"postgres://x@127.0.0.1:1/x\"",
    );
    let said = shop.digestd("check");
    refused(&said, 1, "ledger", &["127.0.0.1:1/x", "check [ledger] url"]);
}

#[tokio::test]
async fn what_the_engine_lacks_is_named() {
    let Some(server) = server(false).await else { return };
    let shop = shop(Some(&server), 1).await;
    let said = shop.digestd("check");
    let parts = ["DigestPeriod, DigestCampaign, DigestState", "digestd setup", "temporal operator"];
    refused(&said, 1, "search attributes", &parts);
    refused(&said, 1, "schedule", &["digest-weekly", "digestd setup"]);
    // Nothing starts without them.
    shop.digestd("setup --print-sql");
    let run = shop.digestd(&format!("run --period {}", last_week()));
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    shop.edit("namespace = \"default\"", "namespace = \"nowhere\"");
    refused(&shop.digestd("check"), 1, "engine", &["no namespace \"nowhere\"", "namespace create"]);
}

#[tokio::test]
async fn a_ledger_that_open_workflows_do_not_know_is_foreign() {
    let Some(server) = server(true).await else { return };
    let shop = ready(&server, 1).await;
    let client = server.client("a test").await.unwrap();
    let key = OperationKey::new("digest", last_week(), "1").unwrap();
    let ledger = LedgerRef { id: "elsewhere".to_owned(), epoch: 7 };
    let input = CustomerInput { key: key.clone(), ledger, rules: Rules::default() };
    let options = WorkflowStartOptions::new("nobody".to_owned(), key.to_string())
        .search_attributes(attributes::of_operation(&key))
        .build();
    client.start_workflow(CustomerDigest::run, input, options).await.unwrap();
    let begun = std::time::Instant::now();
    let said = loop {
        let said = shop.digestd("check");
        if said.code != 0 || begun.elapsed().as_secs() > 20 {
            break said;
        }
    };
    refused(&said, 1, "ledger", &["elsewhere (epoch 7)", "setup --after-restore"]);
}

#[tokio::test]
async fn a_period_that_cannot_run_is_refused_before_anything_starts() {
    let shop = shop(None, 1).await;
    let before = shop.content();
    let said = shop.digestd("run --period 2025-W53");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("2025-W52"), "{}", said.err);
    for command in ["run --period 2099-W01", "schedule backfill --period 2099-W01"] {
        let said = shop.digestd(command);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("still ahead") && said.err.contains("--future"), "{}", said.err);
    }
    assert_eq!(shop.content(), before);
}

#[tokio::test]
async fn an_address_that_somebody_else_listens_on_is_a_problem() {
    let shop = shop(None, 0).await;
    let taken = std::net::TcpListener::bind(("127.0.0.1", shop.http)).unwrap();
    refused(&shop.digestd("check"), 1, "http", &["cannot listen on", "[http] listen"]);
    drop(taken);
}
