//! Setting up, connecting, identity, versions and rights.

use super::bench::{Place, SCHEMA, message, on_both};
use digest_activities::ledger::{Ledger, LedgerError, LedgerRef, ddl, grants};
use digest_tests::proxy::{Fault, Proxy};
use std::time::{Duration, Instant};

/// The version that this program writes.
const NEWEST: i64 = 5;

on_both!(
    an_upgrade_keeps_what_is_there,
    a_fresh_database_is_refused_until_it_is_set_up,
    setting_up_again_changes_nothing,
    another_ledger_or_epoch_is_refused,
    a_newer_ledger_is_used_only_if_it_is_marked_compatible,
    an_older_ledger_is_refused,
    the_printed_ddl_is_a_whole_ledger,
    times_and_texts_come_back_as_they_were_stored,
);

async fn an_upgrade_keeps_what_is_there(place: Place) {
    let mut raw = place.raw_created().await;
    raw.migrate_to_version_1().await;
    raw.execute(
        "insert into @meta (name, value) values ('id', 'old'), ('epoch', '3'), ('version', '1'), \
         ('compatible_from', '1')",
    )
    .await;
    let refused = Ledger::connect(&place.url, SCHEMA).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Unmigrated { found: 1, needed: NEWEST }), "{refused:?}");
    let (ledger, setup) = Ledger::set_up(&place.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (1, NEWEST));
    assert_eq!(ledger.identity(), &LedgerRef { id: "old".to_owned(), epoch: 3 });
    super::transitions::every_kind_of_transition(&mut place.bench(4).await).await;
}

async fn a_fresh_database_is_refused_until_it_is_set_up(place: Place) {
    // On SQLite an empty file, so that there is a database to connect to.
    drop(place.raw_created().await);
    let refused = Ledger::connect(&place.url, SCHEMA).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Unmigrated { found: 0, needed: NEWEST }), "{refused:?}");
    assert!(refused.to_string().contains("digestd setup"));
    let (_, setup) = Ledger::set_up(&place.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (0, NEWEST));
    place.connect().await;
}

async fn setting_up_again_changes_nothing(place: Place) {
    let bench = place.bench(2).await;
    let (again, setup) = Ledger::set_up(&place.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (NEWEST, NEWEST));
    assert_eq!(again.identity(), bench.ledger.identity());
    assert_eq!(bench.run().await.selected, 2);
    assert_eq!(place.connect().await.identity(), bench.ledger.identity());
}

async fn another_ledger_or_epoch_is_refused(place: Place) {
    let ledger = place.set_up().await;
    let identity = ledger.identity().clone();
    ledger.must_be(&identity).unwrap();
    let restored = LedgerRef { epoch: identity.epoch + 1, ..identity.clone() };
    let other = LedgerRef { id: "other".into(), ..identity.clone() };
    for expected in [restored, other] {
        let refused = ledger.must_be(&expected).unwrap_err();
        assert!(matches!(refused, LedgerError::Foreign { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&identity.id));
    }
}

async fn a_newer_ledger_is_used_only_if_it_is_marked_compatible(place: Place) {
    let ledger = place.set_up().await;
    let mut raw = place.raw().await;
    raw.execute("update @meta set value = '7' where name = 'version'").await;
    assert_eq!(place.connect().await.identity(), ledger.identity());
    let (_, setup) = Ledger::set_up(&place.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (7, 7), "setting up never takes a ledger back");
    assert_eq!(raw.rows("select value from @meta where name = 'version'").await[0][0], "7");

    raw.execute("update @meta set value = '6' where name = 'compatible_from'").await;
    for refused in [
        Ledger::connect(&place.url, SCHEMA).await.unwrap_err(),
        Ledger::set_up(&place.url, SCHEMA).await.unwrap_err(),
    ] {
        let is_too_new =
            matches!(refused, LedgerError::TooNew { found: 7, needs: 6, known: NEWEST });
        assert!(is_too_new, "{refused:?}");
    }
}

async fn an_older_ledger_is_refused(place: Place) {
    place.set_up().await;
    let mut raw = place.raw().await;
    raw.execute("update @meta set value = '0' where name in ('version', 'compatible_from')").await;
    let refused = Ledger::connect(&place.url, SCHEMA).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Unmigrated { found: 0, needed: NEWEST }), "{refused:?}");
}

