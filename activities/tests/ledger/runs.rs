//! Runs: opened once, frozen page by page, enqueued page by page, closed when all is at rest.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, REPLAYS, new_run, on_both, refused, selected};
use digest_activities::ledger::{FreezePage, LedgerError, NewRun, RunState};
use digest_workflows::operation::{Event, FailureClass, Rules, State, Verdict};
use jiff::{SignedDuration, Timestamp};

on_both!(
    a_second_opening_returns_the_first_run,
    a_missed_run_is_opened_by_name,
    a_freeze_goes_on_where_it_stopped_and_ends_once,
    a_page_is_frozen_whole_or_not_at_all,
    faults_are_kept_and_counted_beside_the_selection,
    frozen_rows_never_change,
    the_same_cursor_gives_the_same_page,
    in_flight_counts_what_is_before_the_end_of_its_first_attempt,
    a_run_closes_only_when_everything_is_at_rest,
    the_sweep_sees_what_is_enqueued_and_not_settled,
);

async fn a_second_opening_returns_the_first_run(place: Place) {
    let bench = place.bench(3).await;
    let first = bench.run().await;
    assert_eq!(first.state, RunState::Frozen);
    let useful_for = first.useful_until.unwrap().duration_since(first.selected_at.unwrap());
    assert_eq!(useful_for, SignedDuration::from_hours(120), "from the start, without a tick");
    let tick = Timestamp::from_second(1_700_000_000).unwrap();
    let other = NewRun { tick: Some(tick), ..new_run(bench.period) };
    assert_eq!(bench.ledger.open_run(&other).await.unwrap(), first);

    let next = bench.period.next().unwrap();
    let ticked =
        bench.ledger.open_run(&NewRun { tick: Some(tick), ..new_run(next) }).await.unwrap();
    assert_eq!(ticked.useful_until, Some(tick + SignedDuration::from_hours(120)));
    let open = bench.ledger.open_runs(CAMPAIGN).await.unwrap();
    assert_eq!(open.iter().map(|run| run.period).collect::<Vec<_>>(), [bench.period, next]);
    assert_eq!(bench.ledger.latest_run(CAMPAIGN).await.unwrap().unwrap().period, next);
    assert!(bench.ledger.open_runs("reminder").await.unwrap().is_empty());
    let none = bench.ledger.run("reminder", bench.period).await.unwrap();
    assert_eq!(none, None);
}

async fn a_missed_run_is_opened_by_name(place: Place) {
    let mut bench = place.bench(1).await;
    bench.raw.execute("update @runs set state = 'missed', reason = 'no worker'").await;
    assert_eq!(bench.open().await.state, RunState::Freezing);
}

async fn a_freeze_goes_on_where_it_stopped_and_ends_once(place: Place) {
    let ledger = place.set_up().await;
    let period = "2026-W42".parse().unwrap();
    let mut bench = Bench { ledger, period, raw: place.raw().await };
    assert!(matches!(
        bench.ledger.freeze(CAMPAIGN, period, None, &FreezePage::default()).await,
        Err(LedgerError::NoSuchRun { .. })
    ));
    bench.open().await;
    bench.ledger.expect(CAMPAIGN, period, 5).await.unwrap();
    bench.ledger.expect(CAMPAIGN, period, 99).await.unwrap();
    bench.freeze(None, 1..=2, Some("2")).await;
    // The same page again, even with other contents, and a page from nowhere.
    bench.freeze(None, 7..=9, Some("9")).await;
    bench.freeze(Some("1"), 7..=9, Some("9")).await;
    let run = bench.open().await;
    assert_eq!((run.state, run.selected, run.expected), (RunState::Freezing, 2, Some(5)));
    assert_eq!(run.freeze_after.as_deref(), Some("2"));
    bench.freeze(Some("2"), 3..=5, None).await;
    let run = bench.run().await;
    assert_eq!((run.state, run.selected), (RunState::Frozen, 5));
    // A second freeze changes nothing.
    bench.freeze(None, 6..=9, None).await;
    bench.freeze(Some("2"), 6..=9, None).await;
    assert_eq!(bench.run().await, run);
    let keys = bench.raw.rows("select key, position from @operations order by position").await;
    let expected: Vec<_> = (1..=5).map(|n| vec![bench.key(n).to_string(), n.to_string()]).collect();
    assert_eq!(keys, expected);

    let next = period.next().unwrap();
    assert_eq!(bench.ledger.selected_before(CAMPAIGN, next).await.unwrap(), Some(5));
    assert_eq!(bench.ledger.selected_before(CAMPAIGN, period).await.unwrap(), None);
}

