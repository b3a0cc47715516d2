//! The smallest child workflow that there can be, to compare with.

#![expect(clippy::unused_async, reason = "a workflow that does nothing awaits nothing")]

use crate::end_to_end::world::{Cost, World, cost, until};
use std::time::Duration;
use temporalio_client::{
    Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowStartOptions,
};
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use temporalio_workflow::{
    ChildWorkflowOptions, ParentClosePolicy, WorkflowContext, WorkflowResult,
};

/// Starts children that do nothing, and ends.
#[workflow]
#[derive(Default)]
pub(crate) struct EmptyParent;

#[workflow_methods]
impl EmptyParent {
    #[run(name = "EmptyParent")]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>, children: u32) -> WorkflowResult<()> {
        let starts: Vec<_> = (0..children)
            .map(|number| {
                let options = ChildWorkflowOptions::builder()
                    .workflow_id(format!("empty-child-{number}"))
                    .parent_close_policy(ParentClosePolicy::Abandon)
                    .build();
                ctx.start_child_workflow(EmptyChild::run, (), options)
            })
            .collect();
        for start in starts {
            start.await?;
        }
        Ok(())
    }
}

/// Does nothing.
#[workflow]
#[derive(Default)]
pub(crate) struct EmptyChild;

#[workflow_methods]
impl EmptyChild {
    #[run(name = "EmptyChild")]
    pub(crate) async fn run(_ctx: &mut WorkflowContext<Self>, _input: ()) -> WorkflowResult<()> {
        Ok(())
    }
}

/// What `count` empty children cost, each.
pub(crate) async fn empty_children(world: &World, count: u32) -> Vec<Cost> {
    const QUEUE: &str = "empty-children";
    let client = world.client.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let worker = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work(client, QUEUE, stopped));
    });
    let options = WorkflowStartOptions::new(QUEUE, "empty-parent").build();
    world.client.start_workflow(EmptyParent::run, count, options).await.unwrap();
    let mut costs = Vec::new();
    for number in 0..count {
        let id = format!("empty-child-{number}");
        until(&format!("the end of {id}"), async || {
            let workflow = world.client.get_workflow_handle::<UntypedWorkflow>(id.clone());
            let described = workflow.describe(WorkflowDescribeOptions::default()).await.ok()?;
            (described.status() == WorkflowExecutionStatus::Completed).then_some(())
        })
        .await;
        costs.push(cost(&world.client, &id).await);
    }
    stop.send(()).unwrap();
    worker.join().unwrap();
    costs
}

async fn work(client: Client, queue: &str, stopped: tokio::sync::oneshot::Receiver<()>) {
    let runtime = Runtime::from_current_tokio(RuntimeOptions::builder().build().unwrap()).unwrap();
    let options = WorkerOptions::new(queue)
        .graceful_shutdown_period(Duration::from_secs(1))
        .register_workflow::<EmptyParent>()
        .unwrap()
        .register_workflow::<EmptyChild>()
        .unwrap()
        .build();
    let mut worker = Worker::new(&runtime, client, options).unwrap();
    let shutdown = worker.shutdown_handle();
    let ending = async {
        let _ = stopped.await;
        shutdown();
    };
    let (result, ()) = tokio::join!(worker.run(), ending);
    result.unwrap();
}
