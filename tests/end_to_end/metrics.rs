//! What a worker tells its monitoring: a Prometheus that is not ours scrapes a live one, and every query
//! of the dashboard and of the alerts finds what it asks for.

use crate::end_to_end::webhooks::{SECRETS, WEBHOOK_SECRET, event, post_as};
use crate::end_to_end::world::{Customer, Worker, World, through, until, world};
use digest_tests::api_server::{Act, ApiServer, End, Phase, Resend, Response};
use digest_tests::free_port;
use digest_tests::prometheus::{Prometheus, promtool};
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const RULES: &str = "deploy/prometheus/alerts.yml";
const TESTS: &str = "deploy/prometheus/alerts.test.yml";
const DASHBOARD: &str = "deploy/grafana/digestd.json";
const TABLE: &str = "docs/metrics.md";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

#[test]
fn the_alerts_fire_on_what_they_are_about() {
    let folder = path("deploy/prometheus");
    for arguments in [
        ["check", "rules", "--lint-fatal", "alerts.yml"].as_slice(),
        ["check", "config", "prometheus.yml"].as_slice(),
        ["test", "rules", "alerts.test.yml"].as_slice(),
    ] {
        let Some(said) = promtool(&folder, arguments, "alerts").unwrap() else { return };
        assert!(said.contains("SUCCESS"), "{arguments:?}: {said}");
    }
    let tests = read(TESTS);
    for alert in alerts() {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "no test lets {alert} fire");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_is_told_and_every_query_finds_what_it_asks_for() {
    let Some((world, worker, _server)) = a_world_with_one_of_each().await else { return };
    let told = until("figures of everything", async || {
        let told = scrape(&worker).await;
        let overdue = "digestd_unknown_overdue_operations{campaign=\"metrics\"} 1";
        (told.contains(overdue) && told.contains("digestd_run_held{")).then_some(told)
    })
    .await;
    let families = families(&told);
    agrees_with_the_documents(&families);
    tells_what_happened(&told);
    let target = worker.http().await.replace("http://", "");
    let not_tested = "scraping a worker";
    let prometheus = Prometheus::start(&target, &path(RULES), not_tested).unwrap();
    let Some(prometheus) = prometheus else { return };
    for (panel, query) in queries_of_the_dashboard() {
        let query = query.replace("$campaign", ".*").replace("$__rate_interval", "1m");
        until(&format!("data for {panel}: {query}"), async || {
            let answer = ask(&prometheus, &query).await;
            (!answer.as_array().unwrap().is_empty()).then_some(())
        })
        .await;
    }
    // No scrape was refused, and those alerts are pending or firing that should be.
    assert_eq!(ask(&prometheus, "up").await[0]["value"][1], "1");
    for alert in ["DigestdUnknownOverdue", "DigestdMissedWeek", "DigestdRunHeldByOperator"] {
        until(alert, async || {
            let query = format!("ALERTS{{alertname=\"{alert}\"}}");
            (!ask(&prometheus, &query).await.as_array().unwrap().is_empty()).then_some(())
        })
        .await;
    }
    let health = get(&format!("{}/rules", prometheus.url())).await;
    let health: Value = serde_json::from_str(&health.text().await.unwrap()).unwrap();
    for rule in health["data"]["groups"][0]["rules"].as_array().unwrap() {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }
    drop(world);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_does_not_answer_is_told_and_nothing_old_is_shown() {
    let Some(world) = world("metrics-down").customers(1).start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    let up = "digestd_ledger_up{campaign=\"metrics-down\"} ";
    until("figures", async || {
        let told = scrape(&worker).await;
        (told.contains(&format!("{up}1")) && told.contains("digestd_unknown_operations"))
            .then_some(())
    })
    .await;
    let ledger = world.folder().join("digestd.db");
    let aside = world.folder().join("aside.db");
    std::fs::rename(&ledger, &aside).unwrap();
    let told = scrape(&worker).await;
    assert!(told.contains(&format!("{up}0")), "{told}");
    for name in ["digestd_unknown_operations", "digestd_run_info", "digestd_dead_letters"] {
        assert!(!told.contains(name), "{name} is shown:\n{told}");
    }
    // What the worker has done itself is still true.
    assert!(told.contains("digestd_attempts_total"), "{told}");
    std::fs::rename(&aside, &ledger).unwrap();
    let told = scrape(&worker).await;
    assert!(told.contains(&format!("{up}1")), "{told}");
}

/// A campaign with a message that is sent, one in doubt, a dead letter, one that was refused for now,
/// webhooks of every kind, a run that is held and a week that was missed.
async fn a_world_with_one_of_each() -> Option<(World, Worker, Arc<ApiServer>)> {
    let mut script = vec![Act::Say(Response::new(429, "slow down")), Act::Go, Act::Go, Act::Go];
    script.extend(vec![Act::Fail(Phase::Taken, End::Reset); 50]);
    let port = free_port().unwrap();
    let mut customers: Vec<_> =
        (1..=5).map(|n| Customer::new(format!("customer-000{n}"), n)).collect();
    "nobody".clone_into(&mut customers[4].email);
    let plan = world("metrics")
        .these(customers)
        .with("webhooks.listen", format!("127.0.0.1:{port}"))
        .with("unknown.escalate_after", "5s")
        .with("provider.lease", "4s")
        .with("retry.ambiguous.max_attempts", 2);
    let (world, server) = through(plan, Resend, script).await?;
    let worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    until("one of each", async || {
        let states: BTreeSet<_> = world.operations().await.into_values().collect();
        let wanted = ["cleaned", "dead", "unknown"].map(str::to_owned);
        (states == BTreeSet::from(wanted)).then_some(())
    })
    .await;
    let taken = server.until(|record| record.taken.len() > 1).await.unwrap().taken;
    let told = event("email.delivered", &taken[0], "{}");
    let mut nobodys: Value = serde_json::from_str(&told).unwrap();
    nobodys["data"]["tags"]["operation_key"] = "bWV0cmljczpub2JvZHk".into();
    let nobodys = nobodys.to_string();
    let url = format!("http://127.0.0.1:{port}/webhooks/resend");
    let now = Timestamp::now();
    for (id, secret, body, expected) in [
        ("e1", WEBHOOK_SECRET, &told, StatusCode::OK),
        ("e1", WEBHOOK_SECRET, &told, StatusCode::OK),
        ("e2", WEBHOOK_SECRET, &nobodys, StatusCode::OK),
        ("e3", "whsec_Zm9yZ2Vk", &told, StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(post_as(id, &url, secret, now, body).await, expected);
    }
    let hold = ["hold", "--period", "2024-W11", "--reason", "not this week"];
    assert_eq!(world.digestd_with(&hold).await.code, 0);
    let missed = "insert into @runs (campaign, period, state, tick, reason) \
                  values ('metrics', '2024-W12', 'missed', 1, 'paused')";
    assert_eq!(world.ledger.execute(missed).await, 1);
    Some((world, worker, server))
}

/// Asks without the time that a client takes to be built.
async fn get(url: &str) -> reqwest::Response {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);
    CLIENT.get(url).send().await.unwrap()
}

async fn scrape(worker: &Worker) -> String {
    let answer = get(&format!("{}/metrics", worker.http().await)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    answer.text().await.unwrap()
}

/// Every metric in an exposition: its type and the names of its labels.
fn families(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut families = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let before = families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            assert_eq!(before, None, "{name} is told twice");
        } else if let Some((name, rest)) = line.split_once('{') {
            let name = base(name, |name| families.contains_key(name));
            let (_, labels) = families.get_mut(name).unwrap();
            let inside = rest.rsplit_once('}').unwrap().0;
            let names = inside.split("\",").map(|label| label.split_once('=').unwrap().0);
            labels.extend(names.filter(|name| *name != "le").map(str::to_owned));
        }
    }
    families
}

/// The metric that a series belongs to.
fn base(name: &str, is_metric: impl Fn(&str) -> bool) -> &str {
    let suffixes = ["_bucket", "_sum", "_count"].into_iter();
    let bases = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
    bases.into_iter().find(|base| is_metric(base)).unwrap_or(name)
}

/// The documents name exactly what is told, and dashboard and alerts ask for nothing else.
fn agrees_with_the_documents(families: &BTreeMap<String, (String, BTreeSet<String>)>) {
    let ours = |name: &str| name.starts_with("digestd_");
    let mut documented = BTreeMap::new();
    for line in read(TABLE).lines().filter(|line| line.starts_with("| `digestd_")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let mut labels: BTreeSet<String> =
            cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        labels.insert("campaign".to_owned());
        documented.insert(cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), labels));
    }
    let told: BTreeMap<_, _> = families
        .iter()
        .filter(|(name, _)| ours(name))
        .map(|(n, f)| (n.clone(), f.clone()))
        .collect();
    assert_eq!(documented, told, "{TABLE} and /metrics differ");
    let mut asked = 0;
    for file in [RULES, DASHBOARD, TESTS] {
        let text = read(file);
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for word in words.filter(|word| ours(word) || word.starts_with("temporal_")) {
            let name = base(word, |name| families.contains_key(name));
            assert!(families.contains_key(name), "{file} asks for {word}, which is not told");
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} names were found");
}

