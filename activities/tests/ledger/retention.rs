//! Forgetting a customer, and what is dropped with time.

use super::bench::{
    Bench, CAMPAIGN, NOTHING, Place, REPLAYS, TEST, accepted, message, on_both, refused,
};
use digest_activities::ledger::{Actor, BeginAnswer, Forgotten, LedgerError, RunState};
use digest_workflows::operation::{
    CannotBegin, Event, FailureClass, OperationKey, Rules, State, Step, Verdict,
};
use jiff::SignedDuration;

on_both!(
    a_forgotten_customer_is_erased_everywhere_and_never_sent_to_again,
    an_attempt_in_doubt_of_a_forgotten_customer_is_never_repeated,
    what_is_forgotten_cannot_be_read_from_the_file,
    content_of_what_ended_long_ago_is_dropped_and_no_other,
    records_of_old_closed_runs_go_and_the_period_stays_closed,
    a_run_with_anything_open_keeps_its_records,
    the_counter_never_goes_back,
    an_unknown_without_a_workflow_still_expires,
    the_sweep_finds_what_was_settled_behind_a_workflow,
);

const PERSON: Actor<'static> = Actor { by: "ann", reason: Some("erasure request 77") };
const NOW: SignedDuration = SignedDuration::ZERO;
const DAY: SignedDuration = SignedDuration::from_hours(24);

impl Bench {
    async fn forget(&self, customer: u32) -> Forgotten {
        let id = self.key(customer).customer_id();
        self.ledger.forget(CAMPAIGN, &id, &Rules::default(), PERSON).await.unwrap()
    }

    async fn contents(&mut self) -> (u64, u64) {
        (self.raw.count("@digest_rows").await, self.raw.count("@messages").await)
    }

    /// A dead letter with a stored message.
    async fn rejected(&self, customer: u32) -> OperationKey {
        let key = self.key(customer);
        self.ledger.store_message(&key, &message("frozen")).await.unwrap();
        self.begun(&key, NOTHING).await;
        self.record(&key, refused(1, FailureClass::Rejected)).await;
        key
    }

    /// Closes the run, and makes it look as if that were two days ago.
    async fn closed_long_ago(&mut self) {
        assert!(self.ledger.close_run(CAMPAIGN, self.period).await.unwrap());
        self.raw.execute("update @runs set closed_at = closed_at - 172800000").await;
    }
}

async fn a_forgotten_customer_is_erased_everywhere_and_never_sent_to_again(place: Place) {
    let mut bench = place.bench(4).await;
    bench.rejected(1).await;
    // The same customer in the week after, not tried yet.
    let first = bench.period;
    bench.period = first.next().unwrap();
    bench.open().await;
    bench.freeze(None, 1..=2, None).await;
    let open = bench.key(1);

    let forgotten = bench.forget(1).await;
    let expected = Forgotten {
        keys: 2,
        erased: 2,
        suppressed: 1,
        dead: 1,
        open: vec![open.clone()],
        ..Forgotten::default()
    };
    assert_eq!(forgotten, expected);
    let left = bench.raw.count("@digest_rows where key like '%:c-00001'").await;
    assert_eq!((left, bench.contents().await), (0, (4, 0)), "the others keep theirs");
    assert_eq!(bench.operation(&open).await.state, State::Suppressed);
    // An execution that was overtaken stores nothing.
    let late = bench.ledger.store_message(&open, &message("late")).await;
    assert!(matches!(late, Err(LedgerError::Settled(_))), "{late:?}");
    let cannot = bench.begin(&open, NOTHING).await;
    assert!(matches!(cannot, BeginAnswer::Cannot(CannotBegin::Settled)), "{cannot:?}");
    let audited = bench
        .raw
        .rows("select event from @decisions where decided_by = 'ann' and reason = 'erasure request 77' order by id")
        .await;
    assert_eq!(audited.concat(), ["unwanted", "erased", "unwanted", "erased"]);

    let again = bench.forget(1).await;
    assert!(again.is_nothing() && again.keys == 2, "{again:?}");
    assert_eq!(bench.raw.count("@decisions where decided_by = 'ann'").await, 4);
    assert_eq!(bench.forget(77).await, Forgotten::default());
}

