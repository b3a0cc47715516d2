//! `digestd hold`, `resume` and `cancel`: decided in the ledger, where they count at once; the
//! engine's workflows are told afterwards, and find out by themselves where the engine is away.

use crate::ask::confirm;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::{CancelArgs, HoldArgs, ResumeArgs};
use crate::cli::values::Decision;
use crate::config::{Config, Secrets};
use crate::decide::run::{Outcome, Plan, RunDecision};
use crate::output;
use crate::tell::{self, Teller};
use anyhow::anyhow;
use digest_activities::ledger::{Actor, Ledger};
use digest_workflows::operation::Period;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How long the command goes on telling operations; the worker's sweep tells the rest.
const TELLING: Duration = Duration::from_mins(5);
/// A telling that takes longer than this shows how far it is.
const SILENT: Duration = Duration::from_secs(2);

/// Holds a run.
///
/// # Errors
/// An unreachable ledger; nothing is held then.
pub(super) async fn hold(config: Config, args: HoldArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let Some(done) = take(RunDecision::Hold, &config, &ledger, args.period, &args.decision).await?
    else {
        return Ok(Exit::AlreadyHappened);
    };
    output::print(&format!("{done} (`digestd resume --period {} --reason …`)", args.period))?;
    told(tell_run(&config, args.period).await, "it sees the hold by itself within 5 minutes")?;
    Ok(Exit::Done)
}

/// Ends a hold.
///
/// # Errors
/// An unreachable ledger, no such run, or nobody there to answer; the run is still held then.
pub(super) async fn resume(config: Config, args: ResumeArgs) -> anyhow::Result<Exit> {
    let how = (RunDecision::Resume, args.period, args.yes);
    ask_then_take(&config, how, &args.decision, &[tell::HELD]).await
}

/// Cancels a run.
///
/// # Errors
/// An unreachable ledger, no such run, or nobody there to answer. Repeating the command goes on
/// where it stopped.
pub(super) async fn cancel(config: Config, args: CancelArgs) -> anyhow::Result<Exit> {
    let how = (RunDecision::Cancel, args.period, args.yes);
    ask_then_take(&config, how, &args.decision, &tell::cancellable()).await
}

/// Says what the decision would do, asks, takes it, and tells the operations that show one of
/// `states`.
async fn ask_then_take(
    config: &Config,
    (decision, period, yes): (RunDecision, Period, bool),
    why: &Decision,
    states: &[&str],
) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(config, &Secrets::from_env()?).await?;
    match decision.plan(&ledger, &config.campaign.name, period).await? {
        Plan::Nothing(said) => {
            output::print(&said)?;
            return Ok(Exit::AlreadyHappened);
        }
        Plan::Would(what) => output::say(&what)?,
    }
    if !confirm("Go on?", yes, false)? {
        output::say("nothing was changed")?;
        return Ok(Exit::Failed);
    }
    let Some(done) = take(decision, config, &ledger, period, why).await? else {
        return Ok(Exit::AlreadyHappened);
    };
    output::print(&done)?;
    let late = "a worker tells them within a minute of reaching the engine again";
    told(tell_all(config, period, states).await, late)?;
    Ok(Exit::Done)
}

/// Takes the decision; `None`, after saying why, where it is so already.
async fn take(
    decision: RunDecision,
    config: &Config,
    ledger: &Ledger,
    period: Period,
    why: &Decision,
) -> anyhow::Result<Option<String>> {
    let by = why.who();
    let actor = Actor { by: &by, reason: Some(&why.reason) };
    let campaign = &config.campaign.name;
    match decision.take(ledger, campaign, period, &config.rules(), actor).await? {
        Outcome::Done(done) => Ok(Some(done)),
        Outcome::Nothing(said) => {
            output::print(&said)?;
            Ok(None)
        }
    }
}

/// Says that the engine could not be told, which undoes nothing.
fn told(result: anyhow::Result<()>, otherwise: &str) -> anyhow::Result<()> {
    if let Err(error) = result {
        output::say(&format!(
            "the decision is in force, but the workflows were not told: {}; {otherwise}",
            output::paragraph(&error)
        ))?;
    }
    Ok(())
}

async fn teller(config: &Config) -> anyhow::Result<Teller> {
    let client = assemble::engine(config, true).await?;
    Ok(Teller { client, campaign: config.campaign.name.clone() })
}

async fn tell_run(config: &Config, period: Period) -> anyhow::Result<()> {
    teller(config).await?.run(period).await.map(|_| ())
}

/// Tells the run and its operations in `states`, with a progress bar if that takes a while.
async fn tell_all(config: &Config, period: Period, states: &[&str]) -> anyhow::Result<()> {
    let teller = teller(config).await?;
    teller.run(period).await?;
    let ids = teller.waiting(period, states).await?;
    let total = ids.len() as u64;
    let begun = Instant::now();
    let bar = RefCell::new(None);
    let said = |done| {
        if begun.elapsed() > SILENT {
            bar.borrow_mut().get_or_insert_with(|| bar_of(total)).set_position(done);
        }
    };
    let telling = tokio::time::timeout(TELLING, teller.operations(ids, said)).await;
    if let Some(bar) = bar.borrow_mut().take() {
        bar.finish_and_clear();
    }
    let minutes = TELLING.as_secs() / 60;
    telling.map_err(|_| anyhow!("not all of {total} were told within {minutes} minutes"))?;
    Ok(())
}

fn bar_of(total: u64) -> ProgressBar {
    let template = "telling operations {wide_bar} {pos}/{len} {elapsed}";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
