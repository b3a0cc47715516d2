//! A batch in doubt that goes again: whole, under its own key, by one execution for all its members.

use super::super::lease::Lease;
use super::super::{Delivery, Early, early, span};
use super::send::{Outgoing, Passenger};
use super::{CONSENTS, prepare};
use crate::crash;
use crate::gates::GateError;
use crate::ledger::{
    Actor, Answer, Begun, Claim, Proposal, Repeated, SUPPRESSIONS, StoredBatch, Token,
};
use crate::provider::batch::Batches;
use digest_workflows::activities::{OperationInput, Pause, Progress};
use digest_workflows::operation::{BatchRef, CannotBegin, Event, OperationKey};
use futures::future::join_all;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

/// What spreads one random number over the members of a batch.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

impl Delivery<'_> {
    /// Sends the batch again that this operation is in doubt about.
    pub(in crate::delivery) async fn repeat(
        &self,
        answer: &Answer,
        batch: &BatchRef,
    ) -> Result<Progress, Early> {
        let stored = self.parts.ledger.stored_batch(&batch.id).await?;
        let stored = stored.filter(|stored| stored.batch == *batch);
        let (Some(stored), Some(batches)) = (stored, self.parts.provider.batches()) else {
            // Only the very request could be repeated.
            return Err(self.record(&Event::ReplayOver, "delivery", None).await?);
        };
        self.ask_consent(answer).await?;
        let token = Token::draw();
        let span = stored.rules.timeouts.timeout;
        if let Claim::Until(at) = self.parts.ledger.claim_batch(&batch.id, &token, span).await? {
            return Err(early(answer, Pause::Batched(at)));
        }
        let result = self.send_again(answer, &stored, batches, &token).await;
        if result.is_err()
            && let Err(error) = self.parts.ledger.release_batch(&batch.id, &token).await
        {
            tracing::warn!(batch = batch.id, %error, "a claim ends by itself");
        }
        result
    }

    async fn send_again(
        &self,
        answer: &Answer,
        stored: &StoredBatch,
        batches: &dyn Batches,
        token: &Token,
    ) -> Result<Progress, Early> {
        let (parts, ledger, rules) = (self.parts, &self.parts.ledger, &stored.rules);
        let (slot, due) = self.slot(answer).await?;
        let Ok(place) = parts.listening.clone().try_acquire_owned() else {
            return Err(early(answer, Pause::Listening));
        };
        let ready = match prepare(batches, rules).await {
            Ok(ready) => ready,
            Err(failure) => return Err(self.close(failure, answer.moment.now).await?),
        };
        sleep_until(due).await;
        if let Err(early) = self.all_still_wanted(answer, stored).await {
            ready.abandon().await;
            return Err(early);
        }
        crash::point("before-intent");
        let lease = Lease::from_now(span(rules.timeouts.lease));
        let provider = parts.provider.provider_ref();
        let contract = parts.provider.contract();
        let proposal = Proposal { provider: &provider, contract, rules, batches };
        let asks = (&self.of().key, (self.input.generation, self.input.ordinal));
        let claim = (token, rules.timeouts.timeout);
        let begun = match ledger.repeat_batch(stored, asks, claim, proposal, &slot).await {
            Ok(Repeated::Begun(begun)) => begun,
            Ok(Repeated::Cannot(cannot)) => {
                ready.abandon().await;
                return Err(self.cannot(answer, cannot).await?);
            }
            Ok(Repeated::Taken(at)) => {
                ready.abandon().await;
                return Err(early(answer, Pause::Batched(at)));
            }
            Err(error) => {
                // Attempts that may be recorded are not ours to speak of.
                ready.abandon().await;
                return Err(error.into());
            }
        };
        crash::point("intent-recorded");
        let (reply, replied) = oneshot::channel();
        let outgoing = Outgoing {
            parts: Arc::clone(parts),
            client: self.client.clone(),
            frozen: stored.frozen(),
            passengers: self.passengers(stored, begun, reply),
            rules: rules.clone(),
            lease,
            place,
            claim: Some(token.clone()),
        };
        tokio::spawn(outgoing.go(ready));
        Ok(replied.await.map_err(|_| GateError::Panicked)??)
    }

    /// Each member with its attempt; whoever waits here is one of them.
    fn passengers(
        &self,
        stored: &StoredBatch,
        begun: Vec<Option<Begun>>,
        reply: oneshot::Sender<Result<Progress, GateError>>,
    ) -> Vec<Passenger> {
        let mut reply = Some(reply);
        let mut random = self.of().random;
        let members = stored.members.iter().zip(begun);
        members
            .map(|(key, begun)| {
                random = (random + GOLDEN).fract();
                let input = OperationInput {
                    key: key.clone(),
                    ledger: self.of().ledger.clone(),
                    rules: stored.rules.clone(),
                    random,
                };
                let waiting = if *key == self.of().key { reply.take() } else { None };
                Passenger { input, begun, waiting }
            })
            .collect()
    }

    /// Asks the consent of every member that would get the message: where one does not want it any
    /// more, the batch goes to nobody.
    async fn all_still_wanted(&self, answer: &Answer, stored: &StoredBatch) -> Result<(), Early> {
        self.ask_consent(answer).await?;
        let own = &self.of().key;
        let others: Vec<&OperationKey> = stored.members.iter().filter(|key| *key != own).collect();
        for some in others.chunks(CONSENTS) {
            let asked = join_all(some.iter().map(|key| self.is_wanted(answer, stored, key))).await;
            for wanted in asked {
                if !wanted? {
                    return Err(self.cannot(answer, CannotBegin::InDoubt).await?);
                }
            }
        }
        Ok(())
    }

    /// Whether another member still wants it, or has it.
    async fn is_wanted(
        &self,
        answer: &Answer,
        stored: &StoredBatch,
        key: &OperationKey,
    ) -> Result<bool, Early> {
        let ledger = &self.parts.ledger;
        let other = ledger.operation(key).await?;
        if other.operation.doubts.is_empty() {
            // What it has become decides when the batch begins.
            return Ok(true);
        }
        if let Some(reason) = other.suppressed {
            let actor = Actor { by: SUPPRESSIONS, reason: Some(reason.code()) };
            ledger.record(key, &Event::Unwanted, &stored.rules, actor, None).await?;
            return Ok(false);
        }
        match self.wants(answer, key).await? {
            Ok(true) => Ok(true),
            Ok(false) => {
                let actor = Actor::part("consent");
                ledger.record(key, &Event::Unwanted, &stored.rules, actor, None).await?;
                Ok(false)
            }
            Err(failure) => Err(self.close(failure, answer.moment.now).await?),
        }
    }
}
