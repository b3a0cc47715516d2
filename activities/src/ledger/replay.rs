//! Trying again what was given up: dead letters, and cleanups that failed.

use super::content::{FrozenData, replace_content};
use super::database::{Tx, values};
use super::operations::{Actor, Answer, Loaded, Lock, apply, audit, load};
use super::reports::{OperationLine, range};
use super::runs::{no_such_run, run_in};
use super::{Ledger, LedgerError, Listing};
use crate::message::FrozenMessage;
use digest_workflows::operation::{
    CannotReplay, Event, FailureClass, Moment, Operation, OperationKey, Period, Rules,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What a dead letter becomes before it is replayed with `--refreeze`.
#[derive(Clone, Debug)]
pub struct Refrozen {
    /// The source's row of today.
    pub data: FrozenData,
    /// What today's templates make of it.
    pub message: FrozenMessage,
}

/// A dead letter to replay.
#[derive(Clone, Debug)]
pub struct ToReplay {
    /// Its key.
    pub key: OperationKey,
    /// What to send instead of what was frozen.
    pub refrozen: Option<Refrozen>,
}

/// Why a key is not replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayed {
    /// No such key.
    #[error("the ledger knows no such operation")]
    Missing,
    /// The decision core refuses.
    #[error(transparent)]
    Cannot(#[from] CannotReplay),
    /// Neither bytes nor rows are stored any more.
    #[error("its content is not kept any more; render it anew with --refreeze")]
    ContentGone,
}

/// What is still stored of an operation's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The bytes.
    Message,
    /// Only what they would be rendered from.
    Rows,
    /// Nothing.
    Nothing,
}

impl Kept {
    pub(super) const fn of(message: bool, rows: bool) -> Self {
        match (message, rows) {
            (true, _) => Self::Message,
            (false, true) => Self::Rows,
            (false, false) => Self::Nothing,
        }
    }

    /// What a dead letter waits for: what its replay would do.
    pub(super) fn on_replay(self, operation: &Operation, moment: &Moment) -> String {
        if let Err(cannot) = operation.may_replay(moment) {
            return format!("nothing: cannot be replayed, {cannot}");
        }
        let refreeze = match operation.may_refreeze(moment) {
            Err(CannotReplay::Remembered(until)) => format!("--refreeze only after {until}"),
            _ => "--refreeze renders it anew".to_owned(),
        };
        match self {
            Self::Message => format!("a replay, which sends the same bytes; {refreeze}"),
            Self::Rows => format!("a replay, which renders the frozen rows; {refreeze}"),
            Self::Nothing => format!("a replay; its content is not kept, {refreeze}"),
        }
    }
}

