//! Every route, for everybody who might ask.

use crate::house::{House, TOKEN, Who};
use digest_workflows::operation::State;
use digestd::http::{api, console};
use reqwest::header::LOCATION;
use reqwest::{Method, StatusCode};

const WRONG: &str = "not the token at all";

/// Every method and path that the API's document has.
fn api_routes() -> Vec<(Method, String)> {
    let document = serde_json::to_value(api::document()).unwrap();
    let mut routes = vec![(Method::GET, "/api/v1/openapi.json".to_owned())];
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            routes.push((method.to_uppercase().parse().unwrap(), path.clone()));
        }
    }
    assert!(routes.len() > 10, "{routes:?}");
    routes
}

#[tokio::test]
async fn the_api_lets_in_the_token_alone() {
    let house = House::with_token().await;
    let session = house.sign_in("ann").await;
    for (method, route) in api_routes() {
        let path = house.fill(&route);
        for who in [Who::Nobody, session.clone()] {
            let answer = house.request(method.clone(), &path, &who).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{method} {path} by {who:?}");
            assert!(answer.headers().contains_key("www-authenticate"));
            assert_eq!(answer.headers()["content-type"], "application/problem+json");
        }
        let answer = house.request(method.clone(), &path, &Who::Token(TOKEN)).send().await.unwrap();
        let status = answer.status();
        let is_known =
            ![StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED]
                .contains(&status);
        assert!(is_known && !status.is_server_error(), "{method} {path}: {status}");
    }
    nothing_has_changed(&house).await;
}

#[tokio::test]
async fn a_wrong_token_opens_nothing_and_slows_down_whoever_tries() {
    // Each in a house of its own, where nobody has tried before.
    for (method, route) in api_routes() {
        let house = House::with_token().await;
        let path = house.fill(&route);
        let try_it =
            async || house.request(method.clone(), &path, &Who::Token(WRONG)).send().await.unwrap();
        assert_eq!(try_it().await.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
    }
    let house = House::with_token().await;
    let mut last = house.get("/api/v1/runs", &Who::Token(WRONG)).await;
    for _ in 0..6 {
        last = house.get("/api/v1/runs", &Who::Token(WRONG)).await;
    }
    assert_eq!(last.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = last.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait >= 1);
    nothing_has_changed(&house).await;
}

#[tokio::test]
async fn the_console_sends_strangers_to_sign_in_and_changes_nothing_without_the_mark() {
    let house = House::with_token().await;
    let (ann, bob) = (house.sign_in("ann").await, house.sign_in("bob").await);
    let theirs = crate::house::hidden(&house.page("/runs/2026-W42/hold", &bob).await, "mark");
    for route in console::paths() {
        let path = house.fill(route);
        for method in [Method::GET, Method::POST] {
            // The token is for the API; a browser would send it nowhere by itself.
            for who in [Who::Nobody, Who::Token(TOKEN), Who::Session("digestd=1.2.3.4".into())] {
                let answer = house.request(method.clone(), &path, &who).send().await.unwrap();
                if path == "/events" {
                    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
                    continue;
                }
                assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{method} {path} by {who:?}");
                let to = answer.headers()[LOCATION].to_str().unwrap();
                assert!(to.starts_with("/sign-in?next=%2F"), "{to}");
            }
        }
        for mark in ["", "mark=", "mark=x", &format!("mark={theirs}")] {
            let form = format!("{mark}&reason=because&key={}&verdict=delivered", house.key(1));
            let status = house.post(&path, &ann, &form).await.status();
            let refused = [StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED];
            assert!(refused.contains(&status), "{path} with {mark:?}: {status}");
        }
    }
    nothing_has_changed(&house).await;
}

#[tokio::test]
async fn without_a_token_everybody_here_may_look_and_nobody_change() {
    let house = House::build(None).await;
    for route in console::paths().filter(|path| !["/sign-out", "/events"].contains(path)) {
        let path = house.fill(route);
        let status = house.get(&path, &Who::Nobody).await.status();
        // What lacks its fields is told so.
        assert!(
            status == StatusCode::OK || status == StatusCode::UNPROCESSABLE_ENTITY,
            "{path}: {status}"
        );
        let status = house.post(&path, &Who::Nobody, "reason=because").await.status();
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::METHOD_NOT_ALLOWED];
        assert!(refused.contains(&status), "{path}: {status}");
        let answer = house.request(Method::GET, &path, &Who::Nobody).header("host", "evil.example");
        assert_eq!(
            answer.send().await.unwrap().status(),
            StatusCode::MISDIRECTED_REQUEST,
            "{path}"
        );
    }
    let answer = house.get("/api/v1/runs", &Who::Token(TOKEN)).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    nothing_has_changed(&house).await;
}

#[tokio::test]
async fn every_answer_keeps_a_browser_to_this_page() {
    let house = House::with_token().await;
    let ann = house.sign_in("ann").await;
    for (path, who) in [
        ("/", &ann),
        ("/sign-in", &Who::Nobody),
        ("/nowhere", &ann),
        ("/assets/console.js", &Who::Nobody),
        ("/api/v1/runs", &Who::Token(TOKEN)),
        ("/api/v1/runs", &Who::Nobody),
    ] {
        let answer = house.get(path, who).await;
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(answer.headers()["x-frame-options"], "DENY", "{path}");
        assert!(answer.headers().contains_key("cache-control"), "{path}");
    }
}

async fn nothing_has_changed(house: &House) {
    for (customer, state) in
        [(1, State::Unknown), (2, State::Dead), (3, State::Cleaned), (4, State::Selected)]
    {
        assert_eq!(house.state(customer).await, state, "customer {customer}");
    }
    let run = house.ledger.run(crate::house::CAMPAIGN, house.period).await.unwrap().unwrap();
    assert_eq!((run.held_since, run.cancelled_at), (None, None));
}
