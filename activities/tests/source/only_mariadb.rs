//! What only MariaDB and MySQL have: loose collations, unsigned numbers, dates that are none, tables
//! that cannot roll back.

use super::*;
use digest_tests::mariadb::Mariadb;
use std::io::Write;
use std::time::{Duration, Instant};

const ANYBODY: &str = "select 1 where :operation_key <> ''";

async fn source(statements: &[&str], customers: &str) -> Option<(Behaviour, String, Source)> {
    let behaviour = Behaviour::mariadb("values of MariaDB's types").await?;
    let url = behaviour.database(statements).await;
    let asked = Queries { still_wanted: ANYBODY.to_owned(), ..queries(customers) };
    let source = Source::connect(&url, asked).await.unwrap();
    Some((behaviour, url, source))
}

#[tokio::test]
async fn values_keep_their_digits_and_instants() {
    let columns = [
        ("price", "decimal(10, 2)", "19.9", json!("19.90")),
        (
            "huge",
            "decimal(30, 9)",
            "12345678901234567890.123456789",
            json!("12345678901234567890.123456789"),
        ),
        ("single", "float", "0.1", json!(0.1)),
        ("many", "bigint unsigned", "18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("few", "tinyint unsigned", "255", json!(255)),
        ("less", "smallint", "-3", json!(-3)),
        ("medium", "mediumint", "-8388608", json!(-8_388_608)),
        ("larger", "int unsigned", "4294967295", json!(4_294_967_295_u32)),
        ("flag", "boolean", "false", json!(false)),
        ("bits", "bit(12)", "b'100000000001'", json!(2049)),
        ("at", "timestamp", "'2026-10-12 07:00:00'", json!("2026-10-12T07:00:00+00:00")),
        ("local", "datetime(3)", "'2026-10-12 09:00:00.5'", json!("2026-10-12T09:00:00.5")),
        ("midnight", "datetime", "'2026-10-12'", json!("2026-10-12T00:00:00")),
        ("day", "date", "'2026-10-12'", json!("2026-10-12")),
        ("long", "time(2)", "'-100:00:07.25'", json!("-100:00:07.25")),
        ("short", "time", "'00:00:00'", json!("00:00:00")),
        ("made", "year", "1999", json!(1999)),
        ("nobody", "varchar(9)", "null", json!(null)),
        ("nothing", "date", "'0000-00-00'", json!(null)),
        ("never", "datetime", "'0000-00-00 00:00:00'", json!(null)),
        ("half", "date", "'2026-00-00'", json!(null)),
        ("object", "json", "'{\"a\": 1}'", json!("{\"a\": 1}")),
        ("mood", "enum('sad', 'glad')", "'glad'", json!("glad")),
        ("tags", "set('a', 'b')", "'a,b'", json!("a,b")),
        (
            "which",
            "uuid",
            "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("net", "inet6", "'2001:db8::1'", json!("2001:db8::1")),
        ("padded", "char(5)", "'ab'", json!("ab")),
        ("exact", "varchar(9) collate utf8mb4_bin", "'Ü😀'", json!("Ü😀")),
        ("west", "varchar(9) character set latin1", "'Ü'", json!("Ü")),
    ];
    let (mut kinds, mut values, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (name, kind, value, _) in &columns {
        kinds.push(format!("`{name}` {kind}"));
        values.push(*value);
        names.push(format!("`{name}`"));
    }
    let create = format!("create table shop (id integer, {})", kinds.join(", "));
    // As old shops are set.
    let insert = format!("set sql_mode = ''; insert into shop values (1, {})", values.join(", "));
    let customers = format!(
        "select id as customer_id, 'a@shop.example' as address, {} from shop",
        names.join(", ")
    );
    let Some((_, _, source)) = source(&[&create, &insert], &customers).await else { return };
    let paged = page_through(&source, 10).await;
    for (name, kind, _, expected) in columns {
        assert_eq!(paged.data()[0][name], expected, "{name} {kind}");
    }
}

#[tokio::test]
async fn types_that_templates_or_ids_cannot_be_are_refused_by_name() {
    let Some(behaviour) = Behaviour::mariadb("refused types").await else { return };
    let url = behaviour.database(&[&table("integer")]).await;
    for (sql, advice) in [
        ("cast('x' as binary) as photo", "to_base64(photo)"),
        ("point(1, 2) as photo", "select its parts"),
    ] {
        let customers = format!("select id as customer_id, email as address, {sql} from customers");
        let error = Source::connect(&url, queries(&customers)).await.unwrap_err().to_string();
        assert!(error.contains("\"photo\"") && error.contains(advice), "{error}");
    }
    for kind in ["decimal(9, 0)", "double", "binary(16)", "enum('a')", "datetime", "year"] {
        let url = behaviour.database(&[&table(kind)]).await;
        let error = Source::connect(&url, queries(CUSTOMERS)).await.unwrap_err().to_string();
        assert!(error.contains("lower(hex(id)) as customer_id"), "{kind}: {error}");
    }
    let items = "create table items (customer varchar(40))";
    let url = behaviour.database(&[&table("integer"), items]).await;
    let rows = with_rows(CUSTOMERS, "select customer as customer_id from items");
    let error = Source::connect(&url, rows).await.unwrap_err().to_string();
    assert!(error.contains("not an integer") && error.contains("as char)"), "{error}");
}

#[tokio::test]
async fn unsigned_ids_go_beyond_a_bigint() {
    let items = "create table items (customer int, title text)";
    let insert = "insert into customers values (0, 'a', 'Ann', true), (7, 'a', 'Ann', true), \
        (9223372036854775807, 'a', 'Ann', true), (9223372036854775808, 'a', 'Ann', true), \
        (18446744073709551615, 'a', 'Ann', true)";
    let Some(behaviour) = Behaviour::mariadb("unsigned ids").await else { return };
    let url = behaviour
        .database(&[
            &table("bigint unsigned primary key"),
            items,
            insert,
            "insert into items values (7, 'signed')",
        ])
        .await;
    let asked = with_rows(CUSTOMERS, "select customer as customer_id, title from items");
    let source = Source::connect(&url, asked).await.unwrap();
    assert_eq!(source.check().await.unwrap().id_type, Some(IdType::Unsigned));
    for limit in [1, 2, 10] {
        let ids = page_through(&source, limit).await.ids;
        assert_eq!(
            ids,
            ["0", "7", "9223372036854775807", "9223372036854775808", "18446744073709551615"]
        );
    }
    let id = CustomerId::Unsigned(7);
    let rows = source.rows_page(&parameters(), std::slice::from_ref(&id)).await.unwrap();
    assert_eq!(rows[&id].as_ref().unwrap()[0]["title"], json!("signed"));
    let last = key("18446744073709551615");
    assert_eq!(source.still_wanted(&parameters(), &last).await, Ok(true));
    let error = source.customer_id(&parameters(), "-1").await.unwrap_err();
    assert_eq!(error, SourceError::CustomerId { expected: "an unsigned integer" });
}

/// Ids of which many are equal in the column's collation, with several rows each, and pages of every
/// size: each is selected once, whatever order the database gives to equal ones.
#[tokio::test]
async fn no_page_splits_ids_that_the_collation_calls_equal() {
    let Some(behaviour) = Behaviour::mariadb("loose collations").await else { return };
    let variants = ["ab", "AB", "Ab", "aB", "áb", "ab ", "ÁB  "];
    for collation in ["utf8mb4_general_ci", "utf8mb4_unicode_nopad_ci", "utf8mb4_bin"] {
        for key in ["", ", key (id)"] {
            let mut rows = Vec::new();
            for round in 0..3 {
                for number in 0..5 {
                    for variant in variants {
                        // Equal ids differ in their rows only for one number.
                        let name = if number == 3 { round } else { 0 };
                        rows.push(format!(
                            "('{variant}{number}{}', 'a', '{name}', true)",
                            &variant[2..]
                        ));
                    }
                }
            }
            let insert = format!("insert into customers values {}", rows.join(", "));
            let kind = format!("varchar(40) collate {collation}{key}");
            let url = behaviour.database(&[&table(&kind), &insert]).await;
            let source = Source::connect(&url, queries(CUSTOMERS)).await.unwrap();
            let mut expected: Option<BTreeSet<String>> = None;
            for limit in [1, 2, 3, 4, 7, 20, 21, 22, 50, 104, 105, 500] {
                let paged = page_through(&source, limit).await;
                assert_eq!(paged.ids.len(), 4 * variants.len(), "{collation}{key} {limit}");
                let differing = paged.faulty_rows(|reason| *reason == FaultReason::Differing);
                assert_eq!(differing, 3 * variants.len() as u64, "{collation}{key} {limit}");
                let ids: BTreeSet<String> = paged.ids.into_iter().collect();
                assert_eq!(expected.get_or_insert_with(|| ids.clone()), &ids);
            }
        }
    }
}

#[tokio::test]
async fn uuids_and_padded_texts_are_ids() {
    let Some(behaviour) = Behaviour::mariadb("uuid ids").await else { return };
    for kind in ["uuid primary key", "char(40)", "varchar(36) character set ascii primary key"] {
        let insert =
            "insert into customers select uuid(), 'a@shop.example', 'Ann', true from seq_1_to_300";
        let url = behaviour.database(&[&table(kind), insert]).await;
        let asked = with_rows(CUSTOMERS, "select id as customer_id, name from customers");
        let source = Source::connect(&url, asked).await.unwrap();
        let paged = page_through(&source, 70).await;
        assert_eq!(paged.ids.len(), 300, "{kind}");
        let ids: Vec<CustomerId> =
            paged.pages[0].customers.iter().map(|customer| customer.id.clone()).collect();
        assert_eq!(source.rows_page(&parameters(), &ids).await.unwrap().len(), ids.len());
        assert_eq!(source.still_wanted(&parameters(), &key(&paged.ids[0])).await, Ok(true));
    }
}

#[tokio::test]
async fn the_primary_key_serves_the_paging() {
    let Some(behaviour) = Behaviour::mariadb("index use").await else { return };
    behaviour.execute(&behaviour.database(&[]).await, "set global userstat = on").await;
    for kind in
        ["bigint", "bigint unsigned", "varchar(40)", "varchar(40) character set latin1", "uuid"]
    {
        let id = if kind == "uuid" { "uuid()" } else { "seq" };
        let fill = format!(
            "insert into customers select {id}, 'a@shop.example', 'Ann', true from seq_1_to_20000"
        );
        let primary = format!("{kind} primary key");
        let url = behaviour.database(&[&table(&primary), &fill, "analyze table customers"]).await;
        let asked =
            with_rows(CUSTOMERS, "select id as customer_id, name from customers order by name");
        let source = Source::connect(&url, asked).await.unwrap();
        behaviour.execute(&url, "flush table_statistics").await;
        let paged = page_through(&source, 1000).await;
        let ids: Vec<CustomerId> =
            paged.pages[9].customers.iter().take(100).map(|customer| customer.id.clone()).collect();
        assert_eq!(source.rows_page(&parameters(), &ids).await.unwrap().len(), 100);
        // The statistics of a session are complete once it has ended.
        drop(source);
        let read = "select cast(coalesce(sum(rows_read), 0) as integer) from information_schema.table_statistics where table_schema = database()";
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut rows = behaviour.number(&url, read).await;
        while rows < 20_000 {
            assert!(Instant::now() < deadline, "{kind}: {rows} rows counted");
            tokio::time::sleep(Duration::from_millis(50)).await;
            rows = behaviour.number(&url, read).await;
        }
        // Once by the pages, and once by each of three counts; scans would read 200,000.
        assert!(rows <= 100_000, "{kind}: {rows} rows read");
    }
    behaviour.execute(&behaviour.database(&[]).await, "set global userstat = off").await;
}

#[tokio::test]
async fn instants_compare_in_utc_whatever_the_column() {
    let Some(behaviour) = Behaviour::mariadb("instants").await else { return };
    for kind in ["timestamp null", "datetime", "datetime(6)", "varchar(30)"] {
        let items = format!("create table items (customer integer, title text, at {kind})");
        let insert = "insert into items values (1, 'before', '2026-10-05 06:59:59'), (1, 'first', '2026-10-05 07:00:00'), (1, 'after', '2026-10-12 07:00:00')";
        let url = behaviour.database(&[&table("integer"), &items, insert]).await;
        let rows = "select customer as customer_id, title from items where at >= :period_start and at < :period_end - interval 1 second";
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
async fn a_zero_of_any_type_is_no_consent() {
    let create = "create table customers (id integer, email text, wants bit(1), many decimal(9, 2), some double)";
    let insert = "insert into customers values (1, 'a', b'0', 0, 0), (2, 'a', b'1', 0.01, 0.5)";
    let Some(behaviour) = Behaviour::mariadb("flags").await else { return };
    let url = behaviour.database(&[create, insert]).await;
    for column in ["wants", "many", "some", "id = 2", "email is not null and id = 2"] {
        let still_wanted = format!("select {column} from customers where id = :customer_id");
        let customers = "select id as customer_id, email as address from customers";
        let source =
            Source::connect(&url, Queries { still_wanted, ..queries(customers) }).await.unwrap();
        assert_eq!(source.still_wanted(&parameters(), &key("1")).await, Ok(false), "{column}");
        assert_eq!(source.still_wanted(&parameters(), &key("2")).await, Ok(true), "{column}");
    }
}

/// The two cures that the documentation names.
#[tokio::test]
async fn consent_can_tell_equal_ids_apart_and_binary_ids_can_be_texts() {
    let Some(behaviour) = Behaviour::mariadb("cures").await else { return };
    let insert = "insert into customers values ('a', 'a', 'Ann', true), ('A', 'a', 'Ann', false)";
    let url = behaviour.database(&[&table("varchar(40), key (id)"), insert]).await;
    let still_wanted = format!("{STILL_WANTED} and binary id = :customer_id");
    let asked = Queries { still_wanted, ..queries(CUSTOMERS) };
    let source = Source::connect(&url, asked).await.unwrap();
    assert_eq!(source.still_wanted(&parameters(), &key("a")).await, Ok(true));
    assert_eq!(source.still_wanted(&parameters(), &key("A")).await, Ok(false));

    let id = "00ff5c27000000000000000000000001";
    let insert = format!("insert into customers values (x'{id}', 'a', 'Ann', true)");
    let url = behaviour.database(&[&table("binary(16) primary key"), &insert]).await;
    let customers = "select lower(hex(id)) as customer_id, email as address from customers";
    let still_wanted = "select 1 from customers where id = unhex(:customer_id) and wants";
    let asked = Queries { still_wanted: still_wanted.to_owned(), ..queries(customers) };
    let source = Source::connect(&url, asked).await.unwrap();
    assert_eq!(page_through(&source, 10).await.ids, [id]);
    assert_eq!(source.still_wanted(&parameters(), &key(id)).await, Ok(true));
}

#[tokio::test]
async fn a_missing_grant_and_a_wrong_password_show_in_the_check() {
    let Some(behaviour) = Behaviour::mariadb("grants").await else { return };
    let items = "create table items (customer integer, period text)";
    let url = behaviour.database(&[&table("integer"), items]).await;
    let role = format!("reader_{}", std::process::id());
    let cleanup = "delete from items where customer = :customer_id and period = :period";
    behaviour
        .execute(&url, &format!("create or replace user {role}@'127.0.0.1' identified by 'geheim'; grant select on customers to {role}@'127.0.0.1'; grant select on items to {role}@'127.0.0.1'"))
        .await;
    let as_role = url.replacen("//tester@", &format!("//{role}:geheim@"), 1);
    Source::connect(&as_role, queries(CUSTOMERS)).await.unwrap();
    let error = Source::connect(&as_role, with_cleanup(cleanup)).await.unwrap_err();
    assert!(matches!(error, SourceError::Query { query: Query::Cleanup, .. }), "{error}");
    assert!(error.to_string().contains("DELETE command denied"), "{error}");
    let wrong = as_role.replacen("geheim", "falsch", 1);
    let error = Source::connect(&wrong, queries(CUSTOMERS)).await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { .. }) && !error.is_temporary(), "{error}");
    assert!(error.to_string().contains("Access denied"), "{error}");
    assert!(!format!("{error} {error:?}").contains("falsch"), "{error}");
    behaviour.execute(&url, &format!("drop user {role}@'127.0.0.1'")).await;
}

#[tokio::test]
async fn a_cleanup_that_cannot_be_rolled_back_is_refused() {
    let Some(behaviour) = Behaviour::mariadb("engines without transactions").await else { return };
    let items = |engine: &str| {
        format!("create table items (customer integer, period text) engine = {engine}")
    };
    let cleanup = "delete from `items` where customer = :customer_id and period = :period";
    for engine in ["MyISAM", "Aria", "MEMORY"] {
        let kind = items(engine).replace("period text", "period varchar(9)");
        let url = behaviour.database(&[&table("integer"), &kind]).await;
        let error = Source::connect(&url, with_cleanup(cleanup)).await.unwrap_err().to_string();
        assert!(error.contains(&format!("items has the engine {engine}")), "{error}");
    }
    let other = "create table wide (customer integer) engine = MyISAM";
    let url = behaviour.database(&[&table("integer"), &items("InnoDB"), other]).await;
    let reading = format!("{cleanup} and customer not in (select customer from wide)");
    Source::connect(&url, with_cleanup(&reading)).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_another_holds_is_temporary() {
    let items = "create table items (customer integer, period text)";
    let Some(behaviour) = Behaviour::mariadb("locks").await else { return };
    let insert = "insert into items values (1, '2026-W42')";
    let url = behaviour.database(&[&table("integer"), items, insert]).await;
    let cleanup = "delete from items where customer = :customer_id and period = :period";
    // A server that waits for a lock as long as a cleanup may take would be ended by either.
    let source = Source::connect(&url, with_cleanup(cleanup)).await.unwrap();
    let mut other = behaviour.locking(&url, "select * from items for update").await;
    behaviour.execute(&url, "set global innodb_lock_wait_timeout = 1").await;
    let fresh = Source::connect(&url, with_cleanup(cleanup)).await.unwrap();
    let error = fresh.cleanup(&parameters(), &key("1")).await.unwrap_err();
    behaviour.execute(&url, "set global innodb_lock_wait_timeout = default").await;
    assert!(matches!(error, SourceError::Interrupted { .. }), "{error}");
    assert!(error.is_temporary());
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(source.cleanup(&parameters(), &key("1")).await, Ok(1));
}

#[tokio::test]
async fn a_value_in_an_error_of_the_database_is_not_repeated() {
    let items =
        "create table items (customer integer, period varchar(40) unique, twin varchar(40))";
    let insert =
        "insert into items values (1, 'ann@shop.example', 'x'), (2, 'b', 'ann@shop.example')";
    let Some(behaviour) = Behaviour::mariadb("words of errors").await else { return };
    let url = behaviour.database(&[&table("integer"), items, insert]).await;
    let cleanup =
        "update items set period = twin where customer = 1 + :customer_id and :period <> ''";
    let source = Source::connect(&url, with_cleanup(cleanup)).await.unwrap();
    let error = source.cleanup(&parameters(), &key("1")).await.unwrap_err();
    assert!(matches!(error, SourceError::Query { query: Query::Cleanup, .. }), "{error}");
    assert!(error.to_string().contains("1062"), "{error}");
    assert!(!format!("{error} {error:?}").contains("ann@"), "{error}");
}

#[tokio::test]
async fn statements_mean_what_they_mean_in_the_servers_own_mode() {
    let Some(behaviour) = Behaviour::mariadb("SQL modes").await else { return };
    let insert = "insert into customers values (1, 'a', 'c-1', true), (2, 'a', 'Ann', false)";
    let url = behaviour.database(&[&table("integer"), insert]).await;
    // `||` is an or here, unless the server says otherwise.
    let either = "select id as customer_id, email as address from customers where wants || id = 2";
    let source = Source::connect(&url, queries(either)).await.unwrap();
    assert_eq!(page_through(&source, 10).await.ids, ["1", "2"]);
}

#[tokio::test]
async fn the_servers_certificate_is_verified_where_the_url_asks_for_it() {
    let Some(server) = Mariadb::shared("TLS").await.unwrap() else { return };
    if server.authority().is_empty() {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(server.authority().as_bytes()).unwrap();
    let behaviour = Behaviour::Mariadb(server);
    let url = behaviour.database(&[&table("integer")]).await;
    let verified = format!("{url}?ssl-mode=verify_identity&ssl-ca={}", file.path().display());
    let by_name = verified.replacen("127.0.0.1", "localhost", 1);
    let role = format!("secret_{}", std::process::id());
    behaviour
        .execute(&url, &format!("create or replace user {role}@'127.0.0.1' require ssl; grant select on customers to {role}@'127.0.0.1'"))
        .await;
    let named = by_name.replacen("//tester@", &format!("//{role}@"), 1);
    Source::connect(&named, queries(CUSTOMERS)).await.unwrap();
    // The certificate is not for the address, and nobody else vouches for it.
    let unknown = format!("{url}?ssl-mode=verify_identity").replacen("127.0.0.1", "localhost", 1);
    for other in [verified, unknown] {
        let error = Source::connect(&other, queries(CUSTOMERS)).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let plain = url.replacen("//tester@", &format!("//{role}@"), 1) + "?ssl-mode=disabled";
    let error = Source::connect(&plain, queries(CUSTOMERS)).await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { .. }), "{error}");
    behaviour.execute(&url, &format!("drop user {role}@'127.0.0.1'")).await;
}
