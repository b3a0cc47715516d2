//! Whether the queries are what digestd needs, found out before anything is sent.

use super::binder::{Binder, Parameters};
use super::customer::{CustomerId, ID_COLUMN, IdColumn, IdType};
use super::error::{Query, SourceError};
use super::selection::select_list;
use super::session::{Column, Session};
use super::statement::{Dialect, Parameter, Statement};
use super::{CONSENT_SECONDS, SELECTION_SECONDS, Source, within};
use digest_workflows::operation::key::OperationKey;

/// The column of `customers` that says where the message goes.
const ADDRESS_COLUMN: &str = "address";

/// The columns of `sql`, each with a name of its own and one of them `customer_id`.
pub(super) async fn usable_columns(
    session: &mut Session,
    query: Query,
    sql: String,
) -> Result<Vec<Column>, SourceError> {
    let columns = session.columns(sql).await?;
    require(query, &columns, ID_COLUMN)?;
    for (index, column) in columns.iter().enumerate() {
        if columns[..index].iter().any(|earlier| earlier.name == column.name) {
            return Err(unsuitable(
                query,
                format!(
                    "it has two columns {:?}; give each a name of its own with as",
                    column.name
                ),
            ));
        }
    }
    Ok(columns)
}

impl Source {
    /// Checks which parameters each statement names, as far as the text alone tells.
    pub(super) fn check_parameters(&self) -> Result<(), SourceError> {
        let shared = [(Query::Customers, Some(&self.customers)), (Query::Rows, self.rows.as_ref())];
        for (query, statement) in shared {
            let of_one = statement
                .and_then(|statement| statement.parameters().find(|p| p.is_of_one_operation()));
            if let Some(parameter) = of_one {
                return Err(unsuitable(
                    query,
                    format!(
                        "it names {parameter}, but it is asked for many customers at once; select customer_id as a column instead"
                    ),
                ));
            }
        }
        if !self.still_wanted.uses(Parameter::is_of_one_operation) {
            return Err(unsuitable(
                Query::StillWanted,
                "it names neither :customer_id nor :operation_key, so it would say the same of everybody; add a condition such as where id = :customer_id",
            ));
        }
        match &self.cleanup {
            Some(cleanup) if !binds_one_operation(cleanup) => Err(unsuitable(
                Query::Cleanup,
                "it must touch the rows of one customer in one period only; name :operation_key, or :customer_id together with :period, :period_start or :period_end",
            )),
            _ => Ok(()),
        }
    }

    /// How `customer_id` is compared, read once and remembered; `None` only on SQLite, where a
    /// computed column shows its type in its rows and there is none yet.
    pub(super) async fn id_column(
        &self,
        parameters: &Parameters<'_>,
    ) -> Result<Option<IdColumn>, SourceError> {
        if let Some(id) = self.id.get() {
            return Ok(Some(*id));
        }
        let found =
            within(Query::Customers, SELECTION_SECONDS, self.find_id_column(parameters)).await?;
        if let Some(id) = found {
            // Two that ask at once find the same.
            self.id.set(id).ok();
        }
        Ok(found)
    }

    async fn find_id_column(
        &self,
        parameters: &Parameters<'_>,
    ) -> Result<Option<IdColumn>, SourceError> {
        let mut session = self.database.read(Query::Customers, SELECTION_SECONDS).await?;
        let sql = self.binder().statement(&self.customers, parameters, None);
        let columns = usable_columns(&mut session, Query::Customers, sql).await?;
        let column = require(Query::Customers, &columns, ID_COLUMN)?;
        let kind = match (column.id, self.database.dialect()) {
            (Some(kind), _) => kind,
            (None, dialect @ (Dialect::Postgres | Dialect::Mysql)) => {
                return Err(unsuitable(Query::Customers, wrong_id_type(dialect)));
            }
            (None, Dialect::Sqlite) => match self.most_ids(&mut session, parameters).await? {
                Some(kind) => kind,
                None => return Ok(None),
            },
        };
        let own_collation = match (self.database.dialect(), kind) {
            (Dialect::Postgres, IdType::Text) => self.compares_bytes(session, parameters).await?,
            _ => false,
        };
        Ok(Some(IdColumn { kind, own_collation }))
    }

