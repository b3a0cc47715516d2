//! The shop whose customers get the digest.

use super::{Database, PERIOD, Plan};
use digest_workflows::operation::Period;
use jiff::ToSpan as _;
use jiff::civil::{Date, date};

/// A day inside the window of [`PERIOD`].
const INSIDE: Date = date(2024, 2, 28);

/// One week in which there is something to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Week {
    /// Its period.
    pub(crate) period: Period,
    /// The day of its rows, at noon.
    pub(super) day: Date,
}

/// So many weeks from [`PERIOD`] on.
pub(super) fn weeks(count: u32) -> Vec<Week> {
    let (year, first) = PERIOD.split_once("-W").unwrap();
    let first: u32 = first.parse().unwrap();
    (0..count)
        .map(|week| Week {
            period: format!("{year}-W{:02}", first + week).parse().unwrap(),
            day: INSIDE + i64::from(week).weeks(),
        })
        .collect()
}

/// Creates the shop's tables and rows.
pub(super) async fn create(shop: &Database, plan: &Plan) {
    let (id, time) = match (plan.bigint, shop) {
        (false, Database::Sqlite(_)) => ("text", "text"),
        (false, Database::Postgres(_)) => ("text", "timestamptz"),
        (false, Database::Mariadb(_)) => ("varchar(80)", "datetime(6)"),
        (true, Database::Sqlite(_)) => ("integer", "text"),
        (true, Database::Postgres(_)) => ("bigint", "timestamptz"),
        (true, Database::Mariadb(_)) => ("bigint unsigned", "timestamp null"),
    };
    shop.execute(&format!(
        "create table customers (id {id}, email text, first_name text, digest_opt_in integer)"
    ))
    .await;
    shop.execute(&format!(
        "create table digest_items (customer_id {id}, title text, price text, created_at {time})"
    ))
    .await;
    let quoted = |text: &str| {
        let text = text.replace('\'', "''");
        match shop {
            Database::Mariadb(_) => format!("'{}'", text.replace('\\', "\\\\")),
            Database::Sqlite(_) | Database::Postgres(_) => format!("'{text}'"),
        }
    };
    for chunk in plan.customers.chunks(200) {
        let values: Vec<String> = chunk
            .iter()
            .map(|c| format!("({}, {}, {}, 1)", quoted(&c.id), quoted(&c.email), quoted(&c.name)))
            .collect();
        // A quoted number is an integer where the column is one.
        shop.execute(&format!("insert into customers values {}", values.join(", "))).await;
        let values: Vec<String> = plan
            .weeks
            .iter()
            .flat_map(|week| chunk.iter().map(move |c| (week, c)))
            .flat_map(|(week, c)| (0..c.rows).map(move |row| (week, c, row)))
            .map(|(week, c, row)| {
                let (id, day) = (quoted(&c.id), week.day);
                let title = quoted(&format!("Thing {row} for {}", c.name));
                format!("({id}, {title}, '19.90', '{day} 12:00:00')")
            })
            .collect();
        if !values.is_empty() {
            shop.execute(&format!("insert into digest_items values {}", values.join(", "))).await;
        }
    }
}
