//! What each action does: the activities' transactions, made with the very machine that the ledger
//! makes them with, and the provider's side of it.

use super::bounds::{LEASE, Planted, SETTLE};
use super::check::{Action, Check, Commit};
use super::cover::Seen;
use super::record::{accepted, finding, provider, refused, serves};
use super::rules::{Rule, is_legal, mark_untruths};
use super::world::{Customer, Fate, Phase, Said, Try, Word, Work, World, at, hash_of};
use digest_workflows::operation::{
    BatchRef, CannotBegin, Event, Failure, FailureClass, Intent, Note, Outcome, State, Step,
    Verdict,
};
use jiff::SignedDuration;

impl Check {
    pub(super) fn perform(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        let world = &mut next;
        match action {
            Action::TimePasses => world.comes_to(self.next_instant(world)?),
            Action::Deliver { on, generation, ordinal, worker } => {
                self.deliver(world, on, (generation, ordinal), worker)?;
            }
            Action::Reconcile { on, said, worker } => self.reconcile(world, on, said, worker),
            Action::CleanUp { on, succeeds, worker } => self.clean_up(world, on, succeeds, worker),
            Action::Fail { on, work, class } => self.fail(world, on, work, class),
            Action::Begin { on, work, commit } => self.begin(world, on, work, commit),
            Action::LeaseOver { on, work } => {
                let number = listened(&world.customers[on].works.remove(work));
                self.cover.see(Seen::LeaseOver);
                self.record(world, on, &refused(number, FailureClass::Transport));
            }
            Action::HandOver { on, work } => self.hand_over(world, on, work),
            Action::Decide { on, number, fate } => self.decide(world, on, number, fate),
            Action::GiveUp { on, number } => {
                world.left.withdrawals -= 1;
                world.customers[on].try_mut(number).fate = Fate::Withdrawn;
            }
            Action::Hear { on, work, again } => self.hear(world, on, work, again),
            Action::Lose { on, work } => {
                let number = listened(&world.customers[on].works.remove(work));
                self.unanswered(world, on, number);
            }
            Action::Record { on, work } => self.record_word(world, on, work),
            Action::Crash { worker } => self.crash(world, worker),
            Action::Say { on, verdict, attempt } => say(world, on, verdict, attempt),
            Action::HearSay { on, again } => self.hear_say(world, on, again),
            Action::Tell { on, said, .. } => self.tell(world, on, said),
            Action::Hold => {
                world.left.holds -= 1;
                world.run.held = true;
            }
            Action::Resume => world.resume(),
            Action::Cancel => {
                world.left.cancels -= 1;
                world.run.cancelled = true;
            }
            Action::CancelOne { on } => {
                self.record(world, on, &Event::Cancelled);
            }
            Action::OptOut { on } => {
                world.left.opt_outs -= 1;
                world.customers[on].wanted = false;
            }
            Action::Forget { on } => {
                world.left.opt_outs -= u8::from(world.customers[on].wanted);
                self.record(world, on, &Event::Unwanted);
            }
            Action::Replay { on, refreeze } => self.replay(world, on, refreeze)?,
            Action::CleanUpAgain { on } => {
                self.cover.see(Seen::CleanupAgain);
                self.record(world, on, &Event::CleanupAgain);
            }
            Action::Switch => {
                world.left.switches -= 1;
                world.account = 1 - world.account;
            }
            Action::BackUp { on } => {
                let machine = world.customers[on].machine.clone();
                world.customers[on].backup = Some(machine);
            }
            Action::Restore { on } => self.restore(world, on),
            Action::SendAndDie { on, work } => send_and_die(world, on, work),
        }
        for on in 0..world.customers.len() {
            mark_untruths(self, world, on);
        }
        Some(next)
    }

