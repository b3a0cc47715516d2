//! `digestd setup`: ledger, search attributes and schedule; safe to repeat.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::operate::SetupArgs;
use crate::config::{Config, Secrets};
use crate::engine::{schedule, search_attributes};
use crate::output;
use digest_activities::ledger::{self, Ledger};
use digest_workflows::weekly::WeeklyInput;
use jiff::Timestamp;

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
    let (ledger, setup) = Ledger::set_up(url, schema).await?;
    let what = match (setup.from, setup.to) {
        (0, to) => format!("created at version {to}"),
        (from, to) if from == to => format!("is at version {to} already"),
        (from, to) => format!("migrated from version {from} to {to}"),
    };
    output::print(&format!("ledger: {what} (id {})", ledger.identity().id))?;
    ledger.close().await;
    let client = assemble::engine(&config, false).await?;
    search_attributes::register(&client).await?;
    output::print(&format!("search attributes: {} exist", search_attributes::NAMES.join(", ")))?;
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