    /// SQLite: the type that most ids have; the others are faults.
    async fn most_ids(
        &self,
        session: &mut Session,
        parameters: &Parameters<'_>,
    ) -> Result<Option<IdType>, SourceError> {
        let mut binder = self.binder();
        let query = binder.statement(&self.customers, parameters, None);
        let sql = format!(
            "select typeof(c.customer_id) from (\n{query}\n) as c where c.customer_id is not null group by 1 order by count(*) desc, 1 limit 1"
        );
        match session.text(binder.bound(sql)).await?.as_deref() {
            Some("integer") => Ok(Some(IdType::Integer)),
            Some("text") => Ok(Some(IdType::Text)),
            Some(_) => Err(unsuitable(Query::Customers, wrong_id_type(Dialect::Sqlite))),
            None => Ok(None),
        }
    }

    /// PostgreSQL: whether the id's collation is deterministic, that is, calls only equal bytes
    /// equal (its documentation, 24.2.2.4). One that cannot be determined is not.
    async fn compares_bytes(
        &self,
        mut session: Session,
        parameters: &Parameters<'_>,
    ) -> Result<bool, SourceError> {
        let mut binder = self.binder();
        let query = binder.statement(&self.customers, parameters, None);
        let sql = format!(
            "select 'deterministic' from pg_catalog.pg_collation as known \
             where known.collisdeterministic and known.oid = pg_catalog.to_regcollation(( \
             select pg_catalog.pg_collation_for(max(c.customer_id::text)) from (\n{query}\n) as c where false))"
        );
        match session.text(binder.bound(sql)).await {
            Ok(found) => Ok(found.is_some()),
            Err(SourceError::Query { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn check_customers(
        &self,
        parameters: &Parameters<'_>,
        id: Option<IdColumn>,
    ) -> Result<Vec<String>, SourceError> {
        let mut selection = self.selection(parameters, id.unwrap_or(IdColumn::UNKNOWN)).await?;
        let sql = self.binder().statement(&self.customers, parameters, None);
        let columns = usable_columns(&mut selection.session, Query::Customers, sql).await?;
        require(Query::Customers, &columns, ADDRESS_COLUMN)?;
        select_list(Query::Customers, &columns)?;
        let bound = selection.page_statement(None, 1);
        selection.session.explain(bound).await?;
        selection.session.rollback().await?;
        Ok(columns.into_iter().map(|column| column.name).collect())
    }

    pub(super) async fn check_rows(
        &self,
        parameters: &Parameters<'_>,
        id: Option<IdColumn>,
    ) -> Result<Vec<String>, SourceError> {
        let Some(statement) = &self.rows else { return Ok(Vec::new()) };
        let kind = id.unwrap_or(IdColumn::UNKNOWN).kind;
        let mut session = self.database.read(Query::Rows, SELECTION_SECONDS).await?;
        let columns = self.row_columns(&mut session, statement, parameters, kind).await?;
        let list = select_list(Query::Rows, &columns)?;
        let bound = self.rows_of(statement, parameters, &list, &[sample(kind)], kind);
        session.explain(bound).await?;
        session.rollback().await?;
        Ok(columns.into_iter().map(|column| column.name).collect())
    }

    /// The columns of `rows`, whose `customer_id` is of type `kind`.
    pub(super) async fn row_columns(
        &self,
        session: &mut Session,
        statement: &Statement,
        parameters: &Parameters<'_>,
        kind: IdType,
    ) -> Result<Vec<Column>, SourceError> {
        let sql = self.binder().statement(statement, parameters, None);
        let columns = usable_columns(session, Query::Rows, sql).await?;
        let found = require(Query::Rows, &columns, ID_COLUMN)?;
        let (fits, cast) = match (self.database.dialect(), found.id) {
            (Dialect::Sqlite, _) => return Ok(columns),
            (Dialect::Postgres, found) => (found == Some(kind), "customer_id::text"),
            // A text and a number would be compared as floats, and many a text as 0.
            (Dialect::Mysql, found) => {
                let is_number = |kind| matches!(kind, IdType::Integer | IdType::Unsigned);
                let fits = |found| found == kind || (is_number(found) && is_number(kind));
                (found.is_some_and(fits), "cast(customer_id as char)")
            }
        };
        if !fits {
            return Err(unsuitable(
                Query::Rows,
                format!(
                    "its customer_id is not {}, which it is in [source] customers; cast one of them, for example {cast} as customer_id",
                    kind.with_article()
                ),
            ));
        }
        Ok(columns)
    }

    pub(super) async fn check_operation_statements(
        &self,
        parameters: &Parameters<'_>,
        id: Option<IdColumn>,
    ) -> Result<(), SourceError> {
        let id = sample(id.unwrap_or(IdColumn::UNKNOWN).kind);
        let key = OperationKey::new(parameters.campaign, parameters.period, &id.to_string());
        let key = key.map_err(|error| unsuitable(Query::Customers, error.to_string()))?;
        let mut session = self.database.read(Query::StillWanted, CONSENT_SECONDS).await?;
        session.explain(self.consent(parameters, &key, &id)).await?;
        session.rollback().await?;
        let Some(cleanup) = &self.cleanup else { return Ok(()) };
        let mut session = match self.database.dialect() {
            // MariaDB prepares nothing that writes where only reading is allowed.
            Dialect::Mysql => self.database.write(Query::Cleanup, CONSENT_SECONDS).await?,
            _ => self.database.read(Query::Cleanup, CONSENT_SECONDS).await?,
        };
        let mut binder = self.binder();
        let sql = binder.statement(cleanup, parameters, Some((&key, &id)));
        session.explain(binder.bound(sql)).await?;
        if self.database.dialect() == Dialect::Mysql {
            refuse_without_rollback(&mut session, cleanup).await?;
        }
        session.rollback().await
    }
}

/// MySQL: refuses a cleanup whose table cannot undo it, since it would have happened by the time
/// that it turns out to touch too many rows.
async fn refuse_without_rollback(
    session: &mut Session,
    cleanup: &Statement,
) -> Result<(), SourceError> {
    let names = cleanup.changed_names();
    let mut binder = Binder::new(Dialect::Mysql);
    let mut list = || {
        let binds: Vec<String> = names.iter().map(|name| binder.text(name.clone())).collect();
        binds.join(", ")
    };
    let (schemas, tables) = (list(), list());
    let sql = format!(
        "select concat(t.table_name, ' has the engine ', t.engine) \
         from information_schema.tables as t \
         join information_schema.engines as e on e.engine = t.engine \
         where e.transactions = 'NO' \
         and (t.table_schema = database() or t.table_schema in ({schemas})) \
         and t.table_name in ({tables}) limit 1"
    );
    let found = session.text(binder.bound(sql)).await?;
    match found {
        None => Ok(()),
        Some(table) => Err(unsuitable(
            Query::Cleanup,
            format!(
                "its table {table}, which cannot be rolled back when more than cleanup_max_rows are touched; run alter table … engine = InnoDB"
            ),
        )),
    }
}

fn wrong_id_type(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => {
            "customer_id is neither an integer, nor a text, nor a uuid; cast it, for example cast(id as text) as customer_id"
        }
        Dialect::Mysql => {
            "customer_id is neither an integer nor a text; select cast(id as char) as customer_id, and for binary ids lower(hex(id)) as customer_id with id = unhex(:customer_id) in the other statements"
        }
    }
}

pub(super) fn unsuitable(query: Query, reason: impl Into<String>) -> SourceError {
    SourceError::Unsuitable { query, reason: reason.into() }
}

/// An id to plan a statement with.
fn sample(kind: IdType) -> CustomerId {
    match kind {
        IdType::Integer => CustomerId::Integer(0),
        IdType::Unsigned => CustomerId::Unsigned(0),
        IdType::Text => CustomerId::Text("0".to_owned()),
        IdType::Uuid => CustomerId::Uuid(uuid::Uuid::nil()),
    }
}

fn binds_one_operation(statement: &Statement) -> bool {
    statement.uses(|parameter| parameter == Parameter::OperationKey)
        || (statement.uses(|parameter| parameter == Parameter::CustomerId)
            && statement.uses(Parameter::is_of_one_period))
}

fn require<'a>(query: Query, columns: &'a [Column], name: &str) -> Result<&'a Column, SourceError> {
    if let Some(column) = columns.iter().find(|column| column.name == name) {
        return Ok(column);
    }
    let reason = if columns.is_empty() {
        "it returns no columns; write a select".to_owned()
    } else {
        let has: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        format!(
            "it has no column {name}; name one so with as (it has {}; the spelling counts)",
            has.join(", ")
        )
    };
    Err(unsuitable(query, reason))
}
