//! Holds, breakers and cancelling.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, TEST, on_both, refused, tick};
use digest_activities::ledger::{LedgerError, RunState};
use digest_workflows::operation::{Event, Failure, FailureClass, Outcome, Period, Rules, State};
use jiff::SignedDuration;
use std::time::{Duration, Instant};

on_both!(
    a_hold_may_come_before_the_run_and_stays_for_its_first_reason,
    what_is_asked_once_is_done_once_whatever_was_decided_since,
    every_reason_to_hold_is_told,
    held_time_is_counted_over_all_holds,
    a_configuration_failure_holds_the_run,
    a_configuration_failure_that_a_resume_has_answered_does_not_hold,
    identical_schema_failures_in_a_row_hold_the_run,
    unknowns_in_a_row_hold_the_run,
    breakers_count_what_is_recorded_at_the_same_time,
    resume_says_what_would_end_stale,
    cancelling_suppresses_what_waits_and_nothing_else,
    a_cancellation_that_was_interrupted_goes_on,
);

fn rules() -> Rules {
    let mut rules = Rules::default();
    rules.breakers.identical_schema_failures = 3;
    rules.breakers.unknowns_in_a_row = 3;
    rules
}

async fn a_hold_may_come_before_the_run_and_stays_for_its_first_reason(place: Place) {
    let bench = place.bench(1).await;
    let next = bench.period.next().unwrap();
    let ledger = &bench.ledger;
    let first = ledger.hold(CAMPAIGN, next, "first", TEST).await.unwrap();
    assert_eq!(first.state, RunState::Planned);
    tick(ledger).await;
    let second = ledger.hold(CAMPAIGN, next, "second", TEST).await.unwrap();
    assert_eq!(second, first);
    assert_eq!(ledger.latest_run(CAMPAIGN).await.unwrap().unwrap().period, bench.period);

    let run = ledger.open_run(&super::bench::new_run(next)).await.unwrap();
    assert_eq!((run.state, run.held_since), (RunState::Freezing, first.held_since));
    assert_eq!(ledger.status(CAMPAIGN, next).await.unwrap().state, "held");
    assert!(ledger.resume(CAMPAIGN, next, TEST).await.unwrap());
    assert!(!ledger.resume(CAMPAIGN, next, TEST).await.unwrap(), "there was none any more");
    assert_eq!(ledger.status(CAMPAIGN, next).await.unwrap().state, "freezing");
    let decisions = ledger.decisions(CAMPAIGN, next, 0, 10).await.unwrap();
    let events: Vec<_> = decisions.iter().map(|line| line.transition.event.as_str()).collect();
    assert_eq!(events, ["held", "resumed"]);
    assert_eq!(decisions[0].transition.reason.as_deref(), Some("first"));

    let never = next.next().unwrap();
    let error = ledger.resume(CAMPAIGN, never, TEST).await.unwrap_err();
    assert!(matches!(error, LedgerError::NoSuchRun { .. }), "{error:?}");
}

async fn what_is_asked_once_is_done_once_whatever_was_decided_since(place: Place) {
    let bench = place.bench(1).await;
    let (ledger, period) = (&bench.ledger, bench.period);
    let hold =
        async |name: &str| ledger.hold_once(name, CAMPAIGN, period, "asked", TEST).await.unwrap();
    let resume = async |name: &str| ledger.resume_once(name, CAMPAIGN, period, TEST).await.unwrap();
    let is_held = async || ledger.status(CAMPAIGN, period).await.unwrap().state == "held";

    assert!(hold("a:1").await && is_held().await);
    assert!(bench.resume().await);
    assert!(!hold("a:1").await && !is_held().await, "an old request held it again");
    assert!(resume("a:2").await);
    bench.hold().await;
    assert!(!resume("a:2").await && is_held().await, "an old request ended a new hold");
    assert!(resume("a:3").await && !is_held().await);
    // Another run's request may have the same name.
    let next = period.next().unwrap();
    assert!(ledger.hold_once("a:1", CAMPAIGN, next, "asked", TEST).await.unwrap());

    let never = next.next().unwrap();
    let error = ledger.resume_once("a:4", CAMPAIGN, never, TEST).await.unwrap_err();
    assert!(matches!(error, LedgerError::NoSuchRun { .. }), "{error:?}");
}

