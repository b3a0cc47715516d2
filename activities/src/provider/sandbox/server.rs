//! The sandbox's HTTP server, on loopback in this process.
//!
//! `POST /v1/messages` takes a message, `GET /v1/messages?key=` looks one up, `GET /v1/acceptances`
//! and `GET /v1/requests` are the witness, `GET /v1/health` tells the contract.

use super::SandboxProvider;
use super::answer::{Plain, retry_after, spoil};
use super::behaviour::{Behaviour, BehaviourError};
use super::faults::{FaultKind, FaultScript};
use super::journal::{Closed, Journal, JournalError, Taken};
use super::line::{Line, LineListener};
use super::wire::{
    Acceptances, Accepted, Health, KEY_BYTES_MAX, KEY_HEADER, NewMessage, PAGE, Requests, code,
};
use super::witness::Witness;
use crate::provider::exchange::BODY_BYTES_MAX;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use data_encoding::HEXLOWER;
use digest_workflows::operation::{Lookup, Replay};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long [`Sandbox::stop`] waits for answers that are under way.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// A running sandbox. Dropping it stops it at once.
#[derive(Debug)]
pub struct Sandbox {
    address: SocketAddr,
    log: Option<PathBuf>,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It would be reachable from other machines, and it asks nobody for credentials.
    #[error("the sandbox listens on loopback only, not on {0}; use 127.0.0.1:0")]
    NotLoopback(SocketAddr),
    /// The address cannot be listened on.
    #[error("the sandbox cannot listen on {address}: {error}; choose another port, or 0 for any")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The behaviour is not usable.
    #[error(transparent)]
    Behaviour(#[from] BehaviourError),
    /// The log is not usable.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Sandbox {
    /// Starts a sandbox in this process, on `listen` (port 0 takes any free one), inside the
    /// current Tokio runtime. With a `log` it remembers what that file holds, so that a killed
    /// process loses neither keys nor acceptances; without one it remembers nothing from before.
    ///
    /// # Errors
    /// [`SandboxError`], which says what to change.
    pub async fn start(
        behaviour: Behaviour,
        listen: SocketAddr,
        log: Option<PathBuf>,
    ) -> Result<Self, SandboxError> {
        behaviour.validate()?;
        if !listen.ip().is_loopback() {
            return Err(SandboxError::NotLoopback(listen));
        }
        let journal = Journal::open(log.as_deref())?;
        Self::listen(behaviour, listen, log, journal).await
    }

    /// Starts a sandbox on any port of loopback that answers look-ups from the `log` that another
    /// sandbox writes to, perhaps at this moment. It accepts no message and writes nothing.
    ///
    /// # Errors
    /// [`SandboxError`], which says what to change.
    pub async fn follow(behaviour: Behaviour, log: PathBuf) -> Result<Self, SandboxError> {
        behaviour.validate()?;
        let journal = Journal::follow(&log)?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::listen(behaviour, any, Some(log), journal).await
    }

    async fn listen(
        behaviour: Behaviour,
        listen: SocketAddr,
        log: Option<PathBuf>,
        journal: Journal,
    ) -> Result<Self, SandboxError> {
        let journal = Mutex::new(journal);
        let failed = |error| SandboxError::Listen { address: listen, error };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared { behaviour, journal, stopping: watch::Sender::new(false) });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { address, log, shared, server })
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that it accepted and was asked so far.
    #[must_use]
    pub fn witness(&self) -> Witness {
        self.shared.journal().witness().clone()
    }

    /// An adapter for this sandbox that knows its contract. Its account is the log file where there
    /// is one, since that is what it remembers by, and the port may change with each start.
    #[must_use]
    pub fn provider(&self) -> SandboxProvider {
        let account = match &self.log {
            Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            None => PathBuf::from(self.url()),
        };
        let account = account.to_string_lossy();
        SandboxProvider::at(self.address, &account, self.shared.behaviour.contract)
    }

