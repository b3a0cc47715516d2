//! What the engine could do at best: the same pages, whose children do nothing.

#![expect(clippy::unused_async, reason = "activities and workflows that do nothing await nothing")]

use crate::args::Args;
use crate::figures::What;
use anyhow::{Context as _, anyhow};
use digest_workflows::attributes;
use digest_workflows::operation::OperationKey;
use digestd::threads;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use temporalio_client::{Client, UntypedWorkflow, WorkflowGetResultOptions, WorkflowStartOptions};
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use temporalio_workflow::{
    ChildWorkflowOptions, LocalActivityOptions, ParentClosePolicy, WorkflowContext, WorkflowResult,
};
use tokio::sync::watch;

/// Children that are past what they do. The workers live in this process.
static DONE: AtomicU64 = AtomicU64::new(0);

/// A run of children.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Children {
    /// What their ids begin with.
    name: String,
    from: u64,
    until: u64,
    page: u64,
    in_flight: u64,
    /// Whether each has two local activities.
    active: bool,
    /// Whether each has the search attributes of digestd's.
    attributes: bool,
}

/// The activities.
struct Nothing;

#[activities]
impl Nothing {
    /// Does nothing, as what a page asks before it starts its children.
    #[activity]
    async fn enqueue(_ctx: ActivityContext, until: u64) -> Result<u64, ActivityError> {
        Ok(until)
    }

    /// How many of the first `started` children are done.
    #[activity]
    async fn done(_ctx: ActivityContext, _started: u64) -> Result<u64, ActivityError> {
        Ok(DONE.load(Ordering::SeqCst))
    }

    #[activity]
    async fn first(_ctx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
        Ok(number)
    }

    #[activity]
    async fn second(_ctx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
        DONE.fetch_add(1, Ordering::SeqCst);
        Ok(number)
    }
}

fn local() -> LocalActivityOptions {
    LocalActivityOptions::builder().start_to_close_timeout(Duration::from_mins(1)).build()
}

/// As `DigestRun` dispatches: two pages at a time while there is room.
#[workflow]
#[derive(Default)]
struct BareRun;

#[workflow_methods]
impl BareRun {
    #[run(name = "BareRun")]
    async fn run(ctx: &mut WorkflowContext<Self>, all: Children) -> WorkflowResult<()> {
        let mut cursor = all.from;
        while cursor < all.until {
            let done = ctx.execute_local_activity(Nothing::done, cursor, local()).await?;
            let in_flight = cursor.saturating_sub(done);
            let room = all.in_flight.saturating_sub(in_flight) / all.page;
            if room == 0 && in_flight > 0 {
                ctx.timer(Duration::from_secs(1)).await;
                continue;
            }
            let until = all.until.min(cursor + room.clamp(1, 2) * all.page);
            let mut pages = Vec::new();
            while cursor < until {
                let page =
                    Children { from: cursor, until: until.min(cursor + all.page), ..all.clone() };
                let options = ChildWorkflowOptions::builder()
                    .workflow_id(format!("{}-page:{cursor}", all.name))
                    .parent_close_policy(ParentClosePolicy::Abandon)
                    .build();
                cursor = page.until;
                pages.push(ctx.start_child_workflow(BarePage::run, page, options));
            }
            for page in pages {
                page.await?.result().await?;
            }
        }
        Ok(())
    }
}

/// As `DigestPage`: asks once, starts its children, and ends.
#[workflow]
#[derive(Default)]
struct BarePage;

#[workflow_methods]
impl BarePage {
    #[run(name = "BarePage")]
    async fn run(ctx: &mut WorkflowContext<Self>, page: Children) -> WorkflowResult<()> {
        ctx.execute_local_activity(Nothing::enqueue, page.until, local()).await?;
        let options = |number: u64| {
            let id = format!("{}:2024-W10:{number}", page.name);
            let key = OperationKey::parse(&id).ok().filter(|_| page.attributes);
            ChildWorkflowOptions::builder()
                .workflow_id(id)
                .parent_close_policy(ParentClosePolicy::Abandon)
                .maybe_search_attributes(key.as_ref().map(attributes::of_operation))
                .build()
        };
        if page.active {
            let starts: Vec<_> = (page.from..page.until)
                .map(|number| ctx.start_child_workflow(ActiveChild::run, number, options(number)))
                .collect();
            for start in starts {
                start.await?;
            }
        } else {
            let starts: Vec<_> = (page.from..page.until)
                .map(|number| ctx.start_child_workflow(EmptyChild::run, number, options(number)))
                .collect();
            for start in starts {
                start.await?;
            }
        }
        Ok(())
    }
}

