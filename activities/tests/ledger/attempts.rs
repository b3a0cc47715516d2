//! `begin attempt`: one claimer wins, every condition refuses, and a lost commit is read back.

use super::bench::{
    Bench, CAMPAIGN, NOTHING, Place, REPLAYS, TEST, begin, next_intent, on_both, refused,
};
use super::setup::proxied;
use super::transitions::check;
use digest_activities::ledger::{BeginAnswer, Ledger, LedgerError, Recorded, Token};
use digest_tests::proxy::Fault;
use digest_workflows::activities::Evidence;
use digest_workflows::operation::{
    CannotBegin, Contract, Event, FailureClass, Intent, Note, OperationKey, ProviderRef, Rules,
    State, Verdict,
};
use futures::future::join_all;
use jiff::SignedDuration;
use std::sync::Arc;
use tokio::sync::Barrier;

const CLAIMERS: usize = 50;
const ROUNDS: u32 = 20;

on_both!(
    one_of_fifty_tasks_begins_the_attempt,
    one_of_fifty_connections_begins_the_attempt,
    each_condition_refuses_and_writes_nothing,
    a_replay_begins_only_inside_its_window_and_byte_for_byte,
    no_attempt_begins_after_a_hold,
    what_is_written_is_what_was_intended,
    evidence_counts_only_from_the_execution_that_made_the_attempt,
    after_a_restore_an_acceptance_counts_without_proof_and_a_refusal_does_not,
);

async fn one_of_fifty_tasks_begins_the_attempt(place: Place) {
    let bench = place.bench(ROUNDS).await;
    let ledgers = vec![bench.ledger.clone(); CLAIMERS];
    claim(bench, ledgers).await;
}

async fn one_of_fifty_connections_begins_the_attempt(place: Place) {
    let bench = place.bench(ROUNDS).await;
    let ledgers = join_all((0..CLAIMERS).map(|_| place.connect())).await;
    claim(bench, ledgers).await;
}

async fn claim(mut bench: Bench, ledgers: Vec<Ledger>) {
    for round in 1..=ROUNDS {
        let key = bench.key(round);
        let intent = next_intent(&bench.operation(&key).await, NOTHING);
        let start = Arc::new(Barrier::new(ledgers.len()));
        let claimers = ledgers.iter().map(|ledger| {
            let (ledger, start) = (ledger.clone(), Arc::clone(&start));
            let (key, intent) = (key.clone(), intent.clone());
            tokio::spawn(async move {
                start.wait().await;
                begin(&ledger, &key, &intent).await
            })
        });
        let mut begun = 0;
        for answer in join_all(claimers).await {
            match answer.unwrap().unwrap() {
                BeginAnswer::Begun(_) => begun += 1,
                BeginAnswer::Cannot(CannotBegin::NotNext | CannotBegin::InDoubt) => {}
                BeginAnswer::Cannot(other) => panic!("round {round}: {other}"),
            }
        }
        assert_eq!(begun, 1, "round {round}");
        let rows = bench.raw.count(&format!("@attempts where key = '{key}'")).await;
        assert_eq!(rows, 1, "round {round}");
        check(&mut bench.raw, &key).await;
    }
}

/// Everything that the ledger holds.
async fn dump(bench: &mut Bench) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (table, order) in [
        ("runs", "period"),
        ("operations", "key"),
        ("attempts", "key, number"),
        ("messages", "key"),
        ("dead_letters", "key"),
        ("decisions", "id"),
        ("pace", "name"),
        ("batches", "id"),
    ] {
        all.extend(bench.raw.rows(&format!("select * from @{table} order by {order}")).await);
    }
    all
}

async fn refuses(bench: &mut Bench, key: &OperationKey, intent: Intent, why: CannotBegin) {
    let before = dump(bench).await;
    match begin(&bench.ledger, key, &intent).await.unwrap() {
        BeginAnswer::Cannot(cannot) => assert_eq!(cannot, why),
        BeginAnswer::Begun(begun) => panic!("{begun:?} instead of {why:?}"),
    }
    assert_eq!(dump(bench).await, before, "{why:?} wrote something");
}

