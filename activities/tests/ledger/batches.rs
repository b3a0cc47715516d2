//! Batches: who may begin does, in one transaction; what is in doubt goes again whole or not at all;
//! and a request is kept no longer than it may go.

use super::bench::{
    Bench, CAMPAIGN, NOTHING, Place, REPLAYS, SCHEMA, TEST, accepted, message, on_both,
};
use super::setup::proxied;
use super::transitions::check;
use digest_activities::ledger::{
    BatchAnswer, Begun, Claim, Ledger, LedgerError, Member, Proposal, Repeated, Slot, StoredBatch,
    Token,
};
use digest_activities::message::{FrozenMessage, Redacted};
use digest_activities::provider::batch::{Batches, ReadyBatch};
use digest_tests::proxy::Fault;
use digest_workflows::activities::Evidence;
use digest_workflows::operation::{
    Batch, Breakers, CannotBegin, Contract, Event, Failure, FailureClass, Finding, Operation,
    OperationKey, Outcome, ProviderRef, Replay, Rules, State, Verdict,
};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::SignedDuration;
use rand::seq::SliceRandom;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

on_both!(
    those_that_may_begin_go_in_one_request_and_the_others_stay_as_they_were,
    of_many_leaders_at_once_one_begins_each_member,
    a_held_run_begins_no_batch,
    a_suppressed_customer_is_in_no_batch_and_keeps_one_in_doubt_from_going_again,
    a_batch_in_doubt_goes_again_whole,
    whatever_becomes_of_one_member_decides_for_all,
    one_execution_at_a_time_sends_a_batch_again,
    a_request_goes_when_nobody_can_repeat_it,
    a_request_goes_with_the_last_of_those_that_settle_at_the_same_time,
    what_cannot_go_again_is_not_kept,
    a_forgotten_customer_is_erased_from_every_request,
    a_lost_answer_is_one_unknown_however_many_messages_it_was_about,
    a_request_goes_when_its_window_is_over,
    batches_go_with_the_records_of_their_run,
);

const TOGETHER: Contract = Contract { batch: Batch::AllOrNothing, ..REPLAYS };
const NOW: SignedDuration = SignedDuration::ZERO;

/// A provider whose requests are arrays; nothing is sent to it.
struct Arrays;

impl Batches for Arrays {
    fn item(
        &self,
        key: &OperationKey,
        _message: &FrozenMessage,
    ) -> Result<Option<Vec<u8>>, Failure> {
        Ok(Some(format!("{:?}", key.to_string()).into_bytes()))
    }

    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn ReadyBatch>, Failure>> {
        async { Err(Failure::new(FailureClass::Transport, "nobody is there")) }.boxed()
    }
}

fn provider() -> ProviderRef {
    ProviderRef { kind: "sandbox".into(), account: "test".into() }
}

fn member(key: &OperationKey, place: (u32, u32)) -> Member {
    let item = Arrays.item(key, &message("frozen")).unwrap().unwrap();
    Member { key: key.clone(), place, content_hash: "hash".into(), item: Redacted::new(item) }
}

async fn begin(
    ledger: &Ledger,
    members: &[Member],
    contract: Contract,
    rules: &Rules,
) -> Result<BatchAnswer, LedgerError> {
    let proposal = Proposal { provider: &provider(), contract, rules, batches: &Arrays };
    ledger.begin_batch(members, proposal, &Slot::UNPACED).await
}

async fn repeat(
    ledger: &Ledger,
    stored: &StoredBatch,
    key: &OperationKey,
    token: &Token,
) -> Repeated {
    let rules = &stored.rules;
    let proposal = Proposal { provider: &provider(), contract: TOGETHER, rules, batches: &Arrays };
    let operation = ledger.operation(key).await.unwrap().operation;
    let asks = (key, (operation.generation, operation.ordinal + 1));
    let claim = (token, SignedDuration::from_mins(1));
    ledger.repeat_batch(stored, asks, claim, proposal, &Slot::UNPACED).await.unwrap()
}

