//! The demo as a person starts it: its books, its neighbours, and its end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by a panic")]

use digest_tests::absent::absent;
use digestd::engine::binary::Search;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A run of the demo takes about 20 seconds on an idle machine.
const LIMIT: Duration = Duration::from_mins(3);

/// Whatever else is configured on this machine is none of a demo's business.
const ELSEWHERE: (&str, &str) = ("DIGESTD_LEDGER_URL", "postgres://nobody@127.0.0.1:1/nothing");

/// Whether there is a Temporal CLI. Where there is not, says what was not tested.
async fn has_engine(untested: &str) -> bool {
    match Search::from_env().find(&|_| {}).await {
        Ok(_) => true,
        Err(error) => {
            absent("the Temporal CLI", untested, &error.to_string());
            false
        }
    }
}

/// The demo with its folder below `folder`.
fn demo(folder: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_digestd"))
        .arg("demo")
        .args(arguments)
        .current_dir(folder)
        .env("TMPDIR", folder)
        .env(ELSEWHERE.0, ELSEWHERE.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of `child`; kills it where it does not come.
fn end_of(child: Child) -> Output {
    let (done, waited) = std::sync::mpsc::channel();
    let id = child.id().to_string();
    std::thread::spawn(move || done.send(child.wait_with_output().unwrap()));
    waited.recv_timeout(LIMIT).unwrap_or_else(|_| {
        Command::new("kill").args(["-9", &id]).status().unwrap();
        let output = waited.recv().unwrap();
        panic!("the demo did not end; it said: {}", String::from_utf8_lossy(&output.stderr));
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The books of an ended `demo --exit --json`, which must be right.
fn books(output: &Output, customers: u64) -> Value {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "one waits for a human; it said: {err}");
    let status: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let count = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(status["state"], "closed", "{status}");
    assert_eq!(count("selected"), customers, "{status}");
    let (suppressed, dead, unknown) = (count("suppressed"), count("dead"), count("unknown"));
    assert_eq!((suppressed, dead, unknown), (1, 1, 1), "{status}");
    assert_eq!(count("cleaned"), customers - 3, "{status}");
    assert_eq!(count("sent"), count("cleaned"), "{status}");
    assert_eq!(count("missing_count"), 0, "{status}");
    status
}

#[tokio::test]
async fn every_branch_is_seen_and_the_books_are_right() {
    if !has_engine("the demo's run").await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = end_of(demo(folder.path(), &["--exit", "--json"]));
    books(&output, 60);
    let told = text(&output.stderr);
    for (from, to, why) in [
        ("sending", "retrying", "rate_limited"),
        ("sending", "retrying", "overloaded"),
        ("sending", "dead", "message_rejected"),
        ("unknown", "sent", "found by a look-up"),
        ("sending", "unknown", "no answer in time"),
        ("selected", "suppressed", "opted out"),
    ] {
        let seen =
            told.lines().any(|line| line.contains(&format!("{from} → {to}")) && line.contains(why));
        assert!(seen, "no {from} → {to} for {why} in: {told}");
    }
    assert!(told.contains("each under a key of its own"), "{told}");
    // What the report prints is complete: nothing is left to fill in but the decision itself.
    assert!(told.contains(" --delivered --attempt 1 "), "{told}");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "the demo left files behind");
}

#[tokio::test]
async fn two_demos_at_once_do_not_disturb_each_other() {
    if !has_engine("two demos at once").await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let demos = [10, 12].map(|customers: u64| {
        let number = customers.to_string();
        (customers, demo(folder.path(), &["--exit", "--json", "--customers", &number]))
    });
    for (customers, child) in demos {
        books(&end_of(child), customers);
    }
}

#[tokio::test]
async fn interrupted_after_its_report_it_leaves_a_ledger_and_no_process() {
    if !has_engine("the demo that stays up").await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--customers", "6"]);
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = out.lines().map(Result::unwrap);
    let report: Vec<String> =
        lines.by_ref().take_while(|line| !line.contains("stays up until Ctrl-C")).collect();
    // The command that it prints is one that decides.
    let signal = report.iter().find(|line| line.contains("workflow signal")).unwrap();
    assert!(Command::new("sh").args(["-c", signal.trim()]).status().unwrap().success());
    let resolved: Vec<String> =
        lines.by_ref().take_while(|line| !line.contains("nothing is in doubt any more")).collect();
    let resolved = resolved.join("\n");
    assert!(resolved.contains("unknown → sent  resolved by me"), "{resolved}");
    // So does every other command from a second terminal, whatever else that is configured for.
    let show = report.iter().find(|line| line.contains(" show digest:")).unwrap();
    let shown = Command::new("sh")
        .args(["-c", show.trim()])
        .env(ELSEWHERE.0, ELSEWHERE.1)
        .output()
        .unwrap();
    assert!(text(&shown.stdout).contains("resolved") || text(&shown.stdout).contains("judged"));
    let (processes, path) = (group(child.id()), config(folder.path()));
    assert!(!processes.is_empty());
    interrupt(&child);
    let output = end_of(child);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    gone(&processes);
    assert!(path.is_file(), "the ledger of a demo that was looked at stays");
    // The provider's own memory: all but the refused one and the one that opted out, each once.
    let log = std::fs::read_to_string(path.with_file_name("sandbox.jsonl")).unwrap();
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut accepted: Vec<Value> = records
        .filter(|record| record["event"] == "acceptance")
        .map(|a| a["key"].clone())
        .collect();
    assert_eq!(accepted.len(), 4, "{accepted:?}");
    accepted.sort_by_key(Value::to_string);
    accepted.dedup();
    assert_eq!(accepted.len(), 4, "a key was accepted twice");
}

#[tokio::test]
async fn interrupted_in_the_middle_it_leaves_nothing() {
    if !has_engine("the interrupted demo").await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--customers", "500", "--exit"]);
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(err.any(|line| line.contains("→ retrying")), "the run never began");
    let processes = group(child.id());
    assert!(!processes.is_empty(), "no engine runs");
    interrupt(&child);
    let said = std::thread::spawn(move || err.collect::<Vec<_>>().join("\n"));
    let output = end_of(child);
    let said = said.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "an interrupted run has no result; it said: {said}");
    gone(&processes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
}

/// The configuration of the one demo below `folder`.
fn config(folder: &Path) -> std::path::PathBuf {
    let demo = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
    demo.path().join("digestd.toml")
}

/// The processes that `parent` has started, and those that they have.
fn group(parent: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-eo", "pid=,ppid="]).output().unwrap();
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for line in text(&listed.stdout).lines() {
        let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        children.entry(ids[1]).or_default().push(ids[0]);
    }
    let mut found = Vec::new();
    let mut look = vec![parent];
    while let Some(id) = look.pop() {
        let of: &[u32] = children.get(&id).map_or(&[], Vec::as_slice);
        look.extend(of);
        found.extend(of);
    }
    found
}

/// Waits until none of `processes` runs.
fn gone(processes: &[u32]) {
    let begun = Instant::now();
    for id in processes {
        // One that has ended and is not yet waited for runs no more.
        let runs = || {
            let state = Command::new("ps").args(["-o", "stat=", "-p", &id.to_string()]).output();
            let state = text(&state.unwrap().stdout);
            !state.trim().is_empty() && !state.starts_with('Z')
        };
        while runs() {
            assert!(begun.elapsed() < Duration::from_secs(10), "process {id} is left");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
