//! The shop whose customers get the digest.

use super::{Database, Plan};

/// An instant inside the window of the period that tests run.
const INSIDE: &str = "2024-02-28 12:00:00";

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
        let values: Vec<String> = chunk
            .iter()
            .flat_map(|c| (0..c.rows).map(move |row| (c, row)))
            .map(|(c, row)| {
                let title = format!("Thing {row} for {}", c.name);
                format!("({}, {}, '19.90', '{INSIDE}')", quoted(&c.id), quoted(&title))
            })
            .collect();
        if !values.is_empty() {
            shop.execute(&format!("insert into digest_items values {}", values.join(", "))).await;
        }
    }
}