    /// Stops listening, lets the answers under way go out, cuts what hangs, and closes the log.
    pub async fn stop(mut self) {
        self.shared.stopping.send_replace(true);
        if tokio::time::timeout(STOP_TIME_MAX, &mut self.server).await.is_err() {
            self.server.abort();
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.shared.stopping.send_replace(true);
        self.server.abort();
        // Messages still being processed are never accepted, as if the process had ended.
        self.shared.journal().close();
    }
}

#[derive(Debug)]
struct Shared {
    behaviour: Behaviour,
    journal: Mutex<Journal>,
    stopping: watch::Sender<bool>,
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        // No panic leaves the journal half changed: it is changed after the file is.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the journal where waiting for the disk holds up nobody. Once begun it ends,
    /// also when the caller is dropped.
    async fn with_journal<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Journal, &Behaviour) -> Result<T, Closed> + Send + 'static,
    ) -> Result<T, Closed> {
        let shared = Arc::clone(self);
        let work = move || work(&mut shared.journal(), &shared.behaviour);
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Closed))
    }

    async fn stopped(&self) {
        self.stopping.subscribe().wait_for(|stopping| *stopping).await.ok();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let app = Router::new()
        .route("/v1/messages", post(send).get(look_up))
        .route("/v1/acceptances", get(acceptances))
        .route("/v1/requests", get(requests))
        .route("/v1/health", get(health))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(&shared))
        .into_make_service_with_connect_info::<Line>();
    let stopped = async move { shared.stopped().await };
    // Its errors are those of the listener, which has none.
    axum::serve(LineListener(listener), app).with_graceful_shutdown(stopped).await.ok();
}

async fn send(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let (key, body) = match well_formed(&headers, body) {
        Ok(message) => message,
        Err(refusal) => return refusal.into_response(),
    };
    // As at any provider, a message whose client has gone is processed to the end.
    let work = tokio::spawn(process(Arc::clone(&shared), key, body));
    let (plain, spoilt) = work.await.unwrap_or_else(|_| (Plain::internal(), None));
    let late = shared.behaviour.faults.late_answer.unsigned_abs();
    spoil(plain, spoilt, &line, late, shared.stopped()).await
}

/// The key and body of a request that the documentation allows.
fn well_formed(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(String, Bytes), Plain> {
    let invalid = || Plain::refusal(StatusCode::BAD_REQUEST, code::INVALID_REQUEST);
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Plain::refusal(StatusCode::PAYLOAD_TOO_LARGE, code::TOO_LARGE)
        }
        _ => invalid(),
    })?;
    let key = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok()).ok_or_else(invalid)?;
    let message: NewMessage = serde_json::from_slice(&body).map_err(|_| invalid())?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX || message.to.reveal().is_empty() {
        return Err(invalid());
    }
    Ok((key.to_owned(), body))
}

/// Takes the message, or does not, and says which fault spoils the answer.
async fn process(shared: Arc<Shared>, key: String, body: Bytes) -> (Plain, Option<FaultKind>) {
    take(&shared, key, body).await.unwrap_or_else(|Closed| (Plain::internal(), None))
}

async fn take(
    shared: &Arc<Shared>,
    key: String,
    body: Bytes,
) -> Result<(Plain, Option<FaultKind>), Closed> {
    let replay = shared.behaviour.contract.replay;
    let (name, hash) = (key.clone(), HEXLOWER.encode(&Sha256::digest(&body)));
    let body_hash = hash.clone();
    let (request, entered) = shared
        .with_journal(move |journal, behaviour| {
            let fault = |nth| behaviour.faults.fault(behaviour.seed, &name, nth);
            let request = journal.request(&name, &body_hash, Timestamp::now(), fault)?;
            let at_the_door = request.fault.is_some_and(FaultKind::at_the_door);
            // Only a provider that knows keys knows that one is in flight.
            let entered = at_the_door || replay == Replay::None || journal.enter(&name);
            Ok((request, entered))
        })
        .await?;
    let fault = request.fault;
    if let Some(kind) = fault.filter(|kind| kind.at_the_door()) {
        return Ok(at_the_door(&shared.behaviour, kind, &key, request.nth));
    }
    if !entered {
        return Ok((Plain::refusal(StatusCode::CONFLICT, code::IN_FLIGHT), None));
    }
    if shared.behaviour.latency.is_positive() {
        tokio::time::sleep(shared.behaviour.latency.unsigned_abs()).await;
    }
    let name = key.clone();
    let taken = shared
        .with_journal(move |journal, _| {
            let refusal = fault.filter(|kind| !kind.accepts());
            journal.finish(replay, &name, &hash, refusal, Timestamp::now())
        })
        .await?;
    Ok(match taken {
        Taken::New(id) | Taken::Original(id) => {
            let body = Ok(Accepted { id, key });
            (Plain { status: StatusCode::OK, body, retry_after: None }, fault)
        }
        Taken::Duplicate => (Plain::refusal(StatusCode::CONFLICT, code::DUPLICATE), fault),
        Taken::OtherBody => (Plain::refusal(StatusCode::CONFLICT, code::OTHER_BODY), None),
        Taken::Refused(kind) => {
            let code = match kind {
                FaultKind::RefuseRecipient => code::RECIPIENT_REFUSED,
                FaultKind::Suppress => code::RECIPIENT_SUPPRESSED,
                _ => code::MESSAGE_REJECTED,
            };
            (Plain::refusal(StatusCode::UNPROCESSABLE_ENTITY, code), None)
        }
    })
}

