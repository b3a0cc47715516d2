//! The replay window: whatever happens in whatever order, and whatever the rules and times, nothing
//! in doubt goes again once the provider may have forgotten its key.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail by a panic, and reports its measurements on the console"
)]

use digest_workflows::operation::{
    CannotBegin, Contract, Event, Failure, FailureClass, Finding, Intent, Lookup, Moment,
    Operation, Outcome, ProviderRef, Replay, RetryPolicy, Rules, State, Step, Verdict,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + seconds).unwrap()
}

fn span(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

/// What a hostile world may do next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Somebody tries to begin, whether or not it is time.
    Begin,
    /// What the operation asks for next is done, after the wait that it asks for.
    Follow,
    /// The provider takes a request that is on its way; which one.
    Arrive(usize),
    /// The answer to one of them comes.
    Answer(usize),
    Overdue(usize),
    Refuse(usize, FailureClass),
    CloseBeforeIntent(FailureClass),
    LookUp,
    Verdict,
    TimePasses(i64),
    Replayed,
    /// The configuration names another contract from now on.
    Promise(i64),
}

fn class() -> impl Strategy<Value = FailureClass> {
    prop::sample::select(&FailureClass::ALL[..9])
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Begin),
        6 => Just(Act::Follow),
        5 => (0_usize..8).prop_map(Act::Arrive),
        1 => (0_usize..8).prop_map(Act::Answer),
        4 => (0_usize..8).prop_map(Act::Overdue),
        1 => (0_usize..8, class()).prop_map(|(nth, class)| Act::Refuse(nth, class)),
        1 => class().prop_map(Act::CloseBeforeIntent),
        1 => Just(Act::LookUp),
        1 => Just(Act::Verdict),
        5 => (1_i64..40_000).prop_map(Act::TimePasses),
        1 => Just(Act::Replayed),
        1 => (1_i64..200_000).prop_map(Act::Promise),
    ]
}

/// The rules and the provider's promise, at random.
#[derive(Clone, Debug)]
struct Terms {
    window: i64,
    margin: i64,
    lease: i64,
    settle: i64,
    rejects: bool,
    lookup: bool,
    rules: Rules,
}

fn terms() -> impl Strategy<Value = Terms> {
    let times = (60_i64..200_000, 0_i64..20_000, 2_i64..20_000, 0_i64..5_000);
    let retry = (1_i64..10_000, 1_i64..50_000, 1.0_f64..4.0, 1_u32..12, 1_i64..400_000);
    (times, retry, any::<bool>(), any::<bool>()).prop_map(|(times, retry, rejects, lookup)| {
        let (window, margin, lease, settle) = times;
        let (base, cap, multiplier, max_attempts, max_age) = retry;
        let policy = RetryPolicy {
            base: span(base),
            cap: span(cap),
            multiplier,
            jitter: 0.5,
            max_attempts,
            max_age: span(max_age),
        };
        let mut rules = Rules::default();
        for class in Rules::RETRIED {
            rules.retry.insert(class, policy);
        }
        rules.timeouts.lease = span(lease);
        rules.timeouts.settle = span(settle);
        Terms { window, margin, lease, settle, rejects, lookup, rules }
    })
}

/// One request on its way, as the provider knows it.
struct Sent {
    number: u32,
    lease_ends: i64,
    arrived: bool,
    refused: bool,
}

/// The provider: it keeps its promise to the second, and not longer.
struct Provider {
    window: i64,
    remembered_until: Option<i64>,
    acceptances: usize,
}

impl Provider {
    fn take(&mut self, now: i64) {
        if self.remembered_until.is_none_or(|until| now >= until) {
            self.acceptances += 1;
            self.remembered_until = Some(now + self.window);
        }
    }
}

/// What the tests cover, so that none passes by never getting there.
#[derive(Default)]
struct Seen {
    replays: usize,
    too_late: usize,
}

