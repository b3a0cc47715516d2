//! Every activity executed twice, in sequence and at once: the engine may do both, and the ledger
//! must be the one of a single execution.

use crate::end_to_end::world::{Bench, Database, PERIOD, Plan, World, until, world};
use digest_activities::gates::GateError;
use digest_activities::{cleanup, delivery, eligibility, reconciliation};
use digest_workflows::activities::{
    DeliverInput, EnqueueInput, LedgerRef, OperationInput, RecordInput, RunPlan, RunStart,
    WatchInput,
};
use digest_workflows::operation::{Event, OperationKey, Rules, Verdict};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How an activity is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Once,
    InSequence,
    AtOnce,
}

/// Executes `activity` as `how` says; one of its answers.
async fn execute<T: Send + 'static, F>(how: How, activity: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, GateError>> + Send + 'static,
{
    let first = tokio::spawn(activity());
    if how == How::InSequence {
        first.await.unwrap().unwrap();
        return activity().await.unwrap();
    }
    if how == How::AtOnce {
        let second = tokio::spawn(activity());
        let (first, second) = tokio::join!(first, second);
        drop(second.unwrap().unwrap());
        return first.unwrap().unwrap();
    }
    first.await.unwrap().unwrap()
}

/// The run and what its activities are given.
struct Story {
    bench: Bench,
    how: How,
    run: RunStart,
    ledger: LedgerRef,
    rules: Rules,
    client: temporalio_client::Client,
}

impl Story {
    fn watch_input(&self, request: &str) -> WatchInput {
        WatchInput {
            run: self.run.clone(),
            ledger: self.ledger.clone(),
            by: "kim".to_owned(),
            reason: "prices".to_owned(),
            request: request.to_owned(),
            noted: 0,
        }
    }

    fn operation(&self, key: &OperationKey) -> OperationInput {
        OperationInput {
            key: key.clone(),
            ledger: self.ledger.clone(),
            rules: self.rules.clone(),
            random: 0.5,
        }
    }

    async fn open_and_freeze(&self) {
        let parts = || Arc::clone(&self.bench.parts);
        let freeze = || {
            let (parts, run) = (parts(), self.run.clone());
            async move {
                while !eligibility::freeze_page(&parts, &run).await? {}
                eligibility::question_selection(&parts, &run).await?;
                eligibility::standing(&parts, &run).await
            }
        };
        let hold = || {
            let (parts, input) = (parts(), self.watch_input("1"));
            async move { eligibility::hold(&parts, &input).await }
        };
        let resume = || {
            let (parts, input) = (parts(), self.watch_input("2"));
            async move { eligibility::resume(&parts, &input).await }
        };
        let standing = execute(self.how, hold).await;
        assert!(standing.held.is_some());
        let standing = execute(self.how, resume).await;
        assert!(standing.held.is_none());
        // Late, after what was decided since.
        assert!(execute(self.how, hold).await.held.is_none());
        assert_eq!(execute(self.how, freeze).await.selected, 4);
        let enqueued = execute(self.how, || {
            let (run, ledger) = (self.run.clone(), self.ledger.clone());
            let (parts, input) = (parts(), EnqueueInput { run, ledger, after: 0, until: 4 });
            async move { eligibility::enqueue(&parts, &input).await }
        });
        assert_eq!(enqueued.await.keys.len(), 4);
    }

    async fn deliver(&self, key: &OperationKey) {
        execute(self.how, || {
            let (parts, client) = (Arc::clone(&self.bench.parts), self.client.clone());
            let operation = self.operation(key);
            let input = DeliverInput { operation, generation: 1, ordinal: 1, slot: None };
            async move { delivery::deliver(&parts, &client, input).await }
        })
        .await;
    }

    async fn reconcile(&self, key: &OperationKey) {
        execute(self.how, || {
            let (parts, input) = (Arc::clone(&self.bench.parts), self.operation(key));
            async move { reconciliation::reconcile(&parts, &input).await }
        })
        .await;
    }

    async fn record_delivered(&self, key: &OperationKey) {
        execute(self.how, || {
            let input = RecordInput {
                operation: self.operation(key),
                event: Event::Judged { verdict: Verdict::Delivered, attempt: Some(1) },
                by: "kim".to_owned(),
                reason: Some("asked".to_owned()),
                proof: None,
            };
            let parts = Arc::clone(&self.bench.parts);
            async move { reconciliation::record(&parts, &input).await }
        })
        .await;
    }

    async fn clean_up(&self, key: &OperationKey) {
        execute(self.how, || {
            let (parts, input) = (Arc::clone(&self.bench.parts), self.operation(key));
            async move { cleanup::clean_up(&parts, &input).await }
        })
        .await;
    }

    async fn watch(&self) -> bool {
        let standing = execute(self.how, || {
            let (parts, input) = (Arc::clone(&self.bench.parts), self.watch_input(""));
            async move { eligibility::watch(&parts, &input).await }
        });
        standing.await.closed
    }
}

