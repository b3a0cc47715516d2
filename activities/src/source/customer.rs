//! Customers as the source has them: typed ids, data, and the rows that cannot become an operation.

use super::error::{Query, SourceError};
use super::session::RowData;
use super::statement::Dialect;
use crate::message::Redacted;
use digest_workflows::operation::key::{KeyError, OperationKey};
use serde_json::{Map, Value};
use std::fmt;
use uuid::Uuid;

/// One row's values by column name, in the query's order.
pub type Data = Map<String, Value>;

/// The type of `customer_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdType {
    /// `smallint`, `integer`, `bigint`, and what fits into these.
    Integer,
    /// `bigint unsigned` (MySQL and MariaDB).
    Unsigned,
    /// `text`, `varchar`, `char`; on MariaDB `uuid` too, which it sends and takes as a text.
    Text,
    /// `uuid` (PostgreSQL).
    Uuid,
}

impl IdType {
    pub(super) fn with_article(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::Unsigned => "an unsigned integer",
            Self::Text => "a text",
            Self::Uuid => "a uuid",
        }
    }

    pub(super) fn sql_name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Unsigned => "unsigned",
            Self::Text => "text",
            Self::Uuid => "uuid",
        }
    }
}

/// A customer's id in the type that the source gives it, and is bound with.
///
/// Its text (`Display`) is what goes into the operation key. `Debug` hides an id with an `@` in it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum CustomerId {
    /// A number.
    Integer(i64),
    /// A number of a column that has no negative ones.
    Unsigned(u64),
    /// A text.
    Text(String),
    /// A uuid.
    Uuid(Uuid),
}

impl CustomerId {
    /// Reads `text` as an id of type `kind`; only the one spelling that [`CustomerId`] prints.
    ///
    /// # Errors
    /// [`SourceError::CustomerId`] when it is none.
    pub fn parse(text: &str, kind: IdType) -> Result<Self, SourceError> {
        let id = match kind {
            IdType::Integer => text.parse().ok().map(Self::Integer),
            IdType::Unsigned => text.parse().ok().map(Self::Unsigned),
            IdType::Text => Some(Self::Text(text.to_owned())),
            IdType::Uuid => Uuid::try_parse(text).ok().map(Self::Uuid),
        };
        id.filter(|id| id.to_string() == text)
            .ok_or(SourceError::CustomerId { expected: kind.with_article() })
    }

    /// The id in a row's `customer_id`; `None` if it is missing or of another type.
    pub(super) fn of_row(data: &Data, kind: IdType) -> Option<Self> {
        match data.get(ID_COLUMN)? {
            Value::String(text) => Self::parse(text, kind).ok(),
            Value::Number(number) => Self::parse(&number.to_string(), kind).ok(),
            _ => None,
        }
    }

    pub(super) fn kind(&self) -> IdType {
        match self {
            Self::Integer(_) => IdType::Integer,
            Self::Unsigned(_) => IdType::Unsigned,
            Self::Text(_) => IdType::Text,
            Self::Uuid(_) => IdType::Uuid,
        }
    }
}

/// The column of `customers` and `rows` that says whose a row is.
pub(super) const ID_COLUMN: &str = "customer_id";

impl fmt::Display for CustomerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(id) => write!(f, "{id}"),
            Self::Unsigned(id) => write!(f, "{id}"),
            Self::Text(id) => f.write_str(id),
            Self::Uuid(id) => write!(f, "{id}"),
        }
    }
}

impl fmt::Debug for CustomerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_string();
        f.write_str(if text.contains('@') { "‹redacted›" } else { &text })
    }
}

/// One customer to freeze.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Customer {
    /// The id, typed.
    pub id: CustomerId,
    /// The key of this customer's operation.
    pub key: OperationKey,
    /// Every column of `customers`, `customer_id` and `address` among them.
    pub data: Redacted<Data>,
}

/// Rows of `customers` that become no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The id; none where it is missing or mistyped.
    pub customer_id: Option<Redacted<String>>,
    /// How many rows of the query it stands for.
    pub rows: u64,
    /// Why.
    pub reason: FaultReason,
}

/// Why rows of `customers` become no operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultReason {
    /// `customer_id` is null or empty.
    #[error("customer_id is null or empty; select a column that is unique and never empty")]
    Missing,
    /// `customer_id` is of another type than the column's other values (SQLite only).
    #[error("customer_id is of another type than in the other rows; select it as cast(… as {0})")]
    Mistyped(&'static str),
    /// Several rows with this id that differ, so nobody could say which one to send.
    #[error(
        "several rows have this customer_id and differ; make the query return one row a customer"
    )]
    Differing,
    /// One value of the customer's data, or of its rows, cannot be carried: text that is not UTF-8,
    /// a blob. The others do not wait for it.
    #[error("a value of this customer cannot be carried: {query}, {reason}")]
    Unreadable {
        /// Which statement returned it.
        query: Query,
        /// Which column, why, and the cure; never the value.
        reason: String,
    },
    /// The id makes no operation key.
    #[error(transparent)]
    NoKey(#[from] KeyError),
}

/// One page of the selection, in the order of ids. It never ends inside a group of equal ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The customers, each once.
    pub customers: Vec<Customer>,
    /// What became none. Over a whole paging, each faulty row is counted once.
    pub faults: Vec<Fault>,
    /// Where the next page begins; none at the end, and only there. An id may hold an address, so
    /// this belongs into the ledger and not into the engine.
    pub next: Option<CustomerId>,
    /// The rows of the query this page accounts for: customers, their identical repetitions, and
    /// faults. Over a whole paging of unchanged data they add up to the count.
    pub seen: u64,
}

