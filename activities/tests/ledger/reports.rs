//! Reports: the numbers add up, and lists page by key.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, REPLAYS, new_run, on_both, refused, selected};
use digest_activities::ledger::{Actor, FreezePage, LedgerError, RunStatus};
use digest_workflows::operation::{Event, FailureClass, Rules, State, Verdict};

on_both!(
    the_counts_of_a_run_add_up,
    missing_names_at_most_a_hundred_and_counts_all,
    lists_page_by_key_within_their_period_and_campaign,
    show_tells_the_whole_story,
    decisions_are_paged_by_number_and_the_counter_only_grows,
    a_customer_has_one_key_a_period,
);

fn total(status: &RunStatus) -> u64 {
    status.pending
        + status.sending
        + status.retrying
        + status.unknown
        + status.sent
        + status.suppressed
        + status.dead
        + status.expired
}

async fn the_counts_of_a_run_add_up(place: Place) {
    let mut bench = place.bench(12).await;
    let fresh = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((fresh.selected, fresh.pending, fresh.missing_count), (12, 12, 12));
    assert_eq!((fresh.run.as_str(), fresh.state.as_str()), ("digest-run:2026-W42", "frozen"));
    assert!(fresh.oldest_pending_seconds.is_some_and(|age| (0..600).contains(&age)));
    assert!(!fresh.needs_a_human());

    bench.enqueue_all().await;
    bench.deliver_and_clean(&bench.key(1)).await;
    let attempt = bench.begun(&bench.key(2), NOTHING).await;
    bench.accepted(&bench.key(2), attempt).await;
    bench.begun(&bench.key(3), NOTHING).await;
    bench.closed(&bench.key(4), FailureClass::Transport, "connect").await;
    bench.unknown(&bench.key(5), NOTHING, &Rules::default()).await;
    bench.record(&bench.key(6), Event::Unwanted).await;
    let attempt = bench.begun(&bench.key(7), NOTHING).await;
    bench.record(&bench.key(7), refused(attempt, FailureClass::Recipient)).await;
    bench.closed(&bench.key(8), FailureClass::Schema, "template").await;
    bench.unknown(&bench.key(9), NOTHING, &Rules::default()).await;
    let abandon = Event::Judged { verdict: Verdict::Abandon, attempt: None };
    bench.record(&bench.key(9), abandon).await;
    bench.accepted(&bench.key(9), 1).await;

    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!(total(&status), status.selected);
    assert_eq!(status.classes.iter().map(|line| line.count).sum::<u64>(), status.selected);
    let by_state = [
        status.pending,
        status.sending,
        status.retrying,
        status.unknown,
        status.sent,
        status.cleaned,
        status.suppressed,
        status.dead,
        status.expired,
    ];
    assert_eq!(by_state, [3, 1, 1, 1, 2, 1, 1, 2, 1]);
    assert_eq!((status.contradicted, status.undelivered, status.cleanup_failed), (1, 0, 0));
    assert_eq!(status.missing_count, 7, "pending, sending, retrying, unknown and not cleaned");
    let missing: Vec<_> = [2, 3, 4, 5, 10, 11, 12].map(|n| bench.key(n).to_string()).to_vec();
    assert_eq!(status.missing, missing);
    assert!(status.needs_a_human());

    // The age is that of the oldest that still waits to be sent, from its selection.
    bench
        .raw
        .execute(&format!(
            "update @operations set frozen_at = frozen_at - 7200000 where key = '{}'",
            bench.key(4)
        ))
        .await;
    bench
        .raw
        .execute(&format!(
            "update @operations set frozen_at = frozen_at - 99900000 where key = '{}'",
            bench.key(1)
        ))
        .await;
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert!(status.oldest_pending_seconds.is_some_and(|age| (7200..7800).contains(&age)));

    let error = bench.ledger.status("reminder", bench.period).await.unwrap_err();
    assert!(matches!(error, LedgerError::NoSuchRun { .. }), "{error:?}");
    assert!(error.to_string().contains("digestd run --period 2026-W42"), "{error}");
}

async fn missing_names_at_most_a_hundred_and_counts_all(place: Place) {
    let bench = place.bench(130).await;
    bench.deliver_and_clean(&bench.key(1)).await;
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!(status.missing_count, 129);
    assert_eq!(status.missing.len(), 100);
    assert_eq!(status.missing[0], bench.key(2).to_string());
}

