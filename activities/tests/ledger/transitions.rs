//! One transaction per transition: state, attempt, dead letter and audit always tell the same story.

use super::bench::{
    Bench, CAMPAIGN, NOTHING, Place, REPLAYS, Raw, TEST, accepted, message, on_both, refused,
};
use digest_workflows::operation::{
    Event, FailureClass, Finding, Note, Operation, OperationKey, Rules, State, Verdict,
};

on_both!(
    every_step_changes_all_tables_together,
    an_event_recorded_twice_changes_nothing_the_second_time,
    an_unknown_key_is_named,
);

/// Whether all tables tell about `key` what the decision core keeps.
pub(crate) async fn check(raw: &mut Raw, key: &OperationKey) -> Operation {
    raw.snapshot().await;
    let operation = check_snapshot(raw, key).await;
    raw.execute("commit").await;
    operation
}

async fn check_snapshot(raw: &mut Raw, key: &OperationKey) -> Operation {
    let text = key.to_string();
    let columns = "machine, state, class, since, attempts, contradicted, undelivered, \
                   cleanup_failed, message_id, content_hash, at_rest";
    let sql = format!("select {columns} from @operations where key = '{text}'");
    let row = raw.rows(&sql).await.remove(0);
    let op: Operation = serde_json::from_str(&row[0]).unwrap();
    let flag = |flag: bool| u8::from(flag).to_string();
    let expected = [
        op.state.name().to_owned(),
        op.class.map(|class| class.name().to_owned()).unwrap_or_default(),
        op.since.as_millisecond().to_string(),
        op.attempts.to_string(),
        flag(op.contradicted),
        flag(op.undelivered),
        flag(op.cleanup.given_up),
        op.accepted.as_ref().and_then(|a| a.message_id.clone()).unwrap_or_default(),
    ];
    assert_eq!(row[1..9], expected, "{text}: columns and machine");
    let is_terminal = op.state.is_terminal() || op.cleanup.given_up;
    if op.state != State::Unknown {
        assert_eq!(row[10], flag(is_terminal), "{text}: at rest in {}", op.state);
    }

    check_attempts(raw, &text, &op).await;
    check_dead_letters(raw, &text, &op).await;
    let has_content = op.state != State::Cleaned;
    let rows = raw.count(&format!("@digest_rows where key = '{text}'")).await;
    assert_eq!(rows, u64::from(has_content), "{text}: rows in {}", op.state);
    let last = format!(
        "select to_state from @decisions where key = '{text}' and to_state is not null \
         order by id desc limit 1"
    );
    if let Some(last) = raw.rows(&last).await.first() {
        assert_eq!(last[0], op.state.name(), "{text}: the audit's last state");
    }
    op
}

async fn check_attempts(raw: &mut Raw, key: &str, op: &Operation) {
    let sql = format!(
        "select number, begun_at, lease_ends, settles_at, generation, ordinal, outcome, \
         content_hash from @attempts where key = '{key}' order by number"
    );
    let rows = raw.rows(&sql).await;
    let numbers: Vec<String> = (1..=op.attempts).map(|n| n.to_string()).collect();
    assert_eq!(rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>(), numbers, "{key}");
    let open: Vec<_> =
        rows.iter().filter(|row| row[6].is_empty()).map(|r| r[..6].to_vec()).collect();
    let doubts: Vec<_> = op
        .doubts
        .iter()
        .map(|doubt| {
            vec![
                doubt.number.to_string(),
                doubt.begun_at.as_millisecond().to_string(),
                doubt.lease_ends.as_millisecond().to_string(),
                doubt.settles_at.as_millisecond().to_string(),
                doubt.generation.to_string(),
                doubt.ordinal.to_string(),
            ]
        })
        .collect();
    assert_eq!(open, doubts, "{key}: open attempts and doubts");
}

async fn check_dead_letters(raw: &mut Raw, key: &str, op: &Operation) {
    let sql = format!(
        "select generation, class, replayed_at from @dead_letters where key = '{key}' \
         order by generation"
    );
    let letters = raw.rows(&sql).await;
    let waiting: Vec<_> = letters.iter().filter(|row| row[2].is_empty()).collect();
    if op.state == State::Dead {
        assert_eq!(waiting.len(), 1, "{key}: one dead letter waits");
        assert_eq!(waiting[0][0], op.generation.to_string());
        assert_eq!(waiting[0][1], op.class.unwrap().name());
    } else {
        assert!(waiting.is_empty(), "{key}: {waiting:?} in {}", op.state);
    }
    // Every generation but the present one ended as a dead letter and was replayed.
    let replayed = letters.len() - waiting.len();
    assert_eq!(replayed, op.generation as usize - 1, "{key}: replayed dead letters");
}

async fn every_step_changes_all_tables_together(place: Place) {
    every_kind_of_transition(&mut place.bench(4).await).await;
}