async fn a_page_is_frozen_whole_or_not_at_all(place: Place) {
    let ledger = place.set_up().await;
    let period = "2026-W42".parse().unwrap();
    let mut bench = Bench { ledger, period, raw: place.raw().await };
    bench.open().await;
    let twice = FreezePage {
        selected: vec![selected(period, 1), selected(period, 2), selected(period, 1)],
        ..FreezePage::default()
    };
    bench.ledger.freeze(CAMPAIGN, period, None, &twice).await.unwrap_err();
    assert_eq!(bench.raw.count("@operations").await, 0);
    assert_eq!(bench.raw.count("@digest_rows").await, 0);
    assert_eq!(bench.run().await.state, RunState::Freezing);
    bench.freeze(None, 1..=2, None).await;
    assert_eq!(bench.run().await.selected, 2);
}

async fn faults_are_kept_and_counted_beside_the_selection(place: Place) {
    let ledger = place.set_up().await;
    let period = "2026-W42".parse().unwrap();
    let mut bench = Bench { ledger, period, raw: place.raw().await };
    bench.open().await;
    for (after, next) in [(None, Some("5")), (Some("5"), None)] {
        let page = FreezePage {
            faults: vec![(None, "no id".into()), (Some("7".into()), "duplicate".into())],
            unkeyed: 3,
            next: next.map(str::to_owned),
            ..FreezePage::default()
        };
        bench.ledger.freeze(CAMPAIGN, period, after, &page).await.unwrap();
        bench.ledger.freeze(CAMPAIGN, period, after, &page).await.unwrap();
    }
    let run = bench.run().await;
    assert_eq!((run.selected, run.unkeyed, run.state), (0, 6, RunState::Frozen));
    assert_eq!(bench.raw.count("@selection_faults").await, 4);
    assert_eq!(bench.raw.count("@selection_faults where customer is null").await, 2);
    let status = bench.ledger.status(CAMPAIGN, period).await.unwrap();
    assert_eq!((status.unkeyed, status.faults.len()), (6, 4));
    let named = status.faults.iter().filter(|fault| fault.customer.as_deref() == Some("7"));
    assert_eq!(named.map(|fault| fault.reason.as_str()).collect::<Vec<_>>(), ["duplicate"; 2]);
}

async fn frozen_rows_never_change(place: Place) {
    let mut bench = place.bench(3).await;
    let sql = "select key, position, customer, frozen_at from @operations order by key";
    let frozen = bench.raw.rows(sql).await;
    bench.enqueue_all().await;
    bench.deliver_and_clean(&bench.key(1)).await;
    bench.unknown(&bench.key(2), NOTHING, &Rules::default()).await;
    bench.open().await;
    bench.freeze(None, 1..=9, None).await;
    assert_eq!(bench.raw.rows(sql).await, frozen);
    let data = bench.ledger.frozen_data(&bench.key(2)).await.unwrap();
    assert_eq!(data, Some(selected(bench.period, 2).data));
}

async fn the_same_cursor_gives_the_same_page(place: Place) {
    let mut bench = place.bench(7).await;
    let page =
        |after, limit, bytes| bench.ledger.enqueue(CAMPAIGN, bench.period, after, limit, bytes);
    let first = page(0, 3, usize::MAX).await.unwrap();
    assert_eq!(first.keys, [1, 2, 3].map(|n| bench.key(n)));
    assert_eq!((first.last, first.done), (3, false));
    assert_eq!(bench.run().await.state, RunState::Dispatching);
    let enqueued = bench.ledger.show(&bench.key(3)).await.unwrap().enqueued_at;
    assert!(enqueued.is_some());
    assert_eq!(bench.ledger.show(&bench.key(4)).await.unwrap().enqueued_at, None);
    super::bench::tick(&bench.ledger).await;
    assert_eq!(page(0, 3, usize::MAX).await.unwrap(), first);
    assert_eq!(bench.ledger.show(&bench.key(3)).await.unwrap().enqueued_at, enqueued);

    // Two keys of 23 bytes, quoted and with a comma, fit; at least one always goes.
    let bytes = 2 * (bench.key(4).to_string().len() + 3);
    let narrow = page(3, 3, bytes).await.unwrap();
    assert_eq!((narrow.keys.len(), narrow.last, narrow.done), (2, 5, false));
    let one = page(5, 3, 1).await.unwrap();
    assert_eq!((one.keys.len(), one.last, one.done), (1, 6, false));
    let last = page(6, 3, usize::MAX).await.unwrap();
    assert_eq!((last.keys, last.last, last.done), (vec![bench.key(7)], 7, true));
    let beyond = page(7, 3, usize::MAX).await.unwrap();
    assert_eq!((beyond.keys.len(), beyond.last, beyond.done), (0, 7, true));
    assert_eq!(bench.raw.count("@operations where enqueued_at is null").await, 0);
}