async fn lists_page_by_key_within_their_period_and_campaign(place: Place) {
    let bench = place.bench(7).await;
    let next = bench.period.next().unwrap();
    bench.ledger.open_run(&new_run(next)).await.unwrap();
    let page = FreezePage { selected: vec![selected(next, 1)], ..FreezePage::default() };
    bench.ledger.freeze(CAMPAIGN, next, None, &page).await.unwrap();
    let keys: Vec<_> = (1..=5).map(|n| bench.key(n)).collect();
    for key in &keys {
        bench.unknown(key, NOTHING, &Rules::default()).await;
    }
    let later = super::bench::key(next, 1);
    bench.unknown(&later, NOTHING, &Rules::default()).await;

    let list = |period, after: Option<String>, limit| {
        let ledger = bench.ledger.clone();
        async move {
            ledger.list(CAMPAIGN, State::Unknown, period, after.as_deref(), limit).await.unwrap()
        }
    };
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let listing = list(Some(bench.period), after, 2).await;
        assert!(listing.operations.len() <= 2);
        seen.extend(listing.operations.iter().map(|line| line.key.clone()));
        after = listing.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, keys.iter().map(ToString::to_string).collect::<Vec<_>>());
    let all = list(None, None, 100).await;
    assert_eq!(all.operations.len(), 6);
    assert_eq!(all.operations[5].key, later.to_string());
    assert!(all.operations[0].waits_for.contains("a human's verdict"));
    assert_eq!((all.operations[0].attempts, all.next), (1, None));
    assert!(list(bench.period.previous(), None, 100).await.operations.is_empty());
    let other = bench.ledger.list("dig", State::Unknown, None, None, 100).await.unwrap();
    assert!(other.operations.is_empty());
    // Exactly as many as fit are the last page.
    assert_eq!(list(Some(bench.period), None, 5).await.next, None);
}

async fn show_tells_the_whole_story(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.key(1);
    bench.enqueue_all().await;
    bench.closed(&key, FailureClass::Transport, "connect refused").await;
    let attempt = bench.begun(&key, REPLAYS).await;
    bench.record(&key, Event::Overdue { attempt, random: 0.0 }).await;
    let actor = Actor { by: "mara", reason: Some("seen in the provider's log") };
    let verdict = Event::Judged { verdict: Verdict::NotDelivered, attempt: None };
    bench.ledger.record(&key, &verdict, &Rules::default(), actor, None).await.unwrap();
    bench.accepted(&key, attempt).await;

    let shown = bench.ledger.show(&key).await.unwrap();
    assert_eq!((shown.state, shown.provider.as_deref()), (State::Sent, Some("sandbox")));
    assert_eq!(shown.message_id.as_deref(), Some("provider-1"));
    assert!(shown.enqueued_at.unwrap() >= shown.frozen_at);
    let outcomes: Vec<_> = shown.attempts.iter().map(|line| line.outcome.as_deref()).collect();
    assert_eq!(outcomes, [Some("not_sent: transport (connect refused)"), Some("accepted")]);
    assert_eq!(shown.attempts[0].handed_over_at, None);
    assert!(shown.attempts[1].handed_over_at.is_some());
    let told = |line: &digest_activities::ledger::TransitionLine| {
        (line.event.clone(), line.from.clone().unwrap(), line.to.clone().unwrap(), line.by.clone())
    };
    let story: Vec<_> = shown.timeline.iter().map(told).collect();
    let line = |event: &str, from: &str, to: &str, by: &str| {
        (event.to_owned(), from.to_owned(), to.to_owned(), by.to_owned())
    };
    assert_eq!(
        story,
        [
            line("closed", "selected", "retrying", "test"),
            line("begun", "retrying", "sending", "delivery"),
            line("overdue", "sending", "unknown", "test"),
            line("judged", "unknown", "unknown", "mara"),
            line("answered", "unknown", "sent", "test"),
        ]
    );
    assert_eq!(shown.timeline[0].reason.as_deref(), Some("connect refused"));
    assert_eq!(shown.timeline[3].reason.as_deref(), Some("seen in the provider's log"));
    assert!(shown.timeline[3].note.is_some());
    assert!(shown.timeline.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

async fn decisions_are_paged_by_number_and_the_counter_only_grows(place: Place) {
    let bench: Bench = place.bench(3).await;
    assert_eq!(bench.ledger.counter().await.unwrap(), 0);
    let mut last = 0;
    for customer in 1..=3 {
        bench.deliver_and_clean(&bench.key(customer)).await;
        let counter = bench.ledger.counter().await.unwrap();
        assert!(counter > last);
        last = counter;
    }
    let all = bench.ledger.decisions(CAMPAIGN, bench.period, 0, 100).await.unwrap();
    assert_eq!(all.len(), 9);
    assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert_eq!(all[8].id, last);
    let newest = bench.ledger.decisions(CAMPAIGN, bench.period, 0, 2).await.unwrap();
    let ids = |lines: &[digest_activities::ledger::DecisionLine]| {
        lines.iter().map(|line| line.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&newest), ids(&all[7..]));
    let after = bench.ledger.decisions(CAMPAIGN, bench.period, all[6].id, 100).await.unwrap();
    assert_eq!(ids(&after), ids(&all[7..]));
}

async fn a_customer_has_one_key_a_period(place: Place) {
    let bench = place.bench(2).await;
    let mut period = bench.period;
    let mut keys = vec![bench.key(1)];
    for _ in 0..2 {
        period = period.next().unwrap();
        bench.ledger.open_run(&new_run(period)).await.unwrap();
        let page = FreezePage { selected: vec![selected(period, 1)], ..FreezePage::default() };
        bench.ledger.freeze(CAMPAIGN, period, None, &page).await.unwrap();
        keys.push(super::bench::key(period, 1));
    }
    assert_eq!(bench.ledger.keys_of(CAMPAIGN, "c-00001").await.unwrap(), keys);
    assert!(bench.ledger.keys_of("reminder", "c-00001").await.unwrap().is_empty());
    assert!(bench.ledger.keys_of(CAMPAIGN, "c-0000").await.unwrap().is_empty());
}
