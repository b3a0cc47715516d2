//! `digestd hold`, `resume` and `cancel`: decided in the ledger, where they count at once; the
//! engine's workflows are told afterwards, and find out by themselves where the engine is away.

use crate::ask::confirm;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::{CancelArgs, HoldArgs, ResumeArgs};
use crate::config::{Config, Secrets};
use crate::output;
use crate::tell::{self, Teller};
use anyhow::anyhow;
use digest_activities::ledger::{Actor, Ledger, LedgerError, Run, RunState};
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
    let campaign = &config.campaign.name;
    let before = ledger.run(campaign, args.period).await?;
    let by = args.decision.who();
    let actor = Actor { by: &by, reason: Some(&args.decision.reason) };
    let run = ledger.hold(campaign, args.period, &args.decision.reason, actor).await?;
    let id = digest_workflows::run_id(campaign, args.period);
    let because = run.held_because.unwrap_or_default();
    if before.is_some_and(|before| before.held_since.is_some()) {
        output::print(&format!("{id} was held before ({because}); nothing was changed"))?;
        return Ok(Exit::AlreadyHappened);
    }
    output::print(&format!(
        "{id} is held: no attempt begins until `digestd resume --period {} --reason …`",
        args.period
    ))?;
    told(tell_run(&config, args.period).await, "it sees the hold by itself within 5 minutes")?;
    Ok(Exit::Done)
}

/// Ends a hold.
///
/// # Errors
/// An unreachable ledger, no such run, or nobody there to answer; the run is still held then.
pub(super) async fn resume(config: Config, args: ResumeArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let (campaign, period) = (&config.campaign.name, args.period);
    let run = known(&ledger, campaign, period).await?;
    let id = digest_workflows::run_id(campaign, period);
    if run.held_since.is_none() {
        output::print(&format!("{id} is not held; nothing was changed"))?;
        return Ok(Exit::AlreadyHappened);
    }
    let stale = ledger.stale_on_resume(campaign, period).await?;
    let question = format!(
        "{id} is held: {}. Of its messages, {stale} are too late to be useful by now and will end \
         as dead letters of class stale, which cannot be replayed; the others go on.",
        run.held_because.unwrap_or_default()
    );
    output::say(&question)?;
    if !confirm("Go on?", args.yes, false)? {
        return not_agreed();
    }
    let by = args.decision.who();
    let actor = Actor { by: &by, reason: Some(&args.decision.reason) };
    let resumed = ledger.resume(campaign, period, actor).await?;
    output::print(&format!(
        "{id} {}",
        if resumed { "is resumed" } else { "was resumed meanwhile" }
    ))?;
    let late = "a worker tells them within a minute of reaching the engine again";
    told(tell_all(&config, period, &[tell::HELD]).await, late)?;
    Ok(Exit::Done)
}

/// Cancels a run.
///
/// # Errors
/// An unreachable ledger, no such run, or nobody there to answer. Repeating the command goes on
/// where it stopped.
pub(super) async fn cancel(config: Config, args: CancelArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let (campaign, period) = (&config.campaign.name, args.period);
    let run = known(&ledger, campaign, period).await?;
    let id = digest_workflows::run_id(campaign, period);
    let count = ledger.cancellable(campaign, period).await?;
    let again = run.cancelled_at.is_some();
    if run.state == RunState::Closed || (again && count == 0) {
        let what = if again { "was cancelled before" } else { "is closed" };
        output::print(&format!("{id} {what}; nothing was changed"))?;
        return Ok(Exit::AlreadyHappened);
    }
    let more = match run.state {
        RunState::Planned | RunState::Freezing => ", and whatever its selection still brings",
        _ => "",
    };
    let question = format!(
        "Cancelling {id} suppresses {count} messages that are certainly not sent yet{more}: they \
         never will be. What is being sent or is unknown keeps its course."
    );
    output::say(&question)?;
    if !confirm("Go on?", args.yes, false)? {
        return not_agreed();
    }
    let by = args.decision.who();
    let actor = Actor { by: &by, reason: Some(&args.decision.reason) };
    let suppressed = ledger.cancel(campaign, period, &config.rules(), actor).await?;
    output::print(&format!("{id} is cancelled: {suppressed} messages are suppressed"))?;
    let late = "a worker tells them within a minute of reaching the engine again";
    told(tell_all(&config, period, &tell::cancellable()).await, late)?;
    Ok(Exit::Done)
}

async fn known(ledger: &Ledger, campaign: &str, period: Period) -> anyhow::Result<Run> {
    let run = ledger.run(campaign, period).await?;
    let (campaign, period) = (campaign.to_owned(), period.to_string());
    Ok(run.ok_or(LedgerError::NoSuchRun { campaign, period })?)
}

fn not_agreed() -> anyhow::Result<Exit> {
    output::say("nothing was changed")?;
    Ok(Exit::Failed)
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
