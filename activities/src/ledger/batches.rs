//! Batches: the attempts of several operations that go in one request.
//!
//! Each member keeps its attempt, token and lease; what is shared is the frozen request. It is kept
//! only as long as it may go again: content and addresses of all members are in it.

mod repeat;

pub use repeat::{Claim, Repeated, StoredBatch};

use super::attempts::{Begun, READ_BACK, Token, begin_in, record_in};
use super::database::{Tx, values};
use super::operations::{Actor, Loaded, Lock, Recorded, load};
use super::pace::Slot;
use super::runs::{no_such_run, run_in};
use super::suppressions::read_again;
use super::{Ledger, LedgerError};
use crate::crash;
use crate::provider::batch::{Batches, FrozenBatch};
use crate::redacted::Redacted;
use data_encoding::HEXLOWER;
use digest_workflows::activities::Evidence;
use digest_workflows::operation::{
    BatchRef, CannotBegin, Contract, Intent, Moment, Operation, OperationKey, Period, ProviderRef,
    Rules, Shares, State,
};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashSet};

/// An operation that is to go in a batch.
#[derive(Clone, Debug)]
pub struct Member {
    /// The operation.
    pub key: OperationKey,
    /// The generation and ordinal of the attempt that is expected to be next.
    pub place: (u32, u32),
    /// Hash of its frozen message.
    pub content_hash: String,
    /// What the request holds for it.
    pub item: Redacted<Vec<u8>>,
}

/// What the attempts of a batch have in common.
#[derive(Clone, Copy)]
pub struct Proposal<'a> {
    /// To whom they are handed.
    pub provider: &'a ProviderRef,
    /// What that provider promises.
    pub contract: Contract,
    /// The rules that every member was started with.
    pub rules: &'a Rules,
    /// Who builds the request.
    pub batches: &'a dyn Batches,
}

/// The answer to the beginning of a batch.
#[derive(Debug)]
pub struct BatchAnswer {
    /// Of each member, in the order that was asked for: its attempt, or why it may not begin.
    pub members: Vec<Result<Begun, CannotBegin>>,
    /// The request of those that began, in the same order; `None` if none did.
    pub frozen: Option<FrozenBatch>,
}

impl Ledger {
    /// Begins an attempt of each member that may begin, all of one run, in one transaction, with the
    /// request that they go in. The others are as they were. `slot` is the reserved place in the
    /// rate.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), for all members together.
    pub async fn begin_batch(
        &self,
        members: &[Member],
        proposal: Proposal<'_>,
        _slot: &Slot,
    ) -> Result<BatchAnswer, LedgerError> {
        let Some(first) = members.first() else {
            return Ok(BatchAnswer { members: Vec::new(), frozen: None });
        };
        let (campaign, period) = (first.key.campaign(), first.key.period());
        let mut tx = self.db.begin().await?;
        let keys: Vec<&OperationKey> = members.iter().map(|member| &member.key).collect();
        let mut loaded = load_all(&mut tx, &keys).await?;
        share_run(&mut tx, campaign, period, &mut loaded).await?;
        let cannot = refusals(members, &proposal, &loaded);
        let begins = |place: &usize| cannot[*place].is_none();
        let items: Vec<&[u8]> = (0..members.len())
            .filter(begins)
            .map(|place| members[place].item.reveal().as_slice())
            .collect();
        if items.is_empty() {
            let members = cannot.into_iter().flatten().map(Err).collect();
            return Ok(BatchAnswer { members, frozen: None });
        }
        let count = items.len();
        let frozen = freeze(campaign, period, proposal.batches.request(&items), count);
        let batch = reference(&frozen);
        let keys: Vec<String> =
            (0..members.len()).filter(begins).map(|place| keys[place].to_string()).collect();
        insert(&mut tx, &loaded[0], &frozen, &batch, &keys, &proposal).await?;
        let mut answers = Vec::new();
        for ((member, loaded), cannot) in members.iter().zip(&mut loaded).zip(cannot) {
            if let Some(cannot) = cannot {
                answers.push(Err(cannot));
                continue;
            }
            let intent = intent(member, &proposal, Some(batch.clone()));
            let token = Token::draw();
            answers.push(begin_in(&mut tx, loaded, &intent, &token, proposal.rules).await?);
        }
        crash::point("intent-uncommitted");
        if let Err(error) = tx.commit().await {
            self.read_batch_back(&first.key, &frozen.key, error).await?;
        }
        Ok(BatchAnswer { members: answers, frozen: Some(frozen) })
    }

