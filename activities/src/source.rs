//! The source: the user's customers and digest data, read by the user's own SQL from SQLite,
//! PostgreSQL, MySQL or MariaDB.
//!
//! The queries are plain: digestd wraps `customers` and `rows` to page through them by
//! `customer_id`, two queries a page, however many customers it holds (on MySQL a third one for text
//! ids). It only ever reads, in transactions in which the database itself refuses to write; the one
//! exception is `cleanup`, in a transaction of its own with a limit on the rows it touches.
//!
//! Nothing is remembered between two calls but the type of `customer_id`, so a page can be read
//! again after a crash. There is no snapshot over a whole selection: whoever freezes one compares
//! the rows seen with [`Source::count`].
//!
//! Two ids are the same customer only if they are the same bytes. `customers` is ordered by its own
//! collation where equality means that, so that an index on the id serves the paging, and by bytes
//! otherwise. On MySQL and MariaDB hardly any collation means that, and only the column's own is
//! served by an index: there the order is the column's, and a page holds all ids that are equal in
//! it, or none.

mod binder;
mod check;
mod customer;
mod database;
mod error;
mod mysql;
mod postgres;
mod scanner;
mod selection;
mod session;
mod sqlite;
mod statement;

pub use binder::Parameters;
pub use customer::{Customer, CustomerId, Data, Fault, FaultReason, IdType, Page};
pub use error::{Query, SourceError};
pub(crate) use error::{cure, words};
pub use statement::{Dialect, Parameter, StatementError};

use check::unsuitable;
use customer::IdColumn;
use database::Database;
use digest_workflows::operation::key::OperationKey;
use digest_workflows::operation::period::Period;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use selection::{EVERYTHING, select_list};
use session::Bound;
use statement::Statement;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The time that one statement over the whole selection, or a page of it, gets.
const SELECTION_SECONDS: u64 = 300;
/// The time that `still_wanted` gets; a delivery waits for it.
const CONSENT_SECONDS: u64 = 10;
/// The time that `cleanup` gets.
const CLEANUP_SECONDS: u64 = 60;
/// A call may take this much longer than its statements before the connection is given up: for a
/// server that died without closing it.
const GRACE: Duration = Duration::from_secs(10);
/// Rows of `rows` that one page may have. Beyond it the query misses a condition, and the memory of
/// the worker would pay for it.
const ROWS_MAX: usize = 100_000;

/// The statements of `[source]`, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queries {
    /// Who gets a message: `customer_id`, `address`, and any further column as data.
    pub customers: String,
    /// The digest's rows, with `customer_id`; frozen with the selection.
    pub rows: Option<String>,
    /// Asked right before sending for one customer.
    pub still_wanted: String,
    /// Removes the generated rows of one operation.
    pub cleanup: Option<String>,
    /// How many rows one `cleanup` may touch.
    pub cleanup_max_rows: u64,
}

/// What [`Source::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Host and database, or file; nothing of user or password.
    pub database: String,
    /// The type of `customer_id`; unknown only on SQLite, where a computed column has one only once
    /// there is a row.
    pub id_type: Option<IdType>,
    /// The columns of `customers`.
    pub customer_columns: Vec<String>,
    /// The columns of `rows`; none without such a query.
    pub row_columns: Vec<String>,
}

/// The rows of a page of customers, or why they cannot be carried.
pub type RowsPage = HashMap<CustomerId, Result<Vec<Data>, FaultReason>>;

/// The user's database, ready to be asked.
pub struct Source {
    database: Database,
    customers: Statement,
    rows: Option<Statement>,
    still_wanted: Statement,
    cleanup: Option<Statement>,
    cleanup_max_rows: u64,
    id: OnceCell<IdColumn>,
}

impl Source {
    /// Takes the queries and prepares connections to `url` (`sqlite://…`, `postgres://…`,
    /// `mysql://…` or `mariadb://…`) without making one: a worker may start before the database does.
    ///
    /// # Errors
    /// [`SourceError::Url`]; [`SourceError::Statement`] and [`SourceError::Unsuitable`] for what is
    /// wrong with a query's text. Nothing temporary.
    pub fn open(url: &str, queries: Queries) -> Result<Self, SourceError> {
        let database = Database::open(url)?;
        let parse = |query, sql: &str| {
            Statement::parse(sql, database.dialect())
                .map_err(|reason| SourceError::Statement { query, reason })
        };
        let parse_optional =
            |query, sql: Option<String>| sql.map(|sql| parse(query, &sql)).transpose();
        let source = Self {
            customers: parse(Query::Customers, &queries.customers)?,
            rows: parse_optional(Query::Rows, queries.rows)?,
            still_wanted: parse(Query::StillWanted, &queries.still_wanted)?,
            cleanup: parse_optional(Query::Cleanup, queries.cleanup)?,
            cleanup_max_rows: queries.cleanup_max_rows,
            id: OnceCell::new(),
            database,
        };
        source.check_parameters()?;
        Ok(source)
    }

