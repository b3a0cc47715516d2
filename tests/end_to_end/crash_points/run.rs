//! One run of the matrix: something dies, is started again, and everything is settled.

use super::point::{Dies, LedgerKind, Point};
use super::provider::{Kind, Provider};
use crate::end_to_end::world::{Customer, Database, World, until, world};
use digest_tests::postgres::Postgres;
use digest_tests::proxy::{Fault, Proxy};
use digest_workflows::operation::OperationKey;
use futures::{StreamExt as _, stream};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use std::time::{Duration, Instant};
use url::Url;

/// How many operations may be under way.
const IN_FLIGHT: usize = 16;
/// A run's history that is longer than this is continued as new.
const HISTORY_MAX: usize = 2_000;
/// How many customers one page of the freeze reads.
const FREEZE_PAGE: usize = 500;

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    suite: Suite,
    pub(super) point: &'static Point,
    pub(super) ledger: LedgerKind,
    pub(super) provider: Kind,
    pub(super) seed: u64,
}

/// What it is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// The whole matrix.
    Matrix,
    /// Each point once, with fewer customers.
    Once,
}

impl Suite {
    /// How many customers there are.
    const fn customers(self) -> u32 {
        match self {
            Self::Matrix => 40,
            Self::Once => 16,
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// How long it took from the restart until it was settled.
    pub(super) settled_in: Duration,
    /// How many operations wait for a person.
    pub(super) unknown: u64,
}

impl Run {
    /// A run with a seed of its own.
    pub(super) fn new(
        suite: Suite,
        point: &'static Point,
        ledger: LedgerKind,
        provider: Kind,
    ) -> Self {
        let seed = match std::env::var("DIGESTD_TEST_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => rand::random_range(0..1_000_000),
        };
        Self { suite, point, ledger, provider, seed }
    }

    /// The point with its fatal passage.
    pub(super) fn armed(&self) -> String {
        format!("{}:{}", self.point.name, self.passage())
    }

    fn passage(&self) -> u32 {
        // A point of every operation is passed by most of them.
        let last = (*self.point.passages.end()).min(self.suite.customers() * 3 / 4);
        StdRng::seed_from_u64(self.seed).random_range(*self.point.passages.start()..=last)
    }

    /// Carries it out; `None` where a part is absent.
    pub(super) async fn carry_out(&self) -> Option<Report> {
        let provider = Provider::start(self.provider, self.point.doubts).await;
        let mut stage = self.stage(&provider).await?;
        let world = &mut stage.world;
        world.received_by(move || provider.taken());
        let (begun, in_doubt) = match self.point.dies {
            Dies::Setup => (Instant::now(), 0),
            Dies::Worker | Dies::WideRun | Dies::LongRun | Dies::Stopped => {
                let under_way = self.kill_worker(world).await;
                (Instant::now(), under_way)
            }
            Dies::Resolve => return Some(self.resolve(world).await),
            Dies::Answer | Dies::Database => return Some(self.lose_commit(&mut stage).await),
        };
        let _worker = world.worker().await;
        if self.point.dies == Dies::Setup {
            world.start_run().await;
        }
        Some(self.settled(world, begun, in_doubt).await)
    }

    /// The world in which it happens.
    async fn stage(&self, provider: &Provider) -> Option<Stage> {
        let ledger = if self.ledger == LedgerKind::Sqlite { "s" } else { "p" };
        let suite = if self.suite == Suite::Matrix { "m" } else { "once" };
        let name = format!("{suite}-{}-{ledger}-{}", self.point.name, self.provider.name());
        let count = usize::try_from(self.suite.customers()).unwrap();
        let mut customers: Vec<Customer> = (1..=count)
            .map(|number| Customer::new(format!("customer-{number:04}"), number))
            .collect();
        if self.point.dies == Dies::WideRun {
            // Sorted into the middle, and of no use: their ids look like addresses.
            customers.extend((0..=FREEZE_PAGE).map(|number| {
                let id = format!("customer-0008@{number:04}");
                Customer { rows: 0, ..Customer::new(id, number) }
            }));
        }
        let mut plan = world(&name)
            .these(customers)
            .with("dispatch.page_size", 8)
            .with("dispatch.in_flight", i64::try_from(IN_FLIGHT).unwrap())
            .with("provider.rate_per_second", 100.0);
        plan = provider.serve(plan);
        if self.point.dies == Dies::Setup {
            plan = plan.setup_dies_at(&self.armed());
        }
        let kills = self.point.dies == Dies::Database;
        if !matches!(self.point.dies, Dies::Answer | Dies::Database) {
            plan = if self.ledger == LedgerKind::Postgres { plan.postgres() } else { plan };
            let world = plan.start().await?;
            return Some(Stage { world, proxy: None, postgres: None });
        }
        let shared = Postgres::shared("a commit whose answer is lost").await.unwrap()?;
        let own = if kills { Postgres::start_own().await.unwrap() } else { None };
        let server = own.as_ref().unwrap_or(shared);
        let url = server.database("lost_commit").await.unwrap();
        let direct = Url::parse(&url).unwrap();
        let (host, port) = (direct.host_str().unwrap(), direct.port().unwrap());
        let proxy = Proxy::start(format!("{host}:{port}")).await.unwrap();
        let mut through = direct.clone();
        through.set_ip_host(proxy.address().ip()).unwrap();
        through.set_port(Some(proxy.address().port())).unwrap();
        plan = plan.postgres_at(url.clone()).with("ledger.url", through.to_string());
        let mut world = plan.start().await?;
        world.ledger = Database::Postgres(url);
        Some(Stage { world, proxy: Some(proxy), postgres: own })
    }

    /// Lets a worker die at the point; returns how many operations were in mid-air.
    async fn kill_worker(&self, world: &World) -> u64 {
        if self.point.dies == Dies::LongRun {
            world.start_run().await;
            let id = format!("{}-run:{}", world.campaign, crate::end_to_end::world::PERIOD);
            let poke = |_| world.signal_raw(&id, "look", Vec::new());
            stream::iter(0..=HISTORY_MAX).map(poke).buffer_unordered(100).count().await;
        }
        let worker = world.worker_that_dies_at(&self.armed()).await;
        if self.point.dies != Dies::LongRun {
            world.start_run().await;
        }
        if self.point.dies == Dies::Stopped {
            let count = usize::try_from(self.suite.customers()).unwrap();
            let enough = StdRng::seed_from_u64(self.seed).random_range(1..=count / 2);
            until("some messages", async || (world.inbox().len() >= enough).then_some(())).await;
            worker.terminate();
        }
        worker.killed_by_itself().await;
        world.check().await;
        let under_way = world.under_way().await;
        if matches!(self.point.name, "answer-waiting" | "accepted" | "outcome-uncommitted") {
            let inbox = world.inbox();
            let taken = under_way.iter().any(|key| inbox.contains_key(key));
            assert!(taken, "nothing was taken whose outcome is not recorded: {under_way:?}");
        }
        u64::try_from(under_way.len()).unwrap()
    }

    /// What must be so in the end.
    async fn settled(&self, world: &World, begun: Instant, in_doubt: u64) -> Report {
        let status = world.closed().await;
        let settled_in = begun.elapsed();
        world.check_at_rest().await;
        assert_eq!(status["selected"], self.suite.customers(), "{status:#}");
        let lost = if self.point.doubts { 3 } else { 0 };
        let most = if self.provider.settles() { 0 } else { in_doubt + lost };
        let unknown = count(&status, "unknown");
        assert!(unknown <= most, "{unknown} are unknown, and {most} can be: {status:#}");
        let ends = count(&status, "cleaned") + unknown;
        assert_eq!(ends, u64::from(self.suite.customers()), "{status:#}");
        Report { settled_in, unknown }
    }

    /// A person's decision that is interrupted, and made again where it was not recorded.
    async fn resolve(&self, world: &World) -> Report {
        let worker = world.worker().await;
        world.start_run().await;
        let status = world.closed().await;
        assert_eq!(status["unknown"], 3, "{status:#}");
        let unknown = world.operations().await.into_iter().filter(|(_, state)| state == "unknown");
        let unknown: Vec<String> = unknown.map(|(key, _)| key).collect();
        let drawn = StdRng::seed_from_u64(self.seed).random_range(0..unknown.len());
        let key = OperationKey::parse(&unknown[drawn]).unwrap();
        let text = key.to_string();
        let resolve = ["resolve", &text, "--delivered", "--reason", "asked-for", "--yes"];
        world.digestd_that_dies_at(&self.armed(), &resolve).await;
        world.check().await;
        let begun = Instant::now();
        if self.point.name == "decision-uncommitted" {
            assert_eq!(world.operations().await[&text], "unknown");
            let again = world.digestd_with(&resolve).await;
            assert_eq!(again.code, 0, "{again:?}");
        } else {
            // Nobody has told the workflow; the sweep does, also that of the next worker.
            assert_eq!(world.operations().await[&text], "sent");
            worker.kill();
            world.half_a_minute_passes().await;
        }
        let _worker = world.worker().await;
        world.until_state(&key, "cleaned").await;
        let mut report = self.settled(world, begun, 0).await;
        assert_eq!(report.unknown, 2);
        report.settled_in = begun.elapsed();
        report
    }

    /// The answer of a commit is lost, and maybe the database with it, while everybody else goes on.
    async fn lose_commit(&self, stage: &mut Stage) -> Report {
        let world = &stage.world;
        let proxy = stage.proxy.as_ref().unwrap();
        let _worker = world.worker().await;
        world.start_run().await;
        let enough = usize::try_from(self.passage()).unwrap();
        until("some messages", async || (world.inbox().len() >= enough).then_some(())).await;
        proxy.plant(Fault::LoseCommitAnswer);
        until("a commit", async || (!proxy.is_planted()).then_some(())).await;
        if let Some(postgres) = &mut stage.postgres {
            postgres.kill().await.unwrap();
            postgres.restart().await.unwrap();
        }
        let begun = Instant::now();
        let world = &stage.world;
        world.check().await;
        self.settled(world, begun, 0).await
    }
}

/// A world, and what may fail of it.
struct Stage {
    world: World,
    proxy: Option<Proxy>,
    postgres: Option<Postgres>,
}

fn count(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap()
}
