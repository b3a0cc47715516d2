//! Transitions: one event, one transaction, made by the decision core.

use super::attempts::{close_attempt, mark_overdue};
use super::batches::drop_what_is_over;
use super::content::{self, Content, drop_content_soon};
use super::database::{Row, Tx, values};
use super::restore::insert_unrecorded;
use super::runs::{self, Run};
use super::suppressions;
use super::{Ledger, LedgerError};
use crate::crash;
use crate::webhook::SuppressionReason;
use digest_workflows::operation::{
    Change, Event, Failure, FailureClass, Moment, Note, Operation, OperationKey, Outcome, Rules,
    State,
};
use jiff::Timestamp;

/// Who decides, for the audit. An `@` in either text is refused before it comes here.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// A person's name, or the part of digestd.
    pub by: &'a str,
    /// In the person's words.
    pub reason: Option<&'a str>,
}

impl<'a> Actor<'a> {
    /// A part of digestd itself.
    #[must_use]
    pub const fn part(by: &'a str) -> Self {
        Self { by, reason: None }
    }
}

/// An operation as the ledger has it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The operation.
    pub operation: Operation,
    /// The facts of the moment: the ledger's time, whether the run is held, and so on.
    pub moment: Moment,
    /// The run.
    pub run: Run,
    /// Why the customer is not written to any more, if a provider has told so.
    pub suppressed: Option<SuppressionReason>,
    /// When it was handed to the engine.
    pub enqueued_at: Option<Timestamp>,
}

/// What recording an event did.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The operation afterwards.
    pub answer: Answer,
    /// What the event changed.
    pub change: Change,
}

/// An operation loaded for a transition, with its row locked.
pub(super) struct Loaded {
    pub key: String,
    pub operation: Operation,
    pub run: Run,
    pub moment: Moment,
    pub suppressed: Option<SuppressionReason>,
    pub enqueued_at: Option<Timestamp>,
}

impl Ledger {
    /// The operation of `key` as it stands.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchOperation`], or any error of an unreachable database.
    pub async fn operation(&self, key: &OperationKey) -> Result<Answer, LedgerError> {
        let text = key.to_string();
        let sql =
            format!("select {}, {} {FROM_OPERATION} where o.key = $1", columns(), self.db.clock());
        let rows = self.db.read(&sql, values![text.as_str()]).await?;
        let row = rows.first().ok_or_else(|| LedgerError::NoSuchOperation(text.clone()))?;
        Ok(Loaded::read(text, row)?.into_answer())
    }

    /// The operation of `key` as it stands, with what an attempt of it needs: what is frozen of it.
    ///
    /// # Errors
    /// As [`operation`](Self::operation).
    pub async fn to_deliver(&self, key: &OperationKey) -> Result<(Answer, Content), LedgerError> {
        let text = key.to_string();
        let sql = format!(
            "select {}, {}, {} {FROM_OPERATION}{}",
            columns(),
            self.db.clock(),
            content::COLUMNS,
            content::JOINED
        );
        let sql = format!("{sql} where o.key = $1");
        let rows = self.db.read(&sql, values![text.as_str()]).await?;
        let row = rows.first().ok_or_else(|| LedgerError::NoSuchOperation(text.clone()))?;
        let content = Content::read(&text, row, CONTENT_AT)?;
        Ok((Loaded::read(text, row)?.into_answer(), content))
    }

    /// Applies `event` to `key` and records what it changed: state, attempt, dead letter and audit
    /// row in one transaction. `as_of` is the ledger's time at which the caller first read the
    /// operation, for a try that ended before its intent.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchOperation`]; [`LedgerError::CommitUnknown`] when it may have been
    /// recorded (recording it again is harmless); any error of an unreachable database.
    pub async fn record(
        &self,
        key: &OperationKey,
        event: &Event,
        rules: &Rules,
        actor: Actor<'_>,
        as_of: Option<Timestamp>,
    ) -> Result<Recorded, LedgerError> {
        let mut tx = self.db.begin().await?;
        let mut loaded = load(&mut tx, key, Lock::Operation).await?;
        let change = apply(&mut tx, &mut loaded, event, rules, actor, as_of).await?;
        if matches!(event, Event::Judged { .. }) {
            crash::point("decision-uncommitted");
        }
        tx.commit().await?;
        Ok(Recorded { answer: loaded.into_answer(), change })
    }
}

