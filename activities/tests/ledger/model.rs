//! The ledger against the decision core alone: the same random events, the same operation, always.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, REPLAYS, TEST, on_both};
use super::transitions::check;
use digest_activities::audit::{Kind, books};
use digest_activities::ledger::BeginAnswer;
use digest_workflows::operation::{
    Contract, Event, Failure, FailureClass, Finding, Moment, Operation, OperationKey, Outcome,
    Period, RetryPolicy, Rules, Verdict,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::sync::Mutex;

on_both!(random_events_end_where_the_decision_core_ends);

const CASES: u32 = 48;

/// What happens to the one operation of a run. An `attempt` counts back from the newest.
#[derive(Clone, Debug)]
enum Act {
    Begin { replays: bool, leased: bool, same_bytes: bool, next: bool },
    Close { class: FailureClass, next: bool },
    Answer { attempt: u32, accepted: bool, class: FailureClass },
    Overdue { attempt: u32 },
    Judge { verdict: Verdict, attempt: Option<u32> },
    LookUp(Finding),
    Tell(Finding),
    Hold,
    Resume,
    Plain(Event),
}

fn class() -> impl Strategy<Value = FailureClass> {
    prop::sample::select(&FailureClass::ALL[..])
}

fn finding() -> impl Strategy<Value = Finding> {
    prop_oneof![
        Just(Finding::Accepted { message_id: None }),
        Just(Finding::Accepted { message_id: Some("provider-2".into()) }),
        class().prop_map(Finding::Refused),
        Just(Finding::Unavailable),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let verdict = prop::sample::select(&Verdict::ALL[..]);
    let plain = prop::sample::select(vec![
        Event::ProviderGone,
        Event::Unwanted,
        Event::TooLate,
        Event::TimePassed,
        Event::Cancelled,
        Event::ReplayOver,
        Event::Refrozen,
        Event::Replayed,
        Event::CleanedUp,
        Event::CleanupFailed { random: 0.3 },
        Event::CleanupAgain,
    ]);
    prop_oneof![
        6 => (any::<bool>(), any::<bool>(), prop::bool::weighted(0.9), prop::bool::weighted(0.9))
            .prop_map(|(replays, leased, same_bytes, next)| {
                Act::Begin { replays, leased, same_bytes, next }
            }),
        3 => (class(), prop::bool::weighted(0.8)).prop_map(|(class, next)| Act::Close { class, next }),
        3 => (0_u32..3, any::<bool>(), class())
            .prop_map(|(attempt, accepted, class)| Act::Answer { attempt, accepted, class }),
        3 => (0_u32..3).prop_map(|attempt| Act::Overdue { attempt }),
        2 => (verdict, prop::option::of(0_u32..2))
            .prop_map(|(verdict, attempt)| Act::Judge { verdict, attempt }),
        2 => prop_oneof![finding(), Just(Finding::Miss)].prop_map(Act::LookUp),
        1 => finding().prop_map(Act::Tell),
        1 => Just(Act::Hold),
        3 => Just(Act::Resume),
        5 => plain.prop_map(Act::Plain),
    ]
}

/// Rules under which bounds and breakers are reached within a few events.
fn rules() -> Rules {
    let soon = RetryPolicy { max_attempts: 2, ..Rules::default_cleanup() };
    let mut rules = Rules { cleanup: soon, ..Rules::default() };
    for policy in rules.retry.values_mut() {
        policy.max_attempts = 3;
    }
    rules.breakers.unknowns_in_a_row = 2;
    rules.breakers.identical_schema_failures = 2;
    rules
}

async fn random_events_end_where_the_decision_core_ends(place: Place) {
    let bench = Mutex::new(place.bench(0).await);
    let period = Cell::new(Period::parse("2027-W01").unwrap());
    let mut runner = TestRunner::new(Config { cases: CASES, ..Config::default() });
    let runtime = tokio::runtime::Handle::current();
    let acts = prop::collection::vec(act(), 1..25);
    let result = tokio::task::block_in_place(|| {
        runner.run(&acts, |acts| {
            // Each case is a run of its own.
            period.set(period.get().next().unwrap());
            let mut bench = bench.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            bench.period = period.get();
            runtime.block_on(case(&mut bench, acts));
            Ok(())
        })
    });
    result.unwrap();
}

async fn case(bench: &mut Bench, acts: Vec<Act>) {
    bench.open().await;
    bench.freeze(None, [1], None).await;
    let key = bench.key(1);
    let mut model = bench.operation(&key).await;
    assert_eq!(model, Operation::selected(model.since));
    for act in acts {
        step(bench, &key, &mut model, act.clone()).await;
        let stored = check(&mut bench.raw, &key).await;
        assert_eq!(stored, model, "after {act:?}");
        audit(bench, &key, &act).await;
    }
}

/// The audit finds nothing in what the ledger has written, whatever happened, but what the acts do
/// themselves: they contradict, and they send other bytes.
async fn audit(bench: &Bench, key: &OperationKey, act: &Act) {
    let read = bench.ledger.audit_entry(&key.to_string()).await.unwrap();
    let (entry, run, now) = read.unwrap();
    let mut found = books::differences(&entry, &run, &rules(), now);
    found.retain(|one| ![Kind::Contradicted, Kind::OtherBytes].contains(&one.kind));
    assert!(found.is_empty(), "after {act:?}: {found:#?}\n{entry:#?}");
}

async fn step(bench: &Bench, key: &OperationKey, model: &mut Operation, act: Act) {
    let back = |attempt: u32| model.attempts.saturating_sub(attempt).max(1);
    let event = match act {
        Act::Begin { replays, leased, same_bytes, next } => {
            let contract = if replays { REPLAYS } else { NOTHING };
            begin(bench, key, model, contract, leased, same_bytes, next).await;
            return;
        }
        Act::Hold => {
            bench.hold().await;
            return;
        }
        Act::Resume => {
            bench.resume().await;
            return;
        }
        Act::Close { class, next } => {
            let ordinal = model.ordinal + u32::from(next);
            let failure = Failure::new(class, "test");
            Event::Closed { generation: model.generation, ordinal, failure, random: 0.5 }
        }
        Act::Answer { attempt, accepted, class } => {
            let outcome = if accepted {
                Outcome::Accepted { message_id: Some(format!("id-{attempt}")) }
            } else {
                Outcome::NotSent(Failure::new(class, "test").after(SignedDuration::from_secs(7)))
            };
            // Only attempts that were made are answered.
            if model.newest_handed_over == 0 {
                return;
            }
            Event::Answered { attempt: back(attempt), outcome, random: 0.7 }
        }
        Act::Overdue { attempt } => Event::Overdue { attempt: back(attempt), random: 0.1 },
        Act::Judge { verdict, attempt } => Event::Judged { verdict, attempt: attempt.map(back) },
        Act::LookUp(finding) => {
            let asked_at = bench.ledger.now().await.unwrap();
            Event::LookedUp { finding, asked_at, random: 0.9 }
        }
        Act::Tell(finding) => Event::Told { finding },
        Act::Plain(event) => event,
    };
    let recorded = bench.ledger.record(key, &event, &rules(), TEST, None).await.unwrap();
    let change = model.apply(&event, &rules(), &recorded.answer.moment);
    assert_eq!(recorded.change, change, "{event:?}");
    assert_eq!(recorded.answer.operation, *model, "{event:?}");
}

async fn begin(
    bench: &Bench,
    key: &OperationKey,
    model: &mut Operation,
    contract: Contract,
    leased: bool,
    same_bytes: bool,
    next: bool,
) {
    let mut intent = super::bench::next_intent(model, contract);
    if !leased {
        (intent.lease, intent.settle) = (SignedDuration::ZERO, SignedDuration::ZERO);
    }
    // The ledger keeps one message for a generation; only a doubt can be of other bytes than today's.
    if !same_bytes && !model.doubts.is_empty() {
        intent.content_hash = "other".into();
    }
    if !next {
        intent.ordinal += 1;
    }
    let run = bench.ledger.run(CAMPAIGN, bench.period).await.unwrap().unwrap();
    let moment = |now: Timestamp| -> Moment { run.moment(now) };
    match super::bench::begin(&bench.ledger, key, &intent).await.unwrap() {
        BeginAnswer::Begun(begun) => {
            let number = model.begin(intent, &moment(begun.begun_at)).unwrap();
            assert_eq!(number, begun.number);
        }
        BeginAnswer::Cannot(cannot) => {
            let now = bench.ledger.now().await.unwrap();
            assert_eq!(model.may_begin(&intent, &moment(now)), Err(cannot));
        }
    }
}
