//! `WeeklyDigest`: what the schedule fires. Turns an instant into a period, starts the run, ends.

#![expect(missing_docs, reason = "the engine's macros make constants without docs")]

use crate::activities::RunStart;
use crate::attributes;
use crate::operation::Period;
use crate::run::{DigestRun, RunInput};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use temporalio_common::error::ApplicationFailure;
use temporalio_common::search_attributes::{SearchAttributeKey, Timestamp as Instant};
use temporalio_macros::{workflow, workflow_methods};
use temporalio_workflow::{
    ChildWorkflowOptions, ChildWorkflowStartError, ParentClosePolicy,
    StartChildWorkflowExecutionFailedCause, WorkflowContext, WorkflowIdReusePolicy, WorkflowResult,
};

/// Set by the engine on every workflow that a schedule starts: the instant it was scheduled for,
/// not the instant it was started.
const SCHEDULED: SearchAttributeKey<Instant> =
    SearchAttributeKey::datetime("TemporalScheduledStartTime");

/// What the schedule starts the weekly workflow with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeeklyInput {
    /// The campaign's name.
    pub campaign: String,
    /// The campaign's IANA time zone.
    pub timezone: String,
}

/// What became of one tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeeklyResult {
    /// The period of the tick.
    pub period: Period,
    /// The workflow that runs it.
    pub run: String,
    /// Whether this tick started it; otherwise it was started before.
    pub started: bool,
}

/// One tick of the schedule.
#[workflow]
#[derive(Default)]
pub struct WeeklyDigest;

#[workflow_methods]
impl WeeklyDigest {
    /// Starts the run of the scheduled instant's period and ends at once.
    ///
    /// # Errors
    /// A failure of type `Refused` when there is no scheduled instant or the zone is unknown.
    #[run(name = "WeeklyDigest")]
    pub async fn run(
        ctx: &mut WorkflowContext<Self>,
        input: WeeklyInput,
    ) -> WorkflowResult<WeeklyResult> {
        let tick = scheduled(ctx).ok_or_else(|| {
            refused(
                "this workflow was not started by a schedule, so it has no scheduled instant and no \
                 period; use `digestd run --period …` instead"
                    .to_owned(),
            )
        })?;
        let zone = TimeZone::get(&input.timezone).map_err(|_| {
            refused(format!("the time zone {:?} is not known to this worker", input.timezone))
        })?;
        let period = Period::of(tick, &zone);
        let run = crate::run_id(&input.campaign, period);
        let start = RunStart { campaign: input.campaign.clone(), period, tick: Some(tick) };
        let options = ChildWorkflowOptions::builder()
            .workflow_id(run.clone())
            .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicateFailedOnly)
            .parent_close_policy(ParentClosePolicy::Abandon)
            .search_attributes(attributes::of_run(&input.campaign, period))
            .build();
        let started =
            match ctx.start_child_workflow(DigestRun::run, RunInput::new(start), options).await {
                Ok(_) => true,
                Err(ChildWorkflowStartError::StartFailed {
                    cause: StartChildWorkflowExecutionFailedCause::WorkflowAlreadyExists,
                    ..
                }) => false,
                Err(error) => return Err(error.into()),
            };
        Ok(WeeklyResult { period, run, started })
    }
}

/// The scheduled instant, if a schedule started this workflow.
fn scheduled(ctx: &WorkflowContext<WeeklyDigest>) -> Option<Timestamp> {
    ctx.search_attributes()
        .get(&SCHEDULED)
        .and_then(|instant| Timestamp::new(instant.seconds(), instant.nanos()).ok())
}

fn refused(message: String) -> ApplicationFailure {
    ApplicationFailure::builder(std::io::Error::other(message))
        .type_name("Refused".to_owned())
        .non_retryable(true)
        .build()
}
