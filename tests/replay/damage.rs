//! Damaged copies of the recorded histories: each must be noticed, or replaying them proves nothing.

use crate::{divergences, today};
use digest_tests::histories;
use serde_json::Value;
use std::collections::BTreeMap;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};

/// The workflow task whose completion commanded this event, if one did, of the kinds whose place
/// counts.
fn commanded_by(event: &HistoryEvent) -> Option<i64> {
    let task = match event.attributes.as_ref()? {
        Attributes::MarkerRecordedEventAttributes(a) => a.workflow_task_completed_event_id,
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

/// The places of two neighbours that one workflow task commanded. Two of a kind, or the end: what a
/// local activity answered is taken before or after a timer's or a child's start.
fn neighbours(history: &History) -> Vec<(usize, usize)> {
    let events = &history.events;
    let pairs = (1..events.len()).map(|place| (place - 1, place));
    pairs
        .filter(|(first, second)| {
            let (first, second) = (&events[*first], &events[*second]);
            let alike = first.event_type == second.event_type
                || second.event_type() == EventType::WorkflowExecutionCompleted;
            let task = commanded_by(first);
            alike && task.is_some() && task == commanded_by(second)
        })
        .collect()
}

/// The same history with two events in each other's place.
fn exchanged(history: &History, (first, second): (usize, usize)) -> History {
    let mut history = history.clone();
    let [one, other] = [first, second].map(|place| history.events[place].event_id);
    history.events.swap(first, second);
    renumbered(&history, |id| match id {
        id if id == one => other,
        id if id == other => one,
        id => id,
    })
}

/// The same history without one event.
fn without(history: &History, place: usize) -> History {
    let mut history = history.clone();
    let gone = history.events.remove(place).event_id;
    renumbered(&history, |id| if id > gone { id - 1 } else { id })
}

/// The same history with other numbers of events, wherever one refers to another: only the order is
/// damaged.
fn renumbered(history: &History, number: impl Fn(i64) -> i64) -> History {
    let mut events = serde_json::to_value(&history.events).unwrap();
    renumber(&mut events, &number);
    History { events: serde_json::from_value(events).unwrap() }
}

fn renumber(value: &mut Value, number: &impl Fn(i64) -> i64) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| renumber(value, number)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_i64() {
                    Some(id) if name.ends_with("event_id") => *value = number(id).into(),
                    _ => renumber(value, number),
                }
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn a_history_whose_events_have_changed_places_does_not_replay() {
    let mut damaged = BTreeMap::new();
    for (name, history) in histories::all().unwrap() {
        for pair in neighbours(&history) {
            damaged.insert(format!("{name} with {pair:?} exchanged"), exchanged(&history, pair));
        }
    }
    let count = all_are_noticed(damaged).await;
    assert!(count > 30, "only {count} copies were damaged");
}

#[tokio::test]
async fn a_history_that_lacks_a_command_does_not_replay() {
    let mut damaged = BTreeMap::new();
    for (name, history) in histories::all().unwrap() {
        let marker = |event: &HistoryEvent| event.event_type() == EventType::MarkerRecorded;
        // An open history that lacks its end is only an earlier one.
        if name.contains("-open-") {
            continue;
        }
        let Some(place) = history.events.iter().position(marker) else { continue };
        damaged.insert(name, without(&history, place));
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
        let found = divergences(today(), [(name.clone(), history)].into()).await;
        if !found.get(&name).is_some_and(|what| what.contains("nondeterministic")) {
            missed.push((name, found));
        }
    }
    assert!(missed.is_empty(), "{} of {count} were not noticed: {missed:#?}", missed.len());
    count
}