    /// `deliver` as far as it reads: every execution asks the ledger first.
    fn deliver(&self, world: &mut World, on: usize, place: (u32, u32), worker: u8) -> Option<()> {
        let now = at(world.now);
        let (generation, ordinal) = place;
        let customer = &world.customers[on];
        let machine = &customer.machine;
        if !customer.works.is_empty() {
            self.cover.see(Seen::RunTwiceAtOnce);
        }
        if place == (1, 1) && machine.attempts > 1 {
            self.cover.see(Seen::StartedAfresh);
        }
        if let Some(doubt) = machine.open_attempt(generation, ordinal) {
            let number = doubt.number;
            self.unanswered(world, on, number);
            return Some(());
        }
        if machine.next(&self.config.rules, now) != (Step::Deliver { generation, ordinal }) {
            // Otherwise the ledger's answer is all that comes of it.
            (machine.state == State::Unknown).then_some(())?;
            self.record(world, on, &Event::TimePassed);
            return Some(());
        }
        if machine.attempts >= self.config.attempts {
            return None;
        }
        let moment = world.moment(self.config.useful_until);
        let phase = if !serves(world, customer) {
            Phase::Recording(Word::ProviderGone)
        } else if moment.cancelled {
            Phase::Recording(Word::Cancelled)
        } else if moment.held {
            return None;
        } else if moment.now >= moment.useful_until {
            Phase::Recording(Word::TooLate)
        } else if !customer.wanted {
            Phase::Recording(Word::Unwanted)
        } else {
            let ready =
                |work: &Work| matches!(work.phase, Phase::Ready { ordinal: o, .. } if o == ordinal);
            if customer.works.iter().any(ready) {
                self.cover.see(Seen::TwoReady);
            }
            let (account, bytes) = (world.account, customer.bytes);
            Phase::Ready {
                generation,
                ordinal,
                account,
                bytes,
                batch: self.batch(customer, worker),
            }
        };
        self.start(world, on, worker, phase)
    }

    /// The batch that an attempt would go in: one of its own, or again that of the doubts. The second
    /// of two executions at once knows nothing of batches, and would go alone.
    fn batch(&self, customer: &Customer, worker: u8) -> u8 {
        match customer.machine.doubts.first() {
            _ if !self.config.batched => 0,
            None => u8::try_from(customer.machine.attempts).unwrap_or(u8::MAX) + 1,
            Some(_) if worker > 0 => 0,
            Some(doubt) => customer.try_of(doubt.number).batch,
        }
    }

    fn start(&self, world: &mut World, on: usize, worker: u8, phase: Phase) -> Option<()> {
        let works = &mut world.customers[on].works;
        if works.len() >= self.config.executions {
            return None;
        }
        works.push(Work { worker, phase });
        Some(())
    }

    /// An attempt has no answer in time.
    fn unanswered(&self, world: &mut World, on: usize, number: u32) {
        if self.config.planted == Some(Planted::BlindRetry) {
            self.record(world, on, &refused(number, FailureClass::Transport));
        } else {
            self.record(world, on, &Event::Overdue { attempt: number, random: 0.0 });
        }
    }

    fn reconcile(&self, world: &mut World, on: usize, said: Option<Said>, worker: u8) {
        let before = world.customers[on].machine.verdict;
        self.record(world, on, &Event::TimePassed);
        let customer = &world.customers[on];
        if before.is_some() && customer.machine.verdict.is_none() {
            self.cover.see(Seen::VerdictActed);
        }
        if customer.machine.state == State::Expired {
            self.cover.see(Seen::ExpiredByTime);
        }
        if customer.machine.state != State::Unknown {
            return;
        }
        let decided = if !serves(world, customer) {
            Word::ProviderGone
        } else if let Some(said) = said {
            if said == Said::Miss && customer.messages() > 0 {
                self.cover.see(Seen::MissOfAccepted);
            }
            Word::Found(said, world.now)
        } else {
            return;
        };
        self.start(world, on, worker, Phase::Recording(decided));
    }

