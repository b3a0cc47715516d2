//! Several messages in one request, where a provider takes that.
//!
//! The connection is opened before anything is recorded, as for a single message; which messages the
//! request has is known only when their attempts have begun. From then on it is frozen: the same
//! bytes, in the same order, under the same key, whenever it goes again.

use super::Reply;
use super::api::{Api, unanswered};
use super::exchange::{Answer, BODY_BYTES_MAX, Connection};
use crate::message::{FrozenMessage, Redacted};
use digest_workflows::operation::{Failure, FailureClass, OperationKey};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use jiff::Timestamp;

/// The items of a batch may have this many bytes together, so that its request can be sent at all.
pub const ITEMS_BYTES_MAX: usize = BODY_BYTES_MAX - 1_000_000;

/// A request that is frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenBatch {
    /// Its key, for a provider that takes one.
    pub key: String,
    /// Its bytes.
    pub request: Redacted<Vec<u8>>,
    /// How many messages it has.
    pub members: usize,
}

/// What a provider answered to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchReply {
    /// The same to all: refused, or unknown. Never [`Reply::Accepted`], which has an id each.
    Whole(Reply),
    /// To each, in the order of the request; as many as it has messages.
    Each(Vec<Reply>),
}

/// What an adapter says about an answer to a batch of so many messages: its table.
pub type BatchTable = fn(&Answer, Timestamp, usize) -> BatchReply;

/// What is added to a request when it is complete.
pub type Seal = Box<dyn Fn(&mut Request<Full<Bytes>>, &[u8]) -> Result<(), Failure> + Send + Sync>;

/// The part of an adapter whose provider takes several messages in one request.
pub trait Batches: Send + Sync {
    /// How many bytes the items of one request may have together.
    fn bytes_max(&self) -> usize {
        ITEMS_BYTES_MAX
    }

    /// Whether the provider's rate counts messages, and not requests.
    fn counts_messages(&self) -> bool {
        false
    }

    /// What the request holds for `message` under `key`; `None` where it can only go alone.
    ///
    /// # Errors
    /// Class `schema`, when the message cannot be part of any request.
    fn item(&self, key: &OperationKey, message: &FrozenMessage)
    -> Result<Option<Vec<u8>>, Failure>;

    /// What `item` says that all items of its request must say.
    fn common<'a>(&self, _item: &'a [u8]) -> &'a [u8] {
        &[]
    }

    /// The request of these items, in this order; nothing else goes into it.
    /// Unless the provider wants another form, it is the JSON array of items that are JSON values.
    fn request(&self, items: &[&[u8]]) -> Vec<u8> {
        array(items)
    }

    /// Opens a connection for one batch.
    ///
    /// # Errors
    /// The failure with its class; nothing was handed over.
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn ReadyBatch>, Failure>>;
}

/// A connection that is ready for one batch. Dropping it abandons it; nothing was sent.
pub trait ReadyBatch: Send {
    /// Hands the batch over, under the same conditions as
    /// [`Ready::hand_over`](super::Ready::hand_over).
    fn hand_over(self: Box<Self>, batch: FrozenBatch) -> BoxFuture<'static, BatchReply>;

    /// Gives it up without handing anything over.
    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// The JSON array of `items`, each of which is a JSON value.
fn array(items: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![b'['];
    bytes.extend(items.join(&b','));
    bytes.push(b']');
    bytes
}

struct Prepared {
    connection: Connection,
    head: Request<Full<Bytes>>,
    key_header: Option<HeaderName>,
    seal: Option<Seal>,
    table: BatchTable,
}

impl Api {
    /// Opens a connection for a batch that goes to `path` with these `further` headers, with its key
    /// in `key_header`, and with its `seal`; `table` reads the answer.
    ///
    /// # Errors
    /// As [`ready`](Self::ready); nothing was sent.
    pub async fn ready_batch(
        &self,
        path: &str,
        further: &[(HeaderName, String)],
        key_header: Option<HeaderName>,
        seal: Option<Seal>,
        table: BatchTable,
    ) -> Result<Box<dyn ReadyBatch>, Failure> {
        let head = self.post(path, further, "application/json", Vec::new())?;
        let connection = self.connect().await?;
        Ok(Box::new(Prepared { connection, head, key_header, seal, table }))
    }
}

impl Prepared {
    /// The request, or why it can never be sent.
    fn request(&self, batch: FrozenBatch) -> Result<Request<Full<Bytes>>, Failure> {
        let schema = |code| Failure::new(FailureClass::Schema, code);
        let request = batch.request.into_inner();
        if request.len() > BODY_BYTES_MAX {
            return Err(schema("http request too large"));
        }
        let mut head = self.head.clone();
        if let Some(name) = &self.key_header {
            let key = HeaderValue::from_str(&batch.key);
            let key = key.map_err(|_| schema("http request malformed"))?;
            head.headers_mut().insert(name.clone(), key);
        }
        if let Some(seal) = &self.seal {
            seal(&mut head, &request)?;
        }
        *head.body_mut() = Full::new(Bytes::from(request));
        Ok(head)
    }
}

impl ReadyBatch for Prepared {
    fn hand_over(self: Box<Self>, batch: FrozenBatch) -> BoxFuture<'static, BatchReply> {
        let members = batch.members;
        async move {
            let request = match self.request(batch) {
                Ok(request) => request,
                Err(failure) => return BatchReply::Whole(Reply::NotSent(failure)),
            };
            match self.connection.exchange(request).await {
                Ok(answer) => (self.table)(&answer, Timestamp::now(), members),
                Err(none) => BatchReply::Whole(unanswered(none)),
            }
        }
        .boxed()
    }

    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Nothing was written: the reset leaves nothing that could be taken for a message.
        drop(self.connection);
        futures::future::ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_array_of_its_items() {
        assert_eq!(array(&[]), b"[]");
        assert_eq!(array(&[b"{}"]), b"[{}]");
        assert_eq!(array(&[b"{\"a\":1}", b"2"]), b"[{\"a\":1},2]");
    }
}
