//! The hand-over: the one place where a message may leave, and where its answer is waited for.
//!
//! A task of its own holds the session, so that the answer is still listened for, and recorded,
//! after the workflow has stopped waiting for it.

use super::lease::Lease;
use crate::crash;
use crate::gates::Parts;
use crate::ledger::{Actor, Begun, LedgerError, Recorded};
use crate::provider::{Ready, Reply};
use digest_workflows::activities::{Evidence, OperationInput};
use digest_workflows::customer::CustomerDigest;
use digest_workflows::operation::{Event, Failure, FailureClass, OperationKey, Outcome};
use std::sync::Arc;
use std::time::{Duration, Instant};
use temporalio_client::{Client, WorkflowSignalOptions};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How often, and how far apart, an outcome is offered to a ledger that does not take it.
const RECORD_WAITS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(2)];

/// What a hand-over needs.
pub(super) struct HandOver {
    pub parts: Arc<Parts>,
    pub client: Client,
    pub input: OperationInput,
    pub begun: Begun,
    pub lease: Lease,
    /// A place among the sessions that may be listened to; kept as long as this one lives.
    pub place: OwnedSemaphorePermit,
}

impl HandOver {
    /// Hands over, in a task of its own. The receiver gets the event of the answer, if it comes
    /// while it is waited for; a later one is recorded as evidence.
    pub(super) fn start(self, ready: Box<dyn Ready>) -> oneshot::Receiver<Event> {
        let (answer, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let event = self.converse(ready).await;
            crash::point("accepted");
            if let Err(event) = answer.send(event) {
                self.late(self.begun.evidence(event)).await;
            }
            drop(self.place);
        });
        receiver
    }

    /// The conversation, until its answer or the lease's end, when the session is reset.
    async fn converse(&self, ready: Box<dyn Ready>) -> Event {
        let attempt = self.begun.number;
        let random = self.input.random;
        self.lease.or_over(self.parts.pacer.before_writing(1)).await;
        if self.lease.is_over() {
            ready.abandon().await;
            return event(&never_begun(), attempt, random);
        }
        let begun = Instant::now();
        let reply = self.lease.or_over(ready.hand_over()).await.unwrap_or_else(cut_off);
        if self.parts.metrics.counts(self.input.key.campaign()) {
            self.parts.metrics.answered(std::slice::from_ref(&reply), begun.elapsed());
        }
        if let Reply::Unknown(code) = &reply {
            tracing::warn!(key = %self.input.key, attempt, code, "the answer is ambiguous");
        }
        event(&reply, attempt, random)
    }

    /// An answer that nobody waits for any more: recorded, and the workflow is told.
    async fn late(&self, evidence: Evidence) {
        if matches!(evidence.event, Event::Overdue { .. }) {
            // Still no answer, which the ledger knows.
            return;
        }
        let key = self.input.key.to_string();
        tracing::info!(key, event = evidence.event.name(), "a late answer");
        let recorded = record_outcome(&self.parts, &self.input, &evidence, "late answer").await;
        if let Some(recorded) = &recorded {
            self.parts.metrics.recorded(&evidence.event, recorded, true);
        }
        tell(&self.client, &self.input.key, news(recorded.is_some(), &evidence)).await;
    }
}

/// The reply of a session whose lease was over before anything was written.
pub(super) fn never_begun() -> Reply {
    Reply::NotSent(Failure::new(FailureClass::Transport, "lease over before the hand-over"))
}

/// The reply of a session that is reset at the end of its lease.
pub(super) fn cut_off() -> Reply {
    Reply::Unknown("no answer until the lease ended".to_owned())
}

/// What `reply` says of its attempt.
pub(super) fn event(reply: &Reply, attempt: u32, random: f64) -> Event {
    let outcome = match reply {
        Reply::Accepted { message_id } => Outcome::Accepted { message_id: message_id.clone() },
        Reply::NotSent(failure) => Outcome::NotSent(failure.clone()),
        Reply::Unknown(_) => return Event::Overdue { attempt, random },
    };
    Event::Answered { attempt, outcome, random }
}

/// What a workflow is told: that there is news, which is only a hint, or what the ledger does not hold,
/// which it keeps.
pub(super) fn news(recorded: bool, evidence: &Evidence) -> serde_json::Value {
    if recorded {
        return serde_json::Value::Null;
    }
    serde_json::to_value(evidence).unwrap_or_default()
}

/// Tells the workflow of `key` what the ledger does not hold, or with null that it has news.
pub(super) async fn tell(client: &Client, key: &OperationKey, payload: serde_json::Value) {
    let workflow = client.get_workflow_handle::<CustomerDigest>(key.to_string());
    let options = WorkflowSignalOptions::default();
    if let Err(error) = workflow.signal(CustomerDigest::evidence, payload.into(), options).await {
        tracing::warn!(%key, %error, "the workflow was not told; the sweep hands it over");
    }
}

/// Has the ledger record an outcome; `None` when it does not take it in time.
pub(super) async fn record_outcome(
    parts: &Parts,
    input: &OperationInput,
    evidence: &Evidence,
    by: &str,
) -> Option<Recorded> {
    let key = &input.key;
    offer(|| async move {
        let actor = Actor::part(by);
        let recorded = parts.ledger.record_evidence(key, evidence, &input.rules, actor).await;
        recorded.inspect_err(|error| {
            tracing::warn!(%key, %error, "the ledger did not take an outcome");
        })
    })
    .await
}

/// Has the ledger `record` something, offered as often as outcomes are; `None` when it does not take it
/// in time.
pub(super) async fn offer<T, F: Future<Output = Result<T, LedgerError>>>(
    record: impl Fn() -> F,
) -> Option<T> {
    for wait in RECORD_WAITS {
        tokio::time::sleep(wait).await;
        if let Ok(recorded) = record().await {
            return Some(recorded);
        }
    }
    None
}
