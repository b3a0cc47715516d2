//! What only PostgreSQL has: exact decimals, uuids, time zones, permissions.

use super::*;
use std::time::{Duration, Instant};

async fn source(statements: &[&str], customers: &str) -> Option<(Behaviour, String, Source)> {
    let behaviour = Behaviour::postgres("values of PostgreSQL's types").await?;
    let url = behaviour.database(statements).await;
    let still_wanted = "select 1 where :operation_key <> ''".to_owned();
    let asked = Queries { still_wanted, ..queries(customers) };
    let source = Source::connect(&url, asked).await.unwrap();
    Some((behaviour, url, source))
}

#[tokio::test]
async fn values_keep_their_digits_and_instants() {
    let columns = [
        ("price", "19.90::numeric(10, 2)", json!("19.90")),
        (
            "huge",
            "12345678901234567890.123456789::numeric",
            json!("12345678901234567890.123456789"),
        ),
        ("prices", "array[1.10, null, 2.00]::numeric[]", json!(["1.10", null, "2.00"])),
        ("no_number", "'NaN'::float8", json!("NaN")),
        ("at", "'2026-10-12 09:00:00+02'::timestamptz", json!("2026-10-12T07:00:00+00:00")),
        ("local", "'2026-10-12 09:00:00.5'::timestamp", json!("2026-10-12T09:00:00.5")),
        ("day", "'2026-10-12'::date", json!("2026-10-12")),
        (
            "times",
            "array['2026-10-12 09:00:00+02'::timestamptz]",
            json!(["2026-10-12T07:00:00+00:00"]),
        ),
        (
            "object",
            "'{\"b\": [1, {\"c\": null}], \"a\": \"x\"}'::json",
            json!({"b": [1, {"c": null}], "a": "x"}),
        ),
        ("objectb", "'{\"a\": true}'::jsonb", json!({"a": true})),
        ("tags", "array['a', 'b\"c']::text[]", json!(["a", "b\"c"])),
        ("padded", "'ab'::char(5)", json!("ab")),
        ("small", "3::smallint", json!(3)),
        (
            "id",
            "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid",
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("mood", "'glad'::mood", json!("glad")),
        ("amount", "7.50::amount", json!("7.50")),
        ("net", "'10.0.0.1'::inet", json!("10.0.0.1")),
    ];
    let list: Vec<String> =
        columns.iter().map(|(name, sql, _)| format!("{sql} as \"{name}\"")).collect();
    let customers =
        format!("select 1 as customer_id, 'a@shop.example' as address, {}", list.join(", "));
    let types =
        ["create type mood as enum ('sad', 'glad')", "create domain amount as numeric(10, 2)"];
    let Some((_, _, source)) = source(&types, &customers).await else { return };
    let paged = page_through(&source, 10).await;
    for (name, sql, expected) in columns {
        assert_eq!(paged.data()[0][name], expected, "{sql}");
    }
}

#[tokio::test]
async fn types_that_templates_cannot_use_are_refused_by_name() {
    let Some(behaviour) = Behaviour::postgres("refused types").await else { return };
    let url = behaviour.database(&[&table("integer"), "create type pair as (a int, b int)"]).await;
    for (sql, advice) in [
        ("'x'::bytea as photo", "encode(photo, 'base64')"),
        ("array['x'::bytea] as photo", "bytea"),
        ("row(1, 2)::pair as photo", "pair"),
        ("array[row(1, 2)::pair] as photo", "select its parts"),
    ] {
        let customers = format!("select id as customer_id, email as address, {sql} from customers");
        let error = Source::connect(&url, queries(&customers)).await.unwrap_err().to_string();
        assert!(error.contains("\"photo\"") && error.contains(advice), "{error}");
    }
    for id in ["1.5::numeric", "now()", "true", "array[1]"] {
        let customers = format!("select {id} as customer_id, 'x' as address");
        let error = Source::connect(&url, queries(&customers)).await.unwrap_err().to_string();
        assert!(error.contains("cast(id as text) as customer_id"), "{error}");
    }
    let rows = with_rows(CUSTOMERS, "select id::text as customer_id from customers");
    let error = Source::connect(&url, rows).await.unwrap_err().to_string();
    assert!(error.contains("[source] rows") && error.contains("not an integer"), "{error}");
}

#[tokio::test]
async fn uuids_and_padded_texts_are_ids() {
    let Some(behaviour) = Behaviour::postgres("uuid ids").await else { return };
    for kind in ["uuid", "char(40)"] {
        let insert = "insert into customers select gen_random_uuid(), 'a@shop.example', 'Ann', true from generate_series(1, 300)";
        let url = behaviour
            .database(&[
                &table(kind),
                &insert.replace(
                    "gen_random_uuid()",
                    if kind == "uuid" { "gen_random_uuid()" } else { "gen_random_uuid()::text" },
                ),
            ])
            .await;
        let asked = with_rows(CUSTOMERS, "select id as customer_id, name from customers");
        let source = Source::connect(&url, asked).await.unwrap();
        let paged = page_through(&source, 70).await;
        assert_eq!(paged.ids.len(), 300);
        let ids: Vec<CustomerId> =
            paged.pages[0].customers.iter().map(|customer| customer.id.clone()).collect();
        assert_eq!(source.rows_page(&parameters(), &ids).await.unwrap().len(), 70);
        assert_eq!(source.still_wanted(&parameters(), &key(&paged.ids[0])).await, Ok(true));
        if kind == "uuid" {
            let upper = paged.ids[0].to_uppercase();
            let error = source.customer_id(&parameters(), &upper).await.unwrap_err();
            assert_eq!(error, SourceError::CustomerId { expected: "a uuid" });
        }
    }
}

#[tokio::test]
async fn the_primary_key_serves_the_paging() {
    let Some(behaviour) = Behaviour::postgres("index use").await else { return };
    for kind in ["bigint", "text", "varchar(40)", "uuid"] {
        let id = if kind == "uuid" { "gen_random_uuid()" } else { "n" };
        let fill = format!(
            "insert into customers select {id}, 'a@shop.example', 'Ann', true from generate_series(1, 20000) as n"
        );
        let primary = format!("{kind} primary key");
        let url = behaviour.database(&[&table(&primary), &fill, "analyze customers"]).await;
        let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
        page_through(&source, 1000).await;
        // The statistics of a session are complete once it has ended.
        drop(source);
        let pages = "select coalesce(sum(idx_scan), 0)::bigint from pg_stat_user_tables";
        let deadline = Instant::now() + Duration::from_secs(20);
        while behaviour.number(&url, pages).await < 20 {
            assert!(Instant::now() < deadline, "{kind}: the pages did not use the index");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let scans = "select coalesce(sum(seq_tup_read), 0)::bigint from pg_stat_user_tables";
        let read = behaviour.number(&url, scans).await;
        assert!(read <= 100_000, "{kind}: {read} rows read by scans of the table");
    }
}

#[tokio::test]
async fn instants_compare_in_utc_whatever_the_column() {
    let Some(behaviour) = Behaviour::postgres("instants").await else { return };
    for kind in ["timestamp", "timestamptz"] {
        let zone = "alter database current set timezone to 'America/New_York'";
        let items = format!("create table items (customer integer, title text, at {kind})");
        let insert = "set time zone 'UTC'; insert into items values (1, 'before', '2026-10-05 06:59:59'), (1, 'first', '2026-10-05 07:00:00'), (1, 'after', '2026-10-12 07:00:00')";
        let url = behaviour.database(&[&table("integer"), &items, insert]).await;
        let name = url.rsplit('/').next().unwrap();
        behaviour.execute(&url, &zone.replace("current", &format!("\"{name}\""))).await;
        let rows = "select customer as customer_id, title from items where at >= :period_start and at < :period_end";
        let source = Source::connect(&url, with_rows(CUSTOMERS, rows)).await.unwrap();
        let rows = source.rows_page(&parameters(), &[CustomerId::Integer(1)]).await.unwrap();
        let titles: Vec<&Value> = rows[&CustomerId::Integer(1)]
            .as_ref()
            .unwrap()
            .iter()
            .map(|row| &row["title"])
            .collect();
        assert_eq!(titles, ["first"], "{kind}");
    }
}

#[tokio::test]
async fn a_missing_grant_shows_in_the_check() {
    let Some(behaviour) = Behaviour::postgres("grants").await else { return };
    let items = "create table items (customer integer, period text)";
    let url = behaviour.database(&[&table("integer"), items]).await;
    let role = format!("reader_{}", std::process::id());
    let cleanup = "delete from items where customer = :customer_id and period = :period";
    behaviour.execute(&url, &format!("drop role if exists {role}")).await;
    behaviour.execute(&url, &format!("create role {role} login password 'geheim'; grant select on customers, items to {role}")).await;
    let as_role = url.replacen("//postgres@", &format!("//{role}:geheim@"), 1);
    Source::connect(&as_role, queries(CUSTOMERS)).await.unwrap();
    let error = Source::connect(&as_role, with_cleanup(cleanup)).await.unwrap_err();
    assert!(matches!(error, SourceError::Query { query: Query::Cleanup, .. }), "{error}");
    assert!(error.to_string().contains("permission denied for table items"), "{error}");
    behaviour.execute(&url, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn a_value_in_an_error_of_the_database_is_not_repeated() {
    let customers = "select name::integer as customer_id, email as address from customers";
    let insert = "insert into customers values (1, 'a', 'ann@shop.example', true)";
    let Some((_, _, source)) = source(&[&table("integer"), insert], customers).await else {
        return;
    };
    let error = source.customers_page(&parameters(), None, 10).await.unwrap_err();
    assert!(matches!(error, SourceError::Value { query: Query::Customers, .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("ann@"), "{error}");
}