    fn clean_up(&self, world: &mut World, on: usize, succeeds: bool, worker: u8) {
        let customer = &mut world.customers[on];
        let twice = customer.works.iter().any(|work| matches!(work.phase, Phase::Cleaned(_)));
        if twice {
            self.cover.see(Seen::CleanupTwice);
        }
        let sent = customer.machine.state == State::Sent;
        if succeeds {
            customer.rows_gone = true;
            if !sent {
                world.breaks(Rule::CleanupAfterSent);
            }
        } else {
            world.left.cleanup_failures -= 1;
        }
        self.start(world, on, worker, Phase::Cleaned(succeeds));
    }

    /// A try ends before its intent.
    fn fail(&self, world: &mut World, on: usize, work: usize, class: FailureClass) {
        let Phase::Ready { generation, ordinal, .. } = world.customers[on].works.remove(work).phase
        else {
            return;
        };
        let failure = Failure::new(class, "before the intent");
        let event = Event::Closed { generation, ordinal, failure, random: 0.0 };
        let change = self.record(world, on, &event);
        if class != FailureClass::Configuration {
            world.left.failures -= 1;
            return;
        }
        world.left.misconfigurations -= 1;
        if !change.settled.is_empty() {
            self.cover.see(Seen::BreakerTripped);
            world.run.held = true;
        }
    }

    fn begin(&self, world: &mut World, on: usize, work: usize, commit: Commit) {
        let Work { worker, phase } = world.customers[on].works.remove(work);
        let Phase::Ready { generation, ordinal, account, bytes, batch } = phase else { return };
        if commit == Commit::NotApplied {
            self.cover.see(Seen::CommitNotApplied);
            return;
        }
        let customer = &world.customers[on];
        // Consent is asked again right before.
        if !customer.wanted {
            world.customers[on]
                .works
                .push(Work { worker, phase: Phase::Recording(Word::Unwanted) });
            return;
        }
        let mut intent = self.intent(generation, ordinal, account, bytes);
        intent.batch = batch_ref(batch);
        if self.config.planted == Some(Planted::AnyBatch) {
            let doubt = customer.machine.doubts.first();
            intent.batch = doubt.map_or(intent.batch, |doubt| doubt.batch.clone());
        }
        let truth = world.moment(self.config.useful_until);
        let mut moment = truth;
        if self.config.planted == Some(Planted::HoldReadBefore) {
            moment.held = false;
        }
        let before = customer.machine.state;
        let unwanted = customer.machine.unwanted;
        let begun =
            world.customers[on].machine.change(world.now, |machine| machine.begin(intent, &moment));
        let number = match begun {
            Ok(number) => number,
            Err(cannot) => return self.cannot(world, on, worker, cannot, ordinal),
        };
        self.cover.arrow(before, world.customers[on].machine.state);
        if truth.held || truth.cancelled || unwanted || truth.now >= truth.useful_until {
            world.breaks(Rule::NothingBeginsForbidden);
        }
        if before == State::Sent || before.is_terminal() {
            world.breaks(Rule::SettledStaysSettled);
        }
        if !is_legal(before, world.customers[on].machine.state, None, None) {
            world.breaks(Rule::LegalTransitions);
        }
        if world.run.resumed {
            self.cover.see(Seen::ResumedAndBegun);
        }
        let now = world.now;
        let customer = &mut world.customers[on];
        customer.tries.push(Try {
            number,
            generation,
            ordinal,
            committed: true,
            lease_ends: now + LEASE,
            settles_at: now + LEASE + SETTLE,
            account,
            bytes,
            batch,
            handed_over: false,
            remembered_until: 0,
            fate: Fate::Kept,
            denied: false,
            settled_not_sent: false,
        });
        if commit == Commit::Known {
            customer.works.push(Work { worker, phase: Phase::Begun(number) });
        } else {
            self.cover.see(Seen::CommitLost);
            world.left.lost_commits -= 1;
        }
    }

    fn intent(&self, generation: u32, ordinal: u32, account: u8, bytes: u8) -> Intent {
        let at_once = self.config.planted == Some(Planted::NoLease);
        let mins = |minutes| if at_once { SignedDuration::ZERO } else { minutes };
        Intent {
            generation,
            ordinal,
            provider: provider(account),
            contract: self.config.contract,
            content_hash: bytes.to_string(),
            lease: mins(SignedDuration::from_mins(LEASE)),
            settle: mins(SignedDuration::from_mins(SETTLE)),
            batch: None,
        }
    }

