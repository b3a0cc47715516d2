//! The files in `deploy/` that others read: that Kubernetes takes them, that they lock the process in,
//! and that digestd takes the configuration in them.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

use digest_activities::message::Redacted;
use digest_tests::absent::absent;
use digest_tests::mail_server::python_with;
use digestd::config::{Config, Secrets};
use digestd::http::access::Access;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Those whose pods run digestd.
const WITH_PODS: [&str; 2] = ["worker.yaml", "setup.yaml"];

fn manifest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(manifest(name)).unwrap()
}

#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    let Some(python) = python_with("kubernetes_validate") else {
        let how = "python3 -m venv target/tools/python && target/tools/python/bin/pip install \
                   kubernetes-validate==1.37.0";
        return absent("kubernetes-validate", "the manifests for Kubernetes", how);
    };
    let program = "import sys; from kubernetes_validate.__main__ import main; sys.exit(main())";
    let validate = |file: &Path| {
        Command::new(&python).args(["-c", program, "--strict"]).arg(file).output().unwrap()
    };
    for name in ["configuration.yaml", "worker.yaml", "setup.yaml"] {
        let said = validate(&manifest(name));
        assert!(said.status.success(), "{name}: {}", String::from_utf8_lossy(&said.stdout));
    }
    // One that never refuses would prove nothing.
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.yaml");
    let misspelt = text("worker.yaml").replace("readOnlyRootFilesystem", "readOnlyRootFileSystem");
    std::fs::write(&wrong, misspelt).unwrap();
    assert!(!validate(&wrong).status.success(), "a misspelt field was taken");
}

#[test]
fn every_pod_is_locked_in_and_no_secret_is_in_a_file() {
    for name in WITH_PODS {
        let manifest = text(name);
        for (setting, why) in [
            ("automountServiceAccountToken: false", "it asks Kubernetes for nothing"),
            ("runAsNonRoot: true", "root"),
            ("seccompProfile: { type: RuntimeDefault }", "system calls"),
            ("readOnlyRootFilesystem: true", "a place to write"),
            ("allowPrivilegeEscalation: false", "more rights"),
            ("capabilities: { drop: [ALL] }", "capabilities"),
            ("defaultMode: 0440", "secrets that others may read"),
        ] {
            assert!(manifest.contains(setting), "{name} lacks {setting}: {why}");
        }
        let image = format!("/digestd:{}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(manifest.matches("image: ").count(), 1, "{name}");
        assert!(manifest.contains(&image), "{name} names another version than this one");
    }
    for name in ["configuration.yaml", "worker.yaml", "setup.yaml"] {
        assert!(!text(name).contains("kind: Secret\n"), "{name} holds a secret");
    }
}

/// The blocks of a ConfigMap's data: name and text of each.
fn blocks(manifest: &str) -> Vec<(String, String)> {
    let data = manifest.split("\ndata:\n").nth(1).unwrap();
    let mut blocks: Vec<(String, String)> = Vec::new();
    for line in data.lines() {
        match line.strip_prefix("    ") {
            Some(line) => blocks.last_mut().unwrap().1.push_str(line),
            None if line.ends_with(": |") => {
                let name = line.trim().trim_end_matches(": |").to_owned();
                blocks.push((name, String::new()));
                continue;
            }
            None => assert!(line.is_empty(), "a line between the blocks: {line}"),
        }
        blocks.last_mut().unwrap().1.push('\n');
    }
    blocks
}

#[test]
fn digestd_takes_the_configuration_of_the_manifests() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("templates")).unwrap();
    let files = blocks(&text("configuration.yaml"));
    assert_eq!(files.len(), 3);
    for (name, content) in &files {
        // As the volume has them.
        let path = if name == "digestd.toml" { name.clone() } else { format!("templates/{name}") };
        for manifest in WITH_PODS {
            let mounted = format!("{{ key: {name}, path: {path} }}");
            assert!(text(manifest).contains(&mounted), "{manifest} does not mount {name}");
        }
        std::fs::write(folder.path().join(path), content).unwrap();
    }
    let policy = Command::new(env!("CARGO_BIN_EXE_digestd"))
        .current_dir(folder.path())
        .arg("policy")
        .output()
        .unwrap();
    assert!(policy.status.success(), "{}", String::from_utf8_lossy(&policy.stderr));
}

#[test]
fn the_workers_of_the_manifests_let_people_in_by_a_token() {
    let files = blocks(&text("configuration.yaml"));
    let (_, config) = files.iter().find(|(name, _)| name == "digestd.toml").unwrap();
    let config = Config::parse(config, Path::new("digestd.toml")).unwrap();
    let mut secrets = Secrets::default();
    assert!(Access::new(&config, &secrets).is_err(), "strangers would be let in");
    secrets.http_token = Some(Redacted::new("a token of many characters".to_owned()));
    assert!(Access::new(&config, &secrets).is_ok());
    let worker = text("worker.yaml");
    for part in
        ["DIGESTD_HTTP_TOKEN_FILE, value: /run/secrets/digestd/http-token", "literal=http-token="]
    {
        assert!(worker.contains(part), "worker.yaml lacks {part}");
    }
}

#[test]
fn a_pod_is_given_longer_to_stop_than_the_worker_takes_to_drain() {
    let seconds = |text: &str, before: &str| -> u32 {
        let rest = text.split(before).nth(1).unwrap();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let grace = seconds(&text("worker.yaml"), "terminationGracePeriodSeconds: ");
    let drain = seconds(&text("configuration.yaml"), "shutdown_grace = \"");
    assert!(grace > drain, "{grace} s are not more than {drain} s");
}