    /// Records what became of the attempts of a batch, each by its own proof, in one transaction: a
    /// batch of which only some members' outcomes are on record could not go again.
    ///
    /// # Errors
    /// As [`record`](Self::record); nothing of it is recorded then, unless the commit is unknown.
    pub async fn record_batch(
        &self,
        outcomes: &[(OperationKey, Evidence)],
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Vec<Recorded>, LedgerError> {
        let mut tx = self.db.begin().await?;
        let keys: Vec<&OperationKey> = outcomes.iter().map(|(key, _)| key).collect();
        let mut loaded = load_all(&mut tx, &keys).await?;
        let mut changes = Vec::new();
        for ((_, evidence), loaded) in outcomes.iter().zip(&mut loaded) {
            changes.push(record_in(&mut tx, loaded, evidence, rules, actor).await?);
        }
        crash::point("outcome-uncommitted");
        tx.commit().await?;
        let recorded =
            |(loaded, change): (Loaded, _)| Recorded { answer: loaded.into_answer(), change };
        Ok(loaded.into_iter().zip(changes).map(recorded).collect())
    }

    /// Finds out whether a commit whose answer was lost was applied: the id was drawn for it.
    async fn read_batch_back(
        &self,
        member: &OperationKey,
        id: &str,
        error: LedgerError,
    ) -> Result<(), LedgerError> {
        for wait in READ_BACK {
            tokio::time::sleep(wait).await;
            let Ok(mut tx) = self.db.begin().await else { continue };
            // The row lock waits for a commit that is still on its way.
            let Ok(_) = load(&mut tx, member, Lock::Operation).await else { continue };
            match tx.row("select id from @batches where id = $1", values![id]).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => return Err(error.not_applied()),
                Err(_) => {}
            }
        }
        Err(error)
    }
}

/// Loads operations in the order of `keys`, locked in the order of the keys themselves, so that two
/// transactions over some of the same cannot wait for each other.
async fn load_all(tx: &mut Tx, keys: &[&OperationKey]) -> Result<Vec<Loaded>, LedgerError> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|place| keys[*place].to_string());
    let mut all = Vec::new();
    for place in order {
        all.push((place, load(tx, keys[place], Lock::Operation).await?));
    }
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, loaded)| loaded).collect())
}

/// Locks the run after all of its operations, against a hold, and gives each the moment after that.
async fn share_run(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    loaded: &mut [Loaded],
) -> Result<(), LedgerError> {
    let run = run_in(tx, campaign, period, "for share").await?;
    let run = run.ok_or_else(|| no_such_run(campaign, period))?;
    let moment = run.moment(tx.now().await?);
    for one in loaded.iter_mut() {
        one.run = run.clone();
        one.moment = Moment { suppressed: one.moment.suppressed, ..moment };
    }
    read_again(tx, loaded).await
}

/// Why each member may not begin, where it may not: a batch takes only what has nothing in doubt, and
/// each operation once.
fn refusals(
    members: &[Member],
    proposal: &Proposal<'_>,
    loaded: &[Loaded],
) -> Vec<Option<CannotBegin>> {
    let mut seen = HashSet::new();
    let one = |(member, loaded): (&Member, &Loaded)| {
        let intent = intent(member, proposal, None);
        if !seen.insert(loaded.key.clone()) {
            return Some(CannotBegin::NotNext);
        }
        if let Err(cannot) = loaded.operation.may_begin(&intent, &loaded.moment) {
            return Some(cannot);
        }
        (loaded.operation.shares() != Shares::May).then_some(CannotBegin::InDoubt)
    };
    members.iter().zip(loaded).map(one).collect()
}