async fn each_condition_refuses_and_writes_nothing(place: Place) {
    let mut bench = place.bench(8).await;
    let next = |op: &_| next_intent(op, NOTHING);

    let key = bench.key(1);
    let intent = next(&bench.operation(&key).await);
    bench.hold().await;
    refuses(&mut bench, &key, intent.clone(), CannotBegin::Held).await;
    bench.resume().await;
    let (later, other) =
        (Intent { ordinal: 2, ..intent.clone() }, Intent { generation: 2, ..intent.clone() });
    refuses(&mut bench, &key, later, CannotBegin::NotNext).await;
    refuses(&mut bench, &key, other, CannotBegin::NotNext).await;
    let useful_until = bench.raw.rows("select useful_until from @runs").await[0][0].clone();
    bench.raw.execute("update @runs set useful_until = 1000").await;
    refuses(&mut bench, &key, intent.clone(), CannotBegin::TooLate).await;
    bench.raw.execute(&format!("update @runs set useful_until = {useful_until}")).await;

    let attempt = bench.begun(&key, NOTHING).await;
    refuses(&mut bench, &key, intent, CannotBegin::NotNext).await;
    let second = next(&bench.operation(&key).await);
    refuses(&mut bench, &key, second.clone(), CannotBegin::InDoubt).await;
    bench.record(&key, Event::Overdue { attempt, random: 0.0 }).await;
    refuses(&mut bench, &key, second.clone(), CannotBegin::InDoubt).await;
    let judged = |verdict| Event::Judged { verdict, attempt: None };
    bench.record(&key, judged(Verdict::NotDelivered)).await;
    refuses(&mut bench, &key, second.clone(), CannotBegin::VerdictPending).await;
    bench.record(&key, judged(Verdict::Delivered)).await;
    refuses(&mut bench, &key, second.clone(), CannotBegin::Settled).await;
    bench.accepted(&key, attempt).await;
    refuses(&mut bench, &key, second, CannotBegin::Settled).await;

    let key = bench.key(2);
    bench.begun(&key, REPLAYS).await;
    bench.record(&key, Event::Unwanted).await;
    let replay = next_intent(&bench.operation(&key).await, REPLAYS);
    refuses(&mut bench, &key, replay, CannotBegin::Unwanted).await;

    let key = bench.key(3);
    let attempt = bench.begun(&key, NOTHING).await;
    bench.record(&key, refused(attempt, FailureClass::Rejected)).await;
    let intent = next(&bench.operation(&key).await);
    refuses(&mut bench, &key, intent, CannotBegin::Settled).await;
    bench.record(&key, Event::Replayed).await;
    bench.ledger.cancel(CAMPAIGN, bench.period, &Rules::default(), TEST).await.unwrap();
    let intent = next(&bench.operation(&key).await);
    refuses(&mut bench, &key, intent, CannotBegin::Cancelled).await;
}

async fn a_replay_begins_only_inside_its_window_and_byte_for_byte(place: Place) {
    let mut bench = place.bench(2).await;
    let key = bench.key(1);
    bench.unknown(&key, REPLAYS, &Rules::default()).await;
    let intent = next_intent(&bench.operation(&key).await, REPLAYS);
    let elsewhere = ProviderRef { kind: "sandbox".into(), account: "other".into() };
    for wrong in [
        Intent { content_hash: "other".into(), ..intent.clone() },
        Intent { provider: elsewhere, ..intent.clone() },
        Intent { contract: NOTHING, ..intent.clone() },
    ] {
        refuses(&mut bench, &key, wrong, CannotBegin::InDoubt).await;
    }
    assert_eq!(bench.begun(&key, REPLAYS).await, 2);

    let key = bench.key(2);
    let over = digest_workflows::operation::Replay::ReturnsOriginal {
        window: SignedDuration::from_hours(1),
        margin: SignedDuration::from_hours(1),
    };
    let closed = Contract { replay: over, ..REPLAYS };
    bench.unknown(&key, closed, &Rules::default()).await;
    let intent = next_intent(&bench.operation(&key).await, closed);
    refuses(&mut bench, &key, intent, CannotBegin::InDoubt).await;
}

/// Whoever is faster: an attempt that began has begun before the hold, and none begins after it.
async fn no_attempt_begins_after_a_hold(place: Place) {
    let rounds = 50;
    let mut bench = place.bench(rounds * 3).await;
    let (holder, claimer) = (place.connect().await, place.connect().await);
    for round in 0..rounds {
        let keys = [1, 2, 3].map(|n| bench.key(round * 3 + n));
        let start = Arc::new(Barrier::new(keys.len() + 1));
        let claims = keys.clone().map(|key| {
            let (ledger, start) = (claimer.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                let intent = next_intent(&ledger.operation(&key).await.unwrap().operation, NOTHING);
                start.wait().await;
                begin(&ledger, &key, &intent).await.unwrap()
            })
        });
        start.wait().await;
        let run = holder.hold(CAMPAIGN, bench.period, "a race", TEST).await.unwrap();
        let held_since = run.held_since.unwrap();
        for (answer, key) in join_all(claims).await.into_iter().zip(&keys) {
            match answer.unwrap() {
                BeginAnswer::Begun(begun) => assert!(begun.begun_at <= held_since, "{key}"),
                BeginAnswer::Cannot(cannot) => {
                    assert_eq!(cannot, CannotBegin::Held);
                    let again = bench.begin(key, NOTHING).await;
                    assert!(matches!(again, BeginAnswer::Cannot(CannotBegin::Held)), "{again:?}");
                }
            }
        }
        let after = format!("@attempts where begun_at > {}", held_since.as_millisecond());
        assert_eq!(bench.raw.count(&after).await, 0, "round {round}");
        assert!(bench.resume().await);
        super::bench::tick(&bench.ledger).await;
    }
}

