//! A place for a ledger on either database, a look into its tables from outside, and a run to work
//! on.

use digest_activities::ledger::{
    Actor, Answer, BeginAnswer, FreezePage, FrozenData, Ledger, LedgerError, NewRun, Recorded, Run,
    Selected, Slot, Token,
};
use digest_activities::message::{FrozenMessage, Redacted};
use digest_tests::postgres::Postgres;
use digest_workflows::operation::{
    Batch, Contract, Event, Failure, FailureClass, Intent, Lookup, Operation, OperationKey,
    Outcome, Period, ProviderRef, Replay, Rules,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};
use std::time::Duration;

pub(crate) const CAMPAIGN: &str = "digest";
pub(crate) const SCHEMA: &str = "digestd";
pub(crate) const TEST: Actor<'static> = Actor::part("test");

/// Promises nothing.
pub(crate) const NOTHING: Contract = Contract::NONE;
/// Returns the original for a day.
pub(crate) const REPLAYS: Contract = Contract {
    replay: Replay::ReturnsOriginal {
        window: SignedDuration::from_hours(24),
        margin: SignedDuration::from_hours(1),
    },
    lookup: Lookup::ByKey { miss_counts: true },
    events: true,
    batch: Batch::None,
};

/// Makes every named behaviour a test on each database. One whose database is absent says so.
macro_rules! on_both {
    ($($behaviour:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour($crate::bench::Place::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let what = concat!("the ledger: ", stringify!($behaviour));
                if let Some(place) = $crate::bench::Place::postgres(what).await {
                    super::$behaviour(place).await;
                }
            })*
        }
    };
}
pub(crate) use on_both;

/// Where a ledger can be.
pub(crate) struct Place {
    pub(crate) url: String,
    /// Keeps the SQLite file.
    pub(crate) directory: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("ledger.db").display());
        Self { url, directory: Some(directory) }
    }

    pub(crate) async fn postgres(what: &str) -> Option<Self> {
        let server = Postgres::shared(what).await.unwrap()?;
        let url = server.database("ledger").await.unwrap();
        Some(Self { url, directory: None })
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    /// Another connection to the ledger, with pools of its own: as good as another process.
    pub(crate) async fn connect(&self) -> Ledger {
        Ledger::connect(&self.url, SCHEMA).await.unwrap()
    }

    pub(crate) async fn set_up(&self) -> Ledger {
        Ledger::set_up(&self.url, SCHEMA).await.unwrap().0
    }

    /// A ledger with a frozen run of `customers` operations.
    pub(crate) async fn bench(&self, customers: u32) -> Bench {
        let ledger = self.set_up().await;
        let period = Period::parse("2026-W42").unwrap();
        let bench = Bench { ledger, period, raw: self.raw().await };
        bench.open().await;
        bench.freeze(None, 1..=customers, None).await;
        bench
    }

    /// As [`raw`](Self::raw), creating the SQLite file.
    pub(crate) async fn raw_created(&self) -> Raw {
        if let Some(directory) = &self.directory {
            std::fs::File::create(directory.path().join("ledger.db")).unwrap();
        }
        self.raw().await
    }

    pub(crate) async fn raw(&self) -> Raw {
        if self.is_sqlite() {
            return Raw::Sqlite(SqliteConnection::connect(&self.url).await.unwrap());
        }
        Raw::Postgres(PgConnection::connect(&self.url).await.unwrap())
    }
}