async fn every_reason_to_hold_is_told(place: Place) {
    let bench = place.bench(1).await;
    for because in ["late", "half of them", "late"] {
        bench.ledger.hold_also(CAMPAIGN, bench.period, because, TEST).await.unwrap();
    }
    let run = bench.ledger.run(CAMPAIGN, bench.period).await.unwrap().unwrap();
    assert_eq!(run.held_because.as_deref(), Some("late; half of them"));
    let shown = bench.ledger.show(&bench.key(1)).await.unwrap();
    assert_eq!(shown.held_because, run.held_because);
    let never = bench.period.next().unwrap();
    let error = bench.ledger.hold_also(CAMPAIGN, never, "late", TEST).await.unwrap_err();
    assert!(matches!(error, LedgerError::NoSuchRun { .. }), "{error:?}");
}

async fn held_time_is_counted_over_all_holds(place: Place) {
    let mut bench = place.bench(1).await;
    let mut total = SignedDuration::ZERO;
    for _ in 0..3 {
        let since = bench.hold().await.held_since.unwrap();
        tick(&bench.ledger).await;
        let while_held = bench.answer(&bench.key(1)).await.moment;
        assert!(while_held.held && while_held.held_for > total);
        bench.resume().await;
        let run = bench.run().await;
        total += run.resumed_at.unwrap().duration_since(since);
        assert_eq!((run.held_before, run.held_since), (total, None));
    }
    // An hour under a hold does not age an operation: `max_age` is a day, it is 30 hours old.
    bench.closed(&bench.key(1), FailureClass::Transport, "connect").await;
    let hour = 3_600_000_i64;
    let sql = "select machine from @operations";
    let machine = bench.raw.rows(sql).await[0][0].clone();
    let mut op: digest_workflows::operation::Operation = serde_json::from_str(&machine).unwrap();
    op.began.as_mut().unwrap().at -= SignedDuration::from_hours(30);
    let aged = serde_json::to_string(&op).unwrap();
    bench.raw.execute(&format!("update @operations set machine = '{aged}'")).await;
    bench.raw.execute(&format!("update @runs set held_ms = held_ms + {}", 10 * hour)).await;
    bench.closed(&bench.key(1), FailureClass::Transport, "connect").await;
    assert_eq!(bench.operation(&bench.key(1)).await.state, State::Retrying);
    bench.raw.execute(&format!("update @runs set held_ms = held_ms - {}", 10 * hour)).await;
    bench.closed(&bench.key(1), FailureClass::Transport, "connect").await;
    assert_eq!(bench.operation(&bench.key(1)).await.state, State::Dead);
}

async fn a_configuration_failure_holds_the_run(place: Place) {
    let bench = place.bench(2).await;
    let attempt = bench.begun(&bench.key(1), NOTHING).await;
    let recorded = bench.record(&bench.key(1), refused(attempt, FailureClass::Configuration)).await;
    assert!(recorded.answer.moment.held, "the answer says so");
    assert!(recorded.answer.run.held_since.is_some());
    assert_eq!(recorded.answer.operation.state, State::Retrying, "nothing is dead-lettered");
    let run = bench.run().await;
    assert_eq!(run.held_because.as_deref(), Some("configuration: smtp 550"));
    // Before an intent as well.
    bench.resume().await;
    bench.closed(&bench.key(2), FailureClass::Configuration, "http 401").await;
    assert_eq!(bench.run().await.held_because.as_deref(), Some("configuration: http 401"));
}

