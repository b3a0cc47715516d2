//! Reading customers and their rows, page by page.

use super::*;

on_all! {
    every_usable_id_is_selected_once,
    computed_ids_are_paged,
    a_group_larger_than_a_page_is_read_to_its_end,
    pages_of_nothing_usable_are_no_end,
    no_customers_are_one_empty_page,
    ids_differ_by_their_bytes,
    rows_come_for_the_whole_page_in_their_own_order,
    a_query_without_rows_has_none,
    one_customer_is_found_by_id,
    columns_added_later_are_selected,
    plain_values_arrive_as_json,
}

/// The SQL text of the nth id.
type Id = fn(u32) -> String;

async fn every_usable_id_is_selected_once(behaviour: Behaviour) {
    let ids: [(&str, Id); 3] = [
        ("bigint", |n| (u64::from(n) * 7_000_000_000).to_string()),
        ("integer", |n| n.to_string()),
        ("varchar(40)", |n| format!("'Customer {n}'")),
    ];
    for (kind, id) in ids {
        let url = behaviour.database(&[&table(kind), &three_hundred(id)]).await;
        let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
        assert_eq!(source.count(&parameters()).await.unwrap(), 308);
        for limit in [1, 2, 3, 7, 100, 101, 102, 307, 308, 1000] {
            let paged = page_through(&source, limit).await;
            let expected: BTreeSet<String> =
                (1..=300).filter(|n| *n != 199).map(|n| id(n).replace('\'', "")).collect();
            assert_eq!(paged.ids.into_iter().collect::<BTreeSet<_>>(), expected, "{kind} {limit}");
        }
        let paged = page_through(&source, 100).await;
        assert_eq!(paged.faulty_rows(|reason| *reason == FaultReason::Missing), 5);
        assert_eq!(paged.faulty_rows(|reason| *reason == FaultReason::Differing), 2);
        assert_eq!(paged.faulty_rows(|_| true), 7);
        assert!(paged.pages.len() <= 5, "{} pages", paged.pages.len());
    }
}

async fn computed_ids_are_paged(behaviour: Behaviour) {
    let url = behaviour.database(&[&table("integer"), &three_hundred(|n| n.to_string())]).await;
    let text = behaviour.joined("'c-'", "id");
    let computed: [(&str, IdType); 3] =
        [("coalesce(id, 0)", IdType::Integer), ("id + 0", IdType::Integer), (&text, IdType::Text)];
    for (id, kind) in computed {
        let customers = format!("select {id} as customer_id, email as address from customers");
        let mut asked = queries(&customers);
        asked.still_wanted =
            format!("select 1 from customers where {id} = :customer_id and wants and id < 200");
        let source = Source::connect(&url, asked).await.unwrap();
        assert_eq!(source.check().await.unwrap().id_type, Some(kind));
        let paged = page_through(&source, 100).await;
        // Rows of one id are identical here: the name is not selected.
        let expected = if id.starts_with("coalesce") { 301 } else { 300 };
        assert_eq!(paged.ids.len(), expected, "{id}");
        // A text bound against a computed number would find nothing.
        let prefix = if kind == IdType::Text { "c-" } else { "" };
        for (customer, wanted) in [("7", true), ("207", false)] {
            let key = key(&format!("{prefix}{customer}"));
            assert_eq!(source.still_wanted(&parameters(), &key).await, Ok(wanted), "{id}");
        }
    }
}

async fn a_group_larger_than_a_page_is_read_to_its_end(behaviour: Behaviour) {
    let same = "insert into customers select 5, 'a@shop.example', 'Ann', true from customers";
    let mut statements = vec![
        table("integer"),
        "insert into customers values (4, 'a@shop.example', 'Ann', true)".to_owned(),
        "insert into customers values (5, 'a@shop.example', 'Ann', true)".to_owned(),
        "insert into customers values (6, 'a@shop.example', 'Ann', true)".to_owned(),
    ];
    statements.extend(std::iter::repeat_n(same.to_owned(), 6));
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let url = behaviour.database(&statements).await;
    let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
    assert!(source.count(&parameters()).await.unwrap() > 100);
    for limit in [1, 2, 3, 50, 1000] {
        assert_eq!(page_through(&source, limit).await.ids, ["4", "5", "6"]);
    }
    behaviour
        .execute(&url, "insert into customers values (5, 'b@shop.example', 'Ann', true)")
        .await;
    for limit in [1, 50, 1000] {
        let paged = page_through(&source, limit).await;
        assert_eq!(paged.ids, ["4", "6"]);
        assert!(paged.faulty_rows(|reason| *reason == FaultReason::Differing) > 100);
    }
}

