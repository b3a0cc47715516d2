//! The demo's folder: everything that it writes lies there, under a configuration like any other, so
//! that every command works on it from a second terminal.

use super::cast::{CAMPAIGN, Cast};
use anyhow::Context as _;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// What is beside the configuration, by its path.
const TEMPLATES: [(&str, &str); 3] = [
    ("templates/subject.txt", include_str!("../../templates/subject.txt")),
    ("templates/digest.txt", include_str!("../../templates/digest.txt")),
    ("templates/digest.html", include_str!("../../templates/digest.html")),
];

/// A fresh folder. Dropping it removes it, unless it is kept.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Creates it in the system's folder for temporary files, for this user only.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn create() -> anyhow::Result<Self> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("digestd-demo-{}", &unique[..8]));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| {
            format!(
                "the demo's folder {} cannot be created; set TMPDIR to a folder you may write to",
                path.display()
            )
        })?;
        let folder = Self { path, keep: false };
        fs::create_dir(folder.path.join("templates"))?;
        for (file, text) in TEMPLATES {
            folder.write(file, text)?;
        }
        Ok(folder)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration.
    pub(super) fn config(&self) -> PathBuf {
        self.path.join("digestd.toml")
    }

    /// What the worker tells, line by line.
    pub(super) fn log(&self) -> PathBuf {
        self.path.join("digestd.log")
    }

    /// The shop's database.
    pub(super) fn shop(&self) -> PathBuf {
        self.path.join("shop.db")
    }

    /// What the provider remembers.
    pub(super) fn provider_log(&self) -> PathBuf {
        self.path.join("sandbox.jsonl")
    }

    /// Leaves it where it is.
    pub(super) const fn keep(&mut self) {
        self.keep = true;
    }

    /// Writes the configuration for an engine at these addresses.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn configure(&self, address: &str, ui_url: &str, cast: Cast) -> anyhow::Result<()> {
        self.write("digestd.toml", &configuration(address, ui_url, cast))
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).with_context(|| format!("the demo cannot write {}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed is in the system's folder for what may go.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The times are those of a demo: what takes minutes elsewhere takes seconds here.
fn configuration(address: &str, ui_url: &str, cast: Cast) -> String {
    format!(
        r#"# The configuration of a demo: everything in it is on this machine, and gone with it.

[engine]
address = "{address}"
namespace = "default"
ui_url = "{ui_url}"

[ledger]
url = "sqlite://ledger.db"

[source]
url = "sqlite://shop.db"
customers = "select id as customer_id, email as address, first_name from customers where digest_opt_in"
rows = """
select customer_id, title, price
from digest_items where created_at >= :period_start and created_at < :period_end
"""
still_wanted = "select 1 from customers where id = :customer_id and digest_opt_in"
cleanup = """
delete from digest_items
where customer_id = :customer_id and created_at >= :period_start and created_at < :period_end
"""

[campaign]
name = "{CAMPAIGN}"
cron = "0 0 * * MON"
timezone = "Etc/UTC"

[message]
from = "Shop <digest@shop.example>"
subject = "templates/subject.txt"
text = "templates/digest.txt"
html = "templates/digest.html"

[provider]
kind = "sandbox"
rate_per_second = {rate}
timeout = "2s"
lease = "6s"
settle = "2s"

[worker]
shutdown_grace = "3s"

[retry.rate_limited]
base = "1s"
cap = "5s"

[retry.overloaded]
base = "2s"
cap = "10s"

[retry.transport]
base = "1s"
cap = "10s"

[unknown]
lookup_every = "1s"
escalate_after = "7s"

[http]
listen = "127.0.0.1:0"

# What the provider promises, and what it does to whom. It finds a message by its key, but a miss
# proves nothing: the index may lag.
[sandbox]
contract = "lookup_hits_only"
lookup_lag = "2500ms"
latency = "20ms"
log = "sandbox.jsonl"
{faults}"#,
        rate = cast.rate_per_second(),
        faults = cast.faults(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn its_configuration_loads_and_it_is_gone_with_its_owner() {
        let folder = Folder::create().unwrap();
        folder
            .configure("127.0.0.1:7233", "http://127.0.0.1:8233", Cast { customers: 60 })
            .unwrap();
        let config = Config::load(&folder.config()).unwrap();
        assert!(config.message.text.is_file());
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_kept_stays() {
        let mut folder = Folder::create().unwrap();
        folder.keep();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(path.join("templates/digest.txt").is_file());
        fs::remove_dir_all(path).unwrap();
    }
}
