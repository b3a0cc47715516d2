//! The binary as a person or a script meets it: texts, streams and exit codes.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn digestd(folder: &Path, line: &str) -> Output {
    command(folder, line).output().unwrap()
}

fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_digestd"));
    command.current_dir(folder).args(line.split_whitespace());
    command
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(stream: &[u8]) -> String {
    String::from_utf8(stream.to_vec()).unwrap()
}

#[test]
fn version_and_help_are_results() {
    let folder = tempfile::tempdir().unwrap();
    let version = digestd(folder.path(), "--version");
    // A release also names its commit.
    let said = text(&version.stdout);
    assert_eq!(code(&version), 0);
    assert!(said == "digestd 0.1.0\n" || said.starts_with("digestd 0.1.0 ("), "{said}");
    let help = digestd(folder.path(), "--help");
    assert_eq!(code(&help), 0);
    assert!(text(&help.stdout).contains("Usage: digestd"));
}

#[test]
fn a_first_configuration_is_written_once_and_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let first = digestd(folder.path(), "init shop");
    assert_eq!(code(&first), 0, "{}", text(&first.stderr));
    assert!(text(&first.stdout).contains("wrote shop/digestd.toml"));
    let again = digestd(folder.path(), "init shop");
    assert_eq!((code(&again), text(&again.stdout)), (2, String::new()));
    assert!(text(&again.stderr).starts_with("error: shop/digestd.toml already exists"));
    let policy = digestd(folder.path(), "policy --json --config shop/digestd.toml");
    let policy: serde_json::Value = serde_json::from_slice(&policy.stdout).unwrap();
    assert_eq!(policy["retry"]["transport"]["base_seconds"], 30);
}

#[test]
fn what_is_wrong_with_line_or_file_ends_with_2_and_one_paragraph_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = digestd(folder.path(), "policy");
    let path = folder.path().canonicalize().unwrap().join("digestd.toml");
    assert_eq!((code(&missing), text(&missing.stdout)), (2, String::new()));
    assert_eq!(
        text(&missing.stderr),
        format!(
            "error: there is no configuration file at {}; `digestd init` writes one with comments, \
             or name another with --config FILE\n",
            path.display()
        )
    );
    std::fs::write(&path, "[campain]\n").unwrap();
    let wrong = digestd(folder.path(), "policy");
    assert_eq!(code(&wrong), 2);
    assert!(text(&wrong.stderr).contains("line 1, campain: there is no such table; did you mean"));
    assert_eq!(code(&digestd(folder.path(), "frobnicate")), 2);
}

#[test]
fn completions_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let help = text(&digestd(folder.path(), "--help").stdout);
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands = list.lines().filter(|line| !line.starts_with("   "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"audit") && commands.len() > 15, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&digestd(folder.path(), &format!("completions {shell}")).stdout);
        for command in &commands {
            assert!(script.contains(command), "{shell} does not complete {command}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = digestd(folder.path(), "man");
    assert_eq!(code(&page), 0);
    let page = text(&page.stdout);
    assert!(page.contains(".TH digestd 1") && page.contains("Exit codes: 0 done"), "{page}");
    let written = digestd(folder.path(), "man pages");
    assert_eq!(code(&written), 0, "{}", text(&written.stderr));
    for name in ["digestd", "digestd-run", "digestd-canary", "digestd-schedule-backfill"] {
        let file = folder.path().join(format!("pages/{name}.1"));
        let page = std::fs::read_to_string(file).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")) && page.contains("Example:"), "{name}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), "completions bash")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe's reading end is closed, so a write finds nobody.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
}