struct Case {
    terms: Terms,
    /// The window as the configuration has it now.
    promised: i64,
    op: Operation,
    now: i64,
    sent: Vec<Sent>,
    provider: Provider,
}

impl Case {
    fn new(terms: Terms) -> Self {
        let window = terms.window;
        let provider = Provider { window, remembered_until: None, acceptances: 0 };
        let op = Operation::selected(at(0));
        Self { terms, promised: window, op, now: 0, sent: Vec::new(), provider }
    }

    fn moment(&self) -> Moment {
        Moment {
            now: at(self.now),
            held: false,
            held_for: SignedDuration::ZERO,
            cancelled: false,
            useful_until: at(100_000 * 86_400),
            suppressed: false,
        }
    }

    fn intent(&self) -> Intent {
        let (window, margin) = (span(self.promised), span(self.terms.margin));
        let replay = if self.terms.rejects {
            Replay::RejectsDuplicate { window, margin }
        } else {
            Replay::ReturnsOriginal { window, margin }
        };
        let lookup =
            if self.terms.lookup { Lookup::ByKey { miss_counts: true } } else { Lookup::None };
        Intent {
            generation: self.op.generation,
            ordinal: self.op.ordinal + 1,
            provider: ProviderRef { kind: "test".into(), account: "a".into() },
            contract: Contract { replay, lookup, ..Contract::NONE },
            content_hash: "hash".into(),
            lease: span(self.terms.lease),
            settle: span(self.terms.settle),
            batch: None,
        }
    }

    fn apply(&mut self, event: &Event) {
        let moment = self.moment();
        self.op.apply(event, &self.terms.rules, &moment);
    }