impl Loaded {
    fn read(key: String, row: &Row) -> Result<Self, LedgerError> {
        let run = Run::read(row)?;
        let operation = serde_json::from_str(&row.text(runs::COLUMN_COUNT)?)?;
        let suppressed = row.maybe_text(runs::COLUMN_COUNT + 1)?;
        let suppressed = suppressed.map(|name| suppressions::reason(&name)).transpose()?;
        let enqueued_at = row.maybe_time(runs::COLUMN_COUNT + 2)?;
        let moment = run.moment(row.time(runs::COLUMN_COUNT + 3)?);
        let moment = Moment { suppressed: suppressed.is_some(), ..moment };
        Ok(Self { key, operation, run, moment, suppressed, enqueued_at })
    }

    pub(super) fn into_answer(self) -> Answer {
        Answer {
            operation: self.operation,
            moment: self.moment,
            run: self.run,
            suppressed: self.suppressed,
            enqueued_at: self.enqueued_at,
        }
    }
}

/// What [`load`] locks, the operation before its run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lock {
    /// Nothing: it only reads.
    None,
    /// The operation.
    Operation,
    /// The operation, and its run against a hold.
    OperationAndRun,
}

impl Lock {
    const fn clause(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Operation => "for update of o",
            Self::OperationAndRun => "for update of o for share of r",
        }
    }
}

/// Loads `key` and its run under `lock`, and reads the clock after the lock is taken, all in one
/// statement: it is asked several times for every message.
pub(super) async fn load(
    tx: &mut Tx,
    key: &OperationKey,
    lock: Lock,
) -> Result<Loaded, LedgerError> {
    let text = key.to_string();
    let sql = format!("select {} {FROM_OPERATION} where o.key = $1", columns());
    let row = tx
        .locked_then_now(&sql, lock.clause(), values![text.as_str()])
        .await?
        .ok_or_else(|| LedgerError::NoSuchOperation(text.clone()))?;
    Loaded::read(text, &row)
}

/// The columns that [`Loaded::read`] reads, but for the clock behind them.
fn columns() -> String {
    let of_run: Vec<String> =
        runs::COLUMNS.split(", ").map(|column| format!("r.{column}")).collect();
    format!(
        "{}, o.machine, (select s.reason from @suppressions s \
         where s.campaign = o.campaign and s.customer = o.customer), o.enqueued_at",
        of_run.join(", ")
    )
}

/// Where they come from.
const FROM_OPERATION: &str =
    "from @operations o join @runs r on r.campaign = o.campaign and r.period = o.period";
/// What comes behind them and the clock.
const CONTENT_AT: usize = runs::COLUMN_COUNT + 4;

/// Applies one event inside `tx`.
pub(super) async fn apply(
    tx: &mut Tx,
    loaded: &mut Loaded,
    event: &Event,
    rules: &Rules,
    actor: Actor<'_>,
    as_of: Option<Timestamp>,
) -> Result<Change, LedgerError> {
    let before = loaded.operation.clone();
    let change = loaded.operation.apply(event, rules, &loaded.moment);
    if loaded.operation == before && change.note.is_none() {
        return Ok(change);
    }
    save(tx, loaded, rules).await?;
    for (number, outcome) in &change.settled {
        close_attempt(tx, loaded, *number, outcome).await?;
    }
    if let Event::Overdue { attempt, .. } = event {
        mark_overdue(tx, loaded, *attempt).await?;
    }
    if matches!(event, Event::Restored { .. }) && change.note.is_none() {
        insert_unrecorded(tx, loaded).await?;
    }
    if change.to == State::Dead && change.from != State::Dead {
        bury(tx, loaded, last_failure(&change.settled)).await?;
    }
    if change.from == State::Dead && matches!(change.to, State::Sending | State::Unknown) {
        exhume(tx, loaded).await?;
    }
    if change.to == State::Cleaned && change.from != State::Cleaned {
        drop_content_soon(tx, &loaded.key).await?;
    }
    drop_what_is_over(tx, &before, &loaded.operation, loaded.moment.now).await?;
    if deserves_audit(event, &change) {
        audit(tx, loaded, event.name(), &change, actor).await?;
    }
    trip_breakers(tx, loaded, &before, event, &change, rules, as_of).await?;
    Ok(change)
}

