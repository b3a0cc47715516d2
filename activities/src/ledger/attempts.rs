//! Attempts: `begin attempt` with its token, and what became of each.

use super::database::{Tx, values};
use super::operations::{Actor, Loaded, Lock, Recorded, apply, audit, load, save};
use super::pace::Slot;
use super::suppressions::{SUPPRESSIONS, read_again};
use super::{BeginAnswer, Ledger, LedgerError};
use crate::crash;
use data_encoding::HEXLOWER;
use digest_workflows::activities::Evidence;
use digest_workflows::operation::{
    CannotBegin, Change, Doubt, Event, Intent, Note, Operation, OperationKey, Outcome, Rules,
};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// How often, and how far apart, a commit whose answer was lost is read back.
pub(super) const READ_BACK: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2)];

/// Who may hand over an attempt: drawn inside each execution, and never leaves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A fresh token.
    #[must_use]
    pub fn draw() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// What may leave the execution: it shows that somebody has the token, and not the token.
    pub(super) fn proof(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(&self.0))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// An attempt that was begun and is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its running number.
    pub number: u32,
    /// When the intent was recorded, by the ledger's clock.
    pub begun_at: Timestamp,
    /// Until when it may hand over, by the ledger's clock.
    pub lease_ends: Timestamp,
    /// The operation with this attempt begun.
    pub operation: Operation,
    proof: String,
}

impl Begun {
    /// What became of this attempt, with the proof that its own execution says so.
    #[must_use]
    pub fn evidence(&self, event: Event) -> Evidence {
        Evidence { event, proof: self.proof.clone() }
    }
}

impl Ledger {
    /// Begins an attempt: writes intent, token and lease if every condition of the decision core
    /// holds inside this one transaction. `slot` is the reserved place in the rate.
    ///
    /// # Errors
    /// [`LedgerError::CommitUnknown`] when the commit's answer was lost and could not be read back:
    /// the attempt may be recorded, and nobody may hand it over. Any other error means that it was
    /// not begun.
    pub async fn begin(
        &self,
        key: &OperationKey,
        intent: &Intent,
        token: &Token,
        _slot: &Slot,
        rules: &Rules,
    ) -> Result<BeginAnswer, LedgerError> {
        let mut tx = self.db.begin().await?;
        // The share lock orders this against a hold: no attempt begins once the hold is committed.
        let mut loaded = load(&mut tx, key, Lock::OperationAndRun).await?;
        read_again(&mut tx, std::slice::from_mut(&mut loaded)).await?;
        let begun = match begin_in(&mut tx, &mut loaded, intent, token, rules).await? {
            Ok(begun) => begun,
            Err(cannot) => {
                let is_new = cannot == CannotBegin::Unwanted && !loaded.operation.unwanted;
                if let Some(reason) = loaded.suppressed.filter(|_| is_new) {
                    // Told since consent was asked; recorded as if it had been by then.
                    let actor = Actor { by: SUPPRESSIONS, reason: Some(reason.code()) };
                    apply(&mut tx, &mut loaded, &Event::Unwanted, rules, actor, None).await?;
                    tx.commit().await?;
                }
                return Ok(BeginAnswer::Cannot(cannot));
            }
        };
        crash::point("intent-uncommitted");
        match tx.commit().await {
            Ok(()) => Ok(BeginAnswer::Begun(Box::new(begun))),
            Err(error) => self.read_back(key, intent, token, begun, error).await,
        }
    }

    /// Records what became of an attempt, if the proof is that of the execution that made it.
    /// Anything else changes nothing and is noted in the audit. An attempt that a restore has taken
    /// from the record can't be proven any more: an acceptance then counts while that attempt is in
    /// doubt, since it leads to no other send.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub async fn record_evidence(
        &self,
        key: &OperationKey,
        evidence: &Evidence,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Recorded, LedgerError> {
        let mut tx = self.db.begin().await?;
        let mut loaded = load(&mut tx, key, Lock::Operation).await?;
        let change = record_in(&mut tx, &mut loaded, evidence, rules, actor).await?;
        crash::point("outcome-uncommitted");
        tx.commit().await?;
        Ok(Recorded { answer: loaded.into_answer(), change })
    }

    /// Finds out whether a commit whose answer was lost was applied: my token means that it is mine.
    async fn read_back(
        &self,
        key: &OperationKey,
        intent: &Intent,
        token: &Token,
        begun: Begun,
        error: LedgerError,
    ) -> Result<BeginAnswer, LedgerError> {
        for wait in READ_BACK {
            tokio::time::sleep(wait).await;
            let Ok(mut tx) = self.db.begin().await else { continue };
            // The row lock waits for a commit that is still on its way.
            let Ok(_) = load(&mut tx, key, Lock::Operation).await else { continue };
            let row = tx
                .row(
                    "select token from @attempts where key = $1 and generation = $2 \
                     and ordinal = $3",
                    values![key.to_string(), intent.generation, intent.ordinal],
                )
                .await;
            match row {
                Ok(Some(row)) if row.maybe_text(0)?.as_deref() == Some(token.0.as_str()) => {
                    return Ok(BeginAnswer::Begun(Box::new(begun)));
                }
                Ok(Some(_)) => return Ok(BeginAnswer::Cannot(CannotBegin::NotNext)),
                Ok(None) => return Err(error.not_applied()),
                Err(_) => {}
            }
        }
        Err(error)
    }
}

