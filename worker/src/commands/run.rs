//! `digestd run`: starts the run of a period, or joins the one that exists.

use crate::assemble;
use crate::cli::operate::RunArgs;
use crate::cli::{Exit, UsageError};
use crate::config::{Config, Secrets};
use crate::{links, output, report};
use anyhow::{Context, bail};
use digest_activities::ledger::{Ledger, RunState};
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::operation::Period;
use digest_workflows::run::{DigestRun, RunInput};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use std::time::Duration;
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{
    Client, WorkflowIdConflictPolicy, WorkflowIdReusePolicy, WorkflowStartOptions,
};

/// How often a waiting `run` looks at the ledger.
const LOOK: Duration = Duration::from_millis(500);

/// Starts or joins the run of `args.period`.
///
/// # Errors
/// A period whose tick is ahead without `--future`, an unreachable ledger or engine: nothing was
/// started then.
pub async fn run(config: Config, args: RunArgs) -> anyhow::Result<Exit> {
    let secrets = Secrets::from_env()?;
    let calendar = config.calendar()?;
    let (_, tick) = calendar.window(args.period)?;
    if tick > Timestamp::now() && !args.future {
        return Err(UsageError(format!(
            "the tick of {} is still ahead, at {tick}; wait for it, or start the run now with \
             --future",
            args.period
        ))
        .into());
    }
    let age = Timestamp::now().duration_since(tick);
    if age > config.campaign.useful_for {
        // Not refused: a week that was missed may be made up for whenever somebody says so.
        eprint(&format!("note: the tick of {} was {} ago", args.period, report::ago(age)))?;
    }
    if args.dry_run {
        return super::dry_run::run(&config, &secrets, args.period).await;
    }
    let ledger = assemble::ledger(&config, &secrets).await?;
    let campaign = config.campaign.name.clone();
    if closed(&ledger, &campaign, args.period).await? {
        already_ran(&ledger, &campaign, args.period).await?;
        return Ok(Exit::AlreadyHappened);
    }
    // What would fail the freeze, or every message, is told here, before anything starts.
    config.check(&secrets, Timestamp::now())?;
    assemble::templates(&config, &secrets)?;
    assemble::source(&config, &secrets)?.check().await?;
    let client = assemble::engine(&config, true).await?;
    let started = start(&client, &config, args.period).await?;
    let id = digest_workflows::run_id(&campaign, args.period);
    let what = if started { "started" } else { "joined: it was started before" };
    eprint(&format!("{id} {what}"))?;
    eprint(&links::of_run(&config, args.period))?;
    if !args.wait {
        return Ok(if started { Exit::Done } else { Exit::AlreadyHappened });
    }
    wait(&ledger, &campaign, args.period).await?;
    let status = ledger.status(&campaign, args.period).await?;
    output::print(&report::summary(&status))?;
    Ok(if status.needs_a_human() { Exit::NeedsHuman } else { Exit::Done })
}

/// Starts the run's workflow; returns whether it was started just now.
///
/// # Errors
/// When the engine does not start it for another reason than that it exists.
pub async fn start(client: &Client, config: &Config, period: Period) -> anyhow::Result<bool> {
    let campaign = &config.campaign.name;
    let start = RunStart { campaign: campaign.clone(), period, tick: None };
    let options = WorkflowStartOptions::new(
        config.engine.task_queue.clone(),
        digest_workflows::run_id(campaign, period),
    )
    // The ledger says whether anything is left to do, so a closed workflow's id may be used again.
    .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
    .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
    .search_attributes(attributes::of_run(campaign, period))
    .build();
    match client.start_workflow(DigestRun::run, RunInput::new(start), options).await {
        Ok(_) => Ok(true),
        Err(WorkflowStartError::AlreadyStarted { .. }) => Ok(false),
        Err(error) => Err(error).context("the engine did not start the run; nothing was sent"),
    }
}

async fn closed(ledger: &Ledger, campaign: &str, period: Period) -> anyhow::Result<bool> {
    let run = ledger.run(campaign, period).await?;
    Ok(run.is_some_and(|run| run.state == RunState::Closed))
}

async fn already_ran(ledger: &Ledger, campaign: &str, period: Period) -> anyhow::Result<()> {
    let status = ledger.status(campaign, period).await?;
    eprint(&format!("{} already ran; nothing was started and nothing is sent", status.run))?;
    output::print(&report::summary(&status))?;
    Ok(())
}

/// Waits until the ledger has the run closed, with a progress bar on a terminal.
async fn wait(ledger: &Ledger, campaign: &str, period: Period) -> anyhow::Result<()> {
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut said = String::new();
    let mut silent = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let status = match ledger.status(campaign, period).await {
            Ok(status) => status,
            Err(error) if error.is_temporary() => {
                silent += 1;
                if silent > 240 {
                    bail!("the ledger has not answered for two minutes: {error}");
                }
                continue;
            }
            // Not opened yet: no worker has taken it.
            Err(digest_activities::ledger::LedgerError::NoSuchRun { .. }) => {
                bar.set_message("waiting for a worker");
                bar.tick();
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        silent = 0;
        if status.state == "closed" {
            bar.finish_and_clear();
            return Ok(());
        }
        bar.set_length(status.selected);
        bar.set_position(status.selected.saturating_sub(status.missing_count));
        bar.set_message(status.state.clone());
        if let Some(because) = status.held_because.filter(|_| status.state == "held")
            && said != because
        {
            bar.println(format!(
                "held ({because}); `digestd resume --period {period} --reason …` goes on"
            ));
            if bar.is_hidden() {
                eprint(&format!("held ({because}); waiting for `digestd resume`"))?;
            }
            said = because;
        }
    }
}

fn eprint(text: &str) -> std::io::Result<()> {
    output::say(text)
}
