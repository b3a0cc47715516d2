//! The weekly schedule of a campaign, as a Temporal Schedule.
//!
//! Spoken in raw requests, because the SDK's own schedule API can neither set the catch-up window at
//! creation nor send the conflict token with an update.
//!
//! What the server does with such a schedule (measured on server 1.32):
//! - A started workflow has the search attribute `TemporalScheduledStartTime` in its start event. Its
//!   value is the tick (also when the server was down at the tick and catches up, and in the engine's
//!   own backfill), and the time of the request when it was triggered by hand, in whole seconds.
//! - Ticks that pass while the schedule is paused are skipped, and resuming it does not catch them up.
//! - A tick in a gap of its zone is skipped. Where clocks go back, a tick in the repeated hour fires
//!   twice in zones west of Greenwich; in zones east of it (and London) that tick fires once, at its
//!   second occurrence, and a tick in the hour before fires twice, the second time an hour late.

use super::EngineError;
use super::connection::namespace;
use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::{Code, IntoRequest as _};
use temporalio_client::{Client, NamespacedClient as _};
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads, WorkflowType};
use temporalio_common::protos::temporal::api::enums::v1::{
    ScheduleOverlapPolicy, TaskQueueKind, WorkflowExecutionStatus,
};
use temporalio_common::protos::temporal::api::schedule::v1::{
    Schedule, ScheduleAction, SchedulePatch, SchedulePolicies, ScheduleSpec, ScheduleState,
    schedule_action::Action,
};
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflow::v1::NewWorkflowExecutionInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    CreateScheduleRequest, DescribeScheduleRequest, DescribeScheduleResponse, PatchScheduleRequest,
    UpdateScheduleRequest,
};

/// The workflow type that a tick starts.
pub const WORKFLOW_TYPE: &str = "WeeklyDigest";

/// The note of a schedule that nobody has resumed yet.
pub const CREATED_PAUSED: &str = "created paused; start it with `digestd schedule resume`";

/// How often a change is tried against changes by others.
const TRIES: usize = 3;

/// How long an accepted change may take to read back.
const READ_BACK_TIMEOUT: Duration = Duration::from_secs(10);

/// What a campaign's schedule should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weekly {
    /// The campaign's name.
    pub campaign: String,
    /// The cron expression, 5 fields.
    pub cron: String,
    /// The IANA name of the zone in which `cron` is read.
    pub timezone: String,
    /// How late the server may still act on a tick that it missed because it was down; at least 10 s.
    pub catch_up: SignedDuration,
    /// Where workers listen.
    pub task_queue: String,
    /// The one argument of the started workflow.
    pub input: serde_json::Value,
}

/// What [`create_or_update`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There was none; it was created, paused.
    Created,
    /// It was changed in place; whether it is paused stayed as it was.
    Updated,
    /// It was as it should be.
    Unchanged,
}

/// A schedule as the server has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shown {
    /// The schedule's id, `<campaign>-weekly`.
    pub id: String,
    /// The cron expression it was made from; `None` when somebody else changed the times.
    pub cron: Option<String>,
    /// The zone of the cron expression.
    pub timezone: String,
    /// Seconds after a tick within which a server that was down still acts on it.
    pub catch_up_seconds: i64,
    /// Whether ticks are skipped.
    pub paused: bool,
    /// Why it is paused or was resumed, in the words of who did it.
    pub note: String,
    /// The next ticks, at most ten, also while paused.
    pub next: Vec<Timestamp>,
    /// The newest starts, at most ten, oldest first.
    pub recent: Vec<Started>,
    /// Ticks that were missed because the server was down for longer than the catch-up window.
    pub missed_catch_up: i64,
}

/// One start by a schedule.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Started {
    /// The tick, or the time of the request when it was triggered by hand.
    pub scheduled: Option<Timestamp>,
    /// When it was started.
    pub started: Option<Timestamp>,
    /// The started workflow's id.
    pub workflow_id: String,
    /// The started workflow's run id.
    pub run_id: String,
    /// The workflow's state, which may lag a little: `running`, `completed`, `failed`, …
    pub status: &'static str,
}

