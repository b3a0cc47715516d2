//! A provider's HTTP API as a test needs it: it speaks a provider's dialect, keeps that provider's
//! contract, fails at any phase of a request, and keeps a record of what it took, so that a test can
//! compare an adapter's verdict with the truth.

mod dialect;
mod talk;

pub use dialect::{Dialect, Mailgun, Part, Postmark, Resend, Sendgrid, Ses, Twilio, twilio};

use crate::authority::Authority;
use crate::watched;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// One request, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// The headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of this name, in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The path without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The body as JSON; null where it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The query's fields, decoded.
    #[must_use]
    pub fn query(&self) -> Vec<(String, String)> {
        let query = self.target.split_once('?').map(|(_, query)| query).unwrap_or_default();
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// An answer with this body.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// The same answer with a further header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Up to which point a connection goes before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was read.
    Connected,
    /// The request's head was read.
    Head,
    /// Half of the request's body was read.
    HalfBody,
    /// The whole request was read, and nothing came of it.
    Received,
    /// The whole request was read, and the message was taken.
    Taken,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 5] =
        [Self::Connected, Self::Head, Self::HalfBody, Self::Received, Self::Taken];
}

/// How a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is closed in the ordinary way.
    Close,
    /// It is reset.
    Reset,
    /// Nothing more is said, until the client ends.
    Hang,
}

/// What one connection does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// What an ordinary provider does.
    Go,
    /// Says this and takes nothing.
    Say(Response),
    /// Fails at this phase.
    Fail(Phase, End),
    /// Takes the message, says exactly these bytes, and then ends so.
    TakeThenSay(Vec<u8>, End),
    /// Takes the message and says what an ordinary provider does, one byte at a time.
    TakeThenDribble,
}

/// A message that the provider took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The key it carries.
    pub key: String,
    /// The provider's id.
    pub id: String,
    /// The request.
    pub request: Request,
}

/// What the server saw.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every whole request.
    pub requests: Vec<Request>,
    /// Every message that was taken: these are sent.
    pub taken: Vec<Taken>,
    /// Every batch that was taken, with its answer.
    pub batches: Vec<(Request, Response)>,
    /// How many requests were too many for the second.
    pub throttled: usize,
    /// How many connections were made.
    pub connections: usize,
    /// How many connections the client has reset, or ended while it was waited for.
    pub given_up: usize,
    /// How many connections are silent now.
    pub silent: usize,
}

/// A running API on a port of its own; it ends with this value.
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    dialect: Arc<dyn Dialect>,
    authority: Option<Arc<Authority>>,
    script: Mutex<VecDeque<Act>>,
    record: watch::Sender<Record>,
    /// How many requests a second it takes, when this second began, and how many have come in it.
    limit: Mutex<Option<(usize, Instant, usize)>>,
}

impl Shared {
    /// Whether one more request is too many for this second.
    fn is_throttled(&self) -> bool {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((most, since, count)) = limit.as_mut() else { return false };
        if since.elapsed() >= Duration::from_secs(1) {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        *count > *most
    }
}

impl ApiServer {
    /// Starts it, in plain HTTP or with this authority's certificate. The first connections follow
    /// `script`, one each; later ones are ordinary.
    ///
    /// # Errors
    /// Where no port can be opened.
    pub async fn start(
        dialect: Arc<dyn Dialect>,
        authority: Option<Arc<Authority>>,
        script: impl IntoIterator<Item = Act>,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a port")?;
        let address = listener.local_addr().context("read the port")?;
        let script = Mutex::new(script.into_iter().collect());
        let record = watch::Sender::default();
        let limit = Mutex::default();
        let shared = Arc::new(Shared { dialect, authority, script, record, limit });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// The base of its URLs.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.shared.authority {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// From now on it takes so many requests a second, and answers more with 429 and a wish to wait.
    pub fn limit(&self, most: usize) {
        let mut limit = self.shared.limit.lock().unwrap_or_else(PoisonError::into_inner);
        *limit = Some((most, Instant::now(), 0));
    }

    /// The further connections follow these, one each, after those that are still to come.
    pub fn script(&self, acts: impl IntoIterator<Item = Act>) {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).extend(acts);
    }

    /// What it has seen up to now.
    #[must_use]
    pub fn record(&self) -> Record {
        self.shared.record.borrow().clone()
    }

    /// Waits until the record satisfies `condition`.
    ///
    /// # Errors
    /// Where it does not within half a minute, with the record.
    pub async fn until(&self, condition: impl FnMut(&Record) -> bool) -> Result<Record> {
        watched::until(&self.shared.record, condition).await
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut talks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.record.send_modify(|record| record.connections += 1);
        let act = shared.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let shared = Arc::clone(&shared);
        talks.spawn(async move { talk::serve(stream, act.unwrap_or(Act::Go), &shared).await });
    }
}
