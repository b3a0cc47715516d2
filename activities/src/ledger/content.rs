//! Frozen data and the frozen message: stored once, dropped when the operation is cleaned.

use super::database::{Tx, values};
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
        let mut tx = self.db.begin_reading().await?;
        let row = tx
            .row("select data from @digest_rows where key = $1", values![key.to_string()])
            .await?;
        row.map(|row| Ok(serde_json::from_str(&row.text(0)?)?)).transpose()
    }

    /// The stored message of `key`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn message(&self, key: &OperationKey) -> Result<Option<FrozenMessage>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        message_in(&mut tx, key).await
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
        let mut tx = self.db.begin().await?;
        let text = key.to_string();
        let state = tx
            .locked(
                "select state from @operations where key = $1",
                "for update",
                values![text.as_str()],
            )
            .await?
            .ok_or_else(|| LedgerError::NoSuchOperation(text.clone()))?
            .text(0)?;
        let settled = State::from_name(&state).is_none_or(|s| s == State::Sent || s.is_terminal());
        if settled {
            return Err(LedgerError::Settled(text));
        }
        insert_message(&mut tx, &text, message).await?;
        tx.execute(
            "update @operations set content_hash = $2 where key = $1 and content_hash is null",
            values![text.as_str(), message.content_hash.as_str()],
        )
        .await?;
        let stored = message_in(&mut tx, key).await?;
        tx.commit().await?;
        stored.ok_or_else(|| LedgerError::corrupt(format!("no message stored for {key}")))
    }
}

async fn message_in(tx: &mut Tx, key: &OperationKey) -> Result<Option<FrozenMessage>, LedgerError> {
    let row = tx
        .row(
            "select message, mime, content_hash from @messages where key = $1",
            values![key.to_string()],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (mime, hash) = (row.bytes(1)?, row.text(2)?);
    let message = FrozenMessage::join(serde_json::from_str(&row.text(0)?)?, mime);
    if !message.is_whole() || message.content_hash != hash {
        return Err(LedgerError::corrupt(format!("the stored message of {key} has changed")));
    }
    Ok(Some(message))
}

/// Drops the stored bytes, address and rows of `key`; its content hash stays. Returns whether there
/// were any.
pub(super) async fn drop_content(tx: &mut Tx, key: &str) -> Result<bool, LedgerError> {
    let messages = tx.execute("delete from @messages where key = $1", values![key]).await?;
    let rows = tx.execute("delete from @digest_rows where key = $1", values![key]).await?;
    Ok(messages + rows > 0)
}

/// Puts other data and another message in the place of what was frozen.
pub(super) async fn replace_content(
    tx: &mut Tx,
    key: &str,
    data: &FrozenData,
    message: &FrozenMessage,
) -> Result<(), LedgerError> {
    drop_content(tx, key).await?;
    tx.execute(
        "insert into @digest_rows (key, data) values ($1, $2)",
        values![key, serde_json::to_string(data)?],
    )
    .await?;
    insert_message(tx, key, message).await?;
    tx.execute(
        "update @operations set content_hash = $2 where key = $1",
        values![key, message.content_hash.as_str()],
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