    fn cannot(&self, world: &mut World, on: usize, worker: u8, cannot: CannotBegin, ordinal: u32) {
        let works = &mut world.customers[on].works;
        let decided = match cannot {
            CannotBegin::Cancelled => Some((Seen::CancelledAtBegin, Word::Cancelled)),
            CannotBegin::TooLate => Some((Seen::TooLateAtBegin, Word::TooLate)),
            CannotBegin::InDoubt => Some((Seen::InDoubtAtBegin, Word::ReplayOver)),
            _ => None,
        };
        if let Some((seen, word)) = decided {
            self.cover.see(seen);
            works.push(Work { worker, phase: Phase::Recording(word) });
        }
        match cannot {
            CannotBegin::Held => self.cover.see(Seen::HeldAtBegin),
            CannotBegin::Unwanted => self.cover.see(Seen::UnwantedAtBegin),
            CannotBegin::VerdictPending => self.cover.see(Seen::PendingAtBegin),
            CannotBegin::NotNext => {
                self.cover.see(Seen::OvertakenAtBegin);
                let open = world.customers[on].machine.doubts.iter();
                let taken = open.filter(|doubt| doubt.ordinal == ordinal).map(|d| d.number).next();
                if let Some(number) = taken
                    && self.config.planted == Some(Planted::NoToken)
                {
                    let phase = Phase::Begun(number);
                    world.customers[on].works.push(Work { worker, phase });
                }
            }
            _ => {}
        }
    }

    fn hand_over(&self, world: &mut World, on: usize, work: usize) {
        let now = world.now;
        let window = self.config.contract.replay.window();
        let forgets = if self.config.planted == Some(Planted::Forgets) { LEASE } else { 0 };
        let customer = &mut world.customers[on];
        let number = listened(&customer.works[work]);
        let recorded = customer.machine.attempts >= number;
        let one = customer.try_mut(number);
        if now >= one.lease_ends {
            self.cover.see(Seen::Zombie);
        }
        let own = one.committed && recorded && !one.handed_over;
        one.handed_over = true;
        one.remembered_until = window.map_or(0, |window| now + window.as_mins() - forgets);
        one.fate = Fate::Pending;
        customer.works[work].phase = Phase::Listening(number);
        if !own {
            world.breaks(Rule::IntentFirst);
        }
        match self.config.planted {
            Some(Planted::AcceptedBeforeAnswer) => {
                self.record(world, on, &accepted(number));
            }
            Some(Planted::NotSentBeforeAnswer) => {
                self.record(world, on, &refused(number, FailureClass::Transport));
            }
            _ => {}
        }
    }

    fn decide(&self, world: &mut World, on: usize, number: u32, fate: Fate) {
        match fate {
            Fate::Refused(FailureClass::RateLimited) => world.left.throttles -= 1,
            Fate::Refused(_) => world.left.refusals -= 1,
            _ => {}
        }
        let now = world.now;
        let customer = &mut world.customers[on];
        let heard = customer.works.iter().any(|work| work.phase == Phase::Listening(number));
        let doubts = customer.machine.doubts.len();
        let one = customer.try_mut(number);
        one.fate = fate;
        let seen = [
            (!heard, Seen::DecidedUnheard),
            (fate == Fate::Accepted && now >= one.lease_ends, Seen::AcceptedLate),
            (fate == Fate::Repeated, Seen::ReplayRepeated),
        ];
        for (_, what) in seen.into_iter().filter(|(happened, _)| *happened) {
            self.cover.see(what);
        }
        if matches!(fate, Fate::Refused(FailureClass::RateLimited)) {
            self.cover.see(if doubts > 1 { Seen::ReplayRefused } else { Seen::Throttled });
        }
        if customer.messages() > 1 {
            world.breaks(Rule::AcceptedOnce);
        }
    }

