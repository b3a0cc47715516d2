//! Tables.

use crate::args::{Args, Knob, LedgerKind};
use crate::figures::Figures;
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

/// digestd beside the children that do nothing; `figures` in the order empty, no-ops, digestd.
pub(crate) fn compared(args: &Args, figures: &[Figures]) -> String {
    let [empty, no_ops, digestd] = figures else { return String::new() };
    let mut rates = table(&[
        "",
        "per second",
        "to two no-ops",
        "to an empty child",
        "engine ms",
        "worker ms",
        "of it SQLite ms",
        "PostgreSQL ms",
    ]);
    for (name, one) in
        [("empty child", empty), ("two no-op local activities", no_ops), ("digestd", digestd)]
    {
        rates.add_row([
            name.to_owned(),
            format!("{:.1}", one.rate),
            format!("{:.2}", one.rate / no_ops.rate),
            format!("{:.2}", one.rate / empty.rate),
            format!("{:.1}", one.engine),
            format!("{:.1}", one.worker),
            format!("{:.1}", one.sqlite),
            format!("{:.1}", one.postgres),
        ]);
    }
    let mut text = format!(
        "{}\n\n{rates}\n\nmilliseconds are of processor time, for each operation\n",
        setting(args)
    );
    if args.ledger == LedgerKind::Postgres {
        text.push_str(&format!(
            "PostgreSQL was asked {:.1} statements for each operation, and forced its log {:.2} times\n",
            digestd.statements, digestd.syncs
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
        ]);
    }
    format!("{}\n\n{table}", setting(args))
}