impl Page {
    /// Adds `rows` rows of the query that make no operation, if there are any.
    pub(super) fn add_fault(&mut self, id: Option<&CustomerId>, rows: u64, reason: FaultReason) {
        if rows > 0 {
            self.seen += rows;
            let customer_id = id.map(|id| Redacted::new(id.to_string()));
            self.faults.push(Fault { customer_id, rows, reason });
        }
    }

    /// Adds a complete group of `rows` rows with one id. `data` is the first of them.
    pub(super) fn add_group(&mut self, group: Group, key: Result<OperationKey, KeyError>) {
        let Group { id, data, rows, differ, unreadable } = group;
        match key {
            Err(error) => self.add_fault(Some(&id), rows, error.into()),
            Ok(_) if differ => self.add_fault(Some(&id), rows, FaultReason::Differing),
            Ok(key) => {
                if let Some(reason) = unreadable {
                    let reason = FaultReason::Unreadable { query: Query::Customers, reason };
                    return self.add_fault(Some(&id), rows, reason);
                }
                self.seen += rows;
                self.customers.push(Customer { id, key, data: Redacted::new(data) });
            }
        }
    }
}

/// The rows with one id, as far as they have been read.
pub(super) struct Group {
    pub(super) id: CustomerId,
    /// The first row.
    pub(super) data: Data,
    pub(super) rows: u64,
    /// Whether any row differs from the first.
    pub(super) differ: bool,
    /// What cannot be carried of the first.
    unreadable: Option<String>,
}

impl Group {
    pub(super) fn new(id: CustomerId, row: RowData) -> Self {
        let RowData { data, unreadable } = row;
        Self { id, data, rows: 1, differ: false, unreadable }
    }

    pub(super) fn add(&mut self, row: &RowData) {
        self.rows += 1;
        // What cannot be carried cannot be compared either.
        self.differ |= self.data != row.data || row.unreadable.is_some();
    }
}

/// How `customer_id` of `customers` is compared and ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdColumn {
    pub(super) kind: IdType,
    /// PostgreSQL: whether equality under the column's own collation is equality of bytes.
    pub(super) own_collation: bool,
}

impl IdColumn {
    /// What stands in while no row shows a type: then there is no usable id to compare.
    pub(super) const UNKNOWN: Self = Self { kind: IdType::Text, own_collation: false };

    /// The id as a term of the wrapper's `where` and `order by`, in which both sides follow one
    /// order. Its equality is that of bytes, unless [`IdColumn::is_loose`].
    pub(super) fn term(self, dialect: Dialect) -> &'static str {
        match (dialect, self.kind) {
            (_, IdType::Integer | IdType::Unsigned | IdType::Uuid) | (Dialect::Mysql, _) => {
                "c.customer_id"
            }
            (Dialect::Sqlite, IdType::Text) => "c.customer_id collate binary",
            (Dialect::Postgres, IdType::Text) if self.own_collation => "c.customer_id::text",
            (Dialect::Postgres, IdType::Text) => "c.customer_id::text collate \"C\"",
        }
    }

    /// Whether ids of different bytes may be equal in the term's order, and then stand in any order
    /// among themselves. On MySQL every text is compared by its column's collation, since an index
    /// serves no other; and any of these may ignore case, accents or trailing blanks, the binary
    /// ones the blanks.
    pub(super) fn is_loose(self, dialect: Dialect) -> bool {
        (dialect, self.kind) == (Dialect::Mysql, IdType::Text)
    }

    /// The rows without an id.
    pub(super) fn missing(self, dialect: Dialect) -> &'static str {
        match (dialect, self.kind) {
            (Dialect::Mysql, IdType::Text) => {
                "(c.customer_id is null or char_length(c.customer_id) = 0)"
            }
            (_, IdType::Text) => "(c.customer_id is null or c.customer_id = '')",
            (_, IdType::Integer | IdType::Unsigned | IdType::Uuid) => "c.customer_id is null",
        }
    }

    /// The rows whose id is of another type, which only SQLite has.
    pub(super) fn mistyped(self, dialect: Dialect) -> Option<&'static str> {
        match (dialect, self.kind) {
            (Dialect::Postgres | Dialect::Mysql, _) => None,
            (Dialect::Sqlite, IdType::Integer) => {
                Some("typeof(c.customer_id) not in ('integer', 'null')")
            }
            (Dialect::Sqlite, _) => Some("typeof(c.customer_id) not in ('text', 'null')"),
        }
    }

    /// The rows that are neither missing nor mistyped.
    pub(super) fn usable(self, dialect: Dialect) -> &'static str {
        match (dialect, self.kind) {
            (Dialect::Sqlite, IdType::Integer) => "typeof(c.customer_id) = 'integer'",
            (Dialect::Sqlite, _) => "typeof(c.customer_id) = 'text' and c.customer_id <> ''",
            (Dialect::Postgres, IdType::Text) => "c.customer_id <> ''",
            // Many a collation calls a blank id equal to the empty one.
            (Dialect::Mysql, IdType::Text) => "char_length(c.customer_id) > 0",
            (Dialect::Postgres | Dialect::Mysql, _) => "c.customer_id is not null",
        }
    }
}
