//! A worker, a command or a database dies at every named point, on both ledgers and under every
//! contract; afterwards the records of provider, ledger, engine and shop are compared.
//!
//! The points are those of `digest_activities::crash`, and two deaths of the ledger's database while
//! a commit is under way. Which passage of a point is the fatal one is drawn from a seed. A run that
//! fails prints the line that repeats it. These variables choose among the runs of the matrix:
//!
//! - `DIGESTD_TEST_POINT`: a point's name, or the beginning of it;
//! - `DIGESTD_TEST_LEDGER`: `sqlite` or `postgres`;
//! - `DIGESTD_TEST_PROVIDER`: `smtp`, `none`, `look-up` or `replay`;
//! - `DIGESTD_TEST_SEED`: the seed of every run, instead of one drawn for each;
//! - `DIGESTD_TEST_LANES`: how many runs go on at once, 8 by default.

mod instants;
mod lanes;
mod point;
mod provider;
mod run;

use lanes::{chosen, judged};
use point::{LedgerKind, POINTS};
pub(super) use provider::Kind;
use run::{Run, Suite};

#[test]
fn every_named_point_is_in_the_matrix() {
    let ours: Vec<&str> = POINTS.iter().map(|point| point.name).collect();
    for name in digest_activities::crash::POINTS {
        assert!(ours.contains(&name), "{name} is never armed");
    }
}

/// The matrix: each point on each ledger with each provider that reaches it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn nobody_gets_two_messages_or_none_wherever_something_dies() {
    let mut runs = Vec::new();
    for point in POINTS {
        for ledger in point.ledgers {
            for provider in point.providers {
                runs.push(Run::new(Suite::Matrix, point, *ledger, *provider));
            }
        }
    }
    judged(chosen(runs)).await.tell();
}

/// Each point once, on SQLite, with a provider that reaches it: which one changes from point to
/// point.
#[tokio::test(flavor = "multi_thread")]
async fn each_point_once() {
    let points = POINTS.iter().filter(|point| point.ledgers.contains(&LedgerKind::Sqlite));
    let runs = points.enumerate().map(|(index, point)| {
        let provider: Kind = point.providers[index % point.providers.len()];
        Run::new(Suite::Once, point, LedgerKind::Sqlite, provider)
    });
    judged(runs.collect()).await;
}
