//! Gauges: how the campaign stands in the ledger, and how this process is.

use digest_activities::ledger::{Figures, Holder, LatestRun};
use digest_activities::webhook::SuppressionReason;
use digest_workflows::operation::FailureClass;
use prometheus::proto::MetricFamily;
use prometheus::{Error, GaugeVec, Opts, Registry};
use std::collections::HashMap;

/// How this process is.
pub(super) struct Process {
    pub(super) ledger_is_up: bool,
    pub(super) draining: bool,
    pub(super) listening: u64,
    pub(super) places: u64,
}

/// The gauges of `campaign`; without `figures` only those of the process.
pub(super) fn families(
    campaign: &str,
    process: &Process,
    figures: Option<&Figures>,
) -> Result<Vec<MetricFamily>, Error> {
    let labels = HashMap::from([("campaign".to_owned(), campaign.to_owned())]);
    let page = Page(Registry::new_custom(None, Some(labels))?);
    of_process(&page, process)?;
    if let Some(figures) = figures {
        of_ledger(&page, figures)?;
        if let Some(latest) = &figures.latest {
            of_latest_run(&page, latest)?;
        }
    }
    Ok(page.0.gather())
}

fn of_process(page: &Page, process: &Process) -> Result<(), Error> {
    let version: &[&str] = &[env!("CARGO_PKG_VERSION")];
    page.gauges(
        "digestd_build_info",
        "1 for each worker that is up, with its version.",
        &["version"],
        [(version, 1.0)],
    )?;
    page.gauge(
        "digestd_ledger_up",
        "Whether the ledger answered just now. While it does not, its gauges are absent.",
        flag(process.ledger_is_up),
    )?;
    page.gauge("digestd_draining", "Whether the worker is draining.", flag(process.draining))?;
    page.gauge(
        "digestd_listening_sessions",
        "Requests handed over whose answer is awaited, late ones too.",
        number(process.listening),
    )?;
    page.gauge(
        "digestd_listening_sessions_max",
        "How many there may be at once ([worker] listening); beyond it nothing new begins.",
        number(process.places),
    )
}

fn of_ledger(page: &Page, figures: &Figures) -> Result<(), Error> {
    page.gauge(
        "digestd_oldest_pending_seconds",
        "How long the oldest operation that could be sent now has waited; held and unknown ones \
         are left out.",
        figures.oldest_pending,
    )?;
    page.gauge(
        "digestd_unknown_operations",
        "Operations in doubt: the provider may or may not have accepted.",
        number(figures.unknown),
    )?;
    page.gauge(
        "digestd_unknown_overdue_operations",
        "Operations in doubt for longer than [unknown] escalate_after.",
        number(figures.overdue),
    )?;
    page.gauge(
        "digestd_oldest_unknown_seconds",
        "The age of the oldest doubt.",
        figures.oldest_unknown,
    )?;
    let classes: Vec<_> = FailureClass::ALL
        .into_iter()
        .map(|class| ([class.name()], figures.dead.get(&class).copied().unwrap_or_default()))
        .collect();
    page.gauges(
        "digestd_dead_letters",
        "Dead letters of all periods that were not replayed, by failure class.",
        &["class"],
        classes.iter().map(|(class, count)| (class.as_slice(), number(*count))),
    )?;
    page.gauge(
        "digestd_cleanup_pending_operations",
        "Delivered operations that wait for their cleanup.",
        number(figures.cleanup_pending),
    )?;
    page.gauge(
        "digestd_cleanup_lag_seconds",
        "How long the oldest of them has waited.",
        figures.cleanup_lag,
    )?;
    page.gauge(
        "digestd_cleanup_failed_operations",
        "Delivered operations whose cleanup was given up.",
        number(figures.cleanup_failed),
    )?;
    let reasons = SuppressionReason::ALL.map(|reason| {
        ([reason.name()], figures.suppressed.get(reason.name()).copied().unwrap_or_default())
    });
    page.gauges(
        "digestd_suppressed_customers",
        "Customers who are not written to any more, by what a provider told.",
        &["reason"],
        reasons.iter().map(|(reason, count)| (reason.as_slice(), number(*count))),
    )?;
    page.gauge(
        "digestd_webhook_events_pending",
        "Events of providers that are stored and not yet told to their operations.",
        number(figures.events_waiting),
    )?;
    page.gauge(
        "digestd_webhook_events_untellable",
        "Events of providers that can't be told to any operation, and are kept.",
        number(figures.events_faulty),
    )?;
    of_holds(page, figures)?;
    page.gauge(
        "digestd_runs_missed",
        "Periods recorded as missed that were not made up.",
        number(figures.missed),
    )
}

fn of_holds(page: &Page, figures: &Figures) -> Result<(), Error> {
    let held = Holder::ALL.map(|holder| {
        let count = figures.held.iter().filter(|run| run.holder == holder).count();
        ([holder.name()], count as u64)
    });
    page.gauges(
        "digestd_runs_held",
        "Runs that are held now, by who holds them.",
        &["reason"],
        held.iter().map(|(holder, count)| (holder.as_slice(), number(*count))),
    )?;
    let runs: Vec<(String, &str)> =
        figures.held.iter().map(|run| (run.period.to_string(), run.holder.name())).collect();
    let runs: Vec<[&str; 2]> =
        runs.iter().map(|(period, holder)| [period.as_str(), holder]).collect();
    page.gauges(
        "digestd_run_held",
        "1 for each run that is held now.",
        &["period", "reason"],
        runs.iter().map(|labels| (labels.as_slice(), 1.0)),
    )
}

fn of_latest_run(page: &Page, latest: &LatestRun) -> Result<(), Error> {
    let period = latest.period.to_string();
    let named: &[&str] = &[&period];
    page.gauges(
        "digestd_run_info",
        "1 for the newest run, with its state (held is told by digestd_run_held).",
        &["period", "state"],
        [([period.as_str(), latest.state.name()].as_slice(), 1.0)],
    )?;
    page.gauges(
        "digestd_run_selected_operations",
        "Eligible: operations that the newest run has selected.",
        &["period"],
        [(named, number(latest.selected))],
    )?;
    page.gauges(
        "digestd_run_unkeyed_rows",
        "Rows of the customers query that could not become operations of the newest run.",
        &["period"],
        [(named, number(latest.unkeyed))],
    )?;
    let states: Vec<_> = latest
        .operations
        .iter()
        .map(|(state, count)| ([period.as_str(), state.name()], number(*count)))
        .collect();
    page.gauges(
        "digestd_run_operations",
        "Operations of the newest run by state; sent are those not yet cleaned.",
        &["period", "state"],
        states.iter().map(|(labels, count)| (labels.as_slice(), *count)),
    )
}

/// Gauges of one moment.
struct Page(Registry);

impl Page {
    fn gauge(&self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let none: &[&str] = &[];
        self.gauges(name, help, &[], [(none, value)])
    }

    fn gauges<'a>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        samples: impl IntoIterator<Item = (&'a [&'a str], f64)>,
    ) -> Result<(), Error> {
        let gauges = GaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(gauges.clone()))?;
        for (values, value) in samples {
            gauges.with_label_values(values).set(value);
        }
        Ok(())
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[expect(clippy::cast_precision_loss, reason = "counts of operations are far below 2^52")]
const fn number(count: u64) -> f64 {
    count as f64
}
