//! `digestd audit`: what balances, what differs, and that looking changes nothing.

use crate::end_to_end::world::{PERIOD, World, exactly, until, world};
use digest_activities::provider::sandbox::{Behaviour, Sandbox};
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::customer::{CustomerDigest, CustomerInput};
use digest_workflows::operation::Period;
use digest_workflows::run::{DigestRun, RunInput};
use digestd::assemble;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{UntypedWorkflow, WorkflowDescribeOptions, WorkflowStartOptions};
use temporalio_common::protos::temporal::api::workflowservice::v1::DeleteWorkflowExecutionRequest;

/// Faults of customers by number.
fn faults(of: &[(u32, &str)]) -> Vec<toml::Value> {
    of.iter()
        .map(|(customer, kind)| {
            let mut fault = toml::Table::new();
            fault.insert("customer".to_owned(), format!("customer-{customer:04}").into());
            fault.insert("kinds".to_owned(), vec![toml::Value::from(*kind)].into());
            toml::Value::Table(fault)
        })
        .collect()
}

/// The kinds and keys of a report's differences, in its order.
fn named(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |one: &Value| (text(&one["kind"]), text(&one["key"]));
    report["differences"].as_array().unwrap().iter().map(one).collect()
}

/// Everything that the ledger has on record, but for the place of each row.
async fn records(world: &World) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for sql in [
        "select key, machine || since || coalesce(enqueued_at, 0) from @operations order by key",
        "select key, coalesce(outcome, '') || decided_at from @attempts order by key, number",
        "select cast(max(id) as text), cast(count(*) as text) from @decisions",
        "select name, cast(next_slot as text) from @pace order by name",
        "select period, state || selected from @runs order by period",
    ] {
        all.extend(world.ledger.pairs(sql).await);
    }
    all
}

