//! What providers told: stored first, then told to the operations.
//!
//! Most events say what the ledger knows already: that a message which was sent is sent. They are
//! told when they are stored, so that storing is all they cost.

use super::database::{Tx, Value, places, values};
use super::operations::{Actor, Lock, apply, load};
use super::suppressions::{self, suppress};
use super::{Ledger, LedgerError};
use crate::webhook::{ProviderEvent, SuppressionReason};
use digest_workflows::operation::{Change, Event, Finding, OperationKey, Rules, State};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// How many keys one look-up asks for.
const KEYS_AT_ONCE: usize = 400;

/// An event that was stored and not yet told.
#[derive(Clone, Debug)]
pub struct Untold {
    provider: String,
    id: String,
    at: Timestamp,
    key: String,
    findings: String,
    suppresses: Option<String>,
}

/// The place of an event in the order in which events are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(Timestamp, String);

impl Untold {
    /// Its place.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.at, self.id.clone())
    }

    /// Who told it.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The provider's id of it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key that it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    fn read(&self) -> Result<(OperationKey, Vec<Finding>, Option<SuppressionReason>), LedgerError> {
        let key = OperationKey::parse(&self.key)
            .map_err(|error| LedgerError::corrupt(error.to_string()))?;
        let suppresses = self.suppresses.as_deref().map(suppressions::reason).transpose()?;
        Ok((key, serde_json::from_str(&self.findings)?, suppresses))
    }
}

/// What storing some events came to; those that are in neither count were stored before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// How many are new and about an operation.
    pub new: u64,
    /// How many are new and about none of this ledger.
    pub unknown_key: u64,
}

/// What telling one event did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The operation has it. Whether its workflow should ask the ledger: only one that is open, and
    /// that the event has changed.
    Operation {
        /// The operation.
        key: OperationKey,
        /// Whether its workflow should ask.
        ask: bool,
        /// What each finding has changed; none where it was told before.
        changes: Vec<Change>,
    },
    /// It can't be told to anybody, ever. It is kept, with the reason, and not read again.
    Nobody {
        /// Why.
        fault: String,
    },
}

/// What the ledger knows of what an event carries.
struct Known {
    key: String,
    /// Sent, and by an answer that named the message: another word of its acceptance is nothing new.
    is_sent: bool,
}

impl Ledger {
    /// Stores `events` of `provider` in one transaction; returns how many were new. One that is there
    /// already changes nothing. An event whose key is unknown here is kept without one.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; whoever sent the events must send them again.
    pub async fn store_events(
        &self,
        provider: &str,
        events: &[ProviderEvent],
    ) -> Result<Stored, LedgerError> {
        if events.is_empty() {
            return Ok(Stored::default());
        }
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let known = known(&mut tx, events).await?;
        let row = |event: &ProviderEvent| -> Result<Vec<Value>, LedgerError> {
            let known = event.carried.as_ref().and_then(|carried| known.get(carried));
            let is_news = known.is_some_and(|known| is_news(event, known));
            Ok(values![
                provider,
                event.id.as_str(),
                known.map(|known| known.key.clone()),
                event.carried.as_deref(),
                serde_json::to_string(&event.findings)?,
                now,
                Some(now).filter(|_| !is_news),
                event.suppresses.map(SuppressionReason::name),
            ]
            .to_vec())
        };
        let (ours, others): (Vec<_>, Vec<_>) = events.iter().partition(|event| {
            event.carried.as_ref().is_some_and(|carried| known.contains_key(carried))
        });
        let rows = |events: Vec<&ProviderEvent>| {
            events.into_iter().map(row).collect::<Result<Vec<_>, _>>()
        };
        let into = "@provider_events (provider, event_id, key, carried, finding, at, told_at, \
                    suppresses)";
        let new = tx.insert_new(into, &rows(ours)?).await?;
        let unknown_key = tx.insert_new(into, &rows(others)?).await?;
        tx.commit().await?;
        Ok(Stored { new, unknown_key })
    }

