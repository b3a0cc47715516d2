//! Several deliveries in one request: what comes within a moment is gathered, begun in one
//! transaction, handed over together, and recorded each for itself.
//!
//! A delivery that may share a request goes on alone up to its consent, then joins a gathering. The
//! gathering has a task of its own, which goes through the rest of the order for all of them, and
//! tells each execution what its own attempt came to.

mod repeat;
mod send;

use super::lease::Lease;
use super::{Delivery, Early, PACE_WAIT_MAX, answered, early, span};
use crate::crash;
use crate::gates::{GateError, Parts};
use crate::ledger::{Answer, BatchAnswer, LedgerError, Member, Proposal, Slot};
use crate::message::FrozenMessage;
use crate::provider::batch::{Batches, ReadyBatch};
use crate::redacted::Redacted;
use digest_workflows::activities::{DeliverInput, LedgerRef, Pause, Progress};
use digest_workflows::operation::{CannotBegin, Failure, FailureClass, Period, Rules, Shares};
use futures::future::join_all;
use jiff::Timestamp;
use send::{Outgoing, Passenger};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use temporalio_client::Client;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep_until};

/// How long a gathering waits for more, unless it waits for its place in the rate anyhow.
const GATHER: Duration = Duration::from_millis(200);

/// How many customers are asked about their consent at once.
const CONSENTS: usize = 8;

/// How many slots are remembered as used.
const SLOTS_REMEMBERED: usize = 64;

/// Brings deliveries together that may share a request.
pub struct Gatherer {
    most: usize,
    open: Mutex<Gatherings>,
}

#[derive(Default)]
struct Gatherings {
    last: u64,
    open: Vec<Gathering>,
    /// Reserved slots that a gathering has used: all of its members have the same one.
    used: VecDeque<Timestamp>,
}

/// Deliveries that will go in one request.
struct Gathering {
    number: u64,
    group: Group,
    bytes: usize,
    members: Vec<Joined>,
    full: Arc<Notify>,
}

/// What the members of one request have in common.
#[derive(Clone, PartialEq)]
struct Group {
    campaign: String,
    period: Period,
    ledger: LedgerRef,
    rules: Rules,
    /// What their items say alike.
    common: Vec<u8>,
}

/// One delivery in a gathering.
struct Joined {
    input: DeliverInput,
    answer: Answer,
    content_hash: String,
    item: Vec<u8>,
    reply: oneshot::Sender<Result<Progress, GateError>>,
}

impl Gatherer {
    /// A gatherer of up to `most` messages for each request.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), open: Mutex::default() }
    }

    /// Adds a delivery to a gathering that has room for it. Returns the number of a new one, which
    /// somebody must see to.
    fn add(&self, joined: Joined, batches: &dyn Batches) -> Option<(u64, Arc<Notify>)> {
        let group = Group::of(&joined, batches);
        let mut gatherings = self.lock();
        let room = |gathering: &&mut Gathering| {
            gathering.group == group
                && gathering.members.len() < self.most
                && gathering.bytes + joined.item.len() <= batches.bytes_max()
        };
        if let Some(gathering) = gatherings.open.iter_mut().find(room) {
            gathering.bytes += joined.item.len();
            gathering.members.push(joined);
            if gathering.members.len() == self.most {
                gathering.full.notify_one();
            }
            return None;
        }
        gatherings.last += 1;
        let (number, full) = (gatherings.last, Arc::new(Notify::new()));
        if self.most == 1 {
            full.notify_one();
        }
        let bytes = joined.item.len();
        let members = vec![joined];
        let gathering = Gathering { number, group, bytes, members, full: Arc::clone(&full) };
        gatherings.open.push(gathering);
        Some((number, full))
    }

    /// Closes a gathering; its members by key, which is their order in the request.
    fn close(&self, number: u64) -> Vec<Joined> {
        let mut gatherings = self.lock();
        let place = gatherings.open.iter().position(|gathering| gathering.number == number);
        let members = place.map(|place| gatherings.open.swap_remove(place).members);
        let mut members = members.unwrap_or_default();
        members.sort_by_cached_key(|joined| joined.input.operation.key.to_string());
        members
    }

    /// The slot that an earlier call has reserved, the first time that it is asked for.
    fn reserved(&self, slot: Option<Timestamp>) -> Option<Timestamp> {
        let slot = slot?;
        let mut gatherings = self.lock();
        if gatherings.used.contains(&slot) {
            return None;
        }
        gatherings.used.push_back(slot);
        if gatherings.used.len() > SLOTS_REMEMBERED {
            gatherings.used.pop_front();
        }
        Some(slot)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gatherings> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    fn of(joined: &Joined, batches: &dyn Batches) -> Self {
        let of = &joined.input.operation;
        Self {
            campaign: of.key.campaign().to_owned(),
            period: of.key.period(),
            ledger: of.ledger.clone(),
            rules: of.rules.clone(),
            common: batches.common(&joined.item).to_vec(),
        }
    }
}

