//! The rules as properties. Each is a mark that a transition leaves when it breaks the rule, except
//! the next step, which is asked of every state.

use super::check::Check;
use super::world::{Fate, Try, World};
use digest_workflows::operation::{Event, Note, State};
use stateright::Property;

/// A rule of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    AcceptedOnce,
    NotSentIsProven,
    SentWasAccepted,
    IntentFirst,
    NothingBeginsForbidden,
    SettledStaysSettled,
    CleanupAfterSent,
    LegalTransitions,
    Sound,
    NextStep,
}

impl Rule {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AcceptedOnce => "a key is accepted at most once",
            Self::NotSentIsProven => "not sent is true of every attempt that it is recorded of",
            Self::SentWasAccepted => "sent was accepted",
            Self::IntentFirst => "nothing is handed over without a committed intent of its own",
            Self::NothingBeginsForbidden => {
                "nothing begins while held, cancelled, unwanted or too late"
            }
            Self::SettledStaysSettled => "sent and expired stay so; dead only by a replay",
            Self::CleanupAfterSent => "the cleanup follows a delivery, and completes once",
            Self::LegalTransitions => "only transitions of the diagram happen",
            Self::Sound => "no operation contradicts itself",
            Self::NextStep => "everything that is open has a next step and comes to rest",
        }
    }

    pub(super) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// The properties that the checker holds every state to.
pub(super) fn properties() -> Vec<Property<Check>> {
    // The checker takes plain functions, so each rule has one of its own.
    macro_rules! unbroken {
        ($rule:ident) => {
            Property::always(Rule::$rule.name(), |_: &Check, world: &World| {
                !world.has_broken(Rule::$rule)
            })
        };
    }
    vec![
        unbroken!(AcceptedOnce),
        unbroken!(NotSentIsProven),
        unbroken!(SentWasAccepted),
        unbroken!(IntentFirst),
        unbroken!(NothingBeginsForbidden),
        unbroken!(SettledStaysSettled),
        unbroken!(CleanupAfterSent),
        unbroken!(LegalTransitions),
        unbroken!(Sound),
        Property::always(Rule::NextStep.name(), |check: &Check, world: &World| {
            check.has_next_steps(world)
        }),
    ]
}

/// Whether the diagram at the top of the operation's state has this arrow for this event (`None`: an
/// intent), which left this note.
pub(super) fn is_legal(from: State, to: State, event: Option<&Event>, note: Option<Note>) -> bool {
    let known = from == to || from.may_become(to);
    match (from, to) {
        // Evidence that was not expected any more.
        (State::Selected | State::Retrying, State::Sent) => {
            known && note == Some(Note::Contradicts)
        }
        (State::Dead, State::Sending) => known && matches!(event, Some(Event::Replayed)),
        (_, State::Unknown) => {
            let restored = matches!(event, Some(Event::Restored { .. }));
            known || (restored && from.may_be_restored_to_unknown())
        }
        _ => known,
    }
}

/// Marks where what the ledger says of a customer is not true: `not sent` of every attempt that it is
/// said of, now and for good, and `sent` of one of them.
pub(super) fn mark_untruths(check: &Check, world: &mut World, on: usize) {
    let customer = &world.customers[on];
    let untrue = customer.tries.iter().any(|one| {
        one.settled_not_sent
            && (one.fate == Fate::Accepted || check.may_be_accepted(customer, one, world.now))
    });
    let was_accepted =
        |one: &Try| matches!(one.fate, Fate::Accepted | Fate::Repeated | Fate::Withdrawn);
    let sent = matches!(customer.machine.state, State::Sent | State::Cleaned);
    let unsound = customer.machine.contradiction().is_some();
    let unfounded = sent && !customer.tries.iter().any(was_accepted);
    if unsound {
        world.breaks(Rule::Sound);
    }
    if untrue {
        world.breaks(Rule::NotSentIsProven);
    }
    if unfounded {
        world.breaks(Rule::SentWasAccepted);
    }
}
