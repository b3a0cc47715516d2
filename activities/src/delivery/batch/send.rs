//! The hand-over of a batch: one session, and an outcome for each member.

use super::super::handover::{cut_off, event, never_begun, news, offer, tell};
use super::super::lease::Lease;
use super::super::span;
use crate::crash;
use crate::gates::{GateError, Parts};
use crate::ledger::{Actor, Begun, Recorded, Token};
use crate::provider::Reply;
use crate::provider::batch::{BatchReply, Batches, FrozenBatch, ReadyBatch};
use crate::reconciliation::progress;
use digest_workflows::activities::{Evidence, OperationInput, Progress};
use digest_workflows::operation::{Event, OperationKey, Rules};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Instant;
use temporalio_client::Client;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How many workflows are told something at once.
const TOLD_AT_ONCE: usize = 8;

/// A batch whose attempts have begun.
pub(super) struct Outgoing {
    pub parts: Arc<Parts>,
    pub client: Client,
    pub frozen: FrozenBatch,
    /// In the order of the request.
    pub passengers: Vec<Passenger>,
    pub rules: Rules,
    pub lease: Lease,
    /// A place among the sessions that may be listened to.
    pub place: OwnedSemaphorePermit,
    /// What it was claimed with, where it goes again.
    pub claim: Option<Token>,
}

/// One member of it.
pub(super) struct Passenger {
    pub input: OperationInput,
    /// Its attempt; `None` where the batch was accepted with it before.
    pub begun: Option<Begun>,
    /// The execution that waits for the answer, if it is of this member.
    pub waiting: Option<oneshot::Sender<Result<Progress, GateError>>>,
}

impl Outgoing {
    /// Hands over, tells whoever waits within the time-out, and goes on listening until the lease
    /// ends.
    pub(super) async fn go(mut self, ready: Box<dyn ReadyBatch>) {
        let count = self.passengers.len();
        let (parts, frozen, lease) = (Arc::clone(&self.parts), self.frozen.clone(), self.lease);
        let counted = parts.provider.batches().is_some_and(Batches::counts_messages);
        let places = if counted { count } else { 1 };
        // A task of its own: it goes on while what it is about is recorded.
        let mut conversation = tokio::spawn(async move {
            lease.or_over(parts.pacer.before_writing(places)).await;
            let begun = Instant::now();
            let reply = converse(ready, frozen, lease).await;
            let replies = match &reply {
                BatchReply::Whole(reply) => std::slice::from_ref(reply),
                BatchReply::Each(replies) => replies,
            };
            parts.metrics.answered(replies, begun.elapsed());
            crash::point("accepted");
            reply
        });
        let limit = span(self.rules.timeouts.timeout);
        let panicked = || BatchReply::Whole(Reply::Unknown("no answer was read".to_owned()));
        if let Ok(reply) = tokio::time::timeout(limit, &mut conversation).await {
            self.conclude(&each(reply.unwrap_or_else(|_| panicked()), count)).await;
        } else {
            self.conclude(&vec![Reply::Unknown("no answer in time".to_owned()); count]).await;
            let reply = conversation.await.unwrap_or_else(|_| panicked());
            self.late(&each(reply, count)).await;
        }
        drop(self.place);
    }

    /// Records what each attempt came to, and tells its execution.
    async fn conclude(&mut self, replies: &[Reply]) {
        let evidence = self.evidence(replies);
        let recorded = self.record(&evidence, "delivery").await;
        let unknown =
            |(_, evidence): &(_, Evidence)| matches!(evidence.event, Event::Overdue { .. });
        crash::point(if evidence.iter().any(unknown) {
            "unknown-recorded"
        } else {
            "outcome-recorded"
        });
        if let Some(token) = &self.claim
            && let Err(error) = self.parts.ledger.release_batch(&self.frozen.key, token).await
        {
            tracing::warn!(batch = self.frozen.key, %error, "a claim ends by itself");
        }
        let mut recorded = recorded.map(Vec::into_iter);
        let mut untold = Vec::new();
        let began = self
            .passengers
            .iter_mut()
            .filter_map(|passenger| Some((passenger.begun.as_ref()?, &mut passenger.waiting)));
        for ((begun, waiting), (key, evidence)) in began.zip(evidence) {
            let recorded = recorded.as_mut().and_then(Iterator::next);
            let payload = news(recorded.is_some(), &evidence);
            let answer = match recorded {
                Some(recorded) => {
                    self.parts.metrics.recorded(&evidence.event, &recorded, false);
                    progress(recorded)
                }
                None => Progress {
                    operation: begun.operation.clone(),
                    now: begun.begun_at,
                    pause: None,
                    uncommitted: Some(evidence),
                    note: None,
                },
            };
            let heard = waiting.take().is_some_and(|waiting| waiting.send(Ok(answer)).is_ok());
            if !heard {
                untold.push((key, payload));
            }
        }
        tell_all(&self.client, untold).await;
    }

