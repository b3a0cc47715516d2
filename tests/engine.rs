//! The engine against a real Temporal server: start, crash and restart, connecting and its errors,
//! search attributes, the schedule, and fetching the Temporal CLI.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests fail by panicking and report on the console"
)]

mod engine {
    mod fetch;
    mod schedule;
    mod server;
    mod settings;
}

use digestd::engine::binary::{Binary, Search};
use digestd::engine::connection::{Address, Target};
use digestd::engine::server::{DevServer, ServerOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The Temporal CLI, or one line that says what was not tested.
async fn binary() -> Option<Binary> {
    match Search::from_env().find(&|_| {}).await {
        Ok(binary) => Some(binary),
        Err(error) => absent("everything that needs a Temporal server", &error.to_string()),
    }
}

/// Reports an absent part of this machine, which is a failure where everything is required.
fn absent<T>(untested: &str, cure: &str) -> Option<T> {
    assert!(
        std::env::var_os("DIGESTD_TEST_REQUIRE_ALL").is_none_or(|value| value != "1"),
        "not tested: {untested}; {cure}"
    );
    eprintln!("not tested: {untested}; {cure}");
    None
}

/// A server of one test's own.
async fn server(file: Option<PathBuf>, search_attributes: bool) -> Option<DevServer> {
    let binary = binary().await?;
    let options = ServerOptions { binary, file, ui: false, search_attributes };
    Some(DevServer::start(options).await.unwrap())
}

/// A target in the namespace `default` of a server.
fn target(server: &DevServer) -> Target {
    Target {
        address: Address::Local(server.address()),
        namespace: Some("default".to_owned()),
        identity: "a test".to_owned(),
        search_attributes: true,
    }
}

/// Asks until there is an answer, for at most half a minute.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "never saw {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
