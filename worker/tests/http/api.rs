//! What the API reads and decides.

use crate::house::{ADDRESS, CAMPAIGN, CONTENT, House, TOKEN, Who};
use digest_activities::audit::books::differences;
use digest_activities::ledger::Actor;
use digest_workflows::operation::{Period, Rules, State};
use digestd::http::api;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;

#[tokio::test]
async fn runs_and_operations_are_read_as_the_commands_print_them() {
    let house = House::with_token().await;
    let (status, runs) = house.api(Method::GET, "/runs", None).await;
    assert_eq!(status, StatusCode::OK);
    let run = &runs["runs"][0];
    assert_eq!(run["period"], "2026-W42");
    let counts = ["selected", "to_send", "unknown", "sent", "cleaned", "dead"];
    assert_eq!(counts.map(|name| run[name].as_u64().unwrap()), [4, 1, 1, 1, 1, 1]);
    assert!(run["answered_per_minute"].as_u64().unwrap() > 0);

    let (_, printed) = house.api(Method::GET, "/runs/2026-W42", None).await;
    let status = house.ledger.status(CAMPAIGN, house.period).await.unwrap();
    assert_eq!(printed["classes"], serde_json::to_value(&status).unwrap()["classes"]);

    let (_, unknown) = house.api(Method::GET, "/unknown?period=2026-W42", None).await;
    assert_eq!(unknown["operations"][0]["key"], house.key(1).to_string());
    assert_eq!(unknown["operations"][0]["attempt"], 1);

    let (_, dead) = house.api(Method::GET, "/dead-letters?class=rejected", None).await;
    assert_eq!(dead["operations"][0]["key"], house.key(2).to_string());
    let (_, none) = house.api(Method::GET, "/dead-letters?class=recipient", None).await;
    assert_eq!(none["operations"], json!([]));

    let (_, shown) = house.api(Method::GET, &house.fill("/operations/{key}"), None).await;
    assert_eq!(shown["state"], "unknown");
    assert!(shown["ui_url"].as_str().unwrap().contains("/workflows/digest:2026-W42:c%2520"));
    let (_, of) = house.api(Method::GET, "/operations?customer=c+1", None).await;
    assert_eq!(of["operations"][0], shown);
}