async fn pages_of_nothing_usable_are_no_end(behaviour: Behaviour) {
    // 500 ids that make no key come before the ten that do.
    let mut rows: Vec<String> =
        (100..600).map(|n| format!("('a{n}@shop.example', 'x', 'Ann', true)")).collect();
    rows.extend((0..10).map(|n| format!("('b{n}', 'x', 'Ann', true)")));
    rows.extend((0..200).map(|_| "('', 'x', 'Ann', true)".to_owned()));
    let insert = format!("insert into customers values {}", rows.join(", "));
    let url = behaviour.database(&[&table("text"), &insert]).await;
    let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
    let paged = page_through(&source, 100).await;
    assert_eq!(paged.ids.len(), 10);
    assert!(paged.pages.iter().filter(|page| page.customers.is_empty()).count() >= 4);
    assert_eq!(paged.faulty_rows(|reason| *reason == FaultReason::Missing), 200);
    let address = FaultReason::NoKey(KeyError::AddressAsId);
    assert_eq!(paged.faulty_rows(|reason| *reason == address), 500);
    let shown = format!("{:?}", paged.pages);
    assert!(!shown.contains('@'), "an address shows: {shown}");
}

async fn no_customers_are_one_empty_page(behaviour: Behaviour) {
    for kind in ["bigint", "text"] {
        let url = behaviour.database(&[&table(kind)]).await;
        let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
        assert_eq!(page_through(&source, 100).await.pages, [Page::default()]);
    }
}

async fn ids_differ_by_their_bytes(behaviour: Behaviour) {
    let ids = ["a", "A", "á", "a ", "B", "b", "_", "~", "Z z", "10", "9", "a\"b", "c\\d", "é:%"];
    let rows: Vec<String> =
        ids.iter().map(|id| format!("('{id}', 'x@shop.example', 'Ann', true)")).collect();
    let mut insert = format!("insert into customers values {}", rows.join(", "));
    if behaviour.kind() == Kind::Mariadb {
        insert = insert.replace('\\', "\\\\");
    }
    let collations: &[&str] = match behaviour.kind() {
        Kind::Sqlite => &["text", "text collate nocase", "text collate rtrim"],
        Kind::Postgres => {
            &["text", "text collate \"C\"", "text collate \"en-x-icu\"", "text collate loose"]
        }
        Kind::Mariadb => &[
            "text",
            "varchar(40), key (id)",
            "varchar(40) collate utf8mb4_unicode_ci, key (id)",
            "varchar(40) collate utf8mb4_bin, key (id)",
            "varchar(40) collate utf8mb4_nopad_bin, key (id)",
            "varchar(40) character set latin1, key (id)",
        ],
    };
    for collation in collations {
        let mut statements = vec![table(collation), insert.clone()];
        if behaviour.kind() == Kind::Postgres {
            let loose = "create collation loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)";
            statements.insert(0, loose.to_owned());
        }
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        let url = behaviour.database(&statements).await;
        let rows = "select id as customer_id, name from customers";
        let source = Source::connect(&url, with_rows(CUSTOMERS, rows)).await.unwrap();
        for limit in [1, 2, 3, 5, 100] {
            let paged = page_through(&source, limit).await;
            let found: BTreeSet<&str> = paged.ids.iter().map(String::as_str).collect();
            assert_eq!(found, ids.into_iter().collect(), "{collation} {limit}");
        }
        for id in ids {
            let id = CustomerId::Text(id.to_owned());
            let rows = source.rows_page(&parameters(), std::slice::from_ref(&id)).await.unwrap();
            assert_eq!(rows.len(), 1, "{collation} {id}");
            assert_eq!(rows[&id].as_ref().unwrap().len(), 1, "{collation} {id}");
        }
    }
}

