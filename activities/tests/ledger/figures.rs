//! Figures: what is counted is what there is, and only work that could be sent now grows old.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, TEST, new_run, on_both, selected, tick};
use super::replay::letter;
use digest_activities::ledger::{Actor, ELIGIBILITY, Figures, FreezePage, GONE_BACK, Holder};
use digest_activities::ledger::{RunState, STARTED_LATE};
use digest_workflows::operation::{Event, FailureClass, Rules, State};
use jiff::{SignedDuration, Timestamp};

on_both!(
    a_ledger_without_runs_has_nothing_to_tell,
    figures_count_what_there_is,
    figures_agree_with_status,
    only_what_could_be_sent_now_grows_old,
    a_replay_is_as_old_as_its_decision,
    a_doubt_is_overdue_after_its_patience,
    holds_are_told_by_their_first_reason,
    missed_weeks_are_counted_until_they_are_made_up,
);

const HOUR: SignedDuration = SignedDuration::from_hours(1);

impl Bench {
    async fn figures(&self) -> Figures {
        self.ledger.figures(CAMPAIGN, HOUR).await.unwrap()
    }

    /// Lets two hours pass for the column `column` of `customer`.
    async fn two_hours_pass(&mut self, column: &str, customer: u32) {
        let key = self.key(customer);
        let sql =
            format!("update @operations set {column} = {column} - 7200000 where key = '{key}'");
        self.raw.execute(&sql).await;
    }
}

fn is_two_hours(seconds: f64) -> bool {
    (7_200.0..7_800.0).contains(&seconds)
}

async fn a_ledger_without_runs_has_nothing_to_tell(place: Place) {
    let ledger = place.set_up().await;
    assert_eq!(ledger.figures(CAMPAIGN, HOUR).await.unwrap(), Figures::default());
}

async fn figures_count_what_there_is(place: Place) {
    let mut bench = place.bench(9).await;
    let key = |n| bench.key(n);
    let keys: Vec<_> = (0..=9).map(key).collect();
    bench.deliver_and_clean(&keys[1]).await;
    bench.unknown(&keys[2], NOTHING, &Rules::default()).await;
    bench.closed(&keys[3], FailureClass::Recipient, "smtp rcpt 550 5.1.1").await;
    bench.closed(&keys[4], FailureClass::Transport, "refused").await;
    for failed in [5, 6] {
        let attempt = bench.begun(&keys[failed], NOTHING).await;
        bench.accepted(&keys[failed], attempt).await;
    }
    let mut rules = Rules::default();
    rules.cleanup.max_attempts = 1;
    bench.record_by(&keys[6], Event::CleanupFailed { random: 0.0 }, &rules).await;
    bench.two_hours_pass("since", 5).await;
    let figures = bench.figures().await;
    let latest = figures.latest.unwrap();
    assert_eq!((latest.period, latest.state), (bench.period, RunState::Frozen));
    assert_eq!((latest.selected, latest.unkeyed), (9, 0));
    let some: Vec<_> = latest.operations.into_iter().filter(|(_, count)| *count > 0).collect();
    let expected = [
        (State::Selected, 3),
        (State::Retrying, 1),
        (State::Unknown, 1),
        (State::Sent, 2),
        (State::Cleaned, 1),
        (State::Dead, 1),
    ];
    assert_eq!(some, expected);
    assert_eq!((figures.unknown, figures.overdue), (1, 0));
    assert_eq!(figures.dead.into_iter().collect::<Vec<_>>(), [(FailureClass::Recipient, 1)]);
    assert_eq!((figures.cleanup_pending, figures.cleanup_failed), (1, 1));
    assert!(is_two_hours(figures.cleanup_lag), "{}", figures.cleanup_lag);
    assert_eq!((figures.held.len(), figures.missed), (0, 0));
    // Another campaign has none of this.
    assert_eq!(bench.ledger.figures("reminder", HOUR).await.unwrap(), Figures::default());
}

async fn figures_agree_with_status(place: Place) {
    let bench = place.bench(30).await;
    for customer in 1..=20 {
        let key = bench.key(customer);
        match customer % 5 {
            0 => bench.deliver_and_clean(&key).await,
            1 => drop(bench.unknown(&key, NOTHING, &Rules::default()).await),
            2 => drop(bench.closed(&key, FailureClass::Recipient, "no such user").await),
            3 => drop(bench.closed(&key, FailureClass::Transport, "refused").await),
            _ => drop(bench.begun(&key, NOTHING).await),
        }
    }
    let figures = bench.figures().await;
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    let latest = figures.latest.unwrap();
    assert_eq!(latest.operations.values().sum::<u64>(), status.selected);
    for (state, count) in [
        (State::Selected, status.pending),
        (State::Sending, status.sending),
        (State::Retrying, status.retrying),
        (State::Unknown, status.unknown),
        (State::Cleaned, status.cleaned),
        (State::Sent, status.sent - status.cleaned),
        (State::Suppressed, status.suppressed),
        (State::Dead, status.dead),
        (State::Expired, status.expired),
    ] {
        assert_eq!(latest.operations[&state], count, "{state}");
    }
    assert_eq!((figures.unknown, figures.dead.values().sum()), (status.unknown, status.dead));
}