/// Goes through all activities of a run of four: one is accepted, of one the answer is lost and
/// found by a look-up, one is refused, and one is lost and judged.
async fn story(how: How, world: &World) -> Story {
    let bench = world.bench().await;
    let period = PERIOD.parse().unwrap();
    let run = RunStart { campaign: world.campaign.clone(), period, tick: None };
    let RunPlan { ledger, rules, .. } = execute(how, || {
        let (parts, run) = (Arc::clone(&bench.parts), run.clone());
        async move { eligibility::open_run(&parts, &run).await }
    })
    .await;
    let client = world.client.clone();
    let story = Story { bench, how, run, ledger, rules, client };
    story.open_and_freeze().await;
    let keys: Vec<OperationKey> =
        (1..=4).map(|number| world.key(&format!("customer-{number:04}"))).collect();
    for key in &keys {
        story.deliver(key).await;
    }
    // Both executions of a delivery have ended, but its answer may still be on its way.
    for (key, state) in keys.iter().zip(["sent", "unknown", "dead", "unknown"]) {
        world.until_state(key, state).await;
    }
    story.reconcile(&keys[1]).await;
    world.until_state(&keys[1], "sent").await;
    story.record_delivered(&keys[3]).await;
    until("the end of the lease", async || {
        story.reconcile(&keys[3]).await;
        let operations = world.operations().await;
        (operations[&keys[3].to_string()] == "sent").then_some(())
    })
    .await;
    for key in &keys {
        story.clean_up(key).await;
    }
    assert!(story.watch().await, "the run is not closed");
    story
}

/// Everything that the ledger holds, without times and what is drawn.
async fn dump(ledger: &Database) -> BTreeMap<&'static str, Vec<(String, String)>> {
    const TIMED: [&str; 2] = ["retry_at", "asked_at"];
    let mut all = BTreeMap::new();
    for (table, sql) in [
        (
            "runs",
            "select period, state || '|' || selected || '|' || unkeyed || '|' || seen || '|' || \
             coalesce(held_because, '-') from @runs",
        ),
        (
            "operations",
            "select key, state || '|' || coalesce(class, '-') || '|' || attempts || '|' || at_rest \
             || '|' || contradicted || '|' || (content_hash is null) || '|' || \
             coalesce(message_id, '-') from @operations order by key",
        ),
        ("machines", "select key, machine from @operations order by key"),
        (
            "attempts",
            "select key, number || '|' || generation || '|' || ordinal || '|' || \
             coalesce(outcome, '-') || '|' || coalesce(class, '-') || '|' || coalesce(code, '-') \
             || '|' || coalesce(message_id, '-') from @attempts order by key, number",
        ),
        ("letters", "select key, class || '|' || code from @dead_letters order by key"),
        ("messages", "select key, 'stored' from @messages order by key"),
        ("rows", "select key, data from @digest_rows order by key"),
        ("faults", "select kind, coalesce(customer, '-') from @selection_faults order by kind"),
        // Who came second is noted, or sees the doubt of who came first; what changed a state but to
        // a doubt is the same.
        (
            "decisions",
            "select coalesce(key, '-'), event || '|' || coalesce(to_state, '-') || '|' || \
             decided_by from @decisions where note is null and from_state <> to_state \
             and from_state <> 'unknown' and to_state <> 'unknown' order by key, event",
        ),
    ] {
        let mut rows = ledger.pairs(sql).await;
        if table == "machines" {
            for (_, machine) in &mut rows {
                let mut fields: Value = serde_json::from_str(machine).unwrap();
                let fields = fields.as_object_mut().unwrap();
                fields.retain(|name, _| !TIMED.contains(&name.as_str()) && name != "lookups");
                *machine = without_times(&Value::Object(fields.clone())).to_string();
            }
        }
        all.insert(table, rows);
    }
    all
}

/// Instants become one word.
fn without_times(value: &Value) -> Value {
    match value {
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "a time".into(),
        Value::String(text) if text.parse::<jiff::SignedDuration>().is_ok() => "a while".into(),
        Value::Array(values) => values.iter().map(without_times).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), without_times(value))).collect()
        }
        other => other.clone(),
    }
}

fn plan(name: &str) -> Plan {
    let fault = |customer: &str, kinds: &[&str], invisible: bool| {
        let kinds: Vec<toml::Value> = kinds.iter().map(|kind| (*kind).into()).collect();
        let mut table = toml::Table::new();
        table.insert("customer".to_owned(), customer.into());
        table.insert("kinds".to_owned(), kinds.into());
        table.insert("invisible".to_owned(), invisible.into());
        toml::Value::Table(table)
    };
    let faults = vec![
        fault("customer-0002", &["accept_then_reset"], false),
        fault("customer-0003", &["reject"], false),
        fault("customer-0004", &["accept_then_hang"], true),
    ];
    world(name)
        .customers(4)
        .with("sandbox.contract", "lookup_hits_only")
        .with("sandbox.fault", faults)
        .with("provider.timeout", "500ms")
        .with("provider.lease", "1500ms")
}

/// The ledger after each way of executing, which must be the same.
async fn compare(name: &str, of: impl Fn(Plan) -> Plan) {
    let mut dumps = Vec::new();
    for how in [How::Once, How::InSequence, How::AtOnce] {
        let plan = of(plan(name));
        let Some(world) = plan.start().await else { return };
        let story = story(how, &world).await;
        world.check().await;
        assert_eq!(world.requests().len(), 4, "{how:?}: something was handed over again");
        dumps.push((how, dump(&world.ledger).await));
        story.bench.close().await;
    }
    let (_, once) = dumps.remove(0);
    for (how, dump) in dumps {
        for (table, rows) in &once {
            assert_eq!(&dump[table], rows, "{how:?}: {table} differ");
        }
    }
    println!("n = 10 activities, each executed twice in sequence and twice at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_activity_executed_twice_leaves_the_ledger_of_one_execution_in_sqlite() {
    compare("twice", |plan| plan).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn every_activity_executed_twice_leaves_the_ledger_of_one_execution_in_postgres() {
    compare("twice-postgres", Plan::postgres).await;
}
