//! What is measured: one setting of everything, and what of it is varied.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Measures digestd under load, beside the least that the engine could do with the same number of
/// workflows: a child with two local activities that do nothing, and an empty child.
#[derive(Clone, Debug, Parser)]
#[command(name = "load")]
pub(crate) struct Args {
    /// How many customers.
    #[arg(long, default_value_t = 600)]
    pub(crate) customers: u32,
    /// The share of requests that fail, from 0 to 1: half of them are refused as overload, half are
    /// accepted and answered after three seconds, while an answer is waited for one.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) fail: f64,
    /// Measures digestd at several values of this, and nothing beside it.
    #[arg(long)]
    pub(crate) vary: Option<Knob>,
    /// Where the ledger is.
    #[arg(long, default_value = "sqlite")]
    pub(crate) ledger: LedgerKind,
    /// How many workers.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: u32,
    /// Operations that a worker delivers at once.
    #[arg(long, default_value_t = 100)]
    pub(crate) concurrency: u32,
    /// Operations that one page starts.
    #[arg(long, default_value_t = 100)]
    pub(crate) page_size: u32,
    /// Operations enqueued and not yet past their first attempt.
    #[arg(long, default_value_t = 500)]
    pub(crate) in_flight: u32,
    /// How long a late answer is listened for, in seconds.
    #[arg(long, default_value_t = 8)]
    pub(crate) lease: u32,
    /// How long the provider takes for an answer, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) latency: u32,
    /// How often each is measured, one after the other in turns; medians are told.
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: u32,
    /// Measures the freeze, the page loop and the worker's memory with this many customers instead.
    #[arg(long)]
    pub(crate) scale: bool,
    /// Prints JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the plot of a varied setting goes.
    #[arg(long, default_value = "target/load.svg")]
    pub(crate) plot: PathBuf,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Where the ledger and the shop are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LedgerKind {
    /// Two files.
    Sqlite,
    /// One database of a server of its own, which forces every commit to the disk.
    Postgres,
}

impl LedgerKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// What can be varied; each independently of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Knob {
    /// Operations that a worker delivers at once.
    Concurrency,
    /// Operations that one page starts.
    PageSize,
    /// How long a late answer is listened for.
    Lease,
    /// How long the provider takes.
    Latency,
}

impl Knob {
    /// The values that it takes.
    pub(crate) const fn values(self) -> &'static [u32] {
        match self {
            Self::Concurrency => &[5, 10, 25, 50, 100, 200],
            Self::PageSize => &[10, 25, 50, 100, 200, 400],
            Self::Lease => &[2, 3, 4, 6, 8],
            Self::Latency => &[0, 50, 100, 200, 400, 800],
        }
    }

    /// What it is called, with its unit.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Concurrency => "worker.concurrency",
            Self::PageSize => "dispatch.page_size",
            Self::Lease => "provider.lease, seconds",
            Self::Latency => "the provider's latency, milliseconds",
        }
    }
}

impl Args {
    /// The same with another value of `knob`.
    pub(crate) fn at(&self, knob: Knob, value: u32) -> Self {
        let mut args = self.clone();
        match knob {
            Knob::Concurrency => args.concurrency = value,
            Knob::PageSize => args.page_size = value,
            Knob::Lease => args.lease = value,
            Knob::Latency => args.latency = value,
        }
        args
    }
}
