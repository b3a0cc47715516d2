//! Runs that start long after their tick.

use crate::end_to_end::world::{PERIOD, World, counts, server, until, world};
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::operation::Period;
use digest_workflows::run::{DigestRun, RunInput};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::Value;
use temporalio_client::WorkflowStartOptions;

/// The week after [`PERIOD`].
const NEXT: &str = "2024-W11";

impl World {
    /// Starts the run of `period` as its schedule would for `tick`.
    pub(super) async fn tick(&self, period: &str, tick: Timestamp) {
        let period: Period = period.parse().unwrap();
        let start = RunStart { campaign: self.campaign.clone(), period, tick: Some(tick) };
        let (config, _) = self.loaded();
        let id = digest_workflows::run_id(&self.campaign, period);
        let options = WorkflowStartOptions::new(config.engine.task_queue, id)
            .search_attributes(attributes::of_run(&self.campaign, period))
            .build();
        let input = RunInput::new(start);
        self.client.start_workflow(DigestRun::run, input, options).await.unwrap();
    }

    /// Waits until the run of `period` is in `state`; its status then.
    pub(super) async fn until_run(&self, period: &str, state: &str) -> Value {
        until(&format!("{period} {state}"), async || {
            let status = self.digestd(&format!("status --period {period} --json")).await;
            let status: Value = serde_json::from_str(&status.stdout).ok()?;
            let frozen = status["selected"].as_u64() > Some(0);
            (frozen && status["state"] == state).then_some(status)
        })
        .await
    }
}

pub(super) fn tick_of(world: &World, period: &str) -> Timestamp {
    let (config, _) = world.loaded();
    config.calendar().unwrap().tick_of(period.parse().unwrap()).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_starts_too_late_sends_nothing_until_somebody_says_so() {
    let plan = world("too-late").customers(5).with("campaign.useful_for", "3000d");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.tick(PERIOD, tick_of(&world, PERIOD)).await;
    let held = world.until_run(PERIOD, "held").await;
    counts(&held, &[("selected", 5), ("pending", 5), ("sent", 0)]);
    assert!(held["held_because"].as_str().unwrap().contains("late_start"), "{held}");
    assert_eq!(world.requests().len(), 0);
    let resume = format!("resume --period {PERIOD} --reason approved --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.until_run(PERIOD, "closed").await, &[("selected", 5), ("cleaned", 5)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_eight_days_away_the_late_week_and_the_next_are_both_accounted_for() {
    let plan = world("eight-days").customers(5).with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    // Both ticks fire while no worker is there.
    world.tick(PERIOD, tick_of(&world, PERIOD)).await;
    world.tick(NEXT, Timestamp::now() - SignedDuration::from_hours(1)).await;
    let _worker = world.worker().await;
    counts(&world.until_run(NEXT, "closed").await, &[("selected", 5), ("cleaned", 5)]);
    let held = world.until_run(PERIOD, "held").await;
    counts(&held, &[("selected", 5), ("pending", 5), ("dead", 0)]);
    // Too late to be useful by now, which is said before anything ends.
    let resumed = world.digestd(&format!("resume --period {PERIOD} --reason out --yes")).await;
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert!(resumed.stderr.contains("5 are too late"), "{resumed:?}");
    let late = world.until_run(PERIOD, "closed").await;
    counts(&late, &[("selected", 5), ("dead", 5), ("sent", 0)]);
    assert_eq!(world.requests().len(), 5);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_while_the_engine_is_down_runs_once_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut engine) = server(Some(folder.path().join("temporal.db"))).await else { return };
    // The next whole minute that leaves time to set up.
    let soon = (Timestamp::now() + SignedDuration::from_secs(15)).to_zoned(TimeZone::UTC);
    let tick = soon.round(Unit::Minute).unwrap().timestamp();
    let tick = if tick < soon.timestamp() { tick + SignedDuration::from_mins(1) } else { tick };
    let fields = tick.to_zoned(TimeZone::UTC).strftime("%M %H * * %a").to_string();
    let plan = world("missed-tick").customers(5).with("message.when_empty", "send");
    let plan = plan.with("campaign.cron", fields.to_uppercase()).with("campaign.timezone", "UTC");
    let Some(world) = plan.start_on(engine.address()).await else { return };
    let _worker = world.worker().await;
    assert_eq!(world.digestd("schedule resume").await.code, 0);
    let clock = async |at: Timestamp| {
        until("the time", async || (Timestamp::now() >= at).then_some(())).await;
    };
    clock(tick - SignedDuration::from_secs(2)).await;
    engine.kill();
    clock(tick + SignedDuration::from_secs(5)).await;
    engine.restart().await.unwrap();
    let period = Period::of(tick, &TimeZone::UTC).to_string();
    counts(&world.until_run(&period, "closed").await, &[("selected", 5), ("cleaned", 5)]);
    assert_eq!(world.requests().len(), 5);
    let runs = world.workflows("WorkflowType = 'DigestRun'").await;
    assert_eq!(runs.len(), 1, "{runs:?}");
    world.check().await;
}