async fn a_configuration_failure_that_a_resume_has_answered_does_not_hold(place: Place) {
    let bench = place.bench(2).await;
    let (with_intent, without) = (bench.key(1), bench.key(2));
    let attempt = bench.begun(&with_intent, NOTHING).await;
    let read_at = bench.answer(&without).await.moment.now;
    bench.hold().await;
    tick(&bench.ledger).await;
    bench.resume().await;
    bench.record(&with_intent, refused(attempt, FailureClass::Configuration)).await;
    assert_eq!(bench.run().await.held_since, None);
    let failure = Failure::new(FailureClass::Configuration, "http 401");
    let event = super::bench::closed(&bench.operation(&without).await, failure.clone());
    let record = |event, as_of| {
        let (ledger, key) = (bench.ledger.clone(), without.clone());
        async move { ledger.record(&key, &event, &rules(), TEST, as_of).await.unwrap() }
    };
    record(event, Some(read_at)).await;
    assert_eq!(bench.run().await.held_since, None);
    // The next try was read after the resume: the account is still broken.
    tick(&bench.ledger).await;
    let answer = bench.answer(&without).await;
    let event = super::bench::closed(&answer.operation, failure);
    record(event, Some(answer.moment.now)).await;
    assert!(bench.run().await.held_since.is_some());
}

async fn schema(bench: &Bench, customer: u32, code: &str) {
    let key = bench.key(customer);
    let failure = Failure::new(FailureClass::Schema, code);
    let event = super::bench::closed(&bench.operation(&key).await, failure);
    bench.record_by(&key, event, &rules()).await;
    tick(&bench.ledger).await;
}

async fn identical_schema_failures_in_a_row_hold_the_run(place: Place) {
    let bench = place.bench(20).await;
    let held = || async { bench.run().await.held_since.is_some() };
    schema(&bench, 1, "template line 3").await;
    schema(&bench, 2, "template line 3").await;
    schema(&bench, 3, "too large").await;
    schema(&bench, 4, "template line 3").await;
    schema(&bench, 5, "template line 3").await;
    assert!(!held().await, "another one was between them");
    bench.deliver_and_clean(&bench.key(6)).await;
    tick(&bench.ledger).await;
    schema(&bench, 7, "template line 3").await;
    schema(&bench, 8, "template line 3").await;
    assert!(!held().await, "an accepted one was between them");
    schema(&bench, 9, "template line 3").await;
    assert!(held().await);
    let because = bench.run().await.held_because.unwrap();
    assert!(because.contains('3') && because.contains("template line 3"), "{because}");
    bench.resume().await;
    tick(&bench.ledger).await;
    schema(&bench, 10, "template line 3").await;
    schema(&bench, 11, "template line 3").await;
    assert!(!held().await, "the count begins anew after a resume");
    schema(&bench, 12, "template line 3").await;
    assert!(held().await);
}

async fn unknowns_in_a_row_hold_the_run(place: Place) {
    let bench = place.bench(20).await;
    let held = || async { bench.run().await.held_since.is_some() };
    let unknown = |customer| {
        let (bench, key) = (&bench, bench.key(customer));
        async move {
            bench.unknown(&key, NOTHING, &rules()).await;
            tick(&bench.ledger).await;
        }
    };
    unknown(1).await;
    unknown(2).await;
    bench.deliver_and_clean(&bench.key(3)).await;
    tick(&bench.ledger).await;
    unknown(4).await;
    unknown(5).await;
    assert!(!held().await, "an accepted one was between them");
    // A late answer is no unknown any more.
    bench.accepted(&bench.key(5), 1).await;
    unknown(6).await;
    assert!(!held().await, "one of them was answered late");
    unknown(7).await;
    unknown(8).await;
    assert!(held().await);
    let because = bench.run().await.held_because.unwrap();
    assert!(because.contains("3 unknown outcomes"), "{because}");
}

