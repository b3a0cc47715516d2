//! What only SQLite has: values with types of their own.

use super::*;

#[tokio::test]
async fn ids_of_another_type_are_faults() {
    let behaviour = Behaviour::sqlite();
    let insert = "insert into customers values (1, 'a', 'Ann', 1), (2, 'a', 'Ann', 1), ('x', 'a', 'Ann', 1), (2.5, 'a', 'Ann', 1), (x'00', 'a', 'Ann', 1), (null, 'a', 'Ann', 1)";
    for kind in ["integer", "", "numeric"] {
        let url = behaviour.database(&[&table(kind), insert]).await;
        let source = Source::connect(&url, queries(CUSTOMERS)).await;
        let paged = page_through(&source.unwrap(), 1).await;
        assert_eq!(paged.ids, ["1", "2"], "{kind}");
        assert_eq!(paged.faulty_rows(|r| matches!(r, FaultReason::Mistyped("integer"))), 3);
        assert_eq!(paged.faulty_rows(|reason| *reason == FaultReason::Missing), 1);
    }
    let url = behaviour
        .database(&[&table(""), "insert into customers values (2.5, 'a', 'Ann', 1)"])
        .await;
    let error = Source::connect(&url, queries(CUSTOMERS)).await.unwrap_err();
    assert!(matches!(error, SourceError::Unsuitable { query: Query::Customers, .. }), "{error}");
}

#[tokio::test]
async fn an_undeclared_id_is_known_once_there_is_a_row() {
    let behaviour = Behaviour::sqlite();
    let url = behaviour.database(&[&table("integer")]).await;
    let computed = "select coalesce(id, 0) as customer_id, email as address from customers";
    let source = Source::connect(&url, queries(computed)).await.unwrap();
    assert_eq!(source.check().await.unwrap().id_type, None);
    assert!(page_through(&source, 10).await.ids.is_empty());
    let error = source.still_wanted(&parameters(), &key("7")).await.unwrap_err();
    assert!(error.to_string().contains("no declared type"), "{error}");
    behaviour.execute(&url, "insert into customers values (7, 'a', 'Ann', 1)").await;
    assert_eq!(page_through(&source, 10).await.ids, ["7"]);
    assert_eq!(source.still_wanted(&parameters(), &key("7")).await, Ok(true));
}

#[tokio::test]
async fn declared_booleans_and_times_are_told_apart() {
    let behaviour = Behaviour::sqlite();
    let create = "create table customers (id integer, email text, wants boolean, at datetime, day date, price real, photo blob)";
    let insert =
        "insert into customers values (1, 'a', 0, '2026-10-12 09:00:00', '2026-10-12', 19.9, null)";
    let url = behaviour.database(&[create, insert]).await;
    let all = "select id as customer_id, email as address, wants, at, day, printf('%.2f', price) as price, photo from customers";
    let source = Source::connect(&url, queries(all)).await.unwrap();
    let expected = json!({"customer_id": 1, "address": "a", "wants": false, "at": "2026-10-12T09:00:00",
        "day": "2026-10-12", "price": "19.90", "photo": null});
    assert_eq!(Value::Object(page_through(&source, 10).await.data()[0].clone()), expected);
    behaviour.execute(&url, "update customers set photo = x'00ff'").await;
    let error = source.customers_page(&parameters(), None, 10).await.unwrap_err();
    assert!(matches!(error, SourceError::Value { .. }), "{error}");
    assert!(error.to_string().contains("\"photo\" holds a blob"), "{error}");
}

#[tokio::test]
async fn a_lock_held_by_another_writer_is_temporary() {
    let behaviour = Behaviour::sqlite();
    let items = "create table items (customer integer, period text)";
    let url = behaviour.database(&[&table("integer"), items]).await;
    let cleanup = "delete from items where customer = :customer_id and period = :period";
    let source = Source::connect(&url, with_cleanup(cleanup)).await.unwrap();
    let writer = behaviour.lock(&url).await;
    let error = source.cleanup(&parameters(), &key("1")).await.unwrap_err();
    assert!(matches!(error, SourceError::Interrupted { .. }), "{error}");
    assert!(error.is_temporary());
    drop(writer);
}
