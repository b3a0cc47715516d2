//! A shop with many customers, its ledger, and workers of the optimised binary.

use crate::args::{Args, LedgerKind};
use crate::database::Database;
use anyhow::{Context as _, ensure};
use digest_activities::provider::sandbox::{Behaviour, FaultKind, Sandbox};
use digest_tests::postgres::Postgres;
use jiff::SignedDuration;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The period that is run; its window is over.
pub(crate) const PERIOD: &str = "2024-W10";
/// How late an answer is that comes late.
const LATE_ANSWER: SignedDuration = SignedDuration::from_secs(3);
/// How long a run may take.
const PATIENCE: Duration = Duration::from_hours(3);

/// A deployment. Its workers end when it is dropped.
pub(crate) struct Deployment {
    folder: TempDir,
    pub(crate) database: Database,
    workers: Vec<Child>,
    sandbox: Sandbox,
}

impl Deployment {
    /// Makes the shop, the ledger and the provider; no worker runs yet.
    pub(crate) async fn new(
        args: &Args,
        name: &str,
        engine: SocketAddr,
        postgres: Option<&Postgres>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (ledger, shop) = if let Some(postgres) = postgres {
            let url = postgres.database(&name.replace('-', "_")).await?;
            (url.clone(), url)
        } else {
            let url = |name| format!("sqlite://{}", folder.path().join(name).display());
            (url("ledger.db"), url("shop.db"))
        };
        Database::at(&shop).fill(args.customers).await?;
        let mut behaviour = Behaviour::none();
        behaviour.latency = SignedDuration::from_millis(i64::from(args.latency));
        behaviour.faults.late_answer = LATE_ANSWER;
        if args.fail > 0.0 {
            let kinds = [FaultKind::Overload, FaultKind::AcceptThenLateAnswer];
            behaviour.faults.shares = kinds.map(|kind| (kind, args.fail / 2.0)).into();
        }
        let sandbox =
            Sandbox::start(behaviour, SocketAddr::from(([127, 0, 0, 1], 0)), None).await?;
        let config = configuration(args, name, engine, &ledger, &shop, &sandbox.url());
        let files = [
            ("digestd.toml", config.as_str()),
            ("subject.txt", "{{ first_name }}, your week"),
            ("digest.txt", TEXT),
            ("digest.html", HTML),
        ];
        for (file, text) in files {
            std::fs::write(folder.path().join(file), text)?;
        }
        let database = Database::at(&ledger);
        let deployment = Self { folder, database, workers: Vec::new(), sandbox };
        deployment.digestd(&["setup"])?;
        Ok(deployment)
    }

