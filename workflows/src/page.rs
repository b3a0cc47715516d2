//! `DigestPage`: starts the children of one page, then ends.
//!
//! A parent that ends soon after its children started stops paying for their completions, so the
//! fan-out does not slow down with the number of children still open.

#![expect(missing_docs, reason = "the engine's macros make constants without docs")]

use crate::activities::{EnqueueInput, Gates, RunPlan, RunStart};
use crate::attributes;
use crate::customer::{CustomerDigest, CustomerInput};
use crate::operation::OperationKey;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ChildWorkflowOptions, ChildWorkflowStartError, LocalActivityOptions, ParentClosePolicy,
    RetryPolicy, StartChildWorkflowExecutionFailedCause, WorkflowCancellationToken,
    WorkflowContext, WorkflowIdReusePolicy, WorkflowResult,
};

/// What a page is started with: the operations after position `after` up to `until`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageInput {
    /// The run.
    pub run: RunStart,
    /// How it is carried out.
    pub plan: RunPlan,
    /// The position before the first operation of the page.
    pub after: u64,
    /// The position of its last operation.
    pub until: u64,
}

/// What a page did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageResult {
    /// How many operations it started.
    pub started: u32,
    /// How many had a workflow already: enqueued before, so nothing to repeat.
    pub already: u32,
    /// How many could not be started now; the sweep starts them.
    pub left: u32,
}

/// Starts one page of operations.
#[workflow]
#[derive(Default)]
pub struct DigestPage;

#[workflow_methods]
impl DigestPage {
    /// Starts every operation of the page and ends.
    ///
    /// # Errors
    /// None that a caller decides on: the enqueueing is repeated until the ledger answers.
    #[run(name = "DigestPage")]
    pub async fn run(
        ctx: &mut WorkflowContext<Self>,
        input: PageInput,
    ) -> WorkflowResult<PageResult> {
        let mut result = PageResult::default();
        let mut after = input.after;
        while after < input.until {
            let part = EnqueueInput {
                run: input.run.clone(),
                ledger: input.plan.ledger.clone(),
                after,
                until: input.until,
            };
            let part = ctx.execute_local_activity(Gates::enqueue, part, patient("enqueue")).await?;
            if part.keys.is_empty() {
                break;
            }
            after = part.last;
            start_all(ctx, &input.plan, part.keys, &mut result).await;
        }
        Ok(result)
    }
}

async fn start_all(
    ctx: &WorkflowContext<DigestPage>,
    plan: &RunPlan,
    keys: Vec<OperationKey>,
    result: &mut PageResult,
) {
    // A start is commanded when the future is made; awaiting them one by one only collects.
    let starts: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let options = ChildWorkflowOptions::builder()
                .workflow_id(key.to_string())
                .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicateFailedOnly)
                .parent_close_policy(ParentClosePolicy::Abandon)
                .cancellation_token(WorkflowCancellationToken::new())
                .search_attributes(attributes::of_operation(&key))
                .build();
            let (ledger, rules) = (plan.ledger.clone(), plan.rules.clone());
            let input = CustomerInput { key, ledger, rules };
            ctx.start_child_workflow(CustomerDigest::run, input, options)
        })
        .collect();
    for start in starts {
        match start.await {
            Ok(_) => result.started += 1,
            Err(ChildWorkflowStartError::StartFailed {
                cause: StartChildWorkflowExecutionFailedCause::WorkflowAlreadyExists,
                ..
            }) => result.already += 1,
            Err(_) => result.left += 1,
        }
    }
}

/// A local activity of a run or a page: repeated by the engine until the ledger answers, and not
/// stopped by a requested cancellation.
pub(crate) fn patient(summary: &str) -> LocalActivityOptions {
    LocalActivityOptions::builder()
        .start_to_close_timeout(Duration::from_mins(1))
        // A year: an outage of the ledger is waited for, however long it is.
        .schedule_to_close_timeout(Duration::from_hours(365 * 24))
        .timer_backoff_threshold(Duration::from_secs(5))
        .cancellation_token(WorkflowCancellationToken::new())
        .retry_policy(
            RetryPolicy::builder()
                .initial_interval(Duration::from_secs(1))
                .backoff_coefficient(2.0)
                .maximum_interval(Duration::from_mins(1))
                .maximum_attempts(0)
                .build(),
        )
        .summary(summary.to_owned())
        .build()
}
