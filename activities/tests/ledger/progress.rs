//! How the runs go.

use crate::bench::{Bench, CAMPAIGN, NOTHING, Place, TEST, on_both};
use digest_activities::ledger::RunLine;
use digest_workflows::operation::{FailureClass, Period, Rules};

on_both!(
    a_run_is_told_as_its_status_counts_it,
    runs_are_paged_from_the_newest,
    dead_letters_of_one_class,
);

async fn line(bench: &Bench) -> RunLine {
    bench.ledger.progress(CAMPAIGN, bench.period).await.unwrap().unwrap()
}

async fn a_run_is_told_as_its_status_counts_it(place: Place) {
    let bench = place.bench(6).await;
    bench.enqueue_all().await;
    bench.deliver_and_clean(&bench.key(1)).await;
    bench.unknown(&bench.key(2), NOTHING, &Rules::default()).await;
    bench.closed(&bench.key(3), FailureClass::Recipient, "smtp 550").await;
    bench.closed(&bench.key(4), FailureClass::Transport, "refused").await;
    let run = line(&bench).await;
    let status = bench.ledger.status(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((run.state.as_str(), run.selected), ("dispatching", 6));
    assert_eq!(run.to_send, status.pending + status.sending + status.retrying);
    assert_eq!(
        [run.unknown, run.sent, run.cleaned, run.dead, run.suppressed, run.expired],
        [
            status.unknown,
            status.sent,
            status.cleaned,
            status.dead,
            status.suppressed,
            status.expired
        ]
    );
    // What was decided within the last minute, and how long the rest takes at that pace.
    let answered = run.answered_per_minute.unwrap();
    assert!(answered > 0);
    assert_eq!(run.seconds_left, Some(run.to_send * 60 / answered));
    bench.hold().await;
    let held = line(&bench).await;
    assert_eq!((held.state.as_str(), held.held_by.as_deref()), ("held", Some("test")));
    assert_eq!((held.answered_per_minute, held.seconds_left), (None, None));
    assert!(bench.ledger.progress("reminder", bench.period).await.unwrap().is_none());
}

async fn runs_are_paged_from_the_newest(place: Place) {
    let bench = place.bench(1).await;
    for period in ["2026-W52", "2026-W53", "2027-W01"] {
        let period = Period::parse(period).unwrap();
        bench.ledger.hold(CAMPAIGN, period, "early", TEST).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = bench.ledger.runs(CAMPAIGN, before, 2).await.unwrap();
        seen.extend(page.runs.iter().map(|run| run.period.to_string()));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["2027-W01", "2026-W53", "2026-W52", "2026-W42"]);
}

async fn dead_letters_of_one_class(place: Place) {
    let bench = place.bench(4).await;
    bench.closed(&bench.key(1), FailureClass::Recipient, "smtp 550").await;
    bench.closed(&bench.key(2), FailureClass::Rejected, "smtp 554").await;
    bench.closed(&bench.key(3), FailureClass::Recipient, "smtp 550").await;
    let dead = async |class, after: Option<&str>| {
        let page = bench.ledger.dead_letters(CAMPAIGN, None, class, after, 1).await.unwrap();
        let keys: Vec<String> = page.operations.into_iter().map(|line| line.key).collect();
        (keys, page.next)
    };
    let (first, next) = dead(Some(FailureClass::Recipient), None).await;
    assert_eq!(first, [bench.key(1).to_string()]);
    let (second, next) = dead(Some(FailureClass::Recipient), next.as_deref()).await;
    assert_eq!((second, next), (vec![bench.key(3).to_string()], None));
    assert_eq!(dead(Some(FailureClass::Stale), None).await.0, Vec::<String>::new());
}