    /// Starts `count` workers and waits until they are ready.
    pub(crate) async fn start_workers(&mut self, count: u32) -> anyhow::Result<()> {
        for number in 0..count {
            let log = self.folder.path().join(format!("worker-{number}.log"));
            let mut command = self.command(&["worker"]);
            let child = command.stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
            self.workers.push(child);
            let begun = Instant::now();
            while !std::fs::read_to_string(&log)?.contains("the worker is ready") {
                ensure!(begun.elapsed() < Duration::from_mins(1), "a worker does not get ready");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Ends the workers.
    pub(crate) fn stop_workers(&mut self) {
        for mut worker in self.workers.drain(..) {
            worker.kill().ok();
            worker.wait().ok();
        }
    }

    /// The processes of the workers.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.workers.iter().map(Child::id).collect()
    }

    /// Waits until the ledger answers `query` with a number that is as `is` says.
    pub(crate) async fn until(&self, query: &str, is: impl Fn(f64) -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let found = self.database.number(query).await?;
            if found.is_some_and(&is) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the run does not end: {query} says {found:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// What the workers warned of, if anything: a measurement of a fault says little.
    pub(crate) fn warnings(&self) -> anyhow::Result<Vec<String>> {
        let mut warnings = Vec::new();
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let text = std::fs::read_to_string(path)?;
                let is_warning = |line: &&str| line.contains("WARN") || line.contains("ERROR");
                warnings.extend(text.lines().filter(is_warning).map(str::to_owned));
            }
        }
        Ok(warnings)
    }

    /// Checks that the provider took no message twice: what is fast and wrong is not measured.
    pub(crate) fn nobody_got_two(&self) -> anyhow::Result<()> {
        let witness = self.sandbox.witness();
        let twice = witness.duplicates();
        ensure!(twice.is_empty(), "taken twice: {twice:?}");
        Ok(())
    }

    /// Runs one command to its end, which must be a good one.
    pub(crate) fn digestd(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let output = self.command(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "digestd {arguments:?}: {}: {said}", output.status);
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_digestd"));
        command
            .current_dir(self.folder.path())
            .args(arguments)
            .env("DIGESTD_UNSUBSCRIBE_SECRET", "a secret of the measurement")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        self.stop_workers();
    }
}

/// The server that forces every commit to the disk.
pub(crate) async fn postgres(args: &Args) -> anyhow::Result<Option<Postgres>> {
    if args.ledger == LedgerKind::Sqlite {
        return Ok(None);
    }
    let server = Postgres::start_measured().await?;
    server.context("there is no PostgreSQL here; run `apt-get install postgresql`").map(Some)
}

fn configuration(
    args: &Args,
    name: &str,
    engine: SocketAddr,
    ledger: &str,
    shop: &str,
    provider: &str,
) -> String {
    let Args { concurrency, page_size, in_flight, lease, latency, .. } = args;
    // Without planted faults, nothing is to be taken for one.
    let timeout = if args.fail > 0.0 { 1_000 } else { 30_000.max(latency * 2) };
    let lease = if args.fail > 0.0 { lease * 1_000 } else { 900_000 };
    let faults = if args.fail > 0.0 {
        format!(
            "[retry.overloaded]\nbase = \"500ms\"\ncap = \"2s\"\n\n\
             [unknown]\nlookup_every = \"1s\"\nescalate_after = \"{}ms\"\n\n\
             [hold]\nunknowns_in_a_row = 100000\n",
            lease * 2
        )
    } else {
        String::new()
    };
    format!(
        r#"[engine]
address = "{engine}"
namespace = "default"
task_queue = "{name}"

[ledger]
url = "{ledger}"

[source]
url = "{shop}"
customers = "select id as customer_id, email as address, first_name from customers where wanted = 1"
rows = "select customer_id, title, price from items where created_at >= :period_start and created_at < :period_end"
still_wanted = "select 1 from customers where id = :customer_id and wanted = 1"
cleanup = "delete from items where customer_id = :customer_id and created_at >= :period_start and created_at < :period_end"

[campaign]
name = "{name}"
cron = "0 9 * * MON"
timezone = "Europe/Berlin"

[message]
from = "Shop <digest@shop.example>"
subject = "subject.txt"
text = "digest.txt"
html = "digest.html"
unsubscribe_url = "https://shop.example/u/{{{{ unsubscribe_token }}}}"

[provider]
kind = "sandbox"
url = "{provider}"
rate_per_second = 10000
timeout = "{timeout}ms"
lease = "{lease}ms"
settle = "{settle}ms"

[sandbox]
contract = "none"

[dispatch]
page_size = {page_size}
in_flight = {in_flight}

[worker]
concurrency = {concurrency}
shutdown_grace = "{grace}ms"
listening = 10000

{faults}
[http]
listen = "127.0.0.1:0"
"#,
        grace = timeout + 1_000,
        settle = if args.fail > 0.0 { 1_000 } else { 600_000 },
    )
}

const TEXT: &str = "Hello {{ first_name }},

{% for row in rows %}* {{ row.title }}: {{ row.price }}
{% endfor %}
{{ unsubscribe_url }}
";

const HTML: &str = r#"<html><body><p>Hello {{ first_name }},</p><table>
{% for row in rows %}<tr><td>{{ row.title }}</td><td>{{ row.price }}</td></tr>
{% endfor %}</table><p><a href="{{ unsubscribe_url }}">unsubscribe</a></p></body></html>
"#;