fn tells_what_happened(told: &str) {
    for (name, labels, value) in [
        ("attempts_total", &["class=\"recipient\"", "result=\"not_sent\""][..], 1),
        ("attempts_total", &["class=\"none\"", "result=\"accepted\""], 3),
        ("retries_total", &["class=\"rate_limited\""], 1),
        ("cleanups_total", &["result=\"done\""], 3),
        ("enqueue_to_claim_seconds_count", &[], 5),
        ("send_duration_seconds_count", &["result=\"accepted\""], 3),
        ("unknown_operations", &[], 1),
        ("dead_letters", &["class=\"recipient\""], 1),
        ("run_held", &["period=\"2024-W11\"", "reason=\"operator\""], 1),
        ("run_info", &["period=\"2024-W12\"", "state=\"missed\""], 1),
        ("webhook_requests_total", &["result=\"forged\""], 1),
        ("webhook_requests_total", &["result=\"stored\""], 3),
        ("webhook_events_total", &["result=\"new\""], 1),
        ("webhook_events_total", &["result=\"repeated\""], 1),
        ("webhook_events_total", &["result=\"unknown_key\""], 1),
    ] {
        let start = format!("digestd_{name}{{");
        let is = |line: &&str| {
            line.starts_with(&start) && labels.iter().all(|label| line.contains(label))
        };
        let lines: Vec<&str> = told.lines().filter(is).collect();
        assert_eq!(lines.len(), 1, "{name} {labels:?}: {lines:?}");
        assert!(lines[0].ends_with(&format!("}} {value}")), "not {value}: {}", lines[0]);
    }
    for private in ["@", "customer-0001", "re_secret"] {
        assert!(!told.contains(private), "{private} is told:\n{told}");
    }
}

/// The names of all alerts.
fn alerts() -> Vec<String> {
    let rules = read(RULES);
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// Every query of the dashboard, with the title of its panel.
fn queries_of_the_dashboard() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            queries.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    assert!(queries.len() > 30, "{queries:?}");
    queries
}

/// What Prometheus answers to a query; a query that it can't read fails.
async fn ask(prometheus: &Prometheus, query: &str) -> Value {
    let mut url = url::Url::parse(&format!("{}/query", prometheus.url())).unwrap();
    url.query_pairs_mut().append_pair("query", query);
    let answer = get(url.as_str()).await.text().await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    answer["data"]["result"].clone()
}
