//! What happens to whom, and when: drawn from a seed before anything begins, so that the same seed is
//! the same storm.

use digest_tests::proxy::Fault;
use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// How many workers there are.
pub(super) const WORKERS: usize = 3;
/// No worker is suspended for longer; the settling time is above it.
pub(super) const SUSPENDED_MAX: Duration = Duration::from_secs(8);

/// A part of a deployment to which something can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// One of the workers' processes.
    Worker(usize),
    /// A worker's wall clock.
    Clock(usize),
    /// The server of the ledger and the shop.
    Database,
    /// The engine's server.
    Engine,
    /// The provider.
    Provider,
    /// What is between everybody and a server.
    Wire(Wire),
    /// Somebody who holds the run of a week for a moment.
    Operator,
}

/// A connection that everybody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wire {
    Ledger,
    Engine,
    Provider,
}

/// What happens to a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Blow {
    /// SIGKILL.
    Kill,
    /// Started anew, to die at the n-th passage of a crash point.
    DieAt(&'static str, u32),
    /// SIGSTOP.
    Suspend,
    /// SIGCONT.
    GoOn,
    /// A clock is wrong by this from now on.
    SetClock(SignedDuration),
    /// A server is ended by SIGKILL, all of it.
    Down,
    /// The database is ended as `pg_ctl -m immediate` does.
    StopAtOnce,
    /// A server is started on what it has kept.
    Up,
    /// A connection fails like this, or is whole again.
    Plant(Fault),
    /// The run of the week with this number is held.
    Hold(usize),
}

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// When, from the beginning of the storm.
    pub(super) at: Duration,
    pub(super) part: Part,
    pub(super) blow: Blow,
}

/// Which parts suffer, each after calm times of these lengths.
#[derive(Clone, Debug)]
pub(super) struct Weather {
    pub(super) length: Duration,
    pub(super) parts: Vec<(Part, Range<f64>)>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(_) => f.write_str("worker"),
            Self::Clock(_) => f.write_str("a worker's clock"),
            Self::Database => f.write_str("database"),
            Self::Engine => f.write_str("engine"),
            Self::Provider => f.write_str("provider"),
            Self::Wire(Wire::Ledger) => f.write_str("connection to the ledger"),
            Self::Wire(Wire::Engine) => f.write_str("connection to the engine"),
            Self::Wire(Wire::Provider) => f.write_str("connection to the provider"),
            Self::Operator => f.write_str("operator"),
        }
    }
}

impl Blow {
    /// Its class, for counting.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Kill | Self::Down => "killed",
            Self::DieAt(point, _) => point,
            Self::Suspend => "suspended",
            Self::GoOn | Self::Up | Self::Plant(Fault::None) => "whole again",
            Self::SetClock(_) => "set wrong",
            Self::StopAtOnce => "stopped at once",
            Self::Plant(Fault::LoseCommitAnswer) => "loses the answer to a commit",
            Self::Plant(Fault::LoseCommit) => "loses a commit",
            Self::Plant(Fault::LoseAnswer) => "loses the answer to a message",
            Self::Plant(Fault::Stall) => "stalls",
            Self::Plant(Fault::Delay(_)) => "is slow",
            Self::Plant(Fault::CutAfter(_)) => "cuts after some bytes",
            Self::Plant(Fault::Cut) => "is cut",
            Self::Hold(_) => "holds a run",
        }
    }
}

impl Weather {
    /// Everything at once.
    pub(super) fn storm(length: Duration) -> Self {
        let mut parts = vec![
            (Part::Database, 7.0..14.0),
            (Part::Engine, 10.0..18.0),
            (Part::Provider, 5.0..10.0),
            (Part::Wire(Wire::Ledger), 3.0..6.0),
            (Part::Wire(Wire::Engine), 6.0..10.0),
            (Part::Wire(Wire::Provider), 2.0..4.0),
            (Part::Operator, 8.0..12.0),
        ];
        for worker in 0..WORKERS {
            parts.push((Part::Worker(worker), 4.0..9.0));
            parts.push((Part::Clock(worker), 4.0..10.0));
        }
        Self { length, parts }
    }

