//! What is checked: a provider's contract, how many of everything, and which faults.
//!
//! Time is counted in minutes and every rule is short, so that each deadline falls on each side of
//! every other within a few steps. Jitter is 0.

use super::world::Faults;
use digest_workflows::operation::{
    Breakers, Contract, FailureClass, Lookup, Replay, RetryPolicy, Rules, Timeouts, UnknownRules,
};
use jiff::SignedDuration;
use std::collections::BTreeMap;

/// How long an attempt may hand over, in minutes.
pub(super) const LEASE: i64 = 2;
/// How long after the lease a stopped process may still write, in minutes.
pub(super) const SETTLE: i64 = 1;
/// How long a provider that replays remembers a key, in minutes.
pub(super) const WINDOW: i64 = 7;
/// How much earlier replays end by the contract; what one of them may take ends them sooner.
pub(super) const MARGIN: i64 = 1;

/// One exhaustive check.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) contract: Contract,
    /// How many operations share the run, its hold and its workers.
    pub(super) customers: usize,
    /// How many executions may be under way at once for each operation.
    pub(super) executions: usize,
    /// No attempt beyond this one begins, over all generations.
    pub(super) attempts: u32,
    pub(super) faults: Faults,
    /// Past this minute no attempt begins.
    pub(super) useful_until: i64,
    /// The last minute.
    pub(super) until: i64,
    pub(super) rules: Rules,
    /// Whether messages go in batches.
    pub(super) batched: bool,
    /// A fault that is planted around the machine, so that the check must fail.
    pub(super) planted: Option<Planted>,
    /// Whether an operator may leave out which attempt a verdict is about.
    pub(super) unnamed: bool,
    /// Whether a verdict that was overtaken without evidence is outside of what is promised.
    pub(super) verdicts_may_be_overtaken: bool,
}

/// A fault around the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// The message leaves before its intent is committed.
    SendBeforeIntent,
    /// An attempt is recorded as accepted when it is handed over.
    AcceptedBeforeAnswer,
    /// An attempt is recorded as not sent when it is handed over.
    NotSentBeforeAnswer,
    /// An attempt without an answer counts as failed.
    BlindRetry,
    /// "Not delivered" is acted on at once.
    NoLease,
    /// Somebody else's intent counts as one's own.
    NoToken,
    /// A refusal of one attempt counts for every attempt in doubt.
    RefusalForAll,
    /// The provider's key names the attempt.
    KeyPerAttempt,
    /// A member in doubt may go again in any batch, or alone.
    AnyBatch,
    /// The provider forgets the key sooner than its contract says.
    Forgets,
    /// The cleanup does not ask whether the message was sent.
    CleanupUnbound,
    /// A dead letter is replayed whatever became of its attempts.
    ReplayUnbound,
    /// The hold is read before the transaction, not in it.
    HoldReadBefore,
    /// An event that the ledger answers never changes anything.
    DeafToTime,
}

impl Config {
    /// One operation at a provider with `contract`, two executions at once, and the faults that
    /// belong to every contract.
    pub(super) fn new(name: &'static str, contract: Contract) -> Self {
        let faults = Faults { crashes: 2, ..Faults::default() };
        Self {
            name,
            contract,
            customers: 1,
            executions: 2,
            attempts: 3,
            faults,
            useful_until: 30,
            until: 40,
            rules: rules(),
            batched: false,
            planted: None,
            unnamed: false,
            verdicts_may_be_overtaken: true,
        }
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The bounds in one line.
    pub(super) fn bounds(&self) -> String {
        let f = &self.faults;
        let counts = [
            ("crashes", f.crashes),
            ("lost commits", f.lost_commits),
            ("repeats", f.repeats),
            ("refusals", f.refusals),
            ("throttles", f.throttles),
            ("failures", f.failures),
            ("misconfigurations", f.misconfigurations),
            ("withdrawals", f.withdrawals),
            ("verdicts", f.verdicts),
            ("holds", f.holds),
            ("cancels", f.cancels),
            ("opt-outs", f.opt_outs),
            ("replays", f.replays),
            ("refreezes", f.refreezes),
            ("cleanup failures", f.cleanup_failures),
            ("switches", f.switches),
            ("restores", f.restores),
        ];
        let faults = counts.into_iter().filter(|(_, count)| *count > 0);
        let faults: Vec<String> = faults.map(|(what, count)| format!("{count} {what}")).collect();
        format!(
            "{} operations, {} executions at once, {} attempts, {} minutes; {}",
            self.customers,
            self.executions,
            self.attempts,
            self.until,
            faults.join(", ")
        )
    }
}

/// The same answers the original within a window.
pub(super) const RETURNS_ORIGINAL: Contract = Contract {
    replay: Replay::ReturnsOriginal { window: mins(WINDOW), margin: mins(MARGIN) },
    ..Contract::NONE
};

/// The same is refused as a duplicate within a window.
pub(super) const REJECTS_DUPLICATE: Contract = Contract {
    replay: Replay::RejectsDuplicate { window: mins(WINDOW), margin: mins(MARGIN) },
    ..Contract::NONE
};

/// A miss counts, once nothing can arrive any more.
pub(super) const MISS_COUNTS: Contract =
    Contract { lookup: Lookup::ByKey { miss_counts: true }, ..Contract::NONE };

/// A miss never counts.
pub(super) const MISS_NEVER_COUNTS: Contract =
    Contract { lookup: Lookup::ByKey { miss_counts: false }, ..Contract::NONE };

/// The provider tells by itself.
pub(super) const EVENTS: Contract = Contract { events: true, ..Contract::NONE };

const fn mins(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

fn rules() -> Rules {
    let policy = RetryPolicy {
        base: mins(1),
        cap: mins(4),
        multiplier: 2.0,
        jitter: 0.0,
        max_attempts: 2,
        max_age: mins(60),
    };
    let retry: BTreeMap<FailureClass, RetryPolicy> =
        Rules::RETRIED.map(|class| (class, policy)).into();
    Rules {
        retry,
        cleanup: policy,
        unknown: UnknownRules {
            lookup_every: mins(1),
            escalate_after: mins(4),
            keep_rows_for: mins(12),
        },
        timeouts: Timeouts { timeout: mins(1), lease: mins(LEASE), settle: mins(SETTLE) },
        breakers: Breakers { identical_schema_failures: 100, unknowns_in_a_row: 100 },
    }
}
