//! Liveness without cycles: from every state, a world in which nothing more goes wrong brings the
//! operation to rest, by steps each of which changes something or waits for an instant to come.

use super::bounds::{Config, LEASE, Planted, SETTLE};
use super::record::provider;
use super::world::{Customer, World, at, minute};
use digest_workflows::operation::{
    Event, Failure, FailureClass, Finding, Intent, Moment, Operation, Outcome, Rules, State, Step,
    Why,
};
use jiff::SignedDuration;

/// More steps than any operation needs from anywhere.
const STEPS_MAX: usize = 200;

/// How the rest of the world goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Every attempt is accepted and heard, every look-up hits.
    Accepts,
    /// No attempt is ever answered, and no look-up says anything.
    Silent,
    /// Every attempt is told to come back later, every look-up misses.
    Throttles,
    /// No attempt is ever answered, and every look-up tells of a refusal.
    Refuses,
}

/// Whether the operation comes to rest, whatever course the world takes from here.
///
/// # Errors
/// What it is stuck in.
pub(super) fn comes_to_rest(
    config: &Config,
    world: &World,
    customer: &Customer,
) -> Result<(), String> {
    for course in [Course::Accepts, Course::Silent, Course::Throttles, Course::Refuses] {
        let mut drive = Drive {
            config,
            course,
            moment: world.moment(config.useful_until),
            account: world.account,
            operation: (*customer.machine).clone(),
        };
        drive.run()?;
    }
    Ok(())
}

/// The minutes at which something about an operation is decided otherwise than before.
pub(super) fn instants(rules: &Rules, operation: &Operation) -> Vec<i64> {
    let mut instants = vec![
        operation.retry_at,
        operation.verdict.map(|verdict| verdict.acts_at),
        operation.lookups.next_at,
        operation.replayable_until(),
        operation.cleanup.retry_at,
    ];
    instants.extend(operation.doubts.iter().flat_map(|d| [Some(d.lease_ends), Some(d.settles_at)]));
    if operation.state == State::Unknown {
        instants.push(Some(operation.since + rules.unknown.keep_rows_for));
        if operation.doubts.iter().any(|doubt| doubt.contract.lookup.is_offered()) {
            instants.push(Some(operation.since + rules.unknown.escalate_after));
        }
    }
    instants.into_iter().flatten().map(minute).collect()
}

struct Drive<'a> {
    config: &'a Config,
    course: Course,
    moment: Moment,
    account: u8,
    operation: Operation,
}

impl Drive<'_> {
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let step = self.operation.next(&self.config.rules, self.moment.now);
            self.check_rest(step)?;
            let before = (self.operation.clone(), self.moment);
            match step {
                Step::Done => return Ok(()),
                Step::Wait(until, _) => {
                    if until <= self.moment.now {
                        return Err(self.stuck("waits for what has come"));
                    }
                    self.moment.now = until;
                    if self.operation.next(&self.config.rules, until) == step {
                        return Err(self.stuck("waits on when the time has come"));
                    }
                    continue;
                }
                Step::Deliver { generation, ordinal } => self.deliver(generation, ordinal)?,
                Step::Reconcile => self.reconcile(),
                Step::CleanUp => self.apply(&Event::CleanedUp),
            }
            if before == (self.operation.clone(), self.moment) {
                return Err(self.stuck(&format!("{step:?} changes nothing")));
            }
        }
        Err(self.stuck("comes to no rest"))
    }

    /// Nothing waits invisibly: what is at rest is terminal, a cleanup that was given up, or waits for
    /// a human with nothing automatic left.
    fn check_rest(&self, step: Step) -> Result<(), String> {
        let operation = &self.operation;
        let now = self.moment.now;
        let at_rest = operation.is_at_rest(&self.config.rules, now);
        let may_rest = match step {
            Step::Done => operation.state.is_terminal() || operation.cleanup.given_up,
            Step::Wait(_, Why::Human) => {
                let looks = operation.doubts.iter().any(|d| d.contract.lookup.is_offered());
                operation.state == State::Unknown
                    && operation.verdict.is_none()
                    && (operation.lookups.spent || !looks)
                    && operation.asked_at >= operation.lease_ends()
            }
            _ => !at_rest,
        };
        if !may_rest {
            return Err(self.stuck(&format!("rests at {step:?}")));
        }
        let told = operation.waits_for(now).is_empty();
        if told != operation.state.is_terminal() {
            return Err(self.stuck("does not say what it waits for"));
        }
        Ok(())
    }

    fn deliver(&mut self, generation: u32, ordinal: u32) -> Result<(), String> {
        let open = self.operation.open_attempt(generation, ordinal).map(|doubt| doubt.number);
        if let Some(attempt) = open {
            self.apply(&Event::Overdue { attempt, random: 0.0 });
            return Ok(());
        }
        let ours = provider(self.account);
        if self.operation.doubts.iter().any(|doubt| doubt.provider != ours) {
            self.apply(&Event::ProviderGone);
        } else if self.moment.cancelled {
            self.apply(&Event::Cancelled);
        } else if self.moment.held {
            // Waits for somebody to resume the run, visibly.
            self.moment.held = false;
        } else if self.moment.now >= self.moment.useful_until {
            self.apply(&Event::TooLate);
        } else {
            self.attempt(generation, ordinal)?;
        }
        Ok(())
    }

    fn attempt(&mut self, generation: u32, ordinal: u32) -> Result<(), String> {
        let intent = Intent {
            generation,
            ordinal,
            provider: provider(self.account),
            contract: self.config.contract,
            content_hash: self
                .operation
                .doubts
                .first()
                .map_or_else(|| "0".to_owned(), |doubt| doubt.content_hash.clone()),
            lease: SignedDuration::from_mins(LEASE),
            settle: SignedDuration::from_mins(SETTLE),
            batch: self.operation.doubts.first().and_then(|doubt| doubt.batch.clone()),
        };
        let attempt = self
            .operation
            .begin(intent, &self.moment)
            .map_err(|cannot| self.stuck(&format!("is to begin and may not: {cannot}")))?;
        let outcome = match self.course {
            Course::Accepts => Outcome::Accepted { message_id: None },
            Course::Throttles => Outcome::NotSent(Failure::new(FailureClass::RateLimited, "fair")),
            Course::Silent | Course::Refuses => {
                self.apply(&Event::Overdue { attempt, random: 0.0 });
                return Ok(());
            }
        };
        self.apply(&Event::Answered { attempt, outcome, random: 0.0 });
        Ok(())
    }

    fn reconcile(&mut self) {
        if self.config.planted != Some(Planted::DeafToTime) {
            self.apply(&Event::TimePassed);
        }
        if !self.operation.look_up_is_due(self.moment.now) {
            return;
        }
        let ours = provider(self.account);
        if self.operation.doubts.iter().any(|doubt| doubt.provider != ours) {
            self.apply(&Event::ProviderGone);
            return;
        }
        let finding = match self.course {
            Course::Accepts => Finding::Accepted { message_id: None },
            Course::Silent => Finding::Unavailable,
            Course::Throttles => Finding::Miss,
            Course::Refuses => Finding::Refused(FailureClass::Rejected),
        };
        self.apply(&Event::LookedUp { finding, asked_at: self.moment.now, random: 0.0 });
    }

    fn apply(&mut self, event: &Event) {
        self.operation.apply(event, &self.config.rules, &self.moment);
    }

    fn stuck(&self, why: &str) -> String {
        let now = minute(self.moment.now);
        let waits = self.operation.next(&self.config.rules, at(now));
        format!("{why}, at minute {now} ({:?}, next {waits:?}): {:?}", self.course, self.operation)
    }
}
