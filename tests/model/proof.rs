//! What is checked, how large each space is, and that each planted fault is found.

use super::bounds::{
    Config, EVENTS, MISS_COUNTS, MISS_NEVER_COUNTS, Planted, REJECTS_DUPLICATE, RETURNS_ORIGINAL,
};
use super::check::{Action, Check};
use super::cover::Cover;
use super::rules::Rule;
use super::world::{Faults, World};
use digest_workflows::operation::{Contract, Lookup};
use stateright::{Checker, HasDiscoveries, Model, Path};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The cores of the smallest machine that this is meant for.
const THREADS: usize = 2;

/// Everything that a provider can promise at once.
const EVERYTHING: Contract =
    Contract { lookup: Lookup::ByKey { miss_counts: true }, events: true, ..RETURNS_ORIGINAL };

/// Events, and look-ups whose misses never count.
const TELLS: Contract = Contract { lookup: Lookup::ByKey { miss_counts: false }, ..EVENTS };

#[test]
fn the_rules_hold_within_small_bounds() {
    let seen = hold(small());
    let unseen: Vec<String> = Cover::everything().difference(&seen).cloned().collect();
    assert!(unseen.is_empty(), "nothing is said of what never happens: {unseen:?}");
}

#[test]
#[ignore = "part of the proof: tests/prove"]
fn the_rules_hold_within_large_bounds() {
    hold(large());
}

#[test]
fn every_planted_fault_is_found() {
    for (planted, rule, config) in controls() {
        let config = config.with(|c| c.planted = Some(planted));
        let found = counterexample(config, rule);
        let (path, states) = found.unwrap_or_else(|| panic!("{planted:?} breaks no rule"));
        println!(
            "red as it must be: {planted:?} breaks \"{}\" in {} steps, after {states} states",
            rule.name(),
            path.len()
        );
    }
}

/// What is not promised is not promised for a reason: somebody says truthfully, while an attempt is
/// still in flight, that nothing was accepted; then it is, and its answer is lost. No evidence tells
/// so, and what was said is acted on.
#[test]
fn a_verdict_that_is_overtaken_without_evidence_is_beyond_the_promise() {
    let config = people("overtaken", Contract::NONE).with(|c| {
        c.attempts = 2;
        c.verdicts_may_be_overtaken = false;
    });
    let (path, _) = counterexample(config, Rule::AcceptedOnce).expect("the exemption is needed");
    let said = path.iter().position(|action| matches!(action, Action::Say { .. }));
    let decided = path.iter().position(|action| matches!(action, Action::Decide { .. }));
    assert!(said < decided, "said before the provider had accepted: {path:?}");
}

/// Faults of parts: workers, ledger, provider.
fn parts(name: &'static str, contract: Contract) -> Config {
    Config::new(name, contract).with(|c| {
        c.attempts = 2;
        c.faults = Faults {
            crashes: 2,
            lost_commits: 1,
            repeats: 1,
            refusals: 1,
            throttles: 1,
            ..Faults::default()
        };
    })
}

/// What operators do, with a worker that crashes.
fn people(name: &'static str, contract: Contract) -> Config {
    Config::new(name, contract).with(|c| {
        c.attempts = 2;
        c.unnamed = true;
        c.faults = Faults { crashes: 1, verdicts: 1, repeats: 1, ..Faults::default() };
    })
}

