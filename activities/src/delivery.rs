//! The second gate: makes one attempt, or tells what the ledger knows of it.
//!
//! Every execution reads the ledger first, and its answer is a function of the ledger, so that the
//! engine may run it again, lose its answer, or run it twice at once. The order of its steps is the
//! promise: nothing is handed over before its intent is recorded, and an intent is recorded only
//! while every condition holds.

mod batch;
mod handover;
mod lease;
mod pacer;
mod window;

pub use batch::Gatherer;
pub use pacer::Pacer;

use crate::crash;
use crate::gates::{GateError, Parts};
use crate::ledger::{Actor, Answer, BeginAnswer, Begun, LedgerError, SUPPRESSIONS, Slot, Token};
use crate::message::{FrozenMessage, RenderInput, Rendered};
use crate::metrics::Duplicate;
use crate::provider::Ready;
use crate::reconciliation::{progress, serves_doubts};
use digest_workflows::activities::{DeliverInput, OperationInput, Pause, Progress};
use digest_workflows::operation::{
    CannotBegin, Event, Failure, FailureClass, Intent, OperationKey, Shares, State, Step,
};
use handover::{HandOver, record_outcome};
use jiff::Timestamp;
use lease::Lease;
use std::sync::Arc;
use std::time::Duration;
use temporalio_client::Client;
use tokio::time::Instant;

/// A longer wait for the rate becomes a timer of the workflow.
const PACE_WAIT_MAX: Duration = Duration::from_secs(2);
/// So long before its slot an attempt connects: what takes longer for some than for others is done
/// before the slot, and the messages of several workers keep the distance of their slots.
const CONNECTING: Duration = Duration::from_millis(200);

/// How far a delivery has come when it ends early.
enum Early {
    /// With this answer.
    Answer(Box<Progress>),
    /// Without an answer.
    Lost(GateError),
}

impl<E: Into<GateError>> From<E> for Early {
    fn from(error: E) -> Self {
        Self::Lost(error.into())
    }
}

/// Makes the attempt that is expected to be next, or tells what the ledger knows of it.
///
/// # Errors
/// [`GateError`] when ledger or source give no answer: nothing was handed over that the ledger does
/// not know of.
pub async fn deliver(
    parts: &Arc<Parts>,
    client: &Client,
    input: DeliverInput,
) -> Result<Progress, GateError> {
    let delivery = Delivery { parts, client, input: &input };
    answered(delivery.run().await)
}

/// What a delivery comes to, early or not.
fn answered(result: Result<Progress, Early>) -> Result<Progress, GateError> {
    match result {
        Ok(progress) => Ok(progress),
        Err(Early::Answer(progress)) => Ok(*progress),
        Err(Early::Lost(error)) => Err(error),
    }
}

/// One execution.
struct Delivery<'a> {
    parts: &'a Arc<Parts>,
    client: &'a Client,
    input: &'a DeliverInput,
}

