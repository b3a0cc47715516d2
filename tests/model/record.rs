//! One transaction of the ledger: an event applied by the machine, and held to the rules.

use super::check::Check;
use super::cover::Seen;
use super::rules::{Rule, is_legal};
use super::world::{Customer, Fate, Machine, Said, World};
use digest_workflows::operation::{
    Change, Event, Failure, FailureClass, Finding, Note, Outcome, ProviderRef, State, Verdict,
};

impl Check {
    /// Applies an event in one transaction of the ledger, and holds the change to the rules.
    pub(super) fn record(&self, world: &mut World, on: usize, event: &Event) -> Change {
        let (now, moment) = (world.now, world.moment(self.config.useful_until));
        let customer = &mut world.customers[on];
        let before = customer.machine.clone();
        let rules = &self.config.rules;
        let change = customer.machine.change(now, |machine| machine.apply(event, rules, &moment));
        let verdict_acted = before.verdict.is_some_and(|v| v.verdict == Verdict::NotDelivered)
            || matches!(event, Event::Judged { verdict: Verdict::NotDelivered, .. });
        for (number, outcome) in &change.settled {
            let Some(one) = customer.tries.iter_mut().find(|one| one.number == *number) else {
                continue;
            };
            if matches!(outcome, Outcome::NotSent(_)) {
                one.settled_not_sent = true;
                let by_verdict =
                    matches!(event, Event::TimePassed | Event::Judged { .. }) && verdict_acted;
                if by_verdict && one.denied && one.fate == Fate::Accepted {
                    self.cover.see(Seen::Beyond);
                    world.beyond |= self.config.verdicts_may_be_overtaken;
                }
            }
        }
        self.cover.arrow(change.from, change.to);
        if !is_legal(change.from, change.to, Some(event), change.note) {
            world.breaks(Rule::LegalTransitions);
        }
        let stays = match change.from {
            State::Sent => matches!(change.to, State::Sent | State::Cleaned),
            State::Cleaned | State::Suppressed | State::Expired => change.from == change.to,
            State::Dead => {
                let again = matches!(event, Event::Replayed | Event::Restored { .. });
                change.to == State::Dead || again
            }
            _ => true,
        };
        if !stays {
            world.breaks(Rule::SettledStaysSettled);
        }
        if change.to == State::Cleaned
            && (change.from != State::Cleaned && change.from != State::Sent
                || !world.customers[on].rows_gone)
        {
            world.breaks(Rule::CleanupAfterSent);
        }
        change
    }

    /// Notes what an event of an execution came to.
    pub(super) fn notice(&self, event: &Event, change: &Change, machine: &Machine) {
        let unknown = change.from == State::Unknown;
        let still = change.to == State::Unknown;
        let seen = match event {
            Event::LookedUp { finding: Finding::Accepted { .. }, .. } if unknown && !still => {
                Some(Seen::Hit)
            }
            Event::LookedUp { finding: Finding::Miss, .. } => match (unknown, still) {
                (true, true) => Some(Seen::MissTooEarly),
                (true, false) => Some(Seen::MissCounted),
                _ => Some(Seen::MissTooLate),
            },
            Event::LookedUp { finding: Finding::Refused(_), .. }
            | Event::Told { finding: Finding::Refused(_) }
                if !change.settled.is_empty() =>
            {
                Some(Seen::ToldRefused)
            }
            Event::Unwanted if change.note == Some(Note::NotSentAgain) => {
                Some(Seen::UnwantedInDoubt)
            }
            Event::ReplayOver if machine.replay_over => Some(Seen::ReplayOver),
            Event::ProviderGone if still => Some(Seen::ProviderGone),
            Event::CleanupFailed { .. } if machine.cleanup.given_up => Some(Seen::CleanupGivenUp),
            Event::CleanupFailed { .. } if change.note.is_none() => Some(Seen::CleanupFailed),
            _ => None,
        };
        if let Some(seen) = seen {
            self.cover.see(seen);
        }
        if change.note == Some(Note::Undelivered) {
            self.cover.see(Seen::Undelivered);
        }
    }
}

/// Whether the configured account is that of every doubt.
pub(super) fn serves(world: &World, customer: &Customer) -> bool {
    let ours = provider(world.account);
    customer.machine.doubts.iter().all(|doubt| doubt.provider == ours)
}

pub(super) fn accepted(attempt: u32) -> Event {
    let outcome = Outcome::Accepted { message_id: None };
    Event::Answered { attempt, outcome, random: 0.0 }
}

pub(super) fn refused(attempt: u32, class: FailureClass) -> Event {
    let outcome = Outcome::NotSent(Failure::new(class, "refused"));
    Event::Answered { attempt, outcome, random: 0.0 }
}

pub(super) fn finding(said: Said) -> Finding {
    match said {
        Said::Accepted => Finding::Accepted { message_id: None },
        Said::Refused => Finding::Refused(FailureClass::Rejected),
        Said::Miss => Finding::Miss,
        Said::Unavailable => Finding::Unavailable,
    }
}

pub(super) fn provider(account: u8) -> ProviderRef {
    ProviderRef { kind: "model".into(), account: account.to_string() }
}
