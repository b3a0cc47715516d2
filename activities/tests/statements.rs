//! What a run really asks of the ledger, statement by statement: none of it may read a table from end
//! to end, or the thousandth customer would cost more than the first.
//!
//! The statements are not listed here. On SQLite they are taken from the driver's log while a run goes
//! on, and the database is then asked for the plan of each; PostgreSQL itself counts its scans.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test and its helpers fail by panicking")]

#[path = "ledger/bench.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "the conformance suite uses the rest")]
mod bench;

use bench::{Bench, CAMPAIGN, NOTHING, Place, Raw, SCHEMA, message, refused};
use digest_workflows::operation::{Event, FailureClass, OperationKey, Period, Rules};
use jiff::SignedDuration;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as Logged, Metadata, Subscriber};

/// Customers of the run; those of earlier runs are many more.
const CUSTOMERS: u32 = 40;
const EARLIER: u32 = 4_000;
/// The tables that grow with customers and weeks.
const GROWING: [&str; 7] = [
    "operations",
    "attempts",
    "messages",
    "digest_rows",
    "decisions",
    "dead_letters",
    "provider_events",
];

/// Every statement that the driver has logged.
static STATEMENTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// One test at a time: the driver's log is that of the whole process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Keeps the text of each statement.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Logged<'_>) {
        let mut read = Statement::default();
        event.record(&mut read);
        let text = if read.whole.trim().is_empty() { read.summary } else { read.whole };
        STATEMENTS.lock().unwrap().insert(text.trim().to_owned());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A short statement is its own summary.
#[derive(Default)]
struct Statement {
    summary: String,
    whole: String,
}

impl Visit for Statement {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" => value.clone_into(&mut self.summary),
            "db.statement" => value.clone_into(&mut self.whole),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// Listens from now on, to everything in this process.
fn listen() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| tracing::subscriber::set_global_default(Listener).unwrap());
    STATEMENTS.lock().unwrap().clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_scans_no_growing_table_on_sqlite() {
    let _alone = ALONE.lock().await;
    let place = Place::sqlite();
    let mut bench = filled(&place).await;
    listen();
    whole_run(&bench).await;
    let asked = STATEMENTS.lock().unwrap().clone();
    // What a transaction writes is asked for at once.
    let statements: Vec<&str> = asked
        .iter()
        .flat_map(|sql| sql.split(';'))
        .map(str::trim)
        .filter(|sql| !sql.is_empty())
        .collect();
    let about = |word: &str| statements.iter().filter(|sql| sql.starts_with(word)).count();
    assert!(about("select") > 5 && about("insert") > 3 && about("update") > 3, "{statements:#?}");
    for sql in statements {
        let first = sql.split_whitespace().next().unwrap_or_default().to_lowercase();
        if !["select", "insert", "update", "delete", "with"].contains(&first.as_str()) {
            continue;
        }
        assert_eq!(scanned(&mut bench.raw, sql).await, None, "{sql}");
    }
    // It would have been seen.
    for control in ["from digestd_operations", "from digestd_operations o"] {
        let sql = format!("select key {control} where message_id = 'a'");
        assert_eq!(scanned(&mut bench.raw, &sql).await, Some("operations"));
    }
}