async fn in_flight_counts_what_is_before_the_end_of_its_first_attempt(place: Place) {
    let bench = place.bench(6).await;
    let in_flight = || async { bench.ledger.in_flight(CAMPAIGN, bench.period).await.unwrap() };
    assert_eq!(in_flight().await, 0, "nothing is enqueued");
    bench.enqueue_all().await;
    assert_eq!(in_flight().await, 6);
    bench.begun(&bench.key(1), NOTHING).await;
    assert_eq!(in_flight().await, 6);
    bench.accepted(&bench.key(1), 1).await;
    assert_eq!(in_flight().await, 5);
    bench.unknown(&bench.key(2), NOTHING, &Rules::default()).await;
    assert_eq!(in_flight().await, 4);
    bench.closed(&bench.key(3), FailureClass::Transport, "connect").await;
    assert_eq!(in_flight().await, 3);
    bench.begun(&bench.key(3), NOTHING).await;
    assert_eq!(in_flight().await, 3, "a second attempt does not count");
}

async fn a_run_closes_only_when_everything_is_at_rest(place: Place) {
    let bench = place.bench(5).await;
    let close = || async { bench.ledger.close_run(CAMPAIGN, bench.period).await.unwrap() };
    let rules = Rules::default();
    bench.enqueue_all().await;
    assert!(!close().await);
    bench.deliver_and_clean(&bench.key(1)).await;
    bench.record(&bench.key(2), Event::Unwanted).await;
    let attempt = bench.begun(&bench.key(3), NOTHING).await;
    bench.record(&bench.key(3), refused(attempt, FailureClass::Rejected)).await;
    // Cleanup given up.
    let attempt = bench.begun(&bench.key(4), NOTHING).await;
    bench.accepted(&bench.key(4), attempt).await;
    assert!(!close().await, "a cleanup is to come");
    for _ in 0..rules.cleanup.max_attempts {
        bench.record(&bench.key(4), Event::CleanupFailed { random: 0.0 }).await;
    }
    // Unknown: its lease runs, then a human is all that is left.
    bench.unknown(&bench.key(5), NOTHING, &rules).await;
    assert!(!close().await, "a late answer may still come");
    bench.record(&bench.key(5), Event::TimePassed).await;
    assert!(!close().await, "the lease has not ended");
    let verdict = Event::Judged { verdict: Verdict::Abandon, attempt: Some(1) };
    bench.record(&bench.key(5), verdict).await;
    assert_eq!(bench.operation(&bench.key(5)).await.state, State::Expired);
    assert!(close().await);
    assert!(close().await, "closed stays closed");
    assert_eq!(bench.run().await.state, RunState::Closed);
    assert!(bench.ledger.open_runs(CAMPAIGN).await.unwrap().is_empty());

    // A run that is being frozen has nothing open, and does not close.
    let next = bench.period.next().unwrap();
    bench.ledger.open_run(&new_run(next)).await.unwrap();
    assert!(!bench.ledger.close_run(CAMPAIGN, next).await.unwrap());
    let never = next.next().unwrap();
    let error = bench.ledger.close_run(CAMPAIGN, never).await.unwrap_err();
    assert!(matches!(error, LedgerError::NoSuchRun { .. }), "{error:?}");
}

async fn the_sweep_sees_what_is_enqueued_and_not_settled(place: Place) {
    let mut bench = place.bench(9).await;
    bench.ledger.enqueue(CAMPAIGN, bench.period, 0, 8, usize::MAX).await.unwrap();
    bench.deliver_and_clean(&bench.key(1)).await;
    bench.record(&bench.key(2), Event::Unwanted).await;
    let attempt = bench.begun(&bench.key(3), NOTHING).await;
    bench.accepted(&bench.key(3), attempt).await;
    bench.unknown(&bench.key(4), REPLAYS, &Rules::default()).await;
    bench.closed(&bench.key(5), FailureClass::Transport, "connect").await;
    bench
        .raw
        .execute(&format!(
            "update @operations set cleanup_failed = 1 where key = '{}'",
            bench.key(3)
        ))
        .await;
    let unfinished = |grace, after: String, limit| {
        let ledger = bench.ledger.clone();
        async move {
            let found = ledger.unfinished(CAMPAIGN, grace, &after, limit).await.unwrap();
            found.into_iter().map(|unfinished| unfinished.key).collect::<Vec<_>>()
        }
    };
    let now = SignedDuration::ZERO;
    assert_eq!(unfinished(now, String::new(), 2).await, [4, 5].map(|n| bench.key(n)));
    let rest = unfinished(now, bench.key(5).to_string(), 10).await;
    assert_eq!(rest, [6, 7, 8].map(|n| bench.key(n)), "not the one that is not enqueued");
    assert!(unfinished(SignedDuration::from_hours(1), String::new(), 10).await.is_empty());
}