    fn hear(&self, world: &mut World, on: usize, work: usize, again: bool) {
        let customer = &mut world.customers[on];
        let number = listened(&customer.works[work]);
        if again {
            world.left.repeats -= 1;
            self.cover.see(Seen::RecordedTwice);
        } else {
            customer.works.remove(work);
        }
        if customer.machine.state == State::Unknown {
            self.cover.see(Seen::LateAnswer);
        }
        let denied = customer.machine.verdict.is_some_and(|v| v.verdict == Verdict::NotDelivered);
        let event = match customer.try_of(number).fate {
            Fate::Refused(class) => refused(number, class),
            _ => accepted(number),
        };
        self.record(world, on, &event);
        if self.config.planted == Some(Planted::RefusalForAll)
            && let Event::Answered { outcome: Outcome::NotSent(failure), .. } = &event
        {
            let class = failure.class;
            let doubts = world.customers[on].machine.doubts.clone();
            for doubt in doubts {
                self.record(world, on, &refused(doubt.number, class));
            }
        }
        if denied && world.customers[on].machine.state == State::Sent {
            self.cover.see(Seen::EvidenceWon);
        }
    }

    fn record_word(&self, world: &mut World, on: usize, work: usize) {
        let random = 0.0;
        let event = match world.customers[on].works.remove(work).phase {
            Phase::Recording(Word::Unwanted) => Event::Unwanted,
            Phase::Recording(Word::Cancelled) => Event::Cancelled,
            Phase::Recording(Word::TooLate) => Event::TooLate,
            Phase::Recording(Word::ReplayOver) => Event::ReplayOver,
            Phase::Recording(Word::ProviderGone) => Event::ProviderGone,
            Phase::Recording(Word::Found(said, asked)) => {
                Event::LookedUp { finding: finding(said), asked_at: at(asked), random }
            }
            Phase::Cleaned(true) => Event::CleanedUp,
            Phase::Cleaned(false) => Event::CleanupFailed { random },
            _ => return,
        };
        let change = self.record(world, on, &event);
        self.notice(&event, &change, &world.customers[on].machine);
    }

    fn crash(&self, world: &mut World, worker: u8) {
        world.left.crashes -= 1;
        for customer in &mut world.customers {
            for work in customer.works.iter().filter(|work| work.worker == worker) {
                match work.phase {
                    Phase::Begun(_) => self.cover.see(Seen::CrashAfterIntent),
                    Phase::Listening(_) => self.cover.see(Seen::CrashWhileListening),
                    _ => {}
                }
            }
            customer.works.retain(|work| work.worker != worker);
        }
    }

    fn hear_say(&self, world: &mut World, on: usize, again: bool) {
        let customer = &mut world.customers[on];
        let Some((verdict, attempt)) = customer.said else { return };
        if again {
            world.left.repeats -= 1;
        } else {
            customer.said = None;
        }
        let before = customer.machine.clone();
        let change = self.record(world, on, &Event::Judged { verdict, attempt });
        let early = matches!(before.state, State::Selected | State::Sending);
        match change.note {
            Some(Note::NotUnknown) if early => self.cover.see(Seen::VerdictTooEarly),
            Some(Note::NotUnknown) => self.cover.see(Seen::VerdictTooLate),
            Some(Note::NotNewestAttempt) => self.cover.see(Seen::VerdictForOld),
            Some(Note::VerdictStands) => self.cover.see(Seen::VerdictStands),
            Some(Note::AlreadyRecorded) => self.cover.see(Seen::VerdictTwice),
            Some(Note::ActsLater) => self.cover.see(Seen::VerdictPending),
            None if change.to == State::Expired => self.cover.see(Seen::Abandoned),
            _ => {}
        }
    }

    fn tell(&self, world: &mut World, on: usize, said: Said) {
        let before = world.customers[on].machine.state;
        let change = self.record(world, on, &Event::Told { finding: finding(said) });
        if before == State::Unknown && change.to == State::Sent {
            self.cover.see(Seen::ToldAccepted);
        }
        self.notice(&Event::Told { finding: finding(said) }, &change, &world.customers[on].machine);
    }

