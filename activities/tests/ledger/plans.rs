//! Query plans: what runs for every operation, or every minute, reads by an index.

use super::bench::{CAMPAIGN, Place, Raw, on_both};
use digest_workflows::operation::Period;

on_both!(hot_queries_read_by_an_index);

/// Statement, and the index that has to carry it.
const HOT: [(&str, &str); 26] = [
    ("select machine from @operations where key = 'digest:2026-W42:c-00007'", "key"),
    ("select state from @runs where campaign = 'digest' and period = '2026-W42'", "period"),
    (
        "select outcome from @attempts where campaign = 'digest' and period = '2026-W42' \
         and decided_at > 5 order by decided_at desc limit 20",
        "attempts_decided",
    ),
    (
        "select count(*) from @operations where campaign = 'digest' and period = '2026-W42' \
         and enqueued_at is not null and state in ('selected', 'sending') and attempts <= 1",
        "operations_first",
    ),
    (
        "select key from @operations where campaign = 'digest' and period = '2026-W42' \
         and at_rest = 0 limit 1",
        "operations_open",
    ),
    (
        "select key, machine from @operations where campaign = 'digest' and key > 'digest:2026-W42:c' \
         and state in ('selected', 'sending', 'retrying', 'unknown', 'sent') \
         and cleanup_failed = 0 and enqueued_at <= 5 order by key limit 100",
        "operations_unfinished",
    ),
    (
        "select key, machine from @operations where campaign = 'digest' and state = 'unknown' \
         and key > 'digest:' and key < 'digest;' order by key limit 100",
        "operations_state",
    ),
    (
        "select key, position from @operations where campaign = 'digest' and period = '2026-W42' \
         and position > 100 order by position limit 101",
        "operations_position",
    ),
    (
        "select key from @operations where campaign = 'digest' and customer = 'c-00007' \
         order by period",
        "operations_customer",
    ),
    (
        "select event from @decisions where campaign = 'digest' and period = '2026-W42' \
         and id > 5 order by id desc limit 50",
        "decisions_run",
    ),
    (
        "select key, number from @attempts where key > 'digest:2026-W42:c' \
         and key <= 'digest:2026-W42:c-00100' order by key, number",
        "attempts_",
    ),
    (
        "select key, event from @decisions where key > 'digest:2026-W42:c' \
         and key <= 'digest:2026-W42:c-00100' order by key, id",
        "decisions_key",
    ),
    (
        "select reason from @suppressions where campaign = 'digest' and customer = 'c-00007'",
        "suppressions_pkey",
    ),
    (
        "select alias, key, state, message_id from @operations where alias in ('a', 'b')",
        "operations_alias",
    ),
    (
        "select event_id from @provider_events where told_at is null \
         and (at, event_id) > (5, 'e') order by at, event_id limit 200",
        "provider_events_untold",
    ),
    (
        "select count(*) from @suppressions where campaign = 'digest' \
         and key > 'digest:2026-W42:' and key < 'digest:2026-W42;'",
        "suppressions_key",
    ),
    (
        "select outcome from @attempts a where campaign = 'digest' and period = '2026-W42' \
         and decided_at > 5 and not exists \
         (select 1 from @attempts b where b.batch = a.batch and b.key < a.key) \
         order by decided_at desc limit 20",
        "attempts_batch",
    ),
    ("select 1 from @attempts where batch = 'b' and outcome is null", "attempts_batch"),
    (
        "select 1 from @attempts where provider = 'twilio' and content_hash = 'abc' \
         and key <> 'digest:2026-W42:c-00007' and settles_at >= 5 limit 1",
        "attempts_content",
    ),
    (
        "select 1 from @attempts where provider = 'unrecorded' \
         and key <> 'digest:2026-W42:c-00007' and settles_at >= 5 limit 1",
        "attempts_unrecorded",
    ),
    // Figures.
    (
        "select period from @operations where campaign = 'digest' and period > '2026-W41' \
         and at_rest = 0 order by period limit 1",
        "operations_open",
    ),
    (
        "select o.frozen_at, (select max(d.replayed_at) from @dead_letters d where d.key = o.key) \
         from @operations o where o.campaign = 'digest' and o.period = '2026-W42' \
         and o.at_rest = 0 and o.state in ('selected', 'sending', 'retrying') \
         order by o.position limit 200",
        "operations_open",
    ),
    (
        "select count(*) from @operations where campaign = 'digest' and state = 'cleaned' \
         and key > 'digest:2026-W42:' and key < 'digest:2026-W42;'",
        // That of states, or of keys where PostgreSQL has to look at the rows anyhow.
        "operations_",
    ),
    (
        "select count(*), min(since) from @operations where campaign = 'digest' \
         and state = 'unknown'",
        "operations_state",
    ),
    (
        "select class, count(*) from @operations where campaign = 'digest' and state = 'dead' \
         group by class",
        "operations_state",
    ),
    (
        "select cleanup_failed, count(*), min(since) from @operations where campaign = 'digest' \
         and state = 'sent' group by cleanup_failed",
        "operations_state",
    ),
];

