//! Carrying out many runs, some at once since most of the time is waiting, and telling what came of
//! them.

use super::run::Run;
use futures::{FutureExt as _, StreamExt as _, stream};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// The runs that the variables choose.
pub(super) fn chosen(mut runs: Vec<Run>) -> Vec<Run> {
    let wanted = |variable: &str, name: &str, exact: bool| {
        std::env::var(variable)
            .map_or(true, |text| if exact { name == text } else { name.starts_with(&text) })
    };
    runs.retain(|run| {
        wanted("DIGESTD_TEST_POINT", run.point.name, false)
            && wanted("DIGESTD_TEST_LEDGER", run.ledger.name(), true)
            && wanted("DIGESTD_TEST_PROVIDER", run.provider.name(), true)
    });
    assert!(!runs.is_empty(), "the variables DIGESTD_TEST_… choose no run");
    runs
}

/// How long runs took from the restart until they were settled.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn add(&mut self, settled_in: Duration) {
        self.0.push(settled_in);
    }

    /// Tells them; how long it takes says more about the machine than about digestd.
    pub(super) fn tell(mut self) {
        self.0.sort_unstable();
        let Some(slowest) = self.0.last() else { return };
        let common = self.0[(self.0.len() - 1) * 19 / 20];
        println!("{} runs settled in {common:.1?} (19 in 20), {slowest:.1?} (all)", self.0.len());
    }
}

/// Carries them out, prints a line for each, and fails if any was not as it must be.
pub(super) async fn judged(runs: Vec<Run>) -> Times {
    let mut times = Times::default();
    let begun = Instant::now();
    let outcomes = runs.into_iter().map(|run| async move {
        // A failed assertion ends its own run only.
        let outcome = AssertUnwindSafe(run.carry_out()).catch_unwind().await;
        (run, outcome)
    });
    let mut outcomes = stream::iter(outcomes).buffer_unordered(lanes());
    let (mut done, mut failed) = (0_u32, Vec::new());
    while let Some((run, outcome)) = outcomes.next().await {
        let (ledger, provider) = (run.ledger.name(), run.provider.name());
        let what = format!("{} {ledger} {provider} seed {}", run.armed(), run.seed);
        match outcome {
            Ok(Some(report)) => {
                done += 1;
                times.add(report.settled_in);
                let settled = report.settled_in.as_secs_f64();
                println!("{what}: settled in {settled:.1} s, {} unknown", report.unknown);
            }
            // A part is absent, which was said.
            Ok(None) => {}
            Err(_) => {
                println!("{what}: FAILED");
                failed.push(format!(
                    "DIGESTD_TEST_POINT={} DIGESTD_TEST_LEDGER={ledger} \
                     DIGESTD_TEST_PROVIDER={provider} DIGESTD_TEST_SEED={} cargo test -p digestd \
                     --test end_to_end nobody_gets_two_messages -- --ignored --nocapture",
                    run.point.name, run.seed
                ));
            }
        }
    }
    told(done, failed.len(), begun);
    assert!(failed.is_empty(), "to repeat what failed:\n{}", failed.join("\n"));
    times
}

/// A claim of zero, with the number of runs it stands on.
pub(super) fn told(done: u32, failed: usize, begun: Instant) {
    let bound = 300.0 / f64::from(done.max(1));
    let seconds = begun.elapsed().as_secs();
    println!(
        "{done} runs, {failed} violations (95 % bound 3/n = {bound:.1} %), {seconds} s in all"
    );
}

/// How many runs go on at once.
pub(super) fn lanes() -> usize {
    std::env::var("DIGESTD_TEST_LANES").map_or(8, |lanes| lanes.parse().unwrap())
}
