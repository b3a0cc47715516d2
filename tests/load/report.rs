//! Tables.

use crate::args::{Args, Knob};
use crate::figures::{Figures, What};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What was the same in every run.
fn setting(args: &Args) -> String {
    let Args { customers, fail, workers, concurrency, page_size, in_flight, latency, .. } = args;
    format!(
        "{customers} customers, {:.0} % of requests fail, ledger on {}, {workers} worker(s) of \
         {concurrency}, pages of {page_size}, {in_flight} in flight, latency {latency} ms, median of \
         {} run(s)",
        fail * 100.0,
        args.ledger.name(),
        args.repeat
    )
}

/// Everything that was measured in turns, beside each other.
pub(crate) fn compared(args: &Args, runs: &[(What, Figures)]) -> String {
    let rate = |what| runs.iter().find(|(of, _)| *of == what).map_or(1.0, |(_, run)| run.rate);
    let mut rates = table(&[
        "",
        "per second",
        "to two no-ops",
        "with attributes",
        "to an empty child",
        "engine ms",
        "worker ms",
        "of it SQLite ms",
        "PostgreSQL ms",
        "provider ms",
        "worker MB",
    ]);
    for (what, run) in runs {
        rates.add_row([
            what.name().to_owned(),
            format!("{:.1}", run.rate),
            format!("{:.2}", run.rate / rate(What::TwoNoOps)),
            format!("{:.2}", run.rate / rate(What::NoOpsWithAttributes)),
            format!("{:.2}", run.rate / rate(What::EmptyChild)),
            format!("{:.1}", run.engine),
            format!("{:.1}", run.worker),
            format!("{:.1}", run.sqlite),
            format!("{:.1}", run.postgres),
            format!("{:.1}", run.provider),
            format!("{:.0}", run.memory),
        ]);
    }
    let mut text = format!(
        "{}\n\n{rates}\n\nmilliseconds are of processor time, for each operation\n",
        setting(args)
    );
    if let Some((_, run)) = runs.iter().find(|(_, run)| run.statements > 0.0) {
        text.push_str(&format!(
            "PostgreSQL was asked {:.1} statements for each operation, and forced its log {:.2} times\n",
            run.statements, run.syncs
        ));
    }
    text
}

/// digestd at each value of a knob.
pub(crate) fn varied(args: &Args, knob: Knob, points: &[(u32, Figures)]) -> String {
    let mut table = table(&[
        knob.title(),
        "per second",
        "unknown at first",
        "left to a human",
        "enqueued to begun, ms",
        "95 %",
        "failed to begun again, ms",
        "95 %",
        "worker ms",
        "worker MB",
    ]);
    for (value, at) in points {
        table.add_row([
            value.to_string(),
            format!("{:.1}", at.rate),
            format!("{:.1} %", at.unknown * 100.0),
            format!("{:.1} %", at.left * 100.0),
            format!("{:.0}", at.claim[0]),
            format!("{:.0}", at.claim[1]),
            format!("{:.0}", at.retry[0]),
            format!("{:.0}", at.retry[1]),
            format!("{:.1}", at.worker),
            format!("{:.0}", at.memory),
        ]);
    }
    format!("{}\n\n{table}", setting(args))
}
