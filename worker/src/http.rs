//! The worker's own HTTP: health checks and metrics, which ask nobody who they are, and API and console,
//! which do.

pub mod access;
pub mod api;
pub mod console;
mod decisions;
mod desk;
mod problem;

pub use console::Watch;
pub use desk::{Desk, Shared};
pub use problem::Problem;

use crate::metrics::Exposition;
use crate::serve::{Limits, serve};
use anyhow::Context;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use digest_activities::ledger::Ledger;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long the ledger may take to tell the time.
const PATIENCE: Duration = Duration::from_secs(2);
/// What those who reach it may cost.
const LIMITS: Limits = Limits {
    connections: 512,
    head: Duration::from_secs(10),
    // Beyond it, a page that is open asks for its events again.
    connection: Duration::from_hours(1),
    last_request: Duration::from_secs(15),
};
/// The format of Prometheus, as its documentation of exposition formats names it.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the answers come from.
#[derive(Clone)]
pub struct Http {
    /// What API and console stand on; its ledger is asked whether it answers.
    pub desk: Shared,
    /// Whether the worker is draining.
    pub drain: watch::Receiver<bool>,
    /// The metrics.
    pub exposition: Arc<Exposition>,
    /// What tells the console's pages that there is news.
    pub watch: Arc<Watch>,
}

/// Takes `[http] listen`, before anything that is given a port by chance could have it.
///
/// # Errors
/// When the address is taken, or is not one of this machine.
pub async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("cannot listen on {listen}; set [http] listen to a free address")
    })?;
    let address = listener.local_addr().unwrap_or(listen);
    tracing::info!(%address, console = format!("http://{address}/"), "health checks, API and console");
    Ok(listener)
}

impl Http {
    /// Answers on `listener`, in a task of its own.
    #[must_use]
    pub fn serve(self, listener: TcpListener) -> JoinHandle<()> {
        tokio::spawn(serve(listener, self.router(), LIMITS))
    }

    fn router(self) -> Router {
        let people = people(Arc::clone(&self.desk), Arc::clone(&self.watch));
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self)
            .merge(people)
    }
}

/// API and console. Requests have to carry where they come from, as axum's `ConnectInfo`.
pub fn people(desk: Shared, watch: Arc<Watch>) -> Router {
    console::router(&desk, watch)
        .merge(api::router(&desk))
        .layer(from_fn(guarded))
        .layer(from_fn(to_the_end))
        .with_state(desk)
}

/// What a browser may do with any answer: nothing but show it, from here alone (OWASP, secure headers).
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // With more, a link to Temporal's web UI would tell it a customer's key.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// A decision that was begun is taken to its end, also if whoever asked for it has gone meanwhile.
async fn to_the_end(request: Request, next: Next) -> Response {
    tokio::spawn(next.run(request)).await.unwrap_or_else(|_| {
        let detail = "a defect of digestd: the request was not answered; its log says where";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
    })
}

async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // What is shown is today's, and nobody else's.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Ready to begin attempts: not draining, and the ledger answers.
async fn ready(State(http): State<Http>) -> (StatusCode, &'static str) {
    if *http.drain.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    if answers(&http.desk.ledger).await {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the ledger does not answer\n")
    }
}

async fn metrics(State(http): State<Http>) -> Response {
    let ledger_is_up = answers(&http.desk.ledger).await;
    match http.exposition.text(ledger_is_up).await {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            (StatusCode::INTERNAL_SERVER_ERROR, "the log says why\n").into_response()
        }
    }
}

async fn answers(ledger: &Ledger) -> bool {
    matches!(tokio::time::timeout(PATIENCE, ledger.now()).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests;
