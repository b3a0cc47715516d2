//! The model: the world's states, and what may happen in each.

use super::bounds::{Config, Planted};
use super::cover::Cover;
use super::world::{Customer, Fate, Phase, Said, Try, Work, World, hash_of, minute};
use super::{fair, rules};
use digest_workflows::operation::{FailureClass, Lookup, State, Step, Verdict};
use rules::Rule;
use stateright::{Model, Property};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// One configuration, to be checked.
pub(super) struct Check {
    pub(super) config: Config,
    pub(super) cover: Arc<Cover>,
    /// The rule that a planted fault must break; the others may be broken on the way.
    pub(super) expected: Option<Rule>,
    /// The operations, by hash, that are known to come to rest.
    restful: Mutex<HashSet<u64>>,
    /// What an operation is stuck in, if one is.
    stuck: Mutex<Option<String>>,
}

/// What may happen. `on` is the customer, `work` one of its executions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// The ledger's clock reaches the next instant at which anything could be decided.
    TimePasses,
    /// The engine runs `deliver` for this place, because it is due or because it believes so.
    Deliver {
        on: usize,
        generation: u32,
        ordinal: u32,
        worker: u8,
    },
    /// The engine runs `reconcile`; the provider, if it is asked, says this.
    Reconcile {
        on: usize,
        said: Option<Said>,
        worker: u8,
    },
    /// The engine runs `clean up`, whose statement succeeds or fails.
    CleanUp {
        on: usize,
        succeeds: bool,
        worker: u8,
    },
    /// The try fails before its intent.
    Fail {
        on: usize,
        work: usize,
        class: FailureClass,
    },
    /// The intent is committed, or not.
    Begin {
        on: usize,
        work: usize,
        commit: Commit,
    },
    /// The worker finds its lease over before it hands over.
    LeaseOver {
        on: usize,
        work: usize,
    },
    /// The worker finds its lease running, and writes: at once, or after it was stopped.
    HandOver {
        on: usize,
        work: usize,
    },
    /// The provider decides about a request.
    Decide {
        on: usize,
        number: u32,
        fate: Fate,
    },
    /// The provider gives up what it had accepted.
    GiveUp {
        on: usize,
        number: u32,
    },
    /// The answer is heard and recorded; `again`: and will be recorded once more.
    Hear {
        on: usize,
        work: usize,
        again: bool,
    },
    /// The session ends without an answer, or with an ambiguous one.
    Lose {
        on: usize,
        work: usize,
    },
    /// An execution records what it has decided.
    Record {
        on: usize,
        work: usize,
    },
    /// A worker dies.
    Crash {
        worker: u8,
    },
    /// An operator says, truthfully, what became of an unknown.
    Say {
        on: usize,
        verdict: Verdict,
        attempt: Option<u32>,
    },
    /// The verdict reaches the ledger; `again`: and will once more.
    HearSay {
        on: usize,
        again: bool,
    },
    /// The provider tells by itself what became of a request.
    Tell {
        on: usize,
        number: u32,
        said: Said,
    },
    Hold,
    Resume,
    Cancel,
    /// The cancellation reaches this operation.
    CancelOne {
        on: usize,
    },
    /// Consent is withdrawn at the source.
    OptOut {
        on: usize,
    },
    /// The customer is erased: the ledger is told.
    Forget {
        on: usize,
    },
    /// A dead letter is replayed.
    Replay {
        on: usize,
        refreeze: bool,
    },
    /// A cleanup that was given up is taken up again.
    CleanUpAgain {
        on: usize,
    },
    /// The configuration names another account.
    Switch,
    BackUp {
        on: usize,
    },
    Restore {
        on: usize,
    },
    /// Planted: the message leaves first, and the worker dies before the intent.
    SendAndDie {
        on: usize,
        work: usize,
    },
}

/// How the transaction of an intent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// It is committed and known to be; or its answer was lost and it was read back.
    Known,
    /// It is committed, its answer was lost, and it could not be read back.
    Lost,
    /// It is not committed: the worker died, or the ledger could not be reached.
    NotApplied,
}

