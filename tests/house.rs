//! The house rules that a machine can hold: which way the arrows point, what the decision core may
//! use, how long a file may be, which licences come in, and that the documents name what exists.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail by a panic"
)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The longest file, in lines: one that is longer has more than one purpose.
const LINES_MAX: usize = 450;
/// The longest file of tests.
const TEST_LINES_MAX: usize = 700;

const CRATES: [&str; 4] = ["workflows", "activities", "worker", "tests"];
/// The one file whose functions are declarations without bodies.
const DECLARATIONS: &str = "workflows/src/activities.rs";

#[test]
fn the_decision_core_uses_nothing_but_plain_libraries_and_what_it_is_given() {
    let others: BTreeSet<String> = dependencies("digest-workflows")
        .into_iter()
        .filter(|name| !["jiff", "serde", "thiserror"].contains(&name.as_str()))
        .map(|name| name.replace('-', "_"))
        .collect();
    let mut files = rust_files("workflows/src/operation");
    files.push(root().join("workflows/src/operation.rs"));
    files.retain(|file| !file.ends_with("tests.rs"));
    assert!(files.len() > 8, "the decision core has moved: {files:?}");
    for file in files {
        let code = code(&file);
        for word in [
            "SystemTime::now",
            "Instant::now",
            "Timestamp::now",
            "Zoned::now",
            "TimeZone::system",
            "std::env",
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "rand::",
            "async ",
            "crate::activities",
        ] {
            assert!(!code.contains(word), "{} uses {word}", file.display());
        }
        for other in &others {
            let path = format!("{other}::");
            assert!(!code.contains(&path), "{} uses {other}", file.display());
        }
    }
}

#[test]
fn arrows_point_one_way() {
    let rules = reachable("digest-workflows");
    for stranger in
        ["digest-activities", "digestd", "reqwest", "sqlx", "temporalio-client", "temporalio-sdk"]
    {
        assert!(!rules.contains(stranger), "workflows is built from {stranger}");
    }
    // The engine's protocol types bring a runtime with them; the rules themselves ask for none.
    for direct in dependencies("digest-workflows") {
        let known = ["jiff", "serde", "serde_json", "thiserror"].contains(&direct.as_str());
        assert!(known || direct.starts_with("temporalio-"), "workflows depends on {direct}");
    }
    let gates = dependencies("digest-activities");
    assert!(gates.contains("digest-workflows"));
    assert!(!reachable("digest-activities").contains("digestd"), "activities depends on worker");
}

#[test]
fn a_file_has_one_purpose_and_a_length_to_match() {
    for file in all_rust_files() {
        let name = name(&file);
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let max = if is_test(&name) { TEST_LINES_MAX } else { LINES_MAX };
        assert!(lines <= max, "{name} has {lines} lines, more than {max}: give it a second room");
    }
}

#[test]
fn nothing_is_left_undone_or_switched_off() {
    for file in all_rust_files() {
        let name = name(&file);
        let text = fs::read_to_string(&file).unwrap();
        for undone in [concat!("to", "do!("), concat!("unimpl", "emented!(")] {
            assert!(name == DECLARATIONS || !text.contains(undone), "{name} has a {undone}…)");
        }
        // What is longer than an ordinary run is named, and run by the proof.
        let text = text.replace(concat!("#[ig", "nore = \"part of the proof: tests/prove\"]"), "");
        assert!(!text.contains(concat!("#[ig", "nore")), "{name} switches a test off");
        assert!(!text.contains(concat!("TO", "DO")), "{name} leaves something to do");
        assert!(!name.ends_with("/mod.rs"), "{name}: write foo.rs beside foo/");
    }
}

#[test]
fn every_crate_takes_the_lints_and_the_licence_of_the_workspace() {
    for member in CRATES {
        let manifest: toml::Table = read(&format!("{member}/Cargo.toml")).parse().unwrap();
        let inherits = |table: &str, key: Option<&str>| {
            let table =
                manifest.get(table).and_then(|table| key.map_or(Some(table), |k| table.get(k)));
            table.and_then(|table| table.get("workspace")).and_then(toml::Value::as_bool)
        };
        assert_eq!(inherits("lints", None), Some(true), "{member} has lints of its own");
        for key in ["edition", "license", "rust-version", "version"] {
            assert_eq!(inherits("package", Some(key)), Some(true), "{member} has its own {key}");
        }
    }
}

