//! A world of one test's own: a shop's database, a ledger, a configuration with short times, worker
//! processes, and the record of what the provider took. All worlds share one Temporal server, where
//! each has a campaign and a task queue of its own.

mod api;
mod database;
mod engine;
mod evidence;
mod inbox;
mod invariants;
mod plan;
mod process;
mod shop;
mod within;

pub(crate) use api::{API_KEY, through};
pub(crate) use database::Database;
pub(crate) use engine::{Cost, cost, exactly, failed_tasks, payload};
pub(crate) use inbox::{Inbox, Taken, of_mail, of_sandbox, of_witness};
pub(crate) use plan::{Customer, Plan, text_number, world};
pub(crate) use process::{Said, Worker};
pub(crate) use within::Bench;

use digest_activities::message::Redacted;
use digest_tests::absent::absent;
use digest_workflows::operation::{OperationKey, Period};
use digestd::config::{Config, Secrets};
use digestd::engine::binary::Search;
use digestd::engine::server::{DevServer, ServerOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use temporalio_client::Client;
use tokio::sync::OnceCell;

/// What unsubscribe tokens are derived from.
const SECRET: &str = "a secret of these tests alone";
/// The period that most tests run. It is over, so its tick is not ahead.
pub(crate) const PERIOD: &str = "2024-W10";
/// How long anything may take that must happen, on a machine that has other things to do as well.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "never saw {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The server that all worlds of this process share.
async fn shared_server() -> Option<&'static DevServer> {
    // A static is never dropped; the server ends with the process.
    static SHARED: OnceCell<Option<DevServer>> = OnceCell::const_new();
    SHARED.get_or_init(|| server(None)).await.as_ref()
}

/// A server, whose state is in `file` or in memory.
pub(crate) async fn server(file: Option<PathBuf>) -> Option<DevServer> {
    match Search::from_env().find(&|_| {}).await {
        Ok(binary) => {
            let options = ServerOptions { binary, file, ui: false, search_attributes: true };
            Some(DevServer::start(options).await.unwrap())
        }
        Err(error) => {
            absent("the Temporal CLI", "everything end to end", &error.to_string());
            None
        }
    }
}

/// A world.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) campaign: String,
    pub(crate) client: Client,
    pub(crate) shop: Database,
    pub(crate) ledger: Database,
    customers: Vec<Customer>,
    weeks: Vec<shop::Week>,
    variables: Vec<(&'static str, &'static str)>,
    taken: Option<Box<dyn Fn() -> Vec<Taken> + Send + Sync>>,
    workers: std::sync::atomic::AtomicU32,
}