fn intent(member: &Member, proposal: &Proposal<'_>, batch: Option<BatchRef>) -> Intent {
    Intent {
        generation: member.place.0,
        ordinal: member.place.1,
        provider: proposal.provider.clone(),
        contract: proposal.contract,
        content_hash: member.content_hash.clone(),
        lease: proposal.rules.timeouts.lease,
        settle: proposal.rules.timeouts.settle,
        batch,
    }
}

/// A request under an id of its own, which no operation's key can be.
fn freeze(campaign: &str, period: Period, request: Vec<u8>, members: usize) -> FrozenBatch {
    let key = format!("{campaign}:{period}:batch:{}", uuid::Uuid::new_v4());
    FrozenBatch { key, request: Redacted::new(request), members }
}

fn reference(frozen: &FrozenBatch) -> BatchRef {
    let request_hash = HEXLOWER.encode(&Sha256::digest(frozen.request.reveal()));
    BatchRef { id: frozen.key.clone(), request_hash }
}

async fn insert(
    tx: &mut Tx,
    of: &Loaded,
    frozen: &FrozenBatch,
    batch: &BatchRef,
    keys: &[String],
    proposal: &Proposal<'_>,
) -> Result<(), LedgerError> {
    tx.execute(
        "insert into @batches (id, campaign, period, members, rules, request_hash, begun_at) \
         values ($1, $2, $3, $4, $5, $6, $7)",
        values![
            batch.id.as_str(),
            of.run.campaign.as_str(),
            of.run.period.to_string(),
            serde_json::to_string(keys)?,
            serde_json::to_string(proposal.rules)?,
            batch.request_hash.as_str(),
            of.moment.now,
        ],
    )
    .await?;
    // What cannot go again is not kept.
    if proposal.contract.replay.window().is_some() {
        tx.execute(
            "update @batches set request = $2 where id = $1",
            values![batch.id.as_str(), frozen.request.reveal().clone()],
        )
        .await?;
    }
    Ok(())
}

/// Drops the request of each batch that the operation was in doubt about, once it cannot go again:
/// its window is over, nobody is in doubt about it any more, or this operation keeps it from going.
pub(super) async fn drop_what_is_over(
    tx: &mut Tx,
    before: &Operation,
    after: &Operation,
    now: Timestamp,
) -> Result<(), LedgerError> {
    let replays = before.doubts.iter().filter(|doubt| doubt.contract.replay.window().is_some());
    let ids: BTreeSet<&str> =
        replays.filter_map(|doubt| Some(doubt.batch.as_ref()?.id.as_str())).collect();
    for id in ids {
        let about_it = |batch: &Option<BatchRef>| batch.as_ref().is_some_and(|b| b.id == id);
        let pursued = matches!(after.state, State::Sending | State::Unknown)
            && after.replayable_until().is_some_and(|until| now < until)
            && after.doubts.iter().any(|doubt| about_it(&doubt.batch));
        if pursued {
            continue;
        }
        // Of two members that settle at the same time, the second must see that it is the last.
        let lock = "select id from @batches where id = $1";
        tx.locked(lock, "for update", values![id]).await?;
        let accepted = after.accepted.as_ref().and_then(|accepted| accepted.batch.as_deref());
        let sql = if accepted == Some(id) {
            "update @batches set request = null where id = $1 and request is not null \
             and not exists (select 1 from @attempts where batch = $1 and outcome is null)"
        } else {
            "update @batches set request = null where id = $1 and request is not null"
        };
        tx.execute(sql, values![id]).await?;
    }
    Ok(())
}

/// Erases every request that `key` is in; none of them goes again then. Returns whether there were any.
pub(super) async fn erase_requests_with(tx: &mut Tx, key: &str) -> Result<bool, LedgerError> {
    let sql = "update @batches set request = null where request is not null \
               and id in (select batch from @attempts where key = $1 and batch is not null)";
    Ok(tx.execute(sql, values![key]).await? > 0)
}

/// Removes the batches of a run.
pub(super) async fn remove_batches(
    tx: &mut Tx,
    campaign: &str,
    period: &str,
) -> Result<(), LedgerError> {
    let sql = "delete from @batches where campaign = $1 and period = $2";
    tx.execute(sql, values![campaign, period]).await?;
    Ok(())
}
