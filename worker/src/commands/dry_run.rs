//! `digestd run --dry-run`: selects and renders everything; sends and stores nothing.

use crate::assemble;
use crate::cli::Exit;
use crate::config::{Config, Secrets};
use crate::output;
use crate::table::Table;
use digest_activities::message::{RenderInput, Rendered};
use digest_activities::source::{CustomerId, Parameters};
use digest_workflows::operation::Period;
use indicatif::ProgressBar;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many customers one page reads.
const PAGE: u32 = 500;

/// Selects and renders every message of `period`, and prints what would become of them.
///
/// # Errors
/// An unreachable source, or a query or template that cannot be used.
pub(super) async fn run(
    config: &Config,
    secrets: &Secrets,
    period: Period,
) -> anyhow::Result<Exit> {
    let source = assemble::source(config, secrets)?;
    let templates = assemble::templates(config, secrets)?;
    let now = Timestamp::now();
    let (period_start, period_end) = config.calendar()?.window(period)?;
    let parameters = Parameters {
        campaign: &config.campaign.name,
        period,
        selected_at: now,
        period_start,
        period_end: period_end.min(now),
    };
    let bar = ProgressBar::new(source.count(&parameters).await?);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    let mut segments = None;
    let mut count = |outcome: String, rows: u64| *outcomes.entry(outcome).or_default() += rows;
    let mut after: Option<CustomerId> = None;
    loop {
        let page = source.customers_page(&parameters, after.as_ref(), PAGE).await?;
        let ids: Vec<CustomerId> = page.customers.iter().map(|c| c.id.clone()).collect();
        let mut rows = source.rows_page(&parameters, &ids).await?;
        for fault in &page.faults {
            count(format!("not selected: {}", fault.reason), fault.rows);
        }
        for customer in &page.customers {
            let rows: Vec<Value> = match rows.remove(&customer.id) {
                Some(Err(reason)) => {
                    count(format!("not selected: {reason}"), 1);
                    continue;
                }
                Some(Ok(rows)) => rows.into_iter().map(Value::Object).collect(),
                None => Vec::new(),
            };
            let input = RenderInput {
                key: &customer.key,
                customer: customer.data.reveal(),
                rows: &rows,
                selected_at: now,
            };
            match templates.render(&input) {
                Ok(Rendered::Message(message)) => match message.length() {
                    Some(length) => {
                        *segments.get_or_insert(0) += length.segments;
                        let each = format!("{}, {}", length.in_segments(), length.encoding);
                        count(format!("would be sent in {each}"), 1);
                    }
                    None => count("would be sent".to_owned(), 1),
                },
                Ok(Rendered::NothingToSend) => count("suppressed: nothing to send".to_owned(), 1),
                Err(failure) => count(format!("dead letter: {failure}"), 1),
            }
        }
        bar.inc(page.seen);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    let mut table = Table::new(&["what would become of them", "count"]);
    for (outcome, count) in &outcomes {
        table.row([outcome.as_str(), &count.to_string()]);
    }
    output::print(&table.to_string())?;
    if let Some(segments) = segments {
        output::print(&format!("text messages are paid for by their segments: {segments} in all"))?;
    }
    let faulty = outcomes
        .keys()
        .any(|outcome| !outcome.starts_with("would") && !outcome.starts_with("suppressed"));
    Ok(if faulty { Exit::NeedsHuman } else { Exit::Done })
}
