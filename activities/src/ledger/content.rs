//! Frozen data and the frozen message: stored once, dropped when the operation is cleaned.

use super::database::{Row, Tx, values};
use super::{Ledger, LedgerError};
use crate::message::FrozenMessage;
use digest_workflows::operation::{OperationKey, State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// What a message is rendered from: the customer's columns and the digest's rows, frozen with the
/// selection. Private, so it shows nothing when printed.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct FrozenData {
    /// Every column of the customers query by its name.
    pub customer: Map<String, Value>,
    /// The customer's rows, in the query's order.
    pub rows: Vec<Value>,
}

impl fmt::Debug for FrozenData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenData({} columns, {} rows)", self.customer.len(), self.rows.len())
    }
}

impl Ledger {
    /// The frozen data of `key`; `None` once it is cleaned or its retention is over.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn frozen_data(&self, key: &OperationKey) -> Result<Option<FrozenData>, LedgerError> {
        let sql = "select data from @digest_rows where key = $1";
        let rows = self.db.read(sql, values![key.to_string()]).await?;
        rows.first().map(|row| Ok(serde_json::from_str(&row.text(0)?)?)).transpose()
    }

    /// The stored message of `key`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn message(&self, key: &OperationKey) -> Result<Option<FrozenMessage>, LedgerError> {
        let text = key.to_string();
        let rows = self.db.read(MESSAGE, values![text.as_str()]).await?;
        rows.first().map(|row| Stored::read(row, 0)?.join(&text)).transpose()
    }

    /// Whether an attempt of another operation than `key` may have handed over a message with this
    /// content hash at `since` or later, through a provider that is asked by content. An attempt of
    /// which a restore left nothing but its place on record may have handed over anything.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn has_same_content(
        &self,
        key: &OperationKey,
        content_hash: &str,
        since: Timestamp,
    ) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        // The providers stand in the text, as in the indexes that carry this.
        let row = tx
            .row(
                "select 1 from @attempts where provider = 'twilio' and content_hash = $2 \
                 and key <> $1 and settles_at >= $3 \
                 union all \
                 select 1 from @attempts where provider = 'unrecorded' \
                 and key <> $1 and settles_at >= $3 \
                 limit 1",
                values![key.to_string(), content_hash, since],
            )
            .await?;
        Ok(row.is_some())
    }

    /// Stores `message` if none is stored, and returns what is stored: the first rendering wins, and
    /// every attempt sends its bytes. An execution that was overtaken stores nothing for a settled
    /// operation, whose content may be dropped already.
    ///
    /// # Errors
    /// [`LedgerError::Settled`], [`LedgerError::NoSuchOperation`], or any error of an unreachable
    /// database.
    pub async fn store_message(
        &self,
        key: &OperationKey,
        message: &FrozenMessage,
    ) -> Result<FrozenMessage, LedgerError> {
        let text = key.to_string();
        let (head, mime) = message.clone().split();
        let hash = message.content_hash.as_str();
        // Under the lock that it takes, the operation can't settle and have its content dropped.
        let sql = format!(
            "insert into @messages (key, message, mime, content_hash) \
             select $1, $2, $3, $4 from @operations o where o.key = $1 \
             and o.state in ('selected', 'sending', 'retrying', 'unknown') {} \
             on conflict (key) do nothing returning message, mime, content_hash",
            self.db.lock("for update of o")
        );
        let head = serde_json::to_string(&head)?;
        let rows = self.db.write(&sql, values![text.as_str(), head, mime, hash]).await?;
        if let Some(row) = rows.first() {
            return Stored::read(row, 0)?.join(&text);
        }
        let sql = "select m.message, m.mime, m.content_hash, o.state from @operations o \
                   left join @messages m on m.key = o.key where o.key = $1";
        let rows = self.db.read(sql, values![text.as_str()]).await?;
        let row = rows.first().ok_or_else(|| LedgerError::NoSuchOperation(text.clone()))?;
        let state = State::from_name(&row.text(3)?);
        if state.is_none_or(|state| state == State::Sent || state.is_terminal()) {
            return Err(LedgerError::Settled(text));
        }
        if row.maybe_text(0)?.is_none() {
            return Err(LedgerError::corrupt(format!("no message stored for {key}")));
        }
        Stored::read(row, 0)?.join(&text)
    }
}

/// A stored message.
const MESSAGE: &str = "select message, mime, content_hash from @messages where key = $1";

