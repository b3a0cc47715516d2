//! Paging through `customers`: wrapped queries, and groups of equal ids that no page cuts.

use super::binder::{Binder, Parameters};
use super::check::{unsuitable, usable_columns};
use super::customer::{CustomerId, FaultReason, Group, IdColumn, IdType, Page};
use super::error::{Query, SourceError};
use super::session::{Bound, Column, RowData, Session};
use super::statement::{Dialect, Statement};
use super::{ROWS_MAX, SELECTION_SECONDS, Source};
use digest_workflows::operation::key::OperationKey;
use std::collections::HashMap;

/// One transaction that reads `customers`.
pub(super) struct Selection<'a> {
    pub(super) session: Session,
    source: &'a Source,
    parameters: &'a Parameters<'a>,
    columns: Vec<Column>,
    /// What is selected of them.
    list: String,
    id: IdColumn,
}

impl Source {
    /// Begins to read `customers`, whose columns are looked at anew: the table may have got another
    /// one since the last time. MySQL tells the columns with each row.
    pub(super) async fn selection<'a>(
        &'a self,
        parameters: &'a Parameters<'a>,
        id: IdColumn,
    ) -> Result<Selection<'a>, SourceError> {
        let mut session = self.database.read(Query::Customers, SELECTION_SECONDS).await?;
        if self.database.dialect() == Dialect::Mysql {
            let (columns, list) = (Vec::new(), EVERYTHING.to_owned());
            return Ok(Selection { session, source: self, parameters, columns, list, id });
        }
        let sql = self.binder().statement(&self.customers, parameters, None);
        let columns = usable_columns(&mut session, Query::Customers, sql).await?;
        let list = select_list(Query::Customers, &columns)?;
        Ok(Selection { session, source: self, parameters, columns, list, id })
    }

    /// How many rows of `customers` meet `condition`.
    pub(super) async fn count_where(
        &self,
        session: &mut Session,
        parameters: &Parameters<'_>,
        condition: &str,
    ) -> Result<u64, SourceError> {
        let mut binder = self.binder();
        let query = binder.statement(&self.customers, parameters, None);
        let sql = format!("select count(*) from (\n{query}\n) as c where {condition}");
        session.number(binder.bound(sql)).await
    }

    /// `rows`, of these customers only. No order is given: the query's own order holds within each
    /// customer, as the databases filter a subquery without reordering it (MariaDB only if it is
    /// told not to dissolve it into the outer query, which the session does).
    pub(super) fn rows_of(
        &self,
        statement: &Statement,
        parameters: &Parameters<'_>,
        list: &str,
        customers: &[CustomerId],
        kind: IdType,
    ) -> Bound {
        let mut binder = self.binder();
        let query = binder.statement(statement, parameters, None);
        let column = match (self.database.dialect(), kind) {
            (Dialect::Postgres, IdType::Text) => "c.customer_id::text",
            _ => "c.customer_id",
        };
        let condition = binder.is_one_of(column, customers, kind);
        let limit = ROWS_MAX + 1;
        let sql = format!("select {list} from (\n{query}\n) as c where {condition} limit {limit}");
        binder.bound(sql)
    }

    pub(super) fn binder(&self) -> Binder {
        Binder::new(self.database.dialect())
    }
}

