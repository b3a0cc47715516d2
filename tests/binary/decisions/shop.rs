//! A folder with a configuration, a shop's customers and a ledger in every state a person may meet.

use digest_activities::ledger::{
    Actor, BeginAnswer, FreezePage, FrozenData, Ledger, NewRun, Selected, Slot, Token,
};
use digest_activities::message::{MessageSettings, RenderInput, Rendered, Templates, WhenEmpty};
use digest_workflows::operation::{
    Contract, Event, Failure, FailureClass, Intent, Operation, OperationKey, Outcome, Period,
    ProviderRef, Replay, Rules,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const TEST: Actor<'static> = Actor::part("test");
/// The engine is at a port that nobody listens on.
const CONFIG: &str = r#"
[engine]
address = "127.0.0.1:1"

[ledger]
url = "sqlite://ledger.db"

[source]
customers = "select id as customer_id, email as address from customers"
still_wanted = "select 1 from customers where id = :customer_id"

[campaign]
timezone = "Europe/Berlin"

[message]
from = "Shop <digest@shop.example>"
subject = "subject.txt"
text = "digest.txt"

[provider]
kind = "sandbox"

[replay]
max_keys = 3
"#;

pub(crate) struct Shop {
    folder: tempfile::TempDir,
    pub(crate) ledger: Ledger,
    period: Period,
    rules: Rules,
}

/// How a command ended.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    code: i32,
    line: String,
}

impl Ran {
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}\n{}", self.line, self.out, self.err);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

impl Shop {
    /// A frozen run of `customers` operations in 2026-W42.
    pub(crate) async fn new(customers: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("digestd.toml"), CONFIG).unwrap();
        std::fs::write(folder.path().join("subject.txt"), "News").unwrap();
        let url = format!("sqlite://{}", folder.path().join("ledger.db").display());
        let (ledger, _) = Ledger::set_up(&url, "digestd").await.unwrap();
        let period = Period::parse("2026-W42").unwrap();
        let shop = Self { folder, ledger, period, rules: Rules::default() };
        shop.template("Hello");
        shop.execute("create table customers (id text primary key, email text)").await;
        let start = Timestamp::from_second(1_790_000_000).unwrap();
        let new = NewRun {
            campaign: "digest",
            period,
            tick: None,
            window: (start, None),
            useful_for: SignedDuration::from_hours(120),
        };
        shop.ledger.open_run(&new).await.unwrap();
        let mut selected = Vec::new();
        for customer in 1..=customers {
            let address = format!("old{customer}@shop.example");
            let insert = format!("insert into customers values ('c-{customer}', '{address}')");
            shop.execute(&insert).await;
            let columns = json!({"customer_id": format!("c-{customer}"), "address": address});
            let customer_data = columns.as_object().cloned().unwrap();
            let data = FrozenData { customer: customer_data, rows: Vec::new() };
            selected.push(Selected { key: shop.key(customer), data });
        }
        let page = FreezePage { selected, ..FreezePage::default() };
        shop.ledger.freeze("digest", period, None, &page).await.unwrap();
        shop.ledger.enqueue("digest", period, 0, 1_000, usize::MAX).await.unwrap();
        shop
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn template(&self, text: &str) {
        std::fs::write(self.path("digest.txt"), text).unwrap();
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let url = format!("sqlite://{}", self.path("ledger.db").display());
        let mut database = SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    }

    pub(crate) fn key(&self, customer: u32) -> OperationKey {
        OperationKey::new("digest", self.period, &format!("c-{customer}")).unwrap()
    }

    pub(crate) fn message_id(&self, customer: u32) -> String {
        self.key(customer).message_id("shop.example")
    }

    pub(crate) async fn operation(&self, customer: u32) -> Operation {
        self.ledger.operation(&self.key(customer)).await.unwrap().operation
    }

    /// Who made each decision of this kind, and why.
    pub(crate) async fn decided(&self, event: &str) -> Vec<(String, Option<String>)> {
        let decisions = self.ledger.decisions("digest", self.period, 0, 1_000).await.unwrap();
        let of_kind = decisions.into_iter().filter(|line| line.transition.event == event);
        of_kind.map(|line| (line.transition.by, line.transition.reason)).collect()
    }

    async fn record(&self, customer: u32, event: Event) {
        let key = self.key(customer);
        self.ledger.record(&key, &event, &self.rules, TEST, None).await.unwrap();
    }

    async fn answered(&self, customer: u32, outcome: Outcome) {
        self.record(customer, Event::Answered { attempt: 1, outcome, random: 0.0 }).await;
    }