#[test]
fn licences_and_bans_of_every_dependency_are_those_of_deny_toml() {
    let rules: toml::Table = read("deny.toml").parse().unwrap();
    let allowed: BTreeSet<&str> =
        rules["licenses"]["allow"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    let banned: BTreeSet<&str> = rules["bans"]["deny"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|ban| ban["crate"].as_str())
        .collect();
    assert!(!allowed.is_empty() && !banned.is_empty());
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "cargo metadata tells of {} packages", packages.len());
    for package in packages {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.contains(name), "{name} is banned in deny.toml");
        let Some(source) = package["source"].as_str() else { continue };
        assert!(source.starts_with("registry+https://github.com/rust-lang/crates.io-index"));
        match package["license"].as_str() {
            Some(licence) => assert!(is_allowed(licence, &allowed), "{name} is under {licence}"),
            None => assert!(has_mit_text(package), "{name} names no licence that is allowed"),
        }
    }
}

#[test]
fn a_licence_is_read_as_its_crate_means_it() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
    for licence in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(GPL-3.0 OR MIT) AND ISC",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(is_allowed(licence, &allowed), "{licence} was refused");
    }
    for licence in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", ""] {
        assert!(!is_allowed(licence, &allowed), "{licence} was allowed");
    }
}

#[test]
fn every_command_in_the_documents_exists() {
    let commands = commands();
    assert!(commands.contains("dead-letters") || commands.contains("status"), "{commands:?}");
    let mut named = 0;
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "docs/runbook.md",
        "docs/security.md",
        "deploy/kubernetes/setup.yaml",
    ] {
        for command in commands_in(&read(document)) {
            assert!(commands.contains(&command), "{document} names `digestd {command}`");
            named += 1;
        }
    }
    assert!(named > 10, "only {named} commands were found in the documents");
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    let code = text.split('`').skip(1).step_by(2);
    let paths: Vec<&str> = code
        .filter(|code| code.contains('/') && !code.contains([' ', ':', '*', '{']))
        .filter(|code| CRATES.iter().any(|member| code.starts_with(&format!("{member}/"))))
        .collect();
    assert!(paths.len() > 20, "only {} paths were found", paths.len());
    for path in paths {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}");
    }
}

#[test]
fn every_test_that_the_page_on_security_names_exists() {
    let text = read("docs/security.md");
    let code: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let mut tests = 0;
    let mut file = String::new();
    for span in code {
        if Path::new(span).extension().is_some_and(|extension| extension == "rs") {
            file = read(span);
        } else if span.matches('_').count() > 1 && span.chars().all(is_of_a_name) {
            let named = [format!("fn {span}("), format!("fn {span}<")];
            let there = named.iter().any(|name| file.contains(name));
            assert!(there, "docs/security.md names {span}, which is not in the file before it");
            tests += 1;
        }
    }
    assert!(tests > 30, "only {tests} tests were found");
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter == '_'
}

#[test]
fn nothing_names_a_path_of_one_machine() {
    let mut files = vec![".ci/run".to_owned(), "Dockerfile".to_owned()];
    files.extend(
        ["configuration", "setup", "worker"].map(|f| format!("deploy/kubernetes/{f}.yaml")),
    );
    for folder in [
        ".",
        "deploy/compose",
        "deploy/prometheus",
        "docs",
        "workflows",
        "activities",
        "worker",
        "tests",
    ] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if matches!(extension, Some("md" | "toml" | "yml" | "sql")) {
                files.push(name(&path));
            }
        }
    }
    assert!(files.len() > 12, "{files:?}");
    for file in files {
        let text = read(&file);
        for place in ["/home/", "/root/", "/Users/"] {
            assert!(!text.contains(place), "{file} names {place}");
        }
    }
}

