//! `digestd setup`: ledger, search attributes and schedule; safe to repeat.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::operate::SetupArgs;
use crate::config::{Config, Secrets};
use crate::engine::{schedule, search_attributes};
use crate::output;
use crate::restore;
use anyhow::Context;
use digest_activities::ledger::{self, Ledger};
use digest_workflows::weekly::WeeklyInput;
use indicatif::ProgressBar;
use jiff::Timestamp;
use temporalio_client::Client;

/// Prepares everything that a run needs.
///
/// # Errors
/// The first part that cannot be prepared, naming the cure; what was prepared before stays.
pub(super) async fn run(config: Config, args: SetupArgs) -> anyhow::Result<Exit> {
    let secrets = Secrets::from_env()?;
    let database = config.ledger_database(&secrets)?;
    let (url, schema) = (database.url.reveal(), config.ledger.schema.as_str());
    if args.print_sql {
        let mut sql = ledger::ddl(url, schema);
        let grants = ledger::grants(url, schema, "digestd");
        if !grants.is_empty() {
            sql.push_str("\n-- For the worker's role; write its name for \"digestd\".\n");
            sql.push_str(&grants);
        }
        output::print(&sql)?;
        return Ok(Exit::Done);
    }
    config.check(&secrets, Timestamp::now())?;
    let (mut ledger, setup) = Ledger::set_up(url, schema).await?;
    let campaign = &config.campaign.name;
    ledger.note_setup(campaign, ledger.now().await?).await?;
    let what = match (setup.from, setup.to) {
        (0, to) => format!("created at version {to}"),
        (from, to) if from == to => format!("is at version {to} already"),
        (from, to) => format!("migrated from version {from} to {to}"),
    };
    output::print(&format!("ledger: {what} (id {})", ledger.identity().id))?;
    let client = assemble::engine(&config, false).await?;
    search_attributes::register(&client).await?;
    output::print(&format!("search attributes: {} exist", search_attributes::NAMES.join(", ")))?;
    if args.after_restore {
        after_restore(&config, &mut ledger, &client).await?;
    }
    ledger.close().await;
    let weekly = schedule::Weekly {
        campaign: config.campaign.name.clone(),
        cron: config.campaign.cron.clone(),
        timezone: config.campaign.timezone.clone(),
        catch_up: config.campaign.catch_up,
        task_queue: config.engine.task_queue.clone(),
        input: serde_json::to_value(WeeklyInput {
            campaign: config.campaign.name.clone(),
            timezone: config.campaign.timezone.clone(),
        })?,
    };
    let id = schedule::id(&config.campaign.name);
    let what = match schedule::create_or_update(&client, &weekly).await? {
        schedule::Change::Created => "created, paused; `digestd schedule resume` starts it",
        schedule::Change::Updated => "updated",
        schedule::Change::Unchanged => "is up to date",
    };
    output::print(&format!("schedule {id}: {what}"))?;
    Ok(Exit::Done)
}

/// Compares a restored ledger with the engine, under a new epoch.
async fn after_restore(
    config: &Config,
    ledger: &mut Ledger,
    client: &Client,
) -> anyhow::Result<()> {
    ledger.raise_epoch().await?;
    output::print(&format!("restore: the ledger's epoch is {} now", ledger.identity().epoch))?;
    let bar = ProgressBar::new_spinner().with_message("operations compared with the engine");
    let said = |count| bar.set_position(count);
    let campaign = &config.campaign.name;
    let restored = restore::after_restore(ledger, client, campaign, &config.rules(), said).await;
    bar.finish_and_clear();
    let restored = restored.context(
        "the comparison with the engine is not complete; keep the workers stopped and run `digestd \
         setup --after-restore` again",
    )?;
    output::print(&format!(
        "restore: {} operations compared with the engine, {} of them became unknown \
         (`digestd unknown`); {} workflows of before ended, {} holds ended",
        restored.looked_at, restored.unknown, restored.terminated, restored.resumed
    ))?;
    Ok(())
}