/// A DBA may run it instead of `setup`, and `setup` afterwards changes nothing.
async fn the_printed_ddl_is_a_whole_ledger(place: Place) {
    place.raw_created().await.execute(&ddl(&place.url, SCHEMA)).await;
    let ledger = place.connect().await;
    let (again, setup) = Ledger::set_up(&place.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (NEWEST, NEWEST));
    assert_eq!(again.identity(), ledger.identity());

    // The migrator finds its record too, as it will for the next version.
    let mut raw = place.raw().await;
    raw.execute("update @meta set value = '0' where name = 'version'").await;
    let (_, setup) = Ledger::set_up(&place.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (0, NEWEST));
}

async fn times_and_texts_come_back_as_they_were_stored(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.key(1);
    let stored = message("Grüße \u{1F4E6} 'quoted' \"twice\" @ $1");
    bench.ledger.store_message(&key, &stored).await.unwrap();
    assert_eq!(bench.ledger.message(&key).await.unwrap(), Some(stored));
    let before = bench.ledger.now().await.unwrap();
    let run = bench.hold().await;
    assert!(run.held_since.unwrap() >= before);
    assert!(run.held_since.unwrap() <= bench.ledger.now().await.unwrap());
}

#[test]
fn the_two_ddl_files_differ_in_dialect_only() {
    let normal = |sql: String| {
        let sql = sql.to_lowercase().replace("digestd_", "");
        let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    let in_sqlite = |postgres: &str| {
        postgres
            .replace(
                "bigint generated always as identity primary key",
                "integer primary key autoincrement",
            )
            .replace("bigint", "integer")
            .replace("bytea", "blob")
            .replace(" collate \"C\"", "")
            .replace("\n);", "\n) strict;")
    };
    for (postgres, sqlite) in [
        (
            include_str!("../../src/ledger/migrations/0001_ledger.postgres.sql"),
            include_str!("../../src/ledger/migrations/0001_ledger.sqlite.sql"),
        ),
        (
            include_str!("../../src/ledger/migrations/0002_events.postgres.sql"),
            include_str!("../../src/ledger/migrations/0002_events.sqlite.sql"),
        ),
        (
            include_str!("../../src/ledger/migrations/0003_batches.postgres.sql"),
            include_str!("../../src/ledger/migrations/0003_batches.sqlite.sql"),
        ),
        (
            include_str!("../../src/ledger/migrations/0004_content.postgres.sql"),
            include_str!("../../src/ledger/migrations/0004_content.sqlite.sql"),
        ),
        (
            include_str!("../../src/ledger/migrations/0005_suppressions.postgres.sql"),
            include_str!("../../src/ledger/migrations/0005_suppressions.sqlite.sql"),
        ),
    ] {
        assert_eq!(normal(in_sqlite(postgres)), normal(sqlite.to_owned()));
    }
}

#[tokio::test]
async fn everything_lies_in_the_schema_and_nothing_beside_it() {
    let Some(place) = Place::postgres("the ledger's schema").await else { return };
    // A name that only works where it is quoted.
    let schema = "Digest \"Post\" 2";
    let (ledger, _) = Ledger::set_up(&place.url, schema).await.unwrap();
    let mut raw = place.raw().await;
    let tables = raw
        .rows(
            "select table_schema, table_name from information_schema.tables \
             where table_schema not in ('pg_catalog', 'information_schema') order by 2",
        )
        .await;
    let names: Vec<&str> = tables.iter().map(|row| row[1].as_str()).collect();
    assert!(tables.iter().all(|row| row[0] == schema), "{tables:?}");
    assert!(names.contains(&"migrations") && names.contains(&"operations"), "{names:?}");
    let same = Ledger::connect(&place.url, schema).await.unwrap();
    assert_eq!(same.identity(), ledger.identity());
    // Another schema is another ledger.
    let (other, _) = Ledger::set_up(&place.url, "other").await.unwrap();
    assert_ne!(other.identity(), ledger.identity());
}

#[tokio::test]
async fn a_role_with_the_printed_grants_alone_does_everything() {
    let Some(place) = Place::postgres("the ledger's rights").await else { return };
    place.set_up().await;
    let mut raw = place.raw().await;
    let role = format!("Worker {}", std::process::id());
    raw.execute(&format!(
        "drop role if exists \"{role}\"; create role \"{role}\" login password 'hush'; \
         revoke create on schema public from public;"
    ))
    .await;
    raw.execute(&grants(&place.url, SCHEMA, &role)).await;
    let user = role.replace(' ', "%20");
    let url = place.url.replace("postgres@", &format!("{user}:hush@"));
    let worker = Place { url, ..place };

    let mut bench = worker.bench(4).await;
    bench.raw = raw;
    let (_, setup) = Ledger::set_up(&worker.url, SCHEMA).await.unwrap();
    assert_eq!((setup.from, setup.to), (NEWEST, NEWEST));
    super::transitions::every_kind_of_transition(&mut bench).await;
    bench.raw.execute(&format!("drop owned by \"{role}\"; drop role \"{role}\";")).await;
}

#[tokio::test]
async fn commits_are_durable_whatever_the_servers_default_is() {
    let Some(place) = Place::postgres("the ledger's durability").await else { return };
    let ledger = place.set_up().await;
    let mut raw = place.raw().await;
    let off = raw.rows("select current_setting('fsync')").await[0][0] == "off";
    let warnings = ledger.warnings().await.unwrap();
    assert_eq!(warnings.iter().any(|warning| warning.contains("fsync")), off, "{warnings:?}");
}

#[tokio::test]
async fn an_unreachable_database_is_named_within_seconds_without_its_password() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let begun = Instant::now();
    let url = format!("postgres://shop:hush@127.0.0.1:{port}/shop");
    let error = Ledger::connect(&url, SCHEMA).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(matches!(error, LedgerError::Unreachable { .. }) && error.is_temporary());
    let debug = format!("{error:?}");
    let told = format!("{:#} {debug}", anyhow::Error::from(error));
    assert!(told.contains(&format!("127.0.0.1:{port}/shop")), "{told}");
    assert!(told.contains("refused") && !told.contains("hush"), "{told}");

    let missing = "sqlite:///no/such/folder/ledger.db";
    let error = Ledger::connect(missing, SCHEMA).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/ledger.db"), "{error}");
    let error = Ledger::connect("mysql://shop:hush@db/shop", SCHEMA).await.unwrap_err();
    assert!(matches!(&error, LedgerError::Url(scheme) if scheme == "mysql"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_stops_answering_fails_in_bounded_time() {
    let Some(place) = Place::postgres("a ledger that stops answering").await else { return };
    place.set_up().await;
    let (proxy, url) = proxied(&place).await;
    let ledger = Ledger::connect(&url, SCHEMA).await.unwrap();
    ledger.now().await.unwrap();
    proxy.plant(Fault::Stall);
    let begun = Instant::now();
    let error = ledger.now().await.unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let error = Ledger::connect(&url, SCHEMA).await.unwrap_err();
    assert!(error.to_string().contains(&proxy.address().to_string()), "{error}");
}

/// A proxy in front of the place's server, and the URL through it.
pub(crate) async fn proxied(place: &Place) -> (Proxy, String) {
    let server = url::Url::parse(&place.url).unwrap();
    let address = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap_or(5432));
    let proxy = Proxy::start(address.clone()).await.unwrap();
    let url = place.url.replace(&address, &proxy.address().to_string());
    (proxy, url)
}

#[tokio::test]
async fn a_file_that_was_moved_or_replaced_is_not_used_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("ledger.db"), folder.path().join("away.db"));
    let url = format!("sqlite://{}", path.display());
    let (ledger, _) = Ledger::set_up(&url, SCHEMA).await.unwrap();
    let is_moved = async || {
        let read = ledger.now().await.unwrap_err();
        let period = "2026-W42".parse().unwrap();
        let actor = digest_activities::ledger::Actor::part("test");
        let written = ledger.hold("digest", period, "a test", actor).await.unwrap_err();
        matches!(read, LedgerError::Moved(_)) && matches!(written, LedgerError::Moved(_))
    };
    std::fs::rename(&path, &away).unwrap();
    assert!(is_moved().await);
    std::fs::copy(&away, &path).unwrap();
    assert!(is_moved().await, "a copy is another ledger");
    std::fs::rename(&away, &path).unwrap();
    ledger.now().await.unwrap();
}