/// The names of all commands, from the enumeration that clap reads.
fn commands() -> BTreeSet<String> {
    let text = read("worker/src/cli.rs");
    let (_, body) = text.split_once("pub enum Command {").expect("the commands have moved");
    let (body, _) = body.split_once("\n}").expect("the enumeration ends");
    let variants = body.lines().filter_map(|line| line.trim().split_once('('));
    variants.map(|(variant, _)| kebab(variant)).collect()
}

/// `DeadLetters` as the command line has it: `dead-letters`.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The commands of digestd that the code in a document names.
fn commands_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let code = line.split_once('#').map_or(line, |(code, _)| code);
            found.extend(commands_of(code));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).flat_map(commands_of));
        }
    }
    found
}

fn commands_of(code: &str) -> Vec<String> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let calls =
            *word == "digestd" || (*word == "--" && words[..at].ends_with(&["cargo", "run"]));
        let next = words.get(at + 1).map(|word| word.trim_end_matches([',', ';']));
        if let Some(next) = next.filter(|_| calls)
            && next.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
            && !next.starts_with('-')
            // In a container of that name.
            && next != "digestd"
        {
            found.push(next.to_owned());
        }
    }
    found
}

/// Whether an SPDX expression can be met with the allowed licences. `AND` binds closer than `OR`, and
/// only the outermost parentheses' contents are looked into.
fn is_allowed(licence: &str, allowed: &BTreeSet<&str>) -> bool {
    let licence = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = licence.split_whitespace().collect();
    meets(&words, allowed)
}

fn meets(words: &[&str], allowed: &BTreeSet<&str>) -> bool {
    for operator in ["OR", "AND"] {
        let parts = split(words, operator);
        if parts.len() > 1 {
            let mut parts = parts.into_iter();
            return if operator == "OR" {
                parts.any(|part| meets(part, allowed))
            } else {
                parts.all(|part| meets(part, allowed))
            };
        }
    }
    match words {
        ["(", inner @ .., ")"] => meets(inner, allowed),
        name => allowed.contains(name.join(" ").as_str()),
    }
}

/// The parts between `operator`s that are in no parentheses.
fn split<'a>(words: &'a [&'a str], operator: &str) -> Vec<&'a [&'a str]> {
    let mut depth = 0;
    let mut is_between = |word: &&str| {
        match *word {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0 && *word == operator
    };
    words.split(|word| is_between(word)).collect()
}

/// Whether the package's licence file is the MIT licence.
fn has_mit_text(package: &Value) -> bool {
    let Some(file) = package["license_file"].as_str() else { return false };
    let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
    let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.contains("MIT License") && text.contains("Permission is hereby granted, free of charge")
}

/// What cargo knows of the dependencies on this platform.
fn metadata() -> Value {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let told = String::from_utf8(rustc.stdout).unwrap();
    let host = told.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The names of the packages that `package` depends on itself, tests left out.
fn dependencies(package: &str) -> BTreeSet<String> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let found = packages.iter().find(|found| found["name"] == package).unwrap();
    let dependencies = found["dependencies"].as_array().unwrap().iter();
    let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
    normal.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
}

/// The names of all packages that `package` is built from, tests and build scripts left out.
fn reachable(package: &str) -> BTreeSet<String> {
    let metadata = metadata();
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), node))
        .collect();
    let (start, _) = names.iter().find(|(_, name)| **name == package).unwrap();
    let mut seen = BTreeSet::new();
    let mut open = vec![*start];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                open.push(dependency["pkg"].as_str().unwrap());
            }
        }
    }
    seen.into_iter().map(|id| names[id].to_owned()).collect()
}

/// A file's text without comments and without its tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code =
        text.split_once("\n#[cfg(test)]\nmod tests {").map_or(text.as_str(), |(code, _)| code);
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test(name: &str) -> bool {
    name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("tests.rs")
}

fn all_rust_files() -> Vec<PathBuf> {
    CRATES.iter().flat_map(|member| rust_files(member)).collect()
}

/// All Rust files under a folder of the project.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut open = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "no Rust files in {folder}");
    files
}

fn read(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file's path inside the project.
fn name(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).to_string_lossy().trim_start_matches("./").to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