    /// [`Source::open`], then [`Source::check`].
    ///
    /// # Errors
    /// As these.
    pub async fn connect(url: &str, queries: Queries) -> Result<Self, SourceError> {
        let source = Self::open(url, queries)?;
        source.check().await?;
        Ok(source)
    }

    /// Connects, and has the database plan every statement without running it: wrong names and
    /// types, missing columns and missing permissions show here.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`] within seconds, [`SourceError::Refused`],
    /// [`SourceError::Query`] and [`SourceError::Unsuitable`].
    pub async fn check(&self) -> Result<Description, SourceError> {
        self.database.probe().await?;
        let now = Timestamp::now();
        let parameters = Parameters {
            campaign: "check",
            period: Period::of(now, &TimeZone::UTC),
            selected_at: now,
            period_start: now - SignedDuration::from_hours(7 * 24),
            period_end: now,
        };
        let id = self.id_column(&parameters).await?;
        let checks = async {
            let customers = self.check_customers(&parameters, id).await?;
            let rows = self.check_rows(&parameters, id).await?;
            self.check_operation_statements(&parameters, id).await?;
            Ok(Description {
                database: self.database.name().to_owned(),
                id_type: id.map(|id| id.kind),
                customer_columns: customers,
                row_columns: rows,
            })
        };
        within(Query::Customers, SELECTION_SECONDS, checks).await
    }

    /// The id that `text` is, in the type of `customer_id`.
    ///
    /// # Errors
    /// [`SourceError::CustomerId`] when it is none, and whatever asking the type meets.
    pub async fn customer_id(
        &self,
        parameters: &Parameters<'_>,
        text: &str,
    ) -> Result<CustomerId, SourceError> {
        let id = self.id_column(parameters).await?.ok_or_else(|| SourceError::Unsuitable {
            query: Query::Customers,
            reason: "customer_id has no declared type, and there is no row that shows one; select a plain column as customer_id".to_owned(),
        })?;
        CustomerId::parse(text, id.kind)
    }

    /// The rows of `customers`, faulty ones included.
    ///
    /// # Errors
    /// As the database answers; see [`SourceError`].
    pub async fn count(&self, parameters: &Parameters<'_>) -> Result<u64, SourceError> {
        within(Query::Customers, SELECTION_SECONDS, async {
            let mut session = self.database.read(Query::Customers, SELECTION_SECONDS).await?;
            let count = self.count_where(&mut session, parameters, "true").await?;
            session.rollback().await?;
            Ok(count)
        })
        .await
    }

    /// The page of customers after `after` (the first one without it): about `limit` rows, fewer
    /// where a group of equal ids would be cut, more where one group alone has more.
    ///
    /// # Errors
    /// As the database answers; [`SourceError::Unsuitable`] and [`SourceError::Value`] when the
    /// query's columns cannot be used.
    pub async fn customers_page(
        &self,
        parameters: &Parameters<'_>,
        after: Option<&CustomerId>,
        limit: u32,
    ) -> Result<Page, SourceError> {
        let id = self.id_column(parameters).await?.unwrap_or(IdColumn::UNKNOWN);
        within(Query::Customers, SELECTION_SECONDS, async {
            let mut selection = self.selection(parameters, id).await?;
            let mut page = Page::default();
            if after.is_none() {
                // Their place in the order differs by database, so they are counted apart.
                selection.add_unusable(&mut page).await?;
            }
            selection.fill(&mut page, after, limit.max(1)).await?;
            selection.session.rollback().await?;
            Ok(page)
        })
        .await
    }

    /// The one customer with this id, as a page that holds it, its faults, or nothing.
    ///
    /// # Errors
    /// As [`Source::customers_page`].
    pub async fn customer(
        &self,
        parameters: &Parameters<'_>,
        customer: &CustomerId,
    ) -> Result<Page, SourceError> {
        let id = self.id_column(parameters).await?.unwrap_or(IdColumn::UNKNOWN);
        within(Query::Customers, SELECTION_SECONDS, async {
            let mut selection = self.selection(parameters, id).await?;
            let mut page = Page::default();
            selection.add_one(&mut page, customer).await?;
            selection.session.rollback().await?;
            Ok(page)
        })
        .await
    }

