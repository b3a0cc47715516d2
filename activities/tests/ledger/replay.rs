//! Replay of dead letters and of failed cleanups: what is refused, what is reset, all or none.

use super::bench::{
    Bench, CAMPAIGN, NOTHING, Place, REPLAYS, TEST, accepted, message, new_run, on_both, refused,
    selected,
};
use digest_activities::ledger::{Actor, NotReplayed, Refrozen, ToReplay};
use digest_workflows::operation::{
    CannotReplay, Event, FailureClass, OperationKey, Rules, State, Verdict,
};
use jiff::SignedDuration;

on_both!(
    a_replay_is_one_audited_transaction,
    what_is_not_certainly_unsent_and_dead_is_refused_and_nothing_else_moves,
    a_dead_letter_whose_content_is_gone_needs_to_be_rendered_anew,
    a_refreeze_replaces_the_content_and_starts_a_new_window,
    inside_the_window_of_a_provider_nothing_is_rendered_anew,
    a_cancelled_or_late_run_is_not_replayed,
    a_replay_that_is_cancelled_before_its_attempt_ends_suppressed,
    dead_letters_say_what_a_replay_would_do,
    failed_cleanups_are_taken_up_again_page_by_page,
);

const PERSON: Actor<'static> = Actor { by: "ann", reason: Some("template fixed") };

pub(crate) fn letter(key: &OperationKey) -> ToReplay {
    ToReplay { key: key.clone(), refrozen: None }
}

fn anew(bench: &Bench, customer: u32, text: &str) -> ToReplay {
    let mut data = selected(bench.period, customer).data;
    data.customer.insert("address".into(), "new@shop.example".into());
    let refrozen = Refrozen { data, message: message(text) };
    ToReplay { key: bench.key(customer), refrozen: Some(refrozen) }
}

impl Bench {
    /// Replays as a person; the refusals by key.
    pub(crate) async fn replay(
        &self,
        letters: &[ToReplay],
    ) -> Result<usize, Vec<(String, NotReplayed)>> {
        let replayed = self.ledger.replay(letters, &Rules::default(), PERSON).await.unwrap();
        replayed.map(|answers| answers.len()).map_err(|refused| {
            refused.into_iter().map(|(key, why)| (key.to_string(), why)).collect()
        })
    }

    /// A dead letter that was handed over once and refused.
    pub(crate) async fn dead(
        &self,
        customer: u32,
        contract: digest_workflows::operation::Contract,
    ) -> OperationKey {
        let key = self.key(customer);
        self.ledger.store_message(&key, &message("frozen")).await.unwrap();
        let attempt = self.begun(&key, contract).await;
        self.record(&key, refused(attempt, FailureClass::Rejected)).await;
        assert_eq!(self.operation(&key).await.state, State::Dead);
        key
    }
}

async fn a_replay_is_one_audited_transaction(place: Place) {
    let mut bench = place.bench(2).await;
    let (one, two) = (bench.dead(1, NOTHING).await, bench.dead(2, NOTHING).await);
    // A key that is named twice is replayed once.
    let letters = [letter(&two), letter(&one), letter(&one)];
    assert_eq!(bench.replay(&letters).await, Ok(2));
    for key in [&one, &two] {
        let operation = bench.operation(key).await;
        assert_eq!((operation.state, operation.generation), (State::Sending, 2));
        let stored = bench.ledger.message(key).await.unwrap().unwrap();
        assert_eq!(stored.content_hash, message("frozen").content_hash);
    }
    let audited = bench
        .raw
        .rows("select from_state, to_state, decided_by, reason from @decisions where event = 'replayed'")
        .await;
    assert_eq!(audited, vec![["dead", "sending", "ann", "template fixed"].map(str::to_owned); 2]);
    assert_eq!(bench.raw.count("@dead_letters where replayed_at is not null").await, 2);
    // The second request finds nothing dead.
    let again = bench.replay(&[letter(&one)]).await.unwrap_err();
    assert_eq!(again[0].1, CannotReplay::NotDead(State::Sending).into());
    assert_eq!(bench.begun(&one, NOTHING).await, 2, "the running number goes on");
}