async fn only_what_could_be_sent_now_grows_old(place: Place) {
    let mut bench = place.bench(4).await;
    assert!(bench.figures().await.oldest_pending < 600.0);
    // Neither what is in doubt, nor what is dead or done, waits to be sent.
    bench.unknown(&bench.key(1), NOTHING, &Rules::default()).await;
    bench.closed(&bench.key(2), FailureClass::Recipient, "no such user").await;
    bench.deliver_and_clean(&bench.key(3)).await;
    for settled in 1..=3 {
        bench.two_hours_pass("frozen_at", settled).await;
    }
    let young = bench.figures().await.oldest_pending;
    assert!(young > 0.0 && young < 600.0, "{young}");
    bench.two_hours_pass("frozen_at", 4).await;
    assert!(is_two_hours(bench.figures().await.oldest_pending));
    // Nothing of a held run could be sent, and what waited meanwhile counts from its end.
    bench.hold().await;
    assert!(bench.figures().await.oldest_pending.abs() < f64::EPSILON);
    bench.resume().await;
    assert!(bench.figures().await.oldest_pending < 600.0);
    let sql = "update @runs set resumed_at = resumed_at - 7200000";
    bench.raw.execute(sql).await;
    assert!(is_two_hours(bench.figures().await.oldest_pending));
    bench.ledger.cancel(CAMPAIGN, bench.period, &Rules::default(), TEST).await.unwrap();
    assert!(bench.figures().await.oldest_pending.abs() < f64::EPSILON);
}

async fn a_replay_is_as_old_as_its_decision(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.dead(1, NOTHING).await;
    bench.two_hours_pass("frozen_at", 1).await;
    assert_eq!(bench.figures().await.dead[&FailureClass::Rejected], 1);
    assert_eq!(bench.replay(&[letter(&key)]).await, Ok(1));
    let figures = bench.figures().await;
    assert!(figures.oldest_pending < 600.0, "{}", figures.oldest_pending);
    assert!(figures.dead.is_empty(), "a replayed dead letter is none any more");
}

async fn a_doubt_is_overdue_after_its_patience(place: Place) {
    let mut bench = place.bench(2).await;
    for customer in 1..=2 {
        bench.unknown(&bench.key(customer), NOTHING, &Rules::default()).await;
    }
    bench.two_hours_pass("since", 1).await;
    let figures = bench.figures().await;
    assert_eq!((figures.unknown, figures.overdue), (2, 1));
    assert!(is_two_hours(figures.oldest_unknown));
    // Also when its run has closed.
    bench.raw.execute("update @runs set state = 'closed'").await;
    assert_eq!(bench.figures().await.overdue, 1);
}

async fn holds_are_told_by_their_first_reason(place: Place) {
    let bench = place.bench(1).await;
    let eligibility = Actor::part(ELIGIBILITY);
    for (by, because, holder) in [
        (TEST, "wrong prices", Holder::Operator),
        (eligibility, STARTED_LATE, Holder::Late),
        (eligibility, "the selection is empty", Holder::Selection),
        (Actor::part("watch"), GONE_BACK, Holder::Restored),
    ] {
        bench.ledger.hold_also(CAMPAIGN, bench.period, because, by).await.unwrap();
        bench.ledger.hold_also(CAMPAIGN, bench.period, "and another", TEST).await.unwrap();
        let held: Vec<_> = bench.figures().await.held.iter().map(|run| run.holder).collect();
        assert_eq!(held, [holder], "{because}");
        assert!(bench.resume().await);
    }
    bench.closed(&bench.key(1), FailureClass::Configuration, "http 401").await;
    let figures = bench.figures().await;
    assert_eq!(figures.held.len(), 1);
    assert_eq!((figures.held[0].holder, figures.held[0].period), (Holder::Breaker, bench.period));
    bench.resume().await;
    // A hold that comes before its run is one already.
    let next = bench.period.next().unwrap();
    bench.ledger.hold(CAMPAIGN, next, "not yet", TEST).await.unwrap();
    let figures = bench.figures().await;
    assert_eq!(figures.held[0].period, next);
    assert_eq!(figures.latest.unwrap().period, bench.period, "it has not started");
}

async fn missed_weeks_are_counted_until_they_are_made_up(place: Place) {
    let bench = place.bench(1).await;
    let (ledger, next) = (&bench.ledger, bench.period.next().unwrap());
    assert!(ledger.miss(CAMPAIGN, next, Timestamp::now(), "paused").await.unwrap());
    let figures = bench.figures().await;
    assert_eq!((figures.missed, figures.latest.unwrap().state), (1, RunState::Missed));
    ledger.open_run(&new_run(next)).await.unwrap();
    tick(ledger).await;
    let page = FreezePage { selected: vec![selected(next, 1)], ..FreezePage::default() };
    ledger.freeze(CAMPAIGN, next, None, &page).await.unwrap();
    let figures = bench.figures().await;
    assert_eq!((figures.missed, figures.latest.unwrap().state), (0, RunState::Frozen));
}
