//! The state of the world that is checked: what the ledger holds, which executions are under way,
//! what the provider has, and what is on its way between them.

use super::rules::Rule;
use digest_workflows::operation::{FailureClass, Moment, Operation, State, Verdict};
use jiff::{SignedDuration, Timestamp};
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// The ledger's clock at minute 0.
const EPOCH: i64 = 1_800_000_000;

/// The instant `minute` of the ledger's clock, which starts at 0 and counts nothing finer.
pub(super) fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(EPOCH + minute * 60).unwrap()
}

/// The minute of an instant.
pub(super) fn minute(at: Timestamp) -> i64 {
    (at.as_second() - EPOCH) / 60
}

/// Everything at one instant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    /// The minute of the ledger's clock.
    pub(super) now: i64,
    pub(super) run: Run,
    /// The account that the configuration names.
    pub(super) account: u8,
    pub(super) customers: Vec<Customer>,
    /// How many faults of each kind may still happen.
    pub(super) left: Faults,
    /// The rules that were broken on the way here.
    pub(super) broken: u16,
    /// A verdict was acted on that was true when it was said and no longer afterwards, and no
    /// evidence told so: outside of what is promised, and not followed further.
    pub(super) beyond: bool,
}

/// The row of the run.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
pub(super) struct Run {
    pub(super) held: bool,
    /// Whether a hold has ended.
    pub(super) resumed: bool,
    pub(super) cancelled: bool,
}

/// One operation with everything that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Customer {
    /// The operation as the ledger has it.
    pub(super) machine: Machine,
    /// Whether the source still wants it.
    pub(super) wanted: bool,
    /// Which rendering is frozen; `--refreeze` makes the next.
    pub(super) bytes: u8,
    /// Every attempt that reached its intent, by running number.
    pub(super) tries: Vec<Try>,
    /// The executions of its activities that are under way, in a canonical order.
    pub(super) works: Vec<Work>,
    /// A verdict on its way to the ledger: the attempt that it names.
    pub(super) said: Option<(Verdict, Option<u32>)>,
    /// Whether the rows at the source are gone.
    pub(super) rows_gone: bool,
    /// The operation as a backup has it.
    pub(super) backup: Option<Machine>,
}

/// The truth about one attempt, whatever anybody has recorded of it.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact, not a state")]
pub(super) struct Try {
    pub(super) number: u32,
    pub(super) generation: u32,
    pub(super) ordinal: u32,
    /// Whether its intent was committed; always, unless a fault is planted.
    pub(super) committed: bool,
    pub(super) lease_ends: i64,
    pub(super) settles_at: i64,
    pub(super) account: u8,
    pub(super) bytes: u8,
    /// The batch that it goes in, which is its key at the provider; 0 for none.
    pub(super) batch: u8,
    pub(super) handed_over: bool,
    /// Until when the provider remembers its key, should it accept it.
    pub(super) remembered_until: i64,
    pub(super) fate: Fate,
    /// Whether somebody has truthfully said, while it was open, that nothing was accepted.
    pub(super) denied: bool,
    /// Whether the ledger has settled it as not sent.
    pub(super) settled_not_sent: bool,
}

/// What became of a request at the provider.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) enum Fate {
    /// Not handed over.
    Kept,
    /// Handed over; the provider has not decided, and perhaps never will.
    Pending,
    /// Accepted as a message of its own.
    Accepted,
    /// The key was remembered: the original was returned, or the duplicate refused.
    Repeated,
    /// Accepted, then refused by the provider itself: nobody gets it.
    Withdrawn,
    /// Refused.
    Refused(FailureClass),
}

/// One execution of an activity.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Work {
    pub(super) worker: u8,
    pub(super) phase: Phase,
}

/// How far an execution has come. Any step may come late, which is what a stopped process does.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has read the ledger, connected, and may begin.
    Ready { generation: u32, ordinal: u32, account: u8, bytes: u8, batch: u8 },
    /// Its intent is committed under its token.
    Begun(u32),
    /// It has handed over and listens.
    Listening(u32),
    /// It has decided what to record.
    Recording(Word),
    /// The cleanup statement has run, or has failed.
    Cleaned(bool),
}

