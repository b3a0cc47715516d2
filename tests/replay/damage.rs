//! Damaged copies of the recorded histories: each must be noticed, or replaying them proves nothing.

use crate::{divergences, today};
use digest_tests::histories;
use std::collections::BTreeMap;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};

/// The workflow task whose completion commanded this event, if one did. Search attributes are left
/// out: the engine's client takes them in any place.
fn commanded_by(event: &HistoryEvent) -> Option<i64> {
    let task = match event.attributes.as_ref()? {
        Attributes::MarkerRecordedEventAttributes(a) => a.workflow_task_completed_event_id,
        Attributes::TimerStartedEventAttributes(a) => a.workflow_task_completed_event_id,
        Attributes::ActivityTaskScheduledEventAttributes(a) => a.workflow_task_completed_event_id,
        Attributes::StartChildWorkflowExecutionInitiatedEventAttributes(a) => {
            a.workflow_task_completed_event_id
        }
        Attributes::WorkflowExecutionCompletedEventAttributes(a) => {
            a.workflow_task_completed_event_id
        }
        _ => return None,
    };
    Some(task)
}

/// The places of two neighbours that one workflow task commanded.
fn neighbours(history: &History) -> Vec<(usize, usize)> {
    let places = 1..history.events.len();
    places
        .map(|place| (place - 1, place))
        .filter(|(first, second)| {
            let task = commanded_by(&history.events[*first]);
            task.is_some() && task == commanded_by(&history.events[*second])
        })
        .collect()
}

/// The same history with two events in each other's place.
fn exchanged(history: &History, (first, second): (usize, usize)) -> History {
    let mut history = history.clone();
    history.events.swap(first, second);
    let id = history.events[first].event_id;
    history.events[first].event_id = history.events[second].event_id;
    history.events[second].event_id = id;
    history
}

#[tokio::test]
async fn a_history_whose_events_have_changed_places_does_not_replay() {
    let mut damaged = BTreeMap::new();
    for (name, history) in histories::all().unwrap() {
        for pair in neighbours(&history).into_iter().take(3) {
            damaged.insert(format!("{name} with {pair:?} exchanged {:?}", history.events[pair.0-2..pair.1+2].iter().map(|e| e.event_type().as_str_name().to_owned()).collect::<Vec<_>>()), exchanged(&history, pair));
        }
    }
    let count = all_are_noticed(damaged).await;
    assert!(count > 50, "only {count} copies were damaged");
}

#[tokio::test]
async fn a_history_that_lacks_a_command_does_not_replay() {
    let mut damaged = BTreeMap::new();
    for (name, mut history) in histories::all().unwrap() {
        let marker = |event: &HistoryEvent| event.event_type() == EventType::MarkerRecorded;
        // An open history that lacks its end is only an earlier one.
        if name.contains("-open-") {
            continue;
        }
        let Some(place) = history.events.iter().position(marker) else { continue };
        history.events.remove(place);
        for event in &mut history.events[place..] {
            event.event_id -= 1;
        }
        damaged.insert(name, history);
    }
    let count = all_are_noticed(damaged).await;
    assert!(count >= 40, "only {count} copies were damaged");
}

/// Replays each copy by itself, because copies of one history have one run id; returns how many there
/// were.
async fn all_are_noticed(damaged: BTreeMap<String, History>) -> usize {
    let count = damaged.len();
    let mut missed = Vec::new();
    for (name, history) in damaged {
        if divergences(today(), [(name.clone(), history)].into()).await.is_empty() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "{} of {count} were not noticed: {missed:#?}", missed.len());
    count
}