/// Every fault, every kind of evidence and every arrow, each beside few others.
fn small() -> Vec<Config> {
    let faults = |crashes| Faults { crashes, ..Faults::default() };
    vec![
        parts("no promise: parts", Contract::NONE),
        people("no promise: people", Contract::NONE).with(|c| c.faults.crashes = 0),
        parts("returns the original", RETURNS_ORIGINAL).with(|c| {
            c.attempts = 3;
            c.until = 10;
            c.faults = Faults { throttles: 1, ..faults(0) };
        }),
        parts("in batches", RETURNS_ORIGINAL).with(|c| {
            c.batched = true;
            c.until = 5;
            c.faults = Faults { throttles: 1, ..faults(0) };
        }),
        parts("rejects the duplicate", REJECTS_DUPLICATE).with(|c| {
            c.until = 6;
            c.faults = Faults { verdicts: 1, ..faults(0) };
        }),
        parts("a miss counts: parts", MISS_COUNTS).with(|c| {
            c.until = 7;
            c.faults = faults(1);
        }),
        people("a miss counts: people", MISS_COUNTS).with(|c| {
            c.attempts = 1;
            c.until = 7;
            c.faults = Faults { verdicts: 1, ..faults(1) };
        }),
        parts("a miss never counts", MISS_NEVER_COUNTS).with(|c| {
            c.attempts = 1;
            c.until = 7;
            c.faults = Faults { verdicts: 1, ..faults(1) };
        }),
        parts("events: parts", EVENTS)
            .with(|c| c.faults = Faults { withdrawals: 1, replays: 1, ..faults(1) }),
        people("events: people", EVENTS).with(|c| {
            c.attempts = 1;
            c.faults = Faults { verdicts: 2, withdrawals: 1, ..faults(1) };
        }),
        parts("events and look-ups", TELLS).with(|c| {
            c.attempts = 1;
            c.until = 7;
            c.faults = Faults { withdrawals: 1, ..faults(1) };
        }),
        parts("every promise", EVERYTHING).with(|c| {
            c.until = 4;
            c.faults = faults(0);
        }),
        parts("held", Contract::NONE).with(|c| {
            c.until = 6;
            c.faults = Faults { holds: 1, misconfigurations: 1, failures: 1, ..faults(1) };
        }),
        parts("cancelled", RETURNS_ORIGINAL).with(|c| {
            c.until = 6;
            c.faults = Faults { cancels: 1, throttles: 1, ..faults(0) };
        }),
        parts("unwanted, and too late", RETURNS_ORIGINAL).with(|c| {
            c.useful_until = 4;
            c.until = 6;
            c.faults = Faults { opt_outs: 1, ..faults(0) };
        }),
        parts("cleanups", Contract::NONE).with(|c| {
            c.attempts = 1;
            c.faults = Faults { cleanup_failures: 3, ..faults(2) };
        }),
        parts("dead letters", RETURNS_ORIGINAL).with(|c| {
            c.until = 12;
            c.faults = Faults { refusals: 1, replays: 1, refreezes: 1, ..faults(0) };
        }),
        parts("another account", RETURNS_ORIGINAL).with(|c| {
            c.until = 4;
            c.faults = Faults { switches: 1, ..faults(0) };
        }),
        parts("restored", Contract::NONE).with(|c| {
            c.executions = 1;
            c.until = 9;
            c.faults = Faults { restores: 1, refusals: 1, throttles: 1, replays: 1, ..faults(0) };
        }),
        parts("two operations", Contract::NONE).with(|c| {
            c.customers = 2;
            c.executions = 1;
            c.attempts = 1;
            c.until = 2;
            c.faults = Faults { holds: 1, cancels: 1, ..faults(1) };
        }),
    ]
}

/// The same with more of each, and with what interacts at once.
fn large() -> Vec<Config> {
    let faults = |crashes| Faults { crashes, ..Faults::default() };
    vec![
        parts("no promise: parts", Contract::NONE).with(|c| {
            c.attempts = 3;
            c.faults.failures = 1;
        }),
        people("no promise: people", Contract::NONE).with(|c| {
            c.until = 7;
            c.faults = Faults { verdicts: 2, refusals: 1, replays: 1, ..faults(1) };
        }),
        parts("returns the original: parts", RETURNS_ORIGINAL).with(|c| {
            c.attempts = 3;
            c.until = 11;
            c.faults = Faults { throttles: 1, ..faults(2) };
        }),
        people("returns the original: people", RETURNS_ORIGINAL).with(|c| c.until = 5),
        parts("rejects the duplicate", REJECTS_DUPLICATE).with(|c| {
            c.until = 11;
            c.faults = Faults { lost_commits: 1, ..faults(2) };
        }),
        parts("a miss counts", MISS_COUNTS).with(|c| {
            c.until = 8;
            c.faults = Faults { withdrawals: 1, ..faults(1) };
        }),
        people("a miss counts: people", MISS_COUNTS).with(|c| {
            c.attempts = 1;
            c.until = 9;
        }),
        people("a miss never counts", MISS_NEVER_COUNTS).with(|c| {
            c.attempts = 1;
            c.until = 9;
        }),
        parts("events", EVENTS).with(|c| {
            c.until = 7;
            c.faults = Faults { withdrawals: 1, replays: 1, verdicts: 1, ..faults(1) };
        }),
        parts("events and look-ups", TELLS).with(|c| {
            c.until = 4;
            c.faults = Faults { withdrawals: 1, replays: 1, ..faults(1) };
        }),
        parts("in batches", RETURNS_ORIGINAL).with(|c| {
            c.batched = true;
            c.until = 6;
            c.faults = Faults { throttles: 1, verdicts: 1, ..faults(1) };
        }),
        parts("every promise", EVERYTHING).with(|c| {
            c.until = 5;
            c.faults = faults(1);
        }),
        parts("held, cancelled, unwanted, too late", Contract::NONE).with(|c| {
            c.useful_until = 4;
            c.until = 6;
            c.faults = Faults { holds: 1, cancels: 1, opt_outs: 1, ..faults(1) };
        }),
        parts("dead letters", RETURNS_ORIGINAL).with(|c| {
            c.until = 12;
            c.faults = Faults { refusals: 1, replays: 1, refreezes: 1, ..faults(1) };
        }),
        parts("another account", RETURNS_ORIGINAL).with(|c| {
            c.until = 6;
            c.faults = Faults { switches: 1, ..faults(1) };
        }),
        parts("restored", RETURNS_ORIGINAL).with(|c| {
            c.executions = 1;
            c.until = 9;
            c.faults = Faults { restores: 1, throttles: 1, ..faults(1) };
        }),
        parts("two operations", Contract::NONE).with(|c| {
            c.customers = 2;
            c.attempts = 1;
            c.until = 3;
            c.faults = Faults { holds: 1, cancels: 1, ..faults(2) };
        }),
        parts("two operations that may be replayed", RETURNS_ORIGINAL).with(|c| {
            c.customers = 2;
            c.until = 1;
            c.faults = faults(2);
        }),
    ]
}