    /// Everything that happens, in order.
    pub(super) fn draw(&self, seed: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for (number, (part, calm)) in (0_u64..).zip(&self.parts) {
            let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(number));
            let mut deck = Vec::new();
            let mut at = Duration::ZERO;
            loop {
                at += Duration::from_secs_f64(random.random_range(calm.clone()));
                if at >= self.length {
                    break;
                }
                if deck.is_empty() {
                    // Every kind before any comes again.
                    deck = kinds(*part, &mut random);
                    deck.shuffle(&mut random);
                }
                let Some((blow, lasts, end)) = deck.pop() else { break };
                events.push(Event { at, part: *part, blow });
                at += lasts;
                if let Some(end) = end {
                    events.push(Event { at, part: *part, blow: end });
                }
            }
        }
        events.sort_by_key(|event| event.at);
        events
    }
}

/// Something that begins, how long it lasts, and what ends it.
type Kind = (Blow, Duration, Option<Blow>);

/// Every kind of thing that can happen to a part, with details drawn anew.
fn kinds(part: Part, random: &mut StdRng) -> Vec<Kind> {
    let mut lasting = |from: f64, to: f64| Duration::from_secs_f64(random.random_range(from..to));
    let at_once = |blow| (blow, Duration::ZERO, None);
    let fails = |fault, lasts| (Blow::Plant(fault), lasts, Some(Blow::Plant(Fault::None)));
    let ended = |blow, lasts| (blow, lasts, Some(Blow::Up));
    match part {
        Part::Worker(_) => {
            let mut kinds = vec![
                at_once(Blow::Kill),
                (Blow::Suspend, lasting(2.0, SUSPENDED_MAX.as_secs_f64()), Some(Blow::GoOn)),
            ];
            let mut points = POINTS.to_vec();
            points.shuffle(random);
            for point in points.into_iter().take(5) {
                kinds.push(at_once(Blow::DieAt(point, random.random_range(1..=4))));
            }
            kinds
        }
        Part::Clock(_) => {
            let wrong = [7 * 24 * 60, -60, -7 * 24 * 60, 10, -10].map(SignedDuration::from_mins);
            wrong.into_iter().map(|ahead| at_once(Blow::SetClock(ahead))).collect()
        }
        Part::Database => vec![
            ended(Blow::StopAtOnce, lasting(0.0, 2.0)),
            ended(Blow::StopAtOnce, lasting(0.0, 2.0)),
            ended(Blow::Down, lasting(0.0, 2.0)),
        ],
        Part::Engine | Part::Provider => vec![ended(Blow::Down, lasting(0.0, 2.0))],
        Part::Wire(wire) => {
            let mut kinds = vec![
                fails(Fault::Delay(lasting(0.05, 0.4)), lasting(1.0, 3.0)),
                fails(Fault::Cut, lasting(0.2, 2.0)),
                fails(Fault::Stall, lasting(0.5, 2.0)),
                fails(Fault::CutAfter(0), lasting(0.5, 1.5)),
            ];
            let cut = Fault::CutAfter(random.random_range(1..4_000));
            kinds[3].0 = Blow::Plant(cut);
            let once: &[Fault] = match wire {
                Wire::Ledger => &[Fault::LoseCommit, Fault::LoseCommitAnswer],
                Wire::Provider => &[Fault::LoseAnswer, Fault::LoseAnswer],
                Wire::Engine => &[],
            };
            kinds.extend(once.iter().map(|fault| fails(*fault, Duration::from_secs(2))));
            kinds
        }
        Part::Operator => (0..3).map(|week| at_once(Blow::Hold(week))).collect(),
    }
}

/// The crash points that a worker passes in a run.
pub(super) const POINTS: [&str; 16] = [
    "run-unrecorded",
    "run-recorded",
    "selection-frozen",
    "task-open",
    "page-enqueued",
    "before-intent",
    "intent-uncommitted",
    "intent-recorded",
    "half-written",
    "answer-waiting",
    "accepted",
    "outcome-uncommitted",
    "outcome-recorded",
    "unknown-recorded",
    "looked-up",
    "cleanup-done",
];

#[test]
fn a_seed_is_a_storm() {
    let draw = |seed| {
        let storm = Weather::storm(Duration::from_mins(1)).draw(seed);
        storm.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    for point in POINTS {
        assert!(digest_activities::crash::POINTS.contains(&point), "{point}");
    }
}