/// Takes four operations through every kind of transition, and looks at all tables after each.
pub(crate) async fn every_kind_of_transition(bench: &mut Bench) {
    bench.enqueue_all().await;
    let [happy, failing, doubtful, cancelled] = [1, 2, 3, 4].map(|n| bench.key(n));
    bench.ledger.store_message(&happy, &message("hello")).await.unwrap();
    let attempt = bench.begun(&happy, NOTHING).await;
    assert_eq!(check(&mut bench.raw, &happy).await.state, State::Sending);
    bench.accepted(&happy, attempt).await;
    assert_eq!(check(&mut bench.raw, &happy).await.state, State::Sent);
    bench.record(&happy, Event::CleanedUp).await;
    assert_eq!(check(&mut bench.raw, &happy).await.state, State::Cleaned);

    bench.closed(&failing, FailureClass::Transport, "connect").await;
    assert_eq!(check(&mut bench.raw, &failing).await.state, State::Retrying);
    let attempt = bench.begun(&failing, NOTHING).await;
    check(&mut bench.raw, &failing).await;
    bench.record(&failing, refused(attempt, FailureClass::Rejected)).await;
    assert_eq!(check(&mut bench.raw, &failing).await.state, State::Dead);
    bench.record(&failing, Event::Replayed).await;
    assert_eq!(check(&mut bench.raw, &failing).await.generation, 2);
    let attempt = bench.begun(&failing, NOTHING).await;
    bench.accepted(&failing, attempt).await;
    bench.record(&failing, Event::CleanupFailed { random: 0.5 }).await;
    check(&mut bench.raw, &failing).await;
    let impatient = Rules {
        cleanup: digest_workflows::operation::RetryPolicy {
            max_attempts: 1,
            ..Rules::default_cleanup()
        },
        ..Rules::default()
    };
    bench.record_by(&failing, Event::CleanupFailed { random: 0.5 }, &impatient).await;
    assert!(check(&mut bench.raw, &failing).await.cleanup.given_up);
    bench.record(&failing, Event::CleanupAgain).await;
    check(&mut bench.raw, &failing).await;
    bench.record(&failing, Event::CleanedUp).await;
    check(&mut bench.raw, &failing).await;
    let told = Event::Told { finding: Finding::Refused(FailureClass::Recipient) };
    bench.record(&failing, told).await;
    assert!(check(&mut bench.raw, &failing).await.undelivered);

    bench.unknown(&doubtful, REPLAYS, &Rules::default()).await;
    assert_eq!(check(&mut bench.raw, &doubtful).await.state, State::Unknown);
    let second = bench.begun(&doubtful, REPLAYS).await;
    assert_eq!(check(&mut bench.raw, &doubtful).await.doubts.len(), 2);
    // The refusal of the first attempt says nothing about the second.
    bench.record(&doubtful, refused(1, FailureClass::RateLimited)).await;
    assert_eq!(check(&mut bench.raw, &doubtful).await.state, State::Unknown);
    let verdict = Event::Judged { verdict: Verdict::Delivered, attempt: Some(second) };
    assert_eq!(bench.record(&doubtful, verdict).await.change.note, Some(Note::ActsLater));
    check(&mut bench.raw, &doubtful).await;
    let abandon = Event::Judged { verdict: Verdict::Abandon, attempt: Some(second) };
    bench.record(&doubtful, abandon).await;
    let row = format!("select at_rest from @operations where key = '{doubtful}'");
    assert_eq!(bench.raw.rows(&row).await[0][0], "1");
    bench.record(&doubtful, accepted(second)).await;
    let op = bench.operation(&doubtful).await;
    assert_eq!((op.state, op.contradicted), (State::Expired, true));

    bench.hold().await;
    bench.resume().await;
    let suppressed = bench.ledger.cancel(CAMPAIGN, bench.period, &Rules::default(), TEST).await;
    assert_eq!(suppressed.unwrap(), 1);
    assert_eq!(check(&mut bench.raw, &cancelled).await.state, State::Suppressed);
    assert!(bench.ledger.close_run(CAMPAIGN, bench.period).await.unwrap());
}

async fn an_event_recorded_twice_changes_nothing_the_second_time(place: Place) {
    let bench = place.bench(6).await;
    let script = |attempt| {
        [
            (1, accepted(attempt)),
            (2, refused(attempt, FailureClass::Transport)),
            (3, refused(attempt, FailureClass::Rejected)),
            (4, Event::Overdue { attempt, random: 0.0 }),
        ]
    };
    for (customer, event) in script(1) {
        let key = bench.key(customer);
        bench.begun(&key, NOTHING).await;
        let first = bench.record(&key, event.clone()).await;
        let second = bench.record(&key, event).await;
        assert_eq!(second.change.note, Some(Note::AlreadyRecorded));
        assert_eq!(first.answer.operation, second.answer.operation);
    }
    // A try that ended before its intent takes its place once.
    let key = bench.key(5);
    let failure = digest_workflows::operation::Failure::new(FailureClass::Transport, "connect");
    let event = super::bench::closed(&bench.operation(&key).await, failure);
    let first = bench.record(&key, event.clone()).await;
    let second = bench.record(&key, event).await;
    assert_eq!(second.change.note, Some(Note::AlreadyRecorded));
    assert_eq!(first.answer.operation, second.answer.operation);
    assert_eq!(second.answer.operation.attempts, 1);
}

async fn an_unknown_key_is_named(place: Place) {
    let bench = place.bench(1).await;
    let stranger = bench.key(99);
    let error = bench
        .ledger
        .record(&stranger, &Event::TimePassed, &Rules::default(), TEST, None)
        .await
        .unwrap_err();
    assert!(error.to_string().contains(&stranger.to_string()), "{error}");
    assert!(!error.is_temporary());
}