fn outcome(begun: &Begun, outcome: Option<Outcome>) -> Evidence {
    let attempt = begun.number;
    begun.evidence(match outcome {
        Some(outcome) => Event::Answered { attempt, outcome, random: 0.0 },
        None => Event::Overdue { attempt, random: 0.0 },
    })
}

fn yes() -> Outcome {
    Outcome::Accepted { message_id: None }
}

fn no() -> Outcome {
    Outcome::NotSent(Failure::new(FailureClass::RateLimited, "http 429"))
}

impl Bench {
    /// A batch of these customers, all of which begin; its id.
    async fn batch(&self, customers: impl IntoIterator<Item = u32>) -> (String, Vec<Begun>) {
        let members: Vec<Member> =
            customers.into_iter().map(|n| member(&self.key(n), (1, 1))).collect();
        let answer = begin(&self.ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
        let begun = answer.members.into_iter().map(|one| one.unwrap()).collect();
        (answer.frozen.unwrap().key, begun)
    }

    /// The same with no answer to any of it.
    async fn batch_in_doubt(
        &self,
        customers: std::ops::RangeInclusive<u32>,
    ) -> (String, Vec<Begun>) {
        let (id, begun) = self.batch(customers.clone()).await;
        self.told(customers, &begun, None).await;
        (id, begun)
    }

    /// Records the same for each of these attempts.
    async fn told(
        &self,
        customers: impl IntoIterator<Item = u32>,
        begun: &[Begun],
        said: Option<Outcome>,
    ) {
        let all: Vec<_> = customers
            .into_iter()
            .zip(begun)
            .map(|(n, begun)| (self.key(n), outcome(begun, said.clone())))
            .collect();
        self.ledger.record_batch(&all, &Rules::default(), TEST).await.unwrap();
    }

    async fn stored(&self, id: &str) -> Option<StoredBatch> {
        self.ledger.stored_batch(id).await.unwrap()
    }

    /// Whether all tables tell the same about this customer's operation.
    async fn check(&mut self, customer: u32) -> Operation {
        let key = self.key(customer);
        check(&mut self.raw, &key).await
    }

    async fn requests(&mut self) -> u64 {
        self.raw.count("@batches where request is not null").await
    }
}

async fn those_that_may_begin_go_in_one_request_and_the_others_stay_as_they_were(place: Place) {
    let mut bench = place.bench(6).await;
    let keys: Vec<OperationKey> = (1..=6).map(|n| bench.key(n)).collect();
    bench.closed(&keys[1], FailureClass::Suppressed, "nothing to send").await;
    bench.unknown(&keys[2], REPLAYS, &Rules::default()).await;
    let mut members: Vec<Member> = keys.iter().map(|key| member(key, (1, 1))).collect();
    members[2].place = (1, 2);
    members[4].place = (1, 2);
    members.push(members[5].clone());
    let answer = begin(&bench.ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
    let refused: Vec<_> = answer.members.iter().map(|one| one.as_ref().err().copied()).collect();
    assert_eq!(
        refused,
        [
            None,
            Some(CannotBegin::Settled),
            Some(CannotBegin::InDoubt),
            None,
            Some(CannotBegin::NotNext),
            None,
            Some(CannotBegin::NotNext),
        ]
    );
    let frozen = answer.frozen.unwrap();
    let expected = format!("[\"{}\",\"{}\",\"{}\"]", keys[0], keys[3], keys[5]);
    assert_eq!(String::from_utf8_lossy(frozen.request.reveal()), expected);
    assert_eq!(frozen.members, 3);
    let stored = bench.stored(&frozen.key).await.unwrap();
    assert_eq!(stored.members, [0, 3, 5].map(|n| keys[n].clone()));
    assert_eq!((stored.frozen(), &stored.rules), (frozen.clone(), &Rules::default()));
    for (key, answer) in keys.iter().zip(&answer.members) {
        let operation = check(&mut bench.raw, key).await;
        let batch = operation.doubts.first().and_then(|doubt| doubt.batch.clone());
        assert_eq!(batch, answer.is_ok().then(|| stored.batch.clone()), "{key}");
        let shown = bench.ledger.show(key).await.unwrap();
        let shown = shown.attempts.last().and_then(|attempt| attempt.batch.clone());
        assert_eq!(shown, answer.is_ok().then(|| frozen.key.clone()), "{key}");
    }
}

async fn of_many_leaders_at_once_one_begins_each_member(place: Place) {
    let (leaders, customers, rounds) = (8, 12, 6);
    let mut bench = place.bench(customers * rounds).await;
    let ledgers = join_all((0..leaders).map(|_| place.connect())).await;
    for round in 0..rounds {
        let keys: Vec<OperationKey> =
            (1..=customers).map(|n| bench.key(round * customers + n)).collect();
        let start = Arc::new(Barrier::new(ledgers.len()));
        let leaders = ledgers.iter().map(|ledger| {
            let (ledger, start) = (ledger.clone(), Arc::clone(&start));
            let mut members: Vec<Member> = keys.iter().map(|key| member(key, (1, 1))).collect();
            members.shuffle(&mut rand::rng());
            members.truncate(8);
            tokio::spawn(async move {
                start.wait().await;
                let answer = begin(&ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
                let outcomes: Vec<_> = members
                    .iter()
                    .zip(&answer.members)
                    .filter_map(|(m, one)| {
                        Some((m.key.clone(), outcome(one.as_ref().ok()?, Some(yes()))))
                    })
                    .collect();
                if !outcomes.is_empty() {
                    ledger.record_batch(&outcomes, &Rules::default(), TEST).await.unwrap();
                }
                outcomes.len()
            })
        });
        let begun: usize = join_all(leaders).await.into_iter().map(|count| count.unwrap()).sum();
        let mut touched = 0;
        for key in &keys {
            let operation = check(&mut bench.raw, key).await;
            assert!(operation.attempts <= 1, "{key} began {} times", operation.attempts);
            touched += operation.attempts as usize;
        }
        assert_eq!(begun, touched, "round {round}");
    }
    assert_eq!(bench.requests().await, 0);
}

async fn a_held_run_begins_no_batch(place: Place) {
    let mut bench = place.bench(3).await;
    bench.hold().await;
    let members: Vec<Member> = (1..=3).map(|n| member(&bench.key(n), (1, 1))).collect();
    let answer = begin(&bench.ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
    assert!(answer.frozen.is_none());
    assert!(answer.members.iter().all(|one| *one.as_ref().unwrap_err() == CannotBegin::Held));
    assert_eq!(bench.raw.count("@batches").await + bench.raw.count("@attempts").await, 0);
}

async fn a_suppressed_customer_is_in_no_batch_and_keeps_one_in_doubt_from_going_again(
    place: Place,
) {
    let mut bench = place.bench(3).await;
    let suppress = |key: OperationKey| {
        format!(
            "insert into @suppressions (campaign, customer, reason, since, key, provider, event_id) \
             select campaign, customer, 'complaint', frozen_at, key, 'test', 'e' from @operations \
             where key = '{key}'"
        )
    };
    let (two, three) = (bench.key(2), bench.key(3));
    bench.raw.execute(&suppress(two)).await;
    let members: Vec<Member> = (1..=3).map(|n| member(&bench.key(n), (1, 1))).collect();
    let answer = begin(&bench.ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
    let cannot: Vec<_> = answer.members.iter().map(|one| one.as_ref().err().copied()).collect();
    assert_eq!(cannot, [None, Some(CannotBegin::Unwanted), None]);
    assert_eq!(answer.frozen.as_ref().unwrap().members, 2);
    let begun: Vec<Begun> = answer.members.into_iter().flatten().collect();
    bench.told([1, 3], &begun, None).await;
    bench.raw.execute(&suppress(three)).await;
    let stored = bench.stored(&answer.frozen.unwrap().key).await.unwrap();
    let again = repeat(&bench.ledger, &stored, &bench.key(1), &Token::draw()).await;
    assert!(matches!(again, Repeated::Cannot(_)), "{again:?}");
    for n in [1, 3] {
        assert_eq!(bench.check(n).await.state, State::Unknown);
    }
}

async fn a_batch_in_doubt_goes_again_whole(place: Place) {
    let mut bench = place.bench(4).await;
    let (id, _) = bench.batch_in_doubt(1..=4).await;
    let stored = bench.stored(&id).await.unwrap();
    let token = Token::draw();
    let answer = repeat(&bench.ledger, &stored, &bench.key(3), &token).await;
    let Repeated::Begun(begun) = answer else { panic!("{answer:?}") };
    let begun: Vec<Begun> = begun.into_iter().map(Option::unwrap).collect();
    for n in 1..=4 {
        let operation = bench.check(n).await;
        assert_eq!((operation.state, operation.attempts), (State::Unknown, 2));
        assert!(operation.doubts.iter().all(|doubt| doubt.batch == Some(stored.batch.clone())));
    }
    // Refused for now, it goes again later; accepted, everybody has it.
    bench.told(1..=4, &begun, Some(no())).await;
    assert_eq!(bench.requests().await, 1);
    bench.ledger.release_batch(&id, &token).await.unwrap();
    let answer = repeat(&bench.ledger, &stored, &bench.key(1), &token).await;
    let Repeated::Begun(begun) = answer else { panic!("{answer:?}") };
    let begun: Vec<Begun> = begun.into_iter().map(Option::unwrap).collect();
    bench.told(1..=4, &begun, Some(yes())).await;
    for n in 1..=4 {
        assert_eq!(bench.check(n).await.state, State::Sent);
    }
    assert_eq!(bench.requests().await, 0);
}

async fn whatever_becomes_of_one_member_decides_for_all(place: Place) {
    let bench = place.bench(30).await;
    let mut first = 1;
    let mut next = async || {
        let (mine, other) = (bench.key(first), bench.key(first + 1));
        let (id, begun) = bench.batch_in_doubt(first..=first + 2).await;
        first += 3;
        (mine, other, bench.stored(&id).await.unwrap(), begun)
    };
    for (what, event) in [
        ("not sent", Event::Told { finding: Finding::Refused(FailureClass::Rejected) }),
        ("verdict", Event::Judged { verdict: Verdict::NotDelivered, attempt: Some(1) }),
        ("delivered", Event::Judged { verdict: Verdict::Delivered, attempt: Some(1) }),
        ("unwanted", Event::Unwanted),
        ("given up", Event::Judged { verdict: Verdict::Abandon, attempt: Some(1) }),
        ("over", Event::ReplayOver),
    ] {
        let (mine, other, stored, _) = next().await;
        bench.record(&other, event).await;
        let answer = repeat(&bench.ledger, &stored, &mine, &Token::draw()).await;
        assert!(matches!(answer, Repeated::Cannot(CannotBegin::InDoubt)), "{what}: {answer:?}");
        assert!(bench.stored(&stored.batch.id).await.is_none(), "{what}: the request is kept");
        assert_eq!(bench.operation(&mine).await.attempts, 1, "{what}");
        let cannot = bench.begin(&mine, TOGETHER).await;
        assert!(
            matches!(cannot, digest_activities::ledger::BeginAnswer::Cannot(CannotBegin::InDoubt)),
            "{what}: a member in doubt went alone: {cannot:?}"
        );
    }
    // Its own answer says that the provider has taken the batch.
    let (mine, other, stored, begun) = next().await;
    let evidence = outcome(&begun[1], Some(yes()));
    bench.ledger.record_evidence(&other, &evidence, &Rules::default(), TEST).await.unwrap();
    bench.record(&other, Event::CleanedUp).await;
    let answer = repeat(&bench.ledger, &stored, &mine, &Token::draw()).await;
    let Repeated::Begun(begun) = answer else { panic!("{answer:?}") };
    let begun: Vec<bool> = begun.iter().map(Option::is_some).collect();
    assert_eq!(begun, [true, false, true]);
    // Whoever asks for a place that is taken is overtaken; a hold holds all.
    let (mine, _, stored, _) = next().await;
    bench.hold().await;
    let answer = repeat(&bench.ledger, &stored, &mine, &Token::draw()).await;
    assert!(matches!(answer, Repeated::Cannot(CannotBegin::Held)), "{answer:?}");
    assert!(bench.stored(&stored.batch.id).await.is_some());
}

async fn one_execution_at_a_time_sends_a_batch_again(place: Place) {
    let bench = place.bench(5).await;
    let (id, _) = bench.batch_in_doubt(1..=5).await;
    let (one, other) = (Token::draw(), Token::draw());
    let minute = SignedDuration::from_mins(1);
    let claim =
        async |token: &Token, span| bench.ledger.claim_batch(&id, token, span).await.unwrap();
    assert_eq!(claim(&one, minute).await, Claim::Mine);
    assert!(matches!(claim(&other, minute).await, Claim::Until(_)));
    assert_eq!(claim(&one, NOW).await, Claim::Mine);
    assert_eq!(claim(&other, minute).await, Claim::Mine, "the first one's time was over");
    bench.ledger.release_batch(&id, &one).await.unwrap();
    assert!(matches!(claim(&one, minute).await, Claim::Until(_)), "it was not its own");
    bench.ledger.release_batch(&id, &other).await.unwrap();

    let stored = bench.stored(&id).await.unwrap();
    let ledgers = join_all((1..=5).map(|_| place.connect())).await;
    for round in 1..=5 {
        let start = Arc::new(Barrier::new(ledgers.len()));
        let racers = ledgers.iter().zip(1..).map(|(ledger, n)| {
            let (ledger, start) = (ledger.clone(), Arc::clone(&start));
            let (stored, key) = (stored.clone(), bench.key(n));
            tokio::spawn(async move {
                start.wait().await;
                matches!(repeat(&ledger, &stored, &key, &Token::draw()).await, Repeated::Begun(_))
            })
        });
        let won = join_all(racers).await.into_iter().filter(|won| *won.as_ref().unwrap()).count();
        assert_eq!(won, 1, "round {round}");
        let attempts: BTreeSet<u32> =
            join_all((1..=5).map(async |n| bench.operation(&bench.key(n)).await.attempts))
                .await
                .into_iter()
                .collect();
        assert_eq!(attempts, BTreeSet::from([round + 1]), "round {round}");
        claim_is_over(&place).await;
    }
}

/// As if whoever has a claim had died long ago.
async fn claim_is_over(place: &Place) {
    place.raw().await.execute("update @batches set repeats_until = 1").await;
}

async fn a_request_goes_when_nobody_can_repeat_it(place: Place) {
    let mut bench = place.bench(6).await;
    let (_, begun) = bench.batch_in_doubt(1..=3).await;
    for (n, left) in [(1, 1), (2, 1), (3, 0)] {
        let evidence = outcome(&begun[n as usize - 1], Some(yes()));
        let key = bench.key(n);
        bench.ledger.record_evidence(&key, &evidence, &Rules::default(), TEST).await.unwrap();
        assert_eq!(bench.requests().await, left, "after {n}");
        // Its own content goes with its cleanup, whatever the others wait for.
        bench.record(&key, Event::CleanedUp).await;
        check(&mut bench.raw, &key).await;
    }
    // One that may go in another way ends it for all.
    let (_, begun) = bench.batch(4..=6).await;
    assert_eq!(bench.requests().await, 1);
    let evidence = outcome(&begun[0], Some(no()));
    let key = bench.key(4);
    bench.ledger.record_evidence(&key, &evidence, &Rules::default(), TEST).await.unwrap();
    assert_eq!(bench.requests().await, 0);
    // What another execution claims is noted, and changes nothing.
    let forged = Evidence { proof: "forged".into(), ..outcome(&begun[1], Some(yes())) };
    let key = bench.key(5);
    bench.ledger.record_batch(&[(key.clone(), forged)], &Rules::default(), TEST).await.unwrap();
    assert_eq!(check(&mut bench.raw, &key).await.state, State::Sending);
}

async fn a_request_goes_with_the_last_of_those_that_settle_at_the_same_time(place: Place) {
    let (members, rounds) = (6, 8);
    let mut bench = place.bench(members * rounds).await;
    let ledgers = join_all((0..members).map(|_| place.connect())).await;
    for round in 0..rounds {
        let first = round * members + 1;
        let (_, begun) = bench.batch_in_doubt(first..=first + members - 1).await;
        let start = Arc::new(Barrier::new(ledgers.len()));
        let recording = ledgers.iter().zip(&begun).zip(first..).map(|((ledger, begun), n)| {
            let (ledger, start) = (ledger.clone(), Arc::clone(&start));
            let (key, evidence) = (bench.key(n), outcome(begun, Some(yes())));
            tokio::spawn(async move {
                start.wait().await;
                ledger.record_evidence(&key, &evidence, &Rules::default(), TEST).await.unwrap();
            })
        });
        for recorded in join_all(recording).await {
            recorded.unwrap();
        }
        assert_eq!(bench.requests().await, 0, "round {round}");
    }
}

async fn a_request_goes_when_its_window_is_over(place: Place) {
    let mut bench = place.bench(2).await;
    let rules = Rules::default();
    // Open for a second.
    let window = rules.timeouts.lease + rules.timeouts.settle + SignedDuration::from_secs(1);
    let replay = Replay::ReturnsOriginal { window, margin: SignedDuration::ZERO };
    let contract = Contract { replay, ..TOGETHER };
    let members: Vec<Member> = (1..=2).map(|n| member(&bench.key(n), (1, 1))).collect();
    let answer = begin(&bench.ledger, &members, contract, &rules).await.unwrap();
    for (member, begun) in members.iter().zip(answer.members) {
        let evidence = outcome(&begun.unwrap(), None);
        bench.ledger.record_evidence(&member.key, &evidence, &rules, TEST).await.unwrap();
    }
    assert_eq!(bench.requests().await, 1);
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.requests().await > 0 {
        assert!(Instant::now() < deadline, "addresses and content are kept though nothing can go");
        bench.record(&bench.key(1), Event::TimePassed).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.check(1).await.state, State::Unknown);
}

async fn what_cannot_go_again_is_not_kept(place: Place) {
    let mut bench = place.bench(2).await;
    let members: Vec<Member> = (1..=2).map(|n| member(&bench.key(n), (1, 1))).collect();
    let contract = Contract { batch: Batch::PerItem, ..NOTHING };
    let answer = begin(&bench.ledger, &members, contract, &Rules::default()).await.unwrap();
    let id = answer.frozen.unwrap().key;
    assert_eq!((bench.requests().await, bench.raw.count("@batches").await), (0, 1));
    assert!(bench.stored(&id).await.is_none());
}

async fn a_forgotten_customer_is_erased_from_every_request(place: Place) {
    let mut bench = place.bench(4).await;
    let forget = async |bench: &Bench, n: u32| {
        let id = bench.key(n).customer_id();
        bench.ledger.forget(CAMPAIGN, &id, &Rules::default(), TEST).await.unwrap()
    };
    let (id, _) = bench.batch_in_doubt(1..=2).await;
    assert_eq!(forget(&bench, 1).await.in_doubt, 1);
    assert_eq!(bench.requests().await, 0);
    assert!(bench.stored(&id).await.is_none());

    // Also one that has the message, and whose content is gone but for the request of the others.
    let (_, begun) = bench.batch_in_doubt(3..=4).await;
    let evidence = outcome(&begun[0], Some(yes()));
    let key = bench.key(3);
    bench.ledger.record_evidence(&key, &evidence, &Rules::default(), TEST).await.unwrap();
    bench.record(&key, Event::CleanedUp).await;
    assert_eq!(bench.requests().await, 1);
    assert_eq!(forget(&bench, 3).await.erased, 1);
    assert_eq!(bench.requests().await, 0);
    assert!(forget(&bench, 3).await.is_nothing());
}

async fn a_lost_answer_is_one_unknown_however_many_messages_it_was_about(place: Place) {
    let bench = place.bench(40).await;
    let breakers = Breakers { unknowns_in_a_row: 3, ..Rules::default().breakers };
    let rules = Rules { breakers, ..Rules::default() };
    for round in 0..3 {
        assert!(bench.run().await.held_since.is_none(), "round {round}");
        let customers = round * 10 + 1..=round * 10 + 10;
        let (_, begun) = bench.batch(customers.clone()).await;
        let all: Vec<_> =
            customers.zip(&begun).map(|(n, begun)| (bench.key(n), outcome(begun, None))).collect();
        bench.ledger.record_batch(&all, &rules, TEST).await.unwrap();
    }
    let because = bench.run().await.held_because.unwrap();
    assert!(because.contains("3 unknown outcomes in a row"), "{because}");
}

async fn batches_go_with_the_records_of_their_run(place: Place) {
    let mut bench = place.bench(2).await;
    let (_, begun) = bench.batch(1..=2).await;
    bench.told(1..=2, &begun, Some(yes())).await;
    for n in 1..=2 {
        bench.record(&bench.key(n), Event::CleanedUp).await;
    }
    assert!(bench.ledger.close_run(CAMPAIGN, bench.period).await.unwrap());
    for _ in 0..3 {
        bench.ledger.remove_old_records(CAMPAIGN, NOW, 100).await.unwrap();
    }
    assert_eq!((bench.raw.count("@operations").await, bench.raw.count("@batches").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_commit_was_not_confirmed_is_read_back() {
    let Some(place) = Place::postgres("a lost answer to a batch").await else { return };
    let mut bench = place.bench(4).await;
    let (proxy, url) = proxied(&place).await;
    let ledger = Ledger::connect(&url, SCHEMA).await.unwrap();
    let members: Vec<Member> = (1..=2).map(|n| member(&bench.key(n), (1, 1))).collect();
    proxy.plant(Fault::LoseCommitAnswer);
    let answer = begin(&ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
    assert!(!proxy.is_planted() && answer.frozen.is_some(), "{answer:?}");
    assert_eq!(bench.check(1).await.doubts.len(), 1);

    let members: Vec<Member> = (3..=4).map(|n| member(&bench.key(n), (1, 1))).collect();
    proxy.plant(Fault::LoseCommit);
    let error = begin(&ledger, &members, TOGETHER, &Rules::default()).await.unwrap_err();
    assert!(matches!(error, LedgerError::Statement(_)) && error.is_temporary(), "{error:?}");
    assert_eq!(bench.check(3).await.state, State::Selected);
    let answer = begin(&ledger, &members, TOGETHER, &Rules::default()).await.unwrap();
    assert!(answer.frozen.is_some());

    // An outcome that comes again is the same.
    let evidence = outcome(answer.members[0].as_ref().unwrap(), Some(yes()));
    let all = [(bench.key(3), evidence)];
    proxy.plant(Fault::LoseCommitAnswer);
    let error = ledger.record_batch(&all, &Rules::default(), TEST).await.unwrap_err();
    assert!(matches!(error, LedgerError::CommitUnknown(_)), "{error:?}");
    ledger.record_batch(&all, &Rules::default(), TEST).await.unwrap();
    assert_eq!(bench.check(3).await.state, State::Sent);
    let told = bench.record(&bench.key(3), accepted(1)).await;
    assert!(told.change.settled.is_empty());
}