async fn what_is_not_certainly_unsent_and_dead_is_refused_and_nothing_else_moves(place: Place) {
    let mut bench = place.bench(9).await;
    let good = bench.dead(1, NOTHING).await;
    let selected = bench.key(2);
    let sent = bench.key(3);
    bench.begun(&sent, NOTHING).await;
    bench.accepted(&sent, 1).await;
    let unknown = bench.key(4);
    bench.unknown(&unknown, NOTHING, &Rules::default()).await;
    let expired = bench.key(5);
    bench.unknown(&expired, NOTHING, &Rules::default()).await;
    let abandon = Event::Judged { verdict: Verdict::Abandon, attempt: None };
    bench.record(&expired, abandon).await;
    let stale = bench.key(6);
    bench.record(&stale, Event::TooLate).await;
    // Refused, and then accepted after all.
    let contradicted = bench.dead(7, NOTHING).await;
    bench.record(&contradicted, accepted(1)).await;
    let erased = bench.dead(8, NOTHING).await;
    bench.ledger.forget(CAMPAIGN, "c-00008", &Rules::default(), TEST).await.unwrap();
    let missing = bench.key(77);
    let before = bench.raw.rows("select key, machine from @operations order by key").await;
    let decisions = bench.raw.count("@decisions").await;

    let all =
        [&good, &selected, &sent, &unknown, &expired, &stale, &contradicted, &erased, &missing];
    let letters: Vec<ToReplay> = all.into_iter().map(letter).collect();
    let refused = bench.replay(&letters).await.unwrap_err();
    let expected: Vec<(String, NotReplayed)> = [
        (&selected, CannotReplay::NotDead(State::Selected).into()),
        (&sent, CannotReplay::NotDead(State::Sent).into()),
        (&unknown, CannotReplay::NotDead(State::Unknown).into()),
        (&expired, CannotReplay::NotDead(State::Expired).into()),
        (&stale, CannotReplay::Stale.into()),
        (&contradicted, CannotReplay::NotProvenNotSent.into()),
        (&erased, CannotReplay::Unwanted.into()),
        (&missing, NotReplayed::Missing),
    ]
    .map(|(key, why): (&OperationKey, NotReplayed)| (key.to_string(), why))
    .into();
    assert_eq!(refused, expected);
    let after = bench.raw.rows("select key, machine from @operations order by key").await;
    assert_eq!(after, before, "not even the good one is replayed");
    assert_eq!(bench.raw.count("@decisions").await, decisions);
    // What is foreseen is what is done.
    for key in all {
        let foreseen = bench.ledger.may_replay(key, false).await.unwrap().err();
        let told = refused.iter().find(|(name, _)| *name == key.to_string());
        assert_eq!(foreseen, told.map(|(_, why)| why.clone()), "{key}");
    }
}

async fn a_dead_letter_whose_content_is_gone_needs_to_be_rendered_anew(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.dead(1, NOTHING).await;
    let dropped = bench.ledger.drop_old_content(CAMPAIGN, SignedDuration::ZERO, 10).await.unwrap();
    assert_eq!(dropped, 1);
    let refused = bench.replay(&[letter(&key)]).await.unwrap_err();
    assert_eq!(refused[0].1, NotReplayed::ContentGone);
    assert_eq!(bench.replay(&[anew(&bench, 1, "anew")]).await, Ok(1));
}

async fn a_refreeze_replaces_the_content_and_starts_a_new_window(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.dead(1, NOTHING).await;
    assert!(bench.operation(&key).await.first_intent_at.is_some());
    assert_eq!(bench.replay(&[anew(&bench, 1, "anew")]).await, Ok(1));
    let operation = bench.operation(&key).await;
    assert_eq!((operation.state, operation.first_intent_at), (State::Sending, None));
    let stored = bench.ledger.message(&key).await.unwrap().unwrap();
    assert_eq!(stored.content_hash, message("anew").content_hash);
    let data = bench.ledger.frozen_data(&key).await.unwrap().unwrap();
    assert_eq!(data.customer["address"], "new@shop.example");
    let hash = bench.raw.rows("select content_hash from @operations").await;
    assert_eq!(hash[0][0], message("anew").content_hash);
    let events = bench
        .raw
        .rows("select event, decided_by from @decisions where decided_by = 'ann' order by id")
        .await;
    assert_eq!(
        events,
        [["refrozen", "ann"], ["replayed", "ann"]].map(|row| row.map(str::to_owned))
    );
}

async fn inside_the_window_of_a_provider_nothing_is_rendered_anew(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.dead(1, REPLAYS).await;
    let until = bench.operation(&key).await.remembered_until.unwrap();
    let refused = bench.replay(&[anew(&bench, 1, "anew")]).await.unwrap_err();
    assert_eq!(refused[0].1, CannotReplay::Remembered(until).into());
    let stored = bench.ledger.message(&key).await.unwrap().unwrap();
    assert_eq!(stored.content_hash, message("frozen").content_hash);
    // The same bytes may go again.
    assert_eq!(bench.replay(&[letter(&key)]).await, Ok(1));
}

