//! What is true of every operation that this code has stored: which states follow on which, and
//! what each state says about attempts and acceptance. An audit asks it of a ledger that anybody
//! may have changed; nothing that decides about a message depends on it.

use super::state::{Operation, State};

impl State {
    /// Whether one event can lead from this state to `to`. Evidence that comes late may lead from
    /// any open state to sent.
    #[must_use]
    pub const fn may_become(self, to: Self) -> bool {
        match self {
            Self::Selected => {
                matches!(
                    to,
                    Self::Sending | Self::Retrying | Self::Sent | Self::Suppressed | Self::Dead
                )
            }
            Self::Sending => matches!(
                to,
                Self::Sent | Self::Retrying | Self::Unknown | Self::Suppressed | Self::Dead
            ),
            Self::Retrying => {
                matches!(to, Self::Sending | Self::Sent | Self::Suppressed | Self::Dead)
            }
            Self::Unknown => matches!(
                to,
                Self::Sent | Self::Retrying | Self::Suppressed | Self::Dead | Self::Expired
            ),
            Self::Sent => matches!(to, Self::Cleaned),
            Self::Dead => matches!(to, Self::Sending),
            Self::Cleaned | Self::Suppressed | Self::Expired => false,
        }
    }

    /// Whether the comparison with the engine after a restore from a backup can make it unknown.
    #[must_use]
    pub const fn may_be_restored_to_unknown(self) -> bool {
        matches!(self, Self::Selected | Self::Sending | Self::Retrying | Self::Dead)
    }
}

impl Operation {
    /// What contradicts itself in this operation, in words; `None` for every operation that
    /// [`begin`](Self::begin) and [`apply`](Self::apply) have made.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        let delivered = matches!(self.state, State::Sent | State::Cleaned);
        let may_doubt = matches!(self.state, State::Sending | State::Unknown | State::Expired);
        [
            (delivered && self.accepted.is_none(), "delivered without an acceptance"),
            (!delivered && self.accepted.is_some(), "accepted and not delivered"),
            (!may_doubt && !self.doubts.is_empty(), "an attempt in doubt in a state without doubt"),
            (self.state == State::Unknown && self.doubts.is_empty(), "unknown without a doubt"),
            (self.cleanup.given_up && self.state != State::Sent, "a failed cleanup of what rests"),
            (self.verdict.is_some() && self.state != State::Unknown, "a verdict that waits"),
            (self.newest_handed_over > self.attempts, "more attempts handed over than made"),
            (self.ordinal > self.attempts, "more attempts in a generation than in all"),
            (
                self.doubts.iter().any(|doubt| doubt.number > self.newest_handed_over),
                "a doubt about an attempt that was not handed over",
            ),
        ]
        .into_iter()
        .find_map(|(wrong, words)| wrong.then_some(words))
    }
}

#[cfg(test)]
mod tests {
    use crate::operation::{
        Contract, Event, Failure, FailureClass, Finding, Intent, Moment, Operation, Outcome,
        ProviderRef, RetryPolicy, Rules, State, Verdict,
    };
    use jiff::{SignedDuration, Timestamp};
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Act {
        Begin,
        Close(FailureClass),
        Apply(Event),
        TimePasses(i64),
    }

    fn class() -> impl Strategy<Value = FailureClass> {
        prop::sample::select(&FailureClass::ALL[..])
    }