    /// The digest's rows of these customers, in the query's own order; customers without rows are
    /// not in the map. One query, however many customers. A customer with a row that cannot be
    /// carried has [`FaultReason::Unreadable`] in the place of rows.
    ///
    /// # Errors
    /// As the database answers; [`SourceError::Unsuitable`] when the query's columns cannot be used
    /// or it returns absurdly many rows.
    pub async fn rows_page(
        &self,
        parameters: &Parameters<'_>,
        customers: &[CustomerId],
    ) -> Result<RowsPage, SourceError> {
        let (Some(statement), Some(first)) = (&self.rows, customers.first()) else {
            return Ok(HashMap::new());
        };
        let kind = first.kind();
        within(Query::Rows, SELECTION_SECONDS, async {
            let mut session = self.database.read(Query::Rows, SELECTION_SECONDS).await?;
            let (columns, list) = match self.database.dialect() {
                // It tells the columns with each row.
                Dialect::Mysql => (Vec::new(), EVERYTHING.to_owned()),
                Dialect::Sqlite | Dialect::Postgres => {
                    let columns =
                        self.row_columns(&mut session, statement, parameters, kind).await?;
                    let list = select_list(Query::Rows, &columns)?;
                    (columns, list)
                }
            };
            let bound = self.rows_of(statement, parameters, &list, customers, kind);
            let asked: HashSet<&CustomerId> = customers.iter().collect();
            let mut rows = RowsPage::new();
            let mut count = 0;
            session
                .each(bound, &columns, |row| {
                    count += 1;
                    // A collation may find ids equal that are not.
                    if let Some(id) = CustomerId::of_row(&row.data, kind)
                        && asked.contains(&id)
                    {
                        let rows = rows.entry(id).or_insert_with(|| Ok(Vec::new()));
                        match (row.unreadable, rows) {
                            (Some(reason), rows) => {
                                let query = Query::Rows;
                                *rows = Err(FaultReason::Unreadable { query, reason });
                            }
                            (None, Ok(rows)) => rows.push(row.data),
                            (None, Err(_)) => {}
                        }
                    }
                })
                .await?;
            session.rollback().await?;
            if count > ROWS_MAX {
                return Err(unsuitable(Query::Rows, format!(
                    "it returns more than {ROWS_MAX} rows for {} customers; restrict it to :period_start and :period_end",
                    customers.len()
                )));
            }
            Ok(rows)
        })
        .await
    }

    /// Whether the customer of `key` still wants the message: whether `still_wanted` returns a row.
    /// A row whose first value is null, false or 0 counts as none, since a flag that was selected
    /// instead of asked for must not become a yes. For a canary the question is that of the customer's
    /// own message.
    ///
    /// # Errors
    /// As the database answers; no answer means no send.
    pub async fn still_wanted(
        &self,
        parameters: &Parameters<'_>,
        key: &OperationKey,
    ) -> Result<bool, SourceError> {
        let key = &key.tested();
        let id = self.customer_id(parameters, &key.customer_id()).await?;
        within(Query::StillWanted, CONSENT_SECONDS, async {
            let mut session = self.database.read(Query::StillWanted, CONSENT_SECONDS).await?;
            let wanted = session.affirms(self.consent(parameters, key, &id)).await?;
            session.rollback().await?;
            Ok(wanted)
        })
        .await
    }

    /// Whether there is a `cleanup` at all.
    #[must_use]
    pub fn cleans_up(&self) -> bool {
        self.cleanup.is_some()
    }

    /// Runs `cleanup` for the operation of `key`, in a transaction of its own; the rows it touched
    /// (not counting what triggers and cascades did), 0 without such a statement.
    ///
    /// # Errors
    /// [`SourceError::TooManyRows`] when it touched more than `cleanup_max_rows`, and nothing was
    /// changed; otherwise as the database answers. After a temporary error it may have happened: it
    /// is repeated, and must be idempotent.
    pub async fn cleanup(
        &self,
        parameters: &Parameters<'_>,
        key: &OperationKey,
    ) -> Result<u64, SourceError> {
        let Some(statement) = &self.cleanup else { return Ok(0) };
        let id = self.customer_id(parameters, &key.customer_id()).await?;
        let mut binder = self.binder();
        let sql = binder.statement(statement, parameters, Some((key, &id)));
        within(Query::Cleanup, CLEANUP_SECONDS, async {
            let mut session = self.database.write(Query::Cleanup, CLEANUP_SECONDS).await?;
            let touched = session.execute(binder.bound(sql)).await?;
            if touched > self.cleanup_max_rows {
                session.rollback().await?;
                return Err(SourceError::TooManyRows { touched, max: self.cleanup_max_rows });
            }
            session.commit().await?;
            Ok(touched)
        })
        .await
    }
}

impl Source {
    /// `still_wanted` of one operation, wrapped so that no more than one row travels.
    fn consent(&self, parameters: &Parameters<'_>, key: &OperationKey, id: &CustomerId) -> Bound {
        let mut binder = self.binder();
        let query = binder.statement(&self.still_wanted, parameters, Some((key, id)));
        binder.bound(format!("select * from (\n{query}\n) as c limit 1"))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("database", &self.database.name()).finish_non_exhaustive()
    }
}

/// Bounds a call whose statements get `seconds`.
async fn within<T>(
    query: Query,
    seconds: u64,
    call: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let bound = Duration::from_secs(seconds) + GRACE;
    let late = || SourceError::TimedOut { query, seconds: bound.as_secs() };
    tokio::time::timeout(bound, call).await.unwrap_or_else(|_| Err(late()))
}
