//! digestd under load: `cargo bench -p digestd --bench load -- --help`.
//!
//! Rates say little by themselves: they are those of one machine at one time. So digestd is measured
//! in turns with what the same engine does with as many child workflows that do nothing, started by
//! the same pages, and what counts are the ratios.

#![expect(clippy::print_stdout, reason = "what was measured is told there")]

mod args;
mod bare;
mod cpu;
mod database;
mod deployment;
mod figures;
mod plot;
mod report;
mod scale;

use anyhow::Context as _;
use args::Args;
use clap::Parser as _;
use digestd::engine::binary::Search;
use digestd::engine::server::{DevServer, ServerOptions};
use figures::{Figures, Place, What, median};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let args = Args::parse();
    let binary = Search::from_env().find(&|_| {}).await.context("the Temporal CLI")?;
    let options = ServerOptions { binary, file: None, ui: false, search_attributes: true };
    let engine = DevServer::start(options).await?;
    let client = engine.client("load").await?;
    let postgres = deployment::postgres(&args).await?;
    let place = Place { engine, client, postgres };
    if args.scale {
        return scale::measure(&place, &args).await;
    }
    if let Some(knob) = args.vary {
        let mut points = Vec::new();
        for value in knob.values() {
            let at = args.at(knob, *value);
            points.push((*value, repeated(&place, &at, &[What::Digestd]).await?.remove(0)));
        }
        if args.json {
            println!("{}", serde_json::to_string_pretty(&points)?);
        } else {
            println!("{}", report::varied(&args, knob, &points));
        }
        return std::fs::write(&args.plot, plot::svg(&args, knob, &points))
            .with_context(|| format!("cannot write the plot to {}", args.plot.display()));
    }
    let all = What::ALL;
    let figures = repeated(&place, &args, &all).await?;
    if args.json {
        let named: Vec<_> = all.iter().zip(&figures).collect();
        println!("{}", serde_json::to_string_pretty(&named)?);
    } else {
        let runs: Vec<_> = all.into_iter().zip(figures).collect();
        println!("{}", report::compared(&args, &runs));
    }
    Ok(())
}

/// Each measured as often as asked, in turns, so that a neighbour who is busy for a while spoils one
/// of each; the medians, in the order of `all`.
async fn repeated(place: &Place, args: &Args, all: &[What]) -> anyhow::Result<Vec<Figures>> {
    let mut runs = vec![Vec::new(); all.len()];
    for turn in 0..args.repeat.max(1) {
        for (what, runs) in all.iter().zip(&mut runs) {
            let name = format!("load-{}-{turn}", uuid::Uuid::new_v4().simple());
            runs.push(match what {
                What::Digestd => place.digestd(args, &name).await?,
                bare => place.bare(args, &name, *bare).await?,
            });
        }
    }
    Ok(runs.into_iter().map(median).collect())
}