impl Check {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            cover: Arc::default(),
            expected: None,
            restful: Mutex::default(),
            stuck: Mutex::default(),
        }
    }

    /// What an operation was found to be stuck in.
    pub(super) fn stuck(&self) -> Option<String> {
        self.stuck.lock().unwrap().clone()
    }

    /// Whether every operation that is open has a next step and comes to rest by itself.
    pub(super) fn has_next_steps(&self, world: &World) -> bool {
        world.customers.iter().all(|customer| {
            let key = hash_of(&(&customer.machine, world.now, world.run, world.account));
            if self.restful.lock().unwrap().contains(&key) {
                return true;
            }
            match fair::comes_to_rest(&self.config, world, customer) {
                Ok(()) => {
                    self.restful.lock().unwrap().insert(key);
                    true
                }
                Err(why) => {
                    self.stuck.lock().unwrap().get_or_insert(why);
                    false
                }
            }
        })
    }
}

impl Model for Check {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            run: super::world::Run::default(),
            account: 0,
            customers: vec![Customer::new(); self.config.customers],
            left: self.config.faults,
            broken: 0,
            beyond: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let stop = match self.expected {
            None => world.broken != 0,
            Some(rule) => world.has_broken(rule),
        };
        if stop {
            return;
        }
        if self.next_instant(world).is_some() {
            actions.push(Action::TimePasses);
        }
        for on in 0..world.customers.len() {
            self.engine(world, on, actions);
            self.executions(world, on, actions);
            self.provider(world, on, actions);
            self.people(world, on, actions);
        }
        operators(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        self.perform(world, action).map(World::canonical)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties()
    }

    fn within_boundary(&self, world: &World) -> bool {
        !world.beyond
    }
}

impl Check {
    /// An engine that may run anything at any time, as often as it likes, and that loses answers: so
    /// nothing that it knows or does not know matters.
    fn engine(&self, world: &World, on: usize, actions: &mut Vec<Action>) {
        let customer = &world.customers[on];
        let machine = &customer.machine;
        let due = machine.next(&self.config.rules, super::world::at(world.now));
        let full = customer.works.len() >= self.config.executions;
        let workers = self.workers(world, on);
        for &worker in &workers {
            let mut places: Vec<(u32, u32)> = Vec::new();
            if let Step::Deliver { generation, ordinal } = due
                && !full
                && machine.attempts < self.config.attempts
            {
                places.push((generation, ordinal));
            }
            places.extend(machine.doubts.iter().map(|doubt| (doubt.generation, doubt.ordinal)));
            places.push((1, 1));
            places.sort_unstable();
            places.dedup();
            for (generation, ordinal) in places {
                actions.push(Action::Deliver { on, generation, ordinal, worker });
            }
            if !full {
                for succeeds in [true, false] {
                    let bound = machine.state == State::Sent
                        || self.config.planted == Some(Planted::CleanupUnbound);
                    if bound && (succeeds || world.left.cleanup_failures > 0) {
                        actions.push(Action::CleanUp { on, succeeds, worker });
                    }
                }
            }
            if machine.state == State::Unknown {
                let asks = machine.look_up_is_due(super::world::at(world.now));
                if asks && !full {
                    let said = self.what_a_look_up_may_say(world, customer);
                    actions.extend(said.into_iter().map(|s| Action::Reconcile {
                        on,
                        said: Some(s),
                        worker,
                    }));
                } else if !asks {
                    actions.push(Action::Reconcile { on, said: None, worker });
                }
            }
            // Without a slot to fill it does not matter which worker does it.
            if full {
                break;
            }
        }
    }

    /// The workers on which an execution may start: any of them where they are shared, else a fresh
    /// one.
    fn workers(&self, world: &World, on: usize) -> Vec<u8> {
        if self.config.customers > 1 {
            return vec![0, 1];
        }
        let taken = |worker: &u8| world.customers[on].works.iter().any(|w| w.worker == *worker);
        vec![(0..=u8::MAX).find(|worker| !taken(worker)).unwrap_or_default()]
    }