async fn a_cancelled_or_late_run_is_not_replayed(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.dead(1, NOTHING).await;
    bench.raw.execute("update @runs set useful_until = 5").await;
    let refused = bench.replay(&[letter(&key)]).await.unwrap_err();
    assert!(matches!(refused[0].1, NotReplayed::Cannot(CannotReplay::TooLate(_))), "{refused:?}");
    bench.ledger.cancel(CAMPAIGN, bench.period, &Rules::default(), TEST).await.unwrap();
    let refused = bench.replay(&[letter(&key)]).await.unwrap_err();
    assert_eq!(refused[0].1, CannotReplay::Cancelled.into());
    assert_eq!(bench.operation(&key).await.state, State::Dead);
}

async fn a_replay_that_is_cancelled_before_its_attempt_ends_suppressed(place: Place) {
    let bench = place.bench(1).await;
    let key = bench.dead(1, NOTHING).await;
    assert_eq!(bench.replay(&[letter(&key)]).await, Ok(1));
    bench.ledger.cancel(CAMPAIGN, bench.period, &Rules::default(), TEST).await.unwrap();
    bench.record(&key, Event::Cancelled).await;
    assert_eq!(bench.operation(&key).await.state, State::Suppressed);
}

async fn dead_letters_say_what_a_replay_would_do(place: Place) {
    let bench = place.bench(5).await;
    bench.dead(1, NOTHING).await;
    bench.dead(2, REPLAYS).await;
    // Never rendered: only rows are kept.
    bench.closed(&bench.key(3), FailureClass::Schema, "digest.txt:3").await;
    bench.record(&bench.key(4), Event::TooLate).await;
    // Dead twice: only the last death is told.
    let twice = bench.dead(5, NOTHING).await;
    assert_eq!(bench.replay(&[letter(&twice)]).await, Ok(1));
    bench.closed(&twice, FailureClass::Recipient, "smtp rcpt 550 5.1.1").await;

    let mut lines = Vec::new();
    let mut after = None;
    loop {
        let page =
            bench.ledger.dead_letters(CAMPAIGN, None, None, after.as_deref(), 2).await.unwrap();
        assert!(page.operations.len() <= 2);
        lines.extend(page.operations);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let starts = [
        "a replay, which sends the same bytes; --refreeze renders",
        "a replay, which sends the same bytes; --refreeze only after",
        "a replay, which renders the frozen rows",
        "nothing: cannot be replayed, it was too late",
        "a replay, which sends",
    ];
    assert_eq!(lines.len(), starts.len());
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.waits_for.starts_with(start), "{}: {}", line.key, line.waits_for);
    }
    let codes: Vec<_> = lines.iter().map(|line| line.code.clone().unwrap()).collect();
    assert_eq!(
        codes,
        ["smtp 550", "smtp 550", "digest.txt:3", "useful_for is over", "smtp rcpt 550 5.1.1"]
    );
    let other = bench.period.next().unwrap();
    bench.ledger.open_run(&new_run(other)).await.unwrap();
    let none = bench.ledger.dead_letters(CAMPAIGN, Some(other), None, None, 9).await.unwrap();
    assert!(none.operations.is_empty());
}

async fn failed_cleanups_are_taken_up_again_page_by_page(place: Place) {
    let mut bench = place.bench(5).await;
    bench.enqueue_all().await;
    for customer in 1..=4 {
        let key = bench.key(customer);
        bench.begun(&key, NOTHING).await;
        bench.accepted(&key, 1).await;
    }
    let mut rules = Rules::default();
    rules.cleanup.max_attempts = 1;
    for customer in 1..=3 {
        bench.record_by(&bench.key(customer), Event::CleanupFailed { random: 0.0 }, &rules).await;
    }
    let grace = SignedDuration::ZERO;
    let swept = bench.ledger.unfinished(CAMPAIGN, grace, "", 9).await.unwrap();
    let swept: Vec<_> = swept.iter().map(|unfinished| unfinished.key.to_string()).collect();
    assert_eq!(swept, [bench.key(4).to_string(), bench.key(5).to_string()]);
    let mut after = String::new();
    let mut due = Vec::new();
    loop {
        let page = bench
            .ledger
            .cleanup_again(CAMPAIGN, bench.period, &after, 2, &rules, PERSON)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = last.to_string();
        due.extend(page);
    }
    assert_eq!(due, [1, 2, 3].map(|customer| bench.key(customer)));
    assert_eq!(bench.raw.count("@operations where cleanup_failed = 1").await, 0);
    assert_eq!(bench.raw.count("@decisions where event = 'cleanup_again'").await, 3);
    let swept = bench.ledger.unfinished(CAMPAIGN, grace, "", 9).await.unwrap();
    assert_eq!(swept.len(), 5, "the sweep finds them again");
}