    fn event() -> impl Strategy<Value = Event> {
        let verdict = Verdict::ALL;
        let plain = [
            Event::ProviderGone,
            Event::Unwanted,
            Event::TooLate,
            Event::TimePassed,
            Event::Cancelled,
            Event::ReplayOver,
            Event::Refrozen,
            Event::Replayed,
            Event::CleanedUp,
            Event::CleanupFailed { random: 0.5 },
            Event::CleanupAgain,
        ];
        prop_oneof![
            (1..4_u32, class()).prop_map(|(attempt, class)| {
                let outcome = Outcome::NotSent(Failure::new(class, "test"));
                Event::Answered { attempt, outcome, random: 0.5 }
            }),
            (1..4_u32).prop_map(|attempt| {
                let outcome = Outcome::Accepted { message_id: None };
                Event::Answered { attempt, outcome, random: 0.5 }
            }),
            (1..4_u32).prop_map(|attempt| Event::Overdue { attempt, random: 0.5 }),
            (prop::sample::select(verdict.to_vec()), 1..4_u32)
                .prop_map(|(verdict, n)| Event::Judged { verdict, attempt: Some(n) }),
            class().prop_map(|class| Event::Told { finding: Finding::Refused(class) }),
            Just(Event::Told { finding: Finding::Accepted { message_id: None } }),
            (1..4_u32).prop_map(|attempts| Event::Restored { attempts }),
            prop::sample::select(plain.to_vec()),
        ]
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => Just(Act::Begin),
            1 => class().prop_map(Act::Close),
            6 => event().prop_map(Act::Apply),
            2 => (1_i64..400_000).prop_map(Act::TimePasses),
        ]
    }

    /// Only attempts that were handed over are answered; everything else may come at any time.
    fn makes_sense(op: &Operation, event: &Event) -> bool {
        match event {
            Event::Answered { attempt, .. } => *attempt <= op.newest_handed_over,
            _ => true,
        }
    }

    /// The states before and after, and whether it was a restore; `None` if nothing was applied.
    fn step(op: &mut Operation, act: &Act, now: &mut i64, rules: &Rules) -> Option<(State, bool)> {
        let moment = |seconds: i64| Moment {
            now: Timestamp::from_second(1_760_000_000 + seconds).unwrap(),
            held: false,
            held_for: SignedDuration::ZERO,
            cancelled: false,
            useful_until: Timestamp::MAX,
            suppressed: false,
        };
        let before = op.state;
        let event = match act {
            Act::TimePasses(seconds) => {
                *now += seconds;
                return None;
            }
            Act::Begin => {
                let intent = Intent {
                    generation: op.generation,
                    ordinal: op.ordinal + 1,
                    provider: ProviderRef { kind: "test".into(), account: "a".into() },
                    contract: Contract::NONE,
                    content_hash: "hash".into(),
                    lease: SignedDuration::from_mins(15),
                    settle: SignedDuration::from_mins(10),
                    batch: None,
                };
                return op.begin(intent, &moment(*now)).is_ok().then_some((before, false));
            }
            Act::Close(class) => Event::Closed {
                generation: op.generation,
                ordinal: op.ordinal + 1,
                failure: Failure::new(*class, "test"),
                random: 0.5,
            },
            Act::Apply(event) => event.clone(),
        };
        if !makes_sense(op, &event) {
            return None;
        }
        op.apply(&event, rules, &moment(*now));
        Some((before, matches!(event, Event::Restored { .. })))
    }

    /// Rules under which bounds are reached within a few events.
    fn rules() -> Rules {
        let soon = RetryPolicy { max_attempts: 2, ..Rules::default_cleanup() };
        let mut rules = Rules { cleanup: soon, ..Rules::default() };
        for policy in rules.retry.values_mut() {
            policy.max_attempts = 3;
        }
        rules
    }

    /// Whatever happens in whatever order is allowed and sound, and everything allowed happens.
    #[test]
    fn the_machine_makes_exactly_these_transitions_and_never_contradicts_itself() {
        let seen = RefCell::new(BTreeSet::new());
        let mut runner = TestRunner::new(Config {
            cases: 6_000,
            failure_persistence: None,
            ..Config::default()
        });
        let acts = prop::collection::vec(act(), 1..40);
        runner
            .run(&acts, |acts| {
                let mut op = Operation::selected(Timestamp::from_second(1_760_000_000).unwrap());
                let mut now = 0;
                for act in &acts {
                    let Some((from, restored)) = step(&mut op, act, &mut now, &rules()) else {
                        continue;
                    };
                    prop_assert_eq!(op.contradiction(), None, "after {:?}: {:?}", act, op);
                    if op.state != from {
                        let allowed = from.may_become(op.state)
                            || (restored
                                && op.state == State::Unknown
                                && from.may_be_restored_to_unknown());
                        prop_assert!(allowed, "{} became {} by {:?}", from, op.state, act);
                        seen.borrow_mut().insert((from, op.state));
                    }
                }
                Ok(())
            })
            .unwrap();
        let seen = seen.into_inner();
        for from in State::ALL {
            for to in State::ALL {
                let possible = from.may_become(to)
                    || (to == State::Unknown && from.may_be_restored_to_unknown());
                assert_eq!(seen.contains(&(from, to)), possible, "{from} to {to}");
            }
        }
    }

    #[test]
    fn what_was_changed_by_hand_contradicts_itself() {
        let at = Timestamp::from_second(1_760_000_000).unwrap();
        let of = |state| Operation { state, ..Operation::selected(at) };
        for state in [State::Sent, State::Cleaned, State::Unknown] {
            assert!(of(state).contradiction().is_some(), "{state}");
        }
        let mut early = of(State::Selected);
        early.newest_handed_over = 1;
        assert!(early.contradiction().is_some());
        assert!(of(State::Selected).contradiction().is_none());
    }
}