    /// Hands over the next attempt, with the message stored before.
    async fn begin(&self, customer: u32, contract: Contract) -> u32 {
        let key = self.key(customer);
        self.store_message(&key).await;
        let operation = self.operation(customer).await;
        let intent = Intent {
            generation: operation.generation,
            ordinal: operation.ordinal + 1,
            provider: ProviderRef { kind: "sandbox".into(), account: "test".into() },
            contract,
            content_hash: "hash".into(),
            lease: SignedDuration::from_mins(15),
            settle: SignedDuration::from_mins(2),
            batch: None,
        };
        let token = Token::draw();
        let begun = self.ledger.begin(&key, &intent, &token, &Slot::UNPACED, &self.rules).await;
        match begun.unwrap() {
            BeginAnswer::Begun(begun) => begun.number,
            BeginAnswer::Cannot(cannot) => unreachable!("{key}: {cannot}"),
        }
    }

    async fn store_message(&self, key: &OperationKey) {
        let settings = MessageSettings {
            from: "Shop <digest@shop.example>".into(),
            subject: Some("subject.txt".into()),
            text: "digest.txt".into(),
            html: None,
            unsubscribe_url: None,
            when_empty: WhenEmpty::Send,
        };
        let templates = Templates::load(&settings, self.folder.path(), None).unwrap();
        let data = self.ledger.frozen_data(key).await.unwrap().unwrap();
        let (customer, rows) = (&data.customer, data.rows.as_slice());
        let selected_at = Timestamp::from_second(1_790_000_000).unwrap();
        let input = RenderInput { key, customer, rows, selected_at };
        let Rendered::Message(message) = templates.render(&input).unwrap() else { unreachable!() };
        self.ledger.store_message(key, &message).await.unwrap();
    }

    pub(crate) async fn unknown(&self, customer: u32) {
        let attempt = self.begin(customer, Contract::NONE).await;
        self.record(customer, Event::Overdue { attempt, random: 0.0 }).await;
    }

    /// Two attempts in doubt: the provider allows a replay.
    pub(crate) async fn unknown_twice(&self, customer: u32) {
        let window = SignedDuration::from_hours(24);
        let margin = SignedDuration::from_hours(1);
        let replay = Replay::ReturnsOriginal { window, margin };
        for _ in 0..2 {
            let attempt = self.begin(customer, Contract { replay, ..Contract::NONE }).await;
            self.record(customer, Event::Overdue { attempt, random: 0.0 }).await;
        }
    }

    /// Handed over once and refused for good.
    pub(crate) async fn dead(&self, customer: u32, contract: Contract) {
        self.begin(customer, contract).await;
        let failure = Failure::new(FailureClass::Rejected, "smtp 550");
        self.answered(customer, Outcome::NotSent(failure)).await;
    }

    pub(crate) async fn sent(&self, customer: u32) {
        self.begin(customer, Contract::NONE).await;
        self.accepted_after_all(customer).await;
    }

    pub(crate) async fn accepted_after_all(&self, customer: u32) {
        self.answered(customer, Outcome::Accepted { message_id: None }).await;
    }

    pub(crate) async fn cleanup_failed(&self, customer: u32) {
        while !self.operation(customer).await.cleanup.given_up {
            self.record(customer, Event::CleanupFailed { random: 0.0 }).await;
        }
    }

    /// Adds `count` customers (`d-001` and so on) whose operations are as that of `customer` is.
    pub(crate) async fn multiply(&self, customer: u32, count: u32) {
        let key = self.key(customer);
        self.execute(&format!(
            "with recursive n(n) as (select 1 union all select n + 1 from n where n < {count}) \
             insert into digestd_operations (key, campaign, period, position, customer, state, \
             class, since, attempts, at_rest, machine, frozen_at, enqueued_at) \
             select printf('digest:2026-W42:d-%03d', n), campaign, period, 1000 + n, \
             printf('d-%03d', n), state, class, since, attempts, at_rest, machine, frozen_at, \
             enqueued_at from digestd_operations, n where key = '{key}'"
        ))
        .await;
    }

    /// Acts on the verdict about `customer`, as if its time had come.
    pub(crate) async fn settled_long_ago(&self, customer: u32) {
        let mut operation = self.operation(customer).await;
        let now = self.ledger.now().await.unwrap();
        operation.verdict.as_mut().unwrap().acts_at = now;
        let machine = serde_json::to_string(&operation).unwrap();
        let key = self.key(customer);
        let update = "update digestd_operations set machine";
        self.execute(&format!("{update} = '{machine}' where key = '{key}'")).await;
        self.record(customer, Event::TimePassed).await;
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_with(line, "")
    }

    /// Runs the binary with `input` on its standard input, which is no terminal.
    pub(crate) fn run_with(&self, line: &str, input: &str) -> Ran {
        let mut child = Command::new(env!("CARGO_BIN_EXE_digestd"))
            .current_dir(self.folder.path())
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that is refused by its line does not read it.
        child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        Ran {
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
            code: status.code().unwrap(),
            line: line.to_owned(),
        }
    }
}