async fn breakers_count_what_is_recorded_at_the_same_time(place: Place) {
    let mut bench = place.bench(15).await;
    let ledgers = [place.connect().await, place.connect().await, place.connect().await];
    let (mut barrier, is_sqlite) = (place.raw().await, place.is_sqlite());
    for round in 0..5 {
        let mut attempts = Vec::new();
        for n in 1..=3 {
            let key = bench.key(round * 3 + n);
            attempts.push((key.clone(), bench.begun(&key, NOTHING).await));
        }
        // All three wait here in the middle of their transactions, and go on together.
        let close = "begin; lock table @decisions in exclusive mode";
        barrier.execute(if is_sqlite { "begin immediate" } else { close }).await;
        let records = attempts.into_iter().zip(ledgers.clone()).map(|((key, attempt), ledger)| {
            tokio::spawn(async move {
                let event = Event::Overdue { attempt, random: 0.0 };
                ledger.record(&key, &event, &rules(), TEST, None).await.unwrap();
            })
        });
        let records: Vec<_> = records.collect();
        let waiting = "pg_locks where not granted and relation = 'digestd.decisions'::regclass";
        let deadline = Instant::now() + Duration::from_secs(8);
        while !is_sqlite && bench.raw.count(waiting).await < 3 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        barrier.execute("commit").await;
        for record in records {
            record.await.unwrap();
        }
        assert!(bench.resume().await, "round {round} was not held");
        tick(&bench.ledger).await;
    }
}

async fn resume_says_what_would_end_stale(place: Place) {
    let mut bench = place.bench(5).await;
    bench.deliver_and_clean(&bench.key(1)).await;
    bench.begun(&bench.key(2), NOTHING).await;
    bench.closed(&bench.key(3), FailureClass::Transport, "connect").await;
    bench.unknown(&bench.key(4), NOTHING, &Rules::default()).await;
    bench.hold().await;
    let stale = |bench: &Bench| {
        let ledger = bench.ledger.clone();
        let period = bench.period;
        async move { ledger.stale_on_resume(CAMPAIGN, period).await.unwrap() }
    };
    assert_eq!(stale(&bench).await, 0);
    bench.raw.execute("update @runs set useful_until = 1000").await;
    assert_eq!(stale(&bench).await, 2, "the one that waits and the one that was not tried");
}

async fn cancelling_suppresses_what_waits_and_nothing_else(place: Place) {
    let bench = place.bench(450).await;
    bench.deliver_and_clean(&bench.key(1)).await;
    let sending = bench.begun(&bench.key(2), NOTHING).await;
    bench.closed(&bench.key(3), FailureClass::Transport, "connect").await;
    bench.unknown(&bench.key(4), NOTHING, &Rules::default()).await;
    bench.closed(&bench.key(5), FailureClass::Schema, "template").await;
    let rules = rules();
    let cancel = || bench.ledger.cancel(CAMPAIGN, bench.period, &rules, TEST);
    assert_eq!(cancel().await.unwrap(), 446);
    assert_eq!(cancel().await.unwrap(), 0);
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    let counts = [status.cleaned, status.sending, status.unknown, status.dead, status.suppressed];
    assert_eq!(counts, [1, 1, 1, 1, 446]);
    // What was being sent keeps its course, and is not tried again.
    let outcome = Outcome::NotSent(Failure::new(FailureClass::Transport, "reset"));
    let answered = Event::Answered { attempt: sending, outcome, random: 0.0 };
    let recorded = bench.record(&bench.key(2), answered).await;
    assert_eq!(recorded.answer.operation.state, State::Suppressed);
    let decisions = bench.ledger.decisions(CAMPAIGN, bench.period, 0, 10_000).await.unwrap();
    let cancelled = decisions.iter().filter(|line| line.transition.event == "cancelled");
    assert_eq!(cancelled.count(), 447, "the run's decision, and one for each operation");
}

async fn a_cancellation_that_was_interrupted_goes_on(place: Place) {
    let mut bench = place.bench(30).await;
    // As if the first call had been killed after its first transaction and a part of the rest.
    bench.raw.execute("update @runs set cancelled_at = 1000").await;
    bench.record(&bench.key(7), Event::Cancelled).await;
    let suppressed = bench.ledger.cancel(CAMPAIGN, bench.period, &rules(), TEST).await.unwrap();
    assert_eq!(suppressed, 29);
    assert_eq!(bench.raw.count("@operations where state = 'suppressed' and at_rest = 1").await, 30);
    let error = bench
        .ledger
        .cancel(CAMPAIGN, Period::parse("2027-W01").unwrap(), &rules(), TEST)
        .await
        .unwrap_err();
    assert!(matches!(error, LedgerError::NoSuchRun { .. }), "{error:?}");
}