    /// Tries to begin; the property itself.
    fn begin(&mut self, seen: &mut Seen) -> Result<(), TestCaseError> {
        let (before, moment, intent) = (self.op.clone(), self.moment(), self.intent());
        // Counted from the first attempt that is in doubt, as the provider may count at the worst.
        let first = before.doubts.iter().map(|doubt| doubt.begun_at).min();
        let margin = span(self.terms.margin.max(self.terms.lease));
        let closes = first.map(|first| first + span(self.terms.window) - margin);
        match self.op.begin(intent, &moment) {
            Ok(number) => {
                if let Some(closes) = closes {
                    prop_assert!(moment.now < closes, "begun outside the window: {before:?}");
                    prop_assert_eq!(self.op.state, before.state);
                    seen.replays += 1;
                }
                let lease_ends = self.now + self.terms.lease;
                self.sent.push(Sent { number, lease_ends, arrived: false, refused: false });
            }
            Err(cannot) => {
                prop_assert_eq!(&self.op, &before, "a refusal changed it");
                if closes.is_some_and(|closes| moment.now >= closes) {
                    let late = matches!(cannot, CannotBegin::InDoubt | CannotBegin::VerdictPending)
                        || before.state == State::Sent
                        || before.state.is_terminal()
                        || before.accepted.is_some();
                    prop_assert!(late, "{cannot} in {before:?}");
                    seen.too_late += 1;
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, nth: usize) -> Option<&mut Sent> {
        let len = self.sent.len();
        self.sent.get_mut(nth.checked_rem(len)?)
    }

    fn act(&mut self, act: Act, seen: &mut Seen) -> Result<(), TestCaseError> {
        let now = self.now;
        match act {
            Act::Begin => self.begin(seen)?,
            Act::Follow => match self.op.next(&self.terms.rules, at(now)) {
                Step::Deliver { .. }
                    if self.op.open_attempt(self.op.generation, self.op.ordinal).is_none()
                        || self.op.state == State::Unknown =>
                {
                    self.begin(seen)?;
                }
                Step::Wait(until, _) => {
                    self.now = now.max(until.duration_since(at(0)).as_secs() + 1);
                    self.apply(&Event::TimePassed);
                }
                Step::CleanUp => self.apply(&Event::CleanedUp),
                _ => self.apply(&Event::TimePassed),
            },
            Act::Arrive(nth) => {
                let arrives = self
                    .one(nth)
                    .filter(|sent| now < sent.lease_ends && !sent.arrived && !sent.refused);
                if let Some(sent) = arrives {
                    sent.arrived = true;
                    self.provider.take(now);
                }
            }
            Act::Answer(nth) => {
                let answered = self.one(nth).filter(|sent| sent.arrived && now < sent.lease_ends);
                if let Some(attempt) = answered.map(|sent| sent.number) {
                    let outcome = Outcome::Accepted { message_id: None };
                    self.apply(&Event::Answered { attempt, outcome, random: 0.5 });
                }
            }
            Act::Overdue(nth) => {
                if let Some(attempt) = self.one(nth).map(|sent| sent.number) {
                    self.apply(&Event::Overdue { attempt, random: 0.5 });
                }
            }
            Act::Refuse(nth, class) => {
                let refused = self.one(nth).filter(|sent| !sent.arrived && now < sent.lease_ends);
                if let Some(sent) = refused {
                    sent.refused = true;
                    let attempt = sent.number;
                    let outcome = Outcome::NotSent(Failure::new(class, "test"));
                    self.apply(&Event::Answered { attempt, outcome, random: 0.5 });
                }
            }
            Act::CloseBeforeIntent(class) => {
                if self.op.doubts.is_empty() {
                    let (generation, ordinal) = (self.op.generation, self.op.ordinal + 1);
                    let failure = Failure::new(class, "test");
                    self.apply(&Event::Closed { generation, ordinal, failure, random: 0.5 });
                }
            }
            Act::LookUp => {
                if self.terms.lookup {
                    let finding = match self.provider.acceptances {
                        0 => Finding::Miss,
                        _ => Finding::Accepted { message_id: None },
                    };
                    self.apply(&Event::LookedUp { finding, asked_at: at(now), random: 0.5 });
                }
            }
            // Somebody who looks before everything has arrived could be overtaken.
            Act::Verdict => {
                if let Some(attempt) = self.sent.last().map(|sent| sent.number)
                    && self.sent.iter().all(|sent| now >= sent.lease_ends)
                {
                    let verdict = match self.provider.acceptances {
                        0 => Verdict::NotDelivered,
                        _ => Verdict::Delivered,
                    };
                    self.apply(&Event::Judged { verdict, attempt: Some(attempt) });
                }
            }
            Act::TimePasses(seconds) => {
                self.now += seconds;
                self.apply(&Event::TimePassed);
            }
            Act::Replayed => self.apply(&Event::Replayed),
            // A longer promise than the provider's own would be a lie of the configuration.
            Act::Promise(seconds) => self.promised = seconds.min(self.terms.window),
        }
        Ok(())
    }
}

/// How often a replay, and a try after the window, must have been met in one case of this many.
const REACHED_ONE_IN: usize = 20;
const CASES: u32 = 600;

#[test]
fn nothing_in_doubt_goes_again_once_its_key_may_be_forgotten() {
    use proptest::test_runner::TestRunner;
    use std::cell::RefCell;
    let seen = RefCell::new(Seen::default());
    let strategy = (terms(), prop::collection::vec(act(), 1..80));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let result = runner.run(&strategy, |(terms, acts)| {
        let mut case = Case::new(terms);
        for act in acts {
            case.act(act, &mut seen.borrow_mut())?;
            prop_assert!(case.provider.acceptances <= 1, "accepted twice: {:?}", case.op);
            if case.op.state == State::Retrying {
                prop_assert_eq!(case.provider.acceptances, 0, "retrying although accepted");
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let Seen { replays, too_late } = seen.into_inner();
    println!("{CASES} schedules, {replays} replays inside and {too_late} tries outside the window");
    let cases = usize::try_from(CASES).unwrap();
    assert!(replays >= cases / REACHED_ONE_IN, "only {replays} replays");
    assert!(too_late >= cases / REACHED_ONE_IN, "only {too_late} tries outside the window");
}
