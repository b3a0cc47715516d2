//! The weekly schedule, and what the server makes of it.

use crate::{eventually, server};
use digestd::engine::EngineError;
use digestd::engine::schedule::{
    self, CREATED_PAUSED, Change, Shown, WORKFLOW_TYPE, Weekly, create_or_update, pause, resume,
    show,
};
use jiff::{SignedDuration, Timestamp};
use std::time::SystemTime;
use temporalio_client::Client;
use temporalio_client::grpc::WorkflowService as _;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::schedule::v1::{
    BackfillRequest, SchedulePatch, TriggerImmediatelyRequest,
};
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DescribeWorkflowExecutionRequest, ListScheduleMatchingTimesRequest, PatchScheduleRequest,
};

const EVERY_SECOND: &str = "* * * * * * *";

fn weekly(cron: &str) -> Weekly {
    Weekly {
        campaign: "digest".to_owned(),
        cron: cron.to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        catch_up: SignedDuration::from_hours(6),
        task_queue: "nobody".to_owned(),
        input: serde_json::json!({"campaign": "digest", "timezone": "Europe/Berlin"}),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What the started workflow itself can read as its scheduled time.
async fn scheduled_time(client: &Client, workflow_id: &str, run_id: &str) -> Timestamp {
    let describe = DescribeWorkflowExecutionRequest {
        namespace: "default".to_owned(),
        execution: Some(WorkflowExecution {
            workflow_id: workflow_id.to_owned(),
            run_id: run_id.to_owned(),
        }),
    };
    let found = client.clone().describe_workflow_execution(describe.into_request()).await.unwrap();
    let info = found.into_inner().workflow_execution_info.unwrap();
    assert_eq!(info.r#type.unwrap().name, WORKFLOW_TYPE);
    let attributes = info.search_attributes.unwrap().indexed_fields;
    serde_json::from_slice(&attributes["TemporalScheduledStartTime"].data).unwrap()
}

/// Changes the schedule as an operator with Temporal's own tools would.
async fn patch(client: &Client, patch: SchedulePatch) {
    let request = PatchScheduleRequest {
        namespace: "default".to_owned(),
        schedule_id: schedule::id("digest"),
        patch: Some(patch),
        request_id: jiff::Timestamp::now().to_string(),
        ..PatchScheduleRequest::default()
    };
    client.clone().patch_schedule(request.into_request()).await.unwrap();
}

/// Waits for a state of the schedule.
async fn shown(client: &Client, what: &str, wanted: impl Fn(&Shown) -> bool) -> Shown {
    eventually(what, || async {
        let shown = show(client, "digest").await.unwrap();
        wanted(&shown).then_some(shown)
    })
    .await
}

#[tokio::test]
async fn setup_creates_it_paused_and_changes_it_in_place() {
    let Some(server) = server(None, true).await else { return };
    let client = server.client("a test").await.unwrap();
    let error = show(&client, "digest").await.unwrap_err();
    assert!(
        matches!(&error, EngineError::NoSchedule { id, .. } if id == "digest-weekly"),
        "{error}"
    );
    let error = pause(&client, "digest", "no reason").await.unwrap_err();
    assert!(matches!(&error, EngineError::NoSchedule { .. }), "{error}");

    let monday = weekly("0 9 * * MON");
    assert_eq!(create_or_update(&client, &monday).await.unwrap(), Change::Created);
    assert_eq!(create_or_update(&client, &monday).await.unwrap(), Change::Unchanged);
    let created = show(&client, "digest").await.unwrap();
    assert_eq!(created.cron.as_deref(), Some("0 9 * * MON"));
    assert_eq!(created.timezone, "Europe/Berlin");
    assert_eq!(created.catch_up_seconds, 6 * 3600);
    assert!(created.paused && created.note == CREATED_PAUSED, "{created:?}");
    assert!(created.recent.is_empty());
    let zone = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    assert_eq!(created.next.len(), 10);
    for tick in &created.next {
        let local = tick.to_zoned(zone.clone());
        assert_eq!((local.weekday(), local.hour()), (jiff::civil::Weekday::Monday, 9), "{local}");
    }

    // Each part of it can change, and whether it is paused is the operator's.
    resume(&client, "digest", "the first week is ready").await.unwrap();
    let changes: [fn(&mut Weekly); 5] = [
        |weekly| weekly.cron = "30 7 * * TUE".to_owned(),
        |weekly| weekly.timezone = "America/New_York".to_owned(),
        |weekly| weekly.catch_up = SignedDuration::from_mins(90),
        |weekly| weekly.task_queue = "other".to_owned(),
        |weekly| weekly.input = serde_json::json!({"campaign": "digest", "more": [1, 2.5]}),
    ];
    let mut latest = monday;
    for change in changes {
        change(&mut latest);
        assert_eq!(create_or_update(&client, &latest).await.unwrap(), Change::Updated);
        assert_eq!(create_or_update(&client, &latest).await.unwrap(), Change::Unchanged);
        let found = show(&client, "digest").await.unwrap();
        assert!(!found.paused && found.note == "the first week is ready", "{found:?}");
    }
    let found = show(&client, "digest").await.unwrap();
    assert_eq!(found.cron.as_deref(), Some("30 7 * * TUE"));
    assert_eq!(found.timezone, "America/New_York");
    assert_eq!(found.catch_up_seconds, 90 * 60);

    pause(&client, "digest", "").await.unwrap();
    shown(&client, "the pause", |shown| shown.paused).await;
    latest.cron = "0 9 * * WED".to_owned();
    assert_eq!(create_or_update(&client, &latest).await.unwrap(), Change::Updated);
    assert!(show(&client, "digest").await.unwrap().paused, "an update has resumed it");
}

#[tokio::test]
async fn two_setups_at_once_make_one_schedule() {
    let Some(server) = server(None, true).await else { return };
    let client = server.client("a test").await.unwrap();
    let (monday, tuesday) = (weekly("0 9 * * MON"), weekly("0 9 * * TUE"));
    let (one, other) =
        tokio::join!(create_or_update(&client, &monday), create_or_update(&client, &monday));
    let mut changes = [one.unwrap(), other.unwrap()];
    changes.sort_by_key(|change| *change != Change::Created);
    assert_eq!(changes, [Change::Created, Change::Unchanged]);

    // Of two that differ the last one wins, or one says that it lost.
    let (one, other) =
        tokio::join!(create_or_update(&client, &tuesday), create_or_update(&client, &monday));
    for result in [one, other] {
        if let Err(error) = result {
            assert!(matches!(error, EngineError::ScheduleContended { .. }), "{error}");
        }
    }
    let cron = show(&client, "digest").await.unwrap().cron.unwrap();
    assert!([monday.cron, tuesday.cron].contains(&cron), "{cron}");
}

#[tokio::test]
async fn what_the_server_refuses_is_told() {
    let Some(server) = server(None, true).await else { return };
    let client = server.client("a test").await.unwrap();
    let elsewhere = Weekly { timezone: "Europe/Atlantis".to_owned(), ..weekly("0 9 * * MON") };
    let text = create_or_update(&client, &elsewhere).await.unwrap_err().to_string();
    assert!(text.contains("digest-weekly") && text.contains("Atlantis"), "{text}");
    let text = create_or_update(&client, &weekly("0 25 * * MON")).await.unwrap_err().to_string();
    assert!(text.contains("digest-weekly") && text.contains("InvalidArgument"), "{text}");
}

#[tokio::test]
async fn a_started_workflow_knows_its_tick_and_by_hand_the_time_of_the_request() {
    let Some(server) = server(None, true).await else { return };
    let client = server.client("a test").await.unwrap();
    create_or_update(&client, &weekly("0 9 * * MON")).await.unwrap();

    let before = Timestamp::now();
    let now = SchedulePatch {
        trigger_immediately: Some(TriggerImmediatelyRequest::default()),
        ..SchedulePatch::default()
    };
    patch(&client, now).await;
    let found = shown(&client, "the triggered start", |shown| !shown.recent.is_empty()).await;
    let by_hand = &found.recent[0];
    let told = scheduled_time(&client, &by_hand.workflow_id, &by_hand.run_id).await;
    assert_eq!(told.subsec_nanosecond(), 0);
    assert!(told >= before - SignedDuration::from_secs(1) && told <= Timestamp::now(), "{told}");
    assert_eq!(by_hand.workflow_id, format!("digest-weekly-{told}"));

    let backfill = BackfillRequest {
        start_time: Some(SystemTime::from(at("2026-10-12T00:00:00Z")).into()),
        end_time: Some(SystemTime::from(at("2026-10-20T00:00:00Z")).into()),
        ..BackfillRequest::default()
    };
    let backfill = SchedulePatch { backfill_request: vec![backfill], ..SchedulePatch::default() };
    patch(&client, backfill).await;
    let found = shown(&client, "the backfilled starts", |shown| shown.recent.len() == 3).await;
    for tick in ["2026-10-12T07:00:00Z", "2026-10-19T07:00:00Z"] {
        let started = found.recent.iter().find(|s| s.scheduled == Some(at(tick))).unwrap();
        assert_eq!(started.workflow_id, format!("digest-weekly-{tick}"));
        let told = scheduled_time(&client, &started.workflow_id, &started.run_id).await;
        assert_eq!(told, at(tick));
    }
}

#[tokio::test]
async fn a_tick_that_the_server_missed_is_caught_up_with_its_own_time_and_a_paused_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = server(Some(folder.path().join("temporal.db")), true).await else {
        return;
    };
    let client = server.client("a test").await.unwrap();
    create_or_update(&client, &weekly(EVERY_SECOND)).await.unwrap();
    let second_of = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap();
    let until = async |at: Timestamp| {
        eventually("the time to pass", || async { (Timestamp::now() > at).then_some(()) }).await;
    };

    until(Timestamp::now() + SignedDuration::from_secs(2)).await;
    let resumed = second_of(Timestamp::now());
    resume(&client, "digest", "go").await.unwrap();
    let found = shown(&client, "a start", |shown| shown.recent.len() > 1).await;
    for started in &found.recent {
        assert!(started.scheduled.unwrap() >= resumed, "a paused tick was caught up: {started:?}");
        let told = scheduled_time(&client, &started.workflow_id, &started.run_id).await;
        assert_eq!(Some(told), started.scheduled);
    }

    server.kill();
    let down = Timestamp::now();
    until(down + SignedDuration::from_secs(3)).await;
    let up = Timestamp::now();
    server.restart().await.unwrap();
    let missed = |started: &schedule::Started| {
        started.scheduled.is_some_and(|tick| tick > down && tick < up)
            && started.started.is_some_and(|started| started >= up)
    };
    let found = shown(&client, "a start caught up", |shown| shown.recent.iter().any(missed)).await;
    let late = found.recent.into_iter().find(missed).unwrap();
    let told = scheduled_time(&client, &late.workflow_id, &late.run_id).await;
    assert_eq!(Some(told), late.scheduled);
}

#[tokio::test]
async fn the_server_skips_a_tick_in_a_gap_and_doubles_one_in_an_overlap() {
    let Some(server) = server(None, true).await else { return };
    let client = server.client("a test").await.unwrap();
    let ticks = async |cron: &str, timezone: &str, day: &str| {
        let timezone = timezone.to_owned();
        create_or_update(&client, &Weekly { timezone, ..weekly(cron) }).await.unwrap();
        let request = ListScheduleMatchingTimesRequest {
            namespace: "default".to_owned(),
            schedule_id: schedule::id("digest"),
            start_time: Some(SystemTime::from(at(&format!("{day}T00:00:00Z"))).into()),
            end_time: Some(SystemTime::from(at(&format!("{day}T12:00:00Z"))).into()),
        };
        let found = client.clone().list_schedule_matching_times(request.into_request()).await;
        found.unwrap().into_inner().start_time.len()
    };
    // Clocks go forward in Berlin on 2027-03-28 and back in New York on 2027-11-07.
    assert_eq!(ticks("30 2 * * SUN", "Europe/Berlin", "2027-03-28").await, 0);
    assert_eq!(ticks("30 2 * * SUN", "Europe/Berlin", "2027-04-04").await, 1);
    assert_eq!(ticks("30 1 * * SUN", "America/New_York", "2027-11-07").await, 2);
    assert_eq!(ticks("30 1 * * SUN", "America/New_York", "2027-11-14").await, 1);
}