/// What an execution is about to record.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Unwanted,
    Cancelled,
    TooLate,
    ReplayOver,
    ProviderGone,
    /// What the provider said when it was asked in this minute.
    Found(Said, i64),
}

/// What a provider says about a key.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Said {
    Accepted,
    Refused,
    Miss,
    Unavailable,
}

/// How many faults of each kind may happen; what is not bounded here is bounded by the machine.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
pub(super) struct Faults {
    /// Workers that die, with every execution in them.
    pub(super) crashes: u8,
    /// Commits that are applied although their answer is lost, and cannot be read back.
    pub(super) lost_commits: u8,
    /// Answers that are recorded once more.
    pub(super) repeats: u8,
    /// Refusals for good.
    pub(super) refusals: u8,
    /// Refusals for now.
    pub(super) throttles: u8,
    /// Tries that end before their intent, with a class that counts.
    pub(super) failures: u8,
    /// Tries that end before their intent because of the configuration, which holds the run.
    pub(super) misconfigurations: u8,
    /// Messages that the provider refuses after it has accepted them.
    pub(super) withdrawals: u8,
    /// Verdicts of an operator.
    pub(super) verdicts: u8,
    pub(super) holds: u8,
    pub(super) cancels: u8,
    pub(super) opt_outs: u8,
    /// Replays of a dead letter.
    pub(super) replays: u8,
    /// Replays of a dead letter with new bytes.
    pub(super) refreezes: u8,
    pub(super) cleanup_failures: u8,
    /// Changes of the configured account.
    pub(super) switches: u8,
    pub(super) restores: u8,
}

impl World {
    pub(super) fn breaks(&mut self, rule: Rule) {
        self.broken |= rule.bit();
    }

    pub(super) fn has_broken(&self, rule: Rule) -> bool {
        self.broken & rule.bit() != 0
    }

    /// The facts of the moment, as the ledger has them. `useful_until` is a minute.
    pub(super) fn moment(&self, useful_until: i64) -> Moment {
        Moment {
            now: at(self.now),
            held: self.run.held,
            held_for: SignedDuration::ZERO,
            cancelled: self.run.cancelled,
            useful_until: at(useful_until),
            suppressed: false,
        }
    }

    pub(super) fn resume(&mut self) {
        self.run.held = false;
        self.run.resumed = true;
    }

    /// The clock comes to `now`.
    pub(super) fn comes_to(&mut self, now: i64) {
        self.now = now;
        for customer in &mut self.customers {
            customer.machine.age(now);
            if let Some(backup) = &mut customer.backup {
                backup.age(now);
            }
        }
    }

    /// Brings what has no order into one: executions, workers, and customers who differ only in
    /// their place.
    pub(super) fn canonical(mut self) -> Self {
        for customer in &mut self.customers {
            customer.works.sort_unstable();
        }
        if let [customer] = &mut self.customers[..] {
            // Each execution has a worker of its own.
            customer.works.sort_unstable_by_key(|work| work.phase);
            for (worker, work) in (0..).zip(&mut customer.works) {
                work.worker = worker;
            }
            return self;
        }
        let mut flipped = self.clone();
        for customer in &mut flipped.customers {
            for work in &mut customer.works {
                work.worker = 1 - work.worker;
            }
            customer.works.sort_unstable();
        }
        let keys = self.sort_customers();
        if flipped.sort_customers() < keys { flipped } else { self }
    }

    fn sort_customers(&mut self) -> Vec<u64> {
        let now = self.now;
        self.customers.sort_by_cached_key(|customer| customer.key(now));
        self.customers.iter().map(|customer| customer.key(now)).collect()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.now, self.run, self.account, self.left, self.broken).hash(state);
        for customer in &self.customers {
            state.write_u64(customer.key(self.now));
        }
    }
}

impl Customer {
    pub(super) fn new() -> Self {
        Self {
            machine: Machine::new(Operation::selected(at(0)), 0),
            wanted: true,
            bytes: 0,
            tries: Vec::new(),
            works: Vec::new(),
            said: None,
            rows_gone: false,
            backup: None,
        }
    }

