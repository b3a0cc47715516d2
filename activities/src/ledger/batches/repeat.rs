//! A batch that goes again: whole, by one execution at a time, while its window is open.

use super::super::attempts::{Begun, Token, begin_in};
use super::super::database::{Row, Tx, values};
use super::super::operations::Loaded;
use super::super::pace::Slot;
use super::super::{Ledger, LedgerError};
use super::{FrozenBatch, Proposal, load_all, reference, share_run};
use crate::crash;
use crate::redacted::Redacted;
use digest_workflows::operation::{BatchRef, CannotBegin, Intent, OperationKey, Rules};
use jiff::{SignedDuration, Timestamp};

/// A batch whose request is still kept.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    /// Which one it is.
    pub batch: BatchRef,
    /// Its members, in the order of the request.
    pub members: Vec<OperationKey>,
    /// The rules that each of them was started with.
    pub rules: Rules,
    request: Redacted<Vec<u8>>,
}

impl StoredBatch {
    /// The request, as it went the first time.
    #[must_use]
    pub fn frozen(&self) -> FrozenBatch {
        let (key, request) = (self.batch.id.clone(), self.request.clone());
        FrozenBatch { key, request, members: self.members.len() }
    }
}

/// The answer to who may send a batch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Whoever asked, for as long as was asked for.
    Mine,
    /// Somebody else, at most until then.
    Until(Timestamp),
}

/// The answer to the beginning of a batch that goes again.
#[derive(Debug)]
pub enum Repeated {
    /// It goes again. Of each member, in the order of the request: the attempt that it has begun, or
    /// `None` if the batch was accepted with it before.
    Begun(Vec<Option<Begun>>),
    /// It may not go: why the operation that asked may not begin.
    Cannot(CannotBegin),
    /// Somebody else has it by now.
    Taken(Timestamp),
}

