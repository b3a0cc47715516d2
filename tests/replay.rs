//! Replays every recorded history against today's workflow code. What the engine holds of operations
//! that wait was written by earlier code, so a change that does not replay would wedge them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail by a panic"
)]

mod replay {
    mod changed;
    mod damage;
}

use digest_tests::histories;
use digest_workflows::operation::Rules;
use digestd::workflows;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use temporalio_common::protos::temporal::api::history::v1::History;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};

const HOW_TO_GO_ON: &str = "\
    If a release has recorded it, guard the change in the workflow with `ctx.patched`: the old path for\n\
    old histories, the new one for new. Then keep the old file under a name with the release's version\n\
    (`customer-happy-0.1.0.binpb`). Record what is new with\n\
    DIGESTD_RECORD_HISTORIES=1 cargo test -p digestd --test end_to_end histories -- --include-ignored";

/// What diverges in each history, by its name; nothing where all is well.
async fn divergences(
    options: WorkflowReplayerOptions,
    histories: BTreeMap<String, History>,
) -> BTreeMap<String, String> {
    let replayer = WorkflowReplayer::new(options).unwrap();
    let (names, histories): (Vec<_>, Vec<_>) = histories.into_iter().unzip();
    let histories: Vec<_> = histories.into_iter().map(Into::into).collect();
    let results = replayer.replay_workflows(histories).await.unwrap();
    assert_eq!(results.len(), names.len());
    names
        .into_iter()
        .zip(results)
        .filter_map(|(name, result)| Some((name, result.replay_failure?.to_string())))
        .collect()
}

/// Today's workflows, registered as the worker does.
fn today() -> WorkflowReplayerOptions {
    let mut options = WorkflowReplayerOptions::new().build();
    workflows::register(&mut options).unwrap();
    options
}

#[tokio::test]
async fn every_recorded_history_replays() {
    let failures = divergences(today(), histories::all().unwrap()).await;
    let told: Vec<_> =
        failures.iter().map(|(name, what)| format!("{name} does not replay: {what}")).collect();
    assert!(told.is_empty(), "{}\n\n{HOW_TO_GO_ON}", told.join("\n"));
}

#[test]
fn every_shape_has_its_history_and_no_file_is_unknown() {
    let shapes: BTreeSet<&str> = histories::SHAPES.iter().map(|shape| shape.name).collect();
    assert_eq!(shapes.len(), histories::SHAPES.len(), "a shape is listed twice");
    let files = histories::all().unwrap();
    for shape in histories::SHAPES {
        let Some(history) = files.get(shape.name) else {
            panic!("{} is not recorded: {}.\n{HOW_TO_GO_ON}", shape.name, shape.what)
        };
        let shows = histories::is_of(shape, history).unwrap();
        assert!(shows, "{} does not show {}: {}", shape.name, shape.shows, shape.what);
    }
    for name in files.keys() {
        let shape = histories::shape_of(name);
        assert!(shapes.contains(shape), "{name} is in the folder, and no shape in the list");
    }
}

#[test]
fn every_workflow_is_among_the_recorded_ones_closed_and_continued_or_waiting() {
    let files = histories::all().unwrap();
    let types: BTreeSet<String> = files.values().map(|history| started(history).0).collect();
    let expected = ["CustomerDigest", "DigestPage", "DigestRun", "WeeklyDigest"];
    assert_eq!(types, expected.map(str::to_owned).into());
    for (name, history) in &files {
        let last = history.events.last().unwrap().event_type();
        let waits = last.as_str_name() == "EVENT_TYPE_TIMER_STARTED";
        assert_eq!(waits, name.contains("-open-"), "{name} ends with {last:?}");
    }
}

#[test]
fn no_recorded_history_shows_an_address_a_name_or_content() {
    let mut seen = 0;
    for (name, history) in histories::all().unwrap() {
        assert_eq!(histories::private(&history).unwrap(), Vec::<String>::new(), "{name}");
        seen += histories::texts(&history).unwrap().len();
    }
    assert!(seen > 1_000, "only {seen} texts were looked at");
}

/// The rules travel in the input, so replaying takes no configuration at all: histories recorded
/// under different ones are replayed by the same replayer above.
#[test]
fn the_histories_were_recorded_under_different_configurations() {
    let mut rules: Vec<Rules> = Vec::new();
    let mut providers = BTreeSet::new();
    for history in histories::all().unwrap().values() {
        let (kind, input) = started(history);
        if kind == "CustomerDigest" {
            let found: Rules = serde_json::from_value(input["rules"].clone()).unwrap();
            if !rules.contains(&found) {
                rules.push(found);
            }
        }
        for text in histories::texts(history).unwrap() {
            for provider in ["sandbox", "smtp"] {
                if text.contains(&format!("\"kind\":\"{provider}\"")) {
                    providers.insert(provider);
                }
            }
        }
    }
    assert_eq!(providers, ["sandbox", "smtp"].into());
    let differing =
        |part: fn(&Rules) -> String| rules.iter().map(part).collect::<BTreeSet<_>>().len();
    for (what, count) in [
        ("retry tables", differing(|rules| format!("{:?}", rules.retry))),
        ("leases", differing(|rules| format!("{:?}", rules.timeouts.lease))),
        ("rules for unknowns", differing(|rules| format!("{:?}", rules.unknown))),
    ] {
        assert!(count >= 2, "all were recorded under the same {what}");
    }
}

/// The type and the input that a history's workflow was started with.
fn started(history: &History) -> (String, Value) {
    let Some(Attributes::WorkflowExecutionStartedEventAttributes(started)) =
        history.events[0].attributes.clone()
    else {
        panic!("a history that does not begin with a start")
    };
    let input = started.input.unwrap().payloads.remove(0);
    (started.workflow_type.unwrap().name, serde_json::from_slice(&input.data).unwrap())
}