/// Each planted fault, the rule that it must break, and where.
fn controls() -> Vec<(Planted, Rule, Config)> {
    let crash = |c: &mut Config| c.faults = Faults { crashes: 2, ..Faults::default() };
    let with = |contract| Config::new("control", contract).with(crash);
    let none = || with(Contract::NONE);
    let dead = || none().with(|c| c.faults.verdicts = 1).with(|c| c.faults.replays = 1);
    let held = || none().with(|c| c.faults.holds = 1);
    let original = || with(RETURNS_ORIGINAL);
    vec![
        (Planted::SendBeforeIntent, Rule::AcceptedOnce, none()),
        (Planted::AcceptedBeforeAnswer, Rule::SentWasAccepted, none()),
        (Planted::NotSentBeforeAnswer, Rule::AcceptedOnce, none()),
        (Planted::BlindRetry, Rule::AcceptedOnce, none()),
        (Planted::NoLease, Rule::AcceptedOnce, with(MISS_COUNTS)),
        (Planted::NoLease, Rule::AcceptedOnce, original()),
        (Planted::NoToken, Rule::IntentFirst, none()),
        (
            Planted::RefusalForAll,
            Rule::AcceptedOnce,
            original().with(|c| {
                c.faults.throttles = 1;
                c.faults.crashes = 1;
            }),
        ),
        (Planted::KeyPerAttempt, Rule::AcceptedOnce, original()),
        (Planted::AnyBatch, Rule::AcceptedOnce, original().with(|c| c.batched = true)),
        (Planted::Forgets, Rule::AcceptedOnce, original()),
        (Planted::CleanupUnbound, Rule::CleanupAfterSent, none()),
        (Planted::ReplayUnbound, Rule::AcceptedOnce, dead()),
        (Planted::HoldReadBefore, Rule::NothingBeginsForbidden, held()),
        (Planted::DeafToTime, Rule::NextStep, none()),
    ]
}

/// Checks each configuration exhaustively and prints what it took; what was seen in any of them.
fn hold(configs: Vec<Config>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    let (mut unique, mut generated) = (0, 0);
    let start = Instant::now();
    for config in configs {
        let check = Check::new(config.clone());
        let (cover, properties) = (Arc::clone(&check.cover), check.properties().len());
        let began = Instant::now();
        let checker = check.checker().threads(THREADS).spawn_bfs().join();
        println!(
            "{}: {}: {} unique states of {} generated, depth {}, {properties} properties, {:.1} s",
            config.name,
            config.bounds(),
            checker.unique_state_count(),
            checker.state_count(),
            checker.max_depth(),
            began.elapsed().as_secs_f64(),
        );
        unique += checker.unique_state_count();
        generated += checker.state_count();
        seen.extend(cover.names());
        for (rule, path) in checker.discoveries() {
            broken.push(format!("{}: not so: {rule}\n{}", config.name, story(path)));
        }
        broken.extend(checker.model().stuck());
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    println!(
        "0 violations in {unique} unique states of {generated} generated, {:.0} s: every state \
         within the bounds, so the bound on what was missed there is none",
        start.elapsed().as_secs_f64()
    );
    seen
}

/// The shortest way to break `rule`, and how many states were looked at.
fn counterexample(config: Config, rule: Rule) -> Option<(Vec<Action>, usize)> {
    let mut check = Check::new(config);
    check.expected = Some(rule);
    let finish = HasDiscoveries::AnyOf(BTreeSet::from([rule.name()]));
    let checker = check.checker().threads(THREADS).finish_when(finish).spawn_bfs().join();
    let states = checker.unique_state_count();
    let path = checker.discoveries().remove(rule.name())?;
    Some((path.into_actions(), states))
}

/// What happened, a line each.
fn story(path: Path<World, Action>) -> String {
    let mut lines = String::new();
    for (world, action) in path.into_vec() {
        let states: Vec<String> =
            world.customers.iter().map(|customer| customer.machine.state.to_string()).collect();
        let then = action.map_or_else(String::new, |action| format!("{action:?}"));
        lines.push_str(&format!("  minute {:>2} {}: {then}\n", world.now, states.join(", ")));
    }
    lines
}
