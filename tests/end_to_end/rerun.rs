//! After half were sent: workflows reset, terminated and started again, or continued as new; and an
//! engine that has forgotten everything.

use crate::end_to_end::world::{PERIOD, Plan, World, counts, exactly, server, until, world};
use digestd::assemble;
use digestd::sweep::Sweep;
use futures::future::join_all;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{UntypedWorkflow, WorkflowTerminateOptions};
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::workflowservice::v1::ResetWorkflowExecutionRequest;

/// Which workflows something is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Customers,
    Pages,
    Run,
}

/// What is done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Reset,
    Terminated,
    ContinuedAsNew,
}

impl World {
    /// Ids and runs of the workflows of one type that there are now.
    async fn of(&self, who: Who) -> Vec<(String, String)> {
        let kind = match who {
            Who::Customers => "CustomerDigest",
            Who::Pages => "DigestPage",
            Who::Run => "DigestRun",
        };
        self.workflows(&format!("WorkflowType = '{kind}'")).await
    }

    /// Resets a workflow, open or closed, to its first task.
    async fn reset_to_start(&self, id: &str, run: &str) {
        let history = self.history(id, run).await;
        let first = |kind| history.iter().find(|event| event.event_type() == kind);
        // One that has no task behind it yet has nothing to be reset.
        let Some(point) = first(EventType::WorkflowTaskCompleted) else { return };
        let request = ResetWorkflowExecutionRequest {
            namespace: "default".to_owned(),
            workflow_execution: Some(exactly(id, run)),
            reason: "a test".to_owned(),
            workflow_task_finish_event_id: point.event_id,
            request_id: format!("reset {id}"),
            ..ResetWorkflowExecutionRequest::default()
        };
        let request = request.into_request();
        WorkflowService::reset_workflow_execution(&mut self.client.clone(), request).await.unwrap();
    }

    /// Terminates a workflow if it is still open.
    async fn terminate_if_open(&self, id: &str) {
        let options = WorkflowTerminateOptions::builder().reason("a test".to_owned()).build();
        let workflow = self.client.get_workflow_handle::<UntypedWorkflow>(id);
        workflow.terminate(options).await.ok();
    }

    /// Sends signals that only make a history longer, until the workflow is continued as new.
    async fn until_continued_as_new(&self, id: &str, run: &str, signal: &str) {
        const AT_ONCE: usize = 250;
        while self.history(id, run).await.len() < EVENTS_MAX {
            join_all((0..AT_ONCE).map(|_| self.try_signal(id, signal, Vec::new()))).await;
            // The engine lets no workflow end while signals arrive that it has not seen.
            let last = until("the workflow to have seen its signals", async || {
                let last = self.history(id, run).await.last().map(HistoryEvent::event_type);
                last.filter(|last| !AWAITS_THE_WORKFLOW.contains(last))
            })
            .await;
            if last == EventType::WorkflowExecutionContinuedAsNew {
                return;
            }
        }
        panic!("{id} has {EVENTS_MAX} events and is not continued as new");
    }

    /// Starts again what the engine has lost, as the worker does each minute.
    async fn sweep(&self) {
        let (config, secrets) = self.loaded();
        let ledger = assemble::ledger(&config, &secrets).await.unwrap();
        self.half_a_minute_passes().await;
        let sweep = Sweep {
            ledger: ledger.clone(),
            client: self.client.clone(),
            campaign: self.campaign.clone(),
            task_queue: config.engine.task_queue.clone(),
            rules: config.rules(),
        };
        sweep.once().await.unwrap();
        ledger.close().await;
    }
}

const CUSTOMERS: usize = 24;
/// No history has as many events.
const EVENTS_MAX: usize = 4_096;
/// The last events of a history in which the workflow has not seen everything yet.
const AWAITS_THE_WORKFLOW: [EventType; 4] = [
    EventType::WorkflowExecutionSignaled,
    EventType::WorkflowTaskScheduled,
    EventType::WorkflowTaskStarted,
    EventType::WorkflowTaskFailed,
];