async fn an_attempt_in_doubt_of_a_forgotten_customer_is_never_repeated(place: Place) {
    let mut bench = place.bench(2).await;
    let rules = Rules::default();
    let key = bench.key(1);
    bench.ledger.store_message(&key, &message("frozen")).await.unwrap();
    bench.unknown(&key, REPLAYS, &rules).await;
    let forgotten = bench.forget(1).await;
    assert_eq!((forgotten.in_doubt, forgotten.suppressed), (1, 0));
    assert!(bench.forget(1).await.is_nothing(), "it stays in doubt, with nothing left to forget");
    let operation = bench.operation(&key).await;
    assert_eq!(operation.state, State::Unknown);
    assert_eq!(bench.ledger.message(&key).await.unwrap(), None);
    // However long it waits, no step sends it.
    let mut at = bench.ledger.now().await.unwrap();
    for _ in 0..400 {
        let step = operation.next(&rules, at);
        assert!(!matches!(step, Step::Deliver { .. }), "{step:?}");
        at += SignedDuration::from_hours(1);
    }
    let cannot = bench.begin(&key, REPLAYS).await;
    assert!(matches!(cannot, BeginAnswer::Cannot(CannotBegin::Unwanted)), "{cannot:?}");
    // A late answer still counts.
    bench.record(&key, accepted(1)).await;
    assert_eq!(bench.operation(&key).await.state, State::Sent);

    // Content that went another way ends the repetitions, and only them.
    let key = bench.key(2);
    bench.unknown(&key, REPLAYS, &rules).await;
    bench.raw.execute("delete from @digest_rows").await;
    bench.record(&key, Event::ReplayOver).await;
    let operation = bench.operation(&key).await;
    assert_eq!((operation.state, operation.replayable_until()), (State::Unknown, None));
    assert!(operation.look_up_is_due(bench.ledger.now().await.unwrap()));
}

/// On PostgreSQL the free space is the server's matter, and its vacuum's.
async fn what_is_forgotten_cannot_be_read_from_the_file(place: Place) {
    let bench = place.bench(1).await;
    bench.rejected(1).await;
    let Some(directory) = &place.directory else { return };
    let found = || {
        let files = std::fs::read_dir(directory.path()).unwrap();
        let bytes: Vec<u8> =
            files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        bytes.windows(17).filter(|part| part == b"anna@shop.example").count()
    };
    assert!(found() > 0, "the address was stored");
    bench.forget(1).await;
    // The last one to close writes everything back into the one file.
    drop(bench.raw);
    bench.ledger.close().await;
    assert_eq!(found(), 0);
}

async fn content_of_what_ended_long_ago_is_dropped_and_no_other(place: Place) {
    let mut bench = place.bench(6).await;
    let rules = Rules::default();
    bench.rejected(1).await;
    bench.record(&bench.key(2), Event::Unwanted).await;
    bench.unknown(&bench.key(3), NOTHING, &rules).await;
    let abandon = Event::Judged { verdict: Verdict::Abandon, attempt: None };
    bench.record(&bench.key(3), abandon).await;
    bench.unknown(&bench.key(4), NOTHING, &rules).await;
    let sent = bench.key(5);
    bench.begun(&sent, NOTHING).await;
    bench.accepted(&sent, 1).await;
    assert_eq!(bench.ledger.drop_old_content(CAMPAIGN, DAY, 9).await.unwrap(), 0, "too young");
    assert_eq!(bench.ledger.drop_old_content("other", NOW, 9).await.unwrap(), 0);
    let mut batches = Vec::new();
    loop {
        batches.push(bench.ledger.drop_old_content(CAMPAIGN, NOW, 2).await.unwrap());
        if batches.last() < Some(&2) {
            break;
        }
    }
    assert_eq!(batches, [2, 1]);
    let left = bench.raw.rows("select key from @digest_rows order by key").await;
    let expected = [4, 5, 6].map(|customer| bench.key(customer).to_string());
    assert_eq!((left.concat(), bench.contents().await.1), (expected.into(), 0));
    assert_eq!(bench.raw.count("@operations").await, 6, "the records stay");
}

