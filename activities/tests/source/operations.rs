//! What is asked and done for one operation, and which queries are taken at all.

use super::*;

on_all! {
    consent_needs_a_row_that_says_yes,
    a_query_that_never_ends_is_ended,
    cleanup_touches_one_operation_up_to_its_limit,
    nothing_but_cleanup_can_write,
    queries_that_do_not_fit_are_refused_with_a_cure,
    a_check_describes_what_the_queries_give,
}

async fn consent_needs_a_row_that_says_yes(behaviour: Behaviour) {
    let insert = "insert into customers values (1, 'a', 'Ann', true), (2, 'b', null, false)";
    let url = behaviour.database(&[&table("integer"), insert]).await;
    let joined = behaviour.joined("'digest:2026-W42:'", "id");
    let by_key = format!("select wants from customers where {joined} = :operation_key;");
    let mut cases = vec![
        (STILL_WANTED, true, false),
        ("select wants from customers where id = :customer_id", true, false),
        (&by_key, true, false),
        ("select null from customers where id = :customer_id", false, false),
        ("select name from customers where id = :customer_id -- a null", true, false),
        (
            "select case when wants then 1 else 0 end from customers where id = :customer_id",
            true,
            false,
        ),
        (
            "select 1 from customers where id = :customer_id and :period = '2026-W42' and :campaign = 'other'",
            false,
            false,
        ),
    ];
    if behaviour.kind() != Kind::Mariadb {
        // MariaDB refuses the two names in the check.
        cases.push(("select name, name from customers where id = :customer_id", true, false));
    }
    for (sql, of_one, of_two) in cases {
        let asked = Queries { still_wanted: sql.to_owned(), ..queries(CUSTOMERS) };
        let source = Source::connect(&url, asked).await.unwrap();
        for (customer, wanted) in [("1", of_one), ("2", of_two), ("3", false)] {
            let answer = source.still_wanted(&parameters(), &key(customer)).await;
            assert_eq!(answer, Ok(wanted), "{customer}: {sql}");
        }
    }
}

async fn a_query_that_never_ends_is_ended(behaviour: Behaviour) {
    let url = behaviour.database(&[&table("integer")]).await;
    let endless = match behaviour.kind() {
        Kind::Sqlite => {
            "with recursive n (x) as (select 1 union all select x + 1 from n) \
             select x from n where x < 0 and :customer_id = 1"
        }
        Kind::Postgres => "select 1 from pg_sleep(600) where :customer_id = 1",
        Kind::Mariadb => "select sleep(600) where :customer_id = 1",
    };
    let asked = Queries { still_wanted: endless.to_owned(), ..queries(CUSTOMERS) };
    let source = Source::connect(&url, asked).await.unwrap();
    let error = source.still_wanted(&parameters(), &key("1")).await.unwrap_err();
    assert_eq!(error, SourceError::TimedOut { query: Query::StillWanted, seconds: 10 });
    assert!(error.is_temporary());
    // The connection is whole again.
    assert_eq!(source.count(&parameters()).await, Ok(0));
}

async fn cleanup_touches_one_operation_up_to_its_limit(behaviour: Behaviour) {
    let items =
        format!("create table items (customer integer, created_at {})", behaviour.instant());
    let insert = "insert into items values (1, '2026-10-05 07:00:00'), (1, '2026-10-11 07:00:00'), \
        (1, '2026-10-12 07:00:00'), (2, '2026-10-06 07:00:00')";
    let url = behaviour.database(&[&table("integer"), &items, insert]).await;
    let delete = "delete from items where customer = :customer_id \
        and created_at >= :period_start and created_at < :period_end";
    let limited = |max| Queries { cleanup_max_rows: max, ..with_cleanup(delete) };

    let source = Source::connect(&url, limited(1)).await.unwrap();
    assert!(source.cleans_up());
    let error = source.cleanup(&parameters(), &key("1")).await.unwrap_err();
    assert_eq!(error, SourceError::TooManyRows { touched: 2, max: 1 });
    assert!(!error.is_temporary());
    assert_eq!(behaviour.number(&url, "select count(*) from items").await, 4);

    let source = Source::connect(&url, limited(2)).await.unwrap();
    assert_eq!(source.cleanup(&parameters(), &key("1")).await, Ok(2));
    assert_eq!(source.cleanup(&parameters(), &key("1")).await, Ok(0));
    assert_eq!(behaviour.number(&url, "select count(*) from items where customer = 1").await, 1);
    assert_eq!(behaviour.number(&url, "select count(*) from items where customer = 2").await, 1);

    let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
    assert!(!source.cleans_up());
    assert_eq!(source.cleanup(&parameters(), &key("1")).await, Ok(0));
}