    /// What tells it apart from others at `now`: instants that have come are all alike.
    fn key(&self, now: i64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.machine, self.wanted, self.bytes, &self.works, self.said).hash(&mut hasher);
        (self.rows_gone, &self.backup).hash(&mut hasher);
        for one in &self.tries {
            let open = !one.settled_not_sent || matches!(one.fate, Fate::Kept | Fate::Pending);
            let instants = [one.lease_ends, one.settles_at, one.remembered_until];
            (one.number, one.fate, one.settled_not_sent, one.account).hash(&mut hasher);
            one.batch.hash(&mut hasher);
            (one.denied && open, instants.map(|at| at.max(now))).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn try_of(&self, number: u32) -> &Try {
        self.tries.iter().find(|one| one.number == number).unwrap()
    }

    pub(super) fn try_mut(&mut self, number: u32) -> &mut Try {
        self.tries.iter_mut().find(|one| one.number == number).unwrap()
    }

    /// How many messages the provider has accepted and not withdrawn.
    pub(super) fn messages(&self) -> usize {
        self.tries.iter().filter(|one| one.fate == Fate::Accepted).count()
    }

    /// Whether this attempt may still be accepted at `now`: whoever holds it writes, and the
    /// provider takes what was written, strictly before lease end plus `settle`.
    pub(super) fn may_arrive(&self, one: &Try, now: i64) -> bool {
        let in_hand = one.fate == Fate::Pending
            || self.works.iter().any(|work| work.phase == Phase::Begun(one.number));
        in_hand && now < one.settles_at
    }
}

/// An operation that is shared between states until it changes, with its hash.
#[derive(Clone)]
pub(super) struct Machine(Arc<(Operation, u64)>);

impl Machine {
    pub(super) fn new(operation: Operation, now: i64) -> Self {
        let hash = hash_of(&canonical(&operation, now));
        Self(Arc::new((operation, hash)))
    }

    /// Changes it by `change`.
    pub(super) fn change<R>(&mut self, now: i64, change: impl FnOnce(&mut Operation) -> R) -> R {
        let mut operation = self.0.0.clone();
        let result = change(&mut operation);
        if operation != self.0.0 {
            *self = Self::new(operation, now);
        }
        result
    }

    fn age(&mut self, now: i64) {
        let hash = hash_of(&canonical(&self.0.0, now));
        if hash != self.0.1 {
            *self = Self(Arc::new((self.0.0.clone(), hash)));
        }
    }
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        self.0.1 == other.0.1
    }
}

/// The operation with everything alike that can make no difference any more: instants that have come,
/// and times that nothing is counted from in its state. Used for telling states apart alone; what is
/// driven on is always the operation itself.
fn canonical(operation: &Operation, now: i64) -> Operation {
    let mut op = operation.clone();
    let now = at(now);
    let come = |instant: &mut Option<Timestamp>| {
        if let Some(instant) = instant {
            *instant = (*instant).max(now);
        }
    };
    if !matches!(op.state, State::Unknown) {
        op.since = at(0);
        op.asked_at = None;
    }
    // How many leases had ended when the ledger was asked, and nothing finer.
    let ended = |asked: Timestamp| op.doubts.iter().filter(|d| d.lease_ends <= asked).count();
    let ended = op.asked_at.map_or(0, ended);
    op.asked_at = i64::try_from(ended).ok().filter(|ended| *ended > 0).map(at);
    come(&mut op.retry_at);
    come(&mut op.lookups.next_at);
    come(&mut op.cleanup.retry_at);
    come(&mut op.remembered_until);
    if let Some(verdict) = &mut op.verdict {
        verdict.acts_at = verdict.acts_at.max(now);
    }
    // No generation reaches its greatest age here.
    if let Some(began) = &mut op.began {
        began.at = at(0);
    }
    let replays = op.doubts.iter().any(|doubt| doubt.contract.replay.window().is_some());
    if op.doubts.is_empty() || !replays {
        op.first_intent_at = op.first_intent_at.filter(|_| op.remembered_until.is_some());
    }
    for doubt in &mut op.doubts {
        doubt.begun_at = at(0);
        doubt.lease_ends = doubt.lease_ends.max(now);
        if !doubt.contract.lookup.is_offered() {
            doubt.settles_at = doubt.settles_at.max(now);
        }
    }
    op
}

impl Deref for Machine {
    type Target = Operation;
    fn deref(&self) -> &Operation {
        &self.0.0
    }
}

impl Hash for Machine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.1);
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

pub(super) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
