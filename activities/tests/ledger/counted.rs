//! What is counted of what the ledger has recorded: each attempt once, and each doubt by what settled it.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, REPLAYS, accepted, closed, on_both, refused};
use digest_activities::ledger::{BeginAnswer, Recorded};
use digest_activities::metrics::{Duplicate, Metrics};
use digest_workflows::operation::{
    CannotBegin, Event, Failure, FailureClass, Finding, Operation, OperationKey, Verdict,
};
use jiff::Timestamp;
use std::collections::BTreeMap;

on_both!(
    each_attempt_counts_once_by_its_result,
    a_doubt_counts_by_what_settles_it,
    what_changes_nothing_is_not_counted_again,
    the_first_attempt_is_the_claim,
);

/// Counters that are not zero, as `name{labels}`.
fn counted(metrics: &Metrics) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for family in metrics.gather() {
        for metric in family.get_metric() {
            let labels: Vec<&str> = metric
                .get_label()
                .iter()
                .filter(|label| !matches!(label.name(), "campaign" | "provider"))
                .map(prometheus::proto::LabelPair::value)
                .collect();
            let name = family.name().trim_start_matches("digestd_").trim_end_matches("_total");
            let name = format!("{name} {}", labels.join(" ")).trim().to_owned();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count =
                metric.get_counter().get_value() as u64 + metric.get_histogram().get_sample_count();
            if count > 0 {
                counted.insert(name, count);
            }
        }
    }
    counted
}

fn is(metrics: &Metrics, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> =
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(counted(metrics), expected);
}

fn metrics() -> Metrics {
    Metrics::new(CAMPAIGN, "smtp").unwrap()
}

impl Bench {
    /// Records `event` of `key` and counts it.
    async fn count(&self, metrics: &Metrics, key: &OperationKey, event: Event, late: bool) {
        let recorded: Recorded = self.record(key, event.clone()).await;
        metrics.recorded(&event, &recorded, late);
    }
}

fn overdue(attempt: u32) -> Event {
    Event::Overdue { attempt, random: 0.0 }
}

/// The next try of `operation` ends before its intent.
fn not_connected(operation: &Operation) -> Event {
    closed(operation, Failure::new(FailureClass::Transport, "refused"))
}

async fn each_attempt_counts_once_by_its_result(place: Place) {
    let bench = place.bench(4).await;
    let metrics = metrics();
    let attempt = bench.begun(&bench.key(1), NOTHING).await;
    bench.count(&metrics, &bench.key(1), accepted(attempt), false).await;
    let attempt = bench.begun(&bench.key(2), NOTHING).await;
    bench.count(&metrics, &bench.key(2), overdue(attempt), false).await;
    let key = bench.key(3);
    let event = not_connected(&bench.operation(&key).await);
    bench.count(&metrics, &key, event, false).await;
    let attempt = bench.begun(&bench.key(4), NOTHING).await;
    let refused = refused(attempt, FailureClass::Recipient);
    bench.count(&metrics, &bench.key(4), refused, false).await;
    is(
        &metrics,
        &[
            ("attempts none accepted", 1),
            ("attempts ambiguous unknown", 1),
            ("attempts transport not_sent", 1),
            ("attempts recipient not_sent", 1),
            ("retries transport", 1),
        ],
    );
}

async fn a_doubt_counts_by_what_settles_it(place: Place) {
    let bench = place.bench(5).await;
    let metrics = metrics();
    for customer in 1..=5 {
        let attempt = bench.begun(&bench.key(customer), REPLAYS).await;
        bench.count(&metrics, &bench.key(customer), overdue(attempt), false).await;
    }
    bench.count(&metrics, &bench.key(1), accepted(1), true).await;
    let finding = Finding::Accepted { message_id: None };
    let asked_at = Timestamp::now();
    let looked_up = Event::LookedUp { finding: finding.clone(), asked_at, random: 0.0 };
    bench.count(&metrics, &bench.key(2), looked_up, false).await;
    let told = bench.record(&bench.key(3), Event::Told { finding }).await;
    metrics.told(&bench.key(3), &told.change);
    let abandon = Event::Judged { verdict: Verdict::Abandon, attempt: None };
    bench.count(&metrics, &bench.key(4), abandon, false).await;
    // A replay settles the attempt before it, too.
    let again = bench.begun(&bench.key(5), REPLAYS).await;
    bench.count(&metrics, &bench.key(5), accepted(again), false).await;
    let counted = counted(&metrics);
    for (name, count) in [
        ("attempts ambiguous unknown", 5),
        ("attempts none accepted", 1),
        ("doubts_settled late_answer", 1),
        ("doubts_settled lookup", 1),
        ("doubts_settled event", 1),
        ("doubts_settled replay", 1),
        ("lookups accepted", 1),
    ] {
        assert_eq!(counted.get(name), Some(&count), "{name}: {counted:?}");
    }
    assert_eq!(counted.len(), 7, "{counted:?}");
}

async fn what_changes_nothing_is_not_counted_again(place: Place) {
    let bench = place.bench(1).await;
    let (metrics, key) = (metrics(), bench.key(1));
    let attempt = bench.begun(&key, NOTHING).await;
    for _ in 0..2 {
        bench.count(&metrics, &key, accepted(attempt), false).await;
        bench.count(&metrics, &key, overdue(attempt), false).await;
    }
    bench.count(&metrics, &key, Event::CleanedUp, false).await;
    is(&metrics, &[("attempts none accepted", 1), ("cleanups done", 1)]);
    // A refusal of what was delivered is a bounce.
    let bounce = Event::Told { finding: Finding::Refused(FailureClass::Recipient) };
    let told = bench.record(&key, bounce).await;
    metrics.told(&key, &told.change);
    is(&metrics, &[("attempts none accepted", 1), ("cleanups done", 1), ("undelivered", 1)]);
    for (cannot, duplicate) in [
        (CannotBegin::NotNext, Some(Duplicate::Overtaken)),
        (CannotBegin::Settled, Some(Duplicate::Settled)),
        (CannotBegin::InDoubt, Some(Duplicate::InDoubt)),
        (CannotBegin::Held, None),
        (CannotBegin::TooLate, None),
    ] {
        assert_eq!(Duplicate::of(cannot), duplicate);
    }
}

async fn the_first_attempt_is_the_claim(place: Place) {
    let bench = place.bench(2).await;
    bench.enqueue_all().await;
    let metrics = metrics();
    for _ in 0..2 {
        let event = not_connected(&bench.operation(&bench.key(1)).await);
        bench.count(&metrics, &bench.key(1), event, false).await;
    }
    assert_eq!(counted(&metrics)["enqueue_to_claim_seconds"], 1);
    let answer = bench.answer(&bench.key(2)).await;
    match bench.begin(&bench.key(2), NOTHING).await {
        BeginAnswer::Begun(begun) => metrics.begun(&answer, &begun),
        BeginAnswer::Cannot(cannot) => panic!("{cannot}"),
    }
    assert_eq!(counted(&metrics)["enqueue_to_claim_seconds"], 2);
}
