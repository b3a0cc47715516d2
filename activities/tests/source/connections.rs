//! Connections that do not come about, and what is found out without one.

use super::*;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

#[tokio::test]
async fn an_unreachable_server_is_an_error_within_seconds() {
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = refusing.local_addr().unwrap().port();
    drop(refusing);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unanswered = silent.local_addr().unwrap().port();
    for (port, scheme) in
        [refused, unanswered].into_iter().flat_map(|port| [(port, "postgres"), (port, "mysql")])
    {
        let url = format!("{scheme}://shop:geheim@127.0.0.1:{port}/shop");
        let begun = Instant::now();
        let error = Source::connect(&url, queries(CUSTOMERS)).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(
            matches!(&error, SourceError::Unreachable { database, .. } if *database == format!("shop at 127.0.0.1:{port}")),
            "{error}"
        );
        assert!(error.is_temporary());
        let source = Source::open(&url, queries(CUSTOMERS)).unwrap();
        let later = source.still_wanted(&parameters(), &key("1")).await.unwrap_err();
        assert!(matches!(later, SourceError::Unreachable { .. }), "{later}");
        assert!(!format!("{error} {error:?} {later} {source:?}").contains("geheim"));
    }
}

#[tokio::test]
async fn a_missing_file_is_named_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("absent.db");
    let url = format!("sqlite://{}", file.display());
    let error = Source::connect(&url, queries(CUSTOMERS)).await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("absent.db"), "{error}");
    assert!(!error.is_temporary() && !file.exists());
}

#[tokio::test]
async fn a_wrong_database_is_refused_for_good() {
    let what = "a missing database";
    let (postgres, mariadb) = (Behaviour::postgres(what).await, Behaviour::mariadb(what).await);
    for (behaviour, words) in [(postgres, "does not exist"), (mariadb, "Unknown database")] {
        let Some(behaviour) = behaviour else { continue };
        let url = format!("{}_absent", behaviour.database(&[]).await);
        let error = Source::connect(&url, queries(CUSTOMERS)).await.unwrap_err();
        assert!(matches!(error, SourceError::Refused { .. }) && !error.is_temporary(), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn urls_and_statements_are_checked_without_a_connection() {
    for url in [
        "mysql://u:geheim@h",
        "mysql://u:1/geheim@h/db",
        "mariadb:/u:geheim",
        "oracle://u:geheim@h/db",
        "u:geheim@h/db",
        "postgres:/u:geheim",
        "postgres://u:1/geheim@h/db",
        "postgres://u:1#geheim@h/db",
        "",
        "sqlite",
    ] {
        let error = Source::open(url, queries(CUSTOMERS)).unwrap_err();
        assert!(matches!(error, SourceError::Url(_)), "{url}: {error}");
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
    let error = Source::open("sqlite://x.db", queries("select 1; select 2")).unwrap_err();
    let reason = StatementError::SeveralStatements;
    assert_eq!(error, SourceError::Statement { query: Query::Customers, reason });
}
