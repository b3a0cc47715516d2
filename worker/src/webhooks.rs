//! Webhooks: what a provider tells by itself, on a listener of its own, behind which nothing else of
//! digestd can be reached.
//!
//! An event is stored before it is answered, and told to its operation afterwards: a provider that
//! gets no answer sends it again, and one that gets a 2xx never does.

mod inbox;
mod store;

use crate::serve::{Limits, in_turns, serve};
use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::post;
use digest_activities::ledger::Ledger;
use digest_activities::metrics::Metrics;
use digest_activities::webhook::{Received, Refused, Seldom, Webhook};
use digest_workflows::operation::Rules;
use inbox::Inbox;
use jiff::Timestamp;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use temporalio_client::Client;
use tokio::task::JoinHandle;

/// No event, and no batch of them, is longer.
const BODY_BYTES_MAX: usize = 1_000_000;

/// A request that is still not whole, or not stored, after this long is given up.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// How many requests are read and stored at once; with the longest bodies they take 64 MB.
const REQUESTS_MAX: usize = 64;

const LIMITS: Limits = Limits {
    connections: 256,
    head: Duration::from_secs(10),
    connection: Duration::from_mins(1),
    last_request: Duration::from_secs(15),
};

/// What the webhooks need.
pub struct Webhooks {
    /// Where they listen.
    pub listen: SocketAddr,
    /// How the configured provider tells.
    pub webhook: Arc<dyn Webhook>,
    /// Where events are stored.
    pub ledger: Ledger,
    /// Whose workflows are told.
    pub client: Client,
    /// The rules that events are judged by.
    pub rules: Rules,
    /// What counts them.
    pub metrics: Arc<Metrics>,
}

/// The listener and the tasks behind it; they end with this value.
pub struct Listening(Vec<JoinHandle<()>>);

impl Drop for Listening {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

#[derive(Clone)]
struct Receiving {
    webhook: Arc<dyn Webhook>,
    store: Store,
    refusals: Arc<Seldom>,
    metrics: Arc<Metrics>,
}

impl Webhooks {
    /// Listens, and tells what was stored and not told before.
    ///
    /// # Errors
    /// When the address is taken, or is not one of this machine.
    pub async fn start(self) -> anyhow::Result<Listening> {
        let listener = tokio::net::TcpListener::bind(self.listen).await.with_context(|| {
            format!(
                "cannot listen for webhooks on {}; set [webhooks] listen to a free address",
                self.listen
            )
        })?;
        let address = listener.local_addr().unwrap_or(self.listen);
        tracing::info!(%address, path = format!("/webhooks/{}", self.webhook.kind()), "webhooks");
        let (kind, metrics) = (self.webhook.kind(), self.metrics);
        metrics.expect_webhooks(kind);
        let inbox = Inbox::new(self.ledger.clone(), self.client, self.rules, Arc::clone(&metrics));
        let (store, storing) = Store::new(self.ledger, kind, inbox.bell(), Arc::clone(&metrics));
        let refusals = Arc::default();
        let app = router(Receiving { webhook: self.webhook, store, refusals, metrics });
        let serving = tokio::spawn(serve(listener, app, LIMITS));
        Ok(Listening(vec![serving, storing, tokio::spawn(inbox.run())]))
    }
}

fn router(receiving: Receiving) -> Router {
    let app = Router::new()
        .route("/webhooks/{provider}", post(receive))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(receiving);
    in_turns(app, REQUESTS_MAX, REQUEST_TIME_MAX)
}

async fn receive(
    State(receiving): State<Receiving>,
    Path(provider): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    if provider != receiving.webhook.kind() {
        return (StatusCode::NOT_FOUND, "no such webhook\n");
    }
    let query = uri.query().unwrap_or_default();
    let request = Received { query, headers: &headers, body: &body, now: Timestamp::now() };
    let events = match receiving.webhook.read(&request).await {
        Ok(events) => events,
        Err(refused) => {
            receiving.metrics.webhook_request(receiving.webhook.kind(), refused.name());
            if let Some(count) = receiving.refusals.count(Instant::now()) {
                tracing::warn!(provider, count, last = %refused, "webhooks were refused");
            }
            return match refused {
                Refused::Malformed => (StatusCode::BAD_REQUEST, "not an event\n"),
                Refused::NotNow => (StatusCode::SERVICE_UNAVAILABLE, "send it again\n"),
                _ => (StatusCode::UNAUTHORIZED, "not genuine\n"),
            };
        }
    };
    // A request that only asks for something, such as a confirmation, tells of no event.
    let stored = events.is_empty() || receiving.store.store(events).await;
    let result = if stored { "stored" } else { "not_stored" };
    receiving.metrics.webhook_request(receiving.webhook.kind(), result);
    if stored {
        (StatusCode::OK, "stored\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not stored; send it again\n")
    }
}