async fn balances(world: &World) {
    let _worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    let before = records(world).await;
    let report = world.audit().await;
    let compared = json!({"ledger": 6, "engine": 6, "provider": 6, "provider_elsewhere": 0});
    assert_eq!(report["compared"], compared, "{report:#}");
    assert_eq!((&report["selected"], &report["balanced"]), (&json!(6), &json!(true)));
    assert_eq!(report["states"], json!({"cleaned": 5, "dead": 1}), "{report:#}");
    assert_eq!(report["waiting_for_human"], 0);
    assert_eq!(world.audit().await, report, "the second one tells something else");
    assert_eq!(records(world).await, before, "looking has changed something");

    let (code, offline) = world.audited("--no-provider").await;
    assert_eq!((code, &offline["compared"]["provider"]), (0, &Value::Null), "{offline:#}");
    let said = world.digestd(&format!("audit --period {PERIOD}")).await;
    assert_eq!(said.code, 0, "{said:?}");
    let last = said.stdout.lines().last().unwrap();
    assert_eq!(
        last,
        "the books balance: 6 keys compared in the ledger, 6 with the engine, 6 with the provider"
    );
    assert!(!said.stdout.contains('@') && !said.stderr.contains('@'), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_of_an_ordinary_run_balance() {
    let plan = world("audit-balance").customers(6).with("sandbox.contract", "lookup");
    let plan = plan.with("sandbox.fault", faults(&[(2, "refuse_recipient"), (3, "overload")]));
    let Some(world) = plan.start().await else { return };
    balances(&world).await;
    let unknown = world.digestd("audit --period 2024-W33").await;
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("knows no run of audit-balance in 2024-W33"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_balance_on_postgresql() {
    let plan = world("audit-postgres").postgres().customers(6);
    let plan = plan.with("sandbox.contract", "lookup");
    let plan = plan.with("sandbox.fault", faults(&[(2, "refuse_recipient"), (3, "overload")]));
    let Some(world) = plan.start().await else { return };
    balances(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_be_asked_is_told_and_costs_nothing() {
    let Some(world) = world("audit-silent").customers(2).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    let report = world.audit().await;
    assert_eq!(report["compared"]["provider"], Value::Null);
    assert_eq!(report["provider_not_asked"], "its contract has no look-up by key");
    let said = world.digestd(&format!("audit --period {PERIOD}")).await;
    assert!(said.stdout.contains("the provider was not asked: its contract has no"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_that_the_provider_has_lost_is_named() {
    let plan = world("audit-lost").customers(8).with("sandbox.contract", "lookup");
    let Some(world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    worker.kill();
    let lost: BTreeSet<String> = ["customer-0002", "customer-0005", "customer-0008"]
        .map(|c| world.key(c).to_string())
        .into();
    world.rewrite_log(|mut line| {
        let key = line["key"].as_str().unwrap().to_owned();
        let gone = line["event"] == "acceptance" && lost.contains(&key);
        (!gone).then(|| line.take())
    });
    // Until the last lease is over and settled, a miss proves nothing.
    let report = until("the lost ones", async || {
        let (code, report) = world.audited("").await;
        let found = named(&report);
        assert_eq!(code, i32::from(!found.is_empty()), "{report:#}");
        (found.len() >= lost.len()).then_some(report)
    })
    .await;
    let expected: Vec<_> =
        lost.iter().map(|key| ("unknown_to_provider".to_owned(), key.clone())).collect();
    assert_eq!(named(&report), expected, "{report:#}");
    assert_eq!(report["balanced"], false);
    let said = world.digestd(&format!("audit --period {PERIOD}")).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(lost.iter().all(|key| said.stdout.contains(key.as_str())), "{said:?}");
    let summary = said.stdout.lines().last().unwrap();
    assert!(summary.starts_with("the books do not balance, 3 differences: 8 keys"), "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_seeded_difference_is_named_once_and_nothing_else() {
    let hang = "hang_before_acceptance";
    let of = [(2, hang), (3, hang), (4, "refuse_recipient"), (7, hang)];
    let plan = world("audit-seeds").customers(9).with("sandbox.fault", faults(&of));
    let plan = plan.with("sandbox.contract", "lookup_hits_only");
    let Some(world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    assert_eq!((&status["unknown"], &status["dead"]), (&json!(3), &json!(1)), "{status:#}");
    worker.kill();
    world.a_minute_passes().await;
    let report = world.audit().await;
    assert_eq!(report["waiting_for_human"], 3, "{report:#}");
    let noted = report["noted"].as_array().unwrap();
    assert!(noted.len() == 3 && noted.iter().all(|one| one["kind"] == "overdue"), "{report:#}");

    let key = |customer: u32| world.key(&format!("customer-{customer:04}")).to_string();
    // Between the provider and the ledger.
    world.rewrite_log(|mut line| {
        if line["event"] == "acceptance" && line["key"] == key(5) {
            line["id"] = "sandbox-other".into();
        }
        Some(line.take())
    });
    for customer in [3, 4] {
        world.append_to_log(&json!({
            "event": "acceptance", "number": 100 + customer, "key": key(customer), "id": "late",
            "body_hash": "00", "at": "2024-03-04T00:00:00Z",
        }));
    }
    // Within the ledger.
    let (one, six) = (key(1), key(6));
    world.ledger.execute(&format!("insert into @digest_rows values ('{one}', '{{}}')")).await;
    world.ledger.execute(&format!("delete from @operations where key = '{six}'")).await;
    // Between the ledger and the engine.
    world.terminate(&key(2)).await;
    world.delete_workflow(&key(7)).await;
    world.start_customer("customer-0008").await;
    world.start_customer("customer-9999").await;
    let run = world.start_run_workflow().await;
    let mut expected = vec![
        ("operation_missing", key(6)),
        ("accepted_not_sent", key(4)),
        ("content_left", key(1)),
        ("run_workflow_left_open", run.clone()),
        ("no_workflow", key(7)),
        ("workflow_ended", key(2)),
        ("workflow_left_open", key(8)),
        ("stray_workflow", key(9999)),
        ("other_message", key(5)),
        ("accepted_unknown", key(3)),
    ];
    world.finds(&expected).await;

    // The other way round, and a number that nothing else explains.
    world.terminate(&run).await;
    let sql = "update @runs set state = 'dispatching', selected = selected + 5";
    world.ledger.execute(sql).await;
    expected[3] = ("run_without_workflow", run.clone());
    expected.insert(0, ("selection_count", run));
    world.finds(&expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_during_a_run_finds_nothing() {
    let shares = toml::toml! { overload = 0.1 accept_then_reset = 0.1 };
    let plan = world("audit-running").customers(60).with("dispatch.page_size", 20);
    let plan = plan.with("sandbox.contract", "lookup").with("sandbox.shares", shares);
    let plan = plan.with("provider.rate_per_second", 20.0);
    let Some(world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    let mut audits = 0;
    until("the end of the run", async || {
        let status = world.digestd(&format!("status --period {PERIOD} --json")).await;
        let Ok(status) = serde_json::from_str::<Value>(&status.stdout) else { return None };
        world.audit().await;
        audits += 1;
        (status["state"] == "closed").then_some(())
    })
    .await;
    let bound = 3.0 / f64::from(audits);
    println!("{audits} audits during a run: 0 false differences (below {bound:.2} each)");
    assert!(audits > 1);
    worker.kill();
    world.audit().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_elsewhere_is_not_asked_and_a_silent_one_ends_the_audit() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let sandbox = async || Sandbox::start(Behaviour::lookup(true), any, None).await.unwrap();
    let first = sandbox().await;
    let plan = world("audit-elsewhere").customers(3).with("sandbox.contract", "lookup");
    let Some(mut world) = plan.with("provider.url", first.url()).start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    assert_eq!(world.audit().await["compared"]["provider"], 3);
    worker.kill();
    first.stop().await;
    let said = world.digestd(&format!("audit --period {PERIOD}")).await;
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    assert!(said.stderr.contains("leave it out with --no-provider"), "{said:?}");
    world.audited("--no-provider").await;

    let second = sandbox().await;
    world.edit("provider.url", second.url());
    let compared = &world.audit().await["compared"];
    assert_eq!((&compared["provider"], &compared["provider_elsewhere"]), (&json!(0), &json!(3)));
    let said = world.digestd(&format!("audit --period {PERIOD}")).await;
    assert!(said.stdout.contains("3 were handed to another provider or account"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_are_compared_at_the_rate_of_the_provider() {
    let count = how_many();
    let plan = world("audit-many").customers(count as usize).with("sandbox.contract", "lookup");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 0, "{run:?}");
    let begun = Instant::now();
    let report = world.audit().await;
    let took = begun.elapsed();
    println!("an audit of {count} keys took {took:?}");
    assert_eq!(report["compared"]["provider"], count);
    let least = Duration::from_secs_f64(f64::from(count - 1) / RATE);
    assert!(took > least, "faster than {RATE} look-ups a second");
    let begun = Instant::now();
    world.audited("--no-provider").await;
    println!("without the provider it took {:?}", begun.elapsed());
}

/// The rate per second that worlds have.
const RATE: f64 = 500.0;

/// How many customers; 300 unless `DIGESTD_TEST_CUSTOMERS` says otherwise.
fn how_many() -> u32 {
    std::env::var("DIGESTD_TEST_CUSTOMERS").map_or(300, |text| text.parse().unwrap())
}

impl World {
    /// The audit finds exactly these, in this order.
    async fn finds(&self, expected: &[(&str, String)]) {
        let expected: Vec<_> =
            expected.iter().map(|(kind, key)| ((*kind).to_owned(), key.clone())).collect();
        for _ in 0..2 {
            let (code, report) = self.audited("").await;
            assert_eq!(named(&report), expected, "{report:#}");
            assert_eq!(code, 1);
            let all = report["differences"].as_array().unwrap();
            let told = |one: &Value| {
                ["expected", "found", "cure"].iter().all(|name| one[name].as_str() != Some(""))
            };
            assert!(all.iter().all(told), "{report:#}");
        }
    }

    /// Writes the sandbox's log anew, each line as `edit` wants it.
    fn rewrite_log(&self, edit: impl Fn(Value) -> Option<Value>) {
        let path = self.folder().join("sandbox.log");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter_map(|line| edit(serde_json::from_str(line).unwrap()));
        let mut lines: Vec<String> = lines.map(|line| line.to_string()).collect();
        lines.push(String::new());
        std::fs::write(&path, lines.join("\n")).unwrap();
    }

    fn append_to_log(&self, line: &Value) {
        let path = self.folder().join("sandbox.log");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{line}\n")).unwrap();
    }

    /// Makes everything look a minute older, so that nothing is under way any more.
    async fn a_minute_passes(&self) {
        let sql = "update @operations set enqueued_at = enqueued_at - 60000, \
                   since = since / 1000 * 1000 - 60000, machine = json_set(machine, '$.since', \
                   strftime('%Y-%m-%dT%H:%M:%SZ', since / 1000 - 60, 'unixepoch'))";
        assert!(self.ledger.execute(sql).await > 0);
        self.ledger.execute("update @runs set closed_at = closed_at - 60000").await;
    }

    /// Makes the engine forget a workflow.
    async fn delete_workflow(&self, id: &str) {
        let request = DeleteWorkflowExecutionRequest {
            namespace: "default".to_owned(),
            workflow_execution: Some(exactly(id, "")),
        };
        let mut client = self.client.clone();
        WorkflowService::delete_workflow_execution(&mut client, request.into_request())
            .await
            .unwrap();
        until("a forgotten workflow", async || {
            let workflow = self.client.get_workflow_handle::<UntypedWorkflow>(id.to_owned());
            workflow.describe(WorkflowDescribeOptions::default()).await.is_err().then_some(())
        })
        .await;
    }

    /// Starts the workflow of a customer, and waits until the engine lists it.
    async fn start_customer(&self, customer: &str) {
        let (config, secrets) = self.loaded();
        let ledger = assemble::ledger(&config, &secrets).await.unwrap();
        let key = self.key(customer);
        let input = CustomerInput {
            key: key.clone(),
            ledger: ledger.identity().clone(),
            rules: config.rules(),
        };
        let options = WorkflowStartOptions::new(self.campaign.clone(), key.to_string())
            .search_attributes(attributes::of_operation(&key))
            .build();
        self.client.start_workflow(CustomerDigest::run, input, options).await.unwrap();
        ledger.close().await;
        until("the workflow in the list", async || {
            let open = self.workflows("ExecutionStatus = 'Running'").await;
            open.iter().any(|(id, _)| *id == key.to_string()).then_some(())
        })
        .await;
    }

    /// Starts the workflow of the run of [`PERIOD`]; its id.
    async fn start_run_workflow(&self) -> String {
        let period: Period = PERIOD.parse().unwrap();
        let id = digest_workflows::run_id(&self.campaign, period);
        let start = RunStart { campaign: self.campaign.clone(), period, tick: None };
        let options = WorkflowStartOptions::new(self.campaign.clone(), id.clone())
            .search_attributes(attributes::of_run(&self.campaign, period))
            .build();
        self.client.start_workflow(DigestRun::run, RunInput::new(start), options).await.unwrap();
        id
    }
}