async fn what_is_written_is_what_was_intended(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    let intent = next_intent(&bench.operation(&key).await, REPLAYS);
    let BeginAnswer::Begun(begun) = begin(&bench.ledger, &key, &intent).await.unwrap() else {
        panic!("nothing hinders it");
    };
    assert_eq!(begun.lease_ends, begun.begun_at + intent.lease);
    let shown = bench.ledger.show(&key).await.unwrap();
    assert_eq!(shown.attempts[0].handed_over_at, Some(begun.begun_at));
    assert_eq!(shown.attempts[0].lease_ends, Some(begun.lease_ends));
    let op = check(&mut bench.raw, &key).await;
    assert_eq!(op.doubts[0].settles_at, begun.lease_ends + intent.settle);
    assert_eq!(op.doubts[0].contract, REPLAYS);
    assert_eq!((op.state, op.newest_handed_over), (State::Sending, 1));
    assert_eq!(format!("{:?}", Token::draw()), "Token(…)");
}

async fn evidence_counts_only_from_the_execution_that_made_the_attempt(place: Place) {
    let mut bench = place.bench(2).await;
    let (key, other) = (bench.key(1), bench.key(2));
    let BeginAnswer::Begun(begun) = bench.begin(&key, NOTHING).await else { panic!("not begun") };
    let BeginAnswer::Begun(others) = bench.begin(&other, NOTHING).await else {
        panic!("not begun")
    };
    let not_sent = refused(1, FailureClass::Transport);
    for event in [not_sent.clone(), accepted()] {
        for proof in ["", "00", &others.evidence(accepted()).proof] {
            let forged = Evidence { event: event.clone(), proof: proof.to_owned() };
            let recorded = tell(&bench, &key, &forged).await;
            assert_eq!(recorded.change.note, Some(Note::Unproven), "{forged:?}");
            assert_eq!(check(&mut bench.raw, &key).await, begun.operation, "{forged:?}");
        }
    }
    let verdict = Event::Judged { verdict: Verdict::NotDelivered, attempt: Some(1) };
    let recorded = tell(&bench, &key, &begun.evidence(verdict)).await;
    assert_eq!(recorded.change.note, Some(Note::Unproven), "a verdict is no evidence");

    let recorded = tell(&bench, &key, &begun.evidence(not_sent)).await;
    assert_eq!(recorded.change.note, None);
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Retrying);
}

async fn after_a_restore_an_acceptance_counts_without_proof_and_a_refusal_does_not(place: Place) {
    let mut bench = place.bench(1).await;
    let key = bench.key(1);
    bench.record(&key, Event::Restored { attempts: 1 }).await;
    let proof = "of an execution that is not on record".to_owned();
    let refusal = Evidence { event: refused(1, FailureClass::Transport), proof: proof.clone() };
    assert_eq!(tell(&bench, &key, &refusal).await.change.note, Some(Note::Unproven));
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Unknown);
    let acceptance = Evidence { event: accepted(), proof };
    assert_eq!(tell(&bench, &key, &acceptance).await.change.to, State::Sent);
}

async fn tell(bench: &Bench, key: &OperationKey, evidence: &Evidence) -> Recorded {
    bench.ledger.record_evidence(key, evidence, &Rules::default(), TEST).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_read_back() {
    let Some(place) = Place::postgres("a lost answer to a commit").await else { return };
    let mut bench = place.bench(3).await;
    let (proxy, url) = proxied(&place).await;
    let ledger = Ledger::connect(&url, super::bench::SCHEMA).await.unwrap();

    // It was committed: the token proves that it is ours.
    let key = bench.key(1);
    let intent = next_intent(&bench.operation(&key).await, NOTHING);
    proxy.plant(Fault::LoseCommitAnswer);
    let answer = begin(&ledger, &key, &intent).await.unwrap();
    assert!(!proxy.is_planted(), "the fault has happened");
    assert!(matches!(answer, BeginAnswer::Begun(_)), "{answer:?}");
    assert_eq!(check(&mut bench.raw, &key).await.doubts.len(), 1);

    // It never reached the server: not begun, nothing written, and it may begin now.
    let key = bench.key(2);
    proxy.plant(Fault::LoseCommit);
    let error = begin(&ledger, &key, &intent).await.unwrap_err();
    assert!(!proxy.is_planted(), "the fault has happened");
    assert!(matches!(error, LedgerError::Statement(_)) && error.is_temporary(), "{error:?}");
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Selected);
    assert!(matches!(begin(&ledger, &key, &intent).await.unwrap(), BeginAnswer::Begun(_)));

    // An outcome whose commit was not confirmed is recorded again without harm.
    let record = || async { ledger.record(&key, &accepted(), &Rules::default(), TEST, None).await };
    proxy.plant(Fault::LoseCommitAnswer);
    let error = record().await.unwrap_err();
    assert!(matches!(error, LedgerError::CommitUnknown(_)) && error.is_temporary(), "{error:?}");
    assert_eq!(record().await.unwrap().change.note, Some(Note::AlreadyRecorded));
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Sent);
}

fn accepted() -> Event {
    super::bench::accepted(1)
}