impl Joined {
    fn delivery<'a>(&'a self, parts: &'a Arc<Parts>, client: &'a Client) -> Delivery<'a> {
        Delivery { parts, client, input: &self.input }
    }

    fn member(&self) -> Member {
        Member {
            key: self.input.operation.key.clone(),
            place: (self.input.generation, self.input.ordinal),
            content_hash: self.content_hash.clone(),
            item: Redacted::new(self.item.clone()),
        }
    }

    /// Tells the execution what its delivery came to. One that is gone asks the ledger later.
    fn tell(self, result: Result<Progress, Early>) {
        drop(self.reply.send(answered(result)));
    }

    fn pause(self, pause: Pause) {
        let paused = early(&self.answer, pause);
        self.tell(Err(paused));
    }
}

impl Delivery<'_> {
    /// What a request that is shared would hold for `message`; `None` where it goes alone.
    pub(super) async fn item(
        &self,
        answer: &Answer,
        message: &FrozenMessage,
    ) -> Result<Option<Vec<u8>>, Early> {
        // A test message is in no customer's way.
        let alone = self.of().key.is_canary() || self.parts.gatherer.is_none();
        let shares = answer.operation.shares() == Shares::May && !alone;
        let Some(batches) = self.parts.provider.batches().filter(|_| shares) else {
            return Ok(None);
        };
        match batches.item(&self.of().key, message) {
            Ok(item) => Ok(item.filter(|item| item.len() <= batches.bytes_max())),
            Err(failure) => Err(self.close(failure, answer.moment.now).await?),
        }
    }

    /// Joins a gathering, and waits for what it comes to.
    pub(super) async fn join(
        &self,
        answer: Answer,
        message: &FrozenMessage,
        item: Vec<u8>,
    ) -> Result<Progress, Early> {
        let batches = self.parts.provider.batches();
        let Some((gatherer, batches)) = self.parts.gatherer.as_ref().zip(batches) else {
            return Err(early(&answer, Pause::Draining));
        };
        let (reply, replied) = oneshot::channel();
        let content_hash = message.content_hash.clone();
        let now = answer.moment.now;
        let joined = Joined { input: self.input.clone(), answer, content_hash, item, reply };
        if let Some((number, full)) = gatherer.add(joined, batches) {
            let slot = gatherer.reserved(self.input.slot);
            let see_to = SeeTo {
                parts: Arc::clone(self.parts),
                client: self.client.clone(),
                number,
                since: Instant::now(),
            };
            tokio::spawn(see_to.run(slot, now, full));
        }
        // Whoever sees to it has panicked where nothing comes.
        Ok(replied.await.map_err(|_| GateError::Panicked)??)
    }
}

/// The task of one gathering.
struct SeeTo {
    parts: Arc<Parts>,
    client: Client,
    number: u64,
    since: Instant,
}

/// However it ends, nobody joins its gathering any more, and whoever is still in it is let go.
impl Drop for SeeTo {
    fn drop(&mut self) {
        if let Some(gatherer) = &self.parts.gatherer {
            drop(gatherer.close(self.number));
        }
    }
}

impl SeeTo {
    async fn run(self, reserved: Option<Timestamp>, now: Timestamp, full: Arc<Notify>) {
        let (parts, client) = (&self.parts, &self.client);
        let Some(gatherer) = &parts.gatherer else { return };
        tokio::select! {
            () = sleep_until(self.since + GATHER) => {}
            () = full.notified() => {}
        }
        // Only now: a slot that is taken earlier would be used later than it was meant for.
        let now = now + self.since.elapsed();
        let (slot, due) = match parts.pacer.take(&parts.ledger, reserved, now).await {
            Ok(taken) => taken,
            Err(error) => return fail(gatherer.close(self.number), error),
        };
        if due.saturating_duration_since(Instant::now()) > PACE_WAIT_MAX {
            return pause(gatherer.close(self.number), Pause::Paced(slot.at()));
        }
        sleep_until(due).await;
        let members = gatherer.close(self.number);
        if *parts.draining.borrow() {
            return pause(members, Pause::Draining);
        }
        if let Err(error) = self.wait_for_the_others(members.len()).await {
            return fail(members, error);
        }
        let Ok(place) = parts.listening.clone().try_acquire_owned() else {
            return pause(members, Pause::Listening);
        };
        let (Some(batches), Some(first)) = (parts.provider.batches(), members.first()) else {
            return;
        };
        let rules = first.input.operation.rules.clone();
        let ready = match prepare(batches, &rules).await {
            Ok(ready) => ready,
            Err(failure) => return close(parts, client, members, &failure).await,
        };
        let members = still_wanted(parts, client, members).await;
        self.begin(batches, &rules, (members, slot, place), ready).await;
    }