    /// An accepted message is found, unless the index lags; where a miss counts, it does not lag
    /// past the lease's end and `settle`.
    fn what_a_look_up_may_say(&self, world: &World, customer: &Customer) -> Vec<Said> {
        let mut said = vec![Said::Unavailable];
        let there = |fate: Fate| {
            customer.tries.iter().filter(move |t| t.fate == fate && t.account == world.account)
        };
        let miss_counts = self.config.contract.lookup == Lookup::ByKey { miss_counts: true };
        let lags = |one: &Try| !miss_counts || world.now < one.settles_at;
        if there(Fate::Accepted).next().is_some() {
            said.push(Said::Accepted);
        } else if there(Fate::Withdrawn).next().is_some() {
            said.push(Said::Refused);
        }
        if there(Fate::Accepted).chain(there(Fate::Withdrawn)).all(lags) {
            said.push(Said::Miss);
        }
        said
    }

    fn executions(&self, world: &World, on: usize, actions: &mut Vec<Action>) {
        let customer = &world.customers[on];
        for (work, Work { phase, .. }) in customer.works.iter().enumerate() {
            match *phase {
                Phase::Ready { .. } => self.ready(world, on, work, actions),
                Phase::Begun(number) => {
                    let one = customer.try_of(number);
                    if world.now >= one.lease_ends {
                        actions.push(Action::LeaseOver { on, work });
                    }
                    if world.now < one.settles_at {
                        actions.push(Action::HandOver { on, work });
                    }
                }
                Phase::Listening(number) => {
                    let fate = customer.try_of(number).fate;
                    if !matches!(fate, Fate::Kept | Fate::Pending) {
                        actions.push(Action::Hear { on, work, again: false });
                        if world.left.repeats > 0 {
                            actions.push(Action::Hear { on, work, again: true });
                        }
                    }
                    actions.push(Action::Lose { on, work });
                }
                Phase::Recording(_) | Phase::Cleaned(_) => {
                    actions.push(Action::Record { on, work });
                }
            }
        }
    }

    fn ready(&self, world: &World, on: usize, work: usize, actions: &mut Vec<Action>) {
        let left = &world.left;
        if left.failures > 0 {
            actions.push(Action::Fail { on, work, class: FailureClass::Transport });
            actions.push(Action::Fail { on, work, class: FailureClass::Suppressed });
            actions.push(Action::Fail { on, work, class: FailureClass::Schema });
        }
        if left.misconfigurations > 0 {
            actions.push(Action::Fail { on, work, class: FailureClass::Configuration });
        }
        if world.customers[on].machine.attempts < self.config.attempts {
            actions.push(Action::Begin { on, work, commit: Commit::Known });
            if left.lost_commits > 0 {
                actions.push(Action::Begin { on, work, commit: Commit::Lost });
            }
        }
        actions.push(Action::Begin { on, work, commit: Commit::NotApplied });
        if self.config.planted == Some(Planted::SendBeforeIntent) && left.crashes > 0 {
            actions.push(Action::SendAndDie { on, work });
        }
    }

    fn provider(&self, world: &World, on: usize, actions: &mut Vec<Action>) {
        let customer = &world.customers[on];
        let contract = &self.config.contract;
        for one in &customer.tries {
            let number = one.number;
            if one.fate == Fate::Pending && world.now < one.settles_at {
                let remembered = self.remembers(customer, one, world.now);
                let accepts = if remembered { Fate::Repeated } else { Fate::Accepted };
                actions.push(Action::Decide { on, number, fate: accepts });
                if world.left.refusals > 0 && !remembered {
                    let fate = Fate::Refused(FailureClass::Rejected);
                    actions.push(Action::Decide { on, number, fate });
                }
                if world.left.throttles > 0 {
                    let fate = Fate::Refused(FailureClass::RateLimited);
                    actions.push(Action::Decide { on, number, fate });
                }
            }
            if one.fate == Fate::Accepted && world.left.withdrawals > 0 {
                actions.push(Action::GiveUp { on, number });
            }
            if contract.events && matches!(one.fate, Fate::Accepted | Fate::Withdrawn) {
                actions.push(Action::Tell { on, number, said: Said::Accepted });
            }
            if contract.events && one.fate == Fate::Withdrawn {
                actions.push(Action::Tell { on, number, said: Said::Refused });
            }
        }
    }

    /// Whether the provider remembers the key of this request: inside the window, which counts from
    /// the arrival of the request that it accepted.
    fn remembers(&self, customer: &Customer, one: &Try, now: i64) -> bool {
        customer.tries.iter().any(|earlier| {
            let same_key = self.config.planted != Some(Planted::KeyPerAttempt);
            matches!(earlier.fate, Fate::Accepted | Fate::Withdrawn)
                && earlier.account == one.account
                && earlier.batch == one.batch
                && same_key
                && now < earlier.remembered_until
        })
    }