/// Two local activities that do nothing.
#[workflow]
#[derive(Default)]
struct ActiveChild;

#[workflow_methods]
impl ActiveChild {
    #[run(name = "ActiveChild")]
    async fn run(ctx: &mut WorkflowContext<Self>, number: u64) -> WorkflowResult<()> {
        ctx.execute_local_activity(Nothing::first, number, local()).await?;
        ctx.execute_local_activity(Nothing::second, number, local()).await?;
        Ok(())
    }
}

/// Nothing at all.
#[workflow]
#[derive(Default)]
struct EmptyChild;

#[workflow_methods]
impl EmptyChild {
    #[run(name = "EmptyChild")]
    async fn run(_ctx: &mut WorkflowContext<Self>, _number: u64) -> WorkflowResult<()> {
        DONE.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Runs as many children as there are customers through workers of this process; how long it took
/// until the last one was done.
pub(crate) async fn run(
    client: &Client,
    args: &Args,
    name: &str,
    what: What,
) -> anyhow::Result<Duration> {
    let (stop, stopped) = watch::channel(false);
    let mut threads = Vec::new();
    for _ in 0..args.workers {
        let (client, stopped, queue) = (client.clone(), stopped.clone(), name.to_owned());
        let concurrency = usize::try_from(args.concurrency)?;
        threads.push(std::thread::spawn(move || {
            threads::runtime()?.block_on(work(client, &queue, concurrency, stopped))
        }));
    }
    DONE.store(0, Ordering::SeqCst);
    let all = Children {
        name: name.to_owned(),
        from: 0,
        until: u64::from(args.customers),
        page: u64::from(args.page_size),
        in_flight: u64::from(args.in_flight),
        active: what != What::EmptyChild,
        attributes: what == What::NoOpsWithAttributes,
    };
    let begun = Instant::now();
    let options = WorkflowStartOptions::new(name, format!("{name}-run")).build();
    client.start_workflow(BareRun::run, all, options).await?;
    let last = format!("{name}:2024-W10:{}", args.customers - 1);
    while DONE.load(Ordering::SeqCst) < u64::from(args.customers) {
        anyhow::ensure!(begun.elapsed() < Duration::from_mins(10), "the children do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    let last = client.get_workflow_handle::<UntypedWorkflow>(last);
    last.get_result(WorkflowGetResultOptions::default()).await.context("the last child")?;
    stop.send(true)?;
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a worker that does nothing panicked"))??;
    }
    Ok(took)
}

async fn work(
    client: Client,
    queue: &str,
    concurrency: usize,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let runtime = Runtime::from_current_tokio(
        RuntimeOptions::builder().build().map_err(|error| anyhow!("{error}"))?,
    )?;
    // The same places as a worker of digestd has.
    let tuner = TunerHolder::builder()
        .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(concurrency + 20))
        .activity_task_slot_supplier(FixedSizeSlotSupplier::new(10))
        .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(concurrency))
        .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
        .build();
    let options = WorkerOptions::new(queue)
        .tuner(tuner)
        .graceful_shutdown_period(Duration::from_secs(1))
        .register_activities(Nothing)
        .register_workflow::<BareRun>()?
        .register_workflow::<BarePage>()?
        .register_workflow::<ActiveChild>()?
        .register_workflow::<EmptyChild>()?
        .build();
    let mut worker = Worker::new(&runtime, client, options).map_err(|error| anyhow!("{error}"))?;
    let shutdown = worker.shutdown_handle();
    let ending = async {
        stopped.wait_for(|stopped| *stopped).await.ok();
        shutdown();
    };
    let (result, ()) = tokio::join!(worker.run(), ending);
    result.map_err(|error| anyhow!("{error}"))
}
