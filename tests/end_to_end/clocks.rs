//! Workers whose clocks are wrong, or are set while a message is on its way. The ledger's clock
//! decides, and it is the database's; where the ledger is a file, it is the worker's own.

use super::late::tick_of;
use super::world::{PERIOD, Plan, World, counts, of_mail, until, world};
use digest_tests::faketime::WrongClock;
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use digest_workflows::operation::Period;
use digestd::engine::schedule;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use temporalio_client::schedules::{ScheduleOverlapPolicy, TriggerScheduleOptions};

const CUSTOMERS: usize = 8;

/// Ahead by a week, and behind; behind by an hour; and as far apart as badly kept clocks are.
const WRONG: [SignedDuration; 5] = [
    SignedDuration::from_hours(7 * 24),
    SignedDuration::from_hours(-1),
    SignedDuration::from_hours(-7 * 24),
    SignedDuration::from_mins(10),
    SignedDuration::from_mins(-10),
];

fn clock(world: &World) -> Option<WrongClock> {
    WrongClock::new(world.folder().join("clock"), "workers with wrong clocks")
}

/// A week whose tick was long ago, and this one by its schedule: with a worker whose clock is `wrong`
/// each is sent once, and no other is called missed.
async fn two_weeks(name: &str, plan: Plan, wrong: SignedDuration, beside: bool) -> Option<()> {
    let server = Arc::new(SmtpServer::start(Traits::default(), []).unwrap());
    let plan = plan
        .customers(CUSTOMERS)
        .smtp(server.port())
        .with("message.when_empty", "send")
        .with("campaign.late_start", "3000d")
        .with("campaign.useful_for", "3001d");
    let mut world = plan.start().await?;
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let clock = clock(&world)?;
    clock.set(wrong);
    let _wrong = world.worker_with(&clock.variables()).await;
    let _right = if beside { Some(world.worker().await) } else { None };
    world.tick(PERIOD, tick_of(&world, PERIOD)).await;
    let now = TimeZone::get("Europe/Berlin").unwrap();
    let this_week = Period::of(Timestamp::now(), &now).to_string();
    let weekly = world.client.get_schedule_handle(schedule::id(&world.campaign));
    let options = TriggerScheduleOptions::default();
    weekly.trigger(ScheduleOverlapPolicy::AllowAll, options).await.unwrap();
    let n = u64::try_from(CUSTOMERS).unwrap();
    for period in [PERIOD, &this_week] {
        let closed = world.until_run(period, "closed").await;
        counts(&closed, &[("selected", n), ("cleaned", n), ("unknown", 0), ("dead", 0)]);
    }
    let inbox = world.inbox();
    assert_eq!(inbox.len(), 2 * CUSTOMERS, "{name}: {inbox:?}");
    let runs = format!("select period, state from @runs where campaign = '{}'", world.campaign);
    let runs = world.ledger.pairs(&runs).await;
    assert_eq!(runs.len(), 2, "{name}: {runs:?}");
    world.check().await;
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_worker_whose_clock_is_wrong_doubles_and_skips_no_week() {
    let mut weeks = 0;
    for (number, wrong) in WRONG.into_iter().enumerate() {
        let name = format!("clock-{number}");
        let Some(()) = two_weeks(&name, world(&name).postgres(), wrong, true).await else { return };
        weeks += 2;
    }
    // A ledger in a file has the clock of its one worker.
    for (number, wrong) in WRONG.into_iter().enumerate().take(3) {
        let name = format!("own-clock-{number}");
        let Some(()) = two_weeks(&name, world(&name), wrong, false).await else { return };
        weeks += 2;
    }
    let bound = 3.0 / f64::from(weeks);
    println!("n = {weeks} weeks with a wrong clock: 0 doubled, 0 skipped, so below {bound:.2}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_ahead_of_the_database_is_no_week_that_was_missed() {
    two_weeks("a-week-ahead", world("a-week-ahead").postgres(), WRONG[0], true).await;
}

/// Its answer comes after the clock was set.
async fn set_during_a_send(name: &str, plan: Plan, wrong: SignedDuration) -> Option<()> {
    let late = vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [late]).unwrap());
    let plan = plan
        .customers(1)
        .smtp(server.port())
        .with("provider.timeout", "20s")
        .with("provider.lease", "25s")
        .with("unknown.escalate_after", "40s")
        .with("worker.shutdown_grace", "22s");
    let mut world = plan.start().await?;
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let clock = clock(&world)?;
    let _worker = world.worker_with(&clock.variables()).await;
    world.start_run().await;
    server.until(|record| record.stored.len() == 1).await.unwrap();
    clock.set(wrong);
    server.release();
    world.until_state(&world.key("customer-0001"), "cleaned").await;
    counts(&world.closed().await, &[("cleaned", 1), ("unknown", 0)]);
    assert_eq!(server.record().ends_of_data, 1, "{name}");
    world.check().await;
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_clock_that_is_set_during_a_send_changes_nothing_about_it() {
    let mut jumps = 0;
    for (number, wrong) in WRONG.into_iter().enumerate() {
        let name = format!("jump-{number}");
        let Some(()) = set_during_a_send(&name, world(&name), wrong).await else { return };
        let name = format!("jump-pg-{number}");
        let plan = world(&name).postgres();
        let Some(()) = set_during_a_send(&name, plan, wrong).await else { return };
        jumps += 2;
    }
    println!("n = {jumps} clocks set during a send: 0 violations");
}

/// No answer comes: the lease ends when the database says so, not when the worker's clock does.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ends_no_lease_and_sends_nothing_again() {
    let hang = vec![(At::Dot, Act::store_then(Act::Hang))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [hang]).unwrap());
    let plan = world("jump-hang").customers(1).smtp(server.port()).postgres();
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let Some(clock) = clock(&world) else { return };
    let _worker = world.worker_with(&clock.variables()).await;
    world.start_run().await;
    let key = world.key("customer-0001");
    server.until(|record| record.stored.len() == 1).await.unwrap();
    clock.set(WRONG[0]);
    world.until_state(&key, "unknown").await;
    clock.set(WRONG[2]);
    counts(&world.closed().await, &[("unknown", 1), ("cleaned", 0)]);
    let said = format!("resolve {key} --delivered --reason seen --yes");
    assert_eq!(world.digestd(&said).await.code, 0);
    world.until_state(&key, "cleaned").await;
    until("the end of its session", async || (!server.record().endings.is_empty()).then_some(()))
        .await;
    assert_eq!(server.record().ends_of_data, 1);
    world.check().await;
}
