//! Says which commit a released binary is of, for `digestd --version`.
//!
//! `DIGESTD_COMMIT` in the environment says it where there is no repository, as in an archive or a
//! container. Otherwise git is asked, for a release build alone: others would be built anew after each
//! commit. Where neither tells, the version stands alone.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=DIGESTD_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let given = std::env::var("DIGESTD_COMMIT").ok().filter(|commit| is_plain(commit));
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| if is_release { by_git() } else { None });
    let version = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=DIGESTD_VERSION={version}");
}

/// The commit that the sources are of, if git and a repository are there.
fn by_git() -> Option<String> {
    // In an archive that was unpacked inside of some other repository, that one's commit says nothing.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // A commit changes the log of HEAD, which a worktree has elsewhere than a clone.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| is_plain(commit))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

/// Whether a text can stand in a version: one word, and not a sentence of somebody's.
fn is_plain(commit: &str) -> bool {
    (1..=64).contains(&commit.len())
        && commit.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte))
}