#[tokio::test]
async fn lists_are_paged_by_key_and_lose_nothing() {
    let house = House::with_token().await;
    let (next, actor) = (Period::parse("2026-W43").unwrap(), Actor::part("test"));
    house.ledger.hold(CAMPAIGN, next, "early", actor).await.unwrap();
    let mut seen = Vec::new();
    let mut path = "/runs?limit=1".to_owned();
    loop {
        let (_, page) = house.api(Method::GET, &path, None).await;
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["period"].clone()));
        match page["next"].as_str() {
            Some(next) => path = format!("/runs?limit=1&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["2026-W43", "2026-W42"]);
}

#[tokio::test]
async fn a_run_is_held_resumed_and_cancelled_and_a_dry_run_changes_nothing() {
    let house = House::with_token().await;
    let decide = async |what: &str, dry_run: bool| {
        let body = json!({"reason": "wrong prices", "by": "ann", "dry_run": dry_run});
        let path = format!("/runs/2026-W42/{what}");
        let (status, answer) = house.api(Method::POST, &path, Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["result"].as_str().unwrap().to_owned()
    };
    let held = async || {
        let run = house.ledger.run(CAMPAIGN, house.period).await.unwrap().unwrap();
        run.held_since.is_some()
    };
    assert_eq!(decide("hold", true).await, "would");
    assert!(!held().await);
    assert_eq!(decide("hold", false).await, "done");
    assert!(held().await);
    assert_eq!(decide("hold", false).await, "already");
    assert_eq!(decide("resume", true).await, "would");
    assert!(held().await);
    assert_eq!(decide("resume", false).await, "done");
    assert_eq!(decide("resume", false).await, "already");
    assert_eq!(decide("cancel", true).await, "would");
    assert_eq!(house.state(4).await, State::Selected);
    assert_eq!(decide("cancel", false).await, "done");
    assert_eq!(house.state(4).await, State::Suppressed);
    assert_eq!(house.state(1).await, State::Unknown, "what is in doubt keeps its course");
    let audit = house.ledger.decisions(CAMPAIGN, house.period, 0, 100).await.unwrap();
    for event in ["held", "resumed", "cancelled"] {
        let line = audit.iter().find(|line| line.transition.event == event).unwrap();
        assert_eq!(line.transition.by, "ann", "{event}");
        assert_eq!(line.transition.reason.as_deref(), Some("wrong prices"), "{event}");
    }
}

#[tokio::test]
async fn a_verdict_is_recorded_once_and_names_the_newest_attempt() {
    let house = House::with_token().await;
    let say = async |body: Value| house.api(Method::POST, "/unknown/resolve", Some(body)).await;
    let key = house.key(1).to_string();
    let verdict = json!({"keys": [key], "verdict": "abandon", "attempt": 2, "reason": "no log"});
    let (status, problem) = say(verdict.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["refused"][0]["why"].as_str().unwrap().contains("newest"), "{problem}");
    let mut right = verdict;
    right["attempt"] = json!(1);
    let (_, done) = say(right.clone()).await;
    assert_eq!(done["results"][0]["result"], "done");
    assert_eq!(house.state(1).await, State::Expired);
    let (status, again) = say(right).await;
    assert_eq!((status, &again["results"][0]["result"]), (StatusCode::OK, &json!("already")));
    // Nothing else was ever in doubt.
    let keys = [house.key(2).to_string(), house.key(3).to_string()];
    let (status, _) = say(json!({"keys": keys, "verdict": "not_delivered", "reason": "x"})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(house.state(3).await, State::Cleaned);
}

#[tokio::test]
async fn dead_letters_are_replayed_all_or_none() {
    let house = House::with_token().await;
    let replay = async |keys: &[String], dry_run: bool| {
        let body = json!({
            "period": "2026-W42", "keys": keys, "reason": "fixed", "dry_run": dry_run,
        });
        house.api(Method::POST, "/dead-letters/replay", Some(body)).await
    };
    let (dead, cleaned) = (house.key(2).to_string(), house.key(3).to_string());
    let (status, problem) = replay(&[dead.clone(), cleaned.clone()], false).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(problem["refused"][0]["key"], cleaned);
    assert_eq!(house.state(2).await, State::Dead);
    let (_, would) = replay(std::slice::from_ref(&dead), true).await;
    assert_eq!(would["results"][0]["result"], "would");
    assert_eq!(house.state(2).await, State::Dead);
    let (_, done) = replay(std::slice::from_ref(&dead), false).await;
    assert_eq!(done["results"][0]["result"], "done");
    assert_eq!(house.state(2).await, State::Sending);
    let many: Vec<String> = (1..=4).map(|n| house.key(n).to_string()).collect();
    let (status, problem) = replay(&many, false).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(problem["detail"].as_str().unwrap().contains("max_keys = 3"), "{problem}");
}

#[tokio::test]
async fn an_operation_is_published_once_under_its_key() {
    let house = House::with_token().await;
    let publish = async |body: Value| house.api(Method::POST, "/operations", Some(body)).await;
    let new = json!({"customer": "new", "period": "2026-W42"});
    let (status, shown) = publish(new.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{shown}");
    assert_eq!(
        (&shown["state"], &shown["key"]),
        (&json!("selected"), &json!("digest:2026-W42:new"))
    );
    assert!(!shown["enqueued_at"].is_null());
    let (status, again) = publish(new.clone()).await;
    assert_eq!((status, again), (StatusCode::OK, shown));
    let mut other = new;
    other["rows"] = json!([{"title": CONTENT}]);
    let (status, problem) = publish(other.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");

    // With rows of its own, the same rows are the same, and others are not.
    other["customer"] = json!("newer");
    assert_eq!(publish(other.clone()).await.0, StatusCode::CREATED);
    assert_eq!(publish(other.clone()).await.0, StatusCode::OK);
    other["rows"] = json!([{"title": "a sofa"}]);
    assert_eq!(publish(other).await.0, StatusCode::CONFLICT);

    let run = house.ledger.run(CAMPAIGN, house.period).await.unwrap().unwrap();
    assert_eq!(run.selected, 6);
    let rules = Rules::default();
    let page = house.ledger.audit_page(CAMPAIGN, house.period, None, 100).await.unwrap();
    for entry in &page.entries {
        let differences = differences(entry, &page.run, &rules, page.now);
        assert!(differences.is_empty(), "{differences:?}");
    }
}

#[tokio::test]
async fn nothing_is_published_where_it_could_not_be_sent_or_would_be_sent_twice() {
    let house = House::with_token().await;
    let publish = async |customer: &str, period: &str| {
        let body = json!({"customer": customer, "period": period});
        let (status, problem) = house.api(Method::POST, "/operations", Some(body)).await;
        (status.as_u16(), problem["detail"].as_str().unwrap_or_default().to_owned())
    };
    let (status, said) = publish("new", "2026-W41").await;
    assert!(status == 409 && said.contains("digestd run"), "{status} {said}");
    let (status, said) = publish("nobody", "2026-W42").await;
    assert!(status == 422 && said.contains("no such customer"), "{status} {said}");
    let (status, said) = publish(ADDRESS, "2026-W42").await;
    assert!(status == 422 && said.contains("'@'"), "{status} {said}");
    let actor = Actor::part("test");
    let rules = Rules::default();
    house.ledger.cancel(CAMPAIGN, house.period, &rules, actor).await.unwrap();
    let (status, said) = publish("new", "2026-W42").await;
    assert!(status == 409 && said.contains("cancelled"), "{status} {said}");
}

#[tokio::test]
async fn what_cannot_be_used_is_told_without_quoting_it() {
    let house = House::with_token().await;
    let hold = |reason: &str| json!({"reason": reason});
    for (path, body, status, said) in [
        ("/runs/2026-W42/hold", hold(&format!("asked by {ADDRESS}")), 422, "contains '@'"),
        ("/runs/2026-W42/hold", hold("x\0"), 422, "NUL"),
        ("/runs/2026-W42/hold", hold(" "), 422, "reason: write something"),
        ("/runs/2026-W42/hold", json!({"reason": "x", "why": ADDRESS}), 422, "openapi.json"),
        ("/runs/2026-W99/hold", hold("x"), 400, "2026"),
        ("/runs/2026-W41/resume", hold("x"), 404, "knows no run"),
        (
            "/unknown/resolve",
            json!({"keys": [ADDRESS], "verdict": "abandon", "reason": "x"}),
            422,
            "neither",
        ),
        (
            "/unknown/resolve",
            json!({"keys": [], "verdict": "abandon", "reason": "x"}),
            422,
            "no key",
        ),
        (
            "/unknown/resolve",
            json!({"keys": ["other:2026-W42:c"], "verdict": "abandon", "reason": "x"}),
            422,
            "not of the campaign",
        ),
    ] {
        let (got, problem) = house.api(Method::POST, path, Some(body)).await;
        assert_eq!(got.as_u16(), status, "{path}: {problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().contains(said), "{path}: {problem}");
    }
    let (status, _) = house.api(Method::GET, "/operations/digest:2026-W42:nobody", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, problem) = house.api(Method::GET, "/nothing/here", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(problem["detail"].as_str().unwrap().contains("openapi.json"));
    let (status, _) = house.api(Method::GET, "/runs?limt=3", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for (path, said) in [
        ("/runs?limit=0", "between 1 and 60"),
        ("/unknown?limit=501", "between 1 and 500"),
        ("/unknown?after=ann@shop.example", "after: this is neither"),
        ("/dead-letters?after=x", "after: this is neither"),
        ("/operations/ann@shop.example", "the path: this is neither"),
    ] {
        let (status, problem) = house.api(Method::GET, path, None).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{path}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(said) && !detail.contains("ann"), "{path}: {problem}");
    }
    let (status, found) = house.api(Method::GET, "/operations?customer=a%00b", None).await;
    assert_eq!((status, &found["operations"]), (StatusCode::OK, &json!([])));
}

/// `DIGESTD_TEST_WRITE=1` writes it anew.
#[tokio::test]
async fn the_document_that_is_checked_in_is_the_one_that_is_served() {
    let house = House::with_token().await;
    let served = house.page("/api/v1/openapi.json", &Who::Token(TOKEN)).await;
    let served: Value = serde_json::from_str(&served).unwrap();
    let made = serde_json::to_value(api::document()).unwrap();
    assert_eq!(served, made);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let text = serde_json::to_string_pretty(&made).unwrap() + "\n";
    if std::env::var_os("DIGESTD_TEST_WRITE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).expect("docs/openapi.json is checked in");
    assert!(
        kept == text,
        "docs/openapi.json is not what the code says; write it anew with \
         `DIGESTD_TEST_WRITE=1 cargo test -p digestd --test http the_document`"
    );
}

/// Every key of an answer is in the document, and every key that the document requires in the answer.
#[tokio::test]
async fn answers_are_shaped_as_the_document_says() {
    let house = House::with_token().await;
    let document = serde_json::to_value(api::document()).unwrap();
    for (path, schema) in [
        ("/runs", "RunListing"),
        ("/runs/2026-W42", "RunStatus"),
        ("/unknown", "Listing"),
        ("/dead-letters", "Listing"),
        ("/nothing", "Problem"),
    ] {
        let (_, answer) = house.api(Method::GET, path, None).await;
        fits(&document, &document["components"]["schemas"][schema], &answer, path);
    }
    let (_, shown) = house.api(Method::GET, &house.fill("/operations/{key}"), None).await;
    fits(&document, &document["components"]["schemas"]["Shown"], &shown, "an operation");
}

fn fits(document: &Value, schema: &Value, answer: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return fits(document, &document["components"]["schemas"][name], answer, at);
    }
    match answer {
        Value::Object(fields) if schema["properties"].is_object() => {
            for (name, value) in fields {
                let of = &schema["properties"][name];
                assert!(!of.is_null(), "{at}: {name} is not in the document");
                fits(document, of, value, &format!("{at}.{name}"));
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(fields.contains_key(name.as_str().unwrap()), "{at}: {name} is missing");
            }
        }
        Value::Array(items) => {
            for item in items {
                fits(document, &schema["items"], item, &format!("{at}[]"));
            }
        }
        _ => {}
    }
}