    /// Answers that nobody waits for any more: recorded, and the workflows are told.
    async fn late(&self, replies: &[Reply]) {
        let mut evidence = self.evidence(replies);
        // Of what is still without an answer, the ledger knows.
        evidence.retain(|(_, evidence)| !matches!(evidence.event, Event::Overdue { .. }));
        if evidence.is_empty() {
            return;
        }
        tracing::info!(batch = self.frozen.key, members = evidence.len(), "a late answer");
        let recorded = self.record(&evidence, "late answer").await;
        for ((_, evidence), recorded) in evidence.iter().zip(recorded.iter().flatten()) {
            self.parts.metrics.recorded(&evidence.event, recorded, true);
        }
        let is_recorded = recorded.is_some();
        let untold =
            evidence.into_iter().map(|(key, evidence)| (key, news(is_recorded, &evidence)));
        tell_all(&self.client, untold.collect()).await;
    }

    /// What each attempt came to, with its proof.
    fn evidence(&self, replies: &[Reply]) -> Vec<(OperationKey, Evidence)> {
        let mut codes = std::collections::BTreeSet::new();
        let mut all = Vec::new();
        for (passenger, reply) in self.passengers.iter().zip(replies) {
            let Some(begun) = &passenger.begun else { continue };
            let (attempt, random) = (begun.number, passenger.input.random);
            if let Reply::Unknown(code) = reply {
                codes.insert(code.as_str());
            }
            let evidence = begun.evidence(event(reply, attempt, random));
            all.push((passenger.input.key.clone(), evidence));
        }
        for code in codes {
            tracing::warn!(batch = self.frozen.key, code, "the answer is ambiguous");
        }
        all
    }

    /// Has the ledger record outcomes; `None` when it does not take them in time.
    async fn record(
        &self,
        evidence: &[(OperationKey, Evidence)],
        by: &str,
    ) -> Option<Vec<Recorded>> {
        let batch = &self.frozen.key;
        offer(|| async move {
            let actor = Actor::part(by);
            let recorded = self.parts.ledger.record_batch(evidence, &self.rules, actor).await;
            recorded.inspect_err(|error| {
                tracing::warn!(batch, %error, "the ledger did not take the outcomes of a batch");
            })
        })
        .await
    }
}

/// The conversation, until its answer or the lease's end, when the session is reset.
async fn converse(ready: Box<dyn ReadyBatch>, frozen: FrozenBatch, lease: Lease) -> BatchReply {
    if lease.is_over() {
        ready.abandon().await;
        return BatchReply::Whole(never_begun());
    }
    let reply = lease.or_over(ready.hand_over(frozen)).await;
    reply.unwrap_or_else(|| BatchReply::Whole(cut_off()))
}

/// What an answer says to each of `count` members.
fn each(reply: BatchReply, count: usize) -> Vec<Reply> {
    match reply {
        BatchReply::Each(replies) if replies.len() == count => replies,
        BatchReply::Whole(Reply::NotSent(failure)) => {
            vec![Reply::NotSent(failure.of_each_member()); count]
        }
        BatchReply::Whole(Reply::Unknown(code)) => vec![Reply::Unknown(code); count],
        BatchReply::Each(_) | BatchReply::Whole(Reply::Accepted { .. }) => {
            vec![Reply::Unknown("an answer for other messages".to_owned()); count]
        }
    }
}

async fn tell_all(client: &Client, untold: Vec<(OperationKey, serde_json::Value)>) {
    for some in untold.chunks(TOLD_AT_ONCE) {
        join_all(some.iter().map(|(key, payload)| tell(client, key, payload.clone()))).await;
    }
}
