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
    let page = page_through(&source, 10).await;
    assert!(page.ids.is_empty());
    let reason = page.pages[0].faults[0].reason.to_string();
    assert!(reason.contains("\"photo\" holds a blob"), "{reason}");
}

#[tokio::test]
async fn a_value_that_cannot_be_carried_is_the_fault_of_its_customer_alone() {
    let behaviour = Behaviour::sqlite();
    let customers = "insert into customers values ('a', 'a', 'Ann', 1), \
        ('b', 'b', cast(x'ff' as text), 1), (cast(x'62ff' as text), 'b', 'Bo', 1), \
        ('c', 'c', 'Cy', 1), ('d', 'd', x'00', 1), ('e', 'e', 'Ed', 1), \
        (cast(x'ff' as text), 'f', 'Flo', 1), (cast(x'ffff' as text), 'f', 'Flo', 1)";
    let items = "create table items (customer text, title text)";
    let titles =
        "insert into items values ('a', 'x'), ('c', 'x'), ('c', cast(x'fe' as text)), ('c', 'x')";
    let url = behaviour.database(&[&table("text"), customers, items, titles]).await;
    let rows = "select customer as customer_id, title from items";
    let source = Source::connect(&url, with_rows(CUSTOMERS, rows)).await.unwrap();
    // Whatever the pages' size: nobody twice, nobody left out, each fault counted once.
    for limit in 2..=9 {
        let paged = page_through(&source, limit).await;
        assert_eq!(paged.ids, ["a", "c", "e"], "pages of {limit}");
        let unreadable = |reason: &FaultReason| matches!(reason, FaultReason::Unreadable { .. });
        assert_eq!(paged.faulty_rows(unreadable), 5, "pages of {limit}");
    }
    let ids = ["a", "c", "e"].map(|id| CustomerId::Text(id.to_owned()));
    let rows = source.rows_page(&parameters(), &ids).await.unwrap();
    assert_eq!(rows[&ids[0]].as_ref().unwrap().len(), 1);
    let reason = rows[&ids[1]].as_ref().unwrap_err().to_string();
    assert!(reason.contains("rows, column \"title\" holds text that is not UTF-8"), "{reason}");
    assert!(!rows.contains_key(&ids[2]));
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
