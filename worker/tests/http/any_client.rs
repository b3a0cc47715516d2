//! A client that is not ours, Schemathesis, which makes requests of its own from the API's document:
//! plausible ones, odd ones, and nonsense.

use crate::house::{ADDRESS, CAMPAIGN, CONTENT, House, TOKEN};
use digest_activities::audit::books::differences;
use digest_tests::absent::absent;
use digest_tests::mail_server::python_with;
use digest_tests::postgres::Postgres;
use digest_workflows::operation::{Period, Rules};
use digestd::http::api;
use serde_json::Value;
use std::path::Path;
use tokio::process::Command;

const HOW_TO_GET_IT: &str = "python3 -m venv target/tools/python && \
                             target/tools/python/bin/pip install schemathesis==4.32.5";

/// What every answer is held against. Which requests have to succeed is in `api.rs`: that a period has
/// a run is in no document.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance,\
                      unsupported_method,missing_required_header,negative_data_rejection,\
                      allow_header_conformance";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part of the proof: tests/prove"]
async fn no_request_is_answered_otherwise_than_documented_on_sqlite() {
    any_request(House::with_token().await, "SQLite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part of the proof: tests/prove"]
async fn no_request_is_answered_otherwise_than_documented_on_postgres() {
    let server = Postgres::shared("the API on PostgreSQL, by a client that is not ours").await;
    let Some(server) = server.unwrap() else { return };
    let url = server.database("api").await.unwrap();
    any_request(House::at(&url, Some(TOKEN)).await, "PostgreSQL").await;
}

async fn any_request(house: House, ledger: &str) {
    let Some(python) = python_with("schemathesis.cli") else {
        return absent("Schemathesis", "the API by a client that is not ours", HOW_TO_GET_IT);
    };
    let folder = tempfile::tempdir().unwrap();
    let (document, traffic) = (folder.path().join("openapi.json"), folder.path().join("har.json"));
    std::fs::write(&document, about(&house)).unwrap();
    let said = Command::new(python)
        .args(["-m", "schemathesis.cli", "run", "--no-color", "--url", &house.url("")])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--checks", CHECKS])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "50", "--no-shrink"])
        .args(["--generation-database", "none", "--suppress-health-check", "all"])
        .args([
            "--continue-on-failure",
            "--warnings",
            "off",
            "--report",
            "har",
            "--report-har-path",
        ])
        .args([&traffic, &document])
        .current_dir(folder.path())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.status.success(),
        "on {ledger}: {text}\n{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let answered = answers(&traffic);
    let count = |of: fn(u64) -> bool| answered.iter().filter(|(status, _)| of(*status)).count();
    assert!(
        count(|status| status < 300) > 50,
        "hardly anything was asked that can be done: {text}"
    );
    assert!(count(|status| status >= 400) > 50, "hardly any nonsense was asked: {text}");
    assert_eq!(count(|status| status >= 500), 0, "{text}");
    for (_, body) in &answered {
        assert!(!body.contains(ADDRESS) && !body.contains(CONTENT), "{body}");
    }
    let decided = house.ledger.decisions(CAMPAIGN, house.period, 0, 10_000).await.unwrap();
    for event in ["held", "resumed", "judged", "replayed", "published"] {
        let decided = decided.iter().any(|line| line.transition.event == event);
        assert!(decided, "nothing was {event} on {ledger}");
    }
    let page = house.ledger.audit_page(CAMPAIGN, house.period, None, 1_000).await.unwrap();
    for entry in &page.entries {
        let differences = differences(entry, &page.run, &Rules::default(), page.now);
        assert!(differences.is_empty(), "{differences:?}");
    }
    let n = u32::try_from(answered.len()).unwrap();
    println!(
        "any client, {ledger}: n = {n} requests, 0 violations of the API's document (95 % bound 3/n = {:.4})",
        3.0 / f64::from(n)
    );
}

/// The document, whose examples are of this house.
fn about(house: &House) -> String {
    let document = serde_json::to_string(&api::document()).unwrap();
    let example = Period::parse("2026-W49").unwrap();
    let [doubt, dead] =
        ["customer-1842", "customer-1843"].map(|customer| format!("digest:{example}:{customer}"));
    assert!(document.contains(&doubt) && document.contains(&dead), "the examples are others");
    document
        .replace(&doubt, &house.key(1).to_string())
        .replace(&dead, &house.key(2).to_string())
        .replace("customer-1842", "new")
        .replace(&example.to_string(), &house.period.to_string())
}

/// The status and the body of every answer.
fn answers(traffic: &Path) -> Vec<(u64, String)> {
    let har: Value = serde_json::from_slice(&std::fs::read(traffic).unwrap()).unwrap();
    let entries = har["log"]["entries"].as_array().unwrap();
    let answer = |entry: &Value| {
        let response = &entry["response"];
        let body = response["content"]["text"].as_str().unwrap_or_default();
        (response["status"].as_u64().unwrap(), body.to_owned())
    };
    entries.iter().map(answer).collect()
}