/// The columns of [`Content`], where [`JOINED`] is joined to operations called `o`. The data is not
/// asked for where a message is stored.
pub(super) const COLUMNS: &str =
    "m.message, m.mime, m.content_hash, case when m.key is null then d.data end";
pub(super) const JOINED: &str =
    " left join @messages m on m.key = o.key left join @digest_rows d on d.key = o.key";

/// What is frozen of an operation, as it is stored.
pub struct Content {
    key: String,
    message: Option<Stored>,
    data: Option<String>,
}

impl Content {
    pub(super) fn read(key: &str, row: &Row, at: usize) -> Result<Self, LedgerError> {
        let there = row.maybe_text(at)?.is_some();
        let message = if there { Some(Stored::read(row, at)?) } else { None };
        Ok(Self { key: key.to_owned(), message, data: row.maybe_text(at + 3)? })
    }

    /// The message, if one is stored.
    ///
    /// # Errors
    /// [`LedgerError::Corrupt`].
    pub fn message(&mut self) -> Result<Option<FrozenMessage>, LedgerError> {
        self.message.take().map(|stored| stored.join(&self.key)).transpose()
    }

    /// What a message is rendered from, where none is stored; `None` once it is dropped.
    ///
    /// # Errors
    /// [`LedgerError::Corrupt`].
    pub fn data(&self) -> Result<Option<FrozenData>, LedgerError> {
        Ok(self.data.as_deref().map(serde_json::from_str).transpose()?)
    }
}

/// A message as it is stored.
struct Stored {
    head: String,
    mime: Vec<u8>,
    hash: String,
}

impl Stored {
    fn read(row: &Row, at: usize) -> Result<Self, LedgerError> {
        Ok(Self { head: row.text(at)?, mime: row.bytes(at + 1)?, hash: row.text(at + 2)? })
    }

    /// The message of `key`, if it is the one that was stored.
    fn join(self, key: &str) -> Result<FrozenMessage, LedgerError> {
        let message = FrozenMessage::join(serde_json::from_str(&self.head)?, self.mime);
        if !message.is_whole() || message.content_hash != self.hash {
            return Err(LedgerError::corrupt(format!("the stored message of {key} has changed")));
        }
        Ok(message)
    }
}

const DROP: [&str; 2] =
    ["delete from @messages where key = $1", "delete from @digest_rows where key = $1"];

/// Drops the stored bytes, address and rows of `key`; its content hash stays. Returns whether there
/// were any.
pub(super) async fn drop_content(tx: &mut Tx, key: &str) -> Result<bool, LedgerError> {
    let mut dropped = 0;
    for sql in DROP {
        dropped += tx.execute(sql, values![key]).await?;
    }
    Ok(dropped > 0)
}

/// The same before whatever comes next, for who need not know.
pub(super) async fn drop_content_soon(tx: &mut Tx, key: &str) -> Result<(), LedgerError> {
    for sql in DROP {
        tx.execute_soon(sql, values![key]).await?;
    }
    Ok(())
}

/// Puts other data and another message in the place of what was frozen.
pub(super) async fn replace_content(
    tx: &mut Tx,
    key: &str,
    data: &FrozenData,
    message: &FrozenMessage,
) -> Result<(), LedgerError> {
    drop_content_soon(tx, key).await?;
    insert_data(tx, key, data).await?;
    insert_message(tx, key, message).await?;
    tx.execute(
        "update @operations set content_hash = $2 where key = $1",
        values![key, message.content_hash.as_str()],
    )
    .await?;
    Ok(())
}

/// Freezes what the message of `key` is rendered from.
pub(super) async fn insert_data(
    tx: &mut Tx,
    key: &str,
    data: &FrozenData,
) -> Result<(), LedgerError> {
    tx.execute(
        "insert into @digest_rows (key, data) values ($1, $2)",
        values![key, serde_json::to_string(data)?],
    )
    .await?;
    Ok(())
}

async fn insert_message(
    tx: &mut Tx,
    key: &str,
    message: &FrozenMessage,
) -> Result<(), LedgerError> {
    let (head, mime) = message.clone().split();
    let hash = message.content_hash.as_str();
    tx.execute(
        "insert into @messages (key, message, mime, content_hash) values ($1, $2, $3, $4) \
         on conflict (key) do nothing",
        values![key, serde_json::to_string(&head)?, mime, hash],
    )
    .await?;
    Ok(())
}
