//! `digestd audit`: whether the books of a period balance.

use crate::assemble;
use crate::audit::{Audit, Named, Report};
use crate::cli::read::AuditArgs;
use crate::cli::{Exit, UsageError};
use crate::config::{Config, Secrets};
use crate::output;
use crate::table::Table;
use anyhow::bail;
use digest_activities::ledger::{Ledger, LedgerError, RunState};
use digest_workflows::operation::Period;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// An audit that takes longer than this shows how far it is.
const SILENT: Duration = Duration::from_secs(2);

/// Compares selection, ledger, engine and provider of a period. The exit code is 1 where anything
/// differs.
///
/// # Errors
/// No such run, records that were removed by retention, or a ledger, engine or provider that does
/// not answer.
pub(super) async fn run(config: Config, args: AuditArgs) -> anyhow::Result<Exit> {
    let secrets = Secrets::from_env()?;
    let ledger = assemble::ledger(&config, &secrets).await?;
    must_have_records(&ledger, &config.campaign.name, args.period).await?;
    let provider = if args.no_provider {
        Err("--no-provider")
    } else {
        assemble::provider_to_ask(&config, &secrets).await?
    };
    let client = assemble::engine(&config, true).await?;
    let audit = Audit { config: &config, ledger: &ledger, client, provider, period: args.period };
    let report = with_progress(audit).await?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(if report.balanced { Exit::Done } else { Exit::Failed })
}

/// Refuses a period that there is nothing to compare about. Exit code 1 is for differences, so a
/// period without a run is a mistake of the command line.
async fn must_have_records(ledger: &Ledger, campaign: &str, period: Period) -> anyhow::Result<()> {
    let Some(run) = ledger.run(campaign, period).await? else {
        let campaign = campaign.to_owned();
        let error = LedgerError::NoSuchRun { campaign, period: period.to_string() };
        return Err(UsageError(error.to_string()).into());
    };
    if run.state == RunState::Closed
        && let Some(why) = run.missed_because
    {
        bail!("the books of {period} cannot be audited any more: {why}");
    }
    Ok(())
}

async fn with_progress(audit: Audit<'_>) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let bar = RefCell::new(None);
    let said = |done, of| {
        if begun.elapsed() > SILENT {
            bar.borrow_mut().get_or_insert_with(|| bar_of(of)).set_position(done);
        }
    };
    let report = audit.run(said).await;
    if let Some(bar) = bar.borrow_mut().take() {
        bar.finish_and_clear();
    }
    report
}

fn bar_of(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("comparing {wide_bar} {pos}/{len} {elapsed}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The report as people read it: counts, differences, what to do, and the summary last.
fn text(report: &Report) -> String {
    let mut text = format!("{} ({}): {}\n\n", report.run, report.period, report.run_state);
    let mut table = Table::new(&["state", "count"]);
    for (state, count) in &report.states {
        table.row([*state, &count.to_string()]);
    }
    table.row(["selected", &report.selected.to_string()]);
    text.push_str(&format!("{table}\n\n"));
    for (heading, named) in [("differs", &report.differences), ("noted", &report.noted)] {
        if !named.is_empty() {
            text.push_str(&format!("{}\n\n", list(heading, named)));
        }
    }
    if let Some(why) = report.provider_not_asked {
        text.push_str(&format!("the provider was not asked: {why}\n"));
    }
    if report.compared.provider_elsewhere > 0 {
        text.push_str(&format!(
            "{} were handed to another provider or account, which cannot be asked\n",
            report.compared.provider_elsewhere
        ));
    }
    text.push_str(&summary(report));
    text
}

/// The keys, and below them once what to do about each kind.
fn list(heading: &str, named: &[Named]) -> String {
    let mut table = Table::new(&[heading, "key", "expected", "found"]);
    let mut cures = String::new();
    let mut last = "";
    for one in named {
        table.row([one.kind, &one.key, &one.expected, &one.found]);
        if one.kind != last {
            cures.push_str(&format!("\n  {}: {}", one.kind, one.cure));
        }
        last = one.kind;
    }
    format!("{table}\n\nwhat to do, for the first of each kind:{cures}")
}

/// The last sentence.
fn summary(report: &Report) -> String {
    let compared = report.compared;
    let provider =
        compared.provider.map_or_else(String::new, |asked| format!(", {asked} with the provider"));
    let waiting = match report.waiting_for_human {
        0 => String::new(),
        count => format!("; {count} rest as unknown or expired"),
    };
    let keys = format!(
        "{} keys compared in the ledger, {} with the engine{provider}{waiting}",
        compared.ledger, compared.engine
    );
    match report.differences.len() {
        0 => format!("the books balance: {keys}"),
        1 => format!("the books do not balance, 1 difference: {keys}"),
        count => format!("the books do not balance, {count} differences: {keys}"),
    }
}