/// A look into the database beside the ledger, with ` @` before each table name.
pub(crate) enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Raw {
    pub(crate) async fn execute(&mut self, sql: &str) {
        match self {
            Self::Sqlite(raw) => {
                let sql = sql.replace(" @", " digestd_");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(raw).await.unwrap();
            }
            Self::Postgres(raw) => {
                let sql = sql.replace(" @", &format!(" {SCHEMA}."));
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(raw).await.unwrap();
            }
        }
    }

    /// Makes a ledger as version 1 of it was, without its identity.
    pub(crate) async fn migrate_to_version_1(&mut self) {
        let migrator = |sql: &'static str, table: &'static str| {
            let sql = sqlx::SqlSafeStr::into_sql_str(sql);
            let kind = MigrationType::Simple;
            let migration = Migration::new(1, "ledger".into(), kind, sql, false);
            let mut migrator = Migrator::with_migrations(vec![migration]);
            migrator.dangerous_set_table_name(table);
            migrator
        };
        match self {
            Self::Sqlite(raw) => {
                let sql = include_str!("../../src/ledger/migrations/0001_ledger.sqlite.sql");
                migrator(sql, "digestd_migrations").run(raw).await.unwrap();
            }
            Self::Postgres(raw) => {
                let schema = format!("create schema {SCHEMA}; set search_path to {SCHEMA}");
                sqlx::raw_sql(AssertSqlSafe(schema)).execute(&mut *raw).await.unwrap();
                let sql = include_str!("../../src/ledger/migrations/0001_ledger.postgres.sql");
                migrator(sql, "migrations").run(raw).await.unwrap();
            }
        }
    }

    /// Begins a transaction that sees one state of all tables.
    pub(crate) async fn snapshot(&mut self) {
        let begin = match self {
            Self::Sqlite(_) => "begin",
            Self::Postgres(_) => "begin isolation level repeatable read, read only",
        };
        self.execute(begin).await;
    }

    /// Waits for a transaction on `key` that nobody hears of any more to end: whoever sent its
    /// commit held the lock.
    pub(crate) async fn settle(&mut self, key: &OperationKey) {
        let lock = match self {
            Self::Sqlite(_) => "begin immediate; commit".to_owned(),
            Self::Postgres(_) => {
                format!("begin; select 1 from @operations where key = '{key}' for update; commit")
            }
        };
        self.execute(&lock).await;
    }

    /// Each row as a list of texts; null is the empty text.
    pub(crate) async fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        fn texts<'r, R: Row>(row: &'r R) -> Vec<String>
        where
            usize: sqlx::ColumnIndex<R>,
            Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
        {
            (0..row.len())
                .map(|index| row.get_unchecked::<Option<String>, _>(index).unwrap_or_default())
                .collect()
        }
        match self {
            Self::Sqlite(raw) => {
                let sql = sql.replace(" @", " digestd_");
                let query = sqlx::raw_sql(AssertSqlSafe(sql));
                query.fetch_all(raw).await.unwrap().iter().map(texts).collect()
            }
            // The simple protocol answers every type as text.
            Self::Postgres(raw) => {
                let sql = sql.replace(" @", &format!(" {SCHEMA}."));
                let query = sqlx::raw_sql(AssertSqlSafe(sql));
                query.fetch_all(raw).await.unwrap().iter().map(texts).collect()
            }
        }
    }

    pub(crate) async fn count(&mut self, from: &str) -> u64 {
        self.rows(&format!("select count(*) from {from}")).await[0][0].parse().unwrap()
    }
}

/// A ledger with one run.
pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) period: Period,
    pub(crate) raw: Raw,
}

impl Bench {
    pub(crate) async fn open(&self) -> Run {
        self.ledger.open_run(&new_run(self.period)).await.unwrap()
    }

    pub(crate) async fn freeze(
        &self,
        after: Option<&str>,
        customers: impl IntoIterator<Item = u32>,
        next: Option<&str>,
    ) {
        let selected = customers.into_iter().map(|n| selected(self.period, n)).collect();
        let page = FreezePage { selected, next: next.map(str::to_owned), ..FreezePage::default() };
        self.ledger.freeze(CAMPAIGN, self.period, after, &page).await.unwrap();
    }

    pub(crate) async fn enqueue_all(&self) {
        let page = self.ledger.enqueue(CAMPAIGN, self.period, 0, 100_000, usize::MAX).await;
        assert!(page.unwrap().done);
    }

    pub(crate) fn key(&self, customer: u32) -> OperationKey {
        key(self.period, customer)
    }

    pub(crate) async fn operation(&self, key: &OperationKey) -> Operation {
        self.ledger.operation(key).await.unwrap().operation
    }

    /// Begins the next attempt of `key`.
    pub(crate) async fn begin(&self, key: &OperationKey, contract: Contract) -> BeginAnswer {
        let intent = next_intent(&self.operation(key).await, contract);
        begin(&self.ledger, key, &intent).await.unwrap()
    }

    /// Begins the next attempt of `key`, which nothing may hinder; its running number.
    pub(crate) async fn begun(&self, key: &OperationKey, contract: Contract) -> u32 {
        match self.begin(key, contract).await {
            BeginAnswer::Begun(begun) => begun.number,
            BeginAnswer::Cannot(cannot) => panic!("{key}: {cannot}"),
        }
    }

    pub(crate) async fn record(&self, key: &OperationKey, event: Event) -> Recorded {
        self.record_by(key, event, &Rules::default()).await
    }

    pub(crate) async fn record_by(
        &self,
        key: &OperationKey,
        event: Event,
        rules: &Rules,
    ) -> Recorded {
        self.ledger.record(key, &event, rules, TEST, None).await.unwrap()
    }

    /// Closes the next try of `key` before its intent.
    pub(crate) async fn closed(
        &self,
        key: &OperationKey,
        class: FailureClass,
        code: &str,
    ) -> Recorded {
        let event = closed(&self.operation(key).await, Failure::new(class, code));
        self.record(key, event).await
    }

