//! What the console shows and decides.

use crate::house::{ADDRESS, CAMPAIGN, CONTENT, House, Who, hidden};
use digest_workflows::operation::State;
use digestd::http::console;
use reqwest::header::LOCATION;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn the_first_page_answers_what_somebody_who_was_woken_asks() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let page = house.page("/", &ann).await;
    for said in [
        "Did anybody get two?",
        ">No.<",
        ">in doubt</a>: may or may not have it",
        "1 could not be sent",
        "(1 rejected)",
        "1 being sent",
        "What is safe to do?",
        "/runs/2026-W42/hold",
        "/unknown?period=2026-W42",
        "/dead-letters?period=2026-W42",
        "ann",
    ] {
        assert!(page.contains(said), "{said:?} is not in {page}");
    }
}

#[tokio::test]
async fn no_page_shows_an_address_or_content_or_carries_script_of_its_own() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let unknown = house.key(1).to_string().replace('%', "%25");
    let dead = house.key(2).to_string().replace('%', "%25");
    let mut paths: Vec<String> = console::paths()
        .filter(|path| {
            !["/events", "/sign-out", "/unknown/resolve", "/dead-letters/replay"].contains(path)
        })
        .map(|path| house.fill(path))
        .collect();
    paths.push(format!("/operations/{dead}"));
    paths.push(format!("/unknown/resolve?verdict=not_delivered&key={unknown}"));
    paths.push(format!("/dead-letters/replay?how=frozen&key={dead}"));
    for path in paths {
        let page = house.page(&path, &ann).await;
        assert!(!page.contains(ADDRESS) && !page.contains(CONTENT), "{path}");
        assert!(!page.contains("style=") && !page.contains(" onclick"), "{path}");
        assert_eq!(page.matches("<script").count(), page.matches("<script src=").count(), "{path}");
        for (open, close) in [("<form", "</form>"), ("<table", "</table>"), ("<td", "</td>")] {
            assert_eq!(page.matches(open).count(), page.matches(close).count(), "{path}: {open}");
        }
    }
}

#[tokio::test]
async fn a_run_is_held_and_resumed_after_saying_what_that_does() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let held =
        async || house.ledger.run(CAMPAIGN, house.period).await.unwrap().unwrap().held_because;
    for (decision, said, after) in [
        ("hold", "no attempt begins until it is resumed", Some("wrong prices".to_owned())),
        ("resume", "the others go on", None),
    ] {
        let path = format!("/runs/2026-W42/{decision}");
        let page = house.page(&path, &ann).await;
        assert!(page.contains(said), "{page}");
        let mark = hidden(&page, "mark");
        let before = held().await;
        let answer = house.post(&path, &ann, &format!("mark={mark}&reason=+")).await;
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY, "a reason is asked for");
        assert_eq!(held().await, before);
        let answer = house.post(&path, &ann, &format!("mark={mark}&reason=wrong+prices")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(held().await, after);
    }
    let audit = house.ledger.decisions(CAMPAIGN, house.period, 0, 100).await.unwrap();
    let resumed = audit.iter().find(|line| line.transition.event == "resumed").unwrap();
    assert_eq!(resumed.transition.by, "ann");
}

#[tokio::test]
async fn a_verdict_and_a_replay_go_through_their_own_pages() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let unknown = house.key(1).to_string().replace('%', "%25");
    let ask = format!("/unknown/resolve?verdict=abandon&key={unknown}&attempt=1");
    let page = house.page(&ask, &ann).await;
    assert!(page.contains("never sent again"), "{page}");
    let form = format!(
        "mark={}&verdict=abandon&key={unknown}&attempt=1&reason=nobody+knows",
        hidden(&page, "mark")
    );
    assert_eq!(house.post("/unknown/resolve", &ann, &form).await.status(), StatusCode::OK);
    assert_eq!(house.state(1).await, State::Expired);
    let shown = house.page(&house.fill("/operations/{key}"), &ann).await;
    assert!(shown.contains("nobody knows") && shown.contains("judged"), "{shown}");

    let dead = house.key(2).to_string().replace('%', "%25");
    let page = house.page(&format!("/dead-letters/replay?how=frozen&key={dead}"), &ann).await;
    let form = format!("mark={}&how=frozen&key={dead}&reason=fixed", hidden(&page, "mark"));
    assert_eq!(house.post("/dead-letters/replay", &ann, &form).await.status(), StatusCode::OK);
    assert_eq!(house.state(2).await, State::Sending);
    // The same form again finds it not dead any more, and says so.
    let again = house.post("/dead-letters/replay", &ann, &form).await;
    assert_eq!(again.status(), StatusCode::CONFLICT);
    assert!(again.text().await.unwrap().contains("not every key can be"));
}

#[tokio::test]
async fn a_customer_or_a_key_is_found() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    for asked in ["c+1", "digest:2026-W42:c%25201"] {
        let answer = house.get(&format!("/find?q={asked}"), &ann).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{asked}");
        let to = answer.headers()[LOCATION].to_str().unwrap();
        assert!(to.starts_with("/operations/digest:2026-W42:c%2520"), "{to}");
    }
    let page = house.page("/find?q=%3Cscript%3E", &ann).await;
    assert!(page.contains("knows no operation") && !page.contains("<script>"), "{page}");
}

#[tokio::test]
async fn a_canary_in_doubt_is_found_with_its_customer_and_resolved_and_never_replayed() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let key = house.canary_in_doubt().await;
    let path = key.to_string().replace('%', "%25");
    let found = house.page("/find?q=c+1", &ann).await;
    assert!(found.contains(&format!("/operations/{path}")), "{found}");
    let (_, of) = house.api(Method::GET, "/operations?customer=c+1", None).await;
    assert_eq!(of["operations"][1]["key"], key.to_string());
    let page = house.page(&format!("/operations/{path}"), &ann).await;
    assert!(page.contains("value=\"abandon\""), "{page}");
    assert!(!page.contains("/runs/2026-W42"), "its run is no run of the campaign: {page}");
    let list = house.page("/unknown", &ann).await;
    assert!(!list.contains(&key.to_string()), "it is in no list of the campaign: {list}");
    let replay = json!({"period": "2026-W42", "keys": [key.to_string()], "reason": "x"});
    let (status, _) = house.api(Method::POST, "/dead-letters/replay", Some(replay)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let mark = hidden(&page, "mark");
    let form = format!("mark={mark}&verdict=abandon&key={path}&attempt=1&reason=a+test");
    assert_eq!(house.post("/unknown/resolve", &ann, &form).await.status(), StatusCode::OK);
    let state = house.ledger.operation(&key).await.unwrap().operation.state;
    assert_eq!(state, State::Expired);
}

#[tokio::test]
async fn news_reach_a_page_that_is_open() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let mut events = house.get("/events", &ann).await;
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    let mut told = async |what: &str| {
        let waiting = async {
            let mut text = String::new();
            while !text.contains(what) {
                let chunk = events.chunk().await.unwrap().expect("the stream goes on");
                text.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.expect(what);
    };
    // The first look at the ledger.
    told("event: changed").await;
    let actor = digest_activities::ledger::Actor::part("test");
    house.ledger.hold(CAMPAIGN, house.period, "wrong prices", actor).await.unwrap();
    told("event: changed").await;
}

#[tokio::test]
async fn signing_out_ends_the_session_in_the_browser() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    let mark = hidden(&house.page("/", &ann).await, "mark");
    let answer = house.post("/sign-out", &ann, &format!("mark={mark}")).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("Max-Age=0"), "{cookie}");
    let denied = house.post("/sign-in", &Who::Nobody, "token=wrong&name=ann").await;
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
}