    /// Where the provider's rate counts messages, waits for the place of each member but the first.
    async fn wait_for_the_others(&self, members: usize) -> Result<(), LedgerError> {
        let parts = &self.parts;
        if !parts.provider.batches().is_some_and(Batches::counts_messages) {
            return Ok(());
        }
        for _ in 1..members {
            let (_, due) = parts.pacer.next(&parts.ledger).await?;
            sleep_until(due).await;
        }
        Ok(())
    }

    /// Begins the attempts of all that may begin, and hands them over.
    async fn begin(
        &self,
        batches: &dyn Batches,
        rules: &Rules,
        (members, slot, place): (Vec<Joined>, Slot, OwnedSemaphorePermit),
        ready: Box<dyn ReadyBatch>,
    ) {
        let parts = &self.parts;
        let asked: Vec<Member> = members.iter().map(Joined::member).collect();
        let provider = parts.provider.provider_ref();
        let contract = parts.provider.contract();
        let proposal = Proposal { provider: &provider, contract, rules, batches };
        crash::point("before-intent");
        let lease = Lease::from_now(span(rules.timeouts.lease));
        let BatchAnswer { members: answers, frozen } =
            match parts.ledger.begin_batch(&asked, proposal, &slot).await {
                Ok(answer) => answer,
                Err(error) => {
                    // Attempts that may be recorded are not ours to speak of.
                    ready.abandon().await;
                    return fail(members, error);
                }
            };
        let (mut passengers, mut refused) = (Vec::new(), Vec::new());
        for (joined, answer) in members.into_iter().zip(answers) {
            match answer {
                Ok(begun) => {
                    parts.metrics.begun(&joined.answer, &begun);
                    passengers.push(Passenger {
                        input: joined.input.operation.clone(),
                        begun: Some(begun),
                        waiting: Some(joined.reply),
                    });
                }
                Err(cannot) => refused.push((joined, cannot)),
            }
        }
        let Some(frozen) = frozen else {
            ready.abandon().await;
            return refuse(parts, &self.client, refused).await;
        };
        crash::point("intent-recorded");
        let (parts, client) = (Arc::clone(parts), self.client.clone());
        let rules = rules.clone();
        let outgoing =
            Outgoing { parts, client, frozen, passengers, rules, lease, place, claim: None };
        tokio::join!(outgoing.go(ready), refuse(&self.parts, &self.client, refused));
    }
}

/// Connects.
async fn prepare(batches: &dyn Batches, rules: &Rules) -> Result<Box<dyn ReadyBatch>, Failure> {
    let prepared = tokio::time::timeout(span(rules.timeouts.timeout), batches.prepare()).await;
    prepared.unwrap_or_else(|_| Err(Failure::new(FailureClass::Transport, "no connection in time")))
}

/// Those whose customers still want it; the others are told, and are not sent.
async fn still_wanted(
    parts: &Arc<Parts>,
    client: &Client,
    mut members: Vec<Joined>,
) -> Vec<Joined> {
    let mut wanted = Vec::new();
    while !members.is_empty() {
        let rest = members.split_off(members.len().min(CONSENTS));
        let asked = members
            .iter()
            .map(async |joined| joined.delivery(parts, client).ask_consent(&joined.answer).await);
        let said = join_all(asked).await;
        for (joined, said) in members.into_iter().zip(said) {
            match said {
                Ok(()) => wanted.push(joined),
                Err(early) => joined.tell(Err(early)),
            }
        }
        members = rest;
    }
    wanted
}

/// Records for each that its try ended before its intent.
async fn close(parts: &Arc<Parts>, client: &Client, members: Vec<Joined>, failure: &Failure) {
    for joined in members {
        let read_at = joined.answer.moment.now;
        let closed = joined.delivery(parts, client).close(failure.clone(), read_at).await;
        joined.tell(closed.and_then(Err));
    }
}

/// Answers those that may not begin.
async fn refuse(parts: &Arc<Parts>, client: &Client, refused: Vec<(Joined, CannotBegin)>) {
    for (joined, cannot) in refused {
        let answer = joined.delivery(parts, client).cannot(&joined.answer, cannot).await;
        joined.tell(answer.and_then(Err));
    }
}

fn pause(members: Vec<Joined>, pause: Pause) {
    for joined in members {
        joined.pause(pause);
    }
}

fn fail(members: Vec<Joined>, error: LedgerError) {
    let error = Arc::new(error);
    for joined in members {
        joined.tell(Err(Early::Lost(GateError::Batch(Arc::clone(&error)))));
    }
}