    pub(crate) async fn accepted(&self, key: &OperationKey, attempt: u32) -> Recorded {
        self.record(key, accepted(attempt)).await
    }

    /// Leaves `key` unknown.
    pub(crate) async fn unknown(
        &self,
        key: &OperationKey,
        contract: Contract,
        rules: &Rules,
    ) -> Recorded {
        let attempt = self.begun(key, contract).await;
        self.record_by(key, Event::Overdue { attempt, random: 0.0 }, rules).await
    }

    /// The whole happy path of `key`.
    pub(crate) async fn deliver_and_clean(&self, key: &OperationKey) {
        let attempt = self.begun(key, NOTHING).await;
        self.accepted(key, attempt).await;
        self.record(key, Event::CleanedUp).await;
    }

    pub(crate) async fn hold(&self) -> Run {
        self.ledger.hold(CAMPAIGN, self.period, "because", TEST).await.unwrap()
    }

    pub(crate) async fn resume(&self) -> bool {
        self.ledger.resume(CAMPAIGN, self.period, TEST).await.unwrap()
    }

    pub(crate) async fn run(&self) -> Run {
        self.ledger.run(CAMPAIGN, self.period).await.unwrap().unwrap()
    }

    pub(crate) async fn answer(&self, key: &OperationKey) -> Answer {
        self.ledger.operation(key).await.unwrap()
    }
}

pub(crate) async fn begin(
    ledger: &Ledger,
    key: &OperationKey,
    intent: &Intent,
) -> Result<BeginAnswer, LedgerError> {
    ledger.begin(key, intent, &Token::draw(), &Slot::UNPACED, &Rules::default()).await
}

pub(crate) fn new_run(period: Period) -> NewRun<'static> {
    let start = Timestamp::from_second(1_790_000_000).unwrap();
    NewRun {
        campaign: CAMPAIGN,
        period,
        tick: None,
        window: (start, None),
        useful_for: SignedDuration::from_hours(120),
    }
}

pub(crate) fn key(period: Period, customer: u32) -> OperationKey {
    OperationKey::new(CAMPAIGN, period, &format!("c-{customer:05}")).unwrap()
}

pub(crate) fn selected(period: Period, customer: u32) -> Selected {
    let columns = json!({"customer_id": customer, "address": "anna@shop.example"});
    let data = FrozenData {
        customer: columns.as_object().cloned().unwrap(),
        rows: vec![json!({"title": "Lamp", "price": "19.90"})],
    };
    Selected { key: key(period, customer), data }
}

/// The intent of the next attempt, with a lease and settling time that tests can outwait.
pub(crate) fn next_intent(operation: &Operation, contract: Contract) -> Intent {
    Intent {
        generation: operation.generation,
        ordinal: operation.ordinal + 1,
        provider: ProviderRef { kind: "sandbox".into(), account: "test".into() },
        contract,
        content_hash: "hash".into(),
        lease: SignedDuration::from_mins(15),
        settle: SignedDuration::from_mins(2),
        batch: None,
    }
}

pub(crate) fn closed(operation: &Operation, failure: Failure) -> Event {
    let (generation, ordinal) = (operation.generation, operation.ordinal + 1);
    Event::Closed { generation, ordinal, failure, random: 0.0 }
}

pub(crate) fn accepted(attempt: u32) -> Event {
    let outcome = Outcome::Accepted { message_id: Some("provider-1".into()) };
    Event::Answered { attempt, outcome, random: 0.0 }
}

pub(crate) fn refused(attempt: u32, class: FailureClass) -> Event {
    let outcome = Outcome::NotSent(Failure::new(class, "smtp 550"));
    Event::Answered { attempt, outcome, random: 0.0 }
}

pub(crate) fn message(text: &str) -> FrozenMessage {
    let mime = format!("Subject: a\r\n\r\n{text}\r\n").into_bytes();
    let message = FrozenMessage {
        recipient: Redacted::new("anna@shop.example".into()),
        sender: "digest@shop.example".into(),
        from: "Shop <digest@shop.example>".into(),
        subject: Redacted::new("a".into()),
        text: Redacted::new(text.into()),
        html: None,
        headers: digest_activities::message::Redacted::new(Vec::new()),
        content_hash: String::new(),
        mime: Redacted::new(mime),
    };
    message.sealed()
}

/// Waits until the ledger's clock shows another time than it does now.
pub(crate) async fn tick(ledger: &Ledger) {
    let now = ledger.now().await.unwrap();
    while ledger.now().await.unwrap() <= now {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