    /// Events that are not yet told, the oldest first, after `after`, at most `limit`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn untold_events(
        &self,
        after: Option<&Place>,
        limit: u32,
    ) -> Result<Vec<Untold>, LedgerError> {
        let first = Place(Timestamp::UNIX_EPOCH, String::new());
        let Place(at, id) = after.unwrap_or(&first);
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select provider, event_id, at, key, finding, suppresses from @provider_events \
                 where told_at is null and (at, event_id) > ($1, $2) \
                 order by at, event_id limit $3",
                values![*at, id.as_str(), limit],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Untold {
                    provider: row.text(0)?,
                    id: row.text(1)?,
                    at: row.time(2)?,
                    key: row.maybe_text(3)?.unwrap_or_default(),
                    findings: row.text(4)?,
                    suppresses: row.maybe_text(5)?,
                })
            })
            .collect()
    }

    /// Tells one event to its operation, once: the findings, what they suppress, and that it is told
    /// change together. An event that cannot be told to anybody (its operation is gone, or its record
    /// can't be read) is marked, so that it is in nobody's way.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; nothing was told then, or it may have been and
    /// telling it again changes nothing.
    pub async fn tell_event(&self, untold: &Untold, rules: &Rules) -> Result<Told, LedgerError> {
        match self.tell(untold, rules).await {
            Err(error @ (LedgerError::Corrupt(_) | LedgerError::NoSuchOperation(_))) => {
                let fault = error.to_string();
                let mut tx = self.db.begin().await?;
                let now = tx.now().await?;
                tx.execute(
                    "update @provider_events set told_at = $3, fault = $4 \
                     where provider = $1 and event_id = $2 and told_at is null",
                    values![untold.provider.as_str(), untold.id.as_str(), now, fault.as_str()],
                )
                .await?;
                tx.commit().await?;
                Ok(Told::Nobody { fault })
            }
            told => told,
        }
    }

    async fn tell(&self, untold: &Untold, rules: &Rules) -> Result<Told, LedgerError> {
        let (key, findings, suppresses) = untold.read()?;
        let mut tx = self.db.begin().await?;
        let mut loaded = load(&mut tx, &key, Lock::Operation).await?;
        let before = loaded.operation.clone();
        let told = tx
            .execute(
                "update @provider_events set told_at = $3 \
                 where provider = $1 and event_id = $2 and told_at is null",
                values![untold.provider.as_str(), untold.id.as_str(), loaded.moment.now],
            )
            .await?;
        if told == 0 {
            return Ok(Told::Operation { key, ask: false, changes: Vec::new() });
        }
        let mut changes = Vec::new();
        for finding in findings {
            let event = Event::Told { finding };
            let actor = Actor::part(&untold.provider);
            changes.push(apply(&mut tx, &mut loaded, &event, rules, actor, None).await?);
        }
        if let Some(reason) = suppresses {
            suppress(&mut tx, &loaded, &key, reason, (&untold.provider, &untold.id)).await?;
        }
        tx.commit().await?;
        let ask = !before.state.is_terminal() && loaded.operation != before;
        Ok(Told::Operation { key, ask, changes })
    }

    /// How many events could not be told to anybody.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn faulty_events(&self) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let sql = "select count(*) from @provider_events where fault is not null";
        tx.row(sql, &[]).await?.map_or(Ok(0), |row| row.count(0))
    }
}

/// Whether `event` may tell the operation `known` anything.
fn is_news(event: &ProviderEvent, known: &Known) -> bool {
    let says_accepted = |finding: &Finding| matches!(finding, Finding::Accepted { .. });
    let is_old = known.is_sent && event.findings.iter().all(says_accepted);
    event.suppresses.is_some() || !(is_old || event.findings.is_empty())
}

/// The operations whose key, or whose alias, the events carry.
async fn known(
    tx: &mut Tx,
    events: &[ProviderEvent],
) -> Result<BTreeMap<String, Known>, LedgerError> {
    let carried: BTreeSet<&str> =
        events.iter().filter_map(|event| event.carried.as_deref()).collect();
    let carried: Vec<Value> = carried.into_iter().map(Value::from).collect();
    let mut known = BTreeMap::new();
    for some in carried.chunks(KEYS_AT_ONCE) {
        let places = places(some.len());
        // Two look-ups, each by its index.
        let sql = format!(
            "select key, key, state, message_id from @operations where key in ({places}) \
             union all \
             select alias, key, state, message_id from @operations where alias in ({places})"
        );
        for row in tx.rows(&sql, some).await? {
            let state = row.text(2)?;
            let is_sent = [State::Sent, State::Cleaned].iter().any(|sent| sent.name() == state);
            let is_sent = is_sent && row.maybe_text(3)?.is_some();
            known.insert(row.text(0)?, Known { key: row.text(1)?, is_sent });
        }
    }
    Ok(known)
}
