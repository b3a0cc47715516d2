//! Workflow code that has changed without a guard: replaying must notice it.

use crate::divergences;
use digest_tests::histories;
use digest_workflows::customer::{CustomerInput, CustomerResult};
use digest_workflows::operation::State;
use std::time::Duration;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::workflow_replayer::WorkflowReplayerOptions;
use temporalio_workflow::{WorkflowContext, WorkflowResult};

/// The workflow of an operation, by somebody who waits a second first.
#[workflow]
#[derive(Default)]
struct WaitsFirst;

#[workflow_methods]
impl WaitsFirst {
    #[run(name = "CustomerDigest")]
    async fn run(
        ctx: &mut WorkflowContext<Self>,
        _input: CustomerInput,
    ) -> WorkflowResult<CustomerResult> {
        ctx.timer(Duration::from_secs(1)).await;
        Ok(CustomerResult { state: State::Cleaned, class: None, attempts: 1 })
    }
}

#[tokio::test]
async fn a_workflow_that_waits_first_replays_no_history() {
    let mut options = WorkflowReplayerOptions::new().build();
    options.register_workflow::<WaitsFirst>().unwrap();
    let mut recorded = histories::all().unwrap();
    recorded.retain(|name, _| name.starts_with("customer-"));
    let all: Vec<String> = recorded.keys().cloned().collect();
    let noticed: Vec<String> = divergences(options, recorded).await.into_keys().collect();
    assert_eq!(noticed, all);
}