/// The answer to a request that does not come in.
fn at_the_door(
    behaviour: &Behaviour,
    kind: FaultKind,
    key: &str,
    nth: u64,
) -> (Plain, Option<FaultKind>) {
    let plain = match kind {
        FaultKind::RateLimit => {
            let as_date = FaultScript::tells_date(behaviour.seed, key, nth);
            let wait = retry_after(behaviour.faults.retry_after, as_date);
            Plain {
                retry_after: Some(wait),
                ..Plain::refusal(StatusCode::TOO_MANY_REQUESTS, code::RATE_LIMITED)
            }
        }
        FaultKind::Overload => Plain::refusal(StatusCode::SERVICE_UNAVAILABLE, code::OVERLOADED),
        FaultKind::Configuration => Plain::refusal(StatusCode::FORBIDDEN, code::ACCOUNT_SUSPENDED),
        _ => return (Plain::internal(), Some(kind)),
    };
    (plain, None)
}

#[derive(Deserialize)]
struct ByKey {
    key: String,
}

async fn look_up(State(shared): State<Arc<Shared>>, Query(query): Query<ByKey>) -> Response {
    if shared.behaviour.contract.lookup == Lookup::None {
        return Plain::refusal(StatusCode::NOT_FOUND, code::NO_LOOKUP).into_response();
    }
    let ByKey { key } = query;
    let found = shared
        .with_journal(move |journal, behaviour| {
            journal.catch_up().map_err(|error| {
                tracing::error!(%error, "the log that is followed cannot be read");
                Closed
            })?;
            let visible_until = Timestamp::now().saturating_sub(behaviour.lookup_lag);
            // The oldest is visible first.
            let oldest = journal.accepted(&key).first().map(|one| (one.at, one.id.clone()));
            let visible = |at| visible_until.is_ok_and(|until| at <= until);
            let found = oldest.filter(|(at, _)| visible(*at) && !behaviour.faults.invisible(&key));
            Ok(found.map(|(_, id)| Accepted { id, key }))
        })
        .await;
    match found {
        Ok(Some(accepted)) => Json(accepted).into_response(),
        Ok(None) => Plain::refusal(StatusCode::NOT_FOUND, code::NOT_FOUND).into_response(),
        Err(Closed) => Plain::internal().into_response(),
    }
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

async fn acceptances(State(shared): State<Arc<Shared>>, Query(query): Query<After>) -> Response {
    let page = move |journal: &mut Journal, _: &Behaviour| {
        let acceptances = page_after(&journal.witness().acceptances, query.after);
        Ok(Acceptances { acceptances })
    };
    shared.with_journal(page).await.map_or_else(|Closed| Plain::internal().into_response(), json)
}

async fn requests(State(shared): State<Arc<Shared>>, Query(query): Query<After>) -> Response {
    let page = move |journal: &mut Journal, _: &Behaviour| {
        Ok(Requests { requests: page_after(&journal.witness().requests, query.after) })
    };
    shared.with_journal(page).await.map_or_else(|Closed| Plain::internal().into_response(), json)
}

/// The records after number `after`; record N is at index N - 1.
fn page_after<T: Clone>(records: &[T], after: u64) -> Vec<T> {
    let after = usize::try_from(after).unwrap_or(usize::MAX);
    records.iter().skip(after).take(PAGE).cloned().collect()
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    json(Health { contract: shared.behaviour.contract })
}

fn json(body: impl serde::Serialize) -> Response {
    Json(body).into_response()
}