async fn rows_come_for_the_whole_page_in_their_own_order(behaviour: Behaviour) {
    let instant = behaviour.instant();
    let items = format!(
        "create table items (customer integer, title text, price numeric(10, 2), created_at {instant})"
    );
    let insert = "insert into items values \
        (1, 'before', 1, '2026-10-05 06:59:59'), (1, 'first', 2, '2026-10-05 07:00:00'), \
        (1, 'last', 3, '2026-10-12 06:59:59.5'), (1, 'after', 4, '2026-10-12 07:00:00'), \
        (2, 'dear', 90, '2026-10-07 12:00:00'), (2, 'cheap', 5, '2026-10-08 12:00:00'), \
        (3, 'late', 5, '2026-11-08 12:00:00'), (9, 'other', 5, '2026-10-08 12:00:00'), \
        (2, 'middle', 50, '2026-10-06 12:00:00')";
    let url = behaviour.database(&[&table("integer"), &items, insert]).await;
    let rows = "select customer as customer_id, title from items \
        where created_at >= :period_start and created_at < :period_end order by price desc -- dear first";
    let source = Source::connect(&url, with_rows(CUSTOMERS, rows)).await.unwrap();
    let ids = [1, 2, 3].map(CustomerId::Integer);
    let rows = source.rows_page(&parameters(), &ids).await.unwrap();
    let titles = |id: i64| -> Vec<&str> {
        let rows = rows.get(&CustomerId::Integer(id)).map(|rows| rows.as_ref().unwrap());
        let rows = rows.into_iter().flatten();
        rows.map(|row| row["title"].as_str().unwrap()).collect()
    };
    assert_eq!(titles(1), ["last", "first"]);
    assert_eq!(titles(2), ["dear", "middle", "cheap"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(source.rows_page(&parameters(), &[]).await.unwrap().is_empty());
}

async fn a_query_without_rows_has_none(behaviour: Behaviour) {
    let url = behaviour.database(&[&table("integer")]).await;
    let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
    let rows = source.rows_page(&parameters(), &[CustomerId::Integer(1)]).await.unwrap();
    assert!(rows.is_empty());
}

async fn one_customer_is_found_by_id(behaviour: Behaviour) {
    let url = behaviour.database(&[&table("integer"), &three_hundred(|n| n.to_string())]).await;
    let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
    let find = async |text: &str| {
        let id = source.customer_id(&parameters(), text).await.unwrap();
        source.customer(&parameters(), &id).await.unwrap()
    };
    let page = find("100").await;
    assert_eq!((page.customers.len(), page.seen, page.faults.len()), (1, 3, 0));
    let expected = json!({"customer_id": 100, "address": "a@shop.example", "name": "Ann"});
    assert_eq!(Value::Object(page.customers[0].data.reveal().clone()), expected);
    assert_eq!(find("199").await.faults[0].reason, FaultReason::Differing);
    assert_eq!(find("301").await, Page::default());
    for text in ["abc", "007", "1.0", "", "99999999999999999999"] {
        let error = source.customer_id(&parameters(), text).await.unwrap_err();
        assert_eq!(error, SourceError::CustomerId { expected: "an integer" }, "{text}");
    }
}

async fn columns_added_later_are_selected(behaviour: Behaviour) {
    let insert = "insert into customers values (1, 'a@shop.example', 'Ann', true)";
    let url = behaviour.database(&[&table("integer"), insert]).await;
    let all = "select customers.*, id as customer_id, email as address from customers";
    let source = Source::connect(&url, queries(all)).await.unwrap();
    assert!(!page_through(&source, 10).await.data()[0].contains_key("city"));
    behaviour.execute(&url, "alter table customers add column city text default 'Kiel'").await;
    assert_eq!(page_through(&source, 10).await.data()[0]["city"], json!("Kiel"));
}

async fn plain_values_arrive_as_json(behaviour: Behaviour) {
    let quoted = |sql: &str| match behaviour.kind() {
        Kind::Sqlite | Kind::Postgres => sql.replace("«", "\"Odd \"\"name\""),
        Kind::Mariadb => sql.replace("«", "`Odd \"name`"),
    };
    let create = &quoted(
        "create table customers (id integer, email text, wants boolean, count bigint, ratio double precision, none text, « text)",
    );
    let insert = "insert into customers values (1, 'Ü@shop.example', true, 9007199254740993, 0.1, null, 'it''s')";
    let url = behaviour.database(&[create, insert]).await;
    let all = quoted(
        "select id as customer_id, email as address, wants, count, ratio, none, « from customers",
    );
    let source = Source::connect(&url, queries(&all)).await.unwrap();
    let paged = page_through(&source, 10).await;
    let data = paged.data()[0];
    let expected = json!({"customer_id": 1, "address": "Ü@shop.example", "wants": true, "count": 9_007_199_254_740_993_i64,
        "ratio": 0.1, "none": null, "Odd \"name": "it's"});
    assert_eq!(Value::Object(data.clone()), expected);
    let names: Vec<&String> = data.keys().collect();
    assert_eq!(names, ["customer_id", "address", "wants", "count", "ratio", "none", "Odd \"name"]);
}