/// Begins an attempt inside `tx`: whatever keeps it from beginning, nothing is written.
pub(super) async fn begin_in(
    tx: &mut Tx,
    loaded: &mut Loaded,
    intent: &Intent,
    token: &Token,
    rules: &Rules,
) -> Result<Result<Begun, CannotBegin>, LedgerError> {
    let from = loaded.operation.state;
    let number = match loaded.operation.begin(intent.clone(), &loaded.moment) {
        Ok(number) => number,
        Err(cannot) => return Ok(Err(cannot)),
    };
    let lease_ends = loaded.moment.now + intent.lease;
    insert_intent(tx, loaded, intent, token, number).await?;
    save(tx, loaded, rules).await?;
    let change = Change { from, to: loaded.operation.state, settled: Vec::new(), note: None };
    audit(tx, loaded, "begun", &change, Actor::part("delivery")).await?;
    let (begun_at, operation) = (loaded.moment.now, loaded.operation.clone());
    Ok(Ok(Begun { number, begun_at, lease_ends, operation, proof: token.proof() }))
}

/// Records evidence inside `tx`, if it is proven.
pub(super) async fn record_in(
    tx: &mut Tx,
    loaded: &mut Loaded,
    evidence: &Evidence,
    rules: &Rules,
    actor: Actor<'_>,
) -> Result<Change, LedgerError> {
    let event = &evidence.event;
    if is_proven(tx, loaded, evidence).await? {
        return apply(tx, loaded, event, rules, actor, None).await;
    }
    let state = loaded.operation.state;
    let change = Change { from: state, to: state, settled: Vec::new(), note: Some(Note::Unproven) };
    audit(tx, loaded, event.name(), &change, actor).await?;
    Ok(change)
}

/// Whether evidence comes from the execution that made the attempt it speaks of.
async fn is_proven(tx: &mut Tx, loaded: &Loaded, evidence: &Evidence) -> Result<bool, LedgerError> {
    let (attempt, accepted) = match &evidence.event {
        Event::Answered { attempt, outcome, .. } => {
            (*attempt, matches!(outcome, Outcome::Accepted { .. }))
        }
        Event::Overdue { attempt, .. } => (*attempt, false),
        _ => return Ok(false),
    };
    let sql = "select token from @attempts where key = $1 and number = $2";
    let row = tx.row(sql, values![loaded.key.as_str(), attempt]).await?;
    match row.map(|row| row.maybe_text(0)).transpose()?.flatten() {
        Some(token) => Ok(Token(token).proof() == evidence.proof),
        None => Ok(accepted && loaded.operation.doubts.iter().any(Doubt::is_unrecorded)),
    }
}

async fn insert_intent(
    tx: &mut Tx,
    loaded: &Loaded,
    intent: &Intent,
    token: &Token,
    number: u32,
) -> Result<(), LedgerError> {
    let lease_ends = loaded.moment.now + intent.lease;
    tx.execute_soon(
        "insert into @attempts (key, number, campaign, period, generation, ordinal, token, \
         provider, account, begun_at, lease_ends, settles_at, content_hash, batch) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        values![
            loaded.key.as_str(),
            number,
            loaded.run.campaign.as_str(),
            loaded.run.period.to_string(),
            intent.generation,
            intent.ordinal,
            token.0.as_str(),
            intent.provider.kind.as_str(),
            intent.provider.account.as_str(),
            loaded.moment.now,
            lease_ends,
            lease_ends + intent.settle,
            intent.content_hash.as_str(),
            intent.batch.as_ref().map(|batch| batch.id.as_str()),
        ],
    )
    .await
}

/// Records the outcome of an attempt. A try that ended before its intent gets its row here.
pub(super) async fn close_attempt(
    tx: &mut Tx,
    loaded: &Loaded,
    number: u32,
    outcome: &Outcome,
) -> Result<(), LedgerError> {
    let (name, class, code, message_id) = match outcome {
        Outcome::Accepted { message_id } => ("accepted", None, None, message_id.as_deref()),
        Outcome::NotSent(failure) => {
            ("not_sent", Some(failure.class.name()), Some(failure.code.as_str()), None)
        }
    };
    tx.execute_soon(
        "insert into @attempts (key, number, campaign, period, generation, ordinal, decided_at, \
         outcome, class, code, message_id) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
         on conflict (key, number) do update set outcome = excluded.outcome, \
         class = excluded.class, code = excluded.code, message_id = excluded.message_id, \
         decided_at = coalesce(@attempts.decided_at, excluded.decided_at)",
        values![
            loaded.key.as_str(),
            number,
            loaded.run.campaign.as_str(),
            loaded.run.period.to_string(),
            loaded.operation.generation,
            loaded.operation.ordinal,
            loaded.moment.now,
            name,
            class,
            code,
            message_id,
        ],
    )
    .await
}

/// Records that an attempt has no answer in time.
pub(super) async fn mark_overdue(
    tx: &mut Tx,
    loaded: &Loaded,
    number: u32,
) -> Result<(), LedgerError> {
    tx.execute_soon(
        "update @attempts set decided_at = $3 where key = $1 and number = $2 \
         and decided_at is null",
        values![loaded.key.as_str(), number, loaded.moment.now],
    )
    .await
}