/// The schedule's id of a campaign. The started workflows' ids are this and the tick's time.
#[must_use]
pub fn id(campaign: &str) -> String {
    format!("{campaign}-weekly")
}

/// Creates the schedule paused, or changes it in place and leaves alone whether it is paused. Safe to
/// repeat, and beside others who pause or change it.
///
/// # Errors
/// [`EngineError::Call`], for instance when the server knows no such zone or refuses the cron
/// expression, or [`EngineError::ScheduleContended`].
pub async fn create_or_update(client: &Client, weekly: &Weekly) -> Result<Change, EngineError> {
    let id = id(&weekly.campaign);
    let mut change = Change::Unchanged;
    for _ in 0..TRIES {
        let Some(described) = describe(client, &id).await? else {
            if create(client, &id, weekly).await? {
                change = Change::Created;
            }
            continue;
        };
        if is_as_wanted(&described, weekly) {
            return Ok(change);
        }
        let state = described.schedule.and_then(|current| current.state);
        let token = described.conflict_token;
        if update(client, &id, weekly, state, token.clone()).await? {
            if change == Change::Unchanged {
                change = Change::Updated;
            }
            until_as_wanted(client, &id, weekly, &token).await?;
        }
    }
    match describe(client, &id).await? {
        Some(described) if is_as_wanted(&described, weekly) => Ok(change),
        _ => Err(EngineError::ScheduleContended { id, tries: TRIES }),
    }
}

/// The schedule of a campaign.
///
/// # Errors
/// [`EngineError::NoSchedule`] or [`EngineError::Call`].
pub async fn show(client: &Client, campaign: &str) -> Result<Shown, EngineError> {
    let id = id(campaign);
    let Some(described) = describe(client, &id).await? else {
        return Err(EngineError::NoSchedule { namespace: namespace(client), id });
    };
    Ok(shown(id, described))
}

/// Pauses the schedule; ticks are skipped from now on and not caught up later. `note` says why.
///
/// # Errors
/// [`EngineError::NoSchedule`] or [`EngineError::Call`].
pub async fn pause(client: &Client, campaign: &str, note: &str) -> Result<(), EngineError> {
    // The server takes an empty text for "no pause".
    let note = if note.is_empty() { "paused with digestd" } else { note };
    patch(client, campaign, SchedulePatch { pause: note.to_owned(), ..SchedulePatch::default() })
        .await
}

/// Resumes the schedule; the next tick fires. `note` says why.
///
/// # Errors
/// [`EngineError::NoSchedule`] or [`EngineError::Call`].
pub async fn resume(client: &Client, campaign: &str, note: &str) -> Result<(), EngineError> {
    let note = if note.is_empty() { "resumed with digestd" } else { note };
    patch(client, campaign, SchedulePatch { unpause: note.to_owned(), ..SchedulePatch::default() })
        .await
}

/// `false` when somebody else created it first.
async fn create(client: &Client, id: &str, weekly: &Weekly) -> Result<bool, EngineError> {
    let state = ScheduleState {
        paused: true,
        notes: CREATED_PAUSED.to_owned(),
        ..ScheduleState::default()
    };
    let request = CreateScheduleRequest {
        namespace: namespace(client),
        schedule_id: id.to_owned(),
        schedule: Some(wanted(weekly, Some(state))?),
        identity: client.identity(),
        request_id: uuid::Uuid::new_v4().to_string(),
        ..CreateScheduleRequest::default()
    };
    match WorkflowService::create_schedule(&mut client.clone(), request.into_request()).await {
        Ok(_) => Ok(true),
        Err(status) if status.code() == Code::AlreadyExists => Ok(false),
        Err(status) => Err(EngineError::call(format!("creating schedule {id:?}"), &status)),
    }
}