impl World {
    /// Its folder, with the configuration.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The configuration's file.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("digestd.toml")
    }

    /// Sets `table.key` in its configuration.
    pub(crate) fn edit(&mut self, key: &str, value: impl Into<toml::Value>) {
        let text = std::fs::read_to_string(self.config()).unwrap();
        let mut settings: toml::Table = text.parse().unwrap();
        plan::set(&mut settings, key, value.into());
        std::fs::write(self.config(), toml::to_string(&settings).unwrap()).unwrap();
    }

    /// The same deployment on another engine.
    pub(crate) async fn move_to(&mut self, engine: SocketAddr) {
        self.edit("engine.address", engine.to_string());
        self.client = engine::client(engine).await;
    }

    /// What the provider took is read by `read`, not from the sandbox's log.
    pub(crate) fn received_by(&mut self, read: impl Fn() -> Vec<Taken> + Send + Sync + 'static) {
        self.taken = Some(Box::new(read));
    }

    /// The periods in which there is something to send.
    pub(crate) fn periods(&self) -> Vec<Period> {
        self.weeks.iter().map(|week| week.period).collect()
    }

    /// The key of a customer in [`PERIOD`].
    pub(crate) fn key(&self, customer: &str) -> OperationKey {
        OperationKey::new(&self.campaign, PERIOD.parse::<Period>().unwrap(), customer).unwrap()
    }

    /// Starts the run of [`PERIOD`] without waiting for it.
    pub(crate) async fn start_run(&self) {
        let run = self.digestd(&format!("run --period {PERIOD}")).await;
        assert_eq!(run.code, 0, "{run:?}");
    }

    /// `digestd status` of the latest run.
    pub(crate) async fn status(&self) -> Value {
        let status = self.digestd("status --json").await;
        assert!([0, 4].contains(&status.code), "{status:?}");
        serde_json::from_str(&status.stdout).unwrap()
    }

    /// Waits until there is a run whose status is as `is` says; that status.
    pub(crate) async fn until_status(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(what, async || {
            let said = self.digestd("status --json").await;
            let status: Value = serde_json::from_str(&said.stdout).ok()?;
            is(&status).then_some(status)
        })
        .await
    }

    /// `digestd show` of one operation.
    pub(crate) async fn show(&self, key: &OperationKey) -> Value {
        let shown = self.digestd(&format!("show {key} --json")).await;
        assert_eq!(shown.code, 0, "{shown:?}");
        serde_json::from_str(&shown.stdout).unwrap()
    }

    /// Waits until the run is closed; its status then.
    pub(crate) async fn closed(&self) -> Value {
        until("a closed run", async || {
            let sql =
                format!("select state, period from @runs where campaign = '{}'", self.campaign);
            let runs = self.ledger.pairs(&sql).await;
            (!runs.is_empty() && runs.iter().all(|(state, _)| state == "closed")).then_some(())
        })
        .await;
        self.status().await
    }

    /// The ledger's state of every operation.
    pub(crate) async fn operations(&self) -> BTreeMap<String, String> {
        let sql =
            format!("select key, state from @operations where campaign = '{}'", self.campaign);
        self.ledger.pairs(&sql).await.into_iter().collect()
    }

    /// The keys whose attempt is begun and not decided.
    pub(crate) async fn under_way(&self) -> Vec<String> {
        let all = self.operations().await.into_iter();
        all.filter_map(|(key, state)| (state == "sending").then_some(key)).collect()
    }

    /// Waits until the ledger has `key` in `state`.
    pub(crate) async fn until_state(&self, key: &OperationKey, state: &str) {
        until(&format!("{key} {state}"), async || {
            let operations = self.operations().await;
            (operations.get(&key.to_string()).map(String::as_str) == Some(state)).then_some(())
        })
        .await;
    }

    /// How often the provider took each key.
    pub(crate) fn inbox(&self) -> Inbox {
        inbox::counted(&self.taken())
    }

    /// Every message that the provider took.
    fn taken(&self) -> Vec<Taken> {
        self.taken.as_ref().map_or_else(|| of_sandbox(&self.log()), |read| read())
    }

    /// Every request that the sandbox saw.
    pub(crate) fn requests(&self) -> Vec<inbox::Request> {
        inbox::requests(&self.log())
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("sandbox.log")
    }

    /// `digestd audit` of this period, which must find nothing.
    pub(crate) async fn audit_of(&self, period: Period) {
        let said = self.digestd(&format!("audit --period {period} --json")).await;
        assert_eq!(said.code, 0, "{said:?}");
    }

    /// `digestd audit` of [`PERIOD`], which must find nothing.
    pub(crate) async fn audit(&self) -> Value {
        let (code, report) = self.audited("").await;
        assert_eq!(code, 0, "{report:#}");
        report
    }

    /// `digestd audit` of [`PERIOD`] with these arguments: its exit code and its report.
    pub(crate) async fn audited(&self, arguments: &str) -> (i32, Value) {
        let said = self.digestd(&format!("audit --period {PERIOD} --json {arguments}")).await;
        let report = serde_json::from_str(&said.stdout);
        (said.code, report.unwrap_or_else(|_| panic!("no report: {said:?}")))
    }

    /// Its configuration, and the secrets that its processes have, for a part of it in this process.
    pub(crate) fn loaded(&self) -> (Config, Secrets) {
        let mut secrets = Secrets::default();
        secrets.unsubscribe_secret = Some(Redacted::new(SECRET.to_owned()));
        (Config::load(&self.config()).unwrap(), secrets)
    }

    /// Makes everything enqueued so far look older than the sweep's grace, so that a worker that
    /// starts sweeps it up at once.
    pub(crate) async fn half_a_minute_passes(&self) {
        let sql = "update @operations set enqueued_at = enqueued_at - 31000";
        assert!(self.ledger.execute(sql).await > 0);
    }
}

/// Asserts some counts of a status.
pub(crate) fn counts(status: &Value, expected: &[(&str, u64)]) {
    for (name, count) in expected {
        assert_eq!(status[name], *count, "{name}: {status:#}");
    }
}