/// The growing table that SQLite would read from end to end for `sql`.
async fn scanned(raw: &mut Raw, sql: &str) -> Option<&'static str> {
    let plan = raw.rows(&format!("explain query plan {sql}")).await;
    plan.iter().find_map(|step| {
        let name = step[3].strip_prefix("SCAN ")?.split_whitespace().next()?;
        GROWING.into_iter().find(|table| {
            // A name may be an alias of the statement's.
            name == format!("digestd_{table}") || sql.contains(&format!("digestd_{table} {name} "))
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_scans_no_growing_table_on_postgresql() {
    let _alone = ALONE.lock().await;
    let Some(place) = Place::postgres("the ledger: the plans of a run").await else { return };
    let mut bench = filled(&place).await;
    all_counted(&mut bench).await;
    bench.ledger = place.connect().await;
    let before = scans(&mut bench.raw).await;
    whole_run(&bench).await;
    all_counted(&mut bench).await;
    let after = scans(&mut bench.raw).await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after, "read from end to end: table, scans");
    }
    let by_index = "pg_stat_user_tables where relname = 'operations' and idx_scan > 100";
    assert_eq!(bench.raw.count(by_index).await, 1, "nothing was counted");
}

/// Ends the ledger's sessions, which count what they have done when they end, if not earlier.
async fn all_counted(bench: &mut Bench) {
    bench.ledger.close().await;
    bench.raw.rows("select pg_stat_force_next_flush()").await;
    let begun = Instant::now();
    let mine = "pg_stat_activity where application_name = 'digestd' \
                and datname = current_database()";
    while bench.raw.count(mine).await > 0 {
        assert!(begun.elapsed() < Duration::from_mins(1), "its sessions do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How often each growing table was read from end to end.
async fn scans(raw: &mut Raw) -> Vec<Vec<String>> {
    let names = GROWING.map(|name| format!("'{name}'")).join(", ");
    raw.rows("select pg_stat_clear_snapshot()").await;
    raw.rows(&format!(
        "select relname, seq_scan from pg_stat_user_tables where schemaname = '{SCHEMA}' \
         and relname in ({names}) order by relname"
    ))
    .await
}

/// A ledger with an earlier run that is over, and the run that is measured, frozen.
async fn filled(place: &Place) -> Bench {
    let mut bench = place.bench(EARLIER).await;
    bench.enqueue_all().await;
    let mime = if place.is_sqlite() { "x'61'" } else { "'a'::bytea" };
    let messages = format!(
        "insert into @messages (key, message, mime, content_hash) \
         select key, '{{}}', {mime}, 'a' from @operations"
    );
    for sql in [
        "update @operations set state = 'cleaned', at_rest = 1",
        "insert into @attempts (key, number, campaign, period, generation, ordinal, decided_at, \
         outcome) select key, 1, campaign, period, 1, 1, frozen_at, 'accepted' from @operations",
        "insert into @decisions (campaign, period, key, at, event, decided_by) \
         select campaign, period, key, frozen_at, 'begun', 'test' from @operations",
        messages.as_str(),
        "insert into @dead_letters (key, generation, class, code, at) \
         select key, 1, 'rejected', 'a', frozen_at from @operations",
        "insert into @provider_events (provider, event_id, key, finding, at, told_at) \
         select 'resend', key, key, '[]', frozen_at, frozen_at from @operations",
    ] {
        bench.raw.execute(sql).await;
    }
    bench.raw.execute("analyze").await;
    bench.period = Period::parse("2026-W43").unwrap();
    bench.open().await;
    bench.freeze(None, 1..=CUSTOMERS, None).await;
    bench
}

/// What becomes of the customers of a run, in turns: most are delivered, some are refused, some get no
/// answer; and what looks at a run meanwhile.
async fn whole_run(bench: &Bench) {
    let (ledger, period, rules) = (&bench.ledger, bench.period, Rules::default());
    let grace = SignedDuration::ZERO;
    let mut after = 0;
    loop {
        let page = ledger.enqueue(CAMPAIGN, period, after, 10, usize::MAX).await.unwrap();
        for (number, key) in page.keys.iter().enumerate() {
            one(bench, key, number % 10).await;
        }
        ledger.standing(CAMPAIGN, period).await.unwrap();
        ledger.counter().await.unwrap();
        assert!(!ledger.close_run(CAMPAIGN, period).await.unwrap());
        ledger.unfinished(CAMPAIGN, grace, "", 100).await.unwrap();
        ledger.settled(&page.keys, grace).await.unwrap();
        ledger.open_runs(CAMPAIGN).await.unwrap();
        after = page.last;
        if page.done {
            break;
        }
    }
    ledger.cancel(CAMPAIGN, period, &rules, bench::TEST).await.unwrap();
}

async fn one(bench: &Bench, key: &OperationKey, course: usize) {
    let ledger = &bench.ledger;
    ledger.reserve("sandbox", 1000.0, 1).await.unwrap();
    let (_, mut content) = ledger.to_deliver(key).await.unwrap();
    assert!(content.message().unwrap().is_none() && content.data().unwrap().is_some());
    ledger.store_message(key, &message("text")).await.unwrap();
    match course {
        0 => drop(bench.closed(key, FailureClass::Transport, "refused").await),
        1 => drop(bench.closed(key, FailureClass::Schema, "no such column").await),
        2 => drop(bench.unknown(key, NOTHING, &Rules::default()).await),
        3 => {
            let attempt = bench.begun(key, NOTHING).await;
            bench.record(key, refused(attempt, FailureClass::Rejected)).await;
        }
        4 => {
            let attempt = bench.begun(key, NOTHING).await;
            bench.accepted(key, attempt).await;
            bench.record(key, Event::CleanupFailed { random: 0.0 }).await;
        }
        _ => bench.deliver_and_clean(key).await,
    }
}
