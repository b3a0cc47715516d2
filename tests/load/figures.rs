//! What one run comes to.

use crate::args::Args;
use crate::bare;
use crate::cpu::{self, Cpu};
use crate::deployment::{Deployment, PERIOD};
use digest_tests::postgres::Postgres;
use digestd::engine::server::DevServer;
use serde::Serialize;
use temporalio_client::Client;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// A child workflow without anything in it.
    EmptyChild,
    /// A child with two local activities that do nothing.
    TwoNoOps,
    /// The same with the search attributes that digestd's children have.
    NoOpsWithAttributes,
    /// digestd.
    Digestd,
}

impl What {
    /// Everything that is compared.
    pub(crate) const ALL: [Self; 4] =
        [Self::EmptyChild, Self::TwoNoOps, Self::NoOpsWithAttributes, Self::Digestd];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EmptyChild => "empty child",
            Self::TwoNoOps => "two no-op local activities",
            Self::NoOpsWithAttributes => "the same with search attributes",
            Self::Digestd => "digestd",
        }
    }
}

/// The figures of one run; times are processor milliseconds per operation unless named otherwise.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Operations per second, from the first enqueued to the last one done.
    pub(crate) rate: f64,
    pub(crate) engine: f64,
    pub(crate) worker: f64,
    /// Of the worker: the threads of SQLite.
    pub(crate) sqlite: f64,
    pub(crate) postgres: f64,
    /// What stands for the provider, which is none of digestd's.
    pub(crate) provider: f64,
    /// The most memory that a worker of digestd had resident, in MB.
    pub(crate) memory: f64,
    /// Statements that PostgreSQL was asked, of ledger and shop, for each operation.
    pub(crate) statements: f64,
    /// Times that PostgreSQL forced its log to the disk, for each operation.
    pub(crate) syncs: f64,
    /// From enqueued to the first attempt, in milliseconds: median, and 95 in 100.
    pub(crate) claim: [f64; 2],
    /// From the end of a failed attempt to the beginning of the next, in milliseconds.
    pub(crate) retry: [f64; 2],
    /// Share of operations whose answer did not come in time.
    pub(crate) unknown: f64,
    /// Share of operations that are left to a human.
    pub(crate) left: f64,
}

/// Where everything runs.
pub(crate) struct Place {
    pub(crate) engine: DevServer,
    pub(crate) client: Client,
    pub(crate) postgres: Option<Postgres>,
}

impl Place {
    /// One run of children that do nothing.
    pub(crate) async fn bare(
        &self,
        args: &Args,
        name: &str,
        what: What,
    ) -> anyhow::Result<Figures> {
        let before = Cpu::now();
        let took = bare::run(&self.client, args, name, what).await?;
        let spent = Cpu::now().since(before, args.customers);
        Ok(Figures {
            rate: f64::from(args.customers) / took.as_secs_f64(),
            engine: spent.engine,
            worker: spent.own,
            ..Figures::default()
        })
    }

    /// One run of digestd.
    pub(crate) async fn digestd(&self, args: &Args, name: &str) -> anyhow::Result<Figures> {
        let engine = self.engine.address();
        let mut deployment = Deployment::new(args, name, engine, self.postgres.as_ref()).await?;
        deployment.start_workers(args.workers).await?;
        let asked_before = asked(&deployment).await?;
        let before = Cpu::now();
        deployment.digestd(&["run", "--period", PERIOD])?;
        let all = f64::from(args.customers);
        let at_rest = "select #count(*)# from @operations where at_rest = 1";
        deployment.until(at_rest, |count| count >= all).await?;
        let spent = Cpu::now().since(before, args.customers);
        let asked = asked(&deployment).await?;
        let peaks = deployment.processes().into_iter().map(|worker| cpu::memory(worker).1);
        let memory = peaks.fold(0.0, f64::max);
        if args.fail == 0.0 {
            let warnings = deployment.warnings()?;
            anyhow::ensure!(warnings.is_empty(), "the workers warn: {:?}", &warnings[..1]);
        }
        deployment.nobody_got_two()?;
        let each = |now: f64, then: f64| (now - then) / f64::from(args.customers);
        let found = Found::read(&deployment).await?;
        Ok(Figures {
            rate: found.rate,
            engine: spent.engine,
            worker: spent.workers,
            sqlite: spent.sqlite,
            postgres: spent.postgres,
            provider: spent.own,
            memory,
            statements: each(asked[0], asked_before[0]),
            syncs: each(asked[1], asked_before[1]),
            claim: found.claim,
            retry: found.retry,
            unknown: found.unknown,
            left: found.left,
        })
    }
}

/// How often PostgreSQL was asked, and how often it forced its log to the disk, up to now.
async fn asked(deployment: &Deployment) -> anyhow::Result<[f64; 2]> {
    if !deployment.database.is_postgres() {
        return Ok([0.0; 2]);
    }
    deployment.database.execute("create extension if not exists pg_stat_statements").await?;
    let sql = "select #sum(calls)#, #(select wal_sync from pg_stat_wal)# from pg_stat_statements \
               where dbid = (select oid from pg_database where datname = current_database())";
    let row = deployment.database.numbers(sql).await?.remove(0);
    Ok([row[0], row[1]])
}

/// What the ledger tells of a run.
struct Found {
    rate: f64,
    claim: [f64; 2],
    retry: [f64; 2],
    unknown: f64,
    left: f64,
}

impl Found {
    async fn read(deployment: &Deployment) -> anyhow::Result<Self> {
        let ask = async |sql: &str| deployment.database.numbers(sql).await;
        let row = ask("select #count(*)#, #min(enqueued_at)#, \
             #(select max(at) from @decisions where key is not null)#, \
             #(select count(distinct key) from @decisions where to_state = 'unknown')#, \
             #(select count(*) from @operations where state = 'unknown')# from @operations")
        .await?
        .remove(0);
        let [count, begun, ended, unknown, left] =
            <[f64; 5]>::try_from(row).map_err(|row| anyhow::anyhow!("{} columns", row.len()))?;
        let claims = ask("select #min(a.begun_at) - min(o.enqueued_at)# from @operations o \
             join @attempts a on a.key = o.key where a.number = 1 group by o.key")
        .await?;
        let retries = ask("select #b.begun_at - a.decided_at# from @attempts a \
             join @attempts b on b.key = a.key and b.number = a.number + 1 \
             where a.outcome = 'not_sent'")
        .await?;
        Ok(Self {
            rate: count * 1000.0 / (ended - begun).max(1.0),
            claim: quantiles(claims),
            retry: quantiles(retries),
            unknown: unknown / count,
            left: left / count,
        })
    }
}

/// The median, and what 95 in 100 stay below.
fn quantiles(rows: Vec<Vec<f64>>) -> [f64; 2] {
    let mut values: Vec<f64> = rows.into_iter().flatten().collect();
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values.get(values.len() * percent / 100).copied().unwrap_or_default();
    [at(50), at(95)]
}

/// The run with the median rate.
pub(crate) fn median(mut runs: Vec<Figures>) -> Figures {
    runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    runs.get(runs.len() / 2).copied().unwrap_or_default()
}