/// Stores the operation with the columns that queries need, and the hash of its message, which stays
/// when that is dropped.
pub(super) async fn save(tx: &mut Tx, loaded: &Loaded, rules: &Rules) -> Result<(), LedgerError> {
    let op = &loaded.operation;
    let message_id = op.accepted.as_ref().and_then(|accepted| accepted.message_id.clone());
    tx.execute_soon(
        "update @operations set state = $2, class = $3, since = $4, attempts = $5, at_rest = $6, \
         contradicted = $7, undelivered = $8, cleanup_failed = $9, message_id = $10, \
         machine = $11, content_hash = coalesce(content_hash, \
         (select m.content_hash from @messages m where m.key = $1)) where key = $1",
        values![
            loaded.key.as_str(),
            op.state.name(),
            op.class.map(FailureClass::name),
            op.since,
            op.attempts,
            op.is_at_rest(rules, loaded.moment.now),
            op.contradicted,
            op.undelivered,
            op.cleanup.given_up,
            message_id,
            serde_json::to_string(op)?,
        ],
    )
    .await
}

/// Writes one row of the audit.
pub(super) async fn audit(
    tx: &mut Tx,
    loaded: &Loaded,
    event: &str,
    change: &Change,
    actor: Actor<'_>,
) -> Result<(), LedgerError> {
    let failure = last_failure(&change.settled);
    let code = failure.map(|failure| failure.code.clone());
    tx.execute_soon(
        "insert into @decisions (campaign, period, key, at, event, from_state, to_state, class, \
         decided_by, reason, note) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        values![
            loaded.run.campaign.as_str(),
            loaded.run.period.to_string(),
            loaded.key.as_str(),
            loaded.moment.now,
            event,
            change.from.name(),
            change.to.name(),
            failure.map(|failure| failure.class.name()),
            actor.by,
            actor.reason.map(str::to_owned).or(code),
            change.note.map(Note::words),
        ],
    )
    .await
}

/// Whether the audit keeps an event that left the state as it was.
fn deserves_audit(event: &Event, change: &Change) -> bool {
    change.from != change.to
        || change.note.is_some()
        || !change.settled.is_empty()
        || !matches!(event, Event::TimePassed)
}

fn last_failure(settled: &[(u32, Outcome)]) -> Option<&Failure> {
    settled.iter().rev().find_map(|(_, outcome)| match outcome {
        Outcome::NotSent(failure) => Some(failure),
        Outcome::Accepted { .. } => None,
    })
}

/// Writes the dead letter.
async fn bury(tx: &mut Tx, loaded: &Loaded, failure: Option<&Failure>) -> Result<(), LedgerError> {
    let class = loaded.operation.class.map_or("stale", |class| class.name());
    tx.execute(
        "insert into @dead_letters (key, generation, class, code, at) values ($1, $2, $3, $4, $5)",
        values![
            loaded.key.as_str(),
            loaded.operation.generation,
            class,
            failure.map_or("useful_for is over", |failure| failure.code.as_str()),
            loaded.moment.now,
        ],
    )
    .await?;
    Ok(())
}

/// Marks the dead letter of the generation before as replayed.
async fn exhume(tx: &mut Tx, loaded: &Loaded) -> Result<(), LedgerError> {
    tx.execute(
        "update @dead_letters set replayed_at = $3 where key = $1 and generation = $2",
        values![loaded.key.as_str(), loaded.operation.generation - 1, loaded.moment.now],
    )
    .await?;
    Ok(())
}

/// Holds the run where the event shows that more of the same would do harm.
async fn trip_breakers(
    tx: &mut Tx,
    loaded: &mut Loaded,
    before: &Operation,
    event: &Event,
    change: &Change,
    rules: &Rules,
    as_of: Option<Timestamp>,
) -> Result<(), LedgerError> {
    for (number, outcome) in &change.settled {
        if let Outcome::NotSent(failure) = outcome {
            let begun = before.doubt(*number).map(|doubt| doubt.begun_at).or(as_of);
            super::holds::after_failure(tx, loaded, failure, begun, rules).await?;
        }
    }
    if matches!(event, Event::Overdue { .. }) && change.note.is_none() {
        super::holds::after_unknown(tx, loaded, rules).await?;
    }
    Ok(())
}
