//! `digestd schedule`: the campaign's schedule in the engine, and making up for a week.

use crate::assemble;
use crate::cli::operate::{RunArgs, ScheduleAction, ScheduleArgs};
use crate::cli::{Exit, UsageError};
use crate::config::Config;
use crate::engine::schedule::{self, Shown};
use crate::output;
use crate::report::clock;
use crate::table::Table;
use digest_workflows::operation::Period;
use jiff::Timestamp;

/// Shows, pauses or resumes the schedule, or starts the run of a past period.
///
/// # Errors
/// An unreachable engine, no such schedule, or a cron that must not be resumed.
pub(super) async fn run(config: Config, args: ScheduleArgs) -> anyhow::Result<Exit> {
    match args.action {
        ScheduleAction::Show { json } => show(&config, json).await,
        ScheduleAction::Pause { note } => pause(&config, note.as_deref()).await,
        ScheduleAction::Resume { note } => resume(&config, note.as_deref()).await,
        ScheduleAction::Backfill { period } => backfill(config, period).await,
    }
}

async fn show(config: &Config, json: bool) -> anyhow::Result<Exit> {
    let client = assemble::engine(config, false).await?;
    let shown = schedule::show(&client, &config.campaign.name).await?;
    if json {
        output::print_json(&shown)?;
    } else {
        output::print(&text(config, &shown))?;
    }
    Ok(Exit::Done)
}

async fn pause(config: &Config, note: Option<&str>) -> anyhow::Result<Exit> {
    let client = assemble::engine(config, false).await?;
    let campaign = &config.campaign.name;
    let shown = schedule::show(&client, campaign).await?;
    if shown.paused {
        output::print(&format!("schedule {} was paused before: {}", shown.id, shown.note))?;
        return Ok(Exit::AlreadyHappened);
    }
    schedule::pause(&client, campaign, note.unwrap_or_default()).await?;
    output::print(&format!(
        "schedule {} is paused: no run is started; those under way go on. A week that passes is \
         recorded as missed, and `digestd schedule backfill` makes up for it",
        shown.id
    ))?;
    Ok(Exit::Done)
}

async fn resume(config: &Config, note: Option<&str>) -> anyhow::Result<Exit> {
    // A tick that the engine would skip or double is refused before it can happen.
    config.calendar()?.check(Timestamp::now())?;
    let client = assemble::engine(config, true).await?;
    let campaign = &config.campaign.name;
    let shown = schedule::show(&client, campaign).await?;
    if let Some(difference) = differs(config, &shown) {
        return Err(UsageError(format!("{difference}, so it was not resumed")).into());
    }
    if !shown.paused {
        output::print(&format!("schedule {} is not paused; nothing was changed", shown.id))?;
        return Ok(Exit::AlreadyHappened);
    }
    schedule::resume(&client, campaign, note.unwrap_or_default()).await?;
    let next = shown
        .next
        .first()
        .map_or_else(String::new, |at| format!("; the next tick is {}", clock(*at)));
    output::print(&format!("schedule {} is resumed{next}", shown.id))?;
    Ok(Exit::Done)
}

/// Starts the run of a past period directly: it names its period, so it is never late.
async fn backfill(config: Config, period: Period) -> anyhow::Result<Exit> {
    let (_, tick) = config.calendar()?.window(period)?;
    if tick > Timestamp::now() {
        return Err(UsageError(format!(
            "the tick of {period} is still ahead, at {tick}, so there is nothing to make up for; \
             `digestd run --period {period} --future` starts its run now"
        ))
        .into());
    }
    let args = RunArgs { period, wait: false, dry_run: false, future: false };
    super::run::run(config, args).await
}

/// How the schedule differs from the configuration, and the cure.
pub(crate) fn differs(config: &Config, shown: &Shown) -> Option<String> {
    let campaign = &config.campaign;
    let (cron, zone) = (shown.cron.as_deref().unwrap_or("another calendar"), &shown.timezone);
    let same = shown.cron.as_deref() == Some(campaign.cron.as_str())
        && *zone == campaign.timezone
        && shown.catch_up_seconds == campaign.catch_up.as_secs();
    (!same).then(|| {
        format!(
            "schedule {} fires at {cron:?} in {zone} and catches up for {} s, and the configuration \
             says {:?} in {} and {} s; `digestd setup` brings it up to date",
            shown.id,
            shown.catch_up_seconds,
            campaign.cron,
            campaign.timezone,
            campaign.catch_up.as_secs()
        )
    })
}

fn text(config: &Config, shown: &Shown) -> String {
    let state = if shown.paused { "paused" } else { "running" };
    let mut text = format!(
        "schedule {}: {state}\n{} in {}\nnote: {}",
        shown.id,
        shown.cron.as_deref().unwrap_or("times that somebody else has set"),
        shown.timezone,
        shown.note
    );
    if let Some(difference) = differs(config, shown) {
        text.push_str(&format!("\n{difference}"));
    }
    if shown.missed_catch_up > 0 {
        text.push_str(&format!(
            "\n{} ticks were missed because the engine was away for longer than catch_up",
            shown.missed_catch_up
        ));
    }
    if let Ok(calendar) = config.calendar() {
        let mut table = Table::new(&["next tick", "period"]);
        for tick in &shown.next {
            let period = Period::of(*tick, calendar.zone());
            table.row([clock(*tick), period.to_string()]);
        }
        text.push_str(&format!("\n\n{table}"));
    }
    if !shown.recent.is_empty() {
        let mut table = Table::new(&["started for", "at", "workflow", "state"]);
        for start in &shown.recent {
            let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), clock);
            table.row([
                time(start.scheduled),
                time(start.started),
                start.workflow_id.clone(),
                start.status.to_owned(),
            ]);
        }
        text.push_str(&format!("\n\n{table}"));
    }
    text
}
