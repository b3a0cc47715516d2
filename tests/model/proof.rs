use super::bounds::*;
use super::check::Check;
use super::cover::Cover;
use super::world::Faults;
use digest_workflows::operation::*;
use stateright::{Checker, Model};
use std::time::{Duration, Instant};

fn run(config: Config) -> std::collections::BTreeSet<String> {
    let start = Instant::now();
    let check = Check::new(config.clone());
    let cover = check.cover.clone();
    let checker = check.checker().threads(2).timeout(Duration::from_secs(20)).spawn_bfs().join();
    println!(
        "{} [{}]: {} unique, {} generated, depth {}, {:.1} s done={}",
        config.name, config.bounds(),
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64(),
        checker.is_done(),
    );
    for (name, path) in checker.discoveries() {
        println!("BROKEN {name}");
        for (state, action) in path.into_vec() {
            println!("  {:?} now {} -> {:?}", state.customers[0].machine.state, state.now, action);
        }
    }
    cover.names()
}

#[test]
fn none() {
    let mut seen = std::collections::BTreeSet::new();
    for (crashes, executions, verdicts, throttles, attempts) in [(0,1,0,0,2),(1,1,0,0,2), (1,2,0,0,2), (1,2,0,1,2), (1,2,1,0,2),(2,2,0,0,2),(1,2,1,1,3)] {
    seen.extend(run(Config::new("none", Contract::NONE).with(|c| { c.executions = executions; c.attempts = attempts; c.faults = Faults { crashes, verdicts, throttles, ..Faults::default() }})));
    }
    println!("unseen {:?}", Cover::everything().difference(&seen).collect::<Vec<_>>());
}