    fn replay(&self, world: &mut World, on: usize, refreeze: bool) -> Option<()> {
        let moment = world.moment(self.config.useful_until);
        if self.config.planted == Some(Planted::ReplayUnbound) {
            // As if whatever has ended, or waits for a human, were a dead letter.
            world.customers[on].machine.change(world.now, |machine| {
                machine.state = State::Dead;
                machine.doubts.clear();
                machine.accepted = None;
                machine.contradicted = false;
            });
        }
        let machine = &world.customers[on].machine;
        if refreeze {
            machine.may_refreeze(&moment).ok()?;
            world.left.refreezes -= 1;
            self.record(world, on, &Event::Refrozen);
            self.cover.see(Seen::Refrozen);
            world.customers[on].bytes += 1;
        } else {
            machine.may_replay(&moment).ok()?;
            world.left.replays -= 1;
        }
        self.record(world, on, &Event::Replayed);
        self.cover.see(Seen::Replayed);
        let (customer, now) = (&world.customers[on], world.now);
        if customer.messages() > 0
            || customer.tries.iter().any(|t| self.may_be_accepted(customer, t, now))
        {
            world.breaks(Rule::SettledStaysSettled);
        }
        Some(())
    }

    /// The ledger goes back to the backup, and is told what the engine has seen go further.
    fn restore(&self, world: &mut World, on: usize) {
        world.left.restores -= 1;
        let customer = &mut world.customers[on];
        let Some(backup) = customer.backup.take() else { return };
        let attempts = customer.machine.attempts;
        let further = hash_of(&customer.machine) != hash_of(&backup);
        let known = |one: &Try| one.number <= backup.attempts && backup.doubt(one.number).is_none();
        for one in &mut customer.tries {
            one.settled_not_sent &= known(one);
        }
        // The workflows of the old epoch are terminated; who listens goes on listening.
        customer.works.retain(|work| matches!(work.phase, Phase::Begun(_) | Phase::Listening(_)));
        customer.machine = backup;
        if further {
            self.cover.see(Seen::Restored);
            self.record(world, on, &Event::Restored { attempts });
        }
    }
}

/// Somebody says what is true now, perhaps while an attempt is still in flight.
fn say(world: &mut World, on: usize, verdict: Verdict, attempt: Option<u32>) {
    world.left.verdicts -= 1;
    let customer = &mut world.customers[on];
    customer.said = Some((verdict, attempt));
    if verdict == Verdict::NotDelivered {
        for one in customer.tries.iter_mut().filter(|one| !one.settled_not_sent) {
            one.denied = true;
        }
    }
}

/// Planted: the message leaves, and the worker dies before it records the intent.
fn send_and_die(world: &mut World, on: usize, work: usize) {
    let now = world.now;
    world.left.crashes -= 1;
    let customer = &mut world.customers[on];
    let Phase::Ready { generation, ordinal, account, bytes, batch } =
        customer.works.remove(work).phase
    else {
        return;
    };
    let number = 1_000 + u32::try_from(customer.tries.len()).unwrap_or_default();
    customer.tries.push(Try {
        number,
        generation,
        ordinal,
        committed: false,
        lease_ends: now + LEASE,
        settles_at: now + LEASE + SETTLE,
        account,
        bytes,
        batch,
        handed_over: true,
        remembered_until: 0,
        fate: Fate::Pending,
        denied: false,
        settled_not_sent: false,
    });
    world.breaks(Rule::IntentFirst);
}

/// What the machine is told of a batch; 0 is none.
fn batch_ref(batch: u8) -> Option<BatchRef> {
    let id = batch.to_string();
    (batch > 0).then(|| BatchRef { request_hash: id.clone(), id })
}

/// The attempt of an execution that has begun.
fn listened(work: &Work) -> u32 {
    match work.phase {
        Phase::Begun(number) | Phase::Listening(number) => number,
        _ => 0,
    }
}