async fn records_of_old_closed_runs_go_and_the_period_stays_closed(place: Place) {
    let mut bench = place.bench(3).await;
    bench.enqueue_all().await;
    bench.rejected(1).await;
    bench.deliver_and_clean(&bench.key(2)).await;
    bench.record(&bench.key(3), Event::Unwanted).await;
    let first = bench.period;
    bench.closed_long_ago().await;
    bench.period = first.next().unwrap();
    bench.open().await;
    bench.freeze(None, 4..=5, None).await;
    for period in [first, bench.period] {
        assert!(bench.ledger.resume_once("a:1", CAMPAIGN, period, TEST).await.unwrap());
    }

    let week = SignedDuration::from_hours(7 * 24);
    assert_eq!(bench.ledger.remove_old_records(CAMPAIGN, week, 2).await.unwrap(), None);
    let mut removed = Vec::new();
    while let Some(batch) = bench.ledger.remove_old_records(CAMPAIGN, DAY, 2).await.unwrap() {
        removed.push(batch);
    }
    assert_eq!(removed, [2, 1, 0]);
    let old = format!("like '{CAMPAIGN}:{first}:%'");
    for table in ["operations", "attempts", "dead_letters", "messages", "digest_rows"] {
        assert_eq!(bench.raw.count(&format!("@{table} where key {old}")).await, 0, "{table}");
    }
    assert_eq!(bench.raw.count("@operations").await, 2, "the other run is untouched");
    assert_eq!(bench.raw.count("@meta where name like 'asked:%'").await, 1, "its requests too");
    // A second run of the old period finds it closed and sends nothing.
    bench.period = first;
    assert_eq!(bench.open().await.state, RunState::Closed);
    assert_eq!(bench.run().await.selected, 0);
}

async fn a_run_with_anything_open_keeps_its_records(place: Place) {
    let mut bench = place.bench(2).await;
    bench.enqueue_all().await;
    let dead = bench.rejected(1).await;
    let sent = bench.key(2);
    bench.begun(&sent, NOTHING).await;
    bench.accepted(&sent, 1).await;
    let mut rules = Rules::default();
    rules.cleanup.max_attempts = 1;
    bench.record_by(&sent, Event::CleanupFailed { random: 0.0 }, &rules).await;
    bench.closed_long_ago().await;
    let keep = bench.ledger.remove_old_records(CAMPAIGN, DAY, 9).await.unwrap();
    assert_eq!((keep, bench.raw.count("@operations").await), (None, 2), "a failed cleanup");
    bench.record(&sent, Event::CleanedUp).await;
    bench.record(&dead, Event::Replayed).await;
    let keep = bench.ledger.remove_old_records(CAMPAIGN, DAY, 9).await.unwrap();
    assert_eq!((keep, bench.raw.count("@operations").await), (None, 2), "a replay under way");
}

async fn the_counter_never_goes_back(place: Place) {
    let mut bench = place.bench(1).await;
    bench.enqueue_all().await;
    bench.rejected(1).await;
    bench.closed_long_ago().await;
    let before = bench.ledger.counter().await.unwrap();
    while bench.ledger.remove_old_records(CAMPAIGN, DAY, 9).await.unwrap().is_some() {}
    assert_eq!(bench.raw.count("@operations").await, 0);
    assert_eq!(bench.ledger.counter().await.unwrap(), before);
}

async fn an_unknown_without_a_workflow_still_expires(place: Place) {
    let mut bench = place.bench(1).await;
    bench.enqueue_all().await;
    let mut rules = Rules::default();
    rules.unknown.keep_rows_for = SignedDuration::ZERO;
    let key = bench.key(1);
    bench.unknown(&key, NOTHING, &rules).await;
    // The lease would still be listened for.
    let mut operation = bench.operation(&key).await;
    operation.asked_at = operation.lease_ends();
    bench
        .raw
        .execute(&format!(
            "update @operations set machine = '{}'",
            serde_json::to_string(&operation).unwrap()
        ))
        .await;
    // The sweep starts whatever is unknown and has no workflow; its first step is the expiry.
    let unfinished = bench.ledger.unfinished(CAMPAIGN, NOW, "", 9).await.unwrap();
    assert_eq!(unfinished.len(), 1);
    let now = bench.ledger.now().await.unwrap();
    assert_eq!(unfinished[0].operation.next(&rules, now), Step::Reconcile);
    bench.record_by(&key, Event::TimePassed, &rules).await;
    assert_eq!(bench.operation(&key).await.state, State::Expired);
}

async fn the_sweep_finds_what_was_settled_behind_a_workflow(place: Place) {
    let bench = place.bench(2).await;
    bench.enqueue_all().await;
    bench.record(&bench.key(1), Event::Unwanted).await;
    let keys = [bench.key(1), bench.key(2), bench.key(77)];
    assert_eq!(bench.ledger.settled(&keys, NOW).await.unwrap(), [bench.key(1)]);
    assert_eq!(bench.ledger.settled(&keys, DAY).await.unwrap(), []);
    let record = bench.record(&bench.key(2), Event::TimePassed).await;
    assert_eq!(record.change.to, State::Selected);
}
