//! The source's behaviours, the same on SQLite, PostgreSQL and MariaDB.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[path = "source/connections.rs"]
mod connections;
#[path = "source/database.rs"]
mod database;
#[path = "source/only_mariadb.rs"]
mod only_mariadb;
#[path = "source/only_postgres.rs"]
mod only_postgres;
#[path = "source/only_sqlite.rs"]
mod only_sqlite;
#[path = "source/operations.rs"]
mod operations;
#[path = "source/paging.rs"]
mod paging;

use database::{Behaviour, Kind, on_all};
use digest_activities::source::{
    CustomerId, Data, FaultReason, IdType, Page, Parameters, Queries, Query, Source, SourceError,
    StatementError,
};
use digest_workflows::operation::key::{KeyError, OperationKey};
use digest_workflows::operation::period::Period;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CUSTOMERS: &str = "select id as customer_id, email as address, name from customers";
const STILL_WANTED: &str = "select 1 from customers where id = :customer_id and wants";

fn queries(customers: &str) -> Queries {
    Queries {
        customers: customers.to_owned(),
        rows: None,
        still_wanted: STILL_WANTED.to_owned(),
        cleanup: None,
        cleanup_max_rows: 1000,
    }
}

fn with_rows(customers: &str, rows: &str) -> Queries {
    Queries { rows: Some(rows.to_owned()), ..queries(customers) }
}

fn with_cleanup(cleanup: &str) -> Queries {
    Queries { cleanup: Some(cleanup.to_owned()), ..queries(CUSTOMERS) }
}

fn parameters() -> Parameters<'static> {
    Parameters {
        campaign: "digest",
        period: Period::parse("2026-W42").unwrap(),
        selected_at: "2026-10-12T07:00:03.5Z".parse().unwrap(),
        period_start: "2026-10-05T07:00:00Z".parse().unwrap(),
        period_end: "2026-10-12T07:00:00Z".parse().unwrap(),
    }
}

fn key(customer: &str) -> OperationKey {
    OperationKey::new("digest", parameters().period, customer).unwrap()
}

/// Everything that paging to the end brings together.
#[derive(Default)]
struct Paged {
    pages: Vec<Page>,
    ids: Vec<String>,
    seen: u64,
}

impl Paged {
    fn faulty_rows(&self, is: impl Fn(&FaultReason) -> bool) -> u64 {
        let faults = self.pages.iter().flat_map(|page| &page.faults);
        faults.filter(|fault| is(&fault.reason)).map(|fault| fault.rows).sum()
    }

    fn data(&self) -> Vec<&Data> {
        let customers = self.pages.iter().flat_map(|page| &page.customers);
        customers.map(|customer| customer.data.reveal()).collect()
    }
}

/// Pages to the end as the freeze does, reading each cursor back from its text, and checks what
/// holds of every paging.
async fn page_through(source: &Source, limit: u32) -> Paged {
    let mut paged = Paged::default();
    let mut after: Option<CustomerId> = None;
    loop {
        let page = source.customers_page(&parameters(), after.as_ref(), limit).await.unwrap();
        for customer in &page.customers {
            assert_eq!(customer.key.customer_id(), customer.id.to_string());
            assert!(!customer.data.reveal().is_empty());
        }
        paged.ids.extend(page.customers.iter().map(|customer| customer.id.to_string()));
        paged.seen += page.seen;
        let next = page.next.clone();
        paged.pages.push(page);
        let Some(next) = next else { break };
        assert_ne!(after.as_ref(), Some(&next), "the cursor stands still");
        after = Some(source.customer_id(&parameters(), &next.to_string()).await.unwrap());
    }
    let unique: BTreeSet<&String> = paged.ids.iter().collect();
    assert_eq!(unique.len(), paged.ids.len(), "a customer was selected twice");
    assert_eq!(paged.seen, source.count(&parameters()).await.unwrap(), "a row is missing");
    paged
}

fn table(id: &str) -> String {
    format!("create table customers (id {id}, email text, name text, wants boolean not null)")
}

/// 300 customers, of whom three have equal rows across the edge of the first page, two differ
/// across the edge of the second, and five have no id.
fn three_hundred(id: impl Fn(u32) -> String) -> String {
    let row = |id: &str, name: &str| format!("({id}, 'a@shop.example', '{name}', true)");
    let mut rows: Vec<String> = (1..=300).map(|n| row(&id(n), "Ann")).collect();
    rows.extend([row(&id(100), "Ann"), row(&id(100), "Ann")]);
    rows.push(row(&id(199), "Bob"));
    rows.extend((0..5).map(|_| row("null", "Nobody")));
    format!("insert into customers values {}", rows.join(", "))
}