async fn hot_queries_read_by_an_index(place: Place) {
    let mut bench = place.bench(2_000).await;
    let past = Period::parse("2026-W41").unwrap();
    assert_ne!(past, bench.period);
    fill(&mut bench.raw).await;
    bench
        .raw
        .execute(if place.is_sqlite() {
            "analyze"
        } else {
            "analyze @operations, @attempts, @decisions, @provider_events, @suppressions"
        })
        .await;
    for (sql, index) in HOT {
        let plan = plan(&mut bench.raw, sql).await;
        let by_index = if matches!(index, "key" | "period" | "suppressions_pkey") {
            plan.contains("autoindex") || plan.contains("_pkey")
        } else {
            plan.contains(index)
        };
        let scans = plan.contains("Seq Scan") || plan.lines().any(|line| line.starts_with("SCAN "));
        assert!(by_index && !scans, "{sql}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE") || may_sort(sql), "{sql}\n{plan}");
    }
    assert_eq!(CAMPAIGN, "digest");
}

/// Whether what a query sorts is few: one customer's keys, or groups of what needs attention.
fn may_sort(sql: &str) -> bool {
    sql.contains("order by period") || sql.contains("group by")
}

/// Other periods, so that a run is a part of the ledger, most of it done.
async fn fill(raw: &mut Raw) {
    for week in 10..20 {
        raw.execute(&format!(
            "insert into @operations (key, campaign, period, position, customer, state, since, \
             at_rest, machine, frozen_at, enqueued_at) \
             select 'digest:2026-W{week}:' || customer, campaign, '2026-W{week}', position, \
             customer, case when position % 200 = 0 then 'unknown' else 'cleaned' end, since, 1, \
             machine, frozen_at, frozen_at from @operations where period = '2026-W42'"
        ))
        .await;
    }
    raw.execute(
        "insert into @attempts (key, number, campaign, period, generation, ordinal, decided_at) \
         select key, 1, campaign, period, 1, 1, frozen_at from @operations",
    )
    .await;
    raw.execute(
        "insert into @decisions (campaign, period, key, at, event, decided_by) \
         select campaign, period, key, frozen_at, 'begun', 'test' from @operations",
    )
    .await;
    raw.execute(
        "insert into @provider_events (provider, event_id, key, finding, at, told_at) \
         select 'resend', key, key, '[]', frozen_at, frozen_at from @operations",
    )
    .await;
    raw.execute(
        "insert into @suppressions (campaign, customer, reason, since, key, provider, event_id) \
         select campaign, key, 'complaint', frozen_at, key, 'resend', key from @operations",
    )
    .await;
}

async fn plan(raw: &mut Raw, sql: &str) -> String {
    match raw {
        Raw::Sqlite(_) => {
            let rows = raw.rows(&format!("explain query plan {sql}")).await;
            rows.into_iter().map(|row| row[3].clone()).collect::<Vec<_>>().join("\n")
        }
        Raw::Postgres(_) => {
            raw.execute("set enable_seqscan = off").await;
            let rows = raw.rows(&format!("explain {sql}")).await;
            rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>().join("\n")
        }
    }
}