impl Delivery<'_> {
    fn of(&self) -> &OperationInput {
        &self.input.operation
    }

    async fn run(&self) -> Result<Progress, Early> {
        let answer = self.read().await?;
        if let Shares::Only(batch) = answer.operation.shares() {
            return self.repeat(&answer, batch).await;
        }
        let message = self.message(&answer).await?;
        self.ask_consent(&answer).await?;
        if let Some(item) = self.item(&answer, &message).await? {
            return self.join(answer, &message, item).await;
        }
        let (slot, due) = self.slot(&answer).await?;
        let Ok(place) = self.parts.listening.clone().try_acquire_owned() else {
            return Err(early(&answer, Pause::Listening));
        };
        let ready = self.prepare(&answer, &message).await?;
        tokio::time::sleep_until(due).await;
        let ready = self.ask_consent_again(&answer, ready).await?;
        crash::point("before-intent");
        let lease = Lease::from_now(span(self.of().rules.timeouts.lease));
        let (ready, begun) = self.begin(&answer, &message, &slot, ready).await?;
        self.parts.metrics.begun(&answer, &begun);
        crash::point("intent-recorded");
        let hand_over = HandOver {
            parts: Arc::clone(self.parts),
            client: self.client.clone(),
            input: self.of().clone(),
            begun: begun.clone(),
            lease,
            place,
        };
        let answered = hand_over.start(ready);
        Ok(self.conclude(answered, begun).await)
    }

    /// Reads the ledger: is this attempt the next one, and may one begin at all?
    async fn read(&self) -> Result<Answer, Early> {
        let of = self.of();
        self.parts.must_serve_operation(&of.key)?;
        self.parts.ledger.must_be(&of.ledger)?;
        let answer = self.parts.ledger.operation(&of.key).await?;
        let (generation, ordinal) = (self.input.generation, self.input.ordinal);
        if let Some(doubt) = answer.operation.open_attempt(generation, ordinal) {
            // Begun by an execution that is not this one, and nobody answered for it.
            self.parts.metrics.refused(&of.key, Duplicate::Open);
            let event = Event::Overdue { attempt: doubt.number, random: of.random };
            return Err(self.record(&event, "delivery", None).await?);
        }
        let expected = Step::Deliver { generation, ordinal };
        if answer.operation.next(&of.rules, answer.moment.now) != expected {
            if (generation, ordinal) <= (answer.operation.generation, answer.operation.ordinal) {
                self.parts.metrics.refused(&of.key, Duplicate::Taken);
            }
            if answer.operation.state == State::Unknown {
                // A window may have ended meanwhile; the ledger must know what is at rest.
                return Err(self.record(&Event::TimePassed, "delivery", None).await?);
            }
            return Err(told(answer));
        }
        if !serves_doubts(self.parts, &answer.operation) {
            return Err(self.record(&Event::ProviderGone, "delivery", None).await?);
        }
        if *self.parts.draining.borrow() {
            return Err(early(&answer, Pause::Draining));
        }
        if answer.moment.cancelled {
            return Err(self.record(&Event::Cancelled, "cancel", None).await?);
        }
        if answer.moment.held {
            return Err(early(&answer, Pause::Held));
        }
        if answer.moment.now >= answer.moment.useful_until {
            return Err(self.record(&Event::TooLate, "delivery", None).await?);
        }
        Ok(answer)
    }

    /// The frozen message: rendered and stored the first time, read back every time.
    async fn message(&self, answer: &Answer) -> Result<FrozenMessage, Early> {
        let key = &self.of().key;
        if let Some(message) = self.parts.ledger.message(key).await? {
            return Ok(message);
        }
        if !answer.operation.doubts.is_empty() {
            // Only the very bytes of the attempt in doubt could be repeated.
            return Err(self.record(&Event::ReplayOver, "delivery", None).await?);
        }
        let Some(data) = self.parts.ledger.frozen_data(key).await? else {
            let failure = Failure::new(FailureClass::Schema, "frozen content is gone");
            return Err(self.close(failure, answer.moment.now).await?);
        };
        let input = RenderInput {
            key,
            customer: &data.customer,
            rows: &data.rows,
            selected_at: answer.run.selected_at.unwrap_or(answer.moment.now),
        };
        match self.parts.templates.render(&input) {
            Ok(Rendered::Message(message)) => {
                match self.parts.ledger.store_message(key, &message).await {
                    // Overtaken: the ledger tells how it ended.
                    Err(LedgerError::Settled(_)) => {
                        Err(told(self.parts.ledger.operation(key).await?))
                    }
                    stored => Ok(stored?),
                }
            }
            Ok(Rendered::NothingToSend) => {
                let failure = Failure::new(FailureClass::Suppressed, "nothing to send");
                Err(self.close(failure, answer.moment.now).await?)
            }
            Err(failure) => Err(self.close(failure, answer.moment.now).await?),
        }
    }

    /// A no is a customer whom a provider told not to write to any more, or one without consent.
    async fn ask_consent(&self, answer: &Answer) -> Result<(), Early> {
        if let Some(reason) = answer.suppressed {
            let actor = Actor { by: SUPPRESSIONS, reason: Some(reason.code()) };
            return Err(self.record_by(&Event::Unwanted, actor, None).await?);
        }
        match self.wants(answer, &self.of().key).await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.record(&Event::Unwanted, "consent", None).await?),
            Err(failure) => Err(self.close(failure, answer.moment.now).await?),
        }
    }

    /// Asked again right before the intent: connecting may have taken a while.
    async fn ask_consent_again(
        &self,
        answer: &Answer,
        ready: Box<dyn Ready>,
    ) -> Result<Box<dyn Ready>, Early> {
        match self.ask_consent(answer).await {
            Ok(()) => Ok(ready),
            Err(early) => {
                ready.abandon().await;
                Err(early)
            }
        }
    }

    /// Whether the customer still wants it. No answer means no send: a database that does not answer
    /// is waited for, a query that it refuses is a matter of configuration.
    async fn wants(
        &self,
        answer: &Answer,
        key: &OperationKey,
    ) -> Result<Result<bool, Failure>, Early> {
        let parameters = self.parts.parameters(&answer.run)?;
        match self.parts.source.still_wanted(&parameters, key).await {
            Ok(wanted) => Ok(Ok(wanted)),
            Err(error) if error.is_temporary() => Err(error.into()),
            Err(error) => {
                tracing::error!(%key, %error, "consent cannot be asked");
                Ok(Err(Failure::new(FailureClass::Configuration, "still_wanted refused")))
            }
        }
    }

    /// Reserves a place in the rate, and says when it may be used. A short wait is slept here, all but
    /// the time that connecting takes; a longer one by the workflow.
    async fn slot(&self, answer: &Answer) -> Result<(Slot, Instant), Early> {
        let now = answer.moment.now;
        let (slot, due) = self.parts.pacer.take(&self.parts.ledger, self.input.slot, now).await?;
        if due.saturating_duration_since(Instant::now()) > PACE_WAIT_MAX {
            return Err(early(answer, Pause::Paced(slot.at())));
        }
        tokio::time::sleep_until(due.checked_sub(CONNECTING).unwrap_or(due)).await;
        Ok((slot, due))
    }

    /// Connects, and goes as far as the protocol allows.
    async fn prepare(
        &self,
        answer: &Answer,
        message: &FrozenMessage,
    ) -> Result<Box<dyn Ready>, Early> {
        let (generation, ordinal) = (self.input.generation, self.input.ordinal);
        if let Some(failure) = self.of().key.rehearsed_failure(generation, ordinal) {
            return Err(self.close(failure, answer.moment.now).await?);
        }
        let limit = span(self.of().rules.timeouts.timeout);
        let prepared = self.parts.provider.prepare(&self.of().key, message);
        let failure = match tokio::time::timeout(limit, prepared).await {
            Ok(Ok(ready)) => return Ok(ready),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::new(FailureClass::Transport, "no connection in time"),
        };
        Err(self.close(failure, answer.moment.now).await?)
    }

    /// Records the intent. Whatever keeps it from being recorded, what was opened is given up.
    async fn begin(
        &self,
        answer: &Answer,
        message: &FrozenMessage,
        slot: &Slot,
        ready: Box<dyn Ready>,
    ) -> Result<(Box<dyn Ready>, Begun), Early> {
        let of = self.of();
        let intent = Intent {
            generation: self.input.generation,
            ordinal: self.input.ordinal,
            provider: self.parts.provider.provider_ref(),
            contract: self.parts.provider.contract(),
            content_hash: message.content_hash.clone(),
            lease: of.rules.timeouts.lease,
            settle: of.rules.timeouts.settle,
            batch: None,
        };
        let token = Token::draw();
        let begun = self.parts.ledger.begin(&of.key, &intent, &token, slot, &of.rules).await;
        match begun {
            Ok(BeginAnswer::Begun(begun)) => Ok((ready, *begun)),
            Ok(BeginAnswer::Cannot(cannot)) => {
                ready.abandon().await;
                Err(self.cannot(answer, cannot).await?)
            }
            Err(error) => {
                // An intent that may be recorded is not ours to speak of: whoever asks next finds it
                // open, if it is there, and takes it for a doubt.
                ready.abandon().await;
                Err(error.into())
            }
        }
    }

    /// The answer to an attempt that may not begin.
    async fn cannot(&self, answer: &Answer, cannot: CannotBegin) -> Result<Early, Early> {
        if let Some(duplicate) = Duplicate::of(cannot) {
            self.parts.metrics.refused(&self.of().key, duplicate);
        }
        match cannot {
            CannotBegin::Held => Ok(early(answer, Pause::Held)),
            CannotBegin::Cancelled => self.record(&Event::Cancelled, "cancel", None).await,
            CannotBegin::TooLate => self.record(&Event::TooLate, "delivery", None).await,
            // Today's contract or bytes do not repeat what the doubts were begun with.
            CannotBegin::InDoubt => self.record(&Event::ReplayOver, "delivery", None).await,
            _ => Ok(told(self.parts.ledger.operation(&self.of().key).await?)),
        }
    }

    /// Waits for the answer as long as `timeout`; without one the operation is unknown, and the
    /// session goes on listening.
    async fn conclude(
        &self,
        answered: tokio::sync::oneshot::Receiver<Event>,
        begun: Begun,
    ) -> Progress {
        let of = self.of();
        let timeout = span(of.rules.timeouts.timeout);
        let overdue = Event::Overdue { attempt: begun.number, random: of.random };
        let event = match tokio::time::timeout(timeout, answered).await {
            Ok(Ok(event)) => event,
            Ok(Err(_)) | Err(_) => overdue,
        };
        let evidence = begun.evidence(event);
        let recorded = record_outcome(self.parts, of, &evidence, "delivery").await;
        crash::point(match evidence.event {
            Event::Overdue { .. } => "unknown-recorded",
            _ => "outcome-recorded",
        });
        if let Some(recorded) = recorded {
            self.parts.metrics.recorded(&evidence.event, &recorded, false);
            return progress(recorded);
        }
        Progress {
            operation: begun.operation,
            now: begun.begun_at,
            pause: None,
            uncommitted: Some(evidence),
            note: None,
        }
    }

    /// Records a try that ended before its intent.
    async fn close(&self, failure: Failure, read_at: Timestamp) -> Result<Early, Early> {
        let event = Event::Closed {
            generation: self.input.generation,
            ordinal: self.input.ordinal,
            failure,
            random: self.of().random,
        };
        self.record(&event, "delivery", Some(read_at)).await
    }

    async fn record(
        &self,
        event: &Event,
        by: &str,
        as_of: Option<Timestamp>,
    ) -> Result<Early, Early> {
        self.record_by(event, Actor::part(by), as_of).await
    }

    async fn record_by(
        &self,
        event: &Event,
        actor: Actor<'_>,
        as_of: Option<Timestamp>,
    ) -> Result<Early, Early> {
        let of = self.of();
        let recorded = self.parts.ledger.record(&of.key, event, &of.rules, actor, as_of).await?;
        self.parts.metrics.recorded(event, &recorded, false);
        Ok(Early::Answer(Box::new(progress(recorded))))
    }
}

fn told(answer: Answer) -> Early {
    let (operation, now) = (answer.operation, answer.moment.now);
    Early::Answer(Box::new(Progress { operation, now, pause: None, uncommitted: None, note: None }))
}

fn early(answer: &Answer, pause: Pause) -> Early {
    Early::Answer(Box::new(Progress {
        operation: answer.operation.clone(),
        now: answer.moment.now,
        pause: Some(pause),
        uncommitted: None,
        note: None,
    }))
}

fn span(duration: jiff::SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or(Duration::ZERO)
}