async fn nothing_but_cleanup_can_write(behaviour: Behaviour) {
    let url = behaviour.database(&[&table("integer"), &three_hundred(|n| n.to_string())]).await;
    let before = behaviour.number(&url, "select count(*) from customers").await;
    let delete = "delete from customers where id = :customer_id returning 1";
    let asked = Queries { still_wanted: delete.to_owned(), ..queries(CUSTOMERS) };
    // The statement is wrapped, so it is not even SQL; a writing function would be refused too.
    let error = Source::connect(&url, asked.clone()).await.unwrap_err();
    assert!(matches!(error, SourceError::Query { query: Query::StillWanted, .. }), "{error}");
    let source = Source::open(&url, asked).unwrap();
    source.still_wanted(&parameters(), &key("1")).await.unwrap_err();
    let writing = match behaviour.kind() {
        Kind::Sqlite => None,
        Kind::Postgres => Some((
            "create function swallow() returns setof customers language sql as 'delete from customers returning *'",
            "select id as customer_id, email as address from swallow()",
        )),
        Kind::Mariadb => Some((
            "create function swallow() returns integer begin delete from customers; return 1; end",
            "select id as customer_id, email as address, swallow() as n from customers",
        )),
    };
    if let Some((function, customers)) = writing {
        behaviour.execute(&url, function).await;
        let source = Source::open(&url, queries(customers)).unwrap();
        let error = source.customers_page(&parameters(), None, 10).await.unwrap_err();
        assert!(
            matches!(&error, SourceError::Query { reason, .. } if reason.to_lowercase().replace(' ', "-").contains("read-only")),
            "{error}"
        );
        assert!(!error.is_temporary());
    }
    assert_eq!(behaviour.number(&url, "select count(*) from customers").await, before);
}

async fn queries_that_do_not_fit_are_refused_with_a_cure(behaviour: Behaviour) {
    let items = "create table items (customer integer, period text)";
    let url = behaviour.database(&[&table("integer"), items]).await;
    let still_wanted = |sql: &str| Queries { still_wanted: sql.to_owned(), ..queries(CUSTOMERS) };
    let by_id = "select id as customer_id, email as address from customers where id = :customer_id";
    let cases = [
        (
            queries("select id, email as address from customers"),
            "no column customer_id; name one so with as (it has id, address",
        ),
        (queries("select id as customer_id, email from customers"), "no column address"),
        (
            queries("select id as customer_id, email as address, name, name from customers"),
            "two columns \"name\"",
        ),
        (queries(by_id), "names :customer_id, but it is asked for many customers"),
        (queries("select nothing as customer_id from customers"), "nothing"),
        (
            queries("select id as customer_id, email as address from customers where"),
            "[source] customers",
        ),
        (
            queries("delete from customers"),
            match behaviour.kind() {
                Kind::Sqlite | Kind::Postgres => "it returns no columns; write a select",
                Kind::Mariadb => "READ ONLY transaction",
            },
        ),
        (
            with_rows(CUSTOMERS, "select customer from items"),
            "[source] rows cannot be used: it has no column customer_id",
        ),
        (with_rows(CUSTOMERS, "select id as customer_id from nowhere"), "nowhere"),
        (
            still_wanted("select 1 from customers where id = customer_id"),
            "names neither :customer_id nor :operation_key",
        ),
        (still_wanted("select 1 from customers where no_such = :customer_id"), "no_such"),
        (with_cleanup("delete from items where customer = :customer_id"), "together with :period"),
        (with_cleanup("delete from items where period = :period"), "together with :period"),
        (with_cleanup("delete from items where key = :operation_key"), "key"),
        (
            with_cleanup("delete from items where customer = :customer_id and :selected_at > ''"),
            "together with :period",
        ),
        (
            with_cleanup("delete from items where customer = :custmer and period = :period"),
            "there is no parameter :custmer; did you mean :customer_id?",
        ),
    ];
    for (asked, expected) in cases {
        let shown = format!("{asked:?}");
        let error = Source::connect(&url, asked).await.expect_err(&shown);
        assert!(error.to_string().contains(expected), "{error}\nfor {shown}");
        assert!(!error.is_temporary(), "{error}");
    }
    let joined = behaviour.joined("customer", "period");
    for cleanup in [
        &format!("delete from items where {joined} = :operation_key"),
        "delete from items where customer = :customer_id and period = :period",
    ] {
        Source::connect(&url, with_cleanup(cleanup)).await.unwrap();
    }
}

async fn a_check_describes_what_the_queries_give(behaviour: Behaviour) {
    let url = behaviour.database(&[&table("integer")]).await;
    let rows = "select id as customer_id, name as title from customers";
    let source = Source::open(&url, with_rows(CUSTOMERS, rows)).unwrap();
    let found = source.check().await.unwrap();
    assert_eq!(found.id_type, Some(IdType::Integer));
    assert_eq!(found.customer_columns, ["customer_id", "address", "name"]);
    assert_eq!(found.row_columns, ["customer_id", "title"]);
}