/// `false` when the schedule changed or vanished since it was described.
async fn update(
    client: &Client,
    id: &str,
    weekly: &Weekly,
    state: Option<ScheduleState>,
    conflict_token: Vec<u8>,
) -> Result<bool, EngineError> {
    let request = UpdateScheduleRequest {
        namespace: namespace(client),
        schedule_id: id.to_owned(),
        schedule: Some(wanted(weekly, state)?),
        conflict_token,
        identity: client.identity(),
        request_id: uuid::Uuid::new_v4().to_string(),
        ..UpdateScheduleRequest::default()
    };
    match client.clone().update_schedule(request.into_request()).await {
        Ok(_) => Ok(true),
        Err(status)
            if matches!(
                status.code(),
                Code::FailedPrecondition | Code::Aborted | Code::NotFound
            ) =>
        {
            Ok(false)
        }
        Err(status) => Err(EngineError::call(format!("updating schedule {id:?}"), &status)),
    }
}

/// Waits until an accepted update reads back: the server may apply it a moment later, and drops it
/// without a word when the conflict token is out of date by then. Another token and other content mean
/// that somebody else's change came first.
async fn until_as_wanted(
    client: &Client,
    id: &str,
    weekly: &Weekly,
    sent_with: &[u8],
) -> Result<(), EngineError> {
    let begun = Instant::now();
    while begun.elapsed() < READ_BACK_TIMEOUT {
        match describe(client, id).await? {
            Some(found) if found.conflict_token == sent_with && !is_as_wanted(&found, weekly) => {}
            _ => return Ok(()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn describe(
    client: &Client,
    id: &str,
) -> Result<Option<DescribeScheduleResponse>, EngineError> {
    let request =
        DescribeScheduleRequest { namespace: namespace(client), schedule_id: id.to_owned() };
    match client.clone().describe_schedule(request.into_request()).await {
        Ok(described) => Ok(Some(described.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(EngineError::call(format!("describing schedule {id:?}"), &status)),
    }
}

async fn patch(client: &Client, campaign: &str, patch: SchedulePatch) -> Result<(), EngineError> {
    let id = id(campaign);
    let request = PatchScheduleRequest {
        namespace: namespace(client),
        schedule_id: id.clone(),
        patch: Some(patch),
        identity: client.identity(),
        request_id: uuid::Uuid::new_v4().to_string(),
    };
    match client.clone().patch_schedule(request.into_request()).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::NotFound => {
            Err(EngineError::NoSchedule { namespace: namespace(client), id })
        }
        Err(status) => Err(EngineError::call(format!("changing schedule {id:?}"), &status)),
    }
}

/// The schedule to send.
fn wanted(weekly: &Weekly, state: Option<ScheduleState>) -> Result<Schedule, EngineError> {
    let settings = |reason: String| EngineError::Settings { reason };
    let catch_up = Duration::try_from(weekly.catch_up)
        .map_err(|error| settings(format!("the catch-up window: {error}")))?;
    let start = NewWorkflowExecutionInfo {
        workflow_id: id(&weekly.campaign),
        workflow_type: Some(WorkflowType { name: WORKFLOW_TYPE.to_owned() }),
        task_queue: Some(TaskQueue {
            name: weekly.task_queue.clone(),
            kind: TaskQueueKind::Normal.into(),
            ..TaskQueue::default()
        }),
        input: Some(Payloads {
            payloads: vec![Payload {
                metadata: [("encoding".to_owned(), b"json/plain".to_vec())].into(),
                data: weekly.input.to_string().into_bytes(),
                ..Payload::default()
            }],
        }),
        ..NewWorkflowExecutionInfo::default()
    };
    Ok(Schedule {
        spec: Some(ScheduleSpec {
            // The server compiles the expression and forgets it, but keeps a comment: the expression.
            cron_string: vec![format!("{0} # {0}", weekly.cron)],
            timezone_name: weekly.timezone.clone(),
            ..ScheduleSpec::default()
        }),
        action: Some(ScheduleAction { action: Some(Action::StartWorkflow(start)) }),
        policies: Some(SchedulePolicies {
            // The run's id is the guard; with "skip", a week without workers would swallow the next.
            overlap_policy: ScheduleOverlapPolicy::AllowAll.into(),
            catchup_window: catch_up.try_into().ok(),
            ..SchedulePolicies::default()
        }),
        state,
    })
}

/// Whether a described schedule is what `weekly` asks for, its state aside.
fn is_as_wanted(found: &DescribeScheduleResponse, weekly: &Weekly) -> bool {
    let Ok(wanted) = wanted(weekly, None) else { return false };
    let Some(found) = &found.schedule else { return false };
    let Some(Action::StartWorkflow(start)) = found.action.as_ref().and_then(|a| a.action.as_ref())
    else {
        return false;
    };
    let input = start.input.as_ref().and_then(|input| match input.payloads.as_slice() {
        [one] => serde_json::from_slice::<serde_json::Value>(&one.data).ok(),
        _ => None,
    });
    let policies = found.policies.unwrap_or_default();
    let spec = found.spec.clone().unwrap_or_default();
    cron(&spec).as_deref() == Some(weekly.cron.as_str())
        && spec.timezone_name == weekly.timezone
        && policies.overlap_policy == i32::from(ScheduleOverlapPolicy::AllowAll)
        && policies.catchup_window == wanted.policies.unwrap_or_default().catchup_window
        && !policies.pause_on_failure
        && start.workflow_id == id(&weekly.campaign)
        && start.workflow_type.as_ref().is_some_and(|kind| kind.name == WORKFLOW_TYPE)
        && start.task_queue.as_ref().is_some_and(|queue| queue.name == weekly.task_queue)
        && input.as_ref() == Some(&weekly.input)
}

/// The cron expression that a spec was made from, if it was made here and is all of the spec.
fn cron(spec: &ScheduleSpec) -> Option<String> {
    let only_calendar = spec.interval.is_empty()
        && spec.exclude_structured_calendar.is_empty()
        && spec.start_time.is_none()
        && spec.end_time.is_none();
    match spec.structured_calendar.as_slice() {
        [one] if only_calendar && !one.comment.is_empty() => Some(one.comment.clone()),
        _ => None,
    }
}

fn shown(id: String, described: DescribeScheduleResponse) -> Shown {
    let schedule = described.schedule.unwrap_or_default();
    let info = described.info.unwrap_or_default();
    let spec = schedule.spec.unwrap_or_default();
    let state = schedule.state.unwrap_or_default();
    let catch_up = schedule.policies.and_then(|policies| policies.catchup_window);
    let recent = info.recent_actions.into_iter().map(|action| {
        let status = status_name(action.start_workflow_status());
        let workflow = action.start_workflow_result.unwrap_or_default();
        Started {
            scheduled: action.schedule_time.and_then(|at| timestamp(at.seconds, at.nanos)),
            started: action.actual_time.and_then(|at| timestamp(at.seconds, at.nanos)),
            workflow_id: workflow.workflow_id,
            run_id: workflow.run_id,
            status,
        }
    });
    Shown {
        id,
        cron: cron(&spec),
        timezone: spec.timezone_name,
        catch_up_seconds: catch_up.map_or(0, |window| window.seconds),
        paused: state.paused,
        note: state.notes,
        next: info
            .future_action_times
            .into_iter()
            .filter_map(|at| timestamp(at.seconds, at.nanos))
            .collect(),
        recent: recent.collect(),
        missed_catch_up: info.missed_catchup_window,
    }
}

fn timestamp(seconds: i64, nanos: i32) -> Option<Timestamp> {
    Timestamp::new(seconds, nanos).ok()
}

const fn status_name(status: WorkflowExecutionStatus) -> &'static str {
    match status {
        WorkflowExecutionStatus::Unspecified => "unknown",
        WorkflowExecutionStatus::Running => "running",
        WorkflowExecutionStatus::Completed => "completed",
        WorkflowExecutionStatus::Failed => "failed",
        WorkflowExecutionStatus::Canceled => "cancelled",
        WorkflowExecutionStatus::Terminated => "terminated",
        WorkflowExecutionStatus::ContinuedAsNew => "continued",
        WorkflowExecutionStatus::TimedOut => "timed out",
        WorkflowExecutionStatus::Paused => "paused",
    }
}
