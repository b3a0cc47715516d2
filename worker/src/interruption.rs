//! The crash points inside workflow code, which itself may have no side effects: an interceptor
//! passes them next to it. It is there only while one of them is armed.
//!
//! A local activity's completion reaches the engine together with its workflow task, so for it a
//! death before the one and before the other are the same to the engine; `task-open` is that of a
//! remote activity (the freeze), whose completion the engine has while the workflow task is open.

use digest_activities::crash;
use temporalio_sdk::workflow_interceptors::{
    CancellableWorkflowOutboundFuture, ContinueAsNewInput, ContinueAsNewResult,
    ScheduleActivityInput, ScheduleActivityResult, SyncWorkflowInterceptorContext,
    WorkflowInterceptor, WorkflowInterceptorConstructor, WorkflowInterceptorContext, WorkflowNext,
};

const TASK_OPEN: &str = "task-open";
const CONTINUING: &str = "continuing";
const CONTINUED: &str = "continued";

/// The interceptor, if it has anything to do.
pub(crate) fn interceptors() -> Vec<WorkflowInterceptorConstructor> {
    if ![TASK_OPEN, CONTINUING, CONTINUED].into_iter().any(crash::is_armed) {
        return Vec::new();
    }
    vec![WorkflowInterceptorConstructor::new(|workflow| {
        if workflow.continued_from_run_id().is_some() {
            crash::point(CONTINUED);
        }
        Interruption
    })]
}

/// The activity's result, after the point between its completion and that of the workflow task.
#[expect(clippy::result_large_err, reason = "the error is the engine's own, handed through")]
fn passed(result: ScheduleActivityResult) -> ScheduleActivityResult {
    crash::point(TASK_OPEN);
    result
}

struct Interruption;

impl WorkflowInterceptor for Interruption {
    fn schedule_activity(
        &self,
        _ctx: WorkflowInterceptorContext,
        input: ScheduleActivityInput,
        next: WorkflowNext<
            'static,
            ScheduleActivityInput,
            CancellableWorkflowOutboundFuture<ScheduleActivityResult>,
        >,
    ) -> CancellableWorkflowOutboundFuture<ScheduleActivityResult> {
        next.run(input).map(passed)
    }

    fn continue_as_new(
        &self,
        _ctx: SyncWorkflowInterceptorContext,
        input: ContinueAsNewInput,
        next: WorkflowNext<'static, ContinueAsNewInput, ContinueAsNewResult>,
    ) -> ContinueAsNewResult {
        crash::point(CONTINUING);
        next.run(input)
    }
}