impl Ledger {
    /// The dead letters of the campaign (of `period`, or of all periods; of `class`, or of every
    /// class) as [`list`](Self::list) has them, with the code of the last failure, and what a replay
    /// would do in `waits_for`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn dead_letters(
        &self,
        campaign: &str,
        period: Option<Period>,
        class: Option<FailureClass>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Listing, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let now = tx.now().await?;
        let (after, end) = range(campaign, period, after);
        let rows = tx
            .rows(
                "select o.key, o.machine, o.period, d.code, \
                 cast(case when m.key is null then 0 else 1 end as bigint), \
                 cast(case when r.key is null then 0 else 1 end as bigint) from @operations o \
                 left join @dead_letters d on d.key = o.key and d.replayed_at is null \
                 left join @messages m on m.key = o.key \
                 left join @digest_rows r on r.key = o.key \
                 where o.campaign = $1 and o.state = 'dead' and o.key > $2 and o.key < $3 \
                 and ($5 = '' or o.class = $5) order by o.key limit $4",
                values![
                    campaign,
                    after,
                    end,
                    u64::from(limit) + 1,
                    class.map_or("", FailureClass::name)
                ],
            )
            .await?;
        let mut moments: BTreeMap<Period, Moment> = BTreeMap::new();
        let mut operations = Vec::new();
        for row in rows {
            let of = Period::parse(&row.text(2)?)
                .map_err(|error| LedgerError::corrupt(error.to_string()))?;
            if let Entry::Vacant(entry) = moments.entry(of) {
                let run = run_in(&mut tx, campaign, of, "").await?;
                entry.insert(run.ok_or_else(|| no_such_run(campaign, of))?.moment(now));
            }
            let moment = &moments[&of];
            let mut line = OperationLine::new(row.text(0)?, serde_json::from_str(&row.text(1)?)?);
            line.code = row.maybe_text(3)?;
            let kept = Kept::of(row.int(4)? > 0, row.int(5)? > 0);
            line.waits_for = kept.on_replay(&line.operation, moment);
            operations.push(line);
        }
        Ok(Listing::page(period, operations, limit))
    }

    /// Whether `key` could be replayed now (`refreeze`: rendered anew), and as what.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn may_replay(
        &self,
        key: &OperationKey,
        refreeze: bool,
    ) -> Result<Result<Answer, NotReplayed>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let found = check(&mut tx, key, refreeze, Lock::None).await?;
        Ok(found.map(Loaded::into_answer))
    }

    /// Replays dead letters: each goes from dead to sending as a new generation of attempts. All of
    /// them in one transaction, or none: where any is refused, the refused ones come back, each with
    /// the reason, and nothing has changed.
    ///
    /// # Errors
    /// [`LedgerError::CommitUnknown`] when it may have been recorded (a second call then finds them
    /// not dead); any error of an unreachable database.
    pub async fn replay(
        &self,
        letters: &[ToReplay],
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Result<Vec<Answer>, Vec<(OperationKey, NotReplayed)>>, LedgerError> {
        // Two commands that lock in one order cannot wait for each other.
        let mut letters: Vec<&ToReplay> = letters.iter().collect();
        letters.sort_by_key(|letter| letter.key.to_string());
        letters.dedup_by(|one, other| one.key == other.key);
        let mut tx = self.db.begin().await?;
        let mut refused = Vec::new();
        let mut replayed = Vec::new();
        for letter in letters {
            let refreeze = letter.refrozen.is_some();
            match check(&mut tx, &letter.key, refreeze, Lock::OperationAndRun).await? {
                Ok(mut loaded) => {
                    replay_one(&mut tx, &mut loaded, letter, rules, actor).await?;
                    replayed.push(loaded.into_answer());
                }
                Err(why) => refused.push((letter.key.clone(), why)),
            }
        }
        if !refused.is_empty() {
            return Ok(Err(refused));
        }
        tx.commit().await?;
        Ok(Ok(replayed))
    }

    /// Takes up again the cleanups of a run that were given up, at most `limit` after the key
    /// `after`; the keys whose cleanup is due now.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; nothing of the page has changed then.
    pub async fn cleanup_again(
        &self,
        campaign: &str,
        period: Period,
        after: &str,
        limit: u32,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Vec<OperationKey>, LedgerError> {
        let (after, end) = range(campaign, Some(period), Some(after));
        let mut tx = self.db.begin().await?;
        let rows = tx
            .rows(
                "select key from @operations where campaign = $1 and state = 'sent' \
                 and cleanup_failed = 1 and key > $2 and key < $3 order by key limit $4",
                values![campaign, after, end, limit],
            )
            .await?;
        let mut keys = Vec::new();
        for row in rows {
            let key = OperationKey::parse(&row.text(0)?)
                .map_err(|error| LedgerError::corrupt(error.to_string()))?;
            let mut loaded = load(&mut tx, &key, Lock::Operation).await?;
            if loaded.operation.cleanup.given_up {
                apply(&mut tx, &mut loaded, &Event::CleanupAgain, rules, actor, None).await?;
                keys.push(key);
            }
        }
        tx.commit().await?;
        Ok(keys)
    }
}

/// Loads `key` if it may be replayed.
async fn check(
    tx: &mut Tx,
    key: &OperationKey,
    refreeze: bool,
    lock: Lock,
) -> Result<Result<Loaded, NotReplayed>, LedgerError> {
    let loaded = match load(tx, key, lock).await {
        Ok(loaded) => loaded,
        Err(LedgerError::NoSuchOperation(_)) => return Ok(Err(NotReplayed::Missing)),
        Err(error) => return Err(error),
    };
    let allowed = if refreeze {
        loaded.operation.may_refreeze(&loaded.moment)
    } else {
        loaded.operation.may_replay(&loaded.moment)
    };
    if let Err(cannot) = allowed {
        return Ok(Err(cannot.into()));
    }
    if !refreeze && !is_kept(tx, &loaded.key).await? {
        return Ok(Err(NotReplayed::ContentGone));
    }
    Ok(Ok(loaded))
}

async fn is_kept(tx: &mut Tx, key: &str) -> Result<bool, LedgerError> {
    let kept = tx
        .row(
            "select key from @digest_rows where key = $1 \
             union all select key from @messages where key = $1",
            values![key],
        )
        .await?;
    Ok(kept.is_some())
}

async fn replay_one(
    tx: &mut Tx,
    loaded: &mut Loaded,
    letter: &ToReplay,
    rules: &Rules,
    actor: Actor<'_>,
) -> Result<(), LedgerError> {
    if let Some(refrozen) = &letter.refrozen {
        let change = loaded.operation.apply(&Event::Refrozen, rules, &loaded.moment);
        // Audited even where the operation itself had nothing to forget.
        audit(tx, loaded, Event::Refrozen.name(), &change, actor).await?;
        replace_content(tx, &loaded.key, &refrozen.data, &refrozen.message).await?;
    }
    apply(tx, loaded, &Event::Replayed, rules, actor, None).await?;
    Ok(())
}
