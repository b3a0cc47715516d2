//! The audit of the ledger by itself: nothing that it has written is a difference, and each change
//! that somebody else makes is named once.

use super::bench::{Bench, CAMPAIGN, NOTHING, Place, REPLAYS, on_both, refused};
use super::transitions::every_kind_of_transition;
use digest_activities::audit::{Difference, Kind, books};
use digest_workflows::operation::{FailureClass, OperationKey, Rules};
use std::collections::BTreeMap;

on_both!(
    what_the_ledger_has_written_is_no_difference,
    each_change_by_another_hand_is_named_once,
    records_without_an_operation_are_found_wherever_a_page_ends,
    a_single_operation_is_read_as_on_its_page,
);

/// Every difference of the run, read in pages of `limit`, and the keys without an operation.
async fn audit(bench: &Bench, limit: u32) -> (Vec<Difference>, Vec<String>) {
    let (mut found, mut orphans, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page =
            bench.ledger.audit_page(CAMPAIGN, bench.period, after.as_deref(), limit).await.unwrap();
        for entry in &page.entries {
            found.extend(books::differences(entry, &page.run, &Rules::default(), page.now));
        }
        orphans.extend(page.orphans);
        after = page.next;
        if after.is_none() {
            return (found, orphans);
        }
    }
}

async fn what_the_ledger_has_written_is_no_difference(place: Place) {
    let mut bench = place.bench(4).await;
    every_kind_of_transition(&mut bench).await;
    for limit in [1, 2, 3, 100] {
        let (found, orphans) = audit(&bench, limit).await;
        let kinds: Vec<_> = found.iter().map(|one| (one.kind, one.key.clone())).collect();
        assert_eq!(kinds, [(Kind::Contradicted, bench.key(3).to_string())], "{found:#?}");
        assert!(orphans.is_empty(), "{orphans:?}");
    }
    let tally = bench.ledger.tally(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((tally.operations, tally.run.selected), (4, 4));
}

/// What somebody else does to the operation of customer N, whose SQL has `KEY`, and what it is.
const CHANGES: [(u32, &str, Kind); 16] = [
    (1, "update @operations set position = 900 where key = KEY", Kind::NotSelected),
    (2, "update @operations set machine = '{}' where key = KEY", Kind::Unreadable),
    (3, "update @operations set customer = 'other' where key = KEY", Kind::Misfiled),
    (4, "update @operations set state = 'sent' where key = KEY", Kind::StateDiffers),
    (
        5,
        "update @operations set machine = replace(machine, '\"newest_handed_over\":0', \
         '\"newest_handed_over\":7') where key = KEY",
        Kind::Contradiction,
    ),
    (6, "delete from @attempts where key = KEY and number = 1", Kind::AttemptsDiffer),
    (7, "update @attempts set outcome = 'not_sent' where key = KEY", Kind::NoAcceptance),
    (8, "update @attempts set outcome = 'accepted' where key = KEY", Kind::AcceptedNotSent),
    (9, "update @attempts set outcome = 'accepted' where key = KEY", Kind::AcceptedTwice),
    (
        10,
        "update @attempts set content_hash = 'other' where key = KEY and number = 2",
        Kind::OtherBytes,
    ),
    (11, "insert into @digest_rows (key, data) values (KEY, '{}')", Kind::ContentLeft),
    (12, "delete from @decisions where key = KEY and to_state = 'sent'", Kind::CleanedWithoutSent),
    (13, "delete from @decisions where key = KEY and event = 'begun'", Kind::Timeline),
    (14, "delete from @dead_letters where key = KEY", Kind::DeadLetter),
    (15, "update @operations set enqueued_at = null where key = KEY", Kind::NeverEnqueued),
    (16, "update @runs set state = 'closed' where period = '2026-W42'", Kind::Contradicted),
];

async fn each_change_by_another_hand_is_named_once(place: Place) {
    let mut bench = place.bench(17).await;
    bench.enqueue_all().await;
    let dead = async |key: &OperationKey| {
        let attempt = bench.begun(key, NOTHING).await;
        bench.record(key, refused(attempt, FailureClass::Rejected)).await;
    };
    for customer in [6, 7, 11, 12, 13] {
        bench.deliver_and_clean(&bench.key(customer)).await;
    }
    for customer in [8, 14, 16] {
        dead(&bench.key(customer)).await;
    }
    bench.closed(&bench.key(9), FailureClass::Transport, "connect").await;
    bench.deliver_and_clean(&bench.key(9)).await;
    bench.unknown(&bench.key(10), REPLAYS, &Rules::default()).await;
    bench.begun(&bench.key(10), REPLAYS).await;
    bench.accepted(&bench.key(16), 1).await;
    assert_eq!(audit(&bench, 5).await.0.len(), 1, "only what is contradicted");
    for (customer, sql, _) in CHANGES {
        let key = format!("'{}'", bench.key(customer));
        bench.raw.execute(&sql.replace("KEY", &key)).await;
    }
    let (found, orphans) = audit(&bench, 5).await;
    let expected: BTreeMap<String, Kind> =
        CHANGES.iter().map(|(n, _, kind)| (bench.key(*n).to_string(), *kind)).collect();
    let named: BTreeMap<String, Kind> =
        found.iter().map(|one| (one.key.clone(), one.kind)).collect();
    assert_eq!(named, expected, "{found:#?}");
    assert_eq!(found.len(), CHANGES.len(), "{found:#?}");
    assert!(orphans.is_empty(), "{orphans:?}");
    let silent = |one: &&Difference| one.expected.is_empty() || one.found == one.expected;
    assert!(!found.iter().any(|one| silent(&one)), "{found:#?}");
    // Looking has changed nothing.
    assert_eq!(audit(&bench, 5).await.0, found);
}

async fn records_without_an_operation_are_found_wherever_a_page_ends(place: Place) {
    let mut bench = place.bench(9).await;
    bench.enqueue_all().await;
    bench.deliver_and_clean(&bench.key(1)).await;
    bench.closed(&bench.key(9), FailureClass::Transport, "connect").await;
    let gone: Vec<String> = [1, 4, 9].map(|n| bench.key(n).to_string()).to_vec();
    for key in &gone {
        bench.raw.execute(&format!("delete from @operations where key = '{key}'")).await;
    }
    for limit in [1, 2, 3, 6, 7] {
        let (found, orphans) = audit(&bench, limit).await;
        assert!(found.is_empty(), "{found:#?}");
        assert_eq!(orphans, gone, "in pages of {limit}");
    }
    let tally = bench.ledger.tally(CAMPAIGN, bench.period).await.unwrap();
    assert_eq!((tally.operations, tally.run.selected), (6, 9));
    let asked: Vec<String> = [1, 2].map(|n| bench.key(n).to_string()).to_vec();
    assert_eq!(bench.ledger.absent(&asked).await.unwrap(), gone[..1]);
}

async fn a_single_operation_is_read_as_on_its_page(place: Place) {
    let mut bench = place.bench(4).await;
    every_kind_of_transition(&mut bench).await;
    let page = bench.ledger.audit_page(CAMPAIGN, bench.period, None, 100).await.unwrap();
    for entry in &page.entries {
        let (alone, ..) = bench.ledger.audit_entry(&entry.key).await.unwrap().unwrap();
        assert_eq!(format!("{alone:?}"), format!("{entry:?}"));
    }
    let stranger = bench.key(99).to_string();
    assert!(bench.ledger.audit_entry(&stranger).await.unwrap().is_none());
    assert!(bench.ledger.audit_entry("nonsense").await.unwrap().is_none());
}