impl Ledger {
    /// The batch `id`, while its request is kept.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn stored_batch(&self, id: &str) -> Result<Option<StoredBatch>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let row = tx
            .row(
                "select id, request_hash, members, rules, request from @batches \
                 where id = $1 and request is not null",
                values![id],
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// Claims the batch `id` for whoever has `token`, for `span`, unless somebody else has it.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; it may be claimed then.
    pub async fn claim_batch(
        &self,
        id: &str,
        token: &Token,
        span: SignedDuration,
    ) -> Result<Claim, LedgerError> {
        let mut tx = self.db.begin().await?;
        let claim = claim_in(&mut tx, id, token, span).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Gives the claim on the batch `id` up, if `token` has it.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; it ends by itself then.
    pub async fn release_batch(&self, id: &str, token: &Token) -> Result<(), LedgerError> {
        let mut tx = self.db.begin().await?;
        tx.execute(
            "update @batches set repeater = null, repeats_until = null \
             where id = $1 and repeater = $2",
            values![id, token.proof()],
        )
        .await?;
        tx.commit().await
    }

    /// Begins the next attempt of every member of `stored` in one transaction, or of none: the member
    /// `asks` expects its own to be the given one. `slot` is the reserved place in the rate.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn repeat_batch(
        &self,
        stored: &StoredBatch,
        (asks, place): (&OperationKey, (u32, u32)),
        (token, span): (&Token, SignedDuration),
        proposal: Proposal<'_>,
        _slot: &Slot,
    ) -> Result<Repeated, LedgerError> {
        let mut tx = self.db.begin().await?;
        let keys: Vec<&OperationKey> = stored.members.iter().collect();
        let mut loaded = load_all(&mut tx, &keys).await?;
        share_run(&mut tx, asks.campaign(), asks.period(), &mut loaded).await?;
        let intents: Vec<Intent> =
            loaded.iter().map(|loaded| intent(loaded, stored, &proposal)).collect();
        let begins = match begins(&keys, &loaded, &intents, (asks, place)) {
            Ok(begins) => begins,
            Err(cannot) => return Ok(Repeated::Cannot(cannot)),
        };
        if let Claim::Until(at) = claim_in(&mut tx, &stored.batch.id, token, span).await? {
            return Ok(Repeated::Taken(at));
        }
        let kept = "select id from @batches where id = $1 and request is not null";
        if tx.row(kept, values![stored.batch.id.as_str()]).await?.is_none() {
            // Erased since it was read.
            return Ok(Repeated::Cannot(CannotBegin::InDoubt));
        }
        let mut begun = Vec::new();
        for ((loaded, intent), begins) in loaded.iter_mut().zip(&intents).zip(begins) {
            if !begins {
                begun.push(None);
                continue;
            }
            match begin_in(&mut tx, loaded, intent, &Token::draw(), proposal.rules).await? {
                Ok(one) => begun.push(Some(one)),
                Err(cannot) => return Ok(Repeated::Cannot(cannot)),
            }
        }
        crash::point("intent-uncommitted");
        // Without an answer nobody hands over: whoever asks next finds the attempts open.
        tx.commit().await?;
        Ok(Repeated::Begun(begun))
    }
}

/// Whether each member begins an attempt, if the batch may go again.
///
/// # Errors
/// Why the member that asks may not begin.
fn begins(
    keys: &[&OperationKey],
    loaded: &[Loaded],
    intents: &[Intent],
    (asks, place): (&OperationKey, (u32, u32)),
) -> Result<Vec<bool>, CannotBegin> {
    let mut begins = Vec::new();
    let mut hindered = false;
    for ((key, loaded), intent) in keys.iter().zip(loaded).zip(intents) {
        let may = loaded.operation.may_repeat(intent, &loaded.moment);
        if *key == asks {
            if (intent.generation, intent.ordinal) != place {
                return Err(CannotBegin::NotNext);
            }
            if !may? {
                return Err(CannotBegin::Settled);
            }
        }
        hindered |= may.is_err();
        begins.push(may.unwrap_or_default());
    }
    if hindered { Err(CannotBegin::InDoubt) } else { Ok(begins) }
}

/// The next attempt of one member, with the bytes of its doubts.
fn intent(loaded: &Loaded, stored: &StoredBatch, proposal: &Proposal<'_>) -> Intent {
    let operation = &loaded.operation;
    let hash = operation.doubts.first().map(|doubt| doubt.content_hash.clone());
    Intent {
        generation: operation.generation,
        ordinal: operation.ordinal + 1,
        provider: proposal.provider.clone(),
        contract: proposal.contract,
        content_hash: hash.unwrap_or_default(),
        lease: proposal.rules.timeouts.lease,
        settle: proposal.rules.timeouts.settle,
        batch: Some(stored.batch.clone()),
    }
}

async fn claim_in(
    tx: &mut Tx,
    id: &str,
    token: &Token,
    span: SignedDuration,
) -> Result<Claim, LedgerError> {
    let sql = "select repeater, repeats_until from @batches where id = $1";
    let row = tx.locked(sql, "for update", values![id]).await?;
    let row = row.ok_or_else(|| LedgerError::corrupt(format!("no batch {id}")))?;
    let now = tx.now().await?;
    let mine = row.maybe_text(0)?.as_deref() == Some(token.proof().as_str());
    if let Some(until) = row.maybe_time(1)?.filter(|until| *until > now && !mine) {
        return Ok(Claim::Until(until));
    }
    tx.execute(
        "update @batches set repeater = $2, repeats_until = $3 where id = $1",
        values![id, token.proof(), now + span],
    )
    .await?;
    Ok(Claim::Mine)
}

fn read(row: &Row) -> Result<StoredBatch, LedgerError> {
    let keys: Vec<String> = serde_json::from_str(&row.text(2)?)?;
    let key = |text: &String| {
        OperationKey::parse(text).map_err(|error| LedgerError::corrupt(error.to_string()))
    };
    let stored = StoredBatch {
        batch: BatchRef { id: row.text(0)?, request_hash: row.text(1)? },
        members: keys.iter().map(key).collect::<Result<_, _>>()?,
        rules: serde_json::from_str(&row.text(3)?)?,
        request: Redacted::new(row.bytes(4)?),
    };
    if reference(&stored.frozen()) != stored.batch {
        let id = &stored.batch.id;
        return Err(LedgerError::corrupt(format!("the stored request of {id} has changed")));
    }
    Ok(stored)
}