impl Selection<'_> {
    /// Counts the rows that no page shows as faults.
    pub(super) async fn add_unusable(&mut self, page: &mut Page) -> Result<(), SourceError> {
        let missing = self.id.missing(self.source.database.dialect());
        let Self { session, source, parameters, .. } = self;
        let rows = source.count_where(session, parameters, missing).await?;
        page.add_fault(None, rows, FaultReason::Missing);
        if let Some(mistyped) = self.id.mistyped(source.database.dialect()) {
            let rows = source.count_where(session, parameters, mistyped).await?;
            page.add_fault(None, rows, FaultReason::Mistyped(self.id.kind.sql_name()));
        }
        Ok(())
    }

    /// Reads the groups after `after`, `limit` rows of them.
    ///
    /// One row more is read, which shows whether there is a next page. The group it belongs to may
    /// go on behind it, so that group is left to the next page; unless the page holds nothing else,
    /// and then the group is read to its end, one row at a time. A row without a readable id is no
    /// place to go on from, so it is left to the next page as well.
    pub(super) async fn fill(
        &mut self,
        page: &mut Page,
        after: Option<&CustomerId>,
        limit: u32,
    ) -> Result<(), SourceError> {
        let bound = self.page_statement(after, limit);
        let mut found = self.found(bound).await?;
        let read: u64 = found.iter().map(Found::rows).sum();
        if read > u64::from(limit) && self.id.is_loose(self.source.database.dialect()) {
            self.end_with_equal_ids(page, &mut found).await?;
        } else if read > u64::from(limit)
            && let Some(open) = found.pop()
        {
            let complete = found.iter().rposition(|found| found.id().is_some());
            if let Some(complete) = complete {
                found.truncate(complete + 1);
                page.next = found.last().and_then(Found::id).cloned();
            } else if let Some(id) = open.id() {
                self.add_one(page, id).await?;
                page.next = Some(id.clone());
            } else {
                return Err(unsuitable(Query::Customers, NO_PLACE_TO_GO_ON));
            }
        }
        for found in found {
            self.add(page, found);
        }
        Ok(())
    }

    /// Where a collation calls ids equal that are not, only the database knows which these are: it is
    /// asked for all that equal the last one, and the page ends with them.
    async fn end_with_equal_ids(
        &mut self,
        page: &mut Page,
        found: &mut Vec<Found>,
    ) -> Result<(), SourceError> {
        let last = found.iter().rposition(|found| found.id().is_some());
        found.truncate(last.map_or(0, |last| last + 1));
        let Some(id) = found.last().and_then(Found::id).cloned() else {
            return Err(unsuitable(Query::Customers, NO_PLACE_TO_GO_ON));
        };
        let mut equal = self.equal_to(&id).await?;
        equal.retain(|equal| equal.id().is_some());
        found.retain(|found| {
            found.id().is_none() || equal.iter().all(|equal| equal.id() != found.id())
        });
        found.extend(equal);
        page.next = Some(id);
        Ok(())
    }

    /// Adds the whole group of `id`, in constant memory however many rows it has.
    pub(super) async fn add_one(
        &mut self,
        page: &mut Page,
        id: &CustomerId,
    ) -> Result<(), SourceError> {
        for found in self.equal_to(id).await? {
            if found.id().is_none_or(|found| found == id) {
                self.add(page, found);
            }
        }
        Ok(())
    }

    /// All that the database calls equal to `id`.
    async fn equal_to(&mut self, id: &CustomerId) -> Result<Vec<Found>, SourceError> {
        let (mut binder, query) = self.begin();
        let list = &self.list;
        let term = self.id.term(self.source.database.dialect());
        let usable = self.id.usable(self.source.database.dialect());
        let value = binder.id(id);
        let sql =
            format!("select {list} from (\n{query}\n) as c where {usable} and {term} = {value}");
        self.found(binder.bound(sql)).await
    }

    /// The statement that reads a page: `limit` rows after `after`, and one more.
    pub(super) fn page_statement(&self, after: Option<&CustomerId>, limit: u32) -> Bound {
        let (mut binder, query) = self.begin();
        let dialect = self.source.database.dialect();
        let list = &self.list;
        let term = self.id.term(dialect);
        let usable = self.id.usable(dialect);
        let after = after.map_or_else(String::new, |id| format!(" and {term} > {}", binder.id(id)));
        let limit = u64::from(limit) + 1;
        let sql = format!(
            "select {list} from (\n{query}\n) as c where {usable}{after} order by {term} limit {limit}"
        );
        binder.bound(sql)
    }

    fn begin(&self) -> (Binder, String) {
        let mut binder = self.source.binder();
        let query = binder.statement(&self.source.customers, self.parameters, None);
        (binder, query)
    }

    /// Reads rows, and groups them by id in the order of their first rows.
    async fn found(&mut self, bound: Bound) -> Result<Vec<Found>, SourceError> {
        let kind = self.id.kind;
        let mut found: Vec<Found> = Vec::new();
        let mut places: HashMap<CustomerId, usize> = HashMap::new();
        let mut mistyped = false;
        self.session
            .each(bound, &self.columns, |row: RowData| {
                match (CustomerId::of_row(&row.data, kind), row.unreadable) {
                    (Some(id), unreadable) => {
                        let row = RowData { data: row.data, unreadable };
                        let place = *places.entry(id.clone()).or_insert(found.len());
                        match found.get_mut(place) {
                            Some(Found::Group(group)) => group.add(&row),
                            _ => found.push(Found::Group(Group::new(id, row))),
                        }
                    }
                    (None, Some(reason)) => found.push(Found::Nameless(reason)),
                    (None, None) => mistyped = true,
                }
            })
            .await?;
        if mistyped {
            let reason = format!(
                "column customer_id is no longer {}, as it was when this process first read it; restart digestd after a change of its type",
                kind.with_article()
            );
            return Err(SourceError::Value { query: Query::Customers, reason });
        }
        Ok(found)
    }

    fn add(&self, page: &mut Page, found: Found) {
        let group = match found {
            Found::Group(group) => group,
            Found::Nameless(reason) => {
                let reason = FaultReason::Unreadable { query: Query::Customers, reason };
                return page.add_fault(None, 1, reason);
            }
        };
        let id = group.id.to_string();
        let key = OperationKey::new(self.parameters.campaign, self.parameters.period, &id);
        page.add_group(group, key);
    }
}

/// What the wrapper selects where each row tells its columns.
pub(super) const EVERYTHING: &str = "c.*";
const NO_PLACE_TO_GO_ON: &str = "customer_id cannot be read in a whole page of rows; select it as text that is UTF-8, or as a number";

/// What a page reads, in the order of ids.
enum Found {
    /// The rows with one id.
    Group(Group),
    /// A row whose id cannot be read, and why.
    Nameless(String),
}

impl Found {
    fn id(&self) -> Option<&CustomerId> {
        match self {
            Self::Group(group) => Some(&group.id),
            Self::Nameless(_) => None,
        }
    }

    fn rows(&self) -> u64 {
        match self {
            Self::Group(group) => group.rows,
            Self::Nameless(_) => 1,
        }
    }
}

/// What the wrapper selects, so that each column can be read.
pub(super) fn select_list(query: Query, columns: &[Column]) -> Result<String, SourceError> {
    let mut list = Vec::with_capacity(columns.len());
    for column in columns {
        match &column.read {
            Ok(read) => list.push(read.as_str()),
            Err(reason) => {
                return Err(SourceError::Unsuitable { query, reason: reason.clone() });
            }
        }
    }
    Ok(list.join(", "))
}