    /// Whether an attempt may still become a message of its own.
    pub(super) fn may_be_accepted(&self, customer: &Customer, one: &Try, now: i64) -> bool {
        customer.may_arrive(one, now) && !self.remembers(customer, one, one.settles_at - 1)
    }

    fn people(&self, world: &World, on: usize, actions: &mut Vec<Action>) {
        let customer = &world.customers[on];
        let machine = &customer.machine;
        let left = &world.left;
        if customer.said.is_some() {
            actions.push(Action::HearSay { on, again: false });
            if left.repeats > 0 {
                actions.push(Action::HearSay { on, again: true });
            }
        } else if left.verdicts > 0 && machine.newest_handed_over > 0 {
            let mut attempts = vec![Some(machine.newest_handed_over)];
            if machine.doubts_ever == 1 && self.config.unnamed {
                attempts.push(None);
            }
            let truth =
                if customer.messages() > 0 { Verdict::Delivered } else { Verdict::NotDelivered };
            for attempt in attempts {
                for verdict in [truth, Verdict::Abandon] {
                    actions.push(Action::Say { on, verdict, attempt });
                }
            }
        }
        if left.opt_outs > 0 && customer.wanted {
            actions.push(Action::OptOut { on });
        }
        if !machine.unwanted && (left.opt_outs > 0 || !customer.wanted) {
            actions.push(Action::Forget { on });
        }
        if world.run.cancelled && matches!(machine.state, State::Selected | State::Retrying) {
            actions.push(Action::CancelOne { on });
        }
        if machine.state == State::Dead || self.config.planted == Some(Planted::ReplayUnbound) {
            if left.replays > 0 {
                actions.push(Action::Replay { on, refreeze: false });
            }
            if left.refreezes > 0 {
                actions.push(Action::Replay { on, refreeze: true });
            }
        }
        if machine.cleanup.given_up {
            actions.push(Action::CleanUpAgain { on });
        }
        if left.restores > 0 {
            match &customer.backup {
                None => actions.push(Action::BackUp { on }),
                Some(_) => actions.push(Action::Restore { on }),
            }
        }
    }

    /// The next instant at which anything could be decided otherwise than now.
    pub(super) fn next_instant(&self, world: &World) -> Option<i64> {
        let mut instants = Vec::new();
        let mut open = false;
        for customer in &world.customers {
            let machine = &customer.machine;
            let pending = customer.tries.iter().filter(|one| customer.may_arrive(one, world.now));
            instants.extend(pending.flat_map(|one| [one.lease_ends, one.settles_at]));
            if machine.state.is_terminal() {
                let dead = machine.state == State::Dead;
                let remembered = machine.remembered_until.filter(|_| dead).map(minute);
                instants.extend(remembered.filter(|_| world.left.refreezes > 0));
                continue;
            }
            open = true;
            instants.extend(fair::instants(&self.config.rules, machine));
            instants.extend(customer.tries.iter().map(|one| one.remembered_until));
        }
        if open {
            instants.push(self.config.useful_until);
        }
        instants
            .into_iter()
            .filter(|instant| *instant > world.now && *instant <= self.config.until)
            .min()
    }
}

/// What befalls the run, its workers and its configuration.
fn operators(world: &World, actions: &mut Vec<Action>) {
    let left = &world.left;
    if left.crashes > 0 {
        for worker in 0..2 {
            let works = || world.customers.iter().flat_map(|customer| &customer.works);
            // One that has begun nothing loses nothing that `NotApplied` would not.
            let loses = |work: &Work| !matches!(work.phase, Phase::Ready { .. });
            if works().any(|work| work.worker == worker && loses(work)) {
                actions.push(Action::Crash { worker });
            }
        }
    }
    if world.run.held {
        actions.push(Action::Resume);
    } else if left.holds > 0 {
        actions.push(Action::Hold);
    }
    if left.cancels > 0 && !world.run.cancelled {
        actions.push(Action::Cancel);
    }
    if left.switches > 0 {
        actions.push(Action::Switch);
    }
}
