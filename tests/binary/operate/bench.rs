//! One shop with its own configuration, ledger and Temporal server.

use digest_activities::ledger::Ledger;
use digest_workflows::operation::Period;
use digestd::engine::binary::Search;
use digestd::engine::server::{DevServer, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A temporary folder that is a shop.
pub(super) struct Shop {
    pub(super) folder: tempfile::TempDir,
    pub(super) http: u16,
}

/// A worker process that ends with its test.
pub(super) struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What a command said.
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    /// The one line of `check` about `name`.
    pub(super) fn line(&self, name: &str) -> &str {
        let found = self.out.lines().find(|line| line[9..].starts_with(name));
        found.unwrap_or_else(|| panic!("no line about {name} in: {}\n{}", self.out, self.err))
    }
}

/// A server in memory, or one line that says what was not tested.
pub(super) async fn server(search_attributes: bool) -> Option<DevServer> {
    let binary = match Search::from_env().find(&|_| {}).await {
        Ok(binary) => binary,
        Err(error) => {
            let required = std::env::var_os("DIGESTD_TEST_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "not tested: commands that need a Temporal server; {error}");
            eprintln!("not tested: commands that need a Temporal server; {error}");
            return None;
        }
    };
    let options = ServerOptions { binary, file: None, ui: false, search_attributes };
    Some(DevServer::start(options).await.unwrap())
}

/// A shop with `customers` customers, each with one row in every week, on `server`.
pub(super) async fn shop(server: Option<&DevServer>, customers: u32) -> Shop {
    let folder = tempfile::tempdir().unwrap();
    let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let shop = Shop { folder, http };
    let address = server.map_or_else(|| "127.0.0.1:1".to_owned(), |s| s.address().to_string());
    let config = format!(
        r#"[engine]
address = "{address}"
namespace = "default"

[ledger]
url = "sqlite://ledger.db"

[source]
url = "sqlite://shop.db"
customers = "select id as customer_id, email as address, name from customers where wanted"
rows = "select customer_id, title from items"
still_wanted = "select 1 from customers where id = :customer_id and wanted"

[campaign]
cron = "0 9 * * MON"
timezone = "Europe/Berlin"

[message]
from = "Shop <digest@shop.example>"
subject = "subject.txt"
text = "digest.txt"
html = "digest.html"

[provider]
kind = "sandbox"
rate_per_second = 500

[http]
listen = "127.0.0.1:{http}"
"#
    );
    shop.write("digestd.toml", &config);
    shop.write("subject.txt", "News for {{ name }}");
    shop.write(
        "digest.txt",
        "Hello {{ name }}\n{% for row in rows %}- {{ row.title }}\n{% endfor %}",
    );
    shop.write("digest.html", "<p>Hello {{ name }}</p>");
    shop.sql("create table customers (id integer primary key, email text, name text, wanted int)")
        .await;
    shop.sql("create table items (customer_id integer, title text)").await;
    for id in 1..=customers {
        shop.sql(&format!(
            "insert into customers values ({id}, 'c{id}@shop.example', 'Customer {id}', 1)"
        ))
        .await;
        shop.sql(&format!("insert into items values ({id}, 'Tea & cups')")).await;
    }
    shop
}

/// A shop that is set up.
pub(super) async fn ready(server: &DevServer, customers: u32) -> Shop {
    let shop = shop(Some(server), customers).await;
    let said = shop.digestd("setup");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    shop
}

impl Shop {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Replaces a part of the configuration.
    pub(super) fn edit(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path("digestd.toml")).unwrap();
        assert!(text.contains(from), "{from} is not in the configuration");
        self.write("digestd.toml", &text.replacen(from, to, 1));
    }

    /// Executes a statement in the shop's own database.
    pub(super) async fn sql(&self, sql: &str) {
        let url = format!("sqlite://{}?mode=rwc", self.path("shop.db").display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    pub(super) fn ledger_url(&self) -> String {
        format!("sqlite://{}", self.path("ledger.db").display())
    }

    pub(super) async fn ledger(&self) -> Ledger {
        Ledger::connect(&self.ledger_url(), "digestd").await.unwrap()
    }

    pub(super) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_digestd"));
        command.current_dir(self.folder.path()).env_remove("USER").stdin(Stdio::null());
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        command.args(words);
        command
    }

    pub(super) fn digestd(&self, line: &str) -> Said {
        let begun = Instant::now();
        let Output { status, stdout, stderr } = self.command(line).output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "digestd {line} took too long");
        Said {
            code: status.code().unwrap(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    pub(super) fn worker(&self) -> Worker {
        let log = std::fs::File::create(self.path("worker.log")).unwrap();
        let child = self.command("worker").stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Worker(child)
    }

    pub(super) fn status(&self, period: Period) -> serde_json::Value {
        let said = self.digestd(&format!("status --period {period} --json"));
        serde_json::from_str(&said.out).unwrap_or_default()
    }

    /// Waits for a state of the run, for at most half a minute.
    pub(super) async fn until(
        &self,
        what: &str,
        period: Period,
        wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let begun = Instant::now();
        loop {
            let status = self.status(period);
            if wanted(&status) {
                return status;
            }
            if begun.elapsed() > Duration::from_secs(30) {
                let log = std::fs::read_to_string(self.path("worker.log")).unwrap_or_default();
                panic!("never saw {what}; the last was {status}\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Everything in the folder, by name, without what the databases keep beside themselves.
    pub(super) fn content(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.to_string_lossy().ends_with("-shm"))
            .filter(|path| !path.to_string_lossy().ends_with("-wal"))
            .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
            .collect();
        files.sort();
        files
    }
}

/// A past week, whose tick is behind.
pub(super) fn last_week() -> Period {
    let zone = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    let week = jiff::SignedDuration::from_hours(7 * 24);
    Period::of(jiff::Timestamp::now() - week, &zone)
}
