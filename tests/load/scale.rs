//! Many customers: the freeze, the page loop and the memory, each apart from what the engine does.

use crate::args::Args;
use crate::cpu;
use crate::deployment::{Deployment, PERIOD};
use crate::figures::Place;
use anyhow::Context as _;
use digest_activities::ledger::Ledger;
use digest_workflows::operation::Period;
use std::time::Instant;

/// The bound of a page's keys, as the product has it.
const KEYS_BYTES_MAX: usize = 7_000;

/// Freezes all customers in a run that is held; then enqueues them page by page without an engine.
pub(crate) async fn measure(place: &Place, args: &Args) -> anyhow::Result<()> {
    let name = "load-scale";
    let engine = place.engine.address();
    let mut deployment = Deployment::new(args, name, engine, place.postgres.as_ref()).await?;
    deployment.start_workers(1).await?;
    let worker = deployment.processes()[0];
    println!("worker, idle: {:.0} MB", cpu::memory(worker).0);
    deployment.digestd(&["hold", "--period", PERIOD, "--reason", "measured apart"])?;
    deployment.digestd(&["run", "--period", PERIOD])?;
    let frozen = "select #count(*)# from @runs where frozen_at is not null";
    deployment.until(frozen, |runs| runs > 0.0).await?;
    freeze(&deployment, args).await?;
    let (now, peak) = cpu::memory(worker);
    println!("worker, after the freeze: {now:.0} MB, at its highest {peak:.0} MB");
    deployment.stop_workers();
    pages(&deployment, args, name).await?;
    println!("(in {})", deployment.folder().display());
    Ok(())
}

/// The time of each tenth of the freeze, by the ledger's clock.
async fn freeze(deployment: &Deployment, args: &Args) -> anyhow::Result<()> {
    let tenth = (args.customers / 10).max(1);
    let sql = format!(
        "select #(position - 1) / {tenth}#, #min(frozen_at)#, #max(frozen_at)# from @operations \
         group by (position - 1) / {tenth} order by 1"
    );
    let rows = deployment.database.numbers(&sql).await?;
    println!("freeze, milliseconds per 1,000 customers, by tenths:");
    for (tenths, pair) in rows.windows(2).enumerate() {
        let took = pair[1][1] - pair[0][1];
        println!("  {:>3}0 %: {:.0}", tenths + 1, took * 1000.0 / f64::from(tenth));
    }
    Ok(())
}

/// The time of each tenth of the page loop at the ledger: enqueue, and ask how the run stands.
async fn pages(deployment: &Deployment, args: &Args, name: &str) -> anyhow::Result<()> {
    let ledger = Ledger::connect(deployment.database.url(), "digestd").await?;
    let period: Period = PERIOD.parse().context("the period")?;
    let (mut after, mut done) = (0, false);
    let mut times = Vec::new();
    while !done {
        let begun = Instant::now();
        let page = ledger.enqueue(name, period, after, args.page_size, KEYS_BYTES_MAX).await?;
        ledger.standing(name, period).await?;
        (after, done) = (page.last, page.done);
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    println!("page loop at the ledger, milliseconds per page, by tenths:");
    for (tenths, part) in times.chunks(times.len().div_ceil(10)).enumerate() {
        let mean = part.iter().sum::<f64>() / f64::from(u32::try_from(part.len())?);
        println!("  {:>3}0 %: {mean:.1}", tenths + 1);
    }
    ledger.close().await;
    Ok(())
}