/// A run that is slow enough to be caught in the middle, and one of whose answers is lost.
fn slow(name: &str) -> Plan {
    let fault = toml::toml! { customer = "customer-0002" kinds = ["accept_then_hang"] };
    world(name)
        .customers(CUSTOMERS)
        .with("sandbox.fault", vec![toml::Value::Table(fault)])
        .with("dispatch.page_size", 6)
        .with("dispatch.in_flight", 12)
        .with("provider.rate_per_second", 8.0)
}

/// Everybody is accounted for, and nobody was sent to twice.
async fn all_accounted_for(world: &World) {
    let status = world.closed().await;
    let n = u64::try_from(CUSTOMERS).unwrap();
    counts(&status, &[("selected", n), ("missing_count", 0), ("dead", 0), ("suppressed", 0)]);
    let of = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(of("cleaned") + of("unknown"), n, "{status:#}");
    assert!(of("unknown") >= 1, "the lost answer was taken for something else");
    assert!(world.inbox().len() > usize::try_from(of("cleaned")).unwrap());
    world.check().await;
}

async fn script(who: Who, done: Done) {
    let name = format!("rerun-{who:?}-{done:?}").to_lowercase();
    let Some(world) = slow(&name).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let half = CUSTOMERS / 2;
    until("half of the messages", async || (world.inbox().len() >= half).then_some(())).await;
    let found = until("the workflows in the list", async || {
        let found = world.of(who).await;
        (!found.is_empty()).then_some(found)
    })
    .await;
    match (who, done) {
        (_, Done::Reset) => {
            for (id, run) in &found {
                world.reset_to_start(id, run).await;
            }
        }
        (_, Done::Terminated) => {
            for (id, _) in &found {
                world.terminate_if_open(id).await;
            }
        }
        (Who::Run, Done::ContinuedAsNew) => {
            let (id, run) = &found[0];
            // It must still be there when its history has grown long.
            world.digestd(&format!("hold --period {PERIOD} --reason continued")).await;
            world.until_continued_as_new(id, run, "look").await;
            world.digestd(&format!("resume --period {PERIOD} --reason continued --yes")).await;
        }
        (_, Done::ContinuedAsNew) => {
            let id = world.key("customer-0002").to_string();
            let run = until("the unknown one in the list", async || {
                world.of(who).await.into_iter().find(|(found, _)| *found == id)
            });
            let (id, run) = run.await;
            world.until_continued_as_new(&id, &run, "hold").await;
        }
    }
    world.sweep().await;
    all_accounted_for(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn whatever_is_reset_terminated_or_continued_after_half_sends_nothing_twice() {
    let scripts = [
        (Who::Customers, Done::Reset),
        (Who::Customers, Done::Terminated),
        (Who::Customers, Done::ContinuedAsNew),
        (Who::Pages, Done::Reset),
        (Who::Pages, Done::Terminated),
        (Who::Run, Done::Reset),
        (Who::Run, Done::Terminated),
        (Who::Run, Done::ContinuedAsNew),
    ];
    for two in scripts.chunks(2) {
        join_all(two.iter().map(|(who, done)| script(*who, *done))).await;
    }
    let n = u32::try_from(scripts.len()).unwrap();
    println!("n = {n} scripts: 0 duplicates, so below {:.2}", 3.0 / f64::from(n));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn an_engine_that_has_forgotten_everything_three_times_sends_nothing_twice() {
    let Some(mut engine) = server(None).await else { return };
    let Some(mut world) = slow("forgetful").start_on(engine.address()).await else { return };
    let mut worker = world.worker().await;
    world.start_run().await;
    for wiped in 1..=3 {
        let share = CUSTOMERS * wiped / 4;
        until(&format!("{share} messages"), async || (world.inbox().len() >= share).then_some(()))
            .await;
        engine.kill();
        worker.kill();
        world.check().await;
        let Some(empty) = server(None).await else { return };
        engine = empty;
        world.move_to(engine.address()).await;
        assert!(world.workflows("").await.is_empty());
        // The same week again, by the command and by the sweep.
        world.half_a_minute_passes().await;
        worker = world.worker().await;
        let again = world.digestd(&format!("run --period {PERIOD}")).await;
        assert!([0, 3].contains(&again.code), "{again:?}");
    }
    all_accounted_for(&world).await;
    println!("n = 3 wiped engines: 0 duplicates, so below 1");
}
