//! Gathering what the invariants are about, and judging by them.

use super::invariants::{Decision, Evidence, Rows, violations, violations_at_rest};
use super::{Database, World};
use digest_workflows::operation::OperationKey;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long after a run is closed the engine may take to have closed its workflows too.
const ENGINE_PATIENCE: Duration = Duration::from_secs(20);

impl World {
    /// What is wrong at this moment between provider, ledger and shop.
    pub(crate) async fn violations(&self) -> Vec<String> {
        violations(&self.evidence().await)
    }

    /// Nothing may be wrong at this moment.
    pub(crate) async fn check(&self) {
        let found = self.violations().await;
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Once a run is closed, nothing may be wrong in any of the records, the engine's among them,
    /// and digestd's own audit must come to the same.
    pub(crate) async fn check_at_rest(&self) {
        let begun = Instant::now();
        loop {
            let mut evidence = self.evidence().await;
            evidence.open = self.ids("ExecutionStatus = 'Running'").await;
            evidence.failed = self
                .ids("ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut', 'Canceled')")
                .await;
            let found = violations_at_rest(&evidence);
            if found.is_empty() {
                break;
            }
            assert!(begun.elapsed() < ENGINE_PATIENCE, "{found:#?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for period in self.periods() {
            self.audit_of(period).await;
        }
    }

    /// Each record is read so that a worker that goes on meanwhile changes no verdict: what must
    /// come first is read last.
    async fn evidence(&self) -> Evidence {
        let taken = self.taken();
        let rows_before = self.left(&self.shop).await;
        let campaign = &self.campaign;
        let of = |columns: &str, table: &str, rest: &str| {
            format!("select {columns} from @{table} where campaign = '{campaign}' {rest}")
        };
        let operations = of("key, state, cast(at_rest as text)", "operations", "");
        let attempts = of("key, cast(begun_at as text)", "attempts", "and begun_at is not null");
        let decisions = of(
            "key, event, from_state, to_state",
            "decisions",
            "and key is not null and to_state is not null order by id",
        );
        let runs = of("state, cast(selected as text)", "runs", "and state <> 'missed'");
        let mut records = self
            .ledger
            .at_one_moment(&[&operations, &attempts, &decisions, &runs])
            .await
            .into_iter();
        let mut next = || records.next().unwrap();
        let operations = next()
            .into_iter()
            .map(|row| (row[0].clone(), (row[1].clone(), row[2] == "1")))
            .collect();
        let mut intents = BTreeMap::<String, Vec<Timestamp>>::new();
        for row in next() {
            let at = Timestamp::from_millisecond(row[1].parse().unwrap()).unwrap();
            intents.entry(row[0].clone()).or_default().push(at);
        }
        let decisions = next()
            .into_iter()
            .map(|row| {
                let [key, event, from, to] = <[String; 4]>::try_from(row).unwrap();
                Decision { key, event, from, to }
            })
            .collect();
        let runs =
            next().into_iter().map(|row| (row[0] == "closed", row[1].parse().unwrap())).collect();
        let rows = self.rows(&rows_before, &self.left(&self.shop).await);
        let taken_later = self.taken().into_iter().map(|message| message.key).collect();
        Evidence {
            taken,
            taken_later,
            operations,
            intents,
            decisions,
            rows,
            runs,
            ..Evidence::default()
        }
    }

    /// How many rows of each customer's digests are left in the shop, by customer and day.
    async fn left(&self, shop: &Database) -> BTreeMap<(String, String), u32> {
        // Counted here: to a shop's collation several ids may be the same.
        let text = shop.text();
        let sql = format!(
            "select cast(customer_id as {text}), substr(cast(created_at as {text}), 1, 10) \
             from digest_items where customer_id is not null"
        );
        let mut left = BTreeMap::new();
        for row in shop.pairs(&sql).await {
            *left.entry(row).or_default() += 1;
        }
        left
    }

    /// Whose rows were missing before the ledger was read, and whose were whole after.
    fn rows(
        &self,
        before: &BTreeMap<(String, String), u32>,
        after: &BTreeMap<(String, String), u32>,
    ) -> BTreeMap<String, Rows> {
        let mut rows = BTreeMap::new();
        let digests = self.weeks.iter().flat_map(|week| {
            let customers = self.customers.iter().filter(|customer| customer.rows > 0);
            customers.map(move |customer| (week, customer))
        });
        for (week, customer) in digests {
            // Somebody without a usable id has no operation, and nothing may be removed either.
            let key = OperationKey::new(&self.campaign, week.period, &customer.id)
                .map_or_else(|_| customer.id.clone(), |key| key.to_string());
            let digest = (customer.id.clone(), week.day.to_string());
            let count =
                |left: &BTreeMap<(String, String), u32>| left.get(&digest).copied().unwrap_or(0);
            if count(before) < customer.rows {
                rows.insert(key, Rows::Missing);
            } else if count(after) >= customer.rows {
                rows.insert(key, Rows::All);
            }
        }
        rows
    }

    async fn ids(&self, condition: &str) -> BTreeSet<String> {
        self.workflows(condition).await.into_iter().map(|(id, _)| id).collect()
    }
}
